//! The other end of a port's cable: other nodes, and the datagrams of the ACM multicast protocol, by their bytes.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fabric_sim::model::adapter::Adapter;
use fabric_sim::model::data_path::DataPath;
pub use fabric_sim::model::data_path::{Datagram, GlobalRouteHeader};
use fabric_sim::model::membership::{JoinState, Membership};
use fabric_sim::model::queue_pair::{Change, MULTICAST_QPN, State};

use super::fabric::Peer;
use super::message::{Addr, Gid};
use super::sa::{DELETE, SaRequest};
use super::shared::lock;

/// The Q_Key of all queue pairs.
pub const QKEY: u32 = 0x8001_0000;
/// Bytes of a datagram, without the GRH.
pub const LENGTH: usize = 256;
/// Number of groups that fit into a datagram; the format's count allows ten.
pub const WIRE_GROUPS: usize = 6;
/// The method of a request.
pub const REQUEST: u8 = 0x01;
/// The method of a response.
pub const ANSWER: u8 = 0x81;
/// Offset of the destination.
pub const DEST: usize = 24;
/// Offset of the source.
pub const SOURCE: usize = 88;
/// Offset of the groups.
pub const GROUPS: usize = 152;

/// Returns the MGID of a partition's group of all nodes: 10 Gb/s, 2048 bytes.
pub const fn shared_group(pkey: u16) -> Gid {
    let [high, low] = (pkey | 0x8000).to_be_bytes();
    Gid([
        0xff, 0x15, 0x40, 0x01, high, low, 0, 3, 4, 0, 0, 0, 0, 0, 0, 0,
    ])
}

/// Returns the SA's LID for a group.
pub fn mlid(mgid: &Gid) -> u16 {
    let sum = mgid
        .0
        .iter()
        .fold(0_u16, |sum, byte| sum.wrapping_add(u16::from(*byte)));
    0xc000 | sum & 0x0fff
}

/// Applies a granted join or leave to the simulated adapter; `record` is the SA's response.
pub(super) fn change_membership(
    adapters: &[Arc<Adapter>],
    question: &SaRequest,
    record: &[u8; 64],
) {
    const SCOPE_AND_STATE: usize = 48;
    let Some(adapter) = adapters.get(question.port / 16) else {
        return;
    };
    let port = (question.port % 16) as u8;
    let mgid: [u8; 16] = record.first_chunk().copied().unwrap_or_default();
    let state = JoinState::from_bits(record[SCOPE_AND_STATE]);
    // The port exists: it sent the request.
    let _ = if question.method == DELETE {
        adapter.left(port, &mgid, state)
    } else {
        let mlid = u16::from_be_bytes([record[36], record[37]]);
        adapter.joined(port, Membership { mgid, mlid, state })
    };
}

/// Ends all memberships of a port.
pub(super) fn end_memberships(adapter: &Adapter, port: u8) {
    for membership in adapter.memberships(port).unwrap_or_default() {
        // The port exists: it has memberships.
        let _ = adapter.left(port, &membership.mgid, JoinState::ALL);
    }
}

/// Another node, as the wire identifies it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its LID.
    pub lid: u16,
    /// Its GID.
    pub gid: Gid,
    /// Its queue pair.
    pub qpn: u32,
}

impl Node {
    /// Returns the node of a peer that the SA knows.
    pub fn of(peer: &Peer) -> Self {
        Self {
            lid: peer.lid,
            gid: peer.gid(),
            qpn: 0x1000 + u32::from(peer.lid),
        }
    }
}

/// The bytes behind the GRH.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AcmMad(pub [u8; LENGTH]);

impl AcmMad {
    fn new(method: u8, tid: u64, groups: &[Gid]) -> Self {
        let mut bytes = [0; LENGTH];
        bytes[..4].copy_from_slice(&[1, 0x2c, 1, method]);
        bytes[6..8].copy_from_slice(&1_u16.to_be_bytes());
        bytes[8..16].copy_from_slice(&tid.to_be_bytes());
        bytes[20] = groups.len() as u8;
        for (index, group) in groups.iter().take(WIRE_GROUPS).enumerate() {
            bytes[GROUPS + index * 16..][..16].copy_from_slice(&group.0);
        }
        Self(bytes)
    }

    /// Returns a request for an address.
    pub fn request(tid: u64, destination: &Addr, source: &Addr, groups: &[Gid]) -> Self {
        let mut mad = Self::new(REQUEST, tid, groups);
        // The length is the field's, not the address's.
        mad.0[16..20].copy_from_slice(&[destination.code() as u8, 64, source.code() as u8, 64]);
        mad.0[DEST..][..64].copy_from_slice(&destination.field());
        mad.0[SOURCE..][..64].copy_from_slice(&source.field());
        mad
    }

    /// Returns a response like the stock provider's, without addresses.
    pub fn answer(tid: u64, group: &Gid) -> Self {
        Self::new(ANSWER, tid, &[*group])
    }

    /// Parses a datagram's payload; `None` if it has another length.
    pub fn read(payload: &[u8]) -> Option<Self> {
        payload.try_into().ok().map(Self)
    }

    /// Returns the datagram with other bytes at an offset.
    ///
    /// # Panics
    /// If they do not fit.
    pub fn with(mut self, at: usize, bytes: &[u8]) -> Self {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    /// The method.
    pub fn method(&self) -> u8 {
        self.0[3]
    }

    /// The transaction id.
    pub fn tid(&self) -> u64 {
        u64::from_be_bytes(self.0[8..16].try_into().unwrap_or_default())
    }

    /// Type and field of the destination.
    pub fn destination(&self) -> (u16, [u8; 64]) {
        self.address(16, DEST)
    }

    /// Type and field of the source.
    pub fn source(&self) -> (u16, [u8; 64]) {
        self.address(18, SOURCE)
    }

    fn address(&self, code: usize, field: usize) -> (u16, [u8; 64]) {
        let bytes = self.0[field..field + 64].try_into();
        (self.0[code].into(), bytes.unwrap_or([0; 64]))
    }

    /// Returns the groups that it names, up to those that fit.
    pub fn groups(&self) -> Vec<Gid> {
        let named = usize::from(self.0[20]).min(WIRE_GROUPS);
        let groups = self.0[GROUPS..][..named * 16].as_chunks().0;
        groups.iter().copied().map(Gid).collect()
    }
}

impl fmt::Debug for AcmMad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |(code, field): (u16, [u8; 64])| {
            let end = field.iter().rposition(|byte| *byte != 0);
            format!(
                "type {code} {}",
                field[..end.map_or(0, |end| end + 1)].escape_ascii()
            )
        };
        write!(
            f,
            "header {:02x?}, method {:#04x}, tid {:#x}, destination {}, source {}, {} groups",
            &self.0[..8],
            self.method(),
            self.tid(),
            text(self.destination()),
            text(self.source()),
            self.0[20]
        )
    }
}

/// A datagram from the port.
#[derive(Default)]
struct Tap {
    sent: Mutex<Vec<Datagram>>,
    more: Condvar,
}

impl DataPath for Tap {
    fn send(&self, datagram: &Datagram) {
        lock(&self.sent).push(datagram.clone());
        self.more.notify_all();
    }
}

/// The cable at a port. It queues the port's datagrams.
pub struct Wire {
    adapter: Arc<Adapter>,
    port: u8,
    tap: Arc<Tap>,
}

impl Wire {
    pub(super) fn new(adapter: &Arc<Adapter>, port: u8) -> Self {
        let tap = Arc::<Tap>::default();
        // The caller names an existing port.
        let _ = adapter.set_data_path(port, tap.clone());
        Self {
            adapter: adapter.clone(),
            port,
            tap,
        }
    }

    /// Returns the groups of which the port is a member.
    pub fn groups(&self) -> Vec<Gid> {
        let memberships = self.adapter.memberships(self.port).unwrap_or_default();
        memberships
            .into_iter()
            .map(|member| Gid(member.mgid))
            .collect()
    }

    /// Returns the number of queue pairs of the port's adapter.
    pub fn queue_pairs(&self) -> usize {
        self.adapter.queue_pair_count()
    }

    /// Puts a queue pair into the error state, like a failing work request; false if the queue pair does not exist.
    pub fn break_queue_pair(&self, number: u32) -> bool {
        let error = Change {
            state: Some(State::Error),
            ..Change::default()
        };
        self.adapter
            .queue_pair(number)
            .is_some_and(|pair| pair.modify(error).is_ok())
    }

    /// Sends any datagram to the port.
    pub fn send(&self, datagram: &Datagram) {
        self.adapter.arrive(self.port, datagram);
    }

    /// Sends a datagram from a node to a group.
    pub fn to_group(from: &Node, pkey: u16, payload: &[u8]) -> Datagram {
        let mgid = shared_group(pkey);
        Datagram {
            destination_lid: mlid(&mgid),
            destination_qp: MULTICAST_QPN,
            grh: Some(GlobalRouteHeader {
                source: from.gid.0,
                destination: mgid.0,
                ..GlobalRouteHeader::default()
            }),
            ..Self::from(from, pkey, payload)
        }
    }

    /// Sends a datagram from a node to a queue pair of the port.
    pub fn to_pair(&self, from: &Node, pkey: u16, qpn: u32, payload: &[u8]) -> Datagram {
        let port = self.adapter.port(self.port).unwrap_or_default();
        Datagram {
            destination_lid: port.info.lid,
            destination_qp: qpn,
            grh: Some(GlobalRouteHeader {
                source: from.gid.0,
                destination: port.gid(0).unwrap_or_default(),
                ..GlobalRouteHeader::default()
            }),
            ..Self::from(from, pkey, payload)
        }
    }

    fn from(from: &Node, pkey: u16, payload: &[u8]) -> Datagram {
        Datagram {
            source_lid: from.lid,
            source_qp: from.qpn,
            qkey: QKEY,
            pkey,
            payload: payload.to_vec(),
            ..Datagram::default()
        }
    }

    /// Waits for a datagram of the port and removes it from the queue; `None` after the time limit.
    pub fn wait(
        &self,
        patience: Duration,
        mut wanted: impl FnMut(&Datagram) -> bool,
    ) -> Option<Datagram> {
        let deadline = Instant::now() + patience;
        let mut sent = lock(&self.tap.sent);
        loop {
            if let Some(index) = sent.iter().position(&mut wanted) {
                return Some(sent.remove(index));
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            sent = self
                .tap
                .more
                .wait_timeout(sent, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Removes and returns all queued datagrams.
    pub fn take(&self) -> Vec<Datagram> {
        std::mem::take(&mut lock(&self.tap.sent))
    }
}
