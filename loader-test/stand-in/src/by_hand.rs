//! A core in which the test plays the SA: each query waits until the test responds or lets it time out.
//!
//! [`ByHand`] is an [`InProcess`] with one device, port, endpoint and address, in the SDK's types. It responds to one query
//! itself: the SA's ClassPortInfo. [`StandIn::set_qos`](super::StandIn::set_qos) sets whether service ids select paths.
//!
//! ```
//! # use acm_prov_api::prelude::*;
//! # struct Mine;
//! # impl Provider for Mine {
//! #     const NAME: &CStr = c"mine";
//! #     type Endpoint = NoContext;
//! #     fn load(_: &Host, _: &Options) -> Result<Self, Error> { Ok(Self) }
//! #     fn resolve(&self, from: &LocalAddress<Self>, request: ResolveRequest) {
//! #         let request = request.keep();
//! #         from.endpoint().handle().ask_path(&request.path_query(), move |answer| match answer {
//! #             Ok(path) => request.answer(&path),
//! #             Err(_) => request.refuse(Status::ETIMEDOUT),
//! #         });
//! #     }
//! # }
//! # acm_prov_api::provider_table!(Mine);
//! use acm_stand_in::by_hand::{ByHand, Request};
//!
//! let mut core = ByHand::load::<Mine>("");
//! core.open();
//! let id = core.resolve(&Request::destination(&Address::Lid(Lid(7))));
//! core.wait_for_sa_queries(1);
//! assert!(core.answers(id).is_empty());
//! core.sa_answers_with(|path| {
//!     path.set_sl(3);
//! });
//! assert_eq!(core.wait_for_answer(id).path.unwrap().sl(), 3);
//! ```

mod request;

use std::net::Ipv4Addr;
use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

use acm_prov_api::abi::{ACM_MAX_COUNTER, Be64, umad_sa_packet};
use acm_prov_api::address::{Address, Gid, Lid};
use acm_prov_api::path::PathRecord;
use acm_prov_api::{Error, Exported};

use super::closed_again::Contexts;
use super::fabric::{DeviceSpec, PortSpec};
use super::in_process::InProcess;
use super::message::Addr;
use super::sa::{self, Held};
use super::{AddressId, FIRST_PORT, MadFaults, Refused};

pub use request::{Answer, Request};

/// Longest wait for an expected event.
const PATIENCE: Duration = Duration::from_secs(60);
/// Poll interval.
const PAUSE: Duration = Duration::from_micros(200);
/// The first ten bits of a link-local GID.
const LINK_LOCAL: u64 = 0xfe80_0000_0000_0000 >> 54;

/// A core in which the test plays the SA. Dropping it closes everything, and fails the test after a violation.
pub struct ByHand {
    core: InProcess,
    source: Option<AddressId>,
    is_judged: bool,
}

impl ByHand {
    /// The port's GID.
    pub const GID: Gid = Gid::new(0xfe80_0000_0000_0000, 0x0010_0001);
    /// The port's LID.
    pub const LID: Lid = Lid(1);
    /// The router's LID, which is the DLID of paths to other subnets.
    pub const ROUTER: Lid = Lid(0x0100);
    /// The source address of requests.
    pub const SOURCE: Ipv4Addr = Ipv4Addr::LOCALHOST;

    /// Loads a provider with exactly these contents of ibacm_opts.cfg.
    ///
    /// # Panics
    /// If the provider does not load.
    pub fn load<P: Exported>(options: &str) -> Self {
        Self::try_load::<P>(options, vec![Self::device()])
            .unwrap_or_else(|error| panic!("the provider does not load: {error}"))
    }

    /// Does the same with other devices; [`open`](Self::open) opens the first port of the first one.
    ///
    /// # Errors
    /// The error of the provider's `load`.
    pub fn try_load<P: Exported>(options: &str, devices: Vec<DeviceSpec>) -> Result<Self, Error> {
        let lines: Vec<&str> = options.lines().collect();
        let core = InProcess::load_with_exactly::<P>(devices, &lines)?;
        core.sa().leave_to_test();
        Ok(Self {
            core,
            source: None,
            is_judged: true,
        })
    }

    /// Returns the default device.
    pub fn device() -> DeviceSpec {
        DeviceSpec {
            name: "sim1".into(),
            node_guid: 0x0010_0000,
            ports: vec![PortSpec {
                sm_lid: 9,
                mtu: 5,
                ..PortSpec::new(Self::GID.interface_id(), Self::LID.0)
            }],
        }
    }

    /// Allows violations of the contract: the test causes them on purpose.
    pub fn expect_breaches(&mut self) {
        self.is_judged = false;
    }

    /// Opens device, port and endpoint and adds the source address.
    ///
    /// # Panics
    /// If one of them does not open.
    pub fn open(&mut self) {
        if let Err(refused) = self.try_open() {
            panic!("{refused}; log: {:?}", self.log());
        }
    }

    /// Like [`open`](Self::open).
    ///
    /// # Errors
    /// The first callback that refused. What was open before it stays open.
    pub fn try_open(&mut self) -> Result<(), Refused> {
        self.core.port_up(FIRST_PORT)?;
        let pkey = self.core.port(FIRST_PORT).pkeys[0];
        let source = Addr::Ip(Self::SOURCE);
        self.source = Some(self.core.add_address(FIRST_PORT, pkey, &source)?);
        Ok(())
    }

    /// Adds an address to the endpoint; `None` if the provider refused.
    pub fn add_address(&mut self, address: &Address) -> Option<AddressId> {
        let pkey = self.core.port(FIRST_PORT).pkeys[0];
        self.add_address_to(pkey, address)
    }

    /// Does the same for the endpoint of a P_Key, which its first address opens.
    pub fn add_address_to(&mut self, pkey: u16, address: &Address) -> Option<AddressId> {
        self.core
            .add_address(FIRST_PORT, pkey, &request::addr(address))
            .ok()
    }

    /// Takes the port down.
    pub fn close_port(&mut self) {
        self.source = None;
        self.core.port_down(FIRST_PORT);
    }

    /// Closes everything, even a device whose port did not open.
    pub fn close(&mut self) {
        self.source = None;
        self.core.close_all();
        self.core.close_forgotten_devices();
    }

    /// Returns the contexts of device, port, endpoint and source address.
    ///
    /// # Panics
    /// If nothing is open.
    pub fn contexts(&mut self) -> Contexts {
        let source = self.opened();
        self.core.all_contexts(source)
    }

    /// Closes closed contexts a second time.
    pub fn close_again(&mut self, contexts: Contexts) {
        self.core.close_again(contexts);
    }

    /// Sends `IBV_EVENT_CLIENT_REREGISTER`.
    ///
    /// # Panics
    /// If the provider refuses.
    pub fn reregister(&mut self) {
        assert_eq!(self.core.reregister(FIRST_PORT), 0);
    }

    fn opened(&self) -> AddressId {
        self.source.expect("the port is open")
    }

    /// Sends a resolve request and returns its id.
    pub fn resolve(&mut self, request: &Request) -> u64 {
        let from = self.opened();
        let id = self.core.resolve_from(from, request.message());
        self.answer_class_port_info();
        id
    }

    /// Sends a query and returns its id.
    pub fn query(&mut self, request: &Request) -> u64 {
        let from = self.opened();
        let id = self.core.query_from(from, request.message());
        self.answer_class_port_info();
        id
    }

    /// Returns the endpoint's counters.
    ///
    /// # Panics
    /// If nothing is open.
    pub fn endpoint_counters(&mut self) -> [u64; ACM_MAX_COUNTER] {
        let pkey = self.opened().pkey;
        let counters = self.core.query_perf(FIRST_PORT, pkey);
        let (count, values) = counters.expect("the endpoint is open");
        assert_eq!(usize::from(count), ACM_MAX_COUNTER);
        std::array::from_fn(|index| values[index])
    }

    /// Returns the core's counters, including those that the core counts itself.
    pub fn core_counters(&self) -> [u64; ACM_MAX_COUNTER] {
        self.core.counters()
    }

    /// Returns all answers to a client so far.
    pub fn answers(&self, id: u64) -> Vec<Answer> {
        self.answer_class_port_info();
        self.core.replies(id).iter().map(Answer::of).collect()
    }

    /// Waits for the first answer to a client.
    ///
    /// # Panics
    /// If none comes.
    pub fn wait_for_answer(&self, id: u64) -> Answer {
        self.wait(&format!("the answer to {id}"), || {
            self.answers(id).into_iter().next()
        })
    }

    /// Returns the queries that wait for the SA, oldest first.
    pub fn sa_queries(&self) -> Vec<umad_sa_packet> {
        self.answer_class_port_info();
        let held = self.core.sa().held();
        held.into_iter().map(|held| held.packet).collect()
    }

    /// Waits until at least `count` queries wait for the SA.
    ///
    /// # Panics
    /// If they do not come.
    pub fn wait_for_sa_queries(&self, count: usize) -> Vec<umad_sa_packet> {
        self.wait(&format!("{count} SA queries"), || {
            let queries = self.sa_queries();
            (queries.len() >= count).then_some(queries)
        })
    }

    /// Responds to the oldest query: `change` turns the query's MAD into the response.
    ///
    /// # Panics
    /// If no query waits.
    pub fn sa_answers(&self, change: impl FnOnce(&mut umad_sa_packet)) {
        self.bring_back(0, |packet| {
            packet.mad_hdr.method = sa::response_to(packet.mad_hdr.method);
            change(packet);
        });
    }

    /// Responds to the oldest query with a matching record, after `change`. If the query names no DLID, the record has 2
    /// for a GID of the port's subnet, and [`ROUTER`](Self::ROUTER) for one of another subnet. If it names no DGID, the
    /// record has a GID of the port's subnet. A link-local GID becomes the GID with the port's prefix.
    ///
    /// # Panics
    /// If no query waits.
    pub fn sa_answers_with(&self, change: impl FnOnce(&mut PathRecord)) {
        let prefix = self.core.port(FIRST_PORT).prefix;
        self.sa_answers(|packet| {
            let asked = packet.data.first_chunk().expect("200 bytes of data");
            let mut record = PathRecord::from_bytes(asked);
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
            record.set_slid(Self::LID);
            change(&mut record);
            packet.data[..PathRecord::LENGTH].copy_from_slice(&record.to_bytes());
        });
    }

    /// Lets the oldest query time out.
    ///
    /// # Panics
    /// If no query waits.
    pub fn sa_times_out(&self) {
        self.bring_back(libc::ETIMEDOUT.cast_unsigned(), |_| ());
    }

    fn bring_back(&self, status: u32, change: impl FnOnce(&mut umad_sa_packet)) {
        self.answer_class_port_info();
        let held = self.core.sa().held();
        let oldest = held.first().expect("a query waits for the SA");
        self.give_back(oldest, status, change);
        self.answer_class_port_info();
    }

    fn give_back(&self, held: &Held, status: u32, change: impl FnOnce(&mut umad_sa_packet)) {
        let is_there = self
            .core
            .sa()
            .bring_back(held.request.number, status, |packet| {
                // The kernel has overwritten the upper half.
                let tid = packet.mad_hdr.tid.to_host() & u64::from(u32::MAX) | 1 << 32;
                packet.mad_hdr.tid = Be64::from_host(tid);
                change(packet);
            });
        assert!(is_there, "only the test returns MADs");
    }

    /// Responds to ClassPortInfo queries on the test's thread, like to all others, while the provider holds no locks.
    fn answer_class_port_info(&self) {
        let is_it = |held: &Held| held.request.is_class_port_info();
        while let Some(held) = self.core.sa().held().into_iter().find(is_it) {
            let info = self.core.subnet().class_port_info();
            self.give_back(&held, 0, |packet| {
                packet.mad_hdr.method = sa::response_to(packet.mad_hdr.method);
                packet.data[..info.len()].copy_from_slice(&info);
            });
        }
    }

    /// Sets whether `acm_send_sa_mad` fails.
    pub fn refuse_mads(&self, refuse: bool) {
        self.core.fail_mads(MadFaults {
            refuse,
            ..MadFaults::default()
        });
    }

    /// Returns the number of MADs that the provider or the core holds.
    pub fn mads(&self) -> usize {
        self.core.mads_held() + self.core.sa().held().len()
    }

    /// Changes the port's attributes, as a subnet manager does.
    pub fn change_port(&mut self, change: impl FnOnce(&mut PortSpec)) {
        self.core.change_port(FIRST_PORT, change);
    }

    /// Changes the port's P_Key table; the next endpoint gets its first entry.
    pub fn set_pkeys(&mut self, pkeys: &[u16]) {
        self.change_port(|port| port.pkeys = pkeys.to_vec());
    }

    /// Returns the log lines.
    pub fn log(&self) -> Vec<String> {
        let lines = self.core.log();
        lines.into_iter().map(|(_, text)| text).collect()
    }

    /// Waits until a line of the log contains `text`.
    ///
    /// # Panics
    /// If none comes.
    pub fn wait_for_log(&self, text: &str) -> String {
        self.wait(&format!("{text:?} in the log"), || {
            self.log().into_iter().find(|line| line.contains(text))
        })
    }

    fn wait<R>(&self, what: &str, mut ready: impl FnMut() -> Option<R>) -> R {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(result) = ready() {
                return result;
            }
            let is_late = Instant::now() > deadline;
            assert!(!is_late, "{what} did not come; log: {:?}", self.log());
            std::thread::sleep(PAUSE);
        }
    }
}

impl Deref for ByHand {
    type Target = InProcess;

    fn deref(&self) -> &InProcess {
        &self.core
    }
}

impl DerefMut for ByHand {
    fn deref_mut(&mut self) -> &mut InProcess {
        &mut self.core
    }
}

impl Drop for ByHand {
    fn drop(&mut self) {
        self.close();
        // Nothing of this core may be waited for when another one takes its place.
        while !self.sa_queries().is_empty() {
            self.sa_times_out();
        }
        if !self.is_judged {
            self.core.forgive_all();
        }
    }
}
