//! What keeps a device from being opened or used, brought about.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use rdma_access::Cause;
use rdma_access::cm::Cm;
use rdma_access::ud::{CompletionChannel, MemoryRegion, ProtectionDomain};
use rdma_access::umad::Umad;
use rdma_access::verbs::{Context, Device};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use super::{ADDRESS, DEVICE};

/// This thread without a capability, as long as it lives.
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

/// A limit of the process, as long as it lives. The tests run one at a time.
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

    /// No descriptor is left.
    fn to_open_files() -> Self {
        let next = rustix::io::dup(std::io::stdin()).unwrap();
        let next = std::os::fd::AsRawFd::as_raw_fd(&next);
        Self::new(Resource::Nofile, u64::try_from(next).unwrap())
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        setrlimit(self.0, self.1).unwrap();
    }
}

/// A file that nobody has the permission to open, as long as it lives.
struct Closed(&'static str);

impl Closed {
    fn new(path: &'static str) -> Self {
        fs::set_permissions(path, fs::Permissions::from_mode(0o000)).unwrap();
        Self(path)
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        fs::set_permissions(self.0, fs::Permissions::from_mode(0o666)).unwrap();
    }
}

fn check(error: &rdma_access::Error, operation: &str, errno: Errno, words: &[&str]) {
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
fn without_permission_the_error_says_whose_the_file_is() {
    let words = ["is of user 0 and group 0 with mode 0000", "runs as user 0"];
    let _closed = ["uverbs0", "umad0", "rdma_cm"].map(|file| match file {
        "uverbs0" => Closed::new("/dev/infiniband/uverbs0"),
        "umad0" => Closed::new("/dev/infiniband/umad0"),
        _ => Closed::new("/dev/infiniband/rdma_cm"),
    });
    let _weak = Without::new(CapabilitySet::DAC_OVERRIDE);
    let error = Context::open_by_name(DEVICE).unwrap_err();
    check(
        &error,
        "ibv_open_device",
        Errno::ACCESS,
        &["(rxe0)", "/dev/infiniband/uverbs0"],
    );
    check(&error, "ibv_open_device", Errno::ACCESS, &words);
    let error = Umad::load()
        .unwrap()
        .open_port(Some(DEVICE), Some(1))
        .unwrap_err();
    check(
        &error,
        "umad_open_port",
        Errno::ACCESS,
        &["(rxe0, port 1)", "/dev/infiniband/umad0"],
    );
    check(&error, "umad_open_port", Errno::ACCESS, &words);
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
    // Looked up anew: libibverbs may show it still, or not any more.
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
        &["descriptors open (ulimit -n)"],
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
    // libibumad keeps to what it found; another one looks anew.
    let error = umad.open_port(Some(DEVICE), Some(1)).unwrap_err();
    assert!(matches!(error.cause(), Cause::NotSupported(_)), "{error}");
    assert!(error.to_string().contains("does not look again"), "{error}");
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
        &["256 slots of 4096 bytes", "may lock 64 KiB", "ulimit -l"],
    );
    MemoryRegion::new(&domain, 4096, 256)
        .unwrap()
        .close()
        .unwrap();
}

#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn lookups_by_address_survive_a_closed_file() {
    // librdmacm opens its file for each lookup.
    let cm = Cm::load().unwrap();
    cm.local(&ADDRESS.parse().unwrap()).unwrap();
    let found = {
        let _closed = Closed::new("/dev/infiniband/rdma_cm");
        let _weak = Without::new(CapabilitySet::DAC_OVERRIDE);
        cm.local(&ADDRESS.parse().unwrap())
    };
    check(
        &found.unwrap_err(),
        "rdma_create_id",
        Errno::ACCESS,
        &["/dev/infiniband/rdma_cm is of user 0"],
    );
    cm.local(&ADDRESS.parse().unwrap()).unwrap();
}
