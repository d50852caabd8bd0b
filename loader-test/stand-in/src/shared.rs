//! What the exported functions, the SA thread and the checks share.

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use acm_prov_api::abi::{acm_endpoint, acm_port, acm_sa_handler_fn, acm_sa_mad};
use acm_prov_api::{CAUGHT_PANIC, DROPPED_REQUEST};

use super::leaks;
use super::ledger::{Harmed, Ledger, MadState, ViolationKind};
use super::message::{Gid, Kind, Reply};
use super::recorder::{self, Recorder, printable};
use super::sa::SaThread;
use super::subnet::Subnet;

/// What a MAD is filled with when it was freed: 256 bytes and more of it.
const POISON: u8 = 0xdb;

/// An endpoint as the core knows it by address.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownEndpoint {
    pub port: usize,
    pub open: bool,
}

/// Failures of the core that a check can order.
#[derive(Clone, Copy, Debug, Default)]
pub struct MadFaults {
    /// `acm_alloc_sa_mad` gives NULL.
    pub no_memory: bool,
    /// `acm_send_sa_mad` refuses.
    pub refuse: bool,
    /// The only call, from 0, to which the above apply; all if `None`.
    pub only_call: Option<usize>,
}

/// See the module.
pub(super) struct Shared {
    pub ledger: Arc<Mutex<Ledger>>,
    pub sa: SaThread,
    pub options_file: CString,
    pub log_level: c_int,
    lines: Mutex<Vec<(c_int, String)>>,
    counters: Mutex<[u64; 7]>,
    gids: Mutex<HashMap<usize, Vec<Gid>>>,
    pub endpoints: Mutex<HashMap<usize, KnownEndpoint>>,
    handlers: Mutex<HashMap<usize, (Option<acm_sa_handler_fn>, usize)>>,
    pub mad_faults: Mutex<MadFaults>,
    mad_calls: Mutex<(usize, usize)>,
    replied: Condvar,
    pub recorder: Arc<Recorder>,
    /// What the SA knows.
    pub subnet: Arc<Mutex<Subnet>>,
    /// `timeout` x (`retries` + 1).
    pub time_out: Duration,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub fn new(
        ledger: Arc<Mutex<Ledger>>,
        sa: SaThread,
        options_file: CString,
        log_level: c_int,
        recorder: Arc<Recorder>,
        subnet: Arc<Mutex<Subnet>>,
        time_out: Duration,
    ) -> Self {
        Self {
            ledger,
            sa,
            options_file,
            log_level,
            lines: Mutex::default(),
            counters: Mutex::default(),
            gids: Mutex::default(),
            endpoints: Mutex::default(),
            handlers: Mutex::default(),
            mad_faults: Mutex::default(),
            mad_calls: Mutex::default(),
            replied: Condvar::new(),
            recorder,
            subnet,
            time_out,
        }
    }

    pub fn trace(&self, name: &str, arguments: impl FnOnce() -> String) {
        self.recorder.event(name, arguments);
    }

    pub fn mad_calls(&self) -> (usize, usize) {
        *lock(&self.mad_calls)
    }

    pub fn log(&self, level: c_int, text: &str) {
        self.trace("acm_write", || format!("{level} {text:?}"));
        if recorder::keeps(level) {
            self.recorder.log(text);
        }
        if level <= 0 {
            self.look_for_faults(text);
        }
        if level <= self.log_level {
            lock(&self.lines).push((level, text.trim_end_matches('\n').to_owned()));
        }
    }

    /// What the SDK says of its provider when it has kept a fault from the core.
    fn look_for_faults(&self, text: &str) {
        if text.contains(CAUGHT_PANIC) {
            lock(&self.ledger).breach(
                ViolationKind::CaughtPanic,
                Harmed::Client,
                format!("the log says: {}", printable(text)),
            );
        }
        if text.contains(DROPPED_REQUEST) {
            lock(&self.ledger).breach(
                ViolationKind::DroppedRequest,
                Harmed::Client,
                format!("the log says: {}", printable(text)),
            );
        }
    }

    pub fn lines(&self) -> Vec<(c_int, String)> {
        lock(&self.lines).clone()
    }

    pub fn copy_text(&self, text: &str, to: *mut c_char, size: usize) {
        let length = text.len().min(size.saturating_sub(1));
        // SAFETY: the provider says that there is room for `size` bytes.
        unsafe {
            text.as_ptr()
                .cast::<c_char>()
                .copy_to_nonoverlapping(to, length);
            if size > 0 {
                to.add(length).write(0);
            }
        }
    }

    pub fn count(&self, counter: c_int) {
        self.trace("acm_increment_counter", || counter.to_string());
        match usize::try_from(counter).ok().filter(|index| *index < 7) {
            Some(index) => {
                lock(&self.counters)[index] += 1;
                if index < 3 {
                    lock(&self.ledger).breach(
                        ViolationKind::CoreCounter,
                        Harmed::Operator,
                        format!(
                            "counter {index} is counted by the core itself: it now counts double"
                        ),
                    );
                }
            }
            None => lock(&self.ledger).breach(
                ViolationKind::UnknownCounter,
                Harmed::Operator,
                format!("counter {counter} does not exist"),
            ),
        }
    }

    pub fn count_of_core(&self, index: usize) {
        lock(&self.counters)[index] += 1;
    }

    pub fn counters(&self) -> [u64; 7] {
        *lock(&self.counters)
    }

    pub fn set_gids(&self, port: *const acm_port, gids: Vec<Gid>) {
        lock(&self.gids).insert(port.addr(), gids);
    }

    pub fn gids(&self, port: *const acm_port) -> Vec<Gid> {
        lock(&self.gids)
            .get(&port.addr())
            .cloned()
            .unwrap_or_default()
    }

    pub fn answered(&self, id: u64, reply: Reply, by: Kind) -> c_int {
        let name = match by {
            Kind::Resolve => "acm_resolve_response",
            Kind::Query => "acm_query_response",
        };
        self.trace(name, || format!("client {id}: {reply:?}"));
        if by == Kind::Resolve {
            match reply.status {
                0 => {}
                3 => self.count_of_core(2),
                _ => self.count_of_core(0),
            }
        }
        let code = lock(&self.ledger).answered(id, reply, by);
        self.replied.notify_all();
        code
    }

    /// Waits until `ready` sees what it wants in the books; `None` when that does not come.
    pub fn wait<R>(
        &self,
        patience: Duration,
        mut ready: impl FnMut(&Ledger) -> Option<R>,
    ) -> Option<R> {
        let deadline = Instant::now() + patience;
        let mut ledger = lock(&self.ledger);
        loop {
            if let Some(result) = ready(&ledger) {
                return Some(result);
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            ledger = self
                .replied
                .wait_timeout(ledger, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    pub fn alloc_mad(
        &self,
        endpoint: *const acm_endpoint,
        context: *mut c_void,
        handler: Option<acm_sa_handler_fn>,
    ) -> *mut acm_sa_mad {
        let call = next(&mut lock(&self.mad_calls).0);
        self.trace("acm_alloc_sa_mad", || {
            format!("endpoint {endpoint:p}, context {context:p}")
        });
        let known = lock(&self.endpoints).get(&endpoint.addr()).copied();
        let Some(endpoint) = known.filter(|endpoint| endpoint.open) else {
            if !endpoint.is_null() {
                lock(&self.ledger).breach(
                    ViolationKind::MadForClosedEndpoint,
                    Harmed::Daemon,
                    "acm_alloc_sa_mad for an endpoint that is closed: its memory is freed by then",
                );
            }
            return std::ptr::null_mut();
        };
        let faults = *lock(&self.mad_faults);
        if faults.no_memory && faults.only_call.is_none_or(|only| only == call) {
            return std::ptr::null_mut();
        }
        // SAFETY: an SA MAD of zeros is valid: bytes, integers, and a NULL context.
        let mad: acm_sa_mad = unsafe { std::mem::zeroed() };
        let mad = leaks::own(|| Box::into_raw(Box::new(acm_sa_mad { context, ..mad })));
        let address = mad.expose_provenance();
        lock(&self.ledger).mads.insert(address, MadState::Given);
        lock(&self.handlers).insert(address, (handler, endpoint.port));
        mad
    }

    pub fn free_mad(&self, mad: *mut acm_sa_mad) {
        self.trace("acm_free_sa_mad", || format!("{mad:p}"));
        let mut ledger = lock(&self.ledger);
        match ledger.mads.get(&mad.addr()).copied() {
            Some(MadState::Given | MadState::Returned) => {
                ledger.mads.insert(mad.addr(), MadState::Freed);
                // SAFETY: one of our MADs, which is kept until the process ends, so that a late write is seen.
                unsafe { mad.cast::<u8>().write_bytes(POISON, size_of::<acm_sa_mad>()) };
            }
            Some(MadState::Sent) => ledger.breach(
                ViolationKind::MadFreedInFlight,
                Harmed::Daemon,
                "acm_free_sa_mad for a MAD that the core has: it writes the answer to freed memory",
            ),
            Some(MadState::Freed) | None => ledger.breach(
                ViolationKind::MadFreedTwice,
                Harmed::Daemon,
                "acm_free_sa_mad for a MAD that was freed before, or never given out: the heap is damaged",
            ),
        }
    }

    pub fn send_mad(&self, mad: *mut acm_sa_mad) -> c_int {
        let call = next(&mut lock(&self.mad_calls).1);
        let known = lock(&self.handlers).get(&mad.addr()).copied();
        self.trace("acm_send_sa_mad", || match known {
            Some(_) => format!("{mad:p}: {}", super::sa::describe(mad)),
            None => format!("{mad:p}"),
        });
        let Some((handler, port)) = known else {
            lock(&self.ledger).breach(
                ViolationKind::MadSentTwice,
                Harmed::Daemon,
                "acm_send_sa_mad for memory that acm_alloc_sa_mad did not give out",
            );
            return -libc::EINVAL;
        };
        let faults = *lock(&self.mad_faults);
        if faults.refuse && faults.only_call.is_none_or(|only| only == call) {
            return -libc::EIO;
        }
        {
            let mut ledger = lock(&self.ledger);
            match ledger.mads.insert(mad.addr(), MadState::Sent) {
                Some(MadState::Given) => {}
                Some(state) => {
                    ledger.breach(
                        ViolationKind::MadSentTwice,
                        Harmed::Daemon,
                        format!("acm_send_sa_mad for a MAD that is {state:?}"),
                    );
                    return 0;
                }
                None => return -libc::EINVAL,
            }
        }
        self.sa.send(port, mad.addr(), handler);
        0
    }

    /// Empties the books of what is over.
    pub fn forget_history(&self) {
        self.check_freed_mads();
        lock(&self.lines).clear();
        let mut ledger = lock(&self.ledger);
        ledger
            .requests
            .retain(|_, request| request.replies.is_empty());
        let freed: Vec<usize> = ledger
            .mads
            .extract_if(|_, state| *state == MadState::Freed)
            .map(|(address, _)| address)
            .collect();
        let mut handlers = lock(&self.handlers);
        for address in freed {
            handlers.remove(&address);
            let mad = std::ptr::with_exposed_provenance_mut::<acm_sa_mad>(address);
            // SAFETY: made by `Box::into_raw` in `alloc_mad`, freed by the provider, and in no book any more.
            drop(unsafe { Box::from_raw(mad) });
        }
        lock(&self.endpoints).retain(|_, endpoint| endpoint.open);
    }

    /// Freed MADs that somebody wrote to since.
    pub fn check_freed_mads(&self) {
        let mut ledger = lock(&self.ledger);
        let freed: Vec<usize> = ledger
            .mads
            .iter()
            .filter(|(_, state)| **state == MadState::Freed)
            .map(|(address, _)| *address)
            .collect();
        for address in freed {
            let bytes = std::ptr::with_exposed_provenance::<[u8; size_of::<acm_sa_mad>()]>(address);
            // SAFETY: MADs are kept until the process ends.
            if unsafe { *bytes } != [POISON; size_of::<acm_sa_mad>()] {
                ledger.breach(
                    ViolationKind::MadUsedAfterFree,
                    Harmed::Daemon,
                    "a MAD was written to after it was freed",
                );
            }
        }
    }
}

fn next(count: &mut usize) -> usize {
    *count += 1;
    *count - 1
}
