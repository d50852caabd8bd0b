//! Finding and opening devices.

use std::sync::Arc;

use rdma_access::Cause;
use rdma_access::ud::{CompletionChannel, CompletionQueue, ProtectionDomain};
use rdma_access::verbs::{Context, Device, LinkLayer, PortState, devices};

use super::{DEVICE, DOWN, NEIGHBOURLY, open_files, wait_for_open_files};

#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn every_device_is_listed_and_found_by_each_of_its_marks() {
    let mut names: Vec<String> = devices()
        .unwrap()
        .iter()
        .map(|device| device.name().to_owned())
        .collect();
    names.sort();
    assert_eq!(names, [DEVICE, NEIGHBOURLY, DOWN]);
    for name in names {
        let device = Device::by_name(&name).unwrap();
        assert_eq!(
            Device::by_node_guid(device.node_guid()).unwrap().name(),
            name
        );
        let file = format!("/dev/infiniband/{}", device.device_node());
        assert_eq!(Device::by_device_node(&file).unwrap().name(), name);
        assert_eq!(
            Device::by_device_node(device.device_node()).unwrap().name(),
            name
        );
        assert!(device.sysfs_path().join("node_guid").is_file());
    }
    let error = Device::by_name("rxe7").unwrap_err();
    assert!(
        matches!(error.cause(), Cause::NoDevice { present, .. } if present.len() == 3),
        "{error}"
    );
}

#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn a_context_opens_whether_or_not_a_port_is_active() {
    for (name, state) in [
        (DEVICE, PortState::ACTIVE),
        (NEIGHBOURLY, PortState::ACTIVE),
        (DOWN, PortState::DOWN),
    ] {
        let context = Context::open_by_name(name).unwrap();
        assert_eq!(context.port_count().unwrap(), 1);
        let port = context.port(1).unwrap();
        assert_eq!(
            (port.state, port.link_layer),
            (state, LinkLayer::ETHERNET),
            "{name}"
        );
        context.close().unwrap();
    }
}

#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn each_opening_is_a_context_of_its_own_and_leaves_nothing() {
    // Libraries open some files once and keep them open.
    drop(Context::open_by_name(DEVICE).unwrap());
    let before = open_files().len();
    let contexts: Vec<Context> = (0..20)
        .map(|_| Context::open_by_name(DEVICE).unwrap())
        .collect();
    let mut addresses: Vec<_> = contexts.iter().map(Context::as_ptr).collect();
    addresses.sort();
    addresses.dedup();
    assert_eq!(addresses.len(), 20);
    for (index, context) in contexts.into_iter().enumerate() {
        if index % 2 == 0 {
            context.close().unwrap();
        }
    }
    wait_for_open_files(before);
}

#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn a_renamed_device_is_not_reported_as_lacking_its_library() {
    let rename = |from: &str, to: &str| {
        let status = std::process::Command::new("/tools/rdma")
            .args(["dev", "set", from, "name", to])
            .status()
            .unwrap();
        assert!(status.success(), "{from} to {to}: {status}");
    };
    Device::by_name(DOWN).unwrap();
    rename(DOWN, "renamed0");
    let (old, new) = (
        Context::open_by_name(DOWN),
        Context::open_by_name("renamed0"),
    );
    rename("renamed0", DOWN);
    // libibverbs keeps the devices that it listed once.
    old.unwrap();
    let error = new.unwrap_err();
    assert!(
        matches!(error.cause(), Cause::Unusable { device, .. } if device == "renamed0"),
        "{error}"
    );
    assert!(
        error.to_string().contains("first listed devices, rxe2"),
        "{error}"
    );
    assert!(!error.to_string().contains("driver library"), "{error}");
}

#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn the_device_of_an_open_context_opens_again() {
    let theirs = Context::open_by_name(DEVICE).unwrap();
    // SAFETY: the context is open.
    let ours = unsafe { Context::open_same_device(theirs.as_ptr()) }.unwrap();
    assert_ne!(ours.as_ptr(), theirs.as_ptr());
    assert_eq!(ours.name(), DEVICE);
    theirs.close().unwrap();
    assert_eq!(ours.port(1).unwrap().state, PortState::ACTIVE);
}

#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn children_end_before_their_context_in_any_order_of_dropping() {
    drop(Context::open_by_name(DEVICE).unwrap());
    let before = open_files().len();
    let context = Arc::new(Context::open_by_name(DEVICE).unwrap());
    let domain = ProtectionDomain::new(&context).unwrap();
    let channel = Arc::new(CompletionChannel::new(&context).unwrap());
    let queue = CompletionQueue::new(&context, 16, Some(&channel)).unwrap();
    drop(context);
    drop(channel);
    queue.arm(false).unwrap();
    domain.close().unwrap();
    queue.close().unwrap();
    wait_for_open_files(before);
}
