use std::process::Command;
use std::time::{Duration, Instant};

use clap::ValueEnum;

use crate::error::Error;
use crate::supervise::{self, Budget};
use crate::{cargo, heading, setup};

/// The packages whose integration tests start the real daemon; everybody else's need no fabric.
const DAEMON_PACKAGES: [&str; 3] = ["loader-test", "fabric-sim", "provider-cache"];

#[derive(clap::Args)]
pub struct Options {
    /// Run this tier alone (and the build, which the others need)
    #[arg(long, value_enum)]
    tier: Option<Tier>,
}

#[derive(Clone, Copy, PartialEq, Debug, ValueEnum)]
enum Tier {
    /// Everything, so that libraries and programs stand beside each other
    Build,
    /// Unit tests and the documentation's examples
    Unit,
    /// Integration tests that need no daemon
    Suite,
    /// Integration tests under the distribution's ibacm, with OpenSM and ibsim
    Daemon,
}

impl Tier {
    fn name(self) -> &'static str {
        match self {
            Self::Build => "build",
            Self::Unit => "unit",
            Self::Suite => "suite",
            Self::Daemon => "daemon",
        }
    }

    /// What the tier may take on two cores from nothing; several times what it takes.
    fn budget(self) -> Duration {
        Duration::from_secs(match self {
            Self::Build => 1800,
            Self::Unit => 300,
            Self::Suite => 300,
            Self::Daemon => 1200,
        })
    }

    fn commands(self) -> Vec<Command> {
        if self == Self::Build {
            let mut commands = vec![cargo(&["build", "--workspace", "--all-targets"])];
            // The very selections of the tests: cargo compiles anew for others.
            let tests = Self::value_variants()
                .iter()
                .filter(|tier| tier.runs_tests());
            for selection in tests.flat_map(|tier| tier.selections()) {
                // The documentation's examples are compiled when they are run.
                if !selection.contains(&"--doc") {
                    commands.push(cargo_test(&selection, &["--no-run"]));
                }
            }
            return commands;
        }
        self.selections()
            .iter()
            .map(|selection| cargo_test(selection, &[]))
            .collect()
    }

    /// The tests of this tier, as arguments of `cargo test`.
    fn selections(self) -> Vec<Vec<&'static str>> {
        match self {
            Self::Build => vec![],
            Self::Unit => vec![
                vec!["--workspace", "--lib", "--bins"],
                vec!["--workspace", "--doc"],
            ],
            Self::Suite => {
                let exclude = DAEMON_PACKAGES
                    .iter()
                    .flat_map(|package| ["--exclude", package]);
                vec![
                    ["--workspace", "--test", "*"]
                        .into_iter()
                        .chain(exclude)
                        .collect(),
                ]
            }
            Self::Daemon => {
                let include = DAEMON_PACKAGES
                    .iter()
                    .flat_map(|package| ["--package", package]);
                vec![["--test", "*"].into_iter().chain(include).collect()]
            }
        }
    }

    fn runs_tests(self) -> bool {
        self != Self::Build
    }
}

/// Sets up, builds, and runs the tiers one after the other; the first failure ends the run.
pub fn run(options: &Options) -> Result<(), Error> {
    setup::ensure()?;
    let mut lines = vec![];
    let mut outcome = Ok(());
    for &tier in Tier::value_variants() {
        if tier.runs_tests() && options.tier.is_some_and(|wanted| wanted != tier) {
            continue;
        }
        let budget = tier.budget();
        heading(&format!(
            "tier {}, budget {} s",
            tier.name(),
            budget.as_secs()
        ));
        let mut tally = Tally::default();
        let started = Instant::now();
        outcome = run_tier(tier, &mut tally);
        lines.push(summary(tier, started.elapsed(), tally, outcome.is_ok()));
        if outcome.is_err() {
            break;
        }
    }
    heading("tiers");
    println!("{}", lines.join("\n"));
    outcome
}

fn run_tier(tier: Tier, tally: &mut Tally) -> Result<(), Error> {
    let budget = Budget::start(tier.budget());
    for mut command in tier.commands() {
        println!("$ {}", crate::shown(&command));
        if tier.runs_tests() {
            supervise::run_clean_reading(&mut command, budget, |line| tally.read(line))?;
        } else {
            supervise::run(&mut command, budget)?;
        }
    }
    if tier.runs_tests() && tally.passed == 0 {
        return Err(Error::NoTest { tier: tier.name() });
    }
    Ok(())
}

fn summary(tier: Tier, took: Duration, tally: Tally, passed: bool) -> String {
    let tests = if tier.runs_tests() {
        format!(
            "{} passed, {} failed, {} ignored",
            tally.passed, tally.failed, tally.ignored
        )
    } else {
        "-".to_owned()
    };
    format!(
        "{:<7} {:<4} {:>6.1} s of {:>4} s   {tests}",
        tier.name(),
        if passed { "ok" } else { "FAIL" },
        took.as_secs_f64(),
        tier.budget().as_secs(),
    )
}

fn cargo_test(selection: &[&str], more: &[&str]) -> Command {
    let mut command = cargo(&["test", "--all-features"]);
    command.args(selection).args(more);
    command
}

/// Tests counted from the closing lines of the test programs.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
struct Tally {
    passed: u64,
    failed: u64,
    ignored: u64,
}

impl Tally {
    /// Adds a line such as `test result: ok. 3 passed; 0 failed; 1 ignored; …`; skips any other.
    fn read(&mut self, line: &str) {
        let Some((_, counts)) = line
            .strip_prefix("test result: ")
            .and_then(|rest| rest.split_once(". "))
        else {
            return;
        };
        for count in counts.split("; ") {
            match count
                .split_once(' ')
                .map(|(number, what)| (number.parse(), what))
            {
                Some((Ok(number), "passed")) => self.passed += number,
                Some((Ok::<u64, _>(number), "failed")) => self.failed += number,
                Some((Ok(number), "ignored")) => self.ignored += number,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_add_up_and_other_lines_do_not_count() {
        let mut tally = Tally::default();
        for line in [
            "running 3 tests",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 7 filtered out; finished in 0.00s",
            "test prints::test result: ok. 9 passed; 9 failed ... ok",
            "test result: FAILED. 2 passed; 4 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.20s",
            "test result: ok. many passed; some failed",
            "test result: ",
        ] {
            tally.read(line);
        }
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
    fn every_package_tested_under_the_daemon_is_left_out_of_the_suite() {
        let holds = |tier: Tier, pair: [&str; 2]| {
            tier.selections()[0].windows(2).any(|words| words == pair)
        };
        for package in DAEMON_PACKAGES {
            assert!(holds(Tier::Suite, ["--exclude", package]));
            assert!(holds(Tier::Daemon, ["--package", package]));
        }
    }

    #[test]
    fn the_build_compiles_what_the_tiers_run() {
        let words = |command: &Command| {
            let words = command
                .get_args()
                .map(|word| word.to_string_lossy().into_owned());
            words.collect::<Vec<_>>()
        };
        let built: Vec<_> = Tier::Build.commands().iter().map(words).collect();
        for &tier in Tier::value_variants()
            .iter()
            .filter(|tier| tier.runs_tests())
        {
            for mut run in tier.commands().iter().map(words) {
                run.push("--no-run".to_owned());
                assert!(
                    built.contains(&run) || run.contains(&"--doc".to_owned()),
                    "{run:?}"
                );
            }
        }
    }

    #[test]
    fn a_tier_is_run_by_its_name() {
        for &tier in Tier::value_variants() {
            assert_eq!(Tier::from_str(tier.name(), false), Ok(tier));
        }
    }
}
