//! The memory of slots. A large array is mapped separately with huge pages: otherwise access to a random slot would cost a page
//! table walk. Unused mapped memory returns to the system at once.

use std::ops::Deref;
use std::ptr::{self, NonNull};

use super::slot::Slot;

/// Bytes of a huge page of x86-64, and of AArch64 with pages of 4 KiB.
const HUGE_PAGE: usize = 2 << 20;

/// Bytes of the smallest mapped array: whole pages on every platform.
const LARGE: usize = 64 << 10;

/// An array of slots, all zeros at first.
pub(super) enum Slots {
    Small(Box<[Slot]>),
    Large(Mapping),
}

impl Slots {
    pub fn none() -> Self {
        Self::Small(Box::default())
    }

    /// Creates zeroed slots. `None`: the system has no memory for them.
    pub fn new(length: usize) -> Option<Self> {
        #[cfg(test)]
        if length > tests::MOST_SLOTS.get() {
            return None;
        }
        if length.checked_mul(size_of::<Slot>())? < LARGE {
            let mut slots = Vec::new();
            slots.try_reserve_exact(length).ok()?;
            slots.resize_with(length, Slot::default);
            return Some(Self::Small(slots.into_boxed_slice()));
        }
        Mapping::new(length).map(Self::Large)
    }

    /// Sets all slots to zero. Mapped memory returns to the system until they are written.
    pub fn zero(&self) {
        match self {
            Self::Large(mapping) if mapping.give_back() => {}
            slots => slots.iter().for_each(Slot::zero),
        }
    }

    /// Returns the bytes of the mapping, if there is one.
    pub fn mapped_bytes(&self) -> usize {
        match self {
            Self::Small(_) => 0,
            Self::Large(mapping) => size_of_val(mapping.slots()),
        }
    }
}

impl Deref for Slots {
    type Target = [Slot];

    #[inline]
    fn deref(&self) -> &[Slot] {
        match self {
            Self::Small(slots) => slots,
            Self::Large(mapping) => mapping.slots(),
        }
    }
}

/// An array of slots in its own mapping.
pub(super) struct Mapping {
    slots: NonNull<Slot>,
    length: usize,
}

// SAFETY: this value owns the memory, and any thread may use slots.
unsafe impl Send for Mapping {}
// SAFETY: as above; a shared mapping gives out only shared slots.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps memory. `None`: the system has none.
    fn new(length: usize) -> Option<Self> {
        let bytes = length.checked_mul(size_of::<Slot>())?;
        // Huge pages are aligned to their size. Miri cannot unmap part of a mapping.
        let spare = match bytes < HUGE_PAGE || cfg!(miri) {
            true => 0,
            false => HUGE_PAGE,
        };
        let start = map(bytes.checked_add(spare)?)?;
        let before = match spare {
            0 => 0,
            _ => start.align_offset(HUGE_PAGE),
        };
        let slots = start.wrapping_add(before);
        if spare > 0 {
            // SAFETY: these are the ends of the mapping above, to which no other code has a pointer.
            unsafe {
                unmap(start, before);
                unmap(slots.wrapping_add(bytes), spare - before);
            }
            // If there are no huge pages, small ones work too.
            // SAFETY: advice on the mapping above, which changes no byte of it.
            unsafe { libc::madvise(slots.cast(), bytes, libc::MADV_HUGEPAGE) };
        }
        let slots = NonNull::new(slots.cast())?;
        Some(Self { slots, length })
    }

    /// Returns the memory to the system; it then reads as zeros. False if the system refuses.
    fn give_back(&self) -> bool {
        // Miri does not support this advice.
        if cfg!(miri) {
            return false;
        }
        let bytes = size_of_val(self.slots());
        // SAFETY: the mapping is private, anonymous and owned by this value. It stays mapped, and zeros are valid slots. Concurrent
        // readers use atomics and see the old words or zeros.
        unsafe { libc::madvise(self.slots.as_ptr().cast(), bytes, libc::MADV_DONTNEED) == 0 }
    }

    #[inline]
    fn slots(&self) -> &[Slot] {
        // SAFETY: the mapping has that length, is aligned to more than a slot, lives as long as `self`, and began as zeros,
        // which are valid slots; it is written only through the atomics of the slots.
        unsafe { std::slice::from_raw_parts(self.slots.as_ptr(), self.length) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let bytes = size_of_val(self.slots());
        // SAFETY: `new` has mapped and kept this range; no borrow is left, and slots need no drop.
        unsafe { unmap(self.slots.as_ptr().cast(), bytes) };
    }
}

/// Maps fresh, zeroed memory. `None`: the system has none.
fn map(bytes: usize) -> Option<*mut u8> {
    // SAFETY: a new mapping at an address that the kernel chooses overlaps no other.
    let start = unsafe {
        libc::mmap(
            ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    (start != libc::MAP_FAILED).then_some(start.cast())
}

/// Unmaps memory. If the kernel cannot (too many mappings), it stays mapped.
///
/// # Safety
/// The range is mapped, consists of whole pages, and no other code uses it.
unsafe fn unmap(start: *mut u8, bytes: usize) {
    if bytes > 0 {
        // SAFETY: as the caller promises.
        unsafe { libc::munmap(start.cast(), bytes) };
    }
}

#[cfg(test)]
pub(in crate::cache) mod tests {
    use std::cell::Cell;

    use super::*;

    /// Slots in a huge page.
    const HUGE: usize = HUGE_PAGE / size_of::<Slot>();
    /// Slots in the smallest mapping.
    const MAPPED: usize = LARGE / size_of::<Slot>();

    thread_local! {
        /// Larger arrays are refused, as if the system had no memory.
        pub static MOST_SLOTS: Cell<usize> = const { Cell::new(usize::MAX) };
    }

    #[test]
    fn slots_are_zeros_and_all_there() {
        for length in [16, MAPPED - 1, MAPPED, HUGE, 3 * HUGE] {
            if cfg!(miri) && length > MAPPED {
                continue; // Takes minutes.
            }
            let slots = Slots::new(length).unwrap();
            assert_eq!(slots.len(), length);
            let is_large = matches!(slots, Slots::Large(_));
            assert_eq!(is_large, length >= MAPPED);
            for slot in [slots.first(), slots.last()] {
                let slot = slot.unwrap();
                assert_eq!(slot.read(), Some([0; 4]));
                slot.write([1, 2, 3, 4]);
                assert_eq!(slot.read(), Some([1, 2, 3, 4]));
            }
            slots.zero();
            for slot in [slots.first(), slots.last()] {
                assert_eq!(slot.unwrap().read(), Some([0; 4]));
                slot.unwrap().write([1, 2, 3, 4]);
                assert_eq!(slot.unwrap().read(), Some([1, 2, 3, 4]));
            }
            if length >= HUGE {
                assert_eq!(slots.as_ptr().align_offset(HUGE_PAGE), 0);
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "no mapping that fails")]
    fn what_there_is_no_memory_for_is_refused() {
        for length in [1 << 50, usize::MAX / 32, usize::MAX] {
            assert!(Slots::new(length).is_none());
        }
    }
}
