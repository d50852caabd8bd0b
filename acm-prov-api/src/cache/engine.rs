//! The engine under a provider: stores and lookups behind locks, joined to the core and to a clock.
//!
//! A [`PortCache`] lives from open_port to close_port and has a thread for deadlines, and one for files if there are any: a
//! file system that hangs must not hold up an answer. An [`EndpointCache`] lives as long
//! as its endpoint. Nothing learnt outlives them: an answer that the core brings after a reopen finds nobody to tell.
//!
//! Locks: a port's `state` before an endpoint's `store` and before what is kept of earlier openings. With any of them held
//! nobody is answered, nothing is sent, no file and no verbs function is touched, no line is logged.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use super::lookups::{EndpointId, Key, LookupLimits, Lookups, Replies};
use super::question::{Question, Source};
use super::sm_health::SmHealth;
use super::store::{PathStore, StoreLimits};
use crate::abi::{AcmCounter, AcmStatus};
use crate::address::{Gid, Lid};
use crate::clock::Moment;
use crate::door;
use crate::followed::Follow;
use crate::handle::{Closed, EndpointHandle, PortError, PortHandle};
use crate::host::{Host, LogLevel};
use crate::path::PathRecord;
use crate::request::{QueryRequest, ResolveRequest};
use crate::sync::thread::{Builder, JoinHandle};
use crate::sync::{Arc, Condvar, Mutex, MutexGuard};

mod asking;
mod earlier;
mod files;
mod operator;
mod preload;
mod worker;

use preload::Preload;

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
}

/// Why a cache could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The port does not tell its attributes.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The port has no GID.
    #[error("port {0} has no GID to ask the SA with")]
    NoGid(u8),
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
pub enum Outcome {
    /// Answered from what is known, a stale path included if the SA is silent, or refused because the SA lately knew no such
    /// path.
    Known,
    /// The SA is asked. The request waits, unless its client did not want to.
    Asked,
    /// Refused: too many wait already, the endpoint is closed, or another port's GID is named as the source.
    Refused,
}

/// Who waits.
enum Waiter {
    Resolve(ResolveRequest),
    Query(QueryRequest),
    Provider(Done),
}

/// What a provider does with a path that it wants for itself.
type Done = Box<dyn FnOnce(Result<PathRecord, AcmStatus>) + Send>;

impl Waiter {
    fn reply(self, reply: Result<PathRecord, AcmStatus>) {
        match (self, reply) {
            (Self::Resolve(request), Ok(path)) => request.answer(&path),
            (Self::Resolve(request), Err(status)) => request.refuse(status),
            (Self::Query(request), Ok(path)) => request.answer(&path),
            (Self::Query(request), Err(status)) => request.refuse(status),
            (Self::Provider(done), reply) => done(reply),
        }
    }
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
}

/// The cache of one open endpoint.
pub struct EndpointCache {
    shared: Arc<Shared>,
    endpoint: Arc<OpenEndpoint>,
}

struct OpenEndpoint {
    handle: EndpointHandle,
    source: Source,
    store: Mutex<PathStore>,
}

impl OpenEndpoint {
    fn id(&self) -> EndpointId {
        EndpointId(self.handle.id())
    }
}

/// What the callbacks, the SA thread and the port's own thread share.
struct Shared {
    port: PortHandle,
    settings: CacheSettings,
    /// Where the core sends its queries until the port is opened again.
    sm_lid: Lid,
    /// The LID bits that tell ports from each other: all but those of the LMC.
    lid_mask: u16,
    preload: Option<Preload>,
    followed: Mutex<Vec<Arc<dyn Follow>>>,
    state: Mutex<State>,
    /// Wakes the thread that keeps deadlines.
    wake: Condvar,
    /// Wakes the thread that looks after files.
    wake_files: Condvar,
    thread_ended: Condvar,
}

struct State {
    lookups: Lookups<Waiter>,
    health: SmHealth,
    endpoints: HashMap<EndpointId, Arc<OpenEndpoint>>,
    /// When the thread that keeps deadlines looks again by itself.
    wakes_at: Moment,
    /// The SM LID that the operator was last told of.
    told_sm_lid: Lid,
    flushed: Option<SystemTime>,
    /// When the SM LID is looked at again, while the SA is silent.
    sm_lid_at: Moment,
    /// When a MAD of an earlier opening counts as lost.
    earlier_until: Option<Moment>,
    closed: bool,
    /// Threads that have not ended.
    running: usize,
}

impl PortCache {
    /// Opens a port's cache and starts its thread.
    ///
    /// # Errors
    /// When the port does not tell its attributes, or the thread does not start.
    pub fn open(port: &PortHandle, settings: CacheSettings) -> Result<Self, OpenError> {
        let attributes = port.attributes()?;
        let sm_lid = attributes.sm_lid;
        let now = Moment::now();
        let preload = match &settings.routes_file {
            Some(file) => {
                let gid = port.gid(0).ok_or(OpenError::NoGid(port.number()))?;
                let (preload, told) = Preload::new(
                    file,
                    gid.interface_id(),
                    attributes.lid,
                    attributes.subnet_timeout,
                    settings.store.ttl,
                    now,
                );
                for line in told {
                    port.host().log(LogLevel::ALWAYS, format_args!("{line}"));
                }
                Some(preload)
            }
            None => None,
        };
        let flushed = settings.flush_file.as_deref().and_then(files::touched);
        let state = State {
            lookups: Lookups::new(settings.lookups, RandomState::new().hash_one(port.number())),
            health: SmHealth::new(),
            endpoints: HashMap::new(),
            wakes_at: Moment::NEVER,
            told_sm_lid: sm_lid,
            flushed,
            sm_lid_at: now,
            earlier_until: None,
            closed: false,
            running: 0,
        };
        let port = port.clone();
        let shared = Arc::new(Shared {
            port,
            settings,
            sm_lid,
            lid_mask: u16::MAX << attributes.lmc.min(7),
            preload,
            followed: Mutex::default(),
            state: Mutex::new(state),
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
            }),
        };
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
        let port = &self.shared.port;
        let gid = port.gid(0).ok_or(OpenError::NoGid(port.number()))?;
        let source = Source {
            gid,
            lid: port.attributes()?.lid,
            pkey: handle.pkey(),
        };
        let store = Mutex::new(PathStore::new(source, self.shared.settings.store));
        let endpoint = Arc::new(OpenEndpoint {
            handle: handle.clone(),
            source,
            store,
        });
        {
            let mut state = self.shared.state.lock();
            if state.closed {
                return Err(Closed.into());
            }
            state.endpoints.insert(endpoint.id(), Arc::clone(&endpoint));
        }
        Ok(EndpointCache {
            shared: Arc::clone(&self.shared),
            endpoint,
        })
    }

    /// The subnet manager wants everybody to register again: what is known is stale.
    pub fn reregister(&self) {
        let now = Moment::now();
        {
            let mut state = self.shared.state.lock();
            for endpoint in state.endpoints.values() {
                endpoint.store.lock().reregister(now);
            }
            state.lookups.supersede();
        }
        self.shared.watch_sm_lid();
    }

    /// Ends the port's threads; whoever still waits is refused.
    pub fn close(&self) {
        let waiters = {
            let mut state = self.shared.state.lock();
            state.closed = true;
            state.endpoints.clear();
            let empty = Lookups::new(self.shared.settings.lookups, 0);
            let lookups = std::mem::replace(&mut state.lookups, empty);
            earlier::leave(&self.shared, &lookups);
            lookups.close()
        };
        self.shared.wake.notify_one();
        self.shared.wake_files.notify_one();
        refuse(self.shared.port.host(), waiters);
        let threads = std::mem::take(&mut *self.threads.lock());
        self.shared.await_end(threads);
    }
}

impl Drop for PortCache {
    fn drop(&mut self) {
        self.close();
    }
}

/// The port is down: nobody can be reached through it.
fn refuse(host: &Host, waiters: Vec<Waiter>) {
    let refused = |waiter| (waiter, Err(AcmStatus::ENOTCONN));
    reply(host, waiters.into_iter().map(refused).collect());
}

/// Answers those whose time has come, without any lock. One whose own code panics takes no answer from the others.
fn reply(host: &Host, replies: Replies<Waiter>) {
    for (waiter, answer) in replies {
        door::guard(host, "whoever waited for a path", (), || {
            waiter.reply(answer);
        });
    }
}

/// What is known of a question's answer.
enum Sought<'a> {
    /// The path, or that there is none.
    Known(Option<PathRecord>),
    /// Somebody has to ask. The port's state is locked: an answer that comes meanwhile is not overlooked.
    Unknown {
        state: MutexGuard<'a, State>,
        stale: Option<PathRecord>,
    },
}

impl EndpointCache {
    /// The side that asks, as questions need it.
    pub fn source(&self) -> &Source {
        &self.endpoint.source
    }

    /// Answers from what is known, or asks the SA and lets the request wait.
    #[inline]
    pub fn resolve(&self, question: &Question, request: ResolveRequest) -> Outcome {
        let now = Moment::now();
        let known = self.endpoint.store.lock().get(question, now);
        if let Some(path) = known {
            self.endpoint.handle.count(AcmCounter::ROUTE_CACHE);
            request.answer(&path);
            return Outcome::Known;
        }
        self.look_up(question, request, now)
    }

    #[cold]
    fn look_up(&self, question: &Question, request: ResolveRequest, now: Moment) -> Outcome {
        if !self.is_ours_to_ask(question) {
            request.refuse(AcmStatus::ESRCADDR);
            return Outcome::Refused;
        }
        match self.seek(question, now) {
            Sought::Known(path) => {
                self.answer(request, path);
                Outcome::Known
            }
            Sought::Unknown { state, .. } if !state.endpoints.contains_key(&self.endpoint.id()) => {
                drop(state);
                request.refuse(AcmStatus::ENOTCONN);
                Outcome::Refused
            }
            Sought::Unknown { state, stale } => {
                let stands_in = stale.filter(|_| state.health.is_silent());
                if stands_in.is_none() && !request.is_nodelay() {
                    let waiter = Waiter::Resolve(request);
                    return self.shared.ask(state, self.key(question), waiter, stale);
                }
                self.shared.prefetch(state, now, self.key(question));
                self.answer(request, stands_in);
                self.shared.send();
                match stands_in {
                    Some(_) => Outcome::Known,
                    None => Outcome::Asked,
                }
            }
        }
    }

    /// The path that answers a question, for the provider itself: from what is known, or from the SA. `done` is called
    /// once, maybe before this returns, with no lock of the engine held.
    ///
    /// A failure is given as the status that a client would get.
    pub fn path_to(
        &self,
        question: &Question,
        done: impl FnOnce(Result<PathRecord, AcmStatus>) + Send + 'static,
    ) {
        if !self.is_ours_to_ask(question) {
            return done(Err(AcmStatus::ESRCADDR));
        }
        let now = Moment::now();
        match self.seek(question, now) {
            Sought::Known(path) => done(path.ok_or(AcmStatus::ENODATA)),
            Sought::Unknown { state, stale } => {
                match stale.filter(|_| state.health.is_silent()) {
                    Some(path) => {
                        self.shared.prefetch(state, now, self.key(question));
                        // Whatever becomes of `done`, somebody has to notice when the SA is back.
                        self.shared.send();
                        done(Ok(path));
                    }
                    None => {
                        let waiter = Waiter::Provider(Box::new(done));
                        self.shared.ask(state, self.key(question), waiter, stale);
                    }
                }
            }
        }
    }

    fn seek(&self, question: &Question, now: Moment) -> Sought<'_> {
        let known = self.endpoint.store.lock().get(question, now);
        if let Some(path) = known.or_else(|| self.preloaded(question, now)) {
            return Sought::Known(Some(path));
        }
        let state = self.shared.state.lock();
        let mut store = self.endpoint.store.lock();
        // Looked at again: answers are stored with the state locked, so that one which has just come is not asked for a
        // second time.
        let path = store.get(question, now);
        if path.is_some() || store.is_missing(question, now) {
            return Sought::Known(path);
        }
        let stale = store.get_stale(question, now);
        Sought::Unknown { state, stale }
    }

    fn preloaded(&self, question: &Question, now: Moment) -> Option<PathRecord> {
        self.shared
            .preload
            .as_ref()?
            .path(question, &self.endpoint.source, now)
    }

    /// A port of the subnet was seen at a LID: a path to it that leads elsewhere is forgotten, whoever gave it.
    pub fn seen(&self, gid: Gid, lid: Lid) {
        let mask = self.shared.lid_mask;
        if gid.subnet_prefix() != self.endpoint.source.gid.subnet_prefix() || !lid.is_unicast() {
            return;
        }
        let is_there = |known: Lid| known.0 & mask == lid.0 & mask;
        self.endpoint.store.lock().forget_unless(gid, is_there);
        if let Some(preload) = &self.shared.preload {
            preload.seen(gid.interface_id(), is_there);
        }
    }

    /// Asks the SA, whatever is known. The answer is kept.
    pub fn query(&self, question: &Question, request: QueryRequest) -> Outcome {
        if !self.is_ours_to_ask(question) {
            request.refuse(AcmStatus::ESRCADDR);
            return Outcome::Refused;
        }
        let state = self.shared.state.lock();
        self.shared
            .ask(state, self.key(question), Waiter::Query(request), None)
    }

    /// The endpoint goes down: whoever waits is refused, and nothing more is asked for it.
    pub fn close(&self) {
        let waiters = {
            let mut state = self.shared.state.lock();
            state.endpoints.remove(&self.endpoint.id());
            state.lookups.close_endpoint(self.endpoint.id())
        };
        refuse(self.shared.port.host(), waiters);
    }

    /// Whether the source that a client names is one of the port's: others have daemons of their own to ask for them.
    fn is_ours_to_ask(&self, question: &Question) -> bool {
        let sgid = question.demands.sgid;
        sgid.is_zero() || self.shared.port.has_gid(sgid)
    }

    fn key(&self, question: &Question) -> Key {
        Key {
            endpoint: self.endpoint.id(),
            question: *question,
        }
    }

    /// Answers from what is known: with a path, or that there is none.
    fn answer(&self, request: ResolveRequest, path: Option<PathRecord>) {
        match path {
            Some(path) => {
                self.endpoint.handle.count(AcmCounter::ROUTE_CACHE);
                request.answer(&path);
            }
            None => request.refuse(AcmStatus::ENODATA),
        }
    }
}

impl Drop for EndpointCache {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
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
        let threads = [threads.deadlines, threads.files];
        if threads.iter().all(Option::is_none) {
            return;
        }
        let deadline = Instant::now() + PATIENCE_WITH_THREADS;
        let mut state = self.state.lock();
        while state.running > 0 {
            if self
                .thread_ended
                .wait_until(&mut state, deadline)
                .timed_out()
            {
                drop(state);
                return self.port.host().log(
                    LogLevel::ALWAYS,
                    format_args!(
                        "port {}: a file that is followed holds up a thread of the port, which is left behind until it \
                         is read",
                        self.port.number()
                    ),
                );
            }
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
