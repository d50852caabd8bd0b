//! Queries of devices and ports: `man 3 ibv_query_device`, `ibv_query_port`, `ibv_query_gid`, `ibv_query_pkey`.

use std::ffi::{c_int, c_uint};
use std::sync::Arc;

use super::abi::{
    IBV_LINK_LAYER_ETHERNET, IBV_LINK_LAYER_INFINIBAND, ibv_context, ibv_device_attr, ibv_gid,
    ibv_gid_entry, ibv_port_attr,
};
use super::device::c_text;
use super::fault;
use super::handle::{self, minus_one};
use crate::model::adapter::LinkLayer;
use crate::model::completion::MAX_ENTRIES;
use crate::model::port::PortSnapshot;
use crate::smp::PortInfo;

/// Maximum number of requests in a queue.
pub(super) const MAX_QP_WR: u32 = 16384;
/// Maximum number of segments of a request.
pub(super) const MAX_SGE: u32 = 32;
/// Maximum length of an inline send in bytes.
pub(super) const MAX_INLINE: u32 = 1024;

/// CapabilityMask bit IsExtendedSpeedsSupported.
const CAP_EXTENDED_SPEEDS: u32 = 1 << 14;
const MANY: c_int = 1 << 16;

/// # Safety
/// `context` is NULL or open; `attr` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_device(
    context: *mut ibv_context,
    attr: *mut ibv_device_attr,
) -> c_int {
    if fault::strikes("ibv_query_device") {
        return libc::ENOMEM;
    }
    // SAFETY: the caller's promise.
    let Some(inner) = (unsafe { handle::rust(context) }) else {
        return libc::EINVAL;
    };
    if attr.is_null() {
        return libc::EINVAL;
    }
    let adapter = &inner.adapter;
    let identity = adapter.identity();
    let pkeys = (1..=adapter.port_count())
        .filter_map(|port| adapter.port(port))
        .map(|port| port.pkeys.len())
        .max();
    // SAFETY: all zeros is a valid value of this struct of numbers.
    let mut filled: ibv_device_attr = unsafe { std::mem::zeroed() };
    filled.fw_ver = c_text(&identity.firmware);
    filled.node_guid = identity.node_guid.to_be();
    filled.sys_image_guid = identity.system_image_guid.to_be();
    filled.max_mr_size = u64::MAX;
    filled.page_size_cap = 4096;
    filled.vendor_id = identity.vendor_id;
    filled.vendor_part_id = identity.device_id.into();
    filled.hw_ver = identity.revision;
    filled.max_qp = MANY;
    filled.max_qp_wr = MAX_QP_WR.cast_signed();
    filled.max_sge = MAX_SGE.cast_signed();
    filled.max_cq = MANY;
    filled.max_cqe = MAX_ENTRIES as c_int;
    filled.max_mr = MANY;
    filled.max_pd = MANY;
    filled.max_mcast_grp = MANY;
    filled.max_mcast_qp_attach = MANY;
    filled.max_total_mcast_qp_attach = MANY;
    filled.max_ah = MANY;
    filled.max_pkeys = u16::try_from(pkeys.unwrap_or(0)).unwrap_or(u16::MAX);
    filled.phys_port_cnt = adapter.port_count();
    // SAFETY: the caller's promise.
    unsafe { attr.write(filled) };
    0
}

/// # Safety
/// `context` is NULL or open.
unsafe fn port(context: *mut ibv_context, number: u8) -> Option<Arc<PortSnapshot>> {
    // SAFETY: the caller's promise.
    unsafe { handle::rust(context) }?.adapter.port(number)
}

fn port_attributes(port: &PortSnapshot, link_layer: LinkLayer) -> ibv_port_attr {
    let info = &port.info;
    ibv_port_attr {
        state: info.state.into(),
        max_mtu: info.mtu_cap.into(),
        active_mtu: info.neighbor_mtu.into(),
        gid_tbl_len: c_int::try_from(port.guids.len()).unwrap_or(c_int::MAX),
        port_cap_flags: info.capability_mask,
        max_msg_sz: 0x4000_0000,
        bad_pkey_cntr: info.pkey_violations.into(),
        qkey_viol_cntr: info.qkey_violations.into(),
        pkey_tbl_len: u16::try_from(port.pkeys.len()).unwrap_or(u16::MAX),
        lid: info.lid,
        sm_lid: info.sm_lid,
        lmc: info.lmc,
        max_vl_num: info.vl_cap,
        sm_sl: info.sm_sl,
        subnet_timeout: info.subnet_timeout,
        init_type_reply: info.init_type_reply,
        active_width: info.width_active,
        active_speed: active_speed(info),
        phys_state: info.physical_state,
        link_layer: match link_layer {
            LinkLayer::InfiniBand => IBV_LINK_LAYER_INFINIBAND,
            LinkLayer::Ethernet => IBV_LINK_LAYER_ETHERNET,
        },
        flags: 0,
        port_cap_flags2: 0,
    }
}

/// Returns the code: 1 SDR, 2 DDR, 4 QDR, 16 FDR, 32 EDR, 64 HDR, 128 NDR; extended speeds follow the others.
fn active_speed(info: &PortInfo) -> u8 {
    if info.capability_mask & CAP_EXTENDED_SPEEDS != 0 && info.speed_ext_active != 0 {
        info.speed_ext_active << 4
    } else {
        info.speed_active
    }
}

/// Fills all but the last field: for an older program the struct ends there.
///
/// # Safety
/// `context` is NULL or open; `attr` is NULL or writable up to `port_cap_flags2`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_port(
    context: *mut ibv_context,
    number: u8,
    attr: *mut ibv_port_attr,
) -> c_int {
    if fault::strikes("ibv_query_port") {
        return libc::ENOMEM;
    }
    // SAFETY: the caller's promise.
    let Some(inner) = (unsafe { handle::rust(context) }) else {
        return libc::EINVAL;
    };
    let Some(port) = inner.adapter.port(number) else {
        return libc::EINVAL;
    };
    if attr.is_null() {
        return libc::EINVAL;
    }
    let filled = port_attributes(&port, inner.adapter.link_layer(number));
    let size = std::mem::offset_of!(ibv_port_attr, port_cap_flags2);
    // SAFETY: the caller's promise; the source is as long.
    unsafe {
        std::ptr::copy_nonoverlapping((&raw const filled).cast::<u8>(), attr.cast::<u8>(), size)
    };
    0
}

/// # Safety
/// `context` is NULL or open; `gid` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_gid(
    context: *mut ibv_context,
    number: u8,
    index: c_int,
    gid: *mut ibv_gid,
) -> c_int {
    if fault::strikes("ibv_query_gid") {
        return minus_one(libc::ENOMEM);
    }
    // SAFETY: the caller's promise.
    let port = unsafe { port(context, number) };
    let found = port
        .zip(usize::try_from(index).ok())
        .and_then(|(port, index)| port.gid(index));
    match found {
        Some(raw) if !gid.is_null() => {
            // SAFETY: the caller's promise.
            unsafe { gid.write(ibv_gid { raw }) };
            0
        }
        _ => minus_one(libc::EINVAL),
    }
}

/// # Safety
/// `context` is NULL or open; `entry` is NULL or has `entry_size` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ibv_query_gid_ex(
    context: *mut ibv_context,
    number: u32,
    index: u32,
    entry: *mut ibv_gid_entry,
    flags: u32,
    entry_size: usize,
) -> c_int {
    if fault::strikes("ibv_query_gid_ex") {
        return libc::ENOMEM;
    }
    if entry.is_null() || flags != 0 || entry_size < std::mem::size_of::<ibv_gid_entry>() {
        return libc::EINVAL;
    }
    let Ok(port_num) = u8::try_from(number) else {
        return libc::EINVAL;
    };
    // SAFETY: the caller's promise.
    let port = unsafe { port(context, port_num) };
    let found = port
        .zip(usize::try_from(index).ok())
        .and_then(|(port, index)| port.gid(index));
    // An unused entry is ENODATA, as in the kernel.
    let Some(raw) = found else {
        return libc::EINVAL;
    };
    if raw[8..] == [0; 8] {
        return libc::ENODATA;
    }
    let filled = ibv_gid_entry {
        gid: ibv_gid { raw },
        gid_index: index,
        port_num: number,
        gid_type: 0,
        ndev_ifindex: 0,
    };
    // SAFETY: the caller's promise; the entry is large enough.
    unsafe { entry.write(filled) };
    0
}

/// # Safety
/// `context` is NULL or open; `pkey` is NULL or writable (network byte order).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_pkey(
    context: *mut ibv_context,
    number: u8,
    index: c_int,
    pkey: *mut u16,
) -> c_int {
    if fault::strikes("ibv_query_pkey") {
        return minus_one(libc::ENOMEM);
    }
    // SAFETY: the caller's promise.
    let port = unsafe { port(context, number) };
    let found = port
        .zip(usize::try_from(index).ok())
        .and_then(|(port, index)| port.pkeys.get(index).copied());
    match found {
        Some(found) if !pkey.is_null() => {
            // SAFETY: the caller's promise.
            unsafe { pkey.write(found.to_be()) };
            0
        }
        _ => minus_one(libc::EINVAL),
    }
}

/// Returns the index of a P_Key (network byte order, membership bit included), or -1.
///
/// # Safety
/// `context` is NULL or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_pkey_index(
    context: *mut ibv_context,
    number: u8,
    pkey: u16,
) -> c_int {
    if fault::strikes("ibv_get_pkey_index") {
        return minus_one(libc::ENOMEM);
    }
    // SAFETY: the caller's promise.
    let port = unsafe { port(context, number) };
    let wanted = u16::from_be(pkey);
    let index = port.and_then(|port| port.pkeys.iter().position(|pkey| *pkey == wanted));
    index
        .and_then(|index| c_int::try_from(index).ok())
        .unwrap_or_else(|| minus_one(libc::EINVAL))
}

/// Stores the type of a GID: always InfiniBand.
///
/// # Safety
/// `context` is NULL or open; `kind` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_gid_type(
    context: *mut ibv_context,
    number: u8,
    index: c_uint,
    kind: *mut c_uint,
) -> c_int {
    // SAFETY: the caller's promise.
    let port = unsafe { port(context, number) };
    if kind.is_null() || port.is_none_or(|port| index as usize >= port.guids.len()) {
        return minus_one(libc::EINVAL);
    }
    // SAFETY: the caller's promise.
    unsafe { kind.write(0) };
    0
}
