//! Lookups: one query on behalf of many waiters, each with its own deadline.
//!
//! One state machine for everything that takes time: paths and the SA's ClassPortInfo in the cache engine, addresses and
//! joins in a provider with its own protocol. It has no clock, thread, core or log: the caller passes the time and the
//! event.
//!
//! The caller [asks](Lookups::ask), makes tries until [`next_try`](Lookups::next_try) returns none, reports
//! how each try ended ([`finish`](Lookups::finish), [`try_again`](Lookups::try_again)), and calls
//! [`expire`](Lookups::expire) at [`next_deadline`](Lookups::next_deadline).
//!
//! No waiter can be lost. A [waiter](Waiter) stays in the machine until it has its [end](End), then in the machine's
//! outgoing [`Replies`], which deliver themselves when they, or the machine, are dropped. A [`DeliveringMutex`] takes them
//! out and drops them whenever its lock is released, even by an early return.

mod backoff;
mod delivery;

use std::hash::Hash;
use std::time::Duration;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use smallvec::SmallVec;

use crate::clock::{Moment, millis};
use crate::host::Host;
use crate::ordered::Ordered;

use backoff::Backoff;

pub use delivery::{Deliver, DeliveringMutex, Locked, Replies};

/// A waiter for an answer.
pub trait Waiter: Send {
    /// The answer.
    type Answer: Clone;

    /// Takes the end of the wait. Called once, with no lock held. A panic in it is logged and does not affect other waiters.
    fn end(self, end: End<Self::Answer>);
}

/// The end of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End<A> {
    /// The answer has arrived.
    Answer(A),
    /// The deadline has passed.
    Expired,
    /// There are too many waiters or lookups.
    Full,
    /// The endpoint of the lookup is closed.
    Closed,
}

/// Times and bounds of [`Lookups`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most lookups at a time.
    pub lookups: usize,
    /// The most waiters at a time.
    pub waiters: usize,
    /// The most outstanding tries; other lookups wait, in order of arrival.
    pub tries: usize,
    /// Time after which an outstanding try is repeated, behind all others and with the same id, since its answer may
    /// still arrive. `None`: the caller reports the end of each try.
    pub try_timeout: Option<Duration>,
    /// The first and the longest rest before a retry; see [`try_again`](Lookups::try_again).
    pub rest: (Duration, Duration),
}

impl Limits {
    /// Enough for every unicast LID of a subnet at once.
    pub const DEFAULT_LOOKUPS: usize = 49_152;
    /// Well above the core's 1022 clients: one of them is the kernel, which can have many outstanding requests.
    pub const DEFAULT_WAITERS: usize = 16_384;
}

impl Default for Limits {
    /// Returns limits for any number of outstanding tries, whose ends the caller reports, and rests from 125 ms to 2 s.
    fn default() -> Self {
        Self {
            lookups: Self::DEFAULT_LOOKUPS,
            waiters: Self::DEFAULT_WAITERS,
            tries: usize::MAX,
            try_timeout: None,
            rest: (Duration::from_millis(125), Duration::from_secs(2)),
        }
    }
}

/// The order of lookups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// A waiter may need it.
    Usual,
    /// No waiter: after all others.
    Background,
}

/// A try for the caller to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Try<K> {
    /// The id for reporting its end.
    pub id: u64,
    /// The key of the lookup.
    pub key: K,
    /// Whether it is the lookup's first.
    pub is_first: bool,
    /// The number of alternatives [tried before](Lookups::try_alternative).
    pub alternative: usize,
}

type Place = (Urgency, u64);
/// The unique number of a lookup.
type Number = u64;

/// Lookups by key, with waiters of type `W`.
pub struct Lookups<K, W: Waiter> {
    limits: Limits,
    /// Milliseconds.
    try_timeout: Option<u64>,
    backoff: Backoff,
    /// The latest time passed in; time never goes back here.
    latest: Moment,
    numbers: u64,
    places: u64,
    lookups: HashMap<Number, Lookup<K, W>>,
    /// The current lookup of each key; superseded ones are not in it.
    by_key: HashMap<K, Number>,
    by_id: HashMap<u64, Number>,
    /// The number of outstanding tries.
    out: usize,
    queue: Ordered<Place, Number>,
    /// At most one entry per lookup.
    timers: Ordered<(Moment, Number), ()>,
    waiting: usize,
    replies: Replies<W>,
    /// Outstanding tries whose answer is no longer wanted.
    abandoned: Vec<u64>,
}

struct Lookup<K, W> {
    key: K,
    urgency: Urgency,
    state: State,
    /// The id of the outstanding try, or of one whose answer may still arrive.
    id: Option<u64>,
    /// In order of deadlines.
    waiters: SmallVec<[(Moment, W); 1]>,
    /// Look up until then, even without waiters.
    wanted_until: Moment,
    was_tried: bool,
    failures: u32,
    /// The alternatives tried before without success.
    alternative: usize,
    timer: Option<Moment>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Queued(Place),
    /// A try is outstanding, and times out at that moment.
    Trying(Option<Moment>),
    /// Waiting for a retry at that moment.
    Resting(Moment),
}

impl<K, W> Lookup<K, W> {
    fn is_wanted(&self, now: Moment) -> bool {
        !self.waiters.is_empty() || self.wanted_until > now
    }

    /// Returns when this lookup next needs attention.
    fn next_due(&self, now: Moment) -> Option<Moment> {
        let mut due = match self.state {
            State::Resting(until) => until,
            State::Trying(timeout) => timeout.unwrap_or(Moment::NEVER),
            State::Queued(_) => Moment::NEVER,
        };
        if let Some((deadline, _)) = self.waiters.first() {
            due = due.min(*deadline);
        }
        if self.wanted_until > now {
            due = due.min(self.wanted_until);
        }
        (due < Moment::NEVER).then_some(due)
    }
}

impl<K: Clone + Eq + Hash, W: Waiter> Lookups<K, W> {
    /// Creates an empty machine. It logs panics of waiters to `host`. `seed` spreads the retries of different hosts: it
    /// should differ between hosts, and may be fixed in a test.
    #[must_use]
    pub fn new(limits: Limits, host: Option<Host>, seed: u64) -> Self {
        Self {
            backoff: Backoff::new(limits.rest, seed),
            try_timeout: limits.try_timeout.map(millis),
            limits,
            latest: Moment::default(),
            numbers: 0,
            places: 0,
            lookups: HashMap::new(),
            by_key: HashMap::new(),
            by_id: HashMap::new(),
            out: 0,
            queue: Ordered::new(),
            timers: Ordered::new(),
            waiting: 0,
            replies: Replies::new(host),
            abandoned: Vec::new(),
        }
    }

    /// Returns the number of waiters.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Returns the number of lookups, tried or not.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lookups.len()
    }

    /// Whether there is no lookup.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lookups.is_empty()
    }

    /// Lets `waiter` wait for the answer until `deadline`. False: there are too many, and the waiter has its end.
    pub fn ask(&mut self, now: Moment, key: K, waiter: W, deadline: Moment) -> bool {
        let now = self.advance(now);
        let number = (self.waiting < self.limits.waiters)
            .then(|| self.number(key, Urgency::Usual))
            .flatten();
        let Some((number, lookup)) = number.and_then(|n| Some((n, self.lookups.get_mut(&n)?)))
        else {
            self.replies.push(waiter, End::Full);
            return false;
        };
        let behind = lookup.waiters.iter().rposition(|(d, _)| *d <= deadline);
        let index = behind.map_or(0, |index| index + 1);
        lookup.waiters.insert(index, (deadline, waiter));
        self.waiting += 1;
        self.make_urgent(number);
        self.set_timer(number, now);
        true
    }

    /// Looks up `key` until `until`, without a waiter. False: there are too many lookups.
    pub fn want(&mut self, now: Moment, key: K, until: Moment, urgency: Urgency) -> bool {
        let now = self.advance(now);
        let Some(number) = self.number(key, urgency) else {
            return false;
        };
        if let Some(lookup) = self.lookups.get_mut(&number) {
            lookup.wanted_until = lookup.wanted_until.max(until);
        }
        if urgency == Urgency::Usual {
            self.make_urgent(number);
        }
        self.settle(now, number);
        true
    }

    /// Whether a try answers new waiters: it is known and not [superseded](Self::supersede).
    #[must_use]
    pub fn is_current(&self, id: u64) -> bool {
        let number = self.by_id.get(&id);
        let lookup = number.and_then(|number| self.lookups.get(number));
        lookup.is_some_and(|lookup| self.by_key.get(&lookup.key) == number)
    }

    /// Whether a key is looked up.
    #[must_use]
    pub fn is_looked_up(&self, key: &K) -> bool {
        self.by_key.contains_key(key)
    }

    /// Whether a try of a key is outstanding.
    #[must_use]
    pub fn is_tried(&self, key: &K) -> bool {
        let number = self.by_key.get(key);
        let lookup = number.and_then(|number| self.lookups.get(number));
        lookup.is_some_and(|lookup| matches!(lookup.state, State::Trying(_)))
    }

    /// Returns the latest time passed in, which saves reading the clock.
    pub(crate) fn latest(&self) -> Moment {
        self.latest
    }

    /// Whether a lookup waits for its try.
    pub(crate) fn is_any_queued(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Returns the next try to make, unless enough are outstanding. `new_id` returns an unused id. The try counts as
    /// outstanding until [`finish`](Self::finish), [`try_again`](Self::try_again), or its timeout.
    pub fn next_try(&mut self, now: Moment, new_id: impl FnOnce() -> u64) -> Option<Try<K>> {
        let now = self.advance(now);
        if self.out >= self.limits.tries {
            return None;
        }
        let (_, number) = self.queue.pop_first()?;
        let lookup = self.lookups.get_mut(&number)?;
        let id = *lookup.id.get_or_insert_with(new_id);
        lookup.state = State::Trying(self.try_timeout.map(|timeout| now.after(timeout)));
        let next = Try {
            id,
            key: lookup.key.clone(),
            is_first: !std::mem::replace(&mut lookup.was_tried, true),
            alternative: lookup.alternative,
        };
        self.by_id.insert(id, number);
        self.out += 1;
        self.set_timer(number, now);
        Some(next)
    }

    /// Returns the key of a try whose answer may still arrive.
    #[must_use]
    pub fn tried(&self, id: u64) -> Option<&K> {
        let number = self.by_id.get(&id)?;
        self.lookups.get(number).map(|lookup| &lookup.key)
    }

    /// Reports the answer to a try: all its waiters get it. `None` if the try is not known (any more).
    pub fn finish(&mut self, id: u64, answer: &W::Answer) -> Option<K> {
        let number = *self.by_id.get(&id)?;
        self.end(number, &End::Answer(answer.clone()))
    }

    /// Reports an answer for a key that did not come from a try.
    pub fn finish_key(&mut self, key: &K, answer: &W::Answer) {
        if let Some(&number) = self.by_key.get(key) {
            self.end(number, &End::Answer(answer.clone()));
        }
    }

    /// Reports that a try failed. If the answer is still wanted, the machine retries after a rest, which doubles with each
    /// failure, with random jitter (between half and all of it). Returns the rest.
    pub fn try_again(&mut self, now: Moment, id: u64) -> Option<Duration> {
        let now = self.advance(now);
        let (number, failures) = self.end_try(id)?;
        let rest = self.backoff.after(failures);
        let lookup = self.lookups.get_mut(&number)?;
        lookup.failures = failures.saturating_add(1);
        lookup.state = State::Resting(now.after(rest));
        self.renew(number);
        self.settle(now, number);
        Some(Duration::from_millis(rest))
    }

    /// Reports that a try was withdrawn before it began. If the answer is still wanted, the lookup is queued again.
    pub fn not_begun(&mut self, now: Moment, id: u64) {
        let now = self.advance(now);
        if let Some((number, _)) = self.end_try(id) {
            self.queue_again(number, now);
        }
    }

    /// Reports that a try's answer does not suffice. If one is still wanted, the next alternative is queued.
    pub fn try_alternative(&mut self, now: Moment, id: u64) {
        let now = self.advance(now);
        if let Some((number, _)) = self.end_try(id) {
            if let Some(lookup) = self.lookups.get_mut(&number) {
                lookup.alternative += 1;
            }
            self.queue_again(number, now);
        }
    }

    /// Ends an outstanding try whose answer will not arrive. Returns its lookup, and how often that has failed.
    fn end_try(&mut self, id: u64) -> Option<(Number, u32)> {
        let number = self.by_id.remove(&id)?;
        let lookup = self.lookups.get_mut(&number)?;
        lookup.id = None;
        match lookup.state {
            State::Trying(_) => self.out -= 1,
            // The try has timed out already.
            State::Queued(place) => {
                self.queue.remove(&place);
            }
            State::Resting(_) => {}
        }
        Some((number, lookup.failures))
    }

    /// Does what is due: ends expired waiters, queues rested and timed-out lookups again, drops unwanted lookups.
    pub fn expire(&mut self, now: Moment) {
        let now = self.advance(now);
        while let Some(((due, number), ())) = self.timers.first()
            && due <= now
        {
            let Some(lookup) = self.lookups.get_mut(&number) else {
                self.timers.pop_first();
                continue;
            };
            let expired = lookup
                .waiters
                .partition_point(|(deadline, _)| *deadline <= now);
            self.waiting -= expired;
            for (_, waiter) in lookup.waiters.drain(..expired) {
                self.replies.push(waiter, End::Expired);
            }
            match lookup.state {
                State::Resting(until) if until <= now => self.queue_again(number, now),
                State::Trying(Some(timeout)) if timeout <= now => {
                    self.out -= 1;
                    self.queue_again(number, now);
                }
                _ => self.settle(now, number),
            }
        }
    }

    /// Ends some waiters before their deadlines.
    pub fn end_waiting(
        &mut self,
        now: Moment,
        end: &End<W::Answer>,
        is_meant: impl Fn(&W) -> bool,
    ) {
        let now = self.advance(now);
        let numbers: Vec<Number> = self.lookups.keys().copied().collect();
        for number in numbers {
            let Some(lookup) = self.lookups.get_mut(&number) else {
                continue;
            };
            let before = lookup.waiters.len();
            for (deadline, waiter) in std::mem::take(&mut lookup.waiters) {
                if is_meant(&waiter) {
                    self.replies.push(waiter, end.clone());
                } else {
                    lookup.waiters.push((deadline, waiter));
                }
            }
            let ended = before - lookup.waiters.len();
            self.waiting -= ended;
            if ended > 0 {
                self.settle(now, number);
            }
        }
    }

    /// Notes that the state of the world has changed: outstanding tries answer the present waiters, but no new ones.
    pub fn supersede(&mut self) {
        for number in self.by_id.values() {
            if let Some(lookup) = self.lookups.get(number)
                && self.by_key.get(&lookup.key) == Some(number)
            {
                self.by_key.remove(&lookup.key);
            }
        }
    }

    /// Returns the ids of the tries whose answer may still arrive.
    pub fn tries(&self) -> impl Iterator<Item = u64> {
        self.by_id.keys().copied()
    }

    /// Returns when [`expire`](Self::expire) has something to do; `None`: never.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Moment> {
        self.timers.first().map(|((due, _), ())| due)
    }

    /// Ends the lookups of the keys that `is_meant` selects: their endpoint closes.
    pub fn close(&mut self, is_meant: impl Fn(&K) -> bool) {
        let of_closed = self.lookups.iter().filter(|(_, l)| is_meant(&l.key));
        let numbers: Vec<Number> = of_closed.map(|(number, _)| *number).collect();
        for number in numbers {
            self.end(number, &End::Closed);
        }
    }

    /// Whether the caller must take replies or abandoned tries out of the machine.
    #[must_use]
    pub fn has_news(&self) -> bool {
        !self.replies.is_empty() || !self.abandoned.is_empty()
    }

    /// Whether there are replies to [take out](Self::take_replies).
    pub(crate) fn has_replies(&self) -> bool {
        !self.replies.is_empty()
    }

    /// Whether there are tries for [`take_abandoned`](Self::take_abandoned).
    pub(crate) fn has_abandoned(&self) -> bool {
        !self.abandoned.is_empty()
    }

    /// Takes the replies out. Dropping them delivers them; drop them with no lock held.
    #[must_use]
    pub fn take_replies(&mut self) -> Replies<W> {
        self.replies.take()
    }

    /// Takes the outstanding tries whose answer is no longer wanted. The caller may withdraw them and report that they have
    /// [not begun](Self::not_begun); until then they also answer new waiters.
    #[must_use]
    pub fn take_abandoned(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.abandoned)
    }

    fn advance(&mut self, now: Moment) -> Moment {
        self.latest = self.latest.max(now);
        self.latest
    }

    /// Returns the lookup of a key; begins one if there is none, and room for one.
    fn number(&mut self, key: K, urgency: Urgency) -> Option<Number> {
        let vacant = match self.by_key.entry(key) {
            Entry::Occupied(known) => return Some(*known.get()),
            Entry::Vacant(_) if self.lookups.len() >= self.limits.lookups => return None,
            Entry::Vacant(vacant) => vacant,
        };
        self.numbers += 1;
        self.places += 1;
        let (number, place) = (self.numbers, (urgency, self.places));
        let lookup = Lookup {
            key: vacant.key().clone(),
            urgency,
            state: State::Queued(place),
            id: None,
            waiters: SmallVec::new(),
            wanted_until: Moment::default(),
            was_tried: false,
            failures: 0,
            alternative: 0,
            timer: None,
        };
        vacant.insert(number);
        self.lookups.insert(number, lookup);
        self.queue.insert(place, number);
        Some(number)
    }

    fn new_place(&mut self, urgency: Urgency) -> Place {
        self.places += 1;
        (urgency, self.places)
    }

    /// Raises the urgency of a background lookup that has a waiter now.
    fn make_urgent(&mut self, number: Number) {
        let Some(lookup) = self.lookups.get_mut(&number) else {
            return;
        };
        if lookup.urgency == Urgency::Usual {
            return;
        }
        lookup.urgency = Urgency::Usual;
        if let State::Queued(place) = lookup.state {
            let sooner = (Urgency::Usual, place.1);
            lookup.state = State::Queued(sooner);
            self.queue.remove(&place);
            self.queue.insert(sooner, number);
        }
    }

    /// Queues a lookup behind all others of its urgency, if it is still wanted.
    fn queue_again(&mut self, number: Number, now: Moment) {
        let Some(urgency) = self.lookups.get(&number).map(|lookup| lookup.urgency) else {
            return;
        };
        let place = self.new_place(urgency);
        if let Some(lookup) = self.lookups.get_mut(&number) {
            lookup.state = State::Queued(place);
            self.queue.insert(place, number);
        }
        self.renew(number);
        self.settle(now, number);
    }

    /// Prepares a lookup for a new try. If it was superseded and its key has no newer lookup, the new try answers new waiters;
    /// an earlier try that may still be answered does not.
    fn renew(&mut self, number: Number) {
        if let Some(lookup) = self.lookups.get_mut(&number)
            && let Entry::Vacant(vacant) = self.by_key.entry(lookup.key.clone())
        {
            vacant.insert(number);
            // Alternatives that failed before may succeed now.
            lookup.alternative = 0;
            if let Some(id) = lookup.id.take() {
                self.by_id.remove(&id);
            }
        }
    }

    /// Drops an unwanted lookup, or sets its timer. A lookup with an outstanding try stays until the caller reports the
    /// try's end.
    fn settle(&mut self, now: Moment, number: Number) {
        let Some(lookup) = self.lookups.get(&number) else {
            return;
        };
        if lookup.is_wanted(now) {
            return self.set_timer(number, now);
        }
        match (lookup.state, lookup.id) {
            (State::Trying(None), Some(id)) => {
                self.abandoned.push(id);
                self.set_timer(number, now);
            }
            _ => {
                self.end(number, &End::Expired);
            }
        }
    }

    fn set_timer(&mut self, number: Number, now: Moment) {
        let Some(lookup) = self.lookups.get_mut(&number) else {
            return;
        };
        let due = lookup.next_due(now);
        if due == lookup.timer {
            return;
        }
        if let Some(old) = std::mem::replace(&mut lookup.timer, due) {
            self.timers.remove(&(old, number));
        }
        if let Some(due) = due {
            self.timers.insert((due, number), ());
        }
    }

    fn end(&mut self, number: Number, end: &End<W::Answer>) -> Option<K> {
        let lookup = self.lookups.remove(&number)?;
        if let Some((key, current)) = self.by_key.remove_entry(&lookup.key)
            && current != number
        {
            // The removed lookup was a superseded one.
            self.by_key.insert(key, current);
        }
        match lookup.state {
            State::Queued(place) => {
                self.queue.remove(&place);
            }
            State::Trying(_) => self.out -= 1,
            State::Resting(_) => {}
        }
        if let Some(id) = lookup.id {
            self.by_id.remove(&id);
        }
        if let Some(timer) = lookup.timer {
            self.timers.remove(&(timer, number));
        }
        self.waiting -= lookup.waiters.len();
        for (_, waiter) in lookup.waiters {
            self.replies.push(waiter, end.clone());
        }
        Some(lookup.key)
    }
}

/// Gives the remaining waiters their end.
impl<K, W: Waiter> Drop for Lookups<K, W> {
    fn drop(&mut self) {
        for (_, lookup) in self.lookups.drain() {
            for (_, waiter) in lookup.waiters {
                self.replies.push(waiter, End::Closed);
            }
        }
    }
}

#[cfg(test)]
mod tests;
