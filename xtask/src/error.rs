use std::io;
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

/// Error from a command of xtask.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The user must install what is missing.
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

    #[error("cannot parse the output of `{command}`")]
    Unreadable { command: String },

    #[error("stopped `{command}`: it exceeded its budget of {} s", budget.as_secs())]
    OverBudget { command: String, budget: Duration },

    #[error("`{command}` left processes behind, which were killed: {}", processes.join(", "))]
    LeftBehind {
        command: String,
        processes: Vec<String>,
    },

    #[error("tier `{tier}` ran no test")]
    NoTest { tier: &'static str },

    #[error("tier `{tier}` needs rdma-access or mcast-sa, which --without-verbs leaves out")]
    NothingToTest { tier: &'static str },

    #[error("failed: {}; see the output above", tiers.join(", "))]
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

    #[error("unexpected output of `{command}`: {output}")]
    Unexpected { command: String, output: String },

    /// The tests in it failed, or did not run.
    #[error("the virtual machine {0}")]
    VirtualMachine(String),

    #[error("stopped by signal {0}")]
    Interrupted(i32),
}

impl Error {
    /// Returns whether to stop the whole run: the user wants to stop, or must install something first.
    pub fn ends_everything(&self) -> bool {
        matches!(self, Self::Interrupted(_) | Self::SetupNeeded(_))
    }

    /// Exit status: 2 if the user must install something, 128 + n if ended by signal n, else 1.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::SetupNeeded(_) => ExitCode::from(2),
            Self::Interrupted(signal) => ExitCode::from(u8::try_from(128 + signal).unwrap_or(1)),
            _ => ExitCode::FAILURE,
        }
    }
}
