//! Whose address it is: what was learnt from answers and from others' requests, and who waits for which answer.
//!
//! A state machine without a clock, a queue pair or a core: it is told the time and what came, and says what to send and
//! whom to tell. One request an address, however many wait for it; a bounded number out at a time, the others queued in
//! order of arrival; a try that gets no answer goes to the end of the queue, so that one dead host holds nobody up for
//! longer than a try. Requests go out until the last one who waits has been given up.
//!
//! What others claim is trusted as little as may be: a claim fills a gap, and refreshes what its own GID has said before.
//! Against another GID it only makes us ask ourselves who has the address.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};

use acm_prov_api::address::{Address, Gid, Lid};
use acm_prov_api::clock::Moment;
use lru::LruCache;

/// Times and bounds of a [`Resolver`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResolverLimits {
    /// Milliseconds that a try waits for its answer.
    pub timeout: u64,
    /// Further tries.
    pub retries: u32,
    /// Requests that may wait for an answer at a time.
    pub out: usize,
    /// Clients that may wait.
    pub waiters: usize,
    /// Addresses that are kept.
    pub addresses: usize,
    /// Milliseconds that an address is good for; `None` is without end.
    pub ttl: Option<u64>,
}

impl ResolverLimits {
    /// Milliseconds from a client's arrival to its deadline.
    pub(crate) fn patience(&self) -> u64 {
        self.timeout.saturating_mul(u64::from(self.retries) + 1)
    }
}

/// The port that has an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub gid: Gid,
    /// Where its last datagram came from.
    pub lid: Lid,
    /// Index of the best group that it is in as well as we.
    pub group: usize,
}

/// A request to be sent to the shared group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub tid: u64,
    pub destination: Address,
    pub source: Address,
    /// Whether this is the first try.
    pub is_first: bool,
}

/// Too many wait already. Holds the client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full<W>(pub W);

/// What a claim to an address led to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Heard<W> {
    /// It was not known whose the address is. Those who waited for it can go on.
    Learnt(Vec<W>),
    /// As it was known.
    Refreshed,
    /// Another GID has it; that one stays, unless the claimant answers when asked.
    Disputed,
}

/// Why an answer is not one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoAnswer {
    #[error("an answer that nobody waits for")]
    Unknown,
    #[error("an answer about another address")]
    OtherAddress,
}

struct Learnt {
    peer: Peer,
    since: Moment,
}

struct Lookup<W> {
    address: Address,
    source: Address,
    state: State,
    waiters: VecDeque<(W, Moment)>,
    /// Asked for until then, even if nobody waits.
    wanted_until: Moment,
    was_sent: bool,
    /// Only to see who is right about a disputed address.
    settles_dispute: bool,
    timer: Moment,
}

/// A place in the queue; disputes come behind clients.
type Place = (bool, u64);

#[derive(Clone, Copy)]
enum State {
    Queued(Place),
    /// Waiting for an answer, until then.
    Out(Moment),
}

/// Addresses and lookups of one endpoint. `W` is a waiting client.
pub(crate) struct Resolver<W> {
    limits: ResolverLimits,
    learnt: LruCache<Address, Learnt>,
    /// By transaction id.
    lookups: HashMap<u64, Lookup<W>>,
    by_address: HashMap<Address, u64>,
    queue: BTreeMap<Place, u64>,
    /// One entry a lookup.
    timers: BTreeSet<(Moment, u64)>,
    places: u64,
    out: usize,
    waiting: usize,
    disputes: usize,
    /// Makes transaction ids that nobody guesses.
    tids: (RandomState, u64),
}

impl<W> Resolver<W> {
    pub(crate) fn new(limits: ResolverLimits) -> Self {
        Self {
            limits,
            learnt: LruCache::unbounded(),
            lookups: HashMap::new(),
            by_address: HashMap::new(),
            queue: BTreeMap::new(),
            timers: BTreeSet::new(),
            places: 0,
            out: 0,
            waiting: 0,
            disputes: 0,
            tids: (RandomState::new(), 0),
        }
    }

    /// Who has the address, as far as is known.
    pub(crate) fn known(&mut self, address: &Address, now: Moment) -> Option<Peer> {
        let learnt = self.learnt.get(address)?;
        is_fresh(self.limits.ttl, learnt, now).then_some(learnt.peer)
    }

    /// Lets a client wait until it is known who has the address.
    pub(crate) fn ask(
        &mut self,
        now: Moment,
        address: Address,
        source: Address,
        waiter: W,
    ) -> Result<(), Full<W>> {
        if self.waiting >= self.limits.waiters {
            return Err(Full(waiter));
        }
        let deadline = now.after(self.limits.patience());
        let Some(tid) = self.lookup(address, source, false) else {
            return Err(Full(waiter));
        };
        if let Some(lookup) = self.lookups.get_mut(&tid) {
            lookup.waiters.push_back((waiter, deadline));
            self.waiting += 1;
        }
        self.set_timer(tid);
        Ok(())
    }

    /// Asks although nobody waits, for as long as a client would.
    pub(crate) fn prefetch(&mut self, now: Moment, address: Address, source: Address) {
        self.want(now, address, source, false);
    }

    fn want(&mut self, now: Moment, address: Address, source: Address, settles_dispute: bool) {
        let until = now.after(self.limits.patience());
        if let Some(tid) = self.lookup(address, source, settles_dispute) {
            if let Some(lookup) = self.lookups.get_mut(&tid) {
                lookup.wanted_until = lookup.wanted_until.max(until);
            }
            self.set_timer(tid);
        }
    }

    /// The lookup of an address, made if there is none; `None` if there are too many.
    fn lookup(&mut self, address: Address, source: Address, settles_dispute: bool) -> Option<u64> {
        if let Some(&tid) = self.by_address.get(&address) {
            return Some(tid);
        }
        if self.lookups.len() >= self.limits.waiters {
            return None;
        }
        let tid = self.new_tid();
        let place = self.place(settles_dispute);
        self.queue.insert(place, tid);
        self.by_address.insert(address, tid);
        self.disputes += usize::from(settles_dispute);
        let lookup = Lookup {
            address,
            source,
            state: State::Queued(place),
            waiters: VecDeque::new(),
            wanted_until: Moment::default(),
            was_sent: false,
            settles_dispute,
            timer: Moment::NEVER,
        };
        self.timers.insert((lookup.timer, tid));
        self.lookups.insert(tid, lookup);
        Some(tid)
    }

    fn new_tid(&mut self) -> u64 {
        loop {
            self.tids.1 += 1;
            let tid = self.tids.0.hash_one(self.tids.1);
            if tid != 0 && !self.lookups.contains_key(&tid) {
                return tid;
            }
        }
    }

    fn place(&mut self, settles_dispute: bool) -> Place {
        self.places += 1;
        (settles_dispute, self.places)
    }

    /// The next request to be sent, unless enough are out.
    pub(crate) fn next_to_send(&mut self, now: Moment) -> Option<Request> {
        if self.out >= self.limits.out {
            return None;
        }
        let (_, tid) = self.queue.pop_first()?;
        let lookup = self.lookups.get_mut(&tid)?;
        let is_first = !std::mem::replace(&mut lookup.was_sent, true);
        lookup.state = State::Out(now.after(self.limits.timeout));
        self.out += 1;
        let request = Request {
            tid,
            destination: lookup.address,
            source: lookup.source,
            is_first,
        };
        self.set_timer(tid);
        Some(request)
    }

    /// The peer answers our request `tid`; `addresses` are those that its answer carries. Those who waited can go on.
    ///
    /// # Errors
    /// It answers nothing that was asked.
    pub(crate) fn answered(
        &mut self,
        now: Moment,
        tid: u64,
        peer: Peer,
        addresses: [Option<Address>; 2],
    ) -> Result<Vec<W>, NoAnswer> {
        let lookup = self
            .lookups
            .get(&tid)
            .filter(|lookup| lookup.was_sent)
            .ok_or(NoAnswer::Unknown)?;
        let mut carried = addresses.iter().flatten();
        if !carried.all(|address| *address == lookup.address || *address == lookup.source) {
            return Err(NoAnswer::OtherAddress);
        }
        let address = lookup.address;
        self.learn(now, address, peer);
        Ok(self.finish(tid))
    }

    /// A peer claims an address by asking for something else. The address is neither our own nor preloaded. `source` is
    /// the address to ask from if it is in doubt.
    pub(crate) fn heard(
        &mut self,
        now: Moment,
        address: Address,
        peer: Peer,
        source: Option<Address>,
    ) -> Heard<W> {
        match self.learnt.peek(&address) {
            Some(learnt) if is_fresh(self.limits.ttl, learnt, now) => {
                if learnt.peer.gid == peer.gid {
                    self.learn(now, address, peer);
                    return Heard::Refreshed;
                }
                // One at a time: what strangers say must not keep clients' requests from being sent.
                if let Some(source) = source
                    && self.disputes == 0
                {
                    self.want(now, address, source, true);
                }
                Heard::Disputed
            }
            _ => {
                self.learn(now, address, peer);
                let waiting = self.by_address.get(&address).copied();
                Heard::Learnt(waiting.map(|tid| self.finish(tid)).unwrap_or_default())
            }
        }
    }

    fn learn(&mut self, now: Moment, address: Address, peer: Peer) {
        self.learnt.put(address, Learnt { peer, since: now });
        while self.learnt.len() > self.limits.addresses {
            self.learnt.pop_lru();
        }
    }

    /// The address is no longer its owner's.
    pub(crate) fn forget(&mut self, address: &Address) {
        self.learnt.pop(address);
    }

    fn finish(&mut self, tid: u64) -> Vec<W> {
        let Some(lookup) = self.lookups.remove(&tid) else {
            return Vec::new();
        };
        self.by_address.remove(&lookup.address);
        self.timers.remove(&(lookup.timer, tid));
        match lookup.state {
            State::Queued(place) => {
                self.queue.remove(&place);
            }
            State::Out(_) => self.out -= 1,
        }
        self.disputes -= usize::from(lookup.settles_dispute);
        self.waiting -= lookup.waiters.len();
        lookup
            .waiters
            .into_iter()
            .map(|(waiter, _)| waiter)
            .collect()
    }

    /// Those whose deadline has come. What got no answer in time is queued again.
    pub(crate) fn expire(&mut self, now: Moment) -> Vec<W> {
        let mut given_up = Vec::new();
        while let Some(&(due, tid)) = self.timers.first() {
            if due > now {
                break;
            }
            let Some(lookup) = self.lookups.get_mut(&tid) else {
                self.timers.pop_first();
                continue;
            };
            while let Some((waiter, _)) = lookup
                .waiters
                .pop_front_if(|(_, deadline)| *deadline <= now)
            {
                self.waiting -= 1;
                given_up.push(waiter);
            }
            if lookup.waiters.is_empty() && lookup.wanted_until <= now {
                self.finish(tid);
                continue;
            }
            if let State::Out(until) = lookup.state
                && until <= now
            {
                let place = (lookup.settles_dispute, self.places + 1);
                self.places += 1;
                lookup.state = State::Queued(place);
                self.queue.insert(place, tid);
                self.out -= 1;
            }
            self.set_timer(tid);
        }
        given_up
    }

    fn set_timer(&mut self, tid: u64) {
        let Some(lookup) = self.lookups.get_mut(&tid) else {
            return;
        };
        let deadline = lookup.waiters.front().map(|(_, deadline)| *deadline);
        let wanted = deadline.is_none().then_some(lookup.wanted_until);
        let answer = match lookup.state {
            State::Out(until) => Some(until),
            State::Queued(_) => None,
        };
        let timer = [deadline, wanted, answer]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(Moment::NEVER);
        if timer != lookup.timer {
            self.timers.remove(&(lookup.timer, tid));
            lookup.timer = timer;
            self.timers.insert((timer, tid));
        }
    }

    /// When something is due.
    pub(crate) fn next_deadline(&self) -> Option<Moment> {
        self.timers.first().map(|(due, _)| *due)
    }

    /// Ends all lookups. Those who still wait.
    pub(crate) fn close(&mut self) -> Vec<W> {
        let tids: Vec<u64> = self.lookups.keys().copied().collect();
        tids.into_iter().flat_map(|tid| self.finish(tid)).collect()
    }

    /// Clients that wait.
    #[cfg(test)]
    fn waiting(&self) -> usize {
        self.waiting
    }
}

fn is_fresh(ttl: Option<u64>, learnt: &Learnt, now: Moment) -> bool {
    ttl.is_none_or(|ttl| now.since(learnt.since) < ttl)
}

#[cfg(test)]
mod tests;
