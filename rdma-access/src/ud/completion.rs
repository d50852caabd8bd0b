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

/// Where finished requests come out.
#[derive(Debug)]
pub struct CompletionQueue {
    // Ended by `end`, under the channel's lock.
    handle: Handle<ffi::ibv_cq>,
    id: QueueId,
    inner: Mutex<Inner>,
    channel: Option<Arc<CompletionChannel>>,
    context: Arc<Context>,
}

#[derive(Debug)]
struct Inner {
    work: Table<Work>,
    /// Taken from the device when a queue pair ended, and not yet by anybody.
    early: Vec<Completion>,
}

impl CompletionQueue {
    /// A queue for `capacity` requests, which tells `channel` when it is armed and one completes.
    ///
    /// # Errors
    /// [`Cause::Invalid`] if the channel is of another context; what `ibv_create_cq` fails with, EINVAL if the device
    /// does not have queues that long.
    pub fn new(
        context: &Arc<Context>,
        capacity: u32,
        channel: Option<&Arc<CompletionChannel>>,
    ) -> Result<Self> {
        const OPERATION: &str = "ibv_create_cq";
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        let inputs = format!("{}, {capacity} entries", context.name());
        if channel.is_some_and(|channel| !Arc::ptr_eq(channel.context(), context)) {
            let cause = Cause::Invalid("the channel is of another context".to_owned());
            return Err(Error::new(OPERATION, inputs, cause));
        }
        let Ok(entries) = c_int::try_from(capacity) else {
            let cause = Cause::Invalid("no queue is that long".to_owned());
            return Err(Error::new(OPERATION, inputs, cause));
        };
        let id = QueueId(NEXT.fetch_add(1, Ordering::Relaxed));
        // SAFETY: context and channel are alive; the result is nobody else's. The number that stands for the queue is
        // passed where a pointer is expected, and is never followed.
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

    /// What events of this queue say.
    pub fn id(&self) -> QueueId {
        self.id
    }

    /// Has the channel told about the next completion (`solicited_only`: the next solicited or failed one). Once.
    ///
    /// Completions that are there already raise no event: poll after arming.
    ///
    /// # Errors
    /// What `ibv_req_notify_cq` fails with.
    pub fn arm(&self, solicited_only: bool) -> Result<()> {
        let _alone = self.inner.lock();
        // SAFETY: the queue is alive, and so is its context, in whose table the driver put its function.
        let returned = unsafe {
            match (*self.context.raw()).ops.req_notify_cq {
                Some(arm) => arm(self.raw(), solicited_only.into()),
                None => return Err(self.not_offered("ibv_req_notify_cq")),
            }
        };
        self.context.check("ibv_req_notify_cq", &"", returned)
    }

    /// Takes completions, a small number at a time, and adds them to `into`. How many came from the device; 0 means that
    /// there are none now. A completion of a request that is not posted (its queue pair is gone) counts, but adds
    /// nothing.
    ///
    /// # Errors
    /// What `ibv_poll_cq` fails with.
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

    /// Polls the device, whose queue nobody else polls meanwhile: `work` is locked.
    fn take_batch(&self, work: &mut Table<Work>, into: &mut Vec<Completion>) -> Result<usize> {
        let mut batch = [ffi::ibv_wc::default(); BATCH];
        // SAFETY: the queue is alive, and so is its context; the batch has room for that many.
        let returned = unsafe {
            match (*self.context.raw()).ops.poll_cq {
                Some(poll) => poll(self.raw(), BATCH as c_int, batch.as_mut_ptr()),
                None => return Err(self.not_offered("ibv_poll_cq")),
            }
        };
        let Ok(count) = usize::try_from(returned) else {
            // The number says no more: drivers use -1 and their own.
            let errno = rustix::io::Errno::IO.raw_os_error();
            let likely = match self.context.port_count() {
                Err(error) => format!("nor does the device answer: {error}"),
                Ok(_) => {
                    "ibv_query_device has success, so it may be the queue alone that is broken: make it anew"
                        .to_owned()
                }
            };
            return Err(self.context.fault("ibv_poll_cq", &"", errno, &likely));
        };
        let taken = batch.iter().take(count);
        into.extend(taken.filter_map(|wc| Some(Completion::new(wc, work.take(wc.wr_id())?))));
        Ok(count)
    }

    /// Ends it.
    ///
    /// # Errors
    /// What `ibv_destroy_cq` fails with; the queue then stays, for ever.
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

    /// Keeps a request that is about to be posted.
    pub(super) fn expect(&self, work: Work) -> Result<u64, Work> {
        self.inner.lock().work.insert(work)
    }

    /// Requests of a queue pair that are posted one way, and those that are about to be.
    pub(super) fn count(&self, pair: u64, direction: Direction) -> usize {
        let is_its = |work: &Work| work.pair == pair && work.direction == direction;
        self.inner.lock().work.count(is_its)
    }

    /// Gives back a request that was not posted after all.
    pub(super) fn forget(&self, number: u64) -> Option<Work> {
        self.inner.lock().work.take(number)
    }

    /// Releases the requests of a queue pair that ended; those of one that could not be ended are lost.
    pub(super) fn pair_ended(&self, pair: u64, ended: bool) {
        let mut inner = self.inner.lock();
        let Inner { work, early } = &mut *inner;
        let left = work.take_all(|work| work.pair == pair);
        if ended {
            // Some drivers leave its completions in the queue, where they would take the room of those that the table has
            // room for from now on. A failure is told by the next poll.
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

/// How a request ended (`enum ibv_wc_status`).
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
    /// It did what it should.
    SUCCESS = IBV_WC_SUCCESS;
    /// The message is longer than the buffer, or than the port's MTU.
    LOCAL_LENGTH = IBV_WC_LOC_LEN_ERR;
    /// The queue pair is in a wrong state, or the address is of another domain.
    LOCAL_QP_OPERATION = IBV_WC_LOC_QP_OP_ERR;
    /// The buffer is not the device's to use.
    LOCAL_PROTECTION = IBV_WC_LOC_PROT_ERR;
    /// The queue pair went to the error state, or ended, first.
    FLUSHED = IBV_WC_WR_FLUSH_ERR;
    /// The buffer could not be reached.
    LOCAL_ACCESS = IBV_WC_LOC_ACCESS_ERR;
    /// The device failed.
    FATAL = IBV_WC_FATAL_ERR;
    /// Anything else.
    GENERAL = IBV_WC_GENERAL_ERR;
}

/// What a request was (`enum ibv_wc_opcode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Opcode(pub u32);

impl Opcode {
    /// A send.
    pub const SEND: Self = Self(ibv_wc_opcode::IBV_WC_SEND);
    /// A receive.
    pub const RECEIVE: Self = Self(ibv_wc_opcode::IBV_WC_RECV);
}

/// Facts about a completion (`enum ibv_wc_flags`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WcFlags(pub u32);

impl WcFlags {
    /// A GRH came along.
    pub const GRH: Self = Self(ffi::ibv_wc_flags::IBV_WC_GRH.0);
    /// Immediate data came along.
    pub const WITH_IMMEDIATE: Self = Self(ffi::ibv_wc_flags::IBV_WC_WITH_IMM.0);

    /// Whether all of `flags` are set.
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

    /// How it ended.
    pub fn status(&self) -> CompletionStatus {
        CompletionStatus(
            self.wc
                .error()
                .map_or(ibv_wc_status::IBV_WC_SUCCESS, |(status, _)| status),
        )
    }

    /// The driver's own error number; 0 after success.
    pub fn vendor_error(&self) -> u32 {
        self.wc.error().map_or(0, |(_, vendor)| vendor)
    }

    /// Whether it did what it should.
    pub fn is_success(&self) -> bool {
        self.wc.is_valid()
    }

    /// Which way it went. Known after failures as well.
    pub fn direction(&self) -> Direction {
        self.work.direction
    }

    /// What the device says that it was; undefined after a failure.
    pub fn opcode(&self) -> Opcode {
        Opcode(self.wc.opcode())
    }

    /// The local queue pair.
    pub fn qp_number(&self) -> Qpn {
        Qpn(self.wc.qp_num)
    }

    /// What the poster gave.
    pub fn token(&self) -> u64 {
        self.work.token
    }

    /// The slot's bytes.
    pub fn slot(&self) -> &Slot {
        &self.work.slot
    }

    /// The slot, to be used again.
    pub fn into_slot(self) -> Slot {
        self.work.slot
    }

    /// What arrived; `None` for sends and failures.
    pub fn received(&self) -> Option<Received<'_>> {
        let good = self.is_success() && self.direction() == Direction::Receive;
        good.then_some(Received { completion: self })
    }
}

/// A datagram that arrived.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    completion: &'a Completion,
}

impl<'a> Received<'a> {
    fn wc(self) -> &'a ffi::ibv_wc {
        &self.completion.wc
    }

    /// Length as the device reports it, the 40 bytes in front of the payload included.
    pub fn byte_len(self) -> usize {
        self.wc().len()
    }

    /// Whether more arrived than the slot holds: [`payload`](Self::payload) is its beginning.
    pub fn is_cut(self) -> bool {
        self.byte_len() > self.completion.work.slot.len()
    }

    /// The payload; empty if the device reports fewer bytes than a header has. Never more than the slot holds.
    pub fn payload(self) -> &'a [u8] {
        let slot = &self.completion.work.slot;
        slot.get(GRH_LENGTH..self.byte_len().min(slot.len()))
            .unwrap_or(&[])
    }

    /// The 40 bytes in front of the payload, whatever they hold; `None` if the slot is shorter.
    pub fn grh_bytes(self) -> Option<&'a [u8; GRH_LENGTH]> {
        self.completion.work.slot.first_chunk()
    }

    /// The Global Route Header, if one came along.
    pub fn grh(self) -> Option<Grh> {
        if !self.flags().contains(WcFlags::GRH) {
            return None;
        }
        Grh::from_bytes(self.grh_bytes()?)
    }

    /// What came along.
    pub fn flags(self) -> WcFlags {
        WcFlags(self.wc().wc_flags.0)
    }

    /// Immediate data, in the order of the wire.
    pub fn immediate(self) -> Option<u32> {
        self.wc().imm_data()
    }

    /// The queue pair that sent, as the datagram claims.
    pub fn source_qp(self) -> Qpn {
        Qpn(self.wc().src_qp)
    }

    /// The LID that it came from.
    pub fn source_lid(self) -> Lid {
        Lid(self.wc().slid)
    }

    /// The service level that it came on.
    pub fn sl(self) -> u8 {
        self.wc().sl
    }

    /// What to add to the local base LID for the LID that it was sent to; undefined for multicast.
    pub fn destination_path_bits(self) -> u8 {
        self.wc().dlid_path_bits
    }

    /// Index of its P_Key; drivers fill this for the general service's queue pair only.
    pub fn pkey_index(self) -> u16 {
        self.wc().pkey_index
    }
}
