//! Failures of opening a port for MADs, brought about, and what is said about them.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use std::process::Stdio;

use super::tree::{ACTIVE, Device, Tree};
use super::{Machine, example, text};

fn machine() -> Machine {
    Machine::new(&Tree::new([Device::new(
        "mlx5_0",
        &[
            ACTIVE,
            ACTIVE.without_smi(),
            ACTIVE.on_ethernet(),
            ACTIVE.without_umad(),
        ],
    )]))
}

/// Kind and message of what `smi_port` says.
fn failure(machine: &Machine, wrapper: &[&str], question: [&str; 2]) -> (String, String) {
    let mut words: Vec<String> = wrapper.iter().copied().map(str::to_owned).collect();
    words.push(example("smi_port").display().to_string());
    words.extend(question.map(str::to_owned));
    let output = machine.run(Stdio::null(), &words);
    assert!(!output.status.success(), "{output:?}");
    (
        text(&output.stdout).to_owned(),
        text(&output.stderr).to_owned(),
    )
}

fn expect(machine: &Machine, wrapper: &[&str], question: [&str; 2], kind: &str, words: &[&str]) {
    let (found, message) = failure(machine, wrapper, question);
    assert_eq!(found, kind, "{message}");
    for word in words {
        assert!(message.contains(word), "{word:?} is not in: {message}");
    }
}

#[test]
fn a_port_without_smi_is_refused_by_name_with_the_reason() {
    let machine = machine();
    expect(
        &machine,
        &[],
        ["mlx5_0", "2"],
        "Invalid",
        &["umad_open_smi_port(mlx5_0, port 2)", "SMI disabled"],
    );
    expect(
        &machine,
        &[],
        ["mlx5_0", "3"],
        "Invalid",
        &["not an InfiniBand port"],
    );
    expect(
        &machine,
        &[],
        ["mlx5_0", "5"],
        "Invalid",
        &["port 5 of mlx5_0 does not exist"],
    );
    expect(
        &machine,
        &[],
        ["mlx5_0", "4"],
        "Invalid",
        &["offers no MADs on port 4 of mlx5_0"],
    );
    expect(
        &machine,
        &[],
        ["mlx5_9", "1"],
        "Invalid",
        &["no device mlx5_9", "devices here: mlx5_0"],
    );
    expect(
        &machine,
        &[],
        ["mlx5_9", "-"],
        "NoDevice",
        &["mlx5_9", "port 2 InfiniBand, active, SMI disabled"],
    );
}

#[test]
fn a_kernel_without_ib_umad_is_named() {
    let tree = Tree {
        abi_version: None,
        ..Tree::new([Device::new("mlx5_0", &[ACTIVE])])
    };
    let words = ["/sys/class/infiniband_mad/abi_version", "modprobe ib_umad"];
    for question in [["-", "-"], ["mlx5_0", "1"], ["no_such", "-"]] {
        expect(&Machine::new(&tree), &[], question, "NotSupported", &words);
    }
    let tree = Tree {
        abi_version: Some(4),
        ..tree
    };
    expect(
        &Machine::new(&tree),
        &[],
        ["-", "-"],
        "NotSupported",
        &["version 4", "5 or later"],
    );
    let none = Tree {
        abi_version: None,
        ..Tree::new([])
    };
    expect(
        &Machine::new(&none),
        &[],
        ["-", "-"],
        "NotSupported",
        &words,
    );
}

#[test]
fn a_machine_without_devices_says_so() {
    expect(
        &Machine::new(&Tree::new([])),
        &[],
        ["-", "-"],
        "NoDevice",
        &["devices here: none"],
    );
}

#[test]
fn a_missing_device_file_is_named() {
    let machine = machine();
    fs::remove_file(machine.path("dev/infiniband/umad0")).unwrap();
    expect(
        &machine,
        &[],
        ["mlx5_0", "1"],
        "Io",
        &["/dev/infiniband/umad0", "udev", "os error 2"],
    );
}

#[test]
fn who_may_not_open_the_file_learns_whose_it_is() {
    let machine = machine();
    fs::set_permissions(
        machine.path("dev/infiniband/umad0"),
        fs::Permissions::from_mode(0o040),
    )
    .unwrap();
    // Root without capabilities is a user like any other.
    let wrapper = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"];
    let words = [
        "os error 13",
        "/dev/infiniband/umad0 is of user 0 (root)",
        "mode 0040",
        "runs as user 0 (root)",
        "udev rule",
    ];
    expect(&machine, &wrapper, ["mlx5_0", "1"], "Io", &words);
}
