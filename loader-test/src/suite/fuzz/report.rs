//! The command's output: text, JSON, and a file that replays a failure.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::orders::{Failure, Found, Orders, REPLAY_VERSION, ReplayFile, Results, Sequence, Task};
use crate::stand_in::recorder::printable;
use crate::suite::progress::{program, quoted};
use crate::words::counted;

/// The layout of the JSON report.
const SCHEMA: u32 = 1;
/// Lines of a provider's output to show.
const SHOWN_OUTPUT: usize = 10;

/// The run.
pub(super) struct Run<'a> {
    pub library: &'a Path,
    pub task: &'a Task,
    /// The option `--opts` of the run, with a blank before it.
    pub again: &'a str,
    /// The file that replays the failure.
    pub replay: Option<&'a Path>,
}

/// Returns the results as text.
pub(super) fn in_words(run: &Run<'_>, results: &Results) -> String {
    let mut text = String::new();
    if let Some(why) = &results.loads_anew {
        text += &format!("each sequence loads the library anew: {why}\n");
    }
    for (seed, failure) in &results.not_again {
        let seen = seen(failure);
        text += &format!("seed {seed}: not seen again when nothing else was played: {seen}\n");
    }
    let sequences = counted(results.sequences as usize, "sequence");
    let seconds = seconds(results.searched);
    let rate = results.sequences as f64 / results.searched.as_secs_f64().max(0.001);
    let played = match run.task {
        Task::Search { first, .. } => format!("{sequences} from seed {first}"),
        Task::Replay { .. } => format!("the sequence played {} times", results.sequences),
    };
    let played = format!("{played} in {seconds}, {rate:.0} a second");
    match (&results.found, run.replay) {
        (Some(found), Some(replay)) => {
            let Sequence { seed, .. } = found.original;
            text += &format!("seed {seed}: {}\n", found.failure.cause.status());
            text += &of_found(found);
            let program = program();
            let library = quoted(run.library);
            text += &format!(
                "  again: {program} fuzz {library} --replay {}{}\n",
                quoted(replay),
                run.again
            );
            if matches!(run.task, Task::Search { .. }) && found.shortest.after.is_empty() {
                text += &format!(
                    "  unshrunk: {program} fuzz {library} --seed {seed} --runs 1{}\n",
                    run.again
                );
            }
            text += &format!("{played}, one failed\n");
        }
        _ => text += &format!("{played}, nothing failed\n"),
    }
    text
}

fn of_found(found: &Found) -> String {
    let mut text = match found.is_shrunk {
        true => "the shortest failing sequence".to_owned(),
        false => "the shortest failing sequence so far; --replay continues".to_owned(),
    };
    if found.shortest.repeated {
        text += ", played repeatedly";
    }
    if !found.shortest.after.is_empty() {
        let seeds: Vec<String> = found.shortest.after.iter().map(u64::to_string).collect();
        text += ", and only after the sequences of the seeds ";
        text += &seeds.join(", ");
        text += " in the same process";
    }
    text += ":\n";
    for action in &found.shortest.actions {
        text += &format!("  {action:?}\n");
    }
    text += "ends so:\n";
    for line in found.failure.message.lines() {
        text += &format!("  {}\n", printable(line));
    }
    let output: Vec<&str> = found.failure.output.lines().collect();
    let output = output[output.len().saturating_sub(SHOWN_OUTPUT)..].iter();
    let output = output.map(|line| printable(line).chars().take(400).collect());
    for (title, lines) in [
        ("log", found.failure.log.clone()),
        ("output", output.collect()),
    ] {
        if !lines.is_empty() {
            text += &format!("  the end of the provider's {title}:\n");
        }
        for line in lines {
            text += &format!("    {line}\n");
        }
    }
    let (failed, played) = found.fails;
    text += &format!(
        "  found after {}, shrunk after {}; fails {failed} times of {played}\n",
        seconds(found.found_after),
        seconds(found.shrunk_after)
    );
    text
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

/// Returns the failure in one line.
fn seen(failure: &Failure) -> String {
    let lines = failure.message.lines();
    let seen = lines.filter_map(|line| line.strip_prefix("seen: "));
    printable(&seen.collect::<Vec<_>>().join(" "))
}

/// Returns the file that replays a failure.
pub(super) fn replay_file(found: &Found, options: &[String]) -> ReplayFile {
    ReplayFile {
        version: REPLAY_VERSION,
        sequence: found.shortest.clone(),
        options: options.to_vec(),
        failure: found.failure.message.clone(),
    }
}

/// Returns the results as JSON.
pub(super) fn as_json(library: &Path, orders: &Orders, results: &Results) -> Value {
    let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let failure = |failure: &Failure| {
        json!({
            "status": failure.cause.status(),
            "cause": failure.cause,
            "message": failure.message,
            "harmed": failure.harmed,
            "log": failure.log,
            "output": failure.output,
        })
    };
    let found = results.found.as_ref().map(|found| {
        json!({
            "seed": found.original.seed,
            "failure": failure(&found.failure),
            "repeated": found.shortest.repeated,
            "after": found.shortest.after,
            "actions": found.shortest.actions,
            "unshrunk": found.original.actions,
            "found_after_ms": milliseconds(found.found_after),
            "shrunk_after_ms": milliseconds(found.shrunk_after),
            "shrunk": found.is_shrunk,
            "fails": found.fails.0,
            "of": found.fails.1,
        })
    });
    let not_again: Vec<Value> = results
        .not_again
        .iter()
        .map(|(seed, seen)| json!({ "seed": seed, "failure": failure(seen) }))
        .collect();
    let first = match orders.task {
        Task::Search { first, .. } => Some(first),
        Task::Replay { .. } => None,
    };
    json!({
        "schema": SCHEMA,
        "library": library,
        "options": orders.options,
        "seed": first,
        "jobs": orders.jobs,
        "sequences": results.sequences,
        "searched_ms": milliseconds(results.searched),
        "loads_anew": results.loads_anew,
        "not_seen_again": not_again,
        "found": found,
    })
}
