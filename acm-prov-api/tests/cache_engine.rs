//! The cache engine under a provider that does nothing else, seen from the core.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use acm_prov_api::abi::{AcmCounter, Be16, UMAD_SA_ATTR_PATH_REC, umad_sa_packet};
use acm_prov_api::cache::engine::{
    CacheSettings, EndpointCache, PathOptions, PortCache, QosSetting, RenewalSetting, Resolution,
};
use acm_prov_api::cache::settings::{self, LookupLimits};
use acm_prov_api::cache::store::StoreLimits;
use acm_prov_api::clock::Moment;
use acm_prov_api::prelude::*;
use acm_prov_api::sa::{Component, PathQuery, SaStatus, Target};
use acm_prov_api::sync::{Arc, Condvar, Mutex};
use acm_prov_api::testing::{Request, TestCore};
use acm_prov_api::watched_file::Follow;
use acm_prov_api::{
    Device, EndpointContext, EndpointHandle, NoContext, Port, PortContext, PortHandle,
    QueryRequest, provider_table,
};

/// Answers requests for LIDs and GIDs from the cache.
struct CacheOnly {
    /// Timeout in milliseconds, and retries.
    patience: (u64, u32),
    /// Whether ports watch a file in a file system that hangs.
    hangs: bool,
    flush_file: PathBuf,
    qos: QosSetting,
    /// Milliseconds; 0 is forever.
    ttl: u64,
}

/// A file in a file system that hangs until it is released.
#[derive(Debug)]
struct Hanging;

#[derive(Clone, Copy, PartialEq)]
enum Hang {
    NotLookedAt,
    Hangs,
    LetGo,
}

static HANG: (Mutex<Hang>, Condvar) = (Mutex::new(Hang::NotLookedAt), Condvar::new());

impl Follow for Hanging {
    fn look(&self, _: Moment) -> Vec<String> {
        let (hang, changed) = &HANG;
        let mut hang = hang.lock();
        if *hang == Hang::NotLookedAt {
            *hang = Hang::Hangs;
            changed.notify_all();
        }
        changed.wait_while(&mut hang, |hang| *hang == Hang::Hangs);
        Vec::new()
    }
}

/// A LID to which the provider requests a path for itself; it panics when it gets it.
const CURSED: Lid = Lid(666);

/// Set while the provider requests paths itself, for closures that own the requests.
static ON_BEHALF: Mutex<Option<PathOptions>> = Mutex::new(None);
static RESOLUTIONS: Mutex<Vec<Resolution>> = Mutex::new(Vec::new());

struct CachedPort(PortCache);

struct CachedEndpoint(EndpointCache);

impl Provider for CacheOnly {
    const NAME: &CStr = c"cache-only";
    type Endpoint = CachedEndpoint;

    fn load(_: &Host, options: &Options) -> Result<Self, Error> {
        *ON_BEHALF.lock() = None;
        RESOLUTIONS.lock().clear();
        let timeout = options.named("test_timeout").number(1_000, 1..=60_000);
        let retries = options.named("test_retries").number(99, 0..=100);
        Ok(CacheOnly {
            patience: (timeout, retries),
            hangs: options
                .named("test_hangs")
                .choice(false, &[("no", false), ("yes", true)]),
            flush_file: options.named("test_flush").path(""),
            qos: settings::qos(options, "test_qos"),
            ttl: options.named("test_ttl").number(0, 0..=60_000),
        })
    }

    fn resolve(&self, from: &LocalAddress<Self>, request: ResolveRequest) {
        let cache = &from.endpoint().context().0;
        if request.destination() == Address::Lid(CURSED) {
            let query = request.path_query();
            cache.path_to(&query, PathOptions::default(), |_| panic!("cursed"));
        }
        // The provider's own policy, and the names that it knows.
        if let Address::Ip(ip) = request.destination() {
            let mut query = PathQuery::to(Target::Lid(Lid(ip.octets()[3].into())));
            if ip.octets()[2] != 0 {
                query.set_sl(ip.octets()[2]);
            }
            RESOLUTIONS
                .lock()
                .push(cache.resolve_query(&query, request));
            return;
        }
        if let Address::Name(_) = request.destination() {
            let resolution = cache.resolve_to(Target::Lid(Lid(7)), request);
            RESOLUTIONS.lock().push(resolution);
            return;
        }
        let Some(options) = *ON_BEHALF.lock() else {
            cache.resolve(request);
            return;
        };
        let query = request.path_query();
        let request = request.keep();
        let resolution = cache.path_to(&query, options, move |path| match path {
            Ok(path) => request.answer(&path),
            Err(status) => request.refuse(status),
        });
        RESOLUTIONS.lock().push(resolution);
    }

    fn query(&self, from: &LocalAddress<Self>, request: QueryRequest) {
        let cache = &from.endpoint().context().0;
        cache.query(&request.path_query(), request);
    }
}

impl PortContext<CacheOnly> for CachedPort {
    type Device = NoContext;

    fn open(device: &Arc<Device<CacheOnly>>, port: &PortHandle) -> Result<Self, Error> {
        let CacheOnly {
            patience: (timeout, retries),
            hangs,
            flush_file,
            qos,
            ttl,
        } = &**device.provider();
        let settings = CacheSettings {
            store: StoreLimits {
                capacity: 1_000,
                ttl: (*ttl > 0).then(|| Duration::from_millis(*ttl)),
                stale_ttl: Duration::from_secs(60),
                negative_ttl: Duration::ZERO,
            },
            lookups: LookupLimits {
                timeout: Duration::from_millis(*timeout),
                retries: *retries,
                lookups: 1_000,
                waiters: 1_000,
            },
            flush_file: (!flush_file.as_os_str().is_empty()).then(|| flush_file.clone()),
            routes_file: None,
            qos: *qos,
            renewal: RenewalSetting::OFF,
            snapshot: None,
        };
        let cache = PortCache::open(port, settings)?;
        if *hangs {
            cache.follow(Arc::new(Hanging));
        }
        Ok(Self(cache))
    }

    fn reregister(&self, _: &PortHandle) {
        self.0.reregister();
    }

    fn close(&self) {
        self.0.close();
    }
}

impl EndpointContext<CacheOnly> for CachedEndpoint {
    type Port = CachedPort;
    type Address = NoContext;

    fn open(port: &Arc<Port<CacheOnly>>, endpoint: &EndpointHandle) -> Result<Self, Error> {
        Ok(Self(port.context().0.open_endpoint(endpoint)?))
    }

    fn close(&self) {
        self.0.close();
    }
}

provider_table!(CacheOnly);

fn opened() -> TestCore {
    opened_with("")
}

/// Opens a core whose MADs only the test ends, however busy the machine is, unless `options` say otherwise.
fn opened_with(options: &str) -> TestCore {
    let mut core = TestCore::load::<CacheOnly>(&format!("timeout 60000\n{options}"));
    core.play_class_port_info(true);
    core.open();
    core
}

/// An outstanding SA query.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Asked {
    /// ClassPortInfo.
    Abilities,
    /// A path to a LID.
    Lid(u16),
    /// A path to a LID, with a service id.
    Service(u16, u64),
}

use Asked::{Abilities, Service};

const SERVICE_BITS: u64 = Component::ServiceId.mask();

fn question(packet: &umad_sa_packet) -> Asked {
    if packet.mad_hdr.attr_id.to_host() == 1 {
        assert_eq!(packet.comp_mask.to_host(), 0);
        return Abilities;
    }
    assert_eq!(packet.mad_hdr.attr_id.to_host(), UMAD_SA_ATTR_PATH_REC);
    let record = packet.data.first_chunk().expect("200 bytes of data");
    let record = PathRecord::from_bytes(record);
    match packet.comp_mask.to_host() & SERVICE_BITS {
        0 => Asked::Lid(record.dlid().0),
        bits => {
            assert_eq!(bits, SERVICE_BITS, "both or none");
            Service(record.dlid().0, record.service_id())
        }
    }
}

/// Returns the outstanding SA queries, oldest first.
fn asked(core: &TestCore) -> Vec<Asked> {
    core.sa_mads().iter().map(question).collect()
}

/// Answers the ClassPortInfo query: whether service ids affect paths.
fn says(core: &TestCore, counts: bool) {
    core.sa_answers(|packet| {
        assert_eq!(question(packet), Abilities);
        let mask: u32 = if counts { 0xb5ea } else { 0xb5e8 };
        packet.data[..2].copy_from_slice(&[1, 2]);
        packet.data[4..8].copy_from_slice(&(mask << 5 | 0x10).to_be_bytes());
    });
}

/// Answers the oldest path query as OpenSM does: without service id and QoS class.
fn gives_a_path(core: &TestCore) {
    core.sa_answers_with(|path| {
        path.set_service_id(0).set_qos_class(0);
    });
}

fn succeeds(core: &TestCore, id: u64) -> PathRecord {
    let answer = core.wait_for_answer(id);
    assert_eq!(answer.status, Status::SUCCESS);
    answer.path.expect("a path")
}

fn lid(lid: u16) -> Request {
    Request::destination(&Address::Lid(Lid(lid)))
}

/// Sends a request like rdma_cm's: to a port of a host, which is a service id.
fn connect(lid: u16, service: u64) -> Request {
    let mut wanted = PathRecord::default();
    Request::path(wanted.set_dlid(Lid(lid)).set_service_id(service))
}

fn of_class(lid: u16, class: u16) -> Request {
    let mut wanted = PathRecord::default();
    Request::path(wanted.set_dlid(Lid(lid)).set_qos_class(class))
}

fn lines(core: &TestCore, text: &str) -> usize {
    let log = core.log();
    log.iter().filter(|line| line.contains(text)).count()
}

#[test]
fn a_request_after_a_reregister_gets_no_earlier_answer() {
    let mut core = opened();
    let before = core.resolve(&lid(7));
    core.wait_for_sa_mads(1);
    core.reregister();
    let after = core.resolve(&lid(7));
    core.wait_for_sa_mads(2);
    for sl in [1, 2] {
        core.sa_answers_with(|path| {
            path.set_sl(sl);
        });
    }
    assert_eq!(core.wait_for_answer(before).path.unwrap().sl(), 1);
    assert_eq!(core.wait_for_answer(after).path.unwrap().sl(), 2);
    // The last answer is cached.
    let known = core.resolve(&lid(7));
    assert_eq!(core.answers(known)[0].path.unwrap().sl(), 2);
}

/// A hit reads no clock: the port's thread expires the path.
#[test]
fn a_path_that_is_requested_without_a_pause_expires() {
    let mut core = opened_with("test_ttl 500\n");
    for _ in 0..2 {
        core.resolve(&lid(7));
        core.wait_for_sa_mads(1);
        core.sa_answers_with(|_| ());
        let limit = Instant::now() + Duration::from_secs(60);
        while core.sa_mads().is_empty() {
            assert!(Instant::now() < limit, "still answered from the cache");
            core.resolve(&lid(7));
            std::thread::yield_now();
        }
    }
}

#[test]
fn refused_queries_are_logged_and_retried() {
    let mut core = opened();
    core.refuse_mads(true);
    let id = core.resolve(&lid(7));
    let line = core.wait_for_log("SA not responding");
    assert!(line.contains("acm_send_sa_mad refused the MAD"), "{line}");
    assert!(core.answers(id).is_empty());
    core.refuse_mads(false);
    core.wait_for_sa_mads(1);
    core.sa_answers_with(|_| ());
    assert_eq!(core.wait_for_answer(id).status, Status::SUCCESS);
    core.wait_for_log("SA responding again");
}

#[test]
fn mads_from_before_a_reopen_still_count() {
    let mut core = opened();
    for destination in 7..=9 {
        core.resolve(&lid(destination));
    }
    core.wait_for_sa_mads(2);
    core.close_port();
    core.open();
    let ids = [11, 12].map(|destination| core.resolve(&lid(destination)));
    let lids = |lids: [u16; 2]| lids.map(Asked::Lid);
    assert_eq!(asked(&core), lids([7, 8]), "two MADs per port, old and new");
    gives_a_path(&core);
    assert_eq!(asked(&core), lids([8, 11]), "one came back, one may go");
    core.sa_times_out();
    assert_eq!(asked(&core), lids([11, 12]));
    for id in ids {
        gives_a_path(&core);
        succeeds(&core, id);
    }
    assert_eq!(core.mads(), 0);
}

#[test]
fn lost_mads_free_their_places() {
    let mut core = opened_with("test_timeout 200\ntest_retries 0\ntimeout 100\nretries 0\n");
    for destination in [7, 8] {
        core.resolve(&lid(destination));
    }
    core.wait_for_sa_mads(2);
    core.close_port();
    core.open();
    // The core never returns the two.
    let is_asked = (0..300).any(|_| {
        let id = core.resolve(&lid(11));
        assert_eq!(core.wait_for_answer(id).status, Status::ETIMEDOUT);
        asked(&core).contains(&Asked::Lid(11))
    });
    assert!(is_asked, "in a minute");
}

#[test]
fn a_callback_that_panics_does_not_affect_other_requests() {
    let mut core = opened();
    core.expect_panics();
    let ids = [(); 3].map(|()| core.resolve(&lid(CURSED.0)));
    core.wait_for_sa_mads(1);
    core.resolve(&lid(7));
    core.sa_answers_with(|_| ());
    for id in ids {
        assert_eq!(core.wait_for_answer(id).status, Status::SUCCESS);
    }
    core.wait_for_log("cursed");
    assert_eq!(asked(&core), [Asked::Lid(7)], "the next query was sent");
}

#[test]
fn a_file_system_that_hangs_delays_no_answer() {
    let mut core = opened_with("test_timeout 100\ntest_retries 0\ntest_hangs yes\n");
    let (hang, changed) = &HANG;
    changed.wait_while(&mut hang.lock(), |hang| *hang == Hang::NotLookedAt);
    let id = core.resolve(&lid(7));
    assert_eq!(core.wait_for_answer(id).status, Status::ETIMEDOUT);
    assert!(*hang.lock() == Hang::Hangs, "it hangs still");
    *hang.lock() = Hang::LetGo;
    changed.notify_all();
    core.close();
    assert!(
        !core.log().iter().any(|line| line.contains("left behind")),
        "{:?}",
        core.log()
    );
}

#[test]
fn every_component_that_a_client_names_goes_to_the_sa() {
    let mut core = opened_with("test_qos on\n");
    let mut wanted = PathRecord::default();
    wanted.set_dgid(Gid::new(0xfe80 << 48, 0x2002));
    wanted.set_dlid(Lid(5)).set_traffic_class(3);
    wanted.set_service_id(9).set_qos_class(4);
    let id = core.resolve(&Request::path(&wanted));
    let [packet] = core.wait_for_sa_mads(1)[..] else {
        panic!("one question");
    };
    assert_eq!(packet.comp_mask.to_host(), 0x7c1f);
    core.sa_answers(|packet| packet.mad_hdr.status = Be16::from_host(SaStatus::REQ_INVALID.0));
    assert_eq!(core.wait_for_answer(id).status, Status::EINVAL);
}

#[test]
fn a_path_that_does_not_match_is_refused_with_a_line_for_each_component() {
    let mut core = opened();
    type Spoil = fn(&mut PathRecord);
    let wrong: [(&str, Spoil); 2] = [
        ("SGID", |path| _ = path.set_sgid(Gid::new(0xfe80 << 48, 99))),
        ("DLID", |path| _ = path.set_dlid(Lid(99))),
    ];
    for (component, spoil) in wrong {
        for _ in 0..3 {
            let id = core.resolve(&lid(7));
            core.wait_for_sa_mads(1);
            core.sa_answers_with(spoil);
            assert_eq!(core.wait_for_answer(id).status, Status::ENODATA);
        }
        core.wait_for_log(component);
        assert_eq!(
            lines(&core, &format!("has {component} ")),
            1,
            "{:?}",
            core.log()
        );
    }
}

#[test]
fn a_request_that_repeats_a_path_costs_no_query() {
    let mut core = opened();
    let id = core.resolve(&lid(7));
    core.wait_for_sa_mads(1);
    core.sa_answers_with(|path| {
        use acm_prov_api::path::Selector::Exactly;
        path.set_sl(6).set_mtu(Exactly, 4).set_rate(Exactly, 3);
        path.set_packet_lifetime(Exactly, 18);
    });
    let path = succeeds(&core, id);
    let again = core.resolve(&Request::path(&path));
    assert_eq!(core.answers(again)[0].path, Some(path));
}

#[test]
fn if_service_ids_do_not_count_all_connections_to_a_host_cost_one_query() {
    let mut core = opened();
    let ids: Vec<u64> = (1..=128)
        .map(|port| core.resolve(&connect(7, port)))
        .collect();
    assert_eq!(asked(&core), [Abilities], "asked once for all");
    says(&core, false);
    assert_eq!(asked(&core), [Asked::Lid(7)]);
    gives_a_path(&core);
    for id in ids {
        succeeds(&core, id);
    }
    let queries = AcmCounter::ROUTE_QUERY.0 as usize;
    assert_eq!(
        core.endpoint_counters()[queries],
        1,
        "the other was no route query"
    );
    // The plain request and one with a class have the same answer, and so does the next round.
    let more = [connect(7, 1), connect(7, 129), of_class(7, 5), lid(7)];
    for request in more {
        let id = core.resolve(&request);
        assert_eq!(core.answers(id)[0].status, Status::SUCCESS);
    }
    // A query request sends no service id either.
    core.query(&connect(7, 1));
    assert_eq!(asked(&core), [Asked::Lid(7)]);
}

#[test]
fn if_service_ids_count_each_is_queried_once() {
    let mut core = opened();
    let first = core.resolve(&connect(7, 1));
    says(&core, true);
    assert_eq!(asked(&core), [Service(7, 1)]);
    gives_a_path(&core);
    assert_eq!(succeeds(&core, first).service_id(), 0, "the SA's record");
    for port in 2..=128 {
        let id = core.resolve(&connect(7, port));
        assert_eq!(asked(&core), [Service(7, port)]);
        gives_a_path(&core);
        succeeds(&core, id);
    }
    for port in 1..=128 {
        let id = core.resolve(&connect(7, port));
        assert_eq!(core.answers(id)[0].status, Status::SUCCESS);
    }
    core.resolve(&lid(7));
    assert_eq!(asked(&core), [Asked::Lid(7)], "nothing plainer was learnt");
}

#[test]
fn a_request_that_names_neither_does_not_wait_for_class_port_info() {
    let mut core = opened();
    core.resolve(&lid(7));
    assert_eq!(asked(&core), [Asked::Lid(7)]);
}

#[test]
fn a_request_that_waits_for_class_port_info_keeps_its_deadline() {
    let mut core = opened_with("test_timeout 100\ntest_retries 0\n");
    let id = core.resolve(&connect(7, 1));
    assert_eq!(core.wait_for_answer(id).status, Status::ETIMEDOUT);
    assert_eq!(asked(&core), [Abilities], "the SA has it still");
    // A request that arrives meanwhile shares the query, and its answer serves all later requests.
    core.resolve(&connect(7, 2));
    assert_eq!(asked(&core), [Abilities]);
    says(&core, false);
    core.resolve(&connect(8, 3));
    assert_eq!(asked(&core).last(), Some(&Asked::Lid(8)));
}

#[test]
fn a_request_that_waits_for_class_port_info_is_refused_at_the_ports_close() {
    let mut core = opened();
    let id = core.resolve(&connect(7, 1));
    core.close_port();
    assert_eq!(core.wait_for_answer(id).status, Status::ENOTCONN);
    core.sa_times_out();
    // An earlier answer does not count after the reopen.
    core.open();
    core.resolve(&connect(7, 1));
    assert_eq!(asked(&core), [Abilities]);
}

#[test]
fn class_port_info_is_queried_again_after_a_re_registration() {
    let mut core = opened_with("sa_depth 8\n");
    let before = core.resolve(&connect(7, 1));
    core.reregister();
    let after = core.resolve(&connect(7, 2));
    assert_eq!(asked(&core), [Abilities, Abilities]);
    // The first answer serves the earlier request.
    says(&core, false);
    assert_eq!(asked(&core), [Abilities, Asked::Lid(7)]);
    let later = core.resolve(&connect(8, 3));
    assert_eq!(asked(&core), [Abilities, Asked::Lid(7)]);
    says(&core, true);
    assert_eq!(asked(&core), [Asked::Lid(7), Service(7, 2), Service(8, 3)]);
    for id in [before, after, later] {
        gives_a_path(&core);
        succeeds(&core, id);
    }
    // The second one is cached.
    core.resolve(&connect(7, 4));
    assert_eq!(asked(&core), [Service(7, 4)]);
}

#[test]
fn class_port_info_is_queried_again_after_a_flush() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("flush");
    let mut core = opened_with(&format!("test_flush {}\n", file.display()));
    let id = core.resolve(&connect(7, 1));
    core.wait_for_sa_mads(1);
    says(&core, false);
    gives_a_path(&core);
    succeeds(&core, id);
    std::fs::write(&file, "").unwrap();
    core.wait_for_log("flushed 1 paths");
    core.resolve(&connect(7, 1));
    assert_eq!(asked(&core), [Abilities]);
}

#[test]
fn an_sa_without_class_port_info_counts_as_one_with_service_ids() {
    let ends: [fn(&TestCore); 4] = [
        |core| core.sa_times_out(),
        |core| core.sa_answers(|packet| packet.mad_hdr.status = Be16::from_host(0x000c)),
        |core| core.sa_answers(|packet| packet.data[..2].copy_from_slice(&[1, 1])),
        |core| core.sa_answers(|packet| packet.mad_hdr.attr_id = Be16::from_host(2)),
    ];
    for end in ends {
        let mut core = opened();
        core.resolve(&connect(7, 1));
        assert_eq!(asked(&core), [Abilities]);
        end(&core);
        assert_eq!(asked(&core), [Service(7, 1)]);
        core.wait_for_log("ClassPortInfo");
        // There is a rest before the next query.
        core.resolve(&connect(7, 2));
        assert_eq!(asked(&core), [Service(7, 1), Service(7, 2)]);
        gives_a_path(&core);
        gives_a_path(&core);
        // One line, until the SA answers.
        for (port, speaks, count) in [(3, false, 1), (4, true, 1), (5, false, 2)] {
            core.reregister();
            let id = core.resolve(&connect(7, port));
            assert_eq!(asked(&core), [Abilities]);
            if speaks {
                says(&core, true)
            } else {
                end(&core)
            }
            gives_a_path(&core);
            succeeds(&core, id);
            assert_eq!(lines(&core, "ClassPortInfo"), count, "{:?}", core.log());
        }
    }
}

#[test]
fn while_the_sa_is_silent_its_last_class_port_info_counts() {
    let mut core = opened_with("sa_depth 8\n");
    let id = core.resolve(&connect(7, 1));
    says(&core, false);
    gives_a_path(&core);
    succeeds(&core, id);
    core.resolve(&lid(8));
    core.sa_times_out();
    core.wait_for_log("SA not responding");
    core.reregister();
    let id = core.resolve(&connect(7, 2));
    assert_eq!(
        core.answers(id)[0].status,
        Status::SUCCESS,
        "the stale path"
    );
    assert!(asked(&core).contains(&Abilities), "and it is asked again");
}

#[test]
fn a_nodelay_request_gets_a_cached_path_or_no_data() {
    let mut core = opened();
    let id = core.resolve(&connect(7, 1).nodelay());
    assert_eq!(core.answers(id)[0].status, Status::ENODATA);
    assert_eq!(asked(&core), [Abilities]);
    says(&core, false);
    // The path is queried once the ClassPortInfo is known.
    assert_eq!(asked(&core), [Asked::Lid(7)]);
    gives_a_path(&core);
    let id = core.resolve(&connect(7, 3).nodelay());
    assert_eq!(core.answers(id)[0].status, Status::SUCCESS);
}

#[test]
fn a_stale_path_is_used_if_the_sa_is_silent_after_a_re_registration() {
    let mut core = opened_with("test_timeout 300\ntest_retries 2\nsa_depth 8\n");
    let id = core.resolve(&connect(7, 1));
    says(&core, false);
    gives_a_path(&core);
    let path = succeeds(&core, id);
    core.reregister();
    // The SA is silent from now on.
    let waiting = [lid(7), connect(7, 2)].map(|request| core.resolve(&request));
    for id in waiting {
        assert_eq!(succeeds(&core, id), path);
    }
    while !core.sa_mads().is_empty() {
        core.sa_times_out();
    }
    core.wait_for_log("SA not responding");
    for service in 3..6 {
        let id = core.resolve(&connect(7, service));
        assert_eq!(succeeds(&core, id), path, "what the SA said last counts");
    }
}

#[test]
fn the_kernels_classes_are_refused_while_they_count() {
    let kernel = |core: &TestCore| core.wait_for_answer(0);
    let mut core = opened();
    core.resolve_for_kernel(&of_class(7, 5));
    says(&core, true);
    assert_eq!(kernel(&core).status, Status::ENODATA);
    assert_eq!(asked(&core), []);
    // Classes of other clients are as they say.
    core.resolve(&of_class(7, 5));
    assert_eq!(core.sa_mads()[0].comp_mask.to_host() & 1 << 14, 1 << 14);
    drop(core);

    let mut core = opened();
    core.resolve_for_kernel(&connect(7, 5));
    says(&core, true);
    assert_eq!(asked(&core), [Service(7, 5)], "its service ids are right");
    gives_a_path(&core);
    assert_eq!(kernel(&core).status, Status::SUCCESS);
    drop(core);

    let mut core = opened();
    core.resolve_for_kernel(&of_class(7, 5));
    says(&core, false);
    assert_eq!(asked(&core), [Asked::Lid(7)]);
    gives_a_path(&core);
    assert_eq!(kernel(&core).status, Status::SUCCESS);
}

#[test]
fn the_option_for_service_ids_saves_the_class_port_info_query() {
    let mut core = opened_with("test_qos on\n");
    core.resolve(&connect(7, 5));
    assert_eq!(asked(&core), [Service(7, 5)]);
    gives_a_path(&core);
    core.resolve_for_kernel(&of_class(7, 5));
    assert_eq!(core.wait_for_answer(0).status, Status::ENODATA);
    core.reregister();
    core.resolve(&connect(7, 5));
    assert_eq!(asked(&core), [Service(7, 5)]);
    drop(core);

    let mut core = opened_with("test_qos off\n");
    core.resolve(&connect(7, 5));
    core.resolve_for_kernel(&of_class(7, 5));
    assert_eq!(asked(&core), [Asked::Lid(7)]);
    gives_a_path(&core);
    assert_eq!(core.wait_for_answer(0).status, Status::SUCCESS);
    core.reregister();
    core.resolve(&connect(7, 5));
    assert_eq!(asked(&core), [Asked::Lid(7)]);
}

/// Lets the provider request paths itself from now on.
fn on_behalf(options: PathOptions) {
    *ON_BEHALF.lock() = Some(options);
}

fn resolutions() -> Vec<Resolution> {
    std::mem::take(&mut *RESOLUTIONS.lock())
}

fn route_cache_hits(core: &TestCore) -> [u64; 2] {
    let index = AcmCounter::ROUTE_CACHE.0 as usize;
    [core.endpoint_counters()[index], core.core_counters()[index]]
}

#[test]
fn a_path_that_the_provider_requests_is_queried_and_cached() {
    let mut core = opened();
    on_behalf(PathOptions::default());
    let ids = [(); 2].map(|()| core.resolve(&lid(7)));
    assert_eq!(asked(&core), [Asked::Lid(7)]);
    gives_a_path(&core);
    for id in ids {
        succeeds(&core, id);
    }
    let known = core.resolve(&lid(7));
    assert_eq!(core.answers(known)[0].status, Status::SUCCESS);
    assert_eq!(
        resolutions(),
        [Resolution::Asked, Resolution::Asked, Resolution::Known]
    );
    assert_eq!(route_cache_hits(&core), [0, 0]);
    on_behalf(PathOptions {
        counts: true,
        ..PathOptions::default()
    });
    // Both for the plain query and for one that names more.
    let path = core.answers(known)[0].path.unwrap();
    for request in [lid(7), Request::path(&path)] {
        let id = core.resolve(&request);
        assert_eq!(core.answers(id)[0].path, Some(path));
    }
    assert_eq!(resolutions(), [Resolution::Known; 2]);
    assert_eq!(route_cache_hits(&core), [2, 2]);
}

#[test]
fn a_provider_that_does_not_wait_gets_no_data_and_the_sa_is_queried() {
    let mut core = opened();
    on_behalf(PathOptions {
        nodelay: true,
        ..PathOptions::default()
    });
    let id = core.resolve(&lid(7));
    assert_eq!(core.answers(id)[0].status, Status::ENODATA);
    assert_eq!(asked(&core), [Asked::Lid(7)]);
    gives_a_path(&core);
    let id = core.resolve(&lid(7));
    assert_eq!(core.answers(id)[0].status, Status::SUCCESS);
    assert_eq!(resolutions(), [Resolution::Asked, Resolution::Known]);
}

#[test]
fn a_provider_has_a_deadline_of_its_own_also_when_the_core_takes_no_mad() {
    // With the settings' deadline it would wait for 100 seconds.
    for refuses in [false, true] {
        let mut core = opened();
        core.refuse_mads(refuses);
        on_behalf(PathOptions {
            deadline: Some(Duration::from_millis(50)),
            ..PathOptions::default()
        });
        let id = core.resolve(&lid(7));
        assert_eq!(core.wait_for_answer(id).status, Status::ETIMEDOUT);
        assert_eq!(resolutions(), [Resolution::Asked]);
    }
}

#[test]
fn a_provider_is_called_back_at_a_close_and_for_an_invalid_query() {
    let mut core = opened();
    on_behalf(PathOptions::default());
    let waiting = core.resolve(&lid(7));
    let nothing = core.resolve(&lid(0xc000));
    assert_eq!(core.answers(nothing)[0].status, Status::EDESTADDR);
    core.close_port();
    assert_eq!(core.answers(waiting)[0].status, Status::ENOTCONN);
    assert_eq!(resolutions(), [Resolution::Asked, Resolution::Refused]);
}

#[test]
fn requests_are_counted_once_however_they_end() {
    let mut core = opened();
    let requests = |core: &TestCore| core.endpoint_counters()[AcmCounter::RESOLVE.0 as usize];
    let waiting = core.resolve(&lid(7));
    assert_eq!(requests(&core), 1, "while it waits");
    gives_a_path(&core);
    succeeds(&core, waiting);
    core.resolve(&lid(7));
    core.resolve(&lid(0xc000));
    core.resolve(&lid(8).nodelay());
    assert_eq!(requests(&core), 4);
    assert_eq!(route_cache_hits(&core), [1, 1]);
    assert_eq!(core.core_counters()[AcmCounter::RESOLVE.0 as usize], 0);
}

#[test]
fn a_name_and_a_policys_query_share_the_cache() {
    let mut core = opened();
    let name = Address::Name(Name::new("seven").unwrap());
    let ip = |sl| Address::Ip([10, 0, sl, 7].into());
    let first = core.resolve(&Request::destination(&name));
    assert_eq!(asked(&core), [Asked::Lid(7)]);
    gives_a_path(&core);
    let path = succeeds(&core, first);
    // The client's constraints beside the name count.
    let mut hint = PathRecord::default();
    hint.set_sl(3);
    for request in [
        Request::destination(&name),
        Request::destination(&ip(0)),
        lid(7),
    ] {
        let id = core.resolve(&request);
        assert_eq!(core.answers(id)[0].path, Some(path));
    }
    assert_eq!(
        resolutions(),
        [Resolution::Asked, Resolution::Known, Resolution::Known]
    );
    assert_eq!(route_cache_hits(&core), [3, 3]);
    for request in [Request::hinted(&name, &hint), Request::destination(&ip(3))] {
        let id = core.resolve(&request);
        if resolutions() == [Resolution::Asked] {
            let packet = core.wait_for_sa_mads(1)[0];
            let record = PathRecord::from_bytes(packet.data.first_chunk().unwrap());
            assert_eq!((record.dlid(), record.sl()), (Lid(7), 3));
            gives_a_path(&core);
        } else {
            assert_eq!(core.answers(id).len(), 1, "the second is the same query");
        }
        assert_eq!(succeeds(&core, id).sl(), 3);
    }
}
