//! Tests `fuzz` on correct providers and on planted faults.

#[path = "../faults/compiler.rs"]
#[allow(dead_code, reason = "part of it serves other tests")]
mod compiler;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;

/// More than any of the faults needs on a busy machine.
const LIMIT: &str = "300s";

/// The output of a run.
struct Run {
    folder: TempDir,
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Run {
    /// The report in JSON.
    fn json(&self) -> Value {
        let text = fs::read(self.folder.path().join("report.json")).unwrap();
        serde_json::from_slice(&text).unwrap()
    }

    /// The file that repeats the failure.
    fn replay(&self) -> PathBuf {
        self.folder.path().join("found.json")
    }

    /// What failed.
    fn found(&self) -> Value {
        assert_eq!(self.code, Some(1), "{}{}", self.stdout, self.stderr);
        self.json()["found"].clone()
    }
}

fn fuzz(library: &Path, arguments: &[&str]) -> Run {
    let folder = tempfile::tempdir().unwrap();
    let output = |file: &str| folder.path().join(file);
    let Output {
        status,
        stdout,
        stderr,
    } = Command::new(env!("CARGO_BIN_EXE_loader-test"))
        .arg("fuzz")
        .arg(library)
        .args(arguments)
        .arg("--json")
        .arg(output("report.json"))
        .arg("--output")
        .arg(output("found.json"))
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Run {
        folder,
        code: status.code(),
        stdout: text(stdout),
        stderr: text(stderr),
    }
}

/// A provider's source with texts replaced.
fn with(name: &str, good: &str, replace: &[(&str, &str)]) -> PathBuf {
    let mut faulty = good.to_owned();
    for (from, to) in replace {
        assert_eq!(faulty.matches(from).count(), 1, "{name}: {from:?}");
        faulty = faulty.replace(from, to);
    }
    compiler::compile(name, &faulty)
}

/// Looks for a fault in the SA provider until it is found, and repeats it from the file: the first run's report.
fn finds(name: &str, replace: &[(&str, &str)], causes: &[Value]) -> Value {
    let library = with(name, &compiler::sa_provider(), replace);
    let run = fuzz(&library, &["--seed", "1", "--for", LIMIT]);
    let found = run.found();
    let cause = &found["failure"]["cause"];
    assert!(causes.contains(cause), "{name}: {cause}: {}", run.stdout);
    println!(
        "{name}: found after {} ms, shrunk after {} ms to {} of {} actions, fails {} times of {}",
        found["found_after_ms"],
        found["shrunk_after_ms"],
        found["actions"].as_array().unwrap().len(),
        found["unshrunk"].as_array().unwrap().len(),
        found["fails"],
        found["of"]
    );
    let replay = run.replay();
    let replay = replay.to_str().unwrap();
    let again = fuzz(&library, &["--replay", replay, "--for", LIMIT]);
    let cause = &again.found()["failure"]["cause"];
    assert!(
        causes.contains(cause),
        "{name}, again: {cause}: {}",
        again.stdout
    );
    found
}

/// A crash, or what damaged memory looks like otherwise.
fn damage() -> Vec<Value> {
    let mut causes = vec![json!({ "exit": 1 })];
    for signal in ["SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE"] {
        causes.push(json!({ "signal": signal }));
    }
    causes
}

/// Requests are taken up without the lock: the SA's answers come at the same time.
#[test]
fn a_race_is_found() {
    let begin = "\tpthread_mutex_lock(&lock);\n\tep->counters[ACM_CNTR_RESOLVE]++;\n";
    let end = "nodelay, false, &done);\n\t}\n\tpthread_mutex_unlock(&lock);\n";
    let mut causes = damage();
    causes.push(json!({ "violation": "answered-twice" }));
    causes.push(json!({ "violation": "never-answered" }));
    // Two threads write one path.
    causes.push(json!({ "violation": "wrong-answer" }));
    causes.push(json!("hangs"));
    finds(
        "fuzz-race",
        &[
            (begin, "\tep->counters[ACM_CNTR_RESOLVE]++;\n"),
            (end, "nodelay, false, &done);\n\t}\n"),
        ],
        &causes,
    );
}

/// The provider does not free a refused request.
#[test]
fn a_leak_is_found() {
    let found = finds(
        "fuzz-leak",
        &[(
            "\t\tsend_answer(request);\n\t\tfree(request);\n",
            "\t\tsend_answer(request);\n\t\tif (request->status != ACM_STATUS_ENODATA)\n\t\t\tfree(request);\n",
        )],
        &[json!("leak")],
    );
    assert_eq!(found["repeated"], true);
}

/// The provider trusts the destination's index.
#[test]
fn an_index_out_of_bounds_is_found() {
    finds(
        "fuzz-index",
        &[(
            "\tif (msg->hdr.dst_index >= entries)\n\t\treturn ACM_STATUS_EINVAL;\n",
            "",
        )],
        &damage(),
    );
}

/// A request for a missing path is never answered.
#[test]
fn a_lost_answer_is_found() {
    finds(
        "fuzz-lost",
        &[(
            "\t\tpath->state = NONE;\n\t\tpath->until = now + NONE_FOR_MS;\n",
            "\t\tpath->state = NONE;\n\t\tpath->until = now + NONE_FOR_MS;\n\t\tTAILQ_INIT(&path->waiters);\n",
        )],
        &[json!({ "violation": "never-answered" })],
    );
}

/// The cache survives a reregistration.
#[test]
fn a_wrong_answer_after_an_event_is_found() {
    let found = finds(
        "fuzz-stale",
        &[("\t\tdrop_paths(ep);\n\t\tjoin_anew(", "\t\tjoin_anew(")],
        &[json!({ "violation": "wrong-answer" })],
    );
    let actions = found["actions"].to_string();
    assert!(actions.contains("peer-moves"), "{actions}");
}

#[test]
fn what_is_found_is_shrunk_and_told() {
    // A crash that needs no race: what fails once fails again, so that each action can be left out to see if it matters.
    let library = with(
        "fuzz-crash",
        &compiler::sa_provider(),
        &[(
            "\tif (type != IBV_EVENT_CLIENT_REREGISTER)\n",
            "\tif (type == IBV_EVENT_CLIENT_REREGISTER)\n\t\tabort();\n\telse\n",
        )],
    );
    let run = fuzz(&library, &["--seed", "1", "--for", LIMIT]);
    let found = run.found();
    assert_eq!(found["failure"]["status"], "crashed");
    assert_eq!(found["failure"]["cause"], json!({ "signal": "SIGABRT" }));
    assert_eq!(found["fails"], found["of"]);
    assert_eq!(found["shrunk"], true);
    let actions = found["actions"].as_array().unwrap();
    assert_eq!(actions.len(), 2, "{actions:?}");
    assert_eq!(actions[0], "up");
    for part in [
        "crashed\n",
        "the shortest failing sequence:\n  Up\n",
        "inside handle_event",
        "again: ",
        "--replay ",
    ] {
        assert!(run.stdout.contains(part), "{part:?} in\n{}", run.stdout);
    }
    // The seed alone also reproduces it.
    let seed = found["seed"].to_string();
    let again = fuzz(&library, &["--seed", &seed, "--runs", "1"]);
    assert_eq!(again.found()["unshrunk"], found["unshrunk"]);
}

/// One process plays several sequences. What fails only after others is told with them, and the file repeats them.
#[test]
fn what_fails_after_others_is_told_with_them() {
    let library = with(
        "fuzz-after",
        &compiler::sa_provider(),
        &[(
            "static int open_device(const struct acm_device *acm, void **dev_context)\n{\n",
            "static int open_device(const struct acm_device *acm, void **dev_context)\n{\n\tstatic int opens;\n\n\tif (++opens > 9)\n\t\tabort();\n",
        )],
    );
    let run = fuzz(&library, &["--seed", "1", "--jobs", "4", "--for", LIMIT]);
    let found = run.found();
    assert_eq!(found["failure"]["cause"], json!({ "signal": "SIGABRT" }));
    assert_eq!(found["fails"], found["of"]);
    let after = found["after"].as_array().unwrap();
    assert!(!after.is_empty(), "{found}");
    let told = format!("only after the sequences of the seeds {}", after[0]);
    assert!(run.stdout.contains(&told), "{}", run.stdout);
    let replay = run.replay();
    let again = fuzz(&library, &["--replay", replay.to_str().unwrap()]);
    assert_eq!(again.found()["after"], found["after"]);
}

#[test]
fn time_that_is_over_ends_shrinking() {
    let library = with(
        "fuzz-at-once",
        &compiler::sa_provider(),
        &[(
            "static int open_device(const struct acm_device *acm, void **dev_context)\n{\n",
            "static int open_device(const struct acm_device *acm, void **dev_context)\n{\n\tabort();\n",
        )],
    );
    let run = fuzz(&library, &["--seed", "1", "--for", "0s"]);
    let found = run.found();
    assert_eq!(found["shrunk"], false);
    assert_eq!(found["actions"], found["unshrunk"]);
    assert!(
        run.stdout.contains("so far; --replay continues"),
        "{}",
        run.stdout
    );
    // With time enough, the file is where it goes on.
    let replay = run.replay();
    let replay = replay.to_str().unwrap();
    let again = fuzz(&library, &["--replay", replay, "--for", LIMIT]);
    assert_eq!(again.found()["actions"], json!(["up"]));
}

#[test]
fn what_a_datagram_does_is_found() {
    let text = "\tif (!is_well_formed(mad) || ";
    let library = with(
        "fuzz-datagram",
        &compiler::mcast_provider(),
        &[(
            text,
            "\tif (mad->mgmt_class == ACM_CLASS && mad->control != ACM_RESOLVE)\n\t\tabort();\n\tif (!is_well_formed(mad) || ",
        )],
    );
    let run = fuzz(&library, &["--seed", "1", "--for", LIMIT]);
    let found = run.found();
    assert_eq!(found["failure"]["status"], "crashed");
    assert!(found["actions"].to_string().contains("datagram"));
}

#[test]
fn nothing_is_found_in_good_providers() {
    for good in [compiler::good(), compiler::good_mcast()] {
        let run = fuzz(&good, &["--seed", "1000", "--runs", "300", "--for", LIMIT]);
        assert_eq!(run.code, Some(0), "{}{}", run.stdout, run.stderr);
        let report = run.json();
        assert_eq!(report["sequences"], 300);
        assert_eq!(report["found"], Value::Null);
        assert_eq!(report["loads_anew"], Value::Null);
    }
}

/// A thread that loading starts is in no copy of the process, so the copies load the library themselves.
#[test]
fn what_starts_threads_when_it_is_loaded_is_loaded_for_each_sequence() {
    let begin = "__attribute__((visibility(\"default\")))\nint provider_query(";
    let thread = "static int threads;\n\
        static void *lives_on(void *unused)\n{\n\t__atomic_add_fetch(&threads, 1, __ATOMIC_SEQ_CST);\n\tfor (;;)\n\t\tpause();\n\treturn unused;\n}\n\
        __attribute__((constructor)) static void starts(void)\n{\n\tpthread_t thread;\n\
        \tpthread_create(&thread, NULL, lives_on, NULL);\n\twhile (!__atomic_load_n(&threads, __ATOMIC_SEQ_CST))\n\t\t;\n}\n";
    let library = with(
        "fuzz-thread",
        &compiler::sa_provider(),
        &[
            (
                "#include <arpa/inet.h>\n",
                "#include <arpa/inet.h>\n#include <unistd.h>\n",
            ),
            (begin, &format!("{thread}\n{begin}")),
        ],
    );
    let run = fuzz(&library, &["--seed", "1", "--runs", "20", "--for", LIMIT]);
    assert_eq!(run.code, Some(0), "{}{}", run.stdout, run.stderr);
    assert!(run.json()["loads_anew"].is_string());
    assert!(
        run.stdout.contains("it starts threads when it is loaded"),
        "{}",
        run.stdout
    );
}

#[test]
fn a_file_that_is_no_sequence_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let sequence = json!({ "seed": 1, "repeated": false, "actions": ["up"] });
    let later = json!({ "version": 2, "sequence": sequence, "options": [], "failure": "" });
    for (path, says) in [
        (folder.path().join("missing"), "missing"),
        (file("words", "words"), "words"),
        (file("later", &later.to_string()), "version 2"),
    ] {
        let run = fuzz(&compiler::good(), &["--replay", path.to_str().unwrap()]);
        assert_eq!(run.code, Some(2), "{}{}", run.stdout, run.stderr);
        assert!(run.stderr.contains(says), "{}", run.stderr);
    }
}
