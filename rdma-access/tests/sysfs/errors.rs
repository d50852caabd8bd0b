//! Failures of opening a MAD port, and their errors.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use std::process::Stdio;

use super::tree::{ACTIVE, Device, LINK_UP, POLLING, Tree};
use super::{Machine, built, debian, example, is_root, text, under};

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

/// Returns the output of `smi_port`: device and port, or the kind of failure and its message.
fn ask(machine: &Machine, wrapper: &[&str], question: [&str; 2]) -> (String, String) {
    let mut words: Vec<String> = wrapper.iter().copied().map(str::to_owned).collect();
    words.push(example("smi_port").display().to_string());
    words.extend(question.map(str::to_owned));
    let output = machine.run(Stdio::null(), &words);
    (
        text(&output.stdout).to_owned(),
        text(&output.stderr).to_owned(),
    )
}

fn expect(machine: &Machine, wrapper: &[&str], question: [&str; 2], kind: &str, words: &[&str]) {
    let (found, message) = ask(machine, wrapper, question);
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
fn permission_errors_name_the_files_owner() {
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
        "/dev/infiniband/umad0 belongs to user 0 (root)",
        "mode 0040",
        "runs as user 0 (root)",
        "udev rule",
    ];
    expect(&machine, &wrapper, ["mlx5_0", "1"], "Io", &words);
}

/// A device whose first port has no cable, and is the first in the kernel's MAD files.
fn unplugged() -> Machine {
    Machine::new(&Tree::new([
        Device::new("mlx5_0", &[POLLING, ACTIVE]),
        Device::new("mlx5_1", &[LINK_UP]),
    ]))
}

fn expect_port(machine: &Machine, question: [&str; 2], port: &str) {
    let mut words = vec![example("smi_port").display().to_string()];
    words.extend(question.map(str::to_owned));
    let output = machine.run(Stdio::null(), &words);
    assert_eq!(text(&output.stdout), port, "{output:?}");
}

#[test]
fn a_port_whose_rate_cannot_be_read_is_usable() {
    // The kernel returns EINVAL if it knows no speed; reading a folder fails too.
    for is_missing in [true, false] {
        let machine = unplugged();
        for file in ["rate", "lid_mask_count", "pkeys/0"] {
            let path = machine
                .path("sys/class/infiniband/mlx5_0/ports/1")
                .join(file);
            fs::remove_file(&path).unwrap();
            if !is_missing {
                fs::create_dir(&path).unwrap();
            }
        }
        expect_port(&machine, ["mlx5_0", "1"], "mlx5_0 1");
        expect_port(&machine, ["mlx5_0", "-"], "mlx5_0 2");
        expect_port(&machine, ["-", "-"], "mlx5_0 2");
        expect_port(&machine, ["-", "1"], "mlx5_0 1");
    }
}

#[test]
fn a_port_whose_state_cannot_be_read_is_named_with_the_file() {
    let machine = unplugged();
    let folder = machine.path("sys/class/infiniband/mlx5_0/ports/1");
    fs::remove_file(folder.join("state")).unwrap();
    let words = [
        "port 1 of mlx5_0",
        "cannot read /sys/class/infiniband/mlx5_0/ports/1/state: No such file",
    ];
    expect(&machine, &[], ["mlx5_0", "1"], "other", &words);
    // The other port and the other device work as before.
    expect_port(&machine, ["mlx5_0", "2"], "mlx5_0 2");
    expect_port(&machine, ["mlx5_1", "-"], "mlx5_1 1");
    expect(
        &machine,
        &[],
        ["mlx5_0", "3"],
        "Invalid",
        &["port 3 of mlx5_0 does not exist"],
    );
    // For libibumad this is state 0; because it could not be read, this crate reads it.
    fs::write(folder.join("state"), "no number\n").unwrap();
    fs::remove_file(folder.join("rate")).unwrap();
    expect(
        &machine,
        &[],
        ["mlx5_0", "1"],
        "other",
        &["unexpected content \"no number\""],
    );
    fs::remove_dir_all(machine.path("sys/class/infiniband/mlx5_0/ports")).unwrap();
    let words = ["cannot read /sys/class/infiniband/mlx5_0/ports"];
    expect(&machine, &[], ["mlx5_0", "1"], "other", &words);
    expect(&machine, &[], ["mlx5_0", "-"], "NoDevice", &words);
}

#[test]
fn a_tenth_port_and_a_fortieth_device_are_open_to_us() {
    // libibumad supports ports 0 to 9, and up to 32 devices in its lists of names.
    let many = Machine::new(&Tree::new([Device::new("mlx5_0", &[ACTIVE; 12])]));
    expect_port(&many, ["mlx5_0", "12"], "mlx5_0 12");
    const NAMES: [&str; 40] = [
        "d00", "d01", "d02", "d03", "d04", "d05", "d06", "d07", "d08", "d09", "d10", "d11", "d12",
        "d13", "d14", "d15", "d16", "d17", "d18", "d19", "d20", "d21", "d22", "d23", "d24", "d25",
        "d26", "d27", "d28", "d29", "d30", "d31", "d32", "d33", "d34", "d35", "d36", "d37", "d38",
        "d39",
    ];
    let devices = NAMES.map(|name| Device::new(name, &[POLLING]));
    let many = Machine::new(&Tree::new(devices));
    for name in ["d00", "d32", "d39"] {
        expect_port(&many, [name, "1"], &format!("{name} 1"));
        expect_port(&many, [name, "-"], &format!("{name} 1"));
    }
}

/// A libibumad: the words that run a program with it, a part of its file name, and how many umad files it
/// searches, if that is fixed.
type Library = (Vec<String>, &'static str, Option<u32>);

/// The machine's own libibumad, and those of other releases. The latest one changes.
fn libraries() -> [Library; 3] {
    [
        (Vec::new(), ".so.3.2.44.", Some(64)),
        (under(&debian("trixie")), ".so.3.4.56.", Some(64)),
        (under(&debian("sid")), "libibumad.so.3.", None),
    ]
}

#[test]
fn a_file_beyond_those_that_libibumad_looks_at_is_named() {
    for (loader, version, files) in libraries() {
        let loader: Vec<&str> = loader.iter().map(String::as_str).collect();
        let first_beyond = files.map(|files| (files, false));
        let cases = [(63, true), (1000, false)].into_iter().chain(first_beyond);
        for (number, is_found) in cases {
            let machine = machine();
            let move_to = |folder: &str| {
                let path = machine.path(folder);
                fs::rename(path.join("umad0"), path.join(format!("umad{number}"))).unwrap();
            };
            move_to("sys/class/infiniband_mad");
            move_to("dev/infiniband");
            let (found, message) = ask(&machine, &loader, ["mlx5_0", "1"]);
            if is_found {
                assert_eq!(found, "mlx5_0 1", "{version} umad{number}: {message}");
                continue;
            }
            for words in [
                format!("did not find /dev/infiniband/umad{number}"),
                "may not search that far".to_owned(),
                // The error names the tested release, so its statements about releases are verified.
                version.to_owned(),
            ] {
                assert!(message.contains(&words), "{version} {words:?}: {message}");
            }
            assert!(!message.contains("try again"), "{message}");
        }
    }
}

/// A stub of libibumad that never finds a port's file.
#[test]
fn a_file_that_libibumad_searches_is_not_reported_as_beyond() {
    let stub = built(
        "mads/stub_libibumad.c",
        "libibumad.so.3",
        &["-DFINDS_NOTHING"],
    );
    let library = format!("LD_LIBRARY_PATH={}", stub.path().display());
    let machine = Machine::new(&Tree::new([Device::new("stub0", &[ACTIVE])]));
    let words = ["did not find /dev/infiniband/umad0", "try again"];
    expect(
        &machine,
        &["env", &library],
        ["stub0", "1"],
        "other",
        &words,
    );
    let (_, message) = ask(&machine, &["env", &library], ["stub0", "1"]);
    assert!(!message.contains("search that far"), "{message}");
    // A port without a file in the kernel is another error.
    fs::remove_dir_all(machine.path("sys/class/infiniband_mad/umad0")).unwrap();
    let words = ["the kernel offers no MADs on port 1 of stub0"];
    expect(
        &machine,
        &["env", &library],
        ["stub0", "1"],
        "Invalid",
        &words,
    );
}

#[test]
fn a_name_that_is_too_long_for_libibumad_is_named() {
    for (loader, version, _) in libraries() {
        let loader: Vec<&str> = loader.iter().map(String::as_str).collect();
        for (name, is_found) in [
            ("nineteen_characters", true),
            ("twenty_characters_it", false),
        ] {
            let machine = Machine::new(&Tree::new([Device::new(name, &[ACTIVE])]));
            if is_found {
                let (found, message) = ask(&machine, &loader, [name, "1"]);
                assert_eq!(found, format!("{name} 1"), "{version}: {message}");
            } else {
                let words = [
                    "19 characters",
                    "rdma dev set twenty_characters_it name",
                    "/dev/infiniband/umad0",
                ];
                expect(&machine, &loader, [name, "1"], "other", &words);
                expect(&machine, &loader, ["-", "-"], "other", &words);
            }
        }
    }
}

#[test]
fn a_device_without_infiniband_is_not_reported_as_missing() {
    let iwarp = Device {
        node_type: 4,
        ..Device::new("siw0", &[ACTIVE.on_ethernet().without_umad()])
    };
    let machine = Machine::new(&Tree::new([Device::new("mlx5_0", &[ACTIVE]), iwarp]));
    for port in ["1", "-"] {
        let words = [
            "siw0 is not an InfiniBand device",
            "/sys/class/infiniband/siw0/node_type contains",
        ];
        expect(&machine, &[], ["siw0", port], "other", &words);
    }
    // Names are compared and never used in a path.
    for name in ["siw1", "../infiniband/siw0", "siw0/", "", ".."] {
        let words = ["no device ", "devices here: mlx5_0"];
        expect(&machine, &[], [name, "1"], "Invalid", &words);
    }
    expect(
        &machine,
        &[],
        ["mlx5_0", "255"],
        "Invalid",
        &["port 255 of mlx5_0 does not exist"],
    );
    expect_port(&machine, ["mlx5_0", "0"], "mlx5_0 1");
    fs::remove_file(machine.path("sys/class/infiniband/siw0/node_type")).unwrap();
    let words = ["cannot read /sys/class/infiniband/siw0/node_type"];
    expect(&machine, &[], ["siw0", "1"], "other", &words);
}

#[test]
fn missing_sysfs_and_missing_module_have_different_errors() {
    let machine = machine();
    fs::remove_dir_all(machine.path("sys")).unwrap();
    fs::create_dir(machine.path("sys")).unwrap();
    let words = ["sysfs is not mounted"];
    expect(&machine, &[], ["mlx5_0", "1"], "NotSupported", &words);
    let machine = self::machine();
    fs::create_dir_all(machine.path("sys/module/ib_umad")).unwrap();
    fs::remove_file(machine.path("sys/class/infiniband_mad/abi_version")).unwrap();
    let words = ["the module ib_umad is loaded", "hidden from this process"];
    expect(&machine, &[], ["mlx5_0", "1"], "NotSupported", &words);
}

#[test]
fn an_unreadable_ibdev_file_is_named() {
    let machine = machine();
    // The second port's file does not matter to the first.
    fs::remove_file(machine.path("sys/class/infiniband_mad/umad1/ibdev")).unwrap();
    expect_port(&machine, ["mlx5_0", "1"], "mlx5_0 1");
    fs::remove_file(machine.path("sys/class/infiniband_mad/umad0/ibdev")).unwrap();
    let words = [
        "cannot read ",
        "cannot determine the file of port 1 of mlx5_0",
    ];
    expect(&machine, &[], ["mlx5_0", "1"], "other", &words);
}

#[test]
fn a_folder_that_is_shut_is_named_instead_of_the_file() {
    let machine = machine();
    let shut = fs::Permissions::from_mode(0o600);
    fs::set_permissions(machine.path("dev/infiniband"), shut).unwrap();
    let wrapper = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"];
    let words = [
        "os error 13",
        "the mode of the folder /dev/infiniband forbids",
    ];
    expect(&machine, &wrapper, ["mlx5_0", "1"], "Io", &words);
    // With access to the folder it opens.
    let open = fs::Permissions::from_mode(0o700);
    fs::set_permissions(machine.path("dev/infiniband"), open).unwrap();
    expect_port(&machine, ["mlx5_0", "1"], "mlx5_0 1");
}

/// A user outside of the user namespace.
#[test]
fn root_of_a_user_namespace_has_no_rights_on_files_of_others() {
    let machine = machine();
    let file = machine.path("dev/infiniband/umad0");
    let shut = fs::Permissions::from_mode(0o000);
    fs::set_permissions(&file, shut).unwrap();
    let namespace = ["unshare", "-Ur"];
    // It opens its own file, whatever the mode.
    let (found, message) = ask(&machine, &namespace, ["mlx5_0", "1"]);
    assert_eq!(found, "mlx5_0 1", "{message}");
    // Without that capability, the mode decides.
    let weak = [
        "unshare",
        "-Ur",
        "setpriv",
        "--bounding-set=-all",
        "--inh-caps=-all",
    ];
    let words = [
        "belongs to user 0 (root)",
        "runs as user 0 (root)",
        "udev rule",
    ];
    expect(&machine, &weak, ["mlx5_0", "1"], "Io", &words);
    let (_, message) = ask(&machine, &weak, ["mlx5_0", "1"]);
    assert!(!message.contains("namespace"), "{message}");
    if is_root() {
        std::os::unix::fs::chown(&file, Some(4242), Some(4242)).unwrap();
    } else {
        // The file belongs to the machine's root, whom this test's namespace does not map.
        fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink("/etc/shadow", &file).unwrap();
    }
    let words = [
        "os error 13",
        "/dev/infiniband/umad0 belongs to user 65534",
        "who are outside of this user namespace",
    ];
    expect(&machine, &namespace, ["mlx5_0", "1"], "Io", &words);
}
