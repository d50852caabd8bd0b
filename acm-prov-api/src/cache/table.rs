//! A hash table of paths that many threads read while one writes.
//!
//! One array holds the [slots](slot::Slot), 32 bytes each, for LIDs and for GIDs of the endpoint's subnet. A key that is
//! not in its home slot is in one of the next slots (linear probing), with no empty slot between. At most seven eighths of
//! the slots are used: a subnet's 49,151 unicast LIDs fit in 2 MiB, one huge page, and leave a quarter free.
//!
//! Readers take no lock. Methods that write need one writer at a time, which the store's mutex ensures. A reader
//! that overlaps with a write can miss an entry that is being moved, but never gets a wrong one.

mod entry;
mod memory;
mod slot;

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

pub(super) use entry::{Entry, TableKey};
use memory::Slots;
#[cfg(test)]
pub(super) use memory::tests::MOST_SLOTS;
pub(super) use slot::Slot;

/// Slots of the smallest table with room.
const FIRST_LENGTH: usize = 16;

/// The golden ratio in 64 bits. Its multiples are far apart, so that consecutive LIDs, or every eighth LID in a fabric with
/// LMC 3, have different home slots.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// See the [module](self).
pub(super) struct Table {
    slots: Slots,
    /// Bits of a hash that are not part of an index.
    shift: u32,
    /// A secret seed: clients choose the GIDs, and must not be able to make them collide.
    seed: u64,
}

impl Table {
    /// Creates a table without memory and without room.
    pub fn new() -> Self {
        Self {
            slots: Slots::none(),
            shift: 63,
            seed: RandomState::new().hash_one(()),
        }
    }

    fn with_length(length: usize, seed: u64) -> Option<Self> {
        Some(Self {
            slots: Slots::new(length)?,
            shift: 64 - length.trailing_zeros(),
            seed,
        })
    }

    /// Creates an empty table with twice the slots. `None`: no memory.
    pub fn larger(&self) -> Option<Self> {
        let length = match self.slots.len() {
            0 => FIRST_LENGTH,
            length => length.checked_mul(2)?,
        };
        Self::with_length(length, self.seed)
    }

    /// Removes all entries at once and returns mapped memory to the system. No thread may write meanwhile. Readers must
    /// detect it by [`Current`](super::tables).
    pub fn empty(&self) {
        self.slots.zero();
    }

    /// Returns the maximum number of entries.
    pub fn room(&self) -> usize {
        self.slots.len() / 8 * 7
    }

    /// Returns the bytes that the table has mapped: zero, or a multiple of 2 MiB.
    pub fn mapped_bytes(&self) -> usize {
        self.slots.mapped_bytes()
    }

    #[inline]
    fn home(&self, key: TableKey) -> usize {
        let hash = match key {
            TableKey::Lid(lid) => u64::from(lid.0).wrapping_mul(GOLDEN),
            TableKey::Guid(guid) => {
                let product = u128::from(guid ^ self.seed) * u128::from(GOLDEN);
                (product >> 64) as u64 ^ product as u64
            }
        };
        (hash >> self.shift) as usize
    }

    fn next(&self, index: usize) -> usize {
        (index + 1) & (self.slots.len() - 1)
    }

    /// Finds an entry: its place and its value. For any thread.
    #[inline]
    pub fn find(&self, key: TableKey) -> Option<(&Slot, Entry)> {
        let mut index = self.home(key);
        for _ in 0..self.slots.len() {
            let slot = self.slots.get(index)?;
            let entry = Entry(slot.read()?);
            if entry.is(key) {
                return Some((slot, entry));
            }
            if entry.is_empty() {
                return None;
            }
            index = self.next(index);
        }
        None
    }

    /// Returns the slot of a key, or the empty slot where it belongs. For the writer.
    fn position(&self, key: TableKey) -> Option<(usize, Entry)> {
        let mut index = self.home(key);
        for _ in 0..self.slots.len() {
            let entry = self.at(index);
            if entry.is(key) || entry.is_empty() {
                return Some((index, entry));
            }
            index = self.next(index);
        }
        None
    }

    /// Returns the entry in a slot. For the writer.
    fn at(&self, index: usize) -> Entry {
        let words = self.slots.get(index).and_then(Slot::read);
        words.map_or(Entry::EMPTY, Entry)
    }

    /// Replaces the key's entry and returns the old one, or inserts a new entry, for which there must be
    /// [room](Self::room).
    pub fn put(&self, key: TableKey, entry: Entry) -> Option<Entry> {
        let (index, last) = self.position(key)?;
        self.slots[index].write(entry.0);
        (!last.is_empty()).then_some(last)
    }

    /// Removes an entry and returns it.
    pub fn remove(&self, key: TableKey) -> Option<Entry> {
        let (index, entry) = self.position(key)?;
        if entry.is_empty() {
            return None;
        }
        self.remove_at(index);
        Some(entry)
    }

    /// Empties a slot, and moves entries back that are behind it only because it was full.
    fn remove_at(&self, index: usize) {
        let mask = self.slots.len() - 1;
        let mut hole = index;
        let mut next = self.next(hole);
        // A table is never full: the search ends at an empty slot.
        while next != index {
            let entry = self.at(next);
            if entry.is_empty() {
                break;
            }
            let from_home = next.wrapping_sub(self.home(entry.key())) & mask;
            let from_hole = next.wrapping_sub(hole) & mask;
            if from_home >= from_hole {
                self.slots[hole].write(entry.0);
                hole = next;
            }
            next = self.next(next);
        }
        self.slots[hole].write(Entry::EMPTY.0);
    }

    /// Removes the entries that `is_meant` selects. Returns their number.
    pub fn remove_all(&self, is_meant: impl Fn(&Entry) -> bool) -> usize {
        let (mut index, mut removed) = (0, 0);
        while index < self.slots.len() {
            let entry = self.at(index);
            if !entry.is_empty() && is_meant(&entry) {
                // Another entry may have moved here; stay.
                self.remove_at(index);
                removed += 1;
            } else {
                index += 1;
            }
        }
        removed
    }

    /// Moves the hand of the clock: it skips entries that were visited since its last turn, and removes the first other
    /// entry that may go. After `patience` slots it removes the first entry that may go, visited or not. `None`: no entry
    /// may go.
    ///
    /// The hand jumps between slots. If it went slot by slot, the slots ahead of it would have been without an eviction for the
    /// longest time, and would be full when the table is half full.
    pub fn evict(
        &self,
        hand: &mut usize,
        patience: usize,
        may_go: impl Fn(&Entry) -> bool,
    ) -> Option<Entry> {
        // An odd number: the hand visits every slot before it returns to one.
        let jump = (GOLDEN >> self.shift) as usize | 1;
        // Twice around, since all entries may have been visited.
        for step in 0..2 * self.slots.len() {
            let index = *hand & (self.slots.len() - 1);
            let entry = self.at(index);
            if !entry.is_empty() && may_go(&entry) {
                if step >= patience || !entry.is_visited() {
                    // The hand stays: another entry may be here now.
                    self.remove_at(index);
                    return Some(entry);
                }
                self.slots[index].clear_bits(Entry::VISITED);
            }
            *hand = index.wrapping_add(jump);
        }
        None
    }

    /// Ends a period of use. For the writer.
    pub fn end_period(&self) {
        for (index, slot) in self.slots.iter().enumerate() {
            let entry = self.at(index);
            if entry.is_in_use() {
                entry.end_period(slot);
            }
        }
    }

    /// Returns all entries. For the writer.
    pub fn entries(&self) -> impl Iterator<Item = Entry> {
        self.entries_in(0..self.slots.len())
    }

    /// Returns the number of slots.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Returns the entries in some slots. For the writer.
    pub fn entries_in(&self, slots: Range<usize>) -> impl Iterator<Item = Entry> {
        let entries = slots.map(|index| self.at(index));
        entries.filter(|entry| !entry.is_empty())
    }
}

#[cfg(test)]
mod tests;
