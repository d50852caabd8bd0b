//! What the path store costs: bytes a destination and a service id, and no allocation on a hit.

use acm_prov_api::address::{Gid, Lid, PKey};
use acm_prov_api::cache::store::{PathStore, StoreLimits};
use acm_prov_api::clock::Moment;
use acm_prov_api::path::PathRecord;
use acm_prov_api::sa::{PathQuery, Source, Target};
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

fn by_gid(id: u64) -> PathQuery {
    PathQuery::to(Target::Gid(Gid::new(0xfe80 << 48, id))).complete(&source())
}

fn path_to(id: u64) -> PathRecord {
    let mut path = PathRecord::default();
    path.set_dgid(Gid::new(0xfe80 << 48, id));
    path.set_dlid(Lid((id % 0xbffe + 1) as u16));
    path.set_sgid(source().gid).set_pkey(source().pkey);
    path
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
        let epoch = store.epoch();
        store.learn(&by_gid(id), &path_to(id), epoch, Moment::default());
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

/// rdma_cm names a service id, its port, with each connection.
#[test]
fn bytes_of_a_service_id() {
    for (destinations, ids) in [(64, 128), (1, 1_024), (1, 4_096), (64, 130), (1_000, 64)] {
        let mut store = fill(destinations, 65_536);
        let before = Allocations::bytes();
        // As they come when all hosts start at the same time.
        for service in 1..=ids {
            for id in 1..=destinations {
                let mut query = by_gid(id);
                query.set_service_id(0x0106_0000 + service);
                let epoch = store.epoch();
                store.learn(&query, &path_to(id), epoch, Moment::default());
            }
        }
        let bytes = Allocations::bytes().wrapping_sub(before);
        let pairs = (destinations * ids) as usize;
        assert_eq!(store.len(), destinations as usize + pairs);
        println!(
            "{destinations} destinations, {ids} service ids: {} bytes each",
            bytes as f64 / pairs as f64
        );
        assert!(bytes <= 32 * pairs, "{bytes} bytes for {pairs} pairs");
    }
}

#[test]
fn a_hit_allocates_nothing() {
    let mut store = fill(1_000, 65_536);
    let mut exactly = by_gid(1);
    exactly.set_dlid(path_to(1).dlid()).set_sl(0);
    let mut service = by_gid(1);
    service.set_service_id(7);
    let epoch = store.epoch();
    store.learn(&service, &path_to(1), epoch, Moment::default());
    let queries: Vec<PathQuery> = (1..=1_000).map(by_gid).chain([exactly, service]).collect();
    let before = Allocations::calls();
    let mut hits = 0;
    for query in &queries {
        hits += usize::from(store.get(query, Moment::default()).is_some());
    }
    assert_eq!(Allocations::calls(), before);
    assert_eq!(hits, queries.len());
}
