//! One check in a process of its own, as its parent sees it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use supervisor::{Leftovers, Supervised};

use super::verdict::{TROUBLE, Verdict, told};
use super::{Plan, Report, Stop, stopped};
use crate::stand_in::recorder;
use crate::suite::{Check, Status, lifecycle};

/// Output of a provider that is kept.
const KEPT_OUTPUT: u64 = 16 << 10;

pub(super) fn run_child(
    check: &'static Check,
    library: &Path,
    folder: &Path,
    plan: &Plan,
    stop: &Stop,
) -> io::Result<Report> {
    let result = folder.join("result.json");
    let (stdout, stderr) = (folder.join("stdout"), folder.join("stderr"));
    let (life, stdin) = UnixStream::pair()?;
    // Whoever reads it finds the end.
    life.shutdown(Shutdown::Write)?;
    let mut command = Command::new(&plan.program);
    command
        .arg("run-check")
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
        .args(["--", check.name])
        .arg(library)
        .envs(environment(check))
        .stdin(OwnedFd::from(stdin))
        .stdout(create(&stdout)?)
        .stderr(create(&stderr)?);
    let mut child = Supervised::spawn(&mut command, Leftovers::END)
        .map_err(|error| named(&plan.program, error))?;
    // It holds the other end of `life`.
    drop(command);
    let limit = plan.time_limit * check.time_factor();
    // Whatever the provider started ends with its check.
    let status = match ends_within(&child, limit, stop)? {
        true => Some(child.wait()?),
        false => {
            child.kill()?;
            None
        }
    };
    if stop.is_set() {
        return Err(stopped());
    }
    let printed = read(&stdout);
    let mut report = verdict_of(check, status, folder, &result, limit);
    if let (Status::Crashed, Some(trouble)) = (report.status, trouble(life)) {
        return Err(io::Error::other(format!("{}: {trouble}", check.name)));
    }
    if !printed.is_empty() && !report.status.is_bad(false) {
        report.status = Status::Warned;
        report.message = format!(
            "the provider wrote to standard output: {:?}",
            cut(&printed, 200)
        );
    }
    report.output = printed + &read(&stderr);
    if report.status.is_bad(false) {
        report.log = recorder::last_lines(folder);
    }
    Ok(report)
}

fn create(path: &Path) -> io::Result<File> {
    File::create(path).map_err(|error| named(path, error))
}

fn named(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// What a child that has ended has to say of trouble of its own.
fn trouble(life: UnixStream) -> Option<String> {
    life.set_nonblocking(true).ok()?;
    let mut told = Vec::new();
    // Ends with an error if a process that was left behind has the other end.
    let _ = life.take(KEPT_OUTPUT).read_to_end(&mut told);
    let told = String::from_utf8_lossy(&told);
    told.strip_prefix(TROUBLE).map(str::to_owned)
}

/// What a child's end means.
fn verdict_of(
    check: &Check,
    ended: Option<ExitStatus>,
    folder: &Path,
    result: &Path,
    limit: Duration,
) -> Report {
    let mut report = Report::new(check, Status::Crashed, String::new());
    let place = recorder::last_call(folder)
        .map(|place| format!(", {place}"))
        .unwrap_or_default();
    let Some(ended) = ended else {
        report.status = Status::TimedOut;
        let seen = format!("not over after {limit:?}{place}: the core hangs in the provider");
        report.message = lost(check, &seen);
        return report;
    };
    if let Some(signal) = ended.signal() {
        let name = signal_name(signal);
        report.message = lost(check, &format!("the process was ended by {name}{place}"));
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
            report.provider = verdict.provider;
        }
        None => {
            let code = ended.code().unwrap_or(-1);
            let seen = format!("the process was ended with exit code {code}{place}");
            report.message = lost(check, &seen);
        }
    }
    report
}

/// A check that did not come to its end takes the core with it, whatever it is about.
fn lost(check: &Check, seen: &str) -> String {
    let harmed = "the daemon, and with it all its clients";
    let rule = (check.told_rule(), harmed);
    told("the check to come to its end", seen, rule, &[])
}

/// What the check wants in its environment; what is there for the same purpose stays.
fn environment(check: &Check) -> Option<(&'static str, OsString)> {
    let (name, value) = lifecycle::environment(check)?;
    let mut all = std::env::var_os(name).unwrap_or_default();
    if !all.is_empty() {
        all.push(":");
    }
    all.push(value);
    Some((name, all))
}

/// Whether a child ends before the time is over, or the run is stopped.
fn ends_within(child: &Supervised, limit: Duration, stop: &Stop) -> io::Result<bool> {
    let deadline = Instant::now() + limit;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        let mut both = [
            PollFd::new(child, PollFlags::IN),
            PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN),
        ];
        match poll(&mut both, Some(&left)) {
            Ok(_) => return Ok(!both[0].revents().is_empty()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
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
pub(in crate::suite) fn signal_name(signal: i32) -> String {
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
