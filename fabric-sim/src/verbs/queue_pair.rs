//! Queue pairs: `man 3 ibv_create_qp`, `ibv_modify_qp`, `ibv_post_send`, `ibv_post_recv`, `ibv_attach_mcast`.

use std::ffi::c_int;
use std::sync::Arc;

use super::abi::{
    IBV_QP_CUR_STATE, IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_QKEY, IBV_QP_SQ_PSN, IBV_QP_STATE,
    IBV_QPT_UD, IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_SEND_SOLICITED, IBV_WR_SEND,
    IBV_WR_SEND_WITH_IMM, ibv_gid, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_init_attr, ibv_recv_wr,
    ibv_send_wr, ibv_sge,
};
use super::fault;
use super::handle::{self, Opaque, null};
use super::not_simulated;
use super::query::{MAX_INLINE, MAX_QP_WR, MAX_SGE};
use crate::model::memory::Segment;
use crate::model::queue_pair::{
    Change, Limits, QpError, QueuePair, RecvRequest, SendRequest, State,
};

/// The Rust part of a queue pair.
pub struct Pair {
    inner: Arc<QueuePair>,
    signal_all: bool,
    max_send_wr: u32,
}

// SAFETY: programs get queue pairs from `ibv_create_qp` alone.
unsafe impl Opaque for ibv_qp {
    type Rust = Pair;
}

fn errno(error: QpError) -> c_int {
    match error {
        QpError::Full => libc::ENOMEM,
        QpError::State(_) | QpError::Limit | QpError::Argument(_) => libc::EINVAL,
    }
}

/// # Safety
/// `pd` is NULL or from `ibv_alloc_pd`; `attr` is NULL or readable and writable, its queues from
/// `ibv_create_cq`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_qp(
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> *mut ibv_qp {
    if fault::strikes("ibv_create_qp") {
        return null(libc::ENOMEM);
    }
    // SAFETY: the caller's promises.
    let (Some(domain), Some(attr)) = (unsafe { handle::rust(pd) }, unsafe { attr.as_mut() }) else {
        return null(libc::EINVAL);
    };
    if attr.qp_type != IBV_QPT_UD {
        return not_simulated::queue_pair_type(attr.qp_type);
    }
    if !attr.srq.is_null() {
        return not_simulated::shared_receive_queue();
    }
    // SAFETY: the caller's promise.
    let queues = unsafe { (handle::rust(attr.send_cq), handle::rust(attr.recv_cq)) };
    let (Some(send_cq), Some(recv_cq)) = queues else {
        return null(libc::EINVAL);
    };
    let cap = attr.cap;
    let too_much = cap.max_send_wr > MAX_QP_WR
        || cap.max_recv_wr > MAX_QP_WR
        || cap.max_send_sge > MAX_SGE
        || cap.max_recv_sge > MAX_SGE
        || cap.max_inline_data > MAX_INLINE;
    if too_much {
        return null(libc::EINVAL);
    }
    let limits = Limits {
        max_recv_wr: cap.max_recv_wr,
        max_send_sge: cap.max_send_sge,
        max_recv_sge: cap.max_recv_sge,
        max_inline_data: cap.max_inline_data,
    };
    let inner = domain.adapter.create_queue_pair(
        domain.memory.clone(),
        send_cq.clone(),
        recv_cq.clone(),
        limits,
    );
    let c = ibv_qp {
        // SAFETY: `pd` is not NULL, so a domain that is alive.
        context: unsafe { (*pd).context },
        qp_context: attr.qp_context,
        pd,
        send_cq: attr.send_cq,
        recv_cq: attr.recv_cq,
        srq: std::ptr::null_mut(),
        handle: 0,
        qp_num: inner.number(),
        state: State::Reset as c_int,
        qp_type: attr.qp_type,
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        cond: libc::PTHREAD_COND_INITIALIZER,
        events_completed: 0,
    };
    handle::create(
        c,
        Pair {
            inner,
            signal_all: attr.sq_sig_all != 0,
            max_send_wr: cap.max_send_wr,
        },
    )
}

/// # Safety
/// `qp` is NULL or from [`ibv_create_qp`], used no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    // SAFETY: the caller's promise.
    let Some(pair) = (unsafe { handle::rust(qp) }) else {
        return libc::EINVAL;
    };
    pair.inner.forget_completions();
    // SAFETY: the caller's promise.
    unsafe { handle::destroy(qp) };
    0
}

/// # Safety
/// `qp` is NULL or from [`ibv_create_qp`]; `attr` is NULL or readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_modify_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: c_int,
) -> c_int {
    if fault::strikes("ibv_modify_qp") {
        return libc::ENOMEM;
    }
    // SAFETY: the caller's promises.
    let (Some(pair), Some(attr)) = (unsafe { handle::rust(qp) }, unsafe { attr.as_ref() }) else {
        return libc::EINVAL;
    };
    let wanted = |bit: c_int| mask & bit != 0;
    let state = if wanted(IBV_QP_STATE) {
        let Some(state) = State::from_code(attr.qp_state) else {
            return libc::EINVAL;
        };
        Some(state)
    } else {
        None
    };
    let known = IBV_QP_STATE
        | IBV_QP_CUR_STATE
        | IBV_QP_PKEY_INDEX
        | IBV_QP_PORT
        | IBV_QP_QKEY
        | IBV_QP_SQ_PSN;
    let change = Change {
        state,
        pkey_index: wanted(IBV_QP_PKEY_INDEX).then_some(attr.pkey_index),
        port: wanted(IBV_QP_PORT).then_some(attr.port_num),
        qkey: wanted(IBV_QP_QKEY).then_some(attr.qkey),
        sq_psn: wanted(IBV_QP_SQ_PSN).then_some(attr.sq_psn),
        other: mask & !known != 0,
    };
    if let Err(error) = pair.inner.modify(change) {
        return errno(error);
    }
    if let Some(state) = state {
        // SAFETY: `qp` is not NULL, so a queue pair that is alive.
        unsafe { (*qp).state = state as c_int };
    }
    0
}

/// Fills all attributes of a UD queue pair, whatever the mask.
///
/// # Safety
/// `qp` is NULL or from [`ibv_create_qp`]; `attr` and `init` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _mask: c_int,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    if fault::strikes("ibv_query_qp") {
        return libc::ENOMEM;
    }
    // SAFETY: the caller's promise.
    let Some(pair) = (unsafe { handle::rust(qp) }) else {
        return libc::EINVAL;
    };
    if attr.is_null() || init.is_null() {
        return libc::EINVAL;
    }
    let current = pair.inner.attributes();
    let limits = pair.inner.limits();
    let cap = super::abi::ibv_qp_cap {
        max_send_wr: pair.max_send_wr,
        max_recv_wr: limits.max_recv_wr,
        max_send_sge: limits.max_send_sge,
        max_recv_sge: limits.max_recv_sge,
        max_inline_data: limits.max_inline_data,
    };
    let state = current.state.unwrap_or_default() as c_int;
    // SAFETY: the caller's promises; `qp` is not NULL, so a queue pair that is alive.
    unsafe {
        attr.write(ibv_qp_attr {
            qp_state: state,
            cur_qp_state: state,
            qkey: current.qkey.unwrap_or_default(),
            sq_psn: current.sq_psn.unwrap_or_default(),
            pkey_index: current.pkey_index.unwrap_or_default(),
            port_num: current.port.unwrap_or_default(),
            cap,
            ..ibv_qp_attr::default()
        });
        init.write(ibv_qp_init_attr {
            qp_context: (*qp).qp_context,
            send_cq: (*qp).send_cq,
            recv_cq: (*qp).recv_cq,
            srq: (*qp).srq,
            cap,
            qp_type: (*qp).qp_type,
            sq_sig_all: pair.signal_all.into(),
        });
    }
    0
}

/// # Safety
/// `list` is NULL or points to `count` segments.
unsafe fn segments(list: *const ibv_sge, count: c_int) -> Option<Vec<Segment>> {
    let count = usize::try_from(count)
        .ok()
        .filter(|count| *count <= MAX_SGE as usize)?;
    if count == 0 {
        return Some(Vec::new());
    }
    if list.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let list = unsafe { std::slice::from_raw_parts(list, count) };
    Some(
        list.iter()
            .map(|sge| Segment {
                addr: sge.addr,
                length: sge.length,
                lkey: sge.lkey,
            })
            .collect(),
    )
}

/// Copies the bytes of an inline send, which need no region.
///
/// # Safety
/// The segments are readable.
unsafe fn copy_inline(segments: &[Segment]) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for segment in segments.iter().filter(|segment| segment.length > 0) {
        if bytes.len() + segment.length as usize > MAX_INLINE as usize || segment.addr == 0 {
            return None;
        }
        // SAFETY: the caller's promise.
        bytes.extend_from_slice(unsafe {
            std::slice::from_raw_parts(segment.addr as *const u8, segment.length as usize)
        });
    }
    Some(bytes)
}

/// # Safety
/// `wr` is a send request whose segments and address handle are alive.
unsafe fn read_send(pair: &Pair, wr: &ibv_send_wr) -> Result<SendRequest, c_int> {
    if !matches!(wr.opcode, IBV_WR_SEND | IBV_WR_SEND_WITH_IMM) {
        return Err(libc::EINVAL);
    }
    // SAFETY: for a send on a UD queue pair, `ud` is the valid member; the rest is the caller's promise.
    let (ud, address) = unsafe { (wr.wr.ud, handle::rust(wr.wr.ud.ah)) };
    let address = address.ok_or(libc::EINVAL)?;
    // SAFETY: the caller's promise.
    let segments = unsafe { segments(wr.sg_list, wr.num_sge) }.ok_or(libc::EINVAL)?;
    let inline = if wr.send_flags & IBV_SEND_INLINE != 0 {
        // SAFETY: the caller's promise.
        Some(unsafe { copy_inline(&segments) }.ok_or(libc::EINVAL)?)
    } else {
        None
    };
    Ok(SendRequest {
        wr_id: wr.wr_id,
        segments,
        inline,
        address: address.vector,
        remote_qpn: ud.remote_qpn,
        remote_qkey: ud.remote_qkey,
        immediate: (wr.opcode == IBV_WR_SEND_WITH_IMM).then_some(wr.imm_data),
        signaled: pair.signal_all || wr.send_flags & IBV_SEND_SIGNALED != 0,
        solicited: wr.send_flags & IBV_SEND_SOLICITED != 0,
    })
}

/// `ibv_post_send`.
///
/// # Safety
/// `qp` is NULL or from [`ibv_create_qp`]; `wr` is a list of send requests; `bad` is NULL or writable.
pub(super) unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    mut wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the caller's promise.
    let pair = unsafe { handle::rust(qp) };
    // SAFETY: the caller's promise: NULL or a request.
    while let Some(request) = unsafe { wr.as_ref() } {
        let posted = pair.ok_or(libc::EINVAL).and_then(|pair| {
            // SAFETY: the caller's promise.
            let request = unsafe { read_send(pair, request) }?;
            pair.inner.post_send(request).map_err(errno)
        });
        if let Err(errno) = posted {
            if !bad.is_null() {
                // SAFETY: the caller's promise.
                unsafe { bad.write(wr) };
            }
            return errno;
        }
        wr = request.next;
    }
    0
}

/// `ibv_post_recv`.
///
/// # Safety
/// `qp` is NULL or from [`ibv_create_qp`]; `wr` is a list of receive requests; `bad` is NULL or writable.
pub(super) unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    mut wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller's promise.
    let pair = unsafe { handle::rust(qp) };
    // SAFETY: the caller's promise: NULL or a request.
    while let Some(request) = unsafe { wr.as_ref() } {
        let posted = pair.ok_or(libc::EINVAL).and_then(|pair| {
            // SAFETY: the caller's promise.
            let segments =
                unsafe { segments(request.sg_list, request.num_sge) }.ok_or(libc::EINVAL)?;
            pair.inner
                .post_recv(RecvRequest {
                    wr_id: request.wr_id,
                    segments,
                })
                .map_err(errno)
        });
        if let Err(errno) = posted {
            if !bad.is_null() {
                // SAFETY: the caller's promise.
                unsafe { bad.write(wr) };
            }
            return errno;
        }
        wr = request.next;
    }
    0
}

/// # Safety
/// `qp` is NULL or from [`ibv_create_qp`]; `gid` is NULL or readable. `lid`: host byte order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_attach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int {
    if fault::strikes("ibv_attach_mcast") {
        return libc::ENOMEM;
    }
    // SAFETY: the caller's promises.
    let (Some(pair), Some(gid)) = (unsafe { handle::rust(qp) }, unsafe { gid.as_ref() }) else {
        return libc::EINVAL;
    };
    pair.inner.attach(gid.raw, lid).map_or_else(errno, |()| 0)
}

/// # Safety
/// As for [`ibv_attach_mcast`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int {
    // SAFETY: the caller's promises.
    let (Some(pair), Some(gid)) = (unsafe { handle::rust(qp) }, unsafe { gid.as_ref() }) else {
        return libc::EINVAL;
    };
    pair.inner.detach(gid.raw, lid).map_or_else(errno, |()| 0)
}
