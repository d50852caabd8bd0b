//! Lookups under any order of events: nobody is lost, nobody is answered twice, the core never
//! has too many MADs, every deadline is kept, and nothing is left behind.

use std::collections::{BTreeMap, BTreeSet};

use acm_prov_api::Status;
use acm_prov_api::address::Lid;
use acm_prov_api::cache::answer::Judged;
use acm_prov_api::cache::lookups::{
    EndpointId, Key, LookupId, LookupLimits, Lookups, Query, Replies,
};
use acm_prov_api::cache::question::{Question, Target};
use acm_prov_api::clock::Moment;
use acm_prov_api::path::PathRecord;
use acm_prov_api::sa::{SaError, SaStatus};
use proptest::prelude::*;

const LIMITS: LookupLimits = LookupLimits {
    timeout: 100,
    retries: 2,
    out: 2,
    lookups: 5,
    waiters: 12,
};

#[derive(Clone, Copy, Debug)]
enum Outcome {
    Path,
    NoRecords,
    Busy,
    Silent,
    Denied,
    NotTaken,
}

#[derive(Clone, Debug)]
enum Step {
    Ask {
        key: Key,
        stale: bool,
    },
    Prefetch(Key),
    /// Hand over what may be handed over.
    Send,
    /// The n-th MAD that is out, or one that was out before, ends.
    End {
        which: usize,
        outcome: Outcome,
        again: bool,
    },
    AnswerStale,
    Supersede,
    CloseEndpoint(EndpointId),
    Pass(u64),
}

fn key() -> impl Strategy<Value = Key> {
    (1..3u64, 1..6u16).prop_map(|(endpoint, lid)| Key {
        endpoint: EndpointId(endpoint),
        question: Question::plain(Target::Lid(Lid(lid))),
    })
}

fn step() -> impl Strategy<Value = Step> {
    let outcome = prop_oneof![
        Just(Outcome::Path),
        Just(Outcome::NoRecords),
        Just(Outcome::Busy),
        Just(Outcome::Silent),
        Just(Outcome::Denied),
        Just(Outcome::NotTaken),
    ];
    prop_oneof![
        8 => (key(), any::<bool>()).prop_map(|(key, stale)| Step::Ask { key, stale }),
        2 => key().prop_map(Step::Prefetch),
        8 => Just(Step::Send),
        6 => (0..4usize, outcome, prop::bool::weighted(0.1))
            .prop_map(|(which, outcome, again)| Step::End { which, outcome, again }),
        1 => Just(Step::AnswerStale),
        1 => Just(Step::Supersede),
        1 => (1..3u64).prop_map(|endpoint| Step::CloseEndpoint(EndpointId(endpoint))),
        8 => (0..150u64).prop_map(Step::Pass),
    ]
}

/// What a waiting request may expect.
struct Waiter {
    number: u32,
    key: Key,
    deadline: u64,
    stale: Option<PathRecord>,
}

struct World {
    lookups: Lookups<u32>,
    now: u64,
    waiting: BTreeMap<u32, Waiter>,
    out: Vec<Query>,
    ended: Vec<LookupId>,
    asked: u32,
    closed: BTreeSet<LookupId>,
    /// Queries that were out when all was superseded, and the last request until then.
    superseded: BTreeMap<LookupId, u32>,
    /// Questions that may be looked up twice since.
    forked: Vec<Key>,
}

fn path(key: Key) -> PathRecord {
    let mut path = PathRecord::default();
    if let Target::Lid(lid) = key.question.target {
        path.set_dlid(lid);
    }
    path
}

fn stale_path(key: Key) -> PathRecord {
    let mut stale = path(key);
    stale.set_preference(255);
    stale
}

impl World {
    fn moment(&self) -> Moment {
        Moment::from_millis(self.now)
    }

    /// Answers requests, each of which must be waiting.
    fn answer(
        &mut self,
        replies: Replies<u32>,
        right: impl Fn(&Waiter, Result<PathRecord, Status>) -> bool,
    ) {
        for (request, reply) in replies {
            let waiter = self
                .waiting
                .remove(&request)
                .expect("answered once, and only if waiting");
            assert!(right(&waiter, reply), "{request}: {reply:?}");
        }
    }

    fn expire(&mut self) {
        let (now, timeout) = (self.now, LIMITS.timeout);
        let replies = self.lookups.expire(self.moment());
        self.answer(replies, |waiter, reply| match (reply, waiter.stale) {
            (Ok(path), Some(stale)) => {
                path == stale && now + timeout * 2 >= waiter.deadline - timeout
            }
            (Err(Status::ETIMEDOUT), None) => now >= waiter.deadline,
            _ => false,
        });
        let overdue = self.waiting.values().find(|waiter| waiter.deadline <= now);
        assert!(overdue.is_none(), "waits past its deadline");
        let next = self.lookups.next_deadline();
        assert!(next.is_none_or(|next| next > self.moment()));
        if let Some(first) = self.waiting.values().map(|waiter| waiter.deadline).min() {
            assert!(next.is_some_and(|next| next <= Moment::from_millis(first)));
        }
    }

    fn run(&mut self, step: &Step) {
        let moment = self.moment();
        match *step {
            Step::Ask { key, stale } => {
                self.asked += 1;
                let stale = stale.then(|| stale_path(key));
                if self.lookups.ask(moment, key, self.asked, stale).is_ok() {
                    let deadline = self.now + LIMITS.patience();
                    self.waiting.insert(
                        self.asked,
                        Waiter {
                            number: self.asked,
                            key,
                            deadline,
                            stale,
                        },
                    );
                } else {
                    let full = self.lookups.len() == LIMITS.lookups
                        || self.waiting.len() == LIMITS.waiters;
                    assert!(full, "refused with room left");
                }
            }
            Step::Prefetch(key) => {
                let refused = self.lookups.prefetch(moment, key).is_err();
                assert!(!refused || self.lookups.len() == LIMITS.lookups);
            }
            Step::Send => {
                while let Some(query) = self.lookups.next_to_send(moment) {
                    let same = self
                        .out
                        .iter()
                        .find(|out| out.key == query.key && !self.closed.contains(&out.id));
                    let forked = self.forked.contains(&query.key);
                    assert!(same.is_none() || forked, "asked twice at a time");
                    self.out.push(query);
                }
            }
            Step::End {
                which,
                outcome,
                again,
            } => {
                if again && let Some(&id) = self.ended.get(which) {
                    // Unless it was sent anew, an end that comes twice does nothing.
                    if self.out.iter().all(|query| query.id != id) {
                        let judged = Judged::NoRecords;
                        assert!(self.lookups.answered(moment, id, &judged).is_none());
                    }
                } else if which < self.out.len() {
                    let query = self.out.remove(which);
                    self.ended.push(query.id);
                    self.end(query, outcome);
                }
            }
            Step::AnswerStale => {
                let replies = self.lookups.answer_stale(moment);
                self.answer(replies, |waiter, reply| {
                    waiter.stale.is_some_and(|s| reply == Ok(s))
                });
                assert!(self.waiting.values().all(|waiter| waiter.stale.is_none()));
            }
            Step::Supersede => {
                self.lookups.supersede();
                for query in &self.out {
                    self.superseded.entry(query.id).or_insert(self.asked);
                    self.forked.push(query.key);
                }
            }
            Step::CloseEndpoint(endpoint) => {
                let of_endpoint = self
                    .out
                    .iter()
                    .filter(|query| query.key.endpoint == endpoint);
                self.closed.extend(of_endpoint.map(|query| query.id));
                for request in self.lookups.close_endpoint(endpoint) {
                    let waiter = self.waiting.remove(&request).expect("given back once");
                    assert_eq!(waiter.key.endpoint, endpoint);
                }
                assert!(
                    self.waiting
                        .values()
                        .all(|waiter| waiter.key.endpoint != endpoint)
                );
            }
            Step::Pass(millis) => {
                self.now += millis;
                self.expire();
            }
        }
        assert_eq!(self.lookups.waiting(), self.waiting.len());
        assert_eq!(self.lookups.out(), self.out.len());
        assert!(self.out.len() <= LIMITS.out);
        assert!(self.lookups.len() <= LIMITS.lookups);
    }

    fn end(&mut self, query: Query, outcome: Outcome) {
        let moment = self.moment();
        let judged = match outcome {
            Outcome::Path => Judged::Path(path(query.key)),
            Outcome::NoRecords => Judged::NoRecords,
            Outcome::Busy => Judged::Again(SaError::Status(SaStatus::BUSY)),
            Outcome::Silent => Judged::Again(SaError::TimedOut),
            Outcome::Denied => Judged::Failed(SaError::Status(SaStatus::REQ_DENIED)),
            Outcome::NotTaken => {
                self.superseded.remove(&query.id);
                return self.lookups.send_failed(moment, query.id);
            }
        };
        let finished = self.lookups.answered(moment, query.id, &judged);
        let last = self.superseded.remove(&query.id).unwrap_or(u32::MAX);
        let closed = self.closed.contains(&query.id);
        let again = matches!(judged, Judged::Again(_));
        assert_eq!(finished.is_none(), closed || again);
        if let Some(finished) = finished {
            assert_eq!(finished.key, query.key);
            self.answer(finished.replies, |waiter, reply| {
                waiter.key == query.key && waiter.number <= last && reply == judged.reply()
            });
            let forked = self.forked.contains(&query.key);
            assert!(forked || self.waiting.values().all(|waiter| waiter.key != query.key));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nobody_is_lost_and_nothing_is_left(steps in prop::collection::vec(step(), 1..200), seed: u64) {
        let mut world = World {
            lookups: Lookups::new(LIMITS, seed),
            now: 0,
            waiting: BTreeMap::new(),
            out: Vec::new(),
            ended: Vec::new(),
            asked: 0,
            closed: BTreeSet::new(),
            superseded: BTreeMap::new(),
            forked: Vec::new(),
        };
        for step in &steps {
            world.run(step);
        }
        world.now += LIMITS.patience();
        world.expire();
        prop_assert!(world.waiting.is_empty());
        for query in std::mem::take(&mut world.out) {
            world.end(query, Outcome::Silent);
        }
        prop_assert!(world.lookups.is_empty());
        prop_assert_eq!(world.lookups.out(), 0);
        prop_assert_eq!(world.lookups.next_deadline(), None);
        prop_assert_eq!(world.lookups.next_to_send(world.moment()), None);
    }
}
