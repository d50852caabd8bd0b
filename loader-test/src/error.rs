//! What can go wrong, and whether it says something about the provider.

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
        /// What was looked for.
        missing: Vec<String>,
        /// The Debian packages that bring it.
        packages: Vec<&'static str>,
    },

    /// A part of this workspace is not built.
    #[error("{} is not there; build it with: {command}", path.display())]
    NotBuilt {
        /// Where it was looked for.
        path: PathBuf,
        /// The command that makes it.
        command: &'static str,
    },

    /// What the caller asked for cannot be had.
    #[error("{0}")]
    Input(String),

    /// ibacm does not take the library as a provider.
    #[error("ibacm refuses {}: it logs \"{line}\"", library.display())]
    Refused {
        /// The library as it was given.
        library: PathBuf,
        /// The daemon's own log line.
        line: String,
    },

    /// The loader does not find libraries that the provider needs.
    #[error(
        "{} needs {}: neither the loader's paths nor those that the library names have it",
        library.display(), missing.join(", ")
    )]
    MissingLibraries {
        /// The library as it was given.
        library: PathBuf,
        /// The names of what it needs.
        missing: Vec<String>,
    },

    /// The daemon with the provider did not do what it should.
    #[error(transparent)]
    Daemon(Box<Error>),

    /// ibacm cannot use the port that it was given.
    #[error("ibacm cannot use the port of {host}: it logs \"{line}\"")]
    Port {
        /// The node in the fabric.
        host: String,
        /// The daemon's own log line.
        line: String,
    },

    /// A program could not be given its surroundings.
    #[error("{name} could not be started: {reason}")]
    NotStarted {
        /// Which program.
        name: String,
        /// Why.
        reason: String,
    },

    /// The daemon runs and serves no endpoint with the provider.
    #[error(
        "ibacm on {host} has no endpoint of the provider {provider}; its log says:\n{complaints}"
    )]
    NoEndpoint {
        /// The node in the fabric.
        host: String,
        /// The provider's name.
        provider: String,
        /// Lines of the daemon's log that speak of an error.
        complaints: String,
    },

    /// A process ended that should be running.
    #[error("{name} ended ({status}); the end of its log:\n{tail}")]
    Ended {
        /// Which process.
        name: String,
        /// Its exit status.
        status: String,
        /// The last lines of its output.
        tail: String,
    },

    /// A condition did not come true in time.
    #[error("waited {} s in vain for {what}", limit.as_secs_f32())]
    Timeout {
        /// What was waited for.
        what: String,
        /// How long.
        limit: Duration,
    },

    /// The other side does not keep to its protocol.
    #[error("{peer}: {problem}")]
    Protocol {
        /// Who sent it.
        peer: String,
        /// What is wrong with it.
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

    /// SIGINT, SIGTERM or SIGHUP came.
    #[error("stopped by signal {0}")]
    Interrupted(i32),
}

impl Error {
    /// Whether nobody wants logs: the input is wrong, something is missing, or the user has stopped it.
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

    /// Whether it says something about the provider. All else is trouble of the harness's own, also an opensm that crashes.
    pub fn is_the_providers(&self) -> bool {
        matches!(
            self,
            Self::Refused { .. }
                | Self::NoEndpoint { .. }
                | Self::MissingLibraries { .. }
                | Self::Daemon(_)
        )
    }

    /// The same error as one that says something about the provider, if it does: signals and the file system do not.
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

/// Names the operation that an [`io::Error`] belongs to.
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
