//! The crate's one error: which operation failed, on what, and why.

use std::fmt;
use std::io;
use std::time::Duration;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An operation that failed, the inputs that it failed on, and the cause.
///
/// It reads `ibv_open_device(mlx5_0): Permission denied (os error 13): …what to do…`.
#[derive(Debug, thiserror::Error)]
#[error("{operation}({inputs}): {cause}")]
pub struct Error {
    operation: &'static str,
    inputs: String,
    // Shown in the text above, so not once more as its source.
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

    /// A failed call of a C library that set `errno`.
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

    /// The operation, by the name that its man page has.
    pub fn operation(&self) -> &'static str {
        self.operation
    }

    /// What it was given.
    pub fn inputs(&self) -> &str {
        &self.inputs
    }

    /// Why it failed.
    pub fn cause(&self) -> &Cause {
        &self.cause
    }

    pub(crate) fn into_cause(self) -> Cause {
        self.cause
    }

    /// The system's error number, if the cause has one.
    pub fn raw_os_error(&self) -> Option<i32> {
        self.cause.raw_os_error()
    }
}

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// A library or the kernel answered with an error number.
    #[error("{source}{}", Aside(likely))]
    Io {
        /// The error number.
        source: io::Error,
        /// What it most likely means here and what to do; may be empty.
        likely: String,
    },

    /// The kernel does not offer it, or in a version that does not fit.
    #[error("{0}")]
    NotSupported(String),

    /// There is no device that would do.
    #[error("there is no {wanted}; devices here: {}", Listed(present))]
    NoDevice {
        /// What was looked for.
        wanted: String,
        /// The devices that there are.
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

    /// More than one device fits.
    #[error("{} devices fit, {}; name one", fitting.len(), fitting.join(", "))]
    Ambiguous {
        /// The devices that fit.
        fitting: Vec<String>,
    },

    /// An argument that cannot be.
    #[error("{0}")]
    Invalid(String),

    /// No room is left, for now.
    #[error("{0}")]
    Full(String),

    /// Nobody answered in time.
    #[error("no answer within {} ms{}", limit.as_millis(), Aside(likely))]
    TimedOut {
        /// How long it was waited for.
        limit: Duration,
        /// What it most likely means here; may be empty.
        likely: String,
    },

    /// Memory is exhausted.
    #[error("out of memory")]
    OutOfMemory,

    /// The context is not one of the libmana that was asked.
    #[error("the device is driven by {driver}, and not by the libmana that was asked, {library}")]
    NotMana {
        /// The file of the driver library.
        driver: String,
        /// The file of the libmana that was asked.
        library: String,
    },

    /// The device's driver library does not offer the operation.
    #[error("the device's driver library does not offer it")]
    NotOffered,

    /// A native library cannot be loaded.
    #[error("{library} cannot be loaded ({reason}); {remedy}")]
    NoLibrary {
        /// Its file name, or the path that was given.
        library: String,
        /// What the dynamic loader says.
        reason: String,
        /// What to do.
        remedy: &'static str,
    },

    /// A native library lacks a function.
    #[error("{library} has no {symbol}: it is too old, or another library; {remedy}")]
    NoSymbol {
        /// Its file name, or the path that was given.
        library: String,
        /// The function.
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

/// Text after a colon, or nothing.
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
