//! The age of an answer: fresh, stale or gone.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::{Moment, millis};

/// How many re-registrations are distinguished. Answers from before the oldest one are gone.
const MAX_EPOCHS: usize = 32;

/// A time between two re-registrations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch(u32);

impl Epoch {
    /// The epoch with that number.
    pub(super) fn new(number: u32) -> Epoch {
        Epoch(number)
    }

    pub(super) fn number(self) -> u32 {
        self.0
    }

    fn next(self) -> Epoch {
        Epoch(self.0.wrapping_add(1))
    }

    fn epochs_since(self, earlier: Epoch) -> usize {
        self.0.wrapping_sub(earlier.0) as usize
    }

    /// Returns the lower bits, which the table stores.
    pub(super) fn low(self) -> u16 {
        self.0 as u16
    }
}

/// When an answer was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Age {
    pub learned: Moment,
    /// `None`: it was [loaded](Ages::load), so it is older than all epochs.
    pub epoch: Option<Epoch>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Freshness {
    /// May be given.
    Fresh,
    /// From before a re-registration: may be given while the SA is silent.
    Stale,
    /// Must not be used.
    Gone,
}

/// The rules of age, and the past re-registrations.
pub(super) struct Ages {
    ttl: Option<u64>,
    stale_ttl: u64,
    current: Epoch,
    /// When the epochs before the current one ended, oldest first.
    ends: VecDeque<Moment>,
    loaded: Loaded,
    /// The current period of use; never 0.
    period: u8,
}

/// Whether there are answers loaded from a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loaded {
    NotYet,
    Since(Moment),
    NoMore,
}

/// The last period of use of an answer; 0: never used.
pub(super) type Use = u8;

/// How many periods back count as lately: two complete ones, or more.
pub(super) const LATELY: u32 = 2;

impl Ages {
    pub fn new(ttl: Option<Duration>, stale_ttl: Duration) -> Ages {
        Ages {
            ttl: ttl.map(millis),
            stale_ttl: millis(stale_ttl),
            current: Epoch(0),
            ends: VecDeque::new(),
            loaded: Loaded::NotYet,
            period: 1,
        }
    }

    /// Returns the mark of an answer that is used now.
    pub fn used_now(&self) -> Use {
        self.period
    }

    /// Whether an answer was used lately. If it was last used 255 periods ago, this is wrongly true, which is harmless.
    pub fn was_used_lately(&self, used: Use) -> bool {
        let periods = (u32::from(self.period) + 255 - u32::from(used)) % 255;
        used != 0 && periods <= LATELY
    }

    pub fn end_period(&mut self) {
        self.period = self.period.checked_add(1).unwrap_or(1);
    }

    /// Whether any answer can be stale or expire.
    pub fn can_be_due(&self) -> bool {
        self.ttl.is_some() || !self.ends.is_empty() || matches!(self.loaded, Loaded::Since(_))
    }

    /// Whether an answer is stale, or has less than an eighth of its TTL left.
    pub fn is_due(&self, age: Age, now: Moment) -> bool {
        match self.freshness(age, now) {
            Freshness::Fresh => self
                .ttl
                .is_some_and(|ttl| now.since(age.learned) >= ttl - ttl / 8),
            Freshness::Stale => true,
            Freshness::Gone => false,
        }
    }

    /// Begins the time of loaded answers, which are stale from now on. False if that is not allowed: it is possible once, and
    /// not after a clear.
    pub fn load(&mut self, now: Moment) -> bool {
        let loads = self.loaded == Loaded::NotYet && self.stale_ttl > 0;
        if loads {
            self.loaded = Loaded::Since(now);
        }
        loads
    }

    /// Returns when an answer of that age was stored; `None` if it is too old, or, with a TTL, older than the clock.
    pub fn learned(&self, age: u64, now: Moment) -> Option<Moment> {
        let is_good = self
            .ttl
            .is_none_or(|ttl| age < ttl && age <= now.since(Moment::default()));
        is_good.then(|| Moment::from_millis(now.since(Moment::from_millis(age))))
    }

    /// Makes loaded answers gone. False if they already were.
    pub fn drop_loaded(&mut self) -> bool {
        let was_there = matches!(self.loaded, Loaded::Since(_));
        self.loaded = Loaded::NoMore;
        was_there
    }

    pub fn current(&self) -> Epoch {
        self.current
    }

    /// Returns the epoch of an entry of the table.
    pub fn epoch_of(&self, low: u16) -> Epoch {
        let back = self.current.low().wrapping_sub(low);
        Epoch(self.current.0.wrapping_sub(back.into()))
    }

    /// Whether the table must now remove entries that are [gone](Self::is_gone), before their epochs wrap and look like later
    /// ones.
    pub fn is_time_to_purge(&self) -> bool {
        self.current.low() & (u16::MAX >> 1) == 0
    }

    /// Whether answers of that epoch are gone forever.
    pub fn is_gone(&self, epoch: Option<Epoch>) -> bool {
        epoch.is_none_or(|epoch| self.current.epochs_since(epoch) > self.ends.len())
    }

    pub fn freshness(&self, age: Age, now: Moment) -> Freshness {
        if self.ttl.is_some_and(|ttl| now.since(age.learned) >= ttl) {
            Freshness::Gone
        } else if age.epoch == Some(self.current) {
            Freshness::Fresh
        } else if self.may_stand_in(age.epoch, now) {
            Freshness::Stale
        } else {
            Freshness::Gone
        }
    }

    fn may_stand_in(&self, epoch: Option<Epoch>, now: Moment) -> bool {
        let end = match (epoch, self.loaded) {
            (Some(epoch), _) => {
                let back = self.current.epochs_since(epoch);
                self.ends.len().checked_sub(back).map(|at| self.ends[at])
            }
            (None, Loaded::Since(loaded)) => Some(loaded),
            (None, _) => None,
        };
        end.is_some_and(|end| now.since(end) < self.stale_ttl)
    }

    pub fn end_epoch(&mut self, now: Moment) {
        while let Some(&end) = self.ends.front()
            && (now.since(end) >= self.stale_ttl || self.ends.len() >= MAX_EPOCHS)
        {
            self.ends.pop_front();
        }
        self.ends.push_back(now);
        self.current = self.current.next();
    }

    /// Starts a new epoch and forgets all earlier ones.
    pub fn forget_epochs(&mut self) {
        self.loaded = Loaded::NoMore;
        self.ends.clear();
        self.current = self.current.next();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn at(millis: u64) -> Moment {
        Moment::from_millis(millis)
    }

    fn learned(ages: &Ages, millis: u64) -> Age {
        Age {
            learned: at(millis),
            epoch: Some(ages.current()),
        }
    }

    #[test]
    fn fresh_for_the_ttl() {
        let ages = Ages::new(Some(100 * MS), 1_000 * MS);
        let age = learned(&ages, 50);
        assert_eq!(ages.freshness(age, at(149)), Freshness::Fresh);
        assert_eq!(ages.freshness(age, at(150)), Freshness::Gone);
        let without_end = Ages::new(None, 1_000 * MS);
        assert_eq!(without_end.freshness(age, Moment::NEVER), Freshness::Fresh);
    }

    #[test]
    fn stale_from_the_first_re_registration_after_it_was_learnt() {
        let mut ages = Ages::new(None, 100 * MS);
        let old = learned(&ages, 0);
        ages.end_epoch(at(10));
        let young = learned(&ages, 20);
        ages.end_epoch(at(60));
        for (age, last) in [(old, 109), (young, 159)] {
            assert_eq!(ages.freshness(age, at(last)), Freshness::Stale);
            assert_eq!(ages.freshness(age, at(last + 1)), Freshness::Gone);
        }
    }

    #[test]
    fn an_answer_can_be_too_old_to_be_stale() {
        let mut ages = Ages::new(Some(100 * MS), 1_000 * MS);
        let age = learned(&ages, 0);
        ages.end_epoch(at(10));
        assert_eq!(ages.freshness(age, at(99)), Freshness::Stale);
        assert_eq!(ages.freshness(age, at(100)), Freshness::Gone);
    }

    #[test]
    fn no_stale_ttl_drops_at_once() {
        let mut ages = Ages::new(None, Duration::ZERO);
        let age = learned(&ages, 0);
        ages.end_epoch(at(10));
        assert_eq!(ages.freshness(age, at(10)), Freshness::Gone);
    }

    #[test]
    fn what_is_loaded_is_stale_until_it_is_dropped() {
        let mut ages = Ages::new(None, 100 * MS);
        let loaded = Age {
            learned: at(0),
            epoch: None,
        };
        assert_eq!(ages.freshness(loaded, at(10)), Freshness::Gone);
        assert!(ages.load(at(50)));
        assert!(!ages.load(at(50)));
        ages.end_epoch(at(60));
        assert_eq!(ages.freshness(loaded, at(149)), Freshness::Stale);
        assert_eq!(ages.freshness(loaded, at(150)), Freshness::Gone);
        assert!(ages.drop_loaded());
        assert!(!ages.drop_loaded());
        assert_eq!(ages.freshness(loaded, at(100)), Freshness::Gone);
        assert!(!ages.load(at(100)));
    }

    #[test]
    fn nothing_is_loaded_once_everything_was_forgotten() {
        let mut ages = Ages::new(None, 100 * MS);
        ages.forget_epochs();
        assert!(!ages.load(at(1)));
    }

    #[test]
    fn an_age_that_the_clock_does_not_reach_is_too_old_to_count() {
        let with_ttl = Ages::new(Some(1_000 * MS), 100 * MS);
        assert_eq!(with_ttl.learned(999, at(2_000)), Some(at(1_001)));
        assert_eq!(with_ttl.learned(1_000, at(2_000)), None);
        assert_eq!(with_ttl.learned(501, at(500)), None);
        let without = Ages::new(None, 100 * MS);
        assert_eq!(without.learned(501, at(500)), Some(at(0)));
    }

    #[test]
    fn use_is_forgotten_after_two_whole_periods() {
        let mut ages = Ages::new(None, Duration::ZERO);
        assert!(!ages.was_used_lately(0));
        for _ in 0..300 {
            let used = ages.used_now();
            for expected in [true, true, true, false] {
                assert_eq!(ages.was_used_lately(used), expected);
                ages.end_period();
            }
        }
    }

    #[test]
    fn a_storm_of_re_registrations_is_bounded() {
        let mut ages = Ages::new(None, Duration::MAX);
        let first = learned(&ages, 0);
        for millis in 1..=MAX_EPOCHS as u64 {
            ages.end_epoch(at(millis));
        }
        assert_eq!(ages.freshness(first, at(100)), Freshness::Stale);
        let last = learned(&ages, 50);
        ages.end_epoch(at(60));
        assert_eq!(ages.freshness(first, at(100)), Freshness::Gone);
        assert_eq!(ages.freshness(last, at(100)), Freshness::Stale);
        assert_eq!(ages.ends.len(), MAX_EPOCHS);
    }
}
