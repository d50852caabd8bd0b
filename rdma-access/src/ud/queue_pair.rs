//! `ibv_create_qp(3)`, `ibv_modify_qp(3)`, `ibv_post_send(3)`, `ibv_post_recv(3)`.

use std::fmt;
use std::mem;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ffi::{ibv_qp_attr_mask as mask, ibv_qp_state, ibv_qp_type, ibv_wr_opcode};
use ibverbs_sys as ffi;
use parking_lot::Mutex;

use super::work::{Direction, Work};
use super::{AddressHandle, CompletionQueue, MemoryRegion, ProtectionDomain, Slot};
use crate::address::{Gid, Lid, QKey, Qpn};
use crate::errno::errno_of;
use crate::error::{Cause, Error, Result};
use crate::handle::Handle;
use crate::teardown;
use crate::verbs::Context;

/// Attributes of a new queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdAttributes {
    /// The port; ports count from 1.
    pub port: u8,
    /// Index of the P_Key in the port's table, see [`Context::pkey_index`].
    pub pkey_index: u16,
    /// The Q_Key that received datagrams must carry.
    pub qkey: QKey,
    /// Maximum number of posted sends.
    pub send_depth: u32,
    /// Maximum number of posted receives.
    pub receive_depth: u32,
    /// Number of bytes by which a datagram may exceed the slot. The device discards them, and the datagram
    /// completes [cut](super::Received::is_cut). A still longer datagram fails its receive, which breaks the
    /// queue pair on most adapters. If strangers can send to this queue pair, let slot and spill together hold
    /// the longest datagram of the port: the GRH and 4096 bytes.
    pub spill: u32,
}

/// The destination of a datagram.
#[derive(Clone, Copy, Debug)]
pub struct Destination<'a> {
    /// The path to it.
    pub address: &'a Arc<AddressHandle>,
    /// The destination queue pair; [`Qpn::MULTICAST`] for a group.
    pub qp_number: Qpn,
    /// The Q_Key of that queue pair.
    pub qkey: QKey,
}

/// A queue pair for datagrams, ready to send and to receive.
#[derive(Debug)]
pub struct UdQueuePair {
    // Destroyed by `end`, before the posted requests are released.
    handle: Handle<ffi::ibv_qp>,
    number: Qpn,
    /// Maximum numbers of posted sends and receives.
    depths: (u32, u32),
    /// Unique among all queue pairs of the process; queue pair numbers are reused.
    serial: u64,
    sending: Mutex<()>,
    receiving: Mutex<()>,
    /// The multicast groups that it is attached to.
    groups: Mutex<Vec<(Gid, Lid)>>,
    /// Receives the excess of overlong datagrams, for all receives; nothing reads it.
    spill: Option<Slot>,
    send_queue: Arc<CompletionQueue>,
    receive_queue: Arc<CompletionQueue>,
    domain: Arc<ProtectionDomain>,
}

impl UdQueuePair {
    /// Creates a queue pair and brings it through INIT and RTR to RTS. Then it can post receives; datagrams
    /// that arrive without a posted receive are dropped.
    ///
    /// # Errors
    /// [`Cause::Invalid`] if a completion queue belongs to another context; else the error of `ibv_create_qp`
    /// or `ibv_modify_qp`, EINVAL if the device does not support the depths, the port or the P_Key index.
    pub fn new(
        domain: &Arc<ProtectionDomain>,
        send_queue: &Arc<CompletionQueue>,
        receive_queue: &Arc<CompletionQueue>,
        attributes: &UdAttributes,
    ) -> Result<Self> {
        const OPERATION: &str = "ibv_create_qp";
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let context = domain.context();
        let same = |queue: &CompletionQueue| Arc::ptr_eq(queue.context(), context);
        if !same(send_queue) || !same(receive_queue) {
            let cause = Cause::Invalid("a completion queue belongs to another context".to_owned());
            return Err(Error::new(OPERATION, context.name(), cause));
        }
        let spill = match attributes.spill {
            0 => None,
            length => Arc::new(MemoryRegion::new(domain, length as usize, 1)?).take_slot(),
        };
        let mut init = ffi::ibv_qp_init_attr {
            qp_context: null_mut(),
            send_cq: send_queue.raw(),
            recv_cq: receive_queue.raw(),
            srq: null_mut(),
            cap: ffi::ibv_qp_cap {
                max_send_wr: attributes.send_depth,
                max_recv_wr: attributes.receive_depth,
                max_send_sge: 1,
                max_recv_sge: 1 + u32::from(spill.is_some()),
                max_inline_data: 0,
            },
            qp_type: ibv_qp_type::IBV_QPT_UD,
            // Every request must complete, because the completion returns its slot.
            sq_sig_all: 1,
        };
        // SAFETY: domain and queues are alive, the attributes are readable and writable; the handle owns the
        // result.
        let handle = unsafe {
            Handle::take(ffi::ibv_create_qp(domain.raw(), &raw mut init), |errno| {
                context.fault(OPERATION, attributes, errno, "")
            })
        }?;
        // SAFETY: the queue pair is alive.
        let number = Qpn(unsafe { (*handle.as_ptr()).qp_num });
        let pair = Self {
            handle,
            number,
            // The device may grant more than requested.
            depths: (init.cap.max_send_wr, init.cap.max_recv_wr),
            serial: NEXT.fetch_add(1, Ordering::Relaxed),
            sending: Mutex::new(()),
            receiving: Mutex::new(()),
            groups: Mutex::default(),
            spill,
            send_queue: send_queue.clone(),
            receive_queue: receive_queue.clone(),
            domain: domain.clone(),
        };
        pair.bring_up(attributes)?;
        Ok(pair)
    }

    fn bring_up(&self, attributes: &UdAttributes) -> Result<()> {
        let mut c = ffi::ibv_qp_attr {
            port_num: attributes.port,
            pkey_index: attributes.pkey_index,
            qkey: attributes.qkey.0,
            ..ffi::ibv_qp_attr::default()
        };
        let state = mask::IBV_QP_STATE;
        for (name, next, fields) in [
            (
                "to INIT",
                ibv_qp_state::IBV_QPS_INIT,
                state | mask::IBV_QP_PKEY_INDEX | mask::IBV_QP_PORT | mask::IBV_QP_QKEY,
            ),
            ("to RTR", ibv_qp_state::IBV_QPS_RTR, state),
            (
                "to RTS",
                ibv_qp_state::IBV_QPS_RTS,
                state | mask::IBV_QP_SQ_PSN,
            ),
        ] {
            c.qp_state = next;
            // SAFETY: the queue pair is alive, and the attributes are readable.
            let returned =
                unsafe { ffi::ibv_modify_qp(self.raw(), &raw mut c, fields.0.cast_signed()) };
            self.context().check(
                "ibv_modify_qp",
                &format_args!("{name}, {attributes}"),
                returned,
            )?;
        }
        Ok(())
    }

    /// Returns the queue pair number, to which others send.
    pub fn number(&self) -> Qpn {
        self.number
    }

    /// Posts a slot for an arriving datagram, with [`GRH_LENGTH`](super::GRH_LENGTH) bytes in front of its
    /// payload. The completion returns slot and token.
    ///
    /// # Errors
    /// The error of `ibv_post_recv`, ENOMEM if the maximum is posted; the error contains the slot.
    pub fn post_receive(&self, slot: Slot, token: u64) -> Result<(), PostError> {
        const OPERATION: &str = "ibv_post_recv";
        let mut segments = [Some(&slot), self.spill.as_ref()].map(|slot| {
            slot.map_or_else(ffi::ibv_sge::default, |slot| {
                slot.segment(u32::try_from(slot.len()).unwrap_or(u32::MAX))
            })
        });
        let count = 1 + i32::from(self.spill.is_some());
        let work = Work {
            slot,
            token,
            direction: Direction::Receive,
            pair: self.serial,
            _address: None,
        };
        self.post(
            OPERATION,
            &self.receive_queue,
            &self.receiving,
            work,
            |pair, wr_id| {
                let mut bad = null_mut();
                let mut request = ffi::ibv_recv_wr {
                    wr_id,
                    next: null_mut(),
                    sg_list: segments.as_mut_ptr(),
                    num_sge: count,
                };
                // SAFETY: the queue pair and its context are alive. The slot is in the table until the request
                // completes or the queue pair ends, so its memory stays registered and unused by others; the
                // queue pair owns the spill.
                unsafe {
                    let post = (*(*pair).context).ops.post_recv?;
                    Some(post(pair, &raw mut request, &raw mut bad))
                }
            },
        )
    }

    /// Sends the first `length` bytes of a slot. The completion returns slot and token.
    ///
    /// # Errors
    /// [`Cause::Invalid`] if `length` exceeds the slot, or if address or slot belong to another domain; else
    /// the error of `ibv_post_send`, ENOMEM if the maximum is posted. The error contains the slot.
    pub fn post_send(
        &self,
        slot: Slot,
        length: usize,
        to: &Destination<'_>,
        token: u64,
    ) -> Result<(), PostError> {
        const OPERATION: &str = "ibv_post_send";
        let Some(fitting) = u32::try_from(length).ok().filter(|_| length <= slot.len()) else {
            let text = format!("{length} bytes do not fit into a slot of {}", slot.len());
            return Err(self.refused(OPERATION, Cause::Invalid(text), slot));
        };
        if !Arc::ptr_eq(to.address.domain(), &self.domain) {
            let text = "the address belongs to another protection domain".to_owned();
            return Err(self.refused(OPERATION, Cause::Invalid(text), slot));
        }
        let mut segment = slot.segment(fitting);
        let address = to.address.raw();
        let work = Work {
            slot,
            token,
            direction: Direction::Send,
            pair: self.serial,
            _address: Some(to.address.clone()),
        };
        self.post(
            OPERATION,
            &self.send_queue,
            &self.sending,
            work,
            |pair, wr_id| {
                let mut bad = null_mut();
                let mut request = ffi::ibv_send_wr {
                    wr_id,
                    next: null_mut(),
                    sg_list: &raw mut segment,
                    // Some adapters take a segment of 0 bytes for one of 2 GiB.
                    num_sge: (fitting > 0).into(),
                    opcode: ibv_wr_opcode::IBV_WR_SEND,
                    send_flags: ffi::ibv_send_flags::IBV_SEND_SIGNALED.0,
                    ..ffi::ibv_send_wr::default()
                };
                request.wr.ud.ah = address;
                request.wr.ud.remote_qpn = to.qp_number.0;
                request.wr.ud.remote_qkey = to.qkey.0;
                // SAFETY: the queue pair and its context are alive. Slot and address are in the table until the
                // request completes or the queue pair ends.
                unsafe {
                    let post = (*(*pair).context).ops.post_send?;
                    Some(post(pair, &raw mut request, &raw mut bad))
                }
            },
        )
    }

    /// Enters the request into the table before posting it, since it may complete before the call returns.
    fn post(
        &self,
        operation: &'static str,
        queue: &CompletionQueue,
        alone: &Mutex<()>,
        work: Work,
        verb: impl FnOnce(*mut ffi::ibv_qp, u64) -> Option<i32>,
    ) -> Result<(), PostError> {
        if !Arc::ptr_eq(work.slot.region().domain(), &self.domain) {
            let text = "the slot belongs to another protection domain".to_owned();
            return Err(self.refused(operation, Cause::Invalid(text), work.slot));
        }
        let direction = work.direction;
        let number = match queue.expect(work) {
            Ok(number) => number,
            Err(work) => {
                let text = "the completion queue is full; poll it".to_owned();
                return Err(self.refused(operation, Cause::Full(text), work.slot));
            }
        };
        let errno = {
            let _alone = alone.lock();
            verb(self.raw(), number).map(errno_of)
        };
        let error = match errno {
            Some(0) => return Ok(()),
            Some(errno) => {
                let likely = if errno == rustix::io::Errno::NOMEM.raw_os_error() {
                    // This request is in the table but not posted.
                    self.fullness(
                        queue.count(self.serial, direction).saturating_sub(1),
                        direction,
                    )
                } else {
                    String::new()
                };
                self.context().fault(
                    operation,
                    &format_args!("queue pair {}", self.number),
                    errno,
                    &likely,
                )
            }
            None => self.error(operation, Cause::NotOffered),
        };
        // Not posted, so it cannot have completed.
        let slot = queue.forget(number).map(|work| work.slot);
        Err(PostError { error, slot })
    }

    /// Explains ENOMEM with that many requests posted.
    fn fullness(&self, posted: usize, direction: Direction) -> String {
        let depth = match direction {
            Direction::Send => self.depths.0,
            Direction::Receive => self.depths.1,
        };
        if posted >= depth as usize {
            format!(
                "{posted} requests are posted, the queue pair's maximum: poll its completion queue"
            )
        } else {
            format!(
                "{posted} of at most {depth} requests are posted, so the queue pair is not full; the driver gives \
                 no other reason"
            )
        }
    }

    fn refused(&self, operation: &'static str, cause: Cause, slot: Slot) -> PostError {
        PostError {
            error: self.error(operation, cause),
            slot: Some(slot),
        }
    }

    fn error(&self, operation: &'static str, cause: Cause) -> Error {
        let inputs = format_args!("{}, queue pair {}", self.context().name(), self.number);
        Error::new(operation, inputs, cause)
    }

    /// Destroys it. Slots that are still posted go back to their regions.
    ///
    /// # Errors
    /// The error of `ibv_destroy_qp`; the queue pair then leaks, with its posted requests.
    pub fn close(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        if self.handle.has_ended() {
            return Ok(());
        }
        let ended = self.handle.end();
        if ended.is_err() {
            // The device may still write to it.
            mem::forget(self.spill.take());
        }
        for queue in [&self.send_queue, &self.receive_queue] {
            queue.pair_ended(self.serial, ended.is_ok());
        }
        ended
    }

    pub(super) fn groups(&self) -> &Mutex<Vec<(Gid, Lid)>> {
        &self.groups
    }

    pub(super) fn raw(&self) -> *mut ffi::ibv_qp {
        self.handle.as_ptr()
    }

    pub(super) fn context(&self) -> &Arc<Context> {
        self.domain.context()
    }
}

impl Drop for UdQueuePair {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            teardown::report(&error);
        }
    }
}

impl fmt::Display for UdAttributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "UD, port {}, P_Key index {}, Q_Key {}, depths {} and {}, spill {}",
            self.port, self.pkey_index, self.qkey, self.send_depth, self.receive_depth, self.spill
        )
    }
}

/// Error from posting a request. Contains the slot that the request would have used.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct PostError {
    error: Error,
    slot: Option<Slot>,
}

impl PostError {
    /// Returns the error.
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// Returns the slot.
    pub fn into_slot(self) -> Option<Slot> {
        self.slot
    }
}

impl From<PostError> for Error {
    /// Drops the slot, which returns it to its region.
    fn from(refused: PostError) -> Self {
        refused.error
    }
}
