//! What runs the test programs.

use std::process::{Command, Stdio};

use crate::cargo;
use crate::supervise::Stream;

/// cargo-nextest where it is installed: it runs each test in a process of its own, and several at a time, also those that
/// share one thing within a process. `.config/nextest.toml` says how many. Else `cargo test`. It is never installed from
/// here, since its build takes longer than the tests.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Engine {
    Nextest,
    CargoTest,
}

impl Engine {
    pub fn find() -> Self {
        let found = cargo(&["nextest", "--version"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        match found {
            Ok(status) if status.success() => Self::Nextest,
            _ => Self::CargoTest,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Nextest => "cargo-nextest",
            Self::CargoTest => "cargo test",
        }
    }

    /// Where it says what became of the tests.
    pub fn stream(self) -> Stream {
        match self {
            Self::Nextest => Stream::Errors,
            Self::CargoTest => Stream::Output,
        }
    }

    /// Runs tests; all of them, whatever fails.
    pub fn command(self) -> Command {
        match self {
            Self::Nextest => cargo(&["nextest", "run", "--no-fail-fast"]),
            Self::CargoTest => cargo(&["test", "--no-fail-fast"]),
        }
    }

    /// Runs the tests of this kind that are ignored otherwise, alone.
    pub fn only_ignored(self) -> [&'static str; 2] {
        match self {
            Self::Nextest => ["--run-ignored", "only"],
            Self::CargoTest => ["--", "--ignored"],
        }
    }

    /// Whether a command was made with [`Self::only_ignored`].
    pub fn runs_only_ignored(self, command: &Command) -> bool {
        let wanted = self.only_ignored();
        let arguments: Vec<_> = command.get_args().collect();
        arguments.windows(wanted.len()).any(|some| some == wanted)
    }
}
