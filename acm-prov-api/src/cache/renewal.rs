//! The pace of renewals, for one port: which path to query again, and when.

use std::collections::VecDeque;

use crate::clock::Moment;

/// At most so many milliseconds between two searches for due paths.
const LOOK: u64 = 10_000;

/// The same, after a due path was used.
const LOOK_SOON: u64 = 1_000;

/// Milliseconds of a period of use. "Used lately" means: used in one of the last two complete periods, or later.
const USE_PERIOD: u64 = 300_000;

/// Paces renewals: at most so many per second, one after the other.
pub struct Renewal<K> {
    /// Milliseconds between two renewals.
    pace: u64,
    /// Milliseconds between two searches for due paths.
    rest: u64,
    queue: VecDeque<K>,
    /// The earliest time of the next renewal.
    next: Moment,
    /// When to search for due paths.
    look: Moment,
    period_ends: Moment,
}

impl<K> Renewal<K> {
    /// Creates a pace of at most `per_second` renewals per second; 0 counts as 1. A path is valid for `ttl` milliseconds and due in
    /// the last eighth of them; the pace searches twice in that time.
    #[must_use]
    pub fn new(per_second: u32, ttl: u64, now: Moment) -> Self {
        let rest = (ttl / 16).clamp(LOOK_SOON, LOOK);
        Self {
            pace: 1_000_u64.div_ceil(u64::from(per_second.max(1))),
            rest,
            queue: VecDeque::new(),
            next: now,
            look: now.after(rest),
            period_ends: now.after(USE_PERIOD),
        }
    }

    /// Notes that many paths are stale: the first search for them comes after `delay` milliseconds, and no renewal before.
    pub fn restart(&mut self, now: Moment, delay: u64) {
        self.queue.clear();
        self.look = now.after(delay);
        self.next = self.next.max(self.look);
    }

    /// Notes that a due path was used.
    pub fn used(&mut self, now: Moment) {
        self.look = self.look.min(now.after(LOOK_SOON).max(self.next));
    }

    /// Returns when there is something to do.
    #[must_use]
    pub fn due(&self) -> Moment {
        let work = if self.queue.is_empty() {
            self.look
        } else {
            self.next
        };
        work.min(self.period_ends)
    }

    /// Whether a period of use has ended; true once for each period.
    pub fn ends_period(&mut self, now: Moment) -> bool {
        let ends = self.period_ends <= now;
        if ends {
            self.period_ends = now.after(USE_PERIOD);
        }
        ends
    }

    /// If a search is due: returns how many due paths to [pass](Self::found), enough for the time until the next search.
    #[must_use]
    pub fn looks_for(&self, now: Moment) -> Option<usize> {
        let is_time = self.queue.is_empty() && self.look <= now;
        let limit = usize::try_from(self.rest / self.pace).unwrap_or(usize::MAX);
        is_time.then_some(limit.max(1))
    }

    /// Takes the due paths.
    pub fn found(&mut self, now: Moment, due: impl IntoIterator<Item = K>) {
        self.queue.extend(due);
        self.look = now.after(self.rest);
    }

    /// Returns a path to renew now. `is_due`: whether a path is still due.
    pub fn take(&mut self, now: Moment, mut is_due: impl FnMut(&K) -> bool) -> Option<K> {
        if self.next > now {
            return None;
        }
        let next = std::iter::from_fn(|| self.queue.pop_front()).find(|key| is_due(key))?;
        self.next = now.after(self.pace);
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::from_millis(millis)
    }

    /// What is renewed until `end` if everything that is looked for is due, and when.
    fn run(renewal: &mut Renewal<usize>, end: u64) -> Vec<u64> {
        let mut times = Vec::new();
        while renewal.due() < at(end) {
            let now = renewal.due();
            renewal.ends_period(now);
            if let Some(limit) = renewal.looks_for(now) {
                renewal.found(now, 0..limit);
            }
            if renewal.take(now, |_| true).is_some() {
                times.push(now.since(at(0)));
            }
        }
        times
    }

    #[test]
    fn so_many_a_second_and_no_more() {
        for per_second in [1, 3, 10, 300, 1_000, 5_000] {
            let times = run(&mut Renewal::new(per_second, u64::MAX, at(0)), 40_000);
            assert!(times[0] == 10_000);
            let most = 30 * per_second.min(1_000) as usize;
            assert!(times.len() <= most, "{per_second}: {}", times.len());
            assert!(
                times.len() * 10 >= most * 8,
                "{per_second}: {}",
                times.len()
            );
            assert!(times.is_sorted_by(|one, next| next - one >= u64::from(1_000 / per_second)));
        }
    }

    #[test]
    fn a_restart_comes_after_its_delay() {
        let mut renewal = Renewal::new(10, u64::MAX, at(0));
        run(&mut renewal, 15_000);
        renewal.restart(at(15_000), 7_000);
        assert_eq!(run(&mut renewal, 22_300), [22_000, 22_100, 22_200]);
    }

    #[test]
    fn what_is_used_is_looked_for_soon_but_not_before_a_restart() {
        let mut renewal = Renewal::<u8>::new(10, u64::MAX, at(0));
        renewal.used(at(500));
        assert_eq!(renewal.due(), at(1_500));
        renewal.restart(at(600), 7_000);
        renewal.used(at(700));
        assert_eq!(renewal.due(), at(7_600));
        renewal.found(at(7_600), []);
        assert_eq!(renewal.due(), at(17_600));
        renewal.used(at(17_000));
        assert_eq!(renewal.due(), at(17_600));
    }

    #[test]
    fn what_is_due_no_longer_takes_no_turn() {
        let mut renewal = Renewal::new(10, u64::MAX, at(0));
        renewal.found(at(0), 0..5);
        assert_eq!(renewal.take(at(0), |key| *key == 3), Some(3));
        assert_eq!(renewal.take(at(99), |_| true), None);
        assert_eq!(renewal.take(at(100), |_| true), Some(4));
        assert_eq!(renewal.due(), at(10_000));
    }

    #[test]
    fn what_expires_soon_is_looked_for_more_often() {
        // A path of a minute is due in its last eighth, 7.5 s.
        for (ttl, most) in [(60_000, 3_750), (0, 1_000), (u64::MAX, 10_000)] {
            let mut renewal = Renewal::<u8>::new(10, ttl, at(0));
            assert_eq!(renewal.due(), at(most));
            let limit = renewal.looks_for(at(most)).unwrap();
            assert_eq!(
                limit as u64,
                most / 100,
                "{ttl}: enough until the next look"
            );
            renewal.found(at(most), []);
            assert_eq!(renewal.due(), at(2 * most), "{ttl}");
        }
    }

    #[test]
    fn periods_end_one_after_the_other() {
        let mut renewal = Renewal::<u8>::new(10, u64::MAX, at(0));
        assert!(!renewal.ends_period(at(299_999)));
        assert!(renewal.ends_period(at(300_000)));
        assert!(!renewal.ends_period(at(300_001)));
        assert!(renewal.ends_period(at(600_000)));
    }
}
