//! The error type of the crate: which operation failed, with which inputs, and why.

use std::fmt;
use std::io;
use std::time::Duration;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failed operation, with its inputs and the cause.
///
/// Prints as `ibv_open_device(mlx5_0): Permission denied (os error 13): …what to do…`.
#[derive(Debug, thiserror::Error)]
#[error("{operation}({inputs}): {cause}")]
pub struct Error {
    operation: &'static str,
    inputs: String,
    // Part of the text above, so it is not also the source.
    cause: Cause,
}

impl Error {
    pub(crate) fn new(operation: &'static str, inputs: impl fmt::Display, cause: Cause) -> Self {
        let inputs = inputs.to_string();
        Self {
            operation,
            inputs,
            cause,
        }
    }

    /// Returns the error for a C function that failed and set `errno`.
    pub(crate) fn errno(
        operation: &'static str,
        inputs: impl fmt::Display,
        errno: i32,
        likely: impl Into<String>,
    ) -> Self {
        let source = io::Error::from_raw_os_error(errno);
        Self::new(
            operation,
            inputs,
            Cause::Io {
                source,
                likely: likely.into(),
            },
        )
    }

    /// Returns the operation, by the name of its man page.
    pub fn operation(&self) -> &'static str {
        self.operation
    }

    /// Returns the operation's inputs as text.
    pub fn inputs(&self) -> &str {
        &self.inputs
    }

    /// Returns the cause.
    pub fn cause(&self) -> &Cause {
        &self.cause
    }

    pub(crate) fn into_cause(self) -> Cause {
        self.cause
    }

    /// Returns the system's error number, if the cause has one.
    pub fn raw_os_error(&self) -> Option<i32> {
        self.cause.raw_os_error()
    }
}

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// A library or the kernel returned an error number.
    #[error("{source}{}", Aside(likely))]
    Io {
        /// The error number.
        source: io::Error,
        /// Likely reason and remedy; may be empty.
        likely: String,
    },

    /// The kernel lacks the feature, or offers an incompatible version of it.
    #[error("{0}")]
    NotSupported(String),

    /// No device matches.
    #[error("no {wanted}; devices here: {}", Listed(present))]
    NoDevice {
        /// The device or kind of device that was requested.
        wanted: String,
        /// The devices that exist.
        present: Vec<String>,
    },

    /// The kernel has the device, but libibverbs or libibumad cannot use it.
    #[error("{why}")]
    Unusable {
        /// Its name.
        device: String,
        /// What is missing.
        why: String,
    },

    /// More than one device matches.
    #[error("{} devices match, {}; name one", fitting.len(), fitting.join(", "))]
    Ambiguous {
        /// The devices that match.
        fitting: Vec<String>,
    },

    /// Invalid argument.
    #[error("{0}")]
    Invalid(String),

    /// A queue or table is full at the moment.
    #[error("{0}")]
    Full(String),

    /// No answer in time.
    #[error("no answer within {} ms{}", limit.as_millis(), Aside(likely))]
    TimedOut {
        /// How long the operation waited.
        limit: Duration,
        /// Likely reason; may be empty.
        likely: String,
    },

    /// Memory is exhausted.
    #[error("out of memory")]
    OutOfMemory,

    /// The context's driver is not the libmana in use.
    #[error("the device's driver is {driver}, not the loaded libmana {library}")]
    NotMana {
        /// The file of the driver library.
        driver: String,
        /// The file of the loaded libmana.
        library: String,
    },

    /// The device's driver library does not support the operation.
    #[error("the device's driver library does not support this operation")]
    NotOffered,

    /// A native library failed to load.
    #[error("cannot load {library} ({reason}); {remedy}")]
    NoLibrary {
        /// Its file name, or the path given by the caller.
        library: String,
        /// The dynamic loader's message.
        reason: String,
        /// What to do.
        remedy: &'static str,
    },

    /// A native library lacks a function.
    #[error(
        "{library} has no function {symbol}: it is too old, or not the expected library; {remedy}"
    )]
    NoSymbol {
        /// Its file name, or the path given by the caller.
        library: String,
        /// The missing function.
        symbol: &'static str,
        /// What to do.
        remedy: &'static str,
    },
}

impl Cause {
    pub(crate) fn raw_os_error(&self) -> Option<i32> {
        match self {
            Self::Io { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }
}

/// Prints a text after a colon, or nothing if it is empty.
struct Aside<'a>(&'a str);

impl fmt::Display for Aside<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            "" => Ok(()),
            text => write!(f, ": {text}"),
        }
    }
}

struct Listed<'a>(&'a [String]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [] => f.write_str("none"),
            names => f.write_str(&names.join(", ")),
        }
    }
}
