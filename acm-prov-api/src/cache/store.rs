//! Answers by question, for one endpoint.
//!
//! An entry is a destination, known by its GID, with the path that answers the plain question
//! for it, whoever asks, by GID or by LID; and, only where asked for, variants: paths that
//! answer a question with [`Demands`](super::question::Demands), or that lead to another LID
//! of a port with several (LMC > 0).
//!
//! Bounded by the number of answers; the destination used least recently goes first, with all
//! that is known of it.

mod age;
mod destination;
mod negative;

use std::collections::HashMap;

use lru::LruCache;

use super::answer;
use super::question::{Question, Source, Target};
use crate::address::{Gid, Lid};
use crate::clock::Moment;
use crate::path::PathRecord;

use age::{Age, Ages, Freshness};
use destination::Destination;

pub use age::Epoch;
pub use destination::{MAX_OTHER_VARIANTS, MAX_SERVICE_VARIANTS};
pub use negative::{MAX_NEGATIVES, Negatives};

/// How much a [`PathStore`] keeps, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreLimits {
    /// Most answers, variants included. Memory is taken as they come.
    pub capacity: usize,
    /// Milliseconds that an answer is good for; `None` is without end.
    pub ttl: Option<u64>,
    /// Milliseconds after a re-registration that older answers may stand in for a silent SA;
    /// 0 drops them at once.
    pub stale_ttl: u64,
    /// Milliseconds that "no such path" is remembered; 0 is not at all.
    pub negative_ttl: u64,
}

/// What is known about paths from one endpoint.
pub struct PathStore {
    source: Source,
    capacity: usize,
    ages: Ages,
    destinations: LruCache<Gid, Destination>,
    /// Whose LID it is: the destination that was last heard to have it.
    lids: HashMap<Lid, Gid, lru::DefaultHasher>,
    /// Plain answers and variants of all destinations.
    answers: usize,
    missing: Negatives<Question>,
}

impl PathStore {
    /// An empty store for the questions of `source`.
    #[must_use]
    pub fn new(source: Source, limits: StoreLimits) -> PathStore {
        PathStore {
            source,
            capacity: limits.capacity,
            ages: Ages::new(limits.ttl, limits.stale_ttl),
            destinations: LruCache::unbounded(),
            lids: HashMap::default(),
            answers: 0,
            missing: Negatives::new(limits.negative_ttl),
        }
    }

    /// The endpoint whose questions are answered here.
    #[must_use]
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Answers held, fresh or not.
    #[must_use]
    pub fn len(&self) -> usize {
        self.answers
    }

    /// Whether no answer is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.answers == 0
    }

    /// The fresh answer to `question`, if there is one. Allocates nothing; looks up one hash
    /// for a GID, two for a LID.
    #[inline]
    pub fn get(&mut self, question: &Question, now: Moment) -> Option<PathRecord> {
        let gid = self.gid_of(question.target)?;
        let destination = self.destinations.get(&gid)?;
        let fresh = |age| self.ages.freshness(age, now) == Freshness::Fresh;
        destination.find(gid, &self.source, question, fresh)
    }

    /// The answer to `question` from before a re-registration, as long as it may stand in for
    /// a silent SA; a fresh one does as well.
    #[must_use]
    pub fn get_stale(&self, question: &Question, now: Moment) -> Option<PathRecord> {
        let gid = self.gid_of(question.target)?;
        let destination = self.destinations.peek(&gid)?;
        let usable = |age| self.ages.freshness(age, now) != Freshness::Gone;
        destination.find(gid, &self.source, question, usable)
    }

    /// Whether the SA said, not long ago, that there is no such path.
    pub fn is_missing(&mut self, question: &Question, now: Moment) -> bool {
        self.missing.contains(question, now)
    }

    /// What an answer must have been asked in to be kept: see [`learn`](PathStore::learn).
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.ages.current()
    }

    /// Keeps the SA's answer to `question`. `asked` is the store's epoch when the SA was asked:
    /// an answer from before a re-registration or a clear is not kept, nor is a path that does
    /// not answer the question (see [`answer::check`]).
    pub fn learn(&mut self, question: &Question, path: &PathRecord, asked: Epoch, now: Moment) {
        if asked != self.epoch() || answer::check(question, &self.source, path).is_err() {
            return;
        }
        self.missing.remove(question);
        let (gid, dlid) = (path.dgid(), path.dlid());
        let age = Age {
            learned: now,
            epoch: asked,
        };
        let destination = self
            .destinations
            .get_or_insert_mut(gid, Destination::default);
        let before = destination.len();
        let fresh = |age| self.ages.freshness(age, now) == Freshness::Fresh;
        let dropped = destination.learn(question, path, age, fresh);
        self.answers = self.answers + destination.len() - before;
        self.lids.insert(dlid, gid);
        for lid in dropped {
            self.forget_lid(lid, gid);
        }
        self.evict();
    }

    /// Forgets a destination whose plain path does not lead where `is_there` says.
    pub fn forget_unless(&mut self, gid: Gid, is_there: impl Fn(Lid) -> bool) {
        let leads_elsewhere =
            |destination: &Destination| destination.plain_lid().is_some_and(|lid| !is_there(lid));
        if !self.destinations.peek(&gid).is_some_and(leads_elsewhere) {
            return;
        }
        if let Some(destination) = self.destinations.pop(&gid) {
            self.answers -= destination.len();
            for lid in destination.lids() {
                self.forget_lid(lid, gid);
            }
        }
    }

    /// Remembers that the SA has no such path. `asked` as for [`learn`](PathStore::learn).
    pub fn learn_missing(&mut self, question: &Question, asked: Epoch, now: Moment) {
        if asked == self.epoch() {
            self.missing.insert(*question, now);
        }
    }

    /// The SA asked clients to register anew (`IBV_EVENT_CLIENT_REREGISTER`): what is known is
    /// stale from now on, in constant time, and what was missing may be there.
    pub fn reregister(&mut self, now: Moment) {
        self.ages.end_epoch(now);
        self.missing.clear();
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.ages.forget_epochs();
        self.destinations = LruCache::unbounded();
        self.lids = HashMap::default();
        self.answers = 0;
        self.missing.clear();
    }

    fn gid_of(&self, target: Target) -> Option<Gid> {
        match target {
            Target::Gid(gid) => Some(gid),
            Target::Lid(lid) => self.lids.get(&lid).copied(),
        }
    }

    /// An answer with this DLID left the destination.
    fn forget_lid(&mut self, lid: Lid, gid: Gid) {
        let still_there = self
            .destinations
            .peek(&gid)
            .is_some_and(|d| d.leads_to(lid));
        if !still_there && self.lids.get(&lid) == Some(&gid) {
            self.lids.remove(&lid);
        }
    }

    /// Makes room: other destinations first, then the oldest variants of the last one.
    fn evict(&mut self) {
        while self.answers > self.capacity {
            if self.destinations.len() > 1 {
                let Some((gid, destination)) = self.destinations.pop_lru() else {
                    return;
                };
                self.answers -= destination.len();
                for lid in destination.lids() {
                    self.forget_lid(lid, gid);
                }
            } else {
                let Some((&gid, _)) = self.destinations.peek_mru() else {
                    return;
                };
                let lid = self
                    .destinations
                    .peek_mut(&gid)
                    .and_then(Destination::shrink);
                let Some(lid) = lid else { return };
                self.answers -= 1;
                if self.destinations.peek(&gid).is_some_and(|d| d.len() == 0) {
                    self.destinations.pop(&gid);
                }
                self.forget_lid(lid, gid);
            }
        }
    }
}

#[cfg(test)]
mod tests;
