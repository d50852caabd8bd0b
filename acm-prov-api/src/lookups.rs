//! Lookups: something is asked once, waited for by many, and each who waits has a deadline.
//!
//! One state machine for whatever takes time: paths and the SA's abilities in the cache engine, addresses and joins in a
//! provider that speaks a protocol of its own. It knows no clock, thread, core or log: it is given the time and what
//! happened.
//!
//! The caller [asks](Lookups::ask), makes the tries that [`next_try`](Lookups::next_try) gives until it gives none, reports
//! how each ended ([`finish`](Lookups::finish), [`try_again`](Lookups::try_again)), and calls [`expire`](Lookups::expire)
//! when [`next_deadline`](Lookups::next_deadline) has come.
//!
//! Nobody who waits can be lost: a [waiter](Waiter) stays in the machine until it has its [end](End), then lies in the
//! machine's outgoing [`Replies`], and those deliver themselves when they, or the machine, are dropped. A
//! [`DeliveringMutex`] takes them out and drops them whenever its lock is released, however the code between is left.

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

/// Who waits for an answer.
pub trait Waiter: Send {
    /// What it waits for.
    type Answer: Clone;

    /// Takes how its waiting ended, once, with no lock held. A panic in it is logged and takes no end from others.
    fn end(self, end: End<Self::Answer>);
}

/// How somebody's waiting ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End<A> {
    /// With the answer.
    Answer(A),
    /// The deadline has come.
    Expired,
    /// Too many wait, or are looked up, already.
    Full,
    /// What was asked through is closed.
    Closed,
}

/// Times and bounds of [`Lookups`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Lookups at a time.
    pub lookups: usize,
    /// Waiters at a time.
    pub waiters: usize,
    /// Tries that are out at a time; the others wait for their turn, in order of arrival.
    pub tries: usize,
    /// Time after which a try that has not ended is made again, behind all others and under the same id: its
    /// answer may still come. `None`: the caller reports the end of each try.
    pub try_timeout: Option<Duration>,
    /// The first rest and the longest before what failed is tried again; see
    /// [`try_again`](Lookups::try_again).
    pub rest: (Duration, Duration),
}

impl Limits {
    /// Enough for every LID of a large fabric to be looked up at once.
    pub const DEFAULT_LOOKUPS: usize = 49_152;
    /// Well above the core's 1022 clients; the kernel is one of them and can have many requests under way.
    pub const DEFAULT_WAITERS: usize = 16_384;
}

impl Default for Limits {
    /// Any number of tries at a time, whose ends the caller reports; rests from an eighth of a second to two.
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

/// Which lookups are tried first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// Somebody may wait.
    Usual,
    /// Nobody waits: after all others.
    Background,
}

/// A try to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Try<K> {
    /// To report its end with.
    pub id: u64,
    /// What is looked up.
    pub key: K,
    /// Whether it is the lookup's first.
    pub is_first: bool,
    /// How many alternatives were [tried before](Lookups::try_alternative).
    pub alternative: usize,
}

type Place = (Urgency, u64);
/// A lookup, by a number that no other has.
type Number = u64;

/// Lookups by key. `W` is who waits.
pub struct Lookups<K, W: Waiter> {
    limits: Limits,
    /// Milliseconds.
    try_timeout: Option<u64>,
    backoff: Backoff,
    /// The clock never goes back here, whatever it does outside.
    latest: Moment,
    numbers: u64,
    places: u64,
    lookups: HashMap<Number, Lookup<K, W>>,
    /// Without those that are superseded.
    by_key: HashMap<K, Number>,
    by_id: HashMap<u64, Number>,
    /// Tries that are out.
    out: usize,
    queue: Ordered<Place, Number>,
    /// At most one entry a lookup.
    timers: Ordered<(Moment, Number), ()>,
    waiting: usize,
    replies: Replies<W>,
    /// Tries that are out for nothing.
    abandoned: Vec<u64>,
}

struct Lookup<K, W> {
    key: K,
    urgency: Urgency,
    state: State,
    /// Of the try that is out, or whose answer may still come.
    id: Option<u64>,
    /// In order of their deadlines.
    waiters: SmallVec<[(Moment, W); 1]>,
    /// Looked up until then, even if nobody waits.
    wanted_until: Moment,
    was_tried: bool,
    failures: u32,
    /// Tried before without success.
    alternative: usize,
    timer: Option<Moment>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Queued(Place),
    /// A try is out, and times out then.
    Trying(Option<Moment>),
    /// To be tried again then.
    Resting(Moment),
}

impl<K, W> Lookup<K, W> {
    fn is_wanted(&self, now: Moment) -> bool {
        !self.waiters.is_empty() || self.wanted_until > now
    }

    /// When this lookup is to be looked at next.
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
    /// No lookups. Panics of waiters go to the log of `host`. `seed` spreads the tries of different hosts: it should differ
    /// between them, and may be fixed in a test.
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

    /// How many wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// How many lookups there are, tried or not.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lookups.len()
    }

    /// Whether nothing is looked up.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lookups.is_empty()
    }

    /// Lets `waiter` wait for the answer until `deadline`. False: there are too many, and it has its end.
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

    /// Looks up until `until` though nobody waits. False: there are too many lookups.
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

    /// Whether a try answers those who ask from now on: it is known, and not [superseded](Self::supersede).
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

    /// Whether a try of a key is out.
    #[must_use]
    pub fn is_tried(&self, key: &K) -> bool {
        let number = self.by_key.get(key);
        let lookup = number.and_then(|number| self.lookups.get(number));
        lookup.is_some_and(|lookup| matches!(lookup.state, State::Trying(_)))
    }

    /// The latest time that was passed in: a clock that need not be read again.
    pub(crate) fn latest(&self) -> Moment {
        self.latest
    }

    /// Whether a lookup waits for its turn.
    pub(crate) fn is_any_queued(&self) -> bool {
        !self.queue.is_empty()
    }

    /// The next try to be made, unless enough are out. `new_id` gives an id that was not used before. The try counts as
    /// out until [`finish`](Self::finish), [`try_again`](Self::try_again), or its timeout.
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

    /// What a try looks up whose answer may come.
    #[must_use]
    pub fn tried(&self, id: u64) -> Option<&K> {
        let number = self.by_id.get(&id)?;
        self.lookups.get(number).map(|lookup| &lookup.key)
    }

    /// A try brought the answer: everybody who waits for it has it. `None` if nobody knows the try (any more).
    pub fn finish(&mut self, id: u64, answer: &W::Answer) -> Option<K> {
        let number = *self.by_id.get(&id)?;
        self.end(number, &End::Answer(answer.clone()))
    }

    /// The answer came by another way than a try.
    pub fn finish_key(&mut self, key: &K, answer: &W::Answer) {
        if let Some(&number) = self.by_key.get(key) {
            self.end(number, &End::Answer(answer.clone()));
        }
    }

    /// A try failed. If the answer is still wanted, it is made again after a rest, which doubles with each failure and is
    /// shortened by chance to between a half and the whole. Gives the rest.
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

    /// A try was taken back before it began. If the answer is still wanted, it has its turn again.
    pub fn not_begun(&mut self, now: Moment, id: u64) {
        let now = self.advance(now);
        if let Some((number, _)) = self.end_try(id) {
            self.queue_again(number, now);
        }
    }

    /// A try brought an answer that is not good enough. If one is still wanted, the next alternative has its turn.
    pub fn try_alternative(&mut self, now: Moment, id: u64) {
        let now = self.advance(now);
        if let Some((number, _)) = self.end_try(id) {
            if let Some(lookup) = self.lookups.get_mut(&number) {
                lookup.alternative += 1;
            }
            self.queue_again(number, now);
        }
    }

    /// A try that is out ends, and its answer will not come. Gives its lookup, and how often that has failed.
    fn end_try(&mut self, id: u64) -> Option<(Number, u32)> {
        let number = self.by_id.remove(&id)?;
        let lookup = self.lookups.get_mut(&number)?;
        lookup.id = None;
        match lookup.state {
            State::Trying(_) => self.out -= 1,
            // It has timed out already.
            State::Queued(place) => {
                self.queue.remove(&place);
            }
            State::Resting(_) => {}
        }
        Some((number, lookup.failures))
    }

    /// Does what is due: ends the waiting of those whose deadline has come, takes up what has rested, makes tries again
    /// that timed out, drops what nobody wants.
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

    /// Ends the waiting of some before their deadlines.
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

    /// What is known has become void: tries that are out answer those who wait now, and nobody who asks from now on.
    pub fn supersede(&mut self) {
        for number in self.by_id.values() {
            if let Some(lookup) = self.lookups.get(number)
                && self.by_key.get(&lookup.key) == Some(number)
            {
                self.by_key.remove(&lookup.key);
            }
        }
    }

    /// The ids of the tries whose answer may come.
    pub fn tries(&self) -> impl Iterator<Item = u64> {
        self.by_id.keys().copied()
    }

    /// When [`expire`](Self::expire) has something to do; `None` while nothing is due ever.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Moment> {
        self.timers.first().map(|((due, _), ())| due)
    }

    /// What some keys are looked up through closes: their lookups end.
    pub fn close(&mut self, is_meant: impl Fn(&K) -> bool) {
        let of_closed = self.lookups.iter().filter(|(_, l)| is_meant(&l.key));
        let numbers: Vec<Number> = of_closed.map(|(number, _)| *number).collect();
        for number in numbers {
            self.end(number, &End::Closed);
        }
    }

    /// Whether something lies in the machine that is to be taken out of it.
    #[must_use]
    pub fn has_news(&self) -> bool {
        !self.replies.is_empty() || !self.abandoned.is_empty()
    }

    /// Whether somebody has an end that is not [taken out](Self::take_replies).
    pub(crate) fn has_replies(&self) -> bool {
        !self.replies.is_empty()
    }

    /// Whether a try is out for nothing: see [`take_abandoned`](Self::take_abandoned).
    pub(crate) fn has_abandoned(&self) -> bool {
        !self.abandoned.is_empty()
    }

    /// Takes out the ends of those who waited. Dropping them delivers them: not with a lock held.
    #[must_use]
    pub fn take_replies(&mut self) -> Replies<W> {
        self.replies.take()
    }

    /// Takes out the tries that are out for nothing, since nobody wants their answer any more. The caller may take them
    /// back and report that they have [not begun](Self::not_begun); until then they answer those who ask meanwhile.
    #[must_use]
    pub fn take_abandoned(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.abandoned)
    }

    fn advance(&mut self, now: Moment) -> Moment {
        self.latest = self.latest.max(now);
        self.latest
    }

    /// The lookup of a key, begun if there is none and room for one.
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

    /// Somebody waits for what was looked up in the background.
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

    /// Puts a lookup behind all others of its urgency, if it is still wanted.
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

    /// A lookup is tried anew. If it was superseded and nobody has asked since, it answers those who ask from now on; an
    /// earlier try that may still be answered does not.
    fn renew(&mut self, number: Number) {
        if let Some(lookup) = self.lookups.get_mut(&number)
            && let Entry::Vacant(vacant) = self.by_key.entry(lookup.key.clone())
        {
            vacant.insert(number);
            // What failed before may succeed now.
            lookup.alternative = 0;
            if let Some(id) = lookup.id.take() {
                self.by_id.remove(&id);
            }
        }
    }

    /// Drops a lookup that nobody wants, or sets its timer. One whose try will be reported to have ended stays until then:
    /// the answer is on its way.
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
            // This one was superseded.
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

/// Who still waits has an end, too.
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
