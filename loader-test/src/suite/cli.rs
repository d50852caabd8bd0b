//! The commands `check`, `list` and the child that `check` starts.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use regex_lite::Regex;
use rustix::process::{Signal, set_parent_process_death_signal};

use super::bench::Subject;
use super::progress::{self, Progress, quoted};
use super::run::{self, Plan};
use super::{Check, all, find, report};
use crate::stand_in::trace;

/// Runs the conformance checks on provider libraries.
///
/// Each check runs in a process of its own. Exit status: 0 if all is well (warnings and skips are; with --strict warnings
/// are not), 1 if a check failed, crashed or timed out, 2 if the run could not take place.
#[derive(Debug, Args)]
pub struct CheckCommand {
    /// Provider libraries
    #[arg(required = true, value_name = "LIB")]
    libraries: Vec<PathBuf>,
    /// Run only checks whose name matches
    #[arg(long, value_name = "RE")]
    only: Option<Regex>,
    /// Leave out checks whose name matches
    #[arg(long, value_name = "RE")]
    skip: Option<Regex>,
    /// Warnings count as failures
    #[arg(long)]
    strict: bool,
    /// Seconds that a check may take; those that do something thousands of times may take ten times as long
    #[arg(long, value_name = "S", default_value_t = 30)]
    timeout: u64,
    /// Checks at a time [default: the number of processors]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Run the checks in this process, for a debugger or valgrind
    #[arg(long)]
    in_process: bool,
    /// Lines for ibacm_opts.cfg that the provider needs
    #[arg(long, value_name = "FILE")]
    opts: Option<PathBuf>,
    /// Write the results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the results as JUnit XML
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
}

/// Lists the checks, a line each.
#[derive(Debug, Args)]
pub struct ListCommand {
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Writes every call between the core and a provider in a usual session, in both directions, as it happens.
///
/// The file opens in Perfetto; after a crash it ends with the call that crashed.
#[derive(Debug, Args)]
pub struct TraceCommand {
    /// The provider library
    #[arg(value_name = "LIB")]
    library: PathBuf,
    /// The trace
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

impl TraceCommand {
    /// Runs the command.
    ///
    /// # Errors
    /// If the run cannot take place.
    pub fn run(self) -> io::Result<ExitCode> {
        let output = std::path::absolute(&self.output)?;
        let plan = Plan {
            program: std::env::current_exe()?,
            options: Vec::new(),
            strict: false,
            time_limit: Duration::from_secs(30),
            jobs: 1,
            in_process: false,
            trace: Some(output.clone()),
        };
        // What an earlier run left must not be taken for this one's.
        File::create(&output)?;
        let report = run::run_prepared(&super::session::SESSION, &self.library, &plan, |_| Ok(()))?;
        trace::close(&output)?;
        progress::print(&report, None);
        Ok(u8::from(report.status.is_bad(false)).into())
    }
}

/// Runs one check in this process. For loader-test itself.
#[derive(Debug, Args)]
pub struct ChildCommand {
    check: String,
    library: PathBuf,
    #[arg(long)]
    strict: bool,
    #[arg(long)]
    line: Vec<String>,
    #[arg(long)]
    folder: PathBuf,
    #[arg(long)]
    result: PathBuf,
    #[arg(long)]
    trace: Option<PathBuf>,
}

const COULD_NOT_RUN: u8 = 2;

impl CheckCommand {
    /// The command that runs checks on a library as this one does, without the choice of checks.
    fn again(&self, library: &Path) -> String {
        let mut again = format!("loader-test check {}", quoted(library));
        if self.strict {
            again += " --strict";
        }
        if let Some(file) = &self.opts {
            again += &format!(" --opts {}", quoted(file));
        }
        again
    }

    /// Runs the command.
    ///
    /// # Errors
    /// If the run cannot take place.
    pub fn run(self) -> io::Result<ExitCode> {
        let wanted = |check: &&Check| {
            self.only
                .as_ref()
                .is_none_or(|only| only.is_match(check.name))
                && !self
                    .skip
                    .as_ref()
                    .is_some_and(|skip| skip.is_match(check.name))
        };
        let checks: Vec<&'static Check> = all().filter(wanted).collect();
        if checks.is_empty() {
            eprintln!("no check has such a name; loader-test list shows all");
            return Ok(COULD_NOT_RUN.into());
        }
        let options = match &self.opts {
            Some(file) => std::fs::read_to_string(file)
                .map_err(|error| {
                    io::Error::new(error.kind(), format!("{}: {error}", file.display()))
                })?
                .lines()
                .map(str::to_owned)
                .collect(),
            None => Vec::new(),
        };
        let plan = Plan {
            program: std::env::current_exe()?,
            options,
            strict: self.strict,
            time_limit: Duration::from_secs(self.timeout),
            jobs: self
                .jobs
                .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)),
            in_process: self.in_process,
            trace: None,
        };
        for library in &self.libraries {
            if let Err(error) = std::fs::metadata(library) {
                eprintln!("{}: {error}", library.display());
                return Ok(COULD_NOT_RUN.into());
            }
        }
        for path in self.json.iter().chain(&self.junit) {
            report::prepare(path)?;
        }
        let mut results = Vec::new();
        for library in &self.libraries {
            progress::say(&format!("{}\n", library.display()));
            let progress = Progress::new(self.again(library), checks.len(), !plan.in_process);
            let reports = run::run_all(&checks, library, &plan, &|event| progress.tell(event))?;
            progress.finish(&reports);
            results.push((library.clone(), reports));
        }
        if let Some(path) = &self.json {
            report::write_json(path, &results)?;
        }
        if let Some(path) = &self.junit {
            report::write_junit(path, &results, self.strict)?;
        }
        let bad = results
            .iter()
            .flat_map(|(_, reports)| reports)
            .any(|report| report.status.is_bad(self.strict));
        Ok(u8::from(bad).into())
    }
}

impl ListCommand {
    /// Runs the command.
    ///
    /// # Errors
    /// If standard output cannot be written.
    pub fn run(self) -> io::Result<ExitCode> {
        let mut out = io::stdout().lock();
        if self.json {
            report::write_list(&mut out)?;
        } else {
            for check in all() {
                writeln!(out, "{:<40} {}", check.name, check.rule)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl ChildCommand {
    /// Runs the check; does not come back.
    pub fn run(self) -> ExitCode {
        let Some(check) = find(&self.check) else {
            eprintln!("no check is called {}", self.check);
            return COULD_NOT_RUN.into();
        };
        // A parent that is killed leaves no check behind.
        if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
            eprintln!("prctl(PR_SET_PDEATHSIG): {error}");
            return COULD_NOT_RUN.into();
        }
        run::child(
            check,
            Subject {
                library: self.library,
                options: self.line,
                strict: self.strict,
                trace: self.trace,
                copies: None,
            },
            &self.folder,
            &self.result,
        )
    }
}
