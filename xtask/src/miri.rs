//! Runs tests of the two crates with `unsafe` code under Miri, which finds undefined behaviour that tests miss.
//! Tests that Miri cannot run (unknown ways to open files, C libraries, the kernel's answers) are left out here
//! or marked `cfg_attr(miri, ignore)`, with the reason.

use std::time::Duration;

use crate::error::Error;
use crate::supervise::{self, Budget};
use crate::{heading, setup, trees};

/// Time limit with a cold build on two cores, several times the usual time on an idle machine.
const BUDGET: Duration = Duration::from_secs(3600);

/// Only nightly toolchains have Miri.
const TOOLCHAIN: &str = "+nightly";

/// One call of `cargo miri test`.
struct Run {
    what: &'static str,
    selection: &'static [&'static str],
    /// Prefixes of the names of tests that are left out, with the reasons.
    skipped: &'static [(&'static str, &'static str)],
}

const RUNS: [Run; 3] = [
    Run {
        what: "the SDK's own modules",
        selection: &["--package", "acm-prov-api", "--lib"],
        skipped: &[
            ("cache::engine", "no unsafe code"),
            ("cache::settings", "no unsafe code"),
            ("cache::sm_health", "no unsafe code"),
            ("cache::store", "no unsafe code, and thousands of cases"),
            ("lookups::", "no unsafe code, and thousands of cases"),
            ("sa::path_query", "no unsafe code, and thousands of cases"),
            (
                "text::",
                "no unsafe code; thousands of cases, devices, pipes and processes",
            ),
            (
                "door::check",
                "reads tables as bytes, which have no provenance",
            ),
        ],
    },
    Run {
        what: "providers in a core, and readers of the path table",
        selection: &[
            "--package",
            "acm-prov-api",
            "--test",
            "panics",
            "--test",
            "contexts",
            "--test",
            "ends",
            "--test",
            "cache_readers",
        ],
        skipped: &[("reopening_a_thousand_times", "takes hours")],
    },
    Run {
        what: "device access",
        selection: &["--package", "rdma-access", "--lib"],
        skipped: &[],
    },
];

/// Sets up and runs everything.
pub fn run() -> Result<(), Error> {
    setup::ensure()?;
    let budget = Budget::start(BUDGET);
    heading("Miri");
    supervise::run(&mut rustup(), budget)?;
    for Run {
        what,
        selection,
        skipped,
    } in RUNS
    {
        heading(&format!("Miri, {what}"));
        for (name, reason) in skipped {
            println!("left out: {name} ({reason})");
        }
        let skipped = skipped.iter().map(|(name, _)| *name);
        supervise::run(&mut command(selection, skipped), budget)?;
    }
    Ok(())
}

/// Installs missing components. Does not update an installed nightly toolchain.
fn rustup() -> std::process::Command {
    let toolchain = TOOLCHAIN.trim_start_matches('+');
    let mut version = std::process::Command::new("cargo");
    let is_there = trees::output(version.args([TOOLCHAIN, "--version"])).is_ok();
    let mut command = std::process::Command::new("rustup");
    if is_there {
        command.args([
            "component",
            "add",
            "--toolchain",
            toolchain,
            "miri",
            "rust-src",
        ]);
    } else {
        command.args(["toolchain", "install", toolchain, "--profile", "minimal"]);
        command.args(["--component", "miri,rust-src"]);
    }
    command
}

fn command<'a>(
    selection: &[&str],
    skipped: impl Iterator<Item = &'a str>,
) -> std::process::Command {
    // Not the cargo that runs xtask, which belongs to another toolchain.
    let mut command = std::process::Command::new("cargo");
    command.args([TOOLCHAIN, "miri", "test"]).args(selection);
    command.arg("--");
    for name in skipped {
        command.args(["--skip", name]);
    }
    for variable in ["CARGO", "RUSTC", "RUSTUP_TOOLCHAIN", "RUSTDOC"] {
        command.env_remove(variable);
    }
    // Tests use clocks and files. A core lives as long as the process and is never freed.
    command.env("PROPTEST_CASES", "4");
    command.env("MIRIFLAGS", "-Zmiri-disable-isolation -Zmiri-ignore-leaks");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_one_command_for_the_nightly_toolchain() {
        let [first, ..] = &RUNS;
        let skipped = first.skipped.iter().map(|(name, _)| *name);
        let shown = crate::shown(&command(first.selection, skipped));
        let start =
            "cargo +nightly miri test --package acm-prov-api --lib -- --skip cache::engine ";
        assert!(shown.starts_with(start), "{shown}");
    }
}
