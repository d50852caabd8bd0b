//! Whether service id and QoS class affect a path; the SA's ClassPortInfo says so.
//!
//! rdma_cm names a service id with each connection, its port. If the SA ignores it, such a query equals the plain one, and a
//! thousand connections to a host cost one SA query.

use std::time::Duration;

use crate::abi::AcmStatus;
use crate::clock::{Moment, millis};
use crate::host::{Host, LogLevel};
use crate::lookups::{End, Limits, Lookups, Try, Urgency, Waiter};
use crate::path::PathRecord;
use crate::sa::{self, ClassPortInfo, Component, MadId, PathQuery, SaError};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, Ordering};

use super::{Asker, Client, OpenEndpoint, PathOptions, Provider, Resolution, Shared, State};

/// Milliseconds for which the ClassPortInfo is valid: an operator can switch on QoS while the SM runs.
const GOOD_FOR: u64 = 600_000;
/// Milliseconds until the next query if the SA gave no readable answer.
const REST: u64 = 60_000;

/// The operator's setting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QosSetting {
    /// Ask the SA.
    #[default]
    Auto,
    /// Service id and QoS class always affect a path.
    On,
    /// They never do: the engine neither sends nor compares them.
    Off,
}

/// What the SA said, readable without a lock. 0: nothing yet; otherwise the moment until which it is valid, times two,
/// plus 1 if they count.
struct Known(AtomicU64);

impl Known {
    fn set(&self, counts: bool, until: Moment) {
        let until = until.since(Moment::default());
        self.0
            .store(until << 1 | u64::from(counts), Ordering::Release);
    }

    fn forget(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// Returns whether they count, and whether to ask the SA again.
    fn get(&self, now: Moment) -> Option<(bool, bool)> {
        let word = self.0.load(Ordering::Acquire);
        (word != 0).then(|| (word & 1 != 0, Moment::from_millis(word >> 1) <= now))
    }
}

/// What one port knows about its SA.
pub(super) struct Qos {
    known: Known,
    setting: QosSetting,
}

/// The part behind the port's lock.
pub(super) struct QosState {
    known: Arc<Qos>,
    pub(super) lookups: Lookups<(), WaitsForQos>,
    /// What the SA said last. It may be outdated, and is used while the SA is silent.
    last: Option<bool>,
    /// Whether the log has the line that the SA gives no answer.
    is_reported: bool,
}

impl Qos {
    pub(super) fn new(setting: QosSetting) -> Arc<Self> {
        let known = Known(AtomicU64::new(0));
        Arc::new(Self { known, setting })
    }

    /// Returns whether they count, and whether to ask the SA again; `None` before the first answer.
    pub(super) fn get(&self, now: Moment) -> Option<(bool, bool)> {
        match self.setting {
            QosSetting::Auto => self.known.get(now),
            QosSetting::On => Some((true, false)),
            QosSetting::Off => Some((false, false)),
        }
    }
}

impl QosState {
    pub(super) fn new(known: Arc<Qos>, waiters: usize, host: Host) -> Self {
        let limits = Limits {
            // One current lookup, and those that re-registrations have superseded.
            lookups: 64,
            waiters,
            tries: 64,
            try_timeout: None,
            rest: (Duration::from_millis(REST), Duration::from_millis(REST)),
        };
        Self {
            known,
            lookups: Lookups::new(limits, Some(host), 0),
            last: None,
            is_reported: false,
        }
    }

    /// Marks what the SA said as outdated.
    pub(super) fn forget(&mut self) {
        self.known.known.forget();
        // An outstanding answer may be from before.
        self.lookups.supersede();
    }

    /// Returns what to assume while the SA is silent.
    pub(super) fn last(&self) -> bool {
        self.last.unwrap_or(true)
    }

    /// Queries the SA although no request waits.
    pub(super) fn refresh(&mut self, now: Moment) {
        self.lookups.want(now, (), now.after(REST), Urgency::Usual);
    }
}

/// Returns whether service id and QoS class count, and for how many milliseconds that is valid.
fn read(answer: &Result<ClassPortInfo, SaError>, known: Option<bool>) -> (bool, u64) {
    match answer {
        Ok(info) => (info.has_qos(), GOOD_FOR),
        // A silent or busy SA: keep the last answer.
        Err(error) if error.is_transient() => (known.unwrap_or(true), REST),
        Err(_) => (true, REST),
    }
}

/// Whether a class that counts comes from the kernel. The core masks it with 0xfff0 and does not shift it, so the class that
/// was meant is lost. The kernel asks the SA itself if its request is refused.
pub(super) fn is_the_kernels_class(query: &PathQuery, client: &Client<'_>) -> bool {
    query.names(Component::QosClass) && client.is_the_kernel()
}

/// Whether a query names a service id or QoS class, which matter only to some SAs.
pub(super) fn is_named(query: &PathQuery) -> bool {
    query.names(Component::ServiceId) || query.names(Component::QosClass)
}

/// Returns the query to send to this SA.
pub(super) fn apply(query: &PathQuery, counts: bool) -> PathQuery {
    let mut query = *query;
    if !counts {
        query
            .leave_open(Component::ServiceId)
            .leave_open(Component::QosClass);
    }
    query
}

/// A request that waits for the SA's ClassPortInfo.
pub(super) struct WaitsForQos {
    pub(super) asker: Asker,
    query: PathQuery,
    client: Client<'static>,
    deadline: Moment,
    /// A path from before a re-registration, valid if the SA's last answer still holds.
    stale: Option<PathRecord>,
}

impl WaitsForQos {
    pub(super) fn new(
        asker: &Asker,
        query: &PathQuery,
        client: Client<'static>,
        deadline: Moment,
        stale: Option<PathRecord>,
    ) -> Self {
        Self {
            asker: asker.clone(),
            query: *query,
            client,
            deadline,
            stale,
        }
    }
}

impl Waiter for WaitsForQos {
    type Answer = bool;

    fn end(self, end: End<bool>) {
        match end {
            End::Answer(counts) => {
                let now = Moment::now();
                self.asker
                    .go_on(&self.query, counts, self.client, now, self.deadline);
            }
            End::Expired => self.client.reply(self.stale.ok_or(AcmStatus::ETIMEDOUT)),
            End::Full => self.client.reply(Err(AcmStatus::ENOMEM)),
            End::Closed => self.client.reply(Err(AcmStatus::ENOTCONN)),
        }
    }
}

impl Asker {
    /// Lets a client wait for the SA's ClassPortInfo.
    pub(super) fn wait_for_qos(
        &self,
        query: &PathQuery,
        client: Client<'_>,
        now: Moment,
        deadline: Moment,
    ) -> Resolution {
        let Some((mut state, client)) = self.if_open(self.shared.state.lock(), client) else {
            return Resolution::Refused;
        };
        // The answer may just have come; it is stored with the state locked.
        let known = self.shared.qos.get(now).map(|(counts, _)| counts);
        if known.is_some() || state.health.is_silent() {
            if known.is_none() {
                state.qos.refresh(now);
            }
            let counts = known.unwrap_or(state.qos.last());
            drop(state);
            return self.go_on(query, counts, client, now, deadline);
        }
        if client.is_nodelay() {
            // No fresh path is cached. Query it once the ClassPortInfo is known.
            let nobody = Client::Provider(Provider::new(PathOptions::default(), |_| ()));
            let waiter = WaitsForQos::new(self, query, nobody, deadline, None);
            state.qos.lookups.ask(now, (), waiter, deadline);
            drop(state);
            client.reply(Err(AcmStatus::ENODATA));
            return Resolution::Asked;
        }
        let likely = apply(query, state.qos.last());
        let stale = match &client {
            Client::Query(_) => None,
            client if is_the_kernels_class(&likely, client) => None,
            _ => self.endpoint.store.get_stale(&likely, now),
        };
        let until = match stale {
            Some(_) => deadline.min(now.after(millis(self.shared.settings.lookups.timeout))),
            None => deadline,
        };
        let waiter = WaitsForQos::new(self, query, client.keep(), deadline, stale);
        if !state.qos.lookups.ask(now, (), waiter, until) {
            return Resolution::Refused;
        }
        // Query the SA, so that the next request finds the path, or a silent SA.
        state.qos.lookups.want(now, (), deadline, Urgency::Usual);
        Resolution::Asked
    }
}

/// A ClassPortInfo query on its way to the core.
pub(super) struct QosQuery {
    endpoint: Arc<OpenEndpoint>,
    id: u64,
}

impl State {
    /// Takes the ClassPortInfo query, if one is to be sent now.
    pub(super) fn next_qos_query(&mut self) -> Option<QosQuery> {
        if !self.qos.lookups.is_any_queued() {
            return None;
        }
        let now = Moment::now();
        let endpoint = Arc::clone(self.endpoints.values().next()?);
        let Try { id, .. } = self.qos.lookups.next_try(now, || sa::new_id().into())?;
        Some(QosQuery { endpoint, id })
    }
}

impl Shared {
    pub(super) fn ask_qos(self: &Arc<Self>, query: QosQuery) {
        let shared = Arc::downgrade(self);
        let QosQuery { endpoint, id } = query;
        let Some(mad) = MadId::from_u64(id) else {
            return;
        };
        endpoint.handle.ask_abilities(mad, move |answer| {
            if let Some(shared) = shared.upgrade() {
                shared.qos_answered(id, answer);
            }
        });
    }

    fn qos_answered(&self, id: u64, answer: Result<ClassPortInfo, SaError>) {
        let now = Moment::now();
        let mut state = self.state.lock();
        if let Err(SaError::Closed(_)) = answer {
            // Only this endpoint is closed: another one sends the query.
            state.qos.lookups.not_begun(now, id);
            return;
        }
        if state.qos.lookups.tried(id).is_none() {
            return;
        }
        let known = state.qos.known.get(now).map(|(counts, _)| counts);
        // After a re-registration the last answer still holds until the SA gives another.
        let known = known.or(state.qos.last);
        let (counts, good_for) = read(&answer, known);
        // An answer from before a re-registration only serves requests from before it.
        if state.qos.lookups.is_current(id) {
            state.qos.known.known.set(counts, now.after(good_for));
            state.qos.last = Some(counts);
        }
        state.qos.lookups.finish(id, &counts);
        let was_reported = std::mem::replace(&mut state.qos.is_reported, answer.is_err());
        if let Err(error) = answer
            && !was_reported
        {
            let port = self.port.number();
            let sent = if counts { "are" } else { "are still not" };
            state.log(
                LogLevel::ALWAYS,
                format!(
                    "port {port}: the SA does not say whether service ids choose a path (ClassPortInfo): {error}; they \
                     {sent} sent to it, and it is asked again after {} s",
                    REST / 1_000
                ),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sa::SaStatus;

    #[test]
    fn what_the_sa_said_holds_until_it_says_something_else() {
        let known = Known(AtomicU64::new(0));
        let at = Moment::from_millis;
        assert_eq!(known.get(at(0)), None);
        for counts in [false, true] {
            known.set(counts, at(100));
            assert_eq!(known.get(at(99)), Some((counts, false)));
            assert_eq!(known.get(at(100)), Some((counts, true)), "asked again");
        }
        known.forget();
        assert_eq!(known.get(at(0)), None);
    }

    #[test]
    fn what_cannot_be_read_counts_as_set_unless_the_sa_is_silent_and_spoke_before() {
        let says = |capability_mask2| Ok(ClassPortInfo { capability_mask2 });
        for known in [None, Some(false), Some(true)] {
            assert_eq!(read(&says(0xb5e8), known), (false, 600_000));
            assert_eq!(read(&says(0xb5ea), known), (true, 600_000));
            let silent = read(&Err(SaError::TimedOut), known);
            assert_eq!(silent, (known.unwrap_or(true), 60_000));
            let busy = read(&Err(SaError::Status(SaStatus::BUSY)), known);
            assert_eq!(busy, silent);
            let refused = Err(SaError::Status(SaStatus(0x000c)));
            assert_eq!(read(&refused, known), (true, 60_000));
            let (base, class) = (0, 0);
            let unreadable = Err(SaError::UnknownVersion { base, class });
            assert_eq!(read(&unreadable, known), (true, 60_000));
        }
    }
}
