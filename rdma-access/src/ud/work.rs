//! What is posted and not yet completed: the way from a completion's number back to the slot.

use std::mem;
use std::sync::Arc;

use super::{AddressHandle, Slot};

/// Which way a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// A send.
    Send,
    /// A receive.
    Receive,
}

/// A posted request, with what has to live until it is done.
#[derive(Debug)]
pub struct Work {
    pub slot: Slot,
    pub token: u64,
    pub direction: Direction,
    /// The queue pair, by a number that no other pair of the process has or had.
    pub pair: u64,
    pub _address: Option<Arc<AddressHandle>>,
}

#[derive(Debug, Default)]
struct Entry {
    /// Changes with each use, so that an old number does not fit.
    generation: u32,
    work: Option<Work>,
}

/// The table of a completion queue, by `wr_id`: index in the low half, generation in the high.
#[derive(Debug)]
pub struct WorkTable {
    entries: Vec<Entry>,
    free: Vec<u32>,
    capacity: u32,
}

impl WorkTable {
    pub fn new(capacity: u32) -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            capacity,
        }
    }

    /// Keeps a request and gives its number; gives it back if as many as may be are posted.
    pub fn insert(&mut self, work: Work) -> Result<u64, Work> {
        let index = match self.free.pop() {
            Some(index) => index,
            None => match u32::try_from(self.entries.len()) {
                Ok(next) if next < self.capacity => {
                    self.entries.push(Entry::default());
                    next
                }
                _ => return Err(work),
            },
        };
        let entry = &mut self.entries[index as usize];
        entry.work = Some(work);
        Ok(u64::from(entry.generation) << 32 | u64::from(index))
    }

    /// The request of that number, if it is posted.
    pub fn take(&mut self, number: u64) -> Option<Work> {
        let index = number as u32;
        let entry = self.entries.get_mut(index as usize)?;
        if u64::from(entry.generation) != number >> 32 {
            return None;
        }
        let work = entry.work.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(index);
        Some(work)
    }

    /// All requests of a queue pair.
    pub fn take_all(&mut self, pair: u64) -> Vec<Work> {
        let of_pair = |work: &mut Work| work.pair == pair;
        let mut all = Vec::new();
        for (index, entry) in (0..).zip(&mut self.entries) {
            if let Some(work) = entry.work.take_if(of_pair) {
                entry.generation = entry.generation.wrapping_add(1);
                self.free.push(index);
                all.push(work);
            }
        }
        all
    }
}

/// Requests that a device may still be at work on: their slots must never be used or freed.
pub fn leak(work: Vec<Work>) {
    work.into_iter().for_each(mem::forget);
}
