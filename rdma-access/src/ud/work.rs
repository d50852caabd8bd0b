//! The requests that are posted and not yet completed: a table from a completion's number to the slot.

use std::mem;
use std::sync::Arc;

use super::{AddressHandle, Slot};

/// The direction of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// A send.
    Send,
    /// A receive.
    Receive,
}

/// A posted request, with everything that must live until it completes.
#[derive(Debug)]
pub struct Work {
    pub slot: Slot,
    pub token: u64,
    pub direction: Direction,
    /// The queue pair, by a number that the process never reuses.
    pub pair: u64,
    pub _address: Option<Arc<AddressHandle>>,
}

#[derive(Debug)]
struct Entry<T> {
    /// Changes with each use, so that a stale number does not match.
    generation: u32,
    content: Option<T>,
}

/// The table of a completion queue. In `wr_id`, the index is the low half and the generation the high half.
#[derive(Debug)]
pub struct Table<T> {
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
    capacity: u32,
}

impl<T> Table<T> {
    pub fn new(capacity: u32) -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            capacity,
        }
    }

    /// Stores a value and returns its number; returns the value if the table is full.
    pub fn insert(&mut self, content: T) -> Result<u64, T> {
        let index = match self.free.pop() {
            Some(index) => index,
            None => match u32::try_from(self.entries.len()) {
                Ok(next) if next < self.capacity => {
                    self.entries.push(Entry {
                        generation: 0,
                        content: None,
                    });
                    next
                }
                _ => return Err(content),
            },
        };
        let entry = &mut self.entries[index as usize];
        entry.content = Some(content);
        Ok(u64::from(entry.generation) << 32 | u64::from(index))
    }

    /// Removes and returns the value with that number.
    pub fn take(&mut self, number: u64) -> Option<T> {
        let index = number as u32;
        let entry = self.entries.get_mut(index as usize)?;
        if u64::from(entry.generation) != number >> 32 {
            return None;
        }
        let content = entry.content.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(index);
        Some(content)
    }

    /// Counts the values that fit.
    pub fn count(&self, fits: impl Fn(&T) -> bool) -> usize {
        let kept = self
            .entries
            .iter()
            .filter_map(|entry| entry.content.as_ref());
        kept.filter(|content| fits(content)).count()
    }

    /// Removes and returns all values that fit.
    pub fn take_all(&mut self, fits: impl Fn(&T) -> bool) -> Vec<T> {
        let mut all = Vec::new();
        for (index, entry) in (0..).zip(&mut self.entries) {
            if let Some(content) = entry.content.take_if(|content| fits(content)) {
                entry.generation = entry.generation.wrapping_add(1);
                self.free.push(index);
                all.push(content);
            }
        }
        all
    }
}

/// Leaks requests that a device may still work on: their slots must never be used or freed.
pub fn leak(work: Vec<Work>) {
    work.into_iter().for_each(mem::forget);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_fits_once() {
        let mut table = Table::new(2);
        let first = table.insert('a').unwrap();
        assert_eq!(table.take(first), Some('a'));
        assert_eq!(table.take(first), None);
        let second = table.insert('b').unwrap();
        assert_ne!(first, second);
        assert_eq!(table.take(first), None);
        assert_eq!(table.take(second), Some('b'));
    }

    #[test]
    fn unknown_numbers_match_nothing() {
        let mut table = Table::new(4);
        let given = table.insert('a').unwrap();
        for number in [given + 1, given | 1 << 32, u64::from(u32::MAX), u64::MAX] {
            assert_eq!(table.take(number), None, "{number:#x}");
        }
        assert_eq!(table.take(given), Some('a'));
    }

    #[test]
    fn a_full_table_gives_back() {
        let mut table = Table::new(2);
        let first = table.insert(1).unwrap();
        table.insert(2).unwrap();
        assert_eq!(table.insert(3), Err(3));
        table.take(first);
        table.insert(3).unwrap();
        assert_eq!(table.insert(4), Err(4));
    }

    #[test]
    fn all_of_one_kind_are_taken_and_their_numbers_are_void() {
        let mut table = Table::new(8);
        let numbers: Vec<u64> = (0..6).map(|value| table.insert(value).unwrap()).collect();
        assert_eq!(table.count(|value| value % 2 == 0), 3);
        assert_eq!(table.take_all(|value| value % 2 == 0), [0, 2, 4]);
        assert_eq!(
            (table.count(|value| value % 2 == 0), table.count(|_| true)),
            (0, 3)
        );
        let left: Vec<_> = numbers.iter().map(|&number| table.take(number)).collect();
        assert_eq!(left, [None, Some(1), None, Some(3), None, Some(5)]);
    }
}
