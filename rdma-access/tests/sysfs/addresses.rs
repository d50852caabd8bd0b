//! Errors for an address whose device librdmacm does not find, with a stub of librdmacm that never finds one.

use std::fs;
use std::process::Stdio;

use tempfile::TempDir;

use super::tree::{ACTIVE, Device, Tree};
use super::verbs::openable;
use super::{Machine, built, example, text};

/// An address of the loopback interface, which every machine has.
const ADDRESS: &str = "127.0.0.1";
const ITS_GID: &str = "0000:0000:0000:0000:0000:ffff:7f00:0001";
const ANOTHER_GID: &str = "0000:0000:0000:0000:0000:ffff:7f00:0002";

struct Libraries {
    cm: TempDir,
    verbs: TempDir,
}

impl Libraries {
    fn new() -> Self {
        let options = ["-DFAILING=BIND", "-DFAILURE=ENODEV"];
        Self {
            cm: built("addresses/stub_librdmacm.c", "librdmacm.so.1", &options),
            verbs: built("sysfs/stub_libibverbs.c", "stub.so", &[]),
        }
    }

    /// Returns the error about the address.
    fn ask(&self, machine: &Machine, environment: &[&str]) -> String {
        let mut words = vec![
            "env".to_owned(),
            format!("LD_LIBRARY_PATH={}", self.cm.path().display()),
            format!("LD_PRELOAD={}/stub.so", self.verbs.path().display()),
        ];
        words.extend(environment.iter().copied().map(str::to_owned));
        let program = example("device_of_address").display().to_string();
        words.extend([program, ADDRESS.to_owned()]);
        let output = machine.run(Stdio::null(), &words);
        assert!(!output.status.success(), "{output:?}");
        let message = text(&output.stderr).to_owned();
        assert!(message.contains("rdma_bind_addr(127.0.0.1)"), "{message}");
        message
    }
}

/// A machine whose device opens.
fn machine() -> Machine {
    openable(&Tree {
        verbs: vec![("rxe0", 2)],
        verbs_abi_version: Some(6),
        ..Tree::new([Device::new("rxe0", &[ACTIVE.on_ethernet()])])
    })
}

fn put(machine: &Machine, file: &str, content: &str) {
    let path = machine.path("sys/class").join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("{content}\n")).unwrap();
}

/// Writes an entry of the device's GID table.
fn put_gid(machine: &Machine, interface: &str, gid: &str) {
    let port = "infiniband/rxe0/ports/1";
    put(machine, &format!("{port}/gid_attrs/ndevs/0"), interface);
    put(machine, &format!("{port}/gids/0"), gid);
}

const READY: &str = "lo, which has that address, has rxe0, which opens and now has the address";
const NO_ENTRY: &str = "that device's GID table has no entry for the address on that interface";
const NO_DEVICE: &str = "lo, which has that address, has no RDMA device";
const NO_FILE: &str = "there is no /dev/infiniband/uverbs0";
const NOT_STARTED: &str = "could not start it";

fn check(message: &str, said: &str) {
    for words in [READY, NO_ENTRY, NO_DEVICE, NO_FILE, NOT_STARTED] {
        assert_eq!(
            message.contains(words),
            words == said,
            "{words:?}: {message}"
        );
    }
}

#[test]
fn the_reason_why_an_address_has_no_device_is_named() {
    let libraries = Libraries::new();
    for (interface, gid, said) in [
        ("lo", ITS_GID, READY),
        ("lo", ANOTHER_GID, NO_ENTRY),
        ("eth9", ITS_GID, NO_DEVICE),
    ] {
        let machine = machine();
        put_gid(&machine, interface, gid);
        let message = libraries.ask(&machine, &[]);
        check(&message, said);
        assert_eq!(
            message.contains("these have one: eth9 (rxe0)"),
            said == NO_DEVICE,
            "{message}"
        );
    }
    let message = libraries.ask(&machine(), &[]);
    check(&message, NO_DEVICE);
    assert!(
        message.contains("Of all interfaces none has one"),
        "{message}"
    );
}

#[test]
fn a_device_that_has_the_address_and_does_not_open_is_named() {
    let libraries = Libraries::new();
    for gid in [ITS_GID, ANOTHER_GID] {
        let machine = machine();
        put_gid(&machine, "lo", gid);
        check(&libraries.ask(&machine, &["STUB_FAILURE=19"]), NOT_STARTED);
        fs::write(machine.path("devices"), "").unwrap();
        fs::remove_file(machine.path("dev/infiniband/uverbs0")).unwrap();
        check(&libraries.ask(&machine, &[]), NO_FILE);
    }
    // Another interface's entry does not matter.
    let machine = machine();
    put_gid(&machine, "eth9", ITS_GID);
    check(&libraries.ask(&machine, &["STUB_FAILURE=19"]), NO_DEVICE);
}

#[test]
fn the_device_behind_an_ipoib_interface_is_found_by_its_adapter() {
    let libraries = Libraries::new();
    // InfiniBand; Ethernet on the same adapter; InfiniBand on an adapter without a device.
    for (kind, device, said) in [
        ("32", "device/infiniband/rxe0", READY),
        ("1", "device/infiniband/rxe0", NO_DEVICE),
        ("32", "device/net/lo", NO_DEVICE),
    ] {
        let machine = machine();
        put(&machine, "net/lo/type", kind);
        put(&machine, &format!("net/lo/{device}/dev_port"), "0");
        check(&libraries.ask(&machine, &[]), said);
    }
}
