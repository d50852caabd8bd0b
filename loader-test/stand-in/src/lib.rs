//! A stand-in for ibacm's core: it calls a provider in this process and keeps a ledger of all requests, answers and MADs.
//!
//! It behaves as the real core (`acm.c` of rdma-core): it makes the same calls in the same order on one thread, passes the
//! same device and port pointers at every open, frees endpoints and messages after the call, keeps addresses in an array
//! that moves, queues SA MADs with `sa_depth` credits, and matches responses by the low half of the transaction id.
//!
//! It trusts neither the provider nor the SDK. It reads C memory itself ([`message`]), lends memory that faults if the
//! provider uses it too late ([`memory`]), and records every violation of the contract ([`ledger`]).
//!
//! It exports the functions that a provider calls. They serve one core at a time.

pub mod allocations;
pub mod bare;
pub mod by_hand;
mod clock;
mod complaints;
pub mod fabric;
pub mod hide;
pub mod in_process;
pub mod leaks;
pub mod ledger;
pub mod library;
mod loaded;
pub mod memory;
pub mod message;
pub mod recorder;
pub mod right;
pub mod sa;
pub mod sequence;
pub mod subnet;
pub mod trace;
pub mod wire;

mod exports;
#[macro_use]
mod call;
pub mod closed_again;
mod neighbours;
mod ports;
mod requests;
mod shared;

use std::ffi::{CString, c_int, c_void};
use std::io;
use std::path::{Path as FilePath, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use acm_prov_api::abi::{
    Be64, acm_address, acm_device, acm_endpoint, acm_port, acm_provider, ibv_context,
};
use fabric_sim::model::adapter::Adapter;

use fabric::{DeviceSpec, Peer, PortSpec};
use ledger::{Harmed, Ledger, Violation, ViolationKind};
use library::Library;
use memory::Lent;
use message::{Addr, Gid};
use recorder::Recorder;
use sa::{SaRequest, SaThread};
use shared::{OptionsFile, Shared, lock};
use subnet::Subnet;

pub use exports::FUNCTIONS;
pub use shared::MadFaults;

/// Placeholder in an option line for the path of the hosts file with the peers' names and addresses.
pub const HOSTS: &str = "@HOSTS@";

/// Settings of the core.
pub struct Setup {
    /// The devices of this node.
    pub devices: Vec<DeviceSpec>,
    /// Lines of ibacm_opts.cfg, without line ends; the core replaces [`HOSTS`]. If empty, the file does not exist.
    pub options: Vec<String>,
    /// The folder for the core's files; it must exist.
    pub folder: PathBuf,
    /// The file for a trace.
    pub trace: Option<trace::Trace>,
    /// The provider's measured deadline, if it ignores `timeout` and `retries`. It counts if it is longer than the
    /// options' deadline.
    pub deadline: Option<Duration>,
}

/// A port of the core: device index and port number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId {
    /// Index of the device.
    pub device: usize,
    /// Number of the port, from 1.
    pub port: u8,
}

impl PortId {
    /// Returns the port's number across all devices, as in [`SaRequest::port`].
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
    /// Number of ports that use the provider's context.
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
    /// The array that the provider gets; it moves when it grows.
    array: Option<Lent<acm_address>>,
}

struct LocalAddress {
    addr: Addr,
    /// The text that `id_string` points to during the call.
    context: *mut c_void,
    valid: bool,
}

/// A callback that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{callback} returned {code}")]
pub struct Refused {
    /// The callback.
    pub callback: &'static str,
    /// Its return value.
    pub code: c_int,
}

/// The core.
pub struct StandIn {
    shared: Arc<Shared>,
    provider: &'static acm_provider,
    devices: Vec<Device>,
    has_timed_out: AtomicBool,
    /// Longest wait of a check for an answer: the provider's deadline and some more.
    pub patience: Duration,
    /// Whether device and port memory is inaccessible while closed. The real core keeps it, so a provider that uses it
    /// then does no harm.
    pub hides_closed: bool,
}

impl StandIn {
    /// Returns the default options: deadlines that a busy machine can keep, and a hosts file with the peers.
    pub fn default_options(folder: &FilePath) -> Vec<String> {
        vec![
            "log_level 2".into(),
            "timeout 2500".into(),
            "retries 1".into(),
            "addr_preload acm_hosts".into(),
            format!("addr_data_file {}", folder.join("hosts").display()),
        ]
    }

    /// Sets up the core, writes its files, installs it behind the exported functions, and loads the provider.
    ///
    /// # Errors
    /// Why the library is not accepted, or that the core's own files cannot be written.
    pub fn start(setup: Setup, library: &FilePath) -> Result<Self, library::LoadError> {
        Self::start_watched(setup, library, &mut || ())
    }

    /// Does the same as [`start`](Self::start), and calls `about_to_load` when the core is ready and before the provider loads.
    ///
    /// # Errors
    /// Why the library is not accepted, or that the core's own files cannot be written.
    pub fn start_watched(
        setup: Setup,
        library: &FilePath,
        about_to_load: &mut dyn FnMut(),
    ) -> Result<Self, library::LoadError> {
        let (shared, devices) =
            Self::prepare(setup).map_err(|error| library::LoadError::NoCore(error.to_string()))?;
        // Opens the files that it reads.
        clock::Stopwatch::start();
        about_to_load();
        let provider = Library::open_by_any_name(library)?.provider()?;
        Ok(Self::with_provider(shared, devices, provider))
    }

    /// Returns this core's functions as the SDK's table of host functions.
    pub fn host_table() -> &'static acm_prov_api::HostTable {
        static TABLE: acm_prov_api::HostTable = exports::host_table();
        &TABLE
    }

    /// Installs a core without a provider behind the exported functions, for a library that is only loaded.
    ///
    /// # Errors
    /// If the core's own files cannot be written.
    pub fn install_alone(setup: Setup) -> io::Result<()> {
        Self::prepare(setup).map(drop)
    }

    /// Drops the parent's core in a forked process, where its threads do not exist, without waiting for it.
    pub fn abandon_installed() {
        exports::abandon();
    }

    fn prepare(setup: Setup) -> io::Result<(Arc<Shared>, Vec<Device>)> {
        let Setup {
            devices,
            options,
            folder,
            trace,
            deadline,
        } = setup;
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            std::fs::write(&path, text)
                .map(|()| &path)
                .map_err(|error| {
                    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
                })
                .cloned()
        };
        let hosts = write("hosts", fabric::hosts_file())?;
        let options: Vec<String> = options
            .iter()
            .map(|line| line.replace(HOSTS, &hosts.to_string_lossy()))
            .collect();
        let text = options.join("\n") + "\n";
        let mut options_file = write("ibacm_opts.cfg", &text)?;
        let recorder = Arc::new(Recorder::new(&folder, trace)?);
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
        let time_out = Duration::from_millis(number("timeout", 2000) * (number("retries", 2) + 1));
        let deadline = deadline.map_or(time_out, |shown| shown.max(time_out));
        let ledger = Arc::new(Mutex::new(Ledger::new(deadline)));
        let subnet = Arc::new(Mutex::new(Subnet {
            ports: devices
                .iter()
                .flat_map(|device| device.ports.clone())
                .collect(),
            ..Subnet::default()
        }));
        let adapters: Vec<Arc<Adapter>> = devices.iter().map(DeviceSpec::adapter).collect();
        let members = adapters.clone();
        let knowledge = Arc::clone(&subnet);
        let sa = SaThread::start(
            Arc::clone(&ledger),
            number("sa_depth", 1) as usize,
            time_out,
            Box::new(move |question| {
                let record = answer(question, &lock(&knowledge))?;
                if let (sa::MC_MEMBER_RECORD, Some(member)) =
                    (question.attribute, record.first_chunk())
                {
                    wire::change_membership(&members, question, member);
                }
                Ok(record)
            }),
            Arc::clone(&recorder),
        );
        let path =
            CString::new(options_file.as_os_str().as_encoded_bytes()).expect("a path has no NUL");
        let options = OptionsFile {
            path,
            log_level: number("log_level", 0) as c_int,
            lines: complaints::pairs(&options),
        };
        let shared = Shared::new(ledger, sa, options, recorder, subnet, deadline);
        let shared = Arc::new(shared);
        exports::install(&shared);
        fabric_sim::fabric::install(adapters.clone());
        let contexts = open_verbs(adapters.len());
        let devices = devices
            .into_iter()
            .zip(adapters)
            .zip(contexts)
            .map(|((spec, adapter), verbs)| Device::new(spec, adapter, verbs))
            .collect();
        Ok((shared, devices))
    }

    fn with_provider(
        shared: Arc<Shared>,
        devices: Vec<Device>,
        provider: &'static acm_provider,
    ) -> Self {
        let patience = shared.deadline() + Duration::from_secs(8);
        Self {
            shared,
            provider,
            devices,
            has_timed_out: AtomicBool::new(false),
            patience,
            hides_closed: false,
        }
    }

    /// Returns the provider's table.
    pub fn provider(&self) -> &'static acm_provider {
        self.provider
    }

    /// Replaces the far end of a port's cable with a [`Wire`](wire::Wire), which receives what the port sends and sends to it.
    pub fn wire(&self, id: PortId) -> wire::Wire {
        wire::Wire::new(&self.devices[id.device].adapter, id.port)
    }

    /// Connects a port's cable to `path` from now on.
    pub fn connect(&self, id: PortId, path: Arc<dyn fabric_sim::model::data_path::DataPath>) {
        // The caller names an existing port.
        let _ = self.devices[id.device].adapter.set_data_path(id.port, path);
    }

    /// Adds a port to those that the SA knows besides the [peers](fabric::peers), until a port of this node changes.
    pub fn add_neighbour(&self, port: PortSpec) {
        self.shared.change_subnet(|subnet| subnet.ports.push(port));
    }

    /// Sets whether service id and QoS class select a path; the SA's ClassPortInfo says so. Initially they do not.
    pub fn set_qos(&self, qos: bool) {
        self.shared.change_subnet(|subnet| subnet.qos = qos);
    }

    /// Sets whether the SA draws an SL for each query and refuses queries that name one, as OpenSM can with DFSSSP
    /// routing.
    pub fn set_draws_sl(&self, draws: bool) {
        self.shared.change_subnet(|subnet| subnet.draws_sl = draws);
    }

    /// Makes the SA refuse queries that name one of these SLs for a path to the peer.
    pub fn refuse_sls(&self, peer: &Peer, sls: &[u8]) {
        self.shared.change_subnet(|subnet| {
            subnet.refused_sls.insert(peer.lid, sls.to_vec());
        });
    }

    /// Gives a peer another LID, as after a reboot. No other port may have that LID.
    pub fn move_peer(&self, peer: &Peer, lid: u16) {
        self.shared.change_subnet(|subnet| {
            subnet.moved.insert(peer.guid, lid);
        });
    }

    /// Returns a copy of the SA's records and settings.
    pub fn subnet(&self) -> Subnet {
        lock(&self.shared.subnet).clone()
    }

    /// Returns the provider's name.
    pub fn provider_name(&self) -> Option<String> {
        let name = self.provider.name;
        if name.is_null() {
            return None;
        }
        // SAFETY: in a table that was accepted a terminated string that lives as long as the table.
        let name = unsafe { std::ffi::CStr::from_ptr(name) };
        Some(name.to_string_lossy().into_owned())
    }

    /// Returns the SA.
    pub fn sa(&self) -> &SaThread {
        &self.shared.sa
    }

    /// Returns the deadline of requests: `timeout` × (`retries` + 1), or the measured one if that is longer.
    pub fn deadline(&self) -> Duration {
        self.shared.deadline()
    }

    /// Sets the deadline of requests, for a provider that ignores `timeout` and `retries`.
    pub fn set_deadline(&mut self, deadline: Duration) {
        self.patience = self.patience.saturating_sub(self.deadline()) + deadline;
        self.shared.set_deadline(deadline);
    }

    /// Returns the log so far: level and text.
    pub fn log(&self) -> Vec<(c_int, String)> {
        self.shared.lines()
    }

    /// Returns the level-0 log lines in which the provider complains about its options.
    pub fn complaints(&self) -> Vec<String> {
        self.shared.complaints()
    }

    /// Returns the core's own counters, in the order of acm.h.
    pub fn counters(&self) -> [u64; 7] {
        self.shared.counters()
    }

    /// Makes the core's MAD functions fail.
    pub fn fail_mads(&self, faults: MadFaults) {
        *lock(&self.shared.mad_faults) = faults;
    }

    /// Returns how often the provider called `acm_alloc_sa_mad` and `acm_send_sa_mad`.
    pub fn mad_calls(&self) -> (usize, usize) {
        self.shared.mad_calls()
    }

    /// Returns the number of MADs that the provider holds: neither freed nor with the core.
    pub fn mads_held(&self) -> usize {
        lock(&self.shared.ledger).mads_held()
    }

    /// Sets whether the ledger judges every answered path: one that the SA does not give is a
    /// [`WrongAnswer`](ViolationKind::WrongAnswer). [`judge`](Self::judge) judges one client's answer.
    pub fn judge_answers(&self, judges: bool) {
        self.shared.judges_answers.store(judges, Ordering::Relaxed);
    }

    /// Returns the violations so far.
    pub fn violations(&self) -> Vec<Violation> {
        self.shared.check_freed_mads();
        lock(&self.shared.ledger).violations().to_vec()
    }

    /// Removes the violations of a kind from the ledger and returns them, for a check that judges them itself.
    pub fn forgive(&self, kind: ViolationKind) -> Vec<Violation> {
        lock(&self.shared.ledger).forgive(kind)
    }

    /// Changes a port's attributes, as a subnet manager does, without sending events; see
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
        self.shared.change_subnet(|subnet| subnet.ports = specs);
    }

    /// Returns the port's current attributes.
    pub fn port(&self, id: PortId) -> &PortSpec {
        &self.devices[id.device].spec.ports[usize::from(id.port) - 1]
    }

    /// Value of the [`query_perf`](Self::query_perf) counters that the provider did not write.
    pub const UNTOUCHED: u64 = 0xa5a5_a5a5_a5a5_a5a5;

    /// Calls `query_perf` for an endpoint, and returns the count and all 72 values of the core's message.
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

    /// Returns the address of an id.
    ///
    /// # Panics
    /// If there is none.
    pub fn address(&self, id: AddressId) -> &Addr {
        self.addresses()
            .find(|(known, _)| *known == id)
            .map(|(_, addr)| addr)
            .expect("the address is known and valid")
    }

    /// Returns the provider's contexts, for a check that calls the provider directly.
    pub fn contexts(&mut self, id: AddressId) -> [*mut c_void; 4] {
        let device = self.devices[id.port.device].context;
        let port = self.port_mut(id.port).context;
        let endpoint = self
            .endpoint_mut(id.port, id.pkey)
            .map_or(std::ptr::null_mut(), |endpoint| endpoint.context);
        [device, port, endpoint, self.address_context(id)]
    }

    /// Removes completed requests and MADs from the ledger, for checks that measure memory growth.
    pub fn forget_history(&self) {
        self.shared.forget_history();
        self.shared.sa.forget_requests();
        memory::end_quarantine();
    }

    /// Closes everything, waits for outstanding MADs, and returns the ledger's violations.
    pub fn finish(&mut self) -> Vec<Violation> {
        self.close_all();
        // Outstanding requests reach their deadlines, then the SA is idle.
        self.settle();
        let mut violations = self.violations();
        if self.mads_held() > 0 {
            violations.push(Violation {
                kind: ViolationKind::MadLeaked,
                harmed: Harmed::Daemon,
                text: format!("SA MADs neither sent nor freed: {}", self.mads_held()),
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

    /// Closes everything at the end of a check; the real core never does so.
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
}

/// A local address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressId {
    /// Its port.
    pub port: PortId,
    /// Its endpoint's P_Key.
    pub pkey: u16,
    /// Its index in the endpoint's array.
    pub index: usize,
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

/// Returns the response of a correct SA: the record, or the MAD status of a refusal.
fn answer(query: &SaRequest, subnet: &Subnet) -> Result<Vec<u8>, u16> {
    match query.attribute {
        sa::CLASS_PORT_INFO => Ok(subnet.class_port_info().to_vec()),
        sa::PATH_RECORD => subnet
            .path(&query.path(), query.mask, query.number)
            .map(|path| path.0.to_vec()),
        sa::MC_MEMBER_RECORD => {
            let mut record = query.record;
            let mgid = record.first_chunk().copied().unwrap_or_default();
            record[36..38].copy_from_slice(&wire::mlid(&Gid(mgid)).to_be_bytes());
            Ok(record.to_vec())
        }
        _ => Err(subnet::NO_RECORDS),
    }
}

unsafe extern "C" {
    fn ibv_get_device_list(count: *mut c_int) -> *mut *mut c_void;
    fn ibv_free_device_list(list: *mut *mut c_void);
    fn ibv_open_device(device: *mut c_void) -> *mut ibv_context;
}

/// Opens the simulated devices, as the core does.
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
