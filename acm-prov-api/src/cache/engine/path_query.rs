//! Sends path queries to the SA and handles its responses.

use smallvec::SmallVec;

use crate::abi::{AcmStatus, umad_sa_packet};
use crate::address::PKey;
use crate::cache::counters::STALE_ANSWERS;
use crate::cache::store::Epoch;
use crate::clock::Moment;
use crate::handles::EndpointHandle;
use crate::host::LogLevel;
use crate::lookups::{End, Try};
use crate::path::PathRecord;
use crate::sa::{self, MadId, OnEnd, PathQuery, SaError, SaStatus};
use crate::sync::Arc;

use super::{Client, EndpointId, LookupKey, OpenEndpoint, Shared, State};

/// A path query on its way to the core.
pub(super) struct NextQuery {
    handle: EndpointHandle,
    sent_query: Box<SentQuery>,
}

/// Seldom more than one at a time.
pub(super) type Queries = SmallVec<[NextQuery; 1]>;

impl State {
    /// Takes the path queries to hand to the core.
    pub(super) fn next_queries(&mut self) -> Queries {
        let mut queries = Queries::new();
        if !self.paths.is_any_queued() {
            return queries;
        }
        let Some(shared) = self.shared.upgrade() else {
            return queries;
        };
        let now = self.paths.latest();
        while let Some(Try {
            id,
            key,
            alternative,
            ..
        }) = self.paths.next_try(now, || sa::new_id().into())
        {
            // The lookups of an endpoint end when it closes.
            let Some(endpoint) = self.endpoints.get(&key.endpoint) else {
                continue;
            };
            queries.push(NextQuery {
                handle: endpoint.handle.clone(),
                sent_query: Box::new(SentQuery {
                    shared: Arc::clone(&shared),
                    endpoint: key.endpoint,
                    pkey: endpoint.source.pkey,
                    id,
                    query: key.query,
                    alternative,
                    constrained: None,
                    has_alternative: false,
                    epoch: endpoint.store.epoch(),
                }),
            });
        }
        queries
    }

    /// Invalidates what is known: outstanding queries answer no request that arrives from now on.
    pub(super) fn supersede(&mut self, now: Moment) {
        let mut ids: Vec<u64> = self.paths.tries().collect();
        // Ids grow in order of arrival.
        ids.sort_unstable();
        for id in ids {
            // A query that is still queued here is sent anew, with the new state.
            if MadId::from_u64(id).is_some_and(sa::withdraw) {
                self.paths.not_begun(now, id);
            }
        }
        self.paths.supersede();
        self.qos.forget();
    }
}

impl NextQuery {
    /// Hands the query over.
    pub(super) fn ask(self) {
        let Self {
            handle,
            mut sent_query,
        } = self;
        let Some(id) = MadId::from_u64(sent_query.id) else {
            return;
        };
        let mut query = sent_query.query;
        if let Some((constrained, has_alternative)) = sent_query
            .shared
            .rules
            .attempt(&query, sent_query.alternative)
        {
            query = constrained;
            sent_query.constrained = Some(Box::new(constrained));
            sent_query.has_alternative = has_alternative;
        }
        handle.ask_complete_path(id, &query, None, sent_query);
    }
}

impl Shared {
    /// Withdraws queued queries for which no request waits any more. Queries already sent run on.
    pub(super) fn take_back(&self, abandoned: Vec<u64>) {
        for id in abandoned {
            if MadId::from_u64(id).is_some_and(sa::withdraw) {
                self.state.lock().paths.not_begun(Moment::now(), id);
            }
        }
    }
}

/// A query that the core has. It ends when its endpoint closes, at the latest; until then it keeps the port's state alive.
struct SentQuery {
    shared: Arc<Shared>,
    endpoint: EndpointId,
    pkey: PKey,
    id: u64,
    /// The client's query.
    query: PathQuery,
    /// The number of alternatives for which the SA had no record.
    alternative: usize,
    /// The query sent to the SA, if the provider's rules changed it.
    constrained: Option<Box<PathQuery>>,
    /// Whether another alternative follows if the SA has no record.
    has_alternative: bool,
    /// The store's epoch when the query was sent; a later epoch does not take the answer.
    epoch: Epoch,
}

impl OnEnd for SentQuery {
    fn ended(self: Box<Self>, sent: Moment, answer: Result<&umad_sa_packet, SaError>) {
        let query = self.constrained.as_deref().unwrap_or(&self.query);
        let answer = answer.and_then(|packet| sa::read_path(query, packet));
        self.answered(sent, &answer);
    }
}

impl SentQuery {
    fn answered(&self, sent: Moment, answer: &Result<PathRecord, SaError>) {
        let shared = &self.shared;
        let now = Moment::now();
        let mut state = shared.state.lock();
        if let Some(endpoint) = state.endpoints.get(&self.endpoint) {
            let store = &endpoint.store;
            match answer {
                Ok(path) => {
                    let was_wrong = store.learn(&self.query, path, self.epoch, now);
                    let is_there = |lid| shared.is_same_port(lid, path.dlid());
                    if was_wrong.is_some_and(|(gid, lid)| gid != path.dgid() || !is_there(lid)) {
                        state.drop_snapshot(shared, path);
                    }
                }
                Err(SaError::Status(SaStatus::NO_RECORDS)) if !self.has_alternative => {
                    store.learn_missing(&self.query, self.epoch, now);
                }
                Err(_) => {}
            }
        }
        match answer {
            Err(error) if error.is_transient() => {
                state.paths.try_again(now, self.id);
            }
            Err(SaError::Status(SaStatus::NO_RECORDS)) if self.has_alternative => {
                state.paths.try_alternative(now, self.id);
            }
            answer => {
                let answer = answer.map_err(|error| error.status());
                state.paths.finish(self.id, &answer);
            }
        }
        let falls_silent = state.sa_answered(shared, now, sent, answer, self.pkey);
        drop(state);
        match answer {
            Ok(_) | Err(SaError::Status(SaStatus::NO_RECORDS)) => {}
            Err(SaError::Mismatch(mismatch)) => shared.port.report_mismatch(mismatch),
            Err(error) => shared
                .port
                .host()
                .log(LogLevel::VERBOSE, format_args!("{error}")),
        }
        if falls_silent {
            shared.watch_sm_lid();
        }
    }
}

/// A client that waits for a path.
pub(super) struct Waiter {
    pub(super) client: Client<'static>,
    /// A path from before a re-registration, to use if the SA stays silent.
    pub(super) stale: Option<Box<PathRecord>>,
}

impl crate::lookups::Waiter for Waiter {
    type Answer = Result<PathRecord, AcmStatus>;

    fn end(self, end: End<Self::Answer>) {
        self.client.reply(match end {
            End::Answer(answer) => answer,
            End::Expired => match self.stale {
                Some(path) => {
                    STALE_ANSWERS.increment();
                    Ok(*path)
                }
                None => Err(AcmStatus::ETIMEDOUT),
            },
            End::Full => Err(AcmStatus::ENOMEM),
            // The port is down.
            End::Closed => Err(AcmStatus::ENOTCONN),
        });
    }
}

impl LookupKey {
    pub(super) fn new(endpoint: &OpenEndpoint, query: &PathQuery) -> Self {
        Self {
            endpoint: endpoint.id(),
            query: *query,
        }
    }
}
