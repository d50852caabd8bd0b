//! A provider that answers only from the cache, and requests to it.

use std::path::PathBuf;
use std::time::Duration;

use acm_prov_api::cache::engine::{
    CacheSettings, EndpointCache, PathOptions, PortCache, QosSetting, RenewalSetting,
    SnapshotSetting,
};
use acm_prov_api::cache::settings::LookupLimits;
use acm_prov_api::cache::store::StoreLimits;
use acm_prov_api::prelude::*;
use acm_prov_api::sa::{PathQuery, Target};
use acm_prov_api::sync::Arc;
use acm_prov_api::testing::{Request, TestCore};
use acm_prov_api::{
    Device, EndpointContext, EndpointHandle, NoContext, Port, PortContext, PortHandle,
    provider_table,
};

/// Answers requests for LIDs and GIDs from the cache. For a request for a name it looks up a path with a deadline of a
/// millisecond.
struct Warm {
    per_second: u32,
    directory: Option<PathBuf>,
    flush_file: Option<PathBuf>,
    routes_file: Option<PathBuf>,
}

struct CachedPort(PortCache);

struct CachedEndpoint(EndpointCache);

impl Provider for Warm {
    const NAME: &CStr = c"warm";
    type Endpoint = CachedEndpoint;

    fn load(_: &Host, options: &Options) -> Result<Self, Error> {
        Ok(Self {
            per_second: options.named("renew").number(0, 0..=1_000),
            directory: options.named("directory").optional_path(),
            flush_file: options.named("flush").optional_path(),
            routes_file: options.named("routes").optional_path(),
        })
    }

    fn resolve(&self, from: &LocalAddress<Self>, request: ResolveRequest) {
        let cache = &from.endpoint().context().0;
        if !request.is_by_name() {
            cache.resolve(request);
            return;
        }
        let request = request.keep();
        let options = PathOptions {
            deadline: Some(Duration::from_millis(1)),
            ..PathOptions::default()
        };
        let query = PathQuery::to(Target::Lid(Lid(7)));
        cache.path_to(&query, options, move |_| request.refuse(Status::ENODATA));
    }
}

impl PortContext<Warm> for CachedPort {
    type Device = NoContext;

    fn open(device: &Arc<Device<Warm>>, port: &PortHandle) -> Result<Self, Error> {
        let Warm {
            per_second,
            directory,
            flush_file,
            routes_file,
        } = &**device.provider();
        let settings = CacheSettings {
            store: StoreLimits {
                capacity: 1_000,
                ttl: None,
                stale_ttl: Duration::from_secs(600),
                negative_ttl: Duration::ZERO,
            },
            lookups: LookupLimits {
                timeout: Duration::from_secs(1),
                retries: 99,
                lookups: 1_000,
                waiters: 1_000,
            },
            flush_file: flush_file.clone(),
            routes_file: routes_file.clone(),
            qos: QosSetting::Off,
            renewal: RenewalSetting {
                per_second: *per_second,
                delay: Duration::ZERO,
            },
            snapshot: directory.clone().map(|directory| SnapshotSetting {
                directory,
                interval: Duration::from_millis(10),
                max_age: Duration::from_secs(3_600),
            }),
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

impl EndpointContext<Warm> for CachedEndpoint {
    type Port = CachedPort;
    type Address = NoContext;

    fn open(port: &Arc<Port<Warm>>, endpoint: &EndpointHandle) -> Result<Self, Error> {
        Ok(Self(port.context().0.open_endpoint(endpoint)?))
    }

    fn close(&self) {
        self.0.close();
    }
}

provider_table!(Warm);

/// A core whose MADs only the test ends, however busy the machine is.
pub fn opened(options: &str) -> TestCore {
    let mut core = TestCore::load::<Warm>(&format!("log_level 1\ntimeout 60000\n{options}"));
    core.open();
    core
}

pub fn lid(lid: u16) -> Request {
    Request::destination(&Address::Lid(Lid(lid)))
}

#[allow(dead_code, reason = "not every test is in haste")]
pub fn hasty() -> Request {
    Request::destination(&Address::Name(Name::new("hasty").expect("a name")))
}

pub fn gid_of(lid: u16) -> Gid {
    Gid::new(TestCore::GID.subnet_prefix(), 0x2000 + u64::from(lid))
}

pub fn gid(lid: u16) -> Request {
    Request::destination(&Address::Gid(gid_of(lid)))
}

/// Resolves with the SA's help.
pub fn learn(core: &mut TestCore, request: &Request, sl: u8) {
    let id = core.resolve(request);
    core.wait_for_sa_mads(1);
    core.sa_answers_with(|path| {
        path.set_sl(sl);
    });
    assert_eq!(core.wait_for_answer(id).path.expect("a path").sl(), sl);
}
