//! What the path store costs: bytes a destination, and no allocation on a hit.

use acm_prov_api::address::{Gid, Lid, PKey};
use acm_prov_api::cache::question::{Question, Source, Target};
use acm_prov_api::cache::store::{PathStore, StoreLimits};
use acm_prov_api::clock::Moment;
use acm_prov_api::path::PathRecord;
use acm_prov_api::testing::Allocations;

#[global_allocator]
static ALLOCATOR: Allocations = Allocations;

fn source() -> Source {
    Source {
        gid: Gid::new(0xfe80 << 48, 0xffff_ffff),
        lid: Lid(0xbfff),
        pkey: PKey(0xffff),
    }
}

fn fill(destinations: u64, capacity: usize) -> PathStore {
    let limits = StoreLimits {
        capacity,
        ttl: None,
        stale_ttl: 0,
        negative_ttl: 0,
    };
    let mut store = PathStore::new(source(), limits);
    for id in 1..=destinations {
        let gid = Gid::new(0xfe80 << 48, id);
        let mut path = PathRecord::default();
        path.set_dgid(gid).set_dlid(Lid((id % 0xbffe + 1) as u16));
        path.set_sgid(source().gid).set_pkey(source().pkey);
        let question = Question::plain(Target::Gid(gid));
        store.learn(&question, &path, store.epoch(), Moment::default());
    }
    assert_eq!(store.len(), capacity.min(destinations as usize));
    store
}

#[test]
fn bytes_of_a_destination() {
    for (destinations, capacity) in [(49_000, 65_536), (65_536, 65_536), (200_000, 65_536)] {
        let before = Allocations::bytes();
        let store = fill(destinations, capacity);
        let bytes = Allocations::bytes().wrapping_sub(before);
        let kept = store.len();
        drop(store);
        assert_eq!(Allocations::bytes(), before, "all is given back");
        let each = bytes / kept;
        println!("{kept} of {destinations} destinations kept: {each} bytes each");
        assert!(each <= 160, "{each} bytes a destination");
    }
}

#[test]
fn an_empty_store_takes_next_to_nothing() {
    let before = Allocations::bytes();
    let store = fill(0, 65_536);
    let bytes = Allocations::bytes().wrapping_sub(before);
    assert!(bytes <= 1_024, "{bytes} bytes for an empty store");
    drop(store);
}

#[test]
fn a_hit_allocates_nothing() {
    let mut store = fill(1_000, 65_536);
    let before = Allocations::calls();
    let mut hits = 0;
    for id in 1..=1_000 {
        let by_gid = Question::plain(Target::Gid(Gid::new(0xfe80 << 48, id)));
        let by_lid = Question::plain(Target::Lid(Lid(id as u16 + 1)));
        hits += usize::from(store.get(&by_gid, Moment::default()).is_some());
        hits += usize::from(store.get(&by_lid, Moment::default()).is_some());
    }
    assert_eq!(Allocations::calls(), before);
    assert_eq!(hits, 2_000);
}
