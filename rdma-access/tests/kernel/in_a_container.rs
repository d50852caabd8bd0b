//! With the files of the first and the third device only, as in a container.

use std::time::Duration;

use rdma_access::cm::Cm;
use rdma_access::verbs::{Context, Device, devices};
use rdma_access::{Cause, Error, Guid};

use super::limits::{ADA, ADAS, Restricted, as_user};
use super::{ADDRESS, DEVICE, DOWN, HERE, HERE_V6, NEIGHBOURLY, THERE, THERE_ON_LINK, THERE_V6};

const SECOND: Duration = Duration::from_secs(1);

/// Checks the error for the device without a file, however it was looked up.
fn check(error: &Error) {
    assert!(
        matches!(error.cause(), Cause::Unusable { device, .. } if device == NEIGHBOURLY),
        "{error}"
    );
    for words in [
        "there is no /dev/infiniband/uverbs1",
        "uverbs0, uverbs2",
        "this container has no access to it",
    ] {
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn in_a_container_a_missing_file_is_named_by_each_mark_of_its_device() {
    let names: Vec<_> = devices()
        .unwrap()
        .iter()
        .map(|device| device.name().to_owned())
        .collect();
    assert!(
        !names.contains(&NEIGHBOURLY.to_owned()) && names.len() == 2,
        "{names:?}"
    );
    check(&Device::by_name(NEIGHBOURLY).unwrap_err());
    check(&Context::open_by_name(NEIGHBOURLY).unwrap_err());
    check(&Device::by_device_node("/dev/infiniband/uverbs1").unwrap_err());
    let guid = std::fs::read_to_string("/sys/class/infiniband/rxe1/node_guid").unwrap();
    let guid = u64::from_str_radix(&guid.trim().replace(':', ""), 16).unwrap();
    check(&Device::by_node_guid(Guid(guid)).unwrap_err());
    // A device that the kernel does not have is another error.
    let error = Device::by_name("rxe7").unwrap_err();
    assert!(matches!(error.cause(), Cause::NoDevice { .. }), "{error}");
    let error = Device::by_device_node("uverbs7").unwrap_err();
    assert!(matches!(error.cause(), Cause::NoDevice { .. }), "{error}");
    for name in [DEVICE, DOWN] {
        Context::open_by_name(name).unwrap().close().unwrap();
    }
}

#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn in_a_container_a_missing_file_is_named_by_each_address_of_its_device() {
    let cm = Cm::load().unwrap();
    for text in [HERE, HERE_V6] {
        let error = cm.local(&text.parse().unwrap()).unwrap_err();
        assert_eq!(error.operation(), "rdma_bind_addr");
        check(&error);
    }
    for text in [THERE, THERE_V6, THERE_ON_LINK, HERE] {
        let error = cm.remote(&text.parse().unwrap(), SECOND).unwrap_err();
        assert_eq!(error.operation(), "rdma_resolve_addr");
        check(&error);
    }
    // The other devices work as before, and an address that no host has fails as before.
    assert_eq!(
        cm.local(&ADDRESS.parse().unwrap()).unwrap().device(),
        DEVICE
    );
    assert_eq!(
        cm.remote(&ADDRESS.parse().unwrap(), SECOND)
            .unwrap()
            .device(),
        DEVICE
    );
    let error = cm.local(&"10.8.0.77".parse().unwrap()).unwrap_err();
    assert!(
        error.to_string().contains("no interface of this machine"),
        "{error}"
    );
}

/// Must be the first in this process to open a device by librdmacm, which keeps open devices open.
#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn in_a_container_a_file_without_rights_is_named_by_address() {
    let cm = Cm::load().unwrap();
    let found = {
        let _restricted = Restricted::of(&["/dev/infiniband/uverbs0"]);
        as_user(ADA, &[ADAS], || {
            (
                cm.local(&ADDRESS.parse().unwrap()),
                cm.remote(&ADDRESS.parse().unwrap(), SECOND),
            )
        })
    };
    for error in [found.0.unwrap_err(), found.1.unwrap_err()] {
        for words in [
            "os error 13",
            "/dev/infiniband/uverbs0 belongs to user 0 (root)",
            "mode 0660",
        ] {
            assert!(error.to_string().contains(words), "{error}");
        }
    }
    assert_eq!(
        cm.local(&ADDRESS.parse().unwrap()).unwrap().device(),
        DEVICE
    );
}
