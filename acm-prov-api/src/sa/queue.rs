//! The queue of SA MADs, one per port: waiting MADs, MADs in the core, and how each MAD ends.
//!
//! The core sends `sa_depth` MADs of a port at a time and queues the rest without saying when it sends them. So a port hands
//! over at most `sa_depth` + 1, one of which waits in the core. The others wait here: joins and ClassPortInfo queries
//! first, then path queries, each in order of arrival. If the port has room and no MAD waits, a new MAD goes straight to
//! the core.
//!
//! A MAD has one identity, its [`MadId`], and one end: its response, a failure, a deadline that starts when it is handed
//! over, or the close of its endpoint. After a close, a MAD in the core keeps its place until the core returns it or it is
//! presumed lost. The core keeps its queue when a port goes down, so a reopened port still waits for its earlier MADs.
//!
//! With the lock held, only the [state](mads) changes: no call of the core, no callback.

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

/// The most MADs at a time, over all ports, as a bound for faulty callers.
const LIMIT: usize = 1 << 20;

/// Bytes of the largest record in a response, a path record.
pub(super) const RECORD_LENGTH: usize = 64;

/// The callback for the end of a MAD, called once. It gets the time at which the core got the MAD (or, if it never did, at
/// which it was queued), and the SA's response or an error. Closures implement it.
pub(crate) trait OnEnd: Send {
    fn ended(self: Box<Self>, sent: Moment, answer: Result<&umad_sa_packet, SaError>);
}

impl<F: FnOnce(Moment, Result<&umad_sa_packet, SaError>) + Send> OnEnd for F {
    fn ended(self: Box<Self>, sent: Moment, answer: Result<&umad_sa_packet, SaError>) {
        self(sent, answer);
    }
}

pub(crate) type Done = Box<dyn OnEnd>;

/// The order of MADs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Urgency {
    /// Handed over at once, whatever the core has: the last MADs of an endpoint that closes.
    Last,
    /// MADs on which many requests depend: joins and ClassPortInfo queries.
    Urgent,
    /// Path queries.
    Usual,
}

/// The content of a query MAD, and the method and attribute of its response.
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
    /// Whether the deadline thread runs.
    is_watched: bool,
    /// When that thread wakes by itself. This stays unchanged even if the MAD that was due then has ended: otherwise each
    /// MAD that is answered at once would wake the thread.
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

    /// Wakes the thread if something is due before its next turn.
    fn look_in_time(&mut self, changed: &Condvar) {
        if let Some(first) = self.mads().next_deadline()
            && first < self.wakes_at
        {
            self.wakes_at = first;
            changed.notify_one();
        }
    }
}

/// All MADs of this library. A global, since the core's handler gets only a [`Context`].
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

/// Queues a MAD. Calls `done` once: on the core's SA thread with a response, on the closing thread when the endpoint
/// closes first, otherwise on a thread of the SDK. It calls `done` before this returns if too many MADs are outstanding, or
/// that thread cannot be started. With a `patience`, in milliseconds, it calls `done` by then, even if the MAD still waits.
pub(super) fn submit(
    id: MadId,
    endpoint: EndpointHandle,
    urgency: Urgency,
    request: MadRequest,
    patience: Option<u64>,
    done: Done,
) {
    let asked = Moment::now();
    let new = NewMad {
        id,
        endpoint,
        urgency,
        request,
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
    // Check after queueing: a later close ends the MAD.
    if let Some(endpoint) = endpoint
        && let Err(closed) = endpoint.gate().with(|_| ())
    {
        let mut table = QUEUE.table.lock();
        table.mads().not_to_be_sent(id, closed.into());
        table.look_in_time(&QUEUE.changed);
    }
}

/// Withdraws a MAD that the core does not have yet, and drops its `done` uncalled. False: it is out, or has ended.
#[cfg(feature = "cache")]
pub(crate) fn withdraw(id: MadId) -> bool {
    let withdrawn = QUEUE.table.lock().mads().withdraw(id);
    // Drop it with no lock held: `done` may own anything.
    withdrawn.is_some()
}

/// Ends all MADs of an endpoint that closes.
pub(crate) fn close(endpoint: &EndpointHandle) {
    let mut table = QUEUE.table.lock();
    let ended = table.mads().close(endpoint.id());
    if !table.mads().is_any_waited_for() && table.is_watched {
        // Wake the thread: it ends if no MAD is left.
        table.wakes_at = Moment::default();
        QUEUE.changed.notify_one();
    }
    drop(table);
    call_done(ended);
}

/// Calls `done` of MADs that ended without a response. A panic in one does not affect the others.
fn call_done(ended: Vec<Ended>) {
    for ended in ended {
        guard::enter("SA callback", ended.host.as_ref(), (), || {
            ended.done.ended(ended.sent, Err(ended.error));
            Ok(())
        });
    }
}

impl Queue {
    /// Hands the core a MAD already taken for it, and as many others of the port as it may have.
    fn hand_over(&self, port: PortIndex, mut next: Option<HandedOver>) {
        while let Some(HandedOver {
            context,
            endpoint,
            request,
            is_last,
        }) = next
        {
            let sent = endpoint.gate().with(|structure| {
                // Count here, not when it was queued: a withdrawn MAD is no query.
                if request.attribute == abi::UMAD_SA_ATTR_PATH_REC {
                    endpoint.count(AcmCounter::ROUTE_QUERY);
                }
                // SAFETY: the gate keeps the endpoint open.
                unsafe { transfer::send(structure, endpoint.host(), context, &request) }
            });
            match sent.map_err(SaError::from).flatten() {
                // A MAD that has arrived since is handed over by its own thread.
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

    /// Handles a MAD that the core returns. Its place is free for the next one.
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

/// The actions for a returned MAD.
struct Returned {
    /// The host that allocated it.
    host: Option<Host>,
    /// `None`: it was presumed lost and forgotten.
    mad: Option<Mad>,
    /// The MAD that takes its place.
    next: Option<HandedOver>,
}
