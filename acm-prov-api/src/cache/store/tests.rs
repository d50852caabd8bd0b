use super::*;
use crate::address::PKey;
use crate::cache::table::MOST_SLOTS;
use crate::path::Selector;

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
        .set_reversible(true)
        .set_mtu(Selector::Exactly, 4)
        .set_rate(Selector::Exactly, 3)
        .set_packet_lifetime(Selector::Exactly, 18);
    path
}

fn by_gid(id: u64) -> PathQuery {
    PathQuery::to(Target::Gid(gid(id))).complete(&source())
}

fn by_lid(lid: u16) -> PathQuery {
    PathQuery::to(Target::Lid(Lid(lid))).complete(&source())
}

fn for_service(mut query: PathQuery, service: u64) -> PathQuery {
    *query.set_service_id(service)
}

fn at_sl(mut query: PathQuery, sl: u8) -> PathQuery {
    *query.set_sl(sl)
}

/// Returns the query of a client that repeats a path.
fn repeated(path: &PathRecord) -> PathQuery {
    PathQuery::from_client(path).complete(&source())
}

fn store(capacity: usize) -> PathStore {
    PathStore::new(
        source(),
        StoreLimits {
            capacity,
            ttl: Some(Duration::from_millis(1_000)),
            stale_ttl: Duration::from_millis(500),
            negative_ttl: Duration::from_millis(100),
        },
    )
}

/// Stores an answer at time 0, and expects the store to keep it.
fn learn(store: &PathStore, query: PathQuery, path: PathRecord) {
    store.learn(&query, &path, store.epoch(), at(0));
    assert_eq!(store.get(&query, at(0)), Some(path), "{query:?}");
}

#[test]
fn a_gid_and_a_lid_are_two_destinations() {
    // The LID may belong to a router to the GID, or to a port with the GID as an alias.
    let store = store(10);
    learn(&store, by_gid(1), path(1, 5));
    assert_eq!(store.get(&by_lid(5), at(0)), None);
    learn(&store, by_lid(5), path(2, 5));
    assert_eq!(store.get(&by_gid(2), at(0)), None);
    assert_eq!(store.get(&by_gid(1), at(0)), Some(path(1, 5)));
    assert_eq!(store.len(), 2);
}

#[test]
fn all_fields_come_back_as_the_sa_said_them() {
    let mut full = path(1, 5);
    full.set_flow_label(0xabcde)
        .set_hop_limit(7)
        .set_traffic_class(9)
        .set_pkey(PKey(0x7fff));
    full.set_numb_path(1).set_qos_class(0x123).set_sl(4);
    full.set_preference(3);
    let store = store(10);
    learn(&store, by_gid(1), full);
    learn(&store, by_lid(5), full);
    learn(&store, for_service(by_gid(1), 7), full);
    // The table has no room for it.
    full.set_service_id(8);
    learn(&store, by_gid(1), full);
    full.set_service_id(0);
    learn(&store, by_gid(1), full);
}

#[test]
fn an_unknown_destination_is_a_miss() {
    let store = store(10);
    learn(&store, by_gid(1), path(1, 5));
    assert_eq!(store.get(&by_gid(2), at(0)), None);
    assert_eq!(store.get(&by_lid(6), at(0)), None);
    assert_eq!(store.get(&for_service(by_gid(1), 7), at(0)), None);
    let mut other_source = by_gid(1);
    other_source.set_sgid(gid(7));
    assert_eq!(store.get(&other_source, at(0)), None);
    let mut other_partition = by_gid(1);
    other_partition.set_pkey(PKey(0x8001));
    assert_eq!(store.get(&other_partition, at(0)), None);
}

#[test]
fn a_plain_answer_serves_queries_that_name_its_values() {
    let store = store(10);
    learn(&store, by_gid(1), *path(1, 5).set_sl(3));
    let known = *path(1, 5).set_sl(3);
    let mut both = by_gid(1);
    both.set_dlid(Lid(5));
    for query in [at_sl(by_gid(1), 3), both, repeated(&known)] {
        assert_eq!(store.get(&query, at(0)), Some(known), "{query:?}");
    }
    both.set_dlid(Lid(6));
    for query in [at_sl(by_gid(1), 0), both] {
        assert_eq!(store.get(&query, at(0)), None, "{query:?}");
    }
    // A LID's answer, too.
    both.set_dgid(gid(2));
    learn(&store, by_lid(6), path(2, 6));
    assert_eq!(store.get(&both, at(0)), Some(path(2, 6)));
    assert_eq!(store.len(), 2);
}

#[test]
fn a_constrained_answer_serves_no_plainer_query() {
    let store = store(10);
    let mut small = by_gid(1);
    small.set_mtu(Selector::Exactly, 1);
    let small_path = *path(1, 5).set_mtu(Selector::Exactly, 1);
    learn(&store, small, small_path);
    learn(&store, for_service(by_gid(1), 7), path(1, 5));
    assert_eq!(store.get(&by_gid(1), at(0)), None);
    assert_eq!(store.get(&for_service(by_gid(1), 8), at(0)), None);
    assert_eq!(store.get(&for_service(small, 7), at(0)), None);
    // It serves queries that name the same, and further values of the path.
    let mut more = small;
    more.set_rate(Selector::GreaterThan, 2);
    assert_eq!(store.get(&more, at(0)), Some(small_path));
    let more = at_sl(for_service(by_gid(1), 7), 0);
    assert_eq!(store.get(&more, at(0)), Some(path(1, 5)));
    // The plain answer inherits neither.
    learn(&store, by_gid(1), path(1, 5));
    assert_eq!(store.get(&small, at(0)), Some(small_path));
    assert_eq!(store.len(), 3);
}

#[test]
fn a_query_that_repeats_a_path_is_a_hit() {
    let store = store(10);
    let drawn = |sl| *path(1, 5).set_sl(sl);
    learn(&store, for_service(by_gid(1), 7), drawn(6));
    learn(&store, for_service(by_gid(1), 8), drawn(4));
    for sl in [6, 4] {
        assert_eq!(store.get(&repeated(&drawn(sl)), at(0)), Some(drawn(sl)));
        assert_eq!(store.get(&repeated(&drawn(sl)), at(1_000)), None);
    }
    assert_eq!(store.get(&repeated(&drawn(5)), at(0)), None);
}

#[test]
fn fresh_for_its_ttl_and_renewed_by_the_next_answer() {
    for query in [
        by_gid(1),
        by_lid(5),
        for_service(by_gid(1), 7),
        at_sl(by_lid(5), 0),
    ] {
        let store = store(10);
        learn(&store, query, path(1, 5));
        assert!(store.get(&query, at(999)).is_some());
        assert_eq!(store.get(&query, at(1_000)), None);
        assert_eq!(store.get_stale(&query, at(1_000)), None);
        store.learn(&query, &path(1, 5), store.epoch(), at(1_000));
        assert!(store.get(&query, at(1_999)).is_some());
        assert_eq!(store.len(), 1);
    }
}

#[test]
fn stale_after_a_re_registration_until_the_stale_ttl() {
    for query in [
        by_gid(1),
        by_lid(5),
        for_service(by_gid(1), 7),
        at_sl(by_lid(5), 0),
    ] {
        let store = store(10);
        learn(&store, query, path(1, 5));
        let asked = store.epoch();
        store.reregister(at(100));
        assert_eq!(store.get(&query, at(100)), None);
        assert_eq!(store.get_stale(&query, at(599)), Some(path(1, 5)));
        assert_eq!(store.get_stale(&query, at(600)), None);
        // Queried before the re-registration, answered after it.
        store.learn(&query, &path(1, 5), asked, at(110));
        assert_eq!(store.get(&query, at(110)), None);
        let new = *path(1, 5).set_hop_limit(1);
        store.learn(&query, &new, store.epoch(), at(120));
        assert_eq!(store.get(&query, at(120)), Some(new));
        assert_eq!(store.len(), 1);
    }
}

#[test]
fn a_clear_drops_everything_and_refuses_older_answers() {
    let store = store(10);
    let queries = [by_gid(1), by_lid(5), for_service(by_gid(1), 7)];
    for query in queries {
        learn(&store, query, path(1, 5));
    }
    let asked = store.epoch();
    store.learn_missing(&by_gid(9), asked, at(0));
    store.clear();
    assert!(store.is_empty());
    assert!(!store.is_missing(&by_gid(9), at(0)));
    store.learn_missing(&by_gid(9), asked, at(0));
    for query in queries {
        assert_eq!(store.get_stale(&query, at(0)), None);
        store.learn(&query, &path(1, 5), asked, at(0));
    }
    assert!(store.is_empty());
    assert!(!store.is_missing(&by_gid(9), at(0)));
}

#[test]
fn no_such_path_is_remembered_for_its_ttl() {
    let store = store(10);
    store.learn_missing(&by_lid(9), store.epoch(), at(0));
    assert!(store.is_missing(&by_lid(9), at(99)));
    assert!(!store.is_missing(&by_lid(9), at(100)));
    assert!(!store.is_missing(&by_lid(8), at(0)));
    // Only for that query.
    store.learn_missing(&at_sl(by_lid(9), 5), store.epoch(), at(0));
    assert!(store.is_missing(&at_sl(by_lid(9), 5), at(0)));
    assert!(!store.is_missing(&at_sl(by_lid(9), 0), at(0)));

    store.learn_missing(&by_lid(9), store.epoch(), at(200));
    learn(&store, by_lid(9), path(9, 9));
    assert!(!store.is_missing(&by_lid(9), at(200)));

    store.learn_missing(&by_lid(8), store.epoch(), at(200));
    store.reregister(at(201));
    assert!(!store.is_missing(&by_lid(8), at(201)));
}

#[test]
fn a_port_that_moved_to_another_lid_leaves_the_old_one() {
    let store = store(10);
    learn(&store, by_gid(1), path(1, 5));
    learn(&store, for_service(by_gid(1), 7), path(1, 5));
    learn(&store, by_lid(5), path(1, 5));
    learn(&store, by_gid(1), path(1, 6));
    assert_eq!(store.get(&by_lid(5), at(0)), None);
    assert_eq!(store.get(&for_service(by_gid(1), 7), at(0)), None);
    assert_eq!(store.len(), 1);
}

#[test]
fn a_lid_that_another_port_has_now_forgets_the_one_before() {
    let store = store(10);
    learn(&store, by_lid(5), path(1, 5));
    learn(&store, for_service(by_lid(5), 7), path(1, 5));
    learn(&store, by_lid(5), path(2, 5));
    assert_eq!(store.get(&for_service(by_lid(5), 7), at(0)), None);
    assert_eq!(store.len(), 1);
}

#[test]
fn a_new_router_of_a_gid_does_not_drop_the_old_routers_lid() {
    let store = store(10);
    learn(&store, by_gid(1), path(1, 5));
    learn(&store, by_lid(5), path(2, 5));
    learn(&store, by_gid(1), path(1, 6));
    assert_eq!(store.get(&by_lid(5), at(0)), Some(path(2, 5)));
}

#[test]
fn what_leads_elsewhere_than_a_port_was_seen_is_forgotten() {
    let is_at = |lid| move |known: Lid| known == Lid(lid);
    // Whichever of them the query named.
    for query in [by_gid(1), for_service(by_gid(1), 7), at_sl(by_gid(1), 0)] {
        for lid_query in [by_lid(5), for_service(by_lid(5), 7)] {
            let store = store(10);
            learn(&store, query, path(1, 5));
            learn(&store, lid_query, path(1, 5));
            learn(&store, by_gid(2), path(2, 5));
            store.forget_unless(gid(1), is_at(5));
            store.forget_unless(gid(3), is_at(6));
            assert_eq!(store.len(), 3);
            store.forget_unless(gid(1), is_at(6));
            assert_eq!(store.get(&query, at(0)), None, "{query:?}");
            assert_eq!(store.get(&lid_query, at(0)), None, "{lid_query:?}");
            assert_eq!(store.get(&by_gid(2), at(0)), Some(path(2, 5)));
            assert_eq!(store.len(), 1);
        }
    }
    // The LID belongs to another port already.
    let store = store(10);
    learn(&store, by_gid(1), path(1, 5));
    learn(&store, by_lid(5), path(2, 5));
    store.forget_unless(gid(1), is_at(6));
    assert_eq!(store.get(&by_gid(1), at(0)), None);
    assert_eq!(store.get(&by_lid(5), at(0)), Some(path(2, 5)));
}

#[test]
fn a_port_with_several_lids_has_a_path_for_each() {
    let store = store(10);
    learn(&store, by_gid(1), path(1, 4));
    for lid in [5, 6, 7] {
        learn(&store, by_lid(lid), path(1, lid));
    }
    let mut both = by_gid(1);
    both.set_dlid(Lid(8));
    learn(&store, both, path(1, 8));
    for lid in [5, 6, 7] {
        assert_eq!(store.get(&by_lid(lid), at(0)), Some(path(1, lid)));
    }
    assert_eq!(store.get(&by_gid(1), at(0)), Some(path(1, 4)));
    assert_eq!(store.len(), 5);
}

#[test]
fn the_next_answer_to_a_query_takes_the_place_of_the_last() {
    let store = store(10);
    for query in [by_gid(1), for_service(by_gid(1), 7), at_sl(by_gid(1), 1)] {
        let before = store.len();
        let sl = query.values().sl();
        for hops in [1, 2] {
            learn(&store, query, *path(1, 5).set_sl(sl).set_hop_limit(hops));
        }
        assert_eq!(store.len(), before + 1);
    }
    // Two queries with one service id have separate answers.
    let two = [
        for_service(by_gid(1), 9),
        at_sl(for_service(by_gid(1), 9), 2),
    ];
    for (query, sl) in two.into_iter().zip([0, 2]) {
        learn(&store, query, *path(1, 5).set_sl(sl));
    }
    assert_eq!(store.get(&two[0], at(0)), Some(path(1, 5)));
    assert_eq!(store.len(), 5);
}

#[test]
fn equal_queries_and_records_are_kept_once() {
    let store = store(10_000);
    let sl_of = |service: u64| *path(1, 5).set_sl((service % 3) as u8);
    for service in 1..=1_000 {
        learn(&store, for_service(by_gid(1), service), sl_of(service));
    }
    let kept = |store: &PathStore| {
        let writer = store.writer.lock();
        writer.side.peek(Target::Gid(gid(1))).unwrap().kept_once()
    };
    assert_eq!((store.len(), kept(&store)), (1_000, (1, 3)));
    // Unused queries and records are removed; shared ones stay.
    for service in (1..=1_000).filter(|service| service % 3 == 0) {
        learn(&store, for_service(by_gid(1), service), sl_of(1));
    }
    assert_eq!((store.len(), kept(&store)), (1_000, (1, 2)));
    for service in 1..=1_000 {
        let sl = if service % 3 == 0 {
            sl_of(1)
        } else {
            sl_of(service)
        };
        assert_eq!(store.get(&for_service(by_gid(1), service), at(0)), Some(sl));
    }
    learn(&store, at_sl(for_service(by_gid(1), 1), 1), sl_of(1));
    assert_eq!(kept(&store), (2, 2));
}

/// A job start: each host connects to each port of each other host, and then again.
#[test]
fn the_second_round_of_connections_costs_no_query() {
    for (destinations, services) in [(64, 128), (1, 1_024)] {
        let store = store(65_536);
        let mut queries = 0;
        for _round in 0..2 {
            for id in 1..=destinations {
                for port in 1..=services {
                    let query = for_service(by_gid(id), 0x0106_0000 + port);
                    if store.get(&query, at(0)).is_none() {
                        queries += 1;
                        learn(&store, query, path(id, id as u16));
                    }
                }
            }
        }
        assert_eq!(queries, destinations * services);
    }
}

#[test]
fn too_many_services_evict_the_oldest() {
    let store = store(100_000);
    let count = MAX_SERVICE_ANSWERS as u64;
    learn(&store, at_sl(by_gid(1), 1), *path(1, 5).set_sl(1));
    // The last one stored first: the order of the ids does not matter.
    for service in (1..=count).rev() {
        let millis = count - service;
        let query = for_service(by_gid(1), service);
        store.learn(&query, &path(1, 5), store.epoch(), at(millis / 8));
    }
    // Stored again, the first becomes the youngest.
    let now = at(count / 8);
    let [first, second] = [count, count - 1].map(|service| for_service(by_gid(1), service));
    store.learn(&first, &path(1, 5), store.epoch(), now);
    assert_eq!(store.len(), MAX_SERVICE_ANSWERS + 1);
    for new in 1..=8 {
        let query = for_service(by_gid(1), count + new);
        store.learn(&query, &path(1, 5), store.epoch(), now);
    }
    assert_eq!(store.len(), MAX_SERVICE_ANSWERS + 1);
    assert!(store.get(&first, now).is_some());
    assert_eq!(store.get(&second, now), None);
    assert!(store.get(&at_sl(by_gid(1), 1), now).is_some());
}

#[test]
fn other_answers_are_bounded_as_well() {
    let store = store(1_000);
    learn(&store, by_gid(1), path(1, 5));
    learn(&store, for_service(by_gid(1), 7), path(1, 5));
    let with_label = |label: u32| {
        let mut query = by_gid(1);
        *query.set_flow_label(label)
    };
    let count = MAX_OTHER_ANSWERS as u32;
    for label in 0..count + 10 {
        let now = at(u64::from(label));
        store.learn(&with_label(label), &path(1, 5), store.epoch(), now);
    }
    assert_eq!(store.len(), MAX_OTHER_ANSWERS + 2);
    let now = at(200);
    assert!(store.get(&with_label(10), now).is_some());
    assert_eq!(store.get(&with_label(9), now), None);
    assert!(store.get(&by_gid(1), now).is_some());
    assert!(store.get(&for_service(by_gid(1), 7), now).is_some());
}

#[test]
fn unused_answers_are_evicted_before_used_ones() {
    let store = store(100);
    for id in 1..=100 {
        store.learn(&by_gid(id), &path(id, 1), store.epoch(), at(0));
    }
    // Whether `plain` or `get` finds it.
    for id in 1..=25 {
        assert!(store.plain(Target::Gid(gid(id))).is_some());
        assert!(store.get(&by_gid(25 + id), at(0)).is_some());
    }
    for lid in 1..=50 {
        store.learn(&by_lid(lid), &path(200, lid), store.epoch(), at(0));
        assert!(store.plain(Target::Lid(Lid(lid))).is_some());
    }
    assert_eq!(store.len(), 100);
    // All but a few: an entry that moves in the table can escape the hand once.
    let is_there = |id: &u64| store.get(&by_gid(*id), at(0)).is_some();
    let used = (1..=50).filter(is_there).count();
    let unused = (51..=100).filter(is_there).count();
    assert!(used >= 40 && unused <= 10, "{used} and {unused}");
}

#[test]
fn marks_do_not_last() {
    let store = store(100);
    for id in 1..=100 {
        store.learn(&by_gid(id), &path(id, 1), store.epoch(), at(0));
        assert!(store.plain(Target::Gid(gid(id))).is_some());
    }
    // The hand goes round once, and again.
    for id in 101..=200 {
        store.learn(&by_gid(id), &path(id, 1), store.epoch(), at(0));
        assert!(store.plain(Target::Gid(gid(id))).is_some());
    }
    assert_eq!(store.len(), 100);
    let left = (1..=100).filter(|id| store.plain(Target::Gid(gid(*id))).is_some());
    assert!(left.count() < 50);
}

#[test]
fn outside_the_table_the_least_recently_used_destination_is_evicted() {
    let store = store(4);
    learn(&store, for_service(by_gid(1), 7), path(1, 1));
    learn(&store, for_service(by_gid(1), 8), path(1, 1));
    learn(&store, for_service(by_gid(2), 7), path(2, 2));
    learn(&store, for_service(by_lid(3), 7), path(3, 3));
    assert!(store.get(&for_service(by_gid(1), 7), at(0)).is_some());
    learn(&store, for_service(by_gid(4), 7), path(4, 4));
    assert_eq!(store.get(&for_service(by_gid(2), 7), at(0)), None);
    learn(&store, for_service(by_gid(5), 7), path(5, 5));
    assert_eq!(store.get(&for_service(by_lid(3), 7), at(0)), None);
    assert_eq!(store.len(), 4);
    learn(&store, for_service(by_gid(6), 7), path(6, 6));
    assert_eq!(store.get(&for_service(by_gid(1), 7), at(0)), None);
    assert_eq!(store.get(&for_service(by_gid(1), 8), at(0)), None);
    assert_eq!(store.len(), 3);
}

#[test]
fn the_larger_of_table_and_other_answers_is_evicted() {
    let store = store(4);
    for id in 1..=4 {
        learn(&store, for_service(by_gid(id), 7), path(id, 1));
    }
    let counts = || {
        let plain = (1..=9).filter(|id| store.plain(Target::Gid(gid(*id))).is_some());
        let others = (1..=9).filter(|id| {
            let query = for_service(by_gid(*id), 7);
            store.get(&query, at(0)).is_some()
        });
        (plain.count(), others.count())
    };
    for (id, expected) in [(5, (1, 3)), (6, (2, 2)), (7, (2, 2))] {
        learn(&store, by_gid(id), path(id, 1));
        assert_eq!(counts(), expected);
    }
    learn(&store, for_service(by_gid(8), 7), path(8, 1));
    assert_eq!(counts(), (2, 2));
}

#[test]
fn one_destination_alone_keeps_to_the_capacity() {
    let store = store(3);
    learn(&store, by_gid(1), path(1, 1));
    for service in 1..=5 {
        let query = for_service(by_gid(1), service);
        store.learn(&query, &path(1, 1), store.epoch(), at(service));
    }
    assert_eq!(store.len(), 3);
    assert!(store.get(&by_gid(1), at(5)).is_some());
    assert_eq!(store.get(&for_service(by_gid(1), 3), at(5)), None);
    assert!(store.get(&for_service(by_gid(1), 4), at(5)).is_some());
}

#[test]
fn a_capacity_of_zero_keeps_nothing() {
    let store = store(0);
    for query in [by_gid(1), for_service(by_gid(1), 7)] {
        store.learn(&query, &path(1, 1), store.epoch(), at(0));
        assert_eq!(store.get(&query, at(0)), None);
    }
    assert!(store.is_empty());
}

#[test]
fn a_repeated_record_comes_before_another_match() {
    // Routing drew another SL for the LID than for the GID. In a repeated record, SL 0 is not a constraint.
    let store = store(10);
    let (by_its_gid, by_its_lid) = (*path(1, 5).set_sl(1), path(1, 5));
    learn(&store, by_gid(1), by_its_gid);
    learn(&store, by_lid(5), by_its_lid);
    for path in [by_its_gid, by_its_lid] {
        assert_eq!(store.get(&repeated(&path), at(0)), Some(path));
    }
}

/// A path that the table cannot hold is found too, by `get`.
#[test]
fn a_path_that_does_not_fit_the_table_replaces_one_that_does_and_back() {
    let far = Gid::new(0x1234, 1);
    let with = |set: fn(&mut PathRecord)| {
        let mut path = path(1, 5);
        set(&mut path);
        path
    };
    let other_paths = [
        with(|path| _ = path.set_hop_limit(1)),
        with(|path| _ = path.set_flow_label(1)),
        with(|path| _ = path.set_traffic_class(1)),
        with(|path| _ = path.set_service_id(1)),
        with(|path| _ = path.set_sgid(gid(7))),
    ];
    for other in other_paths {
        let store = store(10);
        for path in [path(1, 5), other, path(1, 5)] {
            learn(&store, by_gid(1), path);
            let fits = path == self::path(1, 5);
            let plain = store.plain(Target::Gid(gid(1)));
            assert_eq!(plain, fits.then_some(path));
            assert_eq!(store.len(), 1);
        }
    }
    let store = store(10);
    let query = PathQuery::to(Target::Gid(far)).complete(&source());
    let mut far_path = path(1, 5);
    far_path.set_dgid(far).set_hop_limit(255);
    learn(&store, query, far_path);
    assert_eq!(store.plain(Target::Gid(far)), None);
    // Another GID of that interface id is another destination.
    assert_eq!(store.get(&by_gid(1), at(0)), None);
    // Another router: the other answers for the GID are outdated.
    learn(&store, for_service(query, 7), far_path);
    learn(&store, query, *far_path.set_dlid(Lid(6)));
    assert_eq!(store.get(&for_service(query, 7), at(0)), None);
    assert_eq!(store.len(), 1);
}

#[test]
fn plain_and_get_agree() {
    let mut full = path(1, 5);
    full.set_pkey(PKey(0x7fff))
        .set_numb_path(1)
        .set_qos_class(0x123);
    full.set_sl(4).set_preference(3).set_reversible(false);
    full.set_slid(Lid(0xbf01)).set_mtu(Selector::Best, 63);
    let store = store(10);
    for query in [by_gid(1), by_lid(5)] {
        let target = query.target().unwrap();
        assert_eq!(store.plain(target), None);
        learn(&store, query, full);
        assert_eq!(store.plain(target), Some(full));
        store.reregister(at(1));
        assert_eq!(store.plain(target), None);
        store.learn(&query, &full, store.epoch(), at(2));
        assert_eq!(store.plain(target), Some(full));
    }
    store.clear();
    assert_eq!(store.plain(Target::Lid(Lid(5))), None);
}

#[test]
fn a_hit_is_never_after_the_ttl() {
    let ttl = Duration::from_secs(640);
    let limits = StoreLimits {
        capacity: 10,
        ttl: Some(ttl),
        stale_ttl: Duration::ZERO,
        negative_ttl: Duration::ZERO,
    };
    let store = PathStore::new(source(), limits);
    assert_eq!(store.next_tick(), None);
    let target = Target::Gid(gid(1));
    let is_hit = || store.plain(target).is_some();
    store.learn(&by_gid(1), &path(1, 5), store.epoch(), at(0));
    // Good until 640 s. A tick can be 10 s late.
    assert_eq!(store.next_tick(), Some(at(620_000)));
    store.tick(at(619_999));
    assert!(is_hit());
    assert_eq!(store.next_tick(), Some(at(629_999)));
    store.tick(at(620_000));
    assert!(!is_hit());
    assert_eq!(store.next_tick(), None);
    // `get`, which reads the clock, finds it to the end.
    assert!(store.get(&by_gid(1), at(639_999)).is_some());
    assert_eq!(store.get(&by_gid(1), at(640_000)), None);
    // The next tick is for the entry that expires first, but ticks are no more frequent than necessary.
    store.learn(&by_gid(2), &path(2, 5), store.epoch(), at(640_000));
    store.learn(&by_gid(1), &path(1, 5), store.epoch(), at(640_001));
    assert_eq!(store.next_tick(), Some(at(1_260_000)));
    store.tick(at(1_260_000));
    assert_eq!(store.plain(Target::Gid(gid(2))), None);
    assert!(is_hit());
    assert_eq!(store.next_tick(), Some(at(1_270_000)));
    store.clear();
    store.tick(at(1_270_000));
    assert_eq!(store.next_tick(), None);
}

#[test]
fn ticks_are_needed_for_a_ttl_only() {
    let with = |ttl| {
        let limits = StoreLimits {
            capacity: 1,
            ttl,
            stale_ttl: Duration::ZERO,
            negative_ttl: Duration::ZERO,
        };
        let store = PathStore::new(source(), limits);
        store.learn(&by_gid(1), &path(1, 5), store.epoch(), at(0));
        store.next_tick()
    };
    assert_eq!(with(None), None);
    // No hit.
    assert_eq!(with(Some(Duration::ZERO)), None);
    assert_eq!(with(Some(Duration::from_millis(100))), None);
    assert_eq!(with(Some(Duration::from_millis(101))), Some(at(1)));
    let day = with(Some(Duration::from_hours(24)));
    assert_eq!(day, Some(at(86_280_000)));
    assert!(with(Some(Duration::MAX)).is_some());
}

/// The table keeps 16 bits of an epoch.
#[test]
fn an_answer_does_not_become_fresh_again_when_epochs_repeat() {
    let store = store(10);
    store.learn(&by_gid(1), &path(1, 5), store.epoch(), at(0));
    for count in 1..=1_u32 << 16 {
        store.reregister(at(0));
        if count.is_multiple_of(1 << 15) {
            store.learn(&by_gid(2), &path(2, 6), store.epoch(), at(0));
        }
    }
    assert_eq!(store.get(&by_gid(1), at(0)), None);
    assert_eq!(store.plain(Target::Gid(gid(1))), None);
    assert!(store.plain(Target::Gid(gid(2))).is_some());
    assert_eq!(store.len(), 1);
}

fn preload(store: &PathStore, path: PathRecord) {
    let targets = [Target::Gid(path.dgid()), Target::Lid(path.dlid())];
    let paths = targets.map(|target| (target, path));
    store.preload(paths, at(0), store.preloads(), at(0));
}

#[test]
fn preloaded_paths_are_hits_and_nothing_else() {
    let store = store(2);
    for id in 1..=100 {
        preload(&store, path(id, id as u16));
    }
    for id in 1..=100 {
        let known = Some(path(id, id as u16));
        assert_eq!(store.plain(Target::Gid(gid(id))), known);
        assert_eq!(store.plain(Target::Lid(Lid(id as u16))), known);
        // A query that names more is answered from the dump.
        assert_eq!(store.get(&by_gid(id), at(0)), None);
        assert_eq!(store.get_stale(&by_gid(id), at(0)), None);
    }
    assert!(store.is_empty());
    // They last over a re-registration, but not longer than a TTL.
    store.reregister(at(10));
    assert!(store.plain(Target::Gid(gid(1))).is_some());
    store.tick(at(1_000));
    assert_eq!(store.plain(Target::Gid(gid(1))), None);
}

#[test]
fn preloaded_paths_and_the_sas_do_not_evict_each_other() {
    let store = store(2);
    for id in 101..=150 {
        preload(&store, path(id, id as u16));
    }
    for id in 1..=10 {
        learn(&store, by_gid(id), path(id, 1));
        assert_eq!(store.len(), id.min(2) as usize);
    }
    preload(&store, path(200, 200));
    assert!(store.get(&by_gid(10), at(0)).is_some());
    for id in (101..=150).chain([200]) {
        assert!(store.plain(Target::Gid(gid(id))).is_some());
    }
}

#[test]
fn the_sas_answer_counts_before_a_preloaded_path() {
    let (dumped, said) = (*path(1, 5).set_sl(1), *path(1, 5).set_sl(2));
    let target = Target::Gid(gid(1));
    let store = store(10);
    preload(&store, dumped);
    learn(&store, by_gid(1), said);
    assert_eq!(store.plain(target), Some(said));
    assert_eq!(store.len(), 1);
    preload(&store, dumped);
    assert_eq!(store.plain(target), Some(said));
    // Also for an answer that the table cannot hold.
    let with_hops = *path(1, 5).set_hop_limit(9);
    learn(&store, by_gid(1), with_hops);
    preload(&store, dumped);
    assert_eq!(store.plain(target), None);
    // An SA answer from before a re-registration does not.
    store.reregister(at(0));
    preload(&store, dumped);
    assert_eq!(store.plain(target), Some(dumped));
}

#[test]
fn invalid_preloaded_paths_are_dropped() {
    let store = store(10);
    let seen = store.preloads();
    preload(&store, path(1, 5));
    preload(&store, path(2, 6));
    learn(&store, by_gid(3), path(3, 7));
    store.forget_preloaded(|known, _| known == gid(1));
    assert_eq!(store.plain(Target::Gid(gid(1))), None);
    assert_eq!(store.plain(Target::Lid(Lid(5))), None);
    assert!(store.plain(Target::Lid(Lid(6))).is_some());
    store.forget_preloaded(|_, _| true);
    assert_eq!(store.plain(Target::Lid(Lid(6))), None);
    assert!(store.plain(Target::Gid(gid(3))).is_some());
    // Read before that: not stored.
    store.preload([(Target::Gid(gid(1)), path(1, 5))], at(0), seen, at(0));
    assert_eq!(store.plain(Target::Gid(gid(1))), None);
}

#[test]
fn without_memory_for_a_larger_table_answers_are_evicted() {
    MOST_SLOTS.set(64);
    let store = store(1_000);
    for id in 1..=200 {
        learn(&store, by_gid(id), path(id, 1));
    }
    assert_eq!(store.len(), 56);
    preload(&store, path(1_000, 7));
    assert!(store.plain(Target::Lid(Lid(7))).is_some());
    assert_eq!(store.len(), 54);
    MOST_SLOTS.set(0);
    let store = self::store(1_000);
    store.learn(&by_gid(1), &path(1, 1), store.epoch(), at(0));
    preload(&store, path(1, 1));
    assert!(store.is_empty() && store.plain(Target::Gid(gid(1))).is_none());
    MOST_SLOTS.set(usize::MAX);
}

/// Stores so many GIDs, all with the answer of the LID 7.
fn filled(store: &PathStore, ids: std::ops::Range<u64>) {
    for id in ids {
        store.learn(&by_gid(id), &path(id, 7), store.epoch(), at(0));
    }
}

fn found(walk: Walk) -> (usize, std::collections::HashSet<Gid>) {
    let kept = walk.into_kept();
    let gids = kept.iter().map(|kept| kept.path.dgid()).collect();
    (kept.len(), gids)
}

#[test]
fn fresh_answers_are_read_in_parts_and_again_if_the_table_grows() {
    let store = store(100_000);
    filled(&store, 0..20_000);
    let part = |walk: &mut Walk| store.writer.lock().fresh(walk, at(0));
    let mut walk = Walk::default();
    assert!(part(&mut walk), "it has more than one part");
    filled(&store, 20_000..40_000);
    while part(&mut walk) {}
    let (count, gids) = found(walk);
    assert_eq!((count, gids.len()), (40_000, 40_000));
    assert_eq!(store.fresh(at(0)).len(), 40_000);
}

#[test]
fn fresh_answers_are_of_one_epoch() {
    let store = store(100_000);
    filled(&store, 0..20_000);
    let part = |walk: &mut Walk| store.writer.lock().fresh(walk, at(0));
    let mut walk = Walk::default();
    assert!(part(&mut walk));
    store.reregister(at(0));
    while part(&mut walk) {}
    assert_eq!(found(walk).0, 0);
    let mut walk = Walk::default();
    filled(&store, 0..20_000);
    assert!(part(&mut walk));
    store.clear();
    while part(&mut walk) {}
    assert_eq!(found(walk).0, 0);
}

#[test]
fn answers_outside_the_table_are_found_at_once() {
    let store = store(10);
    let (missing, far, other) = (by_gid(1), by_gid(2), by_gid(3));
    let mut with_grh = path(2, 5);
    with_grh.set_flow_label(0xabcde);
    assert_eq!(store.look_up(&missing, at(0)), Known::Nothing);
    for (start, far_is_first) in [(0, false), (300, true)] {
        for is_far in [far_is_first, !far_is_first] {
            if is_far {
                store.learn(&far, &with_grh, store.epoch(), at(start));
                assert_eq!(store.look_up(&far, at(start)), Known::Fresh(with_grh));
            } else {
                store.learn_missing(&missing, store.epoch(), at(start));
                assert_eq!(store.look_up(&missing, at(start)), Known::Missing);
            }
        }
        for _ in 0..2 {
            assert_eq!(store.look_up(&other, at(start)), Known::Nothing);
            assert_eq!(store.look_up(&far, at(start)), Known::Fresh(with_grh));
            assert_eq!(store.look_up(&missing, at(start)), Known::Missing);
        }
        // Expired or dropped: no answer is outside the table.
        store.forget_unless(gid(2), |_| false);
        assert_eq!(store.look_up(&missing, at(start + 200)), Known::Nothing);
        assert_eq!(store.look_up(&far, at(start + 200)), Known::Nothing);
    }
    assert!(!store.readers.has_others.load(Ordering::Relaxed));
}
