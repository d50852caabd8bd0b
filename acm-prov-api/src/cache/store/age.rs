//! How old an answer is, and what that makes it.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::Moment;

/// Re-registrations that are told apart. Answers from before the oldest one are gone.
const MAX_EPOCHS: usize = 32;

/// A time between two re-registrations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch(u32);

impl Epoch {
    fn next(self) -> Epoch {
        Epoch(self.0.wrapping_add(1))
    }

    fn epochs_since(self, earlier: Epoch) -> usize {
        self.0.wrapping_sub(earlier.0) as usize
    }

    /// The part that the table keeps.
    pub(super) fn low(self) -> u16 {
        self.0 as u16
    }
}

/// When an answer was learnt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Age {
    pub learned: Moment,
    pub epoch: Epoch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Freshness {
    /// To be answered with.
    Fresh,
    /// From before a re-registration: to be answered with when the SA is silent.
    Stale,
    /// Not to be used.
    Gone,
}

/// The rules of age, and the re-registrations so far.
pub(super) struct Ages {
    ttl: Option<u64>,
    stale_ttl: u64,
    current: Epoch,
    /// When the epochs before the current one ended, oldest first.
    ends: VecDeque<Moment>,
}

impl Ages {
    pub fn new(ttl: Option<Duration>, stale_ttl: Duration) -> Ages {
        Ages {
            ttl: ttl.map(millis),
            stale_ttl: millis(stale_ttl),
            current: Epoch(0),
            ends: VecDeque::new(),
        }
    }

    pub fn current(&self) -> Epoch {
        self.current
    }

    /// The epoch of an entry of the table.
    pub fn epoch_of(&self, low: u16) -> Epoch {
        let back = self.current.low().wrapping_sub(low);
        Epoch(self.current.0.wrapping_sub(back.into()))
    }

    /// Whether entries of the table that are [gone](Self::is_gone) have to be removed now: before their epochs cannot be told
    /// from later ones.
    pub fn is_time_to_purge(&self) -> bool {
        self.current.low() & (u16::MAX >> 1) == 0
    }

    /// Whether an answer of that epoch is gone for good.
    pub fn is_gone(&self, epoch: Epoch) -> bool {
        self.current.epochs_since(epoch) > self.ends.len()
    }

    pub fn freshness(&self, age: Age, now: Moment) -> Freshness {
        if self.ttl.is_some_and(|ttl| now.since(age.learned) >= ttl) {
            Freshness::Gone
        } else if age.epoch == self.current {
            Freshness::Fresh
        } else if self.may_stand_in(age.epoch, now) {
            Freshness::Stale
        } else {
            Freshness::Gone
        }
    }

    fn may_stand_in(&self, epoch: Epoch, now: Moment) -> bool {
        let back = self.current.epochs_since(epoch);
        let end = self.ends.len().checked_sub(back).map(|at| self.ends[at]);
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

    /// Starts a new epoch as if there had been none before.
    pub fn forget_epochs(&mut self) {
        self.ends.clear();
        self.current = self.current.next();
    }
}

/// Whole milliseconds.
pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
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
            epoch: ages.current(),
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
