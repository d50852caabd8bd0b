//! The SA of the measuring core: it responds on the thread that calls `pump`.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use acm_prov_api::abi::{Be16, acm_sa_handler_fn, acm_sa_mad};
use fabric_sim::model::adapter::Adapter;

use super::super::message::Path;
use super::super::sa::{self, COMP_DGID, COMP_DLID, COMP_PKEY, MC_MEMBER_RECORD, SaRequest};
use super::super::shared::lock;
use super::super::subnet::{NO_RECORDS, Subnet};
use super::super::{FIRST_PORT, wire};
use super::{FIRST_GUID, GUIDS, LIDS, OWN_LID, PKEY, gid_of, lid_of};

/// A MAD and its allocation. The provider uses only the first field.
#[repr(C)]
struct Mad {
    mad: acm_sa_mad,
    handler: Option<acm_sa_handler_fn>,
}

pub(super) fn alloc(context: *mut c_void, handler: Option<acm_sa_handler_fn>) -> *mut acm_sa_mad {
    // SAFETY: an SA MAD of zeros is valid: bytes, integers, and a NULL context.
    let mad: acm_sa_mad = unsafe { std::mem::zeroed() };
    let mad = acm_sa_mad { context, ..mad };
    Box::into_raw(Box::new(Mad { mad, handler })).cast()
}

/// # Safety
/// `mad` is one of [`alloc`]'s, not freed yet.
pub(super) unsafe fn free(mad: *mut acm_sa_mad) {
    // SAFETY: the caller's promise; the MAD is the first field of what was allocated.
    drop(unsafe { Box::from_raw(mad.cast::<Mad>()) });
}

/// The SA and its queue.
pub(super) struct Sa {
    adapters: [Arc<Adapter>; 1],
    subnet: Subnet,
    /// Addresses of sent MADs.
    queue: Mutex<VecDeque<usize>>,
    waiting: AtomicUsize,
    pub path_queries: AtomicUsize,
    pub holds_paths: AtomicBool,
}

impl Sa {
    pub fn new(adapter: Arc<Adapter>) -> Self {
        Self {
            adapters: [adapter],
            subnet: Subnet::default(),
            queue: Mutex::default(),
            waiting: AtomicUsize::new(0),
            path_queries: AtomicUsize::new(0),
            holds_paths: AtomicBool::new(false),
        }
    }

    pub fn send(&self, mad: *mut acm_sa_mad) {
        lock(&self.queue).push_back(mad.expose_provenance());
        self.waiting.fetch_add(1, Ordering::Release);
    }

    /// Responds to all sent MADs, including those that the provider sends meanwhile.
    #[inline]
    pub fn pump(&self) -> usize {
        match self.waiting.load(Ordering::Acquire) {
            0 => 0,
            _ => self.answer_all(),
        }
    }

    fn answer_all(&self) -> usize {
        let mut answered = 0;
        loop {
            let Some(address) = lock(&self.queue).pop_front() else {
                return answered;
            };
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            self.answer(std::ptr::with_exposed_provenance_mut(address));
            answered += 1;
        }
    }

    fn answer(&self, mad: *mut Mad) {
        // SAFETY: the provider has sent the MAD; it is the core's until the handler gets it.
        let (packet, handler) = unsafe { (&mut (*mad).mad.sa_mad, (*mad).handler) };
        let query = SaRequest {
            number: 0,
            port: FIRST_PORT.number(),
            class: packet.mad_hdr.mgmt_class,
            method: packet.mad_hdr.method,
            attribute: packet.mad_hdr.attr_id.to_host(),
            tid: packet.mad_hdr.tid.to_host(),
            mask: packet.comp_mask.to_host(),
            record: std::array::from_fn(|index| packet.data[index]),
            sent: self.now(),
        };
        if query.is_path_query() && self.holds_paths.load(Ordering::Relaxed) {
            return;
        }
        let answer = if query.is_path_query() {
            self.path_queries.fetch_add(1, Ordering::Relaxed);
            path(&query).ok_or(NO_RECORDS)
        } else {
            super::super::answer(&query, &self.subnet).map(|data| {
                let mut record = [0; 72];
                record[..data.len()].copy_from_slice(&data);
                if let (MC_MEMBER_RECORD, Some(member)) = (query.attribute, record.first_chunk()) {
                    wire::change_membership(&self.adapters, &query, member);
                }
                record
            })
        };
        packet.mad_hdr.method = sa::response_to(query.method);
        match answer {
            Ok(record) => packet.data[..record.len()].copy_from_slice(&record),
            Err(status) => packet.mad_hdr.status = Be16::from_host(status),
        }
        if let Some(handler) = handler {
            // SAFETY: the core calls the handler with the MAD, which the handler then owns.
            unsafe { handler(mad.cast()) };
        }
    }

    /// Returns one time for all queries: nothing uses it, and reading the clock would cost time.
    fn now(&self) -> Instant {
        static BEGIN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        *BEGIN.get_or_init(Instant::now)
    }
}

/// The path to the destination of a query, if there is one.
fn path(query: &SaRequest) -> Option<[u8; 72]> {
    let asked = query.path();
    let names = |bit: u64| query.mask & bit != 0;
    let destination = if names(COMP_DGID) {
        let guid = asked.dgid().interface_id();
        u32::try_from(guid.checked_sub(FIRST_GUID)?)
            .ok()
            .filter(|number| *number < GUIDS)?
    } else {
        let number = u32::from(asked.dlid().checked_sub(1)?);
        (names(COMP_DLID) && number < LIDS).then_some(number)?
    };
    let path = Path::default()
        .with_dgid(gid_of(destination))
        .with_sgid(super::gid(super::OWN_GUID))
        .with_dlid(lid_of(destination))
        .with_slid(OWN_LID)
        .with_reversible_numpath(0x80)
        .with_pkey(if names(COMP_PKEY) { asked.pkey() } else { PKEY })
        .with_mtu(0x84)
        .with_rate(0x83)
        .with_lifetime(0x92);
    let mut record = [0; 72];
    record[..64].copy_from_slice(&path.0);
    Some(record)
}
