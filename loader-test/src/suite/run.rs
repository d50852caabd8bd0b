//! Runs checks, each in a process of its own.
//!
//! The parent never loads the library. A child is the leader of its own process group, has a time limit, and leaves its
//! result in a file: whatever the provider does (hang, crash, `_exit(0)`, kill its group, write to standard output), it
//! becomes that check's result and the rest goes on. Nothing is left running.

mod child;
mod verdict;

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use super::bench::Subject;
use super::copies::Copies;
use super::{Check, Status, load};
use crate::signals;
use crate::stand_in::recorder;

use child::LookForStrays;
pub(super) use child::signal_name;
pub use verdict::{Complaints, child};

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
}

/// How one check ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The check.
    pub name: String,
    /// How it ended.
    pub status: Status,
    /// What to know about it; empty if it passed.
    pub message: String,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
    /// The signal that ended it.
    pub signal: Option<String>,
    /// What the provider wrote to standard output and standard error, cut.
    pub output: String,
    /// The last lines of its log at level 0, if it failed, crashed or timed out.
    pub log: Vec<String>,
    /// The provider's name, if the check came to know it.
    #[serde(skip)]
    pub provider: Option<String>,
}

impl Report {
    fn new(check: &Check, status: Status, message: String) -> Self {
        Self {
            name: check.name.to_owned(),
            status,
            message,
            duration_ms: 0,
            signal: None,
            output: String::new(),
            log: Vec::new(),
            provider: None,
        }
    }
}

/// Ends a run early: no further check begins, and those at work are killed.
pub struct Stop {
    /// Can be read from once it is ended.
    ended: OwnedFd,
    end: OwnedFd,
}

/// The exit status that a signal asks for, if one came that [`Stop::at_signals`] heard.
pub fn signalled() -> Option<u8> {
    signals::came().map(|number| u8::try_from(128 + number).unwrap_or(1))
}

impl Stop {
    /// The one that SIGINT, SIGTERM and SIGHUP end, so that what a run has made is removed. A second signal ends the
    /// process at once; the checks at work end with it.
    ///
    /// # Errors
    /// If the signals cannot be heard.
    pub fn at_signals() -> io::Result<Arc<Self>> {
        static STOP: Mutex<Option<Arc<Stop>>> = Mutex::new(None);
        let mut known = STOP.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stop) = &*known {
            return Ok(Arc::clone(stop));
        }
        let stop = Arc::new(Self::new()?);
        signals::catch_and_write(&stop.end)?;
        Ok(Arc::clone(known.insert(stop)))
    }

    /// Of a run that goes on.
    ///
    /// # Errors
    /// If there is no descriptor left.
    pub fn new() -> io::Result<Self> {
        let (ended, end) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(Self { ended, end })
    }

    /// Ends it.
    pub fn now(&self) {
        // It can only fail by having been done very often already.
        let _ = rustix::io::write(&self.end, &[1]);
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ended.as_fd()
    }

    /// Whether it is ended.
    pub fn is_set(&self) -> bool {
        let mut set = [PollFd::new(&self.ended, PollFlags::IN)];
        poll(&mut set, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }
}

/// Says that an error is the harness's own.
fn could_not_run(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("could not run: {error}"))
}

fn stopped() -> io::Error {
    io::Error::new(io::ErrorKind::Interrupted, "the run was stopped")
}

/// What happens during a run.
#[derive(Clone, Copy)]
pub enum Event<'a> {
    /// A check begins.
    Begun(&'a Check),
    /// A check has ended.
    Ended(&'a Report),
}

/// Runs all `checks` on a library and tells of each as it begins and ends; the reports are in the order of the checks.
///
/// A library that does not load is a matter of the family `load`; the other checks are skipped then.
///
/// # Errors
/// If a child cannot be started, or cannot do its work.
pub fn run_all(
    checks: &[&'static Check],
    library: &Path,
    plan: &Plan,
    tell: &(dyn Fn(Event<'_>) + Sync),
) -> io::Result<Vec<Report>> {
    run_until(checks, library, plan, &Stop::new()?, tell)
}

/// The same; `stop` can end it.
///
/// # Errors
/// If a child cannot be started, or cannot do its work, or if the run was stopped.
pub fn run_until(
    checks: &[&'static Check],
    library: &Path,
    plan: &Plan,
    stop: &Stop,
    tell: &(dyn Fn(Event<'_>) + Sync),
) -> io::Result<Vec<Report>> {
    let folder = scratch_folder("loader-test-run-")?;
    let copies = match plan.in_process {
        true => Some(Arc::new(Copies::new()?)),
        false => None,
    };
    let run = Run {
        library,
        plan,
        stop,
        tell,
        copies,
        folder: folder.path(),
    };
    let reports = run.whole(checks).map_err(could_not_run);
    // Also when it could not be done or was stopped.
    if !plan.in_process {
        child::kill_strays(folder.path())?;
    }
    reports
}

/// What a check of another family says when the library does not load.
pub const NOT_LOOKED_AT: &str = "not looked at: the library does not load";

/// The run of one library.
struct Run<'a> {
    library: &'a Path,
    plan: &'a Plan,
    stop: &'a Stop,
    tell: &'a (dyn Fn(Event<'_>) + Sync),
    /// For a run in this process.
    copies: Option<Arc<Copies>>,
    folder: &'a Path,
}

impl Run<'_> {
    fn whole(&self, checks: &[&'static Check]) -> io::Result<Vec<Report>> {
        let (of_loading, others): (Vec<_>, Vec<_>) =
            checks.iter().partition(|check| check.family() == "load");
        if others.is_empty() || !self.plan.in_process && self.loads()? {
            return self.some(checks);
        }
        let mut reports = self.some(&of_loading)?;
        let is_told = reports.iter().any(|report| report.status.is_bad(false));
        // In this process those checks show it: under valgrind there are no others.
        let loads = !is_told || reports.iter().any(|report| report.provider.is_some());
        let tellers = match self.plan.in_process && loads {
            true => others.len(),
            // Somebody has to say it.
            false => usize::from(!is_told),
        };
        let (tellers, rest) = others.split_at(tellers);
        reports.extend(self.some(tellers)?);
        for check in rest {
            let report = Report::new(check, Status::Skipped, NOT_LOOKED_AT.to_owned());
            (self.tell)(Event::Ended(&report));
            reports.push(report);
        }
        let place = |report: &Report| checks.iter().position(|check| check.name == report.name);
        reports.sort_by_key(place);
        Ok(reports)
    }

    /// Whether ibacm would load the library, tried in a process of its own.
    fn loads(&self) -> io::Result<bool> {
        let folder = self.folder_for_one()?;
        let strays = LookForStrays::IfSeen;
        let report = child::run_child(
            &load::PROBE,
            self.library,
            folder.path(),
            self.plan,
            strays,
            self.stop,
        )?;
        Ok(report.provider.is_some())
    }

    /// Runs these checks, as many at a time as is planned.
    fn some(&self, checks: &[&'static Check]) -> io::Result<Vec<Report>> {
        let next = AtomicUsize::new(0);
        let reports: Mutex<Vec<Option<Report>>> = Mutex::new(checks.iter().map(|_| None).collect());
        let failure: Mutex<Option<io::Error>> = Mutex::new(None);
        let work = || {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(check) = checks.get(index) else {
                    return;
                };
                if self.stop.is_set() || failure.lock().is_ok_and(|failure| failure.is_some()) {
                    return;
                }
                (self.tell)(Event::Begun(check));
                match self.one(check) {
                    Ok(report) => {
                        (self.tell)(Event::Ended(&report));
                        if let Ok(mut reports) = reports.lock() {
                            reports[index] = Some(report);
                        }
                    }
                    Err(error) => {
                        if let Ok(mut failure) = failure.lock() {
                            failure.get_or_insert(error);
                        }
                    }
                }
            }
        };
        let jobs = match self.plan.in_process {
            true => 1,
            false => self.plan.jobs.clamp(1, checks.len().max(1)),
        };
        std::thread::scope(|scope| {
            for _ in 1..jobs {
                scope.spawn(work);
            }
            work();
        });
        match failure.into_inner() {
            Ok(Some(error)) => Err(error),
            _ if self.stop.is_set() => Err(stopped()),
            _ => Ok(reports
                .into_inner()
                .unwrap_or_default()
                .into_iter()
                .flatten()
                .collect()),
        }
    }

    fn one(&self, check: &'static Check) -> io::Result<Report> {
        let folder = self.folder_for_one()?;
        let start = Instant::now();
        let mut report = match &self.copies {
            None => child::run_child(
                check,
                self.library,
                folder.path(),
                self.plan,
                LookForStrays::IfSeen,
                self.stop,
            )?,
            Some(copies) => run_here(check, self.library, folder.path(), self.plan, copies)?,
        };
        report.duration_ms = milliseconds_since(start);
        Ok(report)
    }

    fn folder_for_one(&self) -> io::Result<TempDir> {
        tempfile::Builder::new()
            .prefix("check-")
            .tempdir_in(self.folder)
    }
}

fn run_here(
    check: &'static Check,
    library: &Path,
    folder: &Path,
    plan: &Plan,
    copies: &Arc<Copies>,
) -> io::Result<Report> {
    let subject = Subject {
        library: library.to_owned(),
        options: plan.options.clone(),
        strict: plan.strict,
        trace: plan.trace.clone(),
        copies: Some(Arc::clone(copies)),
    };
    let verdict = verdict::judge_here(check, subject, folder)
        .map_err(|trouble| io::Error::other(format!("{}: {trouble}", check.name)))?;
    let mut report = Report::new(check, verdict.status, verdict.message);
    report.provider = verdict.provider;
    if report.status.is_bad(false) {
        report.log = recorder::last_lines(folder);
    }
    Ok(report)
}

/// Runs one check in a process and a folder of its own, in which `prepare` leaves what the check needs.
pub(super) fn run_prepared(
    check: &'static Check,
    library: &Path,
    plan: &Plan,
    prepare: impl FnOnce(&Path) -> io::Result<()>,
) -> io::Result<Report> {
    let folder = scratch_folder("loader-test-check-")?;
    prepare(folder.path())?;
    let start = Instant::now();
    let strays = LookForStrays::Always;
    let stop = Stop::at_signals()?;
    let mut report = child::run_child(check, library, folder.path(), plan, strays, &stop)
        .map_err(could_not_run)?;
    report.duration_ms = milliseconds_since(start);
    Ok(report)
}

/// A folder for small files that live shortly: in memory if the system has a place for that, which is much quicker, unless
/// the user wants temporary files elsewhere.
fn scratch_folder(prefix: &str) -> io::Result<TempDir> {
    const IN_MEMORY: &str = "/dev/shm";
    let mut builder = tempfile::Builder::new();
    let builder = builder.prefix(prefix);
    if std::env::var_os("TMPDIR").is_none()
        && let Ok(folder) = builder.tempdir_in(IN_MEMORY)
    {
        return Ok(folder);
    }
    builder.tempdir()
}

fn milliseconds_since(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX)
}
