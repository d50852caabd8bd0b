//! The store's hit ratio, compared with an exact LRU of the same capacity.

use std::time::Duration;

use acm_prov_api::address::{Gid, Lid, PKey};
use acm_prov_api::cache::store::{PathStore, StoreLimits};
use acm_prov_api::clock::Moment;
use acm_prov_api::path::PathRecord;
use acm_prov_api::sa::{PathQuery, Source, Target};
use lru::LruCache;

/// A pseudo-random generator (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// From 0 to 1.
    fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Draws 1, 2, 3 … with the probabilities of Zipf's law.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(keys: usize, exponent: f64) -> Self {
        let mut sum = 0.0;
        let sums = (1..=keys).map(|rank| {
            sum += (rank as f64).powf(-exponent);
            sum
        });
        Self(sums.collect())
    }

    fn draw(&self, random: &mut Random) -> u64 {
        let at = random.fraction() * self.0.last().unwrap();
        self.0.partition_point(|sum| *sum < at) as u64 + 1
    }
}

struct Store(PathStore);

impl Store {
    const SOURCE: Source = Source {
        gid: Gid::new(0xfe80 << 48, u64::MAX),
        lid: Lid(1),
        pkey: PKey(0xffff),
    };

    fn new(capacity: usize) -> Self {
        let limits = StoreLimits {
            capacity,
            ttl: None,
            stale_ttl: Duration::ZERO,
            negative_ttl: Duration::ZERO,
        };
        Self(PathStore::new(Self::SOURCE, limits))
    }

    /// Whether it is a hit; after a miss the key is stored.
    fn ask(&self, id: u64) -> bool {
        let gid = Gid::new(0xfe80 << 48, id);
        let target = Target::Gid(gid);
        if self.0.plain(target).is_some() {
            return true;
        }
        let mut path = PathRecord::default();
        path.set_sgid(Self::SOURCE.gid)
            .set_dgid(gid)
            .set_dlid(Lid(2));
        let query = PathQuery::to(target).complete(&Self::SOURCE);
        self.0
            .learn(&query, &path, self.0.epoch(), Moment::default());
        false
    }
}

fn ask_lru(cache: &mut LruCache<u64, ()>, capacity: usize, id: u64) -> bool {
    if cache.get(&id).is_some() {
        return true;
    }
    cache.put(id, ());
    if cache.len() > capacity {
        cache.pop_lru();
    }
    false
}

/// Ten keys per place of capacity, and periodically one scan of a whole fabric: four times the capacity.
fn compare(capacity: usize, requests: usize, between_scans: usize) {
    let zipf = Zipf::new(10 * capacity, 0.99);
    let mut random = Random(1);
    let store = Store::new(capacity);
    let mut exact = LruCache::unbounded();
    let (mut hits, mut exact_hits) = (0_usize, 0_usize);
    let mut scanned = u64::MAX / 2;
    for request in 1..=requests {
        // Neighbours in rank are not neighbours in the table.
        let id = Random(zipf.draw(&mut random)).next() >> 1;
        hits += usize::from(store.ask(id));
        exact_hits += usize::from(ask_lru(&mut exact, capacity, id));
        if request.is_multiple_of(between_scans) {
            for _ in 0..4 * capacity {
                scanned += 1;
                store.ask(scanned);
                ask_lru(&mut exact, capacity, scanned);
            }
        }
    }
    assert_eq!(store.0.len(), capacity);
    let percent = |hits: usize| 100.0 * hits as f64 / requests as f64;
    let (ratio, exact) = (percent(hits), percent(exact_hits));
    println!("capacity {capacity}: {ratio:.2} % hits, an exact LRU has {exact:.2} %");
    assert!(ratio >= exact - 1.0, "{ratio:.2} %, not {exact:.2} %");
}

#[test]
fn the_hit_ratio_is_that_of_an_exact_lru() {
    compare(1_000, 500_000, 50_000);
}

/// The documented ratio. Takes half a minute without optimization.
#[test]
fn the_hit_ratio_is_that_of_an_exact_lru_at_the_default_capacity() {
    compare(65_536, 10_000_000, 1_000_000);
}
