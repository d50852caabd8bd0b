//! Verbs that are not simulated. They are exported so that libibverbs' own never get a handle made by this
//! crate: each fails with `ENOSYS` and prints its name once on stderr.

use std::ffi::{c_int, c_void};

use super::abi::{ibv_mr, ibv_pd, ibv_qp, ibv_recv_wr};
use super::handle::null;
use crate::report::{report_once, set_errno};

fn name(verb: &str) {
    report_once(&format!("{verb} is not simulated (ENOSYS)"));
    set_errno(libc::ENOSYS);
}

/// Exported verbs by their return value on failure. Their arguments are omitted: the C calling convention lets
/// a function ignore them.
macro_rules! not_simulated {
    ($($failure:ident: $($verb:ident)*;)*) => {
        $($(
            #[doc = concat!("Not simulated: `", stringify!($verb), "`.")]
            #[unsafe(no_mangle)]
            pub extern "C" fn $verb() -> not_simulated!(@type $failure) {
                name(stringify!($verb));
                not_simulated!(@value $failure)
            }
        )*)*
    };
    (@type pointer) => { *mut c_void };
    (@value pointer) => { std::ptr::null_mut() };
    (@type errno) => { c_int };
    (@value errno) => { libc::ENOSYS };
    (@type minus_one) => { c_int };
    (@value minus_one) => { -1 };
    (@type minus_errno) => { isize };
    (@value minus_errno) => { -(libc::ENOSYS as isize) };
    (@type nothing) => { () };
    (@value nothing) => { () };
}

not_simulated! {
    pointer: ibv_create_srq ibv_create_ah_from_wc ibv_import_device ibv_import_dm ibv_import_mr ibv_import_pd
        ibv_qp_to_qp_ex ibv_reg_dmabuf_mr;
    errno: ibv_modify_srq ibv_query_srq ibv_destroy_srq ibv_resize_cq ibv_query_ece ibv_set_ece;
    minus_one: ibv_init_ah_from_wc ibv_rereg_mr ibv_resolve_eth_l2_from_gid;
    minus_errno: _ibv_query_gid_table;
    nothing: ibv_unimport_dm ibv_unimport_mr ibv_unimport_pd;
}

/// Returns that in-order delivery of data is not guaranteed.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_query_qp_data_in_order() -> c_int {
    0
}

pub(super) unsafe extern "C" fn first_abi() -> *mut c_void {
    name("a verb of the first ABI");
    std::ptr::null_mut()
}

pub(super) unsafe extern "C" fn alloc_mw(_pd: *mut ibv_pd, _kind: c_int) -> *mut c_void {
    name("ibv_alloc_mw");
    std::ptr::null_mut()
}

pub(super) unsafe extern "C" fn bind_mw(
    _qp: *mut ibv_qp,
    _mw: *mut c_void,
    _bind: *mut c_void,
) -> c_int {
    name("ibv_bind_mw");
    libc::ENOSYS
}

pub(super) unsafe extern "C" fn dealloc_mw(_mw: *mut c_void) -> c_int {
    name("ibv_dealloc_mw");
    libc::ENOSYS
}

pub(super) unsafe extern "C" fn post_srq_recv(
    _srq: *mut c_void,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    name("ibv_post_srq_recv");
    if !bad.is_null() {
        // SAFETY: `man 3 ibv_post_srq_recv`: where to write the request that failed.
        unsafe { bad.write(wr) };
    }
    libc::ENOSYS
}

pub(super) fn ibv_reg_mr_iova_elsewhere() -> *mut ibv_mr {
    name("ibv_reg_mr_iova with an address other than the memory's");
    null(libc::ENOSYS)
}

pub(super) fn queue_pair_type(kind: c_int) -> *mut ibv_qp {
    name(&format!("ibv_create_qp of type {kind} (only UD is)"));
    null(libc::ENOSYS)
}

pub(super) fn shared_receive_queue() -> *mut ibv_qp {
    name("ibv_create_qp with a shared receive queue");
    null(libc::ENOSYS)
}
