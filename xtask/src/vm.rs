//! Runs rdma-access's kernel tests in a virtual machine: Debian's kernel under qemu's software emulation, with
//! soft-RoCE devices. The output of the tests is passed on.

mod image;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::supervise::{self, Budget, Stream};
use crate::{cargo, heading, setup, trees};

/// Time limit for a cold build of the tests.
const BUILD_BUDGET: Duration = Duration::from_secs(1800);
/// Time limit from making the image to power off, several times the usual time.
const RUN_BUDGET: Duration = Duration::from_secs(420);
/// The names of the runs in `init`.
const RUNS: [&str; 5] = [
    "without-modules",
    "exclusive",
    "without-driver",
    "in-a-container",
    "kernel",
];

/// Sets up, builds, boots and checks the result.
pub fn alone() -> Result<(), Error> {
    setup::ensure()?;
    trees::ensure()?;
    heading("tests for the virtual machine");
    build(Budget::start(BUILD_BUDGET))?;
    let started = Instant::now();
    heading(&format!(
        "virtual machine, budget {} s",
        RUN_BUDGET.as_secs()
    ));
    run(Budget::start(RUN_BUDGET), |_| {})?;
    println!(
        "the virtual machine took {:.1} s",
        started.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Boots and checks what is built. `line` gets the machine's output.
pub fn run(budget: Budget, mut line: impl FnMut(&str) + Send) -> Result<(), Error> {
    let executable = build(budget)?;
    let expected = count_tests(&executable)?;
    let image = image::make(&executable, budget)?;
    let mut report = Report::default();
    supervise::run_clean_reading(&mut qemu(&image), Stream::Output, budget, |text| {
        report.read(text);
        line(text);
    })?;
    report.judge(expected)
}

/// Returns the executable of the tests.
fn build(budget: Budget) -> Result<std::path::PathBuf, Error> {
    // With the features and packages of all tests, or cargo would compile again for this one.
    let arguments = [
        "test",
        "--workspace",
        "--all-features",
        "--test",
        "kernel",
        "--no-run",
    ];
    supervise::run(&mut cargo(&arguments), budget)?;
    let mut again = cargo(&arguments);
    let text = trees::output(again.args(["--message-format", "json"]))?;
    let executable = text
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == "kernel")
        .find_map(|message| message["executable"].as_str().map(Into::into));
    executable.ok_or_else(|| Error::Unexpected {
        command: crate::shown(&again),
        output: "no executable called kernel".to_owned(),
    })
}

/// Returns how many tests must run in the machine.
fn count_tests(executable: &Path) -> Result<usize, Error> {
    let mut list = Command::new(executable);
    let text = trees::output(list.args(["--ignored", "--list", "--format", "terse"]))?;
    Ok(listed(&text))
}

fn listed(text: &str) -> usize {
    text.lines().filter(|line| line.ends_with(": test")).count()
}

fn qemu(image: &image::Image) -> Command {
    let mut command = Command::new("qemu-system-x86_64");
    command
        .args([
            "-machine",
            "pc",
            "-accel",
            "tcg,thread=multi",
            "-cpu",
            "max",
        ])
        .args(["-smp", "2", "-m", "1024", "-nodefaults", "-no-reboot"])
        .args(["-display", "none", "-serial", "stdio", "-kernel"])
        .arg(Path::new(&image.kernel))
        .arg("-initrd")
        .arg(&image.initramfs)
        .args(["-append", "console=ttyS0 quiet loglevel=1 panic=-1"]);
    command
}

/// The machine's output, parsed.
#[derive(Debug, Default)]
struct Report {
    /// The current run.
    current: Option<String>,
    /// Finished runs, with their exit status and the number of passed tests.
    ended: Vec<(String, String, usize)>,
    /// The step of `init` that failed.
    failure: Option<String>,
    /// Number of tests that passed in the current run.
    in_run: usize,
}

impl Report {
    fn read(&mut self, line: &str) {
        let line = line.trim();
        if let Some(what) = line.strip_prefix("@ failed ") {
            self.failure = Some(what.to_owned());
        } else if let Some(status) = line.strip_prefix("@ end ") {
            if let Some(name) = self.current.take() {
                self.ended.push((name, status.to_owned(), self.in_run));
            }
        } else if let Some(name) = line.strip_prefix("@ ") {
            self.current = Some(name.to_owned());
            self.in_run = 0;
        } else if let Some((_, counts)) = line
            .strip_prefix("test result: ")
            .and_then(|rest| rest.split_once(". "))
            && let Some((passed, "passed")) = counts
                .split(';')
                .next()
                .and_then(|count| count.split_once(' '))
        {
            self.in_run += passed.parse::<usize>().unwrap_or(0);
        }
    }

    fn judge(&self, expected: usize) -> Result<(), Error> {
        let failed = |what: String| Err(Error::VirtualMachine(what));
        if let Some(what) = &self.failure {
            return failed(format!("failed to set up: {what}"));
        }
        if self.ended.is_empty() && self.current.is_none() {
            return failed("did not boot".to_owned());
        }
        for name in RUNS {
            match self.ended.iter().find(|(ended, ..)| ended == name) {
                None => return failed(format!("did not finish the run {name}")),
                Some((_, status, _)) if status != "0" => {
                    return failed(format!("ran {name} with failed tests (status {status})"));
                }
                Some((_, _, 0)) => return failed(format!("ran no test in {name}")),
                Some(_) => {}
            }
        }
        let passed: usize = self.ended.iter().map(|(.., passed)| passed).sum();
        if passed != expected {
            return failed(format!("ran {passed} of {expected} tests"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(lines: &[&str]) -> Result<(), String> {
        let mut report = Report::default();
        lines.iter().for_each(|line| report.read(line));
        report.judge(31).map_err(|error| error.to_string())
    }

    const GOOD: [&str; 17] = [
        "SeaBIOS (version 1.16.2)",
        "@ without-modules",
        "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 25 filtered out; finished in 0.31s",
        "@ end 0",
        "@ exclusive",
        "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 25 filtered out; finished in 0.31s",
        "@ end 0",
        "@ without-driver",
        "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 27 filtered out; finished in 0.01s",
        "@ end 0",
        "@ in-a-container",
        "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 26 filtered out; finished in 0.11s",
        "@ end 0",
        "@ kernel",
        "test addresses::local ... ok\r",
        "test result: ok. 22 passed; 0 failed; 0 ignored; 0 measured; 6 filtered out; finished in 9.31s\r",
        "@ end 0\r",
    ];

    #[test]
    fn good_runs_are_a_success() {
        assert_eq!(judged(&GOOD), Ok(()));
    }

    #[test]
    fn whatever_is_missing_is_a_failure() {
        for (cut, words) in [
            (0, "did not boot"),
            (1, "did not boot"),
            (2, "finish the run without-modules"),
            (4, "finish the run exclusive"),
            (7, "finish the run without-driver"),
            (10, "finish the run in-a-container"),
            (13, "finish the run kernel"),
            (14, "finish the run kernel"),
            (16, "finish the run kernel"),
        ] {
            let error = judged(&GOOD[..cut]).unwrap_err();
            assert!(error.contains(words), "{cut}: {error}");
        }
    }

    #[test]
    fn tests_are_counted_from_the_executables_list() {
        assert_eq!(listed("a::b: test\nc: test\nd: benchmark\n"), 2);
        assert_eq!(listed(""), 0);
    }

    #[test]
    fn a_failing_test_an_empty_run_and_a_failed_setup_are_failures() {
        let mut lines = GOOD;
        lines[16] = "@ end 101";
        assert!(
            judged(&lines)
                .unwrap_err()
                .contains("failed tests (status 101)")
        );
        let mut lines = GOOD;
        lines[15] = "test result: ok. 0 passed; 0 failed; 0 ignored";
        assert!(
            judged(&lines)
                .unwrap_err()
                .contains("ran no test in kernel")
        );
        lines[15] = "test result: ok. 21 passed; 0 failed; 0 ignored; 0 measured; 5 filtered out";
        assert!(judged(&lines).unwrap_err().contains("ran 30 of 31 tests"));
        let mut lines = GOOD;
        lines[14] = "@ failed insmod rdma_rxe";
        assert!(judged(&lines).unwrap_err().contains("insmod rdma_rxe"));
    }
}
