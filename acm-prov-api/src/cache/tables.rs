//! The tables of a store, one per size. One of them is in use: the smallest at first, then always the next larger one.
//!
//! Readers search the current table without a lock and without a count. So a table is never freed while a reader may have
//! it. A table that is not current keeps its address range and returns its memory; it then reads as zeros, which means
//! empty. The store uses it again when it grows to that size again.
//!
//! So a late reader may search a table that has been emptied, or is being filled. It detects this: before a table that was
//! current changes, [another one](current::Current) becomes current, and a reader that has seen the change sees that too.

mod current;

use super::table::{Entry, Slot, Table, TableKey};
use crate::sync::{Arc, Mutex, OnceLock};
use current::Current;
pub(super) use current::Use;

/// Sizes: the largest has 2^29 slots, 16 GiB.
const SIZES: usize = 27;

/// How often a reader retries because another table has become current.
const TRIES: usize = 8;

/// See the [module](self).
pub(super) struct Tables {
    current: Current,
    sizes: [OnceLock<Place>; SIZES],
}

/// Another table became current during a search.
struct NotCurrent;

struct Place {
    table: Table,
    /// The use that filled the table; `None`: it is empty, and takes no memory if it is large.
    filled: Mutex<Option<Use>>,
}

impl Place {
    /// Empties the table if it still holds the entries of that use.
    fn empty(&self, last: Use) {
        let mut filled = self.filled.lock();
        if *filled == Some(last) {
            self.table.empty();
            *filled = None;
        }
    }
}

impl Tables {
    /// Creates the tables, without memory.
    pub fn new() -> Self {
        let sizes = [const { OnceLock::new() }; SIZES];
        let smallest = Place {
            table: Table::new(),
            filled: Mutex::new(None),
        };
        // The cell is new, so this cannot fail.
        let _ = sizes[0].set(smallest);
        Self {
            current: Current::new(),
            sizes,
        }
    }

    #[inline]
    fn place(&self, current: Use) -> Option<&Place> {
        self.sizes.get(current.size())?.get()
    }

    /// Finds an entry: its place and its value. For any thread.
    #[inline]
    pub fn find(&self, key: TableKey) -> Option<(&Slot, Entry)> {
        match self.find_once(key) {
            Ok(found) => found,
            Err(NotCurrent) => self.find_again(key),
        }
    }

    #[cold]
    fn find_again(&self, key: TableKey) -> Option<(&Slot, Entry)> {
        let found = (1..TRIES).find_map(|_| self.find_once(key).ok());
        found.flatten()
    }

    #[inline]
    fn find_once(&self, key: TableKey) -> Result<Option<(&Slot, Entry)>, NotCurrent> {
        let current = self.current.begin();
        let place = self.place(current);
        let found = place.and_then(|place| place.table.find(key));
        match self.current.is_still(current) {
            true => Ok(found),
            false => Err(NotCurrent),
        }
    }

    /// Returns the bytes mapped for the tables of all sizes. Only the current table has memory behind them.
    pub fn mapped_bytes(&self) -> usize {
        let tables = self.sizes.iter().filter_map(OnceLock::get);
        tables.map(|place| place.table.mapped_bytes()).sum()
    }

    /// Returns the current table. For the writer.
    pub fn table(&self) -> &Table {
        let place = self.place(self.current.begin());
        &place.expect("it was made before it was current").table
    }

    /// Returns the current table's use. During one use, entries keep their slots or move to earlier ones.
    pub fn current(&self) -> Use {
        self.current.begin()
    }

    /// Makes a copy with twice the slots the current table. `false`: no memory. For the writer.
    pub fn grow(&self) -> bool {
        let last = self.current.begin();
        let next = last.grown();
        let (Some(old), Some(place)) = (self.place(last), self.sizes.get(next.size())) else {
            return false;
        };
        let new = match place.get() {
            Some(new) => new,
            None => {
                let Some(table) = old.table.larger() else {
                    return false;
                };
                place.get_or_init(|| Place {
                    table,
                    filled: Mutex::new(None),
                })
            }
        };
        {
            let mut filled = new.filled.lock();
            // A flush may not have emptied it yet.
            if filled.replace(next).is_some() {
                new.table.empty();
            }
        }
        for entry in old.table.entries() {
            new.table.put(entry.key(), entry);
        }
        self.current.set(next);
        old.empty(last);
        true
    }

    /// Makes the smallest table current, which has no room. Returns the table to empty. For the writer.
    pub fn clear(self: &Arc<Self>) -> Discarded {
        let last = self.current.begin();
        self.current.set(last.cleared());
        Discarded {
            tables: Arc::clone(self),
            last,
        }
    }
}

/// A table that is no longer current; dropping this returns its memory.
pub(super) struct Discarded {
    tables: Arc<Tables>,
    last: Use,
}

impl Drop for Discarded {
    fn drop(&mut self) {
        if let Some(place) = self.tables.place(self.last) {
            place.empty(self.last);
        }
    }
}

#[cfg(test)]
mod tests;
