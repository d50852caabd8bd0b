//! Queries to the subnet administrator (SA).
//!
//! A query is for a path ([`SaQuery`]), for a path with any components ([`Asker::get_path`]), or for the SA's ClassPortInfo
//! ([`Asker::class_port_info`]).
//!
//! A separate process, `loader-test sa-agent`, sends the queries on the simulated port of a node: ibsim identifies a process
//! by its pid, and its preload must be loaded when the process starts. Queries and answers are lines of JSON on the agent's
//! standard input, which is a socket.

pub mod agent;

use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Context, Error, Result};
use crate::ibsim::SOCKET_NAME;
use crate::machine::Machine;
use crate::process::{Launch, Process, lock};
use crate::record::{Gid, Lid, PathRecord};
use crate::wait::{self, is_temporary};

/// The agent's response time-out, and its number of attempts.
const TIMEOUT: Duration = Duration::from_secs(1);
const ATTEMPTS: u32 = 5;

/// Interval at which a wait for the agent checks for signals.
const SLICE: Duration = Duration::from_millis(200);

/// A query for a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SaQuery {
    /// The source of the path.
    pub sgid: Gid,
    /// The destination of the path.
    pub destination: Destination,
    /// The partition, if it is part of the query.
    pub pkey: Option<u16>,
}

/// The destination of a [`SaQuery`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// By LID.
    Lid(Lid),
    /// By GID.
    Gid(Gid),
}

/// The outcome of a [`SaQuery`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The path record.
    Record(PathRecord),
    /// The SA's refusal: the status of its MAD, host order.
    Refused(u16),
    /// The SA did not respond.
    Silence,
}

/// A line to the agent.
#[derive(Debug, Serialize, Deserialize)]
struct Request {
    id: u64,
    /// The SA's LID.
    sm_lid: u16,
    attribute: u16,
    component_mask: u64,
    /// The attribute's bytes in hex; those that are missing are zero.
    data: String,
    timeout_ms: u32,
    attempts: u32,
}

/// A line from the agent.
#[derive(Debug, Serialize, Deserialize)]
struct Reply {
    id: u64,
    outcome: Outcome,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    /// The data of the response in hex.
    Data(String),
    Refused(u16),
    Silence,
    /// The agent could not send the query, or the response is malformed.
    Problem(String),
}

/// The connection to the agent.
#[derive(Debug)]
pub struct Asker {
    process: Process,
    connection: Mutex<Connection>,
}

#[derive(Debug)]
struct Connection {
    last_id: u64,
    reader: BufReader<UnixStream>,
    writer: UnixStream,
}

/// Attributes that the agent queries.
pub mod attribute {
    pub use crate::stand_in::sa::{CLASS_PORT_INFO, PATH_RECORD};
}

/// Component mask bits of PathRecord, <infiniband/sa.h>.
pub mod component {
    #![allow(missing_docs)]
    use crate::stand_in::sa;
    pub const SERVICE_ID: u64 = sa::COMP_SERVICE_ID | sa::COMP_SERVICE_ID_LOW;
    pub const DGID: u64 = sa::COMP_DGID;
    pub const SGID: u64 = sa::COMP_SGID;
    pub const DLID: u64 = sa::COMP_DLID;
    pub const SLID: u64 = sa::COMP_SLID;
    pub const FLOW_LABEL: u64 = sa::COMP_FLOW_LABEL;
    pub const TRAFFIC_CLASS: u64 = sa::COMP_TCLASS;
    pub const REVERSIBLE: u64 = sa::COMP_REVERSIBLE;
    pub const NUMBER_OF_PATHS: u64 = sa::COMP_NUMBER_OF_PATHS;
    pub const PKEY: u64 = sa::COMP_PKEY;
    pub const QOS_CLASS: u64 = sa::COMP_QOS_CLASS;
    pub const SL: u64 = sa::COMP_SL;
    pub const MTU: u64 = sa::COMP_MTU_SELECTOR | sa::COMP_MTU;
    pub const RATE: u64 = sa::COMP_RATE_SELECTOR | sa::COMP_RATE;
    pub const PACKET_LIFETIME: u64 = sa::COMP_LIFETIME_SELECTOR | sa::COMP_LIFETIME;
}

/// The SA's ClassPortInfo, chapter 13.4.8.1 of the specification.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ClassPortInfo(pub [u8; Self::SIZE]);

impl ClassPortInfo {
    /// Bytes of the attribute.
    pub const SIZE: usize = 72;

    /// Service ID and QoS class count in path queries, chapter 15.2.5.18 of the specification.
    const QOS_PATHS: u32 = 1 << 1;

    fn second_word(&self) -> u32 {
        u32::from_be_bytes([self.0[4], self.0[5], self.0[6], self.0[7]])
    }

    /// The capabilities in the first word.
    pub fn capabilities(&self) -> u16 {
        u16::from_be_bytes([self.0[2], self.0[3]])
    }

    /// CapabilityMask2, 27 bits.
    pub fn capabilities2(&self) -> u32 {
        self.second_word() >> 5
    }

    /// Response time: 4.096 µs times two to the power of this.
    pub fn response_time(&self) -> u8 {
        (self.second_word() & 0x1f) as u8
    }

    /// Whether service ID and QoS class select a path.
    pub fn has_qos(&self) -> bool {
        self.capabilities2() & Self::QOS_PATHS != 0
    }
}

impl std::fmt::Debug for ClassPortInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "capabilities 0x{:04x}, 0x{:07x}, response time {}",
            self.capabilities(),
            self.capabilities2(),
            self.response_time()
        )
    }
}

impl Asker {
    /// Starts the agent on `node`. Takes one of ibsim's places.
    pub fn start(machine: &Arc<Machine>, node: &str, directory: &Path) -> Result<Self> {
        let programs = &machine.programs;
        let (ours, theirs) = UnixStream::pair().context(|| "make a pair of sockets".to_owned())?;
        ours.set_read_timeout(Some(SLICE))
            .context(|| "set a time-out on a socket".to_owned())?;
        let writer = ours
            .try_clone()
            .context(|| "duplicate a socket".to_owned())?;
        let process = Launch::new(machine, "sa-agent", &programs.loader_test, directory)
            .args(["sa-agent"])
            .env("LD_PRELOAD", &programs.umad2sim)
            .env("SIM_HOST", node)
            .env("IBSIM_SOCKNAME", SOCKET_NAME)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .start()?;
        Ok(Self {
            process,
            connection: Mutex::new(Connection {
                last_id: 0,
                reader: BufReader::new(ours),
                writer,
            }),
        })
    }

    /// Returns the agent's process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Queries the SA at `sm_lid` for one reversible path.
    pub fn ask(&self, sm_lid: Lid, query: &SaQuery) -> Result<Answer> {
        let mut record = PathRecord::EMPTY;
        let mut mask = component::SGID | component::REVERSIBLE | component::NUMBER_OF_PATHS;
        record
            .set_sgid(query.sgid)
            .set_reversible_and_number(true, 1);
        match query.destination {
            Destination::Lid(lid) => {
                mask |= component::DLID;
                record.set_dlid(lid);
            }
            Destination::Gid(gid) => {
                mask |= component::DGID;
                record.set_dgid(gid);
            }
        }
        if let Some(pkey) = query.pkey {
            mask |= component::PKEY;
            record.set_pkey(pkey);
        }
        let answer = self.get_path(sm_lid, mask, &record)?;
        if let Answer::Record(record) = &answer {
            check(record, query)?;
        }
        Ok(answer)
    }

    /// Queries the SA at `sm_lid` for one path (Get) by exactly the fields of `record` that `component_mask` names.
    /// Returns the SA's response unchecked.
    pub fn get_path(
        &self,
        sm_lid: Lid,
        component_mask: u64,
        record: &PathRecord,
    ) -> Result<Answer> {
        let outcome = self.exchange(
            sm_lid,
            attribute::PATH_RECORD,
            component_mask,
            to_hex(&record.0),
        )?;
        Ok(match outcome {
            Outcome::Data(hex) => Answer::Record(PathRecord(answered(&hex)?)),
            Outcome::Refused(status) => Answer::Refused(status),
            Outcome::Silence => Answer::Silence,
            Outcome::Problem(problem) => return Err(Error::protocol("sa-agent", problem)),
        })
    }

    /// Queries the ClassPortInfo of the SA at `sm_lid`.
    pub fn class_port_info(&self, sm_lid: Lid) -> Result<ClassPortInfo> {
        match self.exchange(sm_lid, attribute::CLASS_PORT_INFO, 0, String::new())? {
            Outcome::Data(hex) => Ok(ClassPortInfo(answered(&hex)?)),
            Outcome::Problem(problem) => Err(Error::protocol("sa-agent", problem)),
            other => Err(Error::protocol(
                "the SA",
                format!("answers Get(ClassPortInfo) with {other:?}"),
            )),
        }
    }

    fn exchange(
        &self,
        sm_lid: Lid,
        attribute: u16,
        component_mask: u64,
        data: String,
    ) -> Result<Outcome> {
        let mut connection = lock(&self.connection);
        connection.last_id += 1;
        let id = connection.last_id;
        let request = Request {
            id,
            sm_lid: sm_lid.0,
            attribute,
            component_mask,
            data,
            timeout_ms: u32::try_from(TIMEOUT.as_millis()).unwrap_or(u32::MAX),
            attempts: ATTEMPTS,
        };
        let mut line = serde_json::to_string(&request)
            .map_err(|error| Error::protocol("sa-agent", error.to_string()))?;
        line.push('\n');
        connection
            .writer
            .write_all(line.as_bytes())
            // If the agent ended, its log says why.
            .or_else(|error| self.process.check().and(Err(error).context(talk)))?;
        let line = connection.read_line(|| self.process.check())?;
        let reply: Reply = serde_json::from_slice(&line).map_err(|error| {
            let line = String::from_utf8_lossy(&line);
            Error::protocol("sa-agent", format!("{error} in the line {line}"))
        })?;
        if reply.id != id {
            let problem = format!("answers query {} in place of {id}", reply.id);
            return Err(Error::protocol("sa-agent", problem));
        }
        Ok(reply.outcome)
    }
}

fn talk() -> String {
    "talk to sa-agent".to_owned()
}

impl Connection {
    /// Reads the next line, while `check` finds the agent alive.
    fn read_line(&mut self, check: impl Fn() -> Result<()>) -> Result<Vec<u8>> {
        let mut line = Vec::new();
        loop {
            wait::check_signals()?;
            match self.reader.read_until(b'\n', &mut line) {
                Ok(_) if line.ends_with(b"\n") => return Ok(line),
                Ok(_) => {
                    check()?;
                    return Err(io::Error::from(ErrorKind::UnexpectedEof)).context(talk);
                }
                // The bytes read so far stay in the line.
                Err(error) if is_temporary(&error) => check()?,
                Err(error) => return Err(error).context(talk),
            }
        }
    }
}

/// Checks that the record answers the query: another one would make all comparisons worthless.
fn check(record: &PathRecord, query: &SaQuery) -> Result<()> {
    let destination = match query.destination {
        Destination::Lid(lid) => record.dlid() == lid,
        Destination::Gid(gid) => record.dgid() == gid,
    };
    if destination && record.sgid() == query.sgid {
        Ok(())
    } else {
        Err(Error::protocol(
            "the SA",
            format!("answers {query:?} with {record:?}"),
        ))
    }
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok())
        .collect()
}

/// Returns the `N` bytes of the attribute at the front of a response's data.
fn answered<const N: usize>(hex: &str) -> Result<[u8; N]> {
    from_hex(hex)
        .as_ref()
        .and_then(|data| data.first_chunk().copied())
        .ok_or_else(|| Error::protocol("sa-agent", format!("sends the data {hex}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_goes_both_ways() {
        let record = PathRecord(std::array::from_fn(|i| (i * 5) as u8));
        let hex = to_hex(&record.0);
        assert_eq!(from_hex(&hex), Some(record.0.to_vec()));
        assert_eq!(answered(&(hex.clone() + "00")).unwrap(), record.0);
        assert_eq!(from_hex(&"0g".repeat(64)), None);
        assert_eq!(from_hex("000"), None);
        assert!(answered::<64>(&hex[2..]).is_err());
    }

    #[test]
    fn what_an_sa_can_do_is_read() {
        // OpenSM's without QoS and with it.
        for (word, qos) in [(0x0016_bd10, false), (0x0016_bd50, true)] {
            let mut info = ClassPortInfo([0; ClassPortInfo::SIZE]);
            info.0[4..8].copy_from_slice(&u32::to_be_bytes(word));
            assert_eq!(
                (info.has_qos(), info.response_time()),
                (qos, 16),
                "{info:?}"
            );
        }
    }

    #[test]
    fn an_answer_to_another_question_is_an_error() {
        let sgid = Gid::new(DEFAULT, 1);
        let mut record = PathRecord::EMPTY;
        record.set_sgid(sgid).set_dlid(Lid(5));
        let query = |lid| SaQuery {
            sgid,
            destination: Destination::Lid(Lid(lid)),
            pkey: None,
        };
        assert!(check(&record, &query(5)).is_ok());
        assert!(check(&record, &query(6)).is_err());
    }

    const DEFAULT: u64 = crate::record::DEFAULT_SUBNET_PREFIX;
}
