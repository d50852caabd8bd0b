//! The engine under a provider: stores and lookups behind locks, connected with the core and a clock.
//!
//! A [`PortCache`] lives from open_port to close_port. It has a thread for deadlines, one for files if there are any, and one
//! for the snapshot if it is on: a file system that hangs must not delay an answer. An [`EndpointCache`] lives as long
//! as its endpoint. Nothing cached outlives them: an SA response that arrives after a reopen is ignored.
//!
//! Lock order: a port's `state` before the locks in an endpoint's `store`. Actions decided under the port's lock (answers,
//! queries, log lines) are [delivered](DeliveringMutex) after its release: while it holds a lock, the engine answers no
//! request, sends no query, logs no line, and calls no file or verbs function.

use std::path::PathBuf;
use std::time::SystemTime;

use hashbrown::HashMap;

use super::rules::Rules;
use super::settings::{LookupLimits, StockSettings};
use super::sm_health::SmHealth;
use super::store::{PathStore, StoreLimits};
use crate::address::Lid;
use crate::clock::Moment;
use crate::handles::{Closed, EndpointHandle, PortError, PortHandle, SpawnError};
use crate::host::LogLevel;
use crate::lookups::{DeliveringMutex, Lookups};
use crate::path::PathRecord;
use crate::sa::{PathQuery, Source, Target};
use crate::sync::{Arc, Condvar, Mutex, Weak};
use crate::text::watched_file::Follow;

mod batch;
mod client;
mod endpoint;
mod files;
mod finding;
mod operator;
mod parked;
mod path_query;
mod port;
mod preload;
mod qos;
mod renew;
mod snapshot;
mod warm_up;
mod worker;

use client::{Client, Provider};
use parked::ParkedRequests;
use path_query::Waiter;
use preload::Preload;
use qos::{Qos, QosState};
use renew::Renewals;
use snapshot::SnapshotState;
use warm_up::{UnreadFiles, WaitingForFiles};

pub use client::PathOptions;
pub use endpoint::EndpointCache;
pub use parked::Parked;
pub use port::PortCache;
pub use qos::QosSetting;
pub use renew::RenewalSetting;
pub use snapshot::SnapshotSetting;

/// The operator's settings.
#[derive(Clone, Debug)]
pub struct CacheSettings {
    /// How many answers are cached, and for how long.
    pub store: StoreLimits,
    /// How long clients wait, and how many lookups and requests at a time.
    pub lookups: LookupLimits,
    /// Touching this file drops everything cached.
    pub flush_file: Option<PathBuf>,
    /// A dump (see [`dump`](crate::dump)) whose paths answer requests without an SA query. The engine reads it again when it
    /// changes.
    pub routes_file: Option<PathBuf>,
    /// Whether service id and QoS class affect a path.
    pub qos: QosSetting,
    /// Whether to query paths in use again before they are needed.
    pub renewal: RenewalSetting,
    /// Where to keep paths over a restart.
    pub snapshot: Option<SnapshotSetting>,
}

impl Default for CacheSettings {
    /// The settings without an options file.
    fn default() -> Self {
        StockSettings::default().into()
    }
}

impl From<StockSettings> for CacheSettings {
    fn from(stock: StockSettings) -> Self {
        Self {
            store: (&stock).into(),
            lookups: (&stock).into(),
            flush_file: None,
            routes_file: stock.routes_file,
            qos: QosSetting::default(),
            renewal: RenewalSetting::default(),
            snapshot: None,
        }
    }
}

/// Why a cache could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The port's attributes cannot be read.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The port's cache is closed.
    #[error(transparent)]
    Closed(#[from] Closed),
    /// A thread of the port's could not be started.
    #[error(transparent)]
    Thread(#[from] SpawnError),
}

/// The immediate result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// Answered from the cache, or refused because the SA recently had no such path. The answer is a stale path if the SA is
    /// silent or paths are being renewed.
    Known,
    /// The SA is queried, or will be unless a file has the path. The request waits, unless its client does not want to.
    Asked,
    /// Refused: too many requests wait, the endpoint is closed, or the source is another port's GID.
    Refused,
}

/// The unique number of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct EndpointId(u64);

/// The key of a lookup. Answers depend on the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct LookupKey {
    endpoint: EndpointId,
    query: PathQuery,
}

/// An endpoint and its port, to send queries through.
#[derive(Clone)]
struct Asker {
    shared: Arc<Shared>,
    endpoint: Arc<OpenEndpoint>,
}

struct OpenEndpoint {
    handle: EndpointHandle,
    source: Source,
    store: PathStore,
    unread: UnreadFiles,
}

impl OpenEndpoint {
    /// Returns the fresh answer to the plain query for `target`.
    #[inline]
    fn plain_path(&self, target: Target) -> Option<PathRecord> {
        self.store.plain(target)
    }

    fn id(&self) -> EndpointId {
        EndpointId(self.handle.id())
    }
}

/// What the callbacks, the SA thread and the port's own threads share.
struct Shared {
    port: PortHandle,
    settings: CacheSettings,
    /// The SM LID to which the core sends queries until the port is reopened.
    sm_lid: Lid,
    /// The LID bits that identify a port: all except the lower LMC bits.
    lid_mask: u16,
    rules: Rules,
    qos: Arc<Qos>,
    preload: Option<Preload>,
    followed: Mutex<Vec<Arc<dyn Follow>>>,
    state: DeliveringMutex<State>,
    /// Wakes the deadline thread.
    wake: Condvar,
    /// Wakes the threads for files.
    wake_files: Condvar,
}

struct State {
    shared: Weak<Shared>,
    paths: Lookups<LookupKey, Waiter>,
    qos: QosState,
    health: SmHealth,
    endpoints: HashMap<EndpointId, Arc<OpenEndpoint>>,
    /// Lines for the log.
    lines: Vec<(LogLevel, String)>,
    /// When the deadline thread wakes by itself.
    wakes_at: Moment,
    /// The last SM LID in the log.
    reported_sm_lid: Lid,
    flushed: Option<SystemTime>,
    files: WaitingForFiles,
    parked: ParkedRequests,
    /// Whether the dump and the flush file have been read.
    are_files_read: bool,
    renewals: Renewals,
    snapshot: SnapshotState,
    /// When to read the SM LID again, while the SA is silent.
    sm_lid_at: Moment,
    closed: bool,
}

impl State {
    fn log(&mut self, level: LogLevel, line: String) {
        self.lines.push((level, line));
    }

    /// Returns when a store's tick is due.
    fn next_tick(&self) -> Option<Moment> {
        let stores = self.endpoints.values().map(|endpoint| &endpoint.store);
        stores.filter_map(PathStore::next_tick).min()
    }
}

impl Shared {
    /// Whether two LIDs belong to the same port.
    fn is_same_port(&self, one: Lid, other: Lid) -> bool {
        (one.0 ^ other.0) & self.lid_mask == 0
    }
}
