//! The engine under a provider: stores and lookups behind locks, joined to the core and to a clock.
//!
//! A [`PortCache`] lives from open_port to close_port and has a thread for deadlines, one for files if there are any, and one
//! for the snapshot if there is to be one: a file system that hangs must not hold up an answer. An [`EndpointCache`] lives as long
//! as its endpoint. Nothing learnt outlives them: an answer that the core brings after a reopen finds nobody.
//!
//! Locks: a port's `state` before those in an endpoint's `store`. What is decided under the port's lock (answers, queries, log lines) is
//! [delivered](DeliveringMutex) when it is released: with a lock held nobody is answered, nothing is sent, no file and no
//! verbs function is touched, no line is logged.

use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use hashbrown::HashMap;

use super::settings::LookupLimits;
use super::sm_health::SmHealth;
use super::store::{Known, PathStore, StoreLimits, millis};
use crate::abi::{AcmCounter, AcmStatus};
use crate::address::{Gid, Lid};
use crate::clock::Moment;
use crate::followed::Follow;
use crate::handle::{Closed, EndpointHandle, PortError, PortHandle};
use crate::host::LogLevel;
use crate::lookups::{DeliveringMutex, End, Limits, Locked, Lookups, Urgency};
use crate::path::PathRecord;
use crate::request::{QueryRequest, ResolveRequest};
use crate::sa::{PathQuery, Source, Target};
use crate::sync::thread::{Builder, JoinHandle};
use crate::sync::{Arc, Condvar, Mutex, Weak};

mod asking;
mod batch;
mod client;
mod files;
mod operator;
mod preload;
mod qos;
mod renew;
mod snapshot;
mod warm_up;
mod worker;

use asking::Waiter;
use client::{Client, Provider};
use preload::Preload;
use qos::{Qos, QosState, WaitsForQos};
use renew::Renewals;
use snapshot::SnapshotState;
use warm_up::{Awaited, WaitingForFiles};

pub use client::PathOptions;
pub use qos::QosSetting;
pub use renew::RenewalSetting;
pub use snapshot::SnapshotSetting;

/// How long a close waits for the port's threads. They end at once, unless a file that is looked at holds one up.
const PATIENCE_WITH_THREADS: Duration = Duration::from_secs(2);

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

/// Why a cache could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The port does not tell its attributes.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The port's cache is closed.
    #[error(transparent)]
    Closed(#[from] Closed),
    /// The port's thread could not be started.
    #[error("cannot start the thread of port {port}: {error}")]
    Thread {
        /// The port's number.
        port: u8,
        /// The reason.
        error: std::io::Error,
    },
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
struct Key {
    endpoint: EndpointId,
    query: PathQuery,
}

/// The cache of one open port.
pub struct PortCache {
    shared: Arc<Shared>,
    threads: Mutex<Threads>,
}

#[derive(Default)]
struct Threads {
    deadlines: Option<JoinHandle<()>>,
    files: Option<JoinHandle<()>>,
    snapshot: Option<JoinHandle<()>>,
}

/// The cache of one open endpoint. Dropping it closes it.
pub struct EndpointCache(Asker);

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
    qos: Arc<Qos>,
    preload: Option<Preload>,
    followed: Mutex<Vec<Arc<dyn Follow>>>,
    state: DeliveringMutex<State>,
    /// Wakes the thread that keeps deadlines.
    wake: Condvar,
    /// Wakes the threads that look after files.
    wake_files: Condvar,
    thread_ended: Condvar,
}

struct State {
    shared: Weak<Shared>,
    paths: Lookups<Key, Waiter>,
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
    /// Whether the dump and the flush file were looked at.
    are_files_read: bool,
    renewals: Renewals,
    snapshot: SnapshotState,
    /// When the SM LID is looked at again, while the SA is silent.
    sm_lid_at: Moment,
    closed: bool,
    /// Threads that have not ended.
    running: usize,
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

impl PortCache {
    /// Opens a port's cache and starts its thread.
    ///
    /// # Errors
    /// When the port does not tell its attributes, or the thread does not start.
    pub fn open(port: &PortHandle, settings: CacheSettings) -> Result<Self, OpenError> {
        let attributes = port.attributes()?;
        let sm_lid = attributes.sm_lid;
        let preload = match &settings.routes_file {
            Some(file) => {
                let gid = port.gid(0).ok_or(PortError::NoGid(port.number()))?;
                Some(Preload::new(
                    file,
                    gid.interface_id(),
                    attributes.lid,
                    attributes.subnet_timeout,
                    settings.store.ttl,
                ))
            }
            None => None,
        };
        let now = Moment::now();
        let snapshot = SnapshotState::new(&settings, port, &attributes)?;
        let renewals = Renewals::new(&settings, now);
        let host = *port.host();
        let limits = settings.lookups;
        let qos = Qos::new(settings.qos);
        let state = |shared: &Weak<Shared>| State {
            shared: shared.clone(),
            paths: Lookups::new(
                Limits {
                    lookups: limits.lookups,
                    waiters: limits.waiters,
                    // The SDK paces what goes to the core.
                    tries: usize::MAX,
                    try_timeout: None,
                    rest: (millis(limits.timeout) / 16, millis(limits.timeout)),
                },
                Some(host),
                RandomState::new().hash_one(port.number()),
            ),
            qos: QosState::new(Arc::clone(&qos), limits.waiters, host),
            health: SmHealth::new(),
            endpoints: HashMap::new(),
            lines: Vec::new(),
            wakes_at: Moment::NEVER,
            reported_sm_lid: sm_lid,
            flushed: None,
            files: warm_up::nobody(limits.waiters, host),
            are_files_read: false,
            renewals,
            snapshot,
            sm_lid_at: now,
            closed: false,
            running: 0,
        };
        let shared = Arc::new_cyclic(|shared| Shared {
            state: DeliveringMutex::new(state(shared)),
            port: port.clone(),
            settings,
            sm_lid,
            lid_mask: u16::MAX << attributes.lmc.min(7),
            qos: Arc::clone(&qos),
            preload,
            followed: Mutex::default(),
            wake: Condvar::new(),
            wake_files: Condvar::new(),
            thread_ended: Condvar::new(),
        });
        let deadlines = shared.start("path-cache", worker::run)?;
        let cache = Self {
            shared,
            threads: Mutex::new(Threads {
                deadlines: Some(deadlines),
                files: None,
                snapshot: None,
            }),
        };
        if cache.shared.settings.snapshot.is_some() {
            let thread = cache.shared.start("path-snapshot", snapshot::run)?;
            cache.threads.lock().snapshot = Some(thread);
        }
        if files::has_some(&cache.shared) {
            cache.look_after_files()?;
        }
        Ok(cache)
    }

    /// Has a thread of the port's follow a file.
    pub fn follow(&self, file: Arc<dyn Follow>) {
        self.shared.followed.lock().push(file);
        if let Err(error) = self.look_after_files() {
            self.shared.port.host().log(
                LogLevel::ALWAYS,
                format_args!("{error}; changes of files are not seen"),
            );
        }
    }

    /// Starts the thread that looks after files, unless it runs.
    fn look_after_files(&self) -> Result<(), OpenError> {
        let mut threads = self.threads.lock();
        if threads.files.is_none() {
            threads.files = Some(self.shared.start("path-files", files::run)?);
        }
        Ok(())
    }

    /// Opens the cache of one of the port's endpoints.
    ///
    /// # Errors
    /// When the port does not tell its attributes or has no GID.
    pub fn open_endpoint(&self, handle: &EndpointHandle) -> Result<EndpointCache, OpenError> {
        let source = handle.source()?;
        let store = PathStore::new(source, self.shared.settings.store);
        store.set_renewing(renew::renewing(&self.shared.settings));
        let endpoint = {
            let mut state = self.shared.state.lock();
            if state.closed {
                return Err(Closed.into());
            }
            let endpoint = Arc::new(OpenEndpoint {
                handle: handle.clone(),
                source,
                store,
                awaited: Awaited::new(self.shared.awaited_files(&state, &source)),
            });
            state.endpoints.insert(endpoint.id(), Arc::clone(&endpoint));
            endpoint
        };
        self.shared.wake_files.notify_all();
        Ok(EndpointCache(Asker {
            shared: Arc::clone(&self.shared),
            endpoint,
        }))
    }

    /// The subnet manager wants everybody to register again: what is known is stale.
    pub fn reregister(&self) {
        let now = Moment::now();
        {
            let mut state = self.shared.state.lock();
            if !self.shared.settings.renewal.is_on() {
                state.forget_snapshot();
            }
            for endpoint in state.endpoints.values() {
                endpoint.store.reregister(now);
            }
            state.supersede(now);
            state.renewals.all_stale(now);
        }
        self.shared.watch_sm_lid();
    }

    /// Ends the port's threads; whoever still waits is refused.
    pub fn close(&self) {
        {
            let mut state = self.shared.state.lock();
            state.closed = true;
            state.endpoints.clear();
            state.paths.close(|_| true);
            state.qos.lookups.close(|()| true);
            state.files.close(|_| true);
        }
        self.shared.wake.notify_one();
        self.shared.wake_files.notify_all();
        let threads = std::mem::take(&mut *self.threads.lock());
        self.shared.await_end(threads);
    }
}

impl Drop for PortCache {
    fn drop(&mut self) {
        self.close();
    }
}

/// What is known of a query's answer.
enum Sought<'a> {
    /// The path, or that there is none.
    Known(Option<PathRecord>),
    /// Somebody has to ask. The port's state is locked: an answer that comes meanwhile is not overlooked.
    Unknown {
        state: Locked<'a, State>,
        stale: Option<PathRecord>,
    },
}

impl EndpointCache {
    /// The side that asks, as queries need it.
    pub fn source(&self) -> &Source {
        &self.0.endpoint.source
    }

    /// Answers what the client asks from what is known, or asks the SA and lets the request wait.
    ///
    /// Requests for names and IP addresses are refused: what they lead to is the provider's to say, with
    /// [`resolve_to`](Self::resolve_to).
    #[inline]
    pub fn resolve(&self, request: ResolveRequest<'_>) -> Resolution {
        let endpoint = &*self.0.endpoint;
        let Some(target) = request.plain_target(&endpoint.source) else {
            return self.resolve_otherwise(request);
        };
        match endpoint.plain_path(target) {
            Some(path) => {
                request.answer_from_cache(&path);
                Resolution::Known
            }
            None => self.resolve_further(&PathQuery::to(target), request),
        }
    }

    /// A request that is not plain.
    #[cold]
    fn resolve_otherwise(&self, request: ResolveRequest<'_>) -> Resolution {
        let Asker { shared, endpoint } = &self.0;
        // rdma_cm names a service id with each connection.
        if let Some(target) = request.plain_target_without_qos(&endpoint.source)
            && let Some((false, false)) = shared.qos.get(Moment::now())
            && let Some(path) = endpoint.plain_path(target)
        {
            request.answer_from_cache(&path);
            return Resolution::Known;
        }
        let query = request.path_query();
        self.resolve_further(&query, request)
    }

    /// As [`resolve`](Self::resolve), with a destination that the provider has found: the port behind a name or IP
    /// address.
    pub fn resolve_to(&self, target: Target, request: ResolveRequest<'_>) -> Resolution {
        let endpoint = &*self.0.endpoint;
        if let Some(target) = request.plain_target_to(target, &endpoint.source)
            && let Some(path) = endpoint.plain_path(target)
        {
            request.answer_from_cache(&path);
            return Resolution::Known;
        }
        let mut query = request.path_query();
        query.set_target(target);
        self.resolve_further(&query, request)
    }

    /// As [`resolve`](Self::resolve), for a query of the provider's making, such as one by a policy of its own.
    pub fn resolve_query(&self, query: &PathQuery, request: ResolveRequest<'_>) -> Resolution {
        if let Some(path) = self.plain_path(query) {
            request.answer_from_cache(&path);
            return Resolution::Known;
        }
        self.resolve_further(query, request)
    }

    #[cold]
    fn resolve_further(&self, query: &PathQuery, request: ResolveRequest<'_>) -> Resolution {
        let query = query.complete(self.source());
        self.0.start(&query, Client::Resolve(request), None)
    }

    /// The path that answers a query, for the provider itself or for a request that its closure owns: from what is known, or
    /// from the SA.
    ///
    /// `done` is called once, whatever happens, maybe before this returns, with no lock of the engine held: with the path;
    /// with `ENODATA` if there is none, or none is known and `options` do not let it wait; with `ETIMEDOUT` at the deadline,
    /// also if the core did not take the query; with `ENOTCONN` if the endpoint is closed or closes; with the
    /// status of [`resolve`](Self::resolve) otherwise.
    pub fn path_to(
        &self,
        query: &PathQuery,
        options: PathOptions,
        done: impl FnOnce(Result<PathRecord, AcmStatus>) + Send + 'static,
    ) -> Resolution {
        if let Some(path) = self.plain_path(query) {
            if options.counts {
                self.0.endpoint.handle.count(AcmCounter::ROUTE_CACHE);
            }
            done(Ok(path));
            return Resolution::Known;
        }
        let query = query.complete(self.source());
        let client = Client::Provider(Provider::new(options, done));
        self.0.start(&query, client, options.deadline)
    }

    /// The fresh answer to a query, if that is the endpoint's plain one.
    fn plain_path(&self, query: &PathQuery) -> Option<PathRecord> {
        let endpoint = &*self.0.endpoint;
        let query = query.complete(&endpoint.source);
        let is_plain = query.is_plain(&endpoint.source);
        endpoint.plain_path(query.target().ok().filter(|_| is_plain)?)
    }

    /// Asks the SA, whatever is known. The answer is kept.
    pub fn query(&self, query: &PathQuery, request: QueryRequest) -> Resolution {
        let query = query.complete(self.source());
        self.0.start(&query, Client::Query(Box::new(request)), None)
    }

    /// Takes the LID at which a port of the subnet was seen. Paths to the port that lead to another LID are forgotten.
    pub fn seen(&self, gid: Gid, lid: Lid) {
        let Asker { shared, endpoint } = &self.0;
        if gid.subnet_prefix() != endpoint.source.gid.subnet_prefix() || !lid.is_unicast() {
            return;
        }
        let is_there = |known| shared.is_same_port(known, lid);
        // The dump first: what is read from it from now on is without that port.
        if let Some(preload) = &shared.preload
            && preload.seen(gid.interface_id(), is_there)
        {
            for endpoint in shared.state.lock().endpoints.values() {
                endpoint.store.forget_preloaded(|known, _| known == gid);
            }
        }
        endpoint.store.forget_unless(gid, is_there);
    }

    /// Closes the endpoint: refuses all requests that wait, and asks the SA nothing more for it.
    pub fn close(&self) {
        let Asker { shared, endpoint } = &self.0;
        let id = endpoint.id();
        let mut state = shared.state.lock();
        state.endpoints.remove(&id);
        state.paths.close(|key| key.endpoint == id);
        state.files.close(|endpoint| *endpoint == id);
        let is_meant = |waiter: &WaitsForQos| waiter.asker.endpoint.id() == id;
        state
            .qos
            .lookups
            .end_waiting(Moment::now(), &End::Closed, is_meant);
    }
}

impl Drop for EndpointCache {
    fn drop(&mut self) {
        self.close();
    }
}

impl Asker {
    /// Waits for files that are not read yet, then answers or asks. The client waits as long as the settings say, unless he
    /// has said so himself.
    #[cold]
    fn start(
        &self,
        query: &PathQuery,
        client: Client<'_>,
        patience: Option<Duration>,
    ) -> Resolution {
        let now = Moment::now();
        if let Err(error) = query.target() {
            client.reply(Err(error.status()));
            return Resolution::Refused;
        }
        if !self.is_ours_to_ask(query) {
            client.reply(Err(AcmStatus::ESRCADDR));
            return Resolution::Refused;
        }
        let patience = patience.unwrap_or(self.shared.settings.lookups.patience());
        let deadline = now.after(millis(patience));
        if self.endpoint.awaited.is_over() || client.bypasses_the_cache() {
            self.find(query, client, now, deadline)
        } else {
            self.wait_for_files(query, client, now, deadline)
        }
    }

    /// Finds out whether service ids count for this SA, then answers or asks.
    fn find(
        &self,
        query: &PathQuery,
        client: Client<'_>,
        now: Moment,
        deadline: Moment,
    ) -> Resolution {
        if !qos::is_named(query) {
            return self.go_on(query, true, client, now, deadline);
        }
        match self.shared.qos.get(now) {
            Some((counts, false)) => self.go_on(query, counts, client, now, deadline),
            Some((counts, true)) => {
                self.shared.state.lock().qos.refresh(now);
                self.go_on(query, counts, client, now, deadline)
            }
            None => self.wait_for_qos(query, client, now, deadline),
        }
    }

    fn wait_for_qos(
        &self,
        query: &PathQuery,
        client: Client<'_>,
        now: Moment,
        deadline: Moment,
    ) -> Resolution {
        let mut state = self.shared.state.lock();
        if !state.endpoints.contains_key(&self.endpoint.id()) {
            drop(state);
            client.reply(Err(AcmStatus::ENOTCONN));
            return Resolution::Refused;
        }
        // The answer may just have come; it is stored with the state locked.
        let known = self.shared.qos.get(now).map(|(counts, _)| counts);
        if known.is_some() || state.health.is_silent() {
            if known.is_none() {
                state.qos.refresh(now);
            }
            let counts = known.unwrap_or(state.qos.last());
            drop(state);
            return self.go_on(query, counts, client, now, deadline);
        }
        if client.is_nodelay() {
            // Nothing fresh is known. The path is asked for once it is known how.
            let nobody = Client::Provider(Provider::new(PathOptions::default(), |_| ()));
            let waiter = WaitsForQos::new(self, query, nobody, deadline, None);
            state.qos.lookups.ask(now, (), waiter, deadline);
            drop(state);
            client.reply(Err(AcmStatus::ENODATA));
            return Resolution::Asked;
        }
        let likely = qos::apply(query, state.qos.last());
        let stale = match &client {
            Client::Query(_) => None,
            client if qos::is_the_kernels_class(&likely, client) => None,
            _ => self.endpoint.store.get_stale(&likely, now),
        };
        let until = match stale {
            Some(_) => deadline.min(now.after(millis(self.shared.settings.lookups.timeout))),
            None => deadline,
        };
        let waiter = WaitsForQos::new(self, query, client.keep(), deadline, stale);
        if !state.qos.lookups.ask(now, (), waiter, until) {
            return Resolution::Refused;
        }
        // Whoever comes next finds the SA silent, or the path.
        state.qos.lookups.want(now, (), deadline, Urgency::Usual);
        Resolution::Asked
    }

    /// Answers from what is known, or asks the SA.
    fn go_on(
        &self,
        query: &PathQuery,
        qos_counts: bool,
        client: Client<'_>,
        now: Moment,
        deadline: Moment,
    ) -> Resolution {
        let query = &qos::apply(query, qos_counts);
        if qos::is_the_kernels_class(query, &client) {
            client.reply(Err(AcmStatus::ENODATA));
            return Resolution::Refused;
        }
        if client.bypasses_the_cache() {
            return self.wait(self.shared.state.lock(), now, query, client, None, deadline);
        }
        match self.seek(query, now) {
            Sought::Known(path) => {
                self.answer(client, path);
                Resolution::Known
            }
            Sought::Unknown { mut state, stale } => {
                let stands_in = stale.filter(|_| state.health.is_silent());
                if stands_in.is_none() && !client.is_nodelay() {
                    return self.wait(state, now, query, client, stale, deadline);
                }
                // Whatever becomes of the client, somebody has to notice when the SA is back.
                if state.endpoints.contains_key(&self.endpoint.id()) {
                    let key = Key::new(&self.endpoint, query);
                    state.paths.want(now, key, deadline, Urgency::Usual);
                }
                drop(state);
                self.answer(client, stands_in);
                match stands_in {
                    Some(_) => Resolution::Known,
                    None => Resolution::Asked,
                }
            }
        }
    }

    /// Lets a client wait for the SA's answer. One that could have a `stale` path waits a timeout for a better one.
    fn wait(
        &self,
        mut state: Locked<'_, State>,
        now: Moment,
        query: &PathQuery,
        client: Client<'_>,
        stale: Option<PathRecord>,
        deadline: Moment,
    ) -> Resolution {
        if !state.endpoints.contains_key(&self.endpoint.id()) {
            drop(state);
            client.reply(Err(AcmStatus::ENOTCONN));
            return Resolution::Refused;
        }
        let key = Key::new(&self.endpoint, query);
        let until = match stale {
            Some(_) => deadline.min(now.after(millis(self.shared.settings.lookups.timeout))),
            None => deadline,
        };
        let waiter = Waiter {
            client: client.keep(),
            stale: stale.map(Box::new),
        };
        if !state.paths.ask(now, key, waiter, until) {
            return Resolution::Refused;
        }
        if stale.is_some() {
            // The next one gets a fresh path.
            state.paths.want(now, key, deadline, Urgency::Usual);
        }
        Resolution::Asked
    }

    fn seek(&self, query: &PathQuery, now: Moment) -> Sought<'_> {
        let OpenEndpoint { source, store, .. } = &*self.endpoint;
        // The table was asked for a plain path already.
        if (self.shared.preload.is_some() || !query.is_plain(source))
            && let Known::Fresh(path) = store.look_up(query, now)
        {
            return Sought::Known(Some(path));
        }
        if let Some(path) = self.preloaded(query, now) {
            return Sought::Known(Some(path));
        }
        let mut state = self.shared.state.lock();
        // Looked at again: answers are stored with the state locked, so that one which has just come is not asked for a
        // second time.
        let stale = match store.look_up(query, now) {
            Known::Fresh(path) => return Sought::Known(Some(path)),
            Known::Missing => return Sought::Known(None),
            Known::Renewed(path) => {
                state.renewals.stale_used(now);
                return Sought::Known(Some(path));
            }
            Known::Stale(path) => Some(path),
            Known::Nothing => None,
        };
        Sought::Unknown { state, stale }
    }

    /// What the dump says. The answer to a plain query is a hit from then on.
    fn preloaded(&self, query: &PathQuery, now: Moment) -> Option<PathRecord> {
        let OpenEndpoint { source, store, .. } = &*self.endpoint;
        let preload = self.shared.preload.as_ref()?;
        let preloads = store.preloads();
        let (path, read) = preload.path(query, source, now)?;
        if query.is_plain(source) {
            let target = query.target().ok();
            store.preload(target.map(|target| (target, path)), read, preloads, now);
            // The port's thread learns when hits must be told the time.
            if store.next_tick().is_some() {
                drop(self.shared.state.lock());
            }
        }
        Some(path)
    }

    /// Whether the source that a client names is one of the port's: others have daemons of their own to ask for them.
    fn is_ours_to_ask(&self, query: &PathQuery) -> bool {
        let sgid = query.values().sgid();
        sgid == self.endpoint.source.gid || self.shared.port.has_gid(sgid)
    }

    /// Answers from what is known: with a path, or that there is none.
    fn answer(&self, client: Client<'_>, path: Option<PathRecord>) {
        match path {
            Some(path) => client.reply_from_cache(&self.endpoint.handle, &path),
            None => client.reply(Err(AcmStatus::ENODATA)),
        }
    }
}

impl Shared {
    /// Whether two LIDs are one port's.
    fn is_same_port(&self, one: Lid, other: Lid) -> bool {
        (one.0 ^ other.0) & self.lid_mask == 0
    }

    /// Starts one of the port's threads.
    fn start(
        self: &Arc<Self>,
        name: &str,
        run: impl FnOnce(&Arc<Self>) + Send + 'static,
    ) -> Result<JoinHandle<()>, OpenError> {
        let port = self.port.number();
        let shared = Arc::clone(self);
        self.state.lock().running += 1;
        let thread = Builder::new()
            .name(format!("{name}/{port}"))
            .spawn(move || {
                run(&shared);
                shared.ended();
            });
        thread.map_err(|error| {
            self.ended();
            OpenError::Thread { port, error }
        })
    }

    fn ended(&self) {
        self.state.lock().running -= 1;
        self.thread_ended.notify_all();
    }

    /// Waits for the port's threads, which were told to end; not for ever, since one may hang in a file system that does.
    fn await_end(&self, threads: Threads) {
        let threads = [threads.deadlines, threads.files, threads.snapshot];
        if threads.iter().all(Option::is_none) {
            return;
        }
        let deadline = Instant::now() + PATIENCE_WITH_THREADS;
        let mut state = self.state.lock();
        while state.running > 0 {
            let now = Instant::now();
            if now >= deadline {
                drop(state);
                return self.port.host().log(
                    LogLevel::ALWAYS,
                    format_args!(
                        "port {}: a thread of the port did not end in time, and is left behind: a file that hangs holds it \
                         up, or the machine is busy",
                        self.port.number()
                    ),
                );
            }
            state.wait(&self.thread_ended, Some(deadline - now));
        }
        drop(state);
        for thread in threads.into_iter().flatten() {
            if thread.join().is_err() {
                self.port.host().log(
                    LogLevel::ALWAYS,
                    format_args!("port {}: its thread ended in a panic", self.port.number()),
                );
            }
        }
    }
}
