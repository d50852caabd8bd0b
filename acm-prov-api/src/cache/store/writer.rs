//! The writing side of a store, for one thread at a time.

use super::age::{Age, Ages, Epoch, Freshness, Use};
use super::negative::Negatives;
use super::side::Side;
use super::{AHEAD, Discarded, Kept, Known, Preloads, Readers, Renewing, StoreLimits, targets};
use crate::address::{Gid, Lid};
use crate::cache::counters::EVICTIONS;
use crate::cache::table::{Entry, TableKey};
use crate::cache::tables::{self, Tables};
use crate::clock::{Moment, millis};
use crate::path::PathRecord;
use crate::sa::{PathQuery, Source, Target};
use crate::sync::Arc;
use crate::sync::atomic::Ordering;
use std::time::Duration;

/// How many slots the hand of the clock searches for an unused entry before it evicts any entry.
const PATIENCE: usize = 1_024;

/// Slots that [`Writer::fresh`] reads at a time: about a millisecond of work.
const WALKED_AT_A_TIME: usize = 16_384;

/// A walk through the table, and the answers found so far.
#[derive(Default)]
pub(super) struct Walk {
    /// The table and the epoch of the walk.
    begun: Option<(tables::Use, Epoch)>,
    next: usize,
    kept: Vec<Kept>,
}

impl Walk {
    pub fn into_kept(self) -> Vec<Kept> {
        self.kept
    }
}

/// The table and the answers outside it.
pub(super) struct Writer {
    source: Source,
    limits: StoreLimits,
    pub ages: Ages,
    /// The same tables as the [readers'](Readers).
    tables: Arc<Tables>,
    /// The slot where the search for the next eviction begins.
    hand: usize,
    /// The number of SA answers in the table.
    plain: usize,
    /// The number of preloaded paths in the table.
    preloaded: usize,
    pub preloads: Preloads,
    pub(super) side: Side,
    pub missing: Negatives<PathQuery>,
    pub renewing: Renewing,
    /// Changes with the fresh plain answers.
    pub changes: u64,
}

impl Writer {
    pub fn new(source: Source, limits: StoreLimits, tables: Arc<Tables>) -> Self {
        Self {
            source,
            limits,
            ages: Ages::new(limits.ttl, limits.stale_ttl),
            tables,
            hand: 0,
            plain: 0,
            preloaded: 0,
            preloads: Preloads(0),
            side: Side::new(),
            missing: Negatives::new(limits.negative_ttl),
            renewing: Renewing::Nothing,
            changes: 0,
        }
    }

    /// Returns the number of SA answers.
    pub fn len(&self) -> usize {
        self.plain + self.side.len()
    }

    /// Whether all answers are in the table.
    pub fn has_no_others(&self) -> bool {
        self.side.is_empty() && self.missing.is_empty()
    }

    pub fn mapped_bytes(&self) -> usize {
        self.tables.mapped_bytes()
    }

    /// See [`PathStore::look_up`](super::PathStore::look_up).
    pub fn look_up(&mut self, query: &PathQuery, now: Moment) -> Known {
        let is_known = targets(query)
            .any(|target| self.plain_entry(target).is_some() || self.side.peek(target).is_some());
        let fresh = if is_known { self.get(query, now) } else { None };
        if let Some(path) = fresh {
            return Known::Fresh(path);
        }
        if self.missing.contains(query, now) {
            return Known::Missing;
        }
        if !is_known {
            return Known::Nothing;
        }
        if let Some(path) = self.get_while_renewed(query, now) {
            return Known::Renewed(path);
        }
        self.get_stale(query, now)
            .map_or(Known::Nothing, Known::Stale)
    }

    pub fn get(&mut self, query: &PathQuery, now: Moment) -> Option<PathRecord> {
        if query.is_plain(&self.source) {
            let path = self.plain(targets(query).next()?, |age| self.is_fresh(age, now));
            if path.is_some() {
                return path;
            }
        }
        // First a record that the query repeats: its SL 0 is not a constraint.
        let repeated = targets(query).find_map(|target| {
            let is_fresh = |age| self.is_fresh(age, now);
            let path = self.plain(target, is_fresh);
            path.filter(|path| query.repeats(path))
                .or_else(|| self.side.peek(target)?.find_repeated(query, is_fresh))
        });
        let found = targets(query).find_map(|target| {
            let path = self.find(target, query, |age| self.is_fresh(age, now))?;
            self.side.touch(target, self.ages.used_now());
            Some(path)
        });
        repeated.or(found)
    }

    pub fn get_stale(&self, query: &PathQuery, now: Moment) -> Option<PathRecord> {
        let usable = |age| self.ages.freshness(age, now) != Freshness::Gone;
        targets(query).find_map(|target| self.find(target, query, usable))
    }

    /// See [`PathStore::get_while_renewed`](super::PathStore::get_while_renewed).
    pub fn get_while_renewed(&mut self, query: &PathQuery, now: Moment) -> Option<PathRecord> {
        if self.renewing == Renewing::Nothing {
            return None;
        }
        targets(query).find_map(|target| {
            let was_used = self.renewing == Renewing::Used && self.was_used_lately(target);
            let usable = |age: Age| {
                self.ages.freshness(age, now) != Freshness::Gone
                    && (was_used || age.epoch.is_none())
            };
            let path = self.find(target, query, usable)?;
            self.side.touch(target, self.ages.used_now());
            Some(path)
        })
    }

    fn was_used_lately(&self, target: Target) -> bool {
        let entry =
            TableKey::new(target, &self.source).and_then(|key| self.tables.table().find(key));
        let others = self.side.peek(target);
        entry.is_some_and(|(_, entry)| entry.is_in_use())
            || others.is_some_and(|others| self.ages.was_used_lately(others.used()))
    }

    pub fn end_use_period(&mut self) {
        self.ages.end_period();
        self.tables.table().end_period();
    }

    /// See [`PathStore::due`](super::PathStore::due).
    pub fn due(&self, now: Moment, limit: usize) -> Vec<PathQuery> {
        if self.renewing == Renewing::Nothing || !self.ages.can_be_due() {
            return Vec::new();
        }
        let plain = self.answers_in_table();
        let plain =
            plain.filter(|entry| entry.is_in_use() && self.is_age_due(self.age(entry), now));
        let plain = plain.map(|entry| self.plain_query(&entry));
        let others = self.side.destinations();
        let others = others.filter(|(_, others)| self.ages.was_used_lately(others.used()));
        let others = others.flat_map(|(_, others)| others.queries());
        let others = others.filter(|(_, age)| self.is_age_due(*age, now));
        let others = others.map(|(query, _)| query);
        plain.chain(others).take(limit).collect()
    }

    /// See [`PathStore::is_due`](super::PathStore::is_due).
    pub fn is_due(&self, query: &PathQuery, now: Moment) -> bool {
        let Some(target) = targets(query).next() else {
            return false;
        };
        let age = if query.is_plain(&self.source) {
            self.plain_entry(target).map(|entry| self.age(&entry))
        } else {
            None
        };
        let others = || {
            let mut queries = self.side.peek(target)?.queries();
            queries.find_map(|(known, age)| (known == *query).then_some(age))
        };
        let age = age.or_else(others);
        age.is_some_and(|age| self.is_age_due(age, now))
    }

    fn is_age_due(&self, age: Age, now: Moment) -> bool {
        let is_meant = match self.renewing {
            Renewing::Nothing => false,
            Renewing::Loaded => age.epoch.is_none(),
            Renewing::Used => true,
        };
        is_meant && self.ages.is_due(age, now)
    }

    /// Returns the SA answers in the table.
    fn answers_in_table(&self) -> impl Iterator<Item = Entry> {
        let entries = self.tables.table().entries();
        entries.filter(|entry| !entry.is_preloaded())
    }

    fn plain_query(&self, entry: &Entry) -> PathQuery {
        PathQuery::to(entry.target(&self.source)).complete(&self.source)
    }

    /// See [`PathStore::fresh`](super::PathStore::fresh).
    ///
    /// Reads the next part; false at the end.
    pub fn fresh(&self, walk: &mut Walk, now: Moment) -> bool {
        let table = self.tables.table();
        let begun = Some((self.tables.current(), self.ages.current()));
        if walk.begun != begun {
            // Entries may be in other slots now, or are no longer fresh: begin again.
            *walk = Walk {
                begun,
                ..Walk::default()
            };
        }
        let end = table.slots().min(walk.next + WALKED_AT_A_TIME);
        let entries = table.entries_in(walk.next..end);
        let fresh = entries.filter(|entry| !entry.is_preloaded());
        let fresh = fresh.filter(|entry| self.is_fresh(self.age(entry), now));
        let kept = fresh.map(|entry| Kept {
            target: entry.target(&self.source),
            path: entry.path(&self.source),
            age: Duration::from_millis(now.since(self.age(&entry).learned)),
        });
        walk.kept.extend(kept);
        walk.next = end;
        end < table.slots()
    }

    /// See [`PathStore::load`](super::PathStore::load).
    pub fn load(
        &mut self,
        readers: &Readers,
        kept: impl IntoIterator<Item = Kept>,
        now: Moment,
    ) -> usize {
        if !self.ages.load(now) {
            return 0;
        }
        let mut loaded = 0;
        for Kept { target, path, age } in kept {
            if self
                .load_one(readers, target, &path, millis(age), now)
                .is_some()
            {
                loaded += 1;
            }
        }
        loaded
    }

    fn load_one(
        &mut self,
        readers: &Readers,
        target: Target,
        path: &PathRecord,
        age: u64,
        now: Moment,
    ) -> Option<()> {
        let key = TableKey::new(target, &self.source)?;
        let learned = self.ages.learned(age, now)?.since(Moment::default());
        // Not the current epoch, which would make it fresh.
        let epoch = self.ages.current().low().wrapping_sub(1);
        let entry = Entry::new(key, path, &self.source, learned, epoch)?;
        if self.tables.table().find(key).is_some() || self.side.peek(target).is_some() {
            return None;
        }
        // A recent SA answer is not evicted for a loaded one.
        if self.len() >= self.limits.capacity {
            return None;
        }
        self.put(readers, key, entry.loaded());
        Some(())
    }

    /// Drops loaded answers. False if they were dropped before.
    pub fn drop_loaded(&mut self) -> bool {
        let were_there = self.ages.drop_loaded();
        if were_there {
            self.plain -= self.tables.table().remove_all(Entry::is_loaded);
        }
        were_there
    }

    fn is_fresh(&self, age: Age, now: Moment) -> bool {
        self.ages.freshness(age, now) == Freshness::Fresh
    }

    /// Returns an answer for `target` from inside or outside the table, if `is_right` accepts its age.
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

    /// Returns the SA's path in the table, if `is_right` accepts its age.
    fn plain(&self, target: Target, is_right: impl Fn(Age) -> bool) -> Option<PathRecord> {
        let key = TableKey::new(target, &self.source)?;
        let (slot, entry) = self.tables.table().find(key)?;
        if entry.is_preloaded() || !is_right(self.age(&entry)) {
            return None;
        }
        entry.visit(slot);
        Some(entry.path(&self.source))
    }

    fn age(&self, entry: &Entry) -> Age {
        Age {
            learned: Moment::from_millis(entry.learned()),
            epoch: (!entry.is_loaded()).then(|| self.ages.epoch_of(entry.epoch())),
        }
    }

    /// Returns the SA's answer in the table.
    fn plain_entry(&self, target: Target) -> Option<Entry> {
        let (_, entry) = self
            .tables
            .table()
            .find(TableKey::new(target, &self.source)?)?;
        (!entry.is_preloaded()).then_some(entry)
    }

    /// Returns the GID and LID of the SA's path in the table.
    fn plain_port(&self, target: Target) -> Option<(Gid, Lid)> {
        let entry = self.plain_entry(target)?;
        Some(self.port_of(&entry))
    }

    /// Returns the GIDs and LIDs of all SA answers for a destination.
    fn ports(&self, target: Target) -> impl Iterator<Item = (Gid, Lid)> {
        let others = self.side.peek(target).into_iter();
        let others = others.flat_map(|others| others.ports());
        self.plain_port(target).into_iter().chain(others)
    }

    /// Stores an answer. Returns the GID and LID of a loaded answer that it contradicts.
    pub fn learn(
        &mut self,
        readers: &Readers,
        query: &PathQuery,
        path: &PathRecord,
        now: Moment,
    ) -> Option<(Gid, Lid)> {
        let target = targets(query).next()?;
        self.missing.remove(query);
        if self.limits.capacity == 0 {
            return None;
        }
        self.changes += 1;
        let last = if query.is_plain(&self.source) {
            self.learn_plain(readers, target, query, path, now)
        } else {
            self.learn_beside(readers, target, query, path, now);
            None
        };
        while self.len() > self.limits.capacity && self.evict() {}
        let loaded = self.port_of(&last.filter(Entry::is_loaded)?);
        (loaded != port(path)).then_some(loaded)
    }

    /// Returns the GID and LID of an entry's path.
    fn port_of(&self, entry: &Entry) -> (Gid, Lid) {
        port(&entry.path(&self.source))
    }

    fn learn_beside(
        &mut self,
        readers: &Readers,
        target: Target,
        query: &PathQuery,
        path: &PathRecord,
        now: Moment,
    ) {
        readers.has_others.store(true, Ordering::Release);
        let learned = (now, self.ages.current());
        let used = self.use_of(target);
        self.side.learn(target, query, path, learned, used);
    }

    /// Returns the mark of use for a destination's other answers when one is stored. If they were used lately, this may be a
    /// renewal, which is no use; otherwise a client has sent a request.
    fn use_of(&self, target: Target) -> Use {
        let used = self.side.peek(target).map(|others| others.used());
        used.filter(|used| self.ages.was_used_lately(*used))
            .unwrap_or(self.ages.used_now())
    }

    /// Stores the answer to a plain query, and returns the previous one. If the destination is another port now, the other
    /// answers for it are outdated and dropped, and so is the LID that the port had before.
    fn learn_plain(
        &mut self,
        readers: &Readers,
        target: Target,
        query: &PathQuery,
        path: &PathRecord,
        now: Moment,
    ) -> Option<Entry> {
        let last = self.plain_entry(target);
        let beside = || self.side.peek(target)?.port(query);
        let last_port = last.map(|last| self.port_of(&last)).or_else(beside);
        let mut is_there = last.is_some();
        if let Some((gid, lid)) = last_port.filter(|last| *last != port(path)) {
            self.side.forget(target);
            if gid == path.dgid() {
                self.forget_lid_of(gid, lid);
                is_there = self.plain_entry(target).is_some();
            }
        }
        let entry = TableKey::new(target, &self.source).and_then(|key| {
            let learned = now.since(Moment::default());
            let epoch = self.ages.current().low();
            let entry = Entry::new(key, path, &self.source, learned, epoch)?;
            Some((key, entry.in_use_as(last.filter(|_| is_there))))
        });
        let Some((key, entry)) = entry else {
            self.forget_plain(target);
            self.learn_beside(readers, target, query, path, now);
            return last;
        };
        self.side.forget_answer(target, query);
        if !is_there {
            while self.len() >= self.limits.capacity && self.evict() {}
        }
        self.put(readers, key, entry);
        last
    }

    /// Inserts an entry into the table, unless there is no memory for it.
    fn put(&mut self, readers: &Readers, key: TableKey, entry: Entry) {
        while self.plain + self.preloaded >= self.tables.table().room()
            && self.tables.table().find(key).is_none()
        {
            if !self.grow() && !self.evict_plain() {
                return;
            }
        }
        if let Some(last) = self.tables.table().put(key, entry) {
            *self.count(&last) -= 1;
        }
        *self.count(&entry) += 1;
        if let Some(tick_at) = self.tick_for(readers, &entry)
            && tick_at < readers.tick_at.load(Ordering::Relaxed)
        {
            readers.tick_at.fetch_min(tick_at, Ordering::Relaxed);
        }
    }

    /// Returns when a tick is due, so that hits do not give that entry after its TTL. `None`: never.
    fn tick_for(&self, readers: &Readers, entry: &Entry) -> Option<u64> {
        let end = entry.learned().saturating_add(millis(self.limits.ttl?));
        let is_over = end <= readers.now.load(Ordering::Relaxed);
        (!is_over).then(|| end - AHEAD * readers.period.unwrap_or(0))
    }

    /// Publishes when the next tick is due.
    pub fn schedule(&self, readers: &Readers, now: Moment) {
        let Some(period) = readers.period else {
            return;
        };
        let entries = self.tables.table().entries();
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

    /// Changes to a larger table. Readers use the old one until the new one is filled.
    fn grow(&mut self) -> bool {
        let is_grown = self.tables.grow();
        if is_grown {
            self.hand = 0;
        }
        is_grown
    }

    /// Makes room. False: nothing to evict.
    fn evict(&mut self) -> bool {
        if self.side.len() > self.plain {
            let is_evicted = self.side.evict();
            if is_evicted {
                EVICTIONS.increment();
            }
            is_evicted
        } else {
            self.evict_plain()
        }
    }

    fn evict_plain(&mut self) -> bool {
        if self.plain == 0 {
            return false;
        }
        let may_go = |entry: &Entry| !entry.is_preloaded();
        let evicted = self.tables.table().evict(&mut self.hand, PATIENCE, may_go);
        let is_evicted = evicted.is_some();
        if is_evicted {
            self.plain -= 1;
            EVICTIONS.increment();
        }
        is_evicted
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

    /// Drops the answer for a LID if it led to that port, which has left the LID. The LID of a router to a GID of another
    /// subnet stays.
    fn forget_lid_of(&mut self, gid: Gid, lid: Lid) {
        let target = Target::Lid(lid);
        if self.ports(target).any(|port| port == (gid, lid)) {
            self.forget(target);
        }
    }

    /// Stores that there is no such path.
    pub fn learn_missing(&mut self, readers: &Readers, query: &PathQuery, now: Moment) {
        readers.has_others.store(true, Ordering::Release);
        self.missing.insert(*query, now);
        // Otherwise a stale answer, given while it is renewed, would hide this.
        if self.renewing == Renewing::Nothing {
            return;
        }
        self.changes += 1;
        for target in targets(query) {
            if query.is_plain(&self.source) {
                self.forget_plain(target);
            }
            self.side.forget_answer(target, query);
        }
    }

    fn forget(&mut self, target: Target) {
        self.changes += 1;
        self.forget_plain(target);
        self.side.forget(target);
    }

    fn forget_plain(&mut self, target: Target) {
        if self.plain_port(target).is_some()
            && let Some(key) = TableKey::new(target, &self.source)
            && self.tables.table().remove(key).is_some()
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
        let Some(key) = TableKey::new(target, &self.source) else {
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
        self.preloaded -= self.tables.table().remove_all(|entry| {
            entry.is_preloaded() && {
                let (gid, lid) = port(&entry.path(&self.source));
                is_meant(gid, lid)
            }
        });
    }

    pub fn reregister(&mut self, readers: &Readers, now: Moment) {
        self.changes += 1;
        self.ages.end_epoch(now);
        self.missing.clear();
        if self.ages.is_time_to_purge() {
            self.plain -= self.tables.table().remove_all(|entry| {
                !entry.is_preloaded() && self.ages.is_gone(self.age(entry).epoch)
            });
        }
        readers.publish_epoch(self.ages.current());
    }

    /// Begins again with an empty table; returns the old content.
    pub fn clear(&mut self, readers: &Readers) -> Discarded {
        let empty = Self::new(self.source, self.limits, Arc::clone(&self.tables));
        let mut old = std::mem::replace(self, empty);
        std::mem::swap(&mut self.ages, &mut old.ages);
        self.ages.forget_epochs();
        self.renewing = old.renewing;
        self.changes = old.changes + 1;
        self.preloads = old.preloads;
        readers.publish_epoch(self.ages.current());
        Discarded {
            _table: self.tables.clear(),
            _writer: old,
        }
    }
}

fn port(path: &PathRecord) -> (Gid, Lid) {
    (path.dgid(), path.dlid())
}
