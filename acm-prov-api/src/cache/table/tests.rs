use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::address::{Gid, Lid, PKey};
use crate::path::PathRecord;
use crate::sa::{Source, Target};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};

fn source() -> Source {
    Source {
        gid: gid(0xffff),
        lid: Lid(1),
        pkey: PKey(0xffff),
    }
}

fn gid(id: u64) -> Gid {
    Gid::new(0xfe80 << 48, id)
}

fn key(target: Target) -> TableKey {
    TableKey::new(target, &source()).unwrap()
}

fn to_gid(id: u64) -> TableKey {
    key(Target::Gid(gid(id)))
}

fn to_lid(lid: u16) -> TableKey {
    key(Target::Lid(Lid(lid)))
}

/// Returns an entry of a key; the number makes it unique.
fn entry(key: TableKey, number: u64) -> Entry {
    let mut path = PathRecord::default();
    path.set_sgid(source().gid)
        .set_dgid(gid(1))
        .set_dlid(Lid(1));
    match key {
        TableKey::Lid(lid) => _ = path.set_dlid(lid),
        TableKey::Guid(guid) => _ = path.set_dgid(gid(u64::from_be(guid))),
    }
    Entry::new(key, &path, &source(), number, number as u16).unwrap()
}

fn value(table: &Table, key: TableKey) -> Option<u64> {
    table.find(key).map(|(_, entry)| entry.learned())
}

/// A copy with twice the slots.
fn grown(table: &Table) -> Table {
    let grown = table.larger().unwrap();
    for entry in table.entries() {
        grown.put(entry.key(), entry);
    }
    grown
}

/// A table with room for that many.
fn table(room: usize) -> Table {
    let mut table = Table::new();
    while table.room() < room {
        table = grown(&table);
    }
    table
}

#[test]
fn a_table_without_slots_holds_nothing() {
    let table = Table::new();
    assert_eq!(table.room(), 0);
    assert_eq!(value(&table, to_lid(1)), None);
    assert_eq!(value(&table, to_gid(1)), None);
    assert_eq!(table.put(to_lid(1), entry(to_lid(1), 1)), None);
    assert_eq!(value(&table, to_lid(1)), None);
    assert_eq!(table.remove(to_lid(1)), None);
    assert_eq!(table.evict(&mut 0, 10, |_| true), None);
}

/// The loom model tests all orders; this test runs on the real processor.
#[test]
fn slots_are_read_consistently_while_they_are_written() {
    const ROUNDS: u64 = if cfg!(miri) { 100 } else { 5_000_000 };
    let slot = Slot::default();
    let reads = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut last = 0;
            while !is_over.load(Ordering::Relaxed) {
                if let Some([first, second, third, fourth]) = slot.read() {
                    assert_eq!([second, third, fourth], [first; 3]);
                    assert!(first >= last);
                    last = first;
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let mut round = 0;
        // The test hangs if no read succeeds.
        while round < ROUNDS || reads.load(Ordering::Relaxed) < ROUNDS / 100 {
            round += 1;
            slot.write([round; 4]);
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn an_entry_gives_back_its_time_and_epoch() {
    for (learned, epoch) in [(0, 0), (1, 0xffff), ((1 << 40) - 1, 0x1234)] {
        let key = to_lid(7);
        let path = entry(key, 0).path(&source());
        let entry = Entry::new(key, &path, &source(), learned, epoch).unwrap();
        assert_eq!((entry.learned(), entry.epoch()), (learned, epoch));
        assert_eq!(entry.key(), key);
        assert!(!entry.is_empty() && !entry.is_preloaded() && !entry.is_visited());
        let preloaded = entry.preloaded();
        assert!(preloaded.is_preloaded());
        assert_eq!(preloaded.path(&source()), path);
    }
}

#[test]
fn an_entry_is_of_its_key_only() {
    let path = entry(to_lid(7), 0).path(&source());
    assert!(Entry::new(to_lid(8), &path, &source(), 0, 0).is_none());
    assert!(Entry::new(to_gid(8), &path, &source(), 0, 0).is_none());
    assert!(Entry::new(to_gid(1), &path, &source(), 0, 0).is_some());
    assert_eq!(TableKey::new(Target::Gid(Gid::new(7, 1)), &source()), None);
}

/// LIDs in a row, and the base LIDs of a fabric with LMC 7.
#[test]
#[cfg_attr(miri, ignore = "takes minutes, and has no code of its own")]
fn lids_are_near_their_homes() {
    for (step, count) in [(1_usize, 49_151), (2, 24_575), (8, 6_143), (128, 383)] {
        let table = table(count);
        for number in 1..=count {
            let key = to_lid((number * step) as u16);
            table.put(key, entry(key, number as u64));
        }
        let distances = (1..=count).map(|number| {
            let key = to_lid((number * step) as u16);
            let (index, _) = table.position(key).unwrap();
            index.wrapping_sub(table.home(key)) & (table.slots.len() - 1)
        });
        let sum: usize = distances.sum();
        assert!(sum < count, "{step}: {sum} slots too far for {count}");
    }
}

#[test]
fn the_hand_evicts_unvisited_entries() {
    let table = table(12);
    let keys: Vec<TableKey> = (1..=12).map(to_lid).collect();
    for &key in &keys {
        table.put(key, entry(key, 1));
    }
    for &key in &keys[..11] {
        let (slot, entry) = table.find(key).unwrap();
        entry.visit(slot);
    }
    let mut hand = 0;
    let evicted = table.evict(&mut hand, 100, |_| true).unwrap();
    assert_eq!(evicted.key(), keys[11]);
    // All were visited, some before the hand passed: it takes one in its second round.
    assert!(table.evict(&mut hand, 100, |_| true).is_some());
    assert_eq!(table.entries().count(), 10);
    // Entries that may not go stay, visited or not.
    let only = |entry: &Entry| entry.key() == keys[3];
    let is_there = value(&table, keys[3]).is_some();
    assert_eq!(table.evict(&mut hand, 100, only).is_some(), is_there);
    assert_eq!(table.evict(&mut hand, 100, only), None);
    assert_eq!(table.evict(&mut hand, 100, |_| false), None);
}

#[test]
fn the_hand_gives_up_after_its_patience() {
    let table = table(12);
    for lid in 1..=12 {
        table.put(to_lid(lid), entry(to_lid(lid), 1));
        let (slot, entry) = table.find(to_lid(lid)).unwrap();
        entry.visit(slot);
    }
    let mut hand = 0;
    assert!(table.evict(&mut hand, 0, |_| true).is_some());
    let is_visited = |entry: &Entry| entry.is_visited();
    assert_eq!(table.entries().filter(is_visited).count(), 11);
}

#[derive(Clone, Debug)]
enum Step {
    Put(TableKey, u64),
    Remove(TableKey),
    RemoveAll(u64),
    Evict,
    Grow,
}

fn keys() -> impl Strategy<Value = TableKey> {
    prop_oneof![(1..60_u16).prop_map(to_lid), (1..60_u64).prop_map(to_gid)]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        20 => (keys(), 1..100_u64).prop_map(|(key, number)| Step::Put(key, number)),
        8 => keys().prop_map(Step::Remove),
        1 => (2..9_u64).prop_map(Step::RemoveAll),
        4 => Just(Step::Evict),
        1 => Just(Step::Grow),
    ];
    prop::collection::vec(step, 1..200)
}

fn compare(steps: &[Step]) {
    let mut table = table(1);
    let mut model: HashMap<u64, (TableKey, u64)> = HashMap::new();
    let name = |key: TableKey| match key {
        TableKey::Lid(lid) => u64::from(lid.0),
        TableKey::Guid(guid) => guid,
    };
    let mut hand = 0;
    for step in steps {
        match *step {
            Step::Put(key, number) => {
                if model.len() >= table.room() && !model.contains_key(&name(key)) {
                    table = grown(&table);
                }
                let last = table.put(key, entry(key, number));
                let expected = model.insert(name(key), (key, number));
                assert_eq!(last.map(|last| (last.key(), last.learned())), expected);
            }
            Step::Remove(key) => {
                let expected = model.remove(&name(key));
                let removed = table.remove(key);
                assert_eq!(removed.map(|last| (last.key(), last.learned())), expected);
            }
            Step::RemoveAll(divisor) => {
                let before = model.len();
                model.retain(|_, (_, number)| !number.is_multiple_of(divisor));
                let removed = table.remove_all(|entry| entry.learned().is_multiple_of(divisor));
                assert_eq!(removed, before - model.len());
            }
            Step::Evict => {
                let evicted = table.evict(&mut hand, 10, |_| true);
                let expected = evicted.map(|evicted| (evicted.key(), evicted.learned()));
                let known = evicted.and_then(|evicted| model.remove(&name(evicted.key())));
                assert_eq!(expected, known);
                assert!(evicted.is_some() || model.is_empty());
            }
            Step::Grow => {
                if table.slots.len() < 1 << 12 {
                    table = grown(&table);
                }
            }
        }
        assert_eq!(table.entries().count(), model.len());
        for (key, number) in model.values() {
            assert_eq!(value(&table, *key), Some(*number), "after {step:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    #[cfg_attr(miri, ignore = "thousands of steps")]
    fn the_table_holds_what_a_map_holds(steps in steps()) {
        compare(&steps);
    }
}
