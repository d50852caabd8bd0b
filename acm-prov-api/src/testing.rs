//! A small core in this process, for this crate's own tests. Test providers with the package `acm-stand-in`, which
//! depends on this crate.
//!
//! [`TestCore`] loads a provider through its table, opens one device, port and endpoint, sends it requests, and keeps the
//! answers. The test plays the SA: each SA query of the provider waits until the test answers it or lets it time out. Only
//! ClassPortInfo queries are answered by the core itself: service ids and QoS classes do not affect paths, unless
//! [`TestCore::set_qos`] says so or [`TestCore::play_class_port_info`] leaves the query to the test. If the SDK has caught a
//! panic, dropping the core fails the test.
//!
//! ```
//! # use acm_prov_api::prelude::*;
//! # struct Nobody;
//! # impl Provider for Nobody {
//! #     const NAME: &CStr = c"nobody";
//! #     type Endpoint = NoContext;
//! #     fn load(_: &Host, _: &Options) -> Result<Self, Error> { Ok(Self) }
//! #     fn resolve(&self, _: &LocalAddress<Self>, request: ResolveRequest) { request.refuse(Status::ENODATA) }
//! # }
//! # acm_prov_api::provider_table!(Nobody);
//! use acm_prov_api::testing::{Request, TestCore};
//!
//! let mut core = TestCore::load::<Nobody>("");
//! core.open();
//! let id = core.resolve(&Request::destination(&Address::Lid(Lid(7))));
//! assert_eq!(core.wait_for_answer(id).status, Status::ENODATA);
//! ```

mod allocations;
mod host;
mod message;

use std::ffi::{CString, c_void};
use std::ptr;
use std::time::{Duration, Instant};

use crate::abi::*;
use crate::address::{Address, Gid, Lid};
use crate::door::load::{self, Turn};
use crate::door::slot::Exported;
use crate::path::PathRecord;
use crate::provider::Error;

pub use allocations::Allocations;
pub use host::host_that_logs;
pub use message::{Answer, Request};

use host::{CHANGED, STATE, SentMad, State, TABLE, with_state};

/// How long a test waits for something that must happen.
const PATIENCE: Duration = Duration::from_secs(20);

/// A context: the value that the provider wrote into the core's `void *`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context(*mut c_void);

/// A core in this process. One exists at a time; a second waits for the first to be dropped.
pub struct TestCore {
    provider: &'static acm_provider,
    device: Box<acm_device>,
    port: Box<acm_port>,
    endpoint: Option<Box<acm_endpoint>>,
    /// Further endpoints that the test opened.
    more_endpoints: Vec<(Context, Box<acm_endpoint>)>,
    more_ports: Vec<(Context, Box<acm_port>)>,
    more_devices: Vec<(Context, Box<acm_device>)>,
    contexts: [*mut c_void; 4],
    _verbs: Box<[u64; 512]>,
    next_id: u64,
    options_file: Option<std::path::PathBuf>,
    expects_panics: bool,
    _turn: Turn,
}

/// The first ten bits of a link-local GID.
const LINK_LOCAL: u64 = 0xfe80_0000_0000_0000 >> 54;

const DEVICE: usize = 0;
const PORT: usize = 1;
const ENDPOINT: usize = 2;
const ADDRESS: usize = 3;

/// Calls a slot of the provider's table, every one of which the SDK fills.
macro_rules! call {
    ($core:ident.$slot:ident($($argument:expr),* $(,)?)) => {{
        let callback = $core.provider.$slot.expect("the SDK fills every slot");
        // SAFETY: the arguments are what acm_prov.h asks for, and live long enough.
        unsafe { callback($($argument),*) }
    }};
}

impl TestCore {
    /// The simulated port's GID.
    pub const GID: Gid = Gid::new(0xfe80_0000_0000_0000, 0x0010_0001);
    /// The LID of the router in the SA's paths to other subnets.
    pub const ROUTER: Lid = Lid(0x0100);
    /// The address that requests come from.
    pub const SOURCE: std::net::Ipv4Addr = std::net::Ipv4Addr::LOCALHOST;

    /// Loads a provider with the given contents of ibacm_opts.cfg.
    ///
    /// # Panics
    /// If the provider does not load.
    pub fn load<P: Exported>(options: &str) -> Self {
        Self::try_load::<P>(options)
            .unwrap_or_else(|error| panic!("the provider does not load: {error}"))
    }

    /// Loads a provider with the given contents of ibacm_opts.cfg.
    ///
    /// # Errors
    /// The provider's own.
    ///
    /// # Panics
    /// If the options cannot be written to a temporary file.
    pub fn try_load<P: Exported>(options: &str) -> Result<Self, Error> {
        let turn = load::turn();
        *STATE.lock() = Some(State::new());
        let options_file = (!options.is_empty()).then(|| {
            let path =
                std::env::temp_dir().join(format!("acm-prov-api-test-{}.cfg", std::process::id()));
            std::fs::write(&path, options).expect("the options are written to a temporary file");
            let name =
                CString::new(path.as_os_str().as_encoded_bytes()).expect("no NUL in the path");
            with_state(|state| state.options_file = name);
            path
        });
        // SAFETY: the functions below do what the core's do, as far as tests go.
        let provider = unsafe { load::load::<P>(&TABLE)? };
        let mut verbs = Box::new([0; 512]);
        let mut device = Box::new(acm_device {
            verbs: verbs.as_mut_ptr().cast(),
            dev_guid: Be64::from_host(0x0010_0000),
        });
        let port = Box::new(acm_port {
            dev: &mut *device,
            port_num: 1,
        });
        Ok(Self {
            provider,
            device,
            port,
            endpoint: None,
            more_endpoints: Vec::new(),
            more_ports: Vec::new(),
            more_devices: Vec::new(),
            contexts: [ptr::null_mut(); 4],
            _verbs: verbs,
            next_id: 1,
            options_file,
            expects_panics: false,
            _turn: turn,
        })
    }

    /// Returns the provider's table, for a test's own calls.
    pub fn provider(&self) -> &'static acm_provider {
        self.provider
    }

    /// Opens device, port and endpoint and adds the source address.
    ///
    /// # Panics
    /// If one of them does not open.
    pub fn open(&mut self) {
        assert_eq!(self.try_open(), Ok(()), "log: {:?}", self.log());
    }

    /// Like [`open`](Self::open); the error names the callback that refused.
    ///
    /// # Errors
    /// The first callback that refused. What was open before it stays open.
    pub fn try_open(&mut self) -> Result<(), &'static str> {
        if self.contexts[DEVICE].is_null()
            && call!(self.open_device(&*self.device, &mut self.contexts[DEVICE])) != 0
        {
            return Err("open_device");
        }
        if call!(self.open_port(&*self.port, self.contexts[DEVICE], &mut self.contexts[PORT])) != 0
        {
            return Err("open_port");
        }
        let pkey = with_state(|state| state.pkeys[0]);
        let endpoint = self.endpoint.insert(Box::new(acm_endpoint {
            port: &mut *self.port,
            pkey,
        }));
        let endpoint: *const acm_endpoint = &**endpoint;
        if call!(self.open_endpoint(endpoint, self.contexts[PORT], &mut self.contexts[ENDPOINT]))
            != 0
        {
            return Err("open_endpoint");
        }
        match self.add_address(&Address::Ip(Self::SOURCE)) {
            Some(Context(context)) => self.contexts[ADDRESS] = context,
            None => return Err("add_address"),
        }
        Ok(())
    }

    /// Opens one more endpoint of the port, without an address; its context, or `None` if the provider refused.
    pub fn open_endpoint(&mut self, pkey: u16) -> Option<Context> {
        let endpoint = Box::new(acm_endpoint {
            port: &mut *self.port,
            pkey,
        });
        let mut context = ptr::null_mut();
        if call!(self.open_endpoint(&*endpoint, self.contexts[PORT], &mut context)) != 0 {
            return None;
        }
        self.more_endpoints.push((Context(context), endpoint));
        Some(Context(context))
    }

    /// Opens one more port of the device, without an endpoint; its context, or `None` if the provider refused.
    pub fn open_another_port(&mut self, number: u8) -> Option<Context> {
        let port = Box::new(acm_port {
            // The provider has a pointer to the device: no reference of ours may end that.
            dev: (&raw const *self.device).cast_mut(),
            port_num: number,
        });
        let mut context = ptr::null_mut();
        if call!(self.open_port(&*port, self.contexts[DEVICE], &mut context)) != 0 {
            return None;
        }
        self.more_ports.push((Context(context), port));
        Some(Context(context))
    }

    /// Forgets the device's context without closing it, as ibacm does after its only port did not open. The next
    /// [`open`](Self::open) opens the device anew.
    pub fn forget_device(&mut self) -> Context {
        let context = &mut self.contexts[DEVICE];
        Context(std::mem::replace(context, ptr::null_mut()))
    }

    /// Opens one more device, with the same node GUID as the first, as a virtual function has it; its context, or `None`
    /// if the provider refused.
    pub fn open_virtual_function(&mut self) -> Option<Context> {
        let device = Box::new(acm_device {
            verbs: self.device.verbs,
            dev_guid: self.device.dev_guid,
        });
        let mut context = ptr::null_mut();
        if call!(self.open_device(&*device, &mut context)) != 0 {
            return None;
        }
        self.more_devices.push((Context(context), device));
        Some(Context(context))
    }

    /// Closes a device that [`open_virtual_function`](Self::open_virtual_function) opened.
    pub fn close_virtual_function(&mut self, context: Context) {
        call!(self.close_device(context.0));
        self.more_devices.retain(|(opened, _)| *opened != context);
    }

    /// Adds an address to the endpoint; its context, or `None` if the provider refused.
    pub fn add_address(&mut self, address: &Address) -> Option<Context> {
        self.add_address_to(Context(self.contexts[ENDPOINT]), address)
    }

    /// The same for an endpoint that [`open_endpoint`](Self::open_endpoint) opened.
    pub fn add_address_to(&mut self, endpoint: Context, address: &Address) -> Option<Context> {
        let text = CString::new(address.to_string()).expect("no NUL in an address");
        let mut more = self.more_endpoints.iter_mut();
        let opened = more.find_map(|(context, opened)| (*context == endpoint).then_some(opened));
        let mut acm_address = Box::new(acm_address {
            endpoint: opened
                .or(self.endpoint.as_mut())
                .map_or(ptr::null_mut(), |opened| &raw mut **opened),
            info: acm_ep_info {
                addr: address.to_field(),
            },
            id_string: text.as_ptr().cast_mut(),
            r#type: AcmEpType(address.kind()),
        });
        let mut context = ptr::null_mut();
        let refused = call!(self.add_address(&*acm_address, endpoint.0, &mut context)) != 0;
        // The real core moves the structure later.
        acm_address.info = acm_ep_info {
            addr: [0xa5; ACM_MAX_ADDRESS],
        };
        (!refused).then_some(Context(context))
    }

    /// Removes an address that was added before.
    pub fn remove_address(&mut self, context: Context) {
        call!(self.remove_address(context.0));
    }

    /// Closes the endpoints with their addresses, the port, and the devices.
    pub fn close(&mut self) {
        self.close_port();
        for (context, _) in std::mem::take(&mut self.more_ports) {
            call!(self.close_port(context.0));
        }
        for (context, _) in std::mem::take(&mut self.more_devices) {
            call!(self.close_device(context.0));
        }
        if !self.contexts[DEVICE].is_null() {
            call!(self.close_device(std::mem::replace(
                &mut self.contexts[DEVICE],
                ptr::null_mut()
            )));
        }
    }

    /// The port goes down: everything but the device is closed, as the core does it.
    pub fn close_port(&mut self) {
        let take = |context: &mut *mut c_void| std::mem::replace(context, ptr::null_mut());
        if !self.contexts[ADDRESS].is_null() {
            call!(self.remove_address(take(&mut self.contexts[ADDRESS])));
        }
        if !self.contexts[ENDPOINT].is_null() {
            call!(self.close_endpoint(take(&mut self.contexts[ENDPOINT])));
        }
        self.endpoint = None;
        for (context, _) in std::mem::take(&mut self.more_endpoints) {
            call!(self.close_endpoint(context.0));
        }
        if !self.contexts[PORT].is_null() {
            call!(self.close_port(take(&mut self.contexts[PORT])));
        }
    }

    /// Closes address, endpoint and port when it is called, from any thread, also while the provider is in a callback.
    /// The core closes the address again in the end.
    pub fn closer(&mut self) -> impl FnOnce() + Send + 'static {
        let closes = [
            (self.provider.remove_address, self.contexts[ADDRESS]),
            (self.provider.close_endpoint, self.contexts[ENDPOINT]),
            (self.provider.close_port, self.contexts[PORT]),
        ]
        .map(|(close, context)| (close.expect("the SDK fills every slot"), context.addr()));
        self.contexts[ENDPOINT] = ptr::null_mut();
        self.contexts[PORT] = ptr::null_mut();
        move || {
            for (close, context) in closes {
                // SAFETY: a context is a number to the SDK.
                unsafe { close(ptr::without_provenance_mut(context)) };
            }
        }
    }

    /// The contexts of device, port, endpoint and source address; NULL for what is not open.
    pub fn contexts(&self) -> [Context; 4] {
        self.contexts.map(Context)
    }

    /// Closes contexts that are closed already, or were never open.
    pub fn close_again(&mut self, [device, port, endpoint, address]: [Context; 4]) {
        call!(self.remove_address(address.0));
        call!(self.close_endpoint(endpoint.0));
        call!(self.close_port(port.0));
        call!(self.close_device(device.0));
    }

    /// Sends a resolve request from any address, open or not. Returns its id.
    pub fn resolve_from(&mut self, address: Context, request: &Request) -> u64 {
        let (mut message, id) = self.number(request);
        call!(self.resolve(address.0, &mut *message, id));
        self.answer_class_port_info();
        id
    }

    /// Plays `IBV_EVENT_CLIENT_REREGISTER`.
    pub fn reregister(&mut self) {
        assert_eq!(
            call!(self.handle_event(self.contexts[PORT], ibv_event_type::CLIENT_REREGISTER)),
            0
        );
    }

    /// Sends a resolve request. Returns its id.
    pub fn resolve(&mut self, request: &Request) -> u64 {
        let (mut message, id) = self.number(request);
        assert_eq!(
            call!(self.resolve(self.contexts[ADDRESS], &mut *message, id)),
            0,
            "resolve answers and returns 0"
        );
        self.answer_class_port_info();
        id
    }

    /// Sends a resolve request of the kernel (rdma_cm). All of these have the id 0.
    pub fn resolve_for_kernel(&mut self, request: &Request) {
        let mut message = Box::new(request.message);
        assert_eq!(
            call!(self.resolve(self.contexts[ADDRESS], &mut *message, 0)),
            0,
            "resolve answers and returns 0"
        );
    }

    /// Sends a query request. Returns its id.
    pub fn query(&mut self, request: &Request) -> u64 {
        let (mut message, id) = self.number(request);
        assert_eq!(
            call!(self.query(self.contexts[ADDRESS], &mut *message, id)),
            0,
            "query answers and returns 0"
        );
        self.answer_class_port_info();
        id
    }

    /// Copies the message, with a new id and tid; the copy is freed after the call, as the core's is.
    fn number(&mut self, request: &Request) -> (Box<acm_msg>, u64) {
        let id = self.next_id;
        self.next_id += 1;
        let mut message = Allocations::of_the_core(|| Box::new(request.message));
        message.hdr.tid = 0x7a00_0000_0000_0000 | id;
        (message, id)
    }

    /// The endpoint's counters.
    pub fn endpoint_counters(&self) -> [u64; ACM_MAX_COUNTER] {
        let mut values = [Be64::from_host(0); ACM_MAX_COUNTER];
        let mut count = 0;
        call!(self.query_perf(self.contexts[ENDPOINT], values.as_mut_ptr(), &mut count));
        assert_eq!(usize::from(count), ACM_MAX_COUNTER);
        values.map(Be64::to_host)
    }

    /// The provider's counts in the core's counters.
    pub fn core_counters(&self) -> [u64; ACM_MAX_COUNTER] {
        with_state(|state| state.counters)
    }

    /// All answers to a client so far.
    pub fn answers(&self, id: u64) -> Vec<Answer> {
        self.answer_class_port_info();
        with_state(|state| {
            state
                .answers
                .iter()
                .filter(|answer| answer.id == id)
                .cloned()
                .collect()
        })
    }

    /// Waits for the answer to a client.
    ///
    /// # Panics
    /// If there is none in time.
    pub fn wait_for_answer(&self, id: u64) -> Answer {
        self.wait(&format!("the answer to {id}"), |state| {
            state.answers.iter().find(|answer| answer.id == id).cloned()
        })
    }

    /// Returns the outstanding SA MADs, oldest first: path queries and joins, and ClassPortInfo queries if
    /// [`play_class_port_info`](Self::play_class_port_info) leaves them to the test.
    pub fn sa_mads(&self) -> Vec<umad_sa_packet> {
        self.answer_class_port_info();
        with_state(|state| state.sent.iter().map(SentMad::packet).collect())
    }

    /// Waits for at least `count` outstanding SA MADs.
    ///
    /// # Panics
    /// If there are fewer in time.
    pub fn wait_for_sa_mads(&self, count: usize) -> Vec<umad_sa_packet> {
        self.wait(&format!("{count} SA MADs"), |state| {
            (state.sent.len() >= count).then(|| state.sent.iter().map(SentMad::packet).collect())
        })
    }

    /// Answers the oldest SA MAD: `change` turns the query into the response.
    ///
    /// # Panics
    /// If no MAD is outstanding.
    pub fn sa_answers(&self, change: impl FnOnce(&mut umad_sa_packet)) {
        self.bring_back(0, |packet| {
            // The answer to a SET is that to a GET.
            packet.mad_hdr.method = match packet.mad_hdr.method {
                UMAD_METHOD_SET => UMAD_METHOD_GET_RESP,
                method => method | UMAD_METHOD_RESP_MASK,
            };
            change(packet);
        });
    }

    /// Answers the oldest SA MAD with a matching record. If the query names no LID, it is 2 for GIDs of the port's subnet, and
    /// [`ROUTER`](Self::ROUTER) for others. If it names no GID, the GID is one of the port's subnet. A link-local GID gets the
    /// subnet's prefix.
    ///
    /// # Panics
    /// If no MAD is outstanding.
    pub fn sa_answers_with(&self, change: impl FnOnce(&mut PathRecord)) {
        self.sa_answers(|packet| {
            let mut record =
                PathRecord::from_bytes(packet.data.first_chunk().expect("200 bytes of data"));
            let prefix = with_state(|state| state.gids[0].subnet_prefix());
            if record.dgid().is_zero() {
                record.set_dgid(Gid::new(prefix, 0x2000 + u64::from(record.dlid().0)));
            } else if record.dgid().subnet_prefix() >> 54 == LINK_LOCAL {
                record.set_dgid(Gid::new(prefix, record.dgid().interface_id()));
            }
            let is_far = record.dgid().subnet_prefix() != prefix;
            if is_far {
                record.set_hop_limit(0xff);
            }
            if record.dlid().0 == 0 {
                record.set_dlid(if is_far { Self::ROUTER } else { Lid(2) });
            }
            record.set_slid(Lid(1));
            change(&mut record);
            packet.data[..PathRecord::LENGTH].copy_from_slice(&record.to_bytes());
        });
    }

    /// Lets the oldest SA MAD time out.
    ///
    /// # Panics
    /// If no MAD is outstanding.
    pub fn sa_times_out(&self) {
        self.bring_back(libc::ETIMEDOUT as u32, |_| ());
    }

    /// Answers the oldest SA MAD, which must be a ClassPortInfo query.
    ///
    /// # Panics
    /// If no MAD is outstanding, or the oldest is another one.
    pub fn sa_answers_class_port_info(&self, qos: bool) {
        let oldest = self
            .sa_mads()
            .first()
            .map(|packet| packet.mad_hdr.attr_id.to_host());
        assert_eq!(
            oldest,
            Some(UMAD_ATTR_CLASS_PORT_INFO),
            "the attribute asked for"
        );
        self.sa_answers(|packet| write_class_port_info(packet, qos));
    }

    /// Sets whether the SA's ClassPortInfo says, from now on, that service id and QoS class affect a path.
    pub fn set_qos(&self, qos: bool) {
        with_state(|state| state.class_port_info.qos = qos);
    }

    /// Sets whether ClassPortInfo queries, from now on, wait for the test like the others or are answered at once.
    pub fn play_class_port_info(&self, is_the_tests: bool) {
        with_state(|state| state.class_port_info.is_the_tests = is_the_tests);
    }

    /// Returns the number of ClassPortInfo queries so far.
    pub fn class_port_info_queries(&self) -> usize {
        with_state(|state| state.class_port_info.asked)
    }

    /// Answers ClassPortInfo queries in the test's thread, like all others, so that the provider holds no locks.
    fn answer_class_port_info(&self) {
        loop {
            let next = STATE.lock().as_mut().and_then(|state| {
                let info = &mut state.class_port_info;
                Some((info.unanswered.pop_front()?, info.qos))
            });
            let Some((asked, qos)) = next else { return };
            give_back(asked, 0, |packet| {
                packet.mad_hdr.method |= UMAD_METHOD_RESP_MASK;
                write_class_port_info(packet, qos);
            });
        }
    }

    /// Sets whether `acm_send_sa_mad` refuses MADs from now on.
    pub fn refuse_mads(&self, refuse: bool) {
        with_state(|state| state.refuse_mads = refuse);
    }

    /// Returns the number of MADs that the provider has allocated and not freed.
    pub fn mads(&self) -> usize {
        with_state(|state| state.mads)
    }

    /// Changes the port's attributes, which `ibv_query_port` returns.
    pub fn change_port(&self, change: impl FnOnce(&mut _compat_ibv_port_attr)) {
        with_state(|state| change(&mut state.attributes));
    }

    /// Changes the port's P_Key table; the next endpoint gets its first entry.
    pub fn set_pkeys(&self, pkeys: &[u16]) {
        with_state(|state| {
            pkeys.clone_into(&mut state.pkeys);
            state.attributes.pkey_tbl_len = pkeys.len() as _;
        });
    }

    /// Changes the port's GIDs: the first is its own, the others are aliases. Call this while nothing is open.
    ///
    /// # Panics
    /// If there is none.
    pub fn set_gids(&self, gids: &[Gid]) {
        assert!(!gids.is_empty(), "a port has a GID");
        with_state(|state| {
            gids.clone_into(&mut state.gids);
            state.attributes.gid_tbl_len = gids.len() as _;
        });
    }

    /// Returns the lines of the log.
    pub fn log(&self) -> Vec<String> {
        with_state(|state| state.log.clone())
    }

    /// Waits until a line of the log contains `text`.
    ///
    /// # Panics
    /// If there is none in time.
    pub fn wait_for_log(&self, text: &str) -> String {
        self.wait(&format!("{text:?} in the log"), |state| {
            state.log.iter().find(|line| line.contains(text)).cloned()
        })
    }

    /// Declares that panics of the provider are part of the test from now on.
    pub fn expect_panics(&mut self) {
        self.expects_panics = true;
    }

    fn wait<R>(&self, what: &str, mut ready: impl FnMut(&State) -> Option<R>) -> R {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.answer_class_port_info();
            let mut state = STATE.lock();
            if state
                .as_ref()
                .is_some_and(|state| !state.class_port_info.unanswered.is_empty())
            {
                continue;
            }
            if let Some(result) = state.as_ref().and_then(&mut ready) {
                return result;
            }
            let late = CHANGED.wait_until(&mut state, deadline).timed_out();
            assert!(
                !late,
                "{what} did not come; log: {:?}",
                state.as_ref().map(|state| state.log.clone())
            );
        }
    }

    fn bring_back(&self, status: u32, change: impl FnOnce(&mut umad_sa_packet)) {
        let sent = with_state(|state| state.sent.pop_front()).expect("an SA MAD is outstanding");
        give_back(sent, status, change);
        self.answer_class_port_info();
    }
}

fn give_back(SentMad(sent): SentMad, status: u32, change: impl FnOnce(&mut umad_sa_packet)) {
    // SAFETY: a MAD of ours, which the handler frees. The handler runs without the state's lock.
    unsafe {
        (*sent).mad.umad.status = status;
        change(&mut (*sent).mad.sa_mad);
        let handler = (*sent).handler.expect("the provider gave a handler");
        handler(sent.cast());
    }
}

/// The SA's ClassPortInfo as OpenSM sends it, as far as it concerns paths.
fn write_class_port_info(packet: &mut umad_sa_packet, qos: bool) {
    // OpenSM's value; one bit means that service id and QoS class affect paths.
    let capabilities = 0xb5e8 | if qos { UMAD_SA_CAP_MASK2_IS_QOS_SUP } else { 0 };
    const RESPONSE_TIME: u32 = 16;
    packet.data[..72].fill(0);
    packet.data[..2].copy_from_slice(&[UMAD_BASE_VERSION, UMAD_SA_CLASS_VERSION]);
    packet.data[4..8].copy_from_slice(&(capabilities << 5 | RESPONSE_TIME).to_be_bytes());
}

impl Drop for TestCore {
    fn drop(&mut self) {
        self.close();
        // End all outstanding MADs before another core reuses this one's place and addresses.
        while !self.sa_mads().is_empty() {
            self.sa_times_out();
        }
        if let Some(path) = &self.options_file {
            let _ = std::fs::remove_file(path);
        }
        let panics: Vec<String> = self
            .log()
            .into_iter()
            .filter(|line| line.contains(": panic: "))
            .collect();
        if !self.expects_panics && !std::thread::panicking() {
            assert!(panics.is_empty(), "the provider panicked: {panics:?}");
        }
    }
}

#[cfg(test)]
mod tests;
