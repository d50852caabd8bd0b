use super::*;
use crate::address::{Gid, Lid, PKey};
use crate::path::PathRecord;
use crate::sa::Source;

const SOURCE: Source = Source {
    gid: Gid([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]),
    lid: Lid(9),
    pkey: PKey(0xffff),
};

fn key(lid: u16) -> TableKey {
    TableKey::Lid(Lid(lid))
}

fn put(tables: &Tables, lid: u16, learned: u64) {
    let mut path = PathRecord::default();
    path.set_dgid(SOURCE.gid).set_sgid(SOURCE.gid);
    path.set_dlid(Lid(lid));
    let entry = Entry::new(key(lid), &path, &SOURCE, learned, 0).unwrap();
    tables.table().put(key(lid), entry);
}

fn value(tables: &Tables, lid: u16) -> Option<u64> {
    tables.find(key(lid)).map(|(_, entry)| entry.learned())
}

fn grown(times: usize) -> Arc<Tables> {
    let tables = Arc::new(Tables::new());
    for _ in 0..times {
        assert!(tables.grow());
    }
    tables
}

#[test]
fn growing_copies_the_entries_and_clearing_drops_them() {
    let tables = grown(1);
    put(&tables, 1, 7);
    let old = tables.current.begin();
    assert!(tables.grow());
    assert_eq!(value(&tables, 1), Some(7));
    assert!(!tables.current.is_still(old));
    let old = tables.place(old).unwrap();
    assert!(old.table.find(key(1)).is_none() && old.filled.lock().is_none());
}

/// A late discard does not remove entries that have come meanwhile.
#[test]
fn a_table_that_serves_again_is_empty_and_stays_full() {
    for discards_first in [true, false] {
        let tables = grown(1);
        put(&tables, 1, 7);
        let old = tables.clear();
        assert_eq!(value(&tables, 1), None);
        assert_eq!(tables.table().room(), 0);
        let old = (!discards_first).then_some(old);
        assert!(tables.grow());
        assert_eq!(value(&tables, 1), None);
        put(&tables, 2, 8);
        drop(old);
        assert_eq!(value(&tables, 2), Some(8));
    }
}

#[test]
fn a_discarded_table_holds_nothing() {
    let tables = grown(8);
    put(&tables, 1, 7);
    assert!(tables.table().mapped_bytes() > 0);
    let old = tables.current.begin();
    drop(tables.clear());
    let place = tables.place(old).unwrap();
    assert!(place.table.find(key(1)).is_none());
    assert!(place.filled.lock().is_none());
}

#[test]
fn there_is_a_largest_size() {
    let mut size = Current::new().begin();
    for _ in 0..SIZES {
        size = size.grown();
    }
    assert_eq!(size.size(), SIZES);
    assert_eq!(size.cleared().size(), 0);
    assert_ne!(size.cleared(), Current::new().begin());
    let tables = Tables::new();
    tables.current.set(size);
    assert!(!tables.grow());
    assert_eq!(value(&tables, 1), None);
}
