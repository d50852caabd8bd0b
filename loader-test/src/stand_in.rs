//! A core to play providers against: all that ibacm is to a provider, in this process, with books on everything.
//!
//! It does what the real core does (`acm.c` of rdma-core): the same order of calls on one thread, the same device and port
//! pointers at every open, endpoints and messages that are gone after the call, addresses in an array that moves, SA MADs
//! in a queue with `sa_depth` credits, answers matched by the low half of the transaction id. It trusts neither the
//! provider nor the SDK: it reads C memory by its own eyes ([`message`]), lends memory that faults when it is kept too long
//! ([`memory`]), and writes down every breach of the contract ([`ledger`]).
//!
//! The functions that a provider calls are exported by name; one core at a time is behind them.

pub mod fabric;
pub mod hide;
pub mod in_process;
pub mod ledger;
pub mod library;
pub mod memory;
pub mod message;
pub mod sa;
pub mod trace;

mod exports;
mod shared;

use std::ffi::{CString, c_char, c_int, c_void};
use std::path::{Path as FilePath, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use acm_prov_api::abi::{
    AcmEpType, Be64, acm_address, acm_device, acm_endpoint, acm_ep_info, acm_port, acm_provider,
    ibv_context, ibv_event_type,
};
use fabric_sim::model::adapter::Adapter;

use fabric::{DeviceSpec, PortSpec};
use ledger::{Harmed, Ledger, Request, Violation, ViolationKind};
use library::Library;
use memory::Lent;
use message::{Addr, FLAG_QUERY_SA, Gid, Kind, Message, PATH, Path, Reply};
use sa::{Question, SaThread};
use shared::{KnownEndpoint, Shared, lock};

pub use exports::FUNCTIONS;
pub use shared::MadFaults;

/// How the core is set up.
pub struct Setup {
    /// The devices of this node.
    pub devices: Vec<DeviceSpec>,
    /// Lines of ibacm_opts.cfg, without the end of the line. None: there is no such file.
    pub options: Vec<String>,
    /// Where the core's files are put; it must exist.
    pub folder: PathBuf,
    /// The file that a trace goes to.
    pub trace: Option<trace::Trace>,
}

/// A port of the core's, by device and port number from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId {
    /// Index of the device.
    pub device: usize,
    /// Number of the port.
    pub port: u8,
}

impl PortId {
    /// Its number over all devices, which is how the SA names it in a [`Question`].
    pub fn number(self) -> usize {
        self.device * 16 + usize::from(self.port)
    }
}

/// The first port of the first device.
pub const FIRST_PORT: PortId = PortId { device: 0, port: 1 };

struct Device {
    spec: DeviceSpec,
    adapter: Arc<Adapter>,
    acm: Lent<acm_device>,
    context: *mut c_void,
    /// Ports that use the provider's context.
    users: usize,
    ports: Vec<Port>,
}

struct Port {
    acm: Lent<acm_port>,
    is_up: bool,
    context: *mut c_void,
    endpoints: Vec<Endpoint>,
}

struct Endpoint {
    pkey: u16,
    acm: Lent<acm_endpoint>,
    context: *mut c_void,
    addresses: Vec<LocalAddress>,
    /// The array that the provider sees; it moves when it grows.
    array: Option<Lent<acm_address>>,
}

struct LocalAddress {
    addr: Addr,
    /// The text that `id_string` points to during the call.
    context: *mut c_void,
    valid: bool,
}

/// A callback that said no.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{callback} returned {code}")]
pub struct Refused {
    /// The callback.
    pub callback: &'static str,
    /// What it returned.
    pub code: c_int,
}

/// The core.
pub struct StandIn {
    shared: Arc<Shared>,
    provider: &'static acm_provider,
    devices: Vec<Device>,
    next_client: u64,
    next_tid: u64,
    /// How long a request may take before a check gives it up: the provider's own deadline and some more.
    pub patience: Duration,
    /// Device and port memory is inaccessible while it is closed. The real core's lives on, so a provider that uses it
    /// then harms nobody.
    pub hides_closed: bool,
}

/// Calls a slot of the provider's table and traces it, with what the arguments point to; a NULL slot is the caller's to
/// rule out.
macro_rules! call {
    ($core:expr, $slot:ident($($argument:expr),* $(,)?) $(, $($meaning:tt)+)?) => {{
        let callback = $core.provider.$slot.expect(concat!("slot ", stringify!($slot), " is not NULL"));
        $core.shared.trace_begin(stringify!($slot), || {
            let pointers = format!("{:?}", ($($argument,)*));
            $(let pointers = format!("{}; {pointers}", format_args!($($meaning)+));)?
            pointers
        });
        // SAFETY: the arguments are what acm_prov.h asks for. What the provider does with them is what is being tested.
        let result = unsafe { callback($($argument),*) };
        $core.shared.trace_end(stringify!($slot), || format!("{result:?}"));
        result
    }};
}

impl StandIn {
    /// The options that hold unless a check sets others: quick deadlines, hosts from a file of the peers.
    pub fn default_options(folder: &FilePath) -> Vec<String> {
        vec![
            "log_level 2".into(),
            "timeout 300".into(),
            "retries 1".into(),
            "addr_preload acm_hosts".into(),
            format!("addr_data_file {}", folder.join("hosts").display()),
        ]
    }

    /// Sets the core up, writes its files, and makes it the one behind the exported functions; then loads the provider.
    ///
    /// # Errors
    /// Why the library is not accepted.
    ///
    /// # Panics
    /// If the core's own files cannot be written.
    pub fn start(setup: Setup, library: &FilePath) -> Result<Self, library::LoadError> {
        let (shared, devices) = Self::prepare(setup);
        let provider = Library::open(library)?.provider()?;
        Ok(Self::with_provider(shared, devices, provider))
    }

    /// This core's functions as the SDK's table of host functions.
    pub fn host_table() -> &'static acm_prov_api::HostTable {
        static TABLE: acm_prov_api::HostTable = exports::host_table();
        &TABLE
    }

    /// Makes a core without a provider the one behind the exported functions: what a library meets that is only loaded.
    ///
    /// # Panics
    /// If the core's own files cannot be written.
    pub fn install_alone(setup: Setup) {
        let _ = Self::prepare(setup);
    }

    /// In a copy of a process that had a core, whose threads are not here: nothing of it is used or waited for any more.
    pub fn abandon_installed() {
        exports::abandon();
    }

    fn prepare(setup: Setup) -> (Arc<Shared>, Vec<Device>) {
        let Setup {
            devices,
            options,
            folder,
            trace,
        } = setup;
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            std::fs::write(&path, text)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            path
        };
        write("hosts", &fabric::hosts_file());
        let mut options_file = write("ibacm_opts.cfg", &(options.join("\n") + "\n"));
        if options.is_empty() {
            options_file = folder.join("no such file");
        }
        let number = |key: &str, default: u64| {
            options
                .iter()
                .rev()
                .filter_map(|line| line.split_once(' '))
                .find_map(|(name, value)| {
                    if name == key {
                        value.trim().parse().ok()
                    } else {
                        None
                    }
                })
                .unwrap_or(default)
        };
        let trace = trace.map(Arc::new);
        let ledger = Arc::new(Mutex::new(Ledger::default()));
        let time_out = Duration::from_millis(number("timeout", 2000) * (number("retries", 2) + 1));
        let specs: Vec<PortSpec> = devices
            .iter()
            .flat_map(|device| device.ports.clone())
            .collect();
        let known = Arc::new(Mutex::new(specs));
        let knowledge = Arc::clone(&known);
        let sa = SaThread::start(
            Arc::clone(&ledger),
            number("sa_depth", 1) as usize,
            time_out,
            Box::new(move |question| answer(question, &lock(&knowledge))),
            trace.clone(),
        );
        let options_file =
            CString::new(options_file.as_os_str().as_encoded_bytes()).expect("a path has no NUL");
        let shared = Shared::new(
            ledger,
            sa,
            options_file,
            number("log_level", 0) as c_int,
            trace,
            known,
            time_out,
        );
        let shared = Arc::new(shared);
        exports::install(&shared);
        let adapters: Vec<Arc<Adapter>> = devices.iter().map(DeviceSpec::adapter).collect();
        fabric_sim::fabric::install(adapters.clone());
        let contexts = open_verbs(adapters.len());
        let devices = devices
            .into_iter()
            .zip(adapters)
            .zip(contexts)
            .map(|((spec, adapter), verbs)| Device::new(spec, adapter, verbs))
            .collect();
        (shared, devices)
    }

    fn with_provider(
        shared: Arc<Shared>,
        devices: Vec<Device>,
        provider: &'static acm_provider,
    ) -> Self {
        let patience = shared.time_out * 3 + Duration::from_secs(5);
        Self {
            shared,
            provider,
            devices,
            next_client: 1,
            next_tid: 0x5a5a_0000_0000_0001,
            patience,
            hides_closed: false,
        }
    }

    /// The provider's table.
    pub fn provider(&self) -> &'static acm_provider {
        self.provider
    }

    /// The provider's name.
    pub fn provider_name(&self) -> Option<String> {
        let name = self.provider.name;
        if name.is_null() {
            return None;
        }
        // SAFETY: in a table that was accepted a terminated string that lives as long as the table.
        let name = unsafe { std::ffi::CStr::from_ptr(name) };
        Some(name.to_string_lossy().into_owned())
    }

    /// The SA.
    pub fn sa(&self) -> &SaThread {
        &self.shared.sa
    }

    /// `timeout` × (`retries` + 1): the deadline that the options set.
    pub fn deadline(&self) -> Duration {
        self.shared.time_out
    }

    /// The log so far: level and text.
    pub fn log(&self) -> Vec<(c_int, String)> {
        self.shared.lines()
    }

    /// The core's own set of counters, in the order of acm.h.
    pub fn counters(&self) -> [u64; 7] {
        self.shared.counters()
    }

    /// Orders failures of the core's MAD functions.
    pub fn fail_mads(&self, faults: MadFaults) {
        *lock(&self.shared.mad_faults) = faults;
    }

    /// How often the provider called `acm_alloc_sa_mad` and `acm_send_sa_mad`.
    pub fn mad_calls(&self) -> (usize, usize) {
        self.shared.mad_calls()
    }

    /// MADs that the provider holds: neither freed nor with the core.
    pub fn mads_held(&self) -> usize {
        lock(&self.shared.ledger).mads_held()
    }

    /// The breaches so far.
    pub fn violations(&self) -> Vec<Violation> {
        self.shared.check_freed_mads();
        lock(&self.shared.ledger).violations().to_vec()
    }

    /// Takes the breaches of a kind out of the books: the check deals with them itself.
    pub fn forgive(&self, kind: ViolationKind) -> Vec<Violation> {
        lock(&self.shared.ledger).forgive(kind)
    }

    /// Changes a port behind the provider's back, as a subnet manager does. Events are not sent; see
    /// [`port_down`](Self::port_down) and [`port_up`](Self::port_up).
    ///
    /// # Panics
    /// If there is no such port.
    pub fn change_port(&mut self, id: PortId, change: impl FnOnce(&mut PortSpec)) {
        let device = &mut self.devices[id.device];
        let spec = &mut device.spec.ports[usize::from(id.port) - 1];
        change(spec);
        let snapshot = spec.snapshot();
        device
            .adapter
            .update_port(id.port, snapshot)
            .expect("the port exists");
        let specs = self
            .devices
            .iter()
            .flat_map(|device| device.spec.ports.clone())
            .collect();
        *lock(&self.shared.known) = specs;
    }

    /// The port as it is now.
    pub fn port(&self, id: PortId) -> &PortSpec {
        &self.devices[id.device].spec.ports[usize::from(id.port) - 1]
    }

    /// A port comes up: opens the device at its first port, then the port, as the core does. Endpoints follow when they
    /// get addresses.
    ///
    /// # Errors
    /// The callback that refused. A device that was opened just now is not closed then but forgotten, and opened once more
    /// the next time, which is how the core does it.
    pub fn port_up(&mut self, id: PortId) -> Result<(), Refused> {
        let gids: Vec<Gid> = self
            .port(id)
            .guids
            .iter()
            .map(|guid| fabric::gid(*guid))
            .collect();
        let device = &mut self.devices[id.device];
        let port = &device.ports[usize::from(id.port) - 1];
        let acm_port = port.acm.as_ptr();
        self.shared.set_gids(acm_port, gids);
        device.acm.set_accessible(true);
        port.acm.set_accessible(true);
        if device.users == 0 {
            let mut context = std::ptr::null_mut();
            let acm_device = device.acm.as_ptr();
            device.context = context;
            let code = call!(
                self,
                open_device(acm_device.cast_const(), &raw mut context),
                "device {}",
                self.devices[id.device].spec.name
            );
            self.take_context("open_device", code, context)?;
            self.devices[id.device].context = context;
        }
        let dev_context = self.devices[id.device].context;
        let mut context = std::ptr::null_mut();
        let code = call!(
            self,
            open_port(acm_port.cast_const(), dev_context, &raw mut context),
            "port {}, LID {}",
            id.port,
            self.port(id).lid
        );
        self.take_context("open_port", code, context)?;
        self.devices[id.device].users += 1;
        let port = self.port_mut(id);
        port.context = context;
        port.is_up = true;
        self.shared.sa.set_down(id.number(), false);
        Ok(())
    }

    /// Judges what an opening callback left in its out-argument.
    fn take_context(
        &self,
        callback: &'static str,
        code: c_int,
        context: *mut c_void,
    ) -> Result<(), Refused> {
        let mut ledger = lock(&self.shared.ledger);
        if code != 0 && !context.is_null() {
            ledger.breach(
                ViolationKind::ContextAfterFailure,
                Harmed::Daemon,
                format!("{callback} failed and wrote its context all the same: the core takes it for open"),
            );
        }
        if code == 0 && context.is_null() {
            ledger.breach(
                ViolationKind::NullContext,
                Harmed::Client,
                format!(
                    "{callback} succeeded with a NULL context, which the core takes for not open"
                ),
            );
        }
        if code == 0 {
            Ok(())
        } else {
            Err(Refused { callback, code })
        }
    }

    /// Adds an address to the endpoint of a P_Key, which is opened with its first address.
    ///
    /// # Errors
    /// The callback that refused.
    pub fn add_address(
        &mut self,
        id: PortId,
        pkey: u16,
        addr: &Addr,
    ) -> Result<AddressId, Refused> {
        let acm_port = self.port_mut(id).acm.as_ptr();
        let port_context = self.port_mut(id).context;
        let existing = self
            .port_mut(id)
            .endpoints
            .iter()
            .position(|endpoint| endpoint.pkey == pkey);
        let index = existing.unwrap_or_else(|| {
            let acm = Lent::new(acm_endpoint {
                port: acm_port,
                pkey,
            });
            lock(&self.shared.endpoints).insert(
                acm.as_ptr().addr(),
                KnownEndpoint {
                    port: id.number(),
                    open: true,
                },
            );
            let endpoint = Endpoint {
                pkey,
                acm,
                context: std::ptr::null_mut(),
                addresses: Vec::new(),
                array: None,
            };
            let port = self.port_mut(id);
            port.endpoints.push(endpoint);
            port.endpoints.len() - 1
        });
        if self.port_mut(id).endpoints[index].context.is_null() {
            let acm = self.port_mut(id).endpoints[index].acm.as_ptr();
            let mut context = std::ptr::null_mut();
            let code = call!(
                self,
                open_endpoint(acm.cast_const(), port_context, &raw mut context),
                "P_Key {pkey:#06x}"
            );
            self.take_context("open_endpoint", code, context)?;
            self.port_mut(id).endpoints[index].context = context;
        }
        let text = CString::new(addr.to_string().replace('\0', " ")).unwrap_or_default();
        let text = Lent::array(text.as_bytes_with_nul());
        let endpoint = &mut self.port_mut(id).endpoints[index];
        let ep_context = endpoint.context;
        let (place, entry) = endpoint.place(addr, text.as_ptr().cast());
        let address = AddressId {
            port: id,
            pkey,
            index: place,
        };
        let mut context = std::ptr::null_mut();
        let code = call!(
            self,
            add_address(entry.cast_const(), ep_context, &raw mut context),
            "{addr:?}"
        );
        self.take_context("add_address", code, context)?;
        let entry = &mut self.port_mut(id).endpoints[index].addresses[address.index];
        entry.context = context;
        entry.valid = true;
        // The text and, at the next address, the array are the core's to change.
        drop(text);
        Ok(address)
    }

    /// The usual start: the port up, one name and one IP address on the endpoint of its first P_Key.
    ///
    /// # Errors
    /// The callback that refused.
    pub fn up(&mut self, id: PortId) -> Result<AddressId, Refused> {
        self.port_up(id)?;
        let pkey = self
            .port(id)
            .pkeys
            .iter()
            .copied()
            .find(|pkey| pkey & 0x7fff != 0)
            .unwrap_or(0xffff);
        let octet = 200 + id.number() as u8;
        self.add_address(id, pkey, &Addr::Name(format!("self{}", id.number())))?;
        self.add_address(id, pkey, &Addr::Ip([10, 1, 0, octet].into()))
    }

    /// Takes an address away.
    pub fn remove_address(&mut self, id: AddressId) {
        let Some(endpoint) = self.endpoint_mut(id.port, id.pkey) else {
            return;
        };
        let entry = &mut endpoint.addresses[id.index];
        entry.valid = false;
        let context = std::mem::replace(&mut entry.context, std::ptr::null_mut());
        if let Some(array) = &mut endpoint.array {
            let mut gone = array.get(id.index);
            gone.r#type = AcmEpType(0);
            array.set(id.index, gone);
        }
        if !context.is_null() {
            call!(self, remove_address(context));
        }
    }

    /// An address is marked invalid without telling the provider, as happens when a netlink message was lost.
    pub fn lose_address(&mut self, id: AddressId) {
        if let Some(endpoint) = self.endpoint_mut(id.port, id.pkey) {
            endpoint.addresses[id.index].valid = false;
        }
    }

    /// The port goes down: everything of it is closed, and the device with its last port.
    pub fn port_down(&mut self, id: PortId) {
        self.close_port(id, true);
    }

    /// The same without taking the addresses away first, which the core does for addresses that it has marked invalid.
    pub fn port_down_keeping_addresses(&mut self, id: PortId) {
        self.close_port(id, false);
    }

    fn close_port(&mut self, id: PortId, removes_addresses: bool) {
        self.shared.sa.set_down(id.number(), true);
        let endpoints = std::mem::take(&mut self.port_mut(id).endpoints);
        for endpoint in endpoints {
            for address in &endpoint.addresses {
                if removes_addresses && address.valid && !address.context.is_null() {
                    call!(self, remove_address(address.context));
                }
            }
            if !endpoint.context.is_null() {
                call!(self, close_endpoint(endpoint.context));
            }
            // From here on the endpoint's memory is gone.
            if let Some(known) = lock(&self.shared.endpoints).get_mut(&endpoint.acm.as_ptr().addr())
            {
                known.open = false;
            }
        }
        let port = self.port_mut(id);
        port.is_up = false;
        let context = std::mem::replace(&mut port.context, std::ptr::null_mut());
        if context.is_null() {
            return;
        }
        call!(self, close_port(context));
        if self.hides_closed {
            self.port_mut(id).acm.set_accessible(false);
        }
        let device = &mut self.devices[id.device];
        device.users -= 1;
        if device.users > 0 {
            return;
        }
        let context = std::mem::replace(&mut device.context, std::ptr::null_mut());
        if !context.is_null() {
            call!(self, close_device(context));
        }
        if self.hides_closed {
            self.devices[id.device].acm.set_accessible(false);
        }
    }

    /// Tells the provider of an event.
    pub fn event(&mut self, id: PortId, event: u32) -> c_int {
        let context = self.port_mut(id).context;
        call!(self, handle_event(context, ibv_event_type(event)))
    }

    /// Tells the provider that the subnet manager wants everybody to register again.
    pub fn reregister(&mut self, id: PortId) -> c_int {
        self.event(id, ibv_event_type::CLIENT_REREGISTER.0)
    }

    /// A client asks, and the core finds out whose address is concerned, as it does for a real client.
    ///
    /// # Errors
    /// The ACM status with which the core itself refuses the request.
    pub fn ask(&mut self, message: &Message) -> Result<u64, u8> {
        const EINVAL: u8 = 2;
        const ESRCADDR: u8 = 7;
        const EDESTADDR: u8 = 9;
        const ONE_ENTRY: usize = message::HEADER + message::ENTRY;
        let (message, from) = if message.code(0) == PATH {
            let path = Path(message.field(0));
            let length = usize::from(message.length());
            let is_query = message.flags(0) & FLAG_QUERY_SA != 0;
            if length < ONE_ENTRY || is_query && length != ONE_ENTRY {
                return Err(EINVAL);
            }
            if !is_query && path.dlid() == 0 && path.dgid() == [0; 16] {
                return Err(EDESTADDR);
            }
            (*message, self.source_of_path(&path).ok_or(ESRCADDR)?)
        } else {
            let chosen = message
                .destination_code()
                .and_then(|code| self.first_of_family(code));
            let (message, from) = message.verified(chosen.as_ref())?;
            (message, self.find_address(&from).ok_or(ESRCADDR)?)
        };
        if message.code(0) == PATH && message.flags(0) & FLAG_QUERY_SA != 0 {
            return Ok(self.query_from(from, &message));
        }
        Ok(self.resolve_from(from, &message))
    }

    /// Plays a request as it stands to one of the provider's addresses.
    pub fn resolve_from(&mut self, from: AddressId, message: &Message) -> u64 {
        self.play(from, message, Kind::Resolve, None)
    }

    /// Plays a request to ask the SA to one of the provider's addresses.
    pub fn query_from(&mut self, from: AddressId, message: &Message) -> u64 {
        self.play(from, message, Kind::Query, None)
    }

    /// The kernel asks: client 0, whose tid is a pointer.
    pub fn kernel_asks(&mut self, from: AddressId, path: &Path) -> u64 {
        lock(&self.shared.ledger).requests.remove(&0);
        self.play(from, &Message::path(path), Kind::Resolve, Some(0))
    }

    fn play(&mut self, from: AddressId, message: &Message, kind: Kind, id: Option<u64>) -> u64 {
        let id = id.unwrap_or(self.next_client);
        if id == self.next_client {
            self.next_client += 1;
        }
        let message = message.with_tid(self.next_tid);
        self.next_tid = self.next_tid.wrapping_add(0x0000_0001_0000_0001);
        let request = Request {
            kind,
            tid: message.tid(),
            asked: Instant::now(),
            connected: true,
            replies: Vec::new(),
        };
        lock(&self.shared.ledger).requests.insert(id, request);
        if kind == Kind::Resolve {
            self.shared.count_of_core(1);
        }
        let context = self.address_context(from);
        let lent = Lent::new(message);
        let pointer = lent.as_ptr().cast();
        let code = match kind {
            Kind::Resolve => call!(
                self,
                resolve(context, pointer, id),
                "client {id}: {message:?}"
            ),
            Kind::Query => call!(
                self,
                query(context, pointer, id),
                "client {id}: {message:?}"
            ),
        };
        // The core frees the message, whatever becomes of the request.
        drop(lent);
        if code != 0 {
            lock(&self.shared.ledger).breach(
                ViolationKind::NonZeroReturn,
                Harmed::Client,
                format!("{kind} returned {code}: the core disconnects client {id}"),
            );
        }
        id
    }

    /// The client leaves before it is answered.
    pub fn client_leaves(&mut self, id: u64) {
        if let Some(request) = lock(&self.shared.ledger).requests.get_mut(&id) {
            request.connected = false;
        }
    }

    /// The answers to a client so far.
    pub fn replies(&self, id: u64) -> Vec<Reply> {
        lock(&self.shared.ledger)
            .requests
            .get(&id)
            .map(|request| request.replies.clone())
            .unwrap_or_default()
    }

    /// The first answer to a client; `None` when it does not come within [`patience`](Self::patience) from when the client
    /// asked.
    pub fn reply(&self, id: u64) -> Option<Reply> {
        let asked = lock(&self.shared.ledger).requests.get(&id)?.asked;
        let left = (asked + self.patience).saturating_duration_since(Instant::now());
        self.shared.wait(left, |ledger| {
            ledger.requests.get(&id)?.replies.first().cloned()
        })
    }

    /// Requests that have no answer.
    pub fn unanswered(&self) -> Vec<u64> {
        let ledger = lock(&self.shared.ledger);
        ledger
            .requests
            .iter()
            .filter(|(_, request)| request.replies.is_empty())
            .map(|(id, _)| *id)
            .collect()
    }

    /// Waits until `count` questions have reached the SA, and gives all of them; `None` when they do not come.
    pub fn questions(&self, count: usize) -> Option<Vec<Question>> {
        let deadline = Instant::now() + self.patience;
        loop {
            let questions = self.sa().questions();
            if questions.len() >= count {
                return Some(questions);
            }
            if Instant::now() > deadline {
                return None;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until the SA has nothing to do; false when that does not come.
    pub fn settle(&self) -> bool {
        let deadline = Instant::now() + self.patience;
        while !self.sa().is_idle() {
            if Instant::now() > deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }

    /// What the values of [`query_perf`](Self::query_perf) are that a provider leaves alone.
    pub const UNTOUCHED: u64 = 0xa5a5_a5a5_a5a5_a5a5;

    /// An endpoint's counters by `query_perf`: the count, and the 72 values that the core's message has room for.
    pub fn query_perf(&mut self, id: PortId, pkey: u16) -> Option<(u8, Vec<u64>)> {
        let context = self.endpoint_mut(id, pkey)?.context;
        let values = Lent::array(&[Be64::from_host(Self::UNTOUCHED); 72]);
        let count = Lent::new(0_u8);
        let (values_pointer, count_pointer) = (values.as_ptr(), count.as_ptr());
        call!(self, query_perf(context, values_pointer, count_pointer));
        Some((
            count.get(0),
            (0..72).map(|index| values.get(index).to_host()).collect(),
        ))
    }

    /// The address that an id stands for.
    ///
    /// # Panics
    /// If there is none.
    pub fn address(&self, id: AddressId) -> &Addr {
        self.addresses()
            .find(|(known, _)| *known == id)
            .map(|(_, addr)| addr)
            .expect("the address is known and valid")
    }

    /// The provider's contexts, for calls of a check's own.
    pub fn contexts(&mut self, id: AddressId) -> [*mut c_void; 4] {
        let device = self.devices[id.port.device].context;
        let port = self.port_mut(id.port).context;
        let endpoint = self
            .endpoint_mut(id.port, id.pkey)
            .map_or(std::ptr::null_mut(), |endpoint| endpoint.context);
        [device, port, endpoint, self.address_context(id)]
    }

    /// Empties the books of what is over and done with: for checks that look at how memory grows.
    pub fn forget_history(&self) {
        self.shared.forget_history();
        self.shared.sa.forget_questions();
        memory::give_up_taken_back();
    }

    /// Closes everything, waits for what is on its way, and gives the breaches that the books hold.
    pub fn finish(&mut self) -> Vec<Violation> {
        self.close_all();
        // Deadlines of what was in flight, then quiet.
        self.settle();
        let mut violations = self.violations();
        if self.mads_held() > 0 {
            violations.push(Violation {
                kind: ViolationKind::MadLeaked,
                harmed: Harmed::Daemon,
                text: format!("{} SA MADs were neither sent nor freed", self.mads_held()),
            });
        }
        for id in self.unanswered() {
            if self.reply(id).is_none() {
                violations.push(Violation {
                    kind: ViolationKind::NeverAnswered,
                    harmed: Harmed::Client,
                    text: format!("client {id} was never answered: it hangs, and its slot is lost"),
                });
            }
        }
        violations
    }

    /// Closes everything that is open, as no real core ever does: the end of a check.
    pub fn close_all(&mut self) {
        for device in 0..self.devices.len() {
            for port in 1..=self.devices[device].ports.len() as u8 {
                self.close_port(PortId { device, port }, true);
            }
        }
    }

    fn port_mut(&mut self, id: PortId) -> &mut Port {
        &mut self.devices[id.device].ports[usize::from(id.port) - 1]
    }

    fn endpoint_mut(&mut self, id: PortId, pkey: u16) -> Option<&mut Endpoint> {
        self.port_mut(id)
            .endpoints
            .iter_mut()
            .find(|endpoint| endpoint.pkey == pkey)
    }

    fn address_context(&mut self, id: AddressId) -> *mut c_void {
        self.endpoint_mut(id.port, id.pkey)
            .and_then(|endpoint| endpoint.addresses.get(id.index))
            .map_or(std::ptr::null_mut(), |address| address.context)
    }

    /// All usable addresses, in the core's order.
    fn addresses(&self) -> impl Iterator<Item = (AddressId, &Addr)> {
        self.devices.iter().enumerate().flat_map(|(device, known)| {
            known
                .ports
                .iter()
                .zip(1..)
                .filter(|(port, _)| port.is_up)
                .flat_map(move |(port, number)| {
                    let id = PortId {
                        device,
                        port: number,
                    };
                    port.endpoints.iter().flat_map(move |endpoint| {
                        let pkey = endpoint.pkey;
                        endpoint
                            .addresses
                            .iter()
                            .enumerate()
                            .filter(|(_, address)| address.valid)
                            .map(move |(index, address)| {
                                (
                                    AddressId {
                                        port: id,
                                        pkey,
                                        index,
                                    },
                                    &address.addr,
                                )
                            })
                    })
                })
        })
    }

    /// The source that the core chooses for a destination: it asks the routing table, and so for IP destinations only.
    fn first_of_family(&self, code: u16) -> Option<Addr> {
        self.addresses()
            .map(|(_, addr)| addr)
            .find(|addr| matches!(code, message::IP | message::IP6) && addr.code() == code)
            .cloned()
    }

    /// The address that compares equal, by the length of its type.
    fn find_address(&self, wanted: &Addr) -> Option<AddressId> {
        let length = match wanted.code() {
            message::IP => 4,
            message::IP6 | message::GID => 16,
            message::LID => 2,
            _ => 64,
        };
        let field = wanted.field();
        self.addresses()
            .find(|(_, addr)| {
                addr.code() == wanted.code()
                    && addr.field()[..length].eq_ignore_ascii_case(&field[..length])
            })
            .map(|(id, _)| id)
    }

    /// The first address of the endpoint that a path request concerns: by SGID, SLID or subnet, and by partition.
    fn source_of_path(&self, path: &Path) -> Option<AddressId> {
        let from_port = |id: PortId| {
            let spec = self.port(id);
            let is_own = |wanted: Gid| spec.guids.iter().any(|guid| fabric::gid(*guid) == wanted);
            if path.sgid() != [0; 16] {
                return is_own(path.sgid());
            }
            if path.slid() != 0 {
                return path.slid() & !((1 << spec.lmc) - 1) == spec.lid;
            }
            let dgid = path.dgid();
            dgid == [0; 16] || dgid[..8] == fabric::PREFIX.to_be_bytes()
        };
        let same_partition = |pkey: u16| path.pkey() == 0 || (path.pkey() ^ pkey) & 0x7fff == 0;
        self.addresses()
            .find(|(id, _)| from_port(id.port) && same_partition(id.pkey))
            .map(|(id, _)| id)
    }
}

/// A local address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressId {
    /// Its port.
    pub port: PortId,
    /// Its endpoint's P_Key.
    pub pkey: u16,
    /// Its place in the endpoint's array.
    pub index: usize,
}

impl Endpoint {
    /// Puts an address into the array, as the core does: at the first free place, else the array grows, and so moves;
    /// what lies at its old place is gone. Its index, and where it is now.
    fn place(&mut self, addr: &Addr, id_string: *mut c_char) -> (usize, *mut acm_address) {
        let entry = acm_address {
            endpoint: self.acm.as_ptr(),
            info: acm_ep_info { addr: addr.field() },
            id_string,
            r#type: AcmEpType(addr.code()),
        };
        let known = LocalAddress {
            addr: addr.clone(),
            context: std::ptr::null_mut(),
            valid: false,
        };
        let free = self.addresses.iter().position(|address| !address.valid);
        let (index, array) = match (free, self.array.take()) {
            (Some(free), Some(mut array)) => {
                array.set(free, entry);
                self.addresses[free] = known;
                (free, array)
            }
            (_, old) => {
                let entries: Vec<acm_address> = old
                    .iter()
                    .flat_map(|old| (0..self.addresses.len()).map(|known| old.get(known)))
                    .chain([entry])
                    .collect();
                self.addresses.push(known);
                (entries.len() - 1, Lent::array(&entries))
            }
        };
        let pointer = array.as_ptr().wrapping_add(index);
        self.array = Some(array);
        (index, pointer)
    }
}

impl Device {
    fn new(spec: DeviceSpec, adapter: Arc<Adapter>, verbs: *mut ibv_context) -> Self {
        let acm = Lent::new(acm_device {
            verbs,
            dev_guid: Be64::from_host(spec.node_guid),
        });
        let ports = (1..=spec.ports.len() as u8)
            .map(|port_num| Port {
                acm: Lent::new(acm_port {
                    dev: acm.as_ptr(),
                    port_num,
                }),
                is_up: false,
                context: std::ptr::null_mut(),
                endpoints: Vec::new(),
            })
            .collect();
        Self {
            spec,
            adapter,
            acm,
            context: std::ptr::null_mut(),
            users: 0,
            ports,
        }
    }
}

/// What a good SA answers.
fn answer(question: &Question, ports: &[PortSpec]) -> Option<[u8; 64]> {
    match question.attribute {
        sa::PATH_RECORD => fabric::path_record(&question.path(), ports).map(|path| path.0),
        sa::MC_MEMBER_RECORD => {
            let mut record = question.record;
            // The MLID, one for each group.
            let group = record[..16]
                .iter()
                .fold(0_u16, |sum, byte| sum.wrapping_add(u16::from(*byte)));
            record[36..38].copy_from_slice(&(0xc000 | group & 0x0fff).to_be_bytes());
            Some(record)
        }
        _ => None,
    }
}

unsafe extern "C" {
    fn ibv_get_device_list(count: *mut c_int) -> *mut *mut c_void;
    fn ibv_free_device_list(list: *mut *mut c_void);
    fn ibv_open_device(device: *mut c_void) -> *mut ibv_context;
}

/// Opens the simulated devices as the core does.
fn open_verbs(count: usize) -> Vec<*mut ibv_context> {
    let mut found = 0;
    // SAFETY: the calls are used as verbs.h says; the list has as many devices as were installed.
    unsafe {
        let list = ibv_get_device_list(&raw mut found);
        assert!(
            !list.is_null() && found as usize == count,
            "fabric-sim shows {found} of {count} devices"
        );
        let contexts = (0..count)
            .map(|index| ibv_open_device(*list.add(index)))
            .collect();
        ibv_free_device_list(list);
        contexts
    }
}
