//! An exported provider and the process that loads it, seen from a small core in C.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the example's library, which `cargo test` builds with the tests.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let library = test
        .ancestors()
        .nth(2)
        .unwrap()
        .join("examples/libstatic_table.so");
    assert!(
        library.exists(),
        "{} is missing: cargo build --examples",
        library.display()
    );
    library
}

/// Builds the small core, without the functions to hide.
fn mini_core(folder: &Path, hidden: &[&str]) -> PathBuf {
    let program = folder.join("mini_core");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/loading/mini_core.c");
    let built = Command::new("cc")
        .args(["-Wall", "-Wextra", "-Werror", "-rdynamic", "-o"])
        .arg(&program)
        .args(hidden.iter().map(|name| format!("-DHIDE_{name}")))
        .arg(source)
        .output()
        .expect("cc runs; install gcc");
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    program
}

struct Seen {
    stdout: String,
    stderr: String,
}

fn run(hidden: &[&str], table: Option<&str>) -> Seen {
    let folder = tempfile::tempdir().unwrap();
    let options = folder.path().join("opts");
    let file = folder.path().join("table");
    if let Some(table) = table {
        std::fs::write(&file, table).unwrap();
    }
    std::fs::write(&options, format!("static_table_file {}\n", file.display())).unwrap();
    let run = Command::new(mini_core(folder.path(), hidden))
        .arg(library())
        .arg(&options)
        .output()
        .unwrap();
    let seen = Seen {
        stdout: String::from_utf8(run.stdout).unwrap(),
        stderr: String::from_utf8(run.stderr).unwrap(),
    };
    assert!(
        run.status.success(),
        "{:?}\n{}\n{}",
        run.status,
        seen.stdout,
        seen.stderr
    );
    seen
}

#[track_caller]
fn assert_line(seen: &Seen, line: &str) {
    assert!(
        seen.stdout.lines().any(|l| l == line),
        "{line:?} not in\n{}\n{}",
        seen.stdout,
        seen.stderr
    );
}

#[test]
fn a_loaded_provider_stays_mapped_and_starts_no_thread() {
    let seen = run(&[], Some("fe80::1 7\n"));
    assert_line(&seen, "provider_query: 0");
    assert_line(&seen, "name static-table version 1 size 120");
    assert_line(&seen, "again: 0, same table: 1");
    assert_line(&seen, "null: -1");
    assert_line(&seen, "threads: 1");
    assert_line(&seen, "mapped after dlclose: 1");
}

#[test]
fn a_missing_host_function_is_named_and_nothing_is_left() {
    let seen = run(&["acm_send_sa_mad", "acm_gid_index"], Some(""));
    assert_line(&seen, "provider_query: -1");
    for output in [&seen.stdout, &seen.stderr] {
        assert!(
            output.contains("static-table: the host lacks acm_gid_index, acm_send_sa_mad"),
            "{output}"
        );
    }
    assert_line(&seen, "threads: 1");
    assert_line(&seen, "mapped after dlclose: 0");
}

#[test]
fn a_provider_that_refuses_to_load_says_why_and_leaves_nothing() {
    let seen = run(&[], None);
    assert_line(&seen, "provider_query: -1");
    assert!(
        seen.stdout.contains("not loaded") && seen.stdout.contains("No such file"),
        "{}",
        seen.stdout
    );
    assert_line(&seen, "threads: 1");
    assert_line(&seen, "mapped after dlclose: 0");
}

#[test]
fn a_library_without_a_description_stays_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("libother.so");
    let source = folder.path().join("other.c");
    std::fs::write(&source, "int other;\n").unwrap();
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .status()
        .expect("the C compiler cc");
    assert!(built.success());
    let told = acm_prov_api::introspection::read(&library);
    assert!(told.is_err_and(|error| error.to_string().contains("libother.so")));
    // A thread of its constructor would still run in it.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    assert!(maps.contains("libother.so"), "{maps}");
}
