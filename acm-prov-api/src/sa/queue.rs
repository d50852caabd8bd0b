//! The queue of SA MADs, one a port: what waits here, what the core has, and how each MAD ends.
//!
//! The core sends `sa_depth` MADs of a port at a time and queues the rest without saying when it sends them. So a port hands
//! over `sa_depth` + 1 at most, one of which waits in the core, and keeps the others here: joins and questions about the SA
//! first, then path queries, each in order of arrival. A MAD that finds its port with room and nobody waiting goes straight
//! to the core.
//!
//! A MAD has one identity, its [`MadId`], and one end: its answer, a failure, a deadline that starts when it is handed
//! over, or the close of its endpoint. After a close, a MAD that the core has keeps its place until it comes back or must
//! be lost: the core keeps its queue when a port goes down, so a port that opens again still waits for what it
//! had handed over before.
//!
//! With the lock held only the [state](mads) changes: the core is not called, and nobody is told.

use crate::abi::{self, AcmCounter, umad_sa_packet};
use crate::clock::Moment;
use crate::handles::EndpointHandle;
use crate::host::Host;
use crate::host::guard;
use crate::sa::SaError;
use crate::sync::{Condvar, Mutex};

mod deadlines;
mod id;
mod mads;
mod transfer;

use id::Context;
use mads::{Ended, HandedOver, Mad, Mads, NewMad, PortIndex};

pub(crate) use id::{MadId, new_id};

/// MADs at a time, over all ports. This bounds a runaway.
const LIMIT: usize = 1 << 20;

/// Bytes of the largest record that is asked for, a path record.
pub(super) const RECORD_LENGTH: usize = 64;

/// Takes what became of a MAD, once: when it was handed over (or asked for, if it never was), and the SA's answer. A closure
/// will do.
pub(crate) trait OnEnd: Send {
    fn ended(self: Box<Self>, sent: Moment, answer: Result<&umad_sa_packet, SaError>);
}

impl<F: FnOnce(Moment, Result<&umad_sa_packet, SaError>) + Send> OnEnd for F {
    fn ended(self: Box<Self>, sent: Moment, answer: Result<&umad_sa_packet, SaError>) {
        self(sent, answer);
    }
}

pub(crate) type Done = Box<dyn OnEnd>;

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
pub(super) struct MadRequest {
    pub(super) method: u8,
    pub(super) response: u8,
    pub(super) attribute: u16,
    /// Component mask, host order.
    pub(super) mask: u64,
    pub(super) record: [u8; RECORD_LENGTH],
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
    fn next_to_hand_over(&mut self, port: PortIndex) -> Option<HandedOver> {
        let mads = self.mads();
        if !mads.is_any_queued(port) {
            return None;
        }
        mads.next_to_hand_over(port, Moment::now())
    }

    /// Has the thread look again if something is due before it would look by itself.
    fn look_in_time(&mut self, changed: &Condvar) {
        if let Some(first) = self.mads().next_deadline()
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

/// Queues a MAD. `done` is called once: on the core's SA thread with an answer, on the closing thread when the endpoint
/// closes first, else on a thread of the SDK's; and before this returns if too many MADs are asked for, or that thread
/// cannot be started. With a `patience`, in milliseconds, it is called by then, though the MAD may still wait for its turn.
pub(super) fn submit(
    id: MadId,
    endpoint: EndpointHandle,
    urgency: Urgency,
    question: MadRequest,
    patience: Option<u64>,
    done: Done,
) {
    let asked = Moment::now();
    let new = NewMad {
        id,
        endpoint,
        urgency,
        question,
        asked,
        wanted_until: patience.map_or(Moment::NEVER, |patience| asked.after(patience)),
        done,
    };
    let mut table = QUEUE.table.lock();
    let submitted = if table.mads().is_full() || !QUEUE.watch(&mut table) {
        Err(new.done)
    } else {
        table.mads().submit(new)
    };
    let (port, next) = match submitted {
        Ok(submitted) => submitted,
        Err(done) => {
            drop(table);
            return done.ended(asked, Err(SaError::NoMemory));
        }
    };
    let is_next = next.as_ref().is_some_and(|next| next.context.id == id);
    let endpoint = match is_next {
        true => None,
        false => table.mads().queued_endpoint(id),
    };
    table.look_in_time(&QUEUE.changed);
    drop(table);
    QUEUE.hand_over(port, next);
    // Looked at after it was queued: a close that comes from now on ends it.
    if let Some(endpoint) = endpoint
        && let Err(closed) = endpoint.gate().with(|_| ())
    {
        let mut table = QUEUE.table.lock();
        table.mads().not_to_be_sent(id, closed.into());
        table.look_in_time(&QUEUE.changed);
    }
}

/// Takes back a MAD that the core does not have yet; its `done` is dropped uncalled. False: it is out, or has ended.
#[cfg(feature = "cache")]
pub(crate) fn withdraw(id: MadId) -> bool {
    let withdrawn = QUEUE.table.lock().mads().withdraw(id);
    // Dropped with no lock held: what `done` owns may do anything then.
    withdrawn.is_some()
}

/// Answers everything that an endpoint has asked, which closes.
pub(crate) fn close(endpoint: &EndpointHandle) {
    let mut table = QUEUE.table.lock();
    let ended = table.mads().close(endpoint.id());
    if !table.mads().is_any_waited_for() && table.is_watched {
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
            ended.done.ended(ended.sent, Err(ended.error));
            Ok(())
        });
    }
}

impl Queue {
    /// Hands the core a MAD that was taken for it, and as many others of the port as it may have.
    fn hand_over(&self, port: PortIndex, mut next: Option<HandedOver>) {
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
                unsafe { transfer::send(structure, endpoint.host(), context, &question) }
            });
            match sent.map_err(SaError::from).flatten() {
                // Whatever has come since is handed over by whoever brought it.
                Ok(()) if is_last => return,
                Ok(()) => {}
                Err(error) => {
                    let mut table = self.table.lock();
                    table.mads().not_taken(context.id, error);
                    table.look_in_time(&self.changed);
                }
            }
            next = self.next_to_hand_over(port);
        }
    }

    /// Takes the next MAD that a port may hand over.
    fn next_to_hand_over(&self, port: PortIndex) -> Option<HandedOver> {
        let mut table = self.table.lock();
        let next = table.next_to_hand_over(port);
        table.look_in_time(&self.changed);
        next
    }

    /// A MAD is back, which frees its place for the next.
    fn returned(&self, context: Option<Context>) -> Returned {
        let mut table = self.table.lock();
        let mads = table.mads();
        let host = mads.host(context);
        let mad = context.and_then(|context| mads.take_back(context.id));
        let next = match &mad {
            Some(mad) => table.next_to_hand_over(mad.port),
            None => None,
        };
        if next.is_some() {
            table.look_in_time(&self.changed);
        }
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
