//! The SDK's policy layer: what the SA is asked, what clients get, and what becomes of requests that a policy parks.

#[path = "../../../acm-prov-api/examples/by_vendor.rs"]
mod by_vendor;

use std::sync::Mutex;

use acm_prov_api::abi::{Be16, umad_sa_packet};
use acm_prov_api::cache::engine::Parked;
use acm_prov_api::clock::Moment;
use acm_prov_api::policy::{AddressRequest, Policy, PolicyProvider};
use acm_prov_api::prelude::*;
use acm_prov_api::sa::{Component, PathQuery, Target};
use acm_stand_in::by_hand::{ByHand, Request};
use by_vendor::ByVendor;

const OURS: Gid = Gid::new(ByHand::GID.subnet_prefix(), 0x0002_c903_0000_0007);
const OTHER: Gid = Gid::new(ByHand::GID.subnet_prefix(), 0x0011_7503_0000_0007);
const NO_RECORDS: u16 = 0x0300;
const BUSY: u16 = 0x0001;

fn opened(options: &str) -> ByHand {
    let mut core = ByHand::load::<PolicyProvider<ByVendor>>(&format!(
        "by_vendor_sl 3\nby_vendor_oui 0002c9\n{options}"
    ));
    core.open();
    core
}

fn to(gid: Gid) -> Request {
    Request::destination(&Address::Gid(gid))
}

fn with_sl(gid: Gid, sl: u8) -> Request {
    let mut wanted = PathRecord::default();
    wanted.set_dgid(gid).set_sl(sl);
    Request::path(&wanted)
}

/// Path queries that the SA got so far.
fn asked(core: &ByHand) -> usize {
    core.sa().path_queries().len()
}

/// The service level that the oldest question names.
fn asked_sl(core: &ByHand) -> Option<u8> {
    let question = &core.wait_for_sa_queries(1)[0];
    let named = question.comp_mask.to_host() & Component::Sl.mask() != 0;
    let record = PathRecord::from_bytes(question.data.first_chunk().unwrap());
    named.then(|| record.sl())
}

fn refuse(status: u16) -> impl FnOnce(&mut umad_sa_packet) {
    move |packet| packet.mad_hdr.status = Be16::from_host(status)
}

/// Resolves from memory.
#[track_caller]
fn known(core: &mut ByHand, request: &Request) -> PathRecord {
    let id = core.resolve(request);
    let answers = core.answers(id);
    assert_eq!(answers.len(), 1, "answered within the call");
    assert_eq!(answers[0].status, Status::SUCCESS);
    answers[0].path.unwrap()
}

#[test]
fn the_first_alternative_is_asked_for_and_kept_under_the_clients_query() {
    let mut core = opened("");
    let id = core.resolve(&to(OURS));
    assert_eq!(asked_sl(&core), Some(3));
    core.sa_answers_with(|_| ());
    assert_eq!(core.wait_for_answer(id).path.unwrap().sl(), 3);
    assert_eq!(known(&mut core, &to(OURS)).sl(), 3);
    assert_eq!(asked(&core), 1);
}

#[test]
fn where_the_sa_has_no_record_the_next_alternative_is_asked_for() {
    let mut core = opened("");
    let id = core.resolve(&to(OURS));
    assert_eq!(asked_sl(&core), Some(3));
    core.sa_answers(refuse(NO_RECORDS));
    assert_eq!(asked_sl(&core), None);
    assert!(core.answers(id).is_empty());
    core.sa_answers_with(|path| {
        path.set_sl(1);
    });
    assert_eq!(core.wait_for_answer(id).path.unwrap().sl(), 1);
    // The outcome is kept: nothing is asked again.
    assert_eq!(known(&mut core, &to(OURS)).sl(), 1);
    assert_eq!(asked(&core), 2);
}

#[test]
fn a_peer_that_the_rule_does_not_mean_is_asked_for_as_the_client_asks() {
    let mut core = opened("");
    let id = core.resolve(&to(OTHER));
    assert_eq!(asked_sl(&core), None);
    core.sa_answers(refuse(NO_RECORDS));
    assert_eq!(core.wait_for_answer(id).status, Status::ENODATA);
    assert_eq!(asked(&core), 1);
}

#[test]
fn what_the_client_names_stands_in_each_alternative() {
    let mut core = opened("");
    let id = core.resolve(&with_sl(OURS, 5));
    assert_eq!(asked_sl(&core), Some(5));
    core.sa_answers(refuse(NO_RECORDS));
    assert_eq!(core.wait_for_answer(id).status, Status::ENODATA);
    assert_eq!(asked(&core), 1, "the alternatives are one query then");
}

#[test]
fn neither_a_timeout_nor_a_busy_sa_leads_to_the_next_alternative() {
    let mut core = opened("timeout 60000\nretries 1\n");
    let id = core.resolve(&to(OURS));
    assert_eq!(asked_sl(&core), Some(3));
    core.sa_answers(refuse(BUSY));
    assert_eq!(asked_sl(&core), Some(3));
    core.sa_times_out();
    assert_eq!(asked_sl(&core), Some(3));
    core.sa_answers_with(|_| ());
    assert_eq!(core.wait_for_answer(id).path.unwrap().sl(), 3);
}

#[test]
fn a_busy_sa_does_not_lead_back_to_an_earlier_alternative() {
    let mut core = opened("timeout 60000\n");
    let id = core.resolve(&to(OURS));
    core.wait_for_sa_queries(1);
    core.sa_answers(refuse(NO_RECORDS));
    assert_eq!(asked_sl(&core), None);
    core.sa_answers(refuse(BUSY));
    assert_eq!(asked_sl(&core), None);
    core.sa_answers_with(|_| ());
    assert_eq!(core.wait_for_answer(id).status, Status::SUCCESS);
}

#[test]
fn all_alternatives_share_the_deadline() {
    let mut core = opened("timeout 150\nretries 1\n");
    let id = core.resolve(&to(OURS));
    core.wait_for_sa_queries(1);
    core.sa_answers(refuse(NO_RECORDS));
    assert_eq!(asked_sl(&core), None);
    // The SA keeps silent.
    assert_eq!(core.wait_for_answer(id).status, Status::ETIMEDOUT);
}

#[test]
fn a_request_that_comes_between_two_alternatives_waits_for_the_outcome() {
    let mut core = opened("timeout 60000\n");
    let first = core.resolve(&to(OURS));
    core.wait_for_sa_queries(1);
    core.sa_answers(refuse(NO_RECORDS));
    assert_eq!(asked_sl(&core), None);
    let second = core.resolve(&to(OURS));
    assert!(core.answers(second).is_empty());
    core.sa_answers_with(|_| ());
    for id in [first, second] {
        assert_eq!(core.wait_for_answer(id).status, Status::SUCCESS);
    }
    assert_eq!(asked(&core), 2);
}

#[test]
fn the_path_to_the_port_itself_follows_the_rule() {
    let mut core =
        ByHand::load::<PolicyProvider<ByVendor>>("by_vendor_sl 3\nby_vendor_oui 000000\n");
    core.open();
    let id = core.resolve(&Request::destination(&Address::Ip(ByHand::SOURCE)));
    // Made from the port's attributes it would have the service level 0.
    assert_eq!(asked_sl(&core), Some(3));
    core.sa_answers_with(|_| ());
    assert_eq!(core.wait_for_answer(id).path.unwrap().sl(), 3);
}

#[test]
fn that_no_alternative_has_a_record_is_remembered() {
    let mut core = opened("");
    let id = core.resolve(&to(OURS));
    for _ in 0..2 {
        core.wait_for_sa_queries(1);
        core.sa_answers(refuse(NO_RECORDS));
    }
    assert_eq!(core.wait_for_answer(id).status, Status::ENODATA);
    let again = core.resolve(&to(OURS));
    assert_eq!(core.answers(again).len(), 1);
    assert_eq!(asked(&core), 2);
}

#[test]
fn after_a_reregistration_the_first_alternative_is_tried_again() {
    let mut core = opened("");
    let id = core.resolve(&to(OURS));
    core.wait_for_sa_queries(1);
    core.sa_answers(refuse(NO_RECORDS));
    core.wait_for_sa_queries(1);
    core.sa_answers_with(|_| ());
    core.wait_for_answer(id);
    core.reregister();
    let id = core.resolve(&to(OURS));
    assert_eq!(asked_sl(&core), Some(3));
    core.sa_answers_with(|_| ());
    assert_eq!(core.wait_for_answer(id).path.unwrap().sl(), 3);
}

#[test]
fn a_query_to_the_sa_itself_follows_the_rule() {
    let mut core = opened("");
    let mut wanted = PathRecord::default();
    wanted.set_dgid(OURS);
    let id = core.query(&Request::path(&wanted));
    assert_eq!(asked_sl(&core), Some(3));
    core.sa_answers_with(|_| ());
    assert_eq!(core.wait_for_answer(id).path.unwrap().sl(), 3);
}

#[test]
fn an_option_that_cannot_be_read_is_reported_and_has_no_effect() {
    let mut core = ByHand::load::<PolicyProvider<ByVendor>>(
        "by_vendor_sl 16\nby_vendor_oui 2c9\nby_vendor_uoi 1\n",
    );
    core.open();
    for text in [
        "by_vendor_sl 16: not within 0 to 15; using none",
        "by_vendor_oui 2c9: not six hexadecimal digits; using none",
        "by_vendor_uoi: no such option",
    ] {
        assert!(core.log().iter().any(|line| line.contains(text)), "{text}");
    }
    core.resolve(&to(OURS));
    assert_eq!(asked_sl(&core), None);
    core.close();
}

/// Knows some names, and one path.
struct Knows {
    parked: Mutex<Vec<Parked>>,
}

/// What [`Knows`] parked, for the tests.
static PARKED: Mutex<Vec<Parked>> = Mutex::new(Vec::new());

impl Policy for Knows {
    const NAME: &CStr = c"knows";

    fn read(_: &Options) -> Self {
        Self {
            parked: Mutex::default(),
        }
    }

    fn address(&self, request: AddressRequest<'_>) {
        match request.address().to_string().as_str() {
            "here" => request.found(Target::Gid(OTHER)),
            "later" => PARKED.lock().unwrap().push(request.park()),
            "never" => self.parked.lock().unwrap().push(request.park()),
            "refused" => request.refuse(Status::EDESTADDR),
            "forgotten" => drop(request),
            "panics" => panic!("no such name"),
            _ => request.unknown(),
        }
    }

    fn path(&self, query: &PathQuery) -> Option<PathRecord> {
        let mut path = query.record();
        match query.target() {
            Ok(Target::Lid(Lid(7))) => {
                path.set_dgid(OURS).set_slid(ByHand::LID).set_sl(9);
                Some(path)
            }
            Ok(Target::Lid(Lid(8))) => {
                path.set_dlid(Lid(9));
                Some(path)
            }
            Ok(Target::Lid(Lid(9))) => panic!("a rule that panics"),
            _ => None,
        }
    }
}

acm_prov_api::policy_table!(Knows);

fn knowing(options: &str) -> ByHand {
    PARKED.lock().unwrap().clear();
    let mut core = ByHand::load::<PolicyProvider<Knows>>(options);
    core.open();
    core
}

fn named(name: &str) -> Request {
    Request::destination(&Address::Name(Name::new(name).unwrap()))
}

fn status(core: &mut ByHand, name: &str) -> Status {
    let id = core.resolve(&named(name));
    core.wait_for_answer(id).status
}

#[test]
fn a_policy_says_whose_an_address_is() {
    let mut core = knowing("timeout 60000\n");
    // A name that panics, and one that is forgotten.
    core.expect_breaches();
    let id = core.resolve(&named("here"));
    core.wait_for_sa_queries(1);
    core.sa_answers_with(|_| ());
    assert_eq!(core.wait_for_answer(id).path.unwrap().dgid(), OTHER);
    assert_eq!(known(&mut core, &named("here")).dgid(), OTHER);
    assert_eq!(status(&mut core, "nobody"), Status::ENODATA);
    assert_eq!(status(&mut core, "refused"), Status::EDESTADDR);
    assert_eq!(status(&mut core, "forgotten"), Status::ENODATA);
    assert_eq!(status(&mut core, "panics"), Status::ENODATA);
}

#[test]
fn each_parked_request_is_answered_at_its_own_deadline() {
    let mut core = knowing("timeout 100\nretries 0\n");
    let first = core.resolve(&named("never"));
    let start = Moment::now();
    while Moment::now() == start {
        std::thread::yield_now();
    }
    let second = core.resolve(&named("never"));
    for id in [first, second] {
        assert_eq!(core.wait_for_answer(id).status, Status::ETIMEDOUT);
    }
}

#[test]
fn a_parked_request_is_answered_when_the_address_is_found() {
    let mut core = knowing("timeout 60000\n");
    let id = core.resolve(&named("later"));
    assert!(core.answers(id).is_empty());
    PARKED.lock().unwrap().remove(0).found(Target::Gid(OTHER));
    core.wait_for_sa_queries(1);
    core.sa_answers_with(|_| ());
    assert_eq!(core.wait_for_answer(id).path.unwrap().dgid(), OTHER);

    let id = core.resolve(&named("later"));
    PARKED.lock().unwrap().remove(0).refuse(Status::ENOMEM);
    assert_eq!(core.wait_for_answer(id).status, Status::ENOMEM);

    let id = core.resolve(&named("later"));
    drop(PARKED.lock().unwrap().remove(0));
    assert_eq!(core.wait_for_answer(id).status, Status::ENODATA);
}

#[test]
fn a_parked_request_ends_with_its_endpoint_and_nothing_happens_later() {
    let mut core = knowing("timeout 60000\n");
    let id = core.resolve(&named("later"));
    core.close();
    assert_eq!(core.wait_for_answer(id).status, Status::ENOTCONN);
    PARKED.lock().unwrap().remove(0).found(Target::Gid(OTHER));
    assert_eq!(core.answers(id).len(), 1);
    assert_eq!(asked(&core), 0);
}

#[test]
fn a_client_that_does_not_wait_is_refused_and_the_next_one_finds_the_path() {
    let mut core = knowing("timeout 60000\n");
    let id = core.resolve(&named("later").nodelay());
    assert_eq!(core.answers(id)[0].status, Status::ENODATA);
    PARKED.lock().unwrap().remove(0).found(Target::Gid(OTHER));
    core.wait_for_sa_queries(1);
    core.sa_answers_with(|_| ());
    assert_eq!(core.answers(id).len(), 1);
    assert_eq!(known(&mut core, &named("here")).dgid(), OTHER);
}

#[test]
fn a_policy_gives_a_path_without_the_sa_if_it_answers_the_query() {
    let mut core = knowing("");
    // A rule that panics.
    core.expect_breaches();
    let lid = |lid| Request::destination(&Address::Lid(Lid(lid)));
    assert_eq!(known(&mut core, &lid(7)).sl(), 9);
    assert_eq!(asked(&core), 0);
    // Another port's path, and a rule that panics: the SA is asked.
    for (dlid, queries) in [(8, 1), (9, 2)] {
        let id = core.resolve(&lid(dlid));
        core.wait_for_sa_queries(1);
        core.sa_answers_with(|_| ());
        assert_eq!(core.wait_for_answer(id).path.unwrap().dlid(), Lid(dlid));
        assert_eq!(asked(&core), queries);
    }
    assert!(
        core.log()
            .iter()
            .any(|line| line.contains("a rule that panics"))
    );
}
