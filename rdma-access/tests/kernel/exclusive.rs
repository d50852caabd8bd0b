//! With each device in one network namespace (`rdma system set netns exclusive`).

use std::thread;

use rdma_access::Cause;
use rdma_access::umad::Umad;
use rdma_access::verbs::Device;
use rustix::io::Errno;

use super::limits::{Forbidden, check};
use super::{DEVICE, devices_by_kernel};

/// Runs `work` on a thread in a new network namespace.
fn elsewhere<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: it affects only this thread, which has no open sockets.
            assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0);
            work()
        });
        thread.join().unwrap()
    })
}

#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn exclusive_devices_are_closed_to_other_network_namespaces() {
    let device = Device::by_name(DEVICE).unwrap();
    let umad = Umad::load().unwrap();
    let (opened, port) = elsewhere(|| {
        // librdmacm's file belongs to no device.
        std::fs::File::open("/dev/infiniband/rdma_cm").unwrap();
        (device.open(), umad.open_port(Some(DEVICE), Some(1)))
    });
    let words = [
        "belongs to another network namespace",
        "netns_mode is N",
        "rdma dev set DEVICE netns",
    ];
    check(&opened.unwrap_err(), "ibv_open_device", Errno::PERM, &words);
    check(&port.unwrap_err(), "umad_open_port", Errno::PERM, &words);
    device.open().unwrap();
}

/// The kernel shows such a device in a /sys that was mounted in its own namespace, and does not list it to
/// other namespaces.
#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn exclusive_devices_are_not_reported_as_lacking_their_library() {
    let found = elsewhere(|| {
        assert!(devices_by_kernel().contains(&DEVICE.to_owned()));
        Device::by_name(DEVICE)
    });
    let error = found.unwrap_err();
    assert!(
        matches!(error.cause(), Cause::Unusable { device, .. } if device == DEVICE),
        "{error}"
    );
    for words in [
        "opening /dev/infiniband/uverbs0 fails",
        "another network namespace",
    ] {
        assert!(error.to_string().contains(words), "{error}");
    }
    assert!(!error.to_string().contains("driver library"), "{error}");
    Device::by_name(DEVICE).unwrap();
}

/// Both causes have the same error number, so the error names both.
#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn exclusive_devices_can_be_forbidden_by_a_control_group_all_the_same() {
    let device = Device::by_name(DEVICE).unwrap();
    let opened = {
        let _forbidden = Forbidden::new();
        device.open()
    };
    let words = ["netns_mode is N", "or a device control group forbids it"];
    check(&opened.unwrap_err(), "ibv_open_device", Errno::PERM, &words);
    device.open().unwrap();
}
