//! A client that sends path requests by netlink, as the kernel does when it connects: RDMA_NL_LS in
//! <rdma/rdma_netlink.h>.
//!
//! Start the rig's daemons with [`crate::rig::Builder::netlink`]. In the protocol that they use no socket has the kernel's
//! port 0: the daemon's answers reach the group, but its log says that they could not be sent. For its provider the kernel
//! is a client that has left.

use std::collections::BTreeMap;
use std::io;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{Timeout, set_socket_recv_buffer_size, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketType, bind, recv, recvmsg, sendmsg, sendto, socket,
};

use crate::error::{Context, Error, Result};
use crate::ibacm::Host;
use crate::launch::NETLINK;
use crate::record::{Gid, PathRecord};
use crate::wait::{self, PATIENCE};

const LOCAL_SERVICE: u16 = 4;
/// Bit of the group to which ibacm sends its answers.
const GROUP: u32 = 1 << 2;
const REQUEST: u16 = 1;
const FAILED: u16 = 0x0100;

/// The message type of a path request.
pub const RESOLVE: u16 = LOCAL_SERVICE << 10;

/// Types of a [`Request`]'s attributes.
pub mod attribute {
    #![allow(missing_docs)]
    pub const SERVICE_ID: u16 = 3;
    pub const DGID: u16 = 4;
    pub const SGID: u16 = 5;
    pub const TRAFFIC_CLASS: u16 = 6;
    pub const PKEY: u16 = 7;
    pub const QOS_CLASS: u16 = 8;
    /// Flag of an attribute type that the daemon must know or else refuse the request.
    pub const MANDATORY: u16 = 0x2000;
}
use attribute::MANDATORY;

const HEADER: usize = 16;
/// An attribute in an answer: the path record.
const PATH_RECORD: u16 = 1;
const PATH_RECORD_LENGTH: u16 = 76;
/// General management, primary, outbound and inbound-reverse.
const FLAGS: u32 = 1 | 2 | 8 | 32;

/// Interval at which a wait checks for signals.
const SLICE: Duration = Duration::from_millis(50);

/// Number of outstanding requests: all their answers fit into a socket's buffer.
const AT_A_TIME: usize = 64;

/// Receive buffer, with room for the answers of the rig's other daemons, which the group delivers too.
const RECEIVE_BUFFER: usize = 4 << 20;

/// A path request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    attributes: Vec<(u16, Vec<u8>)>,
}

impl Request {
    /// Returns a request without attributes.
    pub fn empty() -> Self {
        Self {
            attributes: Vec::new(),
        }
    }

    /// Returns the kernel's minimal request.
    pub fn path(sgid: Gid, dgid: Gid, pkey: u16) -> Self {
        Self::empty()
            .with(MANDATORY | attribute::DGID, &dgid.0)
            .with(MANDATORY | attribute::SGID, &sgid.0)
            .with(MANDATORY | attribute::PKEY, &pkey.to_ne_bytes())
    }

    /// Adds an attribute.
    pub fn with(mut self, kind: u16, value: &[u8]) -> Self {
        self.attributes.push((kind, value.to_vec()));
        self
    }

    /// Adds a service ID.
    pub fn service_id(self, id: u64) -> Self {
        self.with(MANDATORY | attribute::SERVICE_ID, &id.to_ne_bytes())
    }

    /// Adds a QoS class: rdma_cm puts an IPv4 connection's type of service here, by default 0.
    pub fn qos_class(self, class: u16) -> Self {
        self.with(MANDATORY | attribute::QOS_CLASS, &class.to_ne_bytes())
    }

    /// Adds a traffic class.
    pub fn traffic_class(self, class: u8) -> Self {
        self.with(MANDATORY | attribute::TRAFFIC_CLASS, &[class])
    }

    /// Returns the message's payload: device, port, path use (both directions), then the attributes.
    pub fn payload(&self) -> Vec<u8> {
        let mut payload = b"ibsim0".to_vec();
        payload.resize(64, 0);
        payload.extend([1, 0, 0, 0]);
        for (kind, value) in &self.attributes {
            payload.extend((4 + value.len() as u16).to_ne_bytes());
            payload.extend(kind.to_ne_bytes());
            payload.extend(value);
            payload.resize(payload.len().next_multiple_of(4), 0);
        }
        payload
    }
}

/// Returns the service ID by which rdma_cm connects to a TCP port.
pub fn service_id_of_port(port: u16) -> u64 {
    const TCP: u64 = 0x0106;
    (TCP << 16) | u64::from(port)
}

/// Opens a socket of the daemons' protocol in this process's network namespace, and sends it through standard input, which is
/// a socket. The main process cannot open it: with several threads it cannot enter a user namespace.
///
/// # Errors
/// If the socket cannot be opened or sent.
pub fn pass_socket() -> Result<()> {
    let operation = || "open a netlink socket".to_owned();
    let socket =
        socket(AddressFamily::NETLINK, SocketType::RAW, Some(NETLINK)).context(operation)?;
    set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER).context(operation)?;
    bind(&socket, &SocketAddrNetlink::new(0, GROUP)).context(operation)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let sockets = [socket.as_fd()];
    ancillary.push(SendAncillaryMessage::ScmRights(&sockets));
    sendmsg(
        std::io::stdin(),
        &[IoSlice::new(b"s")],
        &mut ancillary,
        SendFlags::empty(),
    )
    .context(|| "pass a netlink socket on".to_owned())?;
    Ok(())
}

/// Receives the socket from [`pass_socket`].
pub(crate) fn take_socket(link: &UnixStream) -> Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    recvmsg(
        link,
        &mut [IoSliceMut::new(&mut byte)],
        &mut ancillary,
        flags,
    )
    .context(|| "take a netlink socket".to_owned())?;
    let mut descriptors = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let socket = descriptors
        .next()
        .and_then(|mut descriptors| descriptors.next());
    socket.ok_or_else(|| Error::protocol("netlink-socket", "passes no socket"))
}

/// One end of a daemon's netlink.
#[derive(Debug)]
pub struct Kernel {
    socket: OwnedFd,
    daemon: u32,
    sequence: u32,
    /// Received answers by sequence number: the path, or `None`.
    answers: BTreeMap<u32, Vec<Option<PathRecord>>>,
}

impl Kernel {
    /// Returns the kernel of a host whose daemon is running.
    pub fn of(host: &Host) -> Result<Self> {
        let operation = || format!("open a netlink socket for {}", host.node());
        let daemon = host
            .pid()
            .ok_or_else(|| Error::Input(format!("ibacm on {} is not running", host.node())))?;
        let socket = host.netlink_socket()?;
        set_socket_timeout(&socket, Timeout::Recv, Some(SLICE)).context(operation)?;
        Ok(Self {
            socket,
            daemon: daemon.cast_unsigned(),
            sequence: 1000,
            answers: BTreeMap::new(),
        })
    }

    /// Sends raw bytes.
    pub fn send(&self, message: &[u8]) -> Result<()> {
        let daemon = SocketAddrNetlink::new(self.daemon, 0);
        let sent = sendto(&self.socket, message, SendFlags::empty(), &daemon)
            .context(|| "send a netlink message to ibacm".to_owned())?;
        if sent == message.len() {
            Ok(())
        } else {
            let problem = format!("takes {sent} of {} bytes", message.len());
            Err(Error::protocol("netlink", problem))
        }
    }

    /// Returns a message and its sequence number.
    pub fn message(&mut self, kind: u16, payload: &[u8]) -> (Vec<u8>, u32) {
        self.sequence += 1;
        let mut message = Vec::new();
        message.extend(((HEADER + payload.len()) as u32).to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend(REQUEST.to_ne_bytes());
        message.extend(self.sequence.to_ne_bytes());
        message.extend(0_u32.to_ne_bytes());
        message.extend(payload);
        (message, self.sequence)
    }

    /// Sends a request, and returns its sequence number.
    pub fn ask(&mut self, request: &Request) -> Result<u32> {
        let (message, sequence) = self.message(RESOLVE, &request.payload());
        self.send(&message)?;
        Ok(sequence)
    }

    /// Waits for the answer to a request: the path, or `None`.
    pub fn answer(&mut self, sequence: u32) -> Result<Option<PathRecord>> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(answers) = self.answers.get(&sequence) {
                return Ok(answers[0]);
            }
            if Instant::now() > deadline {
                let what = format!("an answer to the netlink request {sequence}");
                return Err(Error::Timeout {
                    what,
                    limit: PATIENCE,
                });
            }
            self.receive()?;
        }
    }

    /// Sends a request and waits for its answer.
    pub fn resolve(&mut self, request: &Request) -> Result<Option<PathRecord>> {
        let sequence = self.ask(request)?;
        self.answer(sequence)
    }

    /// Sends all requests, a limited number at a time, and returns their answers in order.
    pub fn resolve_all(&mut self, requests: &[Request]) -> Result<Vec<Option<PathRecord>>> {
        let mut answers = Vec::new();
        for requests in requests.chunks(AT_A_TIME) {
            let sequences = requests.iter().map(|request| self.ask(request));
            let sequences = sequences.collect::<Result<Vec<u32>>>()?;
            for sequence in sequences {
                answers.push(self.answer(sequence)?);
            }
        }
        Ok(answers)
    }

    /// Returns all answers so far, by sequence number.
    pub fn answers(&self) -> &BTreeMap<u32, Vec<Option<PathRecord>>> {
        &self.answers
    }

    /// Receives the daemon's next message, if one comes soon.
    pub fn receive(&mut self) -> Result<()> {
        wait::check_signals()?;
        let mut message = vec![0; 1024];
        let length = match recv(&self.socket, &mut message[..], RecvFlags::empty()) {
            Ok((length, _)) => length,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
            Err(error) => {
                return Err(io::Error::from(error))
                    .context(|| "receive from ibacm by netlink".to_owned());
            }
        };
        message.truncate(length);
        let wrong = || Error::protocol("ibacm", format!("sends by netlink: {message:02x?}"));
        let (header, payload) = message.split_at_checked(HEADER).ok_or_else(wrong)?;
        let word = |at: usize| u32::from_ne_bytes(std::array::from_fn(|i| header[at + i]));
        let half = |at: usize| u16::from_ne_bytes(std::array::from_fn(|i| header[at + i]));
        // Other daemons send to the same group.
        if word(12) != self.daemon {
            return Ok(());
        }
        if half(4) >> 10 != LOCAL_SERVICE || word(0) as usize != length {
            return Err(wrong());
        }
        let path = match (half(6), payload) {
            (FAILED, []) => None,
            (0, payload) => Some(path(payload).ok_or_else(wrong)?),
            _ => return Err(wrong()),
        };
        self.answers.entry(word(8)).or_default().push(path);
        Ok(())
    }
}

/// Returns the record in an answer's payload, its only attribute.
fn path(payload: &[u8]) -> Option<PathRecord> {
    let mut begin = Vec::new();
    begin.extend(PATH_RECORD_LENGTH.to_ne_bytes());
    begin.extend(PATH_RECORD.to_ne_bytes());
    begin.extend(FLAGS.to_ne_bytes());
    let record = payload.strip_prefix(begin.as_slice())?;
    // A reserved word follows the flags.
    let (_, record) = record.split_at_checked(4)?;
    Some(PathRecord(record.try_into().ok()?))
}
