//! Runs one check in this process, and judges its end.

use std::any::Any;
use std::fmt;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::plan::Report;
use crate::stand_in::ledger::{Violation, ViolationKind};
use crate::stand_in::recorder;
use crate::suite::ability::Ability;
use crate::suite::fixture::{Fixture, Late, Subject, judge, time_may_explain};
use crate::suite::{Check, Finding, Outcome, Status, failed};

/// The result that a child stores.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Verdict {
    pub status: Option<Status>,
    pub message: String,
    /// The provider's name, if it was read.
    pub provider: Option<String>,
    /// The cause that it shares with other failures.
    pub cause: Option<String>,
    pub blocked_by: Option<Ability>,
    pub late: Option<Late>,
    pub departures: Vec<Departure>,
    pub shown_deadline_ms: Option<u64>,
}

/// A violation of the contract that affects no one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Departure {
    kind: DepartureKind,
    /// What happened.
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum DepartureKind {
    Breach(ViolationKind),
    Printed,
}

impl Departure {
    /// Returns the departure for a violation in the ledger.
    pub(super) fn of(kind: ViolationKind, text: String) -> Self {
        Self {
            kind: DepartureKind::Breach(kind),
            text,
        }
    }

    /// Returns the departure for text on standard output.
    pub(super) fn printed(text: &str) -> Self {
        Self {
            kind: DepartureKind::Printed,
            text: format!("on standard output: {text:?}"),
        }
    }

    /// Returns the name of its result, such as `breach-missing-ack`.
    pub fn name(&self) -> String {
        match self.kind {
            DepartureKind::Breach(kind) => format!("breach-{}", name_of(kind)),
            DepartureKind::Printed => "breach-standard-output".to_owned(),
        }
    }

    /// Returns the rule with the section of CHECKS.md.
    pub(super) fn rule(&self) -> String {
        match self.kind {
            DepartureKind::Breach(kind) => rule_of(kind),
            DepartureKind::Printed => {
                "the provider writes to the core's log and not to standard output (CHECKS.md, load)"
                    .to_owned()
            }
        }
    }
}

/// Returns a violation's name as in all reports.
fn name_of(kind: ViolationKind) -> String {
    match serde_json::to_value(kind) {
        Ok(serde_json::Value::String(name)) => name,
        _ => format!("{kind:?}"),
    }
}

/// Prefix of a child's harness error.
pub(super) const TROUBLE: &str = "loader-test cannot run this check: ";

/// Reports a child's harness errors to its parent, through the socket that is the child's standard input. An exit code
/// cannot do this, since a provider may end the process with any code.
pub struct Complaints(File);

impl Complaints {
    /// Opens the socket. Call this before the provider is loaded.
    ///
    /// # Errors
    /// If no descriptor is free.
    pub fn open() -> io::Result<Self> {
        // A second descriptor: a provider may close standard input, as daemons do.
        let socket = io::stdin().as_fd().try_clone_to_owned()?;
        Ok(Self(File::from(socket)))
    }

    /// Reports the error and ends the process without exit handlers.
    pub fn end(mut self, trouble: &str) -> ! {
        // If the write fails, only the exit code says so.
        let _ = self.0.write_all(format!("{TROUBLE}{trouble}").as_bytes());
        end(2)
    }
}

fn end(code: i32) -> ! {
    // SAFETY: ends the process at once; this program has nothing to clean up.
    unsafe { libc::_exit(code) }
}

/// How a child ends once its result is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// At once, without exit handlers.
    AtOnce,
    /// By `exit`, which writes coverage and leak reports.
    AtExit,
}

/// Runs one check in a child, stores its result, and ends the process.
pub fn child(
    check: &'static Check,
    subject: Subject,
    folder: &Path,
    result: &Path,
    complaints: Complaints,
    ending: Ending,
) -> ! {
    let verdict = match judge_here(check, subject, folder) {
        Ok(verdict) => verdict,
        Err(trouble) => complaints.end(&trouble),
    };
    let written = serde_json::to_vec(&verdict)
        .map_err(io::Error::from)
        .and_then(|text| {
            // Atomically: the parent must not read half a result.
            let draft = result.with_extension("draft");
            std::fs::write(&draft, text)?;
            std::fs::rename(&draft, result)
        });
    match (written, ending) {
        (Ok(()), Ending::AtOnce) => end(0),
        // SAFETY: nothing here is used afterwards but by the handlers themselves; the result is stored.
        (Ok(()), Ending::AtExit) => unsafe { libc::exit(0) },
        (Err(error), _) => complaints.end(&format!("{}: {error}", result.display())),
    }
}

/// Runs a check in this process.
///
/// # Errors
/// The harness failed.
pub(super) fn judge_here(
    check: &'static Check,
    subject: Subject,
    folder: &Path,
) -> Result<Verdict, String> {
    recorder::keep_up_to(subject.log_level);
    let is_alone = subject.copies.is_none();
    let mut fixture = Fixture::new(subject, folder);
    let mut verdict = judge_on(check, &mut fixture, is_alone)?;
    verdict.provider = fixture.provider_name().map(str::to_owned);
    verdict.shown_deadline_ms = fixture
        .shown_deadline
        .and_then(|deadline| deadline.as_millis().try_into().ok());
    Ok(verdict)
}

fn judge_on(
    check: &'static Check,
    fixture: &mut Fixture,
    is_alone: bool,
) -> Result<Verdict, String> {
    // A panic of the check, such as for a NULL slot, is a finding too.
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| (check.run)(fixture)));
    let outcome = outcome
        .unwrap_or_else(|payload| Err(failed("a check that can be run", text_of(&*payload))));
    if check.is_probe() && is_alone {
        // A probe closes nothing: the process ends, and closing is another ability.
        return Ok(verdict(check, outcome, &[], &[])?.explained_by(fixture.lateness(), &[]));
    }
    let violations = panic::catch_unwind(AssertUnwindSafe(|| fixture.finish()));
    let (harm, departures) = match violations {
        Ok(violations) => judge(violations),
        Err(payload) => {
            let finding = failed("everything to close", text_of(&*payload));
            return verdict(check, Err(finding), &[], &[]);
        }
    };
    let (harm, departures) = match check.is_probe() {
        true => (Vec::new(), Vec::new()),
        false => (harm, departures),
    };
    let verdict = verdict(check, outcome, &harm, &departures)?;
    Ok(verdict.explained_by(fixture.lateness(), &harm))
}

impl Verdict {
    /// Copies it into a report.
    pub fn into_report(self, report: &mut Report) {
        report.status = self.status.unwrap_or(Status::Crashed);
        report.message = self.message;
        report.provider = self.provider;
        report.cause = self.cause;
        report.blocked_by = self.blocked_by;
        report.late = self.late;
        report.departures = self.departures;
        report.shown_deadline = self.shown_deadline_ms.map(Duration::from_millis);
    }

    /// Sets whether time may explain the result. Time explains neither corrupted memory nor a second answer.
    fn explained_by(mut self, late: Option<Late>, harm: &[Violation]) -> Self {
        let is_of_time = harm.iter().all(|breach| time_may_explain(breach.kind));
        self.late = late.filter(|late| match self.status {
            Some(Status::Failed) => is_of_time,
            // The check took a late answer for an absent ability.
            Some(Status::Skipped) => *late == Late::Missed,
            _ => false,
        });
        self
    }
}

fn text_of(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or_default()
}

/// Returns the first violation of each kind: the others repeat it for other clients.
fn first_of_each_kind(violations: &[Violation]) -> Vec<&Violation> {
    let mut seen = Vec::new();
    let new = |violation: &&Violation| {
        let is_new = !seen.contains(&violation.kind);
        seen.push(violation.kind);
        is_new
    };
    violations.iter().filter(new).collect()
}

/// Combines a check's outcome with the ledger's violations: `harm` fails the check, `departures` do not.
fn verdict(
    check: &Check,
    outcome: Outcome,
    harm: &[Violation],
    departures: &[Violation],
) -> Result<Verdict, String> {
    let mut harm = first_of_each_kind(harm);
    let mut verdict = Verdict {
        departures: first_of_each_kind(departures)
            .into_iter()
            .map(|departure| Departure::of(departure.kind, departure.text.clone()))
            .collect(),
        ..Verdict::default()
    };
    let (status, message) = match outcome {
        Err(Finding::CannotRun(trouble)) => return Err(trouble),
        Err(Finding::Failed { expected, seen }) => {
            let rule = (check.rule_and_section(), check.harmed);
            (Status::Failed, failure_text(&expected, &seen, rule, &harm))
        }
        Err(Finding::Breach {
            kind,
            harmed,
            expected,
            seen,
        }) => {
            harm.retain(|known| known.kind != kind);
            verdict.cause = Some(name_of(kind));
            let rule = (rule_of(kind), harmed);
            (Status::Failed, failure_text(&expected, &seen, rule, &harm))
        }
        _ if !harm.is_empty() => {
            let first = harm.remove(0);
            verdict.cause = Some(name_of(first.kind));
            let rule = (rule_of(first.kind), first.harmed);
            let expected = "no violation of the contract";
            (
                Status::Failed,
                failure_text(expected, &first.text, rule, &harm),
            )
        }
        Err(Finding::Warned(text)) => (Status::Warned, text),
        Err(Finding::Skipped(text)) => (Status::Skipped, text),
        Err(Finding::Blocked(ability)) => {
            verdict.blocked_by = Some(ability);
            (Status::Blocked, blocked(ability))
        }
        Ok(()) => (Status::Passed, String::new()),
    };
    verdict.status = Some(status);
    verdict.message = message;
    Ok(verdict)
}

/// Returns the message of a blocked check.
pub(super) fn blocked(ability: Ability) -> String {
    format!("not run: it needs the ability {ability}, which is missing")
}

/// Returns the rule of a violation with the section of CHECKS.md.
fn rule_of(kind: ViolationKind) -> String {
    format!("{} (CHECKS.md, violations)", kind.rule())
}

/// Describes a failure. `also` lists further violations in the ledger.
pub(super) fn failure_text(
    expected: &str,
    seen: &str,
    (rule, harmed): (String, impl fmt::Display),
    also: &[&Violation],
) -> String {
    let mut text =
        format!("expected: {expected}\n  seen: {seen}\n  rule: {rule}\n  affects: {harmed}");
    for breach in also {
        text += &format!("\n  also: {}", breach.text);
    }
    text
}
