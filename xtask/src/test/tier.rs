//! The tiers: their requirements, commands and time limits.

use std::fs;
use std::process::Command;
use std::time::Duration;

use clap::ValueEnum;

use super::engine::Engine;
use super::selection::Selection;
use crate::error::Error;
use crate::{cargo, setup, trees};

/// Integration tests, by target, that need programs, libraries or headers of ibacm, opensm, ibsim, libibumad or
/// librdmacm, namespaces, or an unpacked release of Debian. All others need only what the build needs.
const DAEMON_TESTS: [&str; 19] = [
    "abi",
    "addresses",
    "bench",
    "c_providers",
    "commands",
    "counts",
    "daemon",
    "fabric",
    "faults",
    "fuzz",
    "hanging",
    "header",
    "layout",
    "mads",
    "real_clients",
    "runner",
    "stock",
    "storm",
    "sysfs",
];

/// Files that tests load or start without linking them, in the operator's build.
const PRODUCTS: [&str; 4] = [
    "provider-cache",
    "provider-default",
    "loader-test",
    "fabric-sim",
];

/// The provider whose instructions are counted.
const COUNTED: &str = "provider-cache";

/// Path of the operator's `loader-test` in cargo's target folder; the tests' build replaces the other one.
const OPERATORS_PROGRAM: &str = "tests/operators/loader-test";

/// Tells the tests that [`PRODUCTS`] are up to date; otherwise each test would build them.
const BUILT: (&str, &str) = ("ACM_TESTS_BUILT", "yes");

#[derive(Clone, Copy, PartialEq, Debug, ValueEnum)]
pub enum Tier {
    /// Everything, so that libraries and programs are in one folder
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
    pub fn name(self) -> &'static str {
        match self {
            Self::Build => "build",
            Self::Unit => "unit",
            Self::Suite => "suite",
            Self::Daemon => "daemon",
            Self::Vm => "vm",
        }
    }

    /// Returns the time limit for a cold run on two cores, several times the usual time on an idle machine.
    pub fn budget(self) -> Duration {
        Duration::from_secs(match self {
            Self::Build => 600,
            Self::Unit => 240,
            Self::Suite => 480,
            Self::Daemon => 900,
            Self::Vm => 420,
        })
    }

    /// Returns whether to run it: `only` names it, or is `None`.
    pub fn is_wanted(self, only: Option<Self>) -> bool {
        !self.runs_tests() || only.is_none_or(|only| only == self)
    }

    /// Returns whether it works without rdma-access and mcast-sa.
    pub fn works_without_verbs(self) -> bool {
        matches!(self, Self::Build | Self::Unit | Self::Suite)
    }

    /// Installs its requirements, and only those, so that earlier tiers prove that they do without.
    pub fn set_up(self, selection: &Selection) -> Result<(), Error> {
        match self {
            Self::Build => {
                // Reports that earlier tests left for inspection.
                let _ = fs::remove_dir_all(trees::target()?.join("tmp/runner"));
                setup::ensure_for_build(selection.has("rdma-access"))
            }
            Self::Unit | Self::Suite => Ok(()),
            Self::Daemon => {
                setup::ensure_for_daemon()?;
                trees::ensure()
            }
            Self::Vm => {
                setup::ensure()?;
                trees::ensure()
            }
        }
    }

    /// Returns its commands.
    ///
    /// # Errors
    /// If the path of this program cannot be found.
    pub fn commands(self, selection: &Selection, engine: Engine) -> Result<Vec<Command>, Error> {
        let run = |arguments: &[&str]| {
            let mut command = engine.command();
            selection.add_to(&mut command);
            command.args(arguments).env(BUILT.0, BUILT.1);
            command
        };
        Ok(match self {
            Self::Build => {
                let mut products = cargo(&["build"]);
                let wanted = PRODUCTS.iter().filter(|package| selection.has(package));
                products.args(wanted.flat_map(|package| ["--package", package]));
                let target = trees::target()?;
                let mut keep = Command::new("install");
                keep.arg("-D").arg(target.join("debug/loader-test"));
                keep.arg(target.join(OPERATORS_PROGRAM));
                // With the features and packages of the tests, or cargo would compile again for them.
                let mut tests = cargo(&["test", "--no-run"]);
                selection.add_to(&mut tests);
                let mut commands = vec![products, keep, tests];
                // The library whose instructions the test `counts` counts.
                if selection.has(COUNTED) {
                    commands.push(cargo(&["build", "--release", "--package", COUNTED]));
                }
                commands
            }
            Self::Unit => {
                // nextest does not run documentation tests.
                let mut examples = cargo(&["test", "--no-fail-fast", "--doc"]);
                selection.add_to(&mut examples);
                vec![run(&["--lib", "--bins"]), examples]
            }
            Self::Suite | Self::Daemon => {
                let wanted = |name: &&String| {
                    DAEMON_TESTS.contains(&name.as_str()) == (self == Self::Daemon)
                };
                let names = selection.integration().iter().filter(wanted);
                let arguments: Vec<&str> = names.flat_map(|name| ["--test", name]).collect();
                // Without a name cargo would run all tests.
                let mut commands = match arguments.is_empty() {
                    true => vec![],
                    false => vec![run(&arguments)],
                };
                // Ignored unit tests that compare with the same headers and releases.
                if self == Self::Daemon {
                    let mut unit = run(&["--lib"]);
                    unit.args(engine.only_ignored());
                    commands.push(unit);
                }
                commands
            }
            // No command: its parts run in this process.
            Self::Vm => vec![],
        })
    }

    pub fn runs_tests(self) -> bool {
        self != Self::Build
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(tier: Tier, engine: Engine) -> Vec<String> {
        let selection = Selection::of(false).unwrap();
        let commands = tier.commands(&selection, engine).unwrap();
        commands.iter().map(crate::shown).collect()
    }

    #[test]
    fn each_integration_test_runs_in_one_tier() {
        let selection = Selection::of(false).unwrap();
        let [suite, daemon] =
            [Tier::Suite, Tier::Daemon].map(|tier| lines(tier, Engine::CargoTest).remove(0));
        let runs = |line: &str, name: &str| {
            line.split_once(&format!("--test {name}"))
                .is_some_and(|(_, rest)| rest.is_empty() || rest.starts_with(' '))
        };
        for name in selection.integration() {
            assert_ne!(runs(&suite, name), runs(&daemon, name), "{name}");
        }
        for name in DAEMON_TESTS {
            assert!(runs(&daemon, name), "{name}: {daemon}");
        }
    }

    #[test]
    fn nextest_takes_the_place_of_cargo_but_for_documentation() {
        let unit = lines(Tier::Unit, Engine::Nextest);
        assert_eq!(
            unit[0],
            "cargo nextest run --no-fail-fast --workspace --all-features --lib --bins"
        );
        assert_eq!(
            unit[1],
            "cargo test --no-fail-fast --doc --workspace --all-features"
        );
    }

    #[test]
    fn a_tier_is_run_by_its_name_after_the_build() {
        for &tier in Tier::value_variants() {
            assert_eq!(Tier::from_str(tier.name(), false), Ok(tier));
            assert!(tier.is_wanted(None) && tier.is_wanted(Some(tier)));
        }
        assert!(Tier::Build.is_wanted(Some(Tier::Unit)));
        assert!(!Tier::Suite.is_wanted(Some(Tier::Unit)));
    }
}
