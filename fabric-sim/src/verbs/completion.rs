//! Completion channels and queues: `man 3 ibv_create_comp_channel`, `ibv_create_cq`, `ibv_poll_cq`, `ibv_get_cq_event`.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use super::abi::{
    IBV_WC_GRH, IBV_WC_LOC_LEN_ERR, IBV_WC_LOC_PROT_ERR, IBV_WC_RECV, IBV_WC_SEND, IBV_WC_SUCCESS,
    IBV_WC_WITH_IMM, IBV_WC_WR_FLUSH_ERR, ibv_comp_channel, ibv_context, ibv_cq, ibv_wc,
};
use super::fault;
use super::handle::{self, Opaque, minus_one, null};
use crate::model::completion::{
    Completion, CompletionChannel, CompletionQueue, MAX_ENTRIES, Status,
};

// SAFETY: programs get channels from `ibv_create_comp_channel` alone.
unsafe impl Opaque for ibv_comp_channel {
    type Rust = Arc<CompletionChannel>;
}

// SAFETY: programs get queues from `ibv_create_cq` alone.
unsafe impl Opaque for ibv_cq {
    type Rust = Arc<CompletionQueue>;
}

/// Returns the handle of a queue; `None` if it is destroyed.
pub(super) fn handle_of(queue: &CompletionQueue) -> Option<*mut ibv_cq> {
    let cookie = queue.cookie();
    (cookie != 0).then_some(cookie as *mut ibv_cq)
}

/// # Safety
/// `context` is NULL or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_comp_channel(
    context: *mut ibv_context,
) -> *mut ibv_comp_channel {
    if fault::strikes("ibv_create_comp_channel") {
        return null(libc::ENOMEM);
    }
    if context.is_null() {
        return null(libc::EINVAL);
    }
    match CompletionChannel::new() {
        Ok(channel) => {
            let c = ibv_comp_channel {
                context,
                fd: channel.fd(),
                refcnt: 0,
            };
            handle::create(c, Arc::new(channel))
        }
        Err(error) => null(error.raw_os_error().unwrap_or(libc::EMFILE)),
    }
}

/// # Safety
/// `channel` is NULL or from [`ibv_create_comp_channel`], used no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    // SAFETY: the caller's promise.
    let Some(inner) = (unsafe { handle::rust(channel) }) else {
        return libc::EINVAL;
    };
    if Arc::strong_count(inner) > 1 {
        return libc::EBUSY;
    }
    // SAFETY: the caller's promise.
    unsafe { handle::destroy(channel) };
    0
}

/// # Safety
/// `context` is NULL or open; `channel` is NULL or from [`ibv_create_comp_channel`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    entries: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    vector: c_int,
) -> *mut ibv_cq {
    if fault::strikes("ibv_create_cq") {
        return null(libc::ENOMEM);
    }
    // SAFETY: the caller's promise.
    let Some(inner) = (unsafe { handle::rust(context) }) else {
        return null(libc::EINVAL);
    };
    let capacity = usize::try_from(entries)
        .ok()
        .filter(|entries| (1..=MAX_ENTRIES).contains(entries));
    let Some(capacity) = capacity else {
        return null(libc::EINVAL);
    };
    if vector != 0 {
        return null(libc::EINVAL);
    }
    // SAFETY: the caller's promise.
    let channel_of_queue = unsafe { handle::rust(channel) }.cloned();
    let queue = CompletionQueue::new(capacity, channel_of_queue, Arc::downgrade(&inner.events));
    let c = ibv_cq {
        context,
        channel,
        cq_context,
        handle: 0,
        cqe: entries,
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        cond: libc::PTHREAD_COND_INITIALIZER,
        comp_events_completed: 0,
        async_events_completed: 0,
    };
    let handle = handle::create(c, queue.clone());
    queue.set_cookie(handle as usize);
    handle
}

/// # Safety
/// `cq` is NULL or from [`ibv_create_cq`], used no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    // SAFETY: the caller's promise.
    let Some(queue) = (unsafe { handle::rust(cq) }) else {
        return libc::EINVAL;
    };
    if Arc::strong_count(queue) > 1 {
        return libc::EBUSY;
    }
    queue.set_cookie(0);
    // SAFETY: the caller's promise.
    unsafe { handle::destroy(cq) };
    0
}

/// # Safety
/// `channel` is NULL or from [`ibv_create_comp_channel`]; `cq` and `cq_context` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    let Some(inner) = (unsafe { handle::rust(channel) }) else {
        return minus_one(libc::EINVAL);
    };
    if cq.is_null() || cq_context.is_null() {
        return minus_one(libc::EINVAL);
    }
    loop {
        let found = match inner.next_event() {
            Ok(queue) => handle_of(&queue),
            Err(error) => return minus_one(error.raw_os_error().unwrap_or(libc::EAGAIN)),
        };
        if let Some(handle) = found {
            // SAFETY: the handle was alive just now, and a program must not destroy a queue while it waits for its
            // events (`man 3 ibv_destroy_cq`); the rest is the caller's promise.
            unsafe {
                cq.write(handle);
                cq_context.write((*handle).cq_context);
            }
            return 0;
        }
    }
}

/// Does nothing, because no function waits for acknowledgements; so it does not matter that the stock provider
/// acknowledges completions instead of events.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_ack_cq_events(_cq: *mut ibv_cq, _count: c_uint) {}

/// `ibv_poll_cq`.
///
/// # Safety
/// `cq` is NULL or from [`ibv_create_cq`]; `wc` has room for `count`.
pub(super) unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, count: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the caller's promise.
    let Some(queue) = (unsafe { handle::rust(cq) }) else {
        return -libc::EINVAL;
    };
    let mut taken = 0;
    while taken < count {
        let Some(completion) = queue.poll() else {
            break;
        };
        // SAFETY: the caller's promise.
        unsafe { wc.add(taken as usize).write(translate(&completion)) };
        taken += 1;
    }
    taken
}

/// `ibv_req_notify_cq`.
///
/// # Safety
/// `cq` is NULL or from [`ibv_create_cq`].
pub(super) unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    if fault::strikes("ibv_req_notify_cq") {
        return libc::ENOMEM;
    }
    // SAFETY: the caller's promise.
    let Some(queue) = (unsafe { handle::rust(cq) }) else {
        return libc::EINVAL;
    };
    queue.arm(solicited_only != 0);
    0
}

fn translate(completion: &Completion) -> ibv_wc {
    ibv_wc {
        wr_id: completion.wr_id,
        status: match completion.status {
            Status::Success => IBV_WC_SUCCESS,
            Status::LocalLength => IBV_WC_LOC_LEN_ERR,
            Status::LocalProtection => IBV_WC_LOC_PROT_ERR,
            Status::Flushed => IBV_WC_WR_FLUSH_ERR,
        },
        opcode: if completion.receive {
            IBV_WC_RECV
        } else {
            IBV_WC_SEND
        },
        vendor_err: 0,
        byte_len: completion.byte_len,
        imm_data: completion.immediate.unwrap_or(0),
        qp_num: completion.qp_num,
        src_qp: completion.source_qp,
        wc_flags: if completion.grh { IBV_WC_GRH } else { 0 }
            | if completion.immediate.is_some() {
                IBV_WC_WITH_IMM
            } else {
                0
            },
        pkey_index: completion.pkey_index,
        slid: completion.source_lid,
        sl: completion.sl,
        dlid_path_bits: completion.path_bits,
    }
}
