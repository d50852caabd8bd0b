//! Answers of the SA that differ from what was asked for: one line an hour for each component.

use std::collections::HashMap;

use crate::clock::Moment;
use crate::handles::PortHandle;
use crate::host::LogLevel;
use crate::sa::{Component, Mismatch};

/// Milliseconds between two lines about the same component.
const HOUR: u64 = 3_600_000;

/// When an answer was reported, by component, and how many came since.
#[derive(Default)]
pub(crate) struct Mismatches(HashMap<Component, (Moment, u64)>);

impl Mismatches {
    /// How many answers to report now, with this one; `None` while it is too early.
    fn count(&mut self, component: Component, now: Moment) -> Option<u64> {
        match self.0.get_mut(&component) {
            Some((reported, held_back)) if now.since(*reported) < HOUR => {
                *held_back += 1;
                None
            }
            known => {
                let held_back = known.map_or(0, |(_, held_back)| *held_back);
                self.0.insert(component, (now, 0));
                Some(held_back + 1)
            }
        }
    }
}

impl PortHandle {
    /// The SA answered with a path that was not asked for: the operator has to know, once.
    pub(crate) fn report_mismatch(&self, mismatch: &Mismatch) {
        let count = self
            .mismatches()
            .lock()
            .count(mismatch.component, Moment::now());
        if let Some(count) = count {
            self.host().log(
                LogLevel::ALWAYS,
                format_args!(
                    "{}: {mismatch}; the answer is not used ({count} such since the last line, one line an hour)",
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
    fn one_line_an_hour_for_each_component_with_the_count() {
        let mut mismatches = Mismatches::default();
        let at = Moment::from_millis;
        assert_eq!(mismatches.count(Component::Dgid, at(5)), Some(1));
        assert_eq!(mismatches.count(Component::Sl, at(6)), Some(1));
        for millis in 7..17 {
            assert_eq!(mismatches.count(Component::Dgid, at(millis)), None);
        }
        assert_eq!(mismatches.count(Component::Dgid, at(4 + HOUR)), None);
        assert_eq!(mismatches.count(Component::Dgid, at(5 + HOUR)), Some(12));
        assert_eq!(mismatches.count(Component::Dgid, at(6 + HOUR)), None);
    }
}
