//! Memory with an owner.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fmt;
use std::ptr::NonNull;

/// Where a MANA queue's memory has to begin.
pub(super) const PAGE: usize = 4096;

/// Memory for a queue: nobody else's, and in its place, until it is dropped.
pub struct Buffer {
    start: NonNull<u8>,
    length: usize,
    release: Option<Release>,
}

type Release = Box<dyn FnOnce(NonNull<u8>, usize) + Send>;

// SAFETY: the memory is this value's alone, and what releases it may go anywhere.
unsafe impl Send for Buffer {}
// SAFETY: a shared buffer tells where it is and how long; what releases it is reached by its owner alone.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Memory of the process, all zero; `None` for 0 bytes or if there is none left.
    pub fn zeroed(length: usize) -> Option<Self> {
        let layout = Layout::from_size_align(length, PAGE)
            .ok()
            .filter(|layout| layout.size() > 0)?;
        // SAFETY: the size is not 0.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        // SAFETY: allocated with this layout, and released once.
        let release = move |start: NonNull<u8>, _| unsafe { dealloc(start.as_ptr(), layout) };
        // SAFETY: just allocated, and nobody else's until it is released.
        Some(unsafe { Self::from_raw(start, length, release) })
    }

    /// Memory from elsewhere: huge pages, a pool. `release` gets it back, and its length, when the buffer is dropped.
    ///
    /// # Safety
    /// `length` bytes from `start` may be read and written, and are nobody else's and in their place until `release` is
    /// called.
    pub unsafe fn from_raw(
        start: NonNull<u8>,
        length: usize,
        release: impl FnOnce(NonNull<u8>, usize) + Send + 'static,
    ) -> Self {
        Self {
            start,
            length,
            release: Some(Box::new(release)),
        }
    }

    /// Where it begins.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Its length in bytes.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Whether a queue of that many bytes can live in it.
    pub(super) fn does_for(&self, size: usize) -> bool {
        self.length >= size && self.start.addr().get().is_multiple_of(PAGE)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(release) = self.release.take() {
            release(self.start, self.length);
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes at {:p})", self.length, self.start)
    }
}
