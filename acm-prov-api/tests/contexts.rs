//! Contexts and tokens under every order of opening, closing and late answers.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

use acm_prov_api::abi::{ACM_OP_ACK, AcmCounter, UMAD_SA_ATTR_PATH_REC};
use acm_prov_api::prelude::*;
use acm_prov_api::sa::{PathQuery, SaError, Target};
use acm_prov_api::testing::{Context, Request, TestCore};
use acm_prov_api::{
    AddressContext, Closed, Endpoint, EndpointContext, EndpointHandle, Port, QueryRequest,
    provider_table,
};

/// Queries the SA for each request and answers with its record.
struct Asker;

impl Provider for Asker {
    const NAME: &CStr = c"asker";
    type Endpoint = NoContext;

    fn load(_: &Host, options: &Options) -> Result<Self, Error> {
        if options
            .named("asker_fails")
            .path(std::path::Path::new(""))
            .as_os_str()
            .is_empty()
        {
            Ok(Self)
        } else {
            Err("told to fail".into())
        }
    }

    fn resolve(&self, from: &LocalAddress<Self>, request: ResolveRequest) {
        match request.destination() {
            Address::Lid(Lid(0xdead)) => panic!("the bug of LID 57005"),
            Address::Lid(Lid(0xbeef)) => return,
            Address::Lid(_) | Address::Gid(_) => {}
            _ => return request.refuse(Status::EDESTTYPE),
        }
        let handle = from.endpoint().handle();
        let host = *handle.host();
        let request = request.keep();
        handle.ask_path(&request.path_query(), move |answer| match answer {
            Ok(path) => request.answer(&path),
            Err(error) => {
                host.log(LogLevel::VERBOSE, format_args!("{error}"));
                request.refuse(Status::ETIMEDOUT);
            }
        });
    }
}

provider_table!(Asker);

fn lid(lid: u16) -> Request {
    Request::destination(&Address::Lid(Lid(lid)))
}

/// Only the test ends MADs, however busy the machine is.
fn opened() -> TestCore {
    let mut core = TestCore::load::<Asker>("log_level 2\ntimeout 60000\n");
    core.open();
    core
}

#[test]
fn an_answer_carries_id_tid_ack_path_and_source() {
    let mut core = opened();
    let id = core.resolve(&lid(7));
    let question = core.sa_mads()[0];
    assert_eq!(question.mad_hdr.attr_id.to_host(), UMAD_SA_ATTR_PATH_REC);
    let asked = PathRecord::from_bytes(question.data.first_chunk().unwrap());
    assert_eq!(
        asked.sgid(),
        TestCore::GID,
        "a query without SGID gets no answer from some SAs"
    );
    assert_eq!((asked.pkey(), asked.reversible()), (PKey(0xffff), true));
    assert!((1..1 << 32).contains(&question.mad_hdr.tid.to_host()));
    core.sa_answers_with(|_| ());
    let answer = core.wait_for_answer(id);
    assert_eq!(answer.status, Status::SUCCESS);
    assert_eq!(answer.path.unwrap().dlid(), Lid(7));
    assert_eq!(answer.tid, 0x7a00_0000_0000_0000 | id);
    assert_eq!(answer.opcode, 1 | ACM_OP_ACK);
    assert_eq!(
        answer.length,
        16 + 2 * 72,
        "the core chose the source, so the answer carries it"
    );
    assert_eq!(core.mads(), 0);
}

#[test]
fn a_path_request_is_answered_with_one_entry_and_its_header_bytes_mean_nothing() {
    let mut core = opened();
    let mut wanted = PathRecord::default();
    wanted.set_dlid(Lid(9));
    let mut request = Request::path(&wanted);
    request.message().hdr.data = [1, 200, 0];
    let id = core.resolve(&request);
    core.sa_answers_with(|_| ());
    let answer = core.wait_for_answer(id);
    assert_eq!((answer.status, answer.length), (Status::SUCCESS, 16 + 72));
}

#[test]
fn indices_and_lengths_out_of_range_are_refused() {
    let mut core = opened();
    for (data, length, expected) in [
        ([1, 200, 0], 16 + 72, Status::EINVAL),
        ([1, 8, 0], 16 + 8 * 72, Status::EINVAL),
        ([0, 0, 200], 16 + 72, Status::EINVAL),
        ([0, 0, 1], 16 + 72, Status::EINVAL),
        ([1, 1, 0], 16, Status::EINVAL),
        ([1, 1, 0], 0, Status::EINVAL),
    ] {
        let mut request = lid(7);
        request.message().hdr.data = data;
        request.message().hdr.length = length;
        let id = core.resolve(&request);
        assert_eq!(
            core.wait_for_answer(id).status,
            expected,
            "{data:?} {length}"
        );
    }
    let mut request = Request::path(&PathRecord::default());
    request.message().hdr.data = [1, 200, 0];
    let id = core.resolve(&request);
    assert_eq!(core.wait_for_answer(id).status, Status::EDESTADDR);
}

#[test]
fn a_dropped_token_answers_no_data_and_logs_a_line() {
    let mut core = opened();
    let id = core.resolve(&lid(0xbeef));
    assert_eq!(core.wait_for_answer(id).status, Status::ENODATA);
    core.wait_for_log("dropped unanswered");
}

#[test]
fn a_panic_answers_the_client_and_keeps_its_place() {
    let mut core = opened();
    core.expect_panics();
    let id = core.resolve(&lid(0xdead));
    assert_eq!(core.wait_for_answer(id).status, Status::ENODATA);
    let line = core.wait_for_log("panic");
    assert!(
        line.contains("the bug of LID 57005") && line.contains("contexts.rs:"),
        "{line}"
    );
    let id = core.resolve(&lid(3));
    core.sa_answers_with(|_| ());
    assert_eq!(
        core.wait_for_answer(id).status,
        Status::SUCCESS,
        "the provider goes on"
    );
}

#[test]
#[should_panic(expected = "the provider panicked")]
fn a_swallowed_panic_fails_the_test_that_caused_it() {
    let mut core = opened();
    core.resolve(&lid(0xdead));
}

#[test]
fn a_close_answers_waiting_requests_and_a_late_response_is_ignored() {
    let mut core = opened();
    let ids: Vec<u64> = (1..=20)
        .map(|destination| core.resolve(&lid(destination)))
        .collect();
    core.close();
    for id in &ids {
        assert_eq!(core.wait_for_answer(*id).status, Status::ETIMEDOUT);
    }
    core.open();
    // The core has sa_depth + 1; the others stayed in the SDK.
    assert_eq!(core.sa_mads().len(), 2);
    for _ in 0..2 {
        core.sa_answers_with(|_| ());
    }
    assert!(
        ids.iter().all(|id| core.answers(*id).len() == 1),
        "nobody is answered twice"
    );
    assert_eq!(core.mads(), 0, "late MADs are freed");
}

#[test]
fn contexts_closed_in_any_order_or_twice_are_harmless() {
    let mut core = opened();
    let contexts = core.contexts();
    let [device, port, endpoint, address] = contexts;
    let id = core.resolve(&lid(7));
    // Parents first, everything twice, then the core's own closes.
    core.close_again([device, port, endpoint, address]);
    core.close_again([device, port, endpoint, address]);
    core.wait_for_log("is not open");
    assert_eq!(core.wait_for_answer(id).status, Status::ETIMEDOUT);
    let late = core.resolve_from(address, &lid(7));
    assert_eq!(core.wait_for_answer(late).status, Status::ESRCADDR);
    core.sa_answers_with(|_| ());
    assert_eq!(core.mads(), 0);
}

#[test]
fn a_refused_mad_is_freed_and_the_client_answered() {
    let mut core = opened();
    core.refuse_mads(true);
    let id = core.resolve(&lid(7));
    assert_eq!(core.wait_for_answer(id).status, Status::ETIMEDOUT);
    core.wait_for_log("acm_send_sa_mad refused");
    assert_eq!(core.mads(), 0);
    core.refuse_mads(false);
    let id = core.resolve(&lid(7));
    core.sa_answers_with(|_| ());
    assert_eq!(core.wait_for_answer(id).status, Status::SUCCESS);
}

#[test]
fn both_status_bytes_count() {
    for status in [0x0001_u16, 0x000c, 0x001c, 0x0100, 0x0300, 0x0500] {
        let mut core = opened();
        let id = core.resolve(&lid(7));
        core.sa_answers(|packet| {
            packet.mad_hdr.status = acm_prov_api::abi::Be16::from_host(status)
        });
        assert_eq!(
            core.wait_for_answer(id).status,
            Status::ETIMEDOUT,
            "{status:#06x}"
        );
    }
}

#[test]
fn a_query_request_goes_to_the_sa_and_has_its_own_form_of_answer() {
    let mut core = opened();
    let mut wanted = PathRecord::default();
    wanted.set_dlid(Lid(9));
    let id = core.query(&Request::path(&wanted));
    core.sa_answers_with(|_| ());
    let answer = core.wait_for_answer(id);
    assert_eq!(
        (answer.status, answer.length, answer.opcode),
        (Status::SUCCESS, 88, 1 | ACM_OP_ACK)
    );
    for (status, expected) in [
        (0x0001_u16, Status::ETIMEDOUT),
        (0x0200, Status::EINVAL),
        (0x0300, Status::ENODATA),
        (0x0500, Status::ENODATA),
    ] {
        let id = core.query(&Request::path(&wanted));
        core.sa_answers(|packet| {
            packet.mad_hdr.status = acm_prov_api::abi::Be16::from_host(status)
        });
        assert_eq!(core.wait_for_answer(id).status, expected, "{status:#06x}");
    }
    let id = core.query(&Request::path(&wanted));
    core.sa_times_out();
    assert_eq!(core.wait_for_answer(id).status, Status::ETIMEDOUT);
    let id = core.query(&Request::path(&wanted));
    core.sa_answers_with(|path| {
        path.set_dlid(Lid(10));
    });
    assert_eq!(
        core.wait_for_answer(id).status,
        Status::ENODATA,
        "a record for another destination"
    );
}

#[test]
fn counters_are_counted_once_in_each_set() {
    let mut core = opened();
    core.resolve(&lid(7));
    core.sa_answers_with(|_| ());
    core.resolve(&lid(0xbeef));
    let own = core.endpoint_counters();
    assert_eq!(own[AcmCounter::RESOLVE.0 as usize], 2);
    assert_eq!(own[AcmCounter::NODATA.0 as usize], 1);
    assert_eq!(own[AcmCounter::ROUTE_QUERY.0 as usize], 1);
    let core_set = core.core_counters();
    assert_eq!(core_set[AcmCounter::ROUTE_QUERY.0 as usize], 1);
    assert_eq!(
        core_set[AcmCounter::RESOLVE.0 as usize],
        0,
        "the core counts requests itself"
    );
}

#[test]
fn an_ethernet_port_is_refused_with_the_reason() {
    let mut core = TestCore::load::<Asker>("");
    core.change_port(|attributes| attributes.link_layer = 2);
    assert_eq!(core.try_open(), Err("open_port"));
    core.wait_for_log("no InfiniBand port");
}

#[test]
fn a_provider_that_fails_to_load_returns_the_reason() {
    let error = TestCore::try_load::<Asker>("asker_fails yes\n")
        .err()
        .expect("refused");
    assert_eq!(error.to_string(), "told to fail");
}

/// An endpoint context that counts its live instances.
struct Counted;

static LIVING: Mutex<i32> = Mutex::new(0);

struct Keeper;

impl EndpointContext<Keeper> for Counted {
    type Port = NoContext;
    type Address = NoContext;

    fn open(_: &std::sync::Arc<Port<Keeper>>, _: &EndpointHandle) -> Result<Self, Error> {
        *LIVING.lock().unwrap() += 1;
        Ok(Self)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        *LIVING.lock().unwrap() -= 1;
    }
}

impl Provider for Keeper {
    const NAME: &CStr = c"keeper";
    type Endpoint = Counted;

    fn load(_: &Host, _: &Options) -> Result<Self, Error> {
        Ok(Self)
    }

    fn resolve(&self, from: &LocalAddress<Self>, request: ResolveRequest) {
        // Holds its endpoint until the SA answers.
        let endpoint: std::sync::Arc<Endpoint<Self>> = from.endpoint().clone();
        let handle = endpoint.handle().clone();
        let request = request.keep();
        handle.ask_path(&PathQuery::to(Target::Lid(Lid(7))), move |_| {
            drop(endpoint);
            request.refuse(Status::ENODATA);
        });
    }

    fn query(&self, _: &LocalAddress<Self>, request: QueryRequest) {
        request.refuse(Status::EINVAL);
    }
}

provider_table!(Keeper);

#[test]
fn reopening_a_thousand_times_leaves_nothing_behind() {
    let mut core = TestCore::load::<Keeper>("timeout 60000\n");
    for round in 0..1000 {
        core.open();
        let id = core.resolve(&lid(7));
        core.close();
        assert_eq!(
            *LIVING.lock().unwrap(),
            0,
            "round {round}: a question in flight keeps the endpoint"
        );
        assert_eq!(core.wait_for_answer(id).status, Status::ENODATA);
    }
    // The SDK handed over only as many as a port may have out, over all its openings.
    assert_eq!(core.sa_mads().len(), 2);
    for _ in 0..2 {
        core.sa_times_out();
    }
    assert_eq!(core.mads(), 0);
}

/// The fault of the endpoint's context, after it has kept the endpoint's handle.
#[derive(Clone, Copy)]
enum Slip {
    OpenFails,
    OpenPanics,
    ClosePanics,
}

static SLIP: Mutex<Slip> = Mutex::new(Slip::OpenFails);
static KEPT: Mutex<Option<EndpointHandle>> = Mutex::new(None);

struct Slipping;

impl EndpointContext<Slipping> for Slip {
    type Port = NoContext;
    type Address = NoContext;

    fn open(_: &std::sync::Arc<Port<Slipping>>, endpoint: &EndpointHandle) -> Result<Self, Error> {
        *KEPT.lock().unwrap() = Some(endpoint.clone());
        let slip = *SLIP.lock().unwrap();
        match slip {
            Slip::OpenFails => Err("told to fail".into()),
            Slip::OpenPanics => panic!("told to panic"),
            Slip::ClosePanics => Ok(slip),
        }
    }

    fn close(&self) {
        panic!("told to panic");
    }
}

impl Provider for Slipping {
    const NAME: &CStr = c"slipping";
    type Endpoint = Slip;

    fn load(_: &Host, _: &Options) -> Result<Self, Error> {
        Ok(Self)
    }

    fn resolve(&self, from: &LocalAddress<Self>, request: ResolveRequest) {
        let handle = from.endpoint().handle();
        let query = PathQuery::to(Target::Lid(Lid(7)));
        for _ in 0..2 {
            handle.ask_path(&query, |_| panic!("told to panic"));
        }
        let request = request.keep();
        handle.ask_path(&query, move |_| request.refuse(Status::ENOTCONN));
    }
}

provider_table!(Slipping);

#[test]
fn a_handle_is_closed_before_the_core_frees_the_endpoint_whatever_its_state_does() {
    let mut core = TestCore::load::<Slipping>("");
    core.expect_panics();
    for slip in [Slip::OpenFails, Slip::OpenPanics, Slip::ClosePanics] {
        *SLIP.lock().unwrap() = slip;
        let opened = core.try_open();
        let waiting = opened.is_ok().then(|| core.resolve(&lid(7)));
        core.close();
        let handle = KEPT.lock().unwrap().take().expect("kept");
        let (tell, told) = std::sync::mpsc::channel();
        handle.ask_path(&PathQuery::to(Target::Lid(Lid(7))), move |answer| {
            let _ = tell.send(answer);
        });
        assert_eq!(told.recv(), Ok(Err(SaError::Closed(Closed))));
        if let Some(id) = waiting {
            assert_eq!(core.wait_for_answer(id).status, Status::ENOTCONN);
        }
    }
    while !core.sa_mads().is_empty() {
        core.sa_times_out();
    }
    assert_eq!(core.mads(), 0);
}

/// Counts its live addresses, each with its own number.
struct Addressed;

struct Numbered(u16);

/// The events of addresses since the last look: their number, and whether added.
static HAPPENED: Mutex<Vec<(u16, bool)>> = Mutex::new(Vec::new());
static NEXT_NUMBER: AtomicU16 = AtomicU16::new(0);

impl EndpointContext<Addressed> for Numbered {
    type Port = NoContext;
    type Address = Numbered;

    fn open(_: &std::sync::Arc<Port<Addressed>>, _: &EndpointHandle) -> Result<Self, Error> {
        Ok(Self(0))
    }
}

impl AddressContext<Addressed> for Numbered {
    fn add(_: &std::sync::Arc<Endpoint<Addressed>>, address: &Address) -> Result<Self, Error> {
        if *address == Address::Ip([10, 0, 0, 13].into()) {
            return Err("told to fail".into());
        }
        let number = NEXT_NUMBER.fetch_add(1, Relaxed);
        HAPPENED.lock().unwrap().push((number, true));
        Ok(Self(number))
    }

    fn remove(&self, _: &Address) {
        HAPPENED.lock().unwrap().push((self.0, false));
    }
}

impl Provider for Addressed {
    const NAME: &CStr = c"addressed";
    type Endpoint = Numbered;

    fn load(_: &Host, _: &Options) -> Result<Self, Error> {
        HAPPENED.lock().unwrap().clear();
        NEXT_NUMBER.store(0, Relaxed);
        Ok(Self)
    }

    /// Answers for own addresses; the LID is the number of the request's source address.
    fn resolve(&self, from: &LocalAddress<Self>, request: ResolveRequest) {
        if !from.endpoint().has_address(&request.destination()) {
            return request.refuse(Status::ENODATA);
        }
        let mut path = PathRecord::default();
        path.set_dlid(Lid(from.context().0));
        request.answer(&path);
    }
}

provider_table!(Addressed);

fn happened() -> Vec<(u16, bool)> {
    std::mem::take(&mut *HAPPENED.lock().unwrap())
}

/// Returns the DLID of the answer to a request for `destination` from an address.
fn answer(core: &mut TestCore, from: Context, destination: &Address) -> Result<u16, Status> {
    let id = core.resolve_from(from, &Request::destination(destination));
    let answer = core.wait_for_answer(id);
    answer
        .path
        .map_or(Err(answer.status), |path| Ok(path.dlid().0))
}

/// After a netlink overflow the core has lost an address's context, adds the address again, and removes it once.
#[test]
fn an_address_that_is_added_again_replaces_itself() {
    let name = |text| Address::Name(Name::new(text).unwrap());
    for (address, again) in [
        (
            Address::Ip([10, 0, 0, 7].into()),
            Address::Ip([10, 0, 0, 7].into()),
        ),
        (name("node7"), name("NODE7")),
        (
            Address::Ip6("fd00::7".parse().unwrap()),
            Address::Ip6("fd00::7".parse().unwrap()),
        ),
    ] {
        let mut core = TestCore::load::<Addressed>("log_level 0\n");
        core.open();
        let other = core.contexts()[3];
        let mut last = core.add_address(&address).unwrap();
        assert_eq!(happened(), [(0, true), (1, true)]);
        for number in 2..5 {
            let lost = std::mem::replace(&mut last, core.add_address(&again).unwrap());
            // The old context ends first, so that its end cannot undo the new one's start.
            assert_eq!(happened(), [(number - 1, false), (number, true)]);
            assert_eq!(answer(&mut core, last, &address), Ok(number));
            assert_eq!(answer(&mut core, lost, &address), Err(Status::ESRCADDR));
        }
        core.remove_address(last);
        assert_eq!(happened(), [(4, false)]);
        assert_eq!(answer(&mut core, other, &address), Err(Status::ENODATA));
        core.close();
        assert_eq!(happened(), [(0, false)], "nothing is removed twice");
    }
}

#[test]
fn a_replaced_context_that_is_removed_late_is_one_line_and_changes_nothing() {
    let mut core = TestCore::load::<Addressed>("log_level 0\n");
    core.open();
    let address = Address::Ip([10, 0, 0, 7].into());
    let first = core.add_address(&address).unwrap();
    let second = core.add_address(&address).unwrap();
    happened();
    core.remove_address(first);
    assert_eq!(happened(), []);
    assert_eq!(core.log().len(), 1, "{:?}", core.log());
    assert!(
        core.log()[0]
            .contains("remove_address: the core passed a address context that is not open")
    );
    assert_eq!(answer(&mut core, second, &address), Ok(2));
}

#[test]
fn an_address_that_moves_ends_at_its_endpoint_only() {
    let mut core = TestCore::load::<Addressed>("");
    core.open();
    let here = core.contexts()[3];
    let address = Address::Ip([10, 0, 0, 7].into());
    let endpoint = core.open_endpoint(0x8001).unwrap();
    let first = core.add_address(&address).unwrap();
    let there = core.add_address_to(endpoint, &address).unwrap();
    let stays = core
        .add_address_to(endpoint, &Address::Ip([10, 0, 0, 8].into()))
        .unwrap();
    for from in [here, first, there, stays] {
        assert!(answer(&mut core, from, &address).is_ok(), "both have it");
    }
    core.remove_address(first);
    assert_eq!(answer(&mut core, here, &address), Err(Status::ENODATA));
    assert!(answer(&mut core, stays, &address).is_ok());
    core.remove_address(there);
    assert_eq!(answer(&mut core, stays, &address), Err(Status::ENODATA));
}

/// For the core these are two addresses, each with a context that it will remove.
#[test]
fn an_ipv4_address_in_both_forms_is_present_until_both_are_removed() {
    let mut core = TestCore::load::<Addressed>("");
    core.open();
    let ip = std::net::Ipv4Addr::new(10, 0, 0, 7);
    let from = core.contexts()[3];
    let plain = core.add_address(&Address::Ip(ip)).unwrap();
    let mapped = core
        .add_address(&Address::Ip6(ip.to_ipv6_mapped()))
        .unwrap();
    for (context, number, left) in [(plain, 1, Ok(0)), (mapped, 2, Err(Status::ENODATA))] {
        assert_eq!(answer(&mut core, context, &Address::Ip(ip)), Ok(number));
        assert_eq!(answer(&mut core, from, &Address::Ip(ip)), Ok(0));
        core.remove_address(context);
        assert_eq!(answer(&mut core, from, &Address::Ip(ip)), left);
        assert_eq!(
            answer(&mut core, from, &Address::Ip6(ip.to_ipv6_mapped())),
            left
        );
    }
}

#[test]
fn a_refused_address_is_not_present() {
    let mut core = TestCore::load::<Addressed>("");
    core.open();
    let from = core.contexts()[3];
    let address = Address::Ip([10, 0, 0, 13].into());
    for _ in 0..2 {
        assert!(core.add_address(&address).is_none());
        assert_eq!(answer(&mut core, from, &address), Err(Status::ENODATA));
    }
}
