//! What the command and the process that plays sequences tell each other, in files.

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

/// What is to be done.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Orders {
    /// Lines of ibacm_opts.cfg that the provider needs.
    pub options: Vec<String>,
    /// Where the results go: a folder.
    pub results: PathBuf,
    /// Sequences at a time.
    pub jobs: usize,
    /// How long all of it may take.
    pub time: Duration,
    /// What exactly.
    pub task: Task,
}

/// Where the sequences come from.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Task {
    /// Sequences of seeds that count on from the first one.
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
    /// The seed that it was made from, perhaps before it was shrunk.
    pub seed: u64,
    /// Whether it is played again and again in one process, to see whether memory is lost.
    pub repeated: bool,
    /// The seeds of sequences that are played before it in the same process, without which it has not failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<u64>,
    /// What happens.
    pub actions: Vec<Action>,
}

impl Sequence {
    /// The same without those before it.
    pub(super) fn alone(&self) -> Self {
        Self {
            after: Vec::new(),
            ..self.clone()
        }
    }
}

/// What a failure is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Cause {
    /// The process ended by a signal.
    Signal(String),
    /// The process ended by itself.
    Exit(i32),
    /// The process did not come to an end.
    Hangs,
    /// The contract was broken.
    Violation(ViolationKind),
    /// Memory is lost each time.
    Leak,
    /// The harness met something that it did not expect, such as a NULL slot.
    Panic,
}

impl Cause {
    /// The status of a check that ends so.
    pub(super) fn status(&self) -> Status {
        match self {
            Self::Signal(_) | Self::Exit(_) => Status::Crashed,
            Self::Hangs => Status::TimedOut,
            Self::Violation(_) | Self::Leak | Self::Panic => Status::Failed,
        }
    }

    /// Whether two failures have the same cause. How the process ends when memory is damaged is chance.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        use Cause::{Exit, Signal};
        matches!((self, other), (Signal(_) | Exit(_), Signal(_) | Exit(_))) || self == other
    }

    /// Whether a busy machine cannot bring it about, so that having seen it once is enough.
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

/// How a sequence failed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Failure {
    /// What it is about.
    pub cause: Cause,
    /// What was expected and what was seen.
    pub message: String,
    /// Who is affected.
    pub harmed: Harmed,
    /// The end of the provider's log.
    pub log: Vec<String>,
    /// The end of what the provider wrote.
    pub output: String,
}

/// A failure, and what it comes down to.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Found {
    /// The sequence that failed.
    pub original: Sequence,
    /// The shortest one that still does.
    pub shortest: Sequence,
    /// How the shortest one fails.
    pub failure: Failure,
    /// From the beginning until the first failure.
    pub found_after: Duration,
    /// From the beginning until nothing more could be left out.
    pub shrunk_after: Duration,
    /// Whether the time was enough for that.
    pub is_shrunk: bool,
    /// How often the shortest one failed, and of how many times.
    pub fails: (u64, u64),
}

/// What came of it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Results {
    /// Sequences that were played, without those that shrinking needs.
    pub sequences: u64,
    /// How long that took.
    pub searched: Duration,
    /// Why each sequence loads the library anew, if it does.
    pub loads_anew: Option<String>,
    /// Seeds whose failures may come from a busy machine, and did not come again.
    pub not_again: Vec<(u64, Failure)>,
    /// What failed.
    pub found: Option<Found>,
}

/// A file that holds a sequence, for `--replay`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ReplayFile {
    /// Of this file's layout.
    pub version: u32,
    /// The sequence.
    pub sequence: Sequence,
    /// Lines of ibacm_opts.cfg that it was played with.
    pub options: Vec<String>,
    /// How it failed, for people.
    pub failure: String,
}

/// The layout that this program writes.
pub(super) const REPLAY_VERSION: u32 = 1;

impl ReplayFile {
    /// Reads one.
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        let file: Self = read(path)?;
        if file.version != REPLAY_VERSION {
            return Err(io::Error::other(format!(
                "{}: a sequence of version {}, this program reads version {REPLAY_VERSION}",
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

/// Writes a value to a file, whole or not at all.
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
