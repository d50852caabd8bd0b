use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::ValueEnum;

use crate::error::Error;
use crate::supervise::{self, Budget};
use crate::{cargo, heading, setup, trees, vm};

/// Integration tests, by the names of their targets, that start programs of the distribution: ibacm, opensm, ibsim. All
/// others need none.
const DAEMON_TESTS: [&str; 5] = ["c_providers", "daemon", "fabric", "faults", "real_clients"];

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
    /// Integration tests that need no program of the distribution
    Suite,
    /// Integration tests with the distribution's ibacm, OpenSM and ibsim
    Daemon,
    /// Tests of a kernel with RDMA devices, in a virtual machine
    Vm,
}

impl Tier {
    fn name(self) -> &'static str {
        match self {
            Self::Build => "build",
            Self::Unit => "unit",
            Self::Suite => "suite",
            Self::Daemon => "daemon",
            Self::Vm => "vm",
        }
    }

    /// What the tier may take on two cores from nothing; several times what it takes on an idle machine.
    fn budget(self) -> Duration {
        Duration::from_secs(match self {
            Self::Build => 600,
            Self::Unit => 240,
            Self::Suite => 480,
            Self::Daemon => 1200,
            Self::Vm => 420,
        })
    }

    /// What the tier runs; `integration` are the names of all integration tests of the workspace.
    fn commands(self, integration: &BTreeSet<String>) -> Vec<Command> {
        match self {
            // With the features and packages of the tests, or cargo would compile anew for them.
            Self::Build => vec![
                cargo(&["build", "--workspace", "--all-targets"]),
                cargo_test(&["--no-run"], []),
            ],
            Self::Unit => vec![
                cargo_test(&["--lib", "--bins"], []),
                cargo_test(&["--doc"], []),
            ],
            Self::Suite | Self::Daemon => {
                let wanted = |name: &&String| {
                    DAEMON_TESTS.contains(&name.as_str()) == (self == Self::Daemon)
                };
                let names: Vec<&String> = integration.iter().filter(wanted).collect();
                // Without a name cargo would run every test there is.
                if names.is_empty() {
                    vec![]
                } else {
                    vec![cargo_test(&[], names)]
                }
            }
            // No command: it has parts that run here.
            Self::Vm => vec![],
        }
    }

    fn runs_tests(self) -> bool {
        self != Self::Build
    }
}

/// Sets up, builds, and runs the tiers one after the other; the first failure ends the run.
pub fn run(options: &Options) -> Result<(), Error> {
    setup::ensure()?;
    trees::ensure()?;
    let integration = integration_tests()?;
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
        outcome = run_tier(tier, &integration, &mut tally);
        lines.push(summary(tier, started.elapsed(), tally, outcome.is_ok()));
        if outcome.is_err() {
            break;
        }
    }
    heading("tiers");
    println!("{}", lines.join("\n"));
    outcome
}

fn run_tier(tier: Tier, integration: &BTreeSet<String>, tally: &mut Tally) -> Result<(), Error> {
    let budget = Budget::start(tier.budget());
    for mut command in tier.commands(integration) {
        println!("$ {}", crate::shown(&command));
        if tier.runs_tests() {
            supervise::run_clean_reading(&mut command, budget, |line| tally.read(line))?;
        } else {
            supervise::run(&mut command, budget)?;
        }
    }
    if tier == Tier::Vm {
        vm::run(budget, |line| tally.read(line))?;
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

fn cargo_test<'a>(
    arguments: &[&str],
    integration: impl IntoIterator<Item = &'a String>,
) -> Command {
    let mut command = cargo(&["test", "--workspace", "--all-features"]);
    command.args(arguments);
    for name in integration {
        command.args(["--test", name]);
    }
    command
}

/// Names of all integration tests of the workspace, as cargo knows them.
fn integration_tests() -> Result<BTreeSet<String>, Error> {
    let mut command = cargo(&["metadata", "--no-deps", "--format-version", "1"]);
    let name = crate::shown(&command);
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|source| Error::Spawn {
            command: name.clone(),
            source,
        })?;
    if !output.status.success() {
        return Err(Error::Failed {
            command: name,
            status: output.status,
        });
    }
    test_targets(&output.stdout).ok_or(Error::Unreadable { command: name })
}

/// The test targets in what `cargo metadata` prints.
fn test_targets(metadata: &[u8]) -> Option<BTreeSet<String>> {
    let metadata: serde_json::Value = serde_json::from_slice(metadata).ok()?;
    let mut names = BTreeSet::new();
    for package in metadata["packages"].as_array()? {
        for target in package["targets"].as_array()? {
            if target["kind"].as_array()?.iter().any(|kind| kind == "test") {
                names.insert(target["name"].as_str()?.to_owned());
            }
        }
    }
    Some(names)
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
    fn each_integration_test_runs_in_one_tier() {
        let all = ["layout", "daemon", "fabric", "misuse"]
            .map(str::to_owned)
            .into();
        let line = |tier: Tier| crate::shown(&tier.commands(&all)[0]);
        assert!(line(Tier::Suite).ends_with("--all-features --test layout --test misuse"));
        assert!(line(Tier::Daemon).ends_with("--all-features --test daemon --test fabric"));
        assert!(Tier::Suite.commands(&BTreeSet::new()).is_empty());
    }

    #[test]
    fn the_workspace_has_integration_tests_for_both_tiers() {
        let names = integration_tests().unwrap();
        for name in DAEMON_TESTS.into_iter().chain(["layout"]) {
            assert!(names.contains(name), "{name} is not among {names:?}");
        }
    }

    #[test]
    fn test_targets_are_told_from_others() {
        let metadata = br#"{"packages":[{"targets":[
            {"kind":["test"],"name":"a"},{"kind":["bin"],"name":"b"},{"kind":["test"],"name":"c"}]}]}"#;
        assert_eq!(
            test_targets(metadata),
            Some(["a".to_owned(), "c".to_owned()].into())
        );
        for bad in ["", "{}", r#"{"packages":[{}]}"#] {
            assert_eq!(test_targets(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn a_tier_is_run_by_its_name() {
        for &tier in Tier::value_variants() {
            assert_eq!(Tier::from_str(tier.name(), false), Ok(tier));
        }
    }
}
