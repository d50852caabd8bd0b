//! What a run tells: on a terminal and elsewhere, as JSON and as JUnit XML.

use std::fs;

use quick_junit::{NonSuccessKind, TestCaseStatus};
use regex_lite::Regex;

use crate::bench::{self, Run, bad, check, command, good, terminal, terminal_of_failure};
use crate::schema;

/// A run with each status that a test can have on purpose.
fn mixed() -> Run {
    let library = bad(
        "mixed",
        &[
            ("OPEN", "fputs(\"\\x1b[31m<&>\\001\", stderr); abort()"),
            ("QUERY", "provider.name = \"one thing\""),
        ],
    );
    let only =
        "^(load-name|load-size|lifecycle-open-close|lifecycle-closed-memory|resolve-by-lid)$";
    check(
        &library,
        only,
        &["--junit", bench::file("mixed.xml").to_str().unwrap()],
    )
}

#[test]
fn json_follows_its_schema() {
    let run = mixed();
    assert_eq!(run.status("load-size"), "passed");
    assert_eq!(run.status("load-name"), "failed");
    assert_eq!(run.status("lifecycle-open-close"), "crashed");
    assert_eq!(run.status("lifecycle-closed-memory"), "skipped");
    schema::assert_valid(&run.json);
    assert_eq!(run.json["libraries"][0]["name"], "one thing");
    for (path, value) in [
        ("/schema", serde_json::json!(1)),
        ("/complete", serde_json::json!("yes")),
        ("/libraries/0/totals/blocked", serde_json::json!(-1)),
        ("/libraries/0/abilities/0/status", serde_json::json!("absent")),
        ("/seed", serde_json::json!(-1)),
        ("/libraries/0/path", serde_json::json!(null)),
        ("/libraries/0/checks/0/status", serde_json::json!("ok")),
        ("/libraries/0/checks/0/name", serde_json::json!("Load Name")),
        (
            "/libraries/0/checks/0/duration_ms",
            serde_json::json!("5 ms"),
        ),
        ("/libraries/0/checks/0/signal", serde_json::json!(11)),
    ] {
        let mut wrong = run.json.clone();
        *wrong.pointer_mut(path).unwrap() = value;
        assert!(schema::validate(&wrong).is_err(), "{path}");
    }
    let mut wrong = run.json.clone();
    wrong["libraries"][0]["checks"][0]
        .as_object_mut()
        .unwrap()
        .remove("output");
    assert!(schema::validate(&wrong).is_err());
}

#[test]
fn json_names_the_provider_and_the_seed() {
    let run = check(&good(), "^(hostile-random|load-name)$", &[]);
    assert_eq!(run.json["libraries"][0]["name"], "sa-example");
    assert!(run.json["seed"].is_u64(), "{run:?}");
    schema::assert_valid(&run.json);
    // Nothing random, and no library that says its name.
    let silent = bad("silent", &[("QUERY", "abort()")]);
    let run = check(&silent, "^load-(name|size)$", &[]);
    assert!(run.json["libraries"][0]["name"].is_null(), "{run:?}");
    assert!(run.json["seed"].is_null(), "{run:?}");
    schema::assert_valid(&run.json);
}

#[test]
fn junit_says_the_same() {
    let run = mixed();
    let text = fs::read_to_string(bench::file("mixed.xml")).unwrap();
    let report = quick_junit::Report::deserialize_from_str(&text).unwrap();
    let [suite] = &report.test_suites[..] else {
        panic!("one suite a library: {text}");
    };
    let mut seen = Vec::new();
    for case in &suite.test_cases {
        let kind = match &case.status {
            TestCaseStatus::Success { .. } => "passed",
            TestCaseStatus::Skipped { .. } => "skipped",
            TestCaseStatus::NonSuccess {
                kind: NonSuccessKind::Failure,
                ..
            } => "failed",
            TestCaseStatus::NonSuccess {
                kind: NonSuccessKind::Error,
                ..
            } => "crashed",
        };
        seen.push((case.name.to_string(), kind.to_owned()));
    }
    assert_eq!(seen, run.statuses());
    assert_eq!((suite.tests, suite.failures, suite.errors), (5, 1, 2));
    let families: Vec<_> = suite
        .test_cases
        .iter()
        .map(|case| case.classname.as_deref().unwrap())
        .collect();
    assert_eq!(families[0], "loader-test.load");
    assert_eq!(families[4], "loader-test.resolve");
}

/// Sequences that change colours.
fn colours(text: &str) -> usize {
    Regex::new("\u{1b}\\[[0-9;]*m")
        .unwrap()
        .find_iter(text)
        .count()
}

#[test]
fn colours_are_for_terminals() {
    let only = "^load-name$";
    assert!(!check(&good(), only, &[]).stdout.contains('\u{1b}'));
    let coloured = terminal(command(&good(), only, &[]));
    assert!(coloured.contains("\u{1b}[32mpassed"), "{coloured:?}");
    let with = |name: &str, value: &str| {
        let mut command = command(&good(), only, &[]);
        command.env(name, value);
        terminal(command)
    };
    let without = with("NO_COLOR", "1");
    assert!(without.contains("passed"), "{without:?}");
    assert_eq!(colours(&without), 0, "{without:?}");
    // Set to nothing is not set (no-color.org).
    assert!(colours(&with("NO_COLOR", "")) > 0);
    let dumb = with("TERM", "dumb");
    assert!(
        dumb.contains("passed") && !dumb.contains('\u{1b}'),
        "{dumb:?}"
    );
}

#[test]
fn a_terminal_shows_what_is_at_work_and_keeps_the_results_alone() {
    let slow = bad("slow-on-terminal", &[("OPEN", "usleep(300000)")]);
    let only = "^(load-name|lifecycle-open-close)$";
    let mut command = command(&slow, only, &["--jobs", "1"]);
    command.env("TERM", "xterm").env("NO_COLOR", "1");
    let text = terminal_of_failure(command);
    for live in ["] 0/2 ", "] 1/2 ", "lifecycle-open-close"] {
        assert!(text.contains(live), "{live:?} in {text:?}");
    }
    let screen = bench::screen(&text);
    let is_shown = |start: &str| screen.iter().any(|line| line.starts_with(start));
    assert!(is_shown("passed    load-name "), "{screen:#?}");
    assert!(is_shown("failed    lifecycle-open-close "), "{screen:#?}");
    assert!(
        is_shown("2 checks: 1 passed, 1 failed,"),
        "the count comes last: {screen:#?}"
    );
    assert!(
        !screen.iter().any(|line| line.contains("/2 ")),
        "no bar is left: {screen:#?}"
    );
    // Without a terminal there is none.
    let plain = check(&slow, only, &["--jobs", "1"]).stdout;
    assert!(!plain.contains("/2 ") && !plain.contains('\r'), "{plain:?}");
}

#[test]
fn a_failure_says_what_where_why_and_how_to_see_it_again() {
    let library = bad(
        "wrong-name-told",
        &[("QUERY", "provider.name = \"one thing\"")],
    );
    let run = check(&library, "^load-name$", &[]);
    for part in ["expected: ", "seen: ", "rule: ", "harmed: "] {
        assert!(run.stdout.contains(part), "{part}: {run:?}");
    }
    let again = Regex::new(r"again: \S*loader-test (check .*)").unwrap();
    let line = again.captures(&run.stdout).expect("how to repeat it");
    let words: Vec<_> = line[1]
        .split(' ')
        .map(|word| word.trim_matches('\''))
        .collect();
    let repeated = bench::loader_test(&words).output().unwrap();
    assert_eq!(repeated.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&repeated.stdout).contains("1 failed"));
    // What the run was told counts for the repetition, too.
    let file = bench::file("options of mine");
    fs::write(&file, "be_good yes\n").unwrap();
    let arguments = ["--strict", "--opts", file.to_str().unwrap()];
    let run = check(&library, "^load-name$", &arguments);
    let expected = format!(" --strict --opts '{}' --only '^load-name$'", file.display());
    assert!(run.stdout.contains(&expected), "{expected}: {run:?}");
}

#[test]
fn a_breach_says_the_rule_as_well() {
    // No answer is what the books see, whatever the check is about.
    let library = bench::changed(
        "leaks-mads",
        "\tacm_free_sa_mad(mad);\n\tsend_answers(&done);\n",
        "\tsend_answers(&done);\n",
        "static void take_number(",
        "static void take_number(",
    );
    let run = check(&library, "^resolve-by-lid$", &[]);
    assert_eq!(run.status("resolve-by-lid"), "failed");
    for part in [
        "expected: ",
        "seen: ",
        "rule: an SA MAD is sent or freed",
        "harmed: ",
    ] {
        assert!(
            run.message("resolve-by-lid").contains(part),
            "{part}: {run:?}"
        );
    }
}

#[test]
fn junit_follows_strict() {
    let library = bad(
        "prints-junit",
        &[("QUERY", "puts(\"hello\"); fflush(stdout)")],
    );
    let file = bench::file("strict.xml");
    let junit = ["--junit", file.to_str().unwrap()];
    for (strict, failures) in [(&["--strict"][..], 1), (&[], 0)] {
        check(&library, "^load-name$", &[&junit, strict].concat());
        let text = fs::read_to_string(&file).unwrap();
        let report = quick_junit::Report::deserialize_from_str(&text).unwrap();
        assert_eq!(report.test_suites[0].failures, failures, "{text}");
    }
}
