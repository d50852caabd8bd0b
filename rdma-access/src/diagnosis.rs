//! Why a device file cannot be opened: what the error number leaves out.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::io::Errno;
use rustix::process::{Resource, getegid, geteuid, getgroups, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};

use crate::error::Cause;

/// The cause of a failed opening of `path`.
pub fn open_failed(path: &Path, errno: i32) -> Cause {
    let source = io::Error::from_raw_os_error(errno);
    let likely = match Errno::from_raw_os_error(errno) {
        Errno::NOENT => format!(
            "there is no {}: udev has not made it, or this container was not given it",
            path.display()
        ),
        Errno::ACCESS | Errno::PERM => denied(path),
        Errno::MFILE => descriptor_limit(),
        Errno::NFILE => {
            "the system has as many files open as it may (sysctl fs.file-max)".to_owned()
        }
        Errno::NXIO | Errno::NODEV => format!(
            "{} is there, but no driver behind it: the device is gone, or its module unloaded",
            path.display()
        ),
        _ => String::new(),
    };
    Cause::Io { source, likely }
}

/// Who may open the file, and who we are.
fn denied(path: &Path) -> String {
    let us = Identity::of_this_thread();
    let path = path.display();
    let file = match fs::metadata(path.to_string()) {
        Ok(file) => file,
        Err(error) => return format!("{path}: {error}; {us}"),
    };
    let (mode, uid, gid) = (file.mode() & 0o7777, file.uid(), file.gid());
    if overrides() || us.may_use(mode, uid, gid) {
        return format!(
            "the mode {mode:04o} of {path} would allow it: a device cgroup or security module forbids it"
        );
    }
    let (owner, group) = (named(uid, USERS), named(gid, GROUPS));
    let remedy = if mode & READ_WRITE << 3 == READ_WRITE << 3 && uid != us.user {
        format!("let this user join group {group}")
    } else {
        "a udev rule gives it another mode".to_owned()
    };
    format!(
        "{path} is of user {owner} and group {group} with mode {mode:04o}; {us}; {remedy}, or run as another user"
    )
}

/// The bits of a class of a file's mode that a device needs.
const READ_WRITE: u32 = 0o6;
const USERS: &str = "/etc/passwd";
const GROUPS: &str = "/etc/group";

/// Whom the kernel takes this thread for.
#[derive(Debug)]
struct Identity {
    user: u32,
    /// The effective group, and the others.
    groups: Vec<u32>,
}

impl Identity {
    fn of_this_thread() -> Self {
        let mut groups = vec![getegid().as_raw()];
        for group in getgroups().unwrap_or_default() {
            if !groups.contains(&group.as_raw()) {
                groups.push(group.as_raw());
            }
        }
        Self {
            user: geteuid().as_raw(),
            groups,
        }
    }

    /// Whether the mode of a file lets it be read and written. One class of the mode counts, the first that fits.
    fn may_use(&self, mode: u32, owner: u32, group: u32) -> bool {
        let class = if owner == self.user {
            mode >> 6
        } else if self.groups.contains(&group) {
            mode >> 3
        } else {
            mode
        };
        class & READ_WRITE == READ_WRITE
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups: Vec<String> = self
            .groups
            .iter()
            .map(|&group| named(group, GROUPS))
            .collect();
        let user = named(self.user, USERS);
        write!(
            f,
            "this process runs as user {user} with groups {}",
            groups.join(", ")
        )
    }
}

/// `104 (rdma)`, or the number alone if the machine's own file has no such entry. A directory service is not asked: that
/// can take any time, and those who own devices are the machine's own.
fn named(number: u32, file: &str) -> String {
    let text = fs::read(file).unwrap_or_default();
    match name_of(number, &String::from_utf8_lossy(&text)) {
        Some(name) => format!("{number} ({name})"),
        None => number.to_string(),
    }
}

/// The name of a number in lines of `name:password:number:...`.
fn name_of(number: u32, lines: &str) -> Option<&str> {
    lines.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(number)).then_some(name)
    })
}

/// Whether permissions do not count for this thread.
fn overrides() -> bool {
    is_capable(CapabilitySet::DAC_OVERRIDE)
}

fn is_capable(of: CapabilitySet) -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(of))
}

/// What ENOMEM or EAGAIN of a device's resources means: the kernel's control groups answer EAGAIN, all else ENOMEM, but for
/// memory of a process that locks all of its own.
pub fn resource_limit(errno: Errno) -> String {
    let memory = memory_limit();
    match errno {
        Errno::AGAIN => format!(
            "the rdma control group of this process has no more of them (rdma.max in /sys/fs/cgroup, raised by whoever \
             runs this container or unit); or {memory}"
        ),
        _ => memory,
    }
}

/// How much memory a device may be given.
fn memory_limit() -> String {
    match getrlimit(Resource::Memlock).current {
        Some(limit) if !is_capable(CapabilitySet::IPC_LOCK) => format!(
            "this process may lock {} KiB of memory, which devices need: raise ulimit -l \
             (/etc/security/limits.conf, LimitMEMLOCK= of systemd), or give it CAP_IPC_LOCK",
            limit / 1024
        ),
        _ => "the device has no room for it, or the system no memory".to_owned(),
    }
}

/// How many descriptors there may be.
pub fn descriptor_limit() -> String {
    match getrlimit(Resource::Nofile).current {
        Some(limit) => format!("the process has all of its {limit} descriptors open (ulimit -n)"),
        None => "the process has as many descriptors open as it may".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_class_that_fits_decides() {
        let us = Identity {
            user: 1000,
            groups: vec![1000, 104],
        };
        for (mode, owner, group, may) in [
            (0o600, 1000, 0, true),
            (0o600, 0, 0, false),
            (0o660, 0, 104, true),
            (0o660, 0, 105, false),
            (0o666, 0, 0, true),
            (0o664, 0, 0, false),
            // Owner and group cannot do what all others can.
            (0o066, 1000, 104, false),
            (0o606, 0, 104, false),
        ] {
            assert_eq!(
                us.may_use(mode, owner, group),
                may,
                "{mode:o} {owner} {group}"
            );
        }
    }

    #[test]
    fn numbers_are_named_by_the_machines_own_files() {
        let lines = "root:x:0:\nbroken\nrdma:x:104:ada,bob\n";
        assert_eq!(name_of(104, lines), Some("rdma"));
        assert_eq!(name_of(0, lines), Some("root"));
        assert_eq!(name_of(10, lines), None);
        assert_eq!(named(0, USERS), "0 (root)");
        assert_eq!(named(4_000_000_000, USERS), "4000000000");
        assert_eq!(named(0, "/nonexistent"), "0");
    }
}
