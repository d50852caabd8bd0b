//! The one clock: milliseconds that only move forward.

use std::fmt;
#[cfg(feature = "cache")]
use std::time::Duration;

/// A point in time: milliseconds of `CLOCK_MONOTONIC_COARSE` (clock_gettime(2)), counted from eight years before the machine
/// started, so that it can also express times before a reboot.
///
/// Reading it takes no system call and a few nanoseconds; it lags behind the fine clock by at
/// most one kernel tick (1 to 10 ms). Durations are plain `u64` milliseconds. Code
/// that depends on the time takes a `Moment` as an argument, so that tests can choose it.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

/// A time in whole milliseconds, as a [`Moment`] counts.
#[cfg(feature = "cache")]
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Milliseconds from moment 0 to the start of the machine: eight years.
const BEFORE_THE_START: u64 = 8 * 365 * 24 * 3_600_000;

impl Moment {
    /// Later than every other moment.
    pub const NEVER: Moment = Moment(u64::MAX);

    /// Returns the present moment.
    #[must_use]
    pub fn now() -> Moment {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the pointer is to a timespec on the stack, which the call fills. It fails only
        // for a bad pointer or an unknown clock; this clock is in Linux since 2.6.32.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut time) };
        Moment(BEFORE_THE_START + time.tv_sec as u64 * 1_000 + time.tv_nsec as u64 / 1_000_000)
    }

    /// Creates a moment for a test or a computation.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Moment {
        Moment(millis)
    }

    /// Returns the moment `millis` later; [`NEVER`](Moment::NEVER) on overflow.
    #[must_use]
    pub const fn after(self, millis: u64) -> Moment {
        Moment(self.0.saturating_add(millis))
    }

    /// Returns the milliseconds since `earlier`; 0 if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Moment) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Moment::NEVER => f.write_str("never"),
            Moment(millis) => write!(f, "{millis} ms"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn arithmetic_keeps_to_the_scale() {
        let moment = Moment::from_millis(10);
        assert_eq!(moment.after(5).since(moment), 5);
        assert_eq!(moment.since(moment.after(5)), 0);
        assert_eq!(moment.after(u64::MAX), Moment::NEVER);
    }

    #[test]
    fn a_moment_before_the_machine_started_can_be_said() {
        const YEAR: u64 = 365 * 24 * 3_600_000;
        let time = std::fs::read_to_string("/proc/uptime").unwrap();
        let uptime = time.split('.').next().and_then(|time| time.parse().ok());
        let uptime: u64 = uptime.expect("seconds");
        assert!(Moment::now().since(Moment::default()) > uptime * 1_000 + YEAR);
    }

    #[test]
    fn the_clock_moves_forward() {
        let start = Moment::now();
        let limit = Instant::now() + Duration::from_secs(30);
        while Moment::now() <= start {
            assert!(Instant::now() < limit, "no tick in 30 s");
            std::thread::yield_now();
        }
        assert!(Moment::now().since(start) < 30_000);
    }
}
