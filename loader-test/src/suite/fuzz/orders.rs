//! The files between the command and the process that plays sequences.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::stand_in::ledger::{Harmed, ViolationKind};
use crate::stand_in::sequence::Action;
use crate::suite::Status;

/// The file with the orders, in the folder of the run.
pub(super) const ORDERS: &str = "orders.json";
/// The file with the results.
pub(super) const RESULTS: &str = "results.json";

/// The orders.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Orders {
    /// Lines of ibacm_opts.cfg that the provider needs.
    pub options: Vec<String>,
    /// The folder for the results.
    pub results: PathBuf,
    /// Number of concurrent sequences.
    pub jobs: usize,
    /// Time limit of the run.
    pub time: Duration,
    /// The task.
    pub task: Task,
}

/// Where the sequences come from.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Task {
    /// Sequences of consecutive seeds from the first one.
    Search { first: u64, runs: Option<u64> },
    /// One sequence, until it fails.
    Replay {
        sequence: Sequence,
        runs: Option<u64>,
    },
}

/// A sequence, and how it is played.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Sequence {
    /// The seed of the sequence before any shrinking.
    pub seed: u64,
    /// Whether it is played repeatedly in one process, to find leaks.
    pub repeated: bool,
    /// Seeds of sequences played before it in the same process, without which it did not fail.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<u64>,
    /// The actions.
    pub actions: Vec<Action>,
}

impl Sequence {
    /// Returns the sequence without the ones before it.
    pub(super) fn alone(&self) -> Self {
        Self {
            after: Vec::new(),
            ..self.clone()
        }
    }
}

/// The cause of a failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Cause {
    /// The process ended by a signal.
    Signal(String),
    /// The process ended by itself.
    Exit(i32),
    /// The process hung.
    Hangs,
    /// A violation of the contract.
    Violation(ViolationKind),
    /// A leak.
    Leak,
    /// The harness panicked, such as at a NULL slot.
    Panic,
}

impl Cause {
    /// Returns the corresponding status of a check.
    pub(super) fn status(&self) -> Status {
        match self {
            Self::Signal(_) | Self::Exit(_) => Status::Crashed,
            Self::Hangs => Status::TimedOut,
            Self::Violation(_) | Self::Leak | Self::Panic => Status::Failed,
        }
    }

    /// Whether two failures have the same cause. After memory corruption the end of the process is random.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        use Cause::{Exit, Signal};
        matches!((self, other), (Signal(_) | Exit(_), Signal(_) | Exit(_))) || self == other
    }

    /// Whether one occurrence counts, since a busy machine cannot cause it.
    pub(super) fn counts_at_once(&self) -> bool {
        use ViolationKind as Kind;
        match self {
            Self::Signal(_) | Self::Exit(_) | Self::Panic => true,
            Self::Hangs | Self::Leak => false,
            Self::Violation(kind) => matches!(
                kind,
                Kind::AnsweredTwice
                    | Kind::ForeignId
                    | Kind::ChangedTid
                    | Kind::WrongFunction
                    | Kind::WrongLength
                    | Kind::MadFreedTwice
                    | Kind::MadSentTwice
                    | Kind::MadFreedInFlight
                    | Kind::MadForClosedEndpoint
                    | Kind::MadUsedAfterFree
                    | Kind::BadTid
                    | Kind::CaughtPanic
            ),
        }
    }
}

/// A sequence's failure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Failure {
    /// The cause.
    pub cause: Cause,
    /// The expected and the actual behaviour.
    pub message: String,
    /// Whom it affects.
    pub harmed: Harmed,
    /// The end of the provider's log.
    pub log: Vec<String>,
    /// The end of the provider's output.
    pub output: String,
}

/// A failure, and its shrunk sequence.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Found {
    /// The sequence that failed.
    pub original: Sequence,
    /// The shortest sequence that still fails.
    pub shortest: Sequence,
    /// The failure of the shortest one.
    pub failure: Failure,
    /// Time from the start to the first failure.
    pub found_after: Duration,
    /// Time from the start to the end of shrinking.
    pub shrunk_after: Duration,
    /// Whether shrinking finished in time.
    pub is_shrunk: bool,
    /// How often the shortest one failed, and out of how many runs.
    pub fails: (u64, u64),
}

/// The results.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Results {
    /// Number of sequences played, without those for shrinking.
    pub sequences: u64,
    /// Their duration.
    pub searched: Duration,
    /// Why each sequence must load the library again, if so.
    pub loads_anew: Option<String>,
    /// Seeds whose failures a busy machine may have caused, and which did not recur.
    pub not_again: Vec<(u64, Failure)>,
    /// The failure.
    pub found: Option<Found>,
}

/// A file that holds a sequence, for `--replay`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ReplayFile {
    /// Version of this file's layout.
    pub version: u32,
    /// The sequence.
    pub sequence: Sequence,
    /// The lines of ibacm_opts.cfg.
    pub options: Vec<String>,
    /// The failure as text, for the reader.
    pub failure: String,
}

/// The layout that this program writes.
pub(super) const REPLAY_VERSION: u32 = 1;

impl ReplayFile {
    /// Reads a file.
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        let file: Self = read(path)?;
        if file.version != REPLAY_VERSION {
            return Err(io::Error::other(format!(
                "{}: sequence file of version {}, but this program reads version {REPLAY_VERSION}",
                path.display(),
                file.version
            )));
        }
        Ok(file)
    }
}

/// Reads a value from a file.
pub(super) fn read<T: for<'a> Deserialize<'a>>(path: &Path) -> io::Result<T> {
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let text = fs::read(path).map_err(named)?;
    serde_json::from_slice(&text).map_err(|error| named(error.into()))
}

/// Writes a value to a file atomically.
pub(super) fn write<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let mut text = serde_json::to_vec_pretty(value).map_err(|error| named(error.into()))?;
    text.push(b'\n');
    let draft = path.with_extension("draft");
    fs::write(&draft, text)
        .and_then(|()| fs::rename(&draft, path))
        .map_err(named)
}
