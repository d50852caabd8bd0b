//! A stock verbs and umad program on a node of the fabric: `tests/programs/probe.c`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::OnceLock;

use fabric_sim::model::event::PortEvent;
use loader_test::log::Mark;
use loader_test::process::{Launch, Process};
use loader_test::programs::Programs;
use loader_test::rig::Rig;
use loader_test::wait;

use crate::{PATIENCE, fabric_sim};

/// A running probe.
pub struct Probe {
    process: Process,
    stdin: Option<ChildStdin>,
    directory: PathBuf,
}

/// What the probe saw of a MAD that came to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    pub transaction: u32,
    pub status: u32,
    pub length: u32,
    pub method: u8,
    pub class: u8,
    /// Since it was sent first.
    pub milliseconds: u64,
}

/// What the probe sees of its port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    pub state: u8,
    pub lid: u16,
    pub sm_lid: u16,
    pub pkeys: Vec<u16>,
    pub gid: u128,
}

fn executable() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/probe.c");
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("probe");
        let compiled = Command::new("cc")
            .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-o"])
            .args([&program, &source])
            .args(["-libverbs", "-libumad", "-lpthread"])
            .output()
            .expect("no C compiler; as root: apt-get install gcc");
        assert!(
            compiled.status.success(),
            "probe.c does not compile (as root: apt-get install libibverbs-dev libibumad-dev):\n{}",
            String::from_utf8_lossy(&compiled.stderr)
        );
        program
    })
}

impl Probe {
    /// Starts one on a node and waits until it has opened everything.
    pub fn start(rig: &Rig, node: &str) -> Self {
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let programs = Programs::find(Some(&fabric_sim())).unwrap();
        let directory = rig.directory().join(format!("probe-{node}-{number}"));
        std::fs::create_dir(&directory).unwrap();
        rig.ibsim().drop_dead_clients().unwrap();
        let preload = format!(
            "{} {}",
            programs.umad2sim.display(),
            programs.fabric_sim.display()
        );
        let process = Launch::new(&programs, "probe", executable(), &directory)
            .env("LD_PRELOAD", preload)
            .env("SIM_HOST", node)
            .env("IBSIM_SOCKNAME", rig.ibsim().socket_name())
            .env("FABRIC_SIM_CONTROL", directory.join("control"))
            .env("FABRIC_SIM_POLL_MS", "20")
            .stdin(Stdio::piped())
            .separate_errors()
            .start()
            .unwrap();
        let stdin = process.take_stdin();
        let probe = Self {
            process,
            stdin,
            directory,
        };
        probe.wait_for_line(Mark::default(), "ready ibsim0 1");
        probe
    }

    /// The path of its control socket.
    pub fn control(&self) -> PathBuf {
        self.directory.join("control")
    }

    /// Its folder.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The present end of what it has said.
    pub fn mark(&self) -> Mark {
        self.process.output().end()
    }

    /// What it has written to standard error.
    pub fn errors(&self) -> String {
        std::fs::read_to_string(self.directory.join("probe.err")).unwrap()
    }

    /// Gives it a command.
    pub fn tell(&mut self, command: &str) {
        writeln!(self.stdin.as_mut().unwrap(), "{command}").unwrap();
    }

    /// Gives it a command and returns the line, beginning with `answer`, that it says to it.
    pub fn ask(&mut self, command: &str, answer: &str) -> String {
        let mark = self.mark();
        self.tell(command);
        self.wait_for_line(mark, answer)
    }

    /// Waits for a line that begins so.
    pub fn wait_for_line(&self, mark: Mark, beginning: &str) -> String {
        let what = format!("the probe to say {beginning:?}");
        wait::until(what, PATIENCE, || {
            self.process.check()?;
            self.process
                .output()
                .find(mark, |line| line.starts_with(beginning))
        })
        .unwrap()
    }

    /// Its port as it sees it now.
    pub fn port(&mut self) -> Port {
        let line = self.ask("port 1", "port 1 ");
        let value = |key: &str| {
            let word = line
                .split(' ')
                .find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
            word.unwrap_or_else(|| panic!("no {key} in {line:?}"))
                .to_owned()
        };
        Port {
            state: value("state").parse().unwrap(),
            lid: value("lid").parse().unwrap(),
            sm_lid: value("sm_lid").parse().unwrap(),
            pkeys: value("pkeys")
                .split(',')
                .map(|pkey| u16::from_str_radix(pkey, 16).unwrap())
                .collect(),
            gid: u128::from_str_radix(&value("gid"), 16).unwrap(),
        }
    }

    /// The events that came since, in order, by their numbers.
    pub fn events(&self, mark: Mark) -> Vec<i32> {
        let text = self.process.output().since(mark).unwrap();
        text.lines()
            .filter_map(|line| line.strip_prefix("event ")?.strip_suffix(" 1"))
            .map(|number| number.parse().unwrap())
            .collect()
    }

    /// Waits for an event.
    pub fn wait_for_event(&self, mark: Mark, event: PortEvent) {
        wait::until_true(format!("{event}"), PATIENCE, || {
            self.process.check()?;
            Ok(self.events(mark).contains(&event.code()))
        })
        .unwrap();
    }

    /// Asks the SA for a path. The answer, or what comes instead, is [received](Self::received) later.
    pub fn ask_for_path(
        &mut self,
        timeout_ms: u32,
        retries: u32,
        transaction: u32,
        sm_lid: u16,
        dlid: u16,
    ) {
        let command = format!("path {timeout_ms} {retries} {transaction} {sm_lid} {dlid}");
        self.ask(&command, &format!("sent {transaction}"));
    }

    /// All that came for a transaction.
    pub fn received(&self, transaction: u32) -> Vec<Received> {
        let text = self.process.output().since(Mark::default()).unwrap();
        let complete = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
        complete
            .lines()
            .filter_map(read_mad)
            .filter(|mad| mad.transaction == transaction)
            .collect()
    }

    /// Waits until something comes for a transaction.
    pub fn wait_for_mad(&self, transaction: u32) -> Received {
        wait::until(
            format!("a MAD of transaction {transaction}"),
            PATIENCE,
            || {
                self.process.check()?;
                Ok(self.received(transaction).into_iter().next())
            },
        )
        .unwrap()
    }

    /// Closes its input, which ends it, and returns how it ended.
    pub fn end(mut self, command: &str) -> ExitStatus {
        self.tell(command);
        drop(self.stdin.take());
        wait::until("the probe to end", PATIENCE, || self.process.status()).unwrap()
    }
}

fn read_mad(line: &str) -> Option<Received> {
    let mut words = line.strip_prefix("mad ")?.split(' ');
    let transaction = words.next()?.parse().ok()?;
    let mut value = |key: &str| words.next()?.strip_prefix(key)?.strip_prefix('=');
    let hex = |text: &str| u8::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    Some(Received {
        transaction,
        status: value("status")?.parse().ok()?,
        length: value("length")?.parse().ok()?,
        method: hex(value("method")?)?,
        class: hex(value("class")?)?,
        milliseconds: value("ms")?.parse().ok()?,
    })
}
