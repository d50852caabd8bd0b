//! Runs checks, each in a process of its own.
//!
//! The parent never loads the library. A child is the leader of its own process group, has a time limit, and leaves its
//! result in a file: whatever the provider does (hang, crash, `_exit(0)`, kill its group, write to standard output), it
//! becomes that check's result and the rest goes on. Nothing is left running.

mod child;
mod verdict;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::bench::Subject;
use super::copies::Copies;
use super::{Check, Status};

use child::LookForStrays;
pub(super) use child::signal_name;
pub use verdict::child;

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
    /// The provider's name, if the check came to know it.
    #[serde(skip)]
    pub provider: Option<String>,
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
/// # Errors
/// If a child cannot be started.
pub fn run_all(
    checks: &[&'static Check],
    library: &Path,
    plan: &Plan,
    tell: &(dyn Fn(Event<'_>) + Sync),
) -> io::Result<Vec<Report>> {
    let folder = scratch_folder("loader-test-run-")?;
    let next = AtomicUsize::new(0);
    let reports: Mutex<Vec<Option<Report>>> = Mutex::new(checks.iter().map(|_| None).collect());
    let failure: Mutex<Option<io::Error>> = Mutex::new(None);
    let copies = match plan.in_process {
        true => Some(Arc::new(Copies::new()?)),
        false => None,
    };
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(check) = checks.get(index) else {
                return;
            };
            if failure.lock().is_ok_and(|failure| failure.is_some()) {
                return;
            }
            tell(Event::Begun(check));
            match run_one(check, library, plan, copies.as_ref(), folder.path()) {
                Ok(report) => {
                    tell(Event::Ended(&report));
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
    let jobs = if plan.in_process { 1 } else { plan.jobs.max(1) };
    std::thread::scope(|scope| {
        for _ in 1..jobs {
            scope.spawn(work);
        }
        work();
    });
    if !plan.in_process {
        child::kill_strays(folder.path())?;
    }
    match failure.into_inner() {
        Ok(Some(error)) => Err(error),
        _ => Ok(reports
            .into_inner()
            .unwrap_or_default()
            .into_iter()
            .flatten()
            .collect()),
    }
}

fn run_one(
    check: &'static Check,
    library: &Path,
    plan: &Plan,
    copies: Option<&Arc<Copies>>,
    folder: &Path,
) -> io::Result<Report> {
    let folder = tempfile::Builder::new()
        .prefix("check-")
        .tempdir_in(folder)?;
    let start = Instant::now();
    let mut report = match copies {
        None => child::run_child(check, library, folder.path(), plan, LookForStrays::IfSeen)?,
        Some(copies) => run_here(check, library, folder.path(), plan, copies),
    };
    report.duration_ms = milliseconds_since(start);
    Ok(report)
}

fn run_here(
    check: &'static Check,
    library: &Path,
    folder: &Path,
    plan: &Plan,
    copies: &Arc<Copies>,
) -> Report {
    let subject = Subject {
        library: library.to_owned(),
        options: plan.options.clone(),
        strict: plan.strict,
        trace: plan.trace.clone(),
        copies: Some(Arc::clone(copies)),
    };
    let verdict = verdict::judge_here(check, subject, folder);
    Report {
        name: check.name.to_owned(),
        status: verdict.status,
        message: verdict.message,
        duration_ms: 0,
        signal: None,
        output: String::new(),
        provider: verdict.provider,
    }
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
    let mut report = child::run_child(check, library, folder.path(), plan, LookForStrays::Always)?;
    report.duration_ms = milliseconds_since(start);
    Ok(report)
}

/// A folder for small files that live shortly: in memory if the system has a place for that, which is much quicker, unless
/// the user wants temporary files elsewhere.
fn scratch_folder(prefix: &str) -> io::Result<tempfile::TempDir> {
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
