//! Datagrams, where those go that leave a port, and which of them arrive.
//!
//! | a datagram is lost | |
//! | --- | --- |
//! | at the sender | its port is not ACTIVE or not InfiniBand's; it goes to a multicast LID and the port has joined no group of that LID |
//! | on the way | its port's [link faults](super::link_faults); nobody has its LID |
//! | at the receiver | its port is not ACTIVE, or has a smaller MTU; unicast: another LID, a GRH with another port's GID, no such queue pair; multicast: the port receives no group of that LID, no GRH, no queue pair attached to (MGID, MLID); the queue pair is of another port or not ready to receive, its Q_Key differs, its P_Key is of another partition or both are limited members; no receive is posted |
//!
//! A real switch may forward a multicast of a port that has not joined, depending on where the members are. Here it never
//! does, so that a program that relies on it is found.
//!
//! What a port sends to itself the adapter turns round: unicast to a LID of its own, and multicast to the other queue pairs
//! that are attached. The sender does not get its own multicast. None of that sees the link's faults.

use super::queue_pair::{MULTICAST_LID_BASE, MULTICAST_QPN};
use crate::smp::PERMISSIVE_LID;

/// The longest payload that any port sends: an MTU of 4096 bytes.
pub const MAX_PAYLOAD: usize = 4096;

/// A UD datagram between queue pairs. Host byte order, where nothing else is said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Datagram {
    /// LID that sent it.
    pub source_lid: u16,
    /// Queue pair that sent it.
    pub source_qp: u32,
    /// LID that it goes to; multicast from 0xC000 to 0xFFFE.
    pub destination_lid: u16,
    /// Queue pair that it goes to; 0xffffff for multicast.
    pub destination_qp: u32,
    /// Its GRH, if it has one.
    pub grh: Option<GlobalRouteHeader>,
    /// Q_Key that it carries.
    pub qkey: u32,
    /// P_Key of the sender.
    pub pkey: u16,
    /// Service level.
    pub sl: u8,
    /// Immediate data, network byte order.
    pub immediate: Option<u32>,
    /// Whether the sender asked for a solicited event.
    pub solicited: bool,
    /// What it carries, without a GRH.
    pub payload: Vec<u8>,
}

/// The part of a GRH that is not the same in all datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GlobalRouteHeader {
    /// GID that sent it.
    pub source: [u8; 16],
    /// GID that it goes to.
    pub destination: [u8; 16],
    /// Traffic class.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
}

impl Datagram {
    /// Whether it goes to a group: by its LID, as switches see it.
    pub fn is_multicast(&self) -> bool {
        (MULTICAST_LID_BASE..PERMISSIVE_LID).contains(&self.destination_lid)
    }

    /// The group that it goes to, as (MGID, MLID), if it is a well-formed multicast: to the queue pair that stands for all
    /// members, with a GRH that names a group.
    pub fn group(&self) -> Option<([u8; 16], u16)> {
        let gid = self.grh?.destination;
        (self.is_multicast() && self.destination_qp == MULTICAST_QPN && gid[0] == 0xff)
            .then_some((gid, self.destination_lid))
    }
}

/// What a port's cable leads to: a [`Switch`](super::switch::Switch) in this process, or the [wires](crate::wires) to other
/// processes. UD is unreliable: a send completes when the datagram is handed over, whatever becomes of it.
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
