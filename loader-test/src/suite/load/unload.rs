//! Checks that a refused library leaves nothing behind.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::stand_in::FUNCTIONS;
use crate::stand_in::fabric::Peer;
use crate::stand_in::hide::hide;
use crate::stand_in::library::Library;
use crate::suite::apart::{End, Exit};
use crate::suite::fixture::{Fixture, HASTY, by_lid, not_loaded, resolve};
use crate::suite::process::threads::{newer_than, threads};
use crate::suite::run::signal_name;
use crate::suite::{Finding, Outcome, failed};

pub(super) fn missing_function(fixture: &mut Fixture) -> Outcome {
    fixture.take_unloaded_library()?;
    for name in FUNCTIONS {
        let end = without(fixture, name, Exit::AtOnce, |fixture| {
            fixture.install_core()?;
            let Some(_accepted) = load(fixture.library()) else {
                return Ok(());
            };
            let (core, from) = fixture.up_with(HASTY)?;
            resolve(core, from, &by_lid(&Peer::number(1))).map(drop)
        })?;
        judge(end, name, "a refusal, or a provider that works without it")?;
    }
    Ok(())
}

pub(super) fn refused_by_itself(fixture: &mut Fixture) -> Outcome {
    fixture.take_unloaded_library()?;
    let mut refusals = 0;
    for name in FUNCTIONS {
        let end = without(fixture, name, Exit::WithHandlers, |fixture| {
            fixture.install_core()?;
            let threads = threads();
            if load(fixture.library()).is_some() {
                return Err(Finding::Skipped("not refused".into()));
            }
            if is_mapped(fixture.library()) {
                let text = "a refused library stays in memory";
                return Err(Finding::Warned(text.into()));
            }
            no_more_than(&threads, fixture.patience_for_ends())?;
            fork_once()
        })?;
        if let End::Came(Err(Finding::Skipped(_))) = end {
            continue;
        }
        refusals += 1;
        judge(end, name, "an unloaded library after its refusal")?;
    }
    if refusals == 0 {
        let text = "the provider refuses no core: it needs none of the core's functions";
        return Err(Finding::Skipped(text.into()));
    }
    Ok(())
}

/// Ends the process, which calls any exit handlers that the library left.
pub(super) fn rejected_then_exit(fixture: &mut Fixture) -> Outcome {
    rejected_by_the_core(fixture, Exit::WithHandlers, || Ok(()))
}

/// Forks the process, which calls any fork handlers that the library left.
pub(super) fn rejected_then_fork(fixture: &mut Fixture) -> Outcome {
    rejected_by_the_core(fixture, Exit::AtOnce, fork_once)
}

pub(super) fn rejected(fixture: &mut Fixture) -> Outcome {
    rejected_by_the_core(fixture, Exit::AtOnce, || Ok(()))
}

fn rejected_by_the_core(fixture: &mut Fixture, exit: Exit, then: fn() -> Outcome) -> Outcome {
    fixture.take_unloaded_library()?;
    let list = fixture.folder().join("threads");
    let end = fixture
        .apart(exit, |fixture| {
            fixture.install_core()?;
            let threads = threads();
            let library = Library::open_by_any_name(fixture.library()).map_err(not_loaded)?;
            library.judge().map_err(not_loaded)?;
            let started = newer_than(&threads).join("; ");
            fs::write(&list, started).map_err(cannot_run)?;
            library.close();
            if is_mapped(fixture.library()) {
                // The library is pinned: its threads keep running in mapped memory.
                return Ok(());
            }
            no_more_than(&threads, fixture.patience_for_ends())?;
            then()
        })
        .map_err(cannot_run)?;
    match end {
        End::Came(outcome) => outcome,
        End::Lost(how) => {
            let threads = fs::read_to_string(&list).unwrap_or_default();
            let threads = match &*threads {
                "" => threads,
                threads => format!(
                    "; loading it started {threads}, which must end before the library is unloaded"
                ),
            };
            let seen = format!("{how}{threads}");
            Err(failed("a library that can be closed", seen))
        }
    }
}

/// Runs `piece` in a process whose core lacks a function.
fn without(
    fixture: &mut Fixture,
    name: &CStr,
    exit: Exit,
    piece: impl FnOnce(&mut Fixture) -> Outcome,
) -> Result<End, Finding> {
    fixture
        .apart(exit, |fixture| {
            hide(name)
                .map_err(|error| Finding::CannotRun(format!("hiding a function: {error}")))?;
            piece(fixture)
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
            finding
                .map_texts(|expected, seen| (format!("{expected}, in a core without {name}"), seen))
        }),
        End::Lost(how) => Err(failed(expected, format!("{how}, in a core without {name}"))),
    }
}

/// Loads a library as the core does, and closes it if the core refuses it.
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

/// Forks, and waits for the child, which ends at once.
fn fork_once() -> Outcome {
    // SAFETY: the child ends at once. A crash in the library's fork handlers is what the check looks for.
    match unsafe { libc::fork() } {
        -1 => Err(cannot_run(std::io::Error::last_os_error())),
        // SAFETY: ends the child without exit handlers.
        0 => unsafe { libc::_exit(0) },
        child => {
            let mut status = 0;
            // SAFETY: our own child, waited for once.
            while unsafe { libc::waitpid(child, &raw mut status, 0) } < 0 {
                let error = std::io::Error::last_os_error();
                if error.kind() != std::io::ErrorKind::Interrupted {
                    return Err(cannot_run(error));
                }
            }
            match libc::WIFSIGNALED(status) {
                false => Ok(()),
                true => Err(failed(
                    "a process that can fork",
                    format!(
                        "the child was killed by {}",
                        signal_name(libc::WTERMSIG(status))
                    ),
                )),
            }
        }
    }
}

/// Waits until there are no more threads than before; false if they do not end in time.
fn no_more_than(before: &BTreeMap<String, String>, patience: Duration) -> Outcome {
    let deadline = Instant::now() + patience;
    loop {
        let left = newer_than(before);
        if left.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(failed(
                "no thread of an unloaded library: threads that loading starts end before the unload",
                format!("{}, in unmapped memory", left.join("; ")),
            ));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn cannot_run(error: std::io::Error) -> Finding {
    crate::suite::cannot_run("a process for a piece of the check")(error)
}
