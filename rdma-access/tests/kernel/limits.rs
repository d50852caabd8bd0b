//! Limits that keep a device from being opened or used.

use std::ffi::c_long;
use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::sync::Arc;
use std::thread;

use rdma_access::Cause;
use rdma_access::cm::Cm;
use rdma_access::ud::{CompletionChannel, MemoryRegion, ProtectionDomain};
use rdma_access::umad::Umad;
use rdma_access::verbs::{Context, Device};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{
    CapabilitySet, Gid, Uid, capabilities, set_capabilities, set_thread_groups, set_thread_res_gid,
    set_thread_res_uid,
};

use super::{ADDRESS, DEVICE};

/// Removes a capability from this thread, as long as this value lives.
struct Without(CapabilitySet);

impl Without {
    fn new(capability: CapabilitySet) -> Self {
        let mut sets = capabilities(None).unwrap();
        assert!(
            sets.effective.contains(capability),
            "the machine runs tests as root"
        );
        sets.effective.remove(capability);
        set_capabilities(None, sets).unwrap();
        Self(capability)
    }
}

impl Drop for Without {
    fn drop(&mut self) {
        let mut sets = capabilities(None).unwrap();
        sets.effective.insert(self.0);
        set_capabilities(None, sets).unwrap();
    }
}

/// Sets a limit of the process, as long as this value lives. The tests run one at a time.
struct Limited(Resource, Rlimit);

impl Limited {
    fn new(resource: Resource, current: u64) -> Self {
        let before = getrlimit(resource);
        setrlimit(
            resource,
            Rlimit {
                current: Some(current),
                maximum: before.maximum,
            },
        )
        .unwrap();
        Self(resource, before)
    }

    /// Uses up all descriptors.
    fn to_open_files() -> Self {
        let next = rustix::io::dup(std::io::stdin()).unwrap();
        let next = next.as_raw_fd();
        Self::new(Resource::Nofile, u64::try_from(next).unwrap())
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        setrlimit(self.0, self.1).unwrap();
    }
}

/// Restricts files to root and the group [`RDMA`], as long as this value lives.
pub struct Restricted(&'static [&'static str]);

/// The group `rdma`.
const RDMA: u32 = 104;
/// The user `ada` and her group.
pub const ADA: u32 = 1234;
pub const ADAS: u32 = 5678;

const VERBS: &str = "/dev/infiniband/uverbs0";
const MADS: &str = "/dev/infiniband/umad0";
const ADDRESSES: &str = "/dev/infiniband/rdma_cm";

impl Restricted {
    fn new() -> Self {
        Self::of(&[VERBS, MADS, ADDRESSES])
    }

    pub fn of(files: &'static [&'static str]) -> Self {
        let restricted = Self(files);
        restricted.set(RDMA, 0o660);
        restricted
    }

    fn set(&self, group: u32, mode: u32) {
        for file in self.0 {
            chown(file, Some(0), Some(group)).unwrap();
            fs::set_permissions(file, fs::Permissions::from_mode(mode)).unwrap();
        }
    }
}

impl Drop for Restricted {
    fn drop(&mut self) {
        self.set(0, 0o666);
    }
}

/// Runs `work` as another user, on a new thread, because the kernel keeps the user per thread.
pub fn as_user<T: Send>(user: u32, groups: &[u32], work: impl FnOnce() -> T + Send) -> T {
    let change = || {
        let groups: Vec<Gid> = groups.iter().map(|&group| Gid::from_raw(group)).collect();
        set_thread_groups(&groups[1..]).unwrap();
        set_thread_res_gid(groups[0], groups[0], groups[0]).unwrap();
        let user = Uid::from_raw(user);
        set_thread_res_uid(user, user, user).unwrap();
    };
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            change();
            work()
        });
        thread.join().unwrap()
    })
}

/// Puts this process into a control group that may have no context of [`DEVICE`], as long as this value lives.
struct Controlled;

impl Controlled {
    const GROUP: &str = "/sys/fs/cgroup/without-contexts";
    const ROOT: &str = "/sys/fs/cgroup";

    fn new() -> Self {
        fs::write(format!("{}/cgroup.subtree_control", Self::ROOT), "+rdma").unwrap();
        fs::create_dir(Self::GROUP).unwrap();
        fs::write(
            format!("{}/rdma.max", Self::GROUP),
            format!("{DEVICE} hca_handle=0"),
        )
        .unwrap();
        fs::write(format!("{}/cgroup.procs", Self::GROUP), "0").unwrap();
        Self
    }
}

impl Drop for Controlled {
    fn drop(&mut self) {
        fs::write(format!("{}/cgroup.procs", Self::ROOT), "0").unwrap();
        fs::remove_dir(Self::GROUP).unwrap();
    }
}

/// Calls bpf(2); returns a descriptor or 0.
fn bpf(command: c_long, attributes: &[u64; 16]) -> i32 {
    let length = size_of_val(attributes);
    // SAFETY: the attributes are readable, and so is what the callers' attributes point to.
    let returned = unsafe { libc::syscall(libc::SYS_bpf, command, attributes.as_ptr(), length) };
    assert!(returned >= 0, "{}", std::io::Error::last_os_error());
    i32::try_from(returned).unwrap()
}

/// Puts this process into a control group that may open no device, as long as this value lives.
pub struct Forbidden;

impl Forbidden {
    const GROUP: &str = "/sys/fs/cgroup/without-devices";

    pub fn new() -> Self {
        fs::create_dir(Self::GROUP).unwrap();
        // Version 2 of control groups calls a program: this one returns 0, which forbids.
        let program: [u64; 2] = [0xb7, 0x95];
        let licence = c"MIT";
        let mut attributes = [0u64; 16];
        // Its type, BPF_PROG_TYPE_CGROUP_DEVICE, and its length.
        attributes[0] = 15 | 2 << 32;
        attributes[1] = program.as_ptr().addr() as u64;
        attributes[2] = licence.as_ptr().addr() as u64;
        // BPF_PROG_LOAD
        let loaded = bpf(5, &attributes);
        // SAFETY: the kernel has just made this descriptor.
        let loaded = unsafe { OwnedFd::from_raw_fd(loaded) };
        let group = fs::File::open(Self::GROUP).unwrap();
        let mut attributes = [0u64; 16];
        let number = |descriptor: i32| u64::try_from(descriptor).unwrap();
        attributes[0] = number(group.as_raw_fd()) | number(loaded.as_raw_fd()) << 32;
        // BPF_CGROUP_DEVICE.
        attributes[1] = 6;
        // BPF_PROG_ATTACH
        bpf(8, &attributes);
        fs::write(format!("{}/cgroup.procs", Self::GROUP), "0").unwrap();
        Self
    }
}

impl Drop for Forbidden {
    fn drop(&mut self) {
        fs::write(format!("{}/cgroup.procs", Controlled::ROOT), "0").unwrap();
        fs::remove_dir(Self::GROUP).unwrap();
    }
}

pub fn check(error: &rdma_access::Error, operation: &str, errno: Errno, words: &[&str]) {
    assert_eq!(error.operation(), operation, "{error}");
    assert_eq!(error.raw_os_error(), Some(errno.raw_os_error()), "{error}");
    for word in words {
        assert!(
            error.to_string().contains(word),
            "{word:?} is not in: {error}"
        );
    }
}

#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn the_error_for_another_user_names_the_files_owner_and_the_user() {
    let _restricted = Restricted::new();
    let (verbs, mads, addresses) = as_user(ADA, &[ADAS], || {
        (
            Context::open_by_name(DEVICE).unwrap_err(),
            Umad::load()
                .unwrap()
                .open_port(Some(DEVICE), Some(1))
                .unwrap_err(),
            Cm::load()
                .unwrap()
                .local(&ADDRESS.parse().unwrap())
                .unwrap_err(),
        )
    });
    for (error, operation, inputs, file) in [
        (&verbs, "ibv_open_device", "(rxe0)", VERBS),
        (&mads, "umad_open_port", "(rxe0, port 1)", MADS),
        (&addresses, "rdma_create_id", "(10.7.0.1)", ADDRESSES),
    ] {
        let words = [
            inputs,
            file,
            "belongs to user 0 (root) and group 104 (rdma) with mode 0660",
            "runs as user 1234 (ada) with groups 5678 (ada)",
            "let this user join group 104 (rdma)",
        ];
        check(error, operation, Errno::ACCESS, &words);
    }
}

#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn a_member_of_the_files_group_opens_everything() {
    let _restricted = Restricted::new();
    as_user(ADA, &[ADAS, RDMA], || {
        Context::open_by_name(DEVICE).unwrap().close().unwrap();
        Umad::load()
            .unwrap()
            .open_port(Some(DEVICE), Some(1))
            .unwrap();
        let found = Cm::load().unwrap().local(&ADDRESS.parse().unwrap());
        assert_eq!(found.unwrap().device(), DEVICE);
    });
}

#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn a_control_group_without_contexts_is_suspected() {
    let device = Device::by_name(DEVICE).unwrap();
    let opened = {
        let _controlled = Controlled::new();
        device.open()
    };
    check(
        &opened.unwrap_err(),
        "ibv_open_device",
        Errno::AGAIN,
        &[
            "rdma control group of this process limits rxe0 to hca_handle=0",
            "/sys/fs/cgroup/without-contexts/rdma.max",
        ],
    );
    device.open().unwrap();
}

#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn a_control_group_without_devices_is_named() {
    let device = Device::by_name(DEVICE).unwrap();
    let (umad, cm) = (Umad::load().unwrap(), Cm::load().unwrap());
    let address = ADDRESS.parse().unwrap();
    let (opened, port, found) = {
        let _forbidden = Forbidden::new();
        let port = umad.open_port(Some(DEVICE), Some(1));
        (device.open(), port, cm.local(&address))
    };
    for (error, operation, file) in [
        (&opened.unwrap_err(), "ibv_open_device", VERBS),
        (&port.unwrap_err(), "umad_open_port", MADS),
        (&found.unwrap_err(), "rdma_create_id", ADDRESSES),
    ] {
        let words = [
            format!("the mode of {file} does not forbid it"),
            "a device control group forbids it".to_owned(),
        ];
        let words = [words[0].as_str(), &words[1]];
        check(error, operation, Errno::PERM, &words);
        // Devices belong to all network namespaces here.
        assert!(!error.to_string().contains("namespace"), "{error}");
    }
    device.open().unwrap();
    umad.open_port(Some(DEVICE), Some(1)).unwrap();
    cm.local(&address).unwrap();
}

fn run(program: &str, words: &[&str]) {
    let mut command = std::process::Command::new(program);
    let status = command.args(words).status().unwrap();
    assert!(status.success(), "{program} {words:?}: {status}");
}

/// Forbids this thread to open files, by Landlock.
fn forbid_files() {
    // Reading and writing.
    let handled: u64 = 1 << 2 | 1 << 1;
    let length = size_of_val(&handled);
    let create = libc::SYS_landlock_create_ruleset;
    // SAFETY: the attributes, one number, are readable.
    let rules = unsafe { libc::syscall(create, &raw const handled, length, 0) };
    assert!(rules >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: the arguments are numbers; the machine's root may call it.
    let done = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules, 0) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn a_security_module_is_suspected_where_the_mode_allows_it() {
    let device = Device::by_name(DEVICE).unwrap();
    let opened = thread::scope(|scope| {
        let thread = scope.spawn(|| {
            forbid_files();
            device.open()
        });
        thread.join().unwrap()
    });
    let words = [
        "the mode 0666 of /dev/infiniband/uverbs0 would allow it",
        "Landlock",
    ];
    check(
        &opened.unwrap_err(),
        "ibv_open_device",
        Errno::ACCESS,
        &words,
    );
    device.open().unwrap();
    // The error does not blame the mode.
    let _restricted = Restricted::new();
    let opened = as_user(ADA, &[ADAS], || device.open());
    let error = opened.unwrap_err().to_string();
    assert!(!error.contains("security module"), "{error}");
}

#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn a_removed_device_is_not_reported_as_without_file() {
    const GONE: &str = "rxe7";
    // A device that no process has open: the kernel would wait until it is closed.
    run("/tools/ip", &["link", "add", "dummy7", "type", "dummy"]);
    let add = ["link", "add", GONE, "type", "rxe", "netdev", "dummy7"];
    run("/tools/rdma", &add);
    let device = Device::by_name(GONE).unwrap();
    let node = device.device_node();
    let file = format!("/dev/infiniband/{node}");
    let number = fs::metadata(&file).unwrap().rdev();
    run("/tools/rdma", &["link", "delete", GONE]);
    run("/tools/ip", &["link", "delete", "dummy7"]);
    let without_file = device.open();
    // A file that a user created stays.
    let major = rustix::fs::major(number).to_string();
    let minor = rustix::fs::minor(number).to_string();
    run("mknod", &[&file, "c", &major, &minor]);
    let with_file = device.open();
    fs::remove_file(&file).unwrap();
    for (opened, errno) in [(without_file, Errno::NOENT), (with_file, Errno::NXIO)] {
        let words =
            format!("the device was removed: /sys/class/infiniband_verbs/{node} no longer exists");
        let error = opened.unwrap_err();
        check(&error, "ibv_open_device", errno, &[&words]);
        assert!(!error.to_string().contains("udev"), "{error}");
    }
}

#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn a_file_that_vanishes_is_named() {
    let device = Device::by_name(DEVICE).unwrap();
    fs::rename("/dev/infiniband/uverbs0", "/dev/infiniband/away").unwrap();
    let opened = device.open();
    let found = Device::by_name(DEVICE);
    fs::rename("/dev/infiniband/away", "/dev/infiniband/uverbs0").unwrap();
    check(
        &opened.unwrap_err(),
        "ibv_open_device",
        Errno::NOENT,
        &["there is no /dev/infiniband/uverbs0", "udev"],
    );
    // A new lookup: libibverbs may still list it or not.
    if let Err(error) = found {
        assert!(
            matches!(error.cause(), Cause::Unusable { device, .. } if device == DEVICE),
            "{error}"
        );
        assert!(
            error
                .to_string()
                .contains("there is no /dev/infiniband/uverbs0"),
            "{error}"
        );
    }
}

#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn a_file_of_another_number_is_named() {
    let device = Device::by_name(DEVICE).unwrap();
    let number = |file: &str| fs::metadata(file).unwrap().rdev();
    let other = number("/dev/infiniband/uverbs1");
    fs::rename(VERBS, "/dev/infiniband/away").unwrap();
    let (major, minor) = (rustix::fs::major(other), rustix::fs::minor(other));
    let made = std::process::Command::new("mknod")
        .args([VERBS, "c", &major.to_string(), &minor.to_string()])
        .status();
    let opened = device.open();
    let _ = fs::remove_file(VERBS);
    fs::rename("/dev/infiniband/away", VERBS).unwrap();
    assert!(made.unwrap().success());
    let error = opened.unwrap_err().to_string();
    let words = format!(
        "/dev/infiniband/uverbs0 has device number {major}:{minor}, but the kernel's uverbs0 has"
    );
    assert!(error.contains(&words), "{error}");
    device.open().unwrap();
}

#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn a_missing_rdma_cm_file_and_a_missing_module_have_different_errors() {
    let cm = Cm::load().unwrap();
    fs::rename(ADDRESSES, "/dev/infiniband/away").unwrap();
    let found = cm.local(&ADDRESS.parse().unwrap());
    fs::rename("/dev/infiniband/away", ADDRESSES).unwrap();
    let error = found.unwrap_err();
    let words = ["there is no /dev/infiniband/rdma_cm", "udev"];
    check(&error, "rdma_create_id", Errno::NOENT, &words);
    assert!(!error.to_string().contains("modprobe"), "{error}");
    cm.local(&ADDRESS.parse().unwrap()).unwrap();
}

#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn a_file_system_that_forbids_devices_is_named() {
    let device = Device::by_name(DEVICE).unwrap();
    let mount = |options: &str| {
        let words = ["-o", options, "/dev"];
        let status = std::process::Command::new("mount")
            .args(words)
            .status()
            .unwrap();
        assert!(status.success(), "{words:?}: {status}");
    };
    mount("remount,nodev");
    let opened = device.open();
    mount("remount,dev");
    let words = ["the file system of /dev/infiniband/uverbs0 is mounted with nodev"];
    check(
        &opened.unwrap_err(),
        "ibv_open_device",
        Errno::ACCESS,
        &words,
    );
    device.open().unwrap();
}

#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn without_a_free_descriptor_an_interface_is_not_reported_as_missing() {
    let limited = Limited::to_open_files();
    let read = "fe80::1%veth0".parse::<rdma_access::cm::ScopedIp>();
    drop(limited);
    check(
        &read.unwrap_err(),
        "parse an address",
        Errno::MFILE,
        &["cannot look up", "(ulimit -n)"],
    );
    "fe80::1%veth0"
        .parse::<rdma_access::cm::ScopedIp>()
        .unwrap();
    let read = "fe80::1%veth9".parse::<rdma_access::cm::ScopedIp>();
    assert!(matches!(read.unwrap_err().cause(), Cause::Invalid(_)));
}

#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn without_a_descriptor_left_the_limit_is_named() {
    let device = Device::by_name(DEVICE).unwrap();
    let context = Arc::new(device.open().unwrap());
    let umad = Umad::load().unwrap();
    let limited = Limited::to_open_files();
    let opened = device.open();
    let channel = CompletionChannel::new(&context);
    let port = umad.open_port(Some(DEVICE), Some(1));
    drop(limited);
    check(
        &opened.unwrap_err(),
        "ibv_open_device",
        Errno::MFILE,
        &["(ulimit -n)"],
    );
    check(
        &channel.unwrap_err(),
        "ibv_create_comp_channel",
        Errno::MFILE,
        &["(ulimit -n)"],
    );
    check(
        &port.unwrap_err(),
        "umad_open_port",
        Errno::MFILE,
        &["(ulimit -n)"],
    );
    // libibumad remembers its first result; another instance looks again.
    let error = umad.open_port(Some(DEVICE), Some(1)).unwrap_err();
    assert!(matches!(error.cause(), Cause::NotSupported(_)), "{error}");
    assert!(error.to_string().contains("does not try again"), "{error}");
    drop(umad);
    Umad::load()
        .unwrap()
        .open_port(Some(DEVICE), Some(1))
        .unwrap();
}

#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn without_memory_to_lock_the_limit_is_named() {
    let context = Arc::new(Context::open_by_name(DEVICE).unwrap());
    let domain = Arc::new(ProtectionDomain::new(&context).unwrap());
    let region = {
        let _limited = Limited::new(Resource::Memlock, 64 << 10);
        let _weak = Without::new(CapabilitySet::IPC_LOCK);
        MemoryRegion::new(&domain, 4096, 256)
    };
    let error = region.unwrap_err();
    check(
        &error,
        "ibv_reg_mr",
        Errno::NOMEM,
        &[
            "256 slots of 4096 bytes",
            "may lock 64 KiB",
            "too little for 1024 KiB",
            "ulimit -l",
        ],
    );
    MemoryRegion::new(&domain, 4096, 256)
        .unwrap()
        .close()
        .unwrap();
}

#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn lookups_by_address_survive_a_restricted_file() {
    // librdmacm opens its file for each lookup.
    let cm = Cm::load().unwrap();
    cm.local(&ADDRESS.parse().unwrap()).unwrap();
    let found = {
        let _restricted = Restricted::new();
        as_user(ADA, &[ADAS], || cm.local(&ADDRESS.parse().unwrap()))
    };
    check(
        &found.unwrap_err(),
        "rdma_create_id",
        Errno::ACCESS,
        &["/dev/infiniband/rdma_cm belongs to user 0 (root)"],
    );
    cm.local(&ADDRESS.parse().unwrap()).unwrap();
}
