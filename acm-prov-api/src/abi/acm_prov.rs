//! `<infiniband/acm_prov.h>` (ibacm): a provider's table, the structures that it gets, and the functions that
//! it may call.

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
    /// Its node GUID; several functions of one adapter may share it.
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
/// The core moves these structures: do not keep a pointer to one, or its `id_string`, after the call that
/// passed it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct acm_address {
    /// The endpoint.
    pub endpoint: *mut acm_endpoint,
    /// The address.
    pub info: acm_ep_info,
    /// The address as text, NUL-terminated.
    pub id_string: *mut c_char,
    /// The kind of `info`, in host byte order.
    pub r#type: AcmEpType,
}

/// The table of a provider. `acm_prov.h`
///
/// The core accepts the table if `size` equals the size that the core knows and `version` matches. It then
/// calls the functions without checking for NULL. It calls all but `query_perf` on its server thread. An `int`
/// result is 0 for success.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct acm_provider {
    /// The size of this table in bytes.
    pub size: usize,
    /// [`ACM_PROV_VERSION`] when the provider was built.
    pub version: u32,
    /// The provider's name, NUL-terminated; compared without regard to case.
    pub name: *const c_char,
    /// A device appeared. On success the provider stores a context, not NULL, which later calls pass back.
    pub open_device: Option<
        unsafe extern "C" fn(device: *const acm_device, dev_context: *mut *mut c_void) -> c_int,
    >,
    /// The device is being removed.
    pub close_device: Option<unsafe extern "C" fn(dev_context: *mut c_void)>,
    /// A port became active. On success the provider stores a context, not NULL, which later calls pass back.
    pub open_port: Option<
        unsafe extern "C" fn(
            port: *const acm_port,
            dev_context: *mut c_void,
            port_context: *mut *mut c_void,
        ) -> c_int,
    >,
    /// The port went down, or changes its LID, GID or P_Keys.
    pub close_port: Option<unsafe extern "C" fn(port_context: *mut c_void)>,
    /// An endpoint got its first address. On success the provider stores a context, not NULL, which later calls
    /// pass back.
    pub open_endpoint: Option<
        unsafe extern "C" fn(
            endpoint: *const acm_endpoint,
            port_context: *mut c_void,
            ep_context: *mut *mut c_void,
        ) -> c_int,
    >,
    /// The endpoint closes, with all addresses that it still has.
    pub close_endpoint: Option<unsafe extern "C" fn(ep_context: *mut c_void)>,
    /// An endpoint got an address. On success the provider stores a context, not NULL, which later calls pass
    /// back.
    pub add_address: Option<
        unsafe extern "C" fn(
            addr: *const acm_address,
            ep_context: *mut c_void,
            addr_context: *mut *mut c_void,
        ) -> c_int,
    >,
    /// An endpoint lost an address.
    pub remove_address: Option<unsafe extern "C" fn(addr_context: *mut c_void)>,
    /// A client requests the path to a destination. The provider returns 0 and answers `id` exactly once, now
    /// or later, by `acm_resolve_response`. `msg` is invalid after the return.
    pub resolve: Option<
        unsafe extern "C" fn(addr_context: *mut c_void, msg: *mut acm_msg, id: u64) -> c_int,
    >,
    /// A client requests a path from the SA. The provider returns 0 and answers `id` exactly once, now or
    /// later, by `acm_query_response`. `msg` is invalid after the return.
    pub query: Option<
        unsafe extern "C" fn(addr_context: *mut c_void, msg: *mut acm_msg, id: u64) -> c_int,
    >,
    /// An event occurred on a port.
    pub handle_event:
        Option<unsafe extern "C" fn(port_context: *mut c_void, r#type: ibv_event_type) -> c_int>,
    /// Stores an endpoint's counters, big-endian, and their number, at most
    /// [`ACM_MAX_COUNTER`](super::ACM_MAX_COUNTER).
    pub query_perf:
        Option<unsafe extern "C" fn(ep_context: *mut c_void, values: *mut Be64, cnt: *mut u8)>,
}

/// `provider_query`, the only symbol that a provider's library exports. It stores the provider's table, which
/// must live as long as the library is loaded, and the version that the provider was built for. Returns 0 for
/// success. `acm_prov.h`
pub type provider_query_fn =
    unsafe extern "C" fn(info: *mut *mut acm_provider, version: *mut u32) -> c_int;

/// A MAD to the SA, and the SA's response. The core allocates and frees it. `acm_prov.h`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct acm_sa_mad {
    /// The context that the provider passed to `acm_alloc_sa_mad`.
    pub context: *mut c_void,
    /// The envelope, filled by the core; `umad.status` is not 0 if there was no response.
    pub umad: ib_user_mad,
    /// The query; later the response.
    pub sa_mad: umad_sa_packet,
}

/// Gets a MAD back, with the SA's response or with an error in `umad.status`. It runs on the core's SA thread
/// and must free the MAD. `acm_prov.h`
pub type acm_sa_handler_fn = unsafe extern "C" fn(mad: *mut acm_sa_mad);

/// `acm_write`: writes to the daemon's log if its level is at least `level` (0 always, 1 verbose, 2 every
/// operation). `format` is as for `printf`. `acm_prov.h`
pub type acm_write_fn = unsafe extern "C" fn(level: c_int, format: *const c_char, ...);

/// `acm_format_name`: writes an address as text to `name`. If the log's level is below `level`, leaves `name`
/// unchanged. `acm_prov.h`
pub type acm_format_name_fn = unsafe extern "C" fn(
    level: c_int,
    name: *mut c_char,
    name_size: usize,
    addr_type: u8,
    addr: *const u8,
    addr_size: usize,
);

/// `ib_any_gid`: returns non-zero if the GID is `::`. `acm_prov.h`
pub type ib_any_gid_fn = unsafe extern "C" fn(gid: *mut ibv_gid) -> c_int;

/// `acm_gid_index`: returns the index of a GID in the port's table, or the table's length if it is not there.
/// `acm_prov.h`
pub type acm_gid_index_fn = unsafe extern "C" fn(port: *mut acm_port, gid: *mut ibv_gid) -> u8;

/// `acm_get_gid`: stores the GID at `index` (from 0) of the port's table. Returns 0 for success. `acm_prov.h`
pub type acm_get_gid_fn =
    unsafe extern "C" fn(port: *mut acm_port, index: c_int, gid: *mut ibv_gid) -> c_int;

/// `acm_path_comp_mask`: returns the component mask of a path query, with a bit for each field of the record
/// that is not zero. `acm_prov.h`
pub type acm_path_comp_mask_fn = unsafe extern "C" fn(path: *mut ibv_path_record) -> Be64;

/// `acm_resolve_response`: answers a `resolve`. Call it once for each `id`, from any thread. Returns non-zero
/// if the client has disconnected. `acm_prov.h`
pub type acm_resolve_response_fn = unsafe extern "C" fn(id: u64, msg: *mut acm_msg) -> c_int;

/// `acm_query_response`: answers a `query`. Call it once for each `id`, from any thread. Returns non-zero if
/// the client has disconnected. `acm_prov.h`
pub type acm_query_response_fn = unsafe extern "C" fn(id: u64, msg: *mut acm_msg) -> c_int;

/// `acm_get_rate`: returns the rate for a port's `active_width` and `active_speed`, or 0 for values that the
/// core does not know. `acm_prov.h`
pub type acm_get_rate_fn = unsafe extern "C" fn(width: u8, speed: u8) -> ibv_rate;

/// `acm_convert_mtu`: returns the code of an MTU in bytes. `acm_prov.h`
pub type acm_convert_mtu_fn = unsafe extern "C" fn(mtu: c_int) -> ibv_mtu;

/// `acm_convert_rate`: returns the code of a rate in Gb/s. `acm_prov.h`
pub type acm_convert_rate_fn = unsafe extern "C" fn(rate: c_int) -> ibv_rate;

/// `acm_alloc_sa_mad`: returns a zeroed MAD for an open endpoint, or NULL. `acm_prov.h`
pub type acm_alloc_sa_mad_fn = unsafe extern "C" fn(
    endpoint: *const acm_endpoint,
    context: *mut c_void,
    handler: Option<acm_sa_handler_fn>,
) -> *mut acm_sa_mad;

/// `acm_free_sa_mad`: frees a MAD that was not sent, or that the handler got back. `acm_prov.h`
pub type acm_free_sa_mad_fn = unsafe extern "C" fn(mad: *mut acm_sa_mad);

/// `acm_send_sa_mad`: sends a MAD. On success (0) the core owns the MAD until it calls the handler; on failure
/// the caller still owns it. The endpoint must be open. `acm_prov.h`
pub type acm_send_sa_mad_fn = unsafe extern "C" fn(mad: *mut acm_sa_mad) -> c_int;

/// `acm_get_opts_file`: returns the path of the options file, NUL-terminated; valid as long as the process
/// lives. `acm_prov.h`
pub type acm_get_opts_file_fn = unsafe extern "C" fn() -> *const c_char;

/// `acm_increment_counter`: adds one to a counter of the core's own set. `type` is an
/// [`AcmCounter`](super::AcmCounter). `acm_prov.h`
pub type acm_increment_counter_fn = unsafe extern "C" fn(r#type: super::AcmCounter);
