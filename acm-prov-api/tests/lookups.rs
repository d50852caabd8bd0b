//! Lookups under any order of events: no waiter is lost or ends twice, there are never too many outstanding tries, every
//! deadline is kept, and nothing is left over.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use acm_prov_api::clock::Moment;
use acm_prov_api::lookups::{End, Limits, Lookups, Try, Urgency, Waiter};
use proptest::prelude::*;

fn millis(time: Duration) -> u64 {
    time.as_millis().try_into().unwrap()
}

const LIMITS: Limits = Limits {
    lookups: 5,
    waiters: 12,
    tries: 2,
    try_timeout: None,
    rest: (Duration::from_millis(20), Duration::from_millis(160)),
};

/// The longest wait.
const PATIENCE: u64 = 200;

/// The key, and the try that brought the answer; 0: the answer did not come from a try.
type Answer = (u16, u64);

/// Clients that have their end.
type Ends = Arc<Mutex<Vec<(u32, End<Answer>)>>>;

struct Client {
    number: u32,
    ends: Ends,
}

impl Waiter for Client {
    type Answer = Answer;

    fn end(self, end: End<Answer>) {
        self.ends.lock().unwrap().push((self.number, end));
    }
}

#[derive(Clone, Copy, Debug)]
enum Outcome {
    Answer,
    Again,
    NotBegun,
}

#[derive(Clone, Debug)]
enum Step {
    Ask {
        key: u16,
        patience: u64,
    },
    Want {
        key: u16,
        patience: u64,
        urgency: Urgency,
    },
    /// Make all tries that may be made.
    Try,
    /// The n-th known try, or one that ended before, ends.
    End {
        which: usize,
        outcome: Outcome,
        again: bool,
    },
    FinishKey(u16),
    /// Ends the clients with this remainder modulo 3.
    EndWaiting(u32),
    /// Withdraw abandoned tries.
    TakeBack,
    Supersede,
    /// Close the keys with this remainder modulo 2.
    Close(u16),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let outcome = prop_oneof![
        Just(Outcome::Answer),
        Just(Outcome::Again),
        Just(Outcome::NotBegun),
    ];
    let urgency = prop_oneof![Just(Urgency::Usual), Just(Urgency::Background)];
    let key = 1..7u16;
    prop_oneof![
        8 => (key.clone(), 0..=PATIENCE).prop_map(|(key, patience)| Step::Ask { key, patience }),
        3 => (key.clone(), 0..=PATIENCE, urgency)
            .prop_map(|(key, patience, urgency)| Step::Want { key, patience, urgency }),
        8 => Just(Step::Try),
        6 => (0..4usize, outcome, prop::bool::weighted(0.1))
            .prop_map(|(which, outcome, again)| Step::End { which, outcome, again }),
        1 => key.clone().prop_map(Step::FinishKey),
        1 => (0..3u32).prop_map(Step::EndWaiting),
        1 => Just(Step::TakeBack),
        1 => Just(Step::Supersede),
        1 => (0..2u16).prop_map(Step::Close),
        8 => (0..100u64).prop_map(Step::Pass),
    ]
}

/// A try, seen by its caller.
#[derive(Clone, Copy)]
struct Out {
    id: u64,
    key: u16,
    /// It counts as outstanding until then.
    timeout: u64,
}

struct World {
    limits: Limits,
    lookups: Lookups<u16, Client>,
    ends: Ends,
    now: u64,
    asked: u32,
    /// The waiters: key and deadline.
    waiting: BTreeMap<u32, (u16, u64)>,
    ids: u64,
    /// Tries whose answer may still arrive.
    known: Vec<Out>,
    ended: Vec<u64>,
    /// The known tries at the last `supersede`, and the last client before it.
    superseded: BTreeMap<u64, u32>,
    /// Keys that may have two lookups since then.
    forked: BTreeSet<u16>,
    abandoned: BTreeSet<u64>,
    /// Keys with a failed try, and until when it is not repeated.
    resting: BTreeMap<u16, u64>,
}

impl World {
    fn new(try_timeout: Option<u64>, seed: u64) -> Self {
        let limits = Limits {
            try_timeout: try_timeout.map(Duration::from_millis),
            ..LIMITS
        };
        Self {
            limits,
            lookups: Lookups::new(limits, None, seed),
            ends: Arc::default(),
            now: 0,
            asked: 0,
            waiting: BTreeMap::new(),
            ids: 0,
            known: Vec::new(),
            ended: Vec::new(),
            superseded: BTreeMap::new(),
            forked: BTreeSet::new(),
            abandoned: BTreeSet::new(),
            resting: BTreeMap::new(),
        }
    }

    fn moment(&self) -> Moment {
        Moment::from_millis(self.now)
    }

    fn later(&self, millis: u64) -> Moment {
        Moment::from_millis(self.now + millis)
    }

    /// Checks that each client with an end was waiting, and that the end is possible now.
    fn check_ends(&mut self, may_come: impl Fn(u32, u16, u64, End<Answer>) -> bool) {
        drop(self.lookups.take_replies());
        for (client, end) in std::mem::take(&mut *self.ends.lock().unwrap()) {
            let waited = self.waiting.remove(&client);
            let (key, deadline) = waited.expect("one end, and only who waits");
            assert!(may_come(client, key, deadline, end), "{client}: {end:?}");
        }
    }

    fn expire(&mut self) {
        let now = self.now;
        self.lookups.expire(self.moment());
        self.check_ends(|_, _, deadline, end| end == End::Expired && deadline <= now);
        let overdue = self.waiting.values().find(|(_, deadline)| *deadline <= now);
        assert_eq!(overdue, None, "a client waits past its deadline");
        let next = self.lookups.next_deadline();
        assert!(next.is_none_or(|next| next > self.moment()));
        if let Some(first) = self.waiting.values().map(|(_, deadline)| *deadline).min() {
            assert!(next.is_some_and(|next| next <= Moment::from_millis(first)));
        }
    }

    fn make_tries(&mut self) {
        loop {
            let ids = &mut self.ids;
            let new_id = || {
                *ids += 1;
                *ids
            };
            let Some(Try {
                id, key, is_first, ..
            }) = self.lookups.next_try(Moment::from_millis(self.now), new_id)
            else {
                break;
            };
            let before = self.known.iter().position(|known| known.id == id);
            if let Some(before) = before {
                let before = self.known.remove(before);
                assert!(!is_first && before.key == key && before.timeout <= self.now);
            }
            let mut others = self.known.iter().filter(|other| other.key == key);
            assert!(
                !self.lookups.is_current(id) || others.all(|o| !self.lookups.is_current(o.id)),
                "tried twice at a time"
            );
            let timeout = self.limits.try_timeout.map_or(u64::MAX, millis);
            let timeout = self.now.saturating_add(timeout);
            self.known.push(Out { id, key, timeout });
        }
        let has_its_try = |key: &u16| {
            let is_resting = self.resting.get(key).is_some_and(|until| *until > self.now);
            let is_superseded = self.forked.contains(key);
            self.lookups.is_tried(key) || is_resting || is_superseded
        };
        let all_tried = self.waiting.values().all(|(key, _)| has_its_try(key));
        assert!(
            self.is_out() == self.limits.tries || all_tried,
            "nobody tries it"
        );
    }

    /// Whether a try counts as outstanding.
    fn is_out(&self) -> usize {
        let is_out = |known: &&Out| known.timeout > self.now;
        self.known.iter().filter(is_out).count()
    }

    fn end(&mut self, Out { id, key, .. }: Out, outcome: Outcome) {
        let now = self.moment();
        self.ended.push(id);
        let was_current = self.lookups.is_current(id);
        match outcome {
            Outcome::Answer => {
                assert_eq!(self.lookups.finish(id, &(key, id)), Some(key));
                let last = self.superseded.get(&id).copied().unwrap_or(u32::MAX);
                self.check_ends(|client, waited_for, _, end| {
                    waited_for == key && client <= last && end == End::Answer((key, id))
                });
                let all_answered = self.waiting.values().all(|(other, _)| *other != key);
                let is_one_of_two = !was_current || self.forked.contains(&key);
                assert!(
                    all_answered || is_one_of_two,
                    "an answer that some do not get"
                );
            }
            Outcome::Again => {
                let rest = self.lookups.try_again(now, id).expect("a known try");
                let rest = millis(rest);
                assert!((1..=millis(self.limits.rest.1)).contains(&rest), "{rest}");
                let until = self.resting.entry(key).or_default();
                *until = (*until).max(self.now + rest);
            }
            Outcome::NotBegun => self.lookups.not_begun(now, id),
        }
        assert_eq!(self.lookups.tried(id), None);
    }

    fn run(&mut self, step: &Step) {
        let now = self.moment();
        match *step {
            Step::Ask { key, patience } => {
                self.asked += 1;
                let client = Client {
                    number: self.asked,
                    ends: Arc::clone(&self.ends),
                };
                let has_room = (self.lookups.is_looked_up(&key)
                    || self.lookups.len() < self.limits.lookups)
                    && self.waiting.len() < self.limits.waiters;
                let deadline = self.later(patience);
                let waits = self.lookups.ask(now, key, client, deadline);
                assert_eq!(waits, has_room);
                self.waiting.insert(self.asked, (key, self.now + patience));
                self.check_ends(|_, _, _, end| end == End::Full);
                assert_eq!(self.waiting.contains_key(&self.asked), waits);
            }
            Step::Want {
                key,
                patience,
                urgency,
            } => {
                let has_room =
                    self.lookups.is_looked_up(&key) || self.lookups.len() < self.limits.lookups;
                let until = self.later(patience);
                assert_eq!(self.lookups.want(now, key, until, urgency), has_room);
            }
            Step::Try => self.make_tries(),
            Step::End {
                which,
                outcome,
                again,
            } => {
                if again && let Some(&id) = self.ended.get(which) {
                    // A second end of a try has no effect.
                    assert_eq!(self.lookups.finish(id, &(0, id)), None);
                    assert_eq!(self.lookups.try_again(now, id), None);
                    self.lookups.not_begun(now, id);
                } else if which < self.known.len() {
                    let known = self.known.remove(which);
                    self.end(known, outcome);
                }
            }
            Step::FinishKey(key) => {
                self.lookups.finish_key(&key, &(key, 0));
                self.check_ends(|_, waited_for, _, end| {
                    waited_for == key && end == End::Answer((key, 0))
                });
                assert!(!self.lookups.is_looked_up(&key));
            }
            Step::EndWaiting(rest) => {
                let is_meant = |client: &Client| client.number % 3 == rest;
                self.lookups.end_waiting(now, &End::Closed, is_meant);
                self.check_ends(|client, _, _, end| client % 3 == rest && end == End::Closed);
                assert!(self.waiting.keys().all(|client| client % 3 != rest));
            }
            Step::TakeBack => {
                for id in std::mem::take(&mut self.abandoned) {
                    self.lookups.not_begun(now, id);
                }
            }
            Step::Supersede => {
                for known in &self.known {
                    self.superseded.entry(known.id).or_insert(self.asked);
                    self.forked.insert(known.key);
                }
                self.lookups.supersede();
                let is_current = |known: &Out| self.lookups.is_current(known.id);
                assert!(!self.known.iter().any(is_current));
            }
            Step::Close(rest) => {
                self.lookups.close(|key| key % 2 == rest);
                self.check_ends(|_, key, _, end| key % 2 == rest && end == End::Closed);
                assert!(self.waiting.values().all(|(key, _)| key % 2 != rest));
                assert!(!self.known.iter().any(|known| {
                    known.key % 2 == rest && self.lookups.tried(known.id).is_some()
                }));
            }
            Step::Pass(millis) => {
                self.now += millis;
                self.expire();
            }
        }
        self.abandoned.extend(self.lookups.take_abandoned());
        let lookups = &self.lookups;
        self.known.retain(|known| {
            let looked_up = lookups.tried(known.id);
            assert!(looked_up.is_none_or(|key| *key == known.key));
            looked_up.is_some()
        });
        assert_eq!(self.lookups.tries().count(), self.known.len());
        assert_eq!(self.lookups.waiting(), self.waiting.len());
        assert!(self.lookups.len() <= self.limits.lookups);
        assert!(self.is_out() <= self.limits.tries);
        assert!(!self.lookups.has_news());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_waiter_is_lost_and_nothing_is_left(
        steps in prop::collection::vec(step(), 1..200),
        try_timeout in prop_oneof![Just(None), (1..100u64).prop_map(Some)],
        seed: u64,
    ) {
        let mut world = World::new(try_timeout, seed);
        for step in &steps {
            world.run(step);
        }
        world.run(&Step::Pass(PATIENCE));
        prop_assert!(world.waiting.is_empty());
        // Tries still outstanding are abandoned, and the caller has got them as such.
        prop_assert!(world.known.iter().all(|known| world.abandoned.contains(&known.id)));
        while let Some(known) = world.known.pop() {
            world.end(known, Outcome::Again);
        }
        prop_assert!(world.lookups.is_empty());
        prop_assert_eq!(world.lookups.next_deadline(), None);
        prop_assert_eq!(world.lookups.tries().count(), 0);
        let moment = world.moment();
        prop_assert_eq!(world.lookups.next_try(moment, || 0), None);
    }

    /// As above, when the machine is dropped in between.
    #[test]
    fn waiters_have_an_end_when_the_machine_is_dropped_midway(steps in prop::collection::vec(step(), 1..60), seed: u64) {
        let mut world = World::new(None, seed);
        for step in &steps {
            world.run(step);
        }
        let World { lookups, ends, mut waiting, .. } = world;
        drop(lookups);
        for (client, end) in ends.lock().unwrap().drain(..) {
            prop_assert!(waiting.remove(&client).is_some() && end == End::Closed);
        }
        prop_assert!(waiting.is_empty());
    }
}
