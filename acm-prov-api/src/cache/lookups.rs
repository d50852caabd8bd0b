//! Who waits for which question, for one port.
//!
//! One SA query a question, however many ask it; a bounded number of MADs out at a time, the
//! other lookups queued here in order of arrival; a deadline for everyone who waits, kept
//! whether or not a MAD ever comes back.
//!
//! The caller asks ([`ask`](Lookups::ask), [`prefetch`](Lookups::prefetch)), sends what
//! [`next_to_send`](Lookups::next_to_send) gives until it gives nothing, reports what became of
//! it ([`answered`](Lookups::answered), [`send_failed`](Lookups::send_failed)), and calls
//! [`expire`](Lookups::expire) when [`next_deadline`](Lookups::next_deadline) has come. After
//! any of these, others may be sendable.

mod backoff;

use std::collections::{BTreeSet, HashMap, VecDeque};

use super::answer::Judged;
use super::question::Question;
use crate::abi::AcmStatus;
use crate::clock::Moment;
use crate::path::PathRecord;

use backoff::Backoff;

/// Times and bounds of [`Lookups`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookupLimits {
    /// Milliseconds that one try of a query takes (option `timeout`).
    pub timeout: u64,
    /// Further tries (option `retries`). A request is answered within timeout × (retries + 1).
    pub retries: u32,
    /// Most MADs handed to the core at a time: `sa_depth` + 1, so that the next one is there
    /// when one returns.
    pub out: usize,
    /// Most questions looked up at a time.
    pub lookups: usize,
    /// Most requests waiting at a time.
    pub waiters: usize,
}

impl LookupLimits {
    /// Enough for every LID of a large fabric to be asked for at once.
    pub const DEFAULT_LOOKUPS: usize = 49_152;
    /// Well above the core's 1022 clients; the kernel is one of them and can have many
    /// requests under way.
    pub const DEFAULT_WAITERS: usize = 16_384;

    /// Milliseconds from a request's arrival to its deadline.
    #[must_use]
    pub const fn patience(&self) -> u64 {
        self.timeout.saturating_mul(self.retries as u64 + 1)
    }
}

/// An endpoint of the port, by a number that no other has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointId(pub u64);

/// A lookup of the port; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LookupId(u64);

/// What is looked up: answers depend on the endpoint that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Who asks.
    pub endpoint: EndpointId,
    /// What is asked.
    pub question: Question,
}

/// Requests and what they are to be answered.
pub type Replies<W> = Vec<(W, Result<PathRecord, AcmStatus>)>;

/// Too many lookups or waiters. Holds the request, which is best refused with `ENOMEM`:
/// waiting would not help it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full<W>(pub W);

/// A query to be handed to the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// To report its outcome with.
    pub id: LookupId,
    /// Who asks what.
    pub key: Key,
}

/// A query that the core has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handed {
    /// Who asks.
    pub endpoint: EndpointId,
    /// When it was handed over.
    pub at: Moment,
}

/// A query that came back to an end.
#[derive(Debug)]
pub struct Finished<W> {
    /// What was asked.
    pub key: Key,
    /// The requests that waited.
    pub replies: Replies<W>,
}

/// The lookups of one port. `W` is a waiting request.
pub struct Lookups<W> {
    limits: LookupLimits,
    backoff: Backoff,
    /// The clock never goes back, so waiters of a lookup are in order of their deadlines.
    latest: Moment,
    last_id: u64,
    by_id: HashMap<LookupId, Lookup<W>>,
    /// Without those that are superseded.
    by_key: HashMap<Key, LookupId>,
    /// To be sent, oldest first.
    queue: BTreeSet<LookupId>,
    /// Handed to the core and not returned; some may no longer be looked up.
    out: HashMap<LookupId, Handed>,
    /// MADs that the core has besides, from an earlier opening of the port.
    earlier: usize,
    /// When something is due: at most one entry a lookup.
    timers: BTreeSet<(Moment, LookupId)>,
    waiting: usize,
}

struct Lookup<W> {
    key: Key,
    state: State,
    waiters: VecDeque<Waiter<W>>,
    /// How many of them carry a stale path.
    with_stale: usize,
    /// Looked up until then, even if nobody waits.
    wanted_until: Moment,
    first_sent: Option<Moment>,
    failures: u32,
    timer: Option<Moment>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Queued,
    Out,
    /// To be asked again then.
    Resting(Moment),
}

struct Waiter<W> {
    request: W,
    deadline: Moment,
    stale: Option<PathRecord>,
}

impl<W> Waiter<W> {
    /// The answer if the SA has none.
    fn give_up(self) -> (W, Result<PathRecord, AcmStatus>) {
        (self.request, self.stale.ok_or(AcmStatus::ETIMEDOUT))
    }
}

impl<W> Lookup<W> {
    fn new(key: Key) -> Lookup<W> {
        Lookup {
            key,
            state: State::Queued,
            waiters: VecDeque::new(),
            with_stale: 0,
            wanted_until: Moment::default(),
            first_sent: None,
            failures: 0,
            timer: None,
        }
    }

    fn is_wanted(&self, now: Moment) -> bool {
        !self.waiters.is_empty() || self.wanted_until > now
    }

    /// When waiters with a stale path stop waiting for a better one.
    fn stale_from(&self, timeout: u64) -> Option<Moment> {
        let sent = self.first_sent.filter(|_| self.with_stale > 0)?;
        Some(sent.after(timeout))
    }

    /// When this lookup is to be looked at next.
    fn next_due(&self, timeout: u64, now: Moment) -> Option<Moment> {
        let deadline = self.waiters.front().map(|waiter| waiter.deadline);
        let resting = match self.state {
            State::Resting(until) => Some(until),
            _ => None,
        };
        // One that is out stays until it returns, wanted or not.
        let end =
            (self.state != State::Out && self.wanted_until > now).then_some(self.wanted_until);
        [deadline, resting, self.stale_from(timeout), end]
            .into_iter()
            .flatten()
            .min()
    }

    fn take_expired(&mut self, now: Moment, replies: &mut Replies<W>) {
        while let Some(waiter) = self.waiters.pop_front_if(|waiter| waiter.deadline <= now) {
            self.with_stale -= usize::from(waiter.stale.is_some());
            replies.push(waiter.give_up());
        }
    }

    /// Answers everyone who carries a stale path. The lookup goes on as long as they would
    /// have waited, so that the next one gets a fresh path.
    fn take_stale(&mut self, replies: &mut Replies<W>) {
        if self.with_stale == 0 {
            return;
        }
        self.with_stale = 0;
        let (stale, others): (VecDeque<_>, _) = self
            .waiters
            .drain(..)
            .partition(|waiter| waiter.stale.is_some());
        self.waiters = others;
        for waiter in stale {
            self.wanted_until = self.wanted_until.max(waiter.deadline);
            replies.push(waiter.give_up());
        }
    }
}

impl<W> Lookups<W> {
    /// No lookups. `seed` spreads the retries of different hosts: it should differ between
    /// them, and may be fixed in a test.
    #[must_use]
    pub fn new(limits: LookupLimits, seed: u64) -> Lookups<W> {
        Lookups {
            limits,
            backoff: Backoff::new(limits.timeout, seed),
            latest: Moment::default(),
            last_id: 0,
            by_id: HashMap::new(),
            by_key: HashMap::new(),
            queue: BTreeSet::new(),
            out: HashMap::new(),
            earlier: 0,
            timers: BTreeSet::new(),
            waiting: 0,
        }
    }

    /// Requests that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Questions that are looked up, sent or not.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether nothing is looked up.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// MADs that the core has of these lookups.
    #[must_use]
    pub fn out(&self) -> usize {
        self.out.len()
    }

    /// The same, one by one.
    pub fn handed(&self) -> impl Iterator<Item = (LookupId, Handed)> {
        self.out.iter().map(|(id, handed)| (*id, *handed))
    }

    /// How many MADs the core still has from earlier openings of the port: they count as well.
    pub fn set_earlier(&mut self, count: usize) {
        self.earlier = count;
    }

    /// When the MAD that the core has had for longest was handed to it.
    #[must_use]
    pub fn oldest_out(&self) -> Option<Moment> {
        self.out.values().map(|handed| handed.at).min()
    }

    /// Lets `request` wait for the answer, until its deadline at the latest.
    ///
    /// A `stale` path is its answer instead of `ETIMEDOUT`, and already after one timeout
    /// from when the SA was first asked.
    ///
    /// # Errors
    /// The request, when too many wait or are looked up.
    pub fn ask(
        &mut self,
        now: Moment,
        key: Key,
        request: W,
        stale: Option<PathRecord>,
    ) -> Result<(), Full<W>> {
        let now = self.advance(now);
        if self.waiting >= self.limits.waiters {
            return Err(Full(request));
        }
        let deadline = now.after(self.limits.patience());
        let Some((id, lookup)) = self.lookup(key) else {
            return Err(Full(request));
        };
        lookup.with_stale += usize::from(stale.is_some());
        lookup.waiters.push_back(Waiter {
            request,
            deadline,
            stale,
        });
        self.waiting += 1;
        self.set_timer(id, now);
        Ok(())
    }

    /// Looks up without anyone waiting, for as long as a request would wait.
    ///
    /// # Errors
    /// When too many questions are looked up.
    pub fn prefetch(&mut self, now: Moment, key: Key) -> Result<(), Full<()>> {
        let now = self.advance(now);
        let until = now.after(self.limits.patience());
        let (id, lookup) = self.lookup(key).ok_or(Full(()))?;
        lookup.wanted_until = lookup.wanted_until.max(until);
        self.set_timer(id, now);
        Ok(())
    }

    /// The next query for the core, unless it has enough. It counts as handed over until
    /// [`answered`](Lookups::answered) or [`send_failed`](Lookups::send_failed).
    pub fn next_to_send(&mut self, now: Moment) -> Option<Query> {
        let now = self.advance(now);
        if self.out.len() + self.earlier >= self.limits.out {
            return None;
        }
        let id = self.queue.pop_first()?;
        let lookup = self.by_id.get_mut(&id)?;
        lookup.state = State::Out;
        lookup.first_sent.get_or_insert(now);
        let key = lookup.key;
        let handed = Handed {
            endpoint: key.endpoint,
            at: now,
        };
        self.out.insert(id, handed);
        self.set_timer(id, now);
        Some(Query { id, key })
    }

    /// The core did not take the query: it is asked again after a rest.
    pub fn send_failed(&mut self, now: Moment, id: LookupId) {
        let now = self.advance(now);
        if self.out.remove(&id).is_some() {
            self.rest(now, id);
        }
    }

    /// A MAD has returned. `None` if it is to be asked again, or if nobody knows it (any more).
    pub fn answered(&mut self, now: Moment, id: LookupId, judged: &Judged) -> Option<Finished<W>> {
        let now = self.advance(now);
        self.out.remove(&id)?;
        if let Judged::Again(_) = judged {
            self.rest(now, id);
            return None;
        }
        let lookup = self.remove(id)?;
        let replies = lookup
            .waiters
            .into_iter()
            .map(|waiter| (waiter.request, judged.reply()))
            .collect();
        Some(Finished {
            key: lookup.key,
            replies,
        })
    }

    /// Does what is due: answers those whose time is up, takes up rested lookups again, drops
    /// those that nobody wants.
    pub fn expire(&mut self, now: Moment) -> Replies<W> {
        let now = self.advance(now);
        let mut replies = Vec::new();
        while let Some(&(due, id)) = self.timers.first()
            && due <= now
        {
            let timeout = self.limits.timeout;
            let Some(lookup) = self.by_id.get_mut(&id) else {
                self.timers.pop_first();
                continue;
            };
            let answered_before = replies.len();
            lookup.take_expired(now, &mut replies);
            if lookup.stale_from(timeout).is_some_and(|from| from <= now) {
                lookup.take_stale(&mut replies);
            }
            self.waiting -= replies.len() - answered_before;
            if matches!(lookup.state, State::Resting(until) if until <= now) {
                lookup.state = State::Queued;
                self.queue.insert(id);
            }
            self.settle(now, id);
        }
        replies
    }

    /// The SA is known to be silent: everyone who carries a stale path is answered with it.
    pub fn answer_stale(&mut self, now: Moment) -> Replies<W> {
        let now = self.advance(now);
        let mut replies = Vec::new();
        let ids: Vec<LookupId> = self.by_id.keys().copied().collect();
        for id in ids {
            if let Some(lookup) = self.by_id.get_mut(&id).filter(|l| l.with_stale > 0) {
                lookup.take_stale(&mut replies);
                self.settle(now, id);
            }
        }
        self.waiting -= replies.len();
        replies
    }

    /// What is known has become void (a re-registration, a flush): whoever asks from now on is
    /// not answered by a query that is out already.
    pub fn supersede(&mut self) {
        for id in self.out.keys() {
            if let Some(lookup) = self.by_id.get(id)
                && self.by_key.get(&lookup.key) == Some(id)
            {
                self.by_key.remove(&lookup.key);
            }
        }
    }

    /// When [`expire`](Lookups::expire) has something to do; `None` while nothing is due ever.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Moment> {
        self.timers.first().map(|(due, _)| *due)
    }

    /// The endpoint closes: gives its requests back and looks nothing up for it any more. MADs
    /// that are out count until they [return](Lookups::answered).
    pub fn close_endpoint(&mut self, endpoint: EndpointId) -> Vec<W> {
        let of_endpoint = self
            .by_id
            .iter()
            .filter(|(_, l)| l.key.endpoint == endpoint);
        let ids: Vec<LookupId> = of_endpoint.map(|(id, _)| *id).collect();
        let lookups = ids.into_iter().filter_map(|id| self.remove(id));
        let waiters: Vec<_> = lookups.flat_map(|lookup| lookup.waiters).collect();
        waiters.into_iter().map(|waiter| waiter.request).collect()
    }

    /// The port closes: gives all requests back.
    #[must_use]
    pub fn close(self) -> Vec<W> {
        let lookups = self.by_id.into_values();
        lookups
            .flat_map(|lookup| lookup.waiters)
            .map(|waiter| waiter.request)
            .collect()
    }

    fn advance(&mut self, now: Moment) -> Moment {
        self.latest = self.latest.max(now);
        self.latest
    }

    /// The lookup for `key`, begun if there is none and room for one.
    fn lookup(&mut self, key: Key) -> Option<(LookupId, &mut Lookup<W>)> {
        let id = match self.by_key.get(&key) {
            Some(&id) => id,
            None if self.by_id.len() >= self.limits.lookups => return None,
            None => {
                self.last_id += 1;
                let id = LookupId(self.last_id);
                self.by_key.insert(key, id);
                self.by_id.insert(id, Lookup::new(key));
                self.queue.insert(id);
                id
            }
        };
        self.by_id.get_mut(&id).map(|lookup| (id, lookup))
    }

    /// A query that is no longer out is to be asked again, if anyone still wants to know.
    fn rest(&mut self, now: Moment, id: LookupId) {
        if let Some(lookup) = self.by_id.get_mut(&id) {
            let rest = self.backoff.after(lookup.failures);
            lookup.failures = lookup.failures.saturating_add(1);
            lookup.state = State::Resting(now.after(rest));
            // Superseded or not: it is sent anew.
            self.by_key.entry(lookup.key).or_insert(id);
            self.settle(now, id);
        }
    }

    /// Drops a lookup that nobody wants and the core has not, or sets its timer.
    fn settle(&mut self, now: Moment, id: LookupId) {
        let keep = |lookup: &Lookup<W>| lookup.state == State::Out || lookup.is_wanted(now);
        if self.by_id.get(&id).is_some_and(keep) {
            self.set_timer(id, now);
        } else {
            self.remove(id);
        }
    }

    fn set_timer(&mut self, id: LookupId, now: Moment) {
        let Some(lookup) = self.by_id.get_mut(&id) else {
            return;
        };
        let due = lookup.next_due(self.limits.timeout, now);
        if due == lookup.timer {
            return;
        }
        if let Some(old) = std::mem::replace(&mut lookup.timer, due) {
            self.timers.remove(&(old, id));
        }
        if let Some(due) = due {
            self.timers.insert((due, id));
        }
    }

    fn remove(&mut self, id: LookupId) -> Option<Lookup<W>> {
        let lookup = self.by_id.remove(&id)?;
        if self.by_key.get(&lookup.key) == Some(&id) {
            self.by_key.remove(&lookup.key);
        }
        self.queue.remove(&id);
        if let Some(timer) = lookup.timer {
            self.timers.remove(&(timer, id));
        }
        self.waiting -= lookup.waiters.len();
        Some(lookup)
    }
}

#[cfg(test)]
mod tests;
