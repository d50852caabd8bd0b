//! Datagrams: the paths on which they leave a port, and the rules of what arrives.
//!
//! | a datagram is lost | if |
//! | --- | --- |
//! | at the sender | the port is not ACTIVE or not InfiniBand; the destination is a multicast LID and the port has joined no group with that LID |
//! | on the path | the port's [link faults](super::link_faults) say so; no port has the destination LID |
//! | at the receiver | the port is not ACTIVE, or has a smaller MTU; unicast: another LID, a GRH with another port's GID, no such queue pair; multicast: the port receives no group with that LID, no GRH, no queue pair attached to (MGID, MLID); the queue pair belongs to another port or is not ready to receive, its Q_Key differs, its P_Key is in another partition or both are limited members; no receive is posted |
//!
//! A real switch may forward a multicast from a port that has not joined, depending on where the members are.
//! This one never does, so that tests find programs that rely on it.
//!
//! The adapter loops back what a port sends to itself: unicast to one of its own LIDs, and multicast to its
//! other attached queue pairs. A sender does not receive its own multicast. Link faults do not apply to
//! looped-back datagrams.

use super::queue_pair::{MULTICAST_LID_BASE, MULTICAST_QPN};
use crate::smp::PERMISSIVE_LID;

/// Maximum payload of any port: an MTU of 4096 bytes.
pub const MAX_PAYLOAD: usize = 4096;

/// A UD datagram between queue pairs. Host byte order unless noted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Datagram {
    /// Source LID.
    pub source_lid: u16,
    /// Source queue pair.
    pub source_qp: u32,
    /// Destination LID; multicast from 0xC000 to 0xFFFE.
    pub destination_lid: u16,
    /// Destination queue pair; 0xffffff for multicast.
    pub destination_qp: u32,
    /// Its GRH, if it has one.
    pub grh: Option<GlobalRouteHeader>,
    /// Its Q_Key.
    pub qkey: u32,
    /// P_Key of the sender.
    pub pkey: u16,
    /// Service level.
    pub sl: u8,
    /// Immediate data, network byte order.
    pub immediate: Option<u32>,
    /// Whether the sender asked for a solicited event.
    pub solicited: bool,
    /// Its payload, without a GRH.
    pub payload: Vec<u8>,
}

/// The variable part of a GRH.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GlobalRouteHeader {
    /// Source GID.
    pub source: [u8; 16],
    /// Destination GID.
    pub destination: [u8; 16],
    /// Traffic class.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
}

impl Datagram {
    /// Returns whether its destination is a group, by its LID, as switches decide.
    pub fn is_multicast(&self) -> bool {
        (MULTICAST_LID_BASE..PERMISSIVE_LID).contains(&self.destination_lid)
    }

    /// Returns its group as (MGID, MLID), if it is a well-formed multicast: to the multicast queue pair number,
    /// with a GRH that names a group.
    pub fn group(&self) -> Option<([u8; 16], u16)> {
        let gid = self.grh?.destination;
        (self.is_multicast() && self.destination_qp == MULTICAST_QPN && gid[0] == 0xff)
            .then_some((gid, self.destination_lid))
    }
}

/// The other end of a port's cable: a [`Switch`](super::switch::Switch) in this process, or the
/// [wires](crate::wires) to other processes. UD is unreliable: a send completes when the datagram is handed
/// over, even if it is lost later.
pub trait DataPath: Send + Sync {
    /// Takes a datagram that leaves the port. Must not wait for its receiver.
    fn send(&self, datagram: &Datagram);
}

/// Loses every datagram: sends complete, nothing arrives.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nowhere;

impl DataPath for Nowhere {
    fn send(&self, _datagram: &Datagram) {}
}
