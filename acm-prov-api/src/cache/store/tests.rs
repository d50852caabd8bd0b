use super::*;
use crate::address::PKey;

fn at(millis: u64) -> Moment {
    Moment::from_millis(millis)
}

fn source() -> Source {
    Source {
        gid: gid(0xffff),
        lid: Lid(0xbfff),
        pkey: PKey(0xffff),
    }
}

fn gid(id: u64) -> Gid {
    Gid::new(0xfe80_0000_0000_0000, id)
}

fn path(id: u64, lid: u16) -> PathRecord {
    let mut path = PathRecord::default();
    path.set_dgid(gid(id))
        .set_dlid(Lid(lid))
        .set_sgid(source().gid);
    path.set_slid(source().lid)
        .set_pkey(source().pkey)
        .set_reversible(true);
    path
}

fn by_gid(id: u64) -> Question {
    Question::plain(Target::Gid(gid(id)))
}

fn by_lid(lid: u16) -> Question {
    Question::plain(Target::Lid(Lid(lid)))
}

fn for_service(mut question: Question, service: u64) -> Question {
    question.demands.service_id = service;
    question
}

fn store(capacity: usize) -> PathStore {
    PathStore::new(
        source(),
        StoreLimits {
            capacity,
            ttl: Some(1_000),
            stale_ttl: 500,
            negative_ttl: 100,
        },
    )
}

/// Teaches the store at time 0 and expects it to keep the answer.
fn learn(store: &mut PathStore, question: Question, path: PathRecord) {
    store.learn(&question, &path, store.epoch(), at(0));
    assert_eq!(store.get(&question, at(0)), Some(path), "{question:?}");
}

#[test]
fn one_entry_serves_askers_by_gid_and_by_lid() {
    for question in [by_gid(1), by_lid(5)] {
        let mut store = store(10);
        learn(&mut store, question, path(1, 5));
        assert_eq!(store.get(&by_gid(1), at(0)), Some(path(1, 5)));
        assert_eq!(store.get(&by_lid(5), at(0)), Some(path(1, 5)));
        assert_eq!(store.len(), 1);
    }
}

#[test]
fn all_fields_come_back_as_the_sa_said_them() {
    use crate::path::Selector;
    let mut full = path(1, 5);
    full.set_flow_label(0xabcde)
        .set_hop_limit(7)
        .set_traffic_class(9);
    full.set_numb_path(1).set_qos_class(0x123).set_sl(4);
    full.set_mtu(Selector::Exactly, 4)
        .set_rate(Selector::Exactly, 7);
    full.set_packet_lifetime(Selector::Exactly, 18)
        .set_preference(3);
    let mut store = store(10);
    learn(&mut store, by_gid(1), full);
    assert_eq!(store.get(&by_lid(5), at(0)), Some(full));
}

#[test]
fn what_was_not_learnt_is_not_known() {
    let mut store = store(10);
    learn(&mut store, by_gid(1), path(1, 5));
    assert_eq!(store.get(&by_gid(2), at(0)), None);
    assert_eq!(store.get(&by_lid(6), at(0)), None);
    assert_eq!(store.get(&for_service(by_gid(1), 7), at(0)), None);
}

#[test]
fn an_answer_to_another_question_is_not_kept() {
    let mut store = store(10);
    let epoch = store.epoch();
    for wrong in [
        path(2, 5),
        *path(1, 5).set_sgid(gid(7)),
        *path(1, 5).set_dlid(Lid(0)),
    ] {
        store.learn(&by_gid(1), &wrong, epoch, at(0));
    }
    store.learn(&by_lid(6), &path(1, 5), epoch, at(0));
    assert!(store.is_empty());
}

#[test]
fn fresh_for_its_ttl_and_renewed_by_the_next_answer() {
    let mut store = store(10);
    learn(&mut store, by_gid(1), path(1, 5));
    assert!(store.get(&by_gid(1), at(999)).is_some());
    assert_eq!(store.get(&by_gid(1), at(1_000)), None);
    assert_eq!(store.get_stale(&by_gid(1), at(1_000)), None);
    store.learn(&by_gid(1), &path(1, 5), store.epoch(), at(1_000));
    assert!(store.get(&by_lid(5), at(1_999)).is_some());
    assert_eq!(store.len(), 1);
}

#[test]
fn stale_after_a_re_registration_until_the_stale_ttl() {
    let mut store = store(10);
    learn(&mut store, by_gid(1), path(1, 5));
    let asked = store.epoch();
    store.reregister(at(100));
    for question in [by_gid(1), by_lid(5)] {
        assert_eq!(store.get(&question, at(100)), None);
        assert_eq!(store.get_stale(&question, at(599)), Some(path(1, 5)));
        assert_eq!(store.get_stale(&question, at(600)), None);
    }
    // Asked before the SA changed its mind, answered after.
    store.learn(&by_gid(1), &path(1, 5), asked, at(110));
    assert_eq!(store.get(&by_gid(1), at(110)), None);
    store.learn(&by_gid(1), &path(1, 6), store.epoch(), at(120));
    assert_eq!(store.get(&by_gid(1), at(120)), Some(path(1, 6)));
    assert_eq!(store.get_stale(&by_lid(5), at(120)), None);
}

#[test]
fn a_clear_leaves_nothing_and_lets_nothing_older_in() {
    let mut store = store(10);
    learn(&mut store, by_gid(1), path(1, 5));
    learn(&mut store, for_service(by_gid(1), 7), path(1, 5));
    let asked = store.epoch();
    store.learn_missing(&by_gid(9), asked, at(0));
    store.clear();
    assert!(store.is_empty());
    assert!(store.lids.is_empty());
    assert_eq!(store.get_stale(&by_gid(1), at(0)), None);
    assert!(!store.is_missing(&by_gid(9), at(0)));
    store.learn(&by_gid(1), &path(1, 5), asked, at(0));
    store.learn_missing(&by_gid(9), asked, at(0));
    assert!(store.is_empty());
    assert!(!store.is_missing(&by_gid(9), at(0)));
}

#[test]
fn no_such_path_is_remembered_for_its_ttl() {
    let mut store = store(10);
    store.learn_missing(&by_lid(9), store.epoch(), at(0));
    assert!(store.is_missing(&by_lid(9), at(99)));
    assert!(!store.is_missing(&by_lid(9), at(100)));
    assert!(!store.is_missing(&by_lid(8), at(0)));

    store.learn_missing(&by_lid(9), store.epoch(), at(200));
    learn(&mut store, by_lid(9), path(9, 9));
    assert!(!store.is_missing(&by_lid(9), at(200)));

    store.learn_missing(&by_lid(8), store.epoch(), at(200));
    store.reregister(at(201));
    assert!(!store.is_missing(&by_lid(8), at(201)));
}

#[test]
fn a_port_that_moved_to_another_lid_leaves_the_old_one() {
    let mut store = store(10);
    learn(&mut store, by_gid(1), path(1, 5));
    learn(&mut store, for_service(by_gid(1), 7), path(1, 5));
    learn(&mut store, by_gid(1), path(1, 6));
    assert_eq!(store.get(&by_lid(6), at(0)), Some(path(1, 6)));
    assert_eq!(store.get(&by_lid(5), at(0)), None);
    assert_eq!(store.get(&for_service(by_gid(1), 7), at(0)), None);
    assert_eq!(store.len(), 1);
    assert_eq!(store.lids.len(), 1);
}

#[test]
fn a_lid_goes_to_the_port_that_had_it_last() {
    let mut store = store(10);
    learn(&mut store, by_gid(1), path(1, 5));
    learn(&mut store, by_gid(2), path(2, 5));
    assert_eq!(store.get(&by_lid(5), at(0)), Some(path(2, 5)));
    // The first port turns up elsewhere; the LID stays with the second.
    learn(&mut store, by_gid(1), path(1, 6));
    assert_eq!(store.get(&by_lid(5), at(0)), Some(path(2, 5)));
}

#[test]
fn a_port_with_several_lids_keeps_a_path_for_each_that_is_asked() {
    let mut store = store(10);
    learn(&mut store, by_gid(1), path(1, 4));
    for lid in [5, 6, 7] {
        learn(&mut store, by_lid(lid), path(1, lid));
    }
    for lid in [4, 5, 6, 7] {
        assert_eq!(store.get(&by_lid(lid), at(0)), Some(path(1, lid)));
    }
    assert_eq!(store.get(&by_gid(1), at(0)), Some(path(1, 4)));
    assert_eq!(store.len(), 4);
    // Once the path by GID is stale, an answer by LID takes its place.
    store.reregister(at(10));
    store.learn(&by_lid(6), &path(1, 6), store.epoch(), at(10));
    assert_eq!(store.get(&by_gid(1), at(10)), Some(path(1, 6)));
    assert_eq!((store.len(), store.lids.len()), (1, 1));
}

#[test]
fn a_question_with_demands_has_an_answer_of_its_own() {
    let mut store = store(10);
    let mut wide = path(1, 5);
    wide.set_sl(3);
    let mut demanding = by_gid(1);
    demanding.demands.sl = 3;
    learn(&mut store, by_gid(1), path(1, 5));
    learn(&mut store, demanding, wide);
    learn(&mut store, for_service(by_gid(1), 7), path(1, 5));
    assert_eq!(store.get(&by_gid(1), at(0)), Some(path(1, 5)));
    assert_eq!(store.get(&demanding, at(0)), Some(wide));
    assert_eq!(
        store.get(&for_service(by_lid(5), 7), at(0)),
        Some(path(1, 5))
    );
    assert_eq!(store.get(&for_service(by_gid(1), 8), at(0)), None);
    assert_eq!(store.len(), 3);
}

#[test]
fn a_demand_alone_makes_no_plain_answer() {
    let mut store = store(10);
    learn(&mut store, for_service(by_lid(5), 7), path(1, 5));
    assert_eq!(store.get(&by_lid(5), at(0)), None);
    assert_eq!(store.get(&by_gid(1), at(0)), None);
    assert_eq!(
        store.get(&for_service(by_gid(1), 7), at(0)),
        Some(path(1, 5))
    );
}

#[test]
fn of_64_services_the_oldest_goes() {
    let mut store = store(1_000);
    let count = MAX_SERVICE_VARIANTS as u64;
    let mut demanding = by_gid(1);
    demanding.demands.sl = 1;
    learn(&mut store, demanding, *path(1, 5).set_sl(1));
    for service in 1..=count {
        learn(&mut store, for_service(by_gid(1), service), path(1, 5));
    }
    // Asked again, the first becomes the youngest.
    learn(&mut store, for_service(by_gid(1), 1), path(1, 5));
    assert_eq!(store.len(), MAX_SERVICE_VARIANTS + 1);
    learn(&mut store, for_service(by_gid(1), count + 1), path(1, 5));
    assert_eq!(store.len(), MAX_SERVICE_VARIANTS + 1);
    assert!(store.get(&for_service(by_gid(1), 1), at(0)).is_some());
    assert_eq!(store.get(&for_service(by_gid(1), 2), at(0)), None);
    assert!(store.get(&demanding, at(0)).is_some());
}

#[test]
fn other_demands_are_bounded_as_well() {
    let mut store = store(1_000);
    for label in 1..=MAX_OTHER_VARIANTS as u32 + 10 {
        let mut question = by_gid(1);
        question.demands.flow_label = label;
        learn(&mut store, question, path(1, 5));
    }
    assert_eq!(store.len(), MAX_OTHER_VARIANTS);
}

#[test]
fn the_destination_used_least_recently_goes_with_all_its_answers() {
    let mut store = store(4);
    learn(&mut store, by_gid(1), path(1, 1));
    learn(&mut store, for_service(by_gid(1), 7), path(1, 1));
    learn(&mut store, by_gid(2), path(2, 2));
    learn(&mut store, by_gid(3), path(3, 3));
    assert!(store.get(&by_lid(1), at(0)).is_some());
    learn(&mut store, by_gid(4), path(4, 4));
    assert_eq!(store.get(&by_gid(2), at(0)), None);
    learn(&mut store, by_gid(5), path(5, 5));
    assert_eq!(store.get(&by_gid(3), at(0)), None);
    learn(&mut store, by_gid(6), path(6, 6));
    assert_eq!(store.get(&by_gid(1), at(0)), None);
    assert_eq!(store.get(&for_service(by_gid(1), 7), at(0)), None);
    assert_eq!((store.len(), store.lids.len()), (3, 3));
}

#[test]
fn one_destination_alone_keeps_to_the_capacity() {
    let mut store = store(3);
    learn(&mut store, by_gid(1), path(1, 1));
    for service in 1..=5 {
        learn(&mut store, for_service(by_gid(1), service), path(1, 1));
    }
    assert_eq!(store.len(), 3);
    assert!(store.get(&by_gid(1), at(0)).is_some());
    assert_eq!(store.get(&for_service(by_gid(1), 3), at(0)), None);
}

#[test]
fn a_capacity_of_zero_keeps_nothing() {
    let mut store = store(0);
    store.learn(&by_gid(1), &path(1, 1), store.epoch(), at(0));
    assert!(store.is_empty());
    assert!(store.lids.is_empty());
    assert_eq!(store.get(&by_gid(1), at(0)), None);
}
