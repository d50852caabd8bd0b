//! Why a device file cannot be opened: what the error number leaves out.

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
pub fn denied(path: &Path) -> String {
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    let groups = getgroups().unwrap_or_default();
    let mut groups: Vec<String> = groups
        .iter()
        .map(|group| group.as_raw().to_string())
        .collect();
    groups.insert(0, group.to_string());
    groups.dedup();
    let groups = groups.join(", ");
    let path = path.display();
    match fs::metadata(path.to_string()) {
        Ok(file) => {
            let (mode, uid, gid) = (file.mode() & 0o7777, file.uid(), file.gid());
            let may = |bits: u32| mode & bits == bits;
            if overrides()
                || (uid == user && may(0o600))
                || (uid != user
                    && groups.split(", ").any(|group| group == gid.to_string())
                    && may(0o060))
                || may(0o006)
            {
                format!(
                    "the mode {mode:04o} of {path} would allow it: a device cgroup or security module forbids it"
                )
            } else {
                format!(
                    "{path} is of user {uid} and group {gid} with mode {mode:04o}; \
                     this process runs as user {user} with groups {groups}"
                )
            }
        }
        Err(error) => {
            format!("{path}: {error}; this process runs as user {user} with groups {groups}")
        }
    }
}

/// Whether permissions do not count for this thread.
fn overrides() -> bool {
    is_capable(CapabilitySet::DAC_OVERRIDE)
}

fn is_capable(of: CapabilitySet) -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(of))
}

/// How much memory a device may be given.
pub fn memory_limit() -> String {
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
