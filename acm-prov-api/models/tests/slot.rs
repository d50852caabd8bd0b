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

/// Returns the number of words that belong together, whichever marks are set. Panics if they do not belong together.
fn number(read: Words) -> u64 {
    let [first, second, third, fourth] = read;
    let expected = words(first);
    assert_eq!([second, third, fourth & !MARK], expected[1..], "torn");
    first
}

const MARK: u64 = 1 << 63;

/// Runs all orders with that many preemptions, and all results that the atomics allow.
fn model(interruptions: usize, run: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(interruptions);
    builder.check(run);
}

/// Readers see words that were written together, and none older than they have seen before.
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

/// A mark can be set at any time and does not damage the words.
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

/// Writers run one after the other, as under the store's mutex.
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
