//! The engine under a provider: stores and lookups behind locks, joined to the core and to a clock.
//!
//! A [`PortCache`] lives from open_port to close_port and has a thread for deadlines, one for files if there are any, and one
//! for the snapshot if there is to be one: a file system that hangs must not hold up an answer. An [`EndpointCache`] lives as long
//! as its endpoint. Nothing learnt outlives them: an answer that the core brings after a reopen finds nobody.
//!
//! Locks: a port's `state` before those in an endpoint's `store`. What is decided under the port's lock (answers, queries, log lines) is
//! [delivered](DeliveringMutex) when it is released: with a lock held nobody is answered, nothing is sent, no file and no
//! verbs function is touched, no line is logged.

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

mod asking;
mod batch;
mod client;
mod endpoint;
mod files;
mod finding;
mod operator;
mod parked;
mod port;
mod preload;
mod qos;
mod renew;
mod snapshot;
mod warm_up;
mod worker;

use asking::Waiter;
use client::{Client, Provider};
use parked::ParkedRequests;
use preload::Preload;
use qos::{Qos, QosState};
use renew::Renewals;
use snapshot::SnapshotState;
use warm_up::{Awaited, WaitingForFiles};

pub use client::PathOptions;
pub use endpoint::EndpointCache;
pub use parked::Parked;
pub use port::PortCache;
pub use qos::QosSetting;
pub use renew::RenewalSetting;
pub use snapshot::SnapshotSetting;

/// What an operator can set.
#[derive(Clone, Debug)]
pub struct CacheSettings {
    /// How much is kept, and for how long.
    pub store: StoreLimits,
    /// How long clients wait, and how much the core is asked at a time.
    pub lookups: LookupLimits,
    /// When this file is touched, everything is dropped.
    pub flush_file: Option<PathBuf>,
    /// A dump (see [`dump`](crate::dump)) whose paths are answered without asking the SA. It is followed.
    pub routes_file: Option<PathBuf>,
    /// Whether service id and QoS class choose a path.
    pub qos: QosSetting,
    /// Whether paths in use are asked for again before they are needed.
    pub renewal: RenewalSetting,
    /// Where paths outlive the process.
    pub snapshot: Option<SnapshotSetting>,
}

impl Default for CacheSettings {
    /// What holds without a file of options.
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
    /// The port does not tell its attributes.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The port's cache is closed.
    #[error(transparent)]
    Closed(#[from] Closed),
    /// A thread of the port's could not be started.
    #[error(transparent)]
    Thread(#[from] SpawnError),
}

/// What became of a request at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// Answered from what is known, a stale path included if the SA is silent or paths are renewed, or refused because the
    /// SA lately knew no such path.
    Known,
    /// The SA is asked, or will be unless a file has the path. The request waits, unless its client did not want to.
    Asked,
    /// Refused: too many wait already, the endpoint is closed, or another port's GID is named as the source.
    Refused,
}

/// An endpoint, by a number that no other has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct EndpointId(u64);

/// What is looked up: answers depend on the endpoint that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct LookupKey {
    endpoint: EndpointId,
    query: PathQuery,
}

/// An endpoint and its port, to ask through.
#[derive(Clone)]
struct Asker {
    shared: Arc<Shared>,
    endpoint: Arc<OpenEndpoint>,
}

struct OpenEndpoint {
    handle: EndpointHandle,
    source: Source,
    store: PathStore,
    awaited: Awaited,
}

impl OpenEndpoint {
    /// The fresh answer to the plain query for `target`.
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
    /// Where the core sends its queries until the port is opened again.
    sm_lid: Lid,
    /// The LID bits that tell ports from each other: all but those of the LMC.
    lid_mask: u16,
    rules: Rules,
    qos: Arc<Qos>,
    preload: Option<Preload>,
    followed: Mutex<Vec<Arc<dyn Follow>>>,
    state: DeliveringMutex<State>,
    /// Wakes the thread that keeps deadlines.
    wake: Condvar,
    /// Wakes the threads that look after files.
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
    /// When the thread that keeps deadlines looks again by itself.
    wakes_at: Moment,
    /// The SM LID that the operator knows of.
    reported_sm_lid: Lid,
    flushed: Option<SystemTime>,
    files: WaitingForFiles,
    parked: ParkedRequests,
    /// Whether the dump and the flush file were looked at.
    are_files_read: bool,
    renewals: Renewals,
    snapshot: SnapshotState,
    /// When the SM LID is looked at again, while the SA is silent.
    sm_lid_at: Moment,
    closed: bool,
}

impl State {
    fn log(&mut self, level: LogLevel, line: String) {
        self.lines.push((level, line));
    }

    /// When hits must be told the time.
    fn next_tick(&self) -> Option<Moment> {
        let stores = self.endpoints.values().map(|endpoint| &endpoint.store);
        stores.filter_map(PathStore::next_tick).min()
    }
}

impl Shared {
    /// Whether two LIDs are one port's.
    fn is_same_port(&self, one: Lid, other: Lid) -> bool {
        (one.0 ^ other.0) & self.lid_mask == 0
    }
}
