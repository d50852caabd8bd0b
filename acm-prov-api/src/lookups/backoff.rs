//! The rest before a retry.

use std::time::Duration;

use crate::clock::millis;

/// Exponential backoff with jitter: rests double with each failure, and each is randomly between half and all of it, so
/// that hosts that failed together do not retry together.
pub(super) struct Backoff {
    first: u64,
    longest: u64,
    random: u64,
}

impl Backoff {
    /// Creates rests of `first` to `longest`, in whole milliseconds.
    pub fn new((first, longest): (Duration, Duration), seed: u64) -> Backoff {
        Backoff {
            first: millis(first),
            longest: millis(longest),
            random: seed,
        }
    }

    /// Returns the milliseconds to rest after the given number of earlier failures; at least 1.
    pub fn after(&mut self, failures: u32) -> u64 {
        let longest = self
            .first
            .saturating_mul(1_u64.checked_shl(failures).unwrap_or(u64::MAX))
            .clamp(2, self.longest.max(2));
        let shortest = longest / 2;
        shortest + self.next_random() % (longest - shortest + 1)
    }

    /// SplitMix64 (Steele, Lea and Flood, 2014): good enough for spreading, and reproducible.
    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn range(first: u64, longest: u64) -> (Duration, Duration) {
        (Duration::from_millis(first), Duration::from_millis(longest))
    }

    #[test]
    fn rests_double_up_to_the_longest() {
        let mut backoff = Backoff::new(range(100, 1_600), 7);
        for (failures, longest) in [
            (0, 100),
            (1, 200),
            (2, 400),
            (3, 800),
            (4, 1_600),
            (99, 1_600),
        ] {
            for _ in 0..100 {
                let rest = backoff.after(failures);
                assert!(
                    (longest / 2..=longest).contains(&rest),
                    "{failures}: {rest}"
                );
            }
        }
    }

    #[test]
    fn rests_are_spread() {
        let mut backoff = Backoff::new(range(1_000, 16_000), 7);
        let rests: HashSet<u64> = (0..100).map(|_| backoff.after(0)).collect();
        assert!(rests.len() > 50, "{rests:?}");
        let other = Backoff::new(range(1_000, 16_000), 8).after(0);
        assert_ne!(Backoff::new(range(1_000, 16_000), 7).after(0), other);
    }

    #[test]
    fn never_without_rest() {
        for timeout in [0, 1, 2, 15, 16, u64::MAX] {
            for failures in [0, 1, u32::MAX] {
                assert!(Backoff::new(range(timeout / 16, timeout), 7).after(failures) >= 1);
            }
        }
    }
}
