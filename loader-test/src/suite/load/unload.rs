//! Libraries that are not taken: they go without a trace.

use std::ffi::CStr;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::stand_in::FUNCTIONS;
use crate::stand_in::fabric::Peer;
use crate::stand_in::hide::hide;
use crate::stand_in::library::Library;
use crate::suite::apart::{End, Exit};
use crate::suite::bench::{Bench, HASTY, by_lid, not_loaded, resolve};
use crate::suite::{Finding, Outcome, failed};

pub(super) fn missing_function(bench: &mut Bench) -> Outcome {
    bench.take_unloaded_library()?;
    for name in FUNCTIONS {
        let end = without(bench, name, Exit::AtOnce, |bench| {
            bench.install_core()?;
            let Some(_accepted) = load(bench.library()) else {
                return Ok(());
            };
            let (core, from) = bench.up_with(HASTY)?;
            resolve(core, from, &by_lid(&Peer::number(1))).map(drop)
        })?;
        judge(end, name, "a refusal, or a provider that does without it")?;
    }
    Ok(())
}

pub(super) fn refused_by_itself(bench: &mut Bench) -> Outcome {
    bench.take_unloaded_library()?;
    let mut refusals = 0;
    for name in FUNCTIONS {
        let end = without(bench, name, Exit::WithHandlers, |bench| {
            bench.install_core()?;
            let threads = threads();
            if load(bench.library()).is_some() {
                return Err(Finding::Skipped("not refused".into()));
            }
            if is_mapped(bench.library()) {
                let text = "a refused library stays in memory";
                return Err(Finding::Warned(text.into()));
            }
            no_more_than(threads, bench.patience_for_ends())
        })?;
        if let End::Came(Err(Finding::Skipped(_))) = end {
            continue;
        }
        refusals += 1;
        judge(end, name, "a library that is gone after its refusal")?;
    }
    if refusals == 0 {
        let text = "the provider refuses no core: it needs none of the core's functions";
        return Err(Finding::Skipped(text.into()));
    }
    Ok(())
}

pub(super) fn rejected_by_the_core(bench: &mut Bench) -> Outcome {
    bench.take_unloaded_library()?;
    let end = bench
        .apart(Exit::WithHandlers, |bench| {
            bench.install_core()?;
            let threads = threads();
            let library = Library::open_by_any_name(bench.library()).map_err(not_loaded)?;
            library.judge().map_err(not_loaded)?;
            library.close();
            if is_mapped(bench.library()) {
                // Pinned: whatever it has started goes on in memory that is there.
                return Ok(());
            }
            no_more_than(threads, bench.patience_for_ends())
        })
        .map_err(cannot_run)?;
    match end {
        End::Came(outcome) => outcome,
        End::Lost(how) => Err(failed("a library that can be closed", how)),
    }
}

/// Runs `piece` in a process whose core lacks a function.
fn without(
    bench: &mut Bench,
    name: &CStr,
    exit: Exit,
    piece: impl FnOnce(&mut Bench) -> Outcome,
) -> Result<End, Finding> {
    bench
        .apart(exit, |bench| {
            hide(name)
                .map_err(|error| Finding::CannotRun(format!("hiding a function: {error}")))?;
            piece(bench)
        })
        .map_err(cannot_run)
}

fn judge(end: End, name: &CStr, expected: &str) -> Outcome {
    let name = name.to_string_lossy();
    match end {
        End::Came(Err(Finding::Warned(text))) => {
            Err(Finding::Warned(format!("{text}, in a core without {name}")))
        }
        End::Came(outcome) => outcome.map_err(|finding| {
            finding.told(|expected, seen| (format!("{expected}, in a core without {name}"), seen))
        }),
        End::Lost(how) => Err(failed(expected, format!("{how}, in a core without {name}"))),
    }
}

/// Loads a library as the core does; one that is not taken is closed.
fn load(library: &Path) -> Option<Library> {
    let library = Library::open_by_any_name(library).ok()?;
    if matches!(library.judge(), Ok((_, report)) if report.is_accepted()) {
        return Some(library);
    }
    library.close();
    None
}

fn is_mapped(library: &Path) -> bool {
    let Ok(path) = library.canonicalize() else {
        return false;
    };
    let path = path.to_string_lossy();
    fs::read_to_string("/proc/self/maps")
        .is_ok_and(|maps| maps.lines().any(|line| line.ends_with(&*path)))
}

fn threads() -> usize {
    fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

/// Whether the threads are no more than they were; those that are about to end are given the time.
fn no_more_than(before: usize, patience: Duration) -> Outcome {
    let deadline = Instant::now() + patience;
    loop {
        let now = threads();
        if now <= before {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(failed(
                "no thread of an unloaded library",
                format!("{} in memory that is gone", now - before),
            ));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn cannot_run(error: std::io::Error) -> Finding {
    crate::suite::cannot_run("a process for a piece of the check")(error)
}
