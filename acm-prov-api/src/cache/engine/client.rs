//! The recipient of a path: a client of the daemon, or the provider itself.

use std::time::Duration;

use crate::abi::{AcmCounter, AcmStatus};
use crate::handles::EndpointHandle;
use crate::path::PathRecord;
use crate::request::{QueryRequest, ResolveRequest};

/// Options of a provider's own request for a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathOptions {
    /// How long to wait for the SA; `None` waits as long as for a client (`timeout` x (`retries` + 1) of the settings).
    pub deadline: Option<Duration>,
    /// Do not wait: if the path is not cached, the result is `ENODATA` at once. The engine still queries the SA, for the
    /// next request.
    pub nodelay: bool,
    /// Whether a cached path counts as a route cache hit, as it does for a client.
    pub counts: bool,
}

/// The recipient of a path.
pub(super) enum Client<'a> {
    Resolve(ResolveRequest<'a>),
    Query(Box<QueryRequest>),
    Provider(Provider),
}

/// A provider that requests a path, for itself or for a request that its closure owns.
pub(super) struct Provider {
    done: Done,
    options: PathOptions,
}

/// The provider's callback for the result.
type Done = Box<dyn FnOnce(Result<PathRecord, AcmStatus>) + Send>;

impl Provider {
    pub(super) fn new(
        options: PathOptions,
        done: impl FnOnce(Result<PathRecord, AcmStatus>) + Send + 'static,
    ) -> Self {
        let done = Box::new(done);
        Self { done, options }
    }
}

impl Client<'_> {
    /// Returns a recipient that can outlive the callback.
    pub(super) fn keep(self) -> Client<'static> {
        match self {
            Self::Resolve(request) => Client::Resolve(request.keep()),
            Self::Query(request) => Client::Query(request),
            Self::Provider(provider) => Client::Provider(provider),
        }
    }

    pub(super) fn reply(self, reply: Result<PathRecord, AcmStatus>) {
        match (self, reply) {
            (Self::Resolve(request), Ok(path)) => request.answer(&path),
            (Self::Resolve(request), Err(status)) => request.refuse(status),
            (Self::Query(request), Ok(path)) => request.answer(&path),
            (Self::Query(request), Err(status)) => request.refuse(status),
            (Self::Provider(provider), reply) => (provider.done)(reply),
        }
    }

    /// Replies with a cached path.
    pub(super) fn reply_from_cache(self, endpoint: &EndpointHandle, path: &PathRecord) {
        match self {
            Self::Resolve(request) => request.answer_from_cache(path),
            Self::Query(request) => request.answer(path),
            Self::Provider(provider) => {
                if provider.options.counts {
                    endpoint.count(AcmCounter::ROUTE_CACHE);
                }
                (provider.done)(Ok(*path));
            }
        }
    }

    pub(super) fn is_nodelay(&self) -> bool {
        match self {
            Self::Resolve(request) => request.is_nodelay(),
            Self::Query(_) => false,
            Self::Provider(provider) => provider.options.nodelay,
        }
    }

    /// Whether the request must go to the SA, past the cache.
    pub(super) fn bypasses_the_cache(&self) -> bool {
        matches!(self, Self::Query(_))
    }

    pub(super) fn is_the_kernel(&self) -> bool {
        matches!(self, Self::Resolve(request) if request.is_from_the_kernel())
    }
}
