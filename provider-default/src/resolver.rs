//! Whose address it is: what was learnt from answers and from others' requests, and who waits for which answer.
//!
//! A state machine without a clock, a queue pair or a core. One request an address, however many wait for it; a bounded
//! number out at a time, the others queued in order of arrival; a try that gets no answer goes to the end of the queue, so
//! that one dead host holds nobody up for longer than a try. Requests go out until the last one who waits has given up.
//!
//! What others claim is trusted as little as may be: a claim fills a gap, and refreshes what its own GID has said before.
//! A claim that contradicts a known GID triggers a request of our own instead of replacing it.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::time::Duration;

use acm_prov_api::Host;
use acm_prov_api::address::{Address, Gid, Lid};
use acm_prov_api::clock::Moment;
use acm_prov_api::lookups::{Limits, Lookups, Replies, Try, Urgency, Waiter};
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

/// What a claim to an address led to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// It was not known whose the address is. Those who waited for it have their answer.
    Learnt,
    /// As it was known.
    Refreshed,
    /// Another GID has it; that one stays, unless the claimant answers our request.
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
    /// The SM's registration in which it was learnt.
    registration: u64,
}

/// An address that is asked for. The source is the one to ask from, and tells no two lookups apart.
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
    /// A disputed address that is asked for.
    dispute: Option<Address>,
    registration: u64,
    /// Makes transaction ids that nobody guesses.
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

    /// Who has the address, as far as is known.
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

    /// Lets a client wait until it is known who has the address.
    pub(crate) fn ask(&mut self, now: Moment, address: Address, source: Address, waiter: W) {
        let deadline = now.after(self.limits.patience());
        self.lookups
            .ask(now, Wanted { address, source }, waiter, deadline);
    }

    /// Asks although nobody waits, for as long as a client would.
    pub(crate) fn prefetch(&mut self, now: Moment, address: Address, source: Address) {
        let until = now.after(self.limits.patience());
        self.lookups
            .want(now, Wanted { address, source }, until, Urgency::Usual);
    }

    /// The next request to be sent, unless enough are out.
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

    /// The peer answers our request `tid`; `addresses` are those that its answer carries. Those who waited have their
    /// answer.
    ///
    /// # Errors
    /// It answers nothing that was asked.
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

    /// A peer claims an address by asking for something else. The address is neither our own nor preloaded. `source` is
    /// the address to ask from if it is in doubt.
    pub(crate) fn claimed(
        &mut self,
        now: Moment,
        address: Address,
        peer: Peer,
        source: Option<Address>,
    ) -> Claim {
        // A re-registration puts a peer's LID in doubt, not whose the address is.
        let known = self.learnt.peek(&address);
        let known = known
            .filter(|learnt| learnt.is_young(self.limits.ttl, now))
            .map(|learnt| learnt.peer.gid);
        match known {
            None => {
                self.learn_and_tell(now, address, peer);
                Claim::Learnt
            }
            Some(gid) if gid == peer.gid => {
                self.learn_and_tell(now, address, peer);
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

    /// Learns from a claim, which those who wait for the address take for an answer.
    fn learn_and_tell(&mut self, now: Moment, address: Address, peer: Peer) {
        self.learn(now, address, peer);
        let source = address;
        self.lookups.finish_key(&Wanted { address, source }, &peer);
    }

    /// Asks who has a disputed address. One at a time: what strangers say must not keep clients' requests from being sent.
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

    /// The address is no longer its owner's.
    pub(crate) fn forget(&mut self, address: &Address) {
        self.learnt.pop(address);
    }

    /// The SM has made ports register anew: LIDs may have changed. Each address is asked for again at its next use.
    pub(crate) fn reregister(&mut self) {
        self.registration += 1;
    }

    /// Does what is due: those whose deadline has come have it, and what got no answer in time is queued again.
    pub(crate) fn expire(&mut self, now: Moment) {
        self.lookups.expire(now);
    }

    /// When something is due.
    pub(crate) fn next_deadline(&self) -> Option<Moment> {
        self.lookups.next_deadline()
    }

    /// Ends all lookups.
    pub(crate) fn close(&mut self) {
        self.lookups.close(|_| true);
    }

    /// Clients and their answers, if there are any.
    pub(crate) fn take_replies(&mut self) -> Option<Replies<W>> {
        self.lookups.has_news().then(|| self.lookups.take_replies())
    }

    /// Clients that wait.
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
