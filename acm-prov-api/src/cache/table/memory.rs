//! Where slots live: a large array is mapped by itself and asks for huge pages, since a random slot would cost a walk of page
//! tables otherwise, and since memory that is not needed goes back to the system at once.

use std::ops::Deref;
use std::ptr::{self, NonNull};

use super::slot::Slot;

/// Bytes of a huge page of x86-64, and of AArch64 with pages of 4 KiB.
const HUGE_PAGE: usize = 2 << 20;

/// Bytes of the smallest array that is mapped: whole pages everywhere.
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

    /// `None`: the system has no memory for them.
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

    /// Makes them all zeros again. Memory that is mapped for them goes back to the system, until they are written.
    pub fn zero(&self) {
        match self {
            Self::Large(mapping) if mapping.give_back() => {}
            slots => slots.iter().for_each(Slot::zero),
        }
    }

    /// Bytes that are mapped for them alone.
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

/// An array of slots in memory of its own, which is given back when it is dropped.
pub(super) struct Mapping {
    slots: NonNull<Slot>,
    length: usize,
}

// SAFETY: the memory is this value's alone, and slots can be used by all threads.
unsafe impl Send for Mapping {}
// SAFETY: as above; a shared mapping gives out shared slots only.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// `None`: the system has no memory for it.
    fn new(length: usize) -> Option<Self> {
        let bytes = length.checked_mul(size_of::<Slot>())?;
        // A huge page begins where its size divides the address. Miri knows no parts of mappings.
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
            // SAFETY: these are the ends of the mapping above, of which nobody else knows.
            unsafe {
                unmap(start, before);
                unmap(slots.wrapping_add(bytes), spare - before);
            }
            // Where there are no huge pages, small ones do.
            // SAFETY: advice on the mapping above, which changes no byte of it.
            unsafe { libc::madvise(slots.cast(), bytes, libc::MADV_HUGEPAGE) };
        }
        let slots = NonNull::new(slots.cast())?;
        Some(Self { slots, length })
    }

    /// Gives the memory back to the system, which has zeros there from now on. False if it does not take it.
    fn give_back(&self) -> bool {
        // Miri knows no such advice.
        if cfg!(miri) {
            return false;
        }
        let bytes = size_of_val(self.slots());
        // SAFETY: the mapping is private, without a file, and this value's own; it stays mapped, and zeros are slots. Whoever reads
        // them meanwhile does so through atomics, and sees the old words or zeros.
        unsafe { libc::madvise(self.slots.as_ptr().cast(), bytes, libc::MADV_DONTNEED) == 0 }
    }

    #[inline]
    fn slots(&self) -> &[Slot] {
        // SAFETY: the mapping is that long, is aligned to more than a slot, lives as long as `self`, and began as zeros,
        // which are slots; it is written through the atomics of the slots only.
        unsafe { std::slice::from_raw_parts(self.slots.as_ptr(), self.length) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let bytes = size_of_val(self.slots());
        // SAFETY: what `new` has mapped and kept; nobody borrows it any more, and slots need no drop.
        unsafe { unmap(self.slots.as_ptr().cast(), bytes) };
    }
}

/// Maps fresh memory, all zeros. `None`: the system has none.
fn map(bytes: usize) -> Option<*mut u8> {
    // SAFETY: a new mapping, at an address that the kernel chooses, touches nothing that is there.
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

/// Gives mapped memory back. If the kernel cannot (too many mappings), it stays, untouched.
///
/// # Safety
/// It is mapped, in whole pages, and used by nobody.
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
        /// Larger arrays are refused, as by a system without memory.
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
