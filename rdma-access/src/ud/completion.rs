//! `ibv_create_cq(3)`, `ibv_poll_cq(3)`, `ibv_req_notify_cq(3)`.

use std::ffi::c_int;
use std::fmt;
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ffi::{ibv_wc_opcode, ibv_wc_status};
use ibverbs_sys as ffi;
use parking_lot::Mutex;

use super::Slot;
use super::channel::{CompletionChannel, QueueId};
use super::grh::{GRH_LENGTH, Grh};
use super::work::{Direction, Table, Work, leak};
use crate::address::{Lid, Qpn};
use crate::error::{Cause, Error, Result};
use crate::handle::Handle;
use crate::teardown;
use crate::verbs::Context;

/// Completions taken from the device at a time.
const BATCH: usize = 16;

/// A queue of finished requests.
#[derive(Debug)]
pub struct CompletionQueue {
    // Destroyed by `end`, under the channel's lock.
    handle: Handle<ffi::ibv_cq>,
    id: QueueId,
    inner: Mutex<Inner>,
    channel: Option<Arc<CompletionChannel>>,
    context: Arc<Context>,
}

#[derive(Debug)]
struct Inner {
    work: Table<Work>,
    /// Completions taken from the device when a queue pair ended, not yet polled.
    early: Vec<Completion>,
}

impl CompletionQueue {
    /// Creates a queue for `capacity` requests. When armed, it signals the next completion on `channel`.
    ///
    /// # Errors
    /// [`Cause::Invalid`] if the channel belongs to another context; else the error of `ibv_create_cq`, EINVAL
    /// if the device does not support queues of that length.
    pub fn new(
        context: &Arc<Context>,
        capacity: u32,
        channel: Option<&Arc<CompletionChannel>>,
    ) -> Result<Self> {
        const OPERATION: &str = "ibv_create_cq";
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        let inputs = format!("{}, {capacity} entries", context.name());
        if channel.is_some_and(|channel| !Arc::ptr_eq(channel.context(), context)) {
            let cause = Cause::Invalid("the channel belongs to another context".to_owned());
            return Err(Error::new(OPERATION, inputs, cause));
        }
        let Ok(entries) = c_int::try_from(capacity) else {
            let cause = Cause::Invalid("no device supports a queue of that length".to_owned());
            return Err(Error::new(OPERATION, inputs, cause));
        };
        let id = QueueId(NEXT.fetch_add(1, Ordering::Relaxed));
        // SAFETY: context and channel are alive; the handle owns the result. The queue's id is passed as a
        // pointer that is never dereferenced.
        let handle = unsafe {
            let queue = ffi::ibv_create_cq(
                context.raw(),
                entries,
                without_provenance_mut(id.0),
                channel.map_or(null_mut(), |channel| channel.raw()),
                0,
            );
            Handle::take(queue, |errno| Error::errno(OPERATION, inputs, errno, ""))
        }?;
        Ok(Self {
            handle,
            id,
            inner: Mutex::new(Inner {
                work: Table::new(capacity),
                early: Vec::new(),
            }),
            channel: channel.cloned(),
            context: context.clone(),
        })
    }

    /// Returns the id that events of this queue carry.
    pub fn id(&self) -> QueueId {
        self.id
    }

    /// Arms the queue: the channel gets one event at the next completion (`solicited_only`: at the next
    /// solicited or failed one).
    ///
    /// Completions that are already there raise no event, so poll after arming.
    ///
    /// # Errors
    /// The error of `ibv_req_notify_cq`.
    pub fn arm(&self, solicited_only: bool) -> Result<()> {
        let _alone = self.inner.lock();
        // SAFETY: the queue and its context are alive; the driver set the function in the context's table.
        let returned = unsafe {
            match (*self.context.raw()).ops.req_notify_cq {
                Some(arm) => arm(self.raw(), solicited_only.into()),
                None => return Err(self.not_offered("ibv_req_notify_cq")),
            }
        };
        self.context.check("ibv_req_notify_cq", &"", returned)
    }

    /// Takes a small batch of completions and appends them to `into`. Returns how many came from the device; 0
    /// means none are left. A completion of an unknown request (its queue pair was destroyed) counts but adds
    /// nothing.
    ///
    /// # Errors
    /// The error of `ibv_poll_cq`.
    pub fn poll(&self, into: &mut Vec<Completion>) -> Result<usize> {
        let Inner { work, early } = &mut *self.inner.lock();
        match early.len() {
            0 => self.take_batch(work, into),
            count => {
                into.append(early);
                Ok(count)
            }
        }
    }

    /// Polls the device. The locked `work` keeps other threads from polling this queue.
    fn take_batch(&self, work: &mut Table<Work>, into: &mut Vec<Completion>) -> Result<usize> {
        let mut batch = [ffi::ibv_wc::default(); BATCH];
        // SAFETY: the queue and its context are alive; the batch has room for that many.
        let returned = unsafe {
            match (*self.context.raw()).ops.poll_cq {
                Some(poll) => poll(self.raw(), BATCH as c_int, batch.as_mut_ptr()),
                None => return Err(self.not_offered("ibv_poll_cq")),
            }
        };
        let Ok(count) = usize::try_from(returned) else {
            // The return value carries no information: drivers use -1 and codes of their own.
            let errno = rustix::io::Errno::IO.raw_os_error();
            let likely = match self.context.port_count() {
                Err(error) => format!("the device does not answer either: {error}"),
                Ok(_) => {
                    "ibv_query_device succeeds, so perhaps only the queue is broken: create it again"
                        .to_owned()
                }
            };
            return Err(self.context.fault("ibv_poll_cq", &"", errno, &likely));
        };
        let taken = batch.iter().take(count);
        into.extend(taken.filter_map(|wc| Some(Completion::new(wc, work.take(wc.wr_id())?))));
        Ok(count)
    }

    /// Destroys it.
    ///
    /// # Errors
    /// The error of `ibv_destroy_cq`; the queue then leaks.
    pub fn close(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        let _quiet = self
            .channel
            .as_ref()
            .map(|channel| channel.no_event_in_hand());
        self.handle.end()
    }

    /// Records a request that is about to be posted.
    pub(super) fn expect(&self, work: Work) -> Result<u64, Work> {
        self.inner.lock().work.insert(work)
    }

    /// Counts the requests of a queue pair in one direction, posted or about to be.
    pub(super) fn count(&self, pair: u64, direction: Direction) -> usize {
        let is_its = |work: &Work| work.pair == pair && work.direction == direction;
        self.inner.lock().work.count(is_its)
    }

    /// Removes a request whose posting failed.
    pub(super) fn forget(&self, number: u64) -> Option<Work> {
        self.inner.lock().work.take(number)
    }

    /// Releases the requests of a destroyed queue pair. If it could not be destroyed, leaks them.
    pub(super) fn pair_ended(&self, pair: u64, ended: bool) {
        let mut inner = self.inner.lock();
        let Inner { work, early } = &mut *inner;
        let left = work.take_all(|work| work.pair == pair);
        if ended {
            // Some drivers leave its completions in the queue, where they would use up entries that the table
            // now counts as free. The next poll reports a failure.
            while self
                .take_batch(work, early)
                .is_ok_and(|count| count == BATCH)
            {}
        }
        drop(inner);
        if !ended {
            leak(left);
        }
    }

    pub(super) fn raw(&self) -> *mut ffi::ibv_cq {
        self.handle.as_ptr()
    }

    pub(super) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    fn not_offered(&self, operation: &'static str) -> Error {
        Error::new(operation, self.context.name(), Cause::NotOffered)
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            teardown::report(&error);
        }
    }
}

/// The result of a request (`enum ibv_wc_status`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CompletionStatus(pub u32);

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $c:ident;)*) => {
        impl CompletionStatus {
            $($(#[$doc])* pub const $name: Self = Self(ibv_wc_status::$c);)*
        }

        impl fmt::Display for CompletionStatus {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match *self {
                    $(Self::$name => f.write_str(stringify!($name)),)*
                    Self(other) => write!(f, "status {other}"),
                }
            }
        }
    };
}

statuses! {
    /// Success.
    SUCCESS = IBV_WC_SUCCESS;
    /// The message is longer than the buffer or the port's MTU.
    LOCAL_LENGTH = IBV_WC_LOC_LEN_ERR;
    /// The queue pair is in a wrong state, or the address belongs to another domain.
    LOCAL_QP_OPERATION = IBV_WC_LOC_QP_OP_ERR;
    /// The device may not use the buffer.
    LOCAL_PROTECTION = IBV_WC_LOC_PROT_ERR;
    /// The queue pair went to the error state or was destroyed first.
    FLUSHED = IBV_WC_WR_FLUSH_ERR;
    /// The device could not access the buffer.
    LOCAL_ACCESS = IBV_WC_LOC_ACCESS_ERR;
    /// The device failed.
    FATAL = IBV_WC_FATAL_ERR;
    /// Anything else.
    GENERAL = IBV_WC_GENERAL_ERR;
}

/// The kind of a request (`enum ibv_wc_opcode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Opcode(pub u32);

impl Opcode {
    /// A send.
    pub const SEND: Self = Self(ibv_wc_opcode::IBV_WC_SEND);
    /// A receive.
    pub const RECEIVE: Self = Self(ibv_wc_opcode::IBV_WC_RECV);
}

/// Flags of a completion (`enum ibv_wc_flags`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WcFlags(pub u32);

impl WcFlags {
    /// The message has a GRH.
    pub const GRH: Self = Self(ffi::ibv_wc_flags::IBV_WC_GRH.0);
    /// The message has immediate data.
    pub const WITH_IMMEDIATE: Self = Self(ffi::ibv_wc_flags::IBV_WC_WITH_IMM.0);

    /// Returns whether all of `flags` are set.
    pub fn contains(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }
}

/// A finished request, with its slot.
#[derive(Debug)]
pub struct Completion {
    wc: ffi::ibv_wc,
    work: Work,
}

impl Completion {
    fn new(wc: &ffi::ibv_wc, work: Work) -> Self {
        Self { wc: *wc, work }
    }

    /// Returns the status.
    pub fn status(&self) -> CompletionStatus {
        CompletionStatus(
            self.wc
                .error()
                .map_or(ibv_wc_status::IBV_WC_SUCCESS, |(status, _)| status),
        )
    }

    /// Returns the driver's own error number; 0 after success.
    pub fn vendor_error(&self) -> u32 {
        self.wc.error().map_or(0, |(_, vendor)| vendor)
    }

    /// Returns whether the request succeeded.
    pub fn is_success(&self) -> bool {
        self.wc.is_valid()
    }

    /// Returns the direction, also after a failure.
    pub fn direction(&self) -> Direction {
        self.work.direction
    }

    /// Returns the kind of request as the device reports it; undefined after a failure.
    pub fn opcode(&self) -> Opcode {
        Opcode(self.wc.opcode())
    }

    /// Returns the local queue pair.
    pub fn qp_number(&self) -> Qpn {
        Qpn(self.wc.qp_num)
    }

    /// Returns the poster's token.
    pub fn token(&self) -> u64 {
        self.work.token
    }

    /// Returns the slot for reading.
    pub fn slot(&self) -> &Slot {
        &self.work.slot
    }

    /// Returns the slot for reuse.
    pub fn into_slot(self) -> Slot {
        self.work.slot
    }

    /// Returns the received datagram; `None` for sends and failures.
    pub fn received(&self) -> Option<Received<'_>> {
        let good = self.is_success() && self.direction() == Direction::Receive;
        good.then_some(Received { completion: self })
    }
}

/// A received datagram.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    completion: &'a Completion,
}

impl<'a> Received<'a> {
    fn wc(self) -> &'a ffi::ibv_wc {
        &self.completion.wc
    }

    /// Returns the length that the device reports, including the 40 bytes in front of the payload.
    pub fn byte_len(self) -> usize {
        self.wc().len()
    }

    /// Returns whether the datagram was longer than the slot: [`payload`](Self::payload) is its beginning.
    pub fn is_cut(self) -> bool {
        self.byte_len() > self.completion.work.slot.len()
    }

    /// Returns the payload, at most what the slot holds; empty if the device reports fewer bytes than a header.
    pub fn payload(self) -> &'a [u8] {
        let slot = &self.completion.work.slot;
        slot.get(GRH_LENGTH..self.byte_len().min(slot.len()))
            .unwrap_or(&[])
    }

    /// Returns the 40 bytes in front of the payload, with or without a GRH in them; `None` if the slot is
    /// shorter.
    pub fn grh_bytes(self) -> Option<&'a [u8; GRH_LENGTH]> {
        self.completion.work.slot.first_chunk()
    }

    /// Returns the Global Route Header, if the datagram has one.
    pub fn grh(self) -> Option<Grh> {
        if !self.flags().contains(WcFlags::GRH) {
            return None;
        }
        Grh::from_bytes(self.grh_bytes()?)
    }

    /// Returns the flags.
    pub fn flags(self) -> WcFlags {
        WcFlags(self.wc().wc_flags.0)
    }

    /// Returns the immediate data, if any, in wire order.
    pub fn immediate(self) -> Option<u32> {
        self.wc().imm_data()
    }

    /// Returns the sender's queue pair, as the datagram claims.
    pub fn source_qp(self) -> Qpn {
        Qpn(self.wc().src_qp)
    }

    /// Returns the source LID.
    pub fn source_lid(self) -> Lid {
        Lid(self.wc().slid)
    }

    /// Returns the service level.
    pub fn sl(self) -> u8 {
        self.wc().sl
    }

    /// Returns the offset from the local base LID to the destination LID; undefined for multicast.
    pub fn destination_path_bits(self) -> u8 {
        self.wc().dlid_path_bits
    }

    /// Returns the index of the P_Key; drivers set this for the general service's queue pair only.
    pub fn pkey_index(self) -> u16 {
        self.wc().pkey_index
    }
}
