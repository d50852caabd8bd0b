//! The resolver with made-up time.

use super::*;
use acm_prov_api::address::Name;
use proptest::prelude::*;

const LIMITS: ResolverLimits = ResolverLimits {
    timeout: 100,
    retries: 2,
    out: 1,
    waiters: 8,
    addresses: 4,
    ttl: Some(1_000),
};

type R = Resolver<u32>;

fn at(millis: u64) -> Moment {
    Moment::from_millis(millis)
}

fn ip(last: u8) -> Address {
    Address::Ip([10, 0, 0, last].into())
}

fn me() -> Address {
    ip(250)
}

fn peer(n: u16) -> Peer {
    Peer {
        gid: Gid::new(0xfe80 << 48, n.into()),
        lid: Lid(n),
        group: 0,
    }
}

fn resolver() -> R {
    Resolver::new(LIMITS)
}

fn sent(resolver: &mut R, now: Moment) -> Request {
    resolver.next_to_send(now).expect("something to send")
}

fn answer(resolver: &mut R, now: Moment, tid: u64, from: Peer) -> Vec<u32> {
    resolver.answered(now, tid, from, [None, None]).unwrap()
}

#[test]
fn one_request_for_all_who_ask_and_the_answer_is_kept() {
    let mut r = resolver();
    for client in 0..3 {
        r.ask(at(client.into()), ip(1), me(), client).unwrap();
    }
    let request = sent(&mut r, at(3));
    assert_eq!(
        (request.destination, request.source, request.is_first),
        (ip(1), me(), true)
    );
    assert_eq!(r.next_to_send(at(3)), None);
    assert_eq!(answer(&mut r, at(5), request.tid, peer(1)), [0, 1, 2]);
    assert_eq!(r.known(&ip(1), at(6)), Some(peer(1)));
    assert_eq!((r.waiting(), r.next_deadline()), (0, None));
    // Fault 31: an answer is accepted once.
    assert_eq!(
        r.answered(at(6), request.tid, peer(2), [None, None]),
        Err(NoAnswer::Unknown)
    );
    assert_eq!(r.known(&ip(1), at(6)), Some(peer(1)));
}

#[test]
fn names_are_one_whatever_their_case() {
    let name = |text: &str| Address::Name(Name::new(text).unwrap());
    let mut r = resolver();
    r.ask(at(0), name("Node1"), me(), 1).unwrap();
    r.ask(at(0), name("NODE1"), me(), 2).unwrap();
    let tid = sent(&mut r, at(0)).tid;
    assert_eq!(answer(&mut r, at(1), tid, peer(1)), [1, 2]);
    assert_eq!(r.known(&name("node1"), at(1)), Some(peer(1)));
}

#[test]
fn an_address_is_forgotten_in_time() {
    let mut r = resolver();
    r.ask(at(0), ip(1), me(), 1).unwrap();
    let tid = sent(&mut r, at(0)).tid;
    answer(&mut r, at(10), tid, peer(1));
    assert!(r.known(&ip(1), at(1_009)).is_some());
    assert!(r.known(&ip(1), at(1_010)).is_none());
    let mut r: R = Resolver::new(ResolverLimits {
        ttl: None,
        ..LIMITS
    });
    r.heard(at(0), ip(1), peer(1), None);
    assert!(r.known(&ip(1), at(u64::MAX - 1)).is_some());
}

#[test]
fn as_many_tries_as_allowed_then_the_deadline() {
    let mut r = resolver();
    r.ask(at(0), ip(1), me(), 1).unwrap();
    let first = sent(&mut r, at(0));
    for now in [100, 200] {
        assert_eq!(r.expire(at(now - 1)), []);
        assert_eq!(r.next_to_send(at(now - 1)), None);
        assert_eq!(r.next_deadline(), Some(at(now)));
        assert_eq!(r.expire(at(now)), []);
        let again = sent(&mut r, at(now));
        assert_eq!((again.tid, again.is_first), (first.tid, false));
    }
    assert_eq!(r.expire(at(299)), []);
    assert_eq!(r.expire(at(300)), [1]);
    assert_eq!((r.next_to_send(at(300)), r.next_deadline()), (None, None));
    assert_eq!(
        r.answered(at(301), first.tid, peer(1), [None, None]),
        Err(NoAnswer::Unknown)
    );
}

#[test]
fn an_answer_to_an_earlier_try_counts() {
    let mut r = resolver();
    r.ask(at(0), ip(1), me(), 1).unwrap();
    let tid = sent(&mut r, at(0)).tid;
    r.expire(at(100));
    assert_eq!(
        answer(&mut r, at(101), tid, peer(1)),
        [1],
        "while it is queued for its second try"
    );
    assert_eq!(r.next_to_send(at(101)), None);
}

#[test]
fn a_late_client_gets_its_own_time() {
    let mut r = resolver();
    r.ask(at(0), ip(1), me(), 1).unwrap();
    sent(&mut r, at(0));
    r.ask(at(250), ip(1), me(), 2).unwrap();
    assert_eq!(r.expire(at(300)), [1]);
    assert!(r.next_to_send(at(300)).is_some());
    assert_eq!(r.expire(at(549)), []);
    assert_eq!(r.expire(at(550)), [2]);
}

#[test]
fn a_dead_host_holds_the_others_up_for_a_try_only() {
    let mut r = resolver();
    r.ask(at(0), ip(1), me(), 1).unwrap();
    r.ask(at(0), ip(2), me(), 2).unwrap();
    let dead = sent(&mut r, at(0));
    assert_eq!(r.next_to_send(at(50)), None, "resolve_depth");
    r.expire(at(100));
    let alive = sent(&mut r, at(100));
    assert_eq!(alive.destination, ip(2));
    assert_eq!(answer(&mut r, at(101), alive.tid, peer(2)), [2]);
    assert_eq!(sent(&mut r, at(101)).tid, dead.tid);
}

#[test]
fn deadlines_run_before_anything_can_be_sent() {
    let mut r = resolver();
    r.ask(at(0), ip(1), me(), 1).unwrap();
    assert_eq!(r.next_deadline(), Some(at(300)));
    assert_eq!(r.expire(at(300)), [1]);
}

#[test]
fn an_unsent_request_has_no_answer() {
    let mut r = resolver();
    r.ask(at(0), ip(1), me(), 1).unwrap();
    let tid = r.by_address[&ip(1)];
    assert_eq!(
        r.answered(at(1), tid, peer(1), [None, None]),
        Err(NoAnswer::Unknown)
    );
}

#[test]
fn transaction_ids_are_random() {
    let tids: Vec<u64> = (0..2)
        .map(|_| {
            let mut r = resolver();
            r.ask(at(0), ip(1), me(), 1).unwrap();
            sent(&mut r, at(0)).tid
        })
        .collect();
    assert_ne!(tids[0], tids[1]);
    assert!(tids.iter().any(|tid| *tid > u64::from(u32::MAX)));
}

#[test]
fn an_address_in_an_answer_must_be_one_of_the_requests() {
    let mut r = resolver();
    r.ask(at(0), ip(1), me(), 1).unwrap();
    let tid = sent(&mut r, at(0)).tid;
    for carried in [
        [Some(ip(2)), None],
        [None, Some(ip(2))],
        [Some(ip(1)), Some(ip(2))],
    ] {
        assert_eq!(
            r.answered(at(1), tid, peer(1), carried),
            Err(NoAnswer::OtherAddress)
        );
    }
    assert_eq!(
        r.answered(at(1), tid, peer(1), [Some(me()), Some(ip(1))]),
        Ok(vec![1])
    );
}

#[test]
fn who_does_not_wait_still_makes_the_request() {
    let mut r = resolver();
    r.prefetch(at(0), ip(1), me());
    let tid = sent(&mut r, at(0)).tid;
    assert_eq!(answer(&mut r, at(1), tid, peer(1)), []);
    assert!(r.known(&ip(1), at(1)).is_some());
    r.prefetch(at(2), ip(2), me());
    sent(&mut r, at(2));
    for now in [102, 202, 302] {
        r.expire(at(now));
        assert_eq!(r.next_to_send(at(now)).is_some(), now < 302);
    }
    assert_eq!(r.next_deadline(), None);
}

#[test]
fn others_requests_tell_where_they_are() {
    let mut r = resolver();
    r.ask(at(0), ip(1), me(), 1).unwrap();
    sent(&mut r, at(0));
    assert_eq!(
        r.heard(at(1), ip(1), peer(1), Some(me())),
        Heard::Learnt(vec![1])
    );
    assert_eq!(r.known(&ip(1), at(1)), Some(peer(1)));
    assert_eq!(r.next_deadline(), None);
}

/// Fault 10: a peer with a new LID, with the same queue pair or another.
#[test]
fn a_peer_that_moved_is_known_at_its_new_place() {
    let mut r = resolver();
    r.heard(at(0), ip(1), peer(1), None);
    let moved = Peer {
        lid: Lid(77),
        ..peer(1)
    };
    assert_eq!(r.heard(at(1), ip(1), moved, Some(me())), Heard::Refreshed);
    assert_eq!(r.known(&ip(1), at(1)), Some(moved));
}

/// Fault 28: anyone's request overwrites any cached entry.
#[test]
fn a_claim_against_another_gid_only_makes_us_ask() {
    let mut r = resolver();
    r.heard(at(0), ip(1), peer(1), Some(me()));
    assert_eq!(r.heard(at(1), ip(1), peer(2), Some(me())), Heard::Disputed);
    assert_eq!(r.known(&ip(1), at(1)), Some(peer(1)));
    let request = sent(&mut r, at(1));
    assert_eq!(request.destination, ip(1));
    // Whoever answers has it.
    answer(&mut r, at(2), request.tid, peer(2));
    assert_eq!(r.known(&ip(1), at(2)), Some(peer(2)));
}

#[test]
fn disputes_do_not_hold_clients_up() {
    let mut r = resolver();
    for n in 1..4 {
        r.heard(at(0), ip(n), peer(n.into()), None);
    }
    for n in 1..4 {
        assert_eq!(r.heard(at(1), ip(n), peer(9), Some(me())), Heard::Disputed);
    }
    r.ask(at(1), ip(7), me(), 7).unwrap();
    assert_eq!(
        sent(&mut r, at(1)).destination,
        ip(7),
        "the client's request first"
    );
    r.expire(at(101));
    assert_eq!(sent(&mut r, at(101)).destination, ip(7));
    assert_eq!(r.expire(at(301)), [7]);
    assert_eq!(
        r.queue.len() + r.out,
        0,
        "one dispute at a time, and it has had its time"
    );
}

#[test]
fn an_old_entry_gives_way_to_any_claim() {
    let mut r = resolver();
    r.heard(at(0), ip(1), peer(1), None);
    assert_eq!(
        r.heard(at(1_000), ip(1), peer(2), Some(me())),
        Heard::Learnt(vec![])
    );
    assert_eq!(r.known(&ip(1), at(1_001)), Some(peer(2)));
}

/// Fault 29: no bound on what others' requests leave behind.
#[test]
fn what_strangers_leave_behind_is_bounded() {
    let mut r = resolver();
    for n in 0..=255 {
        r.heard(at(0), ip(n), peer(n.into()), Some(me()));
        r.heard(at(0), ip(n), peer(999), Some(me()));
    }
    assert_eq!(r.learnt.len(), LIMITS.addresses);
    assert!(r.lookups.len() <= 1);
}

#[test]
fn too_many_clients_are_refused() {
    let mut r = resolver();
    for client in 0..8 {
        r.ask(at(0), ip(client), me(), client.into()).unwrap();
    }
    assert_eq!(r.ask(at(0), ip(1), me(), 9), Err(Full(9)));
    r.prefetch(at(0), ip(99), me());
    assert_eq!(r.lookups.len(), 8);
    let mut all = r.close();
    all.sort_unstable();
    assert_eq!(all, (0..8).collect::<Vec<u32>>());
    assert_eq!(
        (r.waiting(), r.next_deadline(), r.queue.len(), r.out),
        (0, None, 0, 0)
    );
}

#[test]
fn a_removed_address_is_asked_for_again() {
    let mut r = resolver();
    r.heard(at(0), ip(1), peer(1), None);
    r.forget(&ip(1));
    assert_eq!(r.known(&ip(1), at(0)), None);
}

#[derive(Clone, Debug)]
enum Step {
    Ask(u8),
    Prefetch(u8),
    Send,
    Answer(usize),
    Heard(u8, u16),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0_u8..6).prop_map(Step::Ask),
        (0_u8..6).prop_map(Step::Prefetch),
        Just(Step::Send),
        (0_usize..4).prop_map(Step::Answer),
        (0_u8..6, 1_u16..4).prop_map(|(address, from)| Step::Heard(address, from)),
        (0_u64..150).prop_map(Step::Pass),
    ]
}

proptest! {
    /// Every client is told exactly once, in time, whatever happens; nothing is left over.
    #[test]
    fn every_client_hears_once(steps in proptest::collection::vec(step(), 0..80), out in 1_usize..4) {
        let mut r: R = Resolver::new(ResolverLimits { out, ..LIMITS });
        let (mut now, mut next) = (0, 0_u32);
        let mut deadlines: HashMap<u32, u64> = HashMap::new();
        let mut tids = Vec::new();
        for step in steps {
            let told = match step {
                Step::Ask(address) => {
                    if r.ask(at(now), ip(address), me(), next).is_ok() {
                        deadlines.insert(next, now + 300);
                    }
                    next += 1;
                    vec![]
                }
                Step::Prefetch(address) => { r.prefetch(at(now), ip(address), me()); vec![] }
                Step::Send => { tids.extend(r.next_to_send(at(now)).map(|request| request.tid)); vec![] }
                Step::Answer(nth) => tids.iter().rev().nth(nth).copied()
                    .and_then(|tid| r.answered(at(now), tid, peer(1), [None, None]).ok()).unwrap_or_default(),
                Step::Heard(address, from) => match r.heard(at(now), ip(address), peer(from), Some(me())) {
                    Heard::Learnt(told) => told,
                    _ => vec![],
                },
                Step::Pass(millis) => { now += millis; r.expire(at(now)) }
            };
            for client in told {
                prop_assert!(deadlines.remove(&client).is_some(), "{} told twice", client);
            }
            prop_assert_eq!(r.waiting(), deadlines.len());
            prop_assert!(r.out <= out && r.learnt.len() <= LIMITS.addresses);
            prop_assert!(r.timers.len() == r.lookups.len() && r.by_address.len() == r.lookups.len());
            prop_assert!(deadlines.values().all(|deadline| r.next_deadline().is_some_and(|due| due <= at(*deadline))));
        }
        let told = r.expire(at(now + 300));
        prop_assert_eq!(told.len(), deadlines.len());
        while r.next_to_send(at(now + 300)).is_some() {}
        r.expire(at(now + 1_000));
        prop_assert_eq!((r.next_deadline(), r.lookups.len(), r.queue.len(), r.out), (None, 0, 0, 0));
    }
}
