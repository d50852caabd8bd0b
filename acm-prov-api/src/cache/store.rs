//! The cached answers of one endpoint, by query.
//!
//! A destination is a GID or a LID. The GID and the LID of one port are two destinations: only a query for the LID shows which
//! GID has it, since the path to a GID of another subnet has the LID of a router, and an alias GID shares its port's LID.
//!
//! Nearly all clients send the plain query for a destination of the subnet. Its answer is in a table
//! that [`plain`](PathStore::plain) reads while others write: a hit takes no lock, and waits for no insert, growth or flush.
//! It allocates nothing and reads no clock. All other answers are behind a mutex: answers to queries that name more, and
//! paths with a GRH, to other subnets, or with a service id that the query did not name.
//!
//! If there are more answers than the capacity, the store evicts:
//! - while the table holds at least half of the answers: an entry of the table, by CLOCK. A hit marks its entry; a hand
//!   goes round, clears marks, and evicts the first unmarked entry. If it finds none in 1,024 slots, it evicts the
//!   next entry, so that an insert takes bounded time.
//! - otherwise: the least recently used destination of the other answers, with all its answers; if it is the only
//!   destination, its oldest answer.
//!
//! While paths are [renewed](PathStore::set_renewing), stale answers used lately may still be given, and
//! [`due`](PathStore::due) lists the queries to send again. The table's answers can be [saved](PathStore::fresh) and
//! [loaded](PathStore::load).
//!
//! [Preloaded](PathStore::preload) paths do not count against the capacity and evict nothing: the operator's file limits them.

mod age;
mod negative;
mod side;
mod writer;

use std::time::Duration;

use super::table::TableKey;
use super::tables::{self, Tables};
use crate::address::{Gid, Lid};
use crate::clock::{Moment, millis};
use crate::path::PathRecord;
use crate::sa::{Component, PathQuery, Source, Target};
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::sync::{Arc, Mutex};

use writer::{Walk, Writer};

pub use age::Epoch;
pub use negative::{MAX_NEGATIVES, Negatives};
pub use side::{MAX_OTHER_ANSWERS, MAX_SERVICE_ANSWERS};

/// The pause between two parts of [`PathStore::fresh`].
const PAUSE: Duration = Duration::from_micros(100);

/// How much a [`PathStore`] caches, and for how long. Times count in whole milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreLimits {
    /// The most answers. Memory grows with their number.
    pub capacity: usize,
    /// How long an answer is valid; `None` is forever.
    pub ttl: Option<Duration>,
    /// How long after a re-registration older answers may be used while the SA is silent; zero drops them at once.
    pub stale_ttl: Duration,
    /// How long "no such path" is cached; zero does not cache it.
    pub negative_ttl: Duration,
}

impl Default for StoreLimits {
    /// 65,536 answers, valid forever; stale ones for 10 minutes, "no such path" for a second.
    fn default() -> Self {
        Self {
            capacity: 65_536,
            ttl: None,
            stale_ttl: Duration::from_mins(10),
            negative_ttl: Duration::from_secs(1),
        }
    }
}

/// Which stale answers are renewed, and may be given until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewing {
    /// No answers.
    Nothing,
    /// [Loaded](PathStore::load) answers.
    Loaded,
    /// Loaded answers and all that were used lately. Fresh answers in use are renewed before they expire.
    Used,
}

/// A plain answer, to keep over a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The destination of the query.
    pub target: Target,
    /// The SA's answer.
    pub path: PathRecord,
    /// The time since the SA gave it.
    pub age: Duration,
}

/// What the store has for a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// See [`get`](PathStore::get).
    Fresh(PathRecord),
    /// See [`is_missing`](PathStore::is_missing).
    Missing,
    /// See [`get_while_renewed`](PathStore::get_while_renewed).
    Renewed(PathRecord),
    /// See [`get_stale`](PathStore::get_stale).
    Stale(PathRecord),
    Nothing,
}

/// A version of the preloaded paths: [`preload`](PathStore::preload) refuses paths read before a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preloads(u64);

/// The content removed by a [clear](PathStore::clear). Dropping it frees the memory, which takes a while for a large
/// store, so drop it with no lock held.
pub struct Discarded {
    _writer: Writer,
    _table: tables::Discarded,
}

/// The cached paths of one endpoint. Any thread may call the methods.
pub struct PathStore {
    source: Source,
    /// Milliseconds.
    ttl: u64,
    readers: Readers,
    writer: Mutex<Writer>,
}

/// The state that the writer publishes for hits.
struct Readers {
    /// The same tables as the writer's.
    tables: Arc<Tables>,
    /// The current epoch's number.
    epoch: AtomicU32,
    /// Whether there may be answers outside the table. The writer sets it before it stores one.
    has_others: AtomicBool,
    /// The time for hits, in milliseconds: [`AHEAD`] periods later than the real time when it was set.
    now: AtomicU64,
    /// When [`tick`](PathStore::tick) must be called.
    tick_at: AtomicU64,
    /// How many milliseconds a tick may be late: a 64th of the TTL, at least 50 ms, at most a minute. `None`: no TTL.
    period: Option<u64>,
}

/// How many periods the hits' time is ahead.
const AHEAD: u64 = 2;

impl PathStore {
    /// Creates an empty store for queries from `source`.
    #[must_use]
    pub fn new(source: Source, limits: StoreLimits) -> PathStore {
        let tables = Arc::new(Tables::new());
        PathStore {
            source,
            ttl: limits.ttl.map_or(u64::MAX, millis),
            readers: Readers {
                tables: Arc::clone(&tables),
                epoch: AtomicU32::new(0),
                has_others: AtomicBool::new(false),
                now: AtomicU64::new(0),
                tick_at: AtomicU64::new(u64::MAX),
                period: limits.ttl.map(|ttl| (millis(ttl) / 64).clamp(50, 60_000)),
            },
            writer: Mutex::new(Writer::new(source, limits, tables)),
        }
    }

    /// Returns the source of the queries.
    #[must_use]
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Returns the number of cached SA answers, fresh or not.
    #[must_use]
    pub fn len(&self) -> usize {
        self.writer.lock().len()
    }

    /// Whether no SA answer is cached.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes mapped for the table, in addition to memory from the allocator.
    #[must_use]
    pub fn mapped_bytes(&self) -> usize {
        self.writer.lock().mapped_bytes()
    }

    /// Returns the fresh answer to the [plain](PathQuery::is_plain) query for a destination.
    ///
    /// After `None`, [`get`](PathStore::get) may still find a path. In the last part of an answer's TTL (twice the time that a
    /// [tick](PathStore::tick) may be late), only `get` returns it.
    #[inline]
    pub fn plain(&self, target: Target) -> Option<PathRecord> {
        let key = TableKey::new(target, &self.source)?;
        let (slot, entry) = self.readers.tables.find(key)?;
        let now = self.readers.now.load(Ordering::Relaxed);
        let epoch = self.readers.epoch.load(Ordering::Relaxed) as u16;
        let is_fresh = now.saturating_sub(entry.learned()) < self.ttl
            && (entry.epoch() == epoch || entry.is_preloaded());
        if !is_fresh {
            return None;
        }
        entry.visit(slot);
        Some(entry.path(&self.source))
    }

    /// Returns when [`tick`](PathStore::tick) must be called; a new answer can change it. `None`: nothing expires.
    #[must_use]
    pub fn next_tick(&self) -> Option<Moment> {
        let at = self.readers.tick_at.load(Ordering::Relaxed);
        (at != u64::MAX).then(|| Moment::from_millis(at))
    }

    /// Sets the time for hits, which read no clock. With a TTL, a thread must call this at
    /// [`next_tick`](PathStore::next_tick), at most a 64th of the TTL (50 ms to a minute) late. Hits assume the latest time
    /// that is possible until then, so that they give no answer after its TTL.
    pub fn tick(&self, now: Moment) {
        self.readers.set_time(now);
        self.writer.lock().schedule(&self.readers, now);
    }

    /// Returns the SA's fresh answer to a [complete](PathQuery::complete) query: an answer to [the same
    /// query](PathQuery::is_answered_by) or to one with fewer constraints. Ignores preloaded paths. Allocates nothing.
    pub fn get(&self, query: &PathQuery, now: Moment) -> Option<PathRecord> {
        self.readers.set_time(now);
        self.writer.lock().get(query, now)
    }

    /// Returns the best answer in the store.
    pub(super) fn look_up(&self, query: &PathQuery, now: Moment) -> Known {
        self.readers.set_time(now);
        if query.is_plain(&self.source) && self.is_unknown(query) {
            return Known::Nothing;
        }
        let mut writer = self.writer.lock();
        let known = writer.look_up(query, now);
        if writer.has_no_others() {
            self.readers.has_others.store(false, Ordering::Release);
        }
        known
    }

    /// True if the store surely has nothing for a plain query. Takes no lock.
    fn is_unknown(&self, query: &PathQuery) -> bool {
        let target = targets(query).next();
        let Some(key) = target.and_then(|target| TableKey::new(target, &self.source)) else {
            return false;
        };
        !self.readers.has_others.load(Ordering::Acquire) && self.readers.tables.find(key).is_none()
    }

    /// Returns the answer to a query, even from before a re-registration, while it may be used in place of a silent SA.
    #[must_use]
    pub fn get_stale(&self, query: &PathQuery, now: Moment) -> Option<PathRecord> {
        self.writer.lock().get_stale(query, now)
    }

    /// Sets which stale answers are renewed: [`due`](Self::due) lists their queries,
    /// [`get_while_renewed`](Self::get_while_renewed) returns them.
    pub fn set_renewing(&self, renewing: Renewing) {
        self.writer.lock().renewing = renewing;
    }

    /// Returns a stale answer that is being renewed: one that was used lately, or loaded.
    #[must_use]
    pub fn get_while_renewed(&self, query: &PathQuery, now: Moment) -> Option<PathRecord> {
        self.writer.lock().get_while_renewed(query, now)
    }

    /// Ends a period of use. Answers not used in the last two periods do not count as used lately.
    pub fn end_use_period(&self) {
        self.writer.lock().end_use_period();
    }

    /// Returns up to `limit` queries whose answers were used lately and are stale or will soon expire.
    #[must_use]
    pub fn due(&self, now: Moment, limit: usize) -> Vec<PathQuery> {
        self.writer.lock().due(now, limit)
    }

    /// Whether the answer to a query is still [due](Self::due).
    #[must_use]
    pub fn is_due(&self, query: &PathQuery, now: Moment) -> bool {
        self.writer.lock().is_due(query, now)
    }

    /// Returns a number that changes with the fresh plain answers.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.writer.lock().changes
    }

    /// Returns the fresh plain answers. Reads a large table part by part, so that writers wait for one part at most. So the result
    /// may lack answers inserted meanwhile, and hold removed ones; compare [`changes`](Self::changes). All answers are
    /// from one epoch: if it ends meanwhile, the method begins again.
    #[must_use]
    pub fn fresh(&self, now: Moment) -> Vec<Kept> {
        let mut walk = Walk::default();
        while self.writer.lock().fresh(&mut walk, now) {
            // Without a pause this thread would retake the lock before a waiting one wakes.
            std::thread::sleep(PAUSE);
        }
        walk.into_kept()
    }

    /// Loads the answers of an earlier process, once, for destinations without an answer. They are stale, and are given while they
    /// are [renewed](Self::set_renewing). Returns their number.
    pub fn load(&self, kept: impl IntoIterator<Item = Kept>, now: Moment) -> usize {
        self.writer.lock().load(&self.readers, kept, now)
    }

    /// Drops loaded answers that are not renewed. False if they were dropped before.
    pub fn drop_loaded(&self) -> bool {
        self.writer.lock().drop_loaded()
    }

    /// Whether the SA said recently that there is no such path.
    pub fn is_missing(&self, query: &PathQuery, now: Moment) -> bool {
        self.writer.lock().missing.contains(query, now)
    }

    /// Returns the current epoch, to pass to [`learn`](PathStore::learn).
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        Epoch::new(self.readers.epoch.load(Ordering::Relaxed))
    }

    /// Stores the SA's answer to a query that it [answers](PathQuery::check). `asked` is the store's epoch when the query was
    /// sent: an answer from before a re-registration or a clear is not stored. If the answer contradicts a [loaded](Self::load)
    /// one (the port has another LID, or the LID another port), returns the GID and LID of the loaded answer.
    pub fn learn(
        &self,
        query: &PathQuery,
        path: &PathRecord,
        asked: Epoch,
        now: Moment,
    ) -> Option<(Gid, Lid)> {
        self.readers.set_time(now);
        let mut writer = self.writer.lock();
        if asked != writer.ages.current() {
            return None;
        }
        writer.learn(&self.readers, query, path, now)
    }

    /// Stores that the SA has no such path. `asked` as for [`learn`](PathStore::learn).
    pub fn learn_missing(&self, query: &PathQuery, asked: Epoch, now: Moment) {
        let mut writer = self.writer.lock();
        if asked == writer.ages.current() {
            writer.learn_missing(&self.readers, query, now);
        }
    }

    /// Drops the answers for a GID if one of its paths has a LID that `is_there` denies, and the answers for LIDs of that
    /// port. Preloaded paths stay.
    pub fn forget_unless(&self, gid: Gid, is_there: impl Fn(Lid) -> bool) {
        self.writer.lock().forget_unless(gid, is_there);
    }

    /// Returns the current version of the preloaded paths, to pass to [`preload`](PathStore::preload).
    #[must_use]
    pub fn preloads(&self) -> Preloads {
        self.writer.lock().preloads
    }

    /// Stores paths of an operator's file as answers to the plain query for their targets. Only
    /// [`plain`](PathStore::plain) returns them, for a TTL from the moment that the file was `read`, despite re-registrations,
    /// until the SA gives another answer. The SA's fresh answers stay.
    ///
    /// Does not store paths that the table cannot hold, such as a path to another subnet. Stores nothing if
    /// [`forget_preloaded`](PathStore::forget_preloaded) was called since `seen`.
    pub fn preload(
        &self,
        paths: impl IntoIterator<Item = (Target, PathRecord)>,
        read: Moment,
        seen: Preloads,
        now: Moment,
    ) {
        self.readers.set_time(now);
        let mut writer = self.writer.lock();
        if writer.preloads != seen {
            return;
        }
        for (target, path) in paths {
            writer.preload(&self.readers, target, &path, read, now);
        }
    }

    /// Drops the preloaded paths whose GID and LID `is_meant` selects.
    pub fn forget_preloaded(&self, is_meant: impl Fn(Gid, Lid) -> bool) {
        self.writer.lock().forget_preloaded(is_meant);
    }

    /// Makes all answers stale and drops cached "no such path", in constant time: the SA has asked clients to register again
    /// (`IBV_EVENT_CLIENT_REREGISTER`).
    pub fn reregister(&self, now: Moment) {
        self.readers.set_time(now);
        self.writer.lock().reregister(&self.readers, now);
    }

    /// Drops everything, preloaded paths included.
    pub fn clear(&self) -> Discarded {
        self.writer.lock().clear(&self.readers)
    }
}

impl Readers {
    fn set_time(&self, now: Moment) {
        let ahead = AHEAD * self.period.unwrap_or(0);
        let now = now.since(Moment::default()).saturating_add(ahead);
        // A load is much cheaper, and the coarse clock seldom moves.
        if self.now.load(Ordering::Relaxed) < now {
            self.now.fetch_max(now, Ordering::Relaxed);
        }
    }

    fn publish_epoch(&self, epoch: Epoch) {
        self.epoch.store(epoch.number(), Ordering::Relaxed);
    }
}

/// Returns the destinations under which an answer may be stored; new answers use the first.
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
