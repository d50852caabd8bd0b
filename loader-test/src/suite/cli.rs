//! The commands `check`, `list` and the child that `check` starts.

use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, value_parser};
use regex_lite::Regex;
use rustix::process::{Signal, set_parent_process_death_signal};

use super::bench::Subject;
use super::lines::OptionLines;
use super::progress::{self, Progress, quoted, sayln};
use super::report::Tested;
use super::run::{self, Complaints, Plan, Report, Stop};
use super::{Check, all, find, report};
use crate::stand_in::trace;

/// Seconds that a check may take unless the command says otherwise.
const DEFAULT_TIMEOUT: u64 = 30;

/// Runs the conformance checks on provider libraries.
///
/// Each check runs in a process of its own. Exit status: 0 if all is well (warnings and skips are; with --strict warnings
/// are not), 1 if a check failed, crashed or timed out, 2 if the run could not take place, 141 if whoever read the results
/// went away and no file was asked for.
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
    #[arg(long, value_name = "S", default_value_t = DEFAULT_TIMEOUT, value_parser = value_parser!(u64).range(1..))]
    timeout: u64,
    /// Checks at a time [default: the number of processors]
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// Run the checks in this process, for a debugger or valgrind
    #[arg(long)]
    in_process: bool,
    #[command(flatten)]
    lines: OptionLines,
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
    #[command(flatten)]
    lines: OptionLines,
}

impl TraceCommand {
    /// Runs the command.
    ///
    /// # Errors
    /// If the run cannot take place.
    pub fn run(self) -> io::Result<ExitCode> {
        exists(&self.library)?;
        let output = std::path::absolute(&self.output)?;
        let plan = Plan {
            program: std::env::current_exe()?,
            options: self.lines.read()?,
            strict: false,
            time_limit: Duration::from_secs(30),
            jobs: 1,
            in_process: false,
            trace: Some(output.clone()),
        };
        // What an earlier run left must not be taken for this one's.
        File::create(&output).map_err(|error| named(&self.output, &error))?;
        let report = run::run_prepared(&super::session::SESSION, &self.library, &plan, |_| Ok(()))?;
        trace::close(&output).map_err(|error| named(&self.output, &error))?;
        let again = format!(
            "{} trace {} -o {}{}",
            progress::program(),
            quoted(&self.library),
            quoted(&self.output),
            self.lines.again()
        );
        progress::print(&report, Some(&again));
        Ok(u8::from(report.status.is_bad(false)).into())
    }
}

/// An error with the file that it is about.
pub(super) fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// An error if there is no such library.
pub(super) fn exists(library: &Path) -> io::Result<()> {
    match std::fs::metadata(library) {
        Ok(_) => Ok(()),
        Err(error) => Err(named(library, &error)),
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

/// What a shell shows of a program that SIGPIPE ended: nobody reads the results.
const NOBODY_READS: u8 = 128 + libc::SIGPIPE as u8;

impl CheckCommand {
    /// The command that repeats a check on a library as this run does it.
    fn again(&self, library: &Path, check: &str) -> String {
        let mut again = format!("{} check {}", progress::program(), quoted(library));
        if self.strict {
            again += " --strict";
        }
        if self.timeout != DEFAULT_TIMEOUT {
            again += &format!(" --timeout {}", self.timeout);
        }
        if self.in_process {
            again += " --in-process";
        }
        again += &self.lines.again();
        again + &format!(" --only '^{check}$'")
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
            return Err(io::Error::other(
                "no check has such a name; loader-test list shows all",
            ));
        }
        let plan = Plan {
            program: std::env::current_exe()?,
            options: self.lines.read()?,
            strict: self.strict,
            time_limit: Duration::from_secs(self.timeout),
            jobs: self
                .jobs
                .or_else(|| std::thread::available_parallelism().ok())
                .map_or(1, NonZeroUsize::get),
            in_process: self.in_process,
            trace: None,
        };
        for library in &self.libraries {
            exists(library)?;
        }
        for path in self.json.iter().chain(&self.junit) {
            report::prepare(path)?;
        }
        let mut results = Vec::new();
        for library in &self.libraries {
            match self.check(library, &checks, &plan)? {
                Some(tested) => results.push(tested),
                None => return Ok(run::signalled().unwrap_or(NOBODY_READS).into()),
            }
        }
        if let Some(path) = &self.json {
            report::write_json(path, &results)?;
        }
        if let Some(path) = &self.junit {
            report::write_junit(path, &results, self.strict)?;
        }
        let bad = results
            .iter()
            .flat_map(|tested| &tested.reports)
            .any(|(report, _)| report.status.is_bad(self.strict));
        Ok(u8::from(bad).into())
    }

    /// Checks one library; `None` if the run was stopped, by a signal or since nobody reads the results any longer.
    fn check(
        &self,
        library: &Path,
        checks: &[&'static Check],
        plan: &Plan,
    ) -> io::Result<Option<Tested>> {
        // In process a debugger hears the signals.
        let stop = match plan.in_process {
            true => Arc::new(Stop::new()?),
            false => Stop::at_signals()?,
        };
        let stop = &*stop;
        let again = |check: &str| self.again(library, check);
        // Results that go to a file as well are wanted all the same.
        let has_file = self.json.is_some() || self.junit.is_some();
        let stops = (!has_file).then_some(stop);
        if let (false, Some(stop)) = (sayln!("{}", library.display()), stops) {
            stop.now();
        }
        let progress = Progress::new(&again, checks, !plan.in_process, stops);
        let reports = match run::run_until(checks, library, plan, stop, &|event| {
            progress.tell(event);
        }) {
            Ok(reports) => reports,
            Err(_) if stop.is_set() => return Ok(None),
            Err(error) => {
                progress.give_up();
                return Err(error);
            }
        };
        progress.finish(&reports);
        if stop.is_set() {
            return Ok(None);
        }
        let with_command = |report: Report| {
            let again = report.status.is_bad(true).then(|| again(&report.name));
            (report, again)
        };
        Ok(Some(Tested {
            path: library.to_owned(),
            reports: reports.into_iter().map(with_command).collect(),
        }))
    }
}

impl ListCommand {
    /// Runs the command.
    ///
    /// # Errors
    /// If the list cannot be put into words.
    pub fn run(self) -> io::Result<ExitCode> {
        let mut text = String::new();
        if self.json {
            text = report::list()?;
        } else {
            for check in all() {
                text += &format!("{:<40} {}\n", check.name, check.rule);
            }
        }
        progress::say(&text);
        Ok(ExitCode::SUCCESS)
    }
}

impl ChildCommand {
    /// Runs the check; does not come back.
    pub fn run(self) -> ExitCode {
        let complaints = match Complaints::open() {
            Ok(complaints) => complaints,
            Err(error) => {
                eprintln!("standard input: {error}");
                return ExitCode::FAILURE;
            }
        };
        let Some(check) = find(&self.check) else {
            complaints.end(&format!("no check is called {}", self.check));
        };
        // A parent that is killed leaves no check behind.
        if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
            complaints.end(&format!("prctl(PR_SET_PDEATHSIG): {error}"));
        }
        run::child(
            check,
            Subject {
                library: self.library,
                options: self.line,
                strict: self.strict,
                trace: self.trace,
                deadline: None,
                copies: None,
            },
            &self.folder,
            &self.result,
            complaints,
        )
    }
}
