//! Learns from answers and other nodes' requests who has an address, and keeps the clients that wait for it.
//!
//! A state machine without a clock, a queue pair or a core. It sends one request an address, however many
//! clients wait. A limited number is in flight; the others queue in order of arrival. A try without an answer
//! goes to the end of the queue, so a dead host delays others by one try at most. Requests go out until the
//! last waiting client's deadline.
//!
//! A claim by another node is trusted as little as possible: it fills a gap, or refreshes what the same GID
//! claimed before. A claim that contradicts a known GID triggers a request instead of replacing it.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::time::Duration;

use acm_prov_api::Host;
use acm_prov_api::address::{Address, Gid, Lid};
use acm_prov_api::clock::Moment;
use acm_prov_api::lookups::{Limits, Lookups, Replies, Try, Urgency, Waiter};
use lru::LruCache;

/// Times and limits of a [`Resolver`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResolverLimits {
    /// Time that a try waits for its answer, in milliseconds.
    pub timeout: u64,
    /// Further tries.
    pub retries: u32,
    /// Maximum number of requests in flight.
    pub out: usize,
    /// Maximum number of waiting clients.
    pub waiters: usize,
    /// Maximum number of cached addresses.
    pub addresses: usize,
    /// Time until an address expires, in milliseconds; `None` means never.
    pub ttl: Option<u64>,
}

impl ResolverLimits {
    /// Returns the time from a client's arrival to its deadline, in milliseconds.
    pub(crate) fn patience(&self) -> u64 {
        self.timeout.saturating_mul(u64::from(self.retries) + 1)
    }
}

/// The port that has an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub gid: Gid,
    /// Source LID of its last datagram.
    pub lid: Lid,
    /// Index of the best group that both it and we have joined.
    pub group: usize,
}

/// A request to send to the shared group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub tid: u64,
    pub destination: Address,
    pub source: Address,
    /// Whether this is the first try.
    pub is_first: bool,
}

/// The effect of a claim to an address.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// The address was unknown and is now learnt; waiting clients have their answer.
    Learnt,
    /// The claim confirms the known owner.
    Refreshed,
    /// Another GID has it and keeps it, unless the claimant answers our request.
    Disputed,
}

/// Why an answer was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoAnswer {
    #[error("an answer to no request in flight")]
    Unknown,
    #[error("an answer for another address")]
    OtherAddress,
}

struct Learnt {
    peer: Peer,
    since: Moment,
    /// The SM registration in which it was learnt.
    registration: u64,
}

/// An address to request. The source is only the address to ask from, so it does not distinguish lookups.
#[derive(Clone, Copy)]
struct Wanted {
    address: Address,
    source: Address,
}

impl PartialEq for Wanted {
    fn eq(&self, other: &Self) -> bool {
        self.address == other.address
    }
}

impl Eq for Wanted {}

impl Hash for Wanted {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.address.hash(state);
    }
}

/// Addresses and lookups of one endpoint. `W` is a waiting client.
pub(crate) struct Resolver<W: Waiter<Answer = Peer>> {
    limits: ResolverLimits,
    learnt: LruCache<Address, Learnt>,
    lookups: Lookups<Wanted, W>,
    /// A disputed address with a lookup of its own.
    dispute: Option<Address>,
    registration: u64,
    /// Makes unpredictable transaction ids.
    tids: (RandomState, u64),
}

impl<W: Waiter<Answer = Peer>> Resolver<W> {
    pub(crate) fn new(limits: ResolverLimits, host: Option<Host>) -> Self {
        let lookups = Limits {
            lookups: limits.waiters,
            waiters: limits.waiters,
            tries: limits.out,
            try_timeout: Some(Duration::from_millis(limits.timeout)),
            rest: (Duration::ZERO, Duration::ZERO),
        };
        Self {
            limits,
            learnt: LruCache::unbounded(),
            lookups: Lookups::new(lookups, host, 0),
            dispute: None,
            registration: 0,
            tids: (RandomState::new(), 0),
        }
    }

    /// Returns who has the address, if known.
    pub(crate) fn known(&mut self, address: &Address, now: Moment) -> Option<Peer> {
        let Self {
            limits,
            registration,
            ..
        } = *self;
        let learnt = self.learnt.get(address)?;
        learnt
            .is_fresh(limits.ttl, registration, now)
            .then_some(learnt.peer)
    }

    /// Makes a client wait for the owner of the address.
    pub(crate) fn ask(&mut self, now: Moment, address: Address, source: Address, waiter: W) {
        let deadline = now.after(self.limits.patience());
        self.lookups
            .ask(now, Wanted { address, source }, waiter, deadline);
    }

    /// Requests an address without a waiting client, for as long as a client would wait.
    pub(crate) fn prefetch(&mut self, now: Moment, address: Address, source: Address) {
        let until = now.after(self.limits.patience());
        self.lookups
            .want(now, Wanted { address, source }, until, Urgency::Usual);
    }

    /// Returns the next request to send; `None` if the maximum is in flight.
    pub(crate) fn next_to_send(&mut self, now: Moment) -> Option<Request> {
        let (random, last) = &mut self.tids;
        let new_tid = || {
            loop {
                *last += 1;
                let tid = random.hash_one(*last);
                if tid != 0 {
                    return tid;
                }
            }
        };
        let Try {
            id, key, is_first, ..
        } = self.lookups.next_try(now, new_tid)?;
        Some(Request {
            tid: id,
            destination: key.address,
            source: key.source,
            is_first,
        })
    }

    /// Handles a peer's answer to our request `tid`; `addresses` are those in the answer. Waiting clients get
    /// their answer.
    ///
    /// # Errors
    /// The answer matches no request in flight.
    pub(crate) fn answered(
        &mut self,
        now: Moment,
        tid: u64,
        peer: Peer,
        addresses: [Option<Address>; 2],
    ) -> Result<(), NoAnswer> {
        let Wanted { address, source } = *self.lookups.tried(tid).ok_or(NoAnswer::Unknown)?;
        let mut carried = addresses.into_iter().flatten();
        if !carried.all(|carried| carried == address || carried == source) {
            return Err(NoAnswer::OtherAddress);
        }
        self.learn(now, address, peer);
        self.lookups.finish(tid, &peer);
        Ok(())
    }

    /// Handles a claim: a peer names an address as its own in its request. The address is neither our own nor
    /// preloaded. If it is in doubt, our request comes from `source`.
    pub(crate) fn claimed(
        &mut self,
        now: Moment,
        address: Address,
        peer: Peer,
        source: Option<Address>,
    ) -> Claim {
        // After a reregistration the peer's LID is in doubt, but not the owner of the address.
        let known = self.learnt.peek(&address);
        let known = known
            .filter(|learnt| learnt.is_young(self.limits.ttl, now))
            .map(|learnt| learnt.peer.gid);
        match known {
            None => {
                self.learn_and_answer(now, address, peer);
                Claim::Learnt
            }
            Some(gid) if gid == peer.gid => {
                self.learn_and_answer(now, address, peer);
                Claim::Refreshed
            }
            Some(_) => {
                if let Some(source) = source {
                    self.settle_dispute(now, Wanted { address, source });
                }
                Claim::Disputed
            }
        }
    }

    /// Learns from a claim, which also answers the clients that wait for the address.
    fn learn_and_answer(&mut self, now: Moment, address: Address, peer: Peer) {
        self.learn(now, address, peer);
        let source = address;
        self.lookups.finish_key(&Wanted { address, source }, &peer);
    }

    /// Requests a disputed address. Only one at a time, so that strangers' claims do not delay clients'
    /// requests.
    fn settle_dispute(&mut self, now: Moment, wanted: Wanted) {
        let is_settled = self.dispute.is_none_or(|address| {
            let source = address;
            !self.lookups.is_looked_up(&Wanted { address, source })
        });
        if is_settled {
            let until = now.after(self.limits.patience());
            self.lookups.want(now, wanted, until, Urgency::Background);
            self.dispute = Some(wanted.address);
        }
    }

    fn learn(&mut self, now: Moment, address: Address, peer: Peer) {
        let learnt = Learnt {
            peer,
            since: now,
            registration: self.registration,
        };
        self.learnt.put(address, learnt);
        while self.learnt.len() > self.limits.addresses {
            self.learnt.pop_lru();
        }
    }

    /// Forgets the owner of the address.
    pub(crate) fn forget(&mut self, address: &Address) {
        self.learnt.pop(address);
    }

    /// Marks all addresses as stale, because LIDs may have changed: each is requested again at its next use.
    pub(crate) fn reregister(&mut self) {
        self.registration += 1;
    }

    /// Handles what is due: refuses clients past their deadline, and queues requests without an answer again.
    pub(crate) fn expire(&mut self, now: Moment) {
        self.lookups.expire(now);
    }

    /// Returns the next deadline.
    pub(crate) fn next_deadline(&self) -> Option<Moment> {
        self.lookups.next_deadline()
    }

    /// Ends all lookups.
    pub(crate) fn close(&mut self) {
        self.lookups.close(|_| true);
    }

    /// Returns clients with their answers, if any.
    pub(crate) fn take_replies(&mut self) -> Option<Replies<W>> {
        self.lookups.has_news().then(|| self.lookups.take_replies())
    }

    /// Returns the number of waiting clients.
    #[cfg(test)]
    fn waiting(&self) -> usize {
        self.lookups.waiting()
    }
}

impl Learnt {
    fn is_fresh(&self, ttl: Option<u64>, registration: u64, now: Moment) -> bool {
        self.registration == registration && self.is_young(ttl, now)
    }

    fn is_young(&self, ttl: Option<u64>, now: Moment) -> bool {
        ttl.is_none_or(|ttl| now.since(self.since) < ttl)
    }
}

#[cfg(test)]
mod tests;
