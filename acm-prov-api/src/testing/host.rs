//! The core's functions for a provider in this process, and their state.

use std::collections::VecDeque;
use std::ffi::{CStr, CString, c_char, c_int, c_void};

use super::{Allocations, Answer, TestCore};
use crate::abi::*;
use crate::address::Gid;
use crate::host::{Host, HostTable, LogLevel, LogWriter};
use crate::path::PathRecord;
use crate::sync::{Condvar, Mutex};

/// The path of an options file that does not exist.
pub(super) const NO_OPTIONS: &CStr = c"/nonexistent/ibacm_opts.cfg";

/// The state behind the core's functions. A process has one core at a time.
pub(super) struct State {
    pub(super) options_file: CString,
    pub(super) log: Vec<String>,
    pub(super) answers: Vec<Answer>,
    pub(super) sent: VecDeque<SentMad>,
    pub(super) class_port_info: ClassPortInfo,
    pub(super) mads: usize,
    pub(super) counters: [u64; ACM_MAX_COUNTER],
    pub(super) attributes: _compat_ibv_port_attr,
    pub(super) gids: Vec<Gid>,
    pub(super) pkeys: Vec<u16>,
    pub(super) refuse_mads: bool,
}

/// ClassPortInfo queries, which the core answers itself unless a test wants to.
#[derive(Default)]
pub(super) struct ClassPortInfo {
    pub(super) unanswered: VecDeque<SentMad>,
    pub(super) asked: usize,
    pub(super) qos: bool,
    pub(super) is_the_tests: bool,
}

pub(super) struct SentMad(pub(super) *mut TestMad);

// SAFETY: the MAD belongs to the core while it is in the queue, and the queue is behind a lock.
unsafe impl Send for SentMad {}

#[repr(C)]
pub(super) struct TestMad {
    pub(super) mad: acm_sa_mad,
    pub(super) handler: Option<acm_sa_handler_fn>,
}

pub(super) static STATE: Mutex<Option<State>> = Mutex::new(None);
pub(super) static CHANGED: Condvar = Condvar::new();

pub(super) fn with_state<R>(change: impl FnOnce(&mut State) -> R) -> R {
    Allocations::of_the_core(|| {
        let mut state = STATE.lock();
        let result = change(state.get_or_insert_with(State::new));
        CHANGED.notify_all();
        result
    })
}

impl State {
    pub(super) fn new() -> Self {
        Self {
            options_file: NO_OPTIONS.to_owned(),
            log: Vec::new(),
            answers: Vec::new(),
            sent: VecDeque::new(),
            class_port_info: ClassPortInfo::default(),
            mads: 0,
            counters: [0; ACM_MAX_COUNTER],
            attributes: _compat_ibv_port_attr {
                state: ibv_port_state::ACTIVE,
                active_mtu: ibv_mtu(5),
                gid_tbl_len: 1,
                pkey_tbl_len: 1,
                lid: 1,
                sm_lid: 9,
                active_width: 2,
                active_speed: 1,
                link_layer: IBV_LINK_LAYER_INFINIBAND,
                ..Default::default()
            },
            gids: vec![TestCore::GID],
            pkeys: vec![0xffff],
            refuse_mads: false,
        }
    }
}

impl SentMad {
    pub(super) fn packet(&self) -> umad_sa_packet {
        // SAFETY: a MAD in the queue is alive.
        unsafe { (*self.0).mad.sa_mad }
    }
}

pub(super) static TABLE: HostTable = HostTable {
    acm_write: LogWriter::Plain(|_, text| {
        with_state(|state| state.log.push(text.to_string_lossy().trim_end().to_owned()));
    }),
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
    acm_provider_fault: None,
};

/// Returns a host that logs to `plain` and has the test core's other services.
pub fn host_that_logs(plain: fn(level: c_int, text: &CStr)) -> Host {
    let table = Box::leak(Box::new(HostTable {
        acm_write: LogWriter::Plain(plain),
        ..TABLE
    }));
    // SAFETY: see `try_load`.
    unsafe { Host::new(table, c"test", LogLevel::OPERATION) }
}

unsafe extern "C" fn acm_get_opts_file() -> *const c_char {
    with_state(|state| state.options_file.as_ptr())
}

unsafe extern "C" fn acm_increment_counter(counter: AcmCounter) {
    with_state(|state| {
        if let Some(value) = usize::try_from(counter.0)
            .ok()
            .and_then(|index| state.counters.get_mut(index))
        {
            *value += 1;
        }
    });
}

unsafe extern "C" fn acm_gid_index(_port: *mut acm_port, gid: *mut ibv_gid) -> u8 {
    // SAFETY: the provider passes a GID.
    let gid = Gid::from(unsafe { *gid });
    with_state(|state| {
        state
            .gids
            .iter()
            .position(|own| *own == gid)
            .unwrap_or(state.gids.len()) as u8
    })
}

unsafe extern "C" fn acm_get_gid(_port: *mut acm_port, index: c_int, gid: *mut ibv_gid) -> c_int {
    let found = with_state(|state| {
        usize::try_from(index)
            .ok()
            .and_then(|index| state.gids.get(index).copied())
    });
    match found {
        Some(found) => {
            // SAFETY: the provider passes room for a GID.
            unsafe { gid.write(found.into()) };
            0
        }
        None => -1,
    }
}

unsafe extern "C" fn acm_path_comp_mask(path: *mut ibv_path_record) -> Be64 {
    // SAFETY: the provider passes a path record.
    let path = PathRecord::from(unsafe { *path });
    let bytes = path.to_bytes();
    let demanded = |range: std::ops::Range<usize>| bytes[range].iter().any(|byte| *byte != 0);
    let selected = |byte: u8| [(byte >> 6) != 0, (byte & 0x3f) != 0];
    let [mtu_selector, mtu] = selected(bytes[54]);
    let [rate_selector, rate] = selected(bytes[55]);
    let [lifetime_selector, lifetime] = selected(bytes[56]);
    // Component numbers of PathRecord, IBA vol. 1, 15.2.5.16.
    let components = [
        (0, demanded(0..8)),
        (2, demanded(8..24)),
        (3, demanded(24..40)),
        (4, demanded(40..42)),
        (5, demanded(42..44)),
        (8, path.flow_label() != 0),
        (9, path.hop_limit() != 0),
        (10, path.traffic_class() != 0),
        (11, path.reversible()),
        (13, demanded(50..52)),
        (14, path.qos_class() != 0),
        (15, path.sl() != 0),
        (16, mtu_selector),
        (17, mtu),
        (18, rate_selector),
        (19, rate),
        (20, lifetime_selector),
        (21, lifetime),
    ];
    Be64::from_host(
        components
            .iter()
            .filter(|(_, set)| *set)
            .fold(0, |mask, (bit, _)| mask | 1 << bit),
    )
}

fn keep_answer(id: u64, msg: *mut acm_msg) -> c_int {
    // SAFETY: the provider passes a message, which has a header.
    let header = unsafe { msg.cast::<acm_hdr>().read() };
    // SAFETY: the message has the length in its header.
    let bytes = unsafe { std::slice::from_raw_parts(msg.cast::<u8>(), header.length.into()) };
    let entry = bytes.get(ACM_MSG_HDR_LENGTH..ACM_MSG_HDR_LENGTH + ACM_MSG_EP_LENGTH);
    let path = entry.and_then(|entry| Some(PathRecord::from_bytes(entry[8..].first_chunk()?)));
    let answer = Answer {
        id,
        tid: header.tid,
        opcode: header.opcode.0,
        status: header.status,
        path,
        length: header.length,
    };
    with_state(|state| state.answers.push(answer));
    0
}

unsafe extern "C" fn acm_resolve_response(id: u64, msg: *mut acm_msg) -> c_int {
    keep_answer(id, msg)
}

unsafe extern "C" fn acm_query_response(id: u64, msg: *mut acm_msg) -> c_int {
    keep_answer(id, msg)
}

/// Answers as for a speed that the core does not know.
unsafe extern "C" fn acm_get_rate(_width: u8, _speed: u8) -> ibv_rate {
    ibv_rate::IBV_RATE_MAX
}

unsafe extern "C" fn acm_convert_mtu(mtu: c_int) -> ibv_mtu {
    ibv_mtu(match mtu {
        256 => 1,
        512 => 2,
        1024 => 3,
        4096 => 5,
        _ => 4,
    })
}

unsafe extern "C" fn acm_convert_rate(_rate: c_int) -> ibv_rate {
    ibv_rate(3)
}

unsafe extern "C" fn acm_alloc_sa_mad(
    _endpoint: *const acm_endpoint,
    context: *mut c_void,
    handler: Option<acm_sa_handler_fn>,
) -> *mut acm_sa_mad {
    // SAFETY: an SA MAD of zeros is valid: bytes, integers, and a NULL context.
    let mad = acm_sa_mad {
        context,
        ..unsafe { std::mem::zeroed() }
    };
    with_state(|state| state.mads += 1);
    Box::into_raw(Box::new(TestMad { mad, handler })).cast()
}

unsafe extern "C" fn acm_free_sa_mad(mad: *mut acm_sa_mad) {
    with_state(|state| state.mads -= 1);
    // SAFETY: the provider frees each MAD once, and each is one of ours.
    drop(unsafe { Box::from_raw(mad.cast::<TestMad>()) });
}

unsafe extern "C" fn acm_send_sa_mad(mad: *mut acm_sa_mad) -> c_int {
    with_state(|state| {
        if state.refuse_mads {
            return -libc::EIO;
        }
        let sent = SentMad(mad.cast());
        let info = &mut state.class_port_info;
        let is_class_port_info =
            sent.packet().mad_hdr.attr_id.to_host() == UMAD_ATTR_CLASS_PORT_INFO;
        info.asked += usize::from(is_class_port_info);
        if is_class_port_info && !info.is_the_tests {
            info.unanswered.push_back(sent);
        } else {
            state.sent.push_back(sent);
        }
        0
    })
}

unsafe extern "C" fn ibv_query_port(
    _context: *mut ibv_context,
    _port_num: u8,
    attributes: *mut _compat_ibv_port_attr,
) -> c_int {
    // SAFETY: the provider passes room for the attributes.
    unsafe { attributes.write(with_state(|state| state.attributes)) };
    0
}

unsafe extern "C" fn ibv_query_pkey(
    _context: *mut ibv_context,
    _port_num: u8,
    index: c_int,
    pkey: *mut Be16,
) -> c_int {
    let found = with_state(|state| {
        usize::try_from(index)
            .ok()
            .and_then(|index| state.pkeys.get(index).copied())
    });
    match found {
        Some(found) => {
            // SAFETY: the provider passes room for a P_Key.
            unsafe { pkey.write(Be16::from_host(found)) };
            0
        }
        None => -1,
    }
}
