//! The program that runs the tests.

use std::process::{Command, Stdio};

use crate::cargo;
use crate::supervise::Stream;

/// cargo-nextest if it is installed, else `cargo test`. cargo-nextest runs each test in its own process, and
/// several at a time; `.config/nextest.toml` sets how many. xtask does not install it, because building it
/// takes longer than the tests.
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

    /// Returns the stream with the results.
    pub fn stream(self) -> Stream {
        match self {
            Self::Nextest => Stream::Errors,
            Self::CargoTest => Stream::Output,
        }
    }

    /// Returns the command that runs all tests, also after a failure.
    pub fn command(self) -> Command {
        match self {
            Self::Nextest => cargo(&["nextest", "run", "--no-fail-fast"]),
            Self::CargoTest => cargo(&["test", "--no-fail-fast"]),
        }
    }

    /// Returns the arguments that run only the ignored tests.
    pub fn only_ignored(self) -> [&'static str; 2] {
        match self {
            Self::Nextest => ["--run-ignored", "only"],
            Self::CargoTest => ["--", "--ignored"],
        }
    }

    /// Returns whether a command has the arguments of [`Self::only_ignored`].
    pub fn runs_only_ignored(self, command: &Command) -> bool {
        let wanted = self.only_ignored();
        let arguments: Vec<_> = command.get_args().collect();
        arguments.windows(wanted.len()).any(|some| some == wanted)
    }
}
