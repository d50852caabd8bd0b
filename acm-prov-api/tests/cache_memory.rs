//! The memory of the path store: bytes per destination and per service id, and no allocation on a hit.

use std::time::Duration;

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

fn by_lid(id: u64) -> PathQuery {
    PathQuery::to(Target::Lid(lid(id))).complete(&source())
}

fn lid(id: u64) -> Lid {
    Lid((id % 0xbfff + 1) as u16)
}

fn path_to(id: u64) -> PathRecord {
    let mut path = PathRecord::default();
    path.set_dgid(Gid::new(0xfe80 << 48, id));
    path.set_dlid(lid(id));
    path.set_sgid(source().gid).set_pkey(source().pkey);
    path
}

fn fill(destinations: u64, capacity: usize, query: fn(u64) -> PathQuery) -> PathStore {
    let limits = StoreLimits {
        capacity,
        ttl: None,
        stale_ttl: Duration::ZERO,
        negative_ttl: Duration::ZERO,
    };
    let store = PathStore::new(source(), limits);
    for id in 1..=destinations {
        let epoch = store.epoch();
        store.learn(&query(id), &path_to(id), epoch, Moment::default());
    }
    assert_eq!(store.len(), capacity.min(destinations as usize));
    store
}

/// A table doubles after 57,344 entries, after half of that, and so on. Smaller tables keep their address ranges, which count
/// here.
fn check_bytes(destinations: u64, capacity: usize, query: fn(u64) -> PathQuery) {
    let before = Allocations::bytes();
    let store = fill(destinations, capacity, query);
    let allocated = Allocations::bytes().wrapping_sub(before);
    let (bytes, kept) = (allocated + store.mapped_bytes(), store.len());
    assert!(store.mapped_bytes() == 0 || store.mapped_bytes() >= 64 << 10);
    drop(store);
    assert_eq!(Allocations::bytes(), before, "all is freed");
    println!(
        "{kept} of {destinations} destinations kept: {bytes} bytes, {} each",
        bytes / kept
    );
    let limit = (64 << 10) + 160 * kept;
    assert!(bytes <= limit, "{bytes} bytes, more than {limit}");
}

#[test]
fn bytes_of_a_destination() {
    for destinations in [1, 12, 13, 1_000, 24_577, 28_673, 49_000, 49_153, 57_345] {
        check_bytes(destinations, 65_536, by_gid);
    }
    for destinations in [1, 1_000, 24_577, 28_673, 49_000, 49_150] {
        check_bytes(destinations, 65_536, by_lid);
    }
    check_bytes(200_000, 65_536, by_gid);
}

#[test]
fn bytes_of_a_destination_of_a_million() {
    check_bytes(1_000_000, 1 << 20, by_gid);
}

#[test]
fn an_empty_store_takes_next_to_nothing() {
    let before = Allocations::bytes();
    let store = fill(0, 65_536, by_gid);
    let bytes = Allocations::bytes().wrapping_sub(before);
    assert!(bytes <= 4_096, "{bytes} bytes for an empty store");
    drop(store);
}

/// rdma_cm names a service id, its port, with each connection.
#[test]
fn bytes_of_a_service_id() {
    for (destinations, ids) in [(64, 128), (1, 1_024), (1, 4_096), (64, 130), (1_000, 64)] {
        let store = fill(destinations, 65_536, by_gid);
        let before = Allocations::bytes();
        // In the order of a job start on all hosts.
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
    let store = fill(1_000, 65_536, by_gid);
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
    for id in 1..=1_000 {
        let target = by_gid(id).target().unwrap();
        hits += usize::from(store.plain(target).is_some());
    }
    assert_eq!(Allocations::calls(), before);
    assert_eq!(hits, queries.len() + 1_000);
}
