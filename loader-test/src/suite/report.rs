//! Results for machines: JSON (schema in `loader-test/schema/results.schema.json`) and JUnit XML.

use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use quick_junit::{
    NonSuccessKind, Property, Report as JunitReport, TestCase, TestCaseStatus, TestSuite,
};
use serde_json::{Map, Value, json};
use tempfile::NamedTempFile;

use super::run::{Plan, Report, Results};
use super::{Status, all};

/// The version of the JSON schema.
pub const SCHEMA: u32 = 2;

/// The results of one library.
pub struct Tested {
    /// The library.
    pub path: PathBuf,
    /// Whether every check has a result.
    pub is_complete: bool,
    /// The results.
    pub results: Results,
    /// For each of [`Results::all`] the command that repeats it, if it is bad.
    pub again: Vec<Option<String>>,
}

impl Tested {
    fn with_commands(&self) -> impl Iterator<Item = (&Report, Option<&str>)> {
        self.results
            .all()
            .zip(self.again.iter().map(Option::as_deref))
    }
}

/// A run of `check`, for reports.
pub struct Run<'a> {
    /// The plan of the run.
    pub plan: &'a Plan,
    /// Whether every check of every library has a result.
    pub is_complete: bool,
    /// The libraries.
    pub tested: &'a [Tested],
}

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::other(error)
}

impl Run<'_> {
    /// Returns the results as JSON.
    ///
    /// # Errors
    /// If they cannot be serialized.
    pub fn json(&self) -> io::Result<String> {
        let had_random_checks = self
            .tested
            .iter()
            .flat_map(|tested| &tested.results.checks)
            .any(|report| report.name == super::hostile::RANDOM);
        let value = json!({
            "schema": SCHEMA,
            "tool": env!("CARGO_PKG_NAME"),
            "version": env!("CARGO_PKG_VERSION"),
            "complete": self.is_complete,
            "strict": self.plan.strict,
            "options": self.plan.options,
            "timeout_ms": milliseconds(self.plan.time_limit),
            "jobs": self.plan.jobs,
            "seed": had_random_checks.then_some(super::hostile::SEED),
            "libraries": self.tested.iter().map(library_to_json).collect::<Vec<_>>(),
        });
        Ok(serde_json::to_string_pretty(&value).map_err(invalid)? + "\n")
    }

    /// Returns the results as JUnit XML; with `strict`, warnings become failures.
    ///
    /// # Errors
    /// If they cannot be serialized.
    pub fn junit(&self) -> io::Result<String> {
        let mut junit = JunitReport::new("loader-test");
        for tested in self.tested {
            let mut suite = TestSuite::new(tested.path.display().to_string());
            let complete = Property::new("complete", tested.is_complete.to_string());
            suite.add_property(complete);
            suite.add_test_cases(
                tested
                    .with_commands()
                    .map(|(report, again)| test_case(report, again, self.plan.strict)),
            );
            junit.add_test_suite(suite);
        }
        junit.to_string().map_err(invalid)
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn library_to_json(tested: &Tested) -> Value {
    let results = &tested.results;
    let mut commands = tested.again.iter();
    let mut list = |reports: &[Report]| -> Vec<Value> {
        let one = |report| {
            let mut value = json!(report);
            value["again"] = json!(commands.next().unwrap_or(&None));
            value
        };
        reports.iter().map(one).collect()
    };
    let abilities = list(&results.abilities);
    let checks = list(&results.checks);
    let breaches = list(&results.breaches);
    json!({
        "path": tested.path.display().to_string(),
        "name": results.provider(),
        "complete": tested.is_complete,
        "deadline_ms": results.deadline.map(milliseconds),
        "complaints": results.complaints,
        "totals": totals(results),
        "abilities": abilities,
        "checks": checks,
        "breaches": breaches,
    })
}

/// Returns the number of checks by outcome, of missing abilities, and of departures that affect no one.
fn totals(results: &Results) -> Value {
    let mut totals = Map::new();
    for (status, count) in counts(results) {
        totals.insert(status.name().to_owned(), count.into());
    }
    totals.insert("abilities_missing".into(), results.missing().count().into());
    totals.insert("breaches".into(), results.breaches.len().into());
    Value::Object(totals)
}

/// Returns the number of checks by outcome.
pub(super) fn counts(results: &Results) -> impl Iterator<Item = (Status, usize)> {
    [
        Status::Passed,
        Status::Failed,
        Status::Warned,
        Status::Skipped,
        Status::Blocked,
        Status::Crashed,
        Status::TimedOut,
    ]
    .into_iter()
    .map(|status| {
        let ended_so = |report: &&Report| report.status == status;
        (status, results.checks.iter().filter(ended_so).count())
    })
}

/// A report file, written atomically once the results exist.
pub struct ReportFile {
    /// `None` is standard output.
    path: Option<PathBuf>,
}

impl ReportFile {
    /// Returns the report file for a path, or standard output for `-`, and checks before the run that it can be written.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn new(path: &Path) -> io::Result<Self> {
        if path.as_os_str() == "-" {
            return Ok(Self { path: None });
        }
        let file = Self {
            // The provider may change the folder with --in-process.
            path: Some(std::path::absolute(path)?),
        };
        match &file.path {
            Some(path) if is_special(path) => {
                std::fs::File::options()
                    .write(true)
                    .open(path)
                    .map_err(named(path))?;
            }
            Some(path) => drop(draft(path)?),
            None => {}
        }
        Ok(file)
    }

    /// Whether both reports have the same path.
    pub fn replaces(&self, other: &Self) -> bool {
        self.path == other.path && !self.path.as_deref().is_some_and(is_special)
    }

    /// Whether it is standard output.
    pub fn is_stdout(&self) -> bool {
        self.path.is_none()
    }

    /// Writes a draft file, then renames it.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, text: &str) -> io::Result<()> {
        let Some(path) = &self.path else {
            let mut out = io::stdout().lock();
            return out.write_all(text.as_bytes()).and_then(|()| out.flush());
        };
        if is_special(path) {
            return std::fs::write(path, text).map_err(named(path));
        }
        let mut draft = draft(path)?;
        draft.write_all(text.as_bytes()).map_err(named(path))?;
        match draft.persist(path) {
            Ok(_) => Ok(()),
            Err(error) => Err(named(path)(error.error)),
        }
    }
}

fn named(path: &Path) -> impl Fn(io::Error) -> io::Error + '_ {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Whether it is a device or a pipe, which a rename cannot replace.
fn is_special(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir())
}

/// Creates the draft file beside the report.
fn draft(path: &Path) -> io::Result<NamedTempFile> {
    if path.is_dir() {
        return Err(named(path)(io::Error::from(io::ErrorKind::IsADirectory)));
    }
    let folder = path.parent().unwrap_or(Path::new("/"));
    // Readable like any file, less the umask.
    tempfile::Builder::new()
        .prefix(".loader-test-")
        .permissions(std::fs::Permissions::from_mode(0o666))
        .tempfile_in(folder)
        .map_err(named(path))
}

/// Returns the list of checks as JSON.
///
/// # Errors
/// If it cannot be serialized.
pub fn list() -> io::Result<String> {
    let checks: Vec<Value> = all()
        .map(|check| {
            json!({
                "name": check.name,
                "family": check.family(),
                "rule": check.rule,
                "harmed": check.harmed,
                "how": check.how,
                "needs": check.needs,
            })
        })
        .collect();
    let list = json!({ "schema": SCHEMA, "checks": checks });
    Ok(serde_json::to_string_pretty(&list).map_err(invalid)? + "\n")
}

fn test_case(report: &Report, again: Option<&str>, strict: bool) -> TestCase {
    let mut said = String::new();
    let mut status = match report.status {
        Status::Warned if strict => TestCaseStatus::non_success(NonSuccessKind::Failure),
        Status::Passed | Status::Warned => TestCaseStatus::success(),
        Status::Skipped | Status::Blocked => TestCaseStatus::skipped(),
        Status::Failed => TestCaseStatus::non_success(NonSuccessKind::Failure),
        Status::Crashed | Status::TimedOut => TestCaseStatus::non_success(NonSuccessKind::Error),
    };
    let mut text = report.message.clone();
    if !report.seen_by.is_empty() {
        text += &format!("\nseen by: {}", report.seen_by.join(" "));
    }
    match &mut status {
        // JUnit has no element for the text of a success.
        TestCaseStatus::Success { .. } if !text.is_empty() => {
            said += &format!("{}: {text}\n", report.status)
        }
        TestCaseStatus::Success { .. } => {}
        _ => {
            // The type separates statuses that JUnit lacks.
            status.set_type(report.status.name());
            if !text.is_empty() {
                status.set_message(text.lines().next().unwrap_or_default().to_owned());
                if !report.stacks.is_empty() {
                    text += &format!("\nthe stacks of all threads:\n{}", report.stacks.join("\n"));
                }
                status.set_description(text);
            }
        }
    }
    let mut case = TestCase::new(report.name.clone(), status);
    // CI servers group results by class name.
    let family = report.name.split('-').next().unwrap_or_default();
    case.set_classname(format!("loader-test.{family}"));
    case.set_time(Duration::from_millis(report.duration_ms));
    if report.repeated {
        said += "the result of a repetition, which ran alone\n";
    }
    said += &report.output;
    if !said.is_empty() && !said.ends_with('\n') {
        said.push('\n');
    }
    if !report.log.is_empty() && report.status.is_bad(false) {
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
