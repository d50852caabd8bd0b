//! Runs providers of this process under the stand-in core, as a vendor's unit tests do: without loading a library, and with the
//! core's ledger.

#![forbid(unsafe_code)]

mod breaches;
mod policy;

use acm_prov_api::abi::AcmCounter;
use acm_prov_api::prelude::*;
use acm_prov_api::provider_table;
use loader_test::stand_in::FIRST_PORT;
use loader_test::stand_in::fabric::{DeviceSpec, Peer, PortSpec, path_record};
use loader_test::stand_in::in_process::InProcess;
use loader_test::stand_in::ledger::ViolationKind;
use loader_test::stand_in::message::{Message, Path};
use loader_test::stand_in::sa::Reaction;

/// Queries the SA for every path.
struct Asker;

impl Provider for Asker {
    const NAME: &CStr = c"asker";
    type Endpoint = NoContext;

    fn load(_: &Host, options: &Options) -> Result<Self, Error> {
        match options.named("asker_refuses").text("").as_str() {
            "" => Ok(Self),
            why => Err(format!("asker_refuses is set: {why}").into()),
        }
    }

    fn resolve(&self, from: &LocalAddress<Self>, request: ResolveRequest) {
        let endpoint = from.endpoint().handle();
        let Address::Lid(_) = request.destination() else {
            return request.refuse(Status::EDESTTYPE);
        };
        let request = request.keep();
        endpoint.ask_path(&request.path_query(), move |answer| match answer {
            Ok(path) => request.answer(&path),
            Err(_) => request.refuse(Status::ETIMEDOUT),
        });
    }
}

provider_table!(Asker);

/// Forgets every request.
struct Forgetful;

impl Provider for Forgetful {
    const NAME: &CStr = c"forgetful";
    type Endpoint = NoContext;

    fn load(_: &Host, _: &Options) -> Result<Self, Error> {
        Ok(Self)
    }

    fn resolve(&self, from: &LocalAddress<Self>, request: ResolveRequest) {
        // The core counts this one itself.
        from.endpoint().handle().count(AcmCounter::RESOLVE);
        std::mem::forget(request);
    }
}

provider_table!(Forgetful);

/// Panics at the first peer's LID, and drops all else.
struct Careless;

impl Provider for Careless {
    const NAME: &CStr = c"careless";
    type Endpoint = NoContext;

    fn load(_: &Host, _: &Options) -> Result<Self, Error> {
        Ok(Self)
    }

    fn resolve(&self, _: &LocalAddress<Self>, request: ResolveRequest) {
        assert_ne!(
            request.destination(),
            Address::Lid(Lid(Peer::number(1).lid))
        );
    }

    fn query(&self, _: &LocalAddress<Self>, request: acm_prov_api::QueryRequest) {
        drop(request);
    }
}

provider_table!(Careless);

fn by_lid(peer: &Peer) -> Message {
    Message::path(&Path::default().with_dlid(peer.lid))
}

#[test]
fn a_provider_resolves_through_the_cores_sa_and_the_books_have_its_mads() {
    let mut core = InProcess::load::<Asker>(&[]).expect("asker loads");
    let from = core.up(FIRST_PORT).expect("the port opens");
    let peer = Peer::number(7);
    let id = core.resolve_from(from, &by_lid(&peer));
    let reply = core.reply(id).expect("an answer");
    let own = core.port(FIRST_PORT).clone();
    let asked = Path::default()
        .with_dlid(peer.lid)
        .with_sgid(own.gid())
        .with_pkey(0xffff);
    assert_eq!(reply.path(), path_record(&asked, &[own]));
    let [question] = &core.sa().path_queries()[..] else {
        panic!("one path query: {:?}", core.sa().requests())
    };
    assert_eq!(question.path().dlid(), peer.lid);
    core.settle();
    assert_eq!(core.mad_calls(), (1, 1));
    assert_eq!(core.mads_held(), 0);
    assert_eq!(core.counters()[5], 1, "route queries");
    assert_eq!(core.finish(), []);
}

#[test]
fn the_sa_fails_as_the_test_says() {
    let mut core = InProcess::load::<Asker>(&["timeout 50", "retries 0"]).expect("asker loads");
    let from = core.up(FIRST_PORT).expect("the port opens");
    core.sa().script(|_| Reaction::Silence);
    let id = core.resolve_from(from, &by_lid(&Peer::number(7)));
    assert_eq!(core.reply(id).expect("an answer").status, 6);
    assert_eq!(core.finish(), []);
}

#[test]
fn several_ports_are_served() {
    let mut device = DeviceSpec::single();
    device.ports.push(PortSpec::new(0x0010_0002, 11));
    let mut core = InProcess::load_with::<Asker>(vec![device], &[]).expect("asker loads");
    let second = loader_test::stand_in::PortId { device: 0, port: 2 };
    for (port, lid) in [(FIRST_PORT, 10), (second, 11)] {
        let from = core.up(port).expect("the port opens");
        let id = core.resolve_from(from, &by_lid(&Peer::number(3)));
        let path = core.reply(id).and_then(|reply| reply.path());
        assert_eq!(path.expect("a path").slid(), lid);
    }
}

#[test]
fn the_provider_reads_the_options_of_the_test() {
    let Err(error) = InProcess::load::<Asker>(&["asker_refuses today"]) else {
        panic!("the option is not read")
    };
    assert!(error.to_string().contains("today"), "{error}");
    // The next one has options of its own.
    assert!(InProcess::load::<Asker>(&[]).is_ok());
}

#[test]
fn breaches_are_in_the_books() {
    let mut core = InProcess::load::<Forgetful>(&["timeout 10", "retries 0"]).expect("it loads");
    // No answer will come.
    core.patience = core.deadline();
    let from = core.up(FIRST_PORT).expect("the port opens");
    core.resolve_from(from, &by_lid(&Peer::number(1)));
    let kinds: Vec<_> = core
        .finish()
        .into_iter()
        .map(|breach| breach.kind)
        .collect();
    assert_eq!(
        kinds,
        [ViolationKind::CoreCounter, ViolationKind::NeverAnswered]
    );
}

#[test]
fn what_the_sdk_kept_from_the_core_is_in_the_books() {
    let breaches = |peer| {
        let mut core = InProcess::load::<Careless>(&[]).expect("it loads");
        let from = core.up(FIRST_PORT).expect("the port opens");
        let id = core.resolve_from(from, &by_lid(&Peer::number(peer)));
        assert_eq!(core.reply(id).expect("an answer").status, 3);
        core.finish()
    };
    let [dropped] = &breaches(2)[..] else {
        panic!("one breach")
    };
    assert_eq!(dropped.kind, ViolationKind::DroppedRequest);
    let breaches = breaches(1);
    let panic = breaches
        .iter()
        .find(|breach| breach.kind == ViolationKind::CaughtPanic)
        .expect("a panic");
    assert!(panic.text.contains("in_process/main.rs"), "{panic:?}");
}

#[test]
fn a_query_that_is_dropped_is_in_the_books() {
    let mut core = InProcess::load::<Careless>(&[]).expect("it loads");
    let from = core.up(FIRST_PORT).expect("the port opens");
    let path = Path::default().with_dlid(Peer::number(1).lid);
    let id = core.query_from(from, &Message::query(&path));
    assert!(core.reply(id).is_some());
    let kinds: Vec<_> = core.finish().iter().map(|breach| breach.kind).collect();
    assert_eq!(kinds, [ViolationKind::DroppedRequest]);
}

#[test]
#[should_panic(expected = "NeverAnswered")]
fn breaches_fail_a_test_that_does_not_look() {
    let mut core = InProcess::load::<Forgetful>(&["timeout 10", "retries 0"]).expect("it loads");
    core.patience = core.deadline();
    let from = core.up(FIRST_PORT).expect("the port opens");
    core.resolve_from(from, &by_lid(&Peer::number(1)));
}

/// A library looks up what a provider of this process is given.
#[test]
fn a_library_finds_where_to_report_its_faults() {
    let functions = acm_prov_api::HostTable::from_process().expect("this process exports a core");
    assert!(functions.acm_provider_fault.is_some());
}
