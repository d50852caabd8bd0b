//! The command `loader-test stock`.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use loader_test::rig::{RING, Rig};
use loader_test::stock::Form;

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
            "32 destinations requested",
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
    // Every host has a name as source for names, and two hosts an IP address as source for IP addresses.
    let run = stock(arguments);
    run.expect(
        0,
        &[
            "44 destinations requested",
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
    stock([&good, "--host", "Hca3=other.so"]).expect(2, &["other.so is not one of the LIBs"]);
}

#[test]
fn the_forms_can_be_chosen() {
    let built = providers::good();
    let good = built.path().display().to_string();
    let run = stock([&good, "--by", "gid", "--host", "Hca2"]);
    run.expect(0, &["4 destinations requested", "4 answered, 4 equal"]);
    assert!(!run.stdout.contains("-f l"), "{}", run.stdout);
    stock([&good, "--by", "guid"]).expect(2, &["[possible values: lid, gid, name, ip]"]);
}

/// An SA without QoS returns the path for a query with that SL: a provider may have a policy.
#[test]
fn an_sl_that_the_sa_gives_is_right_and_shown() {
    let run = stock([providers::build(&["SL_OFF_BY=1"]).path()]);
    run.expect(
        0,
        &[
            "32 answered, 32 equal",
            "32 printed by ib_acme, 32 equal",
            "64 records not the plain path",
            "the answer is not the plain path, but the SA returns it for a query with its values; the answer has SL 1, the SA says 0",
            "ib_acme's output has SL 1, the SA says 0",
        ],
    );
}

/// On a ring whose subnet manager avoids deadlocks, the SL is the route's.
#[test]
fn an_sl_that_the_sa_does_not_give_is_wrong() {
    let built = providers::build(&["SL_OFF_BY=1"]);
    let rig = Rig::builder(built.path())
        .net(RING)
        .opensm_option("routing_engine", "lash")
        .host("Hca1")
        .start()
        .unwrap();
    let mut out = Vec::new();
    let tally = loader_test::stock::run(&rig, &[Form::Gid], &mut out).unwrap();
    let out = String::from_utf8_lossy(&out);
    assert!(!tally.is_clean(), "{out}");
    assert_eq!(
        [tally.answered, tally.equal, tally.other_paths],
        [6, 0, 0],
        "{out}"
    );
}

/// The suite judges them, and so does this.
#[test]
fn a_value_without_its_selector_is_wrong() {
    let run = stock([providers::build(&["NO_SELECTORS"]).path()]);
    run.expect(
        1,
        &[
            "32 answered, 0 equal",
            "selectors of MTU, rate, packet lifetime [0, 0, 0], the SA says [2, 2, 2]",
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
        run.expect(1, &["ibacm refuses", words]);
    }
    let text = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    stock([text]).expect(1, &["ibacm refuses", "invalid ELF header"]);
}

#[test]
fn what_is_not_there_is_named() {
    let library = providers::stock().display().to_string();
    stock(["/nonexistent/lib.so"]).expect(2, &["/nonexistent/lib.so is not a file"]);
    stock([&library, "--net", "/nonexistent.net"]).expect(2, &["/nonexistent.net: No such file"]);
    stock([&library, "--net", &library]).expect(2, &["the file has no node"]);
    let broken = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(broken.path(), "Hca 1 \"H1\"\n[1] \"H2\"[1]\nHca 1 \"H1\"\n").unwrap();
    let broken = broken.path().display().to_string();
    stock([&library, "--net", &broken]).expect(2, &["ibsim cannot simulate the fabric"]);
    stock([&library, "--sim", "/nonexistent.so"]).expect(2, &["/nonexistent.so is not a file"]);
    stock([&library, "--host", "Hca9"]).expect(2, &["the fabric has no node Hca9"]);
    stock([&library, "--host", "Switch1"]).expect(2, &["Switch1 is a Switch, not a host"]);
    stock([&library, "--host", "Hca1", "--host", "Hca1"]).expect(2, &["Hca1 is named twice"]);
    stock([&library, "--address", "Hca9=a"]).expect(2, &["Hca9, which is not a host"]);
    stock([&library, "--address", "Hca1=a b"]).expect(2, &["addresses of 1 to 46 bytes"]);
    stock([&library, "--opts", "/nonexistent/opts"]).expect(2, &["/nonexistent/opts: No such"]);
    stock([&library, "--opt", "timeout"]).expect(2, &["expected \"NAME VALUE\" or NAME=VALUE"]);
    let long = format!("x={}", "y".repeat(120));
    stock([&library, "--opt", &long]).expect(2, &["option line longer than"]);
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
        &["libfabric_sim.so is missing", "cargo build -p fabric-sim"],
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
    let arguments = [
        library.as_os_str(),
        "--opt".as_ref(),
        "timeout=1\n2".as_ref(),
    ];
    stock(arguments).expect(2, &["expected \"NAME VALUE\" or NAME=VALUE"]);
    let arguments = [
        library.as_os_str(),
        "--opt".as_ref(),
        "server_mode open".as_ref(),
    ];
    stock(arguments).expect(2, &["server_mode open: ", "remove the option"]);
}

/// A program that cannot be started says nothing about the provider.
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
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("no_unshare");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/daemon/no_unshare.c");
    let built = Command::new("cc")
        .arg("-o")
        .arg(&program)
        .arg(source)
        .status();
    assert!(built.unwrap().success());
    let mut command = Command::new(program);
    command.args([LOADER_TEST, "demo"]);
    finish(command.arg(providers::stock()).output().unwrap()).expect(
        2,
        &[
            "unshare(NEWNET | NEWNS | NEWUSER): Operation not permitted",
            "docker run --cap-add SYS_ADMIN --security-opt apparmor=unconfined",
            "podman run --cap-add SYS_ADMIN",
        ],
    );
}

/// Without root, the mounts need a user namespace.
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
}

/// Runs the command with its own folder for temporary files, and returns what is left there.
fn with_temporary(command: &str, arguments: &[&OsStr]) -> (Run, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let mut program = Command::new(LOADER_TEST);
    program.arg(command).args(arguments);
    let run = finish(program.env("TMPDIR", folder.path()).output().unwrap());
    let left = std::fs::read_dir(folder.path()).unwrap().flatten();
    let names = left.map(|entry| entry.file_name().to_string_lossy().into_owned());
    (run, names.collect())
}

#[test]
fn temporary_folders_go_unless_something_is_wrong() {
    let good = providers::stock();
    for command in ["stock", "demo", "info"] {
        let (run, left) = with_temporary(command, &[good.as_os_str()]);
        assert_eq!(
            (run.status, left),
            (Some(0), Vec::new()),
            "{command}: {}",
            run.stderr
        );
        assert!(!run.stderr.contains("the logs are"), "{}", run.stderr);
    }
    let bad = providers::build(&["MADE_UP=1"]);
    let (run, left) = with_temporary("stock", &[bad.path().as_os_str()]);
    run.expect(1, &["the logs are in "]);
    assert_eq!(left.len(), 1, "{left:?}");
    let (run, left) = with_temporary("stock", &[OsStr::new("/nonexistent.so")]);
    assert_eq!((run.status, left), (Some(2), Vec::new()));
}

#[test]
fn options_come_from_a_file_and_single_lines_in_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("opts");
    // The provider does not load without both.
    let built = providers::build(&["NEEDS_OPTIONS"]);
    std::fs::write(&file, "# what it needs\n\nfirst_of_mine yes\n").unwrap();
    let (library, file) = (built.path(), file.as_os_str());
    for command in ["stock", "demo", "info"] {
        let lone = [library.as_os_str(), "--opts".as_ref(), file];
        let (run, _) = with_temporary(command, &lone);
        run.expect(1, &["provider_query"]);
        for single in ["second_of_mine @HOSTS@", "second_of_mine=@HOSTS@"] {
            let both = [&lone[..], &["--opt".as_ref(), single.as_ref()]].concat();
            let (run, _) = with_temporary(command, &both);
            // It resolves no IP addresses, which the demonstration asks for.
            let status = if command == "demo" { 1 } else { 0 };
            run.expect(status, &["test-sa"]);
            assert!(!run.stderr.contains("ibacm refuses"), "{}", run.stderr);
        }
    }
}

/// A script on PATH in place of opensm: it runs the real one and then this.
fn opensm_that(does: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("opensm");
    std::fs::write(
        &path,
        format!("#!/bin/bash\nPATH=${{PATH#*:}}:/usr/sbin:/sbin\n{does}\n"),
    )
    .unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    folder
}

fn with_opensm(folder: &Path, arguments: &[&OsStr]) -> Run {
    let mut path = folder.as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let logs = tempfile::tempdir().unwrap();
    let mut program = Command::new(LOADER_TEST);
    program.args(arguments).arg("--logs").arg(logs.path());
    finish(program.env("PATH", path).output().unwrap())
}

#[test]
fn an_opensm_that_crashes_says_nothing_about_the_provider() {
    let good = providers::good();
    let net = Path::new(env!("CARGO_MANIFEST_DIR")).join("fabrics/fat-tree-324.net");
    let at_once = opensm_that("kill -SEGV $$");
    let library = good.path();
    let stock = ["stock".as_ref(), library.as_os_str()];
    with_opensm(at_once.path(), &stock).expect(2, &["opensm ended (killed by signal 11)"]);
    // There are hundreds of destinations, so the run is in the middle of them at the tenth query.
    let later = opensm_that(
        "opensm \"$@\" & until [ \"$(grep -c 'SA MAD dump' opensm.log)\" -gt 10 ]; do sleep 0.01; done; \
         kill -KILL $!; exit 9",
    );
    let arguments = [
        "--net".as_ref(),
        net.as_os_str(),
        "--host".as_ref(),
        "H0".as_ref(),
    ];
    let run = with_opensm(later.path(), &[&stock[..], &arguments].concat());
    run.expect(2, &["opensm ended (exit status: 9)"]);
}

#[test]
fn an_ibsim_that_ends_says_nothing_about_the_provider() {
    let good = providers::good();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ibsim");
    std::fs::write(&path, "#!/bin/sh\nkill -SEGV $$\n").unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    let run = with_opensm(folder.path(), &["stock".as_ref(), good.path().as_os_str()]);
    run.expect(2, &["ibsim"]);
}

/// A provider that needs `libagent.so.1`, which needs `libdeeper.so`, each in a folder that the other names by $ORIGIN.
fn with_agent(folder: &Path) -> std::path::PathBuf {
    let cc = |arguments: &[&str]| {
        let status = Command::new("cc")
            .current_dir(folder)
            .args(arguments)
            .status();
        assert!(status.unwrap().success(), "{arguments:?}");
    };
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/daemon/provider.c");
    std::fs::create_dir_all(folder.join("plugins")).unwrap();
    std::fs::create_dir_all(folder.join("agent/deeper")).unwrap();
    std::fs::write(folder.join("deeper.c"), "int deeper(void) { return 1; }\n").unwrap();
    std::fs::write(
        folder.join("agent.c"),
        "int deeper(void); int agent(void) { return deeper(); }\n",
    )
    .unwrap();
    cc(&[
        "-shared",
        "-fPIC",
        "-o",
        "agent/deeper/libdeeper.so",
        "deeper.c",
    ]);
    cc(&[
        "-shared",
        "-fPIC",
        "-o",
        "agent/libagent.so.1",
        "agent.c",
        "-Wl,-soname,libagent.so.1",
        "-Lagent/deeper",
        "-ldeeper",
        "-Wl,-rpath,$ORIGIN/deeper",
    ]);
    std::os::unix::fs::symlink("libagent.so.1", folder.join("agent/libagent.so")).unwrap();
    cc(&[
        "-shared",
        "-fPIC",
        "-DAGENT",
        "-o",
        "plugins/provider.so",
        source,
        "-Lagent",
        "-lagent",
        "-Wl,-rpath,$ORIGIN/../agent",
        "-Wl,-rpath-link,agent/deeper",
    ]);
    folder.join("plugins/provider.so")
}

#[test]
fn libraries_from_beside_the_provider_come_with_its_copy() {
    let folder = tempfile::tempdir().unwrap();
    let library = with_agent(folder.path());
    stock([&library]).expect(0, &["32 answered, 32 equal"]);
    std::fs::remove_file(folder.path().join("agent/deeper/libdeeper.so")).unwrap();
    let run = stock([&library]);
    run.expect(
        1,
        &["provider.so needs libdeeper.so, which is in neither the loader's paths"],
    );
    std::fs::remove_dir_all(folder.path().join("agent")).unwrap();
    let run = stock([&library]);
    run.expect(1, &["provider.so needs libagent.so.1, which is in neither"]);
    assert!(!run.stderr.contains("ibsim"), "{}", run.stderr);
}

#[test]
fn two_runs_at_once_do_not_meet() {
    let good = providers::good();
    let runs = [(); 2].map(|()| {
        let library = good.path();
        std::thread::spawn(move || stock([library]))
    });
    for run in runs {
        run.join().unwrap().expect(0, &["32 answered, 32 equal"]);
    }
}
