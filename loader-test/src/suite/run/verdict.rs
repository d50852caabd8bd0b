//! One check in this process, and what its end means.

use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::stand_in::ledger::Violation;
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

/// What a child does: one check, and its result into a file. Ends the process, past all exit handlers.
pub fn child(check: &'static Check, subject: Subject, folder: &Path, result: &Path) -> ! {
    let verdict = judge_here(check, subject, folder);
    let code = match serde_json::to_vec(&verdict)
        .map_err(io::Error::from)
        .and_then(|text| {
            // Whole or not at all: the parent must not read half a result.
            let draft = result.with_extension("draft");
            std::fs::write(&draft, text)?;
            std::fs::rename(&draft, result)
        }) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("{}: {error}", result.display());
            2
        }
    };
    // SAFETY: ends the process at once; nothing of this program needs to be tidied up.
    unsafe { libc::_exit(code) }
}

/// Runs a check in this process.
pub(super) fn judge_here(check: &'static Check, subject: Subject, folder: &Path) -> Verdict {
    let mut bench = Bench::new(subject, folder);
    let verdict = judge_on(check, &mut bench);
    Verdict {
        provider: bench.provider_name().map(str::to_owned),
        ..verdict
    }
}

fn judge_on(check: &'static Check, bench: &mut Bench) -> Verdict {
    // A panic of the check's own, such as about a NULL slot, is a finding like any other.
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| (check.run)(bench)));
    let violations = panic::catch_unwind(AssertUnwindSafe(|| bench.finish()));
    let text_of = |payload: Box<dyn std::any::Any + Send>| {
        payload
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| {
                payload
                    .downcast_ref::<&str>()
                    .map(|text| (*text).to_owned())
            })
            .unwrap_or_default()
    };
    let outcome =
        outcome.unwrap_or_else(|payload| Err(failed("a check that can be run", text_of(payload))));
    let violations = match violations {
        Ok(violations) => violations,
        Err(payload) => {
            return verdict(
                check,
                Err(failed("everything to close", text_of(payload))),
                &[],
            );
        }
    };
    let (harm, departures) = judge(violations);
    let texts = first_of_each_kind(&departures);
    if let (Ok(()) | Err(Finding::Warned(_) | Finding::Skipped(_)), Some(first)) =
        (&outcome, harm.first())
    {
        return Verdict {
            status: Status::Failed,
            message: format!(
                "expected: no breach of the contract\n  seen: {}\n  rule: {} (CHECKS.md, breaches)\n  harmed: {}",
                first.text,
                first.kind.rule(),
                first.harmed
            ),
            provider: None,
        };
    }
    verdict(check, outcome, &texts)
}

/// One text a kind of departure: the others say the same of other clients.
fn first_of_each_kind(departures: &[Violation]) -> Vec<String> {
    let mut seen = Vec::new();
    let new = |departure: &&Violation| {
        let is_new = !seen.contains(&departure.kind);
        seen.push(departure.kind);
        is_new
    };
    departures
        .iter()
        .filter(new)
        .map(|departure| departure.text.clone())
        .collect()
}

/// What a failed check tells.
pub(super) fn told(check: &Check, expected: &str, seen: &str, harmed: &str) -> String {
    format!(
        "expected: {expected}\n  seen: {seen}\n  rule: {} (CHECKS.md, {})\n  harmed: {harmed}",
        check.rule,
        check.family()
    )
}

fn verdict(check: &Check, outcome: Outcome, departures: &[String]) -> Verdict {
    let (status, message) = match outcome {
        Err(Finding::Failed { expected, seen }) => (
            Status::Failed,
            told(check, &expected, &seen, &check.harmed.to_string()),
        ),
        Err(Finding::Warned(text)) => (Status::Warned, text),
        Err(Finding::Skipped(text)) => (Status::Skipped, text),
        Ok(()) if departures.is_empty() => (Status::Passed, String::new()),
        Ok(()) => (Status::Warned, departures.join("; ")),
    };
    Verdict {
        status,
        message,
        provider: None,
    }
}
