//! What one thread at a time does with a store.

use super::age::{Age, Ages, Freshness, millis};
use super::negative::Negatives;
use super::side::Side;
use super::{AHEAD, Discarded, Preloads, Readers, StoreLimits, targets};
use crate::address::{Gid, Lid};
use crate::cache::table::{Entry, Key, Table};
use crate::clock::Moment;
use crate::path::PathRecord;
use crate::sa::{PathQuery, Source, Target};
use crate::sync::Arc;
use crate::sync::atomic::Ordering;

/// Slots that the hand of the clock looks at for an entry that was not used, before it takes the next that it meets.
const PATIENCE: usize = 1_024;

/// The table and what is beside it.
pub(super) struct Writer {
    source: Source,
    limits: StoreLimits,
    pub ages: Ages,
    /// The one that [readers](Readers) have.
    table: Arc<Table>,
    /// Where the next entry is evicted.
    hand: usize,
    /// The SA's answers in the table.
    plain: usize,
    /// Preloaded paths in the table.
    preloaded: usize,
    pub preloads: Preloads,
    pub(super) side: Side,
    pub missing: Negatives<PathQuery>,
}

impl Writer {
    pub fn new(source: Source, limits: StoreLimits, table: Arc<Table>) -> Self {
        Self {
            source,
            limits,
            ages: Ages::new(limits.ttl, limits.stale_ttl),
            table,
            hand: 0,
            plain: 0,
            preloaded: 0,
            preloads: Preloads(0),
            side: Side::new(),
            missing: Negatives::new(limits.negative_ttl),
        }
    }

    /// The SA's answers.
    pub fn len(&self) -> usize {
        self.plain + self.side.len()
    }

    pub fn get(&mut self, query: &PathQuery, now: Moment) -> Option<PathRecord> {
        if query.is_plain(&self.source) {
            let path = self.plain(targets(query).next()?, |age| self.is_fresh(age, now));
            if path.is_some() {
                return path;
            }
        }
        // A record that is repeated comes before another that would do: its SL of 0 names no SL.
        let repeated = targets(query).find_map(|target| {
            let is_fresh = |age| self.is_fresh(age, now);
            let path = self.plain(target, is_fresh);
            path.filter(|path| query.repeats(path))
                .or_else(|| self.side.peek(target)?.find_repeated(query, is_fresh))
        });
        let found = targets(query).find_map(|target| {
            // It is used.
            self.side.get(target);
            self.find(target, query, |age| self.is_fresh(age, now))
        });
        repeated.or(found)
    }

    pub fn get_stale(&self, query: &PathQuery, now: Moment) -> Option<PathRecord> {
        let usable = |age| self.ages.freshness(age, now) != Freshness::Gone;
        targets(query).find_map(|target| self.find(target, query, usable))
    }

    fn is_fresh(&self, age: Age, now: Moment) -> bool {
        self.ages.freshness(age, now) == Freshness::Fresh
    }

    /// An answer to any query for `target`, whose age is right.
    fn find(
        &self,
        target: Target,
        query: &PathQuery,
        is_right: impl Fn(Age) -> bool,
    ) -> Option<PathRecord> {
        let plain = self.plain(target, &is_right).filter(|path| {
            let asked = PathQuery::to(target).complete(&self.source);
            query.is_answered_by(&asked, path)
        });
        plain.or_else(|| self.side.peek(target)?.find(query, is_right))
    }

    /// The SA's path in the table, if its age is right.
    fn plain(&self, target: Target, is_right: impl Fn(Age) -> bool) -> Option<PathRecord> {
        let key = Key::new(target, &self.source)?;
        let (slot, entry) = self.table.find(key)?;
        if entry.is_preloaded() || !is_right(self.age(&entry)) {
            return None;
        }
        entry.visit(slot);
        Some(entry.path(&self.source))
    }

    fn age(&self, entry: &Entry) -> Age {
        Age {
            learned: Moment::from_millis(entry.learned()),
            epoch: self.ages.epoch_of(entry.epoch()),
        }
    }

    /// GID and LID where the SA's path in the table leads.
    fn plain_port(&self, target: Target) -> Option<(Gid, Lid)> {
        let (_, entry) = self.table.find(Key::new(target, &self.source)?)?;
        (!entry.is_preloaded()).then(|| port(&entry.path(&self.source)))
    }

    /// GID and LID where what the SA said of a destination leads.
    fn ports(&self, target: Target) -> impl Iterator<Item = (Gid, Lid)> {
        let others = self.side.peek(target).into_iter();
        let others = others.flat_map(|others| others.ports());
        self.plain_port(target).into_iter().chain(others)
    }

    pub fn learn(&mut self, readers: &Readers, query: &PathQuery, path: &PathRecord, now: Moment) {
        let Some(target) = targets(query).next() else {
            return;
        };
        self.missing.remove(query);
        if self.limits.capacity == 0 {
            return;
        }
        let age = Age {
            learned: now,
            epoch: self.ages.current(),
        };
        if query.is_plain(&self.source) {
            self.learn_plain(readers, target, query, path, age);
        } else {
            self.side.learn(target, query, path, age);
        }
        while self.len() > self.limits.capacity && self.evict() {}
    }

    /// Takes in the answer to a plain query. If it shows that the destination is another port now, what else was known dates
    /// from before and goes, and so does the LID that the port had before.
    fn learn_plain(
        &mut self,
        readers: &Readers,
        target: Target,
        query: &PathQuery,
        path: &PathRecord,
        age: Age,
    ) {
        let beside = || self.side.peek(target)?.port(query);
        let last = self.plain_port(target).or_else(beside);
        if let Some((gid, lid)) = last.filter(|last| *last != port(path)) {
            self.side.forget(target);
            if gid == path.dgid() {
                self.forget_lid_of(gid, lid);
            }
        }
        let entry = Key::new(target, &self.source).and_then(|key| {
            let learned = age.learned.since(Moment::default());
            let entry = Entry::new(key, path, &self.source, learned, age.epoch.low())?;
            Some((key, entry))
        });
        let Some((key, entry)) = entry else {
            self.forget_plain(target);
            self.side.learn(target, query, path, age);
            return;
        };
        self.side.forget_answer(target, query);
        if self.plain_port(target).is_none() {
            while self.len() >= self.limits.capacity && self.evict() {}
        }
        self.put(readers, key, entry);
    }

    /// Puts an entry into the table, unless there is no memory for it.
    fn put(&mut self, readers: &Readers, key: Key, entry: Entry) {
        if self.table.find(key).is_none() {
            while self.plain + self.preloaded >= self.table.room() {
                if !self.grow(readers) && !self.evict_plain() {
                    return;
                }
            }
        }
        if let Some(last) = self.table.put(key, entry) {
            *self.count(&last) -= 1;
        }
        *self.count(&entry) += 1;
        if let Some(tick_at) = self.tick_for(readers, &entry) {
            readers.tick_at.fetch_min(tick_at, Ordering::Relaxed);
        }
    }

    /// When hits have to be told the time, so that they do not give that entry after its TTL. `None`: they never do.
    fn tick_for(&self, readers: &Readers, entry: &Entry) -> Option<u64> {
        let end = entry.learned().saturating_add(millis(self.limits.ttl?));
        let is_over = end <= readers.now.load(Ordering::Relaxed);
        (!is_over).then(|| end - AHEAD * readers.period.unwrap_or(0))
    }

    /// Says when hits have to be told the time after this.
    pub fn schedule(&self, readers: &Readers, now: Moment) {
        let Some(period) = readers.period else {
            return;
        };
        let entries = self.table.entries();
        let next = entries.filter_map(|entry| self.tick_for(readers, &entry));
        let earliest = now.after(period).since(Moment::default());
        let tick_at = next.min().map_or(u64::MAX, |next| next.max(earliest));
        readers.tick_at.store(tick_at, Ordering::Relaxed);
    }

    fn count(&mut self, entry: &Entry) -> &mut usize {
        match entry.is_preloaded() {
            true => &mut self.preloaded,
            false => &mut self.plain,
        }
    }

    /// Replaces the table by a larger one. Readers go on with the old one until the new one is filled.
    fn grow(&mut self, readers: &Readers) -> bool {
        let Some(grown) = self.table.grown() else {
            return false;
        };
        self.table = Arc::new(grown);
        self.hand = 0;
        drop(readers.publish(&self.table));
        true
    }

    /// Makes room. False: there is nothing to evict.
    fn evict(&mut self) -> bool {
        if self.side.len() > self.plain {
            self.side.evict()
        } else {
            self.evict_plain()
        }
    }

    fn evict_plain(&mut self) -> bool {
        if self.plain == 0 {
            return false;
        }
        let may_go = |entry: &Entry| !entry.is_preloaded();
        let evicted = self.table.evict(&mut self.hand, PATIENCE, may_go);
        self.plain -= usize::from(evicted.is_some());
        evicted.is_some()
    }

    pub fn forget_unless(&mut self, gid: Gid, is_there: impl Fn(Lid) -> bool) {
        let target = Target::Gid(gid);
        let ports = self.ports(target).map(|(_, lid)| lid);
        let elsewhere: Vec<Lid> = ports.filter(|lid| !is_there(*lid)).collect();
        if !elsewhere.is_empty() {
            self.forget(target);
        }
        for lid in elsewhere {
            self.forget_lid_of(gid, lid);
        }
    }

    /// Forgets a LID if it was that port's: it is another's now, or nobody's. The LID of a router to a far GID stays.
    fn forget_lid_of(&mut self, gid: Gid, lid: Lid) {
        let target = Target::Lid(lid);
        if self.ports(target).any(|port| port == (gid, lid)) {
            self.forget(target);
        }
    }

    fn forget(&mut self, target: Target) {
        self.forget_plain(target);
        self.side.forget(target);
    }

    fn forget_plain(&mut self, target: Target) {
        if self.plain_port(target).is_some()
            && let Some(key) = Key::new(target, &self.source)
            && self.table.remove(key).is_some()
        {
            self.plain -= 1;
        }
    }

    pub fn preload(
        &mut self,
        readers: &Readers,
        target: Target,
        path: &PathRecord,
        read: Moment,
        now: Moment,
    ) {
        let Some(key) = Key::new(target, &self.source) else {
            return;
        };
        let learned = read.since(Moment::default());
        let Some(entry) = Entry::new(key, path, &self.source, learned, 0) else {
            return;
        };
        let plain = PathQuery::to(target).complete(&self.source);
        if self
            .find(target, &plain, |age| self.is_fresh(age, now))
            .is_none()
        {
            self.put(readers, key, entry.preloaded());
        }
    }

    pub fn forget_preloaded(&mut self, is_meant: impl Fn(Gid, Lid) -> bool) {
        self.preloads.0 += 1;
        if self.preloaded == 0 {
            return;
        }
        self.preloaded -= self.table.remove_all(|entry| {
            entry.is_preloaded() && {
                let (gid, lid) = port(&entry.path(&self.source));
                is_meant(gid, lid)
            }
        });
    }

    pub fn reregister(&mut self, readers: &Readers, now: Moment) {
        self.ages.end_epoch(now);
        self.missing.clear();
        if self.ages.is_time_to_purge() {
            self.plain -= self.table.remove_all(|entry| {
                !entry.is_preloaded() && self.ages.is_gone(self.age(entry).epoch)
            });
        }
        readers.publish_epoch(self.ages.current());
    }

    /// Starts anew with an empty table; gives what was there.
    pub fn clear(&mut self, readers: &Readers, table: Arc<Table>) -> Discarded {
        let empty = Self::new(self.source, self.limits, table);
        let mut old = std::mem::replace(self, empty);
        std::mem::swap(&mut self.ages, &mut old.ages);
        self.ages.forget_epochs();
        self.preloads = old.preloads;
        readers.publish_epoch(self.ages.current());
        Discarded {
            _table: readers.publish(&self.table),
            _writer: old,
        }
    }
}

fn port(path: &PathRecord) -> (Gid, Lid) {
    (path.dgid(), path.dlid())
}
