//! Runs checks, each in a process of its own.
//!
//! The parent never loads the library. A child is the leader of its own process group, has a time limit, and leaves its
//! result in a file: whatever the provider does (hang, crash, `_exit(0)`, kill its group, write to standard output), it
//! becomes that check's result and the rest goes on. Nothing is left running.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde::{Deserialize, Serialize};

use super::bench::{Bench, judge};
use super::{Check, Finding, Status};
use crate::stand_in::ledger::Violation;

/// How checks are run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The executable that runs one check: this one.
    pub program: PathBuf,
    /// Lines of ibacm_opts.cfg that the provider needs.
    pub options: Vec<String>,
    /// Departures without harm are looked for, and count.
    pub strict: bool,
    /// A check's time limit.
    pub time_limit: Duration,
    /// Checks at a time.
    pub jobs: usize,
    /// In this process, for debuggers: the first crash ends it all.
    pub in_process: bool,
    /// Where every call is written, of the one check that is run.
    pub trace: Option<PathBuf>,
}

/// How one check ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The check.
    pub name: String,
    /// How it ended.
    pub status: Status,
    /// What to know about it; empty if it passed.
    pub message: String,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
    /// The signal that ended it.
    pub signal: Option<String>,
    /// What the provider wrote to standard output and standard error, cut.
    pub output: String,
}

/// What a child leaves behind.
#[derive(Debug, Serialize, Deserialize)]
struct Verdict {
    status: Status,
    message: String,
}

/// The variable by which a check's processes are known.
const MARK: &str = "LOADER_TEST_CHECK_FOLDER";

/// Output of a provider that is kept.
const KEPT_OUTPUT: u64 = 16 << 10;

/// Runs all `checks` on a library and tells of each as it ends; the reports are in the order of the checks.
///
/// # Errors
/// If a child cannot be started.
pub fn run_all(
    checks: &[&'static Check],
    library: &Path,
    plan: &Plan,
    tell: &(dyn Fn(&Report) + Sync),
) -> io::Result<Vec<Report>> {
    let next = AtomicUsize::new(0);
    let reports: Mutex<Vec<Option<Report>>> = Mutex::new(checks.iter().map(|_| None).collect());
    let failure: Mutex<Option<io::Error>> = Mutex::new(None);
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(check) = checks.get(index) else {
                return;
            };
            if failure.lock().is_ok_and(|failure| failure.is_some()) {
                return;
            }
            match run_one(check, library, plan) {
                Ok(report) => {
                    tell(&report);
                    if let Ok(mut reports) = reports.lock() {
                        reports[index] = Some(report);
                    }
                }
                Err(error) => {
                    if let Ok(mut failure) = failure.lock() {
                        failure.get_or_insert(error);
                    }
                }
            }
        }
    };
    let jobs = if plan.in_process { 1 } else { plan.jobs.max(1) };
    std::thread::scope(|scope| {
        for _ in 1..jobs {
            scope.spawn(work);
        }
        work();
    });
    match failure.into_inner() {
        Ok(Some(error)) => Err(error),
        _ => Ok(reports
            .into_inner()
            .unwrap_or_default()
            .into_iter()
            .flatten()
            .collect()),
    }
}

fn run_one(check: &'static Check, library: &Path, plan: &Plan) -> io::Result<Report> {
    run_prepared(check, library, plan, |_| Ok(()))
}

/// Runs one check in a folder of its own, in which `prepare` leaves what the check needs.
pub(super) fn run_prepared(
    check: &'static Check,
    library: &Path,
    plan: &Plan,
    prepare: impl FnOnce(&Path) -> io::Result<()>,
) -> io::Result<Report> {
    let folder = tempfile::Builder::new()
        .prefix("loader-test-check-")
        .tempdir()?;
    prepare(folder.path())?;
    let start = Instant::now();
    let mut report = if plan.in_process {
        let verdict = judge_here(
            check,
            library,
            folder.path(),
            plan.options.clone(),
            plan.strict,
            plan.trace.clone(),
        );
        Report {
            name: check.name.to_owned(),
            status: verdict.status,
            message: verdict.message,
            duration_ms: 0,
            signal: None,
            output: String::new(),
        }
    } else {
        run_child(check, library, folder.path(), plan)?
    };
    report.duration_ms = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
    Ok(report)
}

fn run_child(
    check: &'static Check,
    library: &Path,
    folder: &Path,
    plan: &Plan,
) -> io::Result<Report> {
    let result = folder.join("result.json");
    let (stdout, stderr) = (folder.join("stdout"), folder.join("stderr"));
    let mut command = Command::new(&plan.program);
    command
        .arg("run-check")
        .arg(check.name)
        .arg(library)
        .args(plan.strict.then_some("--strict"))
        .args(plan.options.iter().map(|line| format!("--line={line}")))
        .arg("--folder")
        .arg(folder)
        .arg("--result")
        .arg(&result)
        .args(
            plan.trace
                .iter()
                .flat_map(|path| [OsStr::new("--trace"), path.as_os_str()]),
        )
        .env(MARK, folder)
        .stdin(Stdio::null())
        .stdout(File::create(&stdout)?)
        .stderr(File::create(&stderr)?)
        .process_group(0);
    let mut child = command.spawn()?;
    let group = Pid::from_child(&child);
    let ended = wait(&mut child, plan.time_limit);
    // Whatever the provider started dies with its check.
    let _ = kill_process_group(group, Signal::KILL);
    let status = match ended {
        Some(status) => Some(status?),
        None => {
            // It may have left its group.
            let _ = child.kill();
            child.wait()?;
            None
        }
    };
    kill_strays(folder)?;
    let printed = read(&stdout);
    let mut report = verdict_of(check, status, &result, plan);
    if !printed.is_empty() && !report.status.is_bad(false) {
        report.status = Status::Warned;
        report.message = format!(
            "the provider wrote to standard output: {:?}",
            cut(&printed, 200)
        );
    }
    report.output = printed + &read(&stderr);
    Ok(report)
}

/// Ends the processes that left a check's group: they still have its folder in their environment.
fn kill_strays(folder: &Path) -> io::Result<()> {
    let mark = [MARK.as_bytes(), b"=", folder.as_os_str().as_bytes()].concat();
    loop {
        let mut found = false;
        for entry in std::fs::read_dir("/proc")?.flatten() {
            let pid = entry
                .file_name()
                .to_str()
                .and_then(|name| Pid::from_raw(name.parse().ok()?));
            // Other users' processes are none of ours, and one that has ended has no environment.
            let (Some(pid), Ok(environment)) = (pid, std::fs::read(entry.path().join("environ")))
            else {
                continue;
            };
            if environment
                .split(|byte| *byte == 0)
                .any(|line| line == mark)
            {
                found = true;
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        // One of them may have started another one meanwhile.
        if !found {
            return Ok(());
        }
    }
}

/// What a child's end means.
fn verdict_of(check: &Check, ended: Option<ExitStatus>, result: &Path, plan: &Plan) -> Report {
    let mut report = Report {
        name: check.name.to_owned(),
        status: Status::Crashed,
        message: String::new(),
        duration_ms: 0,
        signal: None,
        output: String::new(),
    };
    let Some(ended) = ended else {
        report.status = Status::TimedOut;
        report.message = format!(
            "not over after {:?}: the core's only thread hangs in the provider, and with it {}",
            plan.time_limit, check.harmed
        );
        return report;
    };
    if let Some(signal) = ended.signal() {
        let name = signal_name(signal);
        report.message =
            format!("the process was ended by {name}: in the daemon, all clients lose it");
        report.signal = Some(name);
        return report;
    }
    let verdict = std::fs::read(result)
        .ok()
        .and_then(|text| serde_json::from_slice::<Verdict>(&text).ok());
    match verdict {
        Some(verdict) => {
            report.status = verdict.status;
            report.message = verdict.message;
        }
        None => {
            let code = ended.code().unwrap_or(-1);
            report.message = format!(
                "the provider ended the process with exit code {code}: in the daemon, all clients lose it"
            );
        }
    }
    report
}

/// Waits for a child's end; `None` when the time is over.
fn wait(child: &mut Child, limit: Duration) -> Option<io::Result<ExitStatus>> {
    let deadline = Instant::now() + limit;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(Ok(status)),
            Ok(None) if Instant::now() >= deadline => return None,
            Ok(None) => std::thread::sleep(Duration::from_millis(2)),
            Err(error) => return Some(Err(error)),
        }
    }
}

fn read(path: &Path) -> String {
    let mut bytes = Vec::new();
    if let Ok(file) = File::open(path) {
        // What cannot be read back is not shown; the result does not depend on it.
        let _ = file.take(KEPT_OUTPUT).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn cut(text: &str, length: usize) -> &str {
    match text.char_indices().nth(length) {
        Some((end, _)) => &text[..end],
        None => text,
    }
}

/// A signal by its name.
pub(super) fn signal_name(signal: i32) -> String {
    let known = match signal {
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGBUS => "SIGBUS",
        libc::SIGABRT => "SIGABRT",
        libc::SIGILL => "SIGILL",
        libc::SIGFPE => "SIGFPE",
        libc::SIGKILL => "SIGKILL",
        libc::SIGTERM => "SIGTERM",
        libc::SIGTRAP => "SIGTRAP",
        libc::SIGPIPE => "SIGPIPE",
        _ => return format!("signal {signal}"),
    };
    known.to_owned()
}

/// What a child does: one check, and its result into a file. Ends the process, past all exit handlers.
pub fn child(
    check: &'static Check,
    library: &Path,
    folder: &Path,
    result: &Path,
    options: Vec<String>,
    strict: bool,
    trace: Option<PathBuf>,
) -> ! {
    let verdict = judge_here(check, library, folder, options, strict, trace);
    let code = match serde_json::to_vec(&verdict)
        .map_err(io::Error::from)
        .and_then(|text| {
            // Whole or not at all: the parent must not read half a result.
            let draft = result.with_extension("draft");
            std::fs::write(&draft, text)?;
            std::fs::rename(&draft, result)
        }) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("{}: {error}", result.display());
            2
        }
    };
    // SAFETY: ends the process at once; nothing of this program needs to be tidied up.
    unsafe { libc::_exit(code) }
}

/// Runs a check in this process.
fn judge_here(
    check: &'static Check,
    library: &Path,
    folder: &Path,
    options: Vec<String>,
    strict: bool,
    trace: Option<PathBuf>,
) -> Verdict {
    let mut bench = Bench::new(library, folder, options, strict, trace);
    // A panic of the check's own, such as about a NULL slot, is a finding like any other.
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| (check.run)(&mut bench)));
    let violations = panic::catch_unwind(AssertUnwindSafe(|| bench.finish()));
    let told = |payload: Box<dyn std::any::Any + Send>| {
        payload
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| {
                payload
                    .downcast_ref::<&str>()
                    .map(|text| (*text).to_owned())
            })
            .unwrap_or_default()
    };
    let outcome = outcome
        .unwrap_or_else(|payload| Err(super::failed("a check that can be run", told(payload))));
    let violations = match violations {
        Ok(violations) => violations,
        Err(payload) => {
            return verdict(
                check,
                Err(super::failed("everything to close", told(payload))),
                &[],
            );
        }
    };
    let (harm, departures) = judge(violations);
    let texts = first_of_each_kind(&departures);
    if let (Ok(()) | Err(Finding::Warned(_) | Finding::Skipped(_)), Some(first)) =
        (&outcome, harm.first())
    {
        return Verdict {
            status: Status::Failed,
            message: format!("{}\n  harmed: {}", first.text, first.harmed),
        };
    }
    verdict(check, outcome, &texts)
}

/// One text a kind of departure: the others say the same of other clients.
fn first_of_each_kind(departures: &[Violation]) -> Vec<String> {
    let mut seen = Vec::new();
    let new = |departure: &&Violation| {
        let is_new = !seen.contains(&departure.kind);
        seen.push(departure.kind);
        is_new
    };
    departures
        .iter()
        .filter(new)
        .map(|departure| departure.text.clone())
        .collect()
}

fn verdict(check: &Check, outcome: super::Outcome, departures: &[String]) -> Verdict {
    match outcome {
        Err(Finding::Failed { expected, seen }) => Verdict {
            status: Status::Failed,
            message: format!(
                "expected: {expected}\n  seen: {seen}\n  rule: {} (CHECKS.md, {})\n  harmed: {}",
                check.rule,
                check.family(),
                check.harmed
            ),
        },
        Err(Finding::Warned(text)) => Verdict {
            status: Status::Warned,
            message: text,
        },
        Err(Finding::Skipped(text)) => Verdict {
            status: Status::Skipped,
            message: text,
        },
        Ok(()) if departures.is_empty() => Verdict {
            status: Status::Passed,
            message: String::new(),
        },
        Ok(()) => Verdict {
            status: Status::Warned,
            message: departures.join("; "),
        },
    }
}
