//! The symbols that stock ibacm exports to providers (acm_prov.h, and `acm_if_*`, which the stock provider uses).
//!
//! They serve the last installed stand-in core. They behave as rdma-core's ibacm, including its faults that affect providers:
//! `acm_format_name` writes nothing above the log level, and `acm_get_rate` knows no rate newer than EDR.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io::Read as _;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

use acm_prov_api::abi::{
    _compat_ibv_port_attr, AcmCounter, Be16, Be64, acm_endpoint, acm_msg, acm_port,
    acm_sa_handler_fn, acm_sa_mad, ibv_context, ibv_gid, ibv_mtu, ibv_path_record, ibv_rate,
};

use acm_prov_api::ProviderFault;

use super::allocations::Whose;
use super::bare;
use super::message::{self, Gid, Kind, Path, Reply};
use super::recorder::Caller;
use super::shared::Shared;

/// The names of the core's functions for providers.
pub const FUNCTIONS: [&CStr; 21] = [
    c"acm_write",
    c"acm_format_name",
    c"ib_any_gid",
    c"acm_gid_index",
    c"acm_get_gid",
    c"acm_path_comp_mask",
    c"acm_resolve_response",
    c"acm_query_response",
    c"acm_get_rate",
    c"acm_convert_mtu",
    c"acm_convert_rate",
    c"acm_alloc_sa_mad",
    c"acm_free_sa_mad",
    c"acm_send_sa_mad",
    c"acm_get_opts_file",
    c"acm_increment_counter",
    c"acm_if_get_pkey",
    c"acm_if_get_sgid",
    c"acm_if_iter_sys",
    c"acm_init_if_iter_sys",
    c"acm_fini_if_iter_sys",
];

static CURRENT: Mutex<Option<Arc<Shared>>> = Mutex::new(None);

/// Installs `shared` as the core of the exported functions.
pub(super) fn install(shared: &Arc<Shared>) {
    let old = exchange(Some(Arc::clone(shared)));
    // Outside the lock: this waits for the old core's thread, which may be in one of these functions.
    drop(old);
}

/// Drops the installed core in a fork, which has none of its threads, without waiting for them.
pub(super) fn abandon() {
    std::mem::forget(exchange(None));
}

/// Ends the installed core, and waits for its thread.
pub(super) fn remove() {
    let old = exchange(None);
    drop(old);
}

fn exchange(core: Option<Arc<Shared>>) -> Option<Arc<Shared>> {
    let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
    std::mem::replace(&mut current, core)
}

/// Returns the core of this process.
fn core() -> Option<Arc<Shared>> {
    CURRENT
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
}

/// Runs code of the library, and records that in the core.
pub(super) fn recorded<R>(what: &str, body: impl FnOnce() -> R) -> R {
    let core = core();
    if let Some(core) = &core {
        core.recorder.begin(Caller::Core, what, "", String::new);
    }
    let result = body();
    if let Some(core) = &core {
        core.recorder.end(Caller::Core, what, String::new);
    }
    result
}

/// Adds a call to the trace, if there is one.
fn trace_call(name: &str, arguments: impl FnOnce() -> String) {
    if let Some(core) = core() {
        core.trace(name, arguments);
    }
}

/// Receives the formatted text of `acm_write` (write.c).
///
/// # Safety
/// `text` is a terminated string.
#[unsafe(no_mangle)]
unsafe extern "C" fn acm_stand_in_log(level: c_int, text: *const c_char) {
    if let Some(bare) = bare::installed() {
        // SAFETY: the caller's promise.
        bare.log(level, &unsafe { CStr::from_ptr(text) }.to_string_lossy());
        return;
    }
    let _cores = Whose::cores();
    if let Some(core) = core() {
        // SAFETY: the caller's promise.
        core.log(level, &unsafe { CStr::from_ptr(text) }.to_string_lossy());
    }
}

/// Takes a fault that the SDK reports of its provider. A provider in C may report its own.
///
/// # Safety
/// `text` is a terminated string.
#[unsafe(no_mangle)]
unsafe extern "C" fn acm_provider_fault(kind: ProviderFault, text: *const c_char) {
    // The core that measures judges nothing.
    if bare::installed().is_some() {
        return;
    }
    let _cores = Whose::cores();
    if let Some(core) = core() {
        // SAFETY: the caller's promise.
        core.fault(kind, &unsafe { CStr::from_ptr(text) }.to_string_lossy());
    }
}

/// Returns the level up to which write.c formats a line.
#[unsafe(no_mangle)]
extern "C" fn acm_stand_in_log_limit() -> c_int {
    bare::LOG_LIMIT.load(std::sync::atomic::Ordering::Relaxed)
}

unsafe extern "C" {
    /// The variadic function itself, in write.c.
    pub(super) fn acm_write(level: c_int, format: *const c_char, ...);
}

/// Keeps the linker from dropping the one function that is written in C.
#[used]
static KEPT: unsafe extern "C" fn(c_int, *const c_char, ...) = acm_write;

/// # Safety
/// `name` has room for `name_size` bytes, `addr` holds `addr_size`.
#[unsafe(no_mangle)]
unsafe extern "C" fn acm_format_name(
    level: c_int,
    name: *mut c_char,
    name_size: usize,
    addr_type: u8,
    addr: *const u8,
    addr_size: usize,
) {
    // The measuring core logs only level 0, so it writes no name.
    if bare::installed().is_some() {
        return;
    }
    trace_call("acm_format_name", || format!("type {addr_type}"));
    let Some(core) = core().filter(|core| level <= core.log_level) else {
        return;
    };
    let mut bytes = [0; 64];
    // SAFETY: the caller's promise.
    unsafe { addr.copy_to_nonoverlapping(bytes.as_mut_ptr(), addr_size.min(64)) };
    let gid = Ipv6Addr::from(<[u8; 16]>::try_from(&bytes[..16]).unwrap_or_default());
    if u16::from(addr_type) == message::NAME {
        // Copied unchanged: a name of full length stays unterminated.
        // SAFETY: the caller's promise.
        unsafe { addr.copy_to(name.cast(), addr_size) };
        return;
    }
    let text = match u16::from(addr_type) {
        message::IP => Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).to_string(),
        message::IP6 | message::GID => gid.to_string(),
        message::LID => format!("LID({})", u16::from_be_bytes([bytes[0], bytes[1]])),
        message::PATH => {
            let path = Path(bytes);
            match path.dlid() {
                0 => path.dgid().to_string(),
                dlid => format!("SLID({}) DLID({dlid})", path.slid()),
            }
        }
        _ => "Unknown".to_owned(),
    };
    core.copy_text(&text, name, name_size);
}

/// # Safety
/// `gid` may be read.
#[unsafe(no_mangle)]
unsafe extern "C" fn ib_any_gid(gid: *mut ibv_gid) -> c_int {
    trace_call("ib_any_gid", || format!("{gid:p}"));
    // SAFETY: the caller's promise.
    c_int::from(unsafe { (*gid).bytes() } == [0; 16])
}

#[unsafe(no_mangle)]
extern "C" fn acm_get_opts_file() -> *const c_char {
    if let Some(bare) = bare::installed() {
        return bare.options_file.as_ptr();
    }
    trace_call("acm_get_opts_file", String::new);
    core().map_or(c"/etc/rdma/ibacm_opts.cfg".as_ptr(), |core| {
        core.options_file.as_ptr()
    })
}

#[unsafe(no_mangle)]
extern "C" fn acm_increment_counter(counter: AcmCounter) {
    if let Some(bare) = bare::installed() {
        return bare.count(counter.0);
    }
    let _cores = Whose::cores();
    if let Some(core) = core() {
        core.count(counter.0);
    }
}

/// Returns the GIDs of a port.
fn gids(port: *const acm_port) -> Option<Vec<Gid>> {
    match bare::installed() {
        Some(bare) => Some(bare.gids().to_vec()),
        None => core().map(|core| core.gids(port)),
    }
}

/// # Safety
/// `gid` may be read.
#[unsafe(no_mangle)]
unsafe extern "C" fn acm_gid_index(port: *mut acm_port, gid: *mut ibv_gid) -> u8 {
    let _cores = Whose::cores();
    trace_call("acm_gid_index", || format!("{port:p}, {gid:p}"));
    let Some(gids) = gids(port) else { return 0 };
    // SAFETY: the caller's promise.
    let gid = Gid(unsafe { (*gid).bytes() });
    gids.iter()
        .position(|own| *own == gid)
        .unwrap_or(gids.len()) as u8
}

/// # Safety
/// `gid` may be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn acm_get_gid(port: *mut acm_port, index: c_int, gid: *mut ibv_gid) -> c_int {
    let _cores = Whose::cores();
    trace_call("acm_get_gid", || format!("{port:p}, {index}"));
    let Some(gids) = gids(port) else { return -1 };
    match usize::try_from(index)
        .ok()
        .and_then(|index| gids.get(index).copied())
    {
        Some(found) => {
            // SAFETY: the caller's promise.
            unsafe { gid.write(ibv_gid::from_bytes(found.0)) };
            0
        }
        None => -1,
    }
}

/// # Safety
/// `path` may be read.
#[unsafe(no_mangle)]
unsafe extern "C" fn acm_path_comp_mask(path: *mut ibv_path_record) -> Be64 {
    // SAFETY: the caller's promise; a path record is 64 bytes.
    let path = Path(unsafe { path.cast::<[u8; 64]>().read() });
    trace_call("acm_path_comp_mask", || format!("{path:?}"));
    Be64::from_host(path.comp_mask())
}

/// # Safety
/// `msg` is a message of the length that it states.
unsafe fn respond(id: u64, msg: *const acm_msg, by: Kind) -> c_int {
    let _cores = Whose::cores();
    let Some(core) = core() else { return -1 };
    // SAFETY: the caller's promise.
    core.answered(id, unsafe { Reply::read(msg.cast()) }, by)
}

/// # Safety
/// `msg` is a message of the length that it states.
#[unsafe(no_mangle)]
unsafe extern "C" fn acm_resolve_response(id: u64, msg: *mut acm_msg) -> c_int {
    if let Some(bare) = bare::installed() {
        // SAFETY: the caller's promise.
        return unsafe { bare.resolved(msg) };
    }
    // SAFETY: the caller's promise.
    unsafe { respond(id, msg, Kind::Resolve) }
}

/// # Safety
/// `msg` is a message of the length that it states.
#[unsafe(no_mangle)]
unsafe extern "C" fn acm_query_response(id: u64, msg: *mut acm_msg) -> c_int {
    if let Some(bare) = bare::installed() {
        // SAFETY: the caller's promise.
        return unsafe { bare.resolved(msg) };
    }
    // SAFETY: the caller's promise.
    unsafe { respond(id, msg, Kind::Query) }
}

#[unsafe(no_mangle)]
extern "C" fn acm_get_rate(width: u8, speed: u8) -> ibv_rate {
    trace_call("acm_get_rate", || format!("width {width}, speed {speed}"));
    /// `ibv_rate` codes by width (1x, 4x, 8x, 12x) and speed (SDR, DDR, QDR or FDR10, FDR, EDR).
    const RATES: [[u32; 5]; 4] = [
        [2, 5, 3, 11, 15],
        [3, 6, 7, 12, 16],
        [6, 7, 9, 13, 17],
        [4, 8, 10, 14, 18],
    ];
    let width = match width {
        1 => 0,
        2 => 1,
        4 => 2,
        8 => 3,
        _ => return ibv_rate(0),
    };
    let speed = match speed {
        1 => 0,
        2 => 1,
        4 | 8 => 2,
        16 => 3,
        32 => 4,
        _ => return ibv_rate(0),
    };
    ibv_rate(RATES[width][speed])
}

#[unsafe(no_mangle)]
extern "C" fn acm_convert_mtu(mtu: c_int) -> ibv_mtu {
    trace_call("acm_convert_mtu", || mtu.to_string());
    ibv_mtu(match mtu {
        256 => 1,
        512 => 2,
        1024 => 3,
        4096 => 5,
        _ => 4,
    })
}

#[unsafe(no_mangle)]
extern "C" fn acm_convert_rate(rate: c_int) -> ibv_rate {
    trace_call("acm_convert_rate", || rate.to_string());
    const CODES: [(c_int, u32); 17] = [
        (2, 2),
        (5, 5),
        (10, 3),
        (20, 6),
        (30, 4),
        (40, 7),
        (60, 8),
        (80, 9),
        (120, 10),
        (14, 11),
        (56, 12),
        (112, 13),
        (168, 14),
        (25, 15),
        (100, 16),
        (200, 17),
        (300, 18),
    ];
    ibv_rate(
        CODES
            .iter()
            .find(|(gbps, _)| *gbps == rate)
            .map_or(3, |(_, code)| *code),
    )
}

#[unsafe(no_mangle)]
extern "C" fn acm_alloc_sa_mad(
    endpoint: *const acm_endpoint,
    context: *mut c_void,
    handler: Option<acm_sa_handler_fn>,
) -> *mut acm_sa_mad {
    if let Some(bare) = bare::installed() {
        return bare.alloc_mad(context, handler);
    }
    core().map_or(std::ptr::null_mut(), |core| {
        core.alloc_mad(endpoint, context, handler)
    })
}

#[unsafe(no_mangle)]
extern "C" fn acm_free_sa_mad(mad: *mut acm_sa_mad) {
    if let Some(bare) = bare::installed() {
        // SAFETY: a provider frees what it got from acm_alloc_sa_mad, once.
        return unsafe { bare.free_mad(mad) };
    }
    if let Some(core) = core() {
        core.free_mad(mad);
    }
}

#[unsafe(no_mangle)]
extern "C" fn acm_send_sa_mad(mad: *mut acm_sa_mad) -> c_int {
    if let Some(bare) = bare::installed() {
        return bare.send_mad(mad);
    }
    core().map_or(-1, |core| core.send_mad(mad))
}

/// # Safety
/// `ifname` is a terminated string, `pkey` may be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn acm_if_get_pkey(ifname: *const c_char, pkey: *mut u16) -> c_int {
    trace_call("acm_if_get_pkey", || format!("{ifname:p}"));
    // SAFETY: the caller's promise.
    match unsafe { interface_file(ifname, "pkey") }
        .and_then(|text| u16::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok())
    {
        Some(value) => {
            // SAFETY: the caller's promise.
            unsafe { pkey.write(value) };
            0
        }
        None => -1,
    }
}

/// # Safety
/// `ifname` is a terminated string, `sgid` may be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn acm_if_get_sgid(ifname: *const c_char, sgid: *mut ibv_gid) -> c_int {
    trace_call("acm_if_get_sgid", || format!("{ifname:p}"));
    // SAFETY: the caller's promise.
    let Some(text) = (unsafe { interface_file(ifname, "address") }) else {
        return -1;
    };
    // An IPoIB hardware address: four bytes, then the GID.
    let bytes: Vec<u8> = text
        .trim()
        .split(':')
        .filter_map(|byte| u8::from_str_radix(byte, 16).ok())
        .collect();
    match bytes
        .get(4..20)
        .and_then(|gid| <[u8; 16]>::try_from(gid).ok())
    {
        Some(gid) => {
            // SAFETY: the caller's promise.
            unsafe { sgid.write(ibv_gid::from_bytes(gid)) };
            0
        }
        None => -1,
    }
}

/// # Safety
/// `ifname` is a terminated string.
unsafe fn interface_file(ifname: *const c_char, file: &str) -> Option<String> {
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(ifname) }.to_str().ok()?;
    let mut text = String::new();
    std::fs::File::open(format!("/sys/class/net/{name}/{file}"))
        .ok()?
        .take(128)
        .read_to_string(&mut text)
        .ok()?;
    Some(text)
}

/// Calls back for no interface: this node has no IPoIB interface.
#[unsafe(no_mangle)]
extern "C" fn acm_if_iter_sys(_callback: *const c_void, _context: *mut c_void) -> c_int {
    trace_call("acm_if_iter_sys", String::new);
    0
}

#[unsafe(no_mangle)]
extern "C" fn acm_init_if_iter_sys() -> c_int {
    0
}

#[unsafe(no_mangle)]
extern "C" fn acm_fini_if_iter_sys() {}

unsafe extern "C" {
    /// fabric-sim's.
    fn ibv_query_port(
        context: *mut ibv_context,
        port_num: u8,
        port_attr: *mut _compat_ibv_port_attr,
    ) -> c_int;
    /// fabric-sim's.
    fn ibv_query_pkey(
        context: *mut ibv_context,
        port_num: u8,
        index: c_int,
        pkey: *mut Be16,
    ) -> c_int;
}

/// Returns the functions of this core as the SDK's table, for unit tests in process.
pub(super) const fn host_table() -> acm_prov_api::HostTable {
    acm_prov_api::HostTable {
        acm_write: acm_prov_api::LogWriter::AcmWrite(acm_write),
        acm_get_opts_file,
        acm_increment_counter,
        acm_gid_index,
        acm_get_gid,
        acm_path_comp_mask,
        acm_resolve_response,
        acm_query_response,
        acm_get_rate,
        acm_convert_mtu,
        acm_convert_rate,
        acm_alloc_sa_mad,
        acm_free_sa_mad,
        acm_send_sa_mad,
        ibv_query_port,
        ibv_query_pkey,
        acm_provider_fault: Some(acm_provider_fault),
    }
}
