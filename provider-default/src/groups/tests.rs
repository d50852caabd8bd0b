//! The groups with a simulated SA.

use super::*;
use acm_prov_api::address::Lid;
use acm_prov_api::sa::SaStatus;

const SHARED: Speed = Speed { rate: 3, mtu: 4 };
const OWN: Speed = Speed { rate: 7, mtu: 5 };
const PORT: Gid = Gid::new(0xfe80 << 48, 1);

fn millis(time: std::time::Duration) -> u64 {
    time.as_millis().try_into().unwrap()
}

fn at(millis: u64) -> Moment {
    Moment::from_millis(millis)
}

fn groups(own: Option<Speed>) -> Groups {
    Groups::new(PORT, PKey(0x7fff), SHARED, own, at(0))
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

/// The SA grants a join, and attaching succeeds.
fn answered(
    groups: &mut Groups,
    now: Moment,
    ticket: Ticket,
    answer: Result<MulticastMember, JoinError>,
) -> Outcome {
    groups.answered(now, ticket, answer, |_, _| Ok(()))
}

fn join_all(groups: &mut Groups, now: Moment) {
    while let Some(ask) = groups.next_join(now) {
        let member = granted(&ask.join);
        let outcome = answered(groups, now, ask.ticket, Ok(member));
        assert_eq!(outcome, Outcome::Joined { member });
    }
}

/// Fault 14: the MGID has the full-member bit, the join the port's own P_Key.
#[test]
fn the_mgid_has_the_full_members_pkey_the_join_the_ports() {
    let expected: Gid = "ff15:4001:ffff:3:400::".parse().unwrap();
    assert_eq!(mgid(PKey(0x7fff), SHARED), expected);
    assert_eq!(mgid(PKey(0xffff), SHARED), expected);
    let join = groups(None).next_join(at(0)).unwrap().join;
    assert_eq!((join.mgid, join.pkey), (expected, Some(PKey(0x7fff))));
    assert_eq!((join.qkey, join.scope, join.join_state), (QKEY, 5, 1));
    assert_eq!(
        (join.mtu, join.rate),
        (Some(Limit::exactly(4)), Some(Limit::exactly(3)))
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
        let ask = groups.next_join(now).unwrap();
        assert_eq!(groups.next_join(now), None, "one at a time");
        let refused = Err(SaError::Status(SaStatus::BUSY).into());
        let Outcome::Failed { rest, .. } = answered(&mut groups, now, ask.ticket, refused) else {
            panic!("refused");
        };
        let rest = millis(rest);
        assert_eq!(groups.next_join(now), None);
        assert_eq!(groups.next_deadline(), Some(now.after(rest)));
        now = now.after(rest);
        groups.expire(now);
        rests.push(rest);
    }
    assert!((500..=1_000).contains(&rests[0]), "{rests:?}");
    assert!((2_000..=4_000).contains(&rests[2]), "{rests:?}");
    assert!((30_000..=60_000).contains(&rests[8]), "{rests:?}");
    join_all(&mut groups, now);
    assert!(groups.is_ready());
}

#[test]
fn requests_do_not_wait_for_ever_for_the_own_group() {
    let mut groups = groups(Some(OWN));
    let shared = groups.next_join(at(0)).unwrap();
    let own = groups.next_join(at(0)).unwrap();
    answered(&mut groups, at(1), shared.ticket, Ok(granted(&shared.join)));
    assert!(!groups.is_ready());
    answered(
        &mut groups,
        at(2),
        own.ticket,
        Err(SaError::TimedOut.into()),
    );
    assert!(groups.is_ready());
    assert_eq!(groups.named().as_slice().len(), 1);
}

/// Fault 17: joining again while a join is in flight. Fault 20: re-registration right after open.
#[test]
fn the_answer_to_a_join_from_before_a_reregistration_does_not_count() {
    let mut groups = groups(None);
    let first = groups.next_join(at(0)).unwrap();
    groups.reregister(at(1));
    let second = groups.next_join(at(1)).unwrap();
    let member = granted(&first.join);
    let late = answered(&mut groups, at(2), first.ticket, Ok(member));
    assert_eq!(late, Outcome::Late);
    assert!(!groups.is_ready());
    let outcome = answered(&mut groups, at(3), second.ticket, Ok(member));
    assert_eq!(outcome, Outcome::Joined { member });
    let twice = answered(&mut groups, at(4), second.ticket, Ok(member));
    assert_eq!(twice, Outcome::Late);
}

#[test]
fn a_reregistration_keeps_memberships_until_the_next_response() {
    let mut groups = groups(None);
    join_all(&mut groups, at(0));
    groups.reregister(at(10));
    assert!(groups.is_ready());
    let ask = groups.next_join(at(10)).unwrap();
    let moved = MulticastMember {
        mlid: Lid(0xc007),
        ..granted(&ask.join)
    };
    assert_eq!(
        answered(&mut groups, at(11), ask.ticket, Ok(moved)),
        Outcome::Joined { member: moved }
    );
    assert_eq!(groups.member(0).unwrap().mlid, Lid(0xc007));
}

/// The SDK ends a join whose MAD the core has lost.
#[test]
fn a_join_that_times_out_is_asked_for_again() {
    let mut groups = groups(None);
    let ask = groups.next_join(at(0)).unwrap();
    assert_eq!(groups.next_deadline(), None, "the SDK keeps the time");
    let timed_out = Err(SaError::TimedOut.into());
    let Outcome::Failed { index, error, rest } =
        answered(&mut groups, at(12_000), ask.ticket, timed_out)
    else {
        panic!("failed");
    };
    assert_eq!((index, error), (0, JoinError::Refused(SaError::TimedOut)));
    let late = answered(&mut groups, at(12_001), ask.ticket, Ok(granted(&ask.join)));
    assert_eq!(late, Outcome::Late);
    let rest = millis(rest);
    groups.expire(at(12_000 + rest));
    join_all(&mut groups, at(12_000 + rest));
    assert!(groups.is_ready());
}

/// A re-registration ends the pause of failed joins.
#[test]
fn a_reregistration_ends_the_rest_after_a_failure() {
    let mut groups = groups(Some(OWN));
    for _ in 0..2 {
        let ask = groups.next_join(at(0)).unwrap();
        answered(
            &mut groups,
            at(0),
            ask.ticket,
            Err(SaError::TimedOut.into()),
        );
    }
    assert_eq!(groups.next_join(at(1)), None);
    groups.reregister(at(1));
    join_all(&mut groups, at(1));
    assert!(groups.is_ready());
    assert_eq!(
        (groups.named().as_slice().len(), groups.next_deadline()),
        (2, None)
    );
}

#[test]
fn granted_and_pending_memberships_are_left() {
    let mut groups = groups(Some(OWN));
    assert!(groups.to_leave().is_empty(), "nothing was asked for");
    let shared = groups.next_join(at(0)).unwrap();
    let own = groups.next_join(at(0)).unwrap();
    assert_eq!(groups.to_leave(), [shared.join, own.join]);
    answered(&mut groups, at(1), shared.ticket, Ok(granted(&shared.join)));
    answered(
        &mut groups,
        at(1),
        own.ticket,
        Err(SaError::TimedOut.into()),
    );
    assert_eq!(groups.to_leave(), [shared.join]);
}

#[test]
fn a_grant_that_differs_from_the_join_is_refused() {
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
        let ask = groups.next_join(at(0)).unwrap();
        let mut member = granted(&ask.join);
        change(&mut member);
        let Outcome::Failed { error, .. } =
            groups.answered(at(1), ask.ticket, Ok(member), |_, _| {
                unreachable!("it is no use")
            })
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
    groups.reregister(at(1));
    let ask = groups.next_join(at(1)).unwrap();
    let member = granted(&ask.join);
    let outcome = groups.answered(at(5), ask.ticket, Ok(member), |index, attached| {
        assert_eq!((index, attached), (0, &member));
        Err("no room".to_owned())
    });
    let Outcome::Failed { error, rest, .. } = outcome else {
        panic!("unusable");
    };
    assert_eq!(error, JoinError::Unusable("no room".to_owned()));
    assert!(!groups.is_ready());
    let rest = millis(rest);
    groups.expire(at(5 + rest));
    join_all(&mut groups, at(5 + rest));
    assert!(groups.is_ready());
}
