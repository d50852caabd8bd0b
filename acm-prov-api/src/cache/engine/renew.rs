//! Renewal: queries paths in use again before a client needs them, a few per second.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use super::{CacheSettings, LookupKey, Shared, State};
use crate::cache::counters::RENEWALS;
use crate::cache::renewal::Renewal;
use crate::cache::store::Renewing;
use crate::clock::{Moment, millis};
use crate::lookups::Urgency;

/// Whether and how fast paths in use are renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RenewalSetting {
    /// Queries per second of each port. 0 renews only the paths of a snapshot, at
    /// [`FROM_A_SNAPSHOT`](Self::FROM_A_SNAPSHOT) per second; after a re-registration each path is then queried at its next
    /// use.
    pub per_second: u32,
    /// The longest time from a re-registration to the first renewal. Each port chooses a random time up to it, so that not
    /// all hosts begin at once.
    pub delay: Duration,
}

impl Default for RenewalSetting {
    /// [`OFF`](RenewalSetting::OFF).
    fn default() -> Self {
        Self::OFF
    }
}

impl RenewalSetting {
    /// Queries per second for paths of a snapshot, unless the operator has set another number.
    pub const FROM_A_SNAPSHOT: u32 = 10;

    /// Renews only paths of a snapshot.
    pub const OFF: Self = Self::at(0);

    /// Renews with so many queries per second, from at most ten seconds after a re-registration.
    #[must_use]
    pub const fn at(per_second: u32) -> Self {
        Self {
            per_second,
            delay: Duration::from_secs(10),
        }
    }

    /// Whether paths in use are renewed.
    pub(super) fn is_on(&self) -> bool {
        self.per_second > 0
    }
}

/// Returns what the stores of a port renew.
pub(super) fn renewing(settings: &CacheSettings) -> Renewing {
    match (&settings.renewal, &settings.snapshot) {
        (renewal, _) if renewal.is_on() => Renewing::Used,
        (_, Some(_)) => Renewing::Loaded,
        _ => Renewing::Nothing,
    }
}

/// A port's renewals.
pub(super) struct Renewals {
    /// `None` if the settings never renew anything.
    renewal: Option<Renewal<LookupKey>>,
    delay: u64,
}

impl Renewals {
    pub(super) fn new(settings: &CacheSettings, now: Moment) -> Self {
        let RenewalSetting { per_second, delay } = settings.renewal;
        let per_second = match (per_second, &settings.snapshot) {
            (0, Some(_)) => RenewalSetting::FROM_A_SNAPSHOT,
            (per_second, _) => per_second,
        };
        let ttl = settings.store.ttl.map_or(u64::MAX, millis);
        Self {
            renewal: (per_second > 0).then(|| Renewal::new(per_second, ttl, now)),
            delay: millis(delay),
        }
    }

    /// Notes that a client got a stale path.
    pub(super) fn stale_used(&mut self, now: Moment) {
        if let Some(renewal) = &mut self.renewal {
            renewal.used(now);
        }
    }

    /// Notes that all answers are stale: renewal begins after a random delay.
    pub(super) fn all_stale(&mut self, now: Moment) {
        if let Some(renewal) = &mut self.renewal {
            let delay = RandomState::new().hash_one(0) % self.delay.saturating_add(1);
            renewal.restart(now, delay);
        }
    }
}

impl State {
    /// Returns when the next renewal may begin; `None` while clients' queries, or the last renewal, are outstanding.
    pub(super) fn next_renewal(&self) -> Option<Moment> {
        let renewal = self.renewals.renewal.as_ref()?;
        self.paths.is_empty().then(|| renewal.due())
    }

    /// Begins a renewal if one is due.
    pub(super) fn renew(&mut self, shared: &Shared, now: Moment) {
        let Some(renewal) = &mut self.renewals.renewal else {
            return;
        };
        if !self.paths.is_empty() {
            return;
        }
        if renewal.ends_period(now) {
            for endpoint in self.endpoints.values() {
                endpoint.store.end_use_period();
            }
        }
        if let Some(limit) = renewal.looks_for(now) {
            let mut found = Vec::new();
            for endpoint in self.endpoints.values() {
                let due = endpoint.store.due(now, limit - found.len());
                found.extend(due.iter().map(|query| LookupKey::new(endpoint, query)));
            }
            renewal.found(now, found);
        }
        let endpoints = &self.endpoints;
        let is_due = |key: &LookupKey| {
            let endpoint = endpoints.get(&key.endpoint);
            endpoint.is_some_and(|endpoint| endpoint.store.is_due(&key.query, now))
        };
        if let Some(key) = renewal.take(now, is_due) {
            let until = now.after(millis(shared.settings.lookups.patience()));
            self.paths.want(now, key, until, Urgency::Background);
            RENEWALS.increment();
        }
    }
}
