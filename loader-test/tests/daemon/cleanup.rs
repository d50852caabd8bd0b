//! No process, namespace or mount is left, whatever ends the run.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use loader_test::error::Error;
use loader_test::rig::Rig;
use loader_test::wait;
use rustix::process::{Pid, Signal, kill_process};

use crate::processes::{self, Process};
use crate::providers;
use crate::stock::LOADER_TEST;

/// A run that has started everything and waits for an answer that never comes.
struct Waiting {
    run: Child,
    started: BTreeSet<Process>,
    logs: tempfile::TempDir,
}

fn wait_in_the_middle() -> Waiting {
    let logs = tempfile::tempdir().unwrap();
    let silent = providers::build(&["SILENT=1"]);
    let run = Command::new(LOADER_TEST)
        .arg("stock")
        .arg(silent.path())
        .arg("--logs")
        .arg(logs.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pid = i32::try_from(run.id()).unwrap();
    // The last program is an ib_acme without an answer; earlier ones, which list endpoints, end.
    let started = wait::until("ib_acme to ask", Duration::from_secs(60), || {
        let started = processes::descendants(pid);
        let asking = started
            .iter()
            .any(|process| process.command == "ib_acme" && process.has_argument("-d"));
        Ok(asking.then_some(started))
    });
    Waiting {
        run,
        started: started.unwrap(),
        logs,
    }
}

impl Waiting {
    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.run.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// No process, no namespace, no mount.
    fn expect_nothing_left(&self) {
        let own = fs::read_link("/proc/self/ns/mnt").unwrap();
        let namespaces: BTreeSet<_> = self
            .started
            .iter()
            .filter_map(|process| process.mounts.clone())
            .filter(|mounts| *mounts != own)
            .collect();
        let (supervisors, programs): (Vec<_>, Vec<_>) = self
            .started
            .iter()
            .partition(|process| process.command == "supervisor");
        assert_eq!(
            [supervisors.len(), programs.len()],
            [9, 9],
            "ibsim, opensm, the SA agent, four daemons, ib_acme and the namespace's holder: {:?}",
            self.started
        );
        assert_eq!(
            namespaces.len(),
            6,
            "four daemons, ib_acme and the holder have their own: {:?}",
            self.started
        );
        let networks: BTreeSet<_> = programs.iter().map(|process| &process.network).collect();
        assert_eq!(networks.len(), 1, "{programs:?}");
        let own = fs::read_link("/proc/self/ns/net").unwrap();
        assert!(!networks.contains(&Some(own)), "{programs:?}");

        processes::wait_until_gone(&self.started);
        // Other tests' namespaces may reuse the number: only earlier processes count.
        let last = self.started.iter().map(|process| process.started).max();
        processes::wait_until_none("in their namespaces", |process| {
            let mounts = process.mounts.as_ref();
            mounts.is_some_and(|mounts| namespaces.contains(mounts))
                && Some(process.started) <= last
        });
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(
            !mounts.contains(&self.logs.path().display().to_string()),
            "{mounts}"
        );
    }
}

fn ends_by(signal: Signal, status: Option<i32>) {
    let mut waiting = wait_in_the_middle();
    waiting.signal(signal);
    assert_eq!(waiting.run.wait().unwrap().code(), status);
    waiting.expect_nothing_left();
    // The logs are what is left.
    assert!(waiting.logs.path().join("host-1/ibacm.log").is_file());
}

#[test]
fn interrupt_leaves_nothing() {
    ends_by(Signal::INT, Some(130));
}

#[test]
fn termination_leaves_nothing() {
    ends_by(Signal::TERM, Some(143));
}

#[test]
fn sigkill_leaves_nothing() {
    ends_by(Signal::KILL, None);
}

/// A process that leaves the daemon's session, its parent and the environment.
#[test]
fn a_daemon_of_the_providers_ends_with_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let pids = folder.path().join("pids");
    let leaves = providers::build(&[&format!("LEAVES_A_DAEMON=\"{}\"", pids.display())]);
    for command in ["stock", "info"] {
        let mut run = Command::new(LOADER_TEST);
        let output = run.arg(command).arg(leaves.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    for pid in fs::read_to_string(pids).unwrap().lines() {
        assert!(!Path::new("/proc").join(pid).exists(), "{pid}");
    }
}

/// What SIGKILL leaves: the folder, until the next run. The library has left a daemon, and its constructor never returns.
#[test]
fn sigkill_of_any_command_leaves_no_process_and_its_folder_until_the_next_run() {
    let place = tempfile::tempdir().unwrap();
    let pids = place.path().join("pids");
    let hangs = providers::build(&["HANGS", &format!("LEAVES_A_DAEMON=\"{}\"", pids.display())]);
    let library = hangs.path();
    let options: [(&str, &[&str]); 6] = [
        ("check", &[]),
        ("stock", &[]),
        ("bench", &["--dests", "1k", "--only", "gid"]),
        ("fuzz", &[]),
        ("info", &[]),
        ("trace", &["-o", "/dev/null"]),
    ];
    for (command, options) in options {
        let temporary = place.path().join(command);
        fs::create_dir(&temporary).unwrap();
        let _ = fs::remove_file(&pids);
        let start = |command: &str| {
            let mut run = Command::new(LOADER_TEST);
            run.arg(command).env("TMPDIR", &temporary);
            run.stdout(Stdio::null()).stderr(Stdio::null());
            run
        };
        let mut run = start(command).arg(&library).args(options).spawn().unwrap();
        let pid = i32::try_from(run.id()).unwrap();
        let what = format!("{command} to load the library");
        let left = wait::until(&what, Duration::from_secs(60), || {
            let text = fs::read_to_string(&pids).unwrap_or_default();
            let left = text.split_once('\n').map(|(pid, _)| pid.parse::<i32>());
            Ok(left.and_then(Result::ok))
        });
        let left = left.unwrap();
        let mut started = processes::descendants(pid);
        started.extend(
            processes::all()
                .into_iter()
                .filter(|process| process.pid == left),
        );
        assert!(
            started.iter().any(|process| process.pid == left),
            "{command}: {started:?}"
        );
        run.kill().unwrap();
        run.wait().unwrap();
        processes::wait_until_gone(&started);
        let folders = || {
            fs::read_dir(&temporary)
                .unwrap()
                .flatten()
                .map(|entry| entry.path())
                .collect::<Vec<_>>()
        };
        assert!(!folders().is_empty(), "{command} has no folder in TMPDIR");
        // Another library: what is looked at is not this run's business.
        let good = providers::good();
        assert!(start("info").arg(good.path()).status().unwrap().success());
        assert_eq!(folders(), Vec::<std::path::PathBuf>::new(), "{command}");
    }
}

fn programs(rig: &Rig) -> BTreeSet<Process> {
    let mut pids: Vec<_> = rig.hosts().iter().filter_map(|host| host.pid()).collect();
    pids.extend([rig.opensm().pid().unwrap(), rig.ibsim().process().pid()]);
    processes::all()
        .into_iter()
        .filter(|process| pids.contains(&process.pid))
        .collect()
}

#[test]
fn a_panic_leaves_the_logs_alone() {
    let good = providers::good();
    let (sender, receiver) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let rig = Rig::builder(good.path()).start().unwrap();
        sender
            .send((programs(&rig), rig.directory().to_owned()))
            .unwrap();
        panic!("on purpose");
    });
    assert!(thread.join().is_err());
    let (started, directory) = receiver.recv().unwrap();
    assert_eq!(started.len(), 6, "ibsim, opensm, four daemons: {started:?}");
    processes::wait_until_gone(&started);
    assert!(directory.join("opensm/opensm.log").is_file());
    fs::remove_dir_all(directory).unwrap();
}

/// PR_SET_PDEATHSIG is about threads; a rig is not.
#[test]
fn a_rig_outlives_the_thread_that_started_it() {
    let good = providers::good();
    let rig = std::thread::spawn(move || Rig::builder(good.path()).host("Hca1").start().unwrap())
        .join()
        .unwrap();
    let directory = rig.directory().to_owned();
    assert_eq!(rig.hosts()[0].endpoints().unwrap().len(), 1);
    let started = programs(&rig);
    drop(rig);
    processes::wait_until_gone(&started);
    assert!(!Path::new(&directory).exists());
}

/// A rig that cannot start ends what it had started.
#[test]
fn a_failed_start_leaves_nothing() {
    let good = providers::good();
    let logs = tempfile::tempdir().unwrap();
    // The last daemon has no endpoint: everything else runs then.
    let partial = providers::build(&["NO_PORT"]);
    let result = Rig::builder(good.path())
        .host("Hca1")
        .host_with("Hca2", partial.path())
        .logs(logs.path())
        .start();
    let error = result.unwrap_err();
    assert!(
        matches!(&error, Error::NoEndpoint { host, .. } if host == "Hca2"),
        "{error}"
    );
    assert!(
        error.to_string().contains("failed to open the prov port"),
        "{error}"
    );
    assert!(logs.path().join("opensm/opensm.log").is_file());
    processes::wait_until_none("in the rig's folder", |process| {
        let directory = fs::read_link(format!("/proc/{}/cwd", process.pid)).unwrap_or_default();
        directory.starts_with(logs.path())
    });
}
