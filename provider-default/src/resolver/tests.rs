//! The resolver with simulated time.

use std::collections::HashMap;

use super::*;
use acm_prov_api::address::Name;
use acm_prov_api::lookups::End;
use acm_prov_api::sync::{Arc, Mutex};
use proptest::prelude::*;

const LIMITS: ResolverLimits = ResolverLimits {
    timeout: 100,
    retries: 2,
    out: 1,
    waiters: 8,
    addresses: 4,
    ttl: Some(1_000),
};

type Ends = Vec<(u32, End<Peer>)>;

/// A client that records its answer.
struct Client {
    number: u32,
    ends: Arc<Mutex<Ends>>,
}

impl Waiter for Client {
    type Answer = Peer;

    fn end(self, end: End<Peer>) {
        self.ends.lock().push((self.number, end));
    }
}

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

/// A resolver with numbered clients.
struct R {
    resolver: Resolver<Client>,
    ends: Arc<Mutex<Ends>>,
}

fn with(limits: ResolverLimits) -> R {
    R {
        resolver: Resolver::new(limits, None),
        ends: Arc::default(),
    }
}

fn resolver() -> R {
    with(LIMITS)
}

impl R {
    fn ask(&mut self, now: Moment, address: Address, number: u32) {
        let ends = Arc::clone(&self.ends);
        let client = Client { number, ends };
        self.resolver.ask(now, address, me(), client);
    }

    fn known(&mut self, address: &Address, now: Moment) -> Option<Peer> {
        self.resolver.known(address, now)
    }

    fn next(&mut self, now: Moment) -> Option<Request> {
        self.resolver.next_to_send(now)
    }

    #[track_caller]
    fn sent(&mut self, now: Moment) -> Request {
        self.next(now).expect("something to send")
    }

    /// Returns the clients that ended since the last call.
    fn ends(&mut self) -> Ends {
        drop(self.resolver.take_replies());
        std::mem::take(&mut *self.ends.lock())
    }

    fn expire(&mut self, now: Moment) -> Ends {
        self.resolver.expire(now);
        self.ends()
    }

    #[track_caller]
    fn answer(&mut self, now: Moment, tid: u64, from: Peer) -> Ends {
        let answered = self.resolver.answered(now, tid, from, [None, None]);
        assert_eq!(answered, Ok(()));
        self.ends()
    }

    fn claimed(&mut self, now: Moment, address: Address, from: Peer) -> Claim {
        self.resolver.claimed(now, address, from, Some(me()))
    }

    #[track_caller]
    fn is_idle(&mut self, now: Moment) {
        assert!(self.resolver.lookups.is_empty());
        assert_eq!(self.resolver.waiting(), 0);
        assert_eq!(
            (self.next(now), self.resolver.next_deadline()),
            (None, None)
        );
    }
}

#[test]
fn one_request_for_all_clients_and_the_answer_is_cached() {
    let mut r = resolver();
    for client in 0..3 {
        r.ask(at(client.into()), ip(1), client);
    }
    let request = r.sent(at(3));
    assert_eq!(
        (request.destination, request.source, request.is_first),
        (ip(1), me(), true)
    );
    assert_eq!(r.next(at(3)), None);
    assert_eq!(
        r.answer(at(5), request.tid, peer(1)),
        [0, 1, 2].map(|client| (client, End::Answer(peer(1))))
    );
    assert_eq!(r.known(&ip(1), at(6)), Some(peer(1)));
    r.is_idle(at(6));
    // Fault 31: an answer is accepted once.
    assert_eq!(
        r.resolver
            .answered(at(6), request.tid, peer(2), [None, None]),
        Err(NoAnswer::Unknown)
    );
    assert_eq!(r.known(&ip(1), at(6)), Some(peer(1)));
}

#[test]
fn names_are_one_whatever_their_case() {
    let name = |text: &str| Address::Name(Name::new(text).unwrap());
    let mut r = resolver();
    r.ask(at(0), name("Node1"), 1);
    r.ask(at(0), name("NODE1"), 2);
    let tid = r.sent(at(0)).tid;
    assert_eq!(r.answer(at(1), tid, peer(1)).len(), 2);
    assert_eq!(r.known(&name("node1"), at(1)), Some(peer(1)));
}

/// The request may come from any own address.
#[test]
fn a_lookup_is_shared_whatever_its_source() {
    let mut r = resolver();
    r.ask(at(0), ip(1), 1);
    r.resolver.prefetch(at(0), ip(1), ip(251));
    assert_eq!(r.sent(at(0)).source, me());
    assert_eq!(r.resolver.lookups.len(), 1);
}

#[test]
fn an_address_is_forgotten_in_time() {
    let mut r = resolver();
    r.ask(at(0), ip(1), 1);
    let tid = r.sent(at(0)).tid;
    r.answer(at(10), tid, peer(1));
    assert!(r.known(&ip(1), at(1_009)).is_some());
    assert!(r.known(&ip(1), at(1_010)).is_none());
    let mut r = with(ResolverLimits {
        ttl: None,
        ..LIMITS
    });
    r.claimed(at(0), ip(1), peer(1));
    assert!(r.known(&ip(1), at(u64::MAX - 1)).is_some());
}

#[test]
fn as_many_tries_as_allowed_then_the_deadline() {
    let mut r = resolver();
    r.ask(at(0), ip(1), 1);
    let first = r.sent(at(0));
    for now in [100, 200] {
        assert_eq!(r.expire(at(now - 1)), []);
        assert_eq!(r.next(at(now - 1)), None);
        assert_eq!(r.resolver.next_deadline(), Some(at(now)));
        assert_eq!(r.expire(at(now)), []);
        let again = r.sent(at(now));
        assert_eq!((again.tid, again.is_first), (first.tid, false));
    }
    assert_eq!(r.expire(at(299)), []);
    assert_eq!(r.expire(at(300)), [(1, End::Expired)]);
    r.is_idle(at(300));
    assert_eq!(
        r.resolver
            .answered(at(301), first.tid, peer(1), [None, None]),
        Err(NoAnswer::Unknown)
    );
}

#[test]
fn an_answer_to_an_earlier_try_counts() {
    let mut r = resolver();
    r.ask(at(0), ip(1), 1);
    let tid = r.sent(at(0)).tid;
    r.expire(at(100));
    assert_eq!(
        r.answer(at(101), tid, peer(1)),
        [(1, End::Answer(peer(1)))],
        "while it is queued for its second try"
    );
    assert_eq!(r.next(at(101)), None);
}

#[test]
fn a_late_client_gets_its_own_time() {
    let mut r = resolver();
    r.ask(at(0), ip(1), 1);
    r.sent(at(0));
    r.ask(at(250), ip(1), 2);
    assert_eq!(r.expire(at(300)), [(1, End::Expired)]);
    assert!(r.next(at(300)).is_some());
    assert_eq!(r.expire(at(549)), []);
    assert_eq!(r.expire(at(550)), [(2, End::Expired)]);
}

#[test]
fn a_dead_host_delays_the_others_by_one_try_only() {
    let mut r = resolver();
    r.ask(at(0), ip(1), 1);
    r.ask(at(0), ip(2), 2);
    let dead = r.sent(at(0));
    assert_eq!(r.next(at(50)), None, "resolve_depth");
    r.expire(at(100));
    let alive = r.sent(at(100));
    assert_eq!(alive.destination, ip(2));
    assert_eq!(
        r.answer(at(101), alive.tid, peer(2)),
        [(2, End::Answer(peer(2)))]
    );
    assert_eq!(r.sent(at(101)).tid, dead.tid);
}

#[test]
fn deadlines_run_before_anything_can_be_sent() {
    let mut r = resolver();
    r.ask(at(0), ip(1), 1);
    assert_eq!(r.resolver.next_deadline(), Some(at(300)));
    assert_eq!(r.expire(at(300)), [(1, End::Expired)]);
    r.is_idle(at(300));
}

#[test]
fn transaction_ids_are_random() {
    let tids: Vec<u64> = (0..2)
        .map(|_| {
            let mut r = resolver();
            r.ask(at(0), ip(1), 1);
            r.sent(at(0)).tid
        })
        .collect();
    assert_ne!(tids[0], tids[1]);
    assert!(tids.iter().any(|tid| *tid > u64::from(u32::MAX)));
}

#[test]
fn an_address_in_an_answer_must_be_one_of_the_requests() {
    let mut r = resolver();
    r.ask(at(0), ip(1), 1);
    let tid = r.sent(at(0)).tid;
    for carried in [
        [Some(ip(2)), None],
        [None, Some(ip(2))],
        [Some(ip(1)), Some(ip(2))],
    ] {
        assert_eq!(
            r.resolver.answered(at(1), tid, peer(1), carried),
            Err(NoAnswer::OtherAddress)
        );
    }
    assert_eq!((r.ends(), r.known(&ip(1), at(1))), (vec![], None));
    let both = [Some(me()), Some(ip(1))];
    assert_eq!(r.resolver.answered(at(1), tid, peer(1), both), Ok(()));
    assert_eq!(r.ends(), [(1, End::Answer(peer(1)))]);
}

#[test]
fn a_prefetch_sends_the_request() {
    let mut r = resolver();
    r.resolver.prefetch(at(0), ip(1), me());
    let tid = r.sent(at(0)).tid;
    assert_eq!(r.answer(at(1), tid, peer(1)), []);
    assert!(r.known(&ip(1), at(1)).is_some());
    r.resolver.prefetch(at(2), ip(2), me());
    r.sent(at(2));
    for now in [102, 202, 302] {
        r.expire(at(now));
        assert_eq!(r.next(at(now)).is_some(), now < 302);
    }
    r.is_idle(at(302));
}

#[test]
fn requests_of_other_nodes_are_learnt_from() {
    // Before and after our own request is sent.
    for is_sent in [false, true] {
        let mut r = resolver();
        r.ask(at(0), ip(1), 1);
        if is_sent {
            r.sent(at(0));
        }
        assert_eq!(r.claimed(at(1), ip(1), peer(1)), Claim::Learnt);
        assert_eq!(r.ends(), [(1, End::Answer(peer(1)))]);
        assert_eq!(r.known(&ip(1), at(1)), Some(peer(1)));
        r.is_idle(at(1));
    }
}

/// Fault 10: a peer with a new LID, with the same queue pair or another.
#[test]
fn a_peer_that_moved_is_known_at_its_new_place() {
    let mut r = resolver();
    r.claimed(at(0), ip(1), peer(1));
    let moved = Peer {
        lid: Lid(77),
        ..peer(1)
    };
    assert_eq!(r.claimed(at(1), ip(1), moved), Claim::Refreshed);
    assert_eq!(r.known(&ip(1), at(1)), Some(moved));
}

/// Fault 28: anyone's request overwrites any cached entry.
#[test]
fn a_claim_against_another_gid_only_makes_us_ask() {
    let mut r = resolver();
    r.claimed(at(0), ip(1), peer(1));
    assert_eq!(r.claimed(at(1), ip(1), peer(2)), Claim::Disputed);
    assert_eq!(r.known(&ip(1), at(1)), Some(peer(1)));
    let request = r.sent(at(1));
    assert_eq!(request.destination, ip(1));
    // The node that answers has it.
    r.answer(at(2), request.tid, peer(2));
    assert_eq!(r.known(&ip(1), at(2)), Some(peer(2)));
    // An endpoint without an address cannot send a request.
    let claim = r.resolver.claimed(at(3), ip(1), peer(3), None);
    assert_eq!((claim, r.next(at(3))), (Claim::Disputed, None));
}

#[test]
fn a_disputed_address_goes_behind_clients_requests() {
    let mut r = resolver();
    r.claimed(at(0), ip(1), peer(1));
    assert_eq!(r.claimed(at(1), ip(1), peer(9)), Claim::Disputed);
    r.ask(at(1), ip(7), 7);
    r.resolver.prefetch(at(1), ip(8), me());
    for client in [7, 8] {
        let request = r.sent(at(2));
        assert_eq!(request.destination, ip(client));
        r.answer(at(2), request.tid, peer(client.into()));
    }
    // After its try, it queues behind requests that came meanwhile.
    assert_eq!(r.sent(at(2)).destination, ip(1));
    r.ask(at(2), ip(6), 6);
    r.expire(at(102));
    assert_eq!(r.sent(at(102)).destination, ip(6));
}

#[test]
fn disputes_do_not_hold_clients_up() {
    let mut r = resolver();
    for n in 1..4 {
        r.claimed(at(0), ip(n), peer(n.into()));
    }
    for n in 1..4 {
        assert_eq!(r.claimed(at(1), ip(n), peer(9)), Claim::Disputed);
    }
    r.ask(at(1), ip(7), 7);
    assert_eq!(r.resolver.lookups.len(), 2, "one dispute at a time");
    for now in [1, 101, 201] {
        r.expire(at(now));
        assert_eq!(
            r.sent(at(now)).destination,
            ip(7),
            "the client's request first"
        );
    }
    assert_eq!(r.expire(at(301)), [(7, End::Expired)]);
    // The dispute's time is over too, and the next one may start.
    r.is_idle(at(301));
    assert_eq!(r.claimed(at(302), ip(2), peer(9)), Claim::Disputed);
    assert_eq!(r.sent(at(302)).destination, ip(2));
}

/// A client that needs a disputed address after it has expired waits for the dispute's request.
#[test]
fn a_client_makes_a_dispute_its_own() {
    let mut r = resolver();
    r.claimed(at(0), ip(1), peer(1));
    r.claimed(at(990), ip(1), peer(2));
    for client in [2, 1] {
        r.ask(at(1_000), ip(client), client.into());
    }
    assert_eq!(r.resolver.lookups.len(), 2);
    let request = r.sent(at(1_000));
    assert_eq!(request.destination, ip(1), "it was there first");
    assert_eq!(
        r.answer(at(1_001), request.tid, peer(2)),
        [(1, End::Answer(peer(2)))]
    );
}

#[test]
fn an_old_entry_gives_way_to_any_claim() {
    let mut r = resolver();
    r.claimed(at(0), ip(1), peer(1));
    assert_eq!(r.claimed(at(1_000), ip(1), peer(2)), Claim::Learnt);
    assert_eq!(r.known(&ip(1), at(1_001)), Some(peer(2)));
}

/// Fault 29: no bound on what others' requests leave behind.
#[test]
fn entries_from_strangers_are_bounded() {
    let mut r = resolver();
    for n in 0..=255 {
        r.claimed(at(0), ip(n), peer(n.into()));
        r.claimed(at(0), ip(n), peer(999));
    }
    assert_eq!(r.resolver.learnt.len(), LIMITS.addresses);
    assert!(r.resolver.lookups.len() <= 1);
}

#[test]
fn too_many_clients_are_refused() {
    let mut r = resolver();
    for client in 0..8 {
        r.ask(at(0), ip(client), client.into());
    }
    r.ask(at(0), ip(1), 9);
    assert_eq!(r.ends(), [(9, End::Full)]);
    r.resolver.prefetch(at(0), ip(99), me());
    assert_eq!(r.resolver.lookups.len(), 8);
    r.resolver.close();
    let mut all = r.ends();
    all.sort_unstable_by_key(|(client, _)| *client);
    assert_eq!(
        all,
        [0, 1, 2, 3, 4, 5, 6, 7].map(|client| (client, End::Closed))
    );
    r.is_idle(at(0));
}

#[test]
fn a_removed_address_is_asked_for_again() {
    let mut r = resolver();
    r.claimed(at(0), ip(1), peer(1));
    r.resolver.forget(&ip(1));
    assert_eq!(r.known(&ip(1), at(0)), None);
}

#[test]
fn after_a_reregistration_each_address_is_asked_for_again_when_it_is_used() {
    let mut r = resolver();
    r.claimed(at(0), ip(1), peer(1));
    r.claimed(at(0), ip(2), peer(2));
    r.resolver.reregister();
    assert_eq!([ip(1), ip(2)].map(|ip| r.known(&ip, at(1))), [None, None]);
    r.is_idle(at(1));
    // By a request, or by the owner's claim, which answers waiting clients.
    r.ask(at(1), ip(1), 1);
    let tid = r.sent(at(1)).tid;
    let moved = Peer {
        lid: Lid(77),
        ..peer(1)
    };
    assert_eq!(r.answer(at(2), tid, moved), [(1, End::Answer(moved))]);
    assert_eq!(r.claimed(at(2), ip(2), peer(3)), Claim::Disputed);
    r.ask(at(2), ip(2), 2);
    let moved_2 = Peer {
        lid: Lid(78),
        ..peer(2)
    };
    assert_eq!(r.claimed(at(2), ip(2), moved_2), Claim::Refreshed);
    assert_eq!(r.ends(), [(2, End::Answer(moved_2))]);
    assert_eq!(
        [ip(1), ip(2)].map(|ip| r.known(&ip, at(3))),
        [Some(moved), Some(moved_2)]
    );
}

#[derive(Clone, Debug)]
enum Step {
    Ask(u8),
    Prefetch(u8),
    Send,
    Answer(usize),
    Claimed(u8, u16),
    Reregister,
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0_u8..6).prop_map(Step::Ask),
        4 => (0_u8..6).prop_map(Step::Prefetch),
        4 => Just(Step::Send),
        4 => (0_usize..4).prop_map(Step::Answer),
        4 => (0_u8..6, 1_u16..4).prop_map(|(address, from)| Step::Claimed(address, from)),
        1 => Just(Step::Reregister),
        4 => (0_u64..150).prop_map(Step::Pass),
    ]
}

proptest! {
    /// Every client ends exactly once, in time, in every history; nothing is left over.
    #[test]
    fn every_client_has_one_end(steps in proptest::collection::vec(step(), 0..80), out in 1_usize..4) {
        let mut r = with(ResolverLimits { out, ..LIMITS });
        let (mut now, mut next) = (0, 0_u32);
        let mut deadlines: HashMap<u32, u64> = HashMap::new();
        let mut tids = Vec::new();
        for step in steps {
            match step {
                Step::Ask(address) => {
                    deadlines.insert(next, now + 300);
                    r.ask(at(now), ip(address), next);
                    next += 1;
                }
                Step::Prefetch(address) => r.resolver.prefetch(at(now), ip(address), me()),
                Step::Send => tids.extend(r.next(at(now)).map(|request| request.tid)),
                Step::Answer(nth) => if let Some(tid) = tids.iter().rev().nth(nth) {
                    let _ = r.resolver.answered(at(now), *tid, peer(1), [None, None]);
                }
                Step::Claimed(address, from) => { r.claimed(at(now), ip(address), peer(from)); }
                Step::Reregister => r.resolver.reregister(),
                Step::Pass(millis) => { now += millis; r.resolver.expire(at(now)); }
            }
            for (client, end) in r.ends() {
                let deadline = deadlines.remove(&client);
                prop_assert!(deadline.is_some(), "{} has two ends", client);
                prop_assert!(end != End::Expired || deadline <= Some(now));
            }
            prop_assert_eq!(r.resolver.waiting(), deadlines.len());
            prop_assert!(r.resolver.learnt.len() <= LIMITS.addresses);
            if let Some(first) = deadlines.values().min() {
                prop_assert!(*first > now);
                prop_assert!(r.resolver.next_deadline().is_some_and(|due| due <= at(*first)));
            }
        }
        let ends = r.expire(at(now + 300));
        prop_assert_eq!(ends.len(), deadlines.len());
        prop_assert!(r.resolver.lookups.is_empty());
        prop_assert_eq!((r.next(at(now + 300)), r.resolver.next_deadline()), (None, None));
    }
}
