//! Compares the tables of CHECKS.md with the checks, and with a run on rdma-core's own provider.

mod wire;

use std::path::Path;
use std::time::Duration;

use loader_test::stand_in::ledger::ViolationKind;
use loader_test::suite::all;
use loader_test::suite::run::{Plan, run_all};
use loader_test::suite::table::rows;

const STOCK: &str = "/usr/lib/x86_64-linux-gnu/ibacm/libibacmp.so";

#[test]
fn the_table_says_what_the_checks_say() {
    let table = rows();
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
    for (name, row) in rows() {
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
        time_limit: Duration::from_secs(30),
        ..Plan::new(env!("CARGO_BIN_EXE_loader-test"))
    };
    let checks: Vec<_> = all().collect();
    let results = run_all(&checks, library, &plan).unwrap();
    let missing: Vec<_> = results.missing().map(|report| &report.name).collect();
    assert!(missing.is_empty(), "{missing:?}");
    let breaches: Vec<_> = results.breaches.iter().map(|report| &report.name).collect();
    assert_eq!(breaches, ["breach-missing-ack"]);
    let reports = results.checks;
    let table = rows();
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
