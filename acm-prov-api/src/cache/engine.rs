//! The engine under a provider: stores and lookups behind locks, joined to the core and to a clock.
//!
//! A [`PortCache`] lives from open_port to close_port and has one thread, for deadlines; an [`EndpointCache`] lives as long
//! as its endpoint. Nothing learnt outlives them: an answer that the core brings after a reopen finds nobody to tell.
//!
//! Locks: a port's `state` before an endpoint's `store`; clients are answered and MADs sent with neither held.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::time::SystemTime;

use super::answer::Judged;
use super::lookups::{EndpointId, Full, Key, LookupId, LookupLimits, Lookups, Query, Replies};
use super::question::{Question, Source};
use super::sm_health::{Message, SmHealth};
use super::store::{Epoch, PathStore, StoreLimits};
use crate::abi::{AcmCounter, AcmStatus};
use crate::address::{Gid, Lid};
use crate::clock::Moment;
use crate::followed::{Follow, TICK};
use crate::handle::{Closed, EndpointHandle, PortError, PortHandle};
use crate::host::LogLevel;
use crate::path::PathRecord;
use crate::request::{QueryRequest, ResolveRequest};
use crate::sa::{SaError, SaSendError};
use crate::sync::thread::{Builder, JoinHandle};
use crate::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};

mod preload;
mod worker;

use preload::Preload;

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
    /// Answered from what is known, or refused because the SA lately knew no such path.
    Known,
    /// The SA is asked. The request waits, unless its client did not want to.
    Asked,
    /// Refused: too many wait already, or the endpoint is closed.
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
    worker: Mutex<Option<JoinHandle<()>>>,
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
    wake: Condvar,
}

struct State {
    lookups: Lookups<Waiter>,
    health: SmHealth,
    endpoints: HashMap<EndpointId, Arc<OpenEndpoint>>,
    /// When the thread looks again by itself.
    wakes_at: Moment,
    /// The SM LID that the operator was last told of.
    told_sm_lid: Lid,
    flushed: Option<SystemTime>,
    /// When followed files are looked at again.
    looks_at: Moment,
    closed: bool,
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
        let flushed = settings.flush_file.as_deref().and_then(worker::touched);
        let state = State {
            lookups: Lookups::new(settings.lookups, RandomState::new().hash_one(port.number())),
            health: SmHealth::new(),
            endpoints: HashMap::new(),
            wakes_at: Moment::NEVER,
            told_sm_lid: sm_lid,
            flushed,
            looks_at: now.after(TICK),
            closed: false,
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
        });
        let of_thread = Arc::clone(&shared);
        let number = shared.port.number();
        let worker = Builder::new()
            .name(format!("path-cache/{number}"))
            .spawn(move || worker::run(&of_thread))
            .map_err(|error| OpenError::Thread {
                port: number,
                error,
            })?;
        Ok(Self {
            shared,
            worker: Mutex::new(Some(worker)),
        })
    }

    /// Has the port's thread follow a file.
    pub fn follow(&self, file: Arc<dyn Follow>) {
        self.shared.followed.lock().push(file);
        self.shared.state.lock().wakes_at = Moment::default();
        self.shared.wake.notify_one();
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
        self.shared
            .state
            .lock()
            .endpoints
            .insert(endpoint.id(), Arc::clone(&endpoint));
        Ok(EndpointCache {
            shared: Arc::clone(&self.shared),
            endpoint,
        })
    }

    /// The subnet manager wants everybody to register again: what is known is stale.
    pub fn reregister(&self) {
        let now = Moment::now();
        let mut state = self.shared.state.lock();
        for endpoint in state.endpoints.values() {
            endpoint.store.lock().reregister(now);
        }
        state.lookups.supersede();
        self.shared.watch_sm_lid(&mut state);
    }

    /// Ends the port's thread; whoever still waits is refused.
    pub fn close(&self) {
        let waiters = {
            let mut state = self.shared.state.lock();
            state.closed = true;
            state.endpoints.clear();
            let empty = Lookups::new(self.shared.settings.lookups, 0);
            std::mem::replace(&mut state.lookups, empty).close()
        };
        self.shared.wake.notify_one();
        refuse(waiters);
        if let Some(worker) = self.worker.lock().take()
            && worker.join().is_err()
        {
            self.shared.port.host().log(
                LogLevel::ALWAYS,
                format_args!(
                    "port {}: its thread ended in a panic",
                    self.shared.port.number()
                ),
            );
        }
    }
}

impl Drop for PortCache {
    fn drop(&mut self) {
        self.close();
    }
}

/// The port is down: nobody can be reached through it.
fn refuse(waiters: Vec<Waiter>) {
    for waiter in waiters {
        waiter.reply(Err(AcmStatus::ENOTCONN));
    }
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

    /// The path that answers a question, for the provider itself: from what is known, or from the SA. `done` is called
    /// once, maybe before this returns, with no lock of the engine held.
    ///
    /// A failure is given as the status that a client would get.
    pub fn path_to(
        &self,
        question: &Question,
        done: impl FnOnce(Result<PathRecord, AcmStatus>) + Send + 'static,
    ) {
        let now = Moment::now();
        if let Some(path) = self.known(question, now) {
            return done(Ok(path));
        }
        let stale = self.endpoint.store.lock().get_stale(question, now);
        let mut state = self.shared.state.lock();
        if let Some(path) = stale.filter(|_| state.health.is_silent()) {
            // Nobody waits, but somebody must notice when the SA is back.
            let _ = state.lookups.prefetch(now, self.key(question));
            self.shared.look_in_time(&mut state);
            drop(state);
            done(Ok(path));
            return self.shared.send();
        }
        self.shared.ask(
            state,
            self.key(question),
            Waiter::Provider(Box::new(done)),
            stale,
        );
    }

    /// What answers a question without asking anybody.
    fn known(&self, question: &Question, now: Moment) -> Option<PathRecord> {
        self.endpoint
            .store
            .lock()
            .get(question, now)
            .or_else(|| self.preloaded(question, now))
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
        refuse(waiters);
    }

    fn key(&self, question: &Question) -> Key {
        Key {
            endpoint: self.endpoint.id(),
            question: *question,
        }
    }

    #[cold]
    fn look_up(&self, question: &Question, request: ResolveRequest, now: Moment) -> Outcome {
        if let Some(path) = self.preloaded(question, now) {
            self.answer(request, Some(path));
            return Outcome::Known;
        }
        let mut state = self.shared.state.lock();
        let (path, stale, missing) = {
            let mut store = self.endpoint.store.lock();
            // Looked at again: answers are stored with the state locked, so that one which has just come is not asked for
            // a second time.
            (
                store.get(question, now),
                store.get_stale(question, now),
                store.is_missing(question, now),
            )
        };
        if path.is_some() || missing {
            drop(state);
            self.answer(request, path);
            return Outcome::Known;
        }
        let key = self.key(question);
        if !state.endpoints.contains_key(&key.endpoint) {
            drop(state);
            request.refuse(AcmStatus::ENOTCONN);
            return Outcome::Refused;
        }
        let stands_in = stale.filter(|_| state.health.is_silent());
        if stands_in.is_some() || request.is_nodelay() {
            // Nobody waits, but the next one may find an answer. If too much is looked up already, the next one asks.
            let _ = state.lookups.prefetch(now, key);
            self.shared.look_in_time(&mut state);
            drop(state);
            self.answer(request, stands_in);
            self.shared.send();
            return Outcome::Asked;
        }
        self.shared.ask(state, key, Waiter::Resolve(request), stale)
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

impl Shared {
    /// Lets a client wait for the SA's answer.
    fn ask(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State>,
        key: Key,
        waiter: Waiter,
        stale: Option<PathRecord>,
    ) -> Outcome {
        if !state.endpoints.contains_key(&key.endpoint) {
            drop(state);
            refuse(vec![waiter]);
            return Outcome::Refused;
        }
        let asked = state.lookups.ask(Moment::now(), key, waiter, stale);
        self.look_in_time(&mut state);
        drop(state);
        match asked {
            Ok(()) => {
                self.send();
                Outcome::Asked
            }
            Err(Full(waiter)) => {
                waiter.reply(Err(AcmStatus::ENOMEM));
                Outcome::Refused
            }
        }
    }

    /// Wakes the thread if something is due before it would look by itself.
    fn look_in_time(&self, state: &mut State) {
        if state
            .lookups
            .next_deadline()
            .is_some_and(|due| due < state.wakes_at)
        {
            state.wakes_at = Moment::default();
            self.wake.notify_one();
        }
    }

    /// Hands the core as many queries as it may have.
    fn send(self: &Arc<Self>) {
        loop {
            let mut state = self.state.lock();
            let now = Moment::now();
            let Some(query) = state.lookups.next_to_send(now) else {
                return;
            };
            self.look_in_time(&mut state);
            let endpoint = state.endpoints.get(&query.key.endpoint).cloned();
            drop(state);
            let Some(endpoint) = endpoint else {
                // The endpoint closed meanwhile: its place is another query's.
                let closed = Judged::Failed(SaError::Closed(Closed));
                self.state.lock().lookups.answered(now, query.id, &closed);
                continue;
            };
            if let Err(error) = self.ask_sa(&endpoint, &query, now) {
                self.port
                    .host()
                    .log(LogLevel::VERBOSE, format_args!("{error}"));
                self.not_sent(&endpoint, query.id, error);
                return;
            }
        }
    }

    /// A query that the core does not take shows that it does not reach the SA. The thread tries again later.
    fn not_sent(&self, endpoint: &OpenEndpoint, id: LookupId, error: SaSendError) {
        let errno = match error {
            SaSendError::Closed(_) => None,
            SaSendError::NoMemory => Some(libc::ENOMEM as u32),
            SaSendError::Refused { code } => Some(code.unsigned_abs()),
        };
        let now = Moment::now();
        let mut state = self.state.lock();
        state.lookups.send_failed(now, id);
        if let Some(errno) = errno {
            let judged = Judged::Again(SaError::NotSent { errno });
            let message = state.health.ended(now, now, &judged);
            self.tell(&state, endpoint.source.pkey, message);
        }
        self.look_in_time(&mut state);
    }

    fn ask_sa(
        self: &Arc<Self>,
        endpoint: &Arc<OpenEndpoint>,
        query: &Query,
        now: Moment,
    ) -> Result<(), SaSendError> {
        let asked = Asked {
            shared: Arc::downgrade(self),
            endpoint: Arc::downgrade(endpoint),
            id: query.id,
            question: query.key.question,
            epoch: endpoint.store.lock().epoch(),
            sent: now,
        };
        let record = asked.question.record(&endpoint.source);
        let mask = asked.question.component_mask();
        endpoint
            .handle
            .ask_path_components(&record, mask, move |answer| asked.answered(answer))
    }

    /// Writes what the operator must know of the SA.
    fn tell(&self, state: &State, pkey: impl std::fmt::Display, message: Option<Message>) {
        let (port, sm_lid) = (self.port.number(), self.sm_lid);
        let guid = self.port.device().guid();
        let waiting = state.lookups.waiting();
        match message {
            None => {}
            Some(Message::Silent { for_ms, last, untold }) => {
                let last = last.map_or("no query has come back".to_owned(), |error| error.to_string());
                let untold = if untold == 0 { String::new() } else { format!("; {untold} shorter silences before") };
                self.port.host().log(
                    LogLevel::ALWAYS,
                    format_args!(
                        "device {guid:#018x} port {port}: the SA does not answer: SM LID {sm_lid}, P_Key {pkey}, silent \
                         for {for_ms} ms, {waiting} requests wait, last status: {last}{untold}"
                    ),
                );
            }
            Some(Message::Answers { after_ms }) => self.port.host().log(
                LogLevel::ALWAYS,
                format_args!(
                    "device {guid:#018x} port {port}: the SA answers again: SM LID {sm_lid}, P_Key {pkey}, after \
                     {after_ms} ms, {waiting} requests wait"
                ),
            ),
        }
    }

    /// Warns when the subnet manager has moved: the core asks at the LID that it had when the port came up.
    fn watch_sm_lid(&self, state: &mut State) {
        let Ok(attributes) = self.port.attributes() else {
            return;
        };
        let (now, then) = (attributes.sm_lid, self.sm_lid);
        if now == state.told_sm_lid {
            return;
        }
        state.told_sm_lid = now;
        if now != then {
            self.port.host().log(
                LogLevel::ALWAYS,
                format_args!(
                    "device {:#018x} port {}: the port's SM LID is {now} now, but ibacm keeps asking the SA at SM LID \
                     {then} until the port goes down and up again",
                    self.port.device().guid(),
                    self.port.number()
                ),
            );
        }
    }
}

/// A query that the core has.
struct Asked {
    shared: Weak<Shared>,
    endpoint: Weak<OpenEndpoint>,
    id: LookupId,
    question: Question,
    epoch: Epoch,
    sent: Moment,
}

impl Asked {
    fn answered(self, answer: Result<PathRecord, SaError>) {
        let (Some(shared), Some(endpoint)) = (self.shared.upgrade(), self.endpoint.upgrade())
        else {
            return;
        };
        let now = Moment::now();
        let judged = Judged::new(&self.question, &endpoint.source, answer);
        let mut state = shared.state.lock();
        let is_open = state.endpoints.contains_key(&endpoint.id());
        match &judged {
            Judged::Path(path) if is_open => {
                endpoint
                    .store
                    .lock()
                    .learn(&self.question, path, self.epoch, now);
            }
            Judged::NoRecords if is_open => {
                endpoint
                    .store
                    .lock()
                    .learn_missing(&self.question, self.epoch, now);
            }
            _ => {}
        }
        let finished = state.lookups.answered(now, self.id, &judged);
        let was_silent = state.health.is_silent();
        let message = state.health.ended(now, self.sent, &judged);
        shared.tell(&state, endpoint.source.pkey, message);
        let mut replies: Replies<Waiter> = finished
            .map(|finished| finished.replies)
            .unwrap_or_default();
        if state.health.is_silent() && !was_silent {
            replies.extend(state.lookups.answer_stale(now));
            shared.watch_sm_lid(&mut state);
        }
        shared.look_in_time(&mut state);
        drop(state);
        report(&endpoint.handle, &judged);
        reply(replies);
        shared.send();
    }
}

/// Answers those whose time has come, without any lock.
fn reply(replies: Replies<Waiter>) {
    for (waiter, answer) in replies {
        waiter.reply(answer);
    }
}

/// Tells those who want to read it what the SA refused.
fn report(endpoint: &EndpointHandle, judged: &Judged) {
    let log = |text: &dyn std::fmt::Display| {
        endpoint
            .host()
            .log(LogLevel::VERBOSE, format_args!("{text}"))
    };
    match judged {
        Judged::Mismatch(mismatch) => log(mismatch),
        Judged::Failed(error) => log(error),
        Judged::Invalid => log(&"the SA finds the query invalid"),
        Judged::Path(_) | Judged::NoRecords | Judged::Again(_) => {}
    }
}

/// Whether a GID that a client names as its source is one of the port's, or none.
pub fn is_own_source(port: &PortHandle, source: &Source, gid: Gid) -> bool {
    gid.is_zero() || gid == source.gid || port.has_gid(gid)
}
