//! Measures the provider's time, less the time in which it waited for a processor.

use std::cell::RefCell;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

/// A stopwatch for a callback on the current thread.
pub(super) struct Stopwatch {
    start: Instant,
    waited: Duration,
}

impl Stopwatch {
    /// Starts a stopwatch.
    pub fn start() -> Self {
        let start = Instant::now();
        Self {
            waited: thread_waited_lately(start),
            start,
        }
    }

    /// Returns the time since the start in which the thread ran or slept, if it exceeds `limit`.
    pub fn longer_than(&self, limit: Duration) -> Option<Duration> {
        let elapsed = self.start.elapsed();
        if elapsed <= limit {
            return None;
        }
        let waited = thread_waited().saturating_sub(self.waited);
        Some(elapsed.saturating_sub(waited)).filter(|took| *took > limit)
    }
}

/// Accuracy of the waiting time: calls within this time share a reading.
const EXACTNESS: Duration = Duration::from_millis(1);

/// A thread's statistics.
struct Statistics {
    thread: libc::pid_t,
    file: File,
    read: Instant,
    waited: Duration,
}

impl Statistics {
    fn open(thread: libc::pid_t) -> Option<Self> {
        let file = File::open("/proc/thread-self/schedstat").ok()?;
        let mut statistics = Self {
            thread,
            file,
            read: Instant::now(),
            waited: Duration::ZERO,
        };
        statistics.read();
        Some(statistics)
    }

    fn read(&mut self) {
        self.read = Instant::now();
        let mut text = [0; 64];
        let length = self.file.read_at(&mut text, 0).unwrap_or(0);
        self.waited = second_number(&text[..length]);
    }
}

/// Returns how long this thread has waited for a processor.
fn thread_waited() -> Duration {
    with_statistics(|statistics| {
        statistics.read();
        statistics.waited
    })
}

/// Returns the same value, at most [`EXACTNESS`] old.
fn thread_waited_lately(now: Instant) -> Duration {
    with_statistics(|statistics| {
        if now.duration_since(statistics.read) > EXACTNESS {
            statistics.read();
        }
        statistics.waited
    })
}

fn with_statistics(look: impl FnOnce(&mut Statistics) -> Duration) -> Duration {
    thread_local! {
        static STATISTICS: RefCell<Option<Statistics>> = const { RefCell::new(None) };
    }
    // SAFETY: it has no conditions.
    let thread = unsafe { libc::gettid() };
    STATISTICS.with_borrow_mut(|known| {
        // After a fork this is another thread.
        if known.as_ref().is_none_or(|known| known.thread != thread) {
            *known = Statistics::open(thread);
        }
        known.as_mut().map_or(Duration::ZERO, look)
    })
}

/// Returns the sum over all existing threads of this process.
pub(super) fn process_waited() -> Duration {
    fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|thread| fs::read(thread.path().join("schedstat")).ok())
        .map(|text| second_number(&text))
        .sum()
}

/// Returns the second number of a `schedstat` file, the time on the run queue in nanoseconds; zero if the kernel lacks the
/// file.
fn second_number(text: &[u8]) -> Duration {
    let nanoseconds = std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.split_ascii_whitespace().nth(1)?.parse().ok())
        .unwrap_or(0);
    Duration::from_nanos(nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_number_is_the_time_on_the_run_queue() {
        assert_eq!(second_number(b"12 345 6\n"), Duration::from_nanos(345));
        assert_eq!(second_number(b""), Duration::ZERO);
        assert_eq!(second_number(b"12 x 6"), Duration::ZERO);
    }

    #[test]
    fn sleep_counts_and_a_short_call_does_not() {
        let watch = Stopwatch::start();
        std::thread::sleep(Duration::from_millis(50));
        let took = watch.longer_than(Duration::from_millis(20));
        assert!(took >= Some(Duration::from_millis(50)), "{took:?}");
        assert_eq!(watch.longer_than(Duration::from_hours(1)), None);
    }
}
