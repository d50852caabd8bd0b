//! `path-cache`: an ibacm provider that answers from a bounded cache of SA paths.
//!
//! It needs nothing on the peers: every path comes from the subnet administrator, through the core's SA requests. Names and
//! IP addresses lead to GIDs by an `acm_hosts` file, which is followed. The work is done by the SDK's cache engine; here are the options, the
//! addresses, and what a request asks.

#![forbid(unsafe_code)]

mod settings;

#[cfg(test)]
mod tests;

use acm_prov_api::abi::AcmCounter;
use acm_prov_api::cache::engine::{EndpointCache, PortCache, Resolution};
use acm_prov_api::cache::own_path;
use acm_prov_api::hosts::Hosts;
use acm_prov_api::options::OptionInfo;
use acm_prov_api::prelude::*;
use acm_prov_api::sa::{PathQuery, Target};
use acm_prov_api::sync::Arc;
use acm_prov_api::watched_file::WatchedFile;
use acm_prov_api::{
    Device, EndpointHandle, EndpointState, Plain, Port, PortHandle, PortState, QueryRequest,
};

use settings::Settings;

/// The provider.
struct PathCache {
    settings: Settings,
    hosts: Option<Arc<WatchedFile<Hosts>>>,
}

/// An open port: its cache, with the thread that keeps deadlines.
struct CachedPort(PortCache);

/// An open endpoint: its cache, and the path to itself.
struct CachedEndpoint {
    cache: EndpointCache,
    own_path: Option<PathRecord>,
}

impl PathCache {
    /// The GID that the hosts file has for an address.
    fn host(&self, address: &Address) -> Option<Gid> {
        self.hosts.as_ref()?.with(|hosts| hosts.get(address))
    }

    /// Answers a request for a name or IP address: with the path to the GID that it leads to.
    // Apart from the others, whose code is short without it.
    #[inline(never)]
    fn resolve_name(&self, from: &LocalAddress<Self>, request: ResolveRequest<'_>) {
        let endpoint = from.endpoint();
        let CachedEndpoint { cache, own_path } = endpoint.state();
        let destination = request.destination();
        let is_own =
            self.settings.stock.answers_own_addresses && endpoint.has_address(&destination);
        let target = if is_own {
            let own = Target::Gid(cache.source().gid);
            // Ask the SA if the port's attributes give no path, or one that the client does not want.
            if let Some(path) = own_path {
                let mut asked = request.path_query();
                asked.set_target(own);
                let [asked, plain] =
                    [asked, PathQuery::to(own)].map(|query| query.complete(cache.source()));
                if asked.is_answered_by(&plain, path) {
                    return request.answer_from_cache(path);
                }
            }
            own
        } else if let Some(gid) = self.host(&destination) {
            Target::Gid(gid)
        } else {
            return request.refuse(Status::ENODATA);
        };
        if cache.resolve_to(target, request) == Resolution::Asked {
            endpoint.handle().count(AcmCounter::ADDR_CACHE);
        }
    }
}

impl Provider for PathCache {
    const NAME: &CStr = c"path-cache";
    const OPTIONS: &'static [OptionInfo] = settings::OPTIONS;
    type Endpoint = CachedEndpoint;

    fn load(host: &Host, options: &Options) -> Result<Self, Error> {
        let settings = Settings::read(options);
        let hosts = settings
            .stock
            .hosts_file
            .as_deref()
            .map(|file| Arc::new(WatchedFile::hosts(file)));
        if let Some(hosts) = &hosts {
            for report in hosts.get().reports() {
                host.log(LogLevel::ALWAYS, format_args!("{report}"));
            }
        }
        Ok(Self { settings, hosts })
    }

    fn resolve(&self, from: &LocalAddress<Self>, request: ResolveRequest<'_>) {
        if request.is_by_name() {
            return self.resolve_name(from, request);
        }
        from.endpoint().state().cache.resolve(request);
    }

    fn query(&self, from: &LocalAddress<Self>, request: QueryRequest) {
        let cache = &from.endpoint().state().cache;
        cache.query(&request.path_query(), request);
    }
}

impl PortState<PathCache> for CachedPort {
    type Device = Plain;

    fn open(device: &Arc<Device<PathCache>>, port: &PortHandle) -> Result<Self, Error> {
        let provider = device.provider();
        let cache = PortCache::open(port, provider.settings.cache.clone())?;
        if let Some(hosts) = &provider.hosts {
            cache.follow(Arc::clone(hosts) as _);
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

impl EndpointState<PathCache> for CachedEndpoint {
    type Port = CachedPort;
    type Address = Plain;

    fn open(port: &Arc<Port<PathCache>>, endpoint: &EndpointHandle) -> Result<Self, Error> {
        let cache = port.state().0.open_endpoint(endpoint)?;
        Ok(Self {
            cache,
            own_path: own_path(endpoint),
        })
    }

    fn close(&self) {
        self.cache.close();
    }
}

acm_prov_api::export_provider!(PathCache);
