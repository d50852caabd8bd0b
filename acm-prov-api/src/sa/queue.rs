//! The queue of SA MADs, one a port: what waits here, what the core has, and how each MAD ends.
//!
//! The core sends `sa_depth` MADs of a port at a time and queues the rest without saying when it sends them. So a port hands
//! over `sa_depth` + 1 at most, one of which waits in the core, and keeps the others here: joins and questions about the SA
//! first, then path queries, each in order of arrival.
//!
//! A MAD has one identity, its [`MadId`], and one end: its answer, a failure, a deadline that starts when it is handed
//! over, or the close of its endpoint. After a close, a MAD that the core has keeps its place until it comes back or must
//! be lost: the core keeps its queue when a port goes down, so a port that opens again still waits for what it
//! had handed over before.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{c_int, c_void};
use std::num::NonZeroU32;
use std::time::Duration;

use hashbrown::HashMap;

use crate::abi::{
    self, AcmCounter, Be16, Be64, acm_endpoint, acm_sa_mad, umad_hdr, umad_sa_packet,
};
use crate::clock::Moment;
use crate::handles::{Closed, CorePort, EndpointHandle};
use crate::host::Host;
use crate::host::guard::{self, Refusal};
use crate::sa::SaError;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::thread::Builder;
use crate::sync::{Condvar, Mutex};
use crate::text::options::SaLimits;

/// MADs at a time, over all ports. This bounds a runaway.
const LIMIT: usize = 1 << 20;

/// Bytes of the largest record that is asked for, a path record.
pub(super) const RECORD_LENGTH: usize = 64;

/// Takes what became of a MAD, once: when it was handed over (or asked for, if it never was), and the SA's answer.
pub(crate) type Done = Box<dyn FnOnce(Moment, Result<&umad_sa_packet, SaError>) + Send>;

/// A MAD's transaction id, which is its identity here as well. Never zero, and below 2^32: the kernel takes the upper half
/// of a transaction id for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct MadId(NonZeroU32);

impl From<MadId> for u64 {
    fn from(id: MadId) -> Self {
        id.0.get().into()
    }
}

impl MadId {
    #[cfg(feature = "cache")]
    pub(crate) fn from_u64(id: u64) -> Option<Self> {
        u32::try_from(id).ok().and_then(NonZeroU32::new).map(Self)
    }
}

/// What the core keeps as a MAD's context and brings back: the MAD's id, and which of the library's hosts made the MAD and
/// can free it. It is no pointer, so one that never comes back leaks nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Context {
    host: u32,
    id: MadId,
}

impl Context {
    fn to_pointer(self) -> *mut c_void {
        std::ptr::without_provenance_mut((self.host as usize) << 32 | self.id.0.get() as usize)
    }

    fn from_pointer(context: *mut c_void) -> Option<Self> {
        let context = context.addr();
        Some(Self {
            host: (context >> 32) as u32,
            id: MadId(NonZeroU32::new(context as u32)?),
        })
    }
}

/// Which MADs go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Urgency {
    /// Is handed over at once, whatever else the core has: the last word of an endpoint that closes.
    Last,
    /// Many wait for one: joins, questions about the SA itself.
    Urgent,
    /// Path queries.
    Usual,
}

/// What a MAD asks: its method and attribute, and those of its answer.
#[derive(Clone, Copy)]
pub(super) struct Question {
    pub(super) method: u8,
    pub(super) response: u8,
    pub(super) attribute: u16,
    /// Component mask, host order.
    pub(super) mask: u64,
    pub(super) record: [u8; RECORD_LENGTH],
}

type Place = (Urgency, u64);

#[derive(Clone, Copy)]
enum State {
    Queued(Place),
    /// Handed over then.
    Out(Moment),
    /// Not taken by the core.
    Failed(SaError),
}

struct Mad {
    /// Gone once the MAD is handed over.
    endpoint: Option<EndpointHandle>,
    endpoint_id: u64,
    /// Index of the endpoint's host.
    host: u32,
    port: CorePort,
    question: Question,
    asked: Moment,
    state: State,
    /// Who waits has its end then at the latest, whether or not the MAD was handed over.
    wanted_until: Moment,
    /// When the MAD, which the core has, must be lost.
    lost_at: Moment,
    /// When something of it is due.
    deadline: Moment,
    /// Gone once called. The core may still have the MAD.
    done: Option<Done>,
}

impl Mad {
    fn sent(&self) -> Moment {
        match self.state {
            State::Out(sent) => sent,
            _ => self.asked,
        }
    }
}

#[derive(Default)]
struct Port {
    queue: BTreeMap<Place, MadId>,
    /// MADs that the core has.
    out: usize,
}

impl Port {
    /// Frees what a MAD takes in a state that it leaves.
    fn give_back(&mut self, state: State) {
        match state {
            State::Queued(place) => {
                self.queue.remove(&place);
            }
            State::Out(_) => self.out -= 1,
            State::Failed(_) => {}
        }
    }
}

/// A MAD on its way to the core.
struct HandedOver {
    context: Context,
    endpoint: EndpointHandle,
    question: Question,
    /// Whether no other waits at its port.
    is_last: bool,
}

/// A MAD that ended without an answer.
struct Ended {
    host: Option<Host>,
    sent: Moment,
    done: Done,
    error: SaError,
}

#[derive(Default)]
struct Mads {
    by_id: HashMap<MadId, Mad>,
    /// They stay: the core has no more ports than devices have.
    ports: HashMap<CorePort, Port>,
    /// Of all MADs but those that are queued.
    deadlines: BTreeSet<(Moment, MadId)>,
    /// MADs whose `done` has not been called.
    waiting: usize,
    places: u64,
    /// The cores that MADs are sent through: one, except where a test or a host written in Rust brings several.
    hosts: Vec<Host>,
}

impl Mads {
    fn host_index(&mut self, host: &Host) -> u32 {
        let known = self
            .hosts
            .iter()
            .position(|known| std::ptr::eq(known.table(), host.table()));
        let index = known.unwrap_or(self.hosts.len());
        match known {
            Some(index) => self.hosts[index] = *host,
            None => self.hosts.push(*host),
        }
        // There are far fewer tables than 2^32: each is a static.
        index as u32
    }

    /// The host that a MAD is from; for a context that is none of ours, the host that a MAD can only be from.
    fn host(&self, context: Option<Context>) -> Option<Host> {
        let index = context.map_or(0, |context| context.host as usize);
        self.hosts.get(index).or(self.hosts.first()).copied()
    }

    fn set_deadline(&mut self, id: MadId, deadline: Moment) {
        if let Some(mad) = self.by_id.get_mut(&id) {
            if mad.deadline != Moment::NEVER {
                self.deadlines.remove(&(mad.deadline, id));
            }
            mad.deadline = deadline;
            self.deadlines.insert((deadline, id));
        }
    }

    /// Takes a MAD out, whose place is then another's.
    fn remove(&mut self, id: MadId) -> Option<Mad> {
        let mad = self.by_id.remove(&id)?;
        self.deadlines.remove(&(mad.deadline, id));
        self.waiting -= usize::from(mad.done.is_some());
        if let Some(port) = self.ports.get_mut(&mad.port) {
            port.give_back(mad.state);
        }
        Some(mad)
    }

    /// Takes the next MAD that a port may hand over, and counts it as out.
    fn next_to_hand_over(&mut self, id: CorePort, now: Moment) -> Option<HandedOver> {
        let port = self.ports.get_mut(&id)?;
        let (&(urgency, _), &id) = port.queue.first_key_value()?;
        let mad = self.by_id.get_mut(&id)?;
        let limits = mad.endpoint.as_ref()?.host().sa_limits();
        if port.out > limits.depth && urgency != Urgency::Last {
            return None;
        }
        port.queue.pop_first();
        mad.lost_at = lost_at(&limits, port.out, now);
        port.out += 1;
        mad.state = State::Out(now);
        let is_last = port.queue.is_empty();
        let (endpoint, question) = (mad.endpoint.take()?, mad.question);
        let context = Context { host: mad.host, id };
        let deadline = mad.lost_at.min(mad.wanted_until);
        self.set_deadline(id, deadline);
        Some(HandedOver {
            context,
            endpoint,
            question,
            is_last,
        })
    }

    /// Ends what is due. MADs that nobody waits for leave their places to others.
    fn take_due(&mut self, now: Moment) -> (Vec<Ended>, Vec<CorePort>) {
        let (mut ended, mut ports) = (Vec::new(), Vec::new());
        while let Some(&(deadline, id)) = self.deadlines.first()
            && deadline <= now
        {
            let Some(mad) = self.by_id.get_mut(&id) else {
                self.deadlines.pop_first();
                continue;
            };
            if matches!(mad.state, State::Out(_)) && now < mad.lost_at {
                // Nobody waits any longer, but the core still has it.
                let host = self.hosts.get(mad.host as usize).copied();
                let (sent, lost_at) = (mad.sent(), mad.lost_at);
                let done = mad.done.take();
                self.waiting -= usize::from(done.is_some());
                ended.extend(done.map(|done| Ended {
                    host,
                    sent,
                    done,
                    error: SaError::TimedOut,
                }));
                self.set_deadline(id, lost_at);
                continue;
            }
            let Some(mad) = self.remove(id) else { break };
            ports.push(mad.port);
            let error = match mad.state {
                State::Failed(error) => error,
                _ => SaError::TimedOut,
            };
            let host = self.hosts.get(mad.host as usize).copied();
            let sent = mad.sent();
            ended.extend(mad.done.map(|done| Ended {
                host,
                sent,
                done,
                error,
            }));
        }
        (ended, ports)
    }

    /// Frees the places of a port's MADs that the core must have lost, and that nobody waits for. Those of other ports are
    /// left: whoever frees them has to hand over what waits there.
    fn forget_lost(&mut self, port: CorePort, now: Moment) {
        let due = self
            .deadlines
            .iter()
            .take_while(|(deadline, _)| *deadline <= now);
        let is_lost = |id: &MadId| matches!(self.by_id.get(id), Some(mad) if mad.port == port && mad.done.is_none());
        let lost: Vec<MadId> = due.map(|(_, id)| *id).filter(is_lost).collect();
        for id in lost {
            self.remove(id);
        }
    }

    /// The core did not take a MAD: its place is free, and the thread that keeps deadlines tells who waits.
    fn fail(&mut self, id: MadId, error: SaError) {
        let Some(mad) = self.by_id.get_mut(&id) else {
            return;
        };
        let (port, is_waited_for) = (mad.port, mad.done.is_some());
        let before = std::mem::replace(&mut mad.state, State::Failed(error));
        if let Some(port) = self.ports.get_mut(&port) {
            port.give_back(before);
        }
        self.set_deadline(id, Moment::default());
        if !is_waited_for {
            self.remove(id);
        }
    }

    /// An endpoint closes: nobody waits for its MADs any more. Those that the core has keep their places.
    fn close(&mut self, endpoint: u64) -> Vec<Ended> {
        let of_endpoint = self
            .by_id
            .iter()
            .filter(|(_, mad)| mad.endpoint_id == endpoint && mad.done.is_some());
        let ids: Vec<MadId> = of_endpoint.map(|(id, _)| *id).collect();
        ids.into_iter()
            .filter_map(|id| {
                let mad = self.by_id.get_mut(&id)?;
                self.waiting -= 1;
                let ended = Ended {
                    host: self.hosts.get(mad.host as usize).copied(),
                    sent: mad.sent(),
                    done: mad.done.take()?,
                    error: SaError::Closed(Closed),
                };
                if !matches!(mad.state, State::Out(_)) {
                    self.remove(id);
                }
                Some(ended)
            })
            .collect()
    }
}

/// When a MAD that is handed over now must be back, if the core has `out` others: one that waits in the core has the time
/// of the one before it, too. One `timeout` more lets the core say itself how it ended.
fn lost_at(limits: &SaLimits, out: usize, now: Moment) -> Moment {
    let rounds = 1 + u64::from(out >= limits.depth);
    let time = limits.patience().saturating_mul(rounds);
    now.after(time.saturating_add(limits.timeout))
}

#[derive(Default)]
struct Table {
    mads: Option<Mads>,
    /// Whether a thread keeps the deadlines.
    is_watched: bool,
    /// When that thread looks again by itself. It stays so though what was due then has ended: else each MAD that
    /// is answered at once would wake it.
    wakes_at: Moment,
}

impl Table {
    #[inline]
    fn mads(&mut self) -> &mut Mads {
        match &mut self.mads {
            Some(mads) => mads,
            none => none.insert(Mads::default()),
        }
    }

    /// Takes the next MAD that a port may hand over.
    fn next_to_hand_over(&mut self, port: CorePort) -> Option<HandedOver> {
        let mads = self.mads();
        if mads.ports.get(&port)?.queue.is_empty() {
            return None;
        }
        let now = Moment::now();
        mads.forget_lost(port, now);
        mads.next_to_hand_over(port, now)
    }

    /// The endpoint of a MAD that waits for its turn.
    fn endpoint(&mut self, id: MadId) -> Option<EndpointHandle> {
        self.mads().by_id.get(&id)?.endpoint.clone()
    }

    /// Has the thread look again if something is due before it would look by itself.
    fn look_in_time(&mut self, changed: &Condvar) {
        if let Some(&(first, _)) = self.mads().deadlines.first()
            && first < self.wakes_at
        {
            self.wakes_at = first;
            changed.notify_one();
        }
    }
}

/// All MADs of this library. The handler that the core calls has nothing but a [`Context`].
struct Queue {
    table: Mutex<Table>,
    changed: Condvar,
}

static QUEUE: Queue = Queue {
    table: Mutex::new(Table {
        mads: None,
        is_watched: false,
        wakes_at: Moment::NEVER,
    }),
    changed: Condvar::new(),
};

/// An id for a MAD that will be [submitted](submit). It comes again after 2^32 others; a MAD that waits for so long keeps it.
pub(crate) fn new_id() -> MadId {
    static LAST: AtomicU32 = AtomicU32::new(0);
    loop {
        let id = LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        if let Some(id) = NonZeroU32::new(id) {
            return MadId(id);
        }
    }
}

/// Queues a MAD. `done` is called once: on the core's SA thread with an answer, on the closing thread when the endpoint
/// closes first, else on a thread of the SDK's; and before this returns if too many MADs are asked for, or that thread
/// cannot be started. With a `patience`, in milliseconds, it is called by then, though the MAD may still wait for its turn.
pub(super) fn submit(
    id: MadId,
    endpoint: EndpointHandle,
    urgency: Urgency,
    question: Question,
    patience: Option<u64>,
    done: Done,
) {
    let now = Moment::now();
    let wanted_until = patience.map_or(Moment::NEVER, |patience| now.after(patience));
    let port = endpoint.port().core_port();
    let mut table = QUEUE.table.lock();
    let by_id = &table.mads().by_id;
    let is_full = by_id.len() >= LIMIT || by_id.contains_key(&id);
    if is_full || !QUEUE.watch(&mut table) {
        drop(table);
        return done(now, Err(SaError::NoMemory));
    }
    let mads = table.mads();
    mads.places += 1;
    let place = (urgency, mads.places);
    let mad = Mad {
        endpoint_id: endpoint.id(),
        host: mads.host_index(endpoint.host()),
        endpoint: Some(endpoint),
        port,
        question,
        asked: now,
        state: State::Queued(place),
        wanted_until,
        lost_at: Moment::NEVER,
        deadline: wanted_until,
        done: Some(done),
    };
    mads.by_id.insert(id, mad);
    if wanted_until != Moment::NEVER {
        mads.deadlines.insert((wanted_until, id));
    }
    mads.waiting += 1;
    mads.ports.entry(port).or_default().queue.insert(place, id);
    let next = table.next_to_hand_over(port);
    let endpoint = table.endpoint(id);
    table.look_in_time(&QUEUE.changed);
    drop(table);
    QUEUE.hand_over(port, next);
    // Looked at after it was queued: a close that comes from now on ends it.
    if let Some(endpoint) = endpoint
        && let Err(closed) = endpoint.gate().with(|_| ())
    {
        QUEUE.fail(id, closed.into(), |state| matches!(state, State::Queued(_)));
    }
}

/// Takes back a MAD that the core does not have yet; its `done` is dropped uncalled. False: it is out, or has ended.
#[cfg(feature = "cache")]
pub(crate) fn withdraw(id: MadId) -> bool {
    let mut table = QUEUE.table.lock();
    let mads = table.mads();
    let is_queued =
        matches!(mads.by_id.get(&id), Some(mad) if matches!(mad.state, State::Queued(_)));
    let withdrawn = if is_queued { mads.remove(id) } else { None };
    drop(table);
    // What `done` owns may do anything when it is dropped.
    withdrawn.is_some()
}

/// Answers everything that an endpoint has asked, which closes.
pub(crate) fn close(endpoint: &EndpointHandle) {
    let mut table = QUEUE.table.lock();
    let mads = table.mads();
    let ended = mads.close(endpoint.id());
    if mads.waiting == 0 && table.is_watched {
        // The thread ends with the last endpoint that it has something to do for.
        table.wakes_at = Moment::default();
        QUEUE.changed.notify_one();
    }
    drop(table);
    tell(ended);
}

/// Tells who waited for MADs that ended without an answer. One that panics takes no end from the others.
fn tell(ended: Vec<Ended>) {
    for ended in ended {
        guard::enter("SA callback", ended.host.as_ref(), (), || {
            (ended.done)(ended.sent, Err(ended.error));
            Ok(())
        });
    }
}

impl Queue {
    /// Hands the core a MAD that was taken for it, and as many others of the port as it may have.
    fn hand_over(&self, port: CorePort, mut next: Option<HandedOver>) {
        while let Some(HandedOver {
            context,
            endpoint,
            question,
            is_last,
        }) = next
        {
            let sent = endpoint.gate().with(|structure| {
                // Not when it was asked: one that is taken back before its turn is no query.
                if question.attribute == abi::UMAD_SA_ATTR_PATH_REC {
                    endpoint.count(AcmCounter::ROUTE_QUERY);
                }
                // SAFETY: the gate keeps the endpoint open.
                unsafe { send(structure, endpoint.host(), context, &question) }
            });
            match sent.map_err(SaError::from).flatten() {
                // Whatever has come since is handed over by whoever brought it.
                Ok(()) if is_last => return,
                Ok(()) => {}
                Err(error) => {
                    self.fail(context.id, error, |state| matches!(state, State::Out(_)));
                }
            }
            next = self.next_to_hand_over(port);
        }
    }

    /// Takes the next MAD that a port may hand over.
    fn next_to_hand_over(&self, port: CorePort) -> Option<HandedOver> {
        let mut table = self.table.lock();
        let next = table.next_to_hand_over(port);
        table.look_in_time(&self.changed);
        next
    }

    /// A MAD cannot be handed over, if it is still in the state in which that was seen.
    fn fail(&self, id: MadId, error: SaError, is_meant: impl FnOnce(&State) -> bool) {
        let mut table = self.table.lock();
        let mads = table.mads();
        if mads.by_id.get(&id).is_some_and(|mad| is_meant(&mad.state)) {
            mads.fail(id, error);
        }
        table.look_in_time(&self.changed);
    }

    /// Sees to it that a thread keeps the deadlines. False: none could be started.
    fn watch(&'static self, table: &mut Table) -> bool {
        if !table.is_watched {
            let thread = Builder::new().name("sa-deadlines".into());
            table.wakes_at = Moment::NEVER;
            table.is_watched = thread.spawn(|| self.keep_deadlines()).is_ok();
        }
        table.is_watched
    }

    /// Ends MADs whose time is up. The thread ends once it was to look again and nobody waits.
    fn keep_deadlines(&self) {
        let mut table = self.table.lock();
        loop {
            let now = Moment::now();
            let (ended, ports) = table.mads().take_due(now);
            if !ports.is_empty() || !ended.is_empty() {
                drop(table);
                tell(ended);
                for port in ports {
                    self.hand_over(port, self.next_to_hand_over(port));
                }
                table = self.table.lock();
                continue;
            }
            if table.wakes_at <= now {
                table.wakes_at = Moment::NEVER;
                if table.mads().waiting == 0 {
                    table.is_watched = false;
                    return;
                }
            }
            if let Some(&(first, _)) = table.mads().deadlines.first() {
                table.wakes_at = table.wakes_at.min(first);
            }
            match table.wakes_at {
                Moment::NEVER => self.changed.wait(&mut table),
                at => {
                    let wait = Duration::from_millis(at.since(now));
                    self.changed.wait_for(&mut table, wait);
                }
            }
        }
    }

    /// A MAD is back, which frees its place for the next.
    fn returned(&self, context: Option<Context>) -> Returned {
        let mut table = self.table.lock();
        let mads = table.mads();
        let host = mads.host(context);
        let is_out = |id: &MadId| matches!(mads.by_id.get(id), Some(mad) if matches!(mad.state, State::Out(_)));
        let id = context.map(|context| context.id).filter(is_out);
        let mad = id.and_then(|id| mads.remove(id));
        let next = mad.as_ref().and_then(|mad| {
            let next = table.next_to_hand_over(mad.port);
            table.look_in_time(&self.changed);
            next
        });
        Returned { host, mad, next }
    }
}

/// What is to be done with a MAD that is back.
struct Returned {
    /// The host that made it.
    host: Option<Host>,
    /// `None`: it is not known any more, since it has counted as lost.
    mad: Option<Mad>,
    /// The MAD that takes its place.
    next: Option<HandedOver>,
}

/// Hands one MAD to the core.
///
/// # Safety
/// The endpoint is open.
unsafe fn send(
    endpoint: *const acm_endpoint,
    host: &Host,
    context: Context,
    question: &Question,
) -> Result<(), SaError> {
    let table = host.table();
    // SAFETY: the caller's promise; the context is a number that nobody dereferences.
    let mad = unsafe { (table.acm_alloc_sa_mad)(endpoint, context.to_pointer(), Some(came_back)) };
    if mad.is_null() {
        return Err(SaError::NoMemory);
    }
    // SAFETY: the core's fresh MAD is ours until it is sent.
    fill(unsafe { &mut *mad }, question, context.id);
    // SAFETY: the endpoint is open and the MAD complete. The core logs the endpoint's first address here, out of an array
    // that its server thread may be moving; nothing on this side can prevent that.
    let code: c_int = unsafe { (table.acm_send_sa_mad)(mad) };
    if code != 0 {
        // SAFETY: a MAD that was not taken stays with the caller.
        unsafe { (table.acm_free_sa_mad)(mad) };
        return Err(SaError::NotTaken { code });
    }
    Ok(())
}

fn fill(mad: &mut acm_sa_mad, question: &Question, id: MadId) {
    let packet = &mut mad.sa_mad;
    packet.mad_hdr = umad_hdr {
        base_version: abi::UMAD_BASE_VERSION,
        mgmt_class: abi::UMAD_CLASS_SUBN_ADM,
        class_version: abi::UMAD_SA_CLASS_VERSION,
        method: question.method,
        tid: Be64::from_host(id.into()),
        attr_id: Be16::from_host(question.attribute),
        ..Default::default()
    };
    packet.comp_mask = Be64::from_host(question.mask);
    packet.data[..RECORD_LENGTH].copy_from_slice(&question.record);
}

/// The core's SA thread brings a MAD back, with an answer or without.
unsafe extern "C" fn came_back(mad: *mut acm_sa_mad) {
    if mad.is_null() {
        return guard::report(
            QUEUE.table.lock().mads().host(None).as_ref(),
            format_args!("SA handler: the core passed no MAD"),
        );
    }
    // SAFETY: the core's MAD, ours to read until it is freed below.
    let (context, status, packet) = unsafe { ((*mad).context, (*mad).umad.status, (*mad).sa_mad) };
    let Returned {
        host,
        mad: known,
        next,
    } = QUEUE.returned(Context::from_pointer(context));
    guard::enter("SA handler", host.as_ref(), (), || {
        let host = host.ok_or_else(|| Refusal::error("a MAD came back before any was sent"))?;
        // SAFETY: the handler owns the MAD and frees it once.
        unsafe { (host.table().acm_free_sa_mad)(mad) };
        let Some(mut known) = known else {
            return Ok(());
        };
        QUEUE.hand_over(known.port, next);
        if let Some(done) = known.done.take() {
            done(
                known.sent(),
                match status {
                    0 => super::judge(&known.question, &packet),
                    status if status == libc::ETIMEDOUT as u32 => Err(SaError::TimedOut),
                    errno => Err(SaError::NotSent { errno }),
                },
            );
        }
        Ok(())
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An endpoint of a port of its own. Nothing is called in the core for it.
    fn endpoint() -> EndpointHandle {
        use crate::abi::{acm_device, acm_port};
        use crate::handles::{DeviceHandle, PortHandle};
        let device = Box::leak(Box::new(acm_device {
            verbs: std::ptr::null_mut(),
            dev_guid: Be64::from_host(1),
        }));
        let port = Box::leak(Box::new(acm_port {
            dev: device,
            port_num: 1,
        }));
        let endpoint = Box::leak(Box::new(acm_endpoint { port, pkey: 0xffff }));
        let host = crate::testing::host_that_logs(|_, _| ());
        // SAFETY: the structures are leaked, and so open for ever.
        unsafe {
            let device = DeviceHandle::new(host, device);
            EndpointHandle::new(PortHandle::new(device, port), endpoint)
        }
    }

    fn submit(mads: &mut Mads, id: u32, endpoint: &EndpointHandle, wanted_until: Moment) -> MadId {
        let id = MadId(NonZeroU32::new(id).unwrap());
        let port = endpoint.port().core_port();
        let place = (Urgency::Usual, id.into());
        let mad = Mad {
            endpoint: Some(endpoint.clone()),
            endpoint_id: endpoint.id(),
            host: mads.host_index(endpoint.host()),
            port,
            question: Question {
                method: 1,
                response: 0x81,
                attribute: 0x35,
                mask: 0,
                record: [0; RECORD_LENGTH],
            },
            asked: Moment::default(),
            state: State::Queued(place),
            wanted_until,
            lost_at: Moment::NEVER,
            deadline: wanted_until,
            done: Some(Box::new(|_, _| ())),
        };
        mads.by_id.insert(id, mad);
        mads.waiting += 1;
        mads.ports.entry(port).or_default().queue.insert(place, id);
        if wanted_until != Moment::NEVER {
            mads.deadlines.insert((wanted_until, id));
        }
        id
    }

    fn handed_over(mads: &mut Mads, endpoint: &EndpointHandle, now: Moment) -> Vec<MadId> {
        let port = endpoint.port().core_port();
        std::iter::from_fn(|| mads.next_to_hand_over(port, now))
            .map(|next| next.context.id)
            .collect()
    }

    #[test]
    fn a_lost_mad_of_a_closed_endpoint_makes_room_at_its_own_port() {
        let (busy, closed, reopened) = (endpoint(), endpoint(), endpoint());
        let mut mads = Mads::default();
        let start = Moment::from_millis(1_000);
        for id in [1, 2] {
            submit(&mut mads, id, &closed, Moment::NEVER);
        }
        assert_eq!(handed_over(&mut mads, &closed, start).len(), 2);
        assert_eq!(mads.close(closed.id()).len(), 2, "each is told");
        let id = submit(&mut mads, 3, &reopened, Moment::NEVER);
        // The same port of the core's, opened again.
        let port = closed.port().core_port();
        let place = (Urgency::Usual, u64::from(id));
        mads.by_id.get_mut(&id).unwrap().port = port;
        mads.ports.remove(&reopened.port().core_port());
        mads.ports.get_mut(&port).unwrap().queue.insert(place, id);
        assert_eq!(handed_over(&mut mads, &closed, start), []);

        let late = start.after(3_600_000);
        mads.forget_lost(busy.port().core_port(), late);
        let (ended, ports) = mads.take_due(late);
        assert_eq!(
            (ended.len(), ports.as_slice()),
            (0, [port, port].as_slice())
        );
        assert_eq!(handed_over(&mut mads, &closed, late), [id]);
    }

    #[test]
    fn who_does_not_wait_longer_has_an_end_while_the_mad_keeps_its_place() {
        let endpoint = endpoint();
        let port = endpoint.port().core_port();
        let mut mads = Mads::default();
        let now = Moment::from_millis(1_000);
        let until = now.after(100);
        for id in 1..=4 {
            submit(&mut mads, id, &endpoint, until);
        }
        assert_eq!(handed_over(&mut mads, &endpoint, now).len(), 2);
        let (ended, ports) = mads.take_due(until);
        assert_eq!(ended.len(), 4, "two are out, two wait here");
        assert_eq!((mads.waiting, ports.len()), (0, 2));
        submit(&mut mads, 5, &endpoint, Moment::NEVER);
        assert_eq!(handed_over(&mut mads, &endpoint, until), []);
        mads.forget_lost(port, now.after(3_600_000));
        assert_eq!(handed_over(&mut mads, &endpoint, until).len(), 1);
    }

    #[test]
    fn a_mad_that_waits_in_the_core_has_the_time_of_the_one_before_it() {
        let limits = SaLimits {
            timeout: 100,
            retries: 2,
            depth: 2,
        };
        let now = Moment::from_millis(1_000);
        for (out, time) in [(0, 400), (1, 400), (2, 700)] {
            assert_eq!(lost_at(&limits, out, now), now.after(time), "{out} out");
        }
    }

    #[test]
    fn a_context_holds_id_and_host() {
        let id = MadId(NonZeroU32::new(0xffff_fffe).unwrap());
        let context = Context { host: 3, id };
        assert_eq!(Context::from_pointer(context.to_pointer()), Some(context));
        assert_eq!(Context::from_pointer(std::ptr::null_mut()), None);
    }
}
