//! A client of ibacm with its own implementation of the socket protocol, so that tests get the daemon's answers unchanged.
//!
//! The protocol is <infiniband/acm.h>: a header of 16 bytes and up to eight entries of 72. Resolve requests and their
//! answers are in native byte order, except for addresses and path records. Counters and endpoints are in network byte
//! order, including the message length.

use std::fmt;
use std::fs::File;
use std::io::{Read, Write};
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::error::{Context, Error, Result};
use crate::record::{Gid, Lid, PathRecord};
use crate::stand_in::message::{
    self, ENTRIES as MOST_ENTRIES, ENTRY, HEADER, RESOLVE, VERSION, header,
};
use crate::wait::{self, is_temporary};

/// Time limit for an answer: longer than the daemon's deadlines in rigs.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Interval at which a wait checks for signals.
const SLICE: Duration = Duration::from_millis(200);

const INFO: usize = 64;
const ENDPOINT: usize = 80;

const PERF_QUERY: u8 = 2;
const ENDPOINT_QUERY: u8 = 3;
/// Set in the operation of an answer.
pub const ACKNOWLEDGE: u8 = message::ACK;

/// Types of an [`Entry`].
pub mod kind {
    #![allow(missing_docs)]
    use crate::stand_in::message;
    pub const NAME: u16 = message::NAME;
    pub const IP: u16 = message::IP;
    pub const IP6: u16 = message::IP6;
    pub const GID: u16 = message::GID;
    pub const LID: u16 = message::LID;
    pub const PATH: u16 = message::PATH;
}

/// Flags of an [`Entry`].
pub mod flag {
    use crate::stand_in::message;
    /// The entry is the source.
    pub const SOURCE: u32 = message::FLAG_SOURCE;
    /// The entry is the destination.
    pub const DESTINATION: u32 = message::FLAG_DEST;
    /// Answer only from the cache.
    pub const NO_DELAY: u32 = message::FLAG_NODELAY;
    /// Let the provider query the SA.
    pub const QUERY_SA: u32 = message::FLAG_QUERY_SA;
}

/// Status of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(pub u8);

#[allow(missing_docs)]
impl Status {
    pub const SUCCESS: Self = Self(0);
    pub const ENOMEM: Self = Self(1);
    pub const EINVAL: Self = Self(2);
    pub const ENODATA: Self = Self(3);
    pub const ENOTCONN: Self = Self(5);
    pub const ETIMEDOUT: Self = Self(6);
    pub const ESRCADDR: Self = Self(7);
    pub const ESRCTYPE: Self = Self(8);
    pub const EDESTADDR: Self = Self(9);
    pub const EDESTTYPE: Self = Self(10);
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Self::SUCCESS => "SUCCESS",
            Self::ENOMEM => "ENOMEM",
            Self::EINVAL => "EINVAL",
            Self::ENODATA => "ENODATA",
            Self::ENOTCONN => "ENOTCONN",
            Self::ETIMEDOUT => "ETIMEDOUT",
            Self::ESRCADDR => "ESRCADDR",
            Self::ESRCTYPE => "ESRCTYPE",
            Self::EDESTADDR => "EDESTADDR",
            Self::EDESTTYPE => "EDESTTYPE",
            Self(other) => return write!(f, "unknown status {other}"),
        })
    }
}

/// An entry of a resolve request or of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// See [`flag`].
    pub flags: u32,
    /// See [`kind`].
    pub kind: u16,
    /// The address at the front, or the path record.
    pub info: [u8; INFO],
}

impl Entry {
    /// Returns an entry with an address at the front of `info` and zeros behind it.
    ///
    /// # Errors
    /// If the address has more than 64 bytes.
    pub fn new(kind: u16, flags: u32, address: &[u8]) -> Result<Self> {
        let mut info = [0; INFO];
        info.get_mut(..address.len())
            .ok_or_else(|| {
                Error::Input(format!(
                    "an address has at most {INFO} bytes, not {}",
                    address.len()
                ))
            })?
            .copy_from_slice(address);
        Ok(Self { flags, kind, info })
    }

    /// Returns an entry that requests a path.
    pub fn path(flags: u32, record: &PathRecord) -> Self {
        Self {
            flags,
            kind: kind::PATH,
            info: record.0,
        }
    }

    /// Returns an entry with a name or IP address.
    pub fn address(flags: u32, address: &str) -> Result<Self> {
        match address.parse() {
            Ok(IpAddr::V4(ip)) => Self::new(kind::IP, flags, &ip.octets()),
            Ok(IpAddr::V6(ip)) => Self::new(kind::IP6, flags, &ip.octets()),
            // The daemon requires a NUL at the end.
            Err(_) if address.len() < INFO => Self::new(kind::NAME, flags, address.as_bytes()),
            Err(_) => Err(Error::Input(format!(
                "a name has less than {INFO} bytes: {address}"
            ))),
        }
    }

    fn write(&self, message: &mut Vec<u8>) {
        message.extend(self.flags.to_ne_bytes());
        message.extend(self.kind.to_ne_bytes());
        message.extend([0; 2]);
        message.extend(self.info);
    }

    fn read(bytes: &[u8; ENTRY]) -> Self {
        Self {
            flags: u32::from_ne_bytes(take(bytes, 0)),
            kind: u16::from_ne_bytes(take(bytes, 4)),
            info: take(bytes, 8),
        }
    }
}

/// What to resolve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// By LID, in a path record.
    Lid(Lid),
    /// By GID, in a path record.
    Gid(Gid),
    /// By a path record with any components.
    Path(PathRecord),
    /// By name or IP address. Name a source: the daemon cannot find one for a name, and uses the host's own interface for
    /// an IP address.
    Address {
        /// The destination's name or IP address.
        destination: String,
        /// One of the endpoint's own addresses.
        source: Option<String>,
    },
}

/// The answer to a resolve request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The operation; stock's provider leaves [`ACKNOWLEDGE`] out of it.
    pub operation: u8,
    /// The status.
    pub status: Status,
    /// The three data bytes after the status.
    pub data: [u8; 3],
    /// All entries.
    pub entries: Vec<Entry>,
}

impl Answer {
    /// Returns its first path record.
    pub fn path(&self) -> Option<PathRecord> {
        let entry = self.entries.iter().find(|entry| entry.kind == kind::PATH)?;
        Some(PathRecord(entry.info))
    }

    /// Returns the path record of a successful answer.
    pub fn into_path(self) -> Result<PathRecord> {
        match (self.status, self.path()) {
            (Status::SUCCESS, Some(path)) => Ok(path),
            (Status::SUCCESS, None) => {
                Err(Error::protocol("ibacm", "succeeds without a path record"))
            }
            (status, _) => Err(Error::protocol("ibacm", format!("answers {status:?}"))),
        }
    }
}

/// Counters, in the order of `enum` in <infiniband/acm.h>.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Counters {
    pub error: u64,
    pub resolve: u64,
    pub no_data: u64,
    pub address_query: u64,
    pub address_cache: u64,
    pub route_query: u64,
    pub route_cache: u64,
}

impl Counters {
    /// Returns all of them in order.
    pub fn values(&self) -> [u64; 7] {
        [
            self.error,
            self.resolve,
            self.no_data,
            self.address_query,
            self.address_cache,
            self.route_query,
            self.route_cache,
        ]
    }
}

/// An endpoint of the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Node GUID of the device, host order.
    pub device_guid: u64,
    /// Port number on the device.
    pub port: u8,
    /// Ports of the device.
    pub port_count: u8,
    /// P_Key.
    pub pkey: u16,
    /// The provider's name.
    pub provider: String,
    /// Its addresses as text.
    pub addresses: Vec<String>,
}

/// A connection to a daemon. The daemon answers in any order; this client sends one request at a time, except through
/// [`Self::send`].
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    last_id: u64,
    patience: Duration,
}

impl Client {
    /// Connects to a daemon's socket.
    pub fn connect(path: &Path) -> Result<Self> {
        let stream = connect_unix(path)?;
        let operation = || format!("set a time-out on {}", path.display());
        stream.set_read_timeout(Some(SLICE)).context(operation)?;
        Ok(Self {
            stream,
            last_id: 0,
            patience: PATIENCE,
        })
    }

    /// Sets how long an answer may take.
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Resolves a destination.
    pub fn resolve(&mut self, destination: &Destination) -> Result<Answer> {
        self.resolve_with(destination, 0)
    }

    /// Resolves a destination only from the daemon's cache.
    pub fn resolve_cached(&mut self, destination: &Destination) -> Result<Answer> {
        self.resolve_with(destination, flag::NO_DELAY)
    }

    /// Makes the provider query the SA for the path that `record` describes.
    pub fn query(&mut self, record: &PathRecord) -> Result<Answer> {
        self.resolve_with(&Destination::Path(*record), flag::QUERY_SA)
    }

    fn resolve_with(&mut self, destination: &Destination, flags: u32) -> Result<Answer> {
        let id = self.send(&entries(destination, flags)?)?;
        self.receive(id)
    }

    /// Sends a resolve request and returns its id. A name or IP address needs entries for source and destination; otherwise
    /// a single path entry.
    pub fn send(&mut self, entries: &[Entry]) -> Result<u64> {
        self.last_id += 1;
        let length = u16::try_from(HEADER + ENTRY * entries.len()).unwrap_or(u16::MAX);
        let mut message = header(RESOLVE, [0; 3], length.to_ne_bytes(), self.last_id).to_vec();
        for entry in entries {
            entry.write(&mut message);
        }
        self.send_raw(&message)?;
        Ok(self.last_id)
    }

    /// Sends raw bytes.
    pub fn send_raw(&mut self, message: &[u8]) -> Result<()> {
        self.stream
            .write_all(message)
            .context(|| "send a request to ibacm".to_owned())
    }

    /// Waits for the answer to request `id`.
    pub fn receive(&mut self, id: u64) -> Result<Answer> {
        let message = self.receive_raw(u16::from_ne_bytes)?;
        answer(&message, id)
    }

    /// Whether bytes of an answer, or the end of the connection, can be read now.
    pub fn has_answer(&self) -> Result<bool> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut fds = [PollFd::new(&self.stream, PollFlags::IN)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let ready =
            poll(&mut fds, Some(&now)).context(|| "poll a connection to ibacm".to_owned())?;
        Ok(ready > 0)
    }

    /// Returns the daemon's own counters, as `ib_acme -P` shows them.
    pub fn counters(&mut self) -> Result<Counters> {
        let message = header(PERF_QUERY, [0; 3], (HEADER as u16).to_be_bytes(), 0);
        self.send_raw(&message)?;
        counters(&self.receive_raw(u16::from_be_bytes)?)
    }

    /// Returns the counters of the endpoint with this name or IP address, as `ib_acme -P s -s ADDRESS` shows them.
    pub fn endpoint_counters(&mut self, address: &str) -> Result<Counters> {
        let mut message = header(
            PERF_QUERY,
            [0; 3],
            ((HEADER + ENTRY) as u16).to_be_bytes(),
            0,
        )
        .to_vec();
        Entry::address(flag::SOURCE, address)?.write(&mut message);
        self.send_raw(&message)?;
        counters(&self.receive_raw(u16::from_be_bytes)?)
    }

    /// Returns all endpoints on port `port`.
    pub fn endpoints(&mut self, port: u8) -> Result<Vec<Endpoint>> {
        let mut endpoints = Vec::new();
        for index in 1..=u8::MAX {
            let message = header(
                ENDPOINT_QUERY,
                [index, port, 0],
                (HEADER as u16).to_be_bytes(),
                0,
            );
            self.send_raw(&message)?;
            match endpoint(&self.receive_raw(u16::from_be_bytes)?)? {
                Some(endpoint) => endpoints.push(endpoint),
                None => break,
            }
        }
        Ok(endpoints)
    }

    /// Waits for a message; `length` reads the length in its header.
    fn receive_raw(&mut self, length: fn([u8; 2]) -> u16) -> Result<Vec<u8>> {
        let deadline = Instant::now() + self.patience;
        let mut message = vec![0; HEADER];
        self.read_exact(&mut message, deadline)?;
        let length = usize::from(length([message[6], message[7]]));
        if length < HEADER {
            let problem =
                format!("sends a message whose length field says {length}: {message:02x?}");
            return Err(Error::protocol("ibacm", problem));
        }
        message.resize(length, 0);
        self.read_exact(&mut message[HEADER..], deadline)?;
        Ok(message)
    }

    fn read_exact(&mut self, buffer: &mut [u8], deadline: Instant) -> Result<()> {
        let mut filled = 0;
        while filled < buffer.len() {
            wait::check_signals()?;
            match self.stream.read(&mut buffer[filled..]) {
                Ok(0) => {
                    return Err(Error::protocol(
                        "ibacm",
                        "closes the connection without an answer",
                    ));
                }
                Ok(read) => filled += read,
                Err(error) if is_temporary(&error) && Instant::now() < deadline => {}
                Err(error) if is_temporary(&error) => {
                    let what = "an answer of ibacm".to_owned();
                    return Err(Error::Timeout {
                        what,
                        limit: self.patience,
                    });
                }
                Err(source) => {
                    return Err(Error::Io {
                        operation: "receive from ibacm".to_owned(),
                        source,
                    });
                }
            }
        }
        Ok(())
    }
}

/// Connects to the socket `path`, which may be longer than a socket address.
pub(crate) fn connect_unix(path: &Path) -> Result<UnixStream> {
    let operation = || format!("connect to {}", path.display());
    // The address stays short through a descriptor of its folder.
    let folder = path.parent().unwrap_or(Path::new("/"));
    let folder = File::open(folder).context(operation)?;
    let name = path.file_name().unwrap_or_default();
    let folder = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string());
    // Close-on-exec: a daemon that inherits descriptors could reach number 1024, which crashes it.
    let flags = SocketFlags::CLOEXEC;
    let stream = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    let stream = stream.context(operation)?;
    // The daemon listens without a backlog: connect blocks until it accepts, for ever if it hangs.
    set_socket_timeout(&stream, Timeout::Send, Some(PATIENCE)).context(operation)?;
    let address = SocketAddrUnix::new(folder.join(name)).context(operation)?;
    loop {
        match connect(&stream, &address) {
            // A signal from the terminal, or SIGCONT after SIGSTOP.
            Err(Errno::INTR) => wait::check_signals()?,
            other => {
                other.context(operation)?;
                return Ok(stream.into());
            }
        }
    }
}

/// Returns the entries of a request for `destination`.
pub fn entries(destination: &Destination, flags: u32) -> Result<Vec<Entry>> {
    let mut record = PathRecord::EMPTY;
    // The values of stock's client.
    record.set_reversible_and_number(true, 1);
    Ok(match destination {
        Destination::Lid(lid) => vec![Entry::path(flags, record.set_dlid(*lid))],
        Destination::Gid(gid) => vec![Entry::path(flags, record.set_dgid(*gid))],
        Destination::Path(record) => vec![Entry::path(flags, record)],
        Destination::Address {
            destination,
            source,
        } => {
            let mut entries = Vec::new();
            if let Some(source) = source {
                entries.push(Entry::address(flag::SOURCE, source)?);
            }
            entries.push(Entry::address(flag::DESTINATION | flags, destination)?);
            entries
        }
    })
}

/// Returns `N` bytes at `offset`; the caller has checked the length.
fn take<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    std::array::from_fn(|i| bytes[offset + i])
}

fn answer(message: &[u8], id: u64) -> Result<Answer> {
    let wrong = |problem: String| Error::protocol("ibacm", problem);
    let (head, entries) = message.split_at(HEADER);
    let (entries, rest) = entries.as_chunks::<ENTRY>();
    let (version, operation) = (head[0], head[1]);
    let answered = u64::from_ne_bytes(take(head, 8));
    if version != VERSION || operation & !ACKNOWLEDGE != RESOLVE {
        return Err(wrong(format!(
            "answers with version {version}, operation 0x{operation:02x}"
        )));
    }
    if answered != id {
        return Err(wrong(format!(
            "answers request {answered} in place of {id}"
        )));
    }
    if !rest.is_empty() || entries.len() > MOST_ENTRIES {
        return Err(wrong(format!("sends an answer of {} bytes", message.len())));
    }
    Ok(Answer {
        operation,
        status: Status(head[2]),
        data: take(head, 3),
        entries: entries.iter().map(Entry::read).collect(),
    })
}

fn counters(message: &[u8]) -> Result<Counters> {
    let wrong = |problem: String| Error::protocol("ibacm", problem);
    let status = Status(message[2]);
    if status != Status::SUCCESS {
        return Err(wrong(format!(
            "answers a request for counters with {status:?}"
        )));
    }
    let (values, rest) = message[HEADER..].as_chunks::<8>();
    let values: Vec<u64> = values
        .iter()
        .map(|bytes| u64::from_be_bytes(*bytes))
        .collect();
    match (&values[..], rest) {
        (
            &[
                error,
                resolve,
                no_data,
                address_query,
                address_cache,
                route_query,
                route_cache,
            ],
            [],
        ) => Ok(Counters {
            error,
            resolve,
            no_data,
            address_query,
            address_cache,
            route_query,
            route_cache,
        }),
        _ => Err(wrong(format!(
            "sends {} bytes of counters",
            message.len() - HEADER
        ))),
    }
}

/// Parses an endpoint; `None` if the index is past the last endpoint.
fn endpoint(message: &[u8]) -> Result<Option<Endpoint>> {
    match Status(message[2]) {
        Status::SUCCESS => {}
        Status::EINVAL => return Ok(None),
        status => {
            return Err(Error::protocol(
                "ibacm",
                format!("answers a request for endpoints with {status:?}"),
            ));
        }
    }
    let body = &message[HEADER..];
    let wrong = || {
        Error::protocol(
            "ibacm",
            format!("sends an endpoint of {} bytes", body.len()),
        )
    };
    let (fields, addresses) = body.split_at_checked(ENDPOINT).ok_or_else(wrong)?;
    let (addresses, rest) = addresses.as_chunks::<INFO>();
    if !rest.is_empty() || addresses.len() != usize::from(u16::from_be_bytes(take(fields, 14))) {
        return Err(wrong());
    }
    Ok(Some(Endpoint {
        device_guid: u64::from_be_bytes(take(fields, 0)),
        port: fields[8],
        port_count: fields[9],
        pkey: u16::from_be_bytes(take(fields, 12)),
        provider: text(&fields[16..]),
        addresses: addresses.iter().map(|address| text(address)).collect(),
    }))
}

/// Returns the text before the first NUL.
fn text(bytes: &[u8]) -> String {
    let end = bytes
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn success(entries: &[Entry], id: u64) -> Vec<u8> {
        let length = (HEADER + ENTRY * entries.len()) as u16;
        let mut message = header(RESOLVE | ACKNOWLEDGE, [0; 3], length.to_ne_bytes(), id).to_vec();
        for entry in entries {
            entry.write(&mut message);
        }
        message
    }

    #[test]
    fn programs_that_are_started_do_not_inherit_connections() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let stream = connect_unix(&path).unwrap();
        let flags = rustix::io::fcntl_getfd(&stream).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    }

    #[test]
    fn an_answer_is_read_back() {
        let mut record = PathRecord::EMPTY;
        record.set_dlid(Lid(7));
        let source = Entry::address(flag::SOURCE, "10.0.0.1").unwrap();
        let answer = answer(&success(&[Entry::path(0, &record), source], 9), 9).unwrap();
        assert_eq!(answer.path(), Some(record));
        assert_eq!(answer.entries[1], source);
    }

    #[test]
    fn odd_answers_are_errors() {
        let good = success(&[Entry::path(0, &PathRecord::EMPTY)], 9);
        assert!(answer(&good, 8).is_err(), "another request's");
        assert!(answer(&good[..HEADER + 1], 9).is_err(), "half an entry");
        for (byte, value) in [(0, 2), (1, 2)] {
            let mut bad = good.clone();
            bad[byte] = value;
            assert!(answer(&bad, 9).is_err(), "byte {byte}");
        }
        let mut endpoint_answer = header(ENDPOINT_QUERY, [0; 3], [0; 2], 0).to_vec();
        endpoint_answer.extend([0; ENDPOINT]);
        assert!(endpoint(&endpoint_answer).unwrap().is_some());
        endpoint_answer[HEADER + 15] = 1;
        assert!(
            endpoint(&endpoint_answer).is_err(),
            "an address that is not there"
        );
    }

    #[test]
    fn addresses_find_their_type() {
        let kinds = ["10.0.0.1", "fd00::1", "node1"]
            .map(|address| Entry::address(0, address).unwrap().kind);
        assert_eq!(kinds, [kind::IP, kind::IP6, kind::NAME]);
        assert!(Entry::address(0, &"n".repeat(64)).is_err());
    }
}
