//! The command `loader-test stock`.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::providers;

pub const LOADER_TEST: &str = env!("CARGO_BIN_EXE_loader-test");

/// A run of the command, with its logs in a folder that is removed afterwards.
struct Run {
    status: Option<i32>,
    stdout: String,
    stderr: String,
}

fn finish(output: Output) -> Run {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    Run {
        status: output.status.code(),
        stdout: text(&output.stdout),
        stderr: text(&output.stderr),
    }
}

fn stock(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Run {
    let logs = tempfile::tempdir().unwrap();
    let mut command = Command::new(LOADER_TEST);
    command
        .arg("stock")
        .args(arguments)
        .arg("--logs")
        .arg(logs.path());
    finish(command.output().unwrap())
}

impl Run {
    #[track_caller]
    fn expect(&self, status: i32, phrases: &[&str]) {
        let Self { stdout, stderr, .. } = self;
        let all = format!("{stdout}\n--- stderr\n{stderr}");
        assert_eq!(self.status, Some(status), "{all}");
        for phrase in phrases {
            assert!(all.contains(phrase), "{phrase:?} is not in:\n{all}");
        }
    }
}

#[test]
fn stock_provider_agrees_with_the_sa() {
    let run = stock([providers::stock()]);
    run.expect(
        0,
        &[
            "Provider ibacmp (/run/providers/libibacmp.so) loaded",
            "32 destinations asked for",
            "32 answered, 32 equal",
            "32 printed by ib_acme, 32 equal",
            "0 differences",
        ],
    );
    assert_eq!(run.stdout.matches("Path information").count(), 32);
    assert_eq!(run.stdout.matches("SA verification: success").count(), 32);
}

#[test]
fn stock_provider_resolves_the_addresses_it_is_told() {
    let addresses = ["Hca1=node1", "Hca1=10.9.0.1", "Hca2=node2", "Hca2=10.9.0.2"];
    let mut arguments = vec![providers::stock().into_os_string()];
    for address in addresses {
        arguments.extend(["--address".into(), address.into()]);
    }
    // Everybody has a name to ask for names with, and two hosts an IP to ask for IPs with.
    let run = stock(arguments);
    run.expect(
        0,
        &[
            "44 destinations asked for",
            "44 answered, 44 equal",
            "-f n -s node1 -d node2 -v",
        ],
    );
}

#[test]
fn hosts_take_the_providers_in_turn_or_as_told() {
    let (good, stocks) = (providers::good(), providers::stock());
    let libraries = [good.path(), stocks];
    let run = stock(&libraries);
    run.expect(0, &["32 answered, 32 equal"]);
    for (host, name) in [
        ("Hca1", "test-sa"),
        ("Hca2", "ibacmp"),
        ("Hca3", "test-sa"),
        ("Hca4", "ibacmp"),
    ] {
        let section = run
            .stdout
            .split("=== ")
            .find(|section| section.starts_with(host))
            .unwrap();
        assert!(
            section.contains(&format!(",1,0xffff,1,{name},{host}")),
            "{section}"
        );
    }

    let [good, stocks] = libraries.map(|library| library.display().to_string());
    let run = stock([
        &good,
        &stocks,
        "--host",
        "Hca3=libibacmp.so",
        "--host",
        "Hca1",
    ]);
    run.expect(
        0,
        &["16 answered, 16 equal", "1,ibacmp,Hca3", "1,ibacmp,Hca1"],
    );
    stock([&good, "--host", "Hca3=other.so"]).expect(2, &["other.so, which is none of the LIBs"]);
}

#[test]
fn the_forms_can_be_chosen() {
    let built = providers::good();
    let good = built.path().display().to_string();
    let run = stock([&good, "--by", "gid", "--host", "Hca2"]);
    run.expect(0, &["4 destinations asked for", "4 answered, 4 equal"]);
    assert!(!run.stdout.contains("-f l"), "{}", run.stdout);
    stock([&good, "--by", "guid"]).expect(2, &["[possible values: lid, gid, name, ip]"]);
}

#[test]
fn a_wrong_sl_is_found() {
    let run = stock([providers::build(&["SL_OFF_BY=1"]).path()]);
    run.expect(
        1,
        &[
            "32 answered, 0 equal",
            "32 printed by ib_acme, 0 equal",
            "the answer has SL 1, the SA says 0",
            "ib_acme's output has SL 1, the SA says 0",
        ],
    );
}

/// ib_acme -v is content with every path of this provider.
#[test]
fn a_query_that_always_succeeds_deceives_nobody() {
    let run = stock([providers::build(&["MADE_UP=1"]).path()]);
    run.expect(
        1,
        &[
            "32 answered, 0 equal",
            "32 printed by ib_acme, 0 equal",
            "MTU 1, the SA says 4",
        ],
    );
    assert_eq!(run.stdout.matches("SA verification: success").count(), 32);
}

#[test]
fn a_daemon_that_dies_is_a_failure() {
    let run = stock([providers::build(&["CRASHES=1"]).path()]);
    run.expect(
        1,
        &[
            "0 answered",
            "4 daemons died",
            "ibacm on Hca1 ended (killed by signal 6)",
        ],
    );
}

#[test]
fn a_daemon_that_dies_while_it_loads_the_library_is_a_failure() {
    let run = stock([providers::build(&["CRASHES_ON_LOAD"]).path()]);
    run.expect(1, &["ibacm, while it loaded", "killed by signal 6"]);
}

#[test]
fn what_the_daemon_refuses_is_told_in_its_own_words() {
    let refusals = [
        (
            "REPORTED_VERSION=2",
            "unmatched provider version 0x00000002 (size 120)",
        ),
        (
            "REPORTED_SIZE=112",
            "unmatched provider version 0x00000001 (size 112)",
        ),
        (
            "QUERY_RESULT=1",
            "provider_query failed to /run/providers/provider.so",
        ),
        (
            "NO_ENTRY",
            "provider_query not found in /run/providers/provider.so",
        ),
    ];
    for (fault, words) in refusals {
        let bad = providers::build(&[fault]);
        let run = stock([bad.path()]);
        run.expect(2, &["ibacm refuses", words]);
    }
    let text = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    stock([text]).expect(2, &["ibacm refuses", "invalid ELF header"]);
}

#[test]
fn what_is_not_there_is_named() {
    let library = providers::stock().display().to_string();
    stock(["/nonexistent/lib.so"]).expect(2, &["/nonexistent/lib.so is not a file"]);
    stock([&library, "--net", "/nonexistent.net"]).expect(2, &["/nonexistent.net: No such file"]);
    stock([&library, "--net", &library]).expect(2, &["there is no node in it"]);
    let broken = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(broken.path(), "Hca 1 \"H1\"\n[1] \"H2\"[1]\nHca 1 \"H1\"\n").unwrap();
    let broken = broken.path().display().to_string();
    stock([&library, "--net", &broken]).expect(2, &["ibsim cannot simulate the fabric"]);
    stock([&library, "--sim", "/nonexistent.so"]).expect(2, &["/nonexistent.so is not a file"]);
    stock([&library, "--host", "Hca9"]).expect(2, &["the fabric has no node Hca9"]);
    stock([&library, "--host", "Switch1"]).expect(2, &["Switch1 is no host"]);
    stock([&library, "--host", "Hca1", "--host", "Hca1"]).expect(2, &["Hca1 is given twice"]);
    stock([&library, "--address", "Hca9=a"]).expect(2, &["Hca9, which is not a host"]);
    stock([&library, "--address", "Hca1=a b"]).expect(2, &["addresses of 1 to 46 bytes"]);
    stock([&library, "--opts", "timeout"]).expect(2, &["a name, = and a value"]);
    let long = format!("x={}", "y".repeat(120));
    stock([&library, "--opts", &long]).expect(2, &["ibacm cuts lines"]);
    stock([""; 0]).expect(2, &["LIB"]);
}

#[test]
fn all_missing_packages_are_named_at_once() {
    let output = Command::new(LOADER_TEST)
        .arg("stock")
        .arg(providers::stock())
        .env("PATH", "/nonexistent")
        .output()
        .unwrap();
    // Daemons are found in sbin, whatever the PATH is.
    finish(output).expect(
        2,
        &["not installed: ibsim, ib_acme; as root: apt-get install ibsim-utils ibacm\n"],
    );
}

/// Without the library beside it, the program says how to build it.
#[test]
fn a_simulation_that_is_not_built_is_named_with_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("loader-test");
    std::fs::copy(LOADER_TEST, &program).unwrap();
    let output = Command::new(program)
        .arg("stock")
        .arg(providers::stock())
        .output()
        .unwrap();
    finish(output).expect(
        2,
        &["libfabric_sim.so is not there", "cargo build -p fabric-sim"],
    );
}

#[test]
fn logs_are_kept_where_they_are_wanted_and_nothing_is_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let logs = folder.path().join("new");
    let run = || {
        let library = providers::stock();
        let mut command = Command::new(LOADER_TEST);
        command
            .arg("stock")
            .arg(library)
            .arg("--logs")
            .arg(&logs)
            .args(["--host", "Hca1"]);
        finish(command.output().unwrap())
    };
    run().expect(0, &[&format!("the logs are in {}", logs.display())]);
    for log in [
        "opensm/opensm.log",
        "fabric/ibsim.log",
        "host-1/ibacm.log",
        "host-1/ib_acme.log",
    ] {
        assert!(logs.join(log).metadata().unwrap().len() > 0, "{log}");
    }
    for copies in ["probe-1/providers", "host-1/providers"] {
        assert!(
            !logs.join(copies).exists(),
            "{copies}: libraries are no logs"
        );
    }
    run().expect(2, &["is not empty"]);
}

#[test]
fn a_folder_that_cannot_be_made_and_options_that_are_none_are_named() {
    let library = providers::stock();
    let mut command = Command::new(LOADER_TEST);
    command.arg("stock").arg(&library);
    let run = finish(command.args(["--logs", "/proc/nowhere"]).output().unwrap());
    run.expect(2, &["keep logs in /proc/nowhere"]);
    for option in ["timeout=1\n2", "a b=1"] {
        let arguments = [library.as_os_str(), "--opts".as_ref(), option.as_ref()];
        stock(arguments).expect(2, &["is no option"]);
    }
}

/// What keeps a program from being started says nothing about the provider.
#[test]
fn surroundings_that_cannot_be_had_are_named() {
    let folder = tempfile::tempdir().unwrap();
    for kind in ["net", "mnt"] {
        // Root of this user namespace may make no such namespace in it.
        let script = format!("echo 0 > /proc/sys/user/max_{kind}_namespaces; exec \"$@\"");
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--", "sh", "-c", &script, "sh"]);
        command.args([LOADER_TEST, "stock"]).arg(providers::stock());
        command.arg("--logs").arg(folder.path());
        let setting = format!("as root: sysctl -w user.max_{kind}_namespaces=");
        finish(command.output().unwrap()).expect(
            2,
            &[
                "the network namespace of the run could not be started: unshare(",
                &setting,
            ],
        );
    }
}

/// What the default filter of a container does.
#[test]
fn a_container_that_may_not_is_told_what_to_start_it_with() {
    let refuse = "import ctypes, os, platform, struct, sys\n\
        libc = ctypes.CDLL(None)\n\
        number = {'x86_64': 272, 'aarch64': 97}[platform.machine()]\n\
        word = lambda *fields: struct.pack('HBBI', *fields)\n\
        code = ctypes.create_string_buffer(word(0x20, 0, 0, 0) + word(0x15, 0, 1, number) + word(6, 0, 0, 0x50001)\n\
        \x20   + word(6, 0, 0, 0x7fff0000))\n\
        program = ctypes.create_string_buffer(struct.pack('HxxxxxxQ', 4, ctypes.addressof(code)))\n\
        assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0\n\
        os.execv(sys.argv[1], sys.argv[1:])\n";
    let mut command = Command::new("python3");
    command.args(["-c", refuse, LOADER_TEST, "demo"]);
    finish(command.arg(providers::stock()).output().unwrap()).expect(
        2,
        &[
            "unshare(NEWNET | NEWNS | NEWUSER): Operation not permitted",
            "docker run --cap-add SYS_ADMIN --security-opt apparmor=unconfined",
            "podman run --cap-add SYS_ADMIN",
        ],
    );
}

/// Nobody is root here, so the mounts need a user namespace.
#[test]
fn it_works_without_root() {
    let folder = tempfile::Builder::new()
        .permissions(PermissionsExt::from_mode(0o755))
        .tempdir()
        .unwrap();
    let good = providers::good();
    let beside = Path::new(LOADER_TEST).parent().unwrap();
    for (from, name) in [
        (LOADER_TEST.into(), "loader-test"),
        (beside.join("libfabric_sim.so"), "libfabric_sim.so"),
        (good.path(), "provider.so"),
    ] {
        std::fs::copy(from, folder.path().join(name)).unwrap();
    }
    let program = folder.path().join("loader-test");
    let mut command = if rustix::process::geteuid().is_root() {
        let mut command = Command::new("setpriv");
        command
            .args([
                "--reuid=65534",
                "--regid=65534",
                "--clear-groups",
                "--no-new-privs",
            ])
            .arg(program);
        command
    } else {
        Command::new(program)
    };
    command.arg("stock").arg(folder.path().join("provider.so"));
    let run = finish(command.current_dir("/").output().unwrap());
    run.expect(
        0,
        &["32 answered, 32 equal", "32 printed by ib_acme, 32 equal"],
    );
    let logs = run.stderr.trim().strip_prefix("the logs are in ").unwrap();
    std::fs::remove_dir_all(logs).unwrap();
}
