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

    /// The SM has forgotten who is a member. What was granted holds until it is granted anew or refused: the group may
    /// well work meanwhile.
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

    /// What to take back at the end.
    pub(crate) fn to_leave(&self) -> Vec<MulticastJoin> {
        (0..self.groups.len())
            .filter(|&index| self.groups[index].member.is_some())
            .map(|index| self.join(index))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use acm_prov_api::address::Lid;
    use acm_prov_api::sa::SaStatus;

    const SHARED: Speed = Speed { rate: 3, mtu: 4 };
    const OWN: Speed = Speed { rate: 7, mtu: 5 };
    const PORT: Gid = Gid::new(0xfe80 << 48, 1);

    fn at(millis: u64) -> Moment {
        Moment::from_millis(millis)
    }

    fn groups(own: Option<Speed>) -> Groups {
        Groups::new(PORT, PKey(0x7fff), SHARED, own, 6_000, at(0))
    }

    fn granted(join: &MulticastJoin) -> MulticastMember {
        MulticastMember {
            mgid: join.mgid,
            port_gid: PORT,
            qkey: join.qkey,
            mlid: Lid(0xc001),
            mtu: join.mtu.unwrap().code,
            rate: join.rate.unwrap().code,
            packet_lifetime: 18,
            tclass: 0,
            pkey: PKey(0xffff),
            sl: 0,
            flow_label: 0,
            hop_limit: 0,
            scope: 5,
            join_state: 1,
        }
    }

    fn join_all(groups: &mut Groups, now: Moment) {
        while let Some(ask) = groups.next_to_ask(now) {
            let outcome = groups.answered(now, ask.ticket, Ok(granted(&ask.join)));
            assert!(matches!(outcome, Outcome::Joined { .. }), "{outcome:?}");
        }
    }

    /// Fault 14: the MGID carries the full-member bit, the join the P_Key as it is.
    #[test]
    fn the_mgid_has_the_full_members_pkey_the_join_the_ports() {
        let expected: Gid = "ff15:4001:ffff:3:400::".parse().unwrap();
        assert_eq!(mgid(PKey(0x7fff), SHARED), expected);
        assert_eq!(mgid(PKey(0xffff), SHARED), expected);
        let join = groups(None).next_to_ask(at(0)).unwrap().join;
        assert_eq!((join.mgid, join.pkey), (expected, Some(PKey(0x7fff))));
        assert_eq!((join.qkey, join.scope, join.join_state), (QKEY, 5, 1));
        assert_eq!(
            (join.mtu, join.rate),
            (Some(Selected::exactly(4)), Some(Selected::exactly(3)))
        );
    }

    #[test]
    fn a_second_group_only_if_the_port_is_faster() {
        assert_eq!(groups(Some(SHARED)).groups.len(), 1);
        let mut groups = groups(Some(OWN));
        assert!(!groups.is_ready());
        join_all(&mut groups, at(0));
        assert!(groups.is_ready());
        assert_eq!(
            groups.named().as_slice(),
            [mgid(PKey(0xffff), SHARED), mgid(PKey(0xffff), OWN)]
        );
        assert_eq!(groups.next_deadline(), None);
    }

    #[test]
    fn the_best_common_group_is_the_last_one_that_is_joined() {
        let mut groups = groups(Some(OWN));
        let [shared, own] = [SHARED, OWN].map(|speed| mgid(PKey(0xffff), speed));
        assert_eq!(
            groups.best_of(&wire::Groups::new(&[shared])),
            None,
            "not joined yet"
        );
        join_all(&mut groups, at(0));
        let best = |named: &[Gid]| groups.best_of(&wire::Groups::new(named));
        assert_eq!(best(&[shared, own]), Some(1));
        assert_eq!(best(&[own, shared]), Some(0));
        assert_eq!(best(&[shared, PORT]), Some(0));
        assert_eq!(best(&[PORT]), None);
        assert_eq!(best(&[]), None);
    }

    /// Fault 17: a join that is refused once.
    #[test]
    fn a_refused_join_is_tried_again_with_longer_rests() {
        let mut groups = groups(None);
        let mut now = at(0);
        let mut rests = Vec::new();
        for _ in 0..9 {
            let ask = groups.next_to_ask(now).unwrap();
            assert_eq!(groups.next_to_ask(now), None, "one at a time");
            let refused = Err(SaError::Status(SaStatus::BUSY).into());
            let Outcome::Failed { rest, .. } = groups.answered(now, ask.ticket, refused) else {
                panic!("refused");
            };
            assert_eq!(groups.next_to_ask(now), None);
            assert_eq!(groups.next_deadline(), Some(now.after(rest)));
            now = now.after(rest);
            rests.push(rest);
        }
        assert!((1_000..=1_250).contains(&rests[0]), "{rests:?}");
        assert!((4_000..=5_000).contains(&rests[2]), "{rests:?}");
        assert!((60_000..=75_000).contains(&rests[8]), "{rests:?}");
        join_all(&mut groups, now);
        assert!(groups.is_ready());
    }

    #[test]
    fn the_own_group_is_not_waited_for_for_ever() {
        let mut groups = groups(Some(OWN));
        let shared = groups.next_to_ask(at(0)).unwrap();
        let own = groups.next_to_ask(at(0)).unwrap();
        groups.answered(at(1), shared.ticket, Ok(granted(&shared.join)));
        assert!(!groups.is_ready());
        groups.answered(at(2), own.ticket, Err(SaError::TimedOut.into()));
        assert!(groups.is_ready());
        assert_eq!(groups.named().as_slice().len(), 1);
    }

    /// Fault 17: join again while a join is out. Fault 20: re-registration right after open.
    #[test]
    fn the_answer_to_a_join_from_before_a_reregistration_does_not_count() {
        let mut groups = groups(None);
        let first = groups.next_to_ask(at(0)).unwrap();
        groups.reregister(at(1));
        let second = groups.next_to_ask(at(1)).unwrap();
        assert_eq!(
            groups.answered(at(2), first.ticket, Ok(granted(&first.join))),
            Outcome::Late
        );
        assert!(!groups.is_ready());
        let outcome = groups.answered(at(3), second.ticket, Ok(granted(&second.join)));
        assert!(matches!(outcome, Outcome::Joined { index: 0, .. }));
        assert_eq!(
            groups.answered(at(4), second.ticket, Ok(granted(&second.join))),
            Outcome::Late
        );
    }

    #[test]
    fn a_reregistration_keeps_what_was_granted_until_there_is_an_answer() {
        let mut groups = groups(None);
        join_all(&mut groups, at(0));
        groups.reregister(at(10));
        assert!(groups.is_ready());
        let ask = groups.next_to_ask(at(10)).unwrap();
        let moved = MulticastMember {
            mlid: Lid(0xc007),
            ..granted(&ask.join)
        };
        assert_eq!(
            groups.answered(at(11), ask.ticket, Ok(moved)),
            Outcome::Joined {
                index: 0,
                member: moved
            }
        );
        assert_eq!(groups.member(0).unwrap().mlid, Lid(0xc007));
    }

    #[test]
    fn a_join_whose_query_never_comes_back_is_given_up() {
        let mut groups = groups(None);
        let ask = groups.next_to_ask(at(0)).unwrap();
        assert_eq!(groups.next_deadline(), Some(at(12_000)));
        assert_eq!(groups.expire(at(11_999)), []);
        assert!(matches!(
            groups.expire(at(12_000))[..],
            [Outcome::Failed {
                error: JoinError::Lost,
                ..
            }]
        ));
        assert_eq!(
            groups.answered(at(12_001), ask.ticket, Ok(granted(&ask.join))),
            Outcome::Late
        );
    }

    #[test]
    fn what_was_not_asked_for_is_not_accepted() {
        type Change = fn(&mut MulticastMember);
        let changes: [(&str, Change); 7] = [
            ("MGID", |m| m.mgid = PORT),
            ("port GID", |m| m.port_gid = Gid::ZERO),
            ("MLID", |m| m.mlid = Lid(0xbfff)),
            ("Q_Key", |m| m.qkey = 1),
            ("partition", |m| m.pkey = PKey(0x8001)),
            ("MTU", |m| m.mtu = 5),
            ("rate", |m| m.rate = 7),
        ];
        for (what, change) in changes {
            let mut groups = groups(None);
            let ask = groups.next_to_ask(at(0)).unwrap();
            let mut member = granted(&ask.join);
            change(&mut member);
            let Outcome::Failed { error, .. } = groups.answered(at(1), ask.ticket, Ok(member))
            else {
                panic!("{what}");
            };
            assert_eq!(error, JoinError::Mismatch(what));
            assert!(groups.to_leave().is_empty());
        }
    }

    #[test]
    fn a_group_that_cannot_be_used_is_joined_again() {
        let mut groups = groups(None);
        join_all(&mut groups, at(0));
        assert_eq!(groups.to_leave().len(), 1);
        let Outcome::Failed { rest, .. } = groups.unusable(at(5), 0, "no room".to_owned()) else {
            panic!("unusable");
        };
        assert!(!groups.is_ready());
        assert!(groups.next_to_ask(at(5 + rest)).is_some());
    }
}
