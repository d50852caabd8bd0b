//! Results for machines: JSON (schema in `loader-test/schema/results.schema.json`) and JUnit XML.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use quick_junit::{NonSuccessKind, Report as JunitReport, TestCase, TestCaseStatus, TestSuite};
use serde_json::{Value, json};

use super::run::Report;
use super::{Status, all};

/// The version of the JSON's form.
const SCHEMA: u32 = 1;

/// The results of one library.
pub struct Tested {
    /// The library.
    pub path: PathBuf,
    /// Each check's result, with the command that repeats it if it is no good one.
    pub reports: Vec<(Report, Option<String>)>,
}

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::other(error)
}

/// The results as one JSON value.
pub fn to_json(results: &[Tested]) -> Value {
    let libraries: Vec<Value> = results
        .iter()
        .map(|Tested { path, reports }| {
            json!({
                "path": path.display().to_string(),
                "name": reports.iter().find_map(|(report, _)| report.provider.as_deref()),
                "checks": reports.iter().map(one_to_json).collect::<Vec<_>>(),
            })
        })
        .collect();
    let had_random_checks = results
        .iter()
        .flat_map(|tested| &tested.reports)
        .any(|(report, _)| report.name == super::hostile::RANDOM);
    json!({
        "schema": SCHEMA,
        "tool": env!("CARGO_PKG_NAME"),
        "version": env!("CARGO_PKG_VERSION"),
        "seed": had_random_checks.then_some(super::hostile::SEED),
        "libraries": libraries,
    })
}

fn one_to_json((report, again): &(Report, Option<String>)) -> Value {
    let mut value = json!(report);
    value["again"] = json!(again);
    value
}

/// Writes the results as JSON.
///
/// # Errors
/// If the file cannot be written.
pub fn write_json(path: &Path, results: &[Tested]) -> io::Result<()> {
    let mut text = serde_json::to_string_pretty(&to_json(results)).map_err(invalid)?;
    text.push('\n');
    write(path, text)
}

/// Makes sure that a file for results can be written, before anything is run.
///
/// # Errors
/// If it cannot.
pub fn prepare(path: &Path) -> io::Result<()> {
    write(path, String::new())
}

fn write(path: &Path, text: String) -> io::Result<()> {
    std::fs::write(path, text)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

/// The list of checks as JSON.
///
/// # Errors
/// If it cannot be put into words.
pub fn list() -> io::Result<String> {
    let checks: Vec<Value> = all()
        .map(|check| {
            json!({ "name": check.name, "family": check.family(), "rule": check.rule, "harmed": check.harmed })
        })
        .collect();
    let list = json!({ "schema": SCHEMA, "checks": checks });
    Ok(serde_json::to_string_pretty(&list).map_err(invalid)? + "\n")
}

/// Writes the results as JUnit XML; with `strict`, what is a warning is a failure there.
///
/// # Errors
/// If the file cannot be written.
pub fn write_junit(path: &Path, results: &[Tested], strict: bool) -> io::Result<()> {
    let mut junit = JunitReport::new("loader-test");
    for Tested { path, reports } in results {
        let mut suite = TestSuite::new(path.display().to_string());
        let cases = reports.iter();
        suite.add_test_cases(
            cases.map(|(report, again)| test_case(report, again.as_deref(), strict)),
        );
        junit.add_test_suite(suite);
    }
    write(path, junit.to_string().map_err(invalid)?)
}

fn test_case(report: &Report, again: Option<&str>, strict: bool) -> TestCase {
    let mut status = match report.status {
        Status::Warned if strict => TestCaseStatus::non_success(NonSuccessKind::Failure),
        Status::Passed | Status::Warned => TestCaseStatus::success(),
        Status::Skipped => TestCaseStatus::skipped(),
        Status::Failed => TestCaseStatus::non_success(NonSuccessKind::Failure),
        Status::Crashed | Status::TimedOut => TestCaseStatus::non_success(NonSuccessKind::Error),
    };
    if !report.message.is_empty() {
        status.set_message(report.message.clone());
    }
    let mut case = TestCase::new(report.name.clone(), status);
    // CI servers group by it.
    let family = report.name.split('-').next().unwrap_or_default();
    case.set_classname(format!("loader-test.{family}"));
    case.set_time(Duration::from_millis(report.duration_ms));
    let mut said = report.output.clone();
    if !said.is_empty() && !said.ends_with('\n') {
        said.push('\n');
    }
    if !report.log.is_empty() {
        said += &format!(
            "the end of the provider's log:\n{}\n",
            report.log.join("\n")
        );
    }
    if let Some(again) = again {
        said += &format!("again: {again}\n");
    }
    if !said.is_empty() {
        case.set_system_out(said);
    }
    case
}
