//! The contents of a result: enough to find the fault and to reproduce it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use acm_prov_api::ProviderFault;
use loader_test::suite::all;

use crate::bench::{self, Run, bad, changed, check, good, loader_test, run};
use crate::schema;

/// The good provider that reports a fault of its own before each answer, as the SDK does.
fn reports(name: &str, fault: ProviderFault, text: &str) -> PathBuf {
    let kind = fault.0;
    changed(
        name,
        "\t\tacm_resolve_response(request->id, &msg);\n",
        &format!(
            "\t\textern void acm_provider_fault(int kind, const char *text);\n\
             \t\tacm_provider_fault({kind}, \"{text}\");\n\
             \t\tacm_resolve_response(request->id, &msg);\n"
        ),
        "static void take_number(",
        "static void take_number(",
    )
}

fn of(arguments: &[&str], library: &Path) -> Run {
    let mut command = loader_test(arguments);
    command.arg(library);
    run(command)
}

#[test]
fn a_panic_that_the_sdk_caught_fails_every_command() {
    let library = reports(
        "caught-panic",
        ProviderFault::CAUGHT_PANIC,
        "resolve: panic: index out of bounds (at src/lib.rs:7:9); the provider goes on",
    );
    let checked = check(&library, "^resolve-by-lid$", &[]);
    assert_eq!(checked.status("resolve-by-lid"), "failed");
    for part in [
        "src/lib.rs:7:9",
        "rule: a provider does not panic",
        "affects: a client",
    ] {
        assert!(
            checked.message("resolve-by-lid").contains(part),
            "{part}: {checked:?}"
        );
    }
    let trace = bench::file("caught-panic.json");
    let traced = of(&["trace", "-o", trace.to_str().unwrap()], &library);
    assert!(
        traced.code == 1 && traced.stdout.contains("src/lib.rs:7:9"),
        "{traced:?}"
    );
    let found = bench::file("caught-panic-fuzz.json");
    let found = ["--output", found.to_str().unwrap()];
    let fuzzed = of(
        &[&["fuzz", "--seed", "1", "--runs", "5"], &found[..]].concat(),
        &library,
    );
    assert!(
        fuzzed.code == 1 && fuzzed.stdout.contains("src/lib.rs:7:9"),
        "{fuzzed:?}"
    );
}

#[test]
fn a_request_that_was_dropped_is_a_warning() {
    let library = reports(
        "dropped",
        ProviderFault::DROPPED_REQUEST,
        "resolve: the request for LID 3 was dropped unanswered; answering ENODATA",
    );
    let only = "^resolve-(by-lid|once)$";
    let run = check(&library, only, &[]);
    for name in ["resolve-by-lid", "resolve-once"] {
        assert_eq!(run.status(name), "passed", "{run:?}");
    }
    let breach = run.check("breach-dropped-request");
    assert_eq!(breach["status"], "warned");
    assert_eq!(
        breach["seen_by"],
        serde_json::json!(["resolve-by-lid", "resolve-once"])
    );
    assert!(
        run.message("breach-dropped-request").contains("LID 3"),
        "{run:?}"
    );
    assert!(run.stdout.contains("seen by 2 checks"), "{}", run.stdout);
    assert_eq!(run.code, 0);
    assert_eq!(check(&library, only, &["--strict"]).code, 1);
}

#[test]
fn the_end_of_the_log_is_with_every_failure() {
    let library = bad(
        "refuses",
        &[(
            "QUERY",
            "for (int i = 0; i < 20; i++) acm_log(0, \"attempt %d\\n\", i); \
             acm_log(2, \"a detail\\n\"); acm_log(0, \"no licence\\x1b[31m\\n\"); return -1",
        )],
    );
    let junit = bench::file("refuses.xml");
    let run = check(
        &library,
        "^load-(query|file-name)$",
        &["--junit", junit.to_str().unwrap()],
    );
    schema::assert_valid(&run.json);
    assert_eq!(run.status("load-query"), "failed");
    let log: Vec<_> = run.check("load-query")["log"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| line.as_str().unwrap())
        .collect();
    assert_eq!(log.len(), 10);
    assert!(log[8].ends_with("attempt 19"), "{log:?}");
    assert!(log[9].ends_with("no licence\\u{1b}[31m"), "{log:?}");
    assert_eq!(run.check("load-file-name")["log"], serde_json::json!([]));
    let junit = fs::read_to_string(junit).unwrap();
    for text in [&run.stdout, &junit] {
        assert!(
            text.contains("no licence") && !text.contains("a detail"),
            "{text}"
        );
    }
}

#[test]
fn a_crash_says_where_and_shows_the_last_words() {
    let library = bad(
        "last-words",
        &[("OPEN", "fputs(\"undefined symbol: x\\n\", stderr); abort()")],
    );
    let run = check(&library, "^lifecycle-open-close$", &[]);
    for part in [
        "crashed   ability-opens-port",
        "SIGABRT, inside open_device (device ",
        "rule: ",
        "(CHECKS.md, abilities)",
        "affects: the daemon",
        "    undefined symbol: x",
    ] {
        assert!(run.stdout.contains(part), "{part}: {}", run.stdout);
    }
    let library = bad("crashes-early", &[("LOAD", "abort()")]);
    let run = check(&library, "^load-(exports|name)$", &[]);
    assert!(
        run.message("ability-loads").contains("inside dlopen"),
        "{run:?}"
    );
    assert_eq!(run.status("load-exports"), "passed");
    assert_eq!(run.status("load-name"), "blocked");
}

/// Whether a frame of the library is among the stacks that a result shows.
fn shows_frame(run: &Run, result: &str, function: &str, library: &Path) -> bool {
    let file = library.file_name().unwrap().to_str().unwrap();
    run.check(result)["stacks"]
        .as_array()
        .unwrap()
        .iter()
        .any(|line| {
            let line = line.as_str().unwrap();
            line.contains(function) && line.contains(file)
        })
}

#[test]
fn a_check_that_hangs_shows_all_stacks() {
    let library = bad("hangs-there", &[("OPEN", "for_ever()")]);
    let run = check(&library, "^lifecycle-open-close$", &["--timeout", "1"]);
    let opens = "ability-opens-port";
    for part in [
        "1s, inside open_device (device ",
        "the core hangs in the provider",
        "rule: ",
        "affects: the daemon",
    ] {
        assert!(run.message(opens).contains(part), "{part}: {run:?}");
    }
    assert!(
        shows_frame(&run, opens, "open_device+", &library),
        "{run:?}"
    );
    assert!(
        run.stdout.contains("the stacks of all threads:"),
        "{}",
        run.stdout
    );

    // A thread that takes no signals is left to gdb.
    let deaf = "sigset_t all; sigfillset(&all); sigprocmask(SIG_BLOCK, &all, NULL); for_ever()";
    let library = bad("hangs-deaf", &[("OPEN", deaf)]);
    let run = check(&library, "^lifecycle-open-close$", &["--timeout", "1"]);
    assert!(
        run.stdout.contains("does not answer signals"),
        "{}",
        run.stdout
    );
    if Command::new("gdb").arg("--version").output().is_ok() {
        let is_told = |line: &serde_json::Value| {
            let line = line.as_str().unwrap();
            line.contains("open_device (") && line.contains("libhangs-deaf.so")
        };
        let stacks = run.check(opens)["stacks"].as_array().unwrap();
        assert!(stacks.iter().any(is_told), "{run:?}");
    } else {
        println!("gdb is not installed: its part is not looked at");
    }

    // What waits for a provider that has returned does not blame the call.
    let forgets = changed(
        "forgets",
        "\t\tacm_resolve_response(request->id, &msg);\n",
        "\t\t(void) msg;\n",
        "static void take_number(",
        "static void take_number(",
    );
    let run = check(
        &forgets,
        "^sa-storm$",
        &["--timeout", "1", "--opts", "/dev/null"],
    );
    let by_lid = "ability-answers-by-lid";
    assert_eq!(run.status(by_lid), "timed-out", "{run:?}");
    let message = run.message(by_lid);
    assert!(
        message.contains(", which returned: the check still waited")
            && !message.contains("hangs in the provider"),
        "{message}"
    );
}

#[test]
fn what_breaks_another_rule_is_told_by_that_rule() {
    let silent = changed(
        "silent-resolve",
        "\t\tacm_resolve_response(request->id, &msg);\n",
        "\t\t(void) msg;\n",
        "static void take_number(",
        "static void take_number(",
    );
    let run = check(&silent, "^load-quiet$", &[]);
    for part in [
        "rule: every request gets an answer",
        "(CHECKS.md, violations)",
        "affects: a client",
    ] {
        assert!(run.message("load-quiet").contains(part), "{part}: {run:?}");
    }
    assert!(
        !run.message("load-quiet").contains("standard output"),
        "{run:?}"
    );
    assert_eq!(run.check("load-quiet")["cause"], "never-answered");
}

#[test]
fn a_library_that_does_not_load_is_told_once() {
    let text = bench::file("text.so");
    fs::write(&text, "no library\n").unwrap();
    let no_query = bench::file("libm-copy.so");
    fs::copy("/lib/x86_64-linux-gnu/libm.so.6", &no_query).unwrap();
    let refuses = bad("refuses-to-load", &[("QUERY", "return -1")]);
    let crashes = bad("crashes-in-query", &[("QUERY", "abort()")]);
    for library in [&text, &no_query, &refuses, &crashes] {
        let run = check(library, "", &[]);
        assert_eq!(run.code, 1, "{run:?}");
        schema::assert_valid(&run.json);
        assert_eq!(
            run.names(),
            all().map(|check| check.name).collect::<Vec<_>>()
        );
        for (name, status) in run.statuses() {
            if !name.starts_with("load-") {
                assert_eq!(status, "blocked", "{name}");
                assert_eq!(
                    run.message(&name),
                    "not run: it needs the ability loads, which is missing"
                );
            }
        }
        assert!(!run.stdout.contains("resolve-by-lid "), "{}", run.stdout);
        assert!(
            run.stdout
                .contains(" not run: it needs the ability loads, which is missing\n")
        );
        if *library != crashes {
            let within = check(library, "", &["--in-process"]);
            assert_eq!(within.statuses(), run.statuses());
        }
        // Whatever is chosen, the ability says it, and it alone.
        let run = check(library, "^sa-", &[]);
        assert_eq!(run.bad(), ["ability-loads"], "{run:?}");
        assert_eq!(run.code, 1);
        assert!(
            run.statuses().iter().all(|(_, status)| status == "blocked"),
            "{run:?}"
        );
    }
}

#[test]
fn results_are_told_as_checks_end() {
    // The first of the list takes a second.
    let run = check(&good(), "^(sa-never|sa-storm)$", &["--jobs", "2"]);
    let told: Vec<_> = run
        .stdout
        .lines()
        .filter(|line| line.contains(" ms"))
        .map(|line| line.split_whitespace().nth(1).unwrap().to_owned())
        .collect();
    assert_eq!(run.names(), ["sa-never", "sa-storm"]);
    assert_eq!(told, ["sa-storm", "sa-never"]);
}

/// Runs a line as a shell does.
fn shell(line: &str) -> Run {
    let mut command = Command::new("sh");
    // What it writes by itself is not left in the source tree.
    command.args(["-c", line]).current_dir(bench::file(""));
    run(command)
}

#[test]
fn the_command_that_repeats_a_check_runs_as_it_is_printed() {
    let folder = bench::file("a folder");
    fs::create_dir(&folder).unwrap();
    let program = folder.join("it's a tester");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_loader-test"), &program).unwrap();
    let library = folder.join("lib mine.so");
    fs::copy(bad("aborts-again", &[("OPEN", "abort()")]), &library).unwrap();
    let options = folder.join("my options");
    fs::write(&options, "be_good yes\n").unwrap();
    let results = bench::file("again.json");
    let junit = bench::file("again.xml");
    let mut command = Command::new(&program);
    command
        .arg("check")
        .arg(&library)
        .arg("--opts")
        .arg(&options);
    command.args([
        "--strict",
        "--timeout",
        "25",
        "--only",
        "^lifecycle-(open-close|pkeys)$",
    ]);
    command
        .arg("--json")
        .arg(&results)
        .arg("--junit")
        .arg(&junit);
    let told = run(command);
    let results: serde_json::Value = serde_json::from_slice(&fs::read(results).unwrap()).unwrap();
    let again = results["libraries"][0]["abilities"][1]["again"]
        .as_str()
        .unwrap();
    assert!(
        told.stdout.contains(&format!("  again: {again}\n")),
        "{told:?}"
    );
    for part in [
        "--strict",
        "--timeout 25",
        "--opts",
        "--only '^load-query-twice$'",
    ] {
        assert!(again.contains(part), "{part}: {again}");
    }
    let junit = fs::read_to_string(junit).unwrap();
    assert!(
        junit.contains("<system-out>again: ") && junit.contains("--timeout 25"),
        "{junit}"
    );
    let repeated = shell(again);
    assert_eq!(repeated.code, 1, "{repeated:?}");
    assert!(
        repeated.stdout.ends_with(
            "1 check: 0 passed, 0 failed, 0 warned, 0 skipped, 1 blocked, 0 crashed, 0 timed-out; 1 ability is missing\n"
        )
    );

    let trace = folder.join("a trace");
    let mut command = Command::new(&program);
    command
        .arg("trace")
        .arg(&library)
        .arg("-o")
        .arg(&trace)
        .arg("--opts")
        .arg(&options);
    let told = run(command);
    let again = told
        .stdout
        .lines()
        .find_map(|line| line.strip_prefix("  again: "))
        .unwrap();
    fs::remove_file(&trace).unwrap();
    let repeated = shell(again);
    assert!(
        repeated.code == 1 && trace.exists(),
        "{again}: {repeated:?}"
    );
    assert!(again.contains("--opts"), "{again}");

    let mut command = Command::new(&program);
    command
        .args(["fuzz", "--seed", "3", "--runs", "5", "--output"])
        .arg(folder.join("a sequence"))
        .arg(&library)
        .arg("--opts")
        .arg(&options);
    let told = run(command);
    let again = told
        .stdout
        .lines()
        .find_map(|line| line.strip_prefix("  again: "))
        .unwrap();
    assert!(
        again.contains("--opts") && shell(again).code == 1,
        "{told:?}"
    );
}

#[test]
fn every_command_takes_options() {
    // Reads the names of nodes from the file that an option of its own names.
    let does = "FILE *options = fopen(acm_get_opts_file(), \"r\"); char line[999], path[999] = \"\", text[99] = \"\"; \
                while (fgets(line, sizeof line, options)) sscanf(line, \"my_hosts %s\", path); \
                FILE *hosts = fopen(path, \"r\"); if (!hosts || !fgets(text, 99, hosts) || !strchr(text, ':')) abort()";
    let library = changed(
        "own-hosts",
        "\t*info = &provider;\n",
        &format!("\t{does};\n\t*info = &provider;\n"),
        "static void take_number(",
        "static void take_number(",
    );
    let file = bench::file("own-hosts.options");
    fs::write(&file, "my_hosts @HOSTS@\n").unwrap();
    let trace = bench::file("own-hosts.json");
    let opts = ["--opts", file.to_str().unwrap()];
    let (fuzz, trace) = (
        ["fuzz", "--runs", "1"],
        ["trace", "-o", trace.to_str().unwrap()],
    );
    for arguments in [&fuzz[..], &trace] {
        let with = of(&[arguments, &opts].concat(), &library);
        assert_eq!(with.code, 0, "{with:?}");
        let without = of(arguments, &library);
        assert_eq!(without.code, 1, "{without:?}");
    }
    let run = check(&library, "^load-name$", &opts);
    assert_eq!(run.status("load-name"), "passed", "{run:?}");
    for command in ["check", "fuzz", "trace"] {
        let help = run_help(command);
        for part in ["@HOSTS@", "timeout, retries and sa_depth"] {
            assert!(help.contains(part), "{command}: {part} in {help}");
        }
    }
}

fn run_help(command: &str) -> String {
    let words: Vec<_> = run(loader_test(&[command, "--help"]))
        .stdout
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    words.join(" ")
}
