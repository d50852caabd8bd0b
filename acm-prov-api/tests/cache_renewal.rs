//! The path store while paths are renewed, and with answers from another store.

use std::time::Duration;

use acm_prov_api::address::{Gid, Lid, PKey};
use acm_prov_api::cache::store::{Kept, PathStore, Renewing, StoreLimits};
use acm_prov_api::clock::Moment;
use acm_prov_api::path::PathRecord;
use acm_prov_api::sa::{PathQuery, Source, Target};

const TTL: u64 = 800_000;
const STALE_TTL: u64 = 100_000;

fn at(millis: u64) -> Moment {
    Moment::from_millis(millis)
}

fn gid(id: u64) -> Gid {
    Gid::new(0xfe80 << 48, id)
}

fn source() -> Source {
    Source {
        gid: gid(0xffff),
        lid: Lid(0xbfff),
        pkey: PKey(0xffff),
    }
}

fn by_lid(lid: u16) -> PathQuery {
    PathQuery::to(Target::Lid(Lid(lid))).complete(&source())
}

fn by_gid(id: u64) -> PathQuery {
    PathQuery::to(Target::Gid(gid(id))).complete(&source())
}

fn for_service(lid: u16) -> PathQuery {
    *by_lid(lid).set_service_id(7)
}

fn path(id: u64, lid: u16) -> PathRecord {
    let mut path = PathRecord::default();
    path.set_dgid(gid(id))
        .set_dlid(Lid(lid))
        .set_sgid(source().gid)
        .set_slid(source().lid)
        .set_pkey(source().pkey);
    path
}

fn store(renewing: Renewing) -> PathStore {
    let limits = StoreLimits {
        capacity: 10,
        ttl: Some(Duration::from_millis(TTL)),
        stale_ttl: Duration::from_millis(STALE_TTL),
        negative_ttl: Duration::ZERO,
    };
    let store = PathStore::new(source(), limits);
    store.set_renewing(renewing);
    store
}

fn learn(store: &PathStore, query: &PathQuery, now: u64) -> Option<(Gid, Lid)> {
    let lid = query.values().dlid().0;
    let path = path(u64::from(lid) + 0x1000, lid);
    store.learn(query, &path, store.epoch(), at(now))
}

fn kept(lid: u16, age: u64) -> Kept {
    Kept {
        target: Target::Lid(Lid(lid)),
        path: path(u64::from(lid) + 0x1000, lid),
        age: Duration::from_millis(age),
    }
}

#[test]
fn only_paths_used_lately_are_given_and_due() {
    let store = store(Renewing::Used);
    let queries = [by_lid(1), by_lid(2), by_lid(3), for_service(4)];
    for query in &queries {
        learn(&store, query, 0);
    }
    assert_eq!(store.due(at(0), 9), [], "all is fresh");
    store.end_use_period();
    store.end_use_period();
    for query in &queries[..3] {
        assert!(store.get(query, at(1)).is_some());
    }
    store.end_use_period();
    assert!(store.get(&queries[1], at(1)).is_some());
    store.reregister(at(2));
    for (query, is_given) in queries.iter().zip([true, true, true, false]) {
        assert_eq!(store.get(query, at(3)), None);
        let given = store.get_while_renewed(query, at(3));
        assert_eq!(given.is_some(), is_given, "{query:?}");
        assert_eq!(store.is_due(query, at(3)), is_given || *query == queries[3]);
    }
    let due = store.due(at(3), 9);
    assert_eq!(due.len(), 3);
    for query in &queries[..3] {
        assert!(due.contains(query));
    }
    assert_eq!(store.due(at(3), 2).len(), 2);
    // Only within the stale TTL.
    assert!(
        store
            .get_while_renewed(&queries[0], at(2 + STALE_TTL - 1))
            .is_some()
    );
    assert_eq!(
        store.get_while_renewed(&queries[0], at(2 + STALE_TTL)),
        None
    );
    assert_eq!(store.due(at(2 + STALE_TTL), 9), []);
}

#[test]
fn answers_with_constraints_are_due_with_their_queries() {
    let store = store(Renewing::Used);
    learn(&store, &for_service(4), 0);
    learn(&store, &by_lid(4), 0);
    store.reregister(at(1));
    let due = store.due(at(2), 9);
    assert_eq!(due, [by_lid(4), for_service(4)]);
    assert!(store.get_while_renewed(&for_service(4), at(2)).is_some());
    learn(&store, &for_service(4), 2);
    assert_eq!(store.due(at(2), 9), [by_lid(4)]);
}

/// Otherwise a path used once would be renewed forever.
#[test]
fn a_renewal_does_not_count_as_use() {
    let store = store(Renewing::Used);
    learn(&store, &by_lid(1), 0);
    for _ in 0..2 {
        store.reregister(at(1));
        assert_eq!(store.due(at(1), 9), [by_lid(1)]);
        learn(&store, &by_lid(1), 1);
        store.end_use_period();
    }
    store.end_use_period();
    store.reregister(at(1));
    assert_eq!(store.due(at(1), 9), []);
    // A client asks again.
    assert_eq!(store.get_while_renewed(&by_lid(1), at(1)), None);
    learn(&store, &by_lid(1), 1);
    store.reregister(at(1));
    assert_eq!(store.due(at(1), 9), [by_lid(1)]);
}

#[test]
fn paths_in_use_are_due_before_they_expire() {
    let store = store(Renewing::Used);
    learn(&store, &by_lid(1), 0);
    let soon = TTL - TTL / 8;
    assert_eq!(store.due(at(soon - 1), 9), []);
    assert_eq!(store.due(at(soon), 9), [by_lid(1)]);
    assert!(store.get(&by_lid(1), at(soon)).is_some());
    assert_eq!(store.due(at(TTL), 9), []);
}

#[test]
fn without_renewal_nothing_is_due_or_given() {
    let store = store(Renewing::Nothing);
    learn(&store, &by_lid(1), 0);
    store.reregister(at(1));
    assert_eq!(store.due(at(1), 9), []);
    assert!(!store.is_due(&by_lid(1), at(1)));
    assert_eq!(store.get_while_renewed(&by_lid(1), at(1)), None);
    assert!(store.get_stale(&by_lid(1), at(1)).is_some());
}

#[test]
fn a_path_that_the_sa_no_longer_has_is_not_given() {
    let store = store(Renewing::Used);
    for query in [by_lid(1), for_service(1)] {
        learn(&store, &query, 0);
    }
    store.reregister(at(1));
    store.learn_missing(&for_service(1), store.epoch(), at(1));
    assert_eq!(store.due(at(1), 9), [by_lid(1)]);
    store.learn_missing(&by_lid(1), store.epoch(), at(1));
    assert_eq!(store.get_while_renewed(&by_lid(1), at(1)), None);
    assert!(store.is_empty());
}

#[test]
fn loaded_paths_are_given_and_due_once_used() {
    for renewing in [Renewing::Loaded, Renewing::Used] {
        let store = store(renewing);
        learn(&store, &by_lid(3), 0);
        assert_eq!(store.load([kept(1, 5), kept(2, 0), kept(3, 0)], at(10)), 2);
        assert_eq!(store.load([kept(4, 0)], at(10)), 0, "once");
        assert_eq!(store.len(), 3);
        assert_eq!(store.due(at(10), 9), []);
        assert_eq!(store.get(&by_lid(1), at(10)), None, "it is stale");
        assert_eq!(
            store.get_while_renewed(&by_lid(1), at(10)),
            Some(kept(1, 0).path)
        );
        assert_eq!(store.due(at(10), 9), [by_lid(1)]);
        assert_eq!(learn(&store, &by_lid(1), 11), None);
        assert_eq!(store.due(at(11), 9), []);
        let end = 10 + STALE_TTL;
        assert!(store.get_while_renewed(&by_lid(2), at(end - 1)).is_some());
        assert_eq!(store.get_while_renewed(&by_lid(2), at(end)), None);
    }
}

#[test]
fn loaded_paths_replace_no_other() {
    let store = store(Renewing::Loaded);
    for lid in 1..=7 {
        learn(&store, &by_lid(lid), 0);
    }
    let many = (100..200).map(|lid| kept(lid, 0));
    assert_eq!(store.load(many, at(0)), 3, "the capacity is 10");
    for lid in 1..=7 {
        assert!(store.get(&by_lid(lid), at(0)).is_some(), "{lid}");
    }
}

#[test]
fn loaded_paths_keep_their_age() {
    let store = store(Renewing::Loaded);
    let now = TTL;
    assert_eq!(store.load([kept(1, TTL), kept(2, TTL - 10)], at(now)), 1);
    assert!(store.get_while_renewed(&by_lid(2), at(now + 9)).is_some());
    assert_eq!(store.get_while_renewed(&by_lid(2), at(now + 10)), None);
}

#[test]
fn a_loaded_path_that_is_wrong_is_noticed_and_all_can_be_dropped() {
    let store = store(Renewing::Loaded);
    store.load([kept(1, 0), kept(2, 0), kept(3, 0)], at(0));
    assert_eq!(learn(&store, &by_lid(1), 0), None);
    let another = path(0x2000, 2);
    let was_wrong = store.learn(&by_lid(2), &another, store.epoch(), at(0));
    assert_eq!(was_wrong, Some((gid(0x1002), Lid(2))));
    assert!(store.drop_loaded());
    assert!(!store.drop_loaded());
    assert_eq!(store.get_while_renewed(&by_lid(3), at(0)), None);
    assert!(store.get(&by_lid(1), at(0)).is_some());
    assert_eq!(store.get(&by_lid(2), at(0)), Some(another));
}

#[test]
fn nothing_is_loaded_after_a_flush() {
    let store = store(Renewing::Loaded);
    store.clear();
    assert_eq!(store.load([kept(1, 0)], at(0)), 0);
}

#[test]
fn fresh_plain_answers_can_be_loaded_into_another_store() {
    let store = store(Renewing::Nothing);
    let before = store.changes();
    let to_gid = path(5, 5);
    for lid in [1, 2] {
        learn(&store, &by_lid(lid), 0);
    }
    store.learn(&by_gid(5), &to_gid, store.epoch(), at(1_000));
    learn(&store, &for_service(3), 0);
    assert!(store.get(&by_lid(1), at(1)).is_some());
    assert_ne!(store.changes(), before);
    let before = store.changes();
    let fresh: Vec<Kept> = store.fresh(at(3_000));
    let gid = Kept {
        target: Target::Gid(gid(5)),
        path: to_gid,
        age: Duration::from_secs(2),
    };
    // In no order: the place of a GID in the table is random.
    let all = [kept(2, 3_000), gid, kept(1, 3_000)];
    assert!(all.iter().all(|kept| fresh.contains(kept)), "{fresh:?}");
    assert_eq!(fresh.len(), all.len());
    assert_eq!(store.changes(), before);
    store.reregister(at(4_000));
    assert_eq!(store.fresh(at(4_000)).len(), 0);
    assert_ne!(store.changes(), before);
}
