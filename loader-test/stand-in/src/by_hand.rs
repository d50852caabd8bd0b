//! A core whose SA is the test: what the provider asks waits until the test answers it, or lets it time out.
//!
//! [`ByHand`] is an [`InProcess`] with one device, port, endpoint and address, which speaks the SDK's types. One question is
//! answered by itself: what the SA can do (ClassPortInfo). [`StandIn::set_qos`](super::StandIn::set_qos) says whether
//! services choose paths.
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

/// How long a test waits for something that must happen.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often it looks.
const PAUSE: Duration = Duration::from_micros(200);
/// The first ten bits of a link-local GID.
const LINK_LOCAL: u64 = 0xfe80_0000_0000_0000 >> 54;

/// See the module. Dropped, it closes everything, and fails the test if the contract was broken.
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
    /// The LID by which the SA's paths lead to other subnets.
    pub const ROUTER: Lid = Lid(0x0100);
    /// The address that requests come from.
    pub const SOURCE: Ipv4Addr = Ipv4Addr::LOCALHOST;

    /// Loads a provider with these contents of ibacm_opts.cfg, and no others.
    ///
    /// # Panics
    /// If the provider does not load.
    pub fn load<P: Exported>(options: &str) -> Self {
        Self::try_load::<P>(options, vec![Self::device()])
            .unwrap_or_else(|error| panic!("the provider does not load: {error}"))
    }

    /// The same with other devices, of which the first port of the first one is opened.
    ///
    /// # Errors
    /// The provider's own.
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

    /// The usual device.
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

    /// Breaches of the contract are part of the test.
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

    /// The same for the endpoint of a P_Key, which is opened with its first address.
    pub fn add_address_to(&mut self, pkey: u16, address: &Address) -> Option<AddressId> {
        self.core
            .add_address(FIRST_PORT, pkey, &request::addr(address))
            .ok()
    }

    /// The port goes down.
    pub fn close_port(&mut self) {
        self.source = None;
        self.core.port_down(FIRST_PORT);
    }

    /// Closes everything, a device too whose port did not open.
    pub fn close(&mut self) {
        self.source = None;
        self.core.close_all();
        self.core.close_forgotten_devices();
    }

    /// The contexts of device, port, endpoint and source address.
    ///
    /// # Panics
    /// If nothing is open.
    pub fn contexts(&mut self) -> Contexts {
        let source = self.opened();
        self.core.all_contexts(source)
    }

    /// Plays a second close of what is closed.
    pub fn close_again(&mut self, contexts: Contexts) {
        self.core.close_again(contexts);
    }

    /// Plays `IBV_EVENT_CLIENT_REREGISTER`.
    ///
    /// # Panics
    /// If the provider refuses.
    pub fn reregister(&mut self) {
        assert_eq!(self.core.reregister(FIRST_PORT), 0);
    }

    fn opened(&self) -> AddressId {
        self.source.expect("the port is open")
    }

    /// Plays a resolve request; its id.
    pub fn resolve(&mut self, request: &Request) -> u64 {
        let from = self.opened();
        let id = self.core.resolve_from(from, request.message());
        self.tell_class_port_info();
        id
    }

    /// Plays a request to ask the SA; its id.
    pub fn query(&mut self, request: &Request) -> u64 {
        let from = self.opened();
        let id = self.core.query_from(from, request.message());
        self.tell_class_port_info();
        id
    }

    /// The endpoint's counters.
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

    /// The core's counters, those included that it counts itself.
    pub fn core_counters(&self) -> [u64; ACM_MAX_COUNTER] {
        self.core.counters()
    }

    /// All answers to a client so far.
    pub fn answers(&self, id: u64) -> Vec<Answer> {
        self.tell_class_port_info();
        self.core.replies(id).iter().map(Answer::of).collect()
    }

    /// The answer to a client, as soon as it is there.
    ///
    /// # Panics
    /// If none comes.
    pub fn wait_for_answer(&self, id: u64) -> Answer {
        self.wait(&format!("the answer to {id}"), || {
            self.answers(id).into_iter().next()
        })
    }

    /// The questions that wait for the SA, oldest first.
    pub fn sa_queries(&self) -> Vec<umad_sa_packet> {
        self.tell_class_port_info();
        let held = self.core.sa().held();
        held.into_iter().map(|held| held.packet).collect()
    }

    /// Waits until at least `count` questions wait for the SA.
    ///
    /// # Panics
    /// If they do not come.
    pub fn wait_for_sa_queries(&self, count: usize) -> Vec<umad_sa_packet> {
        self.wait(&format!("{count} questions to the SA"), || {
            let questions = self.sa_queries();
            (questions.len() >= count).then_some(questions)
        })
    }

    /// The SA answers the oldest question: `change` turns the question's MAD into the answer's.
    ///
    /// # Panics
    /// If no question waits.
    pub fn sa_answers(&self, change: impl FnOnce(&mut umad_sa_packet)) {
        self.bring_back(0, |packet| {
            packet.mad_hdr.method = sa::response_to(packet.mad_hdr.method);
            change(packet);
        });
    }

    /// The SA answers the oldest question with a record for it. A LID that the question does not name is 2, for every GID
    /// of the port's subnet, and [`ROUTER`](Self::ROUTER) for one of another subnet; a GID is one of the port's subnet. A
    /// link-local GID means one of that subnet, which the record then says.
    ///
    /// # Panics
    /// If no question waits.
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

    /// The oldest question times out.
    ///
    /// # Panics
    /// If no question waits.
    pub fn sa_times_out(&self) {
        self.bring_back(libc::ETIMEDOUT.cast_unsigned(), |_| ());
    }

    fn bring_back(&self, status: u32, change: impl FnOnce(&mut umad_sa_packet)) {
        self.tell_class_port_info();
        let held = self.core.sa().held();
        let oldest = held.first().expect("a question waits for the SA");
        self.give_back(oldest, status, change);
        self.tell_class_port_info();
    }

    fn give_back(&self, held: &Held, status: u32, change: impl FnOnce(&mut umad_sa_packet)) {
        let is_there = self
            .core
            .sa()
            .bring_back(held.question.number, status, |packet| {
                // The kernel has used the upper half for itself.
                let tid = packet.mad_hdr.tid.to_host() & u64::from(u32::MAX) | 1 << 32;
                packet.mad_hdr.tid = Be64::from_host(tid);
                change(packet);
            });
        assert!(is_there, "nobody else brings MADs back");
    }

    /// Questions for what the SA can do are answered in the test's thread, like all others: a provider's locks are free.
    fn tell_class_port_info(&self) {
        let is_it = |held: &Held| held.question.is_class_port_info();
        while let Some(held) = self.core.sa().held().into_iter().find(is_it) {
            let info = self.core.subnet().class_port_info();
            self.give_back(&held, 0, |packet| {
                packet.mad_hdr.method = sa::response_to(packet.mad_hdr.method);
                packet.data[..info.len()].copy_from_slice(&info);
            });
        }
    }

    /// `acm_send_sa_mad` refuses from now on, or takes MADs again.
    pub fn refuse_mads(&self, refuse: bool) {
        self.core.fail_mads(MadFaults {
            refuse,
            ..MadFaults::default()
        });
    }

    /// MADs that the provider holds or the core keeps for it.
    pub fn mads(&self) -> usize {
        self.core.mads_held() + self.core.sa().held().len()
    }

    /// Changes the port, as a subnet manager does: verbs give the new attributes.
    pub fn change_port(&mut self, change: impl FnOnce(&mut PortSpec)) {
        self.core.change_port(FIRST_PORT, change);
    }

    /// Changes the port's P_Key table; the endpoint that is opened next has its first entry.
    pub fn set_pkeys(&mut self, pkeys: &[u16]) {
        self.change_port(|port| port.pkeys = pkeys.to_vec());
    }

    /// The lines of the log.
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
