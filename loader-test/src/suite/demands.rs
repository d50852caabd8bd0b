//! Further requirements on a run: `--require` and `--baseline`.

use std::io;
use std::path::Path;

use regex_lite::Regex;
use serde::Deserialize;

use super::progress::{Output, cut_list};
use super::report::SCHEMA;
use super::run::Results;
use super::{Status, all};

/// The results of an earlier run.
pub struct Baseline {
    file: String,
    libraries: Vec<Earlier>,
}

/// The part of a results file that identifies its format.
#[derive(Deserialize)]
struct Form {
    schema: u32,
}

#[derive(Deserialize)]
struct File {
    libraries: Vec<Earlier>,
}

#[derive(Deserialize)]
struct Earlier {
    name: Option<String>,
    checks: Vec<EarlierCheck>,
}

#[derive(Deserialize)]
struct EarlierCheck {
    name: String,
    status: Status,
}

impl Baseline {
    /// Reads a file that `--json` wrote.
    ///
    /// # Errors
    /// If it cannot be read, or has another format.
    pub fn read(path: &Path) -> io::Result<Self> {
        let wrong =
            |problem: String| io::Error::other(format!("--baseline {}: {problem}", path.display()));
        let bytes = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
        let form: Form = serde_json::from_slice(&bytes)
            .map_err(|error| wrong(format!("not results of loader-test check --json: {error}")))?;
        if form.schema != SCHEMA {
            let schema = form.schema;
            return Err(wrong(format!(
                "has schema {schema} instead of {SCHEMA}; write it again with this version of loader-test"
            )));
        }
        let file: File =
            serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))?;
        Ok(Self {
            file: path.display().to_string(),
            libraries: file.libraries,
        })
    }

    /// Returns the results of the provider with this name; a library without a known name uses the only results.
    fn of(&self, provider: Option<&str>) -> io::Result<&Earlier> {
        let found = match (provider, &self.libraries[..]) {
            (None, [only]) => Some(only),
            _ => self
                .libraries
                .iter()
                .find(|earlier| earlier.name.as_deref() == provider),
        };
        found.ok_or_else(|| {
            let names: Vec<&str> = self
                .libraries
                .iter()
                .map(|earlier| {
                    earlier
                        .name
                        .as_deref()
                        .unwrap_or("a provider without a name")
                })
                .collect();
            io::Error::other(format!(
                "--baseline {}: holds results of {}, not of {}",
                self.file,
                names.join(", "),
                provider.unwrap_or("a provider without a name")
            ))
        })
    }
}

/// The requirements on a run.
pub struct Demands<'a> {
    /// Checks that must pass.
    pub require: Option<&'a Regex>,
    /// Results of an earlier run.
    pub baseline: Option<&'a Baseline>,
    /// Whether a check was not selected for this run.
    pub is_filtered: &'a dyn Fn(&str) -> bool,
}

impl Demands<'_> {
    /// Whether the results meet the requirements; prints why not. If the run was cut short, checks that did not run do not count
    /// against the baseline.
    ///
    /// # Errors
    /// If the baseline belongs to another provider.
    pub fn judge(&self, results: &Results, is_complete: bool, output: Output) -> io::Result<bool> {
        let mut are_met = true;
        if let Some(require) = self.require {
            let wrong: Vec<String> = all()
                .filter(|check| require.is_match(check.name))
                .filter_map(|check| {
                    Some(format!(
                        "{} {}",
                        check.name,
                        how_it_failed(results, check.name)?
                    ))
                })
                .collect();
            if !wrong.is_empty() {
                are_met = false;
                output.say(&format!("required but not passed: {}\n", cut_list(&wrong)));
            }
        }
        let Some(baseline) = self.baseline else {
            return Ok(are_met);
        };
        let earlier = baseline.of(results.provider())?;
        let passed: Vec<&str> = earlier
            .checks
            .iter()
            .filter(|check| check.status == Status::Passed)
            .map(|check| &*check.name)
            .collect();
        let is_known = |name: &&str| all().any(|check| check.name == *name);
        let unknown = passed.iter().filter(|name| !is_known(name)).count();
        let filtered = passed
            .iter()
            .filter(|name| is_known(name) && (self.is_filtered)(name))
            .count();
        let new = results
            .checks
            .iter()
            .filter(|report| !earlier.checks.iter().any(|check| check.name == report.name))
            .count();
        let mut wrong = Vec::new();
        for name in passed {
            let was_run = results.checks.iter().any(|report| report.name == name);
            if was_run && let Some(how) = how_it_failed(results, name) {
                wrong.push(format!("{name} {how}"));
            }
        }
        if !wrong.is_empty() {
            are_met = false;
            output.say(&format!(
                "passed in {}, and not now: {}\n",
                baseline.file,
                cut_list(&wrong)
            ));
        }
        let unfinished = if is_complete {
            ""
        } else {
            "; the run is incomplete"
        };
        output.say(&format!(
            "compared with {}: {} worse, {unknown} unknown now, {new} new, {filtered} filtered{unfinished}\n",
            baseline.file,
            wrong.len()
        ));
        Ok(are_met)
    }
}

/// Returns how a check ended if it did not pass.
fn how_it_failed(results: &Results, name: &str) -> Option<String> {
    match results.checks.iter().find(|report| report.name == name) {
        Some(report) if report.status == Status::Passed => None,
        Some(report) => Some(format!("({})", report.status)),
        None => Some("(not run)".to_owned()),
    }
}
