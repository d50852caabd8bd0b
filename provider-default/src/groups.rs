//! The multicast groups of an endpoint: their MGIDs, and when to join them.
//!
//! A state machine without a clock: it gets the time and the SA's responses, and returns the joins to send.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use acm_prov_api::address::{Gid, PKey};
use acm_prov_api::clock::Moment;
use acm_prov_api::lookups::{End, Limits, Lookups, Try, Urgency, Waiter};
use acm_prov_api::path::Limit;
use acm_prov_api::sa::{MulticastJoin, MulticastMember, SaError};

use crate::wire;

/// The Q_Key of the protocol.
pub(crate) const QKEY: u32 = 0x8001_0000;

/// Minimum and maximum pause after a failed join. Pauses double, and each is shortened at
/// random by up to a half, so that hosts that failed together do not retry together.
const RESTS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// `UMAD_SA_MCM_ADDR_SCOPE_SITE_LOCAL`.
const SITE_LOCAL: u8 = 5;
/// `UMAD_SA_MCM_JOIN_STATE_FULL_MEMBER`.
const FULL_MEMBER: u8 = 1;

/// MTU and rate of a group, as codes of the architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Speed {
    pub rate: u8,
    pub mtu: u8,
}

/// Returns the MGID of a partition's group. It contains the full member's P_Key whatever the membership.
pub(crate) fn mgid(pkey: PKey, speed: Speed) -> Gid {
    let [high, low] = (pkey.0 | PKey::FULL_MEMBER).to_be_bytes();
    let mut mgid = [0; 16];
    mgid[..9].copy_from_slice(&[0xff, 0x15, 0x40, 0x01, high, low, 0, speed.rate, speed.mtu]);
    Gid(mgid)
}

/// A join to send to the SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    /// Identifies the join when its response arrives.
    pub ticket: Ticket,
    pub join: MulticastJoin,
}

/// Identifies one join; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

/// Why the endpoint is not a member.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum JoinError {
    #[error(transparent)]
    Refused(#[from] SaError),
    #[error("the SA granted another {0} than requested")]
    Mismatch(&'static str),
    #[error("the group was joined, but cannot be used: {0}")]
    Unusable(String),
}

/// The result of a join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Joined, and attached if needed.
    Joined { member: MulticastMember },
    /// Not joined; the next try is after `rest`.
    Failed {
        index: usize,
        error: JoinError,
        rest: Duration,
    },
    /// The response to an abandoned join.
    Late,
}

struct Group {
    mgid: Gid,
    speed: Speed,
    member: Option<MulticastMember>,
    /// Whether a join has failed since the last success or re-registration.
    has_failed: bool,
}

/// A join has no waiting clients: they wait for addresses.
pub(crate) enum NoWaiter {}

impl Waiter for NoWaiter {
    type Answer = ();

    fn end(self, _: End<()>) {
        match self {}
    }
}

/// The groups of one endpoint; the shared group is the first.
pub(crate) struct Groups {
    port_gid: Gid,
    pkey: PKey,
    groups: Vec<Group>,
    /// Joins to send or in flight, by index of the group.
    joins: Lookups<usize, NoWaiter>,
    tickets: u64,
}

impl Groups {
    /// Makes the shared group, and the group of the port's own speed unless it is the same.
    pub(crate) fn new(
        port_gid: Gid,
        pkey: PKey,
        shared: Speed,
        own: Option<Speed>,
        now: Moment,
    ) -> Self {
        let groups: Vec<Group> = [Some(shared), own.filter(|own| *own != shared)]
            .into_iter()
            .flatten()
            .map(|speed| Group {
                mgid: mgid(pkey, speed),
                speed,
                member: None,
                has_failed: false,
            })
            .collect();
        let limits = Limits {
            lookups: groups.len(),
            waiters: 0,
            tries: groups.len(),
            try_timeout: None,
            rest: RESTS,
        };
        let mut groups = Self {
            port_gid,
            pkey,
            groups,
            joins: Lookups::new(limits, None, RandomState::new().hash_one(0)),
            tickets: 0,
        };
        groups.join_all(now);
        groups
    }

    fn join_all(&mut self, now: Moment) {
        for index in 0..self.groups.len() {
            self.joins.want(now, index, Moment::NEVER, Urgency::Usual);
        }
    }

    /// Returns whether requests can be sent: the shared group is joined, and joining the own group has
    /// succeeded or failed.
    pub(crate) fn is_ready(&self) -> bool {
        self.groups
            .iter()
            .enumerate()
            .all(|(index, group)| group.member.is_some() || (index > 0 && group.has_failed))
    }

    /// Returns the membership in a group.
    pub(crate) fn member(&self, index: usize) -> Option<&MulticastMember> {
        self.groups.get(index)?.member.as_ref()
    }

    /// Returns the joined groups, to name in a datagram.
    pub(crate) fn named(&self) -> wire::Groups {
        let joined: Vec<Gid> = self.joined().map(|member| member.mgid).collect();
        wire::Groups::new(&joined)
    }

    fn joined(&self) -> impl Iterator<Item = &MulticastMember> {
        self.groups.iter().filter_map(|group| group.member.as_ref())
    }

    /// Returns whether the group is joined.
    pub(crate) fn is_joined(&self, mgid: Gid) -> bool {
        self.joined().any(|member| member.mgid == mgid)
    }

    /// Returns the sender's most preferred group that is also joined here.
    pub(crate) fn best_of(&self, named: &wire::Groups) -> Option<usize> {
        named.as_slice().iter().rev().find_map(|mgid| {
            self.groups
                .iter()
                .position(|group| group.mgid == *mgid && group.member.is_some())
        })
    }

    /// Returns the next join to send now.
    pub(crate) fn next_join(&mut self, now: Moment) -> Option<Ask> {
        let tickets = &mut self.tickets;
        let next = self.joins.next_try(now, || {
            *tickets += 1;
            *tickets
        });
        let Try { id, key: index, .. } = next?;
        Some(Ask {
            ticket: Ticket(id),
            join: self.join(index),
        })
    }

    fn join(&self, index: usize) -> MulticastJoin {
        let Group { mgid, speed, .. } = self.groups[index];
        MulticastJoin {
            mgid,
            port_gid: Some(self.port_gid),
            pkey: Some(self.pkey),
            qkey: QKEY,
            mtu: Some(Limit::exactly(speed.mtu)),
            rate: Some(Limit::exactly(speed.rate)),
            sl: 0,
            tclass: 0,
            flow_label: 0,
            scope: SITE_LOCAL,
            join_state: FULL_MEMBER,
        }
    }

    /// Handles the SA's response to a join. `attach` puts a granted membership to use.
    pub(crate) fn answered(
        &mut self,
        now: Moment,
        ticket: Ticket,
        answer: Result<MulticastMember, JoinError>,
        attach: impl FnOnce(usize, &MulticastMember) -> Result<(), String>,
    ) -> Outcome {
        let Some(&index) = self.joins.tried(ticket.0) else {
            return Outcome::Late;
        };
        let answer = answer.and_then(|member| {
            let member = self.check(index, member)?;
            if let Err(reason) = attach(index, &member) {
                self.groups[index].member = None;
                return Err(JoinError::Unusable(reason));
            }
            Ok(member)
        });
        match answer {
            Ok(member) => {
                self.joins.finish(ticket.0, &());
                let group = &mut self.groups[index];
                group.member = Some(member);
                group.has_failed = false;
                Outcome::Joined { member }
            }
            Err(error) => {
                let rest = self.joins.try_again(now, ticket.0).unwrap_or_default();
                self.groups[index].has_failed = true;
                Outcome::Failed { index, error, rest }
            }
        }
    }

    fn check(&self, index: usize, member: MulticastMember) -> Result<MulticastMember, JoinError> {
        let Group { mgid, speed, .. } = self.groups[index];
        let as_asked = [
            ("MGID", member.mgid == mgid),
            ("port GID", member.port_gid == self.port_gid),
            ("MLID", member.mlid.is_multicast()),
            ("Q_Key", member.qkey == QKEY),
            ("partition", member.pkey.same_partition(self.pkey)),
            ("MTU", member.mtu == speed.mtu),
            ("rate", member.rate == speed.rate),
        ];
        match as_asked.into_iter().find(|(_, right)| !right) {
            Some((what, _)) => Err(JoinError::Mismatch(what)),
            None => Ok(member),
        }
    }

    /// Starts the joins whose pause is over.
    pub(crate) fn expire(&mut self, now: Moment) {
        self.joins.expire(now);
    }

    /// Joins all groups again. Granted memberships stay in use meanwhile, since the groups may still work.
    pub(crate) fn reregister(&mut self, now: Moment) {
        self.joins.close(|_| true);
        for group in &mut self.groups {
            group.has_failed = false;
        }
        self.join_all(now);
    }

    /// Returns the next deadline.
    pub(crate) fn next_deadline(&self) -> Option<Moment> {
        self.joins.next_deadline()
    }

    /// Returns what to leave on close: memberships, and joins that the SA may still grant.
    pub(crate) fn to_leave(&self) -> Vec<MulticastJoin> {
        let may_be_joined =
            |index: &usize| self.groups[*index].member.is_some() || self.joins.is_tried(index);
        (0..self.groups.len())
            .filter(may_be_joined)
            .map(|index| self.join(index))
            .collect()
    }
}

#[cfg(test)]
mod tests;
