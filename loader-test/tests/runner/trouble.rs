//! Failures that are not the provider's: of the harness, or of the reader of its results.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::bench::{
    self, PATIENCE, bad, check, command, good, is_running, loader_test, pids, run, until,
};

#[test]
fn trouble_of_the_harness_is_not_the_providers() {
    let place = bench::file("temporary");
    fs::create_dir(&place).unwrap();
    let does = format!("if (system(\"rm -rf {}/*\")) abort()", place.display());
    let library = bad("takes-the-floor", &[("OPEN", &does)]);
    let mut command = command(
        &library,
        "^(load-name|lifecycle-open-close)$",
        &["--jobs", "1"],
    );
    command.env("TMPDIR", &place);
    let run = run(command);
    assert_eq!(run.code, 2, "{run:?}");
    assert!(
        run.stderr
            .starts_with("loader-test: could not run: ability-opens-port: "),
        "{run:?}"
    );
    assert!(!run.stdout.contains("crashed  "), "{run:?}");
    for arguments in [&["fuzz", "--runs", "1"][..], &["trace", "-o", "/dev/null"]] {
        let mut command = loader_test(arguments);
        command.arg(&library).env("TMPDIR", &place);
        // A first sequence may open nothing.
        if arguments[0] == "fuzz" {
            command.args(["--seed", "1"]);
        }
        let run = bench::run(command);
        assert_eq!(run.code, 2, "{run:?}");
        assert!(
            run.stderr.starts_with("loader-test: could not run: "),
            "{run:?}"
        );
    }
    // A provider that ends with the same code, and says something on the way, is the provider's trouble.
    let does = "if (write(0, \"cannot run\", 10) < 0) abort(); _exit(2)";
    let run = check(
        &bad("ends-with-2", &[("OPEN", does)]),
        "^lifecycle-open-close$",
        &[],
    );
    assert_eq!(
        (run.code, run.status("ability-opens-port")),
        (1, "crashed"),
        "{run:?}"
    );
}

#[test]
fn what_makes_no_sense_is_refused() {
    let missing = "/nonexistent/lib.so";
    let text = bench::file("words.so");
    fs::write(&text, "words").unwrap();
    let text = text.to_str().unwrap();
    let good = good();
    let good = good.to_str().unwrap();
    // Nobody writes to it: who opens it waits.
    let pipe = bench::file("pipe.so");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let pipe = pipe.to_str().unwrap();
    let report = bench::file("report");
    let report = report.to_str().unwrap();
    for (arguments, says) in [
        (&["check", good, "--timeout", "0"][..], "--timeout"),
        (
            &["check", good, "--timeout", "18446744073709551615"],
            "--timeout",
        ),
        (&["check", good, "--jobs", "0"], "--jobs"),
        (&["fuzz", good, "--runs", "0"], "--runs"),
        (&["check", missing], missing),
        (&["fuzz", missing], missing),
        (&["trace", missing, "-o", "/dev/null"], missing),
        (
            &["trace", good, "-o", "/nonexistent/t.json"],
            "/nonexistent/t.json",
        ),
        (&["info", missing], missing),
        (&["info", text], "not an ELF file"),
        (&["check", pipe], "a FIFO, socket or device"),
        (&["fuzz", pipe], "a FIFO, socket or device"),
        (
            &["trace", pipe, "-o", "/dev/null"],
            "a FIFO, socket or device",
        ),
        (&["info", pipe], "a FIFO, socket or device"),
        (
            &["check", good, "--json", report, "--junit", report],
            "the same file",
        ),
        (
            &["check", good, "--json", "-", "--junit", "-"],
            "the same file",
        ),
    ] {
        let run = run(loader_test(arguments));
        assert_eq!(run.code, 2, "{arguments:?}: {run:?}");
        assert!(run.stderr.contains(says), "{arguments:?}: {run:?}");
        let is_usage = says.starts_with("--");
        assert!(
            is_usage || run.stderr.lines().count() == 1,
            "{arguments:?}: {run:?}"
        );
        assert!(
            is_usage || run.stderr.starts_with("loader-test: "),
            "{arguments:?}: {run:?}"
        );
    }
    // Nothing to shrink.
    let run = run(loader_test(&["fuzz", text]));
    assert_eq!(run.code, 1, "{run:?}");
    assert!(
        run.stdout.starts_with("the library does not load"),
        "{run:?}"
    );
    assert!(!run.stdout.contains("shortest"), "{run:?}");
}

/// With SIGINT, as by Ctrl-C, nothing stays behind: no process and no file.
#[test]
fn a_run_that_is_interrupted_cleans_up() {
    for (name, arguments) in [
        (
            "check",
            &[
                "check",
                "--jobs",
                "4",
                "--only",
                "^load-",
                "--timeout",
                "60",
            ][..],
        ),
        ("fuzz", &["fuzz"]),
        ("trace", &["trace", "-o", "/dev/null"]),
    ] {
        let hanging = bench::file(&format!("interrupted-{name}.pids"));
        let library = bad(
            &format!("interrupted-{name}"),
            &[("OPEN", &format!("say_pid({hanging:?}); for_ever()"))],
        );
        let place = bench::file(&format!("interrupted-{name}"));
        fs::create_dir(&place).unwrap();
        let mut child = loader_test(arguments)
            .arg(&library)
            .env("TMPDIR", &place)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        until("a check that hangs", || {
            fs::metadata(&hanging).is_ok_and(|file| file.len() > 0)
        });
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(130), "{name}");
        for pid in pids(&hanging) {
            until("the end of a check", || !is_running(pid));
        }
        let left: Vec<_> = fs::read_dir(&place).unwrap().flatten().collect();
        assert!(left.is_empty(), "{name}: {left:?}");
    }
}

/// What is known is written, also when a run is stopped, and says that it is incomplete.
#[test]
fn a_run_that_is_stopped_leaves_results() {
    let hanging = bench::file("stopped.pids");
    let library = bad(
        "stopped",
        &[("OPEN", &format!("say_pid({hanging:?}); for_ever()"))],
    );
    let (json, junit) = (bench::file("stopped.json"), bench::file("stopped.xml"));
    let reports = [
        "--json",
        json.to_str().unwrap(),
        "--junit",
        junit.to_str().unwrap(),
    ];
    let arguments = [&["--timeout", "600"][..], &reports].concat();
    let mut child = command(&library, "^(load-name|lifecycle-open-close)$", &arguments)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    until("a check that hangs", || {
        fs::metadata(&hanging).is_ok_and(|file| file.len() > 0)
    });
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(143));
    let results: serde_json::Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    crate::schema::assert_valid(&results);
    assert_eq!(results["complete"], false, "{results:#}");
    assert_eq!(
        results["libraries"][0]["abilities"][0]["name"],
        "ability-loads"
    );
    let junit = fs::read_to_string(junit).unwrap();
    assert!(
        junit.contains("name=\"complete\" value=\"false\""),
        "{junit}"
    );
}

/// Whether a process ends within what a test waits.
fn ends(child: &mut Child) -> bool {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if child.try_wait().unwrap().is_some() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

#[test]
fn nobody_reads_on() {
    let hanging = bench::file("nobody-reads.pids");
    let library = bad(
        "nobody-reads",
        &[("OPEN", &format!("say_pid({hanging:?}); for_ever()"))],
    );
    // Checks that hang would keep it for an hour.
    let mut command = command(&library, "^load-", &["--jobs", "16", "--timeout", "3600"]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    drop(output);
    if !ends(&mut child) {
        child.kill().unwrap();
    }
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(141));
    assert_eq!(String::from_utf8_lossy(&ended.stderr), "");
    for pid in pids(&hanging) {
        until("the end of a check", || !is_running(pid));
    }
    // With a report file the run continues.
    let json = bench::file("nobody-reads.json");
    let mut command = bench::command(
        &good(),
        "^load-(name|size)$",
        &["--json", json.to_str().unwrap()],
    );
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let results: serde_json::Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    assert_eq!(
        results["libraries"][0]["checks"].as_array().unwrap().len(),
        2
    );
    for arguments in [
        &["list"][..],
        &["list", "--json"],
        &["info", good().to_str().unwrap()],
    ] {
        let mut child = loader_test(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let ended = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&ended.stderr), "", "{arguments:?}");
    }
}
