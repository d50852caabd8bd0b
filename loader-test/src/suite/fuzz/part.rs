//! What one copy of the process does: it plays a sequence, and leaves its result in its folder.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;
use std::time::Duration;

use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::stdio::{dup2_stderr, dup2_stdout};
use serde::{Deserialize, Serialize};

use super::growth;
use super::orders::{Cause, Failure};
use super::pool::Job;
use super::stage::Stage;
use crate::stand_in::ledger::{Harmed, Violation};
use crate::stand_in::library::LoadError;
use crate::stand_in::sequence;
use crate::suite::bench::judge;

/// The exit code of a copy that has left a result.
pub(super) const PLAYED: i32 = 0;
const RESULT: &str = "result.json";
const OUTPUT: &str = "output";
/// The files of the stand-in core's recorder: the next core goes on with what it finds.
const RECORDED: [&str; 2] = ["calls", "log"];
/// Bytes of a provider's output that are kept.
const KEPT_OUTPUT: u64 = 16 << 10;
/// How long a sequence may take, apart from waiting for lost answers.
const TIME_LIMIT: Duration = Duration::from_secs(20);

/// How a sequence ended.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Part {
    /// Well.
    Passed,
    /// It did not.
    Failed(Failure),
    /// The harness itself could not go on.
    Trouble(String),
}

/// How long a copy may take.
pub(super) fn time_limit(job: &Job) -> Duration {
    TIME_LIMIT + 2 * job.patience
}

/// Plays the sequence in this process; the exit code.
pub(super) fn play(stage: &Stage, job: &Job, folder: &Path) -> i32 {
    let part = match set_up(folder) {
        Ok(()) => judge_sequence(stage, job, folder),
        Err(error) => Part::Trouble(error.to_string()),
    };
    let written = serde_json::to_vec(&part)
        .map_err(io::Error::from)
        .and_then(|text| fs::write(folder.join(RESULT), text));
    match written {
        Ok(()) => PLAYED,
        // Without a result it counts as ended by itself.
        Err(_) => PLAYED + 1,
    }
}

/// Whatever happens, the copy ends with its parent; what the provider writes goes to a file.
fn set_up(folder: &Path) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let path = folder.join(OUTPUT);
    let output = File::create(&path)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    dup2_stdout(&output)?;
    dup2_stderr(&output)?;
    Ok(())
}

fn judge_sequence(stage: &Stage, job: &Job, folder: &Path) -> Part {
    let mut core = match stage.core(folder) {
        Ok(core) => core,
        Err(LoadError::NoCore(trouble)) => return Part::Trouble(trouble),
        Err(error) => {
            return Part::Failed(failure(Cause::Panic, error.to_string(), Harmed::Operator));
        }
    };
    core.patience = core.deadline() + job.patience;
    let actions = &job.sequence.actions;
    let violations = match job.sequence.repeated {
        false => sequence::play(&mut core, actions),
        true => match growth::play(&mut core, actions) {
            Ok(violations) => violations,
            Err(seen) => {
                let message = format!(
                    "expected: no memory lost when the same happens again\nseen: {seen}\n\
                     harmed: {}",
                    Harmed::Daemon
                );
                return Part::Failed(failure(Cause::Leak, message, Harmed::Daemon));
            }
        },
    };
    // The process ends without it.
    std::mem::forget(core);
    match judge(violations).0.split_first() {
        Some((first, rest)) => Part::Failed(of_violations(first, rest)),
        None => Part::Passed,
    }
}

fn of_violations(first: &Violation, rest: &[Violation]) -> Failure {
    let mut message = format!(
        "expected: no breach of the contract\nseen: {}\nrule: {} (CHECKS.md, breaches)\nharmed: {}",
        first.text,
        first.kind.rule(),
        first.harmed
    );
    let mut told = vec![first.kind];
    for other in rest {
        if !told.contains(&other.kind) {
            told.push(other.kind);
            message += &format!("\nalso: {}", other.text);
        }
    }
    failure(Cause::Violation(first.kind), message, first.harmed)
}

fn failure(cause: Cause, message: String, harmed: Harmed) -> Failure {
    Failure {
        cause,
        message,
        harmed,
        log: Vec::new(),
        output: String::new(),
    }
}

/// The result that a copy has left.
pub(super) fn result(folder: &Path) -> Option<Part> {
    serde_json::from_slice(&fs::read(folder.join(RESULT)).ok()?).ok()
}

/// The beginning of what the provider wrote.
pub(super) fn output(folder: &Path) -> String {
    let mut bytes = Vec::new();
    if let Ok(file) = File::open(folder.join(OUTPUT)) {
        // What cannot be read back is not shown; the result does not depend on it.
        let _ = file.take(KEPT_OUTPUT).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Removes what the next sequence must not find.
pub(super) fn forget(folder: &Path) {
    for name in [RESULT].into_iter().chain(RECORDED) {
        // Not every one is there.
        let _ = fs::remove_file(folder.join(name));
    }
}
