//! The cache of one endpoint: the methods that a provider calls.

use super::client::{Client, PathOptions, Provider};
use super::qos::WaitsForQos;
use super::{Asker, Resolution};
use crate::abi::{AcmCounter, AcmStatus};
use crate::address::{Gid, Lid};
use crate::clock::Moment;
use crate::handles::EndpointHandle;
use crate::lookups::End;
use crate::path::PathRecord;
use crate::request::{QueryRequest, ResolveRequest};
use crate::sa::{PathQuery, Source, Target};

/// The cache of one open endpoint. Dropping it closes it.
pub struct EndpointCache(pub(super) Asker);

impl EndpointCache {
    /// Returns the endpoint's handle.
    pub fn handle(&self) -> &EndpointHandle {
        &self.0.endpoint.handle
    }

    /// Whether a path that did not come from the SA meets the first alternative of the provider's
    /// [rules](crate::cache::PathRules).
    pub(crate) fn prefers(&self, query: &PathQuery, path: &PathRecord) -> bool {
        self.0.shared.rules.prefer(query, path)
    }

    /// Returns the source side of the endpoint's queries.
    pub fn source(&self) -> &Source {
        &self.0.endpoint.source
    }

    /// Answers a request from the cache, or queries the SA and lets the request wait.
    ///
    /// Refuses requests for names and IP addresses: the provider finds the port behind them and calls
    /// [`resolve_to`](Self::resolve_to).
    #[inline]
    pub fn resolve(&self, request: ResolveRequest<'_>) -> Resolution {
        let endpoint = &*self.0.endpoint;
        if let Some(target) = request.plain_target(&endpoint.source)
            && let Some(path) = endpoint.plain_path(target)
        {
            request.answer_from_cache(&path);
            return Resolution::Known;
        }
        self.resolve_otherwise(request)
    }

    /// Resolves a request that is not plain, or whose path is not in the table. It reads the target again, because passing it
    /// here would make a hit slower.
    #[cold]
    fn resolve_otherwise(&self, request: ResolveRequest<'_>) -> Resolution {
        let Asker { shared, endpoint } = &self.0;
        if let Some(target) = request.plain_target(&endpoint.source) {
            return self.resolve_further(&PathQuery::to(target), request);
        }
        // rdma_cm names a service id with each connection.
        if let Some(target) = request.plain_target_without_qos(&endpoint.source)
            && let Some((false, false)) = shared.qos.get(Moment::now())
            && let Some(path) = endpoint.plain_path(target)
        {
            request.answer_from_cache(&path);
            return Resolution::Known;
        }
        let query = request.path_query();
        self.resolve_further(&query, request)
    }

    /// As [`resolve`](Self::resolve), for a destination that the provider has found: the port behind a name or an IP
    /// address.
    pub fn resolve_to(&self, target: Target, request: ResolveRequest<'_>) -> Resolution {
        let endpoint = &*self.0.endpoint;
        if let Some(target) = request.plain_target_to(target, &endpoint.source)
            && let Some(path) = endpoint.plain_path(target)
        {
            request.answer_from_cache(&path);
            return Resolution::Known;
        }
        let mut query = request.path_query();
        query.set_target(target);
        self.resolve_further(&query, request)
    }

    /// As [`resolve`](Self::resolve), for a query that the provider has made, such as one with its own constraints.
    pub fn resolve_query(&self, query: &PathQuery, request: ResolveRequest<'_>) -> Resolution {
        if let Some(path) = self.plain_path(query) {
            request.answer_from_cache(&path);
            return Resolution::Known;
        }
        self.resolve_further(query, request)
    }

    #[cold]
    fn resolve_further(&self, query: &PathQuery, request: ResolveRequest<'_>) -> Resolution {
        let query = query.complete(self.source());
        self.0.start(&query, Client::Resolve(request), None)
    }

    /// Gets the path that answers a query, from the cache or from the SA. It is for the provider itself, or for a request
    /// that the closure owns.
    ///
    /// The engine calls `done` exactly once, possibly before this returns, with no lock of the engine held. The result is
    ///
    /// - the path;
    /// - `ENODATA` if there is no path, or none is cached and `options` do not let it wait;
    /// - `ETIMEDOUT` at the deadline, also if the core did not take the query;
    /// - `ENOTCONN` if the endpoint is closed or closes;
    /// - otherwise the status with which [`resolve`](Self::resolve) refuses.
    pub fn path_to(
        &self,
        query: &PathQuery,
        options: PathOptions,
        done: impl FnOnce(Result<PathRecord, AcmStatus>) + Send + 'static,
    ) -> Resolution {
        if let Some(path) = self.plain_path(query) {
            if options.counts {
                self.0.endpoint.handle.count(AcmCounter::ROUTE_CACHE);
            }
            done(Ok(path));
            return Resolution::Known;
        }
        let query = query.complete(self.source());
        let client = Client::Provider(Provider::new(options, done));
        self.0.start(&query, client, options.deadline)
    }

    /// Returns the fresh answer to a query, if the query is plain.
    fn plain_path(&self, query: &PathQuery) -> Option<PathRecord> {
        let endpoint = &*self.0.endpoint;
        let query = query.complete(&endpoint.source);
        let is_plain = query.is_plain(&endpoint.source);
        endpoint.plain_path(query.target().ok().filter(|_| is_plain)?)
    }

    /// Queries the SA, past the cache, and caches the answer.
    pub fn query(&self, query: &PathQuery, request: QueryRequest) -> Resolution {
        let query = query.complete(self.source());
        self.0.start(&query, Client::Query(Box::new(request)), None)
    }

    /// Tells the cache that the port with `gid` now has `lid`, for example because it sent a datagram: drops the paths to
    /// `gid` that lead to another port's LID. Does nothing for a GID of another subnet.
    pub fn seen(&self, gid: Gid, lid: Lid) {
        let Asker { shared, endpoint } = &self.0;
        if gid.subnet_prefix() != endpoint.source.gid.subnet_prefix() || !lid.is_unicast() {
            return;
        }
        let is_there = |known| shared.is_same_port(known, lid);
        // First the dump, so that no other request takes this port's path from it any more.
        if let Some(preload) = &shared.preload
            && preload.seen(gid.interface_id(), is_there)
        {
            for endpoint in shared.state.lock().endpoints.values() {
                endpoint.store.forget_preloaded(|known, _| known == gid);
            }
        }
        endpoint.store.forget_unless(gid, is_there);
    }

    /// Closes the endpoint: refuses all waiting requests and sends no more SA queries for it.
    pub fn close(&self) {
        let Asker { shared, endpoint } = &self.0;
        let id = endpoint.id();
        let mut state = shared.state.lock();
        state.endpoints.remove(&id);
        state.paths.close(|key| key.endpoint == id);
        state.files.close(|endpoint| *endpoint == id);
        state.parked.close(|parked| parked.endpoint == id);
        let is_meant = |waiter: &WaitsForQos| waiter.asker.endpoint.id() == id;
        state
            .qos
            .lookups
            .end_waiting(Moment::now(), &End::Closed, is_meant);
    }
}

impl Drop for EndpointCache {
    fn drop(&mut self) {
        self.close();
    }
}
