//! Membership of a port in multicast groups, as the subnet administrator (SA) has granted it.
//!
//! A switch forwards a multicast by its LID alone, to the ports that the subnet manager has put into its table for that
//! LID: those that joined a group with it. Which of a port's queue pairs get the datagram is the adapter's affair, see
//! [`QueuePair::attach`](super::queue_pair::QueuePair::attach).
//!
//! Memberships end when the port is lost, and when a subnet manager asks for registration anew: it became master and knows
//! of none, or the port is new to it. A new LID alone ends none: OpenSM knows members by their GUIDs and switches forward to
//! ports; the stock provider does not join again when its LID changes. (The kernel's own users of multicast do, on all three
//! events.) Raising an event [by hand](super::adapter::Adapter::inject) ends none.

use std::collections::HashMap;
use std::ops::BitOr;

use super::event::PortEvent;

/// JoinState of an MCMemberRecord: a set of ways to be a member.
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

    /// All of them.
    pub const ALL: Self = Self(0xf);

    /// From the four bits of the record.
    pub fn from_bits(bits: u8) -> Self {
        Self(bits & 0xf)
    }

    /// Whether a port in this state gets the group's datagrams.
    pub fn receives(self) -> bool {
        self.0 & (Self::FULL_MEMBER | Self::NON_MEMBER).0 != 0
    }

    /// Whether it is no state at all.
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
    /// The group's LID, which the SA gives it.
    pub mlid: u16,
    /// In which ways.
    pub state: JoinState,
}

impl Membership {
    /// A full member's.
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
    /// States add up, unless the group is a new one of the same GID.
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

    /// Whether the event that a port raises for a change of it ends its memberships.
    pub(super) fn end_with(event: PortEvent) -> bool {
        matches!(event, PortEvent::PortErr | PortEvent::ClientReregister)
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether switches forward what the port sends to this LID.
    pub(super) fn sends_to(&self, lid: u16) -> bool {
        self.0.values().any(|(mlid, _)| *mlid == lid)
    }

    /// Whether switches forward to the port what is sent to this LID.
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
