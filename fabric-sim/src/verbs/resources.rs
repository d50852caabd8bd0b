//! Protection domains, memory regions and address handles: `man 3 ibv_alloc_pd`, `ibv_reg_mr`, `ibv_create_ah`.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use super::abi::{IBV_ACCESS_LOCAL_WRITE, ibv_ah, ibv_ah_attr, ibv_context, ibv_mr, ibv_pd};
use super::fault;
use super::handle::{self, Opaque, null};
use crate::model::adapter::Adapter;
use crate::model::memory::MemoryRegions;
use crate::model::queue_pair::{AddressVector, Route};

/// The Rust part of a protection domain. Objects made in it hold its regions, so it knows whether it is in use.
pub struct Domain {
    pub(super) adapter: Arc<Adapter>,
    pub(super) memory: Arc<MemoryRegions>,
}

/// The Rust part of a memory region.
pub struct Region {
    memory: Arc<MemoryRegions>,
    key: u32,
}

/// The Rust part of an address handle.
pub struct Address {
    pub(super) vector: AddressVector,
    _memory: Arc<MemoryRegions>,
}

// SAFETY: programs get domains from `ibv_alloc_pd` alone.
unsafe impl Opaque for ibv_pd {
    type Rust = Domain;
}

// SAFETY: programs get regions from `ibv_reg_mr` and its kin alone.
unsafe impl Opaque for ibv_mr {
    type Rust = Region;
}

// SAFETY: programs get address handles from `ibv_create_ah` alone.
unsafe impl Opaque for ibv_ah {
    type Rust = Address;
}

/// # Safety
/// `context` is NULL or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    if fault::strikes("ibv_alloc_pd") {
        return null(libc::ENOMEM);
    }
    // SAFETY: the caller's promise.
    let Some(inner) = (unsafe { handle::rust(context) }) else {
        return null(libc::EINVAL);
    };
    handle::create(
        ibv_pd { context, handle: 0 },
        Domain {
            adapter: inner.adapter.clone(),
            memory: Arc::default(),
        },
    )
}

/// # Safety
/// `pd` is NULL or from [`ibv_alloc_pd`], used no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    // SAFETY: the caller's promise.
    let Some(domain) = (unsafe { handle::rust(pd) }) else {
        return libc::EINVAL;
    };
    if Arc::strong_count(&domain.memory) > 1 {
        return libc::EBUSY;
    }
    // SAFETY: the caller's promise.
    unsafe { handle::destroy(pd) };
    0
}

/// # Safety
/// `pd` is NULL or from [`ibv_alloc_pd`]; the memory exists until the region is deregistered, and nothing else
/// uses it while a request with it is posted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    if fault::strikes("ibv_reg_mr") {
        return null(libc::ENOMEM);
    }
    // SAFETY: the caller's promise.
    let Some(domain) = (unsafe { handle::rust(pd) }) else {
        return null(libc::EINVAL);
    };
    if addr.is_null() && length > 0 {
        return null(libc::EFAULT);
    }
    let local_write = access.cast_unsigned() & IBV_ACCESS_LOCAL_WRITE != 0;
    // SAFETY: the caller's promise.
    let key = unsafe {
        domain
            .memory
            .register(addr as u64, length as u64, local_write)
    };
    // SAFETY: `pd` is not NULL, so a domain that is alive.
    let context = unsafe { (*pd).context };
    let c = ibv_mr {
        context,
        pd,
        addr,
        length,
        handle: 0,
        lkey: key,
        rkey: key,
    };
    handle::create(
        c,
        Region {
            memory: domain.memory.clone(),
            key,
        },
    )
}

/// Like `ibv_reg_mr`; a network address other than the memory's own is not simulated.
///
/// # Safety
/// As for [`ibv_reg_mr`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    if iova != addr as u64 {
        return super::not_simulated::ibv_reg_mr_iova_elsewhere();
    }
    // SAFETY: the caller's promise.
    unsafe { ibv_reg_mr(pd, addr, length, access.cast_signed()) }
}

/// # Safety
/// As for [`ibv_reg_mr`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the caller's promise.
    unsafe { ibv_reg_mr_iova2(pd, addr, length, iova, access.cast_unsigned()) }
}

/// # Safety
/// `mr` is NULL or from [`ibv_reg_mr`] or its kin, used no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    // SAFETY: the caller's promise.
    let Some(region) = (unsafe { handle::rust(mr) }) else {
        return libc::EINVAL;
    };
    region.memory.deregister(region.key);
    // SAFETY: the caller's promise.
    unsafe { handle::destroy(mr) };
    0
}

/// # Safety
/// `pd` is NULL or from [`ibv_alloc_pd`]; `attr` is NULL or readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah {
    if fault::strikes("ibv_create_ah") {
        return null(libc::ENOMEM);
    }
    // SAFETY: the caller's promises.
    let (Some(domain), Some(attr)) = (unsafe { handle::rust(pd) }, unsafe { attr.as_ref() }) else {
        return null(libc::EINVAL);
    };
    let Some(port) = domain.adapter.port(attr.port_num) else {
        return null(libc::EINVAL);
    };
    let grh = (attr.is_global != 0).then_some(Route {
        dgid: attr.grh.dgid.raw,
        sgid_index: attr.grh.sgid_index,
        traffic_class: attr.grh.traffic_class,
        flow_label: attr.grh.flow_label,
        hop_limit: attr.grh.hop_limit,
    });
    if attr.sl > 15 || grh.is_some_and(|route| port.gid(route.sgid_index.into()).is_none()) {
        return null(libc::EINVAL);
    }
    let vector = AddressVector {
        dlid: attr.dlid,
        sl: attr.sl,
        source_path_bits: attr.src_path_bits,
        port: attr.port_num,
        grh,
    };
    // SAFETY: `pd` is not NULL, so a domain that is alive.
    let context = unsafe { (*pd).context };
    handle::create(
        ibv_ah {
            context,
            pd,
            handle: 0,
        },
        Address {
            vector,
            _memory: domain.memory.clone(),
        },
    )
}

/// # Safety
/// `ah` is NULL or from [`ibv_create_ah`], used no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int {
    if ah.is_null() {
        return libc::EINVAL;
    }
    // SAFETY: the caller's promise.
    unsafe { handle::destroy(ah) };
    0
}

/// Does nothing: no memory is shared with a device, so a fork does no harm.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_fork_init() -> c_int {
    0
}

/// Returns `IBV_FORK_UNNEEDED`.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_is_fork_initialized() -> c_int {
    2
}
