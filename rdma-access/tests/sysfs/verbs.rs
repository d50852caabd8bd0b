//! Failures of finding and opening a verbs device, and their errors.
//!
//! libibverbs takes a device named `rxe0` for a soft-RoCE device, and has a driver for it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use super::tree::{ACTIVE, Device, Tree};
use super::{Machine, built, example, text};

/// The interface version of the soft-RoCE driver library.
const RXE_VERSION: u32 = 2;

fn tree() -> Tree {
    Tree {
        verbs: vec![("rxe0", RXE_VERSION), ("mlx9_0", 1)],
        verbs_abi_version: Some(6),
        ..Tree::new([
            Device::new("rxe0", &[ACTIVE.on_ethernet()]),
            Device::new("mlx9_0", &[ACTIVE]),
        ])
    }
}

fn run(machine: &Machine, wrapper: &[&str], name: Option<&str>) -> (String, String, bool) {
    let mut words: Vec<String> = wrapper.iter().copied().map(str::to_owned).collect();
    words.push(example("open_device").display().to_string());
    words.extend(name.map(str::to_owned));
    let output = machine.run(Stdio::null(), &words);
    (
        text(&output.stdout).to_owned(),
        text(&output.stderr).to_owned(),
        output.status.success(),
    )
}

fn expect(machine: &Machine, wrapper: &[&str], name: Option<&str>, words: &[&str]) {
    let (out, message, success) = run(machine, wrapper, name);
    assert!(!success, "{out}");
    for word in words {
        assert!(message.contains(word), "{word:?} is not in: {message}");
    }
}

#[test]
fn a_device_with_a_driver_library_is_listed() {
    let (out, message, success) = run(&Machine::new(&tree()), &[], None);
    assert!(success, "{message}");
    assert_eq!(out, "rxe0 (uverbs0, node GUID 0x0002c90300000000)");
}

#[test]
fn a_device_without_a_driver_library_is_explained() {
    let machine = Machine::new(&tree());
    expect(
        &machine,
        &[],
        Some("mlx9_0"),
        &[
            "(mlx9_0)",
            "interface version 1",
            "no driver library",
            "ibverbs-providers",
        ],
    );
    expect(
        &machine,
        &[],
        Some("mlx9_7"),
        &["no such device", "rxe0 (uverbs0", "mlx9_0 (not usable: "],
    );
}

#[test]
fn a_driver_library_for_another_version_of_the_kernel_is_explained() {
    let machine = Machine::new(&Tree {
        verbs: vec![("rxe0", 77)],
        ..tree()
    });
    expect(
        &machine,
        &[],
        Some("rxe0"),
        &["interface version 77", "none for that version"],
    );
}

#[test]
fn a_kernel_without_ib_uverbs_is_named() {
    let machine = Machine::new(&Tree {
        verbs: vec![],
        verbs_abi_version: None,
        ..tree()
    });
    for name in [None, Some("mlx9_9")] {
        expect(
            &machine,
            &[],
            name,
            &[
                "/sys/class/infiniband_verbs/abi_version",
                "modprobe ib_uverbs",
            ],
        );
    }
}

#[test]
fn a_kernel_of_an_unknown_version_is_named() {
    let machine = Machine::new(&Tree {
        verbs_abi_version: Some(99),
        ..tree()
    });
    expect(&machine, &[], Some("rxe0"), &["version 99", "knows 3 to 6"]);
}

#[test]
fn a_missing_device_file_is_named() {
    let machine = Machine::new(&tree());
    fs::remove_file(machine.path("dev/infiniband/uverbs0")).unwrap();
    expect(
        &machine,
        &[],
        Some("rxe0"),
        &["(rxe0)", "there is no /dev/infiniband/uverbs0", "udev"],
    );
}

#[test]
fn a_wrong_file_in_place_of_the_device_file_is_named() {
    expect(
        &Machine::new(&tree()),
        &[],
        Some("rxe0"),
        &["/dev/infiniband/uverbs0 is not a device file"],
    );
}

#[test]
fn permission_errors_name_the_files_owner() {
    let machine = Machine::new(&tree());
    fs::set_permissions(
        machine.path("dev/infiniband/uverbs0"),
        fs::Permissions::from_mode(0o060),
    )
    .unwrap();
    let wrapper = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"];
    let words = [
        "os error 13",
        "/dev/infiniband/uverbs0 belongs to user 0 (root)",
        "mode 0060",
        "runs as user 0 (root) with groups 0 (root)",
        "udev rule",
    ];
    expect(&machine, &wrapper, Some("rxe0"), &words);
}

#[test]
fn a_device_that_the_kernel_keeps_to_itself_is_explained() {
    // ib_uverbs is loaded, and serves the other device.
    let machine = Machine::new(&Tree {
        verbs: vec![("rxe0", RXE_VERSION)],
        ..tree()
    });
    let words = [
        "mlx9_0",
        "only to the kernel",
        "nothing in /sys/class/infiniband_verbs names it",
    ];
    expect(&machine, &[], Some("mlx9_0"), &words);
    // If one file cannot be read, it is unknown which one belongs to the device.
    fs::remove_file(machine.path("sys/class/infiniband_verbs/uverbs0/ibdev")).unwrap();
    let words = ["its device file cannot be determined", "uverbs0/ibdev"];
    expect(&machine, &[], Some("mlx9_0"), &words);
}

#[test]
fn a_folder_that_is_shut_hides_no_driver_library() {
    let machine = Machine::new(&tree());
    let shut = fs::Permissions::from_mode(0o600);
    fs::set_permissions(machine.path("dev/infiniband"), shut).unwrap();
    let wrapper = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"];
    let words = ["rxe0", "the mode of the folder /dev/infiniband forbids"];
    expect(&machine, &wrapper, Some("rxe0"), &words);
}

#[test]
fn files_that_a_container_was_given_are_named_beside_the_missing_one() {
    let machine = Machine::new(&tree());
    fs::remove_file(machine.path("dev/infiniband/uverbs0")).unwrap();
    let words = [
        "there is no /dev/infiniband/uverbs0",
        "/dev/infiniband has ",
        "uverbs1",
    ];
    expect(&machine, &[], Some("rxe0"), &words);
}

#[test]
fn missing_sysfs_and_missing_module_have_different_errors() {
    let machine = Machine::new(&tree());
    fs::remove_dir_all(machine.path("sys")).unwrap();
    fs::create_dir(machine.path("sys")).unwrap();
    for name in [None, Some("rxe0")] {
        expect(&machine, &[], name, &["sysfs is not mounted"]);
    }
}

/// A device whose file opens and is the right one.
pub fn openable(tree: &Tree) -> Machine {
    let machine = Machine::new(tree);
    machine.opens_as_null("dev/infiniband/uverbs0");
    fs::write(
        machine.path("sys/class/infiniband_verbs/uverbs0/dev"),
        "1:3\n",
    )
    .unwrap();
    machine
}

#[test]
fn a_removed_device_and_a_failing_driver_have_different_errors() {
    let stub = built("sysfs/stub_libibverbs.c", "stub.so", &[]);
    let preload = format!("LD_PRELOAD={}/stub.so", stub.path().display());
    let gone = "STUB_GONE=/sys/class/infiniband_verbs/uverbs0";
    for (failure, is_gone, said) in [
        (19, false, "could not start it"),
        (5, false, "could not start it"),
        (22, false, "driver library failed afterwards"),
        (24, false, "(ulimit -n)"),
        (19, true, "the device was removed"),
        (5, true, "the device was removed"),
        (22, true, "the device was removed"),
    ] {
        let machine = openable(&tree());
        let failure_of = format!("STUB_FAILURE={failure}");
        let mut wrapper = vec!["env", &preload, &failure_of];
        wrapper.extend(is_gone.then_some(gone));
        let (_, message, success) = run(&machine, &wrapper, Some("rxe0"));
        assert!(!success, "{message}");
        assert!(
            message.contains(&format!("os error {failure}")),
            "{message}"
        );
        for words in [
            "could not start it",
            "driver library failed afterwards",
            "(ulimit -n)",
            "the device was removed",
        ] {
            assert_eq!(
                message.contains(words),
                words == said,
                "{words:?}: {message}"
            );
        }
    }
}
