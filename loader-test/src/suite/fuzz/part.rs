//! Runs one fork of the process: it plays its sequences until one fails, and stores its result in its folder.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::stdio::{dup2_stderr, dup2_stdout};
use serde::{Deserialize, Serialize};

use super::growth;
use super::orders::{Cause, Failure, Sequence};
use super::pool::Job;
use super::round::{round, wind_up};
use super::stage::Stage;
use crate::stand_in::ledger::{Harmed, Violation};
use crate::stand_in::library::LoadError;
use crate::stand_in::{FIRST_PORT, StandIn, recorder, sequence};
use crate::suite::fixture::judge;

/// The exit code of a fork with a result.
pub(super) const PLAYED: i32 = 0;
const RESULT: &str = "result.json";
const OUTPUT: &str = "output";
/// The file with a byte for each started sequence.
const BEGUN: &str = "begun";
/// The files of the stand-in core's recorder, which the next core would continue.
const RECORDED: [&str; 2] = ["calls", "log"];
/// Bytes of a provider's output to keep.
const KEPT_OUTPUT: u64 = 16 << 10;
/// Time limit of a sequence, without the wait for lost answers.
const TIME_LIMIT: Duration = Duration::from_secs(20);

/// How a sequence ended.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Part {
    /// It passed.
    Passed,
    /// It failed.
    Failed(Failure),
    /// The harness failed.
    Trouble(String),
}

/// Returns a fork's time limit for one sequence.
pub(super) fn time_limit(job: &Job) -> Duration {
    TIME_LIMIT + 2 * job.patience
}

/// Plays the sequences in this process, and returns the exit code.
pub(super) fn play(stage: &Stage, job: &Job, folder: &Path) -> i32 {
    let part = match set_up(folder) {
        Ok(output) => judge_sequences(stage, job, folder, &output),
        Err(error) => Part::Trouble(error.to_string()),
    };
    let written = serde_json::to_vec(&part)
        .map_err(io::Error::from)
        .and_then(|text| fs::write(folder.join(RESULT), text));
    match written {
        Ok(()) => PLAYED,
        // Without a result the fork counts as ended by the provider.
        Err(_) => PLAYED + 1,
    }
}

/// Makes the fork end with its parent, and redirects the provider's output to a file.
fn set_up(folder: &Path) -> io::Result<File> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let path = folder.join(OUTPUT);
    // In append mode, so that the file can be truncated while open.
    let mut options = OpenOptions::new();
    let output = options
        .create(true)
        .append(true)
        .open(&path)
        .and_then(|output| output.set_len(0).map(|()| output))
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    dup2_stdout(&output)?;
    dup2_stderr(&output)?;
    Ok(output)
}

fn judge_sequences(stage: &Stage, job: &Job, folder: &Path, output: &File) -> Part {
    let mut core = match stage.core(folder) {
        Ok(core) => core,
        Err(LoadError::NoCore(trouble)) => return Part::Trouble(trouble),
        Err(error) => {
            return Part::Failed(failure(Cause::Panic, error.to_string(), Harmed::Operator));
        }
    };
    core.patience = core.deadline() + job.patience;
    let before = core.port(FIRST_PORT).clone();
    let mut failed = None;
    for (index, sequence) in job.sequences.iter().enumerate() {
        if let Err(error) = begin(folder, output, index) {
            return Part::Trouble(error.to_string());
        }
        // A failure after the end of a sequence counts for the next one.
        let wound_up = (index > 0).then(|| wind_up(&mut core, &before));
        failed = wound_up
            .and_then(judged)
            .or_else(|| judge_sequence(&mut core, sequence));
        if failed.is_some() {
            break;
        }
    }
    // The process ends without it.
    std::mem::forget(core);
    failed.map_or(Part::Passed, Part::Failed)
}

/// Records in the folder that the next sequence starts, and removes the files of earlier ones.
fn begin(folder: &Path, output: &File, index: usize) -> io::Result<()> {
    let path = folder.join(BEGUN);
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let mut options = OpenOptions::new();
    let begun = options.create(true).append(true).open(&path);
    begun
        .and_then(|mut file| file.write_all(b"."))
        .map_err(named)?;
    if index > 0 {
        output.set_len(0).map_err(named)?;
        recorder::forget_log(folder).map_err(named)?;
    }
    Ok(())
}

fn judged(violations: Vec<Violation>) -> Option<Failure> {
    let violations = judge(violations).0;
    let (first, rest) = violations.split_first()?;
    Some(of_violations(first, rest))
}

fn judge_sequence(core: &mut StandIn, sequence: &Sequence) -> Option<Failure> {
    for seed in &sequence.after {
        let failed = judged(round(core, &sequence::from_seed(*seed)));
        if failed.is_some() {
            return failed;
        }
    }
    let actions = &sequence.actions;
    match sequence.repeated {
        true => match growth::play(core, actions) {
            Ok(violations) => judged(violations),
            Err(seen) => {
                let message = format!(
                    "expected: no leak when the sequence is repeated\nseen: {seen}\n\
                     affects: {}",
                    Harmed::Daemon
                );
                Some(failure(Cause::Leak, message, Harmed::Daemon))
            }
        },
        false => judged(sequence::play(core, actions)),
    }
}

fn of_violations(first: &Violation, rest: &[Violation]) -> Failure {
    let mut message = format!(
        "expected: no violation of the contract\nseen: {}\nrule: {} (CHECKS.md, violations)\naffects: {}",
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

/// Reads a fork's result.
pub(super) fn result(folder: &Path) -> Option<Part> {
    serde_json::from_slice(&fs::read(folder.join(RESULT)).ok()?).ok()
}

/// Returns which sequence a fork started last, and how long ago.
pub(super) fn at(folder: &Path) -> (usize, Duration) {
    let Ok(begun) = fs::metadata(folder.join(BEGUN)) else {
        return (0, Duration::MAX);
    };
    let since = begun
        .modified()
        .ok()
        .and_then(|since| SystemTime::now().duration_since(since).ok());
    let index = (begun.len() as usize).saturating_sub(1);
    (index, since.unwrap_or_default())
}

/// Returns the start of the provider's output.
pub(super) fn output(folder: &Path) -> String {
    let mut bytes = Vec::new();
    if let Ok(file) = File::open(folder.join(OUTPUT)) {
        // The result does not depend on the output: ignore read errors.
        let _ = file.take(KEPT_OUTPUT).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Removes the files that would disturb the next sequence.
pub(super) fn forget(folder: &Path) {
    for name in [RESULT, BEGUN].into_iter().chain(RECORDED) {
        // Some may not exist.
        let _ = fs::remove_file(folder.join(name));
    }
}
