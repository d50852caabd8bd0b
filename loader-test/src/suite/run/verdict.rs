//! One check in this process, and what its end means.

use std::any::Any;
use std::fmt;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::stand_in::ledger::{Violation, ViolationKind};
use crate::suite::bench::{Bench, Subject, judge};
use crate::suite::{Check, Finding, Outcome, Status, failed};

/// What a child leaves behind.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Verdict {
    pub status: Status,
    pub message: String,
    /// The provider's name, if it came to that.
    pub provider: Option<String>,
}

/// How a child begins what it tells its parent of trouble of its own.
pub(super) const TROUBLE: &str = "loader-test cannot run this check: ";

/// The way from a child to its parent for trouble of the child's own: the socket that is its standard input. An exit code
/// does not do, since a provider may end the process with any.
pub struct Complaints(File);

impl Complaints {
    /// To be called before the provider is loaded.
    ///
    /// # Errors
    /// If there is no descriptor left.
    pub fn open() -> io::Result<Self> {
        // A descriptor of its own: a provider may close the other one, as daemons do.
        let socket = io::stdin().as_fd().try_clone_to_owned()?;
        Ok(Self(File::from(socket)))
    }

    /// Tells of the trouble and ends the process, past all exit handlers.
    pub fn end(mut self, trouble: &str) -> ! {
        // If nobody hears it, the exit code is all that is left.
        let _ = self.0.write_all(format!("{TROUBLE}{trouble}").as_bytes());
        end(2)
    }
}

fn end(code: i32) -> ! {
    // SAFETY: ends the process at once; nothing of this program needs to be tidied up.
    unsafe { libc::_exit(code) }
}

/// What a child does: one check, and its result into a file. Ends the process, past all exit handlers.
pub fn child(
    check: &'static Check,
    subject: Subject,
    folder: &Path,
    result: &Path,
    complaints: Complaints,
) -> ! {
    let verdict = match judge_here(check, subject, folder) {
        Ok(verdict) => verdict,
        Err(trouble) => complaints.end(&trouble),
    };
    let written = serde_json::to_vec(&verdict)
        .map_err(io::Error::from)
        .and_then(|text| {
            // Whole or not at all: the parent must not read half a result.
            let draft = result.with_extension("draft");
            std::fs::write(&draft, text)?;
            std::fs::rename(&draft, result)
        });
    match written {
        Ok(()) => end(0),
        Err(error) => complaints.end(&format!("{}: {error}", result.display())),
    }
}

/// Runs a check in this process.
///
/// # Errors
/// Trouble of the harness's own.
pub(super) fn judge_here(
    check: &'static Check,
    subject: Subject,
    folder: &Path,
) -> Result<Verdict, String> {
    let mut bench = Bench::new(subject, folder);
    let verdict = judge_on(check, &mut bench)?;
    Ok(Verdict {
        provider: bench.provider_name().map(str::to_owned),
        ..verdict
    })
}

fn judge_on(check: &'static Check, bench: &mut Bench) -> Result<Verdict, String> {
    // A panic of the check's own, such as about a NULL slot, is a finding like any other.
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| (check.run)(bench)));
    let violations = panic::catch_unwind(AssertUnwindSafe(|| bench.finish()));
    let outcome = outcome
        .unwrap_or_else(|payload| Err(failed("a check that can be run", text_of(&*payload))));
    let (harm, departures) = match violations {
        Ok(violations) => judge(violations),
        Err(payload) => {
            let finding = failed("everything to close", text_of(&*payload));
            return verdict(check, Err(finding), &[], &[]);
        }
    };
    verdict(check, outcome, &harm, &departures)
}

fn text_of(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or_default()
}

/// One of each kind: the others say the same of other clients.
fn first_of_each_kind(violations: &[Violation]) -> Vec<&Violation> {
    let mut seen = Vec::new();
    let new = |violation: &&Violation| {
        let is_new = !seen.contains(&violation.kind);
        seen.push(violation.kind);
        is_new
    };
    violations.iter().filter(new).collect()
}

/// What a check found and what the books hold, `harm` and `departures`, in one.
fn verdict(
    check: &Check,
    outcome: Outcome,
    harm: &[Violation],
    departures: &[Violation],
) -> Result<Verdict, String> {
    let mut harm = first_of_each_kind(harm);
    let is_harmless = !matches!(
        outcome,
        Err(Finding::Failed { .. } | Finding::Breach { .. })
    );
    let (status, message) = match outcome {
        Err(Finding::CannotRun(trouble)) => return Err(trouble),
        Err(Finding::Failed { expected, seen }) => {
            let rule = (check.told_rule(), check.harmed);
            (Status::Failed, told(&expected, &seen, rule, &harm))
        }
        Err(Finding::Breach {
            kind,
            harmed,
            expected,
            seen,
        }) => {
            harm.retain(|known| known.kind != kind);
            let rule = (of_the_books(kind), harmed);
            (Status::Failed, told(&expected, &seen, rule, &harm))
        }
        _ if is_harmless && !harm.is_empty() => {
            let first = harm.remove(0);
            let rule = (of_the_books(first.kind), first.harmed);
            let expected = "no breach of the contract";
            (Status::Failed, told(expected, &first.text, rule, &harm))
        }
        Err(Finding::Warned(text)) => (Status::Warned, text),
        Err(Finding::Skipped(text)) => (Status::Skipped, text),
        Ok(()) if departures.is_empty() => (Status::Passed, String::new()),
        Ok(()) => {
            let texts: Vec<&str> = first_of_each_kind(departures)
                .iter()
                .map(|departure| departure.text.as_str())
                .collect();
            (Status::Warned, texts.join("; "))
        }
    };
    Ok(Verdict {
        status,
        message,
        provider: None,
    })
}

/// The rule of a breach with the section of the docs.
fn of_the_books(kind: ViolationKind) -> String {
    format!("{} (CHECKS.md, breaches)", kind.rule())
}

/// A failure in words. `also` is what the books hold besides.
pub(super) fn told(
    expected: &str,
    seen: &str,
    (rule, harmed): (String, impl fmt::Display),
    also: &[&Violation],
) -> String {
    let mut text =
        format!("expected: {expected}\n  seen: {seen}\n  rule: {rule}\n  harmed: {harmed}");
    for breach in also {
        text += &format!("\n  also: {}", breach.text);
    }
    text
}
