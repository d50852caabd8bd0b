//! The errors of this crate, and whether they are the provider's.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation of this crate failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Programs or libraries of the distribution are not installed.
    #[error("not installed: {}; as root: apt-get install {}", missing.join(", "), packages.join(" "))]
    MissingPackages {
        /// The missing files.
        missing: Vec<String>,
        /// The Debian packages that contain them.
        packages: Vec<&'static str>,
    },

    /// A part of this workspace is not built.
    #[error("{} is missing; build it with: {command}", path.display())]
    NotBuilt {
        /// Its expected path.
        path: PathBuf,
        /// The command that builds it.
        command: &'static str,
    },

    /// The input is invalid or cannot be fulfilled.
    #[error("{0}")]
    Input(String),

    /// ibacm refuses the library as a provider.
    #[error("ibacm refuses {}: it logs \"{line}\"", library.display())]
    Refused {
        /// The library's path.
        library: PathBuf,
        /// The daemon's own log line.
        line: String,
    },

    /// The dynamic loader does not find libraries that the provider needs.
    #[error(
        "{} needs {}, which is in neither the loader's paths nor those that the library names",
        library.display(), missing.join(", ")
    )]
    MissingLibraries {
        /// The library's path.
        library: PathBuf,
        /// The names of the missing libraries.
        missing: Vec<String>,
    },

    /// The daemon with the provider failed.
    #[error(transparent)]
    Daemon(Box<Error>),

    /// ibacm cannot use its port.
    #[error("ibacm cannot use the port of {host}: it logs \"{line}\"")]
    Port {
        /// The node in the fabric.
        host: String,
        /// The daemon's own log line.
        line: String,
    },

    /// A program's environment could not be set up.
    #[error("{name} could not be started: {reason}")]
    NotStarted {
        /// The program.
        name: String,
        /// Why.
        reason: String,
    },

    /// The daemon is running but has no endpoint with the provider.
    #[error(
        "ibacm on {host} has no endpoint of the provider {provider}; its log says:\n{complaints}"
    )]
    NoEndpoint {
        /// The node in the fabric.
        host: String,
        /// The provider's name.
        provider: String,
        /// The daemon's log lines about errors.
        complaints: String,
    },

    /// A process ended unexpectedly.
    #[error("{name} ended ({status}); the end of its log:\n{tail}")]
    Ended {
        /// The process.
        name: String,
        /// Its exit status.
        status: String,
        /// The last lines of its output.
        tail: String,
    },

    /// A condition did not come true in time.
    #[error("timed out after {} s waiting for {what}", limit.as_secs_f32())]
    Timeout {
        /// The condition.
        what: String,
        /// The time limit.
        limit: Duration,
    },

    /// The other side violates its protocol.
    #[error("{peer}: {problem}")]
    Protocol {
        /// The other side.
        peer: String,
        /// The violation.
        problem: String,
    },

    /// The operating system refused an operation.
    #[error("{operation}: {source}")]
    Io {
        /// The operation and its inputs.
        operation: String,
        /// The reason.
        source: io::Error,
    },

    /// SIGINT, SIGTERM or SIGHUP stopped the run.
    #[error("stopped by signal {0}")]
    Interrupted(i32),
}

impl Error {
    /// Whether logs are useless: the input is wrong, something is missing, or the user stopped the run.
    pub fn needs_no_logs(&self) -> bool {
        matches!(
            self,
            Self::Interrupted(_)
                | Self::MissingPackages { .. }
                | Self::NotBuilt { .. }
                | Self::Input(_)
                | Self::NotStarted { .. }
                | Self::Refused { .. }
                | Self::MissingLibraries { .. }
                | Self::Port { .. }
        )
    }

    /// Whether the error is the provider's. All others are the harness's, even a crash of opensm.
    pub fn is_the_providers(&self) -> bool {
        matches!(
            self,
            Self::Refused { .. }
                | Self::NoEndpoint { .. }
                | Self::MissingLibraries { .. }
                | Self::Daemon(_)
        )
    }

    /// Marks the error as the provider's, except for signals and errors of the file system.
    pub(crate) fn of_the_daemon(self) -> Self {
        match self {
            Self::Ended { .. } | Self::Timeout { .. } | Self::Protocol { .. } => {
                Self::Daemon(Box::new(self))
            }
            other => other,
        }
    }

    pub(crate) fn protocol(peer: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Protocol {
            peer: peer.into(),
            problem: problem.into(),
        }
    }
}

/// Adds the operation to an [`io::Error`].
pub(crate) trait Context<T> {
    fn context(self, operation: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<io::Error>> Context<T> for Result<T, E> {
    fn context(self, operation: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| Error::Io {
            operation: operation(),
            source: source.into(),
        })
    }
}
