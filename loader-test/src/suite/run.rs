//! Runs checks, each in a process of its own.
//!
//! The parent never loads the library. A child has a supervisor and a time limit, and leaves its result in a file:
//! whatever the provider does (hang, crash, `_exit(0)`, kill its group, write to standard output), it becomes that check's
//! result and the rest goes on. Nothing is left running.

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

/// Says that an error is the harness's own.
fn could_not_run(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("could not run: {error}"))
}

fn stopped() -> io::Error {
    io::Error::new(io::ErrorKind::Interrupted, "the run was stopped")
}

/// Runs all `checks` on a library.
///
/// # Errors
/// If a child cannot be started, or cannot do its work.
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

/// The same, and tells of each check as it begins and ends; `stop` can end it, and so can trouble: the results until then
/// are there all the same.
///
/// # Errors
/// If there is no place for the files of the checks.
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

/// Runs one check in a process and a folder of its own, in which `prepare` leaves what the check needs.
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
