//! The cache engine under a provider that does nothing else: what the core sees of it.

use acm_prov_api::cache::engine::{CacheSettings, EndpointCache, PortCache};
use acm_prov_api::cache::lookups::LookupLimits;
use acm_prov_api::cache::question::{Question, Target};
use acm_prov_api::cache::store::StoreLimits;
use acm_prov_api::prelude::*;
use acm_prov_api::sync::Arc;
use acm_prov_api::testing::{Request, TestCore};
use acm_prov_api::{
    Device, EndpointHandle, EndpointState, Plain, Port, PortHandle, PortState, provider_table,
};

/// Answers requests for LIDs and GIDs from the cache.
struct CacheOnly;

struct CachedPort(PortCache);

struct CachedEndpoint(EndpointCache);

impl Provider for CacheOnly {
    const NAME: &CStr = c"cache-only";
    type Endpoint = CachedEndpoint;

    fn load(_: &Host, _: &Options) -> Result<Self, Error> {
        Ok(CacheOnly)
    }

    fn resolve(&self, from: &LocalAddress<Self>, request: ResolveRequest) {
        let target = match request.destination() {
            Address::Lid(lid) => Target::Lid(lid),
            Address::Gid(gid) => Target::Gid(gid),
            _ => return request.refuse(Status::EDESTTYPE),
        };
        from.endpoint()
            .state()
            .0
            .resolve(&Question::plain(target), request);
    }
}

impl PortState<CacheOnly> for CachedPort {
    type Device = Plain;

    fn open(_: &Arc<Device<CacheOnly>>, port: &PortHandle) -> Result<Self, Error> {
        let settings = CacheSettings {
            store: StoreLimits {
                capacity: 100,
                ttl: None,
                stale_ttl: 60_000,
                negative_ttl: 0,
            },
            lookups: LookupLimits {
                timeout: 1_000,
                retries: 9,
                out: 2,
                lookups: 100,
                waiters: 100,
            },
            flush_file: None,
            routes_file: None,
        };
        Ok(Self(PortCache::open(port, settings)?))
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
    let mut core = TestCore::load::<CacheOnly>("");
    core.open();
    core
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
    let line = core.wait_for_log("the SA does not answer");
    assert!(line.contains("not sent"), "{line}");
    assert!(core.answers(id).is_empty());
    core.refuse_mads(false);
    core.wait_for_sa_questions(1);
    core.sa_answers_with(|_| ());
    assert_eq!(core.wait_for_answer(id).status, Status::SUCCESS);
    core.wait_for_log("the SA answers again");
}
