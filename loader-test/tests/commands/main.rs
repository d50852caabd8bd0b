//! `info` and `trace`, on the example provider in C and on faulty ones made from it.

#[path = "../faults/compiler.rs"]
#[allow(dead_code, reason = "part of it serves other tests")]
mod compiler;

use std::path::Path;
use std::process::{Command, Output};

fn loader_test(arguments: &[&str], library: &Path) -> Output {
    let (command, rest) = arguments.split_first().unwrap();
    Command::new(env!("CARGO_BIN_EXE_loader-test"))
        .arg(command)
        .arg(library)
        .args(rest)
        .output()
        .unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The correct provider with one text replaced.
fn with(name: &str, from: &str, to: &str) -> std::path::PathBuf {
    compiler::with(name, &[(from, to)])
}

#[test]
fn info_shows_table_symbols_and_introspection() {
    let output = loader_test(&["info"], &compiler::good());
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    for part in [
        "sa-example",
        "version 1, 120 bytes",
        "12 of 12",
        "acm_send_sa_mad",
        "introspection none",
    ] {
        assert!(text.contains(part), "{part:?} in\n{text}");
    }
}

#[test]
fn info_says_what_ibacm_would_refuse() {
    let other = with(
        "info-version",
        "*version = provider.version;",
        "*version = 2;",
    );
    let output = loader_test(&["info"], &other);
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    assert!(
        stdout(&output).contains("would not load it"),
        "{}",
        stdout(&output)
    );
    let crash = with(
        "info-crash",
        "\t*info = &provider;\n",
        "\tacm_log(0, \"no licence\\n\");\n\tabort();\n\t*info = &provider;\n",
    );
    let output = loader_test(&["info"], &crash);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stdout(&output).contains("ended the process"),
        "{}",
        stdout(&output)
    );
    for part in ["no licence", "inside provider_query"] {
        assert!(stdout(&output).contains(part), "{}", stdout(&output));
    }
    let refuses = with(
        "info-refuses",
        "\t*info = &provider;\n",
        "\tacm_log(0, \"no licence\\n\");\n\tif (version)\n\t\treturn -1;\n\t*info = &provider;\n",
    );
    let output = loader_test(&["info"], &refuses);
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    assert!(
        stdout(&output).contains("no licence"),
        "{}",
        stdout(&output)
    );
    assert_eq!(
        loader_test(&["info"], Path::new("/etc/passwd"))
            .status
            .code(),
        Some(2)
    );
}

#[test]
fn info_says_which_function_the_daemon_would_end_by() {
    for name in ["acm_of_the_future", "of_another_library"] {
        let output = loader_test(&["info"], &calls_late(name));
        assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
        let expected = format!("would load it, and end at the first call of {name}: ");
        assert!(stdout(&output).contains(&expected), "{}", stdout(&output));
    }
}

/// The correct provider with a lazily bound call to a missing function.
fn calls_late(function: &str) -> std::path::PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, library) = (
        folder.join(format!("{function}.c")),
        folder.join(format!("lib{function}.so")),
    );
    let event = "\tif (type != IBV_EVENT_CLIENT_REREGISTER)\n";
    let calls = format!(
        "\tif (type == 9999) {{\n\t\tvoid {function}(void);\n\t\t{function}();\n\t}}\n{event}"
    );
    std::fs::write(&source, compiler::sa_provider().replace(event, &calls)).unwrap();
    let built = Command::new("cc")
        .args(["-std=gnu11", "-fPIC", "-shared", "-Wl,-z,lazy", "-o"])
        .args([&library, &source])
        .args(["-libverbs", "-lpthread"])
        .status()
        .unwrap();
    assert!(built.success());
    library
}

/// The harness opens the library and its own files again after the constructor has run.
#[test]
fn a_constructor_may_change_the_working_folder() {
    let library = with(
        "changes-folder",
        "static struct acm_provider provider = {",
        "#include <unistd.h>\n\n__attribute__((constructor))\nstatic void leave(void)\n{\n\tif (chdir(\"/\"))\n\t\tabort();\n}\n\n\
         static struct acm_provider provider = {",
    );
    let (folder, name) = (library.parent().unwrap(), library.file_name().unwrap());
    let relative = Path::new(".").join(name);
    let only = "^(load-(imports|query-twice|rejected-unloads)|sa-answers-late|resolve-by-lid)$";
    for arguments in [
        &["info"][..],
        &["check", "--only", only],
        &[
            "check",
            "--in-process",
            "--only",
            only,
            "--json",
            "relative.results",
        ],
        &["trace", "-o", "relative.json"],
        &["fuzz", "--seed", "1", "--runs", "3"],
    ] {
        let (command, rest) = arguments.split_first().unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_loader-test"))
            .current_dir(folder)
            .arg(command)
            .arg(&relative)
            .args(rest)
            .output()
            .unwrap();
        let text = stdout(&output);
        assert!(!text.contains("No such file"), "{arguments:?}: {text}");
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {text}");
    }
    assert!(folder.join("relative.results").is_file());
    assert!(folder.join("relative.json").metadata().unwrap().len() > 1000);
}

/// A signal ends it, and its folder goes.
#[test]
fn info_that_is_interrupted_cleans_up() {
    let hangs = with(
        "info-hangs",
        "\t*info = &provider;\n",
        "\tfor (;;)\n\t\tsleep(1);\n\t*info = &provider;\n",
    );
    let folder = tempfile::tempdir().unwrap();
    let mut run = Command::new(env!("CARGO_BIN_EXE_loader-test"))
        .arg("info")
        .arg(hangs)
        .env("TMPDIR", folder.path())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let entries = || std::fs::read_dir(folder.path()).unwrap().count();
    loader_test::wait::until_true("its folder", std::time::Duration::from_secs(60), || {
        Ok(entries() > 0)
    })
    .unwrap();
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&run),
        rustix::process::Signal::TERM,
    )
    .unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(143));
    assert_eq!(entries(), 0);
}

#[test]
fn info_takes_options() {
    let needs = with(
        "info-options",
        "\t*info = &provider;\n",
        "\tFILE *file = fopen(acm_get_opts_file(), \"r\");\n\tchar line[200];\n\tint found = 0;\n\n\
         \twhile (file && fgets(line, sizeof line, file))\n\t\tfound |= !strcmp(line, \"wanted yes\\n\");\n\
         \tif (!found)\n\t\treturn -1;\n\t*info = &provider;\n",
    );
    assert_eq!(loader_test(&["info"], &needs).status.code(), Some(1));
    let output = loader_test(&["info", "--opt", "wanted=yes"], &needs);
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
}

#[test]
fn a_trace_survives_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace.json");
    let file_name = file.to_str().unwrap();
    let output = loader_test(&["trace", "-o", file_name], &compiler::good());
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
    let events = events_of(&file);
    let seen = |name: &str, phase: &str| {
        events
            .iter()
            .any(|event| event["name"] == name && event["ph"] == phase)
    };
    for callback in [
        "open_device",
        "open_port",
        "open_endpoint",
        "add_address",
        "resolve",
        "query",
        "query_perf",
        "handle_event",
        "remove_address",
        "close_endpoint",
        "close_port",
        "close_device",
    ] {
        assert!(seen(callback, "B") && seen(callback, "E"), "{callback}");
    }
    for function in [
        "acm_get_opts_file",
        "acm_get_gid",
        "acm_path_comp_mask",
        "acm_alloc_sa_mad",
        "acm_send_sa_mad",
        "acm_free_sa_mad",
        "acm_resolve_response",
        "acm_increment_counter",
    ] {
        assert!(seen(function, "i"), "{function}");
    }
    assert!(seen("SA handler", "B") && seen("SA handler", "E"));
    let told = |name: &str, what: &str| {
        events.iter().any(|event| {
            event["name"] == name && event["args"]["what"].as_str().unwrap().contains(what)
        })
    };
    assert!(told("add_address", "self1"), "what is added");
    assert!(told("resolve", "LID 103"), "what is asked");
    assert!(told("acm_send_sa_mad", "PathRecord fe80::10:1"));

    let crash = with(
        "trace-crash",
        "\tif (type != IBV_EVENT_CLIENT_REREGISTER)\n",
        "\tif (type)\n\t\tabort();\n\tif (type != IBV_EVENT_CLIENT_REREGISTER)\n",
    );
    let output = loader_test(&["trace", "-o", file_name], &crash);
    assert_eq!(output.status.code(), Some(1));
    let last = events_of(&file).pop().unwrap();
    assert!(
        last["name"] == "handle_event" && last["ph"] == "B",
        "the crash is the last call: {last}"
    );
}

/// The events of a trace, each with what Perfetto and chrome://tracing need of one.
fn events_of(file: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(file).unwrap();
    let events: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    for event in &events {
        assert!(event["name"].is_string(), "{event}");
        assert!(["B", "E", "i"].contains(&event["ph"].as_str().unwrap()));
        for number in ["ts", "pid", "tid"] {
            assert!(event[number].is_u64(), "{number}: {event}");
        }
    }
    events
}
