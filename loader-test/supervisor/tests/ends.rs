//! Tests that all processes end, whatever ends the program or the owner.

use std::fs;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process};
use supervisor::{Leftovers, Supervised};

const PLENTY: Duration = Duration::from_secs(60);

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]).stdin(Stdio::null());
    command
}

fn start(script: &str) -> Supervised {
    Supervised::spawn(&mut shell(script), Leftovers::END).unwrap()
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PLENTY;
    while !condition() {
        assert!(Instant::now() < deadline, "timed out waiting for {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the processes with this word among their arguments, without zombies.
fn running(word: &str) -> Vec<i32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0)
            .any(|argument| argument == word.as_bytes())
    })
    .collect()
}

/// Returns a unique time for sleep(1), by which a test finds its processes.
fn mark(number: u32) -> String {
    format!("{}.{number}", 100_000 + std::process::id())
}

#[test]
fn the_status_is_the_program_s() {
    assert_eq!(start("exit 3").wait().unwrap().code(), Some(3));
    assert_eq!(start("kill -SEGV $$").wait().unwrap().signal(), Some(11));
    assert!(start("exit 0").wait().unwrap().success());
}

#[test]
fn a_command_can_be_started_again() {
    let mut command = shell("exit 4");
    for _ in 0..3 {
        let mut program = Supervised::spawn(&mut command, Leftovers::END).unwrap();
        assert_eq!(program.wait().unwrap().code(), Some(4));
    }
}

#[test]
fn a_program_that_is_not_there_is_an_error() {
    let mut command = Command::new("/nowhere/nothing");
    let error = Supervised::spawn(&mut command, Leftovers::END).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn a_daemon_that_is_left_behind_is_named_and_killed() {
    let mark = mark(1);
    let mut command = shell(&format!(
        "setsid sh -c 'setsid sleep {mark} & exec sleep {mark}' & read line; :"
    ));
    command.stdin(Stdio::piped());
    let mut program = Supervised::spawn(&mut command, Leftovers::END).unwrap();
    wait_until("both to run", || running(&mark).len() == 2);
    drop(program.take_stdin());
    assert!(program.wait().unwrap().success());
    assert_eq!(running(&mark), []);
    let names: Vec<_> = program
        .leftovers()
        .iter()
        .map(|left| left.name.as_str())
        .collect();
    assert!(names.contains(&"sleep"), "{names:?}");
}

#[test]
fn what_ends_by_itself_in_time_is_not_left_behind() {
    let patience = Leftovers::EndAfter(PLENTY);
    let mut program = Supervised::spawn(&mut shell("setsid sleep 0.2 &"), patience).unwrap();
    assert!(program.wait().unwrap().success());
    assert_eq!(program.leftovers(), []);
}

#[test]
fn the_program_s_end_shows_before_that_of_its_leftovers() {
    let mark = mark(7);
    let patience = Leftovers::EndAfter(PLENTY);
    let mut program =
        Supervised::spawn(&mut shell(&format!("setsid sleep {mark} &")), patience).unwrap();
    wait_until("the program's end", || program.has_ended().unwrap());
    assert_eq!(program.try_wait().unwrap(), None);
    assert!(program.kill().unwrap().success());
    assert_eq!(running(&mark), []);
}

#[test]
fn what_may_stay_stays() {
    let mark = mark(2);
    let mut program = Supervised::spawn(
        &mut shell(&format!("setsid sleep {mark} &")),
        Leftovers::Keep,
    )
    .unwrap();
    assert!(program.wait().unwrap().success());
    wait_until("the server to run", || !running(&mark).is_empty());
    for pid in running(&mark) {
        kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    }
}

#[test]
fn the_owner_s_word_ends_all_of_it() {
    let mark = mark(3);
    let script =
        format!("trap '' TERM INT HUP; sleep {mark} & setsid sh -c 'sleep {mark} & wait' & wait");
    let mut program = start(&script);
    // The middle shell has the word in a longer argument.
    wait_until("both to run", || running(&mark).len() == 2);
    assert_eq!(program.try_wait().unwrap(), None);
    assert_eq!(program.kill().unwrap().signal(), Some(9));
    assert_eq!(running(&mark), []);
    assert_eq!(program.leftovers(), []);
}

#[test]
fn who_forks_all_the_time_is_ended() {
    let mark = mark(4);
    // Each of them starts the next one and ends.
    let script = format!("next() {{ ( next {mark} & ) ; }}; next & sleep {mark}");
    let mut program = start(&script);
    wait_until("the sleeper", || !running(&mark).is_empty());
    program.kill().unwrap();
    assert_eq!(running(&mark), []);
}

#[test]
fn its_group_is_its_own() {
    let mut program = start("kill -KILL 0");
    assert_eq!(program.wait().unwrap().signal(), Some(9));
}

#[test]
fn without_its_supervisor_a_program_ends() {
    let mark = mark(5);
    let mut program = start(&format!("exec sleep {mark}"));
    wait_until("it to run", || !running(&mark).is_empty());
    kill_process(program.supervisor(), Signal::KILL).unwrap();
    assert_eq!(program.wait().unwrap().signal(), Some(9));
    wait_until("its end", || running(&mark).is_empty());
}

#[test]
fn orphans_are_reaped_while_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pid");
    let script = format!(
        "(setsid sh -c 'echo $$ >{0}; mv {0} {0}s' &) ; read never <{1}",
        path.display(),
        fifo(folder.path())
    );
    let mut program = start(&script);
    let written = folder.path().join("pids");
    wait_until("the orphan to run", || written.exists());
    let orphan = fs::read_to_string(written).unwrap();
    let stat = format!("/proc/{}/stat", orphan.trim());
    wait_until("the orphan to be reaped", || !Path::new(&stat).exists());
    program.kill().unwrap();
}

fn fifo(folder: &Path) -> String {
    let path = folder.join("fifo").display().to_string();
    assert!(
        Command::new("mkfifo")
            .arg(&path)
            .status()
            .unwrap()
            .success()
    );
    path
}

#[test]
fn a_signal_reaches_the_program_alone_and_none_after_its_end() {
    let mut program = start("trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done");
    assert_eq!(program.try_wait().unwrap(), None);
    let deadline = Instant::now() + PLENTY;
    while program.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline);
        // Before the trap is set the signal would end the shell.
        let _ = program.signal(Signal::TERM);
        thread::sleep(Duration::from_millis(5));
    }
    assert!(program.signal(Signal::TERM).is_err());
}

#[test]
fn the_end_can_be_polled_for() {
    let mut program = start("exit 0");
    let mut ends = [PollFd::from_borrowed_fd(program.as_fd(), PollFlags::IN)];
    assert_eq!(poll(&mut ends, None).unwrap(), 1);
    assert!(program.wait().unwrap().success());
}

#[test]
fn streams_are_the_program_s() {
    let mut command = shell("cat; echo end");
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut program = Supervised::spawn(&mut command, Leftovers::END).unwrap();
    drop(program.take_stdin());
    let mut text = String::new();
    program
        .take_stdout()
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    assert_eq!(text, "end\n");
    assert!(program.wait().unwrap().success());
}

/// Variable that makes this program play an owner.
const OWNED: &str = "SUPERVISOR_TEST_OWNS";

/// Variable that makes it end while it starts a program.
const ENDS: &str = "SUPERVISOR_TEST_ENDS";

/// Not a test: an owner that ends between the fork and the program's start.
#[test]
fn owner_that_ends() {
    let Ok(folder) = std::env::var(ENDS) else {
        return;
    };
    let owner = rustix::process::getpid();
    let mut command = shell(&format!("touch {folder}/ran"));
    let end_the_owner = move || {
        fs::write(
            format!("{folder}/pid"),
            rustix::process::getpid().to_string(),
        )?;
        kill_process(owner, Signal::KILL)?;
        while rustix::process::getppid() == Some(owner) {
            thread::yield_now();
        }
        Ok(())
    };
    // SAFETY: this process has ended by the time; whatever the closure does in its copy harms nobody.
    unsafe { command.pre_exec(end_the_owner) };
    let _ = Supervised::spawn(&mut command, Leftovers::END);
}

#[test]
fn without_its_owner_it_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "owner_that_ends"])
        .env(ENDS, folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    assert_eq!(owner.wait().unwrap().signal(), Some(9));
    let pid = fs::read_to_string(folder.path().join("pid")).unwrap();
    wait_until("the forked one's end", || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z")
    });
    assert!(!folder.path().join("ran").exists());
}

/// Not a test: the owner that the next test kills.
#[test]
fn owner() {
    let Ok(script) = std::env::var(OWNED) else {
        return;
    };
    let _program = start(&script);
    thread::sleep(PLENTY * 10);
}

#[test]
fn without_its_owner_all_of_it_ends() {
    let mark = mark(6);
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "owner"])
        .env(OWNED, format!("setsid sleep {mark} & exec sleep {mark}"))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("both to run", || running(&mark).len() == 2);
    owner.kill().unwrap();
    owner.wait().unwrap();
    wait_until("their end", || running(&mark).is_empty());
}
