//! A stock verbs and umad program on a node of the fabric: `probe.c`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ExitStatus, Stdio};

use fabric_sim::model::event::PortEvent;
use loader_test::ibsim::SOCKET_NAME;
use loader_test::log::Mark;
use loader_test::process::{Launch, Process};
use loader_test::record::{Gid, Lid};
use loader_test::rig::Rig;
use loader_test::wait;

use crate::PATIENCE;
use crate::compiled::compiled;

/// A running probe.
pub struct Probe {
    process: Process,
    stdin: Option<ChildStdin>,
    directory: PathBuf,
}

/// A MAD that the probe received.
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

/// A datagram that came to the probe's queue pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    pub source_lid: u16,
    pub source_qp: u32,
    pub grh: bool,
    pub length: u32,
    /// Its text from byte 24 on: the destination address of an ACM request by name.
    pub text: String,
}

/// The SA's response to a join or leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    pub status: u16,
    pub mlid: u16,
}

/// The port attributes that the probe reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    pub state: u8,
    pub lid: u16,
    pub sm_lid: u16,
    pub pkeys: Vec<u16>,
    pub gid: u128,
}

fn executable() -> PathBuf {
    compiled(
        "probe",
        "",
        include_str!("probe.c"),
        &[
            "-std=gnu11",
            "-Wall",
            "-Wextra",
            "-Werror",
            "{source}",
            "-libverbs",
            "-libumad",
            "-lpthread",
        ],
    )
}

impl Probe {
    /// Starts one on a node and waits until it has opened everything.
    pub fn start(rig: &Rig, node: &str) -> Self {
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let programs = &rig.machine().programs;
        let directory = rig.directory().join(format!("probe-{node}-{number}"));
        std::fs::create_dir(&directory).unwrap();
        rig.ibsim().drop_dead_clients().unwrap();
        let preload = format!(
            "{} {}",
            programs.umad2sim.display(),
            programs.fabric_sim.display()
        );
        let process = Launch::new(rig.machine(), "probe", &executable(), &directory)
            .env("LD_PRELOAD", preload)
            .env("SIM_HOST", node)
            .env("IBSIM_SOCKNAME", SOCKET_NAME)
            .env("FABRIC_SIM_WIRES", rig.directory().join("wires"))
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

    /// Returns the current end of its output.
    pub fn mark(&self) -> Mark {
        self.process.output().end()
    }

    /// What it has written to standard error.
    pub fn errors(&self) -> String {
        std::fs::read_to_string(self.directory.join("probe.err")).unwrap()
    }

    /// Sends a command.
    pub fn tell(&mut self, command: &str) {
        writeln!(self.stdin.as_mut().unwrap(), "{command}").unwrap();
    }

    /// Sends a command and returns the response line, which begins with `answer`.
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

    /// Returns its port's current attributes.
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

    /// Queries the SA for a path. The response, or the returned MAD, is [received](Self::received) later.
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

    /// Makes its queue pair, ready to receive, and returns its number.
    pub fn make_queue_pair(&mut self) -> u32 {
        let line = self.ask("qp 1", "qp ");
        line["qp ".len()..].parse().unwrap()
    }

    /// Attaches its queue pair to a group.
    pub fn attach(&mut self, group: Gid, mlid: u16) {
        let line = self.ask(&format!("attach {} {mlid}", hex(group)), "attached ");
        assert_eq!(line, "attached 0");
    }

    /// Sends a datagram with such a text in it.
    pub fn send(&mut self, lid: Lid, qpn: u32, gid: Option<Gid>, text: &str) {
        let gid = gid.map_or("-".to_owned(), hex);
        let line = self.ask(&format!("send {lid} {qpn} {gid} {text}"), "posted ");
        assert_eq!(line, "posted 0");
    }

    /// Asks the SA to change its port's membership in a group as a full member.
    pub fn change_membership(
        &mut self,
        method: u8,
        transaction: u32,
        sm_lid: u16,
        group: Gid,
        qkey: u32,
    ) -> Member {
        let group = hex(group);
        self.ask(
            &format!("member {method} {transaction} {sm_lid} {group} 1 {qkey:x}"),
            &format!("sent {transaction}"),
        );
        let line = self.wait_for_line(Mark::default(), &format!("member {transaction} status="));
        let value = |key: &str| {
            let word = line.split(' ').find_map(|word| word.strip_prefix(key));
            u16::from_str_radix(word.unwrap(), 16).unwrap()
        };
        Member {
            status: value("status=0x"),
            mlid: value("mlid=0x"),
        }
    }

    /// The datagrams that came, in order.
    pub fn datagrams(&self) -> Vec<Datagram> {
        let text = self.process.output().since(Mark::default()).unwrap();
        let complete = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
        complete.lines().filter_map(read_datagram).collect()
    }

    /// Waits for a datagram with such a text.
    pub fn wait_for_datagram(&self, text: &str) -> Datagram {
        wait::until(format!("a datagram {text}"), PATIENCE, || {
            self.process.check()?;
            let mut came = self.datagrams().into_iter();
            Ok(came.find(|datagram| datagram.text == text))
        })
        .unwrap()
    }

    /// Closes its input, which ends it, and returns how it ended.
    pub fn end(mut self, command: &str) -> ExitStatus {
        self.tell(command);
        drop(self.stdin.take());
        wait::until("the probe to end", PATIENCE, || self.process.status()).unwrap()
    }
}

fn hex(gid: Gid) -> String {
    format!("{:032x}", u128::from_be_bytes(gid.0))
}

fn read_datagram(line: &str) -> Option<Datagram> {
    let mut words = line.strip_prefix("datagram ")?.splitn(5, ' ');
    Some(Datagram {
        source_lid: words.next()?.parse().ok()?,
        source_qp: words.next()?.parse().ok()?,
        grh: words.next()? == "1",
        length: words.next()?.parse().ok()?,
        text: words.next()?.to_owned(),
    })
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
