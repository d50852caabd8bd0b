//! From a client's request to the engine: own addresses, the hosts file, the provider's own knowledge, the SA.

use crate::abi::{AcmCounter, AcmStatus};
use crate::address::{Address, Gid};
use crate::cache::engine::{EndpointCache, Parked, PortCache, Resolution};
use crate::cache::own_path;
use crate::host::{Host, LogLevel};
use crate::path::PathRecord;
use crate::request::{QueryRequest, ResolveRequest};
use crate::sa::{PathQuery, Source, Target};
use crate::sync::Arc;
use crate::text::hosts::Hosts;
use crate::text::watched_file::WatchedFile;

use super::PolicySettings;

/// What an operator says about names and IP addresses, for all ports.
#[derive(Clone)]
pub struct Names {
    hosts: Option<Arc<WatchedFile<Hosts>>>,
    answers_own_addresses: bool,
}

impl Names {
    /// Reads the hosts file. What is wrong in it goes to the log.
    #[must_use]
    pub fn load(host: &Host, settings: &PolicySettings) -> Self {
        let file = settings.hosts_file.as_deref();
        let hosts = file.map(|file| Arc::new(WatchedFile::hosts(file)));
        if let Some(hosts) = &hosts {
            for report in hosts.get().reports() {
                host.log(LogLevel::ALWAYS, format_args!("{report}"));
            }
        }
        Self {
            hosts,
            answers_own_addresses: settings.answers_own_addresses,
        }
    }

    /// Has a port's thread follow changes of the hosts file.
    pub fn follow(&self, port: &PortCache) {
        if let Some(hosts) = &self.hosts {
            port.follow(Arc::clone(hosts) as _);
        }
    }

    /// The GID that the hosts file has for an address.
    #[must_use]
    pub fn gid(&self, address: &Address) -> Option<Gid> {
        self.hosts.as_ref()?.with(|hosts| hosts.get(address))
    }
}

/// Answers an endpoint's requests.
pub struct EndpointResolver {
    cache: EndpointCache,
    own_path: Option<PathRecord>,
    names: Names,
}

impl EndpointResolver {
    /// For the endpoint of a cache.
    #[must_use]
    pub fn new(cache: EndpointCache, names: &Names) -> Self {
        Self {
            own_path: own_path(cache.handle()),
            cache,
            names: names.clone(),
        }
    }

    /// The endpoint's cache.
    pub fn cache(&self) -> &EndpointCache {
        &self.cache
    }

    /// Answers a request. `is_own` says whether the endpoint has an address; `elsewhere` is called for a name or an IP
    /// address that is neither its own nor in the hosts file.
    #[inline]
    pub fn resolve(
        &self,
        request: ResolveRequest<'_>,
        is_own: impl FnOnce(&Address) -> bool,
        elsewhere: impl FnOnce(AddressRequest<'_>),
    ) {
        if request.is_by_name() {
            self.resolve_address(request, is_own, elsewhere);
        } else {
            self.cache.resolve(request);
        }
    }

    // Apart from the others, whose code is short without it.
    #[inline(never)]
    fn resolve_address(
        &self,
        request: ResolveRequest<'_>,
        is_own: impl FnOnce(&Address) -> bool,
        elsewhere: impl FnOnce(AddressRequest<'_>),
    ) {
        let address = request.destination();
        let target = if self.names.answers_own_addresses && is_own(&address) {
            let own = Target::Gid(self.cache.source().gid);
            match self.own_path(own, &request) {
                Some(path) => return request.answer_from_cache(path),
                None => own,
            }
        } else if let Some(gid) = self.names.gid(&address) {
            Target::Gid(gid)
        } else {
            return elsewhere(AddressRequest {
                resolver: self,
                request,
            });
        };
        self.resolve_known(target, request);
    }

    /// The path to the port itself, if that is what the client wants and what the SA would be asked for. The SA knows more
    /// than the port's attributes.
    fn own_path(&self, own: Target, request: &ResolveRequest<'_>) -> Option<&PathRecord> {
        let path = self.own_path.as_ref()?;
        let mut query = request.path_query();
        query.set_target(own);
        let source = self.cache.source();
        let [query, plain] = [query, PathQuery::to(own)].map(|query| query.complete(source));
        let is_it = query.is_answered_by(&plain, path) && self.cache.prefers(&query, path);
        is_it.then_some(path)
    }

    /// Answers a request for an address that was known when the client asked, and counts that if its path was not.
    fn resolve_known(&self, target: Target, request: ResolveRequest<'_>) {
        if self.cache.resolve_to(target, request) == Resolution::Asked {
            self.cache.handle().count(AcmCounter::ADDR_CACHE);
        }
    }

    /// Answers a query: asks the SA, whatever is known.
    pub fn query(&self, request: QueryRequest) {
        self.cache.query(&request.path_query(), request);
    }

    /// Closes the endpoint: refuses all requests that wait.
    pub fn close(&self) {
        self.cache.close();
    }
}

/// A request for a name or an IP address: say which port has it, [park](Self::park) it, or refuse it.
///
/// Dropping it answers ENODATA and logs that.
#[must_use = "dropping a request answers ENODATA"]
pub struct AddressRequest<'a> {
    resolver: &'a EndpointResolver,
    request: ResolveRequest<'a>,
}

impl<'a> AddressRequest<'a> {
    /// The name or IP address.
    #[must_use]
    pub fn address(&self) -> Address {
        self.request.destination()
    }

    /// The endpoint that the client asks from.
    #[must_use]
    pub fn source(&self) -> &Source {
        self.resolver.cache.source()
    }

    /// Whether the client wants an answer at once. [`park`](Self::park) refuses it then.
    #[must_use]
    pub fn is_nodelay(&self) -> bool {
        self.request.is_nodelay()
    }

    /// This port has the address: answers with a path to it, from what is known or from the SA.
    pub fn found(self, target: Target) {
        self.resolver.resolve_known(target, self.request);
    }

    /// Nobody here knows the address: ENODATA.
    pub fn unknown(self) {
        self.refuse(AcmStatus::ENODATA);
    }

    /// Answers with a failure.
    pub fn refuse(self, status: AcmStatus) {
        self.request.refuse(status);
    }

    /// Keeps the request until it is known which port has the address, or until its deadline: see
    /// [`EndpointCache::park`].
    pub fn park(self) -> Parked {
        self.resolver.cache.park(self.request)
    }

    /// The client's request.
    pub fn request(&self) -> &ResolveRequest<'a> {
        &self.request
    }

    /// The request itself, for a provider that makes the path by its own means.
    pub fn into_request(self) -> ResolveRequest<'a> {
        self.request
    }
}
