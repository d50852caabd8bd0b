//! A rate limit for log lines that requests or a faulty SA can cause.

use crate::clock::Moment;
use crate::sync::Mutex;

/// Lines in one second, by one kind of fault.
const MOST: u32 = 20;
/// Milliseconds that they count for.
const SPAN: u64 = 1_000;

/// Counts the lines of one kind of fault.
pub(crate) struct LogLimit(Mutex<State>);

#[derive(Clone, Copy)]
struct State {
    since: Moment,
    lines: u32,
    held_back: u64,
}

impl LogLimit {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(State {
            since: Moment::from_millis(0),
            lines: 0,
            held_back: 0,
        }))
    }

    /// Whether a line may be written now, and how many were held back before it.
    pub(crate) fn admits(&self, now: Moment) -> Option<u64> {
        let mut state = self.0.lock();
        if now.since(state.since) >= SPAN {
            state.since = now;
            state.lines = 0;
        }
        if state.lines >= MOST {
            state.held_back += 1;
            return None;
        }
        state.lines += 1;
        Some(std::mem::take(&mut state.held_back))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_counted_instead_of_told() {
        let limit = LogLimit::new();
        let at = |millis| Moment::from_millis(100_000 + millis);
        let told = (0..500).filter(|_| limit.admits(at(0)).is_some()).count();
        assert_eq!(told, MOST as usize);
        assert_eq!(limit.admits(at(SPAN - 1)), None);
        assert_eq!(limit.admits(at(SPAN)), Some(481));
        assert_eq!(limit.admits(at(SPAN)), Some(0));
    }
}
