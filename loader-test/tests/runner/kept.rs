//! What a run keeps of bad checks, and the output at the end of a check.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::bench::{self, bad, changed, check, file, good};

#[test]
fn a_trace_and_the_folder_of_each_bad_check_are_kept() {
    let library = bad(
        "refuses-kept",
        &[("QUERY", "acm_log(0, \"no licence\\n\")")],
    );
    let (traces, folders) = (file("kept-traces"), file("kept-folders"));
    let arguments = [
        "--trace",
        traces.to_str().unwrap(),
        "--keep",
        folders.to_str().unwrap(),
    ];
    let run = check(&library, "^(load-name|resolve-by-lid)$", &arguments);
    let by_lid = "ability-answers-by-lid";
    assert_eq!(run.bad(), [by_lid], "{run:?}");
    let trace = traces.join(format!("{by_lid}.json"));
    assert_eq!(run.check(by_lid)["trace"], trace.to_str().unwrap());
    let events: Vec<serde_json::Value> =
        serde_json::from_slice(&fs::read(&trace).unwrap()).unwrap();
    assert!(
        events.iter().any(|event| event["name"] == "resolve"),
        "{events:?}"
    );
    let folder = folders.join(by_lid);
    assert_eq!(run.check(by_lid)["folder"], folder.to_str().unwrap());
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    assert!(read("ibacm_opts.cfg").contains("timeout"));
    assert!(read("log").contains("no licence"));
    for kept in [&traces, &folders] {
        assert_eq!(
            fs::read_dir(kept).unwrap().count(),
            1,
            "nothing is kept of what is good"
        );
    }
    assert!(
        run.stdout.contains("  trace: ") && run.stdout.contains("  folder: "),
        "{run:?}"
    );
}

#[test]
fn all_levels_of_the_log_are_there_on_demand() {
    let library = bad(
        "talks",
        &[(
            "QUERY",
            "acm_log(2, \"a detail\\n\"); acm_log(0, \"a fault\\n\"); return -1",
        )],
    );
    let told = |arguments: &[&str]| {
        check(&library, "^load-query$", arguments).check("load-query")["log"].to_string()
    };
    let short = told(&[]);
    assert!(
        short.contains("a fault") && !short.contains("a detail"),
        "{short}"
    );
    let long = told(&["--log-level", "2"]);
    assert!(
        long.contains("a fault") && long.contains("a detail"),
        "{long}"
    );
}

/// The good provider, built for coverage.
fn covered() -> PathBuf {
    let source = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../include/examples/sa_provider.c"
    );
    let folder = file("coverage");
    fs::create_dir(&folder).unwrap();
    let library = folder.join("libcovered.so");
    let built = Command::new("cc")
        .args([
            "-std=gnu11",
            "-w",
            "-fPIC",
            "-shared",
            "-Wl,-z,now",
            "--coverage",
            "-o",
        ])
        .arg(&library)
        .arg(source)
        .args(["-libverbs", "-lpthread"])
        .current_dir(&folder)
        .status()
        .unwrap();
    assert!(built.success());
    library
}

#[test]
fn coverage_is_written_at_exit() {
    let library = covered();
    let data = || {
        fs::read_dir(library.parent().unwrap())
            .unwrap()
            .flatten()
            .filter(|entry| entry.path().extension().is_some_and(|end| end == "gcda"))
            .count()
    };
    assert_eq!(check(&library, "^resolve-by-lid$", &[]).code, 0);
    assert_eq!(data(), 0, "checks end at once");
    let run = check(&library, "^resolve-by-lid$", &["--at-exit"]);
    assert_eq!(run.code, 0, "{run:?}");
    assert_eq!(data(), 1);
}

#[test]
fn leaks_are_found_at_exit_and_are_the_providers() {
    let answer = "\t\tacm_resolve_response(request->id, &msg);\n";
    let source = fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../include/examples/sa_provider.c"
    ))
    .unwrap();
    let runtime = Command::new("cc")
        .arg("-print-file-name=libasan.so")
        .output()
        .unwrap()
        .stdout;
    let runtime = String::from_utf8(runtime).unwrap();
    for (name, text, bad) in [
        ("asan-good", source.clone(), &[][..]),
        (
            "asan-leaks",
            source.replace(
                answer,
                &format!("\t\t*(volatile char *) malloc(77) = 1;\n{answer}"),
            ),
            &["resolve-by-lid"],
        ),
    ] {
        let (file, library) = (file(&format!("{name}.c")), file(&format!("lib{name}.so")));
        fs::write(&file, text).unwrap();
        let built = Command::new("cc")
            .args([
                "-std=gnu11",
                "-w",
                "-g",
                "-O1",
                "-fsanitize=address",
                "-fPIC",
                "-shared",
                "-Wl,-z,now",
                "-o",
            ])
            .args([&library, &file])
            .args(["-libverbs", "-lpthread"])
            .status()
            .unwrap();
        assert!(built.success());
        let json = bench::file(&format!("{name}.json"));
        let mut command = bench::command(
            &library,
            "^resolve-by-lid$",
            &[
                "--at-exit",
                "--timeout",
                "30",
                "--json",
                json.to_str().unwrap(),
            ],
        );
        command.env("LD_PRELOAD", runtime.trim());
        let mut run = bench::run(command);
        run.json = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
        assert_eq!(run.bad(), bad, "{run:?}");
        let is_told = run.check("resolve-by-lid")["output"]
            .as_str()
            .unwrap()
            .contains("send_answer");
        assert_eq!(is_told, !bad.is_empty(), "{run:?}");
    }
}

#[test]
fn exit_handlers_that_fail_fail_the_check() {
    for (name, does, says) in [
        (
            "exit-code",
            "static void bye(void) { _exit(23); }",
            "exit code 23",
        ),
        (
            "exit-crash",
            "static void bye(void) { abort(); }",
            "SIGABRT",
        ),
    ] {
        let library = changed(
            name,
            "static struct acm_provider provider = {",
            &format!(
                "#include <stdlib.h>\n#include <unistd.h>\n{does}\nstatic struct acm_provider provider = {{"
            ),
            "\t*info = &provider;\n",
            "\tatexit(bye);\n\t*info = &provider;\n",
        );
        assert_eq!(check(&library, "^load-name$", &[]).code, 0);
        let run = check(&library, "^load-name$", &["--at-exit"]);
        // It loads, but not without harm.
        assert_eq!(run.bad(), ["load-name"], "{run:?}");
        assert!(run.message("load-name").contains(says), "{run:?}");
    }
    assert_eq!(check(&good(), "^load-name$", &["--at-exit"]).code, 0);
}

#[test]
fn what_passes_when_it_is_repeated_alone_passes() {
    // Hangs once: the first time that it is loaded.
    let mark = file("hangs-once");
    let does = format!("if (access({mark:?}, F_OK)) {{ say_pid({mark:?}); for_ever(); }}");
    let library = bad("hangs-once", &[("QUERY", &does)]);
    let run = check(&library, "^load-name$", &["--timeout", "1"]);
    assert_eq!(run.code, 0, "{run:?}");
    assert_eq!(run.status("ability-loads"), "passed");
    assert_eq!(run.check("ability-loads")["repeated"], true, "{run:?}");
    assert_eq!(run.check("load-name")["repeated"], false);
    assert!(
        run.stdout
            .contains("passed only when repeated alone: ability-loads"),
        "{}",
        run.stdout
    );
}

#[test]
fn a_provider_that_reads_no_deadline_is_waited_for() {
    let source = "\tdev->acm = acm;\n\tread_options(dev);\n";
    let slow = changed(
        "own-deadline",
        source,
        &format!("{source}\tdev->patience = 3000;\n"),
        "static void take_number(",
        "static void take_number(",
    );
    let run = check(
        &slow,
        "^(sa-never|query-never|lifecycle-close-in-flight)$",
        &[],
    );
    assert_eq!(run.bad(), [""; 0], "{run:?}");
    let shown = run.json["libraries"][0]["deadline_ms"].as_u64().unwrap();
    // The provider counts whole milliseconds from the beginning of one.
    assert!(shown >= 2999, "{run:?}");
    assert!(
        run.stdout.contains("clients of a silent SA wait "),
        "{}",
        run.stdout
    );
    let run = check(&good(), "^sa-never$", &[]);
    assert!(run.json["libraries"][0]["deadline_ms"].is_null(), "{run:?}");
}

#[test]
fn complaints_about_options_are_in_the_summary() {
    let library = bad(
        "complains",
        &[(
            "QUERY",
            "acm_log(0, \"unknown option my_cash\\n\"); acm_log(0, \"loaded\\n\")",
        )],
    );
    let options = bench::file("complains.options");
    fs::write(&options, "my_cash 5\n").unwrap();
    let run = check(
        &library,
        "^load-name$",
        &["--opts", options.to_str().unwrap()],
    );
    assert_eq!(run.code, 0, "{run:?}");
    let told = run.json["libraries"][0]["complaints"].as_array().unwrap();
    assert_eq!(told.len(), 1, "{run:?}");
    assert!(
        run.stdout
            .contains("the provider's log about its options: "),
        "{}",
        run.stdout
    );
    assert!(
        run.stdout.contains("unknown option my_cash"),
        "{}",
        run.stdout
    );
    assert_eq!(run.json["options"], serde_json::json!(["my_cash 5"]));
}

#[test]
fn a_check_is_explained() {
    let explained = |name: &str| {
        let run = bench::run(bench::loader_test(&["explain", name]));
        (run.code, run.stdout + &run.stderr)
    };
    let (code, text) = explained("sa-storm");
    assert_eq!(code, 0);
    for part in [
        "rule: many concurrent requests for one destination cost one SA query",
        "affects: the subnet administrator",
        "how: sends 200 requests",
        "needs: loads, opens-port, answers-by-lid, closes",
        "libibacmp.so: passed",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (_, text) = explained("query-source");
    assert!(
        text.contains("libibacmp.so: failed: it passes the client's record to the SA unchanged"),
        "{text}"
    );
    let (code, text) = explained("ability-opens-port");
    assert!(code == 0 && text.contains("needs: loads"), "{text}");
    let (code, text) = explained("breach-missing-ack");
    assert!(
        code == 0 && text.contains("rule: an answer's opcode has the acknowledge bit"),
        "{text}"
    );
    let (code, text) = explained("no-such-thing");
    assert!(code == 2 && text.contains("loader-test list"), "{text}");
}
