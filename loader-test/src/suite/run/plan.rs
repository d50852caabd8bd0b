//! What is to be run and how, and what came of it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use super::super::ability::Ability;
use super::super::fixture::Late;
use super::super::{Check, Status};
use super::verdict::Departure;

/// Checks at a time unless the plan says otherwise: a check sleeps most of its time.
pub const DEFAULT_JOBS: usize = 16;
/// A check's time limit unless the plan says otherwise.
pub const DEFAULT_LIMIT: Duration = Duration::from_secs(5);

/// Results that are repeated in a run, at most.
const DEFAULT_REPEATS: usize = 5;

/// How checks are run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The executable that runs one check: this one.
    pub program: PathBuf,
    /// Lines of ibacm_opts.cfg that the provider needs.
    pub options: Vec<String>,
    /// Departures without harm are looked for, and count.
    pub strict: bool,
    /// A check's time limit.
    pub time_limit: Duration,
    /// Checks at a time.
    pub jobs: usize,
    /// In this process, for debuggers: the first crash ends it all.
    pub in_process: bool,
    /// Where every call is written, of the one check that is run.
    pub trace: Option<PathBuf>,
    /// The folder that gets a trace of each bad check.
    pub traces: Option<PathBuf>,
    /// The folder that gets the files of each bad check.
    pub folders: Option<PathBuf>,
    /// Children end by way of their exit handlers.
    pub at_exit: bool,
    /// The highest level of the provider's log that a report has.
    pub log_level: i32,
    /// Checks whose abilities are missing are not run.
    pub blocks: bool,
    /// Bad results that time explains are repeated, at most so many.
    pub repeats: usize,
    /// No further check begins after so many bad results.
    pub max_failures: Option<usize>,
}

impl Plan {
    /// The usual plan; `program` is the executable that runs one check.
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
    /// What to know about it; empty if it passed.
    pub message: String,
    /// What it has in common with other results of the same cause, such as the breach or the place of a crash.
    pub cause: Option<String>,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
    /// The signal that ended it.
    pub signal: Option<String>,
    /// What the provider wrote to standard output and standard error, cut.
    pub output: String,
    /// The last lines of its log, if it failed, crashed or timed out.
    pub log: Vec<String>,
    /// The stacks of all threads, if it timed out.
    pub stacks: Vec<String>,
    /// Whether this is the result of a repetition, which ran alone.
    pub repeated: bool,
    /// The ability that is missing, if it is blocked.
    pub blocked_by: Option<Ability>,
    /// The checks that saw the departure.
    pub seen_by: Vec<String>,
    /// Where its trace is kept.
    pub trace: Option<PathBuf>,
    /// Where its files are kept.
    pub folder: Option<PathBuf>,
    /// The provider's name, if the check came to know it.
    #[serde(skip)]
    pub provider: Option<String>,
    /// How time may explain the result.
    #[serde(skip)]
    pub late: Option<Late>,
    /// What the provider departed from without harm.
    #[serde(skip)]
    pub departures: Vec<Departure>,
    /// How long a client of a silent SA waited, if that was looked at.
    #[serde(skip)]
    pub shown_deadline: Option<Duration>,
}

impl Report {
    /// A result that nothing more is known about.
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

/// What came of a run of one library.
#[derive(Debug, Default)]
pub struct Results {
    /// The abilities that were probed.
    pub abilities: Vec<Report>,
    /// The checks that came to a result, in the order in which they were named.
    pub checks: Vec<Report>,
    /// Departures that harm nobody.
    pub breaches: Vec<Report>,
    /// The deadline that the provider showed, if it is later than that of the options.
    pub deadline: Option<Duration>,
    /// What the provider said of its options at level 0 of the log.
    pub complaints: Vec<String>,
    /// Why checks are missing; none if all came to a result.
    pub cut_short: Option<CutShort>,
}

impl Results {
    /// Every result: abilities, checks, departures.
    pub fn all(&self) -> impl Iterator<Item = &Report> {
        self.abilities
            .iter()
            .chain(&self.checks)
            .chain(&self.breaches)
    }

    /// The abilities that are missing.
    pub fn missing(&self) -> impl Iterator<Item = &Report> {
        self.abilities
            .iter()
            .filter(|report| report.status.is_bad(false))
    }

    /// The provider's name, if anything came to know it.
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
    /// There were as many bad results as the plan allows.
    MaxFailures,
    /// Trouble of the harness's own.
    Trouble(io::Error),
}

/// What happens during a run.
#[derive(Clone, Copy)]
pub enum Event<'a> {
    /// A check or probe begins.
    Begun(&'a Check),
    /// It has ended, and will be repeated in the end.
    Postponed(&'a Check),
    /// A result is there. An ability that is not missing is none.
    Ended(&'a Report),
}
