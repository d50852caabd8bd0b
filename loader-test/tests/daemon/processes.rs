//! Reads processes from /proc.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use loader_test::wait;

/// A process, identified even if its pid is reused.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process {
    pub pid: i32,
    parent: i32,
    /// Clock ticks since the machine started.
    pub started: u64,
    pub command: String,
    /// Its mount namespace, if it can be seen.
    pub mounts: Option<PathBuf>,
    /// Its network namespace, likewise.
    pub network: Option<PathBuf>,
}

impl Process {
    /// Whether it was started with that argument.
    pub fn has_argument(&self, argument: &str) -> bool {
        let line = fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        line.split(|byte| *byte == 0)
            .any(|word| word == argument.as_bytes())
    }
}

/// Returns all processes except zombies.
pub fn all() -> Vec<Process> {
    let folders = fs::read_dir("/proc").unwrap().flatten();
    folders.filter_map(|folder| read(folder.path())).collect()
}

fn read(folder: PathBuf) -> Option<Process> {
    let stat = fs::read_to_string(folder.join("stat")).ok()?;
    let (head, fields) = stat.rsplit_once(") ")?;
    let (pid, command) = head.split_once(" (")?;
    let fields: Vec<&str> = fields.split(' ').collect();
    if fields[0] == "Z" || fields[0] == "X" {
        return None;
    }
    Some(Process {
        pid: pid.parse().ok()?,
        parent: fields[1].parse().ok()?,
        started: fields[19].parse().ok()?,
        command: command.to_owned(),
        mounts: fs::read_link(folder.join("ns/mnt")).ok(),
        network: fs::read_link(folder.join("ns/net")).ok(),
    })
}

/// Returns all descendants of `pid`.
pub fn descendants(pid: i32) -> BTreeSet<Process> {
    let everyone = all();
    let mut found = BTreeSet::new();
    let mut parents = vec![pid];
    while let Some(parent) = parents.pop() {
        for process in everyone.iter().filter(|process| process.parent == parent) {
            parents.push(process.pid);
            found.insert(process.clone());
        }
    }
    found
}

/// Waits until none of `processes` is left.
pub fn wait_until_gone(processes: &BTreeSet<Process>) {
    let key = |process: &Process| (process.pid, process.started);
    let keys: BTreeSet<_> = processes.iter().map(key).collect();
    wait_until_none("the end of what was started", |process| {
        keys.contains(&key(process))
    });
}

/// Waits until no process is left that fits.
pub fn wait_until_none(what: &str, fits: impl Fn(&Process) -> bool) {
    let left = || all().into_iter().filter(&fits).collect::<Vec<_>>();
    wait::until_true(what, Duration::from_secs(60), || Ok(left().is_empty()))
        .unwrap_or_else(|error| panic!("{error}; there are {:?}", left()));
}
