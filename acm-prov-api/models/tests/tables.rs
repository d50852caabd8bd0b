//! Slots of a table that is emptied and refilled while a late reader still has it.

use acm_prov_api_models::sync;
use loom::thread;
use sync::Arc;

#[allow(dead_code, reason = "another model sets marks")]
#[rustfmt::skip]
#[path = "../../src/cache/table/slot.rs"]
mod slot;
#[rustfmt::skip]
#[path = "../../src/cache/tables/current.rs"]
mod current;

use current::Current;
use slot::{Slot, Words};

/// Words whose first word (a time) and counter are the same for every number.
fn words(number: u64) -> Words {
    [7, number, number << 8, number << 16]
}

/// A reader gets words of one time, although the emptied slot counts from zero again.
#[test]
fn a_slot_that_serves_again_is_read_whole() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let shared = Arc::new((Current::new(), Slot::default()));
        shared.1.write(words(1));
        let first = shared.0.begin();
        let writer = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let (current, slot) = &*shared;
                // A flush: another table becomes current, then this one is emptied, filled, and current again.
                let other = first.cleared();
                current.set(other);
                slot.zero();
                slot.write(words(2));
                current.set(other.cleared());
            })
        };
        let (current, slot) = &*shared;
        let begun = current.begin();
        let is_there = begun.size() == 0;
        if let Some(read) = slot.read()
            && is_there
            && current.is_still(begun)
            && begun == first
        {
            assert_eq!(read, words(1), "torn, or of a later time");
        }
        writer.join().unwrap();
        assert_eq!(slot.read(), Some(words(2)));
        assert_eq!(current.begin(), first.cleared().cleared());
        assert_eq!(first.grown().size(), 1);
    });
}
