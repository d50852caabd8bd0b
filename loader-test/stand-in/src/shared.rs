//! State shared by the exported functions, the SA thread and the checks.

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use acm_prov_api::ProviderFault;
use acm_prov_api::abi::{acm_endpoint, acm_port, acm_sa_handler_fn, acm_sa_mad};

use super::clock::Stopwatch;
use super::complaints::is_complaint;
use super::leaks;
use super::ledger::{CONNECTION_LOST, Harmed, Ledger, MadState, ViolationKind, callback_limit};
use super::message::{Gid, Kind, Reply};
use super::recorder::{self, Recorder, printable};
use super::right::Expected;
use super::sa::SaThread;
use super::subnet::Subnet;

/// Fill byte of a freed MAD.
const POISON: u8 = 0xdb;

/// An open endpoint; the core finds it by address.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownEndpoint {
    pub port: usize,
    pub open: bool,
}

/// A MAD's allocation.
#[derive(Clone, Copy)]
struct Origin {
    handler: Option<acm_sa_handler_fn>,
    /// The endpoint's address.
    endpoint: usize,
    port: usize,
}

/// Failures of the core that a check can set.
#[derive(Clone, Copy, Debug, Default)]
pub struct MadFaults {
    /// `acm_alloc_sa_mad` returns NULL.
    pub no_memory: bool,
    /// `acm_send_sa_mad` fails.
    pub refuse: bool,
    /// Number of the only call, from 0, that fails; `None` for all.
    pub only_call: Option<usize>,
}

/// ibacm_opts.cfg.
pub(super) struct OptionsFile {
    /// The path that the provider gets.
    pub path: CString,
    /// The configured log level.
    pub log_level: c_int,
    /// Its lines: name and value.
    pub lines: Vec<(String, String)>,
}

/// The shared state of one core.
pub(super) struct Shared {
    pub ledger: Arc<Mutex<Ledger>>,
    pub sa: SaThread,
    pub options_file: CString,
    pub log_level: c_int,
    lines: Mutex<Vec<(c_int, String)>>,
    /// The lines of the options file, and the provider's complaints about them.
    options: Vec<(String, String)>,
    complaints: Mutex<Vec<String>>,
    counters: Mutex<[u64; 7]>,
    gids: Mutex<HashMap<usize, Vec<Gid>>>,
    pub endpoints: Mutex<HashMap<usize, KnownEndpoint>>,
    origins: Mutex<HashMap<usize, Origin>>,
    pub mad_faults: Mutex<MadFaults>,
    mad_calls: Mutex<(usize, usize)>,
    replied: Condvar,
    pub recorder: Arc<Recorder>,
    /// The SA's records.
    pub subnet: Arc<Mutex<Subnet>>,
    deadline: Mutex<Duration>,
    /// How often the subnet has changed.
    subnet_changes: AtomicU64,
    /// Whether the ledger judges every answered path.
    pub judges_answers: AtomicBool,
    /// First client id and first transaction id of this core; lower ones belong to an earlier core.
    first_client: u64,
    first_tid: u64,
}

/// The id of the next client of any core in this process, and the transaction id of its request.
static NEXT_CLIENT: AtomicU64 = AtomicU64::new(1);
const FIRST_TID: u64 = 0x5a5a_0000_0000_0001;
static NEXT_TID: AtomicU64 = AtomicU64::new(FIRST_TID);

pub(super) fn next_client() -> u64 {
    NEXT_CLIENT.fetch_add(1, Ordering::Relaxed)
}

/// Different in both halves from that of every other request.
pub(super) fn next_tid() -> u64 {
    NEXT_TID.fetch_add(0x0000_0001_0000_0001, Ordering::Relaxed)
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub fn new(
        ledger: Arc<Mutex<Ledger>>,
        sa: SaThread,
        options: OptionsFile,
        recorder: Arc<Recorder>,
        subnet: Arc<Mutex<Subnet>>,
        deadline: Duration,
    ) -> Self {
        Self {
            ledger,
            sa,
            options_file: options.path,
            log_level: options.log_level,
            lines: Mutex::default(),
            options: options.lines,
            complaints: Mutex::default(),
            counters: Mutex::default(),
            gids: Mutex::default(),
            endpoints: Mutex::default(),
            origins: Mutex::default(),
            mad_faults: Mutex::default(),
            mad_calls: Mutex::default(),
            replied: Condvar::new(),
            recorder,
            subnet,
            deadline: Mutex::new(deadline),
            subnet_changes: AtomicU64::new(0),
            judges_answers: AtomicBool::new(false),
            first_client: NEXT_CLIENT.load(Ordering::Relaxed),
            first_tid: NEXT_TID.load(Ordering::Relaxed),
        }
    }

    /// Changes the SA's records.
    pub fn change_subnet(&self, change: impl FnOnce(&mut Subnet)) {
        change(&mut lock(&self.subnet));
        self.subnet_changes.fetch_add(1, Ordering::Relaxed);
    }

    pub fn subnet_changes(&self) -> u64 {
        self.subnet_changes.load(Ordering::Relaxed)
    }

    pub fn deadline(&self) -> Duration {
        *lock(&self.deadline)
    }

    pub fn set_deadline(&self, deadline: Duration) {
        *lock(&self.deadline) = deadline;
        lock(&self.ledger).set_deadline(deadline);
    }

    /// Records the end of a callback.
    pub fn callback_over(&self, callback: &'static str, watch: &Stopwatch) {
        let too_long = watch.longer_than(callback_limit(callback));
        lock(&self.ledger).callback_over(callback, too_long);
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
        if level <= 0 && is_complaint(text, &self.options) {
            lock(&self.complaints).push(printable(text));
        }
        if level <= self.log_level {
            lock(&self.lines).push((level, text.trim_end_matches('\n').to_owned()));
        }
    }

    /// Records a fault that the SDK hid from the core.
    pub fn fault(&self, fault: ProviderFault, text: &str) {
        self.trace("acm_provider_fault", || format!("{} {text:?}", fault.0));
        let kind = match fault {
            ProviderFault::CAUGHT_PANIC => ViolationKind::CaughtPanic,
            ProviderFault::DROPPED_REQUEST => ViolationKind::DroppedRequest,
            // A kind that a newer SDK knows. The log has the text.
            _ => return,
        };
        lock(&self.ledger).breach(kind, Harmed::Client, printable(text));
    }

    pub fn complaints(&self) -> Vec<String> {
        lock(&self.complaints).clone()
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
                        format!("the core itself counts counter {index}, which now counts twice"),
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
        if self.is_of_an_earlier_core(id, reply.tid) {
            return CONNECTION_LOST;
        }
        self.judge(id, &reply);
        let code = lock(&self.ledger).answered(id, reply, by);
        self.replied.notify_all();
        code
    }

    /// Judges the path of an answer by the SA, unless the subnet changed after the request.
    fn judge(&self, id: u64, reply: &Reply) {
        let Some(path) = reply.path().filter(|_| reply.status == 0) else {
            return;
        };
        let wanted = lock(&self.ledger)
            .requests
            .get(&id)
            .and_then(|request| request.wanted);
        let Some((asked, changes)) = wanted else {
            return;
        };
        if !self.judges_answers.load(Ordering::Relaxed) || changes != self.subnet_changes() {
            return;
        }
        let expected = Expected::new(asked, lock(&self.subnet).clone());
        if !expected.is_met_by(&path) {
            lock(&self.ledger).breach(
                ViolationKind::WrongAnswer,
                Harmed::Client,
                format!("client {id} got {path:?} instead of {expected}"),
            );
        }
    }

    /// Whether an answer is for a client of an earlier core in this process, which this ledger does not hold.
    fn is_of_an_earlier_core(&self, id: u64, tid: u64) -> bool {
        match id {
            0 => (FIRST_TID..self.first_tid).contains(&tid),
            id => id < self.first_client,
        }
    }

    /// Waits until `ready` returns a value for the ledger; `None` after the time limit.
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
        let Some(KnownEndpoint { port, .. }) = known.filter(|endpoint| endpoint.open) else {
            if !endpoint.is_null() {
                lock(&self.ledger).breach(
                    ViolationKind::MadForClosedEndpoint,
                    Harmed::Daemon,
                    format!(
                        "acm_alloc_sa_mad for a closed endpoint, on thread {}: the core has freed the endpoint",
                        thread_name()
                    ),
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
        let endpoint = endpoint.addr();
        lock(&self.origins).insert(
            address,
            Origin {
                handler,
                endpoint,
                port,
            },
        );
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
                "acm_free_sa_mad for a MAD that the core has: the core writes the response to freed memory",
            ),
            Some(MadState::Freed) | None => ledger.breach(
                ViolationKind::MadFreedTwice,
                Harmed::Daemon,
                "acm_free_sa_mad for a MAD that was already freed or never allocated: this corrupts the heap",
            ),
        }
    }

    pub fn send_mad(&self, mad: *mut acm_sa_mad) -> c_int {
        let call = next(&mut lock(&self.mad_calls).1);
        let known = lock(&self.origins).get(&mad.addr()).copied();
        self.trace("acm_send_sa_mad", || match known {
            Some(_) => format!("{mad:p}: {}", super::sa::describe(mad)),
            None => format!("{mad:p}"),
        });
        let Some(origin) = known else {
            lock(&self.ledger).breach(
                ViolationKind::MadSentTwice,
                Harmed::Daemon,
                "acm_send_sa_mad for memory that acm_alloc_sa_mad did not allocate",
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
        if !self.is_open(origin.endpoint) {
            let mut ledger = lock(&self.ledger);
            ledger.breach(
                ViolationKind::MadForClosedEndpoint,
                Harmed::Daemon,
                format!(
                    "acm_send_sa_mad after close_endpoint, on thread {}: the daemon follows the endpoint's freed memory",
                    thread_name()
                ),
            );
            // After a failed send the MAD still belongs to the provider.
            ledger.mads.insert(mad.addr(), MadState::Given);
            return -libc::EINVAL;
        }
        self.sa.send(origin.port, mad.addr(), origin.handler);
        0
    }

    fn is_open(&self, endpoint: usize) -> bool {
        lock(&self.endpoints)
            .get(&endpoint)
            .is_some_and(|known| known.open)
    }

    /// Removes completed requests and freed MADs from the ledger.
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
        let mut origins = lock(&self.origins);
        for address in freed {
            origins.remove(&address);
            let mad = std::ptr::with_exposed_provenance_mut::<acm_sa_mad>(address);
            // SAFETY: made by `Box::into_raw` in `alloc_mad`, freed by the provider, and in no ledger any more.
            drop(unsafe { Box::from_raw(mad) });
        }
        lock(&self.endpoints).retain(|_, endpoint| endpoint.open);
    }

    /// Records a violation for each freed MAD that was written to.
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

/// Returns the name of the current thread.
fn thread_name() -> String {
    let name = std::fs::read_to_string("/proc/thread-self/comm").unwrap_or_default();
    format!("{:?}", name.trim_end())
}

fn next(count: &mut usize) -> usize {
    *count += 1;
    *count - 1
}
