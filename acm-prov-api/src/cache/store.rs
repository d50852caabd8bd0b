//! Answers by query, for one endpoint.
//!
//! A destination is a GID or a LID. They are two destinations, even of one port: which GID has a LID is learnt by asking
//! for the LID, since a far GID's path has the LID of a router, and an alias GID its port's.
//!
//! The answer to the plain query for a destination of the subnet, which is what nearly all clients ask, is in a table
//! that [`plain`](PathStore::plain) reads while others write: a hit takes no lock, and waits for no insert, growth or flush.
//! It allocates nothing and reads no clock. All other answers are
//! behind a mutex: to queries that name more, and paths with a GRH, to other subnets or with a service id of their own.
//!
//! What goes first, when there are more answers than the capacity:
//! - As long as the table holds at least half of the answers: one of the table, by CLOCK. A hit marks its entry; a hand
//!   goes round, takes marks off, and evicts the first entry without one. Where it finds none in 1,024 slots it evicts the
//!   next entry nevertheless, so that an insert takes bounded time.
//! - Else: the destination used least recently among the other answers, with all of those; of the last destination the
//!   oldest answer.
//!
//! While paths are [renewed](PathStore::set_renewing), what was used lately may be answered though it is stale, and
//! [`due`](PathStore::due) says what is to be asked for again. The table's answers can be [saved](PathStore::fresh) and
//! [loaded](PathStore::load).
//!
//! [Preloaded](PathStore::preload) paths count against nothing and evict nothing: there are as many as the operator's file has.

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

/// Between two parts of [`PathStore::fresh`].
const PAUSE: Duration = Duration::from_micros(100);

/// How much a [`PathStore`] keeps, and for how long. Times count in whole milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreLimits {
    /// Most answers. Memory is taken as they come.
    pub capacity: usize,
    /// How long an answer is good for; `None` is without end.
    pub ttl: Option<Duration>,
    /// How long after a re-registration older answers may stand in for a silent SA; zero drops them at once.
    pub stale_ttl: Duration,
    /// How long "no such path" is remembered; zero is not at all.
    pub negative_ttl: Duration,
}

impl Default for StoreLimits {
    /// 65,536 answers without end; 10 minutes for stale ones, a second for "no such path".
    fn default() -> Self {
        Self {
            capacity: 65_536,
            ttl: None,
            stale_ttl: Duration::from_mins(10),
            negative_ttl: Duration::from_secs(1),
        }
    }
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

/// What is known of a query's answer.
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

/// Tells preloaded paths that were read before a change from those read after it: see
/// [`preload`](PathStore::preload).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preloads(u64);

/// What a [clear](PathStore::clear) has taken out of a store. Dropping it frees the memory, which takes a while for a large
/// store: drop it with no lock held.
pub struct Discarded {
    _writer: Writer,
    _table: tables::Discarded,
}

/// What is known about paths from one endpoint. All methods are for any thread.
pub struct PathStore {
    source: Source,
    /// Milliseconds.
    ttl: u64,
    readers: Readers,
    writer: Mutex<Writer>,
}

/// What hits read, and the writer publishes.
struct Readers {
    /// The writer's.
    tables: Arc<Tables>,
    /// The current epoch's number.
    epoch: AtomicU32,
    /// Whether something may be known that is not in the table. The writer sets it before it keeps such a thing.
    has_others: AtomicBool,
    /// What hits take for the time, in milliseconds: later than the time by [`AHEAD`] periods when it was set.
    now: AtomicU64,
    /// When [`tick`](PathStore::tick) has to be called.
    tick_at: AtomicU64,
    /// Milliseconds that a tick may be late: a 64th of the TTL, at least 50 ms, at most a minute. `None`: there is no TTL.
    period: Option<u64>,
}

/// By how many periods hits are ahead of the time.
const AHEAD: u64 = 2;

impl PathStore {
    /// An empty store for the queries of `source`.
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

    /// The endpoint whose queries are answered here.
    #[must_use]
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Answers of the SA held, fresh or not.
    #[must_use]
    pub fn len(&self) -> usize {
        self.writer.lock().len()
    }

    /// Whether no answer of the SA is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that are mapped for the table, beside what the allocator gave.
    #[must_use]
    pub fn mapped_bytes(&self) -> usize {
        self.writer.lock().mapped_bytes()
    }

    /// The fresh answer to the [plain](PathQuery::is_plain) query for a destination.
    ///
    /// `None` does not mean that no path is known: [`get`](PathStore::get) may know more. In the last part of its TTL, two times
    /// what a [tick](PathStore::tick) may be late, an answer is known there only.
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

    /// When [`tick`](PathStore::tick) has to be called: changes with what is learnt. `None`: nothing expires.
    #[must_use]
    pub fn next_tick(&self) -> Option<Moment> {
        let at = self.readers.tick_at.load(Ordering::Relaxed);
        (at != u64::MAX).then(|| Moment::from_millis(at))
    }

    /// Tells the store the time. Hits read no clock: with a TTL, a thread must do this when [it is
    /// time](PathStore::next_tick), at most a 64th of the TTL (50 ms to a minute) later. Hits take the time to be as late as
    /// it can be until then, so that they give no answer after its TTL.
    pub fn tick(&self, now: Moment) {
        self.readers.set_time(now);
        self.writer.lock().schedule(&self.readers, now);
    }

    /// The fresh answer of the SA to a [complete](PathQuery::complete) query, if there is one: one that was [given for
    /// it](PathQuery::is_answered_by) or for a query that asked for less. Preloaded paths are not looked at. Allocates nothing.
    pub fn get(&self, query: &PathQuery, now: Moment) -> Option<PathRecord> {
        self.readers.set_time(now);
        self.writer.lock().get(query, now)
    }

    /// The best of what is known.
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

    /// Whether nothing at all is known of a plain query, as far as that can be said without a lock: false where it cannot.
    fn is_unknown(&self, query: &PathQuery) -> bool {
        let target = targets(query).next();
        let Some(key) = target.and_then(|target| TableKey::new(target, &self.source)) else {
            return false;
        };
        !self.readers.has_others.load(Ordering::Acquire) && self.readers.tables.find(key).is_none()
    }

    /// The answer to a query from before a re-registration, as long as it may stand in for a silent SA; a fresh one does as
    /// well.
    #[must_use]
    pub fn get_stale(&self, query: &PathQuery, now: Moment) -> Option<PathRecord> {
        self.writer.lock().get_stale(query, now)
    }

    /// Sets which stale answers are renewed: [`due`](Self::due) names them, [`get_while_renewed`](Self::get_while_renewed)
    /// gives them.
    pub fn set_renewing(&self, renewing: Renewing) {
        self.writer.lock().renewing = renewing;
    }

    /// An answer from before a re-registration, while those are renewed: one that was used lately, or was loaded.
    #[must_use]
    pub fn get_while_renewed(&self, query: &PathQuery, now: Moment) -> Option<PathRecord> {
        self.writer.lock().get_while_renewed(query, now)
    }

    /// Ends a period of use. What was used in none of the last two periods was not used lately.
    pub fn end_use_period(&self) {
        self.writer.lock().end_use_period();
    }

    /// Queries whose answers were used lately and are stale, or will soon be too old; `limit` at the most.
    #[must_use]
    pub fn due(&self, now: Moment, limit: usize) -> Vec<PathQuery> {
        self.writer.lock().due(now, limit)
    }

    /// Whether the answer to a query is still one of those that are [due](Self::due).
    #[must_use]
    pub fn is_due(&self, query: &PathQuery, now: Moment) -> bool {
        self.writer.lock().is_due(query, now)
    }

    /// A number that differs once the fresh plain answers do.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.writer.lock().changes
    }

    /// The fresh plain answers. A large table is read part by part, and what other threads change meanwhile waits for a part at
    /// the most. It may so hold what has been removed in the meantime, or lack what was put in: [`changes`](Self::changes) tells.
    /// All of it is from one epoch: if that ends meanwhile, it is begun again.
    #[must_use]
    pub fn fresh(&self, now: Moment) -> Vec<Kept> {
        let mut walk = Walk::default();
        while self.writer.lock().fresh(&mut walk, now) {
            // Without a pause this thread would have the lock again before a waiting one wakes.
            std::thread::sleep(PAUSE);
        }
        walk.into_kept()
    }

    /// Takes in answers from another time, once, where nothing is known: they are stale, and answer while they are
    /// [renewed](Self::set_renewing). Gives their number.
    pub fn load(&self, kept: impl IntoIterator<Item = Kept>, now: Moment) -> usize {
        self.writer.lock().load(&self.readers, kept, now)
    }

    /// Forgets what was loaded and has not been renewed. False if that is forgotten already.
    pub fn drop_loaded(&self) -> bool {
        self.writer.lock().drop_loaded()
    }

    /// Whether the SA said, not long ago, that there is no such path.
    pub fn is_missing(&self, query: &PathQuery, now: Moment) -> bool {
        self.writer.lock().missing.contains(query, now)
    }

    /// What an answer must have been asked in to be kept: see [`learn`](PathStore::learn).
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        Epoch::new(self.readers.epoch.load(Ordering::Relaxed))
    }

    /// Keeps the SA's answer to a query that it [answers](PathQuery::check). `asked` is the store's epoch when the SA was
    /// asked: an answer from before a re-registration or a clear is not kept. If a [loaded](Self::load) answer turns out to be
    /// wrong, since the port is at another LID, or the LID is another port's, gives the GID and LID that it had.
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

    /// Remembers that the SA has no such path. `asked` as for [`learn`](PathStore::learn).
    pub fn learn_missing(&self, query: &PathQuery, asked: Epoch, now: Moment) {
        let mut writer = self.writer.lock();
        if asked == writer.ages.current() {
            writer.learn_missing(&self.readers, query, now);
        }
    }

    /// Forgets a GID if one of its paths does not lead where `is_there` says, and the LIDs there that were that port's.
    /// Preloaded paths stay.
    pub fn forget_unless(&self, gid: Gid, is_there: impl Fn(Lid) -> bool) {
        self.writer.lock().forget_unless(gid, is_there);
    }

    /// What paths must have been read in to be kept: see [`preload`](PathStore::preload).
    #[must_use]
    pub fn preloads(&self) -> Preloads {
        self.writer.lock().preloads
    }

    /// Takes in paths that an operator's file has, as answers to the plain query for their targets. They are given to
    /// [`plain`](PathStore::plain) only, for a TTL from the moment that the file was `read`, over re-registrations, until
    /// the SA gives another answer. The SA's fresh answers stay.
    ///
    /// Not kept: a path that the table has no room for, such as one to another subnet; and all, if
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

    /// Forgets preloaded paths that lead to a GID and LID that are meant.
    pub fn forget_preloaded(&self, is_meant: impl Fn(Gid, Lid) -> bool) {
        self.writer.lock().forget_preloaded(is_meant);
    }

    /// The SA asked clients to register anew (`IBV_EVENT_CLIENT_REREGISTER`): what is known is
    /// stale from now on, in constant time, and what was missing may be there.
    pub fn reregister(&self, now: Moment) {
        self.readers.set_time(now);
        self.writer.lock().reregister(&self.readers, now);
    }

    /// Forgets everything, preloaded paths included.
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
