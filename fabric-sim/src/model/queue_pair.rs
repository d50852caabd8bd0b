//! Queue pairs of the unreliable datagram service.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::adapter::Adapter;
use super::completion::{Completion, CompletionQueue, Status};
use super::data_path::{Datagram, GlobalRouteHeader};
use super::memory::{MemoryRegions, Segment};

/// The destination queue pair number of multicast datagrams.
pub const MULTICAST_QPN: u32 = 0x00ff_ffff;
/// The first multicast LID.
pub const MULTICAST_LID_BASE: u16 = 0xc000;
/// Length of a GRH, which precedes every received UD message.
pub const GRH_SIZE: usize = 40;

/// State of a queue pair (`enum ibv_qp_state`, with its numbers).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(i32)]
pub enum State {
    /// As created.
    #[default]
    Reset = 0,
    /// Receives may be posted.
    Init = 1,
    /// Receives complete.
    ReadyToReceive = 2,
    /// Sends may be posted.
    ReadyToSend = 3,
    /// All posted requests are flushed.
    Error = 6,
}

impl State {
    /// Returns the state for a number of `enum ibv_qp_state`; the draining states are not simulated.
    pub fn from_code(code: i32) -> Option<Self> {
        [
            Self::Reset,
            Self::Init,
            Self::ReadyToReceive,
            Self::ReadyToSend,
            Self::Error,
        ]
        .into_iter()
        .find(|state| *state as i32 == code)
    }
}

/// A change of a queue pair; `None` leaves a value unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// State.
    pub state: Option<State>,
    /// Index into the port's P_Key table.
    pub pkey_index: Option<u16>,
    /// Port.
    pub port: Option<u8>,
    /// Q_Key.
    pub qkey: Option<u32>,
    /// PSN of the first send.
    pub sq_psn: Option<u32>,
    /// Whether it contains attributes that UD queue pairs do not have.
    pub other: bool,
}

/// Limits of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of posted receives.
    pub max_recv_wr: u32,
    /// Maximum number of segments of a send.
    pub max_send_sge: u32,
    /// Maximum number of segments of a receive.
    pub max_recv_sge: u32,
    /// Maximum length of an inline send in bytes.
    pub max_inline_data: u32,
}

/// The destination of a send (`struct ibv_ah_attr`, the part that UD needs).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddressVector {
    /// LID.
    pub dlid: u16,
    /// Service level.
    pub sl: u8,
    /// Low bits of the source LID.
    pub source_path_bits: u8,
    /// Port to send from.
    pub port: u8,
    /// The GRH, if any.
    pub grh: Option<Route>,
}

/// The GRH's part of an [`AddressVector`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Route {
    /// Destination GID.
    pub dgid: [u8; 16],
    /// Index of the source GID.
    pub sgid_index: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
}

/// A send.
#[derive(Clone, Debug)]
pub struct SendRequest {
    /// Returned in the completion.
    pub wr_id: u64,
    /// The data, unless `inline`.
    pub segments: Vec<Segment>,
    /// The data, copied when posted.
    pub inline: Option<Vec<u8>>,
    /// The address.
    pub address: AddressVector,
    /// The destination queue pair.
    pub remote_qpn: u32,
    /// The Q_Key; if the top bit is set, the queue pair's own is used.
    pub remote_qkey: u32,
    /// Immediate data, network byte order.
    pub immediate: Option<u32>,
    /// Whether success completes (failure always does).
    pub signaled: bool,
    /// Whether it raises a solicited event at the receiver.
    pub solicited: bool,
}

/// A receive.
#[derive(Clone, Debug)]
pub struct RecvRequest {
    /// Returned in the completion.
    pub wr_id: u64,
    /// The buffer, starting with 40 bytes for the GRH.
    pub segments: Vec<Segment>,
}

/// Error from a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QpError {
    /// The state does not allow it.
    #[error("the queue pair is in state {0:?}, which does not allow it")]
    State(State),
    /// Too many segments, or inline data too long.
    #[error("the request has more segments or inline data than the queue pair was created for")]
    Limit,
    /// The queue is full.
    #[error("the queue is full")]
    Full,
    /// An invalid argument.
    #[error("{0}")]
    Argument(&'static str),
}

#[derive(Debug, Default)]
struct Inner {
    state: State,
    pkey_index: u16,
    port: u8,
    qkey: u32,
    sq_psn: u32,
    receives: VecDeque<RecvRequest>,
    groups: HashSet<([u8; 16], u16)>,
}

/// A UD queue pair.
#[derive(Debug)]
pub struct QueuePair {
    number: u32,
    adapter: Weak<Adapter>,
    memory: Arc<MemoryRegions>,
    send_cq: Arc<CompletionQueue>,
    recv_cq: Arc<CompletionQueue>,
    limits: Limits,
    inner: Mutex<Inner>,
}

impl QueuePair {
    /// Made by [`Adapter::create_queue_pair`].
    pub(super) fn new(
        number: u32,
        adapter: Weak<Adapter>,
        memory: Arc<MemoryRegions>,
        send_cq: Arc<CompletionQueue>,
        recv_cq: Arc<CompletionQueue>,
        limits: Limits,
    ) -> Self {
        Self {
            number,
            adapter,
            memory,
            send_cq,
            recv_cq,
            limits,
            inner: Mutex::default(),
        }
    }

    /// Returns its number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns its limits.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Returns state, P_Key index, port, Q_Key and PSN as last changed.
    pub fn attributes(&self) -> Change {
        let inner = self.inner.lock();
        Change {
            state: Some(inner.state),
            pkey_index: Some(inner.pkey_index),
            port: Some(inner.port),
            qkey: Some(inner.qkey),
            sq_psn: Some(inner.sq_psn),
            other: false,
        }
    }

    /// Changes state and attributes. A transition requires exactly the attributes that the specification lists
    /// for it (volume 1, section 11.2.5.2, table for UD).
    ///
    /// # Errors
    /// `Argument` if an attribute is missing, not allowed or out of range; `State` for an invalid transition.
    /// On error nothing changes.
    pub fn modify(&self, change: Change) -> Result<(), QpError> {
        let mut inner = self.inner.lock();
        let from = inner.state;
        let to = change.state.unwrap_or(from);
        if change.other {
            return Err(QpError::Argument(
                "an attribute that a UD queue pair does not have",
            ));
        }
        let all = change.pkey_index.is_some() && change.port.is_some() && change.qkey.is_some();
        let addressing =
            change.pkey_index.is_some() || change.port.is_some() || change.qkey.is_some();
        match (from, to) {
            (_, State::Reset | State::Error) => {
                if addressing || change.sq_psn.is_some() {
                    return Err(QpError::Argument("RESET and ERR take no attribute"));
                }
            }
            (State::Reset, State::Init) => {
                if !all || change.sq_psn.is_some() {
                    return Err(QpError::Argument(
                        "RESET to INIT takes P_Key index, port and Q_Key",
                    ));
                }
            }
            (State::Init, State::Init) => {
                if change.sq_psn.is_some() {
                    return Err(QpError::Argument("INIT takes no PSN"));
                }
            }
            (State::Init, State::ReadyToReceive) => {
                if change.port.is_some() || change.sq_psn.is_some() {
                    return Err(QpError::Argument("INIT to RTR takes neither port nor PSN"));
                }
            }
            (State::ReadyToReceive, State::ReadyToSend) => {
                if change.sq_psn.is_none() || change.port.is_some() || change.pkey_index.is_some() {
                    return Err(QpError::Argument(
                        "RTR to RTS takes the PSN and at most a Q_Key",
                    ));
                }
            }
            (State::ReadyToSend, State::ReadyToSend) => {
                if change.sq_psn.is_some() || change.port.is_some() || change.pkey_index.is_some() {
                    return Err(QpError::Argument("RTS takes at most a Q_Key"));
                }
            }
            _ => return Err(QpError::State(from)),
        }
        let adapter = self.adapter.upgrade();
        let port = change.port.unwrap_or(inner.port);
        if change.port.is_some() || change.pkey_index.is_some() {
            let snapshot = adapter.as_ref().and_then(|adapter| adapter.port(port));
            let Some(snapshot) = snapshot else {
                return Err(QpError::Argument("the adapter has no such port"));
            };
            if change
                .pkey_index
                .is_some_and(|index| usize::from(index) >= snapshot.pkeys.len())
            {
                return Err(QpError::Argument(
                    "the P_Key index is beyond the port's table",
                ));
            }
        }

        inner.port = port;
        inner.pkey_index = change.pkey_index.unwrap_or(inner.pkey_index);
        inner.qkey = change.qkey.unwrap_or(inner.qkey);
        inner.sq_psn = change.sq_psn.unwrap_or(inner.sq_psn) & 0x00ff_ffff;
        inner.state = to;
        match to {
            State::Error => {
                let flushed: Vec<_> = inner.receives.drain(..).collect();
                drop(inner);
                for request in flushed {
                    self.complete_receive(self.failed(request.wr_id, Status::Flushed, true), false);
                }
            }
            State::Reset => {
                inner.receives.clear();
                drop(inner);
                self.send_cq.forget(self.number);
                self.recv_cq.forget(self.number);
            }
            _ => {}
        }
        Ok(())
    }

    /// Posts a send. UD completes it at once: its completion is there when this returns.
    ///
    /// # Errors
    /// If the state or the limits do not allow it. A later failure of the send is a failed completion.
    pub fn post_send(&self, request: SendRequest) -> Result<(), QpError> {
        let (state, pkey_index, port, own_qkey) = {
            let inner = self.inner.lock();
            (inner.state, inner.pkey_index, inner.port, inner.qkey)
        };
        let too_long = request
            .inline
            .as_ref()
            .is_some_and(|data| data.len() > self.limits.max_inline_data as usize);
        if request.segments.len() > self.limits.max_send_sge as usize || too_long {
            return Err(QpError::Limit);
        }
        match state {
            State::ReadyToSend => {}
            State::Error => {
                self.send_cq
                    .add(self.failed(request.wr_id, Status::Flushed, false), false);
                return Ok(());
            }
            other => return Err(QpError::State(other)),
        }
        let payload = match request.inline {
            Some(payload) => Ok(payload),
            None => self.memory.gather(&request.segments),
        };
        let Ok(payload) = payload else {
            self.send_cq.add(
                self.failed(request.wr_id, Status::LocalProtection, false),
                false,
            );
            return Ok(());
        };
        if let Some(adapter) = self.adapter.upgrade()
            && let Some(snapshot) = adapter.port(port)
        {
            if payload.len() > snapshot.mtu() {
                self.send_cq.add(
                    self.failed(request.wr_id, Status::LocalLength, false),
                    false,
                );
                return Ok(());
            }
            let grh = request.address.grh.map(|route| GlobalRouteHeader {
                source: snapshot.gid(route.sgid_index.into()).unwrap_or_default(),
                destination: route.dgid,
                traffic_class: route.traffic_class,
                flow_label: route.flow_label & 0x000f_ffff,
                hop_limit: route.hop_limit,
            });
            let pkey = snapshot.pkeys.get(usize::from(pkey_index));
            let datagram = Datagram {
                source_lid: snapshot.lid_with(request.address.source_path_bits),
                source_qp: self.number,
                destination_lid: request.address.dlid,
                destination_qp: request.remote_qpn & 0x00ff_ffff,
                grh,
                qkey: if request.remote_qkey & 0x8000_0000 != 0 {
                    own_qkey
                } else {
                    request.remote_qkey
                },
                pkey: pkey.copied().unwrap_or(0),
                sl: request.address.sl,
                immediate: request.immediate,
                solicited: request.solicited,
                payload,
            };
            adapter.send(port, datagram);
        }
        if request.signaled {
            let completion = Completion {
                wr_id: request.wr_id,
                qp_num: self.number,
                ..Completion::default()
            };
            self.send_cq.add(completion, false);
        }
        Ok(())
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// If the state or the limits do not allow it, or the queue is full.
    pub fn post_recv(&self, request: RecvRequest) -> Result<(), QpError> {
        if request.segments.len() > self.limits.max_recv_sge as usize {
            return Err(QpError::Limit);
        }
        let mut inner = self.inner.lock();
        match inner.state {
            State::Reset => Err(QpError::State(State::Reset)),
            State::Error => {
                drop(inner);
                self.complete_receive(self.failed(request.wr_id, Status::Flushed, true), false);
                Ok(())
            }
            _ if inner.receives.len() >= self.limits.max_recv_wr as usize => Err(QpError::Full),
            _ => {
                inner.receives.push_back(request);
                Ok(())
            }
        }
    }

    /// Receives this group's datagrams from now on. Attaching twice has no further effect.
    ///
    /// # Errors
    /// `Argument` if it is not a multicast GID or LID, as in the kernel.
    pub fn attach(&self, gid: [u8; 16], lid: u16) -> Result<(), QpError> {
        if gid[0] != 0xff {
            return Err(QpError::Argument("not a multicast GID"));
        }
        if !(MULTICAST_LID_BASE..0xffff).contains(&lid) {
            return Err(QpError::Argument(
                "not a multicast LID (0xC000 to 0xFFFE, host byte order)",
            ));
        }
        self.inner.lock().groups.insert((gid, lid));
        Ok(())
    }

    /// Reverses [`attach`](Self::attach).
    ///
    /// # Errors
    /// `Argument` if it is not attached to that group and LID.
    pub fn detach(&self, gid: [u8; 16], lid: u16) -> Result<(), QpError> {
        if self.inner.lock().groups.remove(&(gid, lid)) {
            Ok(())
        } else {
            Err(QpError::Argument("not attached to that group"))
        }
    }

    /// Returns whether it is attached to a group, (MGID, MLID).
    pub(super) fn is_attached(&self, group: &([u8; 16], u16)) -> bool {
        self.inner.lock().groups.contains(group)
    }

    /// Receives a datagram that arrived at a port into the oldest posted receive. Loses it, as UD does, if it
    /// arrived at another port, the state or Q_Key or partition is wrong, or no receive is posted.
    pub(super) fn receive(&self, port: u8, datagram: &Datagram, path_bits: u8) {
        let mut inner = self.inner.lock();
        if !matches!(inner.state, State::ReadyToReceive | State::ReadyToSend)
            || inner.port != port
            || inner.qkey != datagram.qkey
        {
            return;
        }
        let snapshot = self
            .adapter
            .upgrade()
            .and_then(|adapter| adapter.port(port));
        let own_pkey = snapshot
            .and_then(|port| port.pkeys.get(usize::from(inner.pkey_index)).copied())
            .unwrap_or(0);
        if !same_partition(own_pkey, datagram.pkey) {
            return;
        }
        let Some(request) = inner.receives.pop_front() else {
            return;
        };
        let pkey_index = inner.pkey_index;
        drop(inner);

        let mut message = match datagram.grh {
            Some(_) => global_route_header(datagram).to_vec(),
            // Adapters leave that part of the buffer unchanged.
            None => self.first_bytes(&request.segments),
        };
        message.extend_from_slice(&datagram.payload);
        let room: u64 = request
            .segments
            .iter()
            .map(|segment| u64::from(segment.length))
            .sum();
        let status = if message.len() as u64 > room {
            Status::LocalLength
        } else if self.memory.scatter(&request.segments, &message).is_err() {
            Status::LocalProtection
        } else {
            Status::Success
        };
        let completion = Completion {
            byte_len: u32::try_from(message.len()).unwrap_or(u32::MAX),
            immediate: datagram.immediate,
            source_qp: datagram.source_qp,
            grh: datagram.grh.is_some(),
            pkey_index,
            source_lid: datagram.source_lid,
            sl: datagram.sl,
            path_bits,
            ..self.failed(request.wr_id, status, true)
        };
        self.complete_receive(completion, datagram.solicited);
    }

    /// Returns the bytes in the place of a GRH.
    fn first_bytes(&self, segments: &[Segment]) -> Vec<u8> {
        let mut bytes = self.memory.gather(segments).unwrap_or_default();
        bytes.resize(GRH_SIZE, 0);
        bytes
    }

    fn complete_receive(&self, completion: Completion, solicited: bool) {
        self.recv_cq.add(completion, solicited);
    }

    fn failed(&self, wr_id: u64, status: Status, receive: bool) -> Completion {
        Completion {
            wr_id,
            status,
            receive,
            qp_num: self.number,
            ..Completion::default()
        }
    }

    /// Removes its completions; called when the owner destroys it.
    pub fn forget_completions(&self) {
        self.send_cq.forget(self.number);
        self.recv_cq.forget(self.number);
    }
}

/// Returns whether both are in one partition and at least one is a full member.
fn same_partition(one: u16, other: u16) -> bool {
    one & 0x7fff != 0 && one & 0x7fff == other & 0x7fff && (one | other) & 0x8000 != 0
}

/// Returns the GRH of a received message; without one it is undefined (here: zero).
fn global_route_header(datagram: &Datagram) -> [u8; GRH_SIZE] {
    /// Length of the headers between GRH and payload (BTH and DETH) and of the invariant CRC after it.
    const AROUND: usize = 12 + 8 + 4;
    const IP_VERSION: u32 = 6;
    const NEXT_HEADER_IBA: u8 = 0x1b;
    let mut header = [0; GRH_SIZE];
    if let Some(grh) = datagram.grh {
        let immediate = if datagram.immediate.is_some() { 4 } else { 0 };
        let length = datagram.payload.len().next_multiple_of(4) + immediate + AROUND;
        let first = IP_VERSION << 28 | u32::from(grh.traffic_class) << 20 | grh.flow_label;
        header[..4].copy_from_slice(&first.to_be_bytes());
        header[4..6].copy_from_slice(&u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes());
        header[6] = NEXT_HEADER_IBA;
        header[7] = grh.hop_limit;
        header[8..24].copy_from_slice(&grh.source);
        header[24..40].copy_from_slice(&grh.destination);
    }
    header
}
