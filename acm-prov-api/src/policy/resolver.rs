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

/// The operator's settings for names and IP addresses, for all ports: the hosts file, and whether own addresses need no SA.
#[derive(Clone)]
pub struct Names {
    hosts: Option<Arc<WatchedFile<Hosts>>>,
    answers_own_addresses: bool,
}

impl Names {
    /// Reads the hosts file, and logs its bad lines.
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

    /// Watches the hosts file for changes, in a thread of the port.
    pub fn follow(&self, port: &PortCache) {
        if let Some(hosts) = &self.hosts {
            port.follow(Arc::clone(hosts) as _);
        }
    }

    /// Returns the GID of an address in the hosts file.
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
    /// Makes the resolver for a cache's endpoint.
    #[must_use]
    pub fn new(cache: EndpointCache, names: &Names) -> Self {
        Self {
            own_path: own_path(cache.handle()),
            cache,
            names: names.clone(),
        }
    }

    /// Returns the endpoint's cache.
    pub fn cache(&self) -> &EndpointCache {
        &self.cache
    }

    /// Answers a request. `is_own` says whether the endpoint has an address; `elsewhere` is called for a name or an IP
    /// address that is neither its own nor in the hosts file.
    #[inline(always)]
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

    // Not inlined, so that requests by LID and GID have short code.
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

    /// Returns the path to the port itself, if it meets the client's constraints and the provider's first alternative.
    /// Otherwise the SA decides: it knows more than the port's attributes.
    fn own_path(&self, own: Target, request: &ResolveRequest<'_>) -> Option<&PathRecord> {
        let path = self.own_path.as_ref()?;
        let mut query = request.path_query();
        query.set_target(own);
        let source = self.cache.source();
        let [query, plain] = [query, PathQuery::to(own)].map(|query| query.complete(source));
        let is_it = query.is_answered_by(&plain, path) && self.cache.prefers(&query, path);
        is_it.then_some(path)
    }

    /// Answers a request for an address whose port is known. Counts an address cache hit if the path is not cached.
    fn resolve_known(&self, target: Target, request: ResolveRequest<'_>) {
        if self.cache.resolve_to(target, request) == Resolution::Asked {
            self.cache.handle().count(AcmCounter::ADDR_CACHE);
        }
    }

    /// Answers a query: sends it to the SA, past the cache.
    pub fn query(&self, request: QueryRequest) {
        self.cache.query(&request.path_query(), request);
    }

    /// Closes the endpoint: refuses all requests that wait.
    pub fn close(&self) {
        self.cache.close();
    }
}

/// A request for a name or an IP address: say [which port has it](Self::found), [park](Self::park) it, or
/// [refuse](Self::refuse) it.
///
/// Dropping it answers ENODATA and logs a line.
#[must_use = "dropping a request answers ENODATA"]
pub struct AddressRequest<'a> {
    resolver: &'a EndpointResolver,
    request: ResolveRequest<'a>,
}

impl<'a> AddressRequest<'a> {
    /// Returns the requested name or IP address.
    #[must_use]
    pub fn address(&self) -> Address {
        self.request.destination()
    }

    /// Returns the endpoint's side of the path: its GID, LID and P_Key.
    #[must_use]
    pub fn source(&self) -> &Source {
        self.resolver.cache.source()
    }

    /// Whether the client wants an answer at once. [`park`](Self::park) refuses it then.
    #[must_use]
    pub fn is_nodelay(&self) -> bool {
        self.request.is_nodelay()
    }

    /// Answers with a path to `target`, the port that has the address, from the cache or from the SA.
    pub fn found(self, target: Target) {
        self.resolver.resolve_known(target, self.request);
    }

    /// Answers ENODATA: the provider does not know the address.
    pub fn unknown(self) {
        self.refuse(AcmStatus::ENODATA);
    }

    /// Answers with a failure.
    pub fn refuse(self, status: AcmStatus) {
        self.request.refuse(status);
    }

    /// Keeps the request until the provider knows which port has the address, or until its deadline: see
    /// [`EndpointCache::park`].
    pub fn park(self) -> Parked {
        self.resolver.cache.park(self.request)
    }

    /// Returns the client's request.
    pub fn request(&self) -> &ResolveRequest<'a> {
        &self.request
    }

    /// Returns the request, for a provider that makes the path itself.
    pub fn into_request(self) -> ResolveRequest<'a> {
        self.request
    }
}
