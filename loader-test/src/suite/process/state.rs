//! The state of a process, as one table with a row per property. It belongs to the daemon; no library may change it.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fs;
use std::mem::MaybeUninit;
use std::path::Path;

use super::threads::threads;
use crate::suite::run::signal_name;

/// A property at a moment: names and values.
pub type Values = BTreeMap<String, String>;

/// The check of a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Signal dispositions.
    Signals,
    /// Current folder and umask.
    Folder,
    /// The environment and the locale.
    Environment,
    /// Limits and scheduling.
    Limits,
    /// Identity and privileges.
    Privileges,
    /// Open files.
    Descriptors,
    /// Other processes.
    Children,
    /// Threads.
    Threads,
    /// Timers.
    Timers,
    /// Memory that is both writable and executable.
    Memory,
}

/// When a property must equal its value before load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// At every moment.
    Always,
    /// After everything is closed; meanwhile there may be more, but not less.
    AfterClose,
}

/// A row of the table.
pub struct Property {
    /// Its name, as the subject of a sentence.
    pub name: &'static str,
    /// Its check.
    pub group: Group,
    /// When it must be unchanged.
    pub kept: Kept,
    /// The effect of a change; `None` if it affects no one.
    pub harm: Option<&'static str>,
    /// Reads its current value.
    pub read: fn() -> Values,
}

/// The table.
pub const PROPERTIES: &[Property] = &[
    Property {
        name: "the blocked signals",
        group: Group::Signals,
        kept: Kept::Always,
        harm: Some("the daemon cannot be stopped"),
        read: || status(&["SigBlk"]),
    },
    Property {
        name: "what signals do",
        group: Group::Signals,
        kept: Kept::Always,
        harm: Some("the daemon cannot be stopped, or does not end where it should"),
        read: dispositions,
    },
    Property {
        name: "the current folder",
        group: Group::Folder,
        kept: Kept::Always,
        harm: Some("relative paths of the daemon lead elsewhere"),
        read: || links(&["cwd", "root"]),
    },
    Property {
        name: "the umask",
        group: Group::Folder,
        kept: Kept::Always,
        harm: Some("the files that the daemon creates get other modes"),
        read: || status(&["Umask"]),
    },
    Property {
        name: "the environment",
        group: Group::Environment,
        kept: Kept::Always,
        harm: Some("the daemon and the other providers read it, on other threads"),
        read: environment,
    },
    Property {
        name: "the locale",
        group: Group::Environment,
        kept: Kept::Always,
        harm: Some("the daemon writes and reads numbers differently"),
        read: locale,
    },
    Property {
        name: "the resource limits",
        group: Group::Limits,
        kept: Kept::Always,
        harm: Some("the daemon lacks the limits that the operator set"),
        read: limits,
    },
    Property {
        name: "the scheduling",
        group: Group::Limits,
        kept: Kept::Always,
        harm: Some("the daemon's thread does not run with the operator's settings"),
        read: scheduling,
    },
    Property {
        name: "the attributes for the kernel",
        group: Group::Limits,
        kept: Kept::Always,
        harm: Some("the daemon sleeps, ends or dumps core against the operator's settings"),
        read: || {
            files(&[
                "timerslack_ns",
                "oom_score_adj",
                "coredump_filter",
                "personality",
            ])
        },
    },
    Property {
        name: "the identity",
        group: Group::Privileges,
        kept: Kept::Always,
        harm: Some("the daemon loses rights, or gains some"),
        read: || {
            status(&[
                "Uid",
                "Gid",
                "Groups",
                "CapInh",
                "CapPrm",
                "CapEff",
                "CapBnd",
                "CapAmb",
                "NoNewPrivs",
                "Seccomp",
                "Seccomp_filters",
            ])
        },
    },
    Property {
        name: "the settings of prctl",
        group: Group::Privileges,
        kept: Kept::Always,
        harm: Some("the daemon ends or appears against the operator's settings"),
        read: settings,
    },
    Property {
        name: "session, process group and name",
        group: Group::Privileges,
        kept: Kept::Always,
        harm: Some("the operator's tools do not find the daemon"),
        read: place,
    },
    Property {
        name: "the namespaces",
        group: Group::Privileges,
        kept: Kept::Always,
        harm: Some("the daemon sees another system"),
        read: || {
            let kinds = ["cgroup", "ipc", "mnt", "net", "pid", "user", "uts"];
            links(&kinds.map(|kind| format!("ns/{kind}")))
        },
    },
    Property {
        name: "the descriptors",
        group: Group::Descriptors,
        kept: Kept::AfterClose,
        harm: None,
        read: descriptors,
    },
    Property {
        name: "the child processes",
        group: Group::Children,
        kept: Kept::AfterClose,
        harm: Some("a process outlives the port, or stays as a zombie"),
        read: children,
    },
    Property {
        name: "the threads",
        group: Group::Threads,
        kept: Kept::AfterClose,
        harm: Some(
            "a thread keeps running without a port, and in unmapped code if the library is unloaded",
        ),
        read: threads,
    },
    Property {
        name: "the interval timers",
        group: Group::Timers,
        kept: Kept::Always,
        harm: Some("their signals end the daemon"),
        read: interval_timers,
    },
    Property {
        name: "the POSIX timers",
        group: Group::Timers,
        kept: Kept::AfterClose,
        harm: Some("a timer keeps running without a port"),
        read: posix_timers,
    },
    Property {
        name: "memory that is writable and executable",
        group: Group::Memory,
        kept: Kept::Always,
        harm: None,
        read: writable_code,
    },
];

fn one(name: impl Into<String>, value: impl Into<String>) -> Option<(String, String)> {
    Some((name.into(), value.into()))
}

/// Returns lines of this thread's status.
fn status(names: &[&str]) -> Values {
    let text = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .filter(|(name, _)| names.contains(name))
        .filter_map(|(name, value)| one(name, value.trim()))
        .collect()
}

fn links<T: AsRef<str>>(names: &[T]) -> Values {
    names
        .iter()
        .filter_map(|name| {
            let target = fs::read_link(Path::new("/proc/thread-self").join(name.as_ref())).ok()?;
            one(name.as_ref(), target.to_string_lossy())
        })
        .collect()
}

/// Leaves out what the kernel lets no one read.
fn files(names: &[&str]) -> Values {
    names
        .iter()
        .filter_map(|name| {
            let text = fs::read_to_string(Path::new("/proc/self").join(name)).ok()?;
            one(*name, text.trim())
        })
        .collect()
}

fn dispositions() -> Values {
    (1..=libc::SIGRTMAX())
        .filter_map(|signal| {
            let mut action = MaybeUninit::<libc::sigaction>::zeroed();
            // SAFETY: changes nothing, and fills the struct if there is such a signal.
            let action = unsafe {
                if libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) != 0 {
                    return None;
                }
                action.assume_init()
            };
            let does = match action.sa_sigaction {
                libc::SIG_DFL => "default".to_owned(),
                libc::SIG_IGN => "ignored".to_owned(),
                handler => format!("handler {handler:#x}, flags {:#x}", action.sa_flags),
            };
            one(signal_name(signal), does)
        })
        .collect()
}

fn environment() -> Values {
    std::env::vars_os()
        .map(|(name, value)| {
            let told = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
            (told(name), told(value))
        })
        .collect()
}

fn locale() -> Values {
    // SAFETY: without a name nothing is changed; the text is copied before anybody else can change it.
    let text = unsafe {
        let text = libc::setlocale(libc::LC_ALL, std::ptr::null());
        (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
    };
    text.and_then(|text| one("LC_ALL", text))
        .into_iter()
        .collect()
}

fn limits() -> Values {
    /// Width of the name column in /proc/self/limits.
    const NAME: usize = 26;
    let text = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    text.lines()
        .skip(1)
        .filter_map(|line| line.split_at_checked(NAME))
        .filter_map(|(name, value)| {
            let words: Vec<&str> = value.split_whitespace().collect();
            one(name.trim(), words.join(" "))
        })
        .collect()
}

fn scheduling() -> Values {
    let mut values = status(&["Cpus_allowed", "Mems_allowed"]);
    // SAFETY: these read numbers of this thread; 0 stands for it.
    let (policy, nice) = unsafe {
        let mut parameters = MaybeUninit::<libc::sched_param>::zeroed();
        libc::sched_getparam(0, parameters.as_mut_ptr());
        let priority = parameters.assume_init().sched_priority;
        let policy = (libc::sched_getscheduler(0), priority);
        (policy, libc::getpriority(libc::PRIO_PROCESS, 0))
    };
    values.extend(one("policy and priority", format!("{policy:?}")));
    values.extend(one("nice", nice.to_string()));
    values
}

fn settings() -> Values {
    // SAFETY: these options of prctl read a number.
    let by_value = |option| unsafe { libc::prctl(option, 0, 0, 0, 0) };
    let by_pointer = |option| {
        let mut value: libc::c_int = 0;
        // SAFETY: these options of prctl store a number.
        unsafe { libc::prctl(option, &raw mut value, 0, 0, 0) };
        value
    };
    [
        ("dumpable", by_value(libc::PR_GET_DUMPABLE)),
        ("keepcaps", by_value(libc::PR_GET_KEEPCAPS)),
        ("securebits", by_value(libc::PR_GET_SECUREBITS)),
        ("thp_disable", by_value(libc::PR_GET_THP_DISABLE)),
        ("child_subreaper", by_pointer(libc::PR_GET_CHILD_SUBREAPER)),
        ("pdeathsig", by_pointer(libc::PR_GET_PDEATHSIG)),
    ]
    .into_iter()
    .filter_map(|(name, value)| one(name, value.to_string()))
    .collect()
}

fn place() -> Values {
    // SAFETY: these have no conditions.
    let (session, group) = unsafe { (libc::getsid(0), libc::getpgid(0)) };
    let mut values = files(&["comm"]);
    values.extend(one("session", session.to_string()));
    values.extend(one("process group", group.to_string()));
    values
}

fn descriptors() -> Values {
    fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let number: libc::c_int = entry.file_name().to_str()?.parse().ok()?;
            let target = fs::read_link(entry.path()).ok()?;
            // The descriptor that reads this list.
            if target.starts_with("/proc") && target.ends_with("fd") {
                return None;
            }
            // SAFETY: reads flags of a descriptor, if it is one.
            let flags = unsafe { libc::fcntl(number, libc::F_GETFL) };
            let value = format!("{}, flags {flags:#o}", target.display());
            one(format!("descriptor {number}"), value)
        })
        .collect()
}

fn children() -> Values {
    let own = std::process::id().to_string();
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let pid = entry.file_name().into_string().ok()?;
            pid.parse::<u32>().ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            let (name, rest) = stat.rsplit_once(')')?;
            let mut fields = rest.split_whitespace();
            let (state, parent) = (fields.next()?, fields.next()?);
            let name = name.split_once('(')?.1;
            (parent == own).then(|| one(format!("process {pid}"), format!("{name:?}, {state}")))?
        })
        .collect()
}

fn interval_timers() -> Values {
    [
        ("ITIMER_REAL", libc::ITIMER_REAL),
        ("ITIMER_VIRTUAL", libc::ITIMER_VIRTUAL),
        ("ITIMER_PROF", libc::ITIMER_PROF),
    ]
    .into_iter()
    .filter_map(|(name, timer)| {
        let mut value = MaybeUninit::<libc::itimerval>::zeroed();
        // SAFETY: fills the struct.
        let value = unsafe {
            libc::getitimer(timer, value.as_mut_ptr());
            value.assume_init()
        };
        let is_set = value.it_value.tv_sec != 0 || value.it_value.tv_usec != 0;
        one(name, if is_set { "set" } else { "not set" })
    })
    .collect()
}

fn posix_timers() -> Values {
    let text = fs::read_to_string("/proc/self/timers").unwrap_or_default();
    text.lines()
        .filter_map(|line| line.strip_prefix("ID: "))
        .filter_map(|id| one(format!("timer {id}"), "there"))
        .collect()
}

fn writable_code() -> Values {
    let text = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    text.lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let (range, access) = (words.next()?, words.next()?);
            let name = words.nth(3).unwrap_or("without a name");
            (access.contains('w') && access.contains('x')).then(|| one(range, name))?
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_property_of_a_process_can_be_read() {
        for property in PROPERTIES {
            let values = (property.read)();
            let may_be_empty = [Group::Children, Group::Timers, Group::Memory];
            assert!(
                !values.is_empty() || may_be_empty.contains(&property.group),
                "{}",
                property.name
            );
        }
        assert!(status(&["Umask"]).len() == 1 && limits().len() > 10);
        assert_eq!(dispositions()["SIGPIPE"], "ignored");
    }
}
