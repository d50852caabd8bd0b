//! The table of the checks (CHECKS.md) says of each check what the check itself says, and of rdma-core's own provider what
//! a run shows.

mod wire;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use loader_test::stand_in::ledger::ViolationKind;
use loader_test::suite::all;
use loader_test::suite::run::{Plan, run_all};

const STOCK: &str = "/usr/lib/x86_64-linux-gnu/ibacm/libibacmp.so";

struct Row {
    rule: String,
    harmed: String,
    outcomes: Vec<String>,
    why: String,
}

fn table() -> BTreeMap<String, Row> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("CHECKS.md");
    let text = std::fs::read_to_string(&file).unwrap();
    text.lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .map(|line| {
            let cells: Vec<&str> = line
                .trim_end_matches('|')
                .split(" | ")
                .map(str::trim)
                .collect();
            let [name, rule, harmed, outcomes, why] = cells[..] else {
                panic!("five cells in a row: {line}")
            };
            let row = Row {
                rule: rule.to_owned(),
                harmed: harmed.to_owned(),
                outcomes: outcomes.split(" or ").map(str::to_owned).collect(),
                why: why.trim_end_matches('|').trim().to_owned(),
            };
            (name.trim_end_matches('`').to_owned(), row)
        })
        .collect()
}

#[test]
fn the_table_says_what_the_checks_say() {
    let table = table();
    let mut wrong = Vec::new();
    for check in all() {
        match table.get(check.name) {
            None => wrong.push(format!("no row for {}", check.name)),
            Some(row) if row.rule != check.rule || row.harmed != check.harmed.to_string() => {
                wrong.push(format!(
                    "{}: the row says {:?}, harmed {:?}",
                    check.name, row.rule, row.harmed
                ));
            }
            Some(_) => {}
        }
    }
    let names: Vec<&str> = all().map(|check| check.name).collect();
    wrong.extend(
        table
            .keys()
            .filter(|name| !names.contains(&name.as_str()))
            .map(|name| format!("no check {name}")),
    );
    assert!(wrong.is_empty(), "CHECKS.md:\n{}", wrong.join("\n"));
}

#[test]
fn the_table_of_breaches_says_what_the_books_say() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("CHECKS.md");
    let text = std::fs::read_to_string(&file).unwrap();
    for kind in ViolationKind::ALL {
        let name = serde_json::to_value(kind).unwrap();
        let row = format!("| {} | {} |", name.as_str().unwrap(), kind.rule());
        assert!(
            text.lines().any(|line| line == row),
            "CHECKS.md lacks {row}"
        );
    }
}

#[test]
fn whatever_is_not_passed_has_a_reason() {
    for (name, row) in table() {
        let passes = row.outcomes == ["passed"];
        assert_eq!(
            passes,
            row.why.is_empty(),
            "{name}: {:?}, {:?}",
            row.outcomes,
            row.why
        );
    }
}

#[test]
fn the_stock_provider_fares_as_the_table_says() {
    let library = Path::new(STOCK);
    assert!(
        library.exists(),
        "{STOCK} is missing: apt-get install ibacm"
    );
    let plan = Plan {
        program: env!("CARGO_BIN_EXE_loader-test").into(),
        options: Vec::new(),
        strict: false,
        time_limit: Duration::from_secs(60),
        jobs: 4,
        in_process: false,
        trace: None,
    };
    let checks: Vec<_> = all().collect();
    let reports = run_all(&checks, library, &plan, &|_| {}).unwrap();
    let table = table();
    let wrong: Vec<String> = reports
        .iter()
        .filter(|report| {
            !table.get(&report.name).is_some_and(|row| {
                row.outcomes
                    .iter()
                    .any(|outcome| outcome == report.status.name())
            })
        })
        .map(|report| format!("{}: {} - {}", report.name, report.status, report.message))
        .collect();
    assert_eq!(reports.len(), checks.len());
    assert!(
        wrong.is_empty(),
        "otherwise than CHECKS.md says:\n{}",
        wrong.join("\n")
    );
}
