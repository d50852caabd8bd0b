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

use super::ability::Ability;
use super::demands::{Baseline, Demands};
use super::fixture::{Subject, Time};
use super::lines::OptionLines;
use super::progress::{self, Output, Progress, quoted};
use super::report::{ReportFile, Tested};
use super::run::{self, Complaints, CutShort, Ending, Plan, Report, Results, Stop};
use super::{Check, all, explain, find, report, summary};
use crate::stand_in::trace;

/// Largest accepted `--timeout`, in seconds: a larger one is a mistake.
const LONGEST_TIMEOUT: u64 = 86_400;

/// Runs the conformance checks on provider libraries.
///
/// Each check runs in its own process. The run first probes the provider's abilities. If one is missing, the run fails, and
/// the checks that need it are blocked. Exit status: 0 passed (warnings, skips and blocked checks do not count; with
/// --strict warnings do), 1 failed, 2 could not run, 141 if standard output closed early and no report file was requested.
#[derive(Debug, Args)]
pub struct CheckCommand {
    /// Provider libraries
    #[arg(required = true, value_name = "LIB")]
    libraries: Vec<PathBuf>,
    /// Run only checks whose name matches
    #[arg(long, value_name = "RE")]
    only: Option<Regex>,
    /// Skip checks whose name matches
    #[arg(long, value_name = "RE")]
    skip: Option<Regex>,
    /// Fail unless every check whose name matches has passed; exit status 2 if none matches
    #[arg(long, value_name = "RE")]
    require: Option<Regex>,
    /// Fail if a check that passed in these results (written by --json) is run and does not pass
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Warnings count as failures
    #[arg(long)]
    strict: bool,
    /// Time limit per check in seconds (ten times that for lifecycle-reopen-thousand and wire-flood-memory, twice for other
    /// checks of the family wire, six times for event-hosts-unreadable)
    ///
    /// The limit is longer for a provider that opens slowly or whose deadline is later than the options say.
    #[arg(long, value_name = "S", default_value_t = run::DEFAULT_LIMIT.as_secs(), value_parser = value_parser!(u64).range(1..=LONGEST_TIMEOUT))]
    timeout: u64,
    /// Number of checks that run at the same time
    #[arg(long, value_name = "N", default_value_t = DEFAULT_JOBS)]
    jobs: NonZeroUsize,
    /// Start no further check after N bad results
    #[arg(long, value_name = "N")]
    max_failures: Option<NonZeroUsize>,
    /// Show only bad results
    #[arg(long)]
    only_failed: bool,
    /// Run the checks in this process, for a debugger or valgrind
    #[arg(long)]
    in_process: bool,
    /// End each check by exit(), so that coverage and leaks are written
    #[arg(long, conflicts_with = "in_process")]
    at_exit: bool,
    #[command(flatten)]
    lines: OptionLines,
    /// Write the results as JSON; - writes them to standard output, and the text to standard error
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the results as JUnit XML
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Keep a trace of each bad check in DIR, for Perfetto
    #[arg(long, value_name = "DIR")]
    trace: Option<PathBuf>,
    /// Keep the folder of each bad check (options, hosts, output, log) in DIR
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Show the log of each bad check up to this level (0 is always written, 2 is everything)
    #[arg(long, value_name = "LEVEL", default_value_t = 0, value_parser = value_parser!(i32).range(0..=3))]
    log_level: i32,
}

/// Default of `--jobs`.
const DEFAULT_JOBS: NonZeroUsize = NonZeroUsize::new(run::DEFAULT_JOBS).expect("not zero");

/// Lists the checks, one per line.
#[derive(Debug, Args)]
pub struct ListCommand {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Explains a check: its rule, whom it affects, how it works, the abilities that it needs, and the outcome for rdma-core's
/// own provider.
#[derive(Debug, Args)]
pub struct ExplainCommand {
    /// A check, an ability (ability-loads) or a violation (breach-missing-ack)
    #[arg(value_name = "NAME")]
    name: String,
}

/// Records every call between the core and a provider in a typical session, in both directions.
///
/// Open the file in Perfetto. After a crash it ends with the call that crashed.
#[derive(Debug, Args)]
pub struct TraceCommand {
    /// The provider library
    #[arg(value_name = "LIB")]
    library: PathBuf,
    /// The file to write
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
            options: self.lines.read()?,
            time_limit: Duration::from_secs(30),
            trace: Some(output.clone()),
            ..Plan::new(std::env::current_exe()?)
        };
        // Empty a file of an earlier run, which could pass for this run's.
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
        Output::Stdout.print(&report, Some(&again));
        Ok(u8::from(report.status.is_bad(false)).into())
    }
}

/// Adds the file's path to an error.
pub(super) fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Returns an error if the library is missing or is a FIFO, socket or device, from which a read might never end.
pub(super) fn exists(library: &Path) -> io::Result<()> {
    match std::fs::metadata(library) {
        // `load-regular-file` judges a directory.
        Ok(found) if found.is_file() || found.is_dir() => Ok(()),
        Ok(_) => {
            let text = format!(
                "{}: is a FIFO, socket or device, not a library",
                library.display()
            );
            Err(io::Error::new(io::ErrorKind::InvalidInput, text))
        }
        Err(error) => Err(named(library, &error)),
    }
}

/// Runs one check in this process (internal).
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
    #[arg(long)]
    at_exit: bool,
    #[arg(long, default_value_t = 0)]
    log_level: i32,
    /// In milliseconds.
    #[arg(long)]
    limit: u64,
    /// In milliseconds.
    #[arg(long)]
    deadline: Option<u64>,
}

/// Exit status if the reader of the results closed its end: what a shell shows for SIGPIPE.
const NOBODY_READS: u8 = 128 + libc::SIGPIPE as u8;

impl CheckCommand {
    /// Returns the command that repeats a check on a library with this run's options.
    fn again(&self, library: &Path, check: &str) -> String {
        let mut again = format!("{} check {}", progress::program(), quoted(library));
        if self.strict {
            again += " --strict";
        }
        if self.timeout != run::DEFAULT_LIMIT.as_secs() {
            again += &format!(" --timeout {}", self.timeout);
        }
        if self.in_process {
            again += " --in-process";
        }
        if self.at_exit {
            again += " --at-exit";
        }
        again += &self.lines.again();
        again + &format!(" --only '^{check}$'")
    }

    /// Returns the command that repeats a result: the check, one that needs the ability, or one that detected the violation.
    fn again_for(&self, library: &Path, report: &Report) -> Option<String> {
        if !report.status.is_bad(true) {
            return None;
        }
        let check = match report.name.starts_with("ability-") {
            true => {
                all()
                    .find(|check| {
                        let needs = Ability::closure(check.needs.iter().copied());
                        needs
                            .iter()
                            .any(|ability| ability.probe().name == report.name)
                    })?
                    .name
            }
            false => report.seen_by.first().map_or(&*report.name, String::as_str),
        };
        Some(self.again(library, check))
    }

    /// Runs the command.
    ///
    /// # Errors
    /// If the run cannot take place.
    pub fn run(self) -> io::Result<ExitCode> {
        let wanted = |check: &&Check| {
            let matches = |re: &Regex| re.is_match(check.name);
            self.only.as_ref().is_none_or(matches) && !self.skip.as_ref().is_some_and(matches)
        };
        let checks: Vec<&'static Check> = all().filter(wanted).collect();
        if checks.is_empty() {
            return Err(io::Error::other(
                "no check matches --only and --skip; loader-test list shows all",
            ));
        }
        if let Some(require) = &self.require
            && !all().any(|check| require.is_match(check.name))
        {
            return Err(io::Error::other(
                "--require: no check matches; loader-test list shows all",
            ));
        }
        let baseline = self.baseline.as_deref().map(Baseline::read).transpose()?;
        let plan = self.plan()?;
        for library in &self.libraries {
            exists(library)?;
        }
        let json = self.json.as_deref().map(ReportFile::new).transpose()?;
        let junit = self.junit.as_deref().map(ReportFile::new).transpose()?;
        if let (Some(json), Some(junit)) = (&json, &junit)
            && json.replaces(junit)
        {
            return Err(io::Error::other(
                "--json and --junit name the same file; give each its own",
            ));
        }
        let has_stdout = json.as_ref().is_some_and(|file| file.is_stdout());
        let output = match has_stdout {
            true => Output::Stderr,
            false => Output::Stdout,
        };
        let mut tested = Vec::new();
        let mut failed = false;
        let mut ended = None;
        for library in &self.libraries {
            let mut results = self.check(library, &checks, &plan, output)?;
            let demands = Demands {
                require: self.require.as_ref(),
                baseline: baseline.as_ref(),
                is_filtered: &|name| !checks.iter().any(|check| check.name == name),
            };
            failed |= results.is_bad(self.strict);
            let cut_short = results.cut_short.take();
            let is_complete = cut_short.is_none();
            match demands.judge(&results, is_complete, output) {
                Ok(are_met) => failed |= !are_met,
                Err(error) => ended = Some(Err(error)),
            }
            tested.push(Tested {
                again: results
                    .all()
                    .map(|report| self.again_for(library, report))
                    .collect(),
                path: library.clone(),
                is_complete,
                results,
            });
            match cut_short {
                None => {}
                Some(CutShort::MaxFailures) => break,
                Some(CutShort::Stopped) => {
                    ended = Some(Ok(run::signalled().unwrap_or(NOBODY_READS)));
                }
                Some(CutShort::Trouble(error)) => ended = Some(Err(error)),
            }
            if ended.is_some() {
                break;
            }
        }
        let run = report::Run {
            plan: &plan,
            is_complete: tested.len() == self.libraries.len()
                && tested.iter().all(|one| one.is_complete),
            tested: &tested,
        };
        // What is known is written, however the run ended.
        let written = json
            .map_or(Ok(()), |file| file.write(&run.json()?))
            .and_then(|()| junit.map_or(Ok(()), |file| file.write(&run.junit()?)));
        match (ended, written) {
            (Some(Err(error)), _) | (_, Err(error)) => Err(error),
            (Some(Ok(status)), _) => Ok(status.into()),
            (None, Ok(())) => Ok(u8::from(failed).into()),
        }
    }

    fn plan(&self) -> io::Result<Plan> {
        Ok(Plan {
            options: self.lines.read()?,
            strict: self.strict,
            time_limit: Duration::from_secs(self.timeout),
            jobs: self.jobs.get(),
            in_process: self.in_process,
            traces: self.trace.clone(),
            folders: self.keep.clone(),
            at_exit: self.at_exit,
            log_level: self.log_level,
            max_failures: self.max_failures.map(NonZeroUsize::get),
            ..Plan::new(std::env::current_exe()?)
        })
    }

    /// Checks one library.
    fn check(
        &self,
        library: &Path,
        checks: &[&'static Check],
        plan: &Plan,
        output: Output,
    ) -> io::Result<Results> {
        // In process, signals go to the debugger.
        let stop = match plan.in_process {
            true => Arc::new(Stop::new()?),
            false => Stop::at_signals()?,
        };
        // With a report file the run continues even if nobody reads standard output.
        let has_file = self.json.is_some() || self.junit.is_some();
        if !has_file {
            stop.when_nobody_reads()?;
        }
        let stop = &*stop;
        let mut plan = plan.clone();
        if self.libraries.len() > 1 {
            // Each library gets its own folder.
            let name = library.file_name().unwrap_or_default();
            for folder in plan.traces.iter_mut().chain(&mut plan.folders) {
                folder.push(name);
            }
        }
        let again = |report: &Report| self.again_for(library, report);
        let stops = (!has_file).then_some(stop);
        if let (false, Some(stop)) = (output.say(&format!("{}\n", library.display())), stops) {
            stop.now();
        }
        let shown = progress::Shown {
            again: &again,
            output,
            has_bar: !plan.in_process,
            only_bad: self.only_failed,
            strict: self.strict,
            stop: stops,
        };
        let progress = Progress::new(shown, checks.len());
        let results = run::run_until(checks, library, &plan, stop, &|event| progress.tell(event))?;
        progress.finish();
        if !output.say(&summary::of(&results, self.strict))
            && let Some(stop) = stops
        {
            stop.now();
        }
        Ok(match stop.is_set() && results.cut_short.is_none() {
            // The reader went away before the summary.
            true => Results {
                cut_short: Some(CutShort::Stopped),
                ..results
            },
            false => results,
        })
    }
}

impl ListCommand {
    /// Runs the command.
    ///
    /// # Errors
    /// If the list cannot be serialized.
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

impl ExplainCommand {
    /// Runs the command.
    ///
    /// # Errors
    /// If there is no such check.
    pub fn run(self) -> io::Result<ExitCode> {
        progress::say(&explain::of(&self.name)?);
        Ok(ExitCode::SUCCESS)
    }
}

impl ChildCommand {
    /// Runs the check and ends the process.
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
        if let Err(error) = run::answer_with_stacks(&self.folder) {
            complaints.end(&format!("a handler for stacks: {error}"));
        }
        run::child(
            check,
            Subject {
                library: self.library,
                options: self.line,
                strict: self.strict,
                trace: self.trace,
                copies: None,
                time: Time {
                    limit: Duration::from_millis(self.limit),
                    extra: Duration::ZERO,
                    deadline: self.deadline.map(Duration::from_millis),
                },
                log_level: self.log_level,
            },
            &self.folder,
            &self.result,
            complaints,
            match self.at_exit {
                true => Ending::AtExit,
                false => Ending::AtOnce,
            },
        )
    }
}
