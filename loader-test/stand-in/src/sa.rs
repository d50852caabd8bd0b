//! The subnet administrator and the core's queue to it: one thread, at most `sa_depth` outstanding MADs per port, faults
//! on demand.

mod by_hand;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use acm_prov_api::abi::{acm_sa_handler_fn, acm_sa_mad};

use super::ledger::{Harmed, Ledger, MadState, ViolationKind};
use super::message::Path;
use super::recorder::{Caller, Recorder};

pub use by_hand::Held;

/// Component mask bits of a PathRecord query (IBA vol. 1, 15.2.5.16).
pub const COMP_DGID: u64 = 1 << 2;
/// See [`COMP_DGID`]. OpenSM requires both bits of a service id, or none.
pub const COMP_SERVICE_ID: u64 = 1;
/// The second bit of a service id.
pub const COMP_SERVICE_ID_LOW: u64 = 1 << 1;
/// See [`COMP_DGID`].
pub const COMP_SGID: u64 = 1 << 3;
/// See [`COMP_DGID`].
pub const COMP_DLID: u64 = 1 << 4;
/// See [`COMP_DGID`].
pub const COMP_SLID: u64 = 1 << 5;
/// See [`COMP_DGID`].
pub const COMP_FLOW_LABEL: u64 = 1 << 8;
/// See [`COMP_DGID`].
pub const COMP_HOP_LIMIT: u64 = 1 << 9;
/// See [`COMP_DGID`].
pub const COMP_TCLASS: u64 = 1 << 10;
/// See [`COMP_DGID`].
pub const COMP_REVERSIBLE: u64 = 1 << 11;
/// See [`COMP_DGID`].
pub const COMP_NUMBER_OF_PATHS: u64 = 1 << 12;
/// See [`COMP_DGID`].
pub const COMP_PKEY: u64 = 1 << 13;
/// See [`COMP_DGID`].
pub const COMP_QOS_CLASS: u64 = 1 << 14;
/// See [`COMP_DGID`].
pub const COMP_SL: u64 = 1 << 15;
/// See [`COMP_DGID`].
pub const COMP_MTU_SELECTOR: u64 = 1 << 16;
/// See [`COMP_DGID`].
pub const COMP_MTU: u64 = 1 << 17;
/// See [`COMP_DGID`].
pub const COMP_RATE_SELECTOR: u64 = 1 << 18;
/// See [`COMP_DGID`].
pub const COMP_RATE: u64 = 1 << 19;
/// See [`COMP_DGID`].
pub const COMP_LIFETIME_SELECTOR: u64 = 1 << 20;
/// See [`COMP_DGID`].
pub const COMP_LIFETIME: u64 = 1 << 21;

/// SA attribute: ClassPortInfo.
pub const CLASS_PORT_INFO: u16 = 0x01;
/// SA attribute: PathRecord.
pub const PATH_RECORD: u16 = 0x35;
/// SA attribute: MCMemberRecord.
pub const MC_MEMBER_RECORD: u16 = 0x38;

/// Method: get.
pub const GET: u8 = 0x01;
/// Method: set, which joins a multicast group.
pub const SET: u8 = 0x02;
/// Method: delete, which leaves a multicast group.
pub const DELETE: u8 = 0x15;

/// A MAD that the provider sent, as it reaches the SA.
#[derive(Clone, Debug)]
pub struct SaRequest {
    /// Its number, from 0, in the order in which MADs reached the SA.
    pub number: usize,
    /// The sending port's number across all devices.
    pub port: usize,
    /// Management class, 3 for the SA.
    pub class: u8,
    /// Method.
    pub method: u8,
    /// Attribute.
    pub attribute: u16,
    /// Transaction id, all 64 bits.
    pub tid: u64,
    /// Component mask.
    pub mask: u64,
    /// The record.
    pub record: [u8; 64],
    /// When the provider passed it to the core.
    pub sent: Instant,
}

impl SaRequest {
    /// Returns the record of a path query.
    pub fn path(&self) -> Path {
        Path(self.record)
    }

    /// Whether it is a path query.
    pub fn is_path_query(&self) -> bool {
        self.attribute == PATH_RECORD && self.method == GET
    }

    /// Whether it queries the SA's ClassPortInfo.
    pub fn is_class_port_info(&self) -> bool {
        self.attribute == CLASS_PORT_INFO && self.method == GET
    }

    /// Whether it joins a multicast group.
    pub fn is_join(&self) -> bool {
        self.attribute == MC_MEMBER_RECORD && self.method == SET
    }
}

/// The SA's reaction to a query.
#[derive(Clone, Debug)]
pub enum Reaction {
    /// Responds as a correct SA.
    Answer,
    /// Responds with a record.
    Record(Path),
    /// Refuses with a MAD status.
    Status(u16),
    /// Responds with the right record in a MAD that names another attribute.
    OtherAttribute,
    /// Reacts after a while.
    After(Duration, Box<Reaction>),
    /// Does not respond: the kernel returns the MAD after `timeout` × (`retries` + 1).
    Silence,
    /// Waits for [`SaThread::release`].
    Hold,
    /// Never comes back.
    Never,
    /// The core's send failed, with this errno, after it had queued the MAD.
    NotSent(i32),
}

/// Decides the reaction to each query.
pub type Script = Box<dyn FnMut(&SaRequest) -> Reaction + Send>;

/// Returns a correct SA's data for a query, or the MAD status of its refusal.
pub type Knowledge = Box<dyn Fn(&SaRequest) -> Result<Vec<u8>, u16> + Send>;

struct Mad {
    address: usize,
    handler: Option<acm_sa_handler_fn>,
    request: SaRequest,
    due: Instant,
    reaction: Reaction,
}

struct PortQueue {
    credits: usize,
    pending: Vec<Mad>,
    waiting: VecDeque<(usize, Option<acm_sa_handler_fn>)>,
    /// Whether the port is down: the core then reads no responses.
    down: bool,
}

struct State {
    ports: BTreeMap<usize, PortQueue>,
    script: Script,
    knowledge: Knowledge,
    requests: Vec<SaRequest>,
    depth: usize,
    time_out: Duration,
    /// Whether the thread is working, for a wait until the SA is idle.
    busy: bool,
    most_out: usize,
    stop: bool,
}

struct Inner {
    state: Mutex<State>,
    changed: Condvar,
    ledger: Arc<Mutex<Ledger>>,
    recorder: Arc<Recorder>,
}

/// The SA and its thread.
pub struct SaThread {
    inner: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SaThread {
    /// Starts the thread.
    ///
    /// # Panics
    /// If the system has no thread left.
    pub(super) fn start(
        ledger: Arc<Mutex<Ledger>>,
        depth: usize,
        time_out: Duration,
        knowledge: Knowledge,
        recorder: Arc<Recorder>,
    ) -> Self {
        let state = State {
            ports: BTreeMap::new(),
            script: Box::new(|_| Reaction::Answer),
            knowledge,
            requests: Vec::new(),
            depth,
            time_out,
            busy: false,
            most_out: 0,
            stop: false,
        };
        let inner = Arc::new(Inner {
            state: Mutex::new(state),
            changed: Condvar::new(),
            ledger,
            recorder,
        });
        let of_thread = Arc::clone(&inner);
        let thread = std::thread::Builder::new()
            .name("core's SA".into())
            .spawn(move || of_thread.run())
            .expect("a thread for the SA");
        Self {
            inner,
            thread: Some(thread),
        }
    }

    /// Sets the reactions to queries from now on.
    pub fn script(&self, script: impl FnMut(&SaRequest) -> Reaction + Send + 'static) {
        lock(&self.inner.state).script = Box::new(script);
    }

    /// Returns every MAD so far: path queries, joins, and ClassPortInfo queries.
    pub fn requests(&self) -> Vec<SaRequest> {
        lock(&self.inner.state).requests.clone()
    }

    /// Returns the path queries so far.
    pub fn path_queries(&self) -> Vec<SaRequest> {
        let mut queries = self.requests();
        queries.retain(SaRequest::is_path_query);
        queries
    }

    /// Clears the recorded MADs and restarts their numbers. No MAD may be outstanding.
    pub(super) fn forget_requests(&self) {
        lock(&self.inner.state).requests.clear();
    }

    /// Returns the highest number of MADs that the core held from one port at a time.
    pub fn most_out(&self) -> usize {
        lock(&self.inner.state).most_out
    }

    /// Reacts to the held query of this number.
    pub fn release(&self, number: usize, reaction: Reaction) {
        let mut state = lock(&self.inner.state);
        for queue in state.ports.values_mut() {
            for mad in &mut queue.pending {
                if mad.request.number == number && matches!(mad.reaction, Reaction::Hold) {
                    mad.reaction = reaction.clone();
                    mad.due = Instant::now();
                }
            }
        }
        self.inner.changed.notify_all();
    }

    /// Returns the MADs of [`Reaction::Never`] with a time-out.
    pub fn bring_back_lost(&self) {
        let mut state = lock(&self.inner.state);
        let queues = state.ports.values_mut();
        for mad in queues.flat_map(|queue| &mut queue.pending) {
            if matches!(mad.reaction, Reaction::Never) {
                mad.reaction = Reaction::Silence;
                mad.due = Instant::now();
            }
        }
        self.inner.changed.notify_all();
    }

    /// Whether no MAD is outstanding except held ones and those that never return.
    pub fn is_idle(&self) -> bool {
        let state = lock(&self.inner.state);
        !state.busy
            && state.ports.values().all(|queue| {
                queue.down
                    || queue
                        .pending
                        .iter()
                        .all(|mad| matches!(mad.reaction, Reaction::Hold | Reaction::Never))
            })
    }

    /// Sets whether a port is down: its responses wait until it is up.
    pub fn set_down(&self, port: usize, down: bool) {
        let mut state = lock(&self.inner.state);
        let depth = state.depth;
        state
            .ports
            .entry(port)
            .or_insert_with(|| PortQueue::new(depth))
            .down = down;
        self.inner.changed.notify_all();
    }

    /// Queues a MAD, for `acm_send_sa_mad`.
    pub(super) fn send(&self, port: usize, address: usize, handler: Option<acm_sa_handler_fn>) {
        let mut state = lock(&self.inner.state);
        let depth = state.depth;
        let queue = state
            .ports
            .entry(port)
            .or_insert_with(|| PortQueue::new(depth));
        queue.waiting.push_back((address, handler));
        let out = queue.pending.len() + queue.waiting.len();
        state.most_out = state.most_out.max(out);
        self.inner.put_on_the_wire(&mut state, port);
        self.inner.changed.notify_all();
    }
}

impl Drop for SaThread {
    fn drop(&mut self) {
        lock(&self.inner.state).stop = true;
        self.inner.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A handler that panics across C has already ended the process.
            let _ = thread.join();
        }
    }
}

impl PortQueue {
    fn new(credits: usize) -> Self {
        Self {
            credits,
            pending: Vec::new(),
            waiting: VecDeque::new(),
            down: false,
        }
    }
}

impl Inner {
    /// Sends as many MADs as the port's credits allow.
    fn put_on_the_wire(&self, state: &mut State, port: usize) {
        loop {
            let Some(queue) = state.ports.get_mut(&port) else {
                return;
            };
            if queue.credits == 0 {
                return;
            }
            let Some((address, handler)) = queue.waiting.pop_front() else {
                return;
            };
            queue.credits -= 1;
            let request = self.read(address, port, state.requests.len());
            state.requests.push(request.clone());
            let mut reaction = (state.script)(&request);
            let mut due = Instant::now();
            if let Reaction::After(delay, then) = reaction {
                due += delay;
                reaction = *then;
            }
            if matches!(reaction, Reaction::Silence) {
                due = Instant::now() + state.time_out;
            }
            let mad = Mad {
                address,
                handler,
                request,
                due,
                reaction,
            };
            if let Some(queue) = state.ports.get_mut(&port) {
                queue.pending.push(mad);
            }
        }
    }

    /// Reads a MAD as it is sent.
    fn read(&self, address: usize, port: usize, number: usize) -> SaRequest {
        let mad = std::ptr::with_exposed_provenance::<acm_sa_mad>(address);
        // SAFETY: the core has the MAD, and MADs are kept until the end of the run.
        let packet = unsafe { (*mad).sa_mad };
        let header = packet.mad_hdr;
        let request = SaRequest {
            number,
            port,
            class: header.mgmt_class,
            method: header.method,
            attribute: header.attr_id.to_host(),
            tid: header.tid.to_host(),
            mask: packet.comp_mask.to_host(),
            record: std::array::from_fn(|index| packet.data[index]),
            sent: Instant::now(),
        };
        let mut ledger = lock(&self.ledger);
        if request.tid == 0 || request.tid > u64::from(u32::MAX) {
            ledger.breach(
                ViolationKind::BadTid,
                Harmed::Daemon,
                format!(
                    "transaction id {:#x}: the core matches only the low 32 bits",
                    request.tid
                ),
            );
        }
        request
    }

    fn run(&self) {
        let mut state = lock(&self.state);
        while !state.stop {
            let now = Instant::now();
            let due = state.ports.iter().find_map(|(port, queue)| {
                if queue.down {
                    return None;
                }
                let index = queue.pending.iter().position(|mad| {
                    mad.due <= now && !matches!(mad.reaction, Reaction::Hold | Reaction::Never)
                })?;
                Some((*port, index))
            });
            let Some((port, index)) = due else {
                let next = state
                    .ports
                    .values()
                    .filter(|queue| !queue.down)
                    .flat_map(|queue| &queue.pending)
                    .filter(|mad| !matches!(mad.reaction, Reaction::Hold | Reaction::Never))
                    .map(|mad| mad.due)
                    .min();
                state = match next {
                    Some(next) => {
                        let wait = next
                            .saturating_duration_since(now)
                            .max(Duration::from_micros(100));
                        self.changed
                            .wait_timeout(state, wait)
                            .unwrap_or_else(PoisonError::into_inner)
                            .0
                    }
                    None => self
                        .changed
                        .wait(state)
                        .unwrap_or_else(PoisonError::into_inner),
                };
                continue;
            };
            state.busy = true;
            let State {
                ports, knowledge, ..
            } = &mut *state;
            let Some(queue) = ports.get_mut(&port) else {
                continue;
            };
            let answered = queue.pending.remove(index);
            let returned = self.match_tid(queue, answered, knowledge);
            drop(state);
            if let Some((address, handler)) = returned {
                self.hand_back(address, handler);
            }
            state = lock(&self.state);
            state.busy = false;
            self.put_on_the_wire(&mut state, port);
            self.changed.notify_all();
        }
    }

    /// Finds the query of a response as the core does: the first whose transaction id is the low half of the response's. A
    /// response without a match costs the port a credit for good.
    fn match_tid(
        &self,
        queue: &mut PortQueue,
        answered: Mad,
        knowledge: &Knowledge,
    ) -> Option<(usize, Option<acm_sa_handler_fn>)> {
        let wanted = answered.request.tid & u64::from(u32::MAX);
        let same = |mad: &Mad| mad.request.tid == wanted;
        let mut target = answered;
        if let Some(earlier) = queue.pending.iter().position(same) {
            lock(&self.ledger).breach(
                ViolationKind::BadTid,
                Harmed::Client,
                format!("two outstanding MADs have transaction id {wanted:#x}: responses reach the wrong one"),
            );
            let swapped = queue.pending.remove(earlier);
            let (request, reaction) = (target.request.clone(), target.reaction.clone());
            queue.pending.push(target);
            target = Mad {
                request,
                reaction,
                ..swapped
            };
        } else if !same(&target) {
            return None;
        }
        queue.credits += 1;
        write_answer(&target, knowledge);
        Some((target.address, target.handler))
    }

    fn hand_back(&self, address: usize, handler: Option<acm_sa_handler_fn>) {
        let known = {
            let mut ledger = lock(&self.ledger);
            let known = ledger.mads.insert(address, MadState::Returned) == Some(MadState::Sent);
            if handler.is_none() {
                ledger.breach(
                    ViolationKind::NoHandler,
                    Harmed::Daemon,
                    "a MAD came back and has no handler: the core calls it without a check",
                );
            }
            known
        };
        if let (true, Some(handler)) = (known, handler) {
            let mad = std::ptr::with_exposed_provenance_mut(address);
            let what = describe(mad);
            self.recorder
                .begin(Caller::Sa, HANDLER, &what, || format!("{mad:p}"));
            // SAFETY: the core calls the handler with the MAD, which the handler then owns.
            unsafe { handler(mad) };
            self.recorder.end(Caller::Sa, HANDLER, || "()".into());
            let mut ledger = lock(&self.ledger);
            if ledger.mads.get(&address) == Some(&MadState::Returned) {
                ledger.breach(
                    ViolationKind::MadLeaked,
                    Harmed::Daemon,
                    "an SA handler did not free its MAD",
                );
            }
        }
    }
}

/// Name of the provider's MAD handlers in the trace.
const HANDLER: &str = "SA handler";

/// Describes a MAD.
pub(super) fn describe(mad: *const acm_sa_mad) -> String {
    // SAFETY: MADs are kept until the end of the run, and the caller holds this one.
    let (umad_status, packet) = unsafe { ((*mad).umad.status, (*mad).sa_mad) };
    let header = packet.mad_hdr;
    let record: [u8; 64] = std::array::from_fn(|index| packet.data[index]);
    let attribute = header.attr_id.to_host();
    let what = match attribute {
        CLASS_PORT_INFO => format!("ClassPortInfo {:02x?}", &record[..8]),
        PATH_RECORD => format!("PathRecord {:?}", Path(record)),
        MC_MEMBER_RECORD => format!("MCMemberRecord {record:02x?}"),
        other => format!("attribute {other:#06x} {record:02x?}"),
    };
    format!(
        "umad status {umad_status}, method {:#04x}, MAD status {:#06x}, tid {:#x}, mask {:#x}, {what}",
        header.method,
        header.status.to_host(),
        header.tid.to_host(),
        packet.comp_mask.to_host(),
    )
}

/// Returns the response method for a method (IBA vol. 1, 15.2.2): Get and Set both get GetResp.
pub(super) fn response_to(method: u8) -> u8 {
    const RESPONSE: u8 = 0x80;
    match method {
        SET => GET | RESPONSE,
        other => other | RESPONSE,
    }
}

/// An attribute that no provider queries.
const SERVICE_RECORD: u16 = 0x31;

/// Turns a query's MAD into its response.
fn write_answer(mad: &Mad, knowledge: &Knowledge) {
    let target = std::ptr::with_exposed_provenance_mut::<acm_sa_mad>(mad.address);
    let mut umad_status = 0;
    let mut status = 0;
    let mut data = None;
    let mut attribute = mad.request.attribute;
    match &mad.reaction {
        Reaction::Record(path) => data = Some(path.0.to_vec()),
        Reaction::Status(refused) => status = *refused,
        Reaction::Silence => umad_status = libc::ETIMEDOUT,
        Reaction::NotSent(errno) => umad_status = *errno,
        _ => match knowledge(&mad.request) {
            Ok(known) => data = Some(known),
            Err(refused) => status = refused,
        },
    }
    if matches!(mad.reaction, Reaction::OtherAttribute) {
        attribute = SERVICE_RECORD;
    }
    // SAFETY: the core has the MAD; the provider gets it back after this.
    unsafe {
        (*target).umad.status = umad_status.cast_unsigned();
        if umad_status == 0 {
            let packet = &mut (*target).sa_mad;
            packet.mad_hdr.method = response_to(packet.mad_hdr.method);
            packet.mad_hdr.status = acm_prov_api::abi::Be16::from_host(status);
            packet.mad_hdr.attr_id = acm_prov_api::abi::Be16::from_host(attribute);
            // The kernel has used the upper half for itself.
            packet.mad_hdr.tid = acm_prov_api::abi::Be64::from_host(
                mad.request.tid & u64::from(u32::MAX) | 0x0001_0000_0000,
            );
            if let Some(data) = data {
                packet.data[..data.len()].copy_from_slice(&data);
            }
        }
    }
}
