//! `<infiniband/acm_prov.h>` (ibacm): the table of a provider, what it gets, what it may call.

use core::ffi::{c_char, c_int, c_void};

use super::{
    AcmEpType, Be64, acm_ep_info, acm_msg, ib_user_mad, ibv_context, ibv_event_type, ibv_gid,
    ibv_mtu, ibv_path_record, ibv_rate, umad_sa_packet,
};

/// The version of the provider interface that this mirror describes. `acm_prov.h`
pub const ACM_PROV_VERSION: u32 = 1;

/// A device (adapter). Lives as long as the process. `acm_prov.h`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct acm_device {
    /// The device as libibverbs opened it.
    pub verbs: *mut ibv_context,
    /// Its node GUID; several functions of one adapter can share it.
    pub dev_guid: Be64,
}

/// A port of a device. Lives as long as the process. `acm_prov.h`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct acm_port {
    /// The device.
    pub dev: *mut acm_device,
    /// The port's number, from 1.
    pub port_num: u8,
}

/// A port in one partition. Freed by the core after `close_endpoint`. `acm_prov.h`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct acm_endpoint {
    /// The port.
    pub port: *mut acm_port,
    /// The P_Key with its membership bit, in host byte order.
    pub pkey: u16,
}

/// An address of an endpoint. `acm_prov.h`
///
/// The core moves these: neither a pointer to one nor its `id_string` may be kept after the call
/// that passed it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct acm_address {
    /// The endpoint.
    pub endpoint: *mut acm_endpoint,
    /// The address.
    pub info: acm_ep_info,
    /// The address as text, NUL-terminated.
    pub id_string: *mut c_char,
    /// What `info` holds, in host byte order.
    pub r#type: AcmEpType,
}

/// The table of a provider. `acm_prov.h`
///
/// The core takes it if `size` is exactly the size that it knows and `version` matches, and then
/// calls the slots without looking whether they are NULL. All but `query_perf` are called on the
/// core's server thread. An `int` result is 0 for success.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct acm_provider {
    /// Bytes of this table.
    pub size: usize,
    /// [`ACM_PROV_VERSION`] as of when the provider was written.
    pub version: u32,
    /// The provider's name, NUL-terminated; compared without case.
    pub name: *const c_char,
    /// A device appeared. On success stores the context, not NULL, that later calls bring back.
    pub open_device: Option<
        unsafe extern "C" fn(device: *const acm_device, dev_context: *mut *mut c_void) -> c_int,
    >,
    /// The device goes away.
    pub close_device: Option<unsafe extern "C" fn(dev_context: *mut c_void)>,
    /// A port became active. On success stores the context, not NULL, that later calls bring back.
    pub open_port: Option<
        unsafe extern "C" fn(
            port: *const acm_port,
            dev_context: *mut c_void,
            port_context: *mut *mut c_void,
        ) -> c_int,
    >,
    /// The port went down or changes its LID, GID or P_Keys.
    pub close_port: Option<unsafe extern "C" fn(port_context: *mut c_void)>,
    /// An endpoint got its first address. On success stores the context, not NULL, that later
    /// calls bring back.
    pub open_endpoint: Option<
        unsafe extern "C" fn(
            endpoint: *const acm_endpoint,
            port_context: *mut c_void,
            ep_context: *mut *mut c_void,
        ) -> c_int,
    >,
    /// The endpoint goes away, with all addresses that it may still have.
    pub close_endpoint: Option<unsafe extern "C" fn(ep_context: *mut c_void)>,
    /// An endpoint got an address. On success stores the context, not NULL, that later calls
    /// bring back.
    pub add_address: Option<
        unsafe extern "C" fn(
            addr: *const acm_address,
            ep_context: *mut c_void,
            addr_context: *mut *mut c_void,
        ) -> c_int,
    >,
    /// An endpoint lost an address.
    pub remove_address: Option<unsafe extern "C" fn(addr_context: *mut c_void)>,
    /// A client asks for the path to a destination. Returns 0 and answers `id` once, now or later,
    /// by `acm_resolve_response`. `msg` is dead after the return.
    pub resolve: Option<
        unsafe extern "C" fn(addr_context: *mut c_void, msg: *mut acm_msg, id: u64) -> c_int,
    >,
    /// A client asks the SA for a path. Returns 0 and answers `id` once, now or later, by
    /// `acm_query_response`. `msg` is dead after the return.
    pub query: Option<
        unsafe extern "C" fn(addr_context: *mut c_void, msg: *mut acm_msg, id: u64) -> c_int,
    >,
    /// Something happened on a port.
    pub handle_event:
        Option<unsafe extern "C" fn(port_context: *mut c_void, r#type: ibv_event_type) -> c_int>,
    /// Stores an endpoint's counters, big-endian, and their number, at most
    /// [`ACM_MAX_COUNTER`](super::ACM_MAX_COUNTER).
    pub query_perf:
        Option<unsafe extern "C" fn(ep_context: *mut c_void, values: *mut Be64, cnt: *mut u8)>,
}

/// `provider_query`, the one symbol that a provider's library exports: stores its table, which must
/// live as long as the library is loaded, and the version that it was written for. 0 for success.
/// `acm_prov.h`
pub type provider_query_fn =
    unsafe extern "C" fn(info: *mut *mut acm_provider, version: *mut u32) -> c_int;

/// A MAD to the SA and back. Allocated and freed by the core. `acm_prov.h`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct acm_sa_mad {
    /// What the provider gave to `acm_alloc_sa_mad`.
    pub context: *mut c_void,
    /// The envelope, filled by the core; `umad.status` is not 0 when no answer came.
    pub umad: ib_user_mad,
    /// The question, then the answer.
    pub sa_mad: umad_sa_packet,
}

/// Gets a MAD back, with the SA's answer or a failure in `umad.status`; runs on the core's SA
/// thread and frees the MAD. `acm_prov.h`
pub type acm_sa_handler_fn = unsafe extern "C" fn(mad: *mut acm_sa_mad);

/// `acm_write`: writes to the daemon's log if its level is at least `level` (0 always, 1 verbose, 2
/// every operation). `format` is that of `printf`. `acm_prov.h`
pub type acm_write_fn = unsafe extern "C" fn(level: c_int, format: *const c_char, ...);

/// `acm_format_name`: writes an address as text to `name`, or leaves `name` alone if the log's
/// level is below `level`. `acm_prov.h`
pub type acm_format_name_fn = unsafe extern "C" fn(
    level: c_int,
    name: *mut c_char,
    name_size: usize,
    addr_type: u8,
    addr: *const u8,
    addr_size: usize,
);

/// `ib_any_gid`: non-zero if the GID is `::`. `acm_prov.h`
pub type ib_any_gid_fn = unsafe extern "C" fn(gid: *mut ibv_gid) -> c_int;

/// `acm_gid_index`: where a GID stands in the port's table; the table's length if it is not there.
/// `acm_prov.h`
pub type acm_gid_index_fn = unsafe extern "C" fn(port: *mut acm_port, gid: *mut ibv_gid) -> u8;

/// `acm_get_gid`: stores the GID at `index` (0 and up) of the port's table. 0 for success.
/// `acm_prov.h`
pub type acm_get_gid_fn =
    unsafe extern "C" fn(port: *mut acm_port, index: c_int, gid: *mut ibv_gid) -> c_int;

/// `acm_path_comp_mask`: the component mask of a path query, from which fields of the record are
/// not zero. `acm_prov.h`
pub type acm_path_comp_mask_fn = unsafe extern "C" fn(path: *mut ibv_path_record) -> Be64;

/// `acm_resolve_response`: answers a `resolve`. To be called once for each `id`, from any thread;
/// non-zero when the client is gone. `acm_prov.h`
pub type acm_resolve_response_fn = unsafe extern "C" fn(id: u64, msg: *mut acm_msg) -> c_int;

/// `acm_query_response`: answers a `query`. To be called once for each `id`, from any thread;
/// non-zero when the client is gone. `acm_prov.h`
pub type acm_query_response_fn = unsafe extern "C" fn(id: u64, msg: *mut acm_msg) -> c_int;

/// `acm_get_rate`: the rate of a link from `active_width` and `active_speed` of the port's
/// attributes; 0 for those that the core does not know. `acm_prov.h`
pub type acm_get_rate_fn = unsafe extern "C" fn(width: u8, speed: u8) -> ibv_rate;

/// `acm_convert_mtu`: the code of an MTU in bytes. `acm_prov.h`
pub type acm_convert_mtu_fn = unsafe extern "C" fn(mtu: c_int) -> ibv_mtu;

/// `acm_convert_rate`: the code of a rate in Gb/s. `acm_prov.h`
pub type acm_convert_rate_fn = unsafe extern "C" fn(rate: c_int) -> ibv_rate;

/// `acm_alloc_sa_mad`: a zeroed MAD for an open endpoint, or NULL. `acm_prov.h`
pub type acm_alloc_sa_mad_fn = unsafe extern "C" fn(
    endpoint: *const acm_endpoint,
    context: *mut c_void,
    handler: Option<acm_sa_handler_fn>,
) -> *mut acm_sa_mad;

/// `acm_free_sa_mad`: frees a MAD that was not sent, or came back. `acm_prov.h`
pub type acm_free_sa_mad_fn = unsafe extern "C" fn(mad: *mut acm_sa_mad);

/// `acm_send_sa_mad`: sends a MAD; on success (0) it is the core's until the handler gets it back,
/// else it stays the caller's. Not for an endpoint that is closed. `acm_prov.h`
pub type acm_send_sa_mad_fn = unsafe extern "C" fn(mad: *mut acm_sa_mad) -> c_int;

/// `acm_get_opts_file`: the path of the options file, NUL-terminated; lives as long as the
/// process. `acm_prov.h`
pub type acm_get_opts_file_fn = unsafe extern "C" fn() -> *const c_char;

/// `acm_increment_counter`: adds one to a counter of the core's own set. `type` is an
/// [`AcmCounter`](super::AcmCounter). `acm_prov.h`
pub type acm_increment_counter_fn = unsafe extern "C" fn(r#type: super::AcmCounter);
