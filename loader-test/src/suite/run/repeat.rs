//! Repeats bad results that time may explain, each alone.

use std::collections::HashSet;

use super::plan::Report;
use crate::suite::Status;
use crate::suite::fixture::Late;

/// Decides which results are repeated.
#[derive(Debug)]
pub(super) struct Repeats {
    left: usize,
    /// Kinds that recurred.
    given_up: HashSet<Late>,
}

impl Repeats {
    /// How many more results may be repeated.
    pub fn new(most: usize) -> Self {
        Self {
            left: most,
            given_up: HashSet::new(),
        }
    }

    /// Whether to repeat this result.
    pub fn wants(&self, report: &Report) -> bool {
        let is_of_interest = report.status.is_bad(true) || report.status == Status::Skipped;
        is_of_interest
            && self.left > 0
            && report
                .late
                .is_some_and(|late| !self.given_up.contains(&late))
    }

    /// Records a repetition, and merges the two results.
    pub fn done(&mut self, first: &Report, mut again: Report) -> Report {
        self.left = self.left.saturating_sub(1);
        again.repeated = true;
        again.duration_ms += first.duration_ms;
        if let Some(late) = first.late.filter(|_| again.late == first.late) {
            self.given_up.insert(late);
        }
        again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(status: Status, late: Option<Late>) -> Report {
        Report {
            late,
            ..Report::new("load-name", status, String::new())
        }
    }

    #[test]
    fn what_time_does_not_explain_is_not_repeated() {
        let repeats = Repeats::new(5);
        for (status, late, expected) in [
            (Status::TimedOut, Some(Late::Hung), true),
            (Status::Failed, Some(Late::Expired), true),
            (Status::Failed, None, false),
            (Status::Crashed, None, false),
            (Status::Skipped, Some(Late::Missed), true),
            (Status::Passed, Some(Late::Expired), false),
        ] {
            assert_eq!(
                repeats.wants(&report(status, late)),
                expected,
                "{status} {late:?}"
            );
        }
    }

    #[test]
    fn a_kind_that_comes_again_is_given_up() {
        let mut repeats = Repeats::new(5);
        let hung = report(Status::TimedOut, Some(Late::Hung));
        let result = repeats.done(&hung, hung.clone());
        assert!(result.repeated);
        assert!(!repeats.wants(&hung));
        assert!(repeats.wants(&report(Status::Failed, Some(Late::Missed))));
    }

    #[test]
    fn five_are_repeated() {
        let mut repeats = Repeats::new(5);
        let hung = report(Status::TimedOut, Some(Late::Hung));
        for _ in 0..5 {
            assert!(repeats.wants(&hung));
            repeats.done(&hung, report(Status::Passed, None));
        }
        assert!(!repeats.wants(&hung));
    }
}
