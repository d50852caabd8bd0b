//! Single parts of a cached resolve and of a start.

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::Duration;

use acm_prov_api::address::{Gid, Lid, PKey};
use acm_prov_api::cache::store::{PathStore, StoreLimits};
use acm_prov_api::clock::Moment;
use acm_prov_api::dump::Routes;
use acm_prov_api::path::PathRecord;
use acm_prov_api::sa::{PathQuery, Source, Target};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};

/// Number of paths in the store, and of hosts in the dump.
const SIZE: u16 = 1600;

fn source() -> Source {
    Source {
        gid: gid(0xffff),
        lid: Lid(0xbf00),
        pkey: PKey(0xffff),
    }
}

fn gid(number: u64) -> Gid {
    Gid::new(0xfe80 << 48, number)
}

fn path(lid: u16) -> PathRecord {
    let mut path = PathRecord::default();
    path.set_sgid(source().gid);
    path.set_dgid(gid(lid.into()));
    path.set_dlid(Lid(lid));
    path.set_pkey(source().pkey);
    path
}

fn query(lid: u16) -> PathQuery {
    PathQuery::to(Target::Lid(Lid(lid))).complete(&source())
}

fn store() -> PathStore {
    let limits = StoreLimits {
        capacity: SIZE.into(),
        ttl: None,
        stale_ttl: Duration::ZERO,
        negative_ttl: Duration::ZERO,
    };
    PathStore::new(source(), limits)
}

fn find_and_insert(criterion: &mut Criterion) {
    let now = Moment::now();
    let full = store();
    for lid in 1..=SIZE {
        full.learn(&query(lid), &path(lid), full.epoch(), now);
    }
    let mut lid = 0;
    criterion.bench_function("find a path", |bencher| {
        bencher.iter(|| {
            lid = (lid + 7) % SIZE;
            full.plain(Target::Lid(Lid(lid + 1)))
        });
    });
    criterion.bench_function("insert 1,600 paths", |bencher| {
        bencher.iter_batched(
            store,
            |store| {
                for lid in 1..=SIZE {
                    store.learn(&query(lid), &path(lid), store.epoch(), now);
                }
                store
            },
            BatchSize::SmallInput,
        );
    });
    criterion.bench_function("complete a client's query", |bencher| {
        let record = path(7);
        bencher.iter(|| PathQuery::from_client(black_box(&record)).complete(&source()));
    });
}

fn dump_reader(criterion: &mut Criterion) {
    let mut lines = String::new();
    for lid in 1..=SIZE {
        let _ = writeln!(lines, "0x{lid:04x} : 0  : 4   : 3   ");
    }
    let mut dump = String::new();
    for port in 1..=64_u64 {
        let _ = writeln!(
            dump,
            "Channel Adapter 0x{port:016x}, base LID {port}, \"node{port}\", port 1\n# LID  : SL : MTU : RATE\n{lines}"
        );
    }
    let mut group = criterion.benchmark_group("read a dump");
    group
        .throughput(Throughput::Bytes(dump.len() as u64))
        .sample_size(20);
    group.bench_function("64 ports of 1,600", |bencher| {
        bencher.iter(|| Routes::parse("dump", dump.as_bytes(), 1, Lid(1)));
    });
    group.finish();
}

criterion_group!(pieces, find_and_insert, dump_reader);
criterion_main!(pieces);
