//! Which table is current.
//!
//! A reader reads this before and after its search. The writer changes this before it changes a table that was
//! current. It writes the words of slots with Release, and readers read them with Acquire: a reader that has seen a word from
//! after the change sees the change in its second read.

use crate::sync::atomic::{AtomicU64, Ordering};

/// One use of a table: from becoming current to the next change. No two uses have the same value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use(u64);

/// The lower bits are the size; the others count changes.
const ONE: u64 = 1 << 8;

impl Use {
    /// Returns the number of the size.
    #[inline]
    pub fn size(self) -> usize {
        (self.0 % ONE) as usize
    }

    /// The next use, of the next larger table.
    pub fn grown(self) -> Self {
        Self(self.0 + ONE + 1)
    }

    /// The next use, of the smallest table.
    pub fn cleared(self) -> Self {
        Self(self.0 / ONE * ONE + ONE)
    }
}

/// See the [module](self).
pub struct Current(AtomicU64);

impl Current {
    /// Begins with the smallest table.
    pub fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Returns the current use, at the beginning of a search. Entries inserted before it was set are visible.
    #[inline]
    pub fn begin(&self) -> Use {
        Use(self.0.load(Ordering::Acquire))
    }

    /// Whether everything read since [`get`](Self::get) belongs to that use.
    #[inline]
    pub fn is_still(&self, begun: Use) -> bool {
        self.0.load(Ordering::Relaxed) == begun.0
    }

    /// Sets the current use. One thread at a time.
    pub fn set(&self, next: Use) {
        self.0.store(next.0, Ordering::Release);
    }
}
