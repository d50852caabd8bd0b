//! The multicast groups of an endpoint: which they are, and when to join them.
//!
//! A state machine without a clock: it is told the time and what the SA said, and says what to ask.

use std::hash::{BuildHasher, RandomState};

use acm_prov_api::address::{Gid, PKey};
use acm_prov_api::clock::Moment;
use acm_prov_api::sa::{MulticastJoin, MulticastMember, SaError, SaSendError, Selected};

use crate::wire;

/// The Q_Key of the protocol.
pub(crate) const QKEY: u32 = 0x8001_0000;

/// Milliseconds after the first failed join until the next; doubled each time.
const FIRST_REST: u64 = 1_000;
/// The longest rest between two joins.
const LONGEST_REST: u64 = 60_000;

/// `UMAD_SA_MCM_ADDR_SCOPE_SITE_LOCAL`.
const SITE_LOCAL: u8 = 5;
/// `UMAD_SA_MCM_JOIN_STATE_FULL_MEMBER`.
const FULL_MEMBER: u8 = 1;

/// What a group can do, as codes of the architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Speed {
    pub rate: u8,
    pub mtu: u8,
}

/// The MGID of a partition's group. It carries the full member's P_Key whatever the membership.
pub(crate) fn mgid(pkey: PKey, speed: Speed) -> Gid {
    let [high, low] = (pkey.0 | PKey::FULL_MEMBER).to_be_bytes();
    let mut mgid = [0; 16];
    mgid[..9].copy_from_slice(&[0xff, 0x15, 0x40, 0x01, high, low, 0, speed.rate, speed.mtu]);
    Gid(mgid)
}

/// A join to be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    /// To tell what became of it.
    pub ticket: Ticket,
    pub join: MulticastJoin,
}

/// One join that was asked for; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

/// Why the endpoint is not, or not again, a member.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum JoinError {
    #[error(transparent)]
    Refused(#[from] SaError),
    #[error(transparent)]
    NotSent(#[from] SaSendError),
    #[error("the SA granted another {0} than asked for")]
    Mismatch(&'static str),
    #[error("the SA did not answer, and the query did not come back")]
    Lost,
    #[error("the group was joined, but cannot be used: {0}")]
    Unusable(String),
}

/// What an answer to a join means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A member: attach, unless attached there already.
    Joined {
        index: usize,
        member: MulticastMember,
    },
    /// Not a member; joined again after `rest` milliseconds.
    Failed {
        index: usize,
        error: JoinError,
        rest: u64,
    },
    /// The answer to a join that was given up.
    Late,
}

struct Group {
    mgid: Gid,
    speed: Speed,
    state: State,
    member: Option<MulticastMember>,
    failures: u32,
}

#[derive(Clone, Copy)]
enum State {
    /// To be joined then.
    Due(Moment),
    /// Asked; given up then.
    Asked(Ticket, Moment),
    Member,
}

/// The groups of one endpoint, the one that everybody shares first.
pub(crate) struct Groups {
    port_gid: Gid,
    pkey: PKey,
    groups: Vec<Group>,
    /// Milliseconds that an SA query takes at most.
    patience: u64,
    tickets: u64,
    jitter: RandomState,
}

impl Groups {
    /// The shared group, and the port's own unless it is the same one.
    pub(crate) fn new(
        port_gid: Gid,
        pkey: PKey,
        shared: Speed,
        own: Option<Speed>,
        patience: u64,
        now: Moment,
    ) -> Self {
        let groups = [Some(shared), own.filter(|own| *own != shared)]
            .into_iter()
            .flatten()
            .map(|speed| Group {
                mgid: mgid(pkey, speed),
                speed,
                state: State::Due(now),
                member: None,
                failures: 0,
            })
            .collect();
        Self {
            port_gid,
            pkey,
            groups,
            patience,
            tickets: 0,
            jitter: RandomState::new(),
        }
    }

    /// Whether address requests can be sent: the shared group is joined, and it is known whether the own one can be.
    pub(crate) fn is_ready(&self) -> bool {
        self.groups
            .iter()
            .enumerate()
            .all(|(index, group)| group.member.is_some() || (index > 0 && group.failures > 0))
    }

    /// The membership in a group.
    pub(crate) fn member(&self, index: usize) -> Option<&MulticastMember> {
        self.groups.get(index)?.member.as_ref()
    }

    /// The groups that are joined, to be named in a datagram.
    pub(crate) fn named(&self) -> wire::Groups {
        let joined: Vec<Gid> = self.joined().map(|member| member.mgid).collect();
        wire::Groups::new(&joined)
    }

    fn joined(&self) -> impl Iterator<Item = &MulticastMember> {
        self.groups.iter().filter_map(|group| group.member.as_ref())
    }

    /// Whether it is a group that is joined.
    pub(crate) fn is_joined(&self, mgid: Gid) -> bool {
        self.joined().any(|member| member.mgid == mgid)
    }

    /// The most preferred of a sender's groups that is joined here, too.
    pub(crate) fn best_of(&self, named: &wire::Groups) -> Option<usize> {
        named.as_slice().iter().rev().find_map(|mgid| {
            self.groups
                .iter()
                .position(|group| group.mgid == *mgid && group.member.is_some())
        })
    }

    /// The next join that is to be asked for now.
    pub(crate) fn next_to_ask(&mut self, now: Moment) -> Option<Ask> {
        let index = self
            .groups
            .iter()
            .position(|group| matches!(group.state, State::Due(at) if at <= now))?;
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        // Twice what the core needs to say that nobody answers: a query can wait for those before it.
        self.groups[index].state = State::Asked(
            ticket,
            now.after(self.patience.saturating_mul(2).max(1_000)),
        );
        Some(Ask {
            ticket,
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
            mtu: Some(Selected::exactly(speed.mtu)),
            rate: Some(Selected::exactly(speed.rate)),
            sl: 0,
            tclass: 0,
            flow_label: 0,
            scope: SITE_LOCAL,
            join_state: FULL_MEMBER,
        }
    }

    /// What the SA said, or that it was not asked.
    pub(crate) fn answered(
        &mut self,
        now: Moment,
        ticket: Ticket,
        answer: Result<MulticastMember, JoinError>,
    ) -> Outcome {
        let asked =
            |group: &Group| matches!(group.state, State::Asked(asked, _) if asked == ticket);
        let Some(index) = self.groups.iter().position(asked) else {
            return Outcome::Late;
        };
        match answer.and_then(|member| self.check(index, member)) {
            Ok(member) => {
                let group = &mut self.groups[index];
                group.state = State::Member;
                group.failures = 0;
                group.member = Some(member);
                Outcome::Joined { index, member }
            }
            Err(error) => self.failed(now, index, error),
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

    fn failed(&mut self, now: Moment, index: usize, error: JoinError) -> Outcome {
        let group = &mut self.groups[index];
        let rest = FIRST_REST
            .saturating_mul(1 << group.failures.min(16))
            .min(LONGEST_REST);
        group.failures = group.failures.saturating_add(1);
        // Hosts that failed together do not try again together.
        let rest = rest + self.jitter.hash_one((index, group.failures)) % (rest / 4 + 1);
        group.state = State::Due(now.after(rest));
        Outcome::Failed { index, error, rest }
    }

    /// The group was joined, but nothing can be done with it.
    pub(crate) fn unusable(&mut self, now: Moment, index: usize, reason: String) -> Outcome {
        self.groups[index].member = None;
        self.failed(now, index, JoinError::Unusable(reason))
    }

    /// Gives up joins whose answer should have been here.
    pub(crate) fn expire(&mut self, now: Moment) -> Vec<Outcome> {
        let lost = |group: &Group| matches!(group.state, State::Asked(_, until) if until <= now);
        let lost: Vec<usize> = (0..self.groups.len())
            .filter(|&index| lost(&self.groups[index]))
            .collect();
        lost.into_iter()
            .map(|index| self.failed(now, index, JoinError::Lost))
            .collect()
    }

    /// The SM has forgotten who is a member. What was granted is used until it is granted anew: the group may well work
    /// meanwhile.
    pub(crate) fn reregister(&mut self, now: Moment) {
        for group in &mut self.groups {
            group.state = State::Due(now);
            group.failures = 0;
        }
    }

    /// When something is due.
    pub(crate) fn next_deadline(&self) -> Option<Moment> {
        let of = |group: &Group| match group.state {
            State::Due(at) | State::Asked(_, at) => Some(at),
            State::Member => None,
        };
        self.groups.iter().filter_map(of).min()
    }

    /// What to take back at the end: memberships, and joins that the SA may still grant.
    pub(crate) fn to_leave(&self) -> Vec<MulticastJoin> {
        let may_be_joined =
            |group: &Group| group.member.is_some() || matches!(group.state, State::Asked(..));
        (0..self.groups.len())
            .filter(|&index| may_be_joined(&self.groups[index]))
            .map(|index| self.join(index))
            .collect()
    }
}

#[cfg(test)]
mod tests;
