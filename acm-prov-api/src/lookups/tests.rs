//! The machine with simulated time, and the delivery of ends.

use std::sync::mpsc;
use std::time::Duration;

use super::*;
use crate::sync::{Arc, Condvar, Mutex};
use crate::testing;

const PATIENCE: u64 = 6_000;

const LIMITS: Limits = Limits {
    lookups: 100,
    waiters: 1_022,
    tries: 2,
    try_timeout: None,
    rest: (Duration::from_millis(125), Duration::from_millis(2_000)),
};

type Ends = Arc<Mutex<Vec<(u32, End<u32>)>>>;

/// Notes its end.
struct Client {
    number: u32,
    ends: Ends,
}

impl Waiter for Client {
    type Answer = u32;

    fn end(self, end: End<u32>) {
        self.ends.lock().push((self.number, end));
    }
}

fn at(millis: u64) -> Moment {
    Moment::from_millis(millis)
}

/// Lookups of numbered keys for numbered clients.
struct Test {
    lookups: Lookups<u16, Client>,
    ends: Ends,
    ids: u64,
}

impl Test {
    fn new(limits: Limits) -> Self {
        Self {
            lookups: Lookups::new(limits, None, 7),
            ends: Ends::default(),
            ids: 0,
        }
    }

    fn client(&self, number: u32) -> Client {
        let ends = Arc::clone(&self.ends);
        Client { number, ends }
    }

    fn ask_until(&mut self, now: u64, key: u16, number: u32, deadline: u64) -> bool {
        let client = self.client(number);
        self.lookups.ask(at(now), key, client, at(deadline))
    }

    fn ask(&mut self, now: u64, key: u16, number: u32) -> bool {
        self.ask_until(now, key, number, now + PATIENCE)
    }

    fn want(&mut self, now: u64, key: u16, urgency: Urgency) -> bool {
        self.lookups.want(at(now), key, at(now + PATIENCE), urgency)
    }

    /// Makes all possible tries.
    fn tries(&mut self, now: u64) -> Vec<Try<u16>> {
        let ids = &mut self.ids;
        let mut new_id = || {
            *ids += 1;
            *ids
        };
        std::iter::from_fn(|| self.lookups.next_try(at(now), &mut new_id)).collect()
    }

    /// Makes all possible tries. Returns their keys.
    fn tried_keys(&mut self, now: u64) -> Vec<u16> {
        self.tries(now).iter().map(|next| next.key).collect()
    }

    /// Makes the only possible try.
    #[track_caller]
    fn only_try(&mut self, now: u64) -> u64 {
        let tries = self.tries(now);
        assert_eq!(tries.len(), 1, "{tries:?}");
        tries[0].id
    }

    /// Returns the ends since the last call.
    fn ends(&mut self) -> Vec<(u32, End<u32>)> {
        drop(self.lookups.take_replies());
        std::mem::take(&mut *self.ends.lock())
    }

    fn expire(&mut self, now: u64) -> Vec<(u32, End<u32>)> {
        self.lookups.expire(at(now));
        self.ends()
    }

    /// Reports the answer to a try.
    #[track_caller]
    fn finish(&mut self, id: u64, answer: u32) -> Vec<(u32, End<u32>)> {
        assert!(self.lookups.finish(id, &answer).is_some(), "{id} is known");
        self.ends()
    }

    /// Checks that no table of the machine has anything left.
    #[track_caller]
    fn is_clean(&mut self) {
        let Lookups {
            lookups,
            by_key,
            by_id,
            queue,
            timers,
            out,
            waiting,
            ..
        } = &self.lookups;
        let left = [
            lookups.len(),
            by_key.len(),
            by_id.len(),
            queue.len(),
            timers.len(),
            *out,
            *waiting,
        ];
        assert_eq!(left, [0; 7]);
        assert_eq!(self.lookups.next_deadline(), None);
    }
}

#[test]
fn a_lookup_is_tried_once_and_answers_all_waiters() {
    let mut test = Test::new(LIMITS);
    for client in 0..200 {
        assert!(test.ask(client.into(), 1, client));
    }
    let tries = test.tries(200);
    assert_eq!(tries.len(), 1);
    assert_eq!((tries[0].key, tries[0].is_first), (1, true));
    test.ask(300, 1, 200);
    assert_eq!(test.tries(300), []);
    assert_eq!((test.lookups.waiting(), test.lookups.len()), (201, 1));

    let ends = test.finish(tries[0].id, 9);
    let expected: Vec<_> = (0..=200).map(|client| (client, End::Answer(9))).collect();
    assert_eq!(ends, expected);
    test.is_clean();
}

#[test]
fn keys_have_separate_lookups() {
    let mut test = Test::new(Limits {
        tries: 10,
        ..LIMITS
    });
    for key in 1..=3 {
        test.ask(0, key, key.into());
    }
    let tries = test.tries(0);
    assert_eq!(
        tries.iter().map(|next| next.key).collect::<Vec<_>>(),
        [1, 2, 3]
    );
    assert_eq!(test.finish(tries[1].id, 9), [(2, End::Answer(9))]);
    assert_eq!((test.lookups.len(), test.lookups.waiting()), (2, 2));
}

#[test]
fn no_more_tries_out_than_the_limit_and_the_oldest_first() {
    let mut test = Test::new(LIMITS);
    for key in 1..=5 {
        test.ask(0, key, key.into());
    }
    let first = test.tries(0);
    assert_eq!(
        first.iter().map(|next| next.key).collect::<Vec<_>>(),
        [1, 2]
    );
    test.finish(first[1].id, 9);
    assert_eq!(test.tried_keys(1), [3]);
}

#[test]
fn a_deadline_is_kept_although_the_try_never_ends() {
    let mut test = Test::new(LIMITS);
    test.ask(0, 1, 1);
    let id = test.only_try(0);
    test.ask(1_000, 1, 2);
    assert_eq!(test.lookups.next_deadline(), Some(at(PATIENCE)));
    assert_eq!(test.expire(PATIENCE - 1), []);
    assert_eq!(test.expire(PATIENCE), [(1, End::Expired)]);
    assert_eq!(test.lookups.next_deadline(), Some(at(1_000 + PATIENCE)));
    assert_eq!(test.expire(1_000 + PATIENCE), [(2, End::Expired)]);
    assert_eq!(test.lookups.next_deadline(), None);
    // The try is still outstanding, and a new waiter waits for its answer.
    assert!(test.lookups.is_tried(&1));
    test.ask(8_000, 1, 3);
    assert_eq!(test.tries(8_000), []);
    assert_eq!(test.finish(id, 9), [(3, End::Answer(9))]);
    test.is_clean();
}

#[test]
fn each_waiter_has_its_own_deadline_in_any_order() {
    let mut test = Test::new(LIMITS);
    for (client, deadline) in [(1, 300), (2, 100), (3, 200), (4, 100)] {
        test.ask_until(0, 1, client, deadline);
    }
    for (now, ends) in [
        (100, vec![(2, End::Expired), (4, End::Expired)]),
        (200, vec![(3, End::Expired)]),
        (300, vec![(1, End::Expired)]),
    ] {
        assert_eq!(test.lookups.next_deadline(), Some(at(now)));
        assert_eq!(test.expire(now - 1), []);
        assert_eq!(test.expire(now), ends);
    }
    test.is_clean();
}

#[test]
fn a_deadline_that_has_passed_already_is_due_at_once() {
    let mut test = Test::new(LIMITS);
    test.ask_until(100, 1, 1, 50);
    assert_eq!(test.expire(100), [(1, End::Expired)]);
    test.is_clean();
}

#[test]
fn a_try_without_waiters_counts_until_it_ends() {
    let mut test = Test::new(LIMITS);
    for key in 1..=3 {
        test.ask(0, key, key.into());
    }
    let tries = test.tries(0);
    assert_eq!(test.expire(PATIENCE).len(), 3);
    // The lookup that was never tried is dropped.
    assert_eq!(test.lookups.len(), 2);
    test.ask(7_000, 4, 4);
    assert_eq!(test.tries(7_000), []);
    test.lookups.try_again(at(7_001), tries[0].id);
    assert_eq!(test.tried_keys(7_001), [4]);
    // A late answer has no waiters but is accepted.
    assert_eq!(test.lookups.finish(tries[1].id, &9), Some(2));
    assert_eq!(test.ends(), []);
}

#[test]
fn abandoned_tries_are_reported_and_can_be_withdrawn() {
    let mut test = Test::new(LIMITS);
    for key in 1..=3 {
        test.ask(0, key, key.into());
    }
    let tries = test.tries(0);
    assert!(!test.lookups.has_news());
    test.expire(PATIENCE);
    assert!(test.lookups.has_news());
    let mut abandoned = test.lookups.take_abandoned();
    abandoned.sort_unstable();
    assert_eq!(abandoned, [tries[0].id, tries[1].id]);
    assert!(!test.lookups.has_news());
    // Until it is withdrawn, it answers new waiters.
    test.ask(PATIENCE, 2, 9);
    for id in abandoned {
        test.lookups.not_begun(at(PATIENCE), id);
    }
    // One is gone; the other is wanted again and is tried.
    assert_eq!(
        (test.lookups.len(), test.lookups.is_looked_up(&1)),
        (1, false)
    );
    let again = test.tries(PATIENCE);
    assert_eq!((again[0].key, again.len()), (2, 1));
    assert_ne!(again[0].id, tries[1].id);
    assert_eq!(test.lookups.finish(tries[1].id, &8), None);
    assert_eq!(test.finish(again[0].id, 7), [(9, End::Answer(7))]);
    test.is_clean();
}

#[test]
fn a_withdrawn_try_is_queued_again_without_a_rest() {
    let mut test = Test::new(Limits { tries: 1, ..LIMITS });
    test.ask(0, 1, 1);
    test.ask(0, 2, 2);
    let id = test.only_try(0);
    test.lookups.not_begun(at(1), id);
    let next = test.tries(1);
    assert_eq!((next[0].key, next.len()), (2, 1));
    test.finish(next[0].id, 9);
    assert_eq!(test.tried_keys(1), [1]);
}

#[test]
fn a_queued_lookup_without_waiters_is_dropped() {
    let mut test = Test::new(Limits { tries: 1, ..LIMITS });
    test.ask(0, 1, 1);
    let out = test.only_try(0);
    for round in 0..1_000 {
        let now = round * 10_000;
        test.ask(now, 2, 2);
        test.expire(now + PATIENCE);
        assert_eq!((test.lookups.len(), test.lookups.queue.len()), (1, 0));
    }
    test.finish(out, 9);
    assert_eq!(test.tries(u64::MAX / 2), []);
    test.is_clean();
}

#[test]
fn a_failed_try_is_retried_with_rests_until_the_deadline() {
    let mut test = Test::new(LIMITS);
    test.ask(0, 1, 1);
    let (mut now, mut rests, mut ends) = (0, Vec::new(), Vec::new());
    // Bounded, in case there is never an end.
    for _ in 0..100 {
        for next in test.tries(now) {
            assert_eq!(next.is_first, rests.is_empty());
            rests.push(test.lookups.try_again(at(now), next.id).expect("known"));
            assert!(!test.lookups.is_tried(&1) && test.lookups.is_looked_up(&1));
        }
        assert_eq!(test.tries(now), [], "no rest at {now}");
        let Some(due) = test.lookups.next_deadline() else {
            break;
        };
        now = due.since(at(0));
        ends.extend(test.expire(now));
    }
    assert_eq!((ends, now), (vec![(1, End::Expired)], PATIENCE));
    let mut longest = 125;
    for rest in &rests {
        assert!(
            (longest / 2..=longest).contains(&millis(*rest)),
            "{rests:?}"
        );
        longest = (longest * 2).min(2_000);
    }
    // The rests add up to the patience.
    assert!((5..=12).contains(&rests.len()), "{rests:?}");
    test.is_clean();
}

#[test]
fn a_new_lookup_begins_with_the_first_rest() {
    let mut test = Test::new(LIMITS);
    for round in 0..20 {
        let now = round * 100_000;
        test.ask(now, 1, 1);
        let id = test.only_try(now);
        let rest = millis(test.lookups.try_again(at(now), id).unwrap());
        assert!((62..=125).contains(&rest), "{rest}");
        test.expire(now + rest);
        let id = test.only_try(now + rest);
        test.finish(id, 9);
    }
}

#[test]
fn a_failed_try_without_waiters_is_not_retried() {
    let mut test = Test::new(LIMITS);
    test.ask(0, 1, 1);
    let id = test.only_try(0);
    test.expire(PATIENCE);
    test.lookups.try_again(at(PATIENCE), id);
    test.is_clean();
    assert_eq!(test.lookups.try_again(at(PATIENCE), id), None);
}

#[test]
fn a_wanted_key_is_looked_up_without_waiters() {
    let mut test = Test::new(LIMITS);
    assert!(test.want(0, 1, Urgency::Usual));
    assert!(test.want(10, 1, Urgency::Usual));
    let id = test.only_try(10);
    assert_eq!(test.finish(id, 9), []);
    test.is_clean();

    // Not forever, and not shorter than the longest request.
    let mut test = Test::new(Limits { tries: 0, ..LIMITS });
    test.want(10, 1, Urgency::Usual);
    test.lookups.want(at(10), 1, at(20), Urgency::Usual);
    assert_eq!(test.lookups.next_deadline(), Some(at(10 + PATIENCE)));
    test.expire(9 + PATIENCE);
    assert_eq!(test.lookups.len(), 1);
    test.expire(10 + PATIENCE);
    test.is_clean();
}

#[test]
fn a_key_wanted_forever_has_no_deadline() {
    let mut test = Test::new(LIMITS);
    test.lookups.want(at(0), 1, Moment::NEVER, Urgency::Usual);
    let id = test.only_try(0);
    assert_eq!(test.lookups.next_deadline(), None);
    test.expire(u64::MAX - 1);
    assert!(test.lookups.is_tried(&1));
    let rest = test.lookups.try_again(at(0), id).map(millis);
    assert!(rest.is_some() && test.lookups.is_looked_up(&1));
}

#[test]
fn a_key_wanted_until_now_is_not_looked_up() {
    let mut test = Test::new(LIMITS);
    test.lookups.want(at(100), 1, at(100), Urgency::Usual);
    test.is_clean();
    assert_eq!(test.tries(100), []);
}

#[test]
fn too_many_lookups_or_waiters_are_refused() {
    let mut test = Test::new(Limits {
        lookups: 2,
        waiters: 3,
        ..LIMITS
    });
    assert!(test.ask(0, 1, 1));
    assert!(test.want(0, 2, Urgency::Usual));
    assert!(!test.ask(0, 3, 3));
    assert!(!test.want(0, 3, Urgency::Usual));
    assert_eq!(test.ends(), [(3, End::Full)]);
    assert!(test.ask(0, 1, 4) && test.ask(0, 2, 5));
    assert!(!test.ask(0, 2, 6));
    assert_eq!(test.ends(), [(6, End::Full)]);
    assert_eq!((test.lookups.waiting(), test.lookups.len()), (3, 2));
    // A waiter that ends makes room.
    test.expire(PATIENCE);
    assert!(test.ask(PATIENCE, 3, 7));
}

#[test]
fn a_close_ends_its_lookups_and_no_others() {
    let mut test = Test::new(LIMITS);
    for key in [1, 2, 3, 11] {
        test.ask(0, key, key.into());
    }
    let tries = test.tries(0);
    test.lookups.close(|key| *key < 10);
    let mut ends = test.ends();
    ends.sort_unstable_by_key(|(client, _)| *client);
    assert_eq!(ends, [1, 2, 3].map(|client| (client, End::Closed)));
    assert_eq!((test.lookups.len(), test.lookups.waiting()), (1, 1));
    // The old answers reach no waiter, not even a new one for the same key.
    test.ask(2, 1, 5);
    for old in tries {
        assert!(test.lookups.tried(old.id).is_none());
        assert_eq!(test.lookups.finish(old.id, &9), None);
    }
    assert_eq!(test.ends(), []);
    assert_eq!(test.tried_keys(2), [11, 1]);
    test.lookups.close(|_| true);
    assert_eq!(test.ends().len(), 2);
    test.is_clean();
}

#[test]
fn an_answer_that_comes_twice_or_for_nothing_is_ignored() {
    let mut test = Test::new(LIMITS);
    test.ask(0, 1, 1);
    let id = test.only_try(0);
    test.lookups.try_again(at(1), id);
    // It rests now: nothing is outstanding.
    for id in [id, 99] {
        assert_eq!(test.lookups.finish(id, &9), None);
        assert_eq!(test.lookups.try_again(at(1), id), None);
        test.lookups.not_begun(at(1), id);
    }
    assert_eq!(test.tries(1), []);
    assert_eq!((test.ends(), test.lookups.waiting()), (vec![], 1));
}

#[test]
fn a_clock_that_goes_back_does_no_harm() {
    let mut test = Test::new(LIMITS);
    test.ask(1_000, 1, 1);
    test.ask(0, 1, 2);
    assert_eq!(test.expire(500), []);
    // Rests are counted from the latest time.
    let id = test.only_try(500);
    let rest = millis(test.lookups.try_again(at(0), id).unwrap());
    assert_eq!(test.lookups.next_deadline(), Some(at(1_000 + rest)));
    assert_eq!(test.expire(0), []);
    assert_eq!(test.tries(0), []);
    assert_eq!(
        test.expire(1_000 + PATIENCE),
        [(2, End::Expired), (1, End::Expired)]
    );
    test.is_clean();
}

#[test]
fn an_answer_may_come_without_a_try() {
    let mut test = Test::new(LIMITS);
    for key in 1..=3 {
        test.ask(0, key, key.into());
    }
    let tries = test.tries(0);
    test.lookups.finish_key(&4, &9);
    // Tried, and not tried yet.
    test.lookups.finish_key(&1, &8);
    test.lookups.finish_key(&3, &7);
    assert_eq!(test.ends(), [(1, End::Answer(8)), (3, End::Answer(7))]);
    assert_eq!(test.lookups.finish(tries[0].id, &6), None);
    assert_eq!(test.tries(0), []);
    assert_eq!(test.finish(tries[1].id, 5), [(2, End::Answer(5))]);
    test.is_clean();
}

#[test]
fn a_waiter_after_a_supersede_gets_no_earlier_answer() {
    let mut test = Test::new(LIMITS);
    test.ask(0, 1, 1);
    test.ask(0, 2, 2);
    let before = test.tries(0);
    assert!(test.lookups.is_current(before[0].id));
    test.lookups.supersede();
    assert!(!test.lookups.is_current(before[0].id) && !test.lookups.is_looked_up(&1));
    test.ask(1, 1, 3);
    assert_eq!(test.finish(before[0].id, 8), [(1, End::Answer(8))]);
    let after = test.only_try(2);
    assert!(test.lookups.is_current(after));
    // A lookup that is tried anew answers all waiters again.
    test.lookups.try_again(at(3), before[1].id);
    test.ask(4, 2, 4);
    assert_eq!((test.lookups.len(), test.lookups.waiting()), (2, 3));
    assert_eq!(test.finish(after, 9), [(3, End::Answer(9))]);
    test.expire(3 + 125);
    let anew = test.only_try(3 + 125);
    assert!(test.lookups.is_current(anew));
    assert_eq!(
        test.finish(anew, 7),
        [(2, End::Answer(7)), (4, End::Answer(7))]
    );
    test.is_clean();
}

#[test]
fn a_supersede_does_not_affect_untried_lookups() {
    let mut test = Test::new(Limits { tries: 1, ..LIMITS });
    test.ask(0, 1, 1);
    test.ask(0, 2, 2);
    let out = test.only_try(0);
    test.lookups.supersede();
    test.ask(1, 2, 3);
    assert_eq!(test.lookups.len(), 2);
    test.finish(out, 8);
    let id = test.only_try(1);
    assert_eq!(
        test.finish(id, 9),
        [(2, End::Answer(9)), (3, End::Answer(9))]
    );
}

#[test]
fn superseded_and_current_lookups_of_a_key_end_each_by_themselves() {
    let mut test = Test::new(LIMITS);
    test.ask(0, 1, 1);
    let old = test.only_try(0);
    test.lookups.supersede();
    test.ask(1, 1, 2);
    let new = test.only_try(1);
    test.lookups.try_again(at(1), old);
    assert!(test.lookups.is_current(new));
    assert_eq!(test.finish(new, 9), [(2, End::Answer(9))]);
    assert!(!test.lookups.is_looked_up(&1));
    // There is no newer lookup, so the old one becomes current again when it is tried anew.
    test.expire(1 + 125);
    let anew = test.only_try(1 + 125);
    assert!(test.lookups.is_current(anew) && test.lookups.is_looked_up(&1));
    assert_eq!(test.finish(anew, 8), [(1, End::Answer(8))]);
    test.is_clean();
}

const TIMEOUTS: Limits = Limits {
    tries: 1,
    try_timeout: Some(Duration::from_millis(100)),
    ..LIMITS
};

#[test]
fn a_try_that_times_out_is_made_again_behind_the_others_under_its_id() {
    let mut test = Test::new(TIMEOUTS);
    for key in 1..=2 {
        test.ask(0, key, key.into());
    }
    let first = test.tries(0);
    assert_eq!(
        (first.len(), test.lookups.next_deadline()),
        (1, Some(at(100)))
    );
    test.expire(99);
    assert_eq!(test.tries(99), []);
    test.expire(100);
    assert!(!test.lookups.is_tried(&1));
    let second = test.tries(100);
    assert_eq!((second[0].key, second.len()), (2, 1));
    test.expire(200);
    let again = test.tries(200);
    assert_eq!(
        again,
        [Try {
            is_first: false,
            ..first[0]
        }]
    );
    // The other one is queued, and the answer to its earlier try counts.
    assert_eq!(test.lookups.tried(second[0].id), Some(&2));
    assert_eq!(test.finish(second[0].id, 9), [(2, End::Answer(9))]);
    assert_eq!(test.finish(again[0].id, 8), [(1, End::Answer(8))]);
    test.is_clean();
}

#[test]
fn a_timed_out_try_without_waiters_is_dropped_with_its_id() {
    let mut test = Test::new(TIMEOUTS);
    test.ask_until(0, 1, 1, 50);
    let id = test.only_try(0);
    assert_eq!(test.expire(50), [(1, End::Expired)]);
    test.is_clean();
    assert!(test.lookups.take_abandoned().is_empty());
    assert_eq!(test.lookups.finish(id, &9), None);
}

#[test]
fn a_try_that_timed_out_may_still_fail() {
    for fail in [true, false] {
        let mut test = Test::new(TIMEOUTS);
        test.ask(0, 1, 1);
        let id = test.only_try(0);
        test.expire(100);
        // It is queued now.
        if fail {
            let rest = millis(test.lookups.try_again(at(100), id).unwrap());
            assert_eq!(test.tries(100), [], "it rests");
            test.expire(100 + rest);
        } else {
            test.lookups.not_begun(at(100), id);
        }
        let again = test.tries(300);
        assert_eq!(again.len(), 1, "one try at a time");
        assert_ne!(again[0].id, id);
        test.finish(again[0].id, 9);
        test.is_clean();
    }
}

#[test]
fn a_superseded_answer_does_not_end_a_lookup_that_is_tried_anew() {
    let mut test = Test::new(TIMEOUTS);
    test.ask(0, 1, 1);
    let old = test.only_try(0);
    test.lookups.supersede();
    test.expire(100);
    let anew = test.only_try(100);
    test.ask(100, 1, 2);
    assert_eq!(test.lookups.finish(old, &8), None);
    assert_eq!(
        test.finish(anew, 9),
        [(1, End::Answer(9)), (2, End::Answer(9))]
    );
    test.is_clean();
}

#[test]
fn background_lookups_go_behind_all_others() {
    let mut test = Test::new(Limits { tries: 1, ..LIMITS });
    for key in 1..=3 {
        test.want(0, key, Urgency::Background);
    }
    test.ask(0, 4, 4);
    test.want(0, 5, Urgency::Usual);
    // These have waiters now; each gets the place that it would have if it had been usual from the start.
    test.ask(0, 2, 2);
    test.want(0, 3, Urgency::Usual);
    for key in [2, 3, 4, 5, 1] {
        let next = test.tries(0);
        assert_eq!((next[0].key, next.len()), (key, 1));
        test.finish(next[0].id, 9);
    }
    test.is_clean();
}

#[test]
fn a_failed_lookup_keeps_its_urgency() {
    let mut test = Test::new(Limits { tries: 1, ..LIMITS });
    test.want(0, 1, Urgency::Background);
    let id = test.only_try(0);
    test.lookups.not_begun(at(0), id);
    test.ask(0, 2, 2);
    // A background request does not lower the urgency of a lookup with waiters.
    test.want(0, 2, Urgency::Background);
    assert_eq!(test.tried_keys(0), [2]);
}

#[test]
fn waiting_can_end_before_its_deadline() {
    let mut test = Test::new(LIMITS);
    for key in 1..=3 {
        test.ask(0, key, key.into());
        test.ask(10, key, 10 + u32::from(key));
    }
    test.ask(0, 1, 1_000);
    let tries = test.tries(0);
    test.lookups
        .end_waiting(at(20), &End::Answer(7), |client| client.number > 10);
    let mut ends = test.ends();
    ends.sort_unstable_by_key(|(client, _)| *client);
    assert_eq!(
        ends,
        [11, 12, 13, 1_000].map(|client| (client, End::Answer(7)))
    );
    assert_eq!((test.lookups.waiting(), test.lookups.len()), (3, 3));
    // The lookups go on for the others, in order of their deadlines.
    assert_eq!(test.finish(tries[0].id, 9), [(1, End::Answer(9))]);
    test.lookups.end_waiting(at(20), &End::Closed, |_| true);
    assert_eq!(test.ends().len(), 2);
    // One is outstanding for no waiter, one was not tried.
    assert_eq!(test.lookups.take_abandoned(), [tries[1].id]);
    assert_eq!(test.lookups.len(), 1);
}

#[test]
fn tries_lists_those_whose_answer_may_arrive() {
    let mut test = Test::new(LIMITS);
    for key in 1..=3 {
        test.ask(0, key, key.into());
    }
    let tries = test.tries(0);
    let mut known: Vec<u64> = test.lookups.tries().collect();
    known.sort_unstable();
    assert_eq!(known, [tries[0].id, tries[1].id]);
    assert_eq!(test.lookups.tried(tries[1].id), Some(&2));
    let state = |key| {
        let Test { lookups, .. } = &test;
        (lookups.is_looked_up(&key), lookups.is_tried(&key))
    };
    assert_eq!(
        [1, 3, 4].map(state),
        [(true, true), (true, false), (false, false)]
    );
    assert!(!test.lookups.is_empty());
}

#[test]
fn waiters_have_an_end_when_the_machine_is_dropped() {
    let mut test = Test::new(Limits {
        waiters: 2,
        ..LIMITS
    });
    for client in 1..=3 {
        test.ask(0, 1, client);
    }
    let Test { lookups, ends, .. } = test;
    drop(lookups);
    let ends = std::mem::take(&mut *ends.lock());
    assert_eq!(ends, [(3, End::Full), (1, End::Closed), (2, End::Closed)]);
}

// Delivery.

/// A lookup behind a lock that delivers.
struct State {
    lookups: Lookups<u16, Curious>,
    woken: bool,
}

impl Deliver for State {
    type Batch = Replies<Curious>;

    fn take_batch(&mut self) -> Option<Replies<Curious>> {
        let lookups = &mut self.lookups;
        lookups.has_news().then(|| lookups.take_replies())
    }
}

/// Takes the lock of its own machine, and sends the number of remaining waiters.
struct Curious {
    shared: Arc<DeliveringMutex<State>>,
    sender: mpsc::Sender<usize>,
}

impl Waiter for Curious {
    type Answer = ();

    fn end(self, _: End<()>) {
        let waiting = self.shared.lock().lookups.waiting();
        let _ = self.sender.send(waiting);
    }
}

fn shared(waiters: usize) -> Arc<DeliveringMutex<State>> {
    let limits = Limits { waiters, ..LIMITS };
    Arc::new(DeliveringMutex::new(State {
        lookups: Lookups::new(limits, None, 7),
        woken: false,
    }))
}

/// Runs `body` on its own thread, and fails if it hangs.
#[track_caller]
fn ends<R: Send + 'static>(body: impl FnOnce() -> R + Send + 'static) -> R {
    let (done, is_done) = mpsc::channel();
    let thread = std::thread::spawn(move || done.send(body()));
    let result = is_done.recv_timeout(Duration::from_secs(60));
    let result = result.expect("ends, and does not hang");
    thread.join().unwrap().unwrap();
    result
}

fn ask(state: &mut State, shared: &Arc<DeliveringMutex<State>>, sender: &mpsc::Sender<usize>) {
    let waiter = Curious {
        shared: Arc::clone(shared),
        sender: sender.clone(),
    };
    state.lookups.ask(at(0), 1, waiter, at(10));
}

#[test]
fn replies_that_an_early_return_drops_are_delivered() {
    fn returns_early(lookups: &mut Lookups<u16, Client>) -> Result<(), ()> {
        let _replies = lookups.take_replies();
        Err(())
    }
    let mut test = Test::new(LIMITS);
    test.ask(0, 1, 1);
    test.ask(0, 1, 2);
    let id = test.only_try(0);
    test.lookups.finish(id, &9);
    assert_eq!(*test.ends.lock(), [], "not yet");
    assert!(test.lookups.has_news());
    returns_early(&mut test.lookups).unwrap_err();
    assert_eq!(
        *test.ends.lock(),
        [(1, End::Answer(9)), (2, End::Answer(9))]
    );
    assert!(!test.lookups.has_news() && test.lookups.take_replies().is_empty());
}

#[test]
fn no_reply_is_delivered_while_the_lock_is_held() {
    let received = ends(|| {
        let shared = shared(10);
        let (sender, received) = mpsc::channel();
        let all_received = || received.try_iter().collect::<Vec<usize>>();
        let mut steps = Vec::new();

        let early = || -> Option<()> {
            let mut state = shared.lock();
            for _ in 0..3 {
                ask(&mut state, &shared, &sender);
            }
            state.lookups.finish_key(&1, &());
            received
                .try_recv()
                .expect_err("no waiter has its end under the lock");
            let nothing: Option<()> = None;
            nothing?;
            drop(state);
            Some(())
        };
        assert_eq!(early(), None);
        steps.push(all_received());

        ask(&mut shared.lock(), &shared, &sender);
        shared.lock().lookups.expire(at(10));
        steps.push(all_received());
        steps
    });
    assert_eq!(received, [vec![0, 0, 0], vec![0]]);
}

#[test]
fn replies_are_delivered_after_a_panic_under_the_lock() {
    let received = ends(|| {
        let shared = shared(10);
        let (sender, received) = mpsc::channel();
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut state = shared.lock();
            ask(&mut state, &shared, &sender);
            state.lookups.finish_key(&1, &());
            std::panic::resume_unwind(Box::new("under the lock"));
        }));
        assert!(outcome.is_err());
        received.try_recv()
    });
    assert_eq!(received, Ok(0));
}

#[test]
fn a_wait_delivers_before_it_sleeps() {
    let received = ends(|| {
        let shared = shared(10);
        let (sender, received) = mpsc::channel();
        let signal = Condvar::new();
        let mut state = shared.lock();
        ask(&mut state, &shared, &sender);
        state.lookups.finish_key(&1, &());
        // There is no signal: it returns because it has delivered, and holds the lock again.
        state.wait(&signal, None);
        let received = received.try_recv();
        assert!(!state.lookups.has_news());
        // There is nothing more to deliver, so it sleeps.
        state.wait(&signal, Some(Duration::from_millis(1)));
        received
    });
    assert_eq!(received, Ok(0));
}

#[test]
fn a_wait_releases_the_lock_and_ends_with_the_signal() {
    ends(|| {
        let shared = shared(10);
        let signal = Arc::new(Condvar::new());
        let mut state = shared.lock();
        let waker = std::thread::spawn({
            let (shared, signal) = (Arc::clone(&shared), Arc::clone(&signal));
            move || {
                shared.lock().woken = true;
                signal.notify_all();
            }
        });
        while !state.woken {
            state.wait(&signal, None);
        }
        drop(state);
        waker.join().unwrap();
    });
}

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Panics if it is number 2.
struct Fragile(Client);

impl Waiter for Fragile {
    type Answer = u32;

    fn end(self, end: End<u32>) {
        assert_ne!(self.0.number, 2, "I am fragile");
        self.0.end(end);
    }
}

#[test]
fn a_waiter_that_panics_does_not_affect_the_others() {
    let host =
        testing::host_that_logs(|_, text| LINES.lock().push(text.to_string_lossy().into_owned()));
    let ends = Ends::default();
    let mut lookups = Lookups::new(LIMITS, Some(host), 7);
    for number in 1..=3 {
        let ends = Arc::clone(&ends);
        let fragile = Fragile(Client { number, ends });
        lookups.ask(at(0), 1, fragile, at(10));
    }
    lookups.finish_key(&1, &9);
    // The list taken out has the host, too.
    drop(lookups.take_replies());
    assert_eq!(*ends.lock(), [(1, End::Answer(9)), (3, End::Answer(9))]);
    let lines = LINES.lock().clone();
    assert!(
        lines.iter().any(|line| line.contains("I am fragile")),
        "{lines:?}"
    );
}

#[test]
fn alternatives_are_tried_in_turn_and_from_the_first_one_again_after_a_change() {
    let mut test = Test::new(LIMITS);
    test.ask(0, 1, 10);
    let alternative = |test: &mut Test| {
        let tries = test.tries(0);
        assert_eq!(tries.len(), 1, "{tries:?}");
        (tries[0].id, tries[0].alternative)
    };
    let (first, number) = alternative(&mut test);
    assert_eq!(number, 0);
    test.lookups.try_alternative(at(0), first);
    let (second, number) = alternative(&mut test);
    assert_eq!(number, 1);
    assert_ne!(first, second, "each has an id of its own");
    // A try that did not begin is the same one again.
    test.lookups.not_begun(at(0), second);
    let (third, number) = alternative(&mut test);
    assert_eq!(number, 1);
    // What failed may succeed now.
    test.lookups.supersede();
    test.lookups.not_begun(at(0), third);
    let (last, number) = alternative(&mut test);
    assert_eq!(number, 0);
    assert_eq!(test.finish(last, 5), [(10, End::Answer(5))]);
    test.is_clean();
}
