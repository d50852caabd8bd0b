//! Membership of a port in multicast groups, as granted by the subnet administrator (SA).
//!
//! A switch forwards a multicast by its LID alone, to the ports that the subnet manager entered for that LID:
//! those that joined a group with it. The adapter decides which of a port's queue pairs get the datagram, see
//! [`QueuePair::attach`](super::queue_pair::QueuePair::attach).
//!
//! Memberships end when the port is lost, and when a subnet manager asks for registration again, because it
//! became master without knowing the members, or because the port is new to it. A new LID does not end them:
//! OpenSM identifies members by GUID and switches forward to ports; the stock provider does not join again when
//! its LID changes. (The kernel's own users of multicast join again on all three events.) Raising an event [by
//! hand](super::adapter::Adapter::inject) ends none.

use std::collections::HashMap;
use std::ops::BitOr;

use super::event::PortEvent;

/// JoinState of an MCMemberRecord: a set of states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JoinState(u8);

impl JoinState {
    /// Sends and receives; keeps the group alive.
    pub const FULL_MEMBER: Self = Self(1);
    /// Sends and receives.
    pub const NON_MEMBER: Self = Self(2);
    /// Sends.
    pub const SEND_ONLY_NON_MEMBER: Self = Self(4);
    /// Sends; keeps the group alive.
    pub const SEND_ONLY_FULL_MEMBER: Self = Self(8);

    /// All states.
    pub const ALL: Self = Self(0xf);

    /// Makes a state of the four bits of the record.
    pub fn from_bits(bits: u8) -> Self {
        Self(bits & 0xf)
    }

    /// Returns whether a port in this state receives the group's datagrams.
    pub fn receives(self) -> bool {
        self.0 & (Self::FULL_MEMBER | Self::NON_MEMBER).0 != 0
    }

    /// Returns whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl BitOr for JoinState {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// A port's membership in a group. Host byte order, the GID in network byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The group's GID.
    pub mgid: [u8; 16],
    /// The group's LID, assigned by the SA.
    pub mlid: u16,
    /// The join states.
    pub state: JoinState,
}

impl Membership {
    /// Makes a full membership.
    pub fn full(mgid: [u8; 16], mlid: u16) -> Self {
        Self {
            mgid,
            mlid,
            state: JoinState::FULL_MEMBER,
        }
    }
}

/// The memberships of one port.
#[derive(Debug, Default)]
pub(super) struct Memberships(HashMap<[u8; 16], (u16, JoinState)>);

impl Memberships {
    /// Adds the states to those of the same group; replaces them if the group has a new LID.
    pub(super) fn join(&mut self, membership: Membership) {
        let Membership { mgid, mlid, state } = membership;
        if state.is_empty() {
            return;
        }
        let known = self.0.entry(mgid).or_insert((mlid, state));
        *known = if known.0 == mlid {
            (mlid, known.1 | state)
        } else {
            (mlid, state)
        };
    }

    pub(super) fn leave(&mut self, mgid: &[u8; 16], state: JoinState) {
        if let Some(known) = self.0.get_mut(mgid) {
            known.1 = known.1.without(state);
            if known.1.is_empty() {
                self.0.remove(mgid);
            }
        }
    }

    /// Returns whether this event of a port ends its memberships.
    pub(super) fn end_with(event: PortEvent) -> bool {
        matches!(event, PortEvent::PortErr | PortEvent::ClientReregister)
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns whether switches forward what the port sends to this LID.
    pub(super) fn sends_to(&self, lid: u16) -> bool {
        self.0.values().any(|(mlid, _)| *mlid == lid)
    }

    /// Returns whether switches forward datagrams to this LID to the port.
    pub(super) fn receives_from(&self, lid: u16) -> bool {
        self.0
            .values()
            .any(|(mlid, state)| *mlid == lid && state.receives())
    }

    pub(super) fn list(&self) -> Vec<Membership> {
        let all = self.0.iter();
        all.map(|(&mgid, &(mlid, state))| Membership { mgid, mlid, state })
            .collect()
    }
}
