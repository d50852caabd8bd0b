//! `mcast-sa`: an ibacm provider for any node of a cluster, beside stock's or instead of it.
//!
//! Names and IP addresses are resolved by the ACM multicast protocol, which the stock provider speaks as well; paths come
//! from the SA (`route_prot sa`) or from the group that both ends share (`route_prot acm`). It reads stock's options, and
//! speaks stock's datagrams, so that clusters can mix both.
//!
//! | module | what it does |
//! | --- | --- |
//! | `wire` | the protocol's datagram: checked view, writer |
//! | `groups` | which groups, when to join them (state machine) |
//! | `resolver` | who has an address, who waits for it (state machine) |
//! | `flood` | what was dropped, one line a second (state machine) |
//! | `datagrams` | queue pair and buffers |
//! | `device` | the device's thread |
//! | `endpoint` | joins all of these to the core and to the SDK's cache engine |
//!
//! # Beside the stock provider
//! | subject | stock (libibacmp) | mcast-sa | why |
//! | --- | --- | --- | --- |
//! | options | `atoi`, unknown words ignored | same names and defaults; bad values reported, the default holds | a slip must not mean silence for ever |
//! | NAME, IP, IP6 | own, preloaded, cached, multicast | the same order | |
//! | GID, LID as an address | multicast, which nobody answers | the SA is asked, as for a path | |
//! | names | looked up without case, cached with it | without case | |
//! | paths (`PATH` entries) | SA, once the join is done | SA, joined or not | the SA needs no group |
//! | hints (service id, QoS, traffic class …) | ignored | put to the SA, kept apart | |
//! | before the join | ENODATA | waits up to the deadline; NODELAY: ENODATA | a start is no failure |
//! | failed join | nothing until the next event | again after 1 s, 2 s … 60 s | |
//! | deadline | (`timeout` + subnet time-out) × (`retries` + 1) of an address, after waiting for `resolve_depth` without limit; `timeout` × (`retries` + 1) of a path | `timeout` × (`retries` + 1) from arrival for the address, the same again for the path | a client waits no longer than told |
//! | `resolve_depth` | held until the answer or the last try | held for a try | a dead host holds nobody up |
//! | answer to a request | matched by a counted tid | random 64-bit tid, unicast with GRH, a group of ours | strangers cannot answer |
//! | others' claims | overwrite anything | fill gaps; against a fresh entry they make us ask | |
//! | peer with a new LID or queue pair | keeps the old one, or never resolves | the new one | |
//! | `route_prot acm`, groups named | all, joined or not | those that are joined | the other side would choose what does not work |
//! | `route_timeout` with `route_prot acm` | then the SA is asked | the address is resolved again | the group still says what the path is like |
//! | CLIENT_REREGISTER | joins again, attaches twice | joins again; SA paths are asked for again, stale ones stand in for a silent SA | |
//! | close | keeps everything | ends everything, leaves the groups | |
//! | dump, hosts file | read at the start | followed | |
//! | ROUTE_CACHE | an answer without a question | the same; also for a second address of a port whose path is known, where stock asks again | |
//!
//! # Faults of providers, and the tests that they cannot come back
//! The names are those of tests here (`tests`, `resolver`, `groups`, `wire`, `settings`) and in acm-prov-api.
//!
//! | fault | test |
//! | --- | --- |
//! | 1 bytes behind an address count | `wire: bytes_behind_an_address_do_not_count`; acm-prov-api `address: bytes_behind_an_address_do_not_count`, `names_compare_without_ascii_case` |
//! | 2 a name of 64 bytes without NUL | `wire: a_name_may_fill_its_field`, `hostile: names_in_the_log_are_one_harmless_line` |
//! | 3 kept pointers | acm-prov-api `testing::TestCore::add_address` overwrites the structure after every call |
//! | 4 four addresses an endpoint | no array has a limit; `own_addresses_are_answered_at_once` |
//! | 5 an address that moves to another port or host | `addresses: a_removed_own_address_can_be_anothers` |
//! | 6 interfaces matched by prefix | interfaces are not looked at |
//! | 7 status >> 8 | acm-prov-api `answer: every_failure_has_its_status` |
//! | 8, 9 SGID left out, tid in the high half | acm-prov-api `sa`; `tests::give_path` looks at every question |
//! | 10 old LID, SL, MTU, rate, queue pair constrain | `addresses: a_peer_that_moved_is_found_again`, `resolver: a_peer_that_moved_is_known_at_its_new_place`, `tests::give_path` |
//! | 11 byte order of MLID and Q_Key, path bits | types of rdma-access; `datagrams::address_on_path` masks by the LMC |
//! | 12 a rate of 0 | `OpenPort` has no speed then, and no group of its own |
//! | 13 n questions for one thing | `addresses: one_request_serves_all_who_ask_at_once` |
//! | 14 membership bit | `groups: the_mgid_has_the_full_members_pkey_the_join_the_ports`, `opening: a_limited_member_joins_the_full_members_group` |
//! | 16 the answer to a join after the end | `joining: the_answer_to_a_join_may_come_after_the_end` |
//! | 17 join refused, join while joining, request across re-registration | `joining: a_refused_join_is_asked_for_again`, `a_reregistration_joins_again_and_the_first_answer_does_not_count`, `a_request_that_waits_survives_a_reregistration` |
//! | 18 the old SLID after a reopening | `opening: nothing_learnt_outlives_the_port` |
//! | 19 second close | `opening: a_second_close_is_harmless` |
//! | 20 re-registration right after open | `joining: a_reregistration_joins_again_and_the_first_answer_does_not_count` |
//! | 21 addresses added late | `addresses: a_removed_own_address_can_be_anothers` |
//! | 22, 23 indices from clients | acm-prov-api `request`; the conformance suite's family `hostile` |
//! | 24 a request while our query for the peer is out | `answering: a_request_that_comes_while_our_query_for_the_peer_is_out_is_answered` |
//! | 25 a failed work completion | `hostile: a_broken_queue_pair_is_replaced_and_clients_are_served` |
//! | 26 missed wake-ups, `retries -1` | `settings: values_out_of_range_are_reported_and_replaced`, `resolver: every_client_hears_once` |
//! | 27 errors at level 0 for normal things | `flood: names_are_escaped_and_normal_things_are_quiet` |
//! | 28 claims overwrite | `hostile: a_claim_to_our_own_address_changes_nothing`, `a_claim_to_anothers_address_is_settled_by_asking`, `addresses: hosts_are_known_and_only_their_paths_are_asked_for` |
//! | 29 no bound on what strangers leave | `resolver: what_strangers_leave_behind_is_bounded`, `hostile: a_flood_is_one_line_a_second_and_clients_are_served`, `requests_whose_path_does_not_come_are_bounded` |
//! | 30 length and GRH unchecked | `wire: another_length_is_malformed`, `hostile: malformed_datagrams_come_to_nothing`, `an_answer_without_a_grh_comes_to_nothing` |
//! | 31 SA MADs, guessable tids, answers by anybody | `hostile: an_answer_with_a_guessed_tid_comes_to_nothing`, `an_answer_by_multicast_comes_to_nothing` |
//! | 32 one buffer for several requesters | `answering: every_requester_gets_its_answer` |
//! | 36, 37, 38 files | acm-prov-api `dump`, `followed`, `cache_preload`; `settings: an_unknown_word_is_reported` |

#![forbid(unsafe_code)]

mod datagrams;
mod device;
mod endpoint;
mod flood;
mod groups;
mod resolver;
mod settings;
mod wire;

#[cfg(test)]
mod tests;

use acm_prov_api::cache::engine::{OpenError, PortCache};
use acm_prov_api::clock::Moment;
use acm_prov_api::followed::Followed;
use acm_prov_api::hosts::Hosts;
use acm_prov_api::introspection::OptionInfo;
use acm_prov_api::prelude::*;
use acm_prov_api::sync::{Arc, Mutex, Weak};
use acm_prov_api::{
    AddressState, Device, DeviceHandle, DeviceState, Endpoint, EndpointHandle, EndpointState, Port,
    PortHandle, PortState, QueryRequest,
};

use datagrams::{Datagrams, Depths};
use device::OpenDevice;
use endpoint::{AcmEndpoint, Parts};
use groups::{Groups, Speed};
use settings::{RouteProtocol, Settings};

/// The provider.
struct McastSa {
    settings: Arc<Settings>,
    hosts: Option<Arc<Followed<Hosts>>>,
    endpoints: Mutex<Vec<Weak<AcmEndpoint>>>,
}

impl McastSa {
    /// The open endpoints of all ports.
    fn endpoints(&self) -> Vec<Arc<AcmEndpoint>> {
        let mut endpoints = self.endpoints.lock();
        endpoints.retain(|endpoint| endpoint.strong_count() > 0);
        endpoints.iter().filter_map(Weak::upgrade).collect()
    }
}

/// An open port.
struct OpenPort {
    cache: PortCache,
    /// What its own group would be joined with; none if the adapter does not say in terms that the core knows.
    speed: Option<Speed>,
    lmc: u8,
    endpoints: Mutex<Vec<Arc<AcmEndpoint>>>,
}

/// An open endpoint.
struct OpenEndpoint {
    endpoint: Arc<AcmEndpoint>,
    port: Arc<Port<McastSa>>,
}

/// One of an endpoint's addresses.
struct OpenAddress {
    endpoint: Arc<AcmEndpoint>,
    provider: Arc<McastSa>,
}

impl Provider for McastSa {
    const NAME: &CStr = c"mcast-sa";
    const OPTIONS: &'static [OptionInfo] = settings::OPTIONS;
    type Endpoint = OpenEndpoint;

    fn load(host: &Host, options: &Options) -> Result<Self, Error> {
        let settings = Arc::new(Settings::read(options));
        let hosts = settings
            .hosts_file
            .as_deref()
            .map(|file| Arc::new(Followed::hosts(file)));
        if let Some(hosts) = &hosts {
            for report in hosts.get().reports() {
                host.log(LogLevel::ALWAYS, format_args!("{report}"));
            }
        }
        Ok(Self {
            settings,
            hosts,
            endpoints: Mutex::default(),
        })
    }

    fn resolve(&self, from: &LocalAddress<Self>, request: ResolveRequest) {
        from.state().endpoint.resolve(from.address(), request);
    }

    fn query(&self, from: &LocalAddress<Self>, request: QueryRequest) {
        from.state().endpoint.query(request);
    }
}

impl DeviceState<McastSa> for OpenDevice {
    fn open(_: &Arc<McastSa>, device: &DeviceHandle) -> Result<Self, Error> {
        Ok(OpenDevice::open(device)?)
    }

    fn close(&self) {
        OpenDevice::close(self);
    }
}

impl PortState<McastSa> for OpenPort {
    type Device = OpenDevice;

    fn open(device: &Arc<Device<McastSa>>, port: &PortHandle) -> Result<Self, Error> {
        let provider = device.provider();
        let attributes = port.attributes()?;
        let cache = PortCache::open(port, provider.settings.cache.clone())?;
        if let Some(hosts) = &provider.hosts {
            cache.follow(Arc::clone(hosts) as _);
        }
        let rate = port
            .host()
            .rate(attributes.active_width, attributes.active_speed);
        let speed = u8::try_from(rate.0)
            .ok()
            .filter(|&rate| rate != 0)
            .map(|rate| Speed {
                rate,
                mtu: attributes.active_mtu,
            });
        Ok(Self {
            cache,
            speed,
            lmc: attributes.lmc,
            endpoints: Mutex::default(),
        })
    }

    fn reregister(&self, _: &PortHandle) {
        self.cache.reregister();
        let endpoints = self.endpoints.lock().clone();
        for endpoint in endpoints {
            endpoint.reregister();
        }
    }

    fn close(&self) {
        self.endpoints.lock().clear();
        self.cache.close();
    }
}

impl EndpointState<McastSa> for OpenEndpoint {
    type Port = OpenPort;
    type Address = OpenAddress;

    fn open(port: &Arc<Port<McastSa>>, handle: &EndpointHandle) -> Result<Self, Error> {
        let provider = port.provider();
        let settings = &provider.settings;
        let device = port.device().state();
        let number = port.handle().number();
        let depths = Depths {
            requests: u32::try_from(settings.resolver.out)?,
            answers: settings.send_depth,
            receives: settings.receive_depth,
        };
        let datagrams = Datagrams::open(device.verbs(), number, handle.pkey(), depths)?;
        let gid = port.handle().gid(0).ok_or(OpenError::NoGid(number))?;
        let shared = Speed {
            rate: settings.min_rate,
            mtu: settings.min_mtu,
        };
        let own = port
            .state()
            .speed
            .filter(|_| settings.route_protocol == RouteProtocol::Acm);
        let now = Moment::now();
        let groups = Groups::new(
            gid,
            handle.pkey(),
            shared,
            own,
            settings.cache.lookups.patience(),
            now,
        );
        let endpoint = Arc::new(AcmEndpoint::new(Parts {
            handle: handle.clone(),
            cache: port.state().cache.open_endpoint(handle)?,
            settings: Arc::clone(settings),
            hosts: provider.hosts.clone(),
            datagrams,
            groups,
            lmc: port.state().lmc,
            waker: device.waker(),
        }));
        port.state().endpoints.lock().push(Arc::clone(&endpoint));
        provider.endpoints.lock().push(Arc::downgrade(&endpoint));
        device.serve(&endpoint);
        // Joins are asked for at once, on the core's thread, as stock does.
        endpoint.turn_and_tell(now);
        Ok(Self {
            endpoint,
            port: Arc::clone(port),
        })
    }

    fn close(&self) {
        let partition = |endpoint: &AcmEndpoint| endpoint.source().pkey.partition();
        let others = {
            let mut endpoints = self.port.state().endpoints.lock();
            endpoints.retain(|endpoint| !Arc::ptr_eq(endpoint, &self.endpoint));
            endpoints.clone()
        };
        // The membership is the port's: another endpoint of the partition (as full and limited member) goes on with it.
        let is_last = others
            .iter()
            .all(|other| partition(other) != partition(&self.endpoint));
        // Nothing gets out of a port that is down, and a query would only be in the way of those when it is up again.
        const ACTIVE: u32 = 4;
        let is_active = self
            .port
            .handle()
            .attributes()
            .is_ok_and(|attributes| attributes.state == ACTIVE);
        if is_last && is_active {
            self.endpoint.leave_groups();
        }
        self.port.device().state().leave(&self.endpoint);
        self.endpoint.close();
    }
}

impl AddressState<McastSa> for OpenAddress {
    fn add(endpoint: &Arc<Endpoint<McastSa>>, address: &Address) -> Result<Self, Error> {
        let own = &endpoint.state().endpoint;
        own.add_address(address);
        Ok(Self {
            endpoint: Arc::clone(own),
            provider: Arc::clone(endpoint.provider()),
        })
    }

    fn remove(&self, address: &Address) {
        self.endpoint.remove_address(address);
        // It may come back at another port, or at another host.
        for endpoint in self.provider.endpoints() {
            endpoint.forget_address(address);
        }
    }
}

acm_prov_api::export_provider!(McastSa);
