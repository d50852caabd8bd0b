//! The cache engine with a dump, and with a provider that requests paths for itself.

use std::path::PathBuf;
use std::time::Duration;

use acm_prov_api::cache::engine::{
    CacheSettings, EndpointCache, PathOptions, PortCache, QosSetting, RenewalSetting,
};
use acm_prov_api::cache::settings::LookupLimits;
use acm_prov_api::cache::store::StoreLimits;
use acm_prov_api::path::Selector;
use acm_prov_api::prelude::*;
use acm_prov_api::sa::{PathQuery, Target};
use acm_prov_api::sync::Arc;
use acm_prov_api::testing::{Request, TestCore};
use acm_prov_api::{
    Device, EndpointContext, EndpointHandle, NoContext, Port, PortContext, PortHandle,
    provider_table,
};

/// Answers requests for LIDs and GIDs from the cache. A request for a name is a command to the provider: request the path to
/// LID 2 for itself, or note with `seen NODE2-LID` where that node is.
struct Preloading {
    dump: PathBuf,
}

struct CachedPort(PortCache);

struct CachedEndpoint(EndpointCache);

const NODE2: Gid = Gid::new(0xfe80 << 48, 0x2002);

impl Provider for Preloading {
    const NAME: &CStr = c"preloading";
    type Endpoint = CachedEndpoint;

    fn load(_: &Host, options: &Options) -> Result<Self, Error> {
        Ok(Self {
            dump: options.named("dump").path("/nonexistent/dump"),
        })
    }

    fn resolve(&self, from: &LocalAddress<Self>, request: ResolveRequest) {
        let cache = &from.endpoint().context().0;
        match request.destination() {
            Address::Name(_) => {
                let query = PathQuery::to(Target::Gid(NODE2));
                let request = request.keep();
                cache.path_to(&query, PathOptions::default(), move |path| match path {
                    Ok(path) => request.answer(&path),
                    Err(status) => request.refuse(status),
                });
            }
            Address::Ip(ip) => {
                cache.seen(NODE2, Lid(ip.octets()[3].into()));
                request.refuse(Status::ENODATA);
            }
            _ => {
                cache.resolve(request);
            }
        }
    }
}

impl PortContext<Preloading> for CachedPort {
    type Device = NoContext;

    fn open(device: &Arc<Device<Preloading>>, port: &PortHandle) -> Result<Self, Error> {
        let settings = CacheSettings {
            store: StoreLimits {
                capacity: 100,
                ttl: None,
                stale_ttl: Duration::from_secs(60),
                negative_ttl: Duration::ZERO,
            },
            lookups: LookupLimits {
                timeout: std::time::Duration::from_secs(1),
                retries: 99,
                lookups: 100,
                waiters: 100,
            },
            flush_file: None,
            routes_file: Some(device.provider().dump.clone()),
            qos: QosSetting::On,
            renewal: RenewalSetting::OFF,
            snapshot: None,
        };
        Ok(Self(PortCache::open(port, settings)?))
    }

    fn close(&self) {
        self.0.close();
    }
}

impl EndpointContext<Preloading> for CachedEndpoint {
    type Port = CachedPort;
    type Address = NoContext;

    fn open(port: &Arc<Port<Preloading>>, endpoint: &EndpointHandle) -> Result<Self, Error> {
        Ok(Self(port.context().0.open_endpoint(endpoint)?))
    }

    fn close(&self) {
        self.0.close();
    }
}

provider_table!(Preloading);

const HEADING: &str = "# LID  : SL : MTU : RATE\n";

fn dump(paths: &str) -> String {
    format!(
        "Channel Adapter 0x0000000000100001, base LID 1, \"me\", port 1\n{HEADING}{paths}\n\
         Channel Adapter 0x0000000000002002, base LID 2, \"node2\", port 1\n{HEADING}\n\
         Channel Adapter 0x0000000000002003, base LID 3, \"node3\", port 1\n{HEADING}"
    )
}

struct Preloaded {
    core: TestCore,
    file: PathBuf,
    _folder: tempfile::TempDir,
}

fn opened(text: Option<&str>) -> Preloaded {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("dump");
    if let Some(text) = text {
        std::fs::write(&file, text).unwrap();
    }
    let mut core = TestCore::load::<Preloading>(&format!("dump {}\n", file.display()));
    core.change_port(|port| port.subnet_timeout = 18);
    core.open();
    if text.is_some_and(|text| text.contains(" : 4")) {
        core.wait_for_log(" paths");
    }
    Preloaded {
        core,
        file,
        _folder: folder,
    }
}

impl Preloaded {
    fn resolve(&mut self, destination: Address) -> u64 {
        self.core.resolve(&Request::destination(&destination))
    }

    /// Returns the answer, if it needs no SA query.
    fn known(&mut self, destination: Address) -> Option<PathRecord> {
        let id = self.resolve(destination);
        self.core.answers(id).first().and_then(|answer| answer.path)
    }

    fn replace(&self, text: &str) {
        let other = self.file.with_extension("new");
        std::fs::write(&other, text).unwrap();
        std::fs::rename(other, &self.file).unwrap();
    }
}

const LID2: Address = Address::Lid(Lid(2));

/// Fault 38: preloaded records lack the selector bits that the SA's have.
#[test]
fn a_preloaded_path_looks_like_the_sas() {
    let mut preloaded = opened(Some(&dump(
        "0x0001 : 0  : 4   : 3\n0x0002 : 5  : 4   : 7\n",
    )));
    let path = preloaded.known(LID2).unwrap();
    let mut expected = PathRecord::default();
    use Selector::Exactly;
    expected
        .set_sgid(TestCore::GID)
        .set_slid(Lid(1))
        .set_dgid(NODE2)
        .set_dlid(Lid(2))
        .set_pkey(PKey(0xffff))
        .set_reversible(true)
        .set_sl(5)
        .set_mtu(Exactly, 4)
        .set_rate(Exactly, 7)
        .set_packet_lifetime(Exactly, 18);
    assert_eq!(path, expected);
    assert_eq!(path.to_bytes()[54..57], [0x84, 0x87, 0x92]);
    assert_eq!(preloaded.known(Address::Gid(NODE2)), Some(expected));
    let own = preloaded.known(Address::Lid(Lid(1))).unwrap();
    assert_eq!(own.to_bytes()[56], 0x80, "no way, no time");
    assert!(preloaded.core.sa_mads().is_empty());
}

#[test]
fn a_dump_answers_requests_that_name_its_values() {
    let mut preloaded = opened(Some(&dump("0x0002 : 5  : 4   : 3\n")));
    let plain = preloaded.known(LID2).unwrap();
    let mut hinted = PathRecord::default();
    hinted.set_sl(5).set_mtu(Selector::GreaterThan, 3);
    let mut both = PathRecord::default();
    both.set_dlid(Lid(2)).set_dgid(NODE2);
    for request in [
        Request::hinted(&LID2, &hinted),
        Request::path(&both),
        Request::path(&plain),
    ] {
        let id = preloaded.core.resolve(&request);
        assert_eq!(preloaded.core.answers(id)[0].path, Some(plain));
    }
    assert!(preloaded.core.sa_mads().is_empty());
}

#[test]
fn requests_that_differ_from_the_dump_go_to_the_sa() {
    let others: [fn(&mut PathRecord); 5] = [
        |wanted| _ = wanted.set_service_id(9),
        |wanted| _ = wanted.set_traffic_class(9),
        |wanted| _ = wanted.set_sl(9),
        |wanted| _ = wanted.set_mtu(Selector::LessThan, 4),
        |wanted| _ = wanted.set_dgid(Gid::new(0xfe80 << 48, 0x2003)),
    ];
    for set in others {
        let mut preloaded = opened(Some(&dump("0x0002 : 5  : 4   : 3\n")));
        let mut wanted = PathRecord::default();
        set(wanted.set_dlid(Lid(2)));
        preloaded.core.resolve(&Request::path(&wanted));
        preloaded.core.wait_for_sa_mads(1);
    }
}

#[test]
fn a_destination_missing_in_the_dump_goes_to_the_sa() {
    let mut preloaded = opened(Some(&dump("0x0002 : UNREACHABLE\n")));
    for destination in [
        LID2,
        Address::Lid(Lid(3)),
        Address::Gid(Gid::new(0x1234, 0x2002)),
    ] {
        assert_eq!(preloaded.known(destination), None);
    }
    preloaded.core.wait_for_sa_mads(2);
}

/// Fault 38: a dump read once is never read again.
#[test]
fn a_changed_dump_takes_the_place_of_the_old_one() {
    let mut preloaded = opened(Some(&dump(
        "0x0002 : 1  : 4   : 3\n0x0003 : 1  : 4   : 3\n",
    )));
    assert_eq!(preloaded.known(LID2).unwrap().sl(), 1);
    preloaded.replace(&dump("0x0002 : 2  : 4   : 3\n"));
    preloaded.core.wait_for_log("was read again: 1 entries");
    assert_eq!(preloaded.known(LID2).unwrap().sl(), 2);
    assert_eq!(
        preloaded.known(Address::Lid(Lid(3))),
        None,
        "swapped in whole"
    );
}

#[test]
fn a_torn_dump_is_not_used() {
    let mut preloaded = opened(Some(&dump("0x0002 : 1  : 4   : 3\n")));
    preloaded.replace("Channel Adapter 0x0000000000002002, base LID 2, \"node2\", port 1\n");
    preloaded
        .core
        .wait_for_log("going on with what was read before");
    assert_eq!(preloaded.known(LID2).unwrap().sl(), 1);
}

#[test]
fn a_dump_that_appears_later_is_used() {
    let mut preloaded = opened(None);
    preloaded.core.wait_for_log("no such file");
    assert_eq!(preloaded.known(LID2), None);
    preloaded.replace(&dump("0x0002 : 1  : 4   : 3\n"));
    preloaded.core.wait_for_log("was read again");
    assert_eq!(preloaded.known(LID2).unwrap().sl(), 1);
}

/// Fault 10: a peer that was seen at another LID.
#[test]
fn what_leads_elsewhere_than_a_port_was_seen_is_forgotten() {
    let seen_at = |lid: u8| Address::Ip([10, 0, 0, lid].into());
    let mut preloaded = opened(Some(&dump("0x0002 : 1  : 4   : 3\n")));
    preloaded.known(seen_at(2));
    assert_eq!(preloaded.known(LID2).unwrap().sl(), 1);
    preloaded.known(seen_at(7));
    let id = preloaded.resolve(Address::Gid(NODE2));
    preloaded.core.wait_for_sa_mads(1);
    preloaded.core.sa_answers_with(|path| {
        path.set_dlid(Lid(7));
    });
    assert_eq!(
        preloaded.core.wait_for_answer(id).path.unwrap().dlid(),
        Lid(7)
    );
    // The SA's answer is dropped in the same way.
    preloaded.known(seen_at(7));
    assert_eq!(preloaded.known(Address::Gid(NODE2)).unwrap().dlid(), Lid(7));
    preloaded.known(seen_at(8));
    assert_eq!(preloaded.known(Address::Gid(NODE2)), None);
}

#[test]
fn a_provider_gets_a_path_for_itself() {
    let name = Address::Name(Name::new("x").unwrap());
    let mut preloaded = opened(Some(&dump("0x0002 : 1  : 4   : 3\n")));
    assert_eq!(preloaded.known(name).unwrap().sl(), 1);
    preloaded.replace(&dump("0x0003 : 1  : 4   : 3\n"));
    preloaded.core.wait_for_log("was read again");
    let id = preloaded.resolve(name);
    preloaded.core.wait_for_sa_mads(1);
    preloaded.core.sa_answers_with(|path| {
        path.set_sl(3);
    });
    assert_eq!(preloaded.core.wait_for_answer(id).path.unwrap().sl(), 3);
    assert_eq!(
        preloaded.known(name).unwrap().sl(),
        3,
        "and the next time from the cache"
    );
    // A request that waits at the end is refused.
    preloaded.core.reregister();
    preloaded.known(name);
    preloaded.core.close();
}
