//! Lines about a port that repeat themselves: one an hour for each subject.

use std::collections::HashMap;
use std::fmt;

use super::PortHandle;
use crate::clock::Moment;
use crate::host::LogLevel;

/// Milliseconds between two lines about the same subject.
const HOUR: u64 = 3_600_000;

/// When a line was written, by subject, and how many were held back since.
#[derive(Default)]
pub(super) struct Hourly(HashMap<&'static str, (Moment, u64)>);

impl Hourly {
    /// How many lines the next one stands for, itself included; `None` while it is too early.
    fn count(&mut self, subject: &'static str, now: Moment) -> Option<u64> {
        match self.0.get_mut(subject) {
            Some((written, held_back)) if now.since(*written) < HOUR => {
                *held_back += 1;
                None
            }
            known => {
                let held_back = known.map_or(0, |(_, held_back)| *held_back);
                self.0.insert(subject, (now, 0));
                Some(held_back + 1)
            }
        }
    }
}

impl PortHandle {
    /// Writes a line about the port whatever the log level, but one an hour about each subject.
    pub(crate) fn log_hourly(&self, subject: &'static str, text: fmt::Arguments<'_>) {
        let count = self.0.hourly.lock().count(subject, Moment::now());
        if let Some(count) = count {
            self.host().log(
                LogLevel::ALWAYS,
                format_args!(
                    "{}: {text} ({count} such since the last line, one line an hour)",
                    self.place()
                ),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_an_hour_for_each_subject_with_the_count() {
        let mut hourly = Hourly::default();
        let at = Moment::from_millis;
        assert_eq!(hourly.count("DGID", at(5)), Some(1));
        assert_eq!(hourly.count("SL", at(6)), Some(1));
        for millis in 7..17 {
            assert_eq!(hourly.count("DGID", at(millis)), None);
        }
        assert_eq!(hourly.count("DGID", at(4 + HOUR)), None);
        assert_eq!(hourly.count("DGID", at(5 + HOUR)), Some(12));
        assert_eq!(hourly.count("DGID", at(6 + HOUR)), None);
    }
}
