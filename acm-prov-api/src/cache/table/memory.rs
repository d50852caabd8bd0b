//! Where slots live: a large array is mapped by itself and asks for huge pages, since a random slot would cost a walk of page
//! tables otherwise, and since the memory of a table that has gone goes back to the system at once.

use std::ops::Deref;

use super::slot::Slot;

/// Bytes of a huge page of x86-64, and of AArch64 with pages of 4 KiB.
const HUGE_PAGE: usize = 2 << 20;

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
        if length.checked_mul(size_of::<Slot>())? < HUGE_PAGE {
            let mut slots = Vec::new();
            slots.try_reserve_exact(length).ok()?;
            slots.resize_with(length, Slot::default);
            return Some(Self::Small(slots.into_boxed_slice()));
        }
        Mapping::new(length).map(Self::Large)
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

pub(super) use mapping::Mapping;

#[cfg(not(miri))]
mod mapping {
    use std::ptr::{self, NonNull};

    use super::{HUGE_PAGE, Slot};

    /// An array of slots in memory of its own, which is given back when it is dropped.
    pub(in super::super) struct Mapping {
        slots: NonNull<Slot>,
        length: usize,
    }

    // SAFETY: the memory is this value's alone, and slots can be used by all threads.
    unsafe impl Send for Mapping {}
    // SAFETY: as above; a shared mapping gives out shared slots only.
    unsafe impl Sync for Mapping {}

    impl Mapping {
        /// `None`: the system has no memory for it.
        pub fn new(length: usize) -> Option<Self> {
            let bytes = length.checked_mul(size_of::<Slot>())?;
            // A huge page begins where its size divides the address.
            let all = bytes.checked_add(HUGE_PAGE)?;
            // SAFETY: a new mapping, at an address that the kernel chooses, touches nothing that is there.
            let start = unsafe {
                libc::mmap(
                    ptr::null_mut(),
                    all,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                    -1,
                    0,
                )
            };
            if start == libc::MAP_FAILED {
                return None;
            }
            let before = start.cast::<u8>().align_offset(HUGE_PAGE);
            let slots = start.wrapping_byte_add(before);
            for (end, unused) in [
                (start, before),
                (slots.wrapping_byte_add(bytes), HUGE_PAGE - before),
            ] {
                if unused > 0 {
                    // SAFETY: within the mapping above, of which nobody else knows. If it fails, the ends stay unused.
                    unsafe { libc::munmap(end, unused) };
                }
            }
            // Where there are no huge pages, small ones do.
            // SAFETY: advice on the mapping above, which changes no byte of it.
            unsafe { libc::madvise(slots, bytes, libc::MADV_HUGEPAGE) };
            let slots = NonNull::new(slots.cast())?;
            Some(Self { slots, length })
        }

        #[inline]
        pub fn slots(&self) -> &[Slot] {
            // SAFETY: the mapping is that long, is aligned to more than a slot, lives as long as `self`, and began as
            // zeros, which are slots; it is written through the atomics of the slots only.
            unsafe { std::slice::from_raw_parts(self.slots.as_ptr(), self.length) }
        }
    }

    impl Drop for Mapping {
        fn drop(&mut self) {
            let bytes = self.length * size_of::<Slot>();
            // SAFETY: what `new` has mapped and kept; nobody borrows it any more, and slots need no drop.
            unsafe { libc::munmap(self.slots.as_ptr().cast(), bytes) };
        }
    }
}

/// Miri knows nothing of mappings.
#[cfg(miri)]
mod mapping {
    use super::Slot;

    pub(in super::super) struct Mapping(Box<[Slot]>);

    impl Mapping {
        pub fn new(length: usize) -> Option<Self> {
            Some(Self((0..length).map(|_| Slot::default()).collect()))
        }

        pub fn slots(&self) -> &[Slot] {
            &self.0
        }
    }
}

#[cfg(test)]
pub(in crate::cache) mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        /// Larger arrays are refused, as by a system without memory.
        pub static MOST_SLOTS: Cell<usize> = const { Cell::new(usize::MAX) };
    }

    #[test]
    fn slots_are_zeros_and_all_there() {
        for length in [16, HUGE_PAGE / 32 - 1, HUGE_PAGE / 32, 3 * HUGE_PAGE / 32] {
            let slots = Slots::new(length).unwrap();
            assert_eq!(slots.len(), length);
            let is_large = matches!(slots, Slots::Large(_));
            assert_eq!(is_large, length * 32 >= HUGE_PAGE);
            for slot in [slots.first(), slots.last()] {
                let slot = slot.unwrap();
                assert_eq!(slot.read(), Some([0; 4]));
                slot.write([1, 2, 3, 4]);
                assert_eq!(slot.read(), Some([1, 2, 3, 4]));
            }
            if is_large && !cfg!(miri) {
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
