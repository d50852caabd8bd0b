//! Which table is current.
//!
//! A reader notes it before it searches, and looks again when it has. The writer changes it before it changes a table
//! that was current. The words of slots are written by Release and read by Acquire: a reader that has read one from after the
//! change sees the change when it looks again.

use crate::sync::atomic::{AtomicU64, Ordering};

/// A table, for as long as it is current: no other time has this value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use(u64);

/// The lower bits are the size; the others count changes.
const ONE: u64 = 1 << 8;

impl Use {
    /// The size's number.
    #[inline]
    pub fn size(self) -> usize {
        (self.0 % ONE) as usize
    }

    /// The next larger one's.
    pub fn grown(self) -> Self {
        Self(self.0 + ONE + 1)
    }

    /// The smallest one's.
    pub fn cleared(self) -> Self {
        Self(self.0 / ONE * ONE + ONE)
    }
}

/// See the [module](self).
pub struct Current(AtomicU64);

impl Current {
    /// The smallest one.
    pub fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// The current table's use, at the beginning of a search. Entries that were put in before it was set are there.
    #[inline]
    pub fn begin(&self) -> Use {
        Use(self.0.load(Ordering::Acquire))
    }

    /// Whether all that was read since it was current is of that use.
    #[inline]
    pub fn is_still(&self, begun: Use) -> bool {
        self.0.load(Ordering::Relaxed) == begun.0
    }

    /// Makes another one current. One thread at a time.
    pub fn set(&self, next: Use) {
        self.0.store(next.0, Ordering::Release);
    }
}
