//! Further requirements on a run: required checks, and an earlier run.

use std::fs;
use std::path::{Path, PathBuf};

use crate::bench::{self, Run, bad, changed, check, command, good, run};

/// The good provider, which does not read its names any more: as after a slip in a new version.
fn nameless() -> PathBuf {
    changed(
        "nameless",
        "\"none\", \"acm_hosts\", &options->preload",
        "\"none\", \"no_hosts\", &options->preload",
        "static void take_number(",
        "static void take_number(",
    )
}

fn results(name: &str, library: &Path, only: &str) -> (PathBuf, Run) {
    let file = bench::file(name);
    let run = run(command(library, only, &["--json", file.to_str().unwrap()]));
    (file, run)
}

#[test]
fn a_required_check_that_did_not_pass_fails_the_run() {
    let with = |only: &str, require: &str| {
        let run = run(command(&good(), only, &["--require", require]));
        (run.code, run.stdout + &run.stderr)
    };
    let (code, text) = with("^load-", "^load-name$");
    assert_eq!(code, 0, "{text}");
    // Skipped: it makes no queue pair.
    let (code, text) = with("^wire-answer$", "^wire-answer$");
    assert_eq!(code, 1, "{text}");
    assert!(
        text.contains("required but not passed: wire-answer (skipped)"),
        "{text}"
    );
    let (code, text) = with("^load-name$", "^load-(name|size)$");
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("load-size (not run)"), "{text}");
    let (code, text) = with("^load-", "^no-such-check$");
    assert_eq!(code, 2, "{text}");
}

#[test]
fn a_check_that_passed_earlier_has_to_pass_again() {
    let only = "^(load-name|resolve-by-name|wire-answer)$";
    let (file, run) = results("baseline.json", &good(), only);
    assert_eq!(run.code, 0, "{run:?}");
    let against = |library: &Path, only: &str, baseline: &Path| {
        let run = bench::run(command(
            library,
            only,
            &["--baseline", baseline.to_str().unwrap()],
        ));
        (run.code, run.stdout + &run.stderr)
    };
    let (code, text) = against(&good(), only, &file);
    assert_eq!(code, 0, "{text}");
    assert!(
        text.contains(": 0 worse, 0 unknown now, 0 new, 0 filtered"),
        "{text}"
    );
    // What was skipped then may be anything now, what was not run then is new, what is not run now is filtered.
    let (code, text) = against(&good(), "^(load-size|load-name|wire-answer)$", &file);
    assert_eq!(code, 0, "{text}");
    assert!(
        text.contains(": 0 worse, 0 unknown now, 1 new, 1 filtered"),
        "{text}"
    );
    // Names are lost: the check is skipped, which alone is no failure.
    let (code, text) = against(&nameless(), only, &file);
    assert_eq!(code, 1, "{text}");
    assert!(
        text.contains("and not now: resolve-by-name (skipped)"),
        "{text}"
    );
    assert!(text.contains(" 0 failed"), "{text}");
    // A check that there is no longer.
    let older = bench::file("baseline-older.json");
    fs::write(
        &older,
        fs::read_to_string(&file)
            .unwrap()
            .replace("load-name", "load-of-old"),
    )
    .unwrap();
    let (code, text) = against(&good(), only, &older);
    assert_eq!(code, 0, "{text}");
    assert!(
        text.contains(": 0 worse, 1 unknown now, 1 new, 0 filtered"),
        "{text}"
    );
}

#[test]
fn another_providers_results_are_no_baseline() {
    let (file, _) = results("baseline-good.json", &good(), "^load-name$");
    let could_not_run = |library: &Path, baseline: &Path, says: &str| {
        let run = run(command(
            library,
            "^load-name$",
            &["--baseline", baseline.to_str().unwrap()],
        ));
        assert_eq!(run.code, 2, "{run:?}");
        assert!(run.stderr.contains(says), "{says}: {run:?}");
    };
    could_not_run(
        &bad("other-provider", &[]),
        &file,
        "results of sa-example, not of one-thing",
    );
    let text = fs::read_to_string(&file).unwrap();
    let schema = bench::file("baseline-schema.json");
    fs::write(&schema, text.replace("\"schema\": 2", "\"schema\": 1")).unwrap();
    could_not_run(&good(), &schema, "schema 1 instead of 2");
    fs::write(&schema, "no JSON").unwrap();
    could_not_run(&good(), &schema, "not results of loader-test");
    could_not_run(&good(), Path::new("/no/such/file"), "/no/such/file");
}

#[test]
fn a_run_begins_no_further_check_after_so_many_failures() {
    let refuses = bad("refuses-early", &[("QUERY", "return -1")]);
    let only = "^(load-query|load-exports|load-file-name)$";
    let whole = check(&refuses, only, &["--max-failures", "2"]);
    assert_eq!(whole.names().len(), 3, "{whole:?}");
    let cut = check(&refuses, "^load-", &["--max-failures", "1"]);
    assert_eq!(cut.bad(), ["ability-loads"], "{cut:?}");
    assert_eq!(cut.json["complete"], false, "{cut:?}");
    assert!(
        cut.stdout.contains("incomplete: stopped by --max-failures"),
        "{cut:?}"
    );
    assert_eq!(cut.code, 1);
}

#[test]
fn only_what_is_not_good_is_shown() {
    let wrong_name = bad(
        "wrong-name-only",
        &[("QUERY", "provider.name = \"one thing\"")],
    );
    let run = check(&wrong_name, "^load-(name|size)$", &["--only-failed"]);
    assert!(run.stdout.contains("failed    load-name"), "{run:?}");
    assert!(!run.stdout.contains("passed    load-size"), "{run:?}");
    assert_eq!(
        run.names(),
        ["load-size", "load-name"],
        "the results have both"
    );
}
