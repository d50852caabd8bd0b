//! Runs one check in its own process: the parent's side.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use supervisor::{Leftovers, Supervised};

use super::verdict::{Departure, TROUBLE, Verdict, failure_text};
use super::{Plan, Report, Stop, keep, stacks, stopped};
use crate::stand_in::recorder;
use crate::suite::fixture::{Late, Time};
use crate::suite::{Check, Status, lifecycle};

/// Bytes of a provider's output to keep.
const KEPT_OUTPUT: u64 = 16 << 10;

/// Time limit for exit handlers after a check.
const AT_EXIT: Duration = Duration::from_secs(20);

/// One check to run.
pub(super) struct Job<'a> {
    pub check: &'static Check,
    pub library: &'a Path,
    /// The check's folder.
    pub folder: &'a Path,
    pub plan: &'a Plan,
    pub time: Time,
}

impl Job<'_> {
    /// Runs the check to its end.
    ///
    /// # Errors
    /// The harness failed, or the run was stopped.
    pub fn run(&self, stop: &Stop) -> io::Result<Report> {
        let (stdout, stderr) = (self.folder.join("stdout"), self.folder.join("stderr"));
        let (life, stdin) = UnixStream::pair()?;
        // An empty standard input: a read returns end of file.
        life.shutdown(Shutdown::Write)?;
        let mut command = self.command();
        command
            .stdin(OwnedFd::from(stdin))
            .stdout(create(&stdout)?)
            .stderr(create(&stderr)?);
        let mut child = Supervised::spawn(&mut command, Leftovers::END)
            .map_err(|error| named(&self.plan.program, error))?;
        // The child holds the other end of `life`.
        drop(command);
        let mut stacks = Vec::new();
        let has_ended = ends_within(&child, self.patience(), stop)?;
        // The signals for the stacks may wake it up.
        let place = recorder::last_call(self.folder);
        // Ends all processes that the provider started.
        let status = match has_ended {
            true => Some(child.wait()?),
            false => {
                if !stop.is_set() {
                    let pid = child.pid().as_raw_nonzero().get();
                    stacks = stacks::of_all_threads(pid, self.folder, &self.plan.program);
                }
                child.kill()?;
                None
            }
        };
        if stop.is_set() {
            return Err(stopped());
        }
        let printed = read(&stdout);
        let mut report = self.report(status, place.as_deref());
        if let (Status::Crashed, Some(trouble)) = (report.status, trouble(life)) {
            return Err(io::Error::other(format!("{}: {trouble}", self.check.name)));
        }
        report.stacks = stacks;
        if !printed.is_empty() {
            let departure = Departure::printed(cut(&printed, 200));
            report.departures.push(departure);
        }
        report.output = printed + &read(&stderr);
        if report.status.is_bad(false) || self.check.is_probe() {
            report.log = recorder::last_lines_up_to(self.folder, self.plan.log_level);
        }
        Ok(report)
    }

    fn command(&self) -> Command {
        let plan = self.plan;
        let milliseconds = |time: Duration| time.as_millis().to_string();
        let mut command = Command::new(&plan.program);
        command
            .arg("run-check")
            .args(plan.strict.then_some("--strict"))
            .args(plan.at_exit.then_some("--at-exit"))
            .args(plan.options.iter().map(|line| format!("--line={line}")))
            .arg(format!("--log-level={}", plan.log_level))
            .arg(format!("--limit={}", milliseconds(self.limit())))
            .args(
                self.time
                    .deadline
                    .map(|deadline| format!("--deadline={}", milliseconds(deadline))),
            )
            .arg("--folder")
            .arg(self.folder)
            .arg("--result")
            .arg(self.result());
        if let Some(trace) = keep::trace_of(plan, self.folder) {
            command.arg("--trace").arg(trace);
        }
        command
            .args(["--", self.check.name])
            .arg(self.library)
            .envs(environment(self.check));
        command
    }

    fn result(&self) -> PathBuf {
        self.folder.join("result.json")
    }

    fn limit(&self) -> Duration {
        self.time
            .limit
            .saturating_mul(self.check.time_factor())
            .saturating_add(self.time.extra)
    }

    /// Returns how long to wait for the child's end.
    fn patience(&self) -> Duration {
        match self.plan.at_exit {
            true => self.limit().saturating_add(AT_EXIT),
            false => self.limit(),
        }
    }

    /// Returns the report for a child's end.
    fn report(&self, ended: Option<ExitStatus>, place: Option<&str>) -> Report {
        let check = self.check;
        let mut report = Report::new(check.name, Status::Crashed, String::new());
        let verdict = std::fs::read(self.result())
            .ok()
            .and_then(|text| serde_json::from_slice::<Verdict>(&text).ok());
        let is_clean = ended.is_some_and(|ended| ended.success());
        match verdict {
            Some(verdict) if is_clean => verdict.into_report(&mut report),
            // The exit handlers ran after the verdict.
            Some(verdict) if self.plan.at_exit => {
                verdict.into_report(&mut report);
                report_exit(&mut report, check, ended);
            }
            _ => match ended {
                None => {
                    let seen = not_over(self.limit(), place);
                    report.status = Status::TimedOut;
                    report.late = Some(Late::Hung);
                    report.cause = Some(cause_of("timed out", place));
                    report.message = lost(check, &seen);
                }
                Some(ended) => {
                    let how = match ended.signal() {
                        Some(signal) => {
                            report.signal = Some(signal_name(signal));
                            signal_name(signal)
                        }
                        None => format!("exit code {}", ended.code().unwrap_or(-1)),
                    };
                    let place_told = place.map(|place| format!(", {place}"));
                    let by = if report.signal.is_some() {
                        "by"
                    } else {
                        "with"
                    };
                    let seen = format!(
                        "the process was ended {by} {how}{}",
                        place_told.unwrap_or_default()
                    );
                    report.cause = Some(cause_of(&how, place));
                    report.message = lost(check, &seen);
                }
            },
        }
        report
    }
}

/// Describes a check that timed out, with the last callback.
fn not_over(limit: Duration, place: Option<&str>) -> String {
    match place {
        Some(place) if place.starts_with("inside") => {
            format!("timed out after {limit:?}, {place}: the core hangs in the provider")
        }
        Some(place) => {
            format!(
                "timed out after {limit:?}, {place}, which returned: the check still waited for the provider"
            )
        }
        None => format!("timed out after {limit:?}; the core had not called the provider"),
    }
}

/// Returns the common cause of checks that end at the same place: the callback without its arguments.
fn cause_of(how: &str, place: Option<&str>) -> String {
    let place = place.map(|place| place.split(" (").next().unwrap_or(place));
    match place {
        Some(place) => format!("{how} {place}"),
        None => how.to_owned(),
    }
}

/// Adds to the report what exit handlers did after the verdict.
fn report_exit(report: &mut Report, check: &Check, ended: Option<ExitStatus>) {
    // The ability is present; the checks that need it report the handlers.
    if check.is_probe() {
        return;
    }
    let how = match ended {
        None => format!("still running {AT_EXIT:?} after the check"),
        Some(ended) => match ended.signal() {
            Some(signal) => format!("ended by {}", signal_name(signal)),
            None => format!("ended with exit code {}", ended.code().unwrap_or(-1)),
        },
    };
    report.late = None;
    let seen = format!("the exit handlers: {how}");
    if report.status.is_bad(false) {
        report.message += &format!("\n  also: {seen}");
        return;
    }
    report.status = Status::Failed;
    report.cause = Some(format!("exit handlers {how}"));
    let rule = (check.rule_and_section(), "coverage and leak reports");
    report.message = failure_text("exit handlers that end with code 0", &seen, rule, &[]);
}

fn create(path: &Path) -> io::Result<File> {
    File::create(path).map_err(|error| named(path, error))
}

fn named(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Returns the harness error that an ended child reported.
fn trouble(life: UnixStream) -> Option<String> {
    life.set_nonblocking(true).ok()?;
    let mut text = Vec::new();
    // Ends with an error if a process that was left behind has the other end.
    let _ = life.take(KEPT_OUTPUT).read_to_end(&mut text);
    let text = String::from_utf8_lossy(&text);
    text.strip_prefix(TROUBLE).map(str::to_owned)
}

/// Describes a check that crashed or timed out: in the daemon, the core ends or hangs too.
fn lost(check: &Check, seen: &str) -> String {
    let harmed = "the daemon and all its clients";
    let rule = (check.rule_and_section(), harmed);
    failure_text("the check to end by itself", seen, rule, &[])
}

/// Returns the environment variable that the check needs; an existing value stays part of it.
fn environment(check: &Check) -> Option<(&'static str, OsString)> {
    let (name, value) = lifecycle::environment(check)?;
    let mut all = std::env::var_os(name).unwrap_or_default();
    if !all.is_empty() {
        all.push(":");
    }
    all.push(value);
    Some((name, all))
}

/// Waits for the child; false if the time limit ends or the run is stopped first.
fn ends_within(child: &Supervised, limit: Duration, stop: &Stop) -> io::Result<bool> {
    let start = Instant::now();
    loop {
        let left = limit.saturating_sub(start.elapsed());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        let mut both = [
            PollFd::new(child, PollFlags::IN),
            PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN),
        ];
        match poll(&mut both, Some(&left)) {
            Ok(_) => return Ok(both[0].revents().intersects(PollFlags::IN | PollFlags::HUP)),
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

/// Returns a signal's name.
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
