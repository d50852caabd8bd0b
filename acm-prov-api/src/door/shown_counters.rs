//! A provider's own counters in the log, when somebody asks for counters.

use std::fmt::Write as _;

use crate::clock::Moment;
use crate::host::own_counters::{Counter, of_the_sdk};
use crate::host::{Host, LogLevel};
use crate::provider::Provider;
use crate::sync::Mutex;

/// Milliseconds between two lines: who asks for counters often does not fill the log.
const REST: u64 = 10_000;

/// A provider's own counters, and those that every provider has.
pub(super) fn counters<P: Provider>() -> Vec<&'static Counter> {
    let mut counters = P::counters();
    counters.extend(of_the_sdk());
    counters
}

/// What the log shows of a provider's own counters.
pub(super) struct ShownCounters(Mutex<Shown>);

struct Shown {
    at: Option<Moment>,
    values: Vec<u64>,
}

impl ShownCounters {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(Shown {
            at: None,
            values: Vec::new(),
        }))
    }

    /// Somebody asks for counters: logs them if one has changed since the last line, and that is a while ago.
    pub(super) fn show(&self, host: &Host, counters: &[&Counter]) {
        if let Some(line) = self.line(Moment::now(), counters) {
            host.log(LogLevel::ALWAYS, format_args!("{line}"));
        }
    }

    fn line(&self, now: Moment, counters: &[&Counter]) -> Option<String> {
        let mut shown = self.0.lock();
        let rests = shown.at.is_some_and(|at| now.since(at) < REST);
        let values: Vec<u64> = counters.iter().map(|counter| counter.get()).collect();
        let is_news = match shown.at {
            Some(_) => values != shown.values,
            None => values.iter().any(|value| *value != 0),
        };
        if rests || !is_news {
            return None;
        }
        *shown = Shown {
            at: Some(now),
            values,
        };
        let mut line = "counters:".to_owned();
        for (index, (counter, value)) in counters.iter().zip(&shown.values).enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let _ = write!(line, "{comma} {} {value}", counter.name());
        }
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_comes_when_something_changed_and_not_too_often() {
        static ONE: Counter = Counter::new("one", "");
        static TWO: Counter = Counter::new("two", "");
        let shown = ShownCounters::new();
        let line = |millis| shown.line(Moment::from_millis(millis), &[&ONE, &TWO]);
        assert_eq!(line(0), None, "nothing was counted");
        TWO.increment();
        assert_eq!(line(1).as_deref(), Some("counters: one 0, two 1"));
        assert_eq!(line(1 + REST), None, "nothing has changed");
        ONE.increment();
        assert_eq!(line(REST), None, "too early");
        assert_eq!(line(1 + REST).as_deref(), Some("counters: one 1, two 1"));
    }
}
