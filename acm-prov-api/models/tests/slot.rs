//! Slots of the path table that are read while they are written.

use acm_prov_api_models::sync;
use loom::thread;
use sync::Arc;

#[allow(dead_code, reason = "another model empties slots")]
#[rustfmt::skip]
#[path = "../../src/cache/table/slot.rs"]
mod slot;

use slot::{Slot, Words};

/// Words that belong together.
fn words(number: u64) -> Words {
    [number, number << 8, number << 16, number << 24]
}

/// The number of words that belong together, whatever is marked. Panics if they do not.
fn number(read: Words) -> u64 {
    let [first, second, third, fourth] = read;
    let expected = words(first);
    assert_eq!([second, third, fourth & !MARK], expected[1..], "torn");
    first
}

const MARK: u64 = 1 << 63;

/// All orders in which threads are interrupted that often, and all that atomics allow.
fn model(interruptions: usize, run: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(interruptions);
    builder.check(run);
}

/// Readers see what was written together, and nothing older than what they have seen.
#[test]
fn what_is_read_was_written_together() {
    model(2, || {
        let slot = Arc::new(Slot::default());
        slot.write(words(1));
        let writer = {
            let slot = Arc::clone(&slot);
            thread::spawn(move || {
                slot.write(words(2));
                slot.write(words(3));
            })
        };
        let first = slot.read().map_or(1, number);
        let second = slot.read().map_or(first, number);
        assert!(second >= first, "{second} after {first}");
        writer.join().unwrap();
        assert_eq!(slot.read().map(number), Some(3));
    });
}

/// A mark gets in at any time, and spoils nothing.
#[test]
fn marks_spoil_nothing() {
    model(2, || {
        let slot = Arc::new(Slot::default());
        slot.write(words(1));
        let writer = {
            let slot = Arc::clone(&slot);
            thread::spawn(move || slot.write(words(2)))
        };
        let marker = {
            let slot = Arc::clone(&slot);
            thread::spawn(move || slot.set_bits(MARK))
        };
        if let Some(read) = slot.read() {
            number(read);
        }
        slot.clear_bits(MARK);
        writer.join().unwrap();
        marker.join().unwrap();
        assert_eq!(slot.read().map(number), Some(2));
    });
}

/// Each writer comes after the one before, as the store's mutex has it.
#[test]
fn writers_take_turns() {
    model(2, || {
        let slot = Arc::new(Slot::default());
        let turn = Arc::new(sync::Mutex::new(0));
        let writers: Vec<_> = (0..2)
            .map(|_| {
                let (slot, turn) = (Arc::clone(&slot), Arc::clone(&turn));
                thread::spawn(move || {
                    let mut turn = turn.lock();
                    *turn += 1;
                    slot.write(words(*turn));
                })
            })
            .collect();
        if let Some(read) = slot.read() {
            number(read);
        }
        for writer in writers {
            writer.join().unwrap();
        }
        assert_eq!(slot.read().map(number), Some(2));
    });
}
