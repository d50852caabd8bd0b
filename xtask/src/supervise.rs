//! Runs a command within a budget of time, and sees to it that nothing survives it.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::error::Error;
use crate::{processes, shown};

/// How long a stopped command may clean up before it and all that it started is killed.
const PATIENCE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);

/// A share of time, spent by one command after the other.
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

/// Runs a command that may leave processes behind on purpose (a compiler cache leaves its server).
pub fn run(command: &mut Command, budget: Budget) -> Result<(), Error> {
    Supervision::of(command, budget, PATIENCE)?.until_the_end(command)
}

/// Runs a command that must clean up after itself: what it leaves behind is killed and makes it fail.
pub fn run_clean(command: &mut Command, budget: Budget) -> Result<(), Error> {
    let supervision = Supervision::of(command, budget, PATIENCE)?;
    supervision
        .until_the_end(command)
        .and(supervision.nothing_is_left())
}

/// Which of a command's streams is read.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Stream {
    Output,
    Errors,
}

/// The same, and hands each line of one of its streams to `line` after passing it on.
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
    /// Descendants of xtask that the command did not start.
    older: BTreeSet<i32>,
    signal: Arc<AtomicUsize>,
}

impl Supervision {
    fn of(command: &Command, budget: Budget, patience: Duration) -> Result<Self, Error> {
        processes::adopt_orphans()?;
        Ok(Self {
            name: shown(command),
            budget,
            patience,
            older: processes::descendants().into_keys().collect(),
            signal: received_signal()?,
        })
    }

    fn spawn(&self, command: &mut Command) -> Result<Child, Error> {
        command
            .stdin(Stdio::null())
            .spawn()
            .map_err(|source| Error::Spawn {
                command: self.name.clone(),
                source,
            })
    }

    fn until_the_end(&self, command: &mut Command) -> Result<(), Error> {
        let mut child = self.spawn(command)?;
        self.wait(&mut child)
    }

    fn reading(
        &self,
        command: &mut Command,
        stream: Stream,
        mut line: impl FnMut(&str) + Send,
    ) -> Result<(), Error> {
        let mut child = self.spawn(match stream {
            Stream::Output => command.stdout(Stdio::piped()),
            Stream::Errors => command.stderr(Stdio::piped()),
        })?;
        let (output, errors) = (child.stdout.take(), child.stderr.take());
        thread::scope(|scope| {
            scope.spawn(move || {
                if let Some(output) = output {
                    pass_on(output, &mut line);
                }
                if let Some(errors) = errors {
                    pass_on(errors, &mut line);
                }
            });
            // Whoever is left may hold the pipe, whose reader would then never see its end.
            self.wait(&mut child).and(self.nothing_is_left())
        })
    }

    /// Waits for the end of the command itself; over budget or on a signal, stops it.
    fn wait(&self, child: &mut Child) -> Result<(), Error> {
        loop {
            let ended = child.try_wait().map_err(|source| Error::System {
                operation: "wait for a child",
                source,
            })?;
            match ended {
                Some(status) if status.success() => return Ok(()),
                Some(status) => {
                    return Err(Error::Failed {
                        command: self.name.clone(),
                        status,
                    });
                }
                None => {}
            }
            if let Ok(signal @ 1..) = i32::try_from(self.signal.load(Ordering::Relaxed)) {
                self.stop(child, signal);
                return Err(Error::Interrupted(signal));
            }
            if Instant::now() >= self.budget.deadline {
                self.stop(child, SIGTERM);
                return Err(Error::OverBudget {
                    command: self.name.clone(),
                    budget: self.budget.whole,
                });
            }
            thread::sleep(POLL);
        }
    }

    /// Lets the command clean up, then ends whatever is left of it.
    fn stop(&self, child: &mut Child, signal: i32) {
        // A terminal's Ctrl-C has reached the command already; a second one might cut its cleaning short.
        if signal != SIGINT {
            // Not reaped yet, so the pid is still the child's.
            let _ = kill_process(Pid::from_child(child), Signal::TERM);
        }
        let deadline = Instant::now() + self.patience;
        while Instant::now() < deadline && matches!(child.try_wait(), Ok(None)) {
            thread::sleep(POLL);
        }
        processes::end_all(&self.older, self.patience);
        let _ = child.wait();
    }

    fn nothing_is_left(&self) -> Result<(), Error> {
        let left = processes::wait_until_gone(&self.older, self.patience);
        if left.is_empty() {
            return Ok(());
        }
        processes::end_all(&self.older, self.patience);
        Err(Error::LeftBehind {
            command: self.name.clone(),
            processes: left
                .iter()
                .map(|(pid, name)| format!("{name} ({pid})"))
                .collect(),
        })
    }
}

/// Number of the signal that told xtask to stop, 0 without one. Kept between commands.
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
        // With our own output closed there is nobody to tell, but the command must not block.
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
        let _alone = processes::alone();
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let mut lines = Vec::new();
        let outcome = Supervision::of(&command, Budget::start(budget), patience)
            .unwrap()
            .reading(&mut command, Stream::Output, |line| {
                lines.push(line.to_owned())
            });
        let left = processes::wait_until_gone(&BTreeSet::new(), PLENTY);
        assert!(left.is_empty(), "{left:?}");
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
        let (outcome, _) = run_shell("sh -c 'sleep 600; :' & wait", SHORT, SHORT);
        assert!(
            matches!(outcome, Err(Error::OverBudget { .. })),
            "{outcome:?}"
        );
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
    fn who_ignores_the_request_to_end_is_killed() {
        let script = "trap '' TERM; sleep 600";
        let (outcome, _) = run_shell(script, SHORT, SHORT);
        assert!(
            matches!(outcome, Err(Error::OverBudget { .. })),
            "{outcome:?}"
        );
    }

    #[test]
    fn a_daemon_left_behind_is_named_and_killed() {
        // It has its name before the command ends.
        let script = "setsid sleep 600 & until grep -qx sleep /proc/$!/comm; do sleep 0.01; done";
        let (outcome, _) = run_shell(script, PLENTY, SHORT);
        let Err(Error::LeftBehind { processes, .. }) = outcome else {
            panic!("{outcome:?}")
        };
        assert!(processes[0].starts_with("sleep"), "{processes:?}");
    }
}
