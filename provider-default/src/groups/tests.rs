//! The groups with a made-up SA.

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
        let Outcome::Failed { error, .. } = groups.answered(at(1), ask.ticket, Ok(member)) else {
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
