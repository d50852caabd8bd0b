//! Counts passed, failed and ignored tests from the output of test programs.

/// Counts of tests.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct Tally {
    pub passed: u64,
    pub failed: u64,
    pub ignored: u64,
}

impl Tally {
    /// Adds the tests of another run.
    pub fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
    }

    /// Adds a summary line, ignores any other:
    ///
    /// - `test result: ok. 3 passed; 0 failed; 1 ignored; …` of a test program;
    /// - `Summary [ 0.1s] 4 tests run: 3 passed (1 slow), 1 failed, 2 skipped` of cargo-nextest; a test that
    ///   timed out or could not start counts as failed.
    pub fn read(&mut self, line: &str) {
        let (counts, separator) = match line.strip_prefix("test result: ") {
            Some(rest) => match rest.split_once(". ") {
                Some((_, counts)) => (counts, "; "),
                None => return,
            },
            // cargo-nextest indents the output of a failed test, including its summary line.
            None => match line
                .trim_start()
                .strip_prefix("Summary [")
                .and_then(|rest| rest.split_once("] "))
                .and_then(|(_, rest)| rest.split_once(" run: "))
            {
                Some((_, counts)) => (counts, ", "),
                None => return,
            },
        };
        for count in counts.split(separator) {
            let mut words = count.split(' ');
            let Some(Ok(number)) = words.next().map(str::parse::<u64>) else {
                continue;
            };
            match words.next() {
                Some("passed") => self.passed += number,
                Some("failed" | "timed" | "exec") => self.failed += number,
                Some("ignored" | "skipped") => self.ignored += number,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&str]) -> Tally {
        let mut tally = Tally::default();
        for line in lines {
            tally.read(line);
        }
        tally
    }

    #[test]
    fn closing_lines_of_test_programs_add_up_and_other_lines_do_not_count() {
        let tally = read(&[
            "running 3 tests",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 7 filtered out; finished in 0.00s",
            "test prints::test result: ok. 9 passed; 9 failed ... ok",
            "test result: FAILED. 2 passed; 4 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.20s",
            "test result: ok. many passed; some failed",
            "test result: ",
        ]);
        assert_eq!(
            tally,
            Tally {
                passed: 5,
                failed: 4,
                ignored: 1
            }
        );
    }

    #[test]
    fn closing_lines_of_nextest_count_also_time_outs() {
        let tally = read(&[
            "    Starting 5 tests across 2 binaries (4 tests skipped)",
            "     Summary [   1.043s] 9 tests run: 5 passed (1 slow, 1 flaky), 2 failed, 1 timed out, 1 exec failed, 4 skipped",
            "    test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 42 filtered out; finished in 0.04s",
            "     Summary [   0.043s] 1 test run: 1 passed, 0 skipped",
            "     Summary [   0.043s] 3/7 tests run: 3 passed, 0 skipped",
            "Summary [",
        ]);
        assert_eq!(
            tally,
            Tally {
                passed: 9,
                failed: 4,
                ignored: 4
            }
        );
    }
}
