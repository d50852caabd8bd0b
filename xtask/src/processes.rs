//! The processes that descend from this one, read from /proc.
//!
//! xtask makes itself the subreaper of what it starts, so a daemon whose parent has ended is
//! handed to xtask instead of init, and is found here as well.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, set_child_subreaper};

use crate::error::Error;

const POLL: Duration = Duration::from_millis(50);

/// Makes orphans among the descendants children of this process.
pub fn adopt_orphans() -> Result<(), Error> {
    set_child_subreaper(Some(rustix::process::getpid())).map_err(|errno| Error::System {
        operation: "become the reaper of orphaned processes",
        source: errno.into(),
    })
}

/// The live descendants of this process: pid and name. Zombies do not count.
pub fn descendants() -> BTreeMap<i32, String> {
    let everyone = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok())
        .filter_map(|stat| Process::parse(&stat))
        .collect();
    below(rustix::process::getpid().as_raw_nonzero().get(), everyone)
}

/// Waits until no descendant but those in `spared` is left. Returns who is still there after `patience`.
pub fn wait_until_gone(spared: &BTreeSet<i32>, patience: Duration) -> BTreeMap<i32, String> {
    let deadline = Instant::now() + patience;
    loop {
        let mut left = descendants();
        left.retain(|pid, _| !spared.contains(pid));
        if left.is_empty() || Instant::now() >= deadline {
            return left;
        }
        thread::sleep(POLL);
    }
}

/// Ends every descendant but those in `spared`: asks, and after `patience` forces.
pub fn end_all(spared: &BTreeSet<i32>, patience: Duration) {
    let mut left = wait_until_gone(spared, Duration::ZERO);
    signal_each(&left, Signal::TERM);
    left = wait_until_gone(spared, patience);
    // A process may start another while it is being killed: look again until nobody is left.
    for _ in 0..20 {
        if left.is_empty() {
            return;
        }
        signal_each(&left, Signal::KILL);
        left = wait_until_gone(spared, Duration::from_millis(500));
    }
    for (pid, name) in left {
        eprintln!("xtask: cannot end {name} ({pid})");
    }
}

fn signal_each(processes: &BTreeMap<i32, String>, signal: Signal) {
    for &pid in processes.keys() {
        if let Some(pid) = Pid::from_raw(pid) {
            // It may have ended by itself in the meantime.
            let _ = kill_process(pid, signal);
        }
    }
}

#[derive(Debug, PartialEq)]
struct Process {
    pid: i32,
    parent: i32,
    name: String,
    state: char,
}

impl Process {
    /// Reads /proc/PID/stat, see proc(5): `pid (name) state ppid …`; the name may hold anything, `)` too.
    fn parse(stat: &str) -> Option<Self> {
        let (pid, rest) = stat.split_once(" (")?;
        let (name, rest) = rest.rsplit_once(") ")?;
        let mut fields = rest.split_ascii_whitespace();
        Some(Self {
            pid: pid.parse().ok()?,
            state: fields.next()?.chars().next()?,
            parent: fields.next()?.parse().ok()?,
            name: name.to_owned(),
        })
    }

    fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }
}

/// Those of `everyone` that descend from `ancestor` and have not ended.
fn below(ancestor: i32, everyone: Vec<Process>) -> BTreeMap<i32, String> {
    let mut children = BTreeMap::<i32, Vec<Process>>::new();
    for process in everyone {
        children.entry(process.parent).or_default().push(process);
    }
    let mut found = BTreeMap::new();
    let mut parents = vec![ancestor];
    while let Some(parent) = parents.pop() {
        // A removed entry cannot be visited twice, whatever /proc claims while it changes.
        for process in children.remove(&parent).unwrap_or_default() {
            parents.push(process.pid);
            if !process.has_ended() {
                found.insert(process.pid, process.name);
            }
        }
    }
    found
}

/// Held by every test that starts processes: the ones here see, and end, those of the others.
#[cfg(test)]
pub fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, parent: i32, state: char) -> Process {
        Process {
            pid,
            parent,
            state,
            name: format!("p{pid}"),
        }
    }

    #[test]
    fn a_name_with_brackets_and_blanks_does_not_shift_the_fields() {
        let parsed = Process::parse("42 (a) S 1 (b) Z 7 42 42 0").unwrap();
        assert_eq!(
            parsed,
            Process {
                pid: 42,
                parent: 7,
                name: "a) S 1 (b".into(),
                state: 'Z'
            }
        );
    }

    #[test]
    fn half_a_line_is_no_process() {
        for text in [
            "",
            "42",
            "42 (name",
            "42 (name) ",
            "42 (name) S",
            "x (name) S 1",
        ] {
            assert_eq!(Process::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn grandchildren_count_strangers_and_zombies_do_not() {
        let everyone = vec![
            process(1, 0, 'S'),
            process(10, 1, 'S'),
            process(11, 10, 'Z'),
            process(12, 11, 'S'),
            process(13, 10, 'R'),
            process(20, 1, 'S'),
        ];
        assert_eq!(
            below(10, everyone).into_keys().collect::<Vec<_>>(),
            [12, 13]
        );
    }

    #[test]
    fn a_loop_in_the_parents_ends() {
        let everyone = vec![process(10, 11, 'S'), process(11, 10, 'S')];
        assert_eq!(below(10, everyone).len(), 2);
    }
}
