//! The output of a run: on a terminal, as plain text, as JSON and as JUnit XML.

use std::fs;

use quick_junit::{NonSuccessKind, TestCaseStatus};
use regex_lite::Regex;

use crate::bench::{self, Run, bad, check, command, good, terminal};
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
    assert_eq!(run.status("ability-opens-port"), "crashed");
    assert_eq!(run.status("lifecycle-open-close"), "blocked");
    let totals = &run.json["libraries"][0]["totals"];
    let count = |status: &str| totals[status].as_u64().unwrap();
    assert_eq!(
        [
            "passed",
            "failed",
            "blocked",
            "crashed",
            "abilities_missing",
            "breaches"
        ]
        .map(count),
        [1, 1, 3, 0, 1, 0]
    );
    schema::assert_valid(&run.json);
    assert_eq!(run.json["libraries"][0]["name"], "one thing");
    for (path, value) in [
        ("/schema", serde_json::json!(1)),
        ("/complete", serde_json::json!("yes")),
        ("/libraries/0/totals/blocked", serde_json::json!(-1)),
        (
            "/libraries/0/abilities/0/status",
            serde_json::json!("absent"),
        ),
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
    assert_eq!(run.status("load-size"), "crashed");
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
            TestCaseStatus::Skipped { ty, .. } => ty.as_deref().unwrap(),
            TestCaseStatus::NonSuccess { kind, ty, .. } => {
                let is_error = *kind == NonSuccessKind::Error;
                assert_eq!(is_error, ty.as_deref() == Some("crashed"), "{text}");
                ty.as_deref().unwrap()
            }
        };
        seen.push((case.name.to_string(), kind.to_owned()));
    }
    // Abilities are results as well.
    let mut expected = vec![
        ("ability-loads".to_owned(), "passed".to_owned()),
        ("ability-opens-port".to_owned(), "crashed".to_owned()),
    ];
    expected.extend(run.statuses());
    assert_eq!(seen, expected);
    assert_eq!((suite.tests, suite.failures, suite.errors), (7, 1, 1));
    let families: Vec<_> = suite
        .test_cases
        .iter()
        .map(|case| case.classname.as_deref().unwrap())
        .collect();
    assert_eq!(families[0], "loader-test.ability");
    assert_eq!(families[2], "loader-test.load");
    assert_eq!(families[6], "loader-test.resolve");
    // The whole text is in the element's body, its first line in the attribute.
    let failed = suite
        .test_cases
        .iter()
        .find(|case| case.name.as_str() == "load-name")
        .unwrap();
    let TestCaseStatus::NonSuccess {
        message,
        description,
        ..
    } = &failed.status
    else {
        panic!("{text}");
    };
    let body = description.as_deref().unwrap();
    for part in ["expected: ", "seen: ", "rule: ", "affects: "] {
        assert!(body.contains(part), "{part}: {text}");
    }
    assert_eq!(message.as_deref().map(|line| line.lines().count()), Some(1));
    assert!(
        text.contains("<property name=\"complete\" value=\"true\"/>"),
        "{text}"
    );
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
    let only = "^(load-name|load-quiet)$";
    let mut command = command(&slow, only, &["--jobs", "1", "--strict"]);
    command.env("TERM", "xterm").env("NO_COLOR", "1");
    let text = terminal(command);
    for live in ["] 0/2 ", "] 1/2 ", "load-quiet"] {
        assert!(text.contains(live), "{live:?} in {text:?}");
    }
    let screen = bench::screen(&text);
    let is_shown = |start: &str| screen.iter().any(|line| line.starts_with(start));
    assert!(is_shown("passed    load-name "), "{screen:#?}");
    assert!(is_shown("passed    load-quiet "), "{screen:#?}");
    assert!(
        is_shown("2 checks: 2 passed,"),
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
    for part in ["expected: ", "seen: ", "rule: ", "affects: "] {
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
    // The ledger reports missing answers in every check.
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
        "rule: the provider sends or frees each SA MAD",
        "affects: ",
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
        // A warning that is no failure is told in what the test says.
        let breach = report.test_suites[0].test_cases.last().unwrap();
        assert_eq!(breach.name.as_str(), "breach-standard-output");
        let said = breach.system_out.as_ref().map(|said| said.to_string());
        let is_told = said.is_some_and(|said| said.contains("warned: ") && said.contains("hello"));
        assert_eq!(is_told, failures == 0, "{text}");
    }
}

#[test]
fn json_on_standard_output_leaves_the_text_to_standard_error() {
    let run = bench::run(command(&good(), "^load-name$", &["--json", "-"]));
    let json: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    schema::assert_valid(&json);
    assert_eq!(json["libraries"][0]["checks"][0]["status"], "passed");
    assert!(run.stderr.contains("passed    load-name"), "{run:?}");
    assert!(run.stderr.contains("1 check: 1 passed"), "{run:?}");
}

#[test]
fn a_report_takes_its_place_when_it_is_whole() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    let folder = bench::file("reports");
    fs::create_dir(&folder).unwrap();
    let file = folder.join("results.json");
    fs::write(&file, "an earlier one").unwrap();
    let before = fs::metadata(&file).unwrap().ino();
    let run = bench::run(command(
        &good(),
        "^load-name$",
        &["--json", file.to_str().unwrap()],
    ));
    assert_eq!(run.code, 0, "{run:?}");
    let metadata = fs::metadata(&file).unwrap();
    assert_ne!(metadata.ino(), before, "another file takes the place");
    assert_eq!(
        metadata.permissions().mode() & 0o444,
        0o444,
        "everybody may read it"
    );
    assert_eq!(
        fs::read_dir(&folder).unwrap().count(),
        1,
        "and nothing else is left"
    );
    let text = fs::read_to_string(&file).unwrap();
    assert!(
        serde_json::from_str::<serde_json::Value>(&text).is_ok(),
        "{text}"
    );
    // A device stays what it is.
    let run = bench::run(command(&good(), "^load-name$", &["--json", "/dev/null"]));
    assert_eq!(run.code, 0, "{run:?}");
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
}
