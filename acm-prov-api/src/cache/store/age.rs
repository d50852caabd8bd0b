//! How old an answer is, and what that makes it.

use std::collections::VecDeque;
use std::num::NonZeroU32;

use crate::clock::Moment;

/// Re-registrations that are told apart. Answers from before the oldest one are gone.
const MAX_EPOCHS: usize = 32;

/// A time between two re-registrations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch(NonZeroU32);

impl Epoch {
    /// Leaves room for one that is from before.
    const FIRST: Epoch = Epoch(NonZeroU32::MIN.saturating_add(MAX_EPOCHS as u32 + 1));

    fn next(self) -> Epoch {
        Epoch(NonZeroU32::new(self.0.get().wrapping_add(1)).unwrap_or(NonZeroU32::MIN))
    }

    fn before(self, epochs: usize) -> Option<Epoch> {
        let number = self.0.get().checked_sub(u32::try_from(epochs).ok()?)?;
        NonZeroU32::new(number).map(Epoch)
    }

    fn epochs_since(self, earlier: Epoch) -> usize {
        self.0.get().wrapping_sub(earlier.0.get()) as usize
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
    /// The epoch of what was loaded, from before all others.
    loaded: Option<Epoch>,
    /// Periods of use so far, without 0.
    period: u8,
}

/// The last period in which something was used; 0 is in none.
pub(super) type Use = u8;

/// Periods back that count as lately: at least two whole ones.
const LATELY: u16 = 2;

impl Ages {
    pub fn new(ttl: Option<u64>, stale_ttl: u64) -> Ages {
        Ages {
            ttl,
            stale_ttl,
            current: Epoch::FIRST,
            ends: VecDeque::new(),
            loaded: None,
            period: 1,
        }
    }

    /// What something that is used now is marked with.
    #[inline]
    pub fn used_now(&self) -> Use {
        self.period
    }

    /// Whether something was used lately. What was last used 255 periods ago looks as if it were, which harms nothing.
    pub fn was_used_lately(&self, used: Use) -> bool {
        let periods = (u16::from(self.period) + 255 - u16::from(used)) % 255;
        used != 0 && periods <= LATELY
    }

    pub fn end_period(&mut self) {
        self.period = self.period.checked_add(1).unwrap_or(1);
    }

    /// Whether anything can be stale, or too old one day.
    pub fn can_be_due(&self) -> bool {
        self.ttl.is_some() || !self.ends.is_empty()
    }

    /// Whether an answer is stale, or will be gone before an eighth of its time has passed.
    pub fn is_due(&self, age: Age, now: Moment) -> bool {
        match self.freshness(age, now) {
            Freshness::Fresh => self
                .ttl
                .is_some_and(|ttl| now.since(age.learned) >= ttl - ttl / 8),
            Freshness::Stale => true,
            Freshness::Gone => false,
        }
    }

    /// An epoch from before all others, which ends now: what is of it is stale. `None` if there is one already.
    pub fn load(&mut self, now: Moment) -> Option<Epoch> {
        if self.loaded.is_some() || self.stale_ttl == 0 {
            return None;
        }
        let epoch = self.current.before(self.ends.len() + 1)?;
        self.ends.push_front(now);
        self.loaded = Some(epoch);
        Some(epoch)
    }

    /// Whether an answer is of the epoch that was loaded.
    pub fn is_loaded(&self, epoch: Epoch) -> bool {
        self.loaded == Some(epoch)
    }

    /// What was loaded is gone from now on. False if it was already.
    pub fn drop_loaded(&mut self) -> bool {
        let Some(loaded) = self.loaded else {
            return false;
        };
        let is_there = self.current.epochs_since(loaded) == self.ends.len();
        if is_there {
            self.ends.pop_front();
        }
        is_there
    }

    pub fn current(&self) -> Epoch {
        self.current
    }

    #[inline]
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
        // What is loaded later would be from before.
        self.loaded.get_or_insert(self.current);
        self.ends.clear();
        self.current = self.current.next();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let ages = Ages::new(Some(100), 1_000);
        let age = learned(&ages, 50);
        assert_eq!(ages.freshness(age, at(149)), Freshness::Fresh);
        assert_eq!(ages.freshness(age, at(150)), Freshness::Gone);
        let without_end = Ages::new(None, 1_000);
        assert_eq!(without_end.freshness(age, Moment::NEVER), Freshness::Fresh);
    }

    #[test]
    fn stale_from_the_first_re_registration_after_it_was_learnt() {
        let mut ages = Ages::new(None, 100);
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
        let mut ages = Ages::new(Some(100), 1_000);
        let age = learned(&ages, 0);
        ages.end_epoch(at(10));
        assert_eq!(ages.freshness(age, at(99)), Freshness::Stale);
        assert_eq!(ages.freshness(age, at(100)), Freshness::Gone);
    }

    #[test]
    fn no_stale_ttl_drops_at_once() {
        let mut ages = Ages::new(None, 0);
        let age = learned(&ages, 0);
        ages.end_epoch(at(10));
        assert_eq!(ages.freshness(age, at(10)), Freshness::Gone);
    }

    #[test]
    fn what_is_loaded_is_older_than_all_else() {
        let mut ages = Ages::new(None, 100);
        let young = learned(&ages, 0);
        ages.end_epoch(at(10));
        let loaded = Age {
            learned: at(0),
            epoch: ages.load(at(50)).unwrap(),
        };
        assert_eq!(ages.load(at(50)), None);
        ages.end_epoch(at(60));
        for (age, last) in [(young, 109), (loaded, 149)] {
            assert_eq!(ages.freshness(age, at(last)), Freshness::Stale);
            assert_eq!(ages.freshness(age, at(last + 1)), Freshness::Gone);
        }
        assert!(ages.drop_loaded());
        assert!(!ages.drop_loaded());
        assert_eq!(ages.freshness(loaded, at(100)), Freshness::Gone);
        assert_eq!(ages.freshness(young, at(100)), Freshness::Stale);
    }

    #[test]
    fn use_is_forgotten_after_two_whole_periods() {
        let mut ages = Ages::new(None, 0);
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
        let mut ages = Ages::new(None, u64::MAX);
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
