//! Child programs: started with their output in log files, stopped, continued and ended by pid. They end with this process,
//! whatever ends it.

use std::ffi::{OsStr, OsString};
use std::fs::{self, OpenOptions};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use supervisor::{Leftovers, Supervised};

use crate::error::{Context, Error, Result};
use crate::log::Log;
use crate::machine::Machine;
use crate::wait;

/// Exit status of `loader-test launch` if it cannot start the program, as in env(1).
pub const NOT_STARTED: u8 = 125;

/// Lines of a log that an error message shows.
const TAIL: usize = 12;

/// Variables that would direct a program to another simulator than the rig's.
const FOREIGN_VARIABLES: [&str; 9] = [
    "IBSIM_SERVER_NAME",
    "IBSIM_SERVER_PORT",
    "IBSIM_SOCKNAME",
    "SIM_HOST",
    "SIM_SET_ISSM",
    "FABRIC_SIM_CONTROL",
    "FABRIC_SIM_WIRES",
    "FABRIC_SIM_FIRST_QP",
    "FABRIC_SIM_SUBNET_TIMEOUT",
];

/// The settings of a program to start.
#[derive(Debug)]
pub struct Launch {
    name: String,
    machine: Arc<Machine>,
    program: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    directory: PathBuf,
    run: Option<PathBuf>,
    /// (what, where), bound before /run.
    shown: Vec<(PathBuf, PathBuf)>,
    hidden: Vec<(PathBuf, PathBuf)>,
    netlink: bool,
    stdin: Stdio,
    output: Log,
    errors: Option<Log>,
    own_log: Option<Log>,
}

impl Launch {
    /// Returns the settings to run `program` in `directory`, with its output appended to `NAME.log` there.
    pub fn new(machine: &Arc<Machine>, name: &str, program: &Path, directory: &Path) -> Self {
        Self {
            name: name.to_owned(),
            machine: Arc::clone(machine),
            program: program.to_owned(),
            arguments: Vec::new(),
            environment: Vec::new(),
            directory: directory.to_owned(),
            run: None,
            shown: Vec::new(),
            hidden: Vec::new(),
            netlink: false,
            stdin: Stdio::null(),
            output: Log::new(directory.join(format!("{name}.log"))),
            errors: None,
            own_log: None,
        }
    }

    /// Sets the program's own log file, for error messages; its output then goes to `NAME-output.log`.
    pub fn logs_to(mut self, log: &Log) -> Self {
        let file = format!("{}-output.log", self.name);
        self.output = Log::new(self.directory.join(file));
        self.own_log = Some(log.clone());
        self
    }

    /// Sets its name in error messages, if it differs from the name of its files.
    pub fn called(mut self, name: String) -> Self {
        self.name = name;
        self
    }

    /// Adds arguments.
    pub fn args(mut self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        let arguments = arguments.into_iter();
        self.arguments
            .extend(arguments.map(|argument| argument.as_ref().to_owned()));
        self
    }

    /// Sets an environment variable of the program.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.environment
            .push((name.as_ref().into(), value.as_ref().into()));
        self
    }

    /// Gives the program its own mount namespace, in which `folder` is /run.
    pub fn own_run(mut self, folder: &Path) -> Self {
        self.run = Some(folder.to_owned());
        self
    }

    /// Binds the folder `what` over `at`, a folder inside the program's future /run. Requires [`Self::own_run`].
    pub fn show(mut self, what: &Path, at: &Path) -> Self {
        self.shown.push((what.to_owned(), at.to_owned()));
        self
    }

    /// Binds the folder `empty` over the folder `path`, if that exists. Requires [`Self::own_run`].
    pub fn hide(mut self, path: &Path, empty: &Path) -> Self {
        if path.is_dir() {
            self.hidden.push((empty.to_owned(), path.to_owned()));
        }
        self
    }

    /// Passes a netlink socket to the program, as systemd does; see [`crate::launch::NETLINK`].
    pub fn netlink(mut self, passed: bool) -> Self {
        self.netlink = passed;
        self
    }

    /// Sets standard input; the default is empty.
    pub fn stdin(mut self, stdin: Stdio) -> Self {
        self.stdin = stdin;
        self
    }

    /// Writes standard error to its own file, `NAME.err`.
    pub fn separate_errors(mut self) -> Self {
        self.errors = Some(Log::new(self.directory.join(format!("{}.err", self.name))));
        self
    }

    /// Starts it.
    pub fn start(self) -> Result<Process> {
        let open = |log: &Log| {
            OpenOptions::new()
                .create(true)
                .append(true)
                .open(log.path())
                .context(|| format!("open {}", log.path().display()))
        };
        let output = open(&self.output)?;
        let errors = match &self.errors {
            Some(log) => open(log)?,
            None => output
                .try_clone()
                .context(|| format!("duplicate {}", self.output.path().display()))?,
        };

        let mut command = Command::new(&self.machine.programs.loader_test);
        command
            .arg("launch")
            .arg("--namespace")
            .arg(self.machine.namespace.holder()?.to_string());
        for name in FOREIGN_VARIABLES {
            command.env_remove(name);
        }
        for (name, value) in &self.environment {
            let mut pair = name.clone();
            pair.push("=");
            pair.push(value);
            command.arg("--env").arg(pair);
        }
        if let Some(run) = &self.run {
            for (what, at) in &self.shown {
                command.arg("--bind").arg(what).arg(at);
            }
            command.arg("--bind").arg(run).arg("/run");
            for (empty, path) in &self.hidden {
                command.arg("--bind").arg(empty).arg(path);
            }
        }
        if self.netlink {
            command.arg("--netlink");
        }
        command
            .arg("--")
            .arg(&self.program)
            .args(&self.arguments)
            .current_dir(&self.directory)
            .stdin(self.stdin)
            .stdout(output)
            .stderr(errors);
        let child = Supervised::spawn(&mut command, Leftovers::END)
            .context(|| format!("start {}", self.program.display()))?;
        Ok(Process {
            pid: child.pid(),
            name: self.name,
            output: self.output,
            errors: self.errors,
            own_log: self.own_log,
            directory: self.directory,
            child: Mutex::new(child),
        })
    }

    /// Starts it, waits for its end, and kills it after `limit`. Returns its exit status (`None` if it was killed) and its
    /// output.
    pub fn run(self, limit: Duration) -> Result<(Option<ExitStatus>, String)> {
        self.run_while(limit, || Ok(()))
    }

    /// Does the same; an error of `check` ends it.
    pub fn run_while(
        self,
        limit: Duration,
        check: impl Fn() -> Result<()>,
    ) -> Result<(Option<ExitStatus>, String)> {
        let start = self.output.end();
        let process = self.start()?;
        let ended = || check().and_then(|()| process.status());
        let status = match wait::until(process.name.as_str(), limit, ended) {
            Ok(status) if status.code() == Some(NOT_STARTED.into()) => {
                return Err(process.ended(status));
            }
            Ok(status) => Some(status),
            Err(Error::Timeout { .. }) => None,
            Err(error) => return Err(error),
        };
        process.kill();
        Ok((status, process.output.since(start)?))
    }
}

/// Locks a mutex even after a panic of another thread: the data under all our locks stays valid.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A running program. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    name: String,
    pid: Pid,
    output: Log,
    errors: Option<Log>,
    own_log: Option<Log>,
    directory: PathBuf,
    child: Mutex<Supervised>,
}

impl Process {
    /// Returns its process id.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Returns its output: both streams, or only standard output after [`Launch::separate_errors`].
    pub fn output(&self) -> &Log {
        &self.output
    }

    /// Returns its exit status, if it has ended.
    pub fn status(&self) -> Result<Option<ExitStatus>> {
        lock(&self.child)
            .try_wait()
            .context(|| format!("wait for {}", self.name))
    }

    /// Returns an error with the end of its output if it has ended.
    pub fn check(&self) -> Result<()> {
        match self.status()? {
            None => Ok(()),
            Some(status) => Err(self.ended(status)),
        }
    }

    fn ended(&self, status: ExitStatus) -> Error {
        let logs = [
            self.errors.as_ref(),
            Some(&self.output),
            self.own_log.as_ref(),
        ];
        let tails: Vec<String> = logs.iter().flatten().map(|log| log.tail(TAIL)).collect();
        if status.code() == Some(NOT_STARTED.into()) {
            return Error::NotStarted {
                name: self.name.clone(),
                reason: self.errors.as_ref().unwrap_or(&self.output).tail(1),
            };
        }
        Error::Ended {
            name: self.name.clone(),
            status: describe(status),
            tail: tails.join("\n").trim().to_owned(),
        }
    }

    /// Takes the other end of a piped standard input.
    pub fn take_stdin(&self) -> Option<ChildStdin> {
        lock(&self.child).take_stdin()
    }

    /// Sends a signal. Fails if the process has ended.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let mut child = lock(&self.child);
        let operation = || format!("send {signal:?} to {} ({})", self.name, self.pid());
        if let Some(status) = child.try_wait().context(operation)? {
            return Err(self.ended(status));
        }
        child.signal(signal).context(operation)
    }

    /// Sends SIGSTOP and waits until every thread has stopped.
    pub fn stop(&self) -> Result<()> {
        self.signal(Signal::STOP)?;
        let threads = PathBuf::from(format!("/proc/{}/task", self.pid()));
        wait::until_true(format!("{} to stop", self.name), wait::PATIENCE, || {
            let tasks = threads
                .read_dir()
                .context(|| format!("read {}", threads.display()))?;
            Ok(tasks
                .flatten()
                .all(|task| state(&task.path().join("stat")) == Some('T')))
        })
    }

    /// Sends SIGCONT.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// Kills it and all its processes, and waits for their end. Succeeds if it has already ended.
    pub fn kill(&self) {
        // The kill fails only if the process has already ended.
        let _ = lock(&self.child).kill();
        // A killed program leaves the sysfs files of ibsim's preload behind.
        let _ = fs::remove_dir_all(self.directory.join(format!("sys-{}", self.pid())));
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The state letter of a /proc/…/stat, see proc(5).
fn state(stat: &Path) -> Option<char> {
    let stat = fs::read_to_string(stat).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.trim_start().chars().next()
}

pub(crate) fn describe(status: ExitStatus) -> String {
    match status.signal() {
        Some(signal) => format!("killed by signal {signal}"),
        None => status.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_is_found_behind_any_name() {
        let own = state(Path::new("/proc/thread-self/stat"));
        assert_eq!(own, Some('R'));
    }
}
