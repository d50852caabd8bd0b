//! Requests that wait until the provider knows which port has the address.

use std::time::Duration;

use super::client::{Client, PathOptions, Provider};
use super::{Asker, EndpointCache, EndpointId, Shared};
use crate::abi::AcmStatus;
use crate::clock::{Moment, millis};
use crate::host::Host;
use crate::lookups::{End, Limits, Lookups, Waiter};
use crate::request::ResolveRequest;
use crate::sa::{PathQuery, Target};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Arc, Weak};

/// The unique number of a parked request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ParkedId {
    pub(super) endpoint: EndpointId,
    number: u64,
}

/// All parked requests of a port.
pub(super) type ParkedRequests = Lookups<ParkedId, WaitsForAddress>;

pub(super) fn none(waiters: usize, host: Host) -> ParkedRequests {
    let limits = Limits {
        lookups: waiters,
        waiters,
        tries: 0,
        try_timeout: None,
        rest: (Duration::ZERO, Duration::ZERO),
    };
    Lookups::new(limits, Some(host), 0)
}

/// A [parked](EndpointCache::park) request, to be completed with a destination.
///
/// The engine keeps the request itself. It refuses the request at its deadline (ETIMEDOUT) or when the endpoint closes
/// (ENOTCONN). After that, the methods have no effect. Dropping a `Parked` answers ENODATA. You can move it to any thread.
#[must_use = "dropping it answers ENODATA"]
pub struct Parked {
    shared: Weak<Shared>,
    id: ParkedId,
}

impl Parked {
    /// Answers the request with a path to `target`, the port that has the address.
    pub fn found(self, target: Target) {
        self.end(Ok(target));
    }

    /// Answers with a failure.
    pub fn refuse(self, status: AcmStatus) {
        self.end(Err(status));
    }

    fn end(&self, answer: Result<Target, AcmStatus>) {
        if let Some(shared) = self.shared.upgrade() {
            shared.state.lock().parked.finish_key(&self.id, &answer);
        }
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        self.end(Err(AcmStatus::ENODATA));
    }
}

/// A parked request.
pub(super) struct WaitsForAddress {
    asker: Asker,
    client: Client<'static>,
    /// The query, without a destination.
    query: PathQuery,
    deadline: Moment,
}

impl Waiter for WaitsForAddress {
    type Answer = Result<Target, AcmStatus>;

    fn end(mut self, end: End<Self::Answer>) {
        let target = match end {
            End::Answer(answer) => answer,
            End::Expired => Err(AcmStatus::ETIMEDOUT),
            End::Full => Err(AcmStatus::ENOMEM),
            End::Closed => Err(AcmStatus::ENOTCONN),
        };
        match target {
            Ok(target) => {
                self.query.set_target(target);
                let query = self.query.complete(&self.asker.endpoint.source);
                // The path shares the address's deadline.
                let left = Duration::from_millis(self.deadline.since(Moment::now()));
                self.asker.start(&query, self.client, Some(left));
            }
            Err(status) => self.client.reply(Err(status)),
        }
    }
}

impl EndpointCache {
    /// Keeps a request for a name or IP address until the provider knows which port has it, or until its deadline.
    ///
    /// Answers a client that does not want to wait (NODELAY) with ENODATA at once. If the provider finds the port later, the
    /// engine still gets the path, for the next client.
    pub fn park(&self, request: ResolveRequest<'_>) -> Parked {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let Asker { shared, endpoint } = &self.0;
        let id = ParkedId {
            endpoint: endpoint.id(),
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
        };
        let now = Moment::now();
        let deadline = now.after(millis(shared.settings.lookups.patience()));
        let query = request.path_query();
        let (client, refused) = if request.is_nodelay() {
            let nobody = Provider::new(PathOptions::default(), |_| ());
            (Client::Provider(nobody), Some(request))
        } else {
            (Client::Resolve(request.keep()), None)
        };
        let waiter = WaitsForAddress {
            asker: self.0.clone(),
            client,
            query,
            deadline,
        };
        let mut state = shared.state.lock();
        let is_open = state.endpoints.contains_key(&endpoint.id());
        state.parked.ask(now, id, waiter, deadline);
        if !is_open {
            state.parked.close(|parked| *parked == id);
        }
        drop(state);
        if let Some(request) = refused {
            request.refuse(AcmStatus::ENODATA);
        }
        Parked {
            shared: Arc::downgrade(shared),
            id,
        }
    }
}
