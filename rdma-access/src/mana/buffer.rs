//! Memory that a MANA queue owns.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fmt;
use std::ptr::NonNull;

/// Required alignment of a MANA queue's memory.
pub(super) const PAGE: usize = 4096;

/// Memory for a queue. Until it is dropped, it does not move, and nothing else uses it.
pub struct Buffer {
    start: NonNull<u8>,
    length: usize,
    release: Option<Release>,
}

type Release = Box<dyn FnOnce(NonNull<u8>, usize) + Send>;

// SAFETY: this value owns the memory, and `release` is `Send`.
unsafe impl Send for Buffer {}
// SAFETY: a shared buffer gives its address and length only; only the owner reaches `release`.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Allocates zeroed memory of the process; `None` for 0 bytes or if memory is exhausted.
    pub fn zeroed(length: usize) -> Option<Self> {
        let layout = Layout::from_size_align(length, PAGE)
            .ok()
            .filter(|layout| layout.size() > 0)?;
        // SAFETY: the size is not 0.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        // SAFETY: allocated with this layout, and released once.
        let release = move |start: NonNull<u8>, _| unsafe { dealloc(start.as_ptr(), layout) };
        // SAFETY: just allocated, and owned by the buffer until it is released.
        Some(unsafe { Self::from_raw(start, length, release) })
    }

    /// Wraps memory from elsewhere: huge pages, a pool. `release` gets the start and length when the buffer is
    /// dropped.
    ///
    /// # Safety
    /// `length` bytes from `start` are readable and writable, do not move, and nothing else uses them until
    /// `release` is called.
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

    /// Returns the start address.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Returns the length in bytes.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Returns whether it suits a queue of that many bytes.
    pub(super) fn suits(&self, size: usize) -> bool {
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
