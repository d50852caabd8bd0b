//! The suite under valgrind, in one process.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Checks that need a fast process, or inspect the whole process.
const LEFT_OUT: &str = "^(load|process)-|^hostile-random$|^resolve-(many|memory)$|-thousand$|-core-thread$|^wire-(flood|many|long|retries|stock)";

/// Returns valgrind's errors about a provider's memory in the checks whose names match; `source` is part of the name of its
/// source file.
pub fn errors(library: &Path, source: &str, checks: &str) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = |name: &str| folder.path().join(name);
    let (log, opts, json) = (file("valgrind"), file("opts"), file("json"));
    fs::write(&opts, "sa_example_join yes\n").expect("an options file");
    let output = Command::new("valgrind")
        .args(["--leak-check=full", "--show-leak-kinds=definite,indirect"])
        .arg(format!("--log-file={}", log.display()))
        .arg(env!("CARGO_BIN_EXE_loader-test"))
        .args(["check", "--in-process", "--strict", "--skip", LEFT_OUT])
        .args(["--only", checks, "--opts"])
        .arg(&opts)
        .arg("--json")
        .arg(&json)
        .arg(library)
        .output()
        .unwrap_or_else(|error| panic!("valgrind: {error}; install the Debian package valgrind"));
    let results = fs::read_to_string(&json).unwrap_or_else(|error| {
        panic!("{error}: {}", String::from_utf8_lossy(&output.stderr));
    });
    assert_most_pass(&serde_json::from_str(&results).expect("JSON"));
    let text = fs::read_to_string(&log).expect("valgrind's log");
    assert!(text.contains("ERROR SUMMARY"), "{text}");
    paragraphs(&text)
        .filter(|error| concerns(error, source))
        .collect()
}

/// Expects all checks to end, so that valgrind ran their code. Valgrind is slow: a check may miss a deadline here; the plain
/// runs of the suite judge the verdicts.
fn assert_most_pass(results: &Value) {
    let results = results["libraries"][0]["checks"]
        .as_array()
        .expect("a list of checks");
    let with = |status: &str| {
        results
            .iter()
            .filter(|result| result["status"] == status)
            .count()
    };
    let (passed, skipped) = (with("passed"), with("skipped"));
    let others: Vec<&Value> = results
        .iter()
        .filter(|result| result["status"] != "passed" && result["status"] != "skipped")
        .collect();
    assert!(
        passed > 0 && others.len() * 10 <= results.len() - skipped,
        "{passed} passed; these did not: {others:#?}"
    );
    let crashed = others.iter().find(|result| result["status"] == "crashed");
    assert_eq!(crashed, None);
}

/// The errors of a log: lines of one process up to an empty one.
fn paragraphs(log: &str) -> impl Iterator<Item = String> {
    let mut all = vec![String::new()];
    for line in log.lines() {
        // ==PID== text
        let text = line.splitn(3, "==").nth(2).unwrap_or_default().trim_end();
        match (text.is_empty(), all.last_mut()) {
            (false, Some(last)) => {
                last.push_str(text);
                last.push('\n');
            }
            _ => all.push(String::new()),
        }
    }
    all.into_iter()
        .filter(|paragraph| paragraph.contains(" 0x"))
}

/// Part of the names of the harness's functions.
const CORE: [&str; 2] = ["loader_test", "acm_stand_in"];

/// Whether an error is the provider's: a bad access with the provider anywhere in the stack, or a block that was allocated by
/// the provider itself and not by the core on its behalf (which keeps MADs on purpose).
fn concerns(error: &str, source: &str) -> bool {
    let mut frames = error.lines().filter(|line| line.contains(" 0x"));
    if error.contains(" lost in loss record ") {
        let owner = frames
            .find(|frame| frame.contains(source) || CORE.iter().any(|core| frame.contains(core)));
        owner.is_some_and(|frame| frame.contains(source))
    } else {
        frames.any(|frame| frame.contains(source))
    }
}

#[test]
#[should_panic(expected = "these did not")]
fn a_run_in_which_many_checks_fail_is_no_look_at_memory() {
    assert_most_pass(&results(&["passed", "skipped", "failed"]));
}

#[test]
#[should_panic(expected = "crashed")]
fn a_run_in_which_a_check_crashes_is_no_look_at_memory() {
    assert_most_pass(&results(&[&["passed"; 20][..], &["crashed"]].concat()));
}

fn results(statuses: &[&str]) -> Value {
    let checks: Vec<Value> = statuses
        .iter()
        .map(|status| serde_json::json!({ "status": status }))
        .collect();
    serde_json::json!({ "libraries": [{ "checks": checks }] })
}
