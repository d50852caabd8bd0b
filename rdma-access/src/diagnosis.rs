//! Finds out why a file of the kernel cannot be opened or read, beyond the error number. A cause is stated as a
//! fact only if it was checked; otherwise it is stated as a possibility.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, StatVfsMountFlags, accessat, statvfs};
use rustix::io::Errno;
use rustix::process::{Resource, getegid, geteuid, getgroups, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};

use crate::error::Cause;

/// Returns the cause of failing to open `path`, a device file.
pub fn open_failed(path: &Path, errno: i32) -> Cause {
    let source = io::Error::from_raw_os_error(errno);
    let likely = match Errno::from_raw_os_error(errno) {
        Errno::NOENT => absent(path),
        error @ (Errno::ACCESS | Errno::PERM) => denied(path, error),
        Errno::MFILE => descriptor_limit(),
        Errno::NFILE => {
            "the system has reached its limit of open files (sysctl fs.file-max)".to_owned()
        }
        Errno::NXIO | Errno::NODEV if is_device(path) => format!(
            "{} exists but has no driver: the device was removed, or its module unloaded",
            path.display()
        ),
        _ => String::new(),
    };
    Cause::Io { source, likely }
}

fn is_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.file_type().is_char_device())
}

/// Describes what exists in place of a missing file.
pub fn absent(path: &Path) -> String {
    let shown = path.display();
    match fs::symlink_metadata(path) {
        Ok(file) if file.is_symlink() && !path.exists() => {
            let target = fs::read_link(path).unwrap_or_default();
            return format!(
                "{shown} is a link to {}, which does not exist",
                target.display()
            );
        }
        Ok(_) => return format!("{shown} did not exist a moment ago and exists now: try again"),
        Err(_) => {}
    }
    let Some(folder) = path.parent() else {
        return format!("there is no {shown}");
    };
    let present = match fs::read_dir(folder) {
        Ok(entries) => {
            let names = entries.flatten().map(|entry| entry.file_name());
            let mut names: Vec<_> = names
                .map(|name| name.to_string_lossy().into_owned())
                .collect();
            names.sort();
            match names.is_empty() {
                true => format!("{} is empty", folder.display()),
                false => format!("{} has {}", folder.display(), names.join(", ")),
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            format!("there is no {} either", folder.display())
        }
        Err(error) => format!("{}: {error}", folder.display()),
    };
    format!(
        "there is no {shown} ({present}): udev has not created it, or this container has no access to it"
    )
}

/// Returns why `path`, a sysfs file that a module creates for its whole class, cannot be read.
pub fn class_unreadable(path: &str, error: &io::Error, module: &str) -> Cause {
    if error.kind() != io::ErrorKind::NotFound {
        return read_failed(path, error);
    }
    let loaded = format!("/sys/module/{module}");
    let why = if !Path::new("/sys/class").exists() {
        "there is no /sys/class: sysfs is not mounted on /sys".to_owned()
    } else if Path::new(&loaded).exists() {
        format!(
            "the module {module} is loaded (there is a {loaded}), but its files are hidden from this process, by its \
             container for instance"
        )
    } else {
        format!("the module {module} is not loaded (no {loaded}); run modprobe {module}")
    };
    Cause::NotSupported(format!("{path}: {error}; {why}"))
}

/// Returns the cause of failing to read `path`, a file of sysfs.
pub fn read_failed(path: &str, error: &io::Error) -> Cause {
    let errno = error.raw_os_error().unwrap_or(0);
    let likely = match Errno::from_raw_os_error(errno) {
        Errno::MFILE => format!("cannot read {path}: {}", descriptor_limit()),
        Errno::ACCESS => format!("cannot read {path}; {}", Identity::of_this_thread()),
        _ => format!("cannot read {path}"),
    };
    Cause::Io {
        source: io::Error::from_raw_os_error(errno),
        likely,
    }
}

/// Says who may open the file, and as whom this thread runs.
fn denied(path: &Path, error: Errno) -> String {
    let us = Identity::of_this_thread();
    let shown = path.display();
    let folders: Vec<&Path> = path.ancestors().skip(1).collect();
    let shut = folders.into_iter().rev().find(|folder| {
        accessat(CWD, *folder, Access::EXEC_OK, AtFlags::EACCESS) == Err(Errno::ACCESS)
    });
    if let Some(folder) = shut {
        return format!(
            "the mode of the folder {} forbids access to its files; {us}",
            folder.display()
        );
    }
    let file = match fs::metadata(path) {
        Ok(file) => file,
        Err(error) => return format!("{shown}: {error}; {us}"),
    };
    if error == Errno::PERM {
        return forbidden(path, fs::read_to_string(NETNS_MODE).ok().as_deref());
    }
    if file.file_type().is_char_device()
        && statvfs(path).is_ok_and(|system| system.f_flag.contains(StatVfsMountFlags::NODEV))
    {
        return format!(
            "the file system of {shown} is mounted with nodev, which forbids opening devices"
        );
    }
    let (mode, uid, gid) = (file.mode() & 0o7777, file.uid(), file.gid());
    let namespace = UserNamespace::of_this_process();
    let overrides = is_capable(CapabilitySet::DAC_OVERRIDE);
    if us.may_use(mode, uid, gid) || overrides && namespace.owns(uid, gid) {
        return format!(
            "the mode {mode:04o} of {shown} would allow it: an access control list or a security module (SELinux, \
             AppArmor, Landlock) forbids it"
        );
    }
    let (owner, group) = (named(uid, USERS), named(gid, GROUPS));
    if overrides {
        return format!(
            "{shown} belongs to user {owner} and group {group} with mode {mode:04o}, who are outside of this user \
             namespace; its root has no rights on it (/proc/self/uid_map, gid_map). Let the user who started the \
             container open the file, and keep that user's groups (podman: --group-add keep-groups)"
        );
    }
    let remedy = if mode & READ_WRITE << 3 == READ_WRITE << 3 && uid != us.user {
        format!("let this user join group {group}")
    } else {
        "change its mode by a udev rule".to_owned()
    };
    format!(
        "{shown} belongs to user {owner} and group {group} with mode {mode:04o}; {us}; {remedy}, or run as another user"
    )
}

/// Whether RDMA devices belong to all network namespaces (Y) or to one each (N).
const NETNS_MODE: &str = "/sys/module/ib_core/parameters/netns_mode";

/// Files that belong to one device each. librdmacm's file (`rdma_cm`) serves all devices, whatever the mode.
const OF_ONE_DEVICE: [&str; 3] = ["uverbs", "umad", "issm"];

/// Explains EPERM; a forbidding file mode would be EACCES. `netns_mode` is the content of [`NETNS_MODE`].
fn forbidden(path: &Path, netns_mode: Option<&str>) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_of_one_device = OF_ONE_DEVICE.iter().any(|kind| name.starts_with(kind));
    let path = path.display();
    let group = "a device control group forbids it (DeviceAllow= of systemd, --device of a container engine)";
    match netns_mode.map(str::trim) {
        _ if !is_of_one_device => format!("the mode of {path} does not forbid it: {group}"),
        Some("N") => format!(
            "the mode of {path} does not forbid it. Either its device belongs to another network namespace, since each \
             RDMA device here belongs to one ({NETNS_MODE} is N; rdma dev set DEVICE netns ...), or {group}"
        ),
        Some("Y") => format!("the mode of {path} does not forbid it: {group}"),
        _ => format!(
            "the mode of {path} does not forbid it: {group}, or its device belongs to another network namespace (rdma \
             system show)"
        ),
    }
}

/// The user namespace of this process, by its mappings.
#[derive(Debug)]
struct UserNamespace {
    users: String,
    groups: String,
}

impl UserNamespace {
    /// How an unmapped user or group shows, unless sysctl kernel.overflowuid says otherwise.
    const NOBODY: u32 = 65534;

    fn of_this_process() -> Self {
        let read = |file| fs::read_to_string(file).unwrap_or_default();
        Self {
            users: read("/proc/self/uid_map"),
            groups: read("/proc/self/gid_map"),
        }
    }

    /// Returns whether this is the system's initial namespace, which maps every id to itself.
    fn is_initial(&self) -> bool {
        self.users.split_whitespace().eq(["0", "0", "4294967295"])
    }

    /// Returns whether capabilities of this namespace apply to a file of that user and group.
    fn owns(&self, user: u32, group: u32) -> bool {
        self.is_initial() || Self::maps(&self.users, user) && Self::maps(&self.groups, group)
    }

    /// Parses lines of `first outside count`.
    fn maps(map: &str, number: u32) -> bool {
        number != Self::NOBODY
            && map.lines().any(|line| {
                let mut numbers = line.split_whitespace().map(str::parse::<u64>);
                match (numbers.next(), numbers.nth(1)) {
                    (Some(Ok(first)), Some(Ok(count))) => {
                        (first..first.saturating_add(count)).contains(&number.into())
                    }
                    _ => false,
                }
            })
    }
}

/// The mode bits that a device file must grant.
const READ_WRITE: u32 = 0o6;
const USERS: &str = "/etc/passwd";
const GROUPS: &str = "/etc/group";

/// The identity that the kernel uses for this thread's file access.
#[derive(Debug)]
struct Identity {
    user: u32,
    /// The effective group and the supplementary ones.
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

    /// Returns whether the mode of a file allows reading and writing. Only the first class of the mode that
    /// matches counts.
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

/// Returns `104 (rdma)`, or only the number if the local file has no such entry. Directory services are not
/// consulted, because they can take any time, and owners of devices are local.
fn named(number: u32, file: &str) -> String {
    let text = fs::read(file).unwrap_or_default();
    match name_of(number, &String::from_utf8_lossy(&text)) {
        Some(name) => format!("{number} ({name})"),
        None => number.to_string(),
    }
}

/// Looks up a number in lines of `name:password:number:...`.
fn name_of(number: u32, lines: &str) -> Option<&str> {
    lines.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(number)).then_some(name)
    })
}

fn is_capable(of: CapabilitySet) -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(of))
}

/// Explains ENOMEM or EAGAIN from creating a device's resources. The kernel's control groups return EAGAIN;
/// everything else returns ENOMEM, except locked memory in a process that locks all of its memory. `wanted` is
/// the number of bytes to lock, if known.
pub fn resource_limit(errno: Errno, device: &str, wanted: Option<usize>) -> String {
    let memory = memory_limit(wanted);
    if errno != Errno::AGAIN {
        return memory;
    }
    match control_group_limits(device) {
        Some(limits) => format!(
            "the rdma control group of this process limits {limits}; raise it where this container or unit is configured"
        ),
        None => format!(
            "an rdma control group has none left: no limit shows in the control groups that this process sees \
             (rdma.max in /sys/fs/cgroup), but it may be in one above; or {memory}"
        ),
    }
}

/// Describes the limit of memory that devices may use.
fn memory_limit(wanted: Option<usize>) -> String {
    // The kernel requires the capability in the initial user namespace.
    let is_exempt =
        is_capable(CapabilitySet::IPC_LOCK) && UserNamespace::of_this_process().is_initial();
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    match getrlimit(Resource::Memlock).current {
        Some(limit) if !is_exempt => locked_memory(limit, pinned(&status), wanted),
        _ => {
            "the device or the system is out of memory; the limit of locked memory (ulimit -l) does not \
             count for this process"
                .to_owned()
        }
    }
}

/// Describes how a limit of locked memory relates to the failure; `pinned` bytes are in use.
fn locked_memory(limit: u64, pinned: u64, wanted: Option<usize>) -> String {
    let has = format!(
        "this process may lock {} KiB of memory, and devices use {} KiB of it",
        limit / 1024,
        pinned / 1024
    );
    let raise = "raise ulimit -l (/etc/security/limits.conf, LimitMEMLOCK= of systemd), or give it CAP_IPC_LOCK";
    match wanted {
        Some(wanted) if pinned.saturating_add(wanted as u64) <= limit => format!(
            "{has}, which leaves enough for {} KiB: the device or the system is out of memory",
            wanted.div_ceil(1024)
        ),
        Some(wanted) => format!(
            "{has}, too little for {} KiB: {raise}",
            wanted.div_ceil(1024)
        ),
        None => format!(
            "{has}: if it needs more, {raise}; else the device or the system is out of memory"
        ),
    }
}

/// Returns the bytes that devices have locked, from /proc/self/status.
fn pinned(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("VmPin:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    number.unwrap_or(0) * 1024
}

/// Returns the limits for a device in the control groups of this process, as `/group: rxe0 hca_handle=0`.
fn control_group_limits(device: &str) -> Option<String> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    // `0::/path` is version 2, `5:rdma:/path` version 1.
    let path = own.lines().find_map(|line| {
        let path = line.strip_prefix("0::")?;
        Some((format!("/sys/fs/cgroup{path}"), "/sys/fs/cgroup"))
    });
    let (path, root) = own
        .lines()
        .find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            let is_rdma = controllers.split(',').any(|name| name == "rdma");
            is_rdma.then(|| (format!("/sys/fs/cgroup/rdma{path}"), "/sys/fs/cgroup/rdma"))
        })
        .or(path)?;
    Path::new(&path)
        .ancestors()
        .take_while(|folder| folder.starts_with(root))
        .find_map(|folder| {
            let text = fs::read_to_string(folder.join("rdma.max")).ok()?;
            let limits = limits_of(device, &text)?;
            Some(format!(
                "{device} to {limits} ({}/rdma.max)",
                folder.display()
            ))
        })
}

/// Returns the limits of a device from lines of `device hca_handle=2 hca_object=max`, or `None` if it has none.
fn limits_of<'a>(device: &str, lines: &'a str) -> Option<&'a str> {
    let limits = lines
        .lines()
        .find_map(|line| line.strip_prefix(device)?.strip_prefix(' '))?
        .trim();
    limits
        .split(' ')
        .any(|limit| !limit.ends_with("=max"))
        .then_some(limits)
}

/// Describes the limit of file descriptors.
pub fn descriptor_limit() -> String {
    match getrlimit(Resource::Nofile).current {
        Some(limit) => {
            format!("the process has reached its limit of {limit} open descriptors (ulimit -n)")
        }
        None => "the process has reached its limit of open descriptors (ulimit -n)".to_owned(),
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
            // Owner and group lack what all others may do.
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

    /// Creates a file in a temporary folder; returns both.
    fn file() -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("uverbs1");
        (folder, path)
    }

    #[test]
    fn missing_file_dangling_link_and_file_have_different_errors() {
        let (folder, path) = file();
        let there_is_no = format!("there is no {}", path.display());
        assert!(absent(&path).starts_with(&there_is_no));
        assert!(absent(&path).contains("is empty"));
        fs::write(folder.path().join("uverbs0"), "").unwrap();
        fs::write(folder.path().join("uverbs2"), "").unwrap();
        assert!(
            absent(&path).contains("has uverbs0, uverbs2)"),
            "{}",
            absent(&path)
        );
        let deep = path.join("file");
        assert!(absent(&deep).contains("there is no"), "{}", absent(&deep));
        std::os::unix::fs::symlink("/nonexistent/uverbs1", &path).unwrap();
        assert!(absent(&path).contains("is a link to /nonexistent/uverbs1, which does not exist"));
        fs::remove_file(&path).unwrap();
        fs::write(&path, "").unwrap();
        assert!(absent(&path).contains("exists now"));
    }

    #[test]
    fn missing_and_empty_folders_have_different_errors() {
        let text = absent(Path::new("/nonexistent/infiniband/umad0"));
        assert!(
            text.contains("there is no /nonexistent/infiniband either"),
            "{text}"
        );
    }

    #[test]
    fn a_driver_is_missed_behind_a_device_alone() {
        let (_folder, path) = file();
        fs::write(&path, "").unwrap();
        for (path, is_said) in [(Path::new("/dev/null"), true), (&path, false)] {
            let Cause::Io { likely, .. } = open_failed(path, Errno::NXIO.raw_os_error()) else {
                panic!()
            };
            assert_eq!(likely.contains("has no driver"), is_said, "{likely}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel for the thread's identity")]
    fn eperm_is_no_matter_of_the_mode() {
        let path = Path::new("/dev/infiniband/uverbs0");
        let exclusive = forbidden(path, Some("N\n"));
        assert!(
            exclusive.contains("another network namespace")
                && exclusive.contains("netns_mode is N")
        );
        assert!(exclusive.contains("control group"));
        // Devices of all namespaces exclude this cause.
        let shared = forbidden(path, Some("Y\n"));
        assert!(
            !shared.contains("namespace") && shared.contains("DeviceAllow="),
            "{shared}"
        );
        assert!(forbidden(path, None).contains("rdma system show"));
        // So does a file that serves all devices.
        let for_all = Path::new("/dev/infiniband/rdma_cm");
        for mode in [Some("N"), Some("Y"), None] {
            let text = forbidden(for_all, mode);
            assert!(
                !text.contains("namespace") && text.contains("DeviceAllow="),
                "{text}"
            );
        }
        let text = denied(Path::new("/dev/null"), Errno::PERM);
        assert!(
            text.contains("the mode of /dev/null does not forbid it"),
            "{text}"
        );
    }

    #[test]
    fn rights_of_root_end_with_what_its_namespace_maps() {
        let initial = UserNamespace {
            users: "         0          0 4294967295\n".into(),
            groups: "         0          0 4294967295\n".into(),
        };
        assert!(initial.owns(0, 104) && initial.owns(65534, 65534));
        // Podman without root: the user is mapped to root, followed by a range of others.
        let rootless = UserNamespace {
            users: "0 1000 1\n1 100000 65536\n".into(),
            groups: "0 1000 1\n1 100000 65536\n".into(),
        };
        assert!(rootless.owns(0, 0) && rootless.owns(65536, 1));
        // The machine's root and its group rdma show as nobody.
        assert!(!rootless.owns(65534, 65534) && !rootless.owns(0, 65534));
        assert!(!rootless.owns(65537, 0) && !rootless.is_initial());
    }

    #[test]
    fn locked_memory_is_the_cause_where_it_does_not_suffice() {
        let text = locked_memory(64 << 10, 16 << 10, Some(1 << 20));
        assert!(
            text.contains("may lock 64 KiB") && text.contains("too little for 1024 KiB"),
            "{text}"
        );
        assert!(text.contains("ulimit -l"), "{text}");
        // Exactly the rest.
        let text = locked_memory(64 << 10, 16 << 10, Some(48 << 10));
        assert!(
            text.contains("leaves enough") && !text.contains("raise"),
            "{text}"
        );
        let text = locked_memory(64 << 10, 16 << 10, Some((48 << 10) + 1));
        assert!(text.contains("too little for 49 KiB"), "{text}");
        let text = locked_memory(64 << 10, 0, None);
        assert!(text.contains("if it needs more, raise"), "{text}");
        assert_eq!(pinned("VmLck:\t 4 kB\nVmPin:\t      16 kB\n"), 16 << 10);
        assert_eq!(pinned("VmLck:\t 4 kB\n"), 0);
    }

    #[test]
    fn limits_of_another_device_or_without_a_number_are_ignored() {
        let lines = "rxe0 hca_handle=max hca_object=max\nrxe1 hca_handle=2 hca_object=max\n";
        assert_eq!(
            limits_of("rxe1", lines),
            Some("hca_handle=2 hca_object=max")
        );
        assert_eq!(limits_of("rxe0", lines), None);
        assert_eq!(limits_of("rxe", lines), None);
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel for the thread's identity")]
    fn a_loaded_module_is_not_reported_as_missing() {
        let missing = io::Error::from_raw_os_error(Errno::NOENT.raw_os_error());
        let path = "/sys/class/infiniband_mad/abi_version";
        // Every kernel has the built-in module `kernel`.
        let text = class_unreadable(path, &missing, "kernel").to_string();
        assert!(
            text.contains("the module kernel is loaded") && !text.contains("modprobe"),
            "{text}"
        );
        let text = class_unreadable(path, &missing, "no_such_module").to_string();
        assert!(text.contains("modprobe no_such_module"), "{text}");
        let denied = io::Error::from_raw_os_error(Errno::ACCESS.raw_os_error());
        let text = class_unreadable(path, &denied, "no_such_module").to_string();
        assert!(
            text.contains("; this process runs as") && !text.contains("modprobe"),
            "{text}"
        );
    }
}
