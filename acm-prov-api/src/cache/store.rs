//! Answers by query, for one endpoint.
//!
//! An entry is a destination, a GID or a LID, with the path that answers the plain query for it; and, only where asked
//! for, answers to queries that name more. A GID and a LID are two destinations, even of one port: which GID has a LID
//! is learnt by asking for the LID, since a far GID's path has the LID of a router, and an alias GID its port's.
//!
//! While paths are [renewed](PathStore::set_renewing), what was used lately may be answered though it is stale, and
//! [`due`](PathStore::due) says what is to be asked for again. Plain answers can be [saved](PathStore::fresh) and
//! [loaded](PathStore::load).
//!
//! Bounded by the number of answers; the destination used least recently goes first, with all that is known of it.

mod age;
mod destination;
mod negative;

use std::time::Duration;

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
    renewing: Renewing,
    changes: u64,
}

/// Which stale answers are renewed, and given until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewing {
    /// None.
    Nothing,
    /// What was [loaded](PathStore::load).
    Loaded,
    /// All that were used lately, and what was loaded. Fresh answers in use are renewed before they are too old.
    Used,
}

/// A plain answer that outlives its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// What was asked for.
    pub target: Target,
    /// The SA's answer.
    pub path: PathRecord,
    /// How long ago it was given.
    pub age: Duration,
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
            renewing: Renewing::Nothing,
            changes: 0,
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
        let used = ages.used_now();
        if query.is_plain(source) {
            let target = targets(query).next()?;
            let destination = destinations.get_mut(&target)?;
            let path = destination.find_plain(source, fresh);
            if path.is_some() {
                destination.touch(used);
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
            let destination = destinations.get_mut(&target)?;
            let path = destination.find(target, source, query, fresh)?;
            destination.touch(used);
            Some(path)
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

    /// Sets which stale answers are renewed: [`due`](Self::due) names them, [`get_while_renewed`](Self::get_while_renewed)
    /// gives them.
    pub fn set_renewing(&mut self, renewing: Renewing) {
        self.renewing = renewing;
    }

    /// An answer from before a re-registration, while those are renewed: one that was used lately, or was loaded.
    #[must_use]
    pub fn get_while_renewed(&mut self, query: &PathQuery, now: Moment) -> Option<PathRecord> {
        if self.renewing == Renewing::Nothing {
            return None;
        }
        let renews_used = self.renewing == Renewing::Used;
        let ages = &self.ages;
        targets(query).find_map(|target| {
            let destination = self.destinations.get_mut(&target)?;
            let was_used = renews_used && ages.was_used_lately(destination.used());
            let usable = |age: Age| {
                ages.freshness(age, now) != Freshness::Gone
                    && (was_used || ages.is_loaded(age.epoch))
            };
            let path = destination.find(target, &self.source, query, usable)?;
            destination.touch(ages.used_now());
            Some(path)
        })
    }

    /// Ends a period of use. What was used in none of the last two periods was not used lately.
    pub fn end_use_period(&mut self) {
        self.ages.end_period();
    }

    /// Queries whose answers were used lately and are stale, or will soon be too old; `limit` at the most, the one used last
    /// first.
    #[must_use]
    pub fn due(&self, now: Moment, limit: usize) -> Vec<PathQuery> {
        if self.renewing == Renewing::Nothing || !self.ages.can_be_due() {
            return Vec::new();
        }
        let used = self.destinations.iter();
        let used = used.filter(|(_, there)| self.ages.was_used_lately(there.used()));
        used.flat_map(|(target, there)| there.queries(*target, &self.source))
            .filter(|(_, age)| self.is_age_due(*age, now))
            .map(|(query, _)| query)
            .take(limit)
            .collect()
    }

    /// Whether the answer to a query is still one of those that are [due](Self::due).
    #[must_use]
    pub fn is_due(&self, query: &PathQuery, now: Moment) -> bool {
        targets(query).next().is_some_and(|target| {
            let there = self.destinations.peek(&target);
            let mut queries = there
                .into_iter()
                .flat_map(|there| there.queries(target, &self.source));
            queries.any(|(known, age)| known == *query && self.is_age_due(age, now))
        })
    }

    fn is_age_due(&self, age: Age, now: Moment) -> bool {
        let is_meant = match self.renewing {
            Renewing::Nothing => false,
            Renewing::Loaded => self.ages.is_loaded(age.epoch),
            Renewing::Used => true,
        };
        is_meant && self.ages.is_due(age, now)
    }

    /// A number that differs once the fresh plain answers do.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The fresh plain answers, the one used last last.
    pub fn fresh(&self, now: Moment) -> impl Iterator<Item = Kept> {
        self.destinations
            .iter()
            .rev()
            .filter_map(move |(target, there)| {
                let (path, age) = there.plain(&self.source)?;
                let is_fresh = self.ages.freshness(age, now) == Freshness::Fresh;
                is_fresh.then(|| Kept {
                    target: *target,
                    path,
                    age: Duration::from_millis(now.since(age.learned)),
                })
            })
    }

    /// Takes in answers from another time, once, where nothing is known: they are stale, and answer while they are
    /// [renewed](Self::set_renewing). The last one counts as used last. Gives their number.
    pub fn load(&mut self, kept: impl IntoIterator<Item = Kept>, now: Moment) -> usize {
        let Some(epoch) = self.ages.load(now) else {
            return 0;
        };
        let mut loaded = 0;
        for Kept { target, path, age } in kept {
            let age = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
            let age = Age {
                learned: Moment::from_millis(now.since(Moment::from_millis(age))),
                epoch,
            };
            if self.ages.freshness(age, now) == Freshness::Gone
                || self.destinations.contains(&target)
            {
                continue;
            }
            let destination = self
                .destinations
                .get_or_insert_mut(target, Destination::default);
            destination.load(&path, age);
            self.answers += 1;
            loaded += 1;
            self.evict();
        }
        loaded
    }

    /// Forgets what was loaded and has not been renewed. False if that is forgotten already.
    pub fn drop_loaded(&mut self) -> bool {
        self.ages.drop_loaded()
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
    /// asked: an answer from before a re-registration or a clear is not kept. True if a [loaded](Self::load) answer turns out
    /// to be wrong: the port is at another LID, or the LID is another port's.
    pub fn learn(
        &mut self,
        query: &PathQuery,
        path: &PathRecord,
        asked: Epoch,
        now: Moment,
    ) -> bool {
        let Some(target) = targets(query).next().filter(|_| asked == self.epoch()) else {
            return false;
        };
        self.changes += 1;
        self.missing.remove(query);
        let age = Age {
            learned: now,
            epoch: asked,
        };
        let destination = self
            .destinations
            .get_or_insert_mut(target, Destination::default);
        let before = destination.len();
        // What was not used lately is not renewed: a client has asked.
        let used = match destination.used() {
            used if self.ages.was_used_lately(used) => used,
            _ => self.ages.used_now(),
        };
        let was = destination.learn(query, &self.source, path, age, used);
        self.answers = self.answers + destination.len() - before;
        if let Some((gid, lid, _)) = was
            && gid == path.dgid()
        {
            self.forget_lid_of(gid, lid);
        }
        self.evict();
        was.is_some_and(|(.., epoch)| self.ages.is_loaded(epoch))
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
            self.changes += 1;
            self.answers -= destination.len();
        }
    }

    /// Remembers that the SA has no such path. `asked` as for [`learn`](PathStore::learn).
    pub fn learn_missing(&mut self, query: &PathQuery, asked: Epoch, now: Moment) {
        if asked != self.epoch() {
            return;
        }
        self.missing.insert(*query, now);
        // What is renewed would be answered on.
        let renews = self.renewing != Renewing::Nothing;
        for target in targets(query).filter(|_| renews) {
            if let Some(destination) = self.destinations.peek_mut(&target) {
                self.answers -= destination.len();
                destination.forget(query, &self.source);
                self.answers += destination.len();
                self.changes += 1;
                if destination.len() == 0 {
                    self.destinations.pop(&target);
                }
            }
        }
    }

    /// The SA asked clients to register anew (`IBV_EVENT_CLIENT_REREGISTER`): what is known is
    /// stale from now on, in constant time, and what was missing may be there.
    pub fn reregister(&mut self, now: Moment) {
        self.ages.end_epoch(now);
        self.missing.clear();
        self.changes += 1;
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.ages.forget_epochs();
        self.changes += 1;
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
