//! From a question that nobody can answer here to the SA, and back.

use crate::abi::AcmStatus;
use crate::cache::answer::Judged;
use crate::cache::lookups::{EndpointId, Full, Key, LookupId, Query};
use crate::cache::question::{Question, Source};
use crate::cache::store::Epoch;
use crate::clock::Moment;
use crate::handle::{Closed, CorePort};
use crate::host::LogLevel;
use crate::path::PathRecord;
use crate::sa::{SaError, SaSendError};
use crate::sync::{Arc, MutexGuard, Weak};

use super::operator::report;
use super::{OpenEndpoint, Outcome, Shared, State, Waiter, earlier, refuse, reply};

impl Shared {
    /// Lets a client wait for the SA's answer.
    pub(super) fn ask(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State>,
        key: Key,
        waiter: Waiter,
        stale: Option<PathRecord>,
    ) -> Outcome {
        if !state.endpoints.contains_key(&key.endpoint) {
            drop(state);
            refuse(self.port.host(), vec![waiter]);
            return Outcome::Refused;
        }
        let asked = state.lookups.ask(Moment::now(), key, waiter, stale);
        self.look_in_time(&mut state);
        drop(state);
        match asked {
            Ok(()) => {
                self.send();
                Outcome::Asked
            }
            Err(Full(waiter)) => {
                reply(self.port.host(), vec![(waiter, Err(AcmStatus::ENOMEM))]);
                Outcome::Refused
            }
        }
    }

    /// Has the SA asked though nobody waits: the next one may find an answer. If too much is looked up already, the next
    /// one asks. To be followed by [`send`](Self::send).
    pub(super) fn prefetch(&self, mut state: MutexGuard<'_, State>, now: Moment, key: Key) {
        if state.endpoints.contains_key(&key.endpoint) {
            let _ = state.lookups.prefetch(now, key);
            self.look_in_time(&mut state);
        }
    }

    /// Wakes the thread if something is due before it would look by itself.
    fn look_in_time(&self, state: &mut State) {
        if state
            .lookups
            .next_deadline()
            .is_some_and(|due| due < state.wakes_at)
        {
            state.wakes_at = Moment::default();
            self.wake.notify_one();
        }
    }

    /// Hands the core as many queries as it may have.
    pub(super) fn send(self: &Arc<Self>) {
        loop {
            let mut state = self.state.lock();
            let now = Moment::now();
            let earlier = earlier::still_out(self, now);
            state.lookups.set_earlier(earlier.count);
            state.earlier_until = earlier.until;
            let Some(query) = state.lookups.next_to_send(now) else {
                return;
            };
            self.look_in_time(&mut state);
            let endpoint = state.endpoints.get(&query.key.endpoint).cloned();
            drop(state);
            let Some(endpoint) = endpoint else {
                // The endpoint closed meanwhile: its place is another query's.
                let closed = Judged::Failed(SaError::Closed(Closed));
                self.state.lock().lookups.answered(now, query.id, &closed);
                continue;
            };
            if let Err(error) = self.ask_sa(&endpoint, &query, now) {
                self.port
                    .host()
                    .log(LogLevel::VERBOSE, format_args!("{error}"));
                self.not_sent(&endpoint, query.id, error);
                return;
            }
        }
    }

    /// A query that the core does not take shows that it does not reach the SA. The thread tries again later.
    fn not_sent(&self, endpoint: &OpenEndpoint, id: LookupId, error: SaSendError) {
        let errno = match error {
            SaSendError::Closed(_) => None,
            SaSendError::NoMemory => Some(libc::ENOMEM as u32),
            SaSendError::Refused { code } => Some(code.unsigned_abs()),
        };
        let now = Moment::now();
        let mut state = self.state.lock();
        state.lookups.send_failed(now, id);
        let message = errno.and_then(|errno| {
            let judged = Judged::Again(SaError::NotSent { errno });
            state.health.ended(now, now, &judged)
        });
        let line = self.line(&state, endpoint.source.pkey, message);
        self.look_in_time(&mut state);
        drop(state);
        self.tell(line);
    }

    fn ask_sa(
        self: &Arc<Self>,
        endpoint: &Arc<OpenEndpoint>,
        query: &Query,
        now: Moment,
    ) -> Result<(), SaSendError> {
        let asked = Asked {
            shared: Arc::downgrade(self),
            endpoint: Arc::downgrade(endpoint),
            port: self.port.core_port(),
            endpoint_id: endpoint.id(),
            source: endpoint.source,
            id: query.id,
            question: query.key.question,
            epoch: endpoint.store.lock().epoch(),
            sent: now,
        };
        let record = asked.question.record(&endpoint.source);
        let mask = asked.question.component_mask();
        endpoint
            .handle
            .ask_path_until_returned(&record, mask, move |answer| asked.answered(answer))
    }
}

/// A query that the core has.
struct Asked {
    shared: Weak<Shared>,
    endpoint: Weak<OpenEndpoint>,
    port: CorePort,
    endpoint_id: EndpointId,
    source: Source,
    id: LookupId,
    question: Question,
    epoch: Epoch,
    sent: Moment,
}

impl Asked {
    fn answered(self, answer: Result<PathRecord, SaError>) {
        let Some(shared) = self.shared.upgrade() else {
            return self.came_late();
        };
        let now = Moment::now();
        let judged = Judged::new(&self.question, &self.source, answer);
        let mut state = shared.state.lock();
        if state.closed {
            drop(state);
            return self.came_late();
        }
        let open = state.endpoints.contains_key(&self.endpoint_id);
        let endpoint = self.endpoint.upgrade();
        if let Some(endpoint) = endpoint.as_ref().filter(|_| open) {
            let mut store = endpoint.store.lock();
            match &judged {
                Judged::Path(path) => store.learn(&self.question, path, self.epoch, now),
                Judged::NoRecords => store.learn_missing(&self.question, self.epoch, now),
                _ => {}
            }
        }
        let finished = state.lookups.answered(now, self.id, &judged);
        let was_silent = state.health.is_silent();
        let message = state.health.ended(now, self.sent, &judged);
        let line = shared.line(&state, self.source.pkey, message);
        let mut replies = finished
            .map(|finished| finished.replies)
            .unwrap_or_default();
        let falls_silent = state.health.is_silent() && !was_silent;
        if falls_silent {
            replies.extend(state.lookups.answer_stale(now));
        }
        shared.look_in_time(&mut state);
        drop(state);
        shared.tell(line);
        if let Some(endpoint) = endpoint {
            report(&endpoint.handle, &judged);
        }
        reply(shared.port.host(), replies);
        if falls_silent {
            shared.watch_sm_lid();
        }
        shared.send();
    }

    /// The port was closed meanwhile. It may be open again, and may hand over another query now.
    fn came_late(&self) {
        if let Some(open) = earlier::returned(self.port, self.endpoint_id, self.id) {
            open.send();
        }
    }
}
