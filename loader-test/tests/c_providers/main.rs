//! Builds the example providers in C and C++ as their first comment says, and expects them to pass all applicable checks.

mod abilities;
#[path = "../faults/compiler.rs"]
#[allow(dead_code)]
mod compiler;
mod memory;
mod policy;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use loader_test::suite::all;
use serde_json::Value;
use tempfile::TempDir;

/// Why checks of the multicast protocol are skipped.
const NO_PAIR: &str = "the provider makes no queue pair";

/// A library in its own folder.
struct Built {
    folder: TempDir,
    name: String,
}

impl Built {
    fn path(&self) -> PathBuf {
        self.folder.path().join(&self.name)
    }
}

/// Returns the build command in the first comment of an example.
fn build_line(source: &str, compiler: &str) -> String {
    let mut words = Vec::new();
    let lines = source
        .lines()
        .map(|line| line.trim_start_matches(['/', '*', ' ', '\t']))
        .skip_while(|line| !line.starts_with(compiler));
    for line in lines.take(2) {
        words.push(line.trim_end_matches('\\').trim_end_matches("(one line)"));
    }
    words.join(" ")
}

/// Builds an example by its own build line; any warning is an error.
fn build(example: &str, compiler: &str) -> Built {
    let source: PathBuf = Path::new(compiler::SA_PROVIDER).with_file_name(example);
    let text = fs::read_to_string(&source).unwrap_or_else(|e| panic!("{}: {e}", source.display()));
    let line = build_line(&text, compiler);
    let mut words = line.split_whitespace();
    let name = line
        .split_whitespace()
        .skip_while(|word| *word != "-o")
        .nth(1)
        .unwrap_or_else(|| panic!("{example}: no output file in {line:?}"));
    let folder = tempfile::tempdir().expect("a temporary folder");
    // One includes another.
    for file in [source.as_path(), Path::new(compiler::SA_PROVIDER)] {
        let name = file.file_name().expect("a file");
        fs::copy(file, folder.path().join(name)).expect("a copy of the source");
    }
    let output = Command::new(words.next().expect("a compiler"))
        .args(words)
        .args(["-g", "-Werror"])
        .current_dir(folder.path())
        .output()
        .unwrap_or_else(|error| panic!("{compiler}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {errors}");
    Built {
        name: name.to_owned(),
        folder,
    }
}

fn c_example() -> Built {
    build("sa_provider.c", "cc ")
}

fn mcast_example() -> Built {
    build("mcast_provider.c", "cc ")
}

fn cpp_example() -> Built {
    build("sa_provider.cpp", "c++ ")
}

fn check(arguments: &[&str], libraries: &[&Path]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_loader-test"))
        .arg("check")
        .args(arguments)
        .args(libraries)
        .output()
        .expect("loader-test")
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("an exit code")
}

/// Runs everything under --strict; the names and messages of the checks that were skipped.
fn passes_all_that_applies(library: &Path, options: &[&str]) -> Vec<(String, String)> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (json, opts) = (
        folder.path().join("results.json"),
        folder.path().join("opts"),
    );
    fs::write(&opts, options.join("\n")).expect("an options file");
    let (json_path, opts_path) = (json.to_str().unwrap(), opts.to_str().unwrap());
    let arguments = [
        "--strict", "--jobs", "8", "--opts", opts_path, "--json", json_path,
    ];
    let output = check(&arguments, &[library]);
    assert_eq!(
        code(&output),
        0,
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
    let results: Value = serde_json::from_slice(&fs::read(json).expect("results")).expect("JSON");
    let checks = results["libraries"][0]["checks"]
        .as_array()
        .expect("a list of checks");
    assert_eq!(checks.len(), all().count());
    let text = |check: &Value, field: &str| check[field].as_str().unwrap_or_default().to_owned();
    for check in checks {
        assert!(
            matches!(&*text(check, "status"), "passed" | "skipped"),
            "{check}"
        );
    }
    checks
        .iter()
        .filter(|check| check["status"] == "skipped")
        .map(|check| (text(check, "name"), text(check, "message")))
        .collect()
}

#[test]
fn the_c_example_passes_every_check_but_those_of_the_multicast_protocol() {
    let built = c_example();
    for (name, message) in passes_all_that_applies(&built.path(), &["sa_example_join yes"]) {
        assert!(name.starts_with("wire-"), "{name}: {message}");
        assert_eq!(message, NO_PAIR, "{name}");
    }
}

#[test]
fn the_multicast_example_passes_every_check() {
    let built = mcast_example();
    assert_eq!(passes_all_that_applies(&built.path(), &[]), []);
}

#[test]
fn without_a_multicast_group_the_c_example_passes_all_that_is_not_about_one() {
    let built = c_example();
    for (name, message) in passes_all_that_applies(&built.path(), &[]) {
        let why = match name.starts_with("wire-") {
            true => NO_PAIR,
            false => "the provider joins no multicast group",
        };
        assert_eq!(message, why, "{name}");
    }
}

#[test]
fn a_queue_pair_without_the_group_is_none_of_the_protocol() {
    let good = compiler::mcast_provider();
    let joins = "\tsend_membership(group_of(ep), UMAD_METHOD_SET);\n";
    assert_eq!(good.matches(joins).count(), 1);
    let library = compiler::compile("never-joins", &good.replace(joins, ""));
    let output = check(&["--strict", "--only", "^wire-answer$"], &[&library]);
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.contains("1 skipped"), "{told}");
    assert!(
        told.contains("does not join the stock provider's multicast group"),
        "{told}"
    );
    assert_eq!(code(&output), 0, "{told}");
}

#[test]
fn the_cpp_example_passes_all_that_is_not_about_names_and_groups() {
    let built = cpp_example();
    let skipped = passes_all_that_applies(&built.path(), &[]);
    let told = |why: &str| {
        skipped
            .iter()
            .filter(|(_, message)| message.starts_with(why))
            .count()
    };
    assert!(told("the provider does not resolve") > 0, "{skipped:?}");
    let absent = abilities_that_may_be_absent();
    for (name, message) in &skipped {
        assert!(
            absent.iter().any(|known| match known.strip_suffix('*') {
                Some(beginning) => name.starts_with(beginning),
                None => name == known,
            }),
            "CHECKS.md does not say that {name} may be skipped: {message}"
        );
    }
    assert_eq!(
        told("the provider does not resolve")
            + told("the provider joins no multicast group")
            + told(NO_PAIR),
        skipped.len(),
        "{skipped:?}"
    );
}

/// Returns the checks that CHECKS.md lists with the optional abilities.
fn abilities_that_may_be_absent() -> Vec<String> {
    let text = include_str!("../../CHECKS.md");
    let (_, section) = text
        .split_once("The following abilities are optional.")
        .unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let names: Vec<String> = section
        .split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect();
    for name in &names {
        let exists = |check: &str| match name.strip_suffix('*') {
            Some(beginning) => check.starts_with(beginning),
            None => check == name,
        };
        let is_option = name.starts_with("--");
        assert!(
            is_option || all().any(|check| exists(check.name)),
            "no check {name}"
        );
    }
    names
}

#[test]
fn a_provider_needs_no_header_but_ours() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let library = folder.path().join("libheader_alone.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c_providers/header_alone.c");
    let output = Command::new("cc")
        .args([
            "-std=c99",
            "-pedantic",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-fPIC",
            "-shared",
        ])
        .args(["-fvisibility=hidden", "-Wl,-z,now", "-I"])
        .arg(Path::new(compiler::SA_PROVIDER).with_file_name(".."))
        .arg("-o")
        .args([&library, &source])
        .output()
        .expect("the C compiler cc");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    // It loads, finds its functions in the core, opens, is asked, and answers once and in the right form.
    let names = "^load-(exports|imports|query|version|size|slots|quiet|missing-function)$\
        |^resolve-unknown-|^hostile-(index|type|length)$";
    let output = check(&["--strict", "--only", names], &[&library]);
    let told = String::from_utf8_lossy(&output.stdout);
    assert_eq!(code(&output), 0, "{told}");
}

#[test]
fn under_the_real_daemon_the_examples_answer_what_the_sa_says() {
    let (c, cpp) = (c_example(), cpp_example());
    // Four hosts, the providers in turn; eight destinations for each.
    let output = Command::new(env!("CARGO_BIN_EXE_loader-test"))
        .arg("stock")
        .args([c.path(), cpp.path()])
        .args(["--by", "lid", "--by", "gid", "--opt", "sa_example_join=yes"])
        .output()
        .expect("loader-test");
    let told = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(code(&output), 0, "{told}{errors}");
    assert!(
        told.contains("32 answered, 32 equal to the SA's record"),
        "{told}"
    );
}

#[test]
fn the_exit_code_tells_how_a_run_ended() {
    let built = c_example();
    let good = built.path();
    let only = |name| ["--only", name, "--jobs", "4"];
    // All passed; a skip is reported and does not count.
    assert_eq!(code(&check(&only("^resolve-by-"), &[&good])), 0);
    let skipped = check(
        &["--strict", "--only", "^event-reregister-joins-again$"],
        &[&good],
    );
    assert!(String::from_utf8_lossy(&skipped.stdout).contains("1 skipped"));
    assert_eq!(code(&skipped), 0);
    // One library of two fails.
    let wrong = compiler::with(
        "takes-busy-for-success",
        &[
            ("if (!hdr->status)\n", "if (!class_status)\n"),
            (
                "if (status == ACM_STATUS_SUCCESS && !fits(",
                "if (status == ACM_STATUS_SUCCESS && !mad->sa_mad.mad_hdr.status && !fits(",
            ),
        ],
    );
    let output = check(&only("^sa-error-"), &[&good, &wrong]);
    assert_eq!(
        code(&output),
        1,
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
    let again = format!("check {} --only '^sa-error-low-byte$'", wrong.display());
    assert!(String::from_utf8_lossy(&output.stdout).contains(&again));
    // A warning counts with --strict alone.
    let loud = compiler::with(
        "loud",
        &[(
            "*info = &provider;",
            "puts(\"loaded\");\n\tfflush(stdout);\n\t*info = &provider;",
        )],
    );
    assert_eq!(code(&check(&["--only", "^load-quiet$"], &[&loud])), 0);
    assert_eq!(
        code(&check(&["--strict", "--only", "^load-quiet$"], &[&loud])),
        1
    );
    // The run cannot take place.
    assert_eq!(code(&check(&[], &[&built.folder.path().join("no.so")])), 2);
    assert_eq!(code(&check(&only("^no-such-check$"), &[&good])), 2);
    assert_eq!(code(&check(&["--only", "("], &[&good])), 2);
    assert_eq!(code(&check(&["--opts", "/nowhere/opts"], &[&good])), 2);
    assert_eq!(code(&check(&[], &[])), 2);
}

#[test]
fn the_c_example_neither_leaks_nor_touches_what_is_not_its_own() {
    let built = c_example();
    let errors = memory::errors(&built.path(), "sa_provider.c", "");
    assert_eq!(errors, [""; 0]);
}

#[test]
fn the_multicast_example_neither_leaks_nor_touches_what_is_not_its_own() {
    let built = mcast_example();
    let errors = memory::errors(&built.path(), "mcast_provider.c", "^(wire|lifecycle)-");
    assert_eq!(errors, [""; 0]);
}

#[test]
fn the_cpp_example_neither_leaks_nor_touches_what_is_not_its_own() {
    let built = cpp_example();
    let errors = memory::errors(&built.path(), "sa_provider.cpp", "");
    assert_eq!(errors, [""; 0]);
}

#[test]
fn memory_errors_of_a_provider_are_seen() {
    let good = compiler::sa_provider();
    let changed = |text: &str, replacement: &str| {
        assert_eq!(good.matches(text).count(), 1, "{text}");
        good.replace(text, replacement)
    };
    let leaking = changed(
        "		send_answer(request);\n		free(request);",
        "		send_answer(request);",
    );
    let library = compiler::compile("leaks-requests", &leaking);
    let errors = memory::errors(&library, "leaks-requests", "^resolve-by-");
    assert!(
        errors.iter().any(|error| error.contains("definitely lost")),
        "{errors:?}"
    );
    let late = changed(
        "		send_answer(request);\n		free(request);",
        "		free(request);\n		send_answer(request);",
    );
    let library = compiler::compile("answers-after-free", &late);
    let errors = memory::errors(&library, "answers-after-free", "^resolve-by-");
    assert!(
        errors.iter().any(|error| error.contains("Invalid read")),
        "{errors:?}"
    );
}
