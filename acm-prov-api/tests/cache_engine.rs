//! The cache engine under a provider that does nothing else: what the core sees of it.

use acm_prov_api::cache::engine::{CacheSettings, EndpointCache, PortCache};
use acm_prov_api::cache::lookups::LookupLimits;
use acm_prov_api::cache::question::{Question, Target};
use acm_prov_api::cache::store::StoreLimits;
use acm_prov_api::clock::Moment;
use acm_prov_api::followed::Follow;
use acm_prov_api::prelude::*;
use acm_prov_api::sync::{Arc, Condvar, Mutex};
use acm_prov_api::testing::{Request, TestCore};
use acm_prov_api::{
    Device, EndpointHandle, EndpointState, Plain, Port, PortHandle, PortState, provider_table,
};

/// Answers requests for LIDs and GIDs from the cache.
struct CacheOnly {
    /// Milliseconds, and further tries.
    patience: (u64, u32),
    /// Whether ports follow a file in a file system that hangs.
    hangs: bool,
}

/// A file in a file system that hangs until it is let go.
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

/// A LID to which the provider wants a path for itself, and panics when it has it.
const CURSED: Lid = Lid(666);

struct CachedPort(PortCache);

struct CachedEndpoint(EndpointCache);

impl Provider for CacheOnly {
    const NAME: &CStr = c"cache-only";
    type Endpoint = CachedEndpoint;

    fn load(_: &Host, options: &Options) -> Result<Self, Error> {
        let timeout = options.number("test_timeout", 1_000, 1..=60_000);
        let retries = options.number("test_retries", 9, 0..=100);
        Ok(CacheOnly {
            patience: (timeout, retries),
            hangs: options.choice("test_hangs", false, &[("no", false), ("yes", true)]),
        })
    }

    fn resolve(&self, from: &LocalAddress<Self>, request: ResolveRequest) {
        let target = match request.destination() {
            Address::Lid(lid) => Target::Lid(lid),
            Address::Gid(gid) => Target::Gid(gid),
            _ => return request.refuse(Status::EDESTTYPE),
        };
        let cache = &from.endpoint().state().0;
        let question = Question::plain(target);
        if target == Target::Lid(CURSED) {
            cache.path_to(&question, |_| panic!("cursed"));
        }
        cache.resolve(&question, request);
    }
}

impl PortState<CacheOnly> for CachedPort {
    type Device = Plain;

    fn open(device: &Arc<Device<CacheOnly>>, port: &PortHandle) -> Result<Self, Error> {
        let &CacheOnly {
            patience: (timeout, retries),
            hangs,
        } = &**device.provider();
        let settings = CacheSettings {
            store: StoreLimits {
                capacity: 100,
                ttl: None,
                stale_ttl: 60_000,
                negative_ttl: 0,
            },
            lookups: LookupLimits {
                timeout,
                retries,
                out: 2,
                lookups: 100,
                waiters: 100,
            },
            flush_file: None,
            routes_file: None,
        };
        let cache = PortCache::open(port, settings)?;
        if hangs {
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

impl EndpointState<CacheOnly> for CachedEndpoint {
    type Port = CachedPort;
    type Address = Plain;

    fn open(port: &Arc<Port<CacheOnly>>, endpoint: &EndpointHandle) -> Result<Self, Error> {
        Ok(Self(port.state().0.open_endpoint(endpoint)?))
    }

    fn close(&self) {
        self.0.close();
    }
}

provider_table!(CacheOnly);

fn opened() -> TestCore {
    opened_with("")
}

fn opened_with(options: &str) -> TestCore {
    let mut core = TestCore::load::<CacheOnly>(options);
    core.open();
    core
}

/// The LIDs that the SA is asked for and has not answered, oldest first.
fn asked(core: &TestCore) -> Vec<u16> {
    let lid = |packet: &acm_prov_api::abi::umad_sa_packet| {
        let record = packet.data.first_chunk().expect("200 bytes of data");
        PathRecord::from_bytes(record).dlid().0
    };
    core.sa_questions().iter().map(lid).collect()
}

fn lid(lid: u16) -> Request {
    Request::destination(&Address::Lid(Lid(lid)))
}

#[test]
fn who_asks_after_a_reregister_is_not_answered_from_before() {
    let mut core = opened();
    let before = core.resolve(&lid(7));
    core.wait_for_sa_questions(1);
    core.reregister();
    let after = core.resolve(&lid(7));
    core.wait_for_sa_questions(2);
    for sl in [1, 2] {
        core.sa_answers_with(|path| {
            path.set_sl(sl);
        });
    }
    assert_eq!(core.wait_for_answer(before).path.unwrap().sl(), 1);
    assert_eq!(core.wait_for_answer(after).path.unwrap().sl(), 2);
    // What came last is kept.
    let known = core.resolve(&lid(7));
    assert_eq!(core.answers(known)[0].path.unwrap().sl(), 2);
}

#[test]
fn queries_that_the_core_does_not_take_are_told_and_asked_again() {
    let mut core = opened();
    core.refuse_mads(true);
    let id = core.resolve(&lid(7));
    let line = core.wait_for_log("SA not responding");
    assert!(line.contains("not sent"), "{line}");
    assert!(core.answers(id).is_empty());
    core.refuse_mads(false);
    core.wait_for_sa_questions(1);
    core.sa_answers_with(|_| ());
    assert_eq!(core.wait_for_answer(id).status, Status::SUCCESS);
    core.wait_for_log("SA responding again");
}

#[test]
fn what_the_core_still_has_from_before_a_reopen_counts() {
    let mut core = opened();
    for destination in 7..=9 {
        core.resolve(&lid(destination));
    }
    core.wait_for_sa_questions(2);
    core.close_port();
    core.open();
    let ids = [11, 12].map(|destination| core.resolve(&lid(destination)));
    assert_eq!(asked(&core), [7, 8], "two MADs a port, old and new");
    core.sa_answers_with(|_| ());
    assert_eq!(asked(&core), [8, 11], "one came back, one may go");
    core.sa_times_out();
    assert_eq!(asked(&core), [11, 12]);
    for id in ids {
        core.sa_answers_with(|_| ());
        assert_eq!(core.wait_for_answer(id).status, Status::SUCCESS);
    }
    assert_eq!(core.mads(), 0);
}

#[test]
fn what_the_core_has_lost_takes_no_place_for_ever() {
    let mut core = opened_with("test_timeout 200\ntest_retries 0\n");
    for destination in [7, 8] {
        core.resolve(&lid(destination));
    }
    core.wait_for_sa_questions(2);
    core.close_port();
    core.open();
    let id = core.resolve(&lid(11));
    assert_eq!(asked(&core), [7, 8]);
    assert_eq!(core.wait_for_answer(id).status, Status::ETIMEDOUT);
    // Nobody brings the two back.
    let mut answer = None;
    while answer.is_none() {
        let id = core.resolve(&lid(11));
        core.wait_for_answer(id);
        answer = asked(&core).into_iter().find(|lid| *lid == 11);
    }
}

#[test]
fn one_who_panics_takes_no_answer_from_the_others() {
    let mut core = opened();
    core.expect_panics();
    let ids = [(); 3].map(|()| core.resolve(&lid(CURSED.0)));
    core.wait_for_sa_questions(1);
    core.resolve(&lid(7));
    core.sa_answers_with(|_| ());
    for id in ids {
        assert_eq!(core.wait_for_answer(id).status, Status::SUCCESS);
    }
    core.wait_for_log("cursed");
    assert_eq!(asked(&core), [7], "the next query was sent");
}

#[test]
fn a_file_system_that_hangs_holds_up_no_answer() {
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
