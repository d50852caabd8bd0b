//! Runs checks, each in its own process.
//!
//! The parent never loads the library. A child has a supervisor and a time limit, and stores its result in a file. If the
//! provider hangs, crashes, calls `_exit(0)`, kills its process group or writes to standard output, that becomes the
//! check's result, and the run continues. No process is left running.

mod breach;
mod child;
mod keep;
mod plan;
mod pool;
mod probe;
mod repeat;
mod stacks;
mod stop;
mod symbols;
mod verdict;

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use super::Check;
use super::fixture::Time;
use crate::scratch::Scratch;

pub(super) use child::signal_name;
pub use plan::{CutShort, DEFAULT_JOBS, DEFAULT_LIMIT, Event, Plan, Report, Results};
pub use stacks::answer_in as answer_with_stacks;
pub use stop::{Stop, signalled};
pub use verdict::{Complaints, Departure, Ending, child};

/// Marks an error as one of the harness.
fn could_not_run(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("could not run: {error}"))
}

fn stopped() -> io::Error {
    io::Error::new(io::ErrorKind::Interrupted, "the run was stopped")
}

/// Runs all `checks` on a library.
///
/// # Errors
/// If a child cannot be started, or the harness fails in it.
pub fn run_all(checks: &[&'static Check], library: &Path, plan: &Plan) -> io::Result<Results> {
    let mut results = run_until(checks, library, plan, &Stop::new()?, &|_| {})?;
    match results.cut_short.take() {
        Some(CutShort::Trouble(error)) => Err(error),
        other => {
            results.cut_short = other;
            Ok(results)
        }
    }
}

/// Does the same, reports each check's start and end, and can be ended by `stop`. After a stop or a harness error it still
/// returns the results so far.
///
/// # Errors
/// If no folder for the checks can be created.
pub fn run_until(
    checks: &[&'static Check],
    library: &Path,
    plan: &Plan,
    stop: &Stop,
    tell: &(dyn Fn(Event<'_>) + Sync),
) -> io::Result<Results> {
    let folder = Scratch::small("run")?;
    // A constructor may change the working folder.
    let library = &std::path::absolute(library)?;
    let run = pool::Run::new(library, plan, stop, tell, folder.path())?;
    Ok(run.whole(checks))
}

/// Runs one check in its own process and folder; `prepare` puts the check's files into the folder.
pub(super) fn run_prepared(
    check: &'static Check,
    library: &Path,
    plan: &Plan,
    prepare: impl FnOnce(&Path) -> io::Result<()>,
) -> io::Result<Report> {
    let folder = Scratch::small("check")?;
    let library = &std::path::absolute(library)?;
    prepare(folder.path())?;
    let start = Instant::now();
    let stop = Stop::at_signals()?;
    let job = child::Job {
        check,
        library,
        folder: folder.path(),
        plan,
        time: Time {
            limit: plan.time_limit,
            extra: Duration::ZERO,
            deadline: None,
        },
    };
    let mut report = job.run(&stop).map_err(could_not_run)?;
    report.duration_ms = milliseconds_since(start);
    Ok(report)
}

fn milliseconds_since(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX)
}
