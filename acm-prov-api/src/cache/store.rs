//! Answers by query, for one endpoint.
//!
//! An entry is a destination, a GID or a LID, with the path that answers the plain query for it; and, only where asked
//! for, answers to queries that name more. A GID and a LID are two destinations, even of one port: which GID has a LID
//! is learnt by asking for the LID, since a far GID's path has the LID of a router, and an alias GID its port's.
//!
//! Bounded by the number of answers; the destination used least recently goes first, with all that is known of it.

mod age;
mod destination;
mod negative;

use lru::LruCache;

use crate::address::{Gid, Lid};
use crate::clock::Moment;
use crate::path::PathRecord;
use crate::sa::{Component, PathQuery, Source, Target};

use age::{Age, Ages, Freshness};
use destination::Destination;

pub use age::Epoch;
pub use destination::{MAX_OTHER_ANSWERS, MAX_SERVICE_ANSWERS};
pub use negative::{MAX_NEGATIVES, Negatives};

/// How much a [`PathStore`] keeps, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreLimits {
    /// Most answers. Memory is taken as they come.
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
    destinations: LruCache<Target, Destination>,
    /// Answers of all destinations.
    answers: usize,
    missing: Negatives<PathQuery>,
}

impl PathStore {
    /// An empty store for the queries of `source`.
    #[must_use]
    pub fn new(source: Source, limits: StoreLimits) -> PathStore {
        PathStore {
            source,
            capacity: limits.capacity,
            ages: Ages::new(limits.ttl, limits.stale_ttl),
            destinations: LruCache::unbounded(),
            answers: 0,
            missing: Negatives::new(limits.negative_ttl),
        }
    }

    /// The endpoint whose queries are answered here.
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

    /// The fresh answer to a [complete](PathQuery::complete) query, if there is one: one that was
    /// [given for it](PathQuery::is_answered_by) or for a query that asked for less. Allocates nothing.
    #[inline]
    pub fn get(&mut self, query: &PathQuery, now: Moment) -> Option<PathRecord> {
        let Self {
            source,
            ages,
            destinations,
            ..
        } = self;
        let fresh = |age| ages.freshness(age, now) == Freshness::Fresh;
        if query.is_plain(source) {
            let target = targets(query).next()?;
            let path = destinations.get(&target)?.find_plain(source, fresh);
            if path.is_some() {
                return path;
            }
        }
        // A record that is repeated comes before another that would do: its SL of 0 names no SL.
        let repeated = targets(query).find_map(|target| {
            destinations
                .peek(&target)?
                .find_repeated(source, query, fresh)
        });
        let found = targets(query).find_map(|target| {
            destinations
                .get(&target)?
                .find(target, source, query, fresh)
        });
        repeated.or(found)
    }

    /// The answer to a query from before a re-registration, as long as it may stand in for a silent SA; a fresh one does as
    /// well.
    #[must_use]
    pub fn get_stale(&self, query: &PathQuery, now: Moment) -> Option<PathRecord> {
        let usable = |age| self.ages.freshness(age, now) != Freshness::Gone;
        targets(query).find_map(|target| {
            self.destinations
                .peek(&target)?
                .find(target, &self.source, query, usable)
        })
    }

    /// Whether the SA said, not long ago, that there is no such path.
    pub fn is_missing(&mut self, query: &PathQuery, now: Moment) -> bool {
        self.missing.contains(query, now)
    }

    /// What an answer must have been asked in to be kept: see [`learn`](PathStore::learn).
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.ages.current()
    }

    /// Keeps the SA's answer to a query that it [answers](PathQuery::check). `asked` is the store's epoch when the SA was
    /// asked: an answer from before a re-registration or a clear is not kept.
    pub fn learn(&mut self, query: &PathQuery, path: &PathRecord, asked: Epoch, now: Moment) {
        let Some(target) = targets(query).next().filter(|_| asked == self.epoch()) else {
            return;
        };
        self.missing.remove(query);
        let age = Age {
            learned: now,
            epoch: asked,
        };
        let destination = self
            .destinations
            .get_or_insert_mut(target, Destination::default);
        let before = destination.len();
        let moved_from = destination.learn(query, &self.source, path, age);
        self.answers = self.answers + destination.len() - before;
        if let Some(lid) = moved_from {
            self.forget_lid_of(path.dgid(), lid);
        }
        self.evict();
    }

    /// Forgets a GID if one of its paths does not lead where `is_there` says, and the LIDs there that were that port's.
    pub fn forget_unless(&mut self, gid: Gid, is_there: impl Fn(Lid) -> bool) {
        let target = Target::Gid(gid);
        let Some(destination) = self.destinations.peek(&target) else {
            return;
        };
        let ports = destination.ports();
        let elsewhere: Vec<Lid> = ports
            .map(|(_, lid)| lid)
            .filter(|lid| !is_there(*lid))
            .collect();
        if !elsewhere.is_empty() {
            self.forget(&target);
        }
        for lid in elsewhere {
            self.forget_lid_of(gid, lid);
        }
    }

    /// Forgets a LID if it was that port's: it is another's now, or nobody's. The LID of a router to a far GID stays.
    fn forget_lid_of(&mut self, gid: Gid, lid: Lid) {
        let target = Target::Lid(lid);
        let destination = self.destinations.peek(&target);
        if destination.is_some_and(|there| there.ports().any(|port| port == (gid, lid))) {
            self.forget(&target);
        }
    }

    fn forget(&mut self, target: &Target) {
        if let Some(destination) = self.destinations.pop(target) {
            self.answers -= destination.len();
        }
    }

    /// Remembers that the SA has no such path. `asked` as for [`learn`](PathStore::learn).
    pub fn learn_missing(&mut self, query: &PathQuery, asked: Epoch, now: Moment) {
        if asked == self.epoch() {
            self.missing.insert(*query, now);
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
        self.answers = 0;
        self.missing.clear();
    }

    /// Makes room: other destinations first, then the oldest answers of the last one.
    fn evict(&mut self) {
        while self.answers > self.capacity {
            if self.destinations.len() > 1 {
                let Some((_, destination)) = self.destinations.pop_lru() else {
                    return;
                };
                self.answers -= destination.len();
            } else {
                let Some((&target, _)) = self.destinations.peek_mru() else {
                    return;
                };
                let last = self.destinations.peek_mut(&target);
                if !last.is_some_and(Destination::shrink) {
                    return;
                }
                self.answers -= 1;
                let last = self.destinations.peek(&target);
                if last.is_some_and(|last| last.len() == 0) {
                    self.destinations.pop(&target);
                }
            }
        }
    }
}

/// The destinations under which an answer may be known; the first is where one is kept.
fn targets(query: &PathQuery) -> impl Iterator<Item = Target> {
    let values = query.values();
    let gid = query.names(Component::Dgid);
    let lid = query.names(Component::Dlid);
    let gid = gid.then(|| Target::Gid(values.dgid()));
    [gid, lid.then(|| Target::Lid(values.dlid()))]
        .into_iter()
        .flatten()
}

#[cfg(test)]
mod tests;
