//! Hits on some threads while another inserts, evicts, drops, flushes and lets the table grow.

use std::time::{Duration, Instant};

use acm_prov_api::address::{Gid, Lid, PKey};
use acm_prov_api::cache::store::{PathStore, StoreLimits};
use acm_prov_api::clock::Moment;
use acm_prov_api::path::{PathRecord, Selector};
use acm_prov_api::sa::{PathQuery, Source, Target};
use acm_prov_api::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const SOURCE: Source = Source {
    gid: Gid::new(0xfe80 << 48, u64::MAX),
    lid: Lid(1),
    pkey: PKey(0xffff),
};

/// Few enough that reads and writes of a slot overlap.
const DESTINATIONS: u64 = if cfg!(miri) { 8 } else { 200 };
const ROUNDS: u64 = if cfg!(miri) { 30 } else { 200_000 };
/// How long to wait for readers that have not run when all is written.
const PATIENCE: Duration = Duration::from_secs(300);
const READERS: usize = if cfg!(miri) { 1 } else { 2 };

fn targets(id: u64) -> [Target; 2] {
    [
        Target::Gid(Gid::new(0xfe80 << 48, id)),
        Target::Lid(Lid(id as u16)),
    ]
}

/// A path that identifies itself in each part: the destination in its GID and LID, the version in all other words.
fn path(id: u64, version: u64) -> PathRecord {
    let mut path = PathRecord::default();
    path.set_sgid(SOURCE.gid)
        .set_dgid(Gid::new(0xfe80 << 48, id))
        .set_dlid(Lid(id as u16));
    let low = version as u16;
    path.set_slid(Lid(low)).set_pkey(PKey(low));
    path.set_mtu(Selector::Exactly, low as u8 & 0x3f)
        .set_preference(low as u8);
    path
}

/// Returns the version of a path; fails if its parts do not belong together.
fn version(id: u64, read: &PathRecord) -> u64 {
    let version = u64::from(read.slid().0);
    assert_eq!(*read, path(id, version), "read while it was written");
    version
}

fn store(capacity: usize) -> PathStore {
    let limits = StoreLimits {
        capacity,
        ttl: None,
        stale_ttl: Duration::ZERO,
        negative_ttl: Duration::ZERO,
    };
    PathStore::new(SOURCE, limits)
}

fn learn(store: &PathStore, target: Target, id: u64, version: u64) {
    let query = PathQuery::to(target).complete(&SOURCE);
    let path = path(id, version);
    store.learn(&query, &path, store.epoch(), Moment::default());
}

#[test]
fn hits_are_consistent_during_writes() {
    let store = store(DESTINATIONS as usize);
    let hits = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    for id in 1..=DESTINATIONS {
                        for target in targets(id) {
                            if let Some(path) = store.plain(target) {
                                version(id, &path);
                                hits.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    }
                }
            });
        }
        let mut round = 0;
        let mut deadline = None;
        // Every reader has read some, even on a busy machine.
        while round < ROUNDS || hits.load(Ordering::Relaxed) < DESTINATIONS {
            if round >= ROUNDS {
                let deadline = deadline.get_or_insert_with(|| Instant::now() + PATIENCE);
                assert!(Instant::now() < *deadline, "no reader runs");
            }
            round += 1;
            let id = round % DESTINATIONS + 1;
            let [gid, lid] = targets(id);
            let target = if round % 3 == 0 { lid } else { gid };
            learn(&store, target, id, round);
            if round % 97 == 0 {
                store.forget_unless(Gid::new(0xfe80 << 48, id), |_| false);
            }
            if round % 1_009 == 0 {
                store.reregister(Moment::default());
            }
            if round % 5_003 == 0 {
                drop(store.clear());
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

/// A stored path stays a hit while the table grows, until the flush.
#[test]
fn paths_stay_hits_while_the_table_grows() {
    let most: u64 = if cfg!(miri) { 40 } else { 100_000 };
    let store = store(usize::MAX);
    learn(&store, targets(1)[0], 1, 1);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut last = 0;
            let mut known = 0_u64;
            // One more round, so that each reader looks once more at the end.
            loop {
                let ends = is_over.load(Ordering::Acquire);
                let path = store.plain(targets(1)[0]).expect("it is there");
                let version = version(1, &path);
                assert!(version >= last, "{version} after {last}");
                last = version;
                known += 1;
                if ends {
                    return (last, known);
                }
            }
        });
        for id in 2..=most {
            let gid = Target::Gid(Gid::new(0xfe80 << 48, id << 20));
            let mut path = path(id, 1);
            path.set_dgid(Gid::new(0xfe80 << 48, id << 20));
            let query = PathQuery::to(gid).complete(&SOURCE);
            store.learn(&query, &path, store.epoch(), Moment::default());
        }
        is_over.store(true, Ordering::Release);
        let (last, known) = reader.join().unwrap();
        assert_eq!(last, 1);
        assert!(known > 0);
    });
    assert_eq!(store.len(), most as usize);
    drop(store.clear());
    assert_eq!(store.plain(targets(1)[0]), None);
}
