use std::io;
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

/// Why a command of xtask did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Only the user can install what is missing.
    #[error("{0}")]
    SetupNeeded(String),

    #[error("still not installed after apt-get reported success: {}", packages.join(" "))]
    StillMissing { packages: Vec<&'static str> },

    #[error("cannot run `{command}`: {source}")]
    Spawn { command: String, source: io::Error },

    #[error("`{command}` failed: {status}")]
    Failed { command: String, status: ExitStatus },

    #[error("`{command}` failed ({status}): {output}")]
    FailedSaying {
        command: String,
        status: ExitStatus,
        output: String,
    },

    #[error("cannot make sense of what `{command}` prints")]
    Unreadable { command: String },

    #[error("`{command}` was stopped: its budget of {} s is used up", budget.as_secs())]
    OverBudget { command: String, budget: Duration },

    #[error("`{command}` left processes behind, now killed: {}", processes.join(", "))]
    LeftBehind {
        command: String,
        processes: Vec<String>,
    },

    #[error("tier `{tier}` ran no test: a run that tests nothing proves nothing")]
    NoTest { tier: &'static str },

    #[error("tier `{tier}` tests rdma-access or mcast-sa, which --without-verbs leaves out")]
    NothingToTest { tier: &'static str },

    #[error("failed: {}; the output above says what", tiers.join(", "))]
    TiersFailed { tiers: Vec<&'static str> },

    #[error("not built: {}; run `cargo build --workspace`", path.display())]
    NotBuilt { path: PathBuf },

    #[error("{operation}: {source}")]
    System {
        operation: &'static str,
        source: io::Error,
    },

    #[error("cannot {operation} {}: {source}", path.display())]
    File {
        operation: &'static str,
        path: PathBuf,
        source: io::Error,
    },

    #[error("`{command}` did not give what was expected: {output}")]
    Unexpected { command: String, output: String },

    /// The tests in it failed, or it did not run them.
    #[error("the virtual machine {0}")]
    VirtualMachine(String),

    #[error("stopped by signal {0}")]
    Interrupted(i32),
}

impl Error {
    /// Whether nothing else is to be tried: the user wants to stop, or has to install something first.
    pub fn ends_everything(&self) -> bool {
        matches!(self, Self::Interrupted(_) | Self::SetupNeeded(_))
    }

    /// 2: the user has to install something; 128 + n: ended by signal n; 1: all else.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::SetupNeeded(_) => ExitCode::from(2),
            Self::Interrupted(signal) => ExitCode::from(u8::try_from(128 + signal).unwrap_or(1)),
            _ => ExitCode::FAILURE,
        }
    }
}
