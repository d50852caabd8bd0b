//! A core for measurements: the functions that a provider calls, without ledger, recorder, trace or thread.
//!
//! It does little for a request, and the same for every provider, so that a timed loop measures the provider. Its SA knows
//! [`LIDS`] LIDs and any number of GUIDs behind them, and responds inside [`Core::pump`], on that thread. The core compares
//! every answer with the requested destination.
//!
//! A process has one core, which lives until the process ends.

mod answers;
mod sa;

use std::ffi::{CString, c_int, c_void};
use std::io;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use acm_prov_api::abi::{
    AcmEpType, Be64, acm_address, acm_device, acm_endpoint, acm_ep_info, acm_port, acm_provider,
    acm_sa_mad, ibv_event_type,
};

use super::fabric::{DeviceSpec, PortSpec, gid};
use super::message::{Addr, Gid, Message};
use super::{Refused, library::Library, library::LoadError, open_verbs};

pub use answers::Tally;

/// Highest LID of a destination; the lowest is 1.
pub const LIDS: u32 = 49_000;
/// The port's own LID; no destination has it.
pub const OWN_LID: u16 = 49_100;
/// GUID of destination 0; further destinations count up.
pub const FIRST_GUID: u64 = 0x0002_c903_0000_0000;
/// Number of destination GUIDs.
pub const GUIDS: u32 = 1 << 22;
/// The GUID of the port.
pub const OWN_GUID: u64 = 0x0010_0001;
const PKEY: u16 = 0xffff;

/// Number of log lines to keep.
const KEPT_LINES: usize = 20;

/// Returns the LID of a destination number; numbers from [`LIDS`] on share the LIDs of the first ones.
pub const fn lid_of(destination: u32) -> u16 {
    (1 + destination % LIDS) as u16
}

/// Returns the GUID of a destination.
pub const fn guid_of(destination: u32) -> u64 {
    FIRST_GUID + destination as u64
}

/// Returns the GID of a destination.
pub const fn gid_of(destination: u32) -> Gid {
    gid(guid_of(destination))
}

/// Highest log level that `acm_write` (write.c) formats.
pub(super) static LOG_LIMIT: AtomicI32 = AtomicI32::new(c_int::MAX);

static CURRENT: AtomicPtr<State> = AtomicPtr::new(std::ptr::null_mut());

/// Returns the measuring core of this process, if any.
#[inline]
pub(super) fn installed() -> Option<&'static State> {
    // SAFETY: NULL, or a state that is never freed.
    unsafe { CURRENT.load(Ordering::Acquire).as_ref() }
}

/// State of the exported functions.
pub(super) struct State {
    pub options_file: CString,
    gid: Gid,
    log: Mutex<Vec<String>>,
    counters: [AtomicU64; 7],
    answers: answers::Answers,
    sa: sa::Sa,
}

impl State {
    pub fn log(&self, level: c_int, text: &str) {
        let mut log = super::shared::lock(&self.log);
        if level <= 0 && log.len() < KEPT_LINES {
            log.push(text.trim_end().to_owned());
        }
    }

    pub fn count(&self, counter: c_int) {
        if let Some(counter) = usize::try_from(counter)
            .ok()
            .and_then(|index| self.counters.get(index))
        {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub fn gids(&self) -> [Gid; 1] {
        [self.gid]
    }
}

/// Durations of an open.
#[derive(Clone, Copy, Debug)]
pub struct Opened {
    /// From the first callback to the end of the last.
    pub all: Duration,
    /// The longest callback.
    pub longest: Duration,
}

/// The core, with one port of one device.
pub struct Core {
    state: &'static State,
    provider: &'static acm_provider,
    resolve: unsafe extern "C" fn(*mut c_void, *mut acm_prov_api::abi::acm_msg, u64) -> c_int,
    query: unsafe extern "C" fn(*mut c_void, *mut acm_prov_api::abi::acm_msg, u64) -> c_int,
    device: &'static acm_device,
    port: &'static acm_port,
    endpoint: &'static acm_endpoint,
    device_context: *mut c_void,
    port_context: *mut c_void,
    endpoint_context: *mut c_void,
    address_context: *mut c_void,
    name_context: *mut c_void,
    sequence: u64,
}

/// The SA of a [`Core`], for another thread.
#[derive(Clone, Copy)]
pub struct SaOfCore(&'static State);

impl SaOfCore {
    /// See [`Core::pump`].
    pub fn pump(self) -> usize {
        self.0.sa.pump()
    }

    /// Pumps until `stop` is set.
    pub fn pump_until(self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            if self.pump() == 0 {
                std::hint::spin_loop();
            }
        }
    }
}

/// State of a request when the callback returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// It is answered.
    Answered,
    /// It is not answered yet.
    Pending,
}

/// The local IPv4 address of the endpoint.
pub const OWN_IP: [u8; 4] = [10, 255, 255, 1];
/// The local name of the endpoint.
pub const OWN_NAME: &str = "bench-self";

impl Core {
    /// Sets up the core, writes these lines to ibacm_opts.cfg in `folder`, and loads the provider.
    ///
    /// # Errors
    /// Why the library is not accepted, or that the file cannot be written.
    ///
    /// # Panics
    /// If this process already has a core.
    pub fn load(
        library: &std::path::Path,
        options: &[String],
        folder: &std::path::Path,
    ) -> Result<Self, LoadError> {
        let file =
            write_options(folder, options).map_err(|error| LoadError::NoCore(error.to_string()))?;
        let spec = DeviceSpec {
            ports: vec![PortSpec::new(OWN_GUID, OWN_LID)],
            ..DeviceSpec::single()
        };
        let adapter = spec.adapter();
        fabric_sim::fabric::install(vec![adapter.clone()]);
        let verbs = open_verbs(1)[0];
        let path = CString::new(file.as_os_str().as_encoded_bytes())
            .map_err(|error| LoadError::NoCore(error.to_string()))?;
        let state: &'static State = Box::leak(Box::new(State {
            options_file: path,
            gid: gid(OWN_GUID),
            log: Mutex::default(),
            counters: Default::default(),
            answers: answers::Answers::default(),
            sa: sa::Sa::new(adapter),
        }));
        let before = CURRENT.swap(std::ptr::from_ref(state).cast_mut(), Ordering::Release);
        assert!(before.is_null(), "one core that measures, in a process");
        LOG_LIMIT.store(0, Ordering::Relaxed);
        let provider = Library::open_by_any_name(library)?.provider()?;
        let slots = provider.resolve.zip(provider.query);
        let (resolve, query) = slots.ok_or_else(|| LoadError::Refused("a slot is NULL".into()))?;
        let device: &'static acm_device = Box::leak(Box::new(acm_device {
            verbs,
            dev_guid: Be64::from_host(spec.node_guid),
        }));
        let port: &'static acm_port = Box::leak(Box::new(acm_port {
            dev: std::ptr::from_ref(device).cast_mut(),
            port_num: 1,
        }));
        let endpoint: &'static acm_endpoint = Box::leak(Box::new(acm_endpoint {
            port: std::ptr::from_ref(port).cast_mut(),
            pkey: PKEY,
        }));
        let none = std::ptr::null_mut();
        Ok(Self {
            state,
            provider,
            resolve,
            query,
            device,
            port,
            endpoint,
            device_context: none,
            port_context: none,
            endpoint_context: none,
            address_context: none,
            name_context: none,
            sequence: 0,
        })
    }

    /// Opens device, port and endpoint and adds a name and an IP address, as the core does when a port comes up.
    ///
    /// # Errors
    /// The callback that refused.
    pub fn open(&mut self) -> Result<Opened, Refused> {
        let begin = Instant::now();
        let mut longest = Duration::ZERO;
        let mut timed = |callback: &'static str, code: &mut dyn FnMut() -> c_int| {
            let begin = Instant::now();
            let code = code();
            longest = longest.max(begin.elapsed());
            match code {
                0 => Ok(()),
                code => Err(Refused { callback, code }),
            }
        };
        let provider = self.provider;
        let out = &raw mut self.device_context;
        timed("open_device", &mut || {
            // SAFETY: as acm_prov.h asks: a device that lives on, and a place for the context.
            slot(provider.open_device, |open| unsafe {
                open(self.device, out)
            })
        })?;
        let (device, out) = (self.device_context, &raw mut self.port_context);
        timed("open_port", &mut || {
            // SAFETY: see above; the context is the provider's own.
            slot(provider.open_port, |open| unsafe {
                open(self.port, device, out)
            })
        })?;
        let (port, out) = (self.port_context, &raw mut self.endpoint_context);
        timed("open_endpoint", &mut || {
            // SAFETY: see above.
            slot(provider.open_endpoint, |open| unsafe {
                open(self.endpoint, port, out)
            })
        })?;
        let endpoint = self.endpoint_context;
        let own = [
            (Addr::Name(OWN_NAME.into()), &raw mut self.name_context),
            (Addr::Ip(OWN_IP.into()), &raw mut self.address_context),
        ];
        for (addr, out) in own {
            let text = CString::new(addr.to_string()).unwrap_or_default();
            let address = acm_address {
                endpoint: std::ptr::from_ref(self.endpoint).cast_mut(),
                info: acm_ep_info { addr: addr.field() },
                id_string: text.as_ptr().cast_mut(),
                r#type: AcmEpType(addr.code()),
            };
            timed("add_address", &mut || {
                // SAFETY: see above; the address lives for the call.
                slot(provider.add_address, |add| unsafe {
                    add(&raw const address, endpoint, out)
                })
            })?;
        }
        Ok(Opened {
            all: begin.elapsed(),
            longest,
        })
    }

    /// Closes what [`open`](Self::open) opened, and returns the duration.
    pub fn close(&mut self) -> Duration {
        let begin = Instant::now();
        let provider = self.provider;
        let steps = [
            (provider.remove_address, &mut self.name_context),
            (provider.remove_address, &mut self.address_context),
            (provider.close_endpoint, &mut self.endpoint_context),
            (provider.close_port, &mut self.port_context),
            (provider.close_device, &mut self.device_context),
        ];
        for (close, context) in steps {
            let context = std::mem::replace(context, std::ptr::null_mut());
            if let (Some(close), false) = (close, context.is_null()) {
                // SAFETY: the provider's own context, closed once.
                unsafe { close(context) };
            }
        }
        begin.elapsed()
    }

    /// Returns the provider's name.
    pub fn provider_name(&self) -> std::borrow::Cow<'static, str> {
        // SAFETY: in a table that was accepted a terminated string that lives as long as the table.
        unsafe { std::ffi::CStr::from_ptr(self.provider.name) }.to_string_lossy()
    }

    /// Returns the port's own GID.
    pub fn gid(&self) -> Gid {
        self.state.gid
    }

    /// Stops responding to path queries.
    pub fn hold_path_queries(&self) {
        self.state.sa.holds_paths.store(true, Ordering::Relaxed);
    }

    /// Sends the provider `IBV_EVENT_CLIENT_REREGISTER`.
    pub fn reregister(&mut self) {
        let event = ibv_event_type::CLIENT_REREGISTER;
        // SAFETY: the provider's own context of an open port.
        slot(self.provider.handle_event, |handle| unsafe {
            handle(self.port_context, event)
        });
    }

    /// Sends a request for the path to a destination; the core compares the answer with its number.
    #[inline]
    pub fn ask(&mut self, message: &mut Message, client: u64, destination: u32) -> Asked {
        let tid = self.next_tid(message, destination);
        self.state.answers.expect(tid);
        // SAFETY: a message of 592 bytes and the context of an open address, as acm_prov.h asks.
        let code = unsafe {
            (self.resolve)(
                self.address_context,
                std::ptr::from_mut(message).cast(),
                client,
            )
        };
        if code != 0 {
            self.state.answers.returned_an_error();
        }
        match self.state.answers.is_answered(tid) {
            true => Asked::Answered,
            false => Asked::Pending,
        }
    }

    /// Sends a query for the path to a destination.
    pub fn query(&mut self, message: &mut Message, client: u64, destination: u32) {
        self.next_tid(message, destination);
        // SAFETY: see `ask`.
        let code = unsafe {
            (self.query)(
                self.address_context,
                std::ptr::from_mut(message).cast(),
                client,
            )
        };
        if code != 0 {
            self.state.answers.returned_an_error();
        }
    }

    #[inline]
    fn next_tid(&mut self, message: &mut Message, destination: u32) -> u64 {
        self.sequence += 1;
        let tid = self.sequence << 32 | u64::from(destination);
        message.0[8..16].copy_from_slice(&tid.to_ne_bytes());
        tid
    }

    /// Whether the last request has its answer.
    #[inline]
    pub fn is_answered(&self) -> bool {
        self.state.answers.last_is_answered()
    }

    /// Returns the DLID of the last answer. If the caller derives the next destination from it, each request depends on the
    /// previous answer, as in a daemon.
    #[inline]
    pub fn last_dlid(&self) -> u32 {
        self.state.answers.last_dlid()
    }

    /// Responds to all outstanding queries on this thread, and returns their number.
    #[inline]
    pub fn pump(&self) -> usize {
        self.state.sa.pump()
    }

    /// Returns a handle to the SA for another thread.
    pub fn sa(&self) -> SaOfCore {
        SaOfCore(self.state)
    }

    /// Returns the counts of wrong, refused and late answers.
    pub fn tally(&self) -> Tally {
        self.state.answers.tally()
    }

    /// Returns the number of path queries that the SA answered.
    pub fn path_queries(&self) -> usize {
        self.state.sa.path_queries.load(Ordering::Relaxed)
    }

    /// Returns the first log lines of level 0.
    pub fn log(&self) -> Vec<String> {
        super::shared::lock(&self.state.log).clone()
    }
}

/// Calls a slot of the table. A NULL slot succeeds without effect, where the real core would crash.
fn slot<F>(slot: Option<F>, call: impl FnOnce(F) -> c_int) -> c_int {
    slot.map_or(0, call)
}

fn write_options(folder: &std::path::Path, options: &[String]) -> io::Result<PathBuf> {
    let path = folder.join("ibacm_opts.cfg");
    std::fs::write(&path, options.join("\n") + "\n")
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    Ok(path)
}

/// The exported functions of the measuring core.
impl State {
    /// # Safety
    /// `msg` is a message of the length that it states.
    #[inline]
    pub unsafe fn resolved(&self, msg: *const acm_prov_api::abi::acm_msg) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { self.answers.take(msg.cast()) };
        0
    }

    pub fn alloc_mad(
        &self,
        context: *mut c_void,
        handler: Option<acm_prov_api::abi::acm_sa_handler_fn>,
    ) -> *mut acm_sa_mad {
        sa::alloc(context, handler)
    }

    /// # Safety
    /// `mad` is one of [`alloc_mad`](Self::alloc_mad), not freed and not with the core.
    pub unsafe fn free_mad(&self, mad: *mut acm_sa_mad) {
        // SAFETY: the caller's promise.
        unsafe { sa::free(mad) };
    }

    pub fn send_mad(&self, mad: *mut acm_sa_mad) -> c_int {
        self.sa.send(mad);
        0
    }
}

/// A counter for display.
#[derive(Default)]
struct Count(AtomicUsize);

impl Count {
    #[inline]
    fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}
