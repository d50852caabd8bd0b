//! Tests that need a kernel with RDMA devices: soft-RoCE in a virtual machine. `cargo xtask vm` builds this
//! executable and runs it there with `--ignored`. `init` beside this file is the machine's first program, which
//! creates the devices and addresses named here.

mod addresses;
mod contexts;
mod datagrams;
mod exclusive;
mod in_a_container;
mod limits;
mod mad_ports;
mod without_driver;
mod without_modules;

/// Waits until no more files are open than before. A closed one may remain for a moment.
fn wait_for_open_files(before: usize) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while open_files().len() > before {
        assert!(
            std::time::Instant::now() < deadline,
            "{before} files were open, now {:?}",
            open_files()
        );
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// Returns the names of the devices in /sys.
fn devices_by_kernel() -> Vec<String> {
    let entries = std::fs::read_dir("/sys/class/infiniband")
        .unwrap()
        .flatten();
    let names = entries.map(|entry| entry.file_name());
    names
        .map(|name| name.to_string_lossy().into_owned())
        .collect()
}

/// Returns the open files.
fn open_files() -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    entries
        .filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .collect()
}

/// The device on a dummy interface that is up.
const DEVICE: &str = "rxe0";
/// The device on an interface with a neighbour.
const NEIGHBOURLY: &str = "rxe1";
/// The device on an interface that is down.
const DOWN: &str = "rxe2";

/// First and second address of [`DEVICE`]'s interface.
const ADDRESS: &str = "10.7.0.1";
const SECOND_ADDRESS: &str = "10.7.0.2";
const ADDRESS_V6: &str = "fd00:7::1";
/// Address of [`NEIGHBOURLY`]'s interface, and its neighbour's.
const HERE: &str = "10.8.0.1";
const HERE_V6: &str = "fd00:8::1";
const THERE: &str = "10.8.0.2";
const THERE_V6: &str = "fd00:8::2";
/// Link-local addresses of both, with this machine's interface.
const HERE_ON_LINK: &str = "fe80::8:1%veth0";
const THERE_ON_LINK: &str = "fe80::8:2%veth0";
/// In the neighbour's network, but no host has it.
const NOBODY: &str = "10.8.0.99";
/// In the neighbour's network; no host has it until a test gives it to the neighbour.
const LATECOMER: &str = "10.8.0.50";
/// The file of the process in the neighbour's network namespace.
const NEIGHBOUR: &str = "/run/neighbour";
/// Address of an interface without an RDMA device.
const WITHOUT_DEVICE: &str = "10.9.0.1";
