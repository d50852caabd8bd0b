//! Runs a command with a time limit, and ends all processes that it started.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use supervisor::{Leftovers, Supervised};

use crate::error::Error;
use crate::shown;

/// How long a stopped command may clean up before its processes are killed.
const PATIENCE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);

/// A time budget that several commands share.
#[derive(Clone, Copy)]
pub struct Budget {
    whole: Duration,
    deadline: Instant,
}

impl Budget {
    pub fn start(whole: Duration) -> Self {
        Self {
            whole,
            deadline: Instant::now() + whole,
        }
    }
}

/// Runs a command that may leave processes behind (a compiler cache leaves its server).
pub fn run(command: &mut Command, budget: Budget) -> Result<(), Error> {
    Supervision::of(command, budget, PATIENCE)?.until_the_end(command, Leftovers::Keep)
}

/// Runs a command that must not leave processes behind: they are killed, and the command counts as failed.
pub fn run_clean(command: &mut Command, budget: Budget) -> Result<(), Error> {
    Supervision::of(command, budget, PATIENCE)?
        .until_the_end(command, Leftovers::EndAfter(PATIENCE))
}

/// The stream of a command that is read.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Stream {
    Output,
    Errors,
}

/// Like [`run_clean`], and passes each line of one of the streams to `line` after printing it.
pub fn run_clean_reading(
    command: &mut Command,
    stream: Stream,
    budget: Budget,
    line: impl FnMut(&str) + Send,
) -> Result<(), Error> {
    Supervision::of(command, budget, PATIENCE)?.reading(command, stream, line)
}

struct Supervision {
    name: String,
    budget: Budget,
    patience: Duration,
    signal: Arc<AtomicUsize>,
}

impl Supervision {
    fn of(command: &Command, budget: Budget, patience: Duration) -> Result<Self, Error> {
        Ok(Self {
            name: shown(command),
            budget,
            patience,
            signal: received_signal()?,
        })
    }

    fn spawn(&self, command: &mut Command, leftovers: Leftovers) -> Result<Supervised, Error> {
        Supervised::spawn(command.stdin(Stdio::null()), leftovers).map_err(|source| Error::Spawn {
            command: self.name.clone(),
            source,
        })
    }

    fn until_the_end(&self, command: &mut Command, leftovers: Leftovers) -> Result<(), Error> {
        self.wait(&mut self.spawn(command, leftovers)?)
    }

    fn reading(
        &self,
        command: &mut Command,
        stream: Stream,
        mut line: impl FnMut(&str) + Send,
    ) -> Result<(), Error> {
        let leftovers = Leftovers::EndAfter(self.patience);
        let mut child = self.spawn(
            match stream {
                Stream::Output => command.stdout(Stdio::piped()),
                Stream::Errors => command.stderr(Stdio::piped()),
            },
            leftovers,
        )?;
        let (output, errors) = (child.take_stdout(), child.take_stderr());
        thread::scope(|scope| {
            scope.spawn(move || {
                if let Some(output) = output {
                    pass_on(output, &mut line);
                }
                if let Some(errors) = errors {
                    pass_on(errors, &mut line);
                }
            });
            // When this returns, no process holds the pipe any more.
            self.wait(&mut child)
        })
    }

    /// Waits until the command and its leftover processes end; stops them when over budget or on a signal.
    fn wait(&self, child: &mut Supervised) -> Result<(), Error> {
        loop {
            if let Some(status) = child.try_wait().map_err(waiting)? {
                return self.judge(status, child);
            }
            if let Ok(signal @ 1..) = i32::try_from(self.signal.load(Ordering::Relaxed)) {
                self.stop(child)?;
                return Err(Error::Interrupted(signal));
            }
            if Instant::now() >= self.budget.deadline {
                self.stop(child)?;
                return Err(Error::OverBudget {
                    command: self.name.clone(),
                    budget: self.budget.whole,
                });
            }
            thread::sleep(POLL);
        }
    }

    fn judge(&self, status: ExitStatus, child: &Supervised) -> Result<(), Error> {
        if !status.success() {
            return Err(Error::Failed {
                command: self.name.clone(),
                status,
            });
        }
        if child.leftovers().is_empty() {
            return Ok(());
        }
        let processes = child.leftovers().iter();
        Err(Error::LeftBehind {
            command: self.name.clone(),
            processes: processes
                .map(|left| format!("{} ({})", left.name, left.pid))
                .collect(),
        })
    }

    /// Lets the command clean up, then kills what is left. A Ctrl-C in the terminal has not reached it, because
    /// it has its own process group.
    fn stop(&self, child: &mut Supervised) -> Result<(), Error> {
        // It may already have ended.
        let _ = child.signal(Signal::TERM);
        let deadline = Instant::now() + self.patience;
        while Instant::now() < deadline && !child.has_ended().map_err(waiting)? {
            thread::sleep(POLL);
        }
        child.kill().map(drop).map_err(waiting)
    }
}

fn waiting(source: std::io::Error) -> Error {
    Error::System {
        operation: "wait for a child",
        source,
    }
}

/// Returns the number of the signal that xtask received, 0 without one. The value is kept between commands.
fn received_signal() -> Result<Arc<AtomicUsize>, Error> {
    static RECEIVED: OnceLock<Arc<AtomicUsize>> = OnceLock::new();
    if let Some(received) = RECEIVED.get() {
        return Ok(Arc::clone(received));
    }
    let received = Arc::new(AtomicUsize::new(0));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        let value = usize::try_from(signal).unwrap_or_default();
        signal_hook::flag::register_usize(signal, Arc::clone(&received), value).map_err(
            |source| Error::System {
                operation: "watch for signals",
                source,
            },
        )?;
    }
    Ok(Arc::clone(RECEIVED.get_or_init(|| received)))
}

fn pass_on(output: impl Read, line: &mut impl FnMut(&str)) {
    let mut reader = BufReader::new(output);
    let mut bytes = Vec::new();
    while matches!(reader.read_until(b'\n', &mut bytes), Ok(count) if count > 0) {
        // If our own output is closed, the output is lost, but the command must not block.
        let _ = std::io::stdout().write_all(&bytes);
        line(String::from_utf8_lossy(&bytes).trim_end());
        bytes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_shell(
        script: &str,
        budget: Duration,
        patience: Duration,
    ) -> (Result<(), Error>, Vec<String>) {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let mut lines = Vec::new();
        let outcome = Supervision::of(&command, Budget::start(budget), patience)
            .unwrap()
            .reading(&mut command, Stream::Output, |line| {
                lines.push(line.to_owned())
            });
        (outcome, lines)
    }

    const PLENTY: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(300);

    #[test]
    fn lines_arrive_whole_and_the_last_one_needs_no_newline() {
        let (outcome, lines) = run_shell("echo one; printf two", PLENTY, PLENTY);
        outcome.unwrap();
        assert_eq!(lines, ["one", "two"]);
    }

    #[test]
    fn a_failing_command_is_named_with_its_status() {
        let (outcome, _) = run_shell("exit 3", PLENTY, PLENTY);
        let message = outcome.unwrap_err().to_string();
        assert!(
            message.contains("sh -c 'exit 3'") && message.contains("status: 3"),
            "{message}"
        );
    }

    #[test]
    fn over_budget_a_command_is_stopped_with_its_descendants() {
        let file = std::env::temp_dir().join(format!("xtask-supervise-{}", std::process::id()));
        let pid = file.display();
        let script = format!("setsid sh -c 'echo $$ >{pid}; exec sleep 600' & wait");
        // Long enough for the shells to start.
        let (outcome, _) = run_shell(&script, Duration::from_secs(3), SHORT);
        assert!(
            matches!(outcome, Err(Error::OverBudget { .. })),
            "{outcome:?}"
        );
        let pid = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert!(!std::path::Path::new(&format!("/proc/{}", pid.trim())).exists());
    }

    #[test]
    fn over_budget_a_command_may_clean_up() {
        let script = "trap 'echo cleaned; exit 1' TERM; sleep 600 & wait";
        // Long enough for the shell to set its trap.
        let (outcome, lines) = run_shell(script, Duration::from_secs(3), PLENTY);
        assert!(
            matches!(outcome, Err(Error::OverBudget { .. })),
            "{outcome:?}"
        );
        assert_eq!(lines, ["cleaned"]);
    }

    #[test]
    fn a_command_that_ignores_sigterm_is_killed() {
        let script = "trap '' TERM; sleep 600";
        let (outcome, _) = run_shell(script, SHORT, SHORT);
        assert!(
            matches!(outcome, Err(Error::OverBudget { .. })),
            "{outcome:?}"
        );
    }

    #[test]
    fn a_daemon_left_behind_is_named_and_killed() {
        // Wait until exec has renamed the process.
        let script = "setsid sleep 600 & until grep -qx sleep /proc/$!/comm; do sleep 0.01; done";
        let (outcome, _) = run_shell(script, PLENTY, SHORT);
        let Err(Error::LeftBehind { processes, .. }) = outcome else {
            panic!("{outcome:?}")
        };
        assert!(processes[0].starts_with("sleep"), "{processes:?}");
    }
}
