//! The plan of a run, and its results.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use super::super::ability::Ability;
use super::super::fixture::Late;
use super::super::{Check, Status};
use super::verdict::Departure;

/// Default number of concurrent checks: a check sleeps most of its time.
pub const DEFAULT_JOBS: usize = 16;
/// Default time limit of a check.
pub const DEFAULT_LIMIT: Duration = Duration::from_secs(5);

/// Maximum number of repeated results in a run.
const DEFAULT_REPEATS: usize = 5;

/// How checks are run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The executable that runs one check: this program.
    pub program: PathBuf,
    /// Lines of ibacm_opts.cfg that the provider needs.
    pub options: Vec<String>,
    /// Whether departures that affect no one are checked, and count.
    pub strict: bool,
    /// A check's time limit.
    pub time_limit: Duration,
    /// Number of concurrent checks.
    pub jobs: usize,
    /// Whether checks run in this process, for debuggers: the first crash ends the run.
    pub in_process: bool,
    /// The trace file of the single check that runs.
    pub trace: Option<PathBuf>,
    /// The folder for traces of bad checks.
    pub traces: Option<PathBuf>,
    /// The folder for files of bad checks.
    pub folders: Option<PathBuf>,
    /// Whether children run their exit handlers.
    pub at_exit: bool,
    /// The highest log level in reports.
    pub log_level: i32,
    /// Whether checks with missing abilities are blocked.
    pub blocks: bool,
    /// Maximum number of repeated results that time may explain.
    pub repeats: usize,
    /// Number of bad results after which no further check starts.
    pub max_failures: Option<usize>,
}

impl Plan {
    /// Returns the default plan; `program` is the executable that runs one check.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            options: Vec::new(),
            strict: false,
            time_limit: DEFAULT_LIMIT,
            jobs: DEFAULT_JOBS,
            in_process: false,
            trace: None,
            traces: None,
            folders: None,
            at_exit: false,
            log_level: 0,
            blocks: true,
            repeats: DEFAULT_REPEATS,
            max_failures: None,
        }
    }
}

/// How one check ended.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The check, the ability as `ability-loads`, or the departure as `breach-missing-ack`.
    pub name: String,
    /// How it ended.
    pub status: Status,
    /// The message; empty if it passed.
    pub message: String,
    /// The cause that it shares with other results, such as a violation or the place of a crash.
    pub cause: Option<String>,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
    /// The signal that ended it.
    pub signal: Option<String>,
    /// What the provider wrote to standard output and standard error, cut.
    pub output: String,
    /// The last lines of the provider's log, if the check failed, crashed or timed out.
    pub log: Vec<String>,
    /// The stacks of all threads, if it timed out.
    pub stacks: Vec<String>,
    /// Whether this is the result of a repetition that ran alone.
    pub repeated: bool,
    /// The missing ability, if the check is blocked.
    pub blocked_by: Option<Ability>,
    /// The checks that detected the departure.
    pub seen_by: Vec<String>,
    /// Path of the kept trace.
    pub trace: Option<PathBuf>,
    /// Path of the kept folder.
    pub folder: Option<PathBuf>,
    /// The provider's name, if the check read it.
    #[serde(skip)]
    pub provider: Option<String>,
    /// How time may explain the result.
    #[serde(skip)]
    pub late: Option<Late>,
    /// Departures that affect no one.
    #[serde(skip)]
    pub departures: Vec<Departure>,
    /// How long a client of a silent SA waited, if measured.
    #[serde(skip)]
    pub shown_deadline: Option<Duration>,
}

impl Report {
    /// Returns a result without details.
    pub(in crate::suite) fn new(name: &str, status: Status, message: String) -> Self {
        Self {
            name: name.to_owned(),
            status,
            message,
            cause: None,
            duration_ms: 0,
            signal: None,
            output: String::new(),
            log: Vec::new(),
            stacks: Vec::new(),
            repeated: false,
            blocked_by: None,
            seen_by: Vec::new(),
            trace: None,
            folder: None,
            provider: None,
            late: None,
            departures: Vec::new(),
            shown_deadline: None,
        }
    }
}

/// The results of a run of one library.
#[derive(Debug, Default)]
pub struct Results {
    /// The abilities that were probed.
    pub abilities: Vec<Report>,
    /// The checks with a result, in the given order.
    pub checks: Vec<Report>,
    /// Departures that affect no one.
    pub breaches: Vec<Report>,
    /// The provider's measured deadline, if it is later than the options' deadline.
    pub deadline: Option<Duration>,
    /// The provider's level-0 log lines about its options.
    pub complaints: Vec<String>,
    /// Why checks are missing; `None` if all have a result.
    pub cut_short: Option<CutShort>,
}

impl Results {
    /// Iterates over every result: abilities, checks, departures.
    pub fn all(&self) -> impl Iterator<Item = &Report> {
        self.abilities
            .iter()
            .chain(&self.checks)
            .chain(&self.breaches)
    }

    /// Returns the missing abilities.
    pub fn missing(&self) -> impl Iterator<Item = &Report> {
        self.abilities
            .iter()
            .filter(|report| report.status.is_bad(false))
    }

    /// Returns the provider's name, if any check read it.
    pub fn provider(&self) -> Option<&str> {
        self.all().find_map(|report| report.provider.as_deref())
    }

    /// Whether the run fails.
    pub fn is_bad(&self, strict: bool) -> bool {
        self.all().any(|report| report.status.is_bad(strict))
    }
}

/// Why not every check came to a result.
#[derive(Debug)]
pub enum CutShort {
    /// The run was stopped.
    Stopped,
    /// The run reached the plan's maximum of bad results.
    MaxFailures,
    /// The harness failed.
    Trouble(io::Error),
}

/// An event of a run.
#[derive(Clone, Copy)]
pub enum Event<'a> {
    /// A check or probe starts.
    Begun(&'a Check),
    /// A check ended, and will be repeated at the end.
    Postponed(&'a Check),
    /// A result. A present ability has none.
    Ended(&'a Report),
}
