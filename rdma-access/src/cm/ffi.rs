//! The part of `<rdma/rdma_cma.h>` that this crate uses. `crate::layout` compares it with the installed header.

use std::ffi::{c_int, c_void};

use ibverbs_sys::{ibv_context, ibv_qp};

use crate::error::Result;
use crate::library::NativeLibrary;

pub const RDMA_PS_TCP: c_int = 0x0106;

/// `struct rdma_ib_addr`. GIDs and P_Key are in network byte order.
#[repr(C, align(8))]
pub struct rdma_ib_addr {
    pub sgid: [u8; 16],
    pub dgid: [u8; 16],
    pub pkey: u16,
}

/// `struct rdma_addr`.
#[repr(C)]
pub struct rdma_addr {
    pub src_addr: libc::sockaddr_storage,
    pub dst_addr: libc::sockaddr_storage,
    pub ibaddr: rdma_ib_addr,
}

/// `struct rdma_route`.
#[repr(C)]
pub struct rdma_route {
    pub addr: rdma_addr,
    pub path_rec: *mut c_void,
    pub num_paths: c_int,
}

/// `struct rdma_cm_id`, up to the last field used here.
#[repr(C)]
pub struct rdma_cm_id {
    pub verbs: *mut ibv_context,
    pub channel: *mut c_void,
    pub context: *mut c_void,
    pub qp: *mut ibv_qp,
    pub route: rdma_route,
    pub ps: c_int,
    pub port_num: u8,
}

/// The functions, valid as long as their library is loaded.
#[derive(Debug)]
pub struct Functions {
    pub create_id:
        unsafe extern "C" fn(*mut c_void, *mut *mut rdma_cm_id, *mut c_void, c_int) -> c_int,
    pub destroy_id: unsafe extern "C" fn(*mut rdma_cm_id) -> c_int,
    pub bind_addr: unsafe extern "C" fn(*mut rdma_cm_id, *mut libc::sockaddr) -> c_int,
    pub resolve_addr: unsafe extern "C" fn(
        *mut rdma_cm_id,
        *mut libc::sockaddr,
        *mut libc::sockaddr,
        c_int,
    ) -> c_int,
    _library: NativeLibrary,
}

impl Functions {
    pub fn find(library: NativeLibrary) -> Result<Self> {
        // SAFETY: the field types are those of the header's functions, and the library is kept with them.
        unsafe {
            Ok(Self {
                create_id: library.get("rdma_create_id")?,
                destroy_id: library.get("rdma_destroy_id")?,
                bind_addr: library.get("rdma_bind_addr")?,
                resolve_addr: library.get("rdma_resolve_addr")?,
                _library: library,
            })
        }
    }
}
