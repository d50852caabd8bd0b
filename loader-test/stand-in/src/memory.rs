//! Memory that the stand-in core lends to a provider, in which the use of a stale pointer faults.
//!
//! A lent value ends at an inaccessible page, so reading past it faults. After its return it stays inaccessible for long, so
//! that any access faults, where a real daemon would read other data.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

const PAGE: usize = 4096;
/// Number of returned areas that stay inaccessible. Older ones are unmapped, since the system limits mappings to 65,530. Until
/// then they keep their memory, mostly a page each: freeing it at once would cost more than lending it.
const QUARANTINE: usize = 4096;

/// Pages per mapping, inaccessible until they are lent.
const RESERVE: usize = 256;

/// One-page areas to keep for reuse: mapping and unmapping them costs more than the rest of a request.
const KEPT: usize = 1024;

/// Pages of an area that lends one.
const ONE_PAGE: usize = 2;

static TAKEN_BACK: Mutex<VecDeque<Area>> = Mutex::new(VecDeque::new());
static RESERVED: Mutex<Area> = Mutex::new(Area::NONE);
static TO_LEND_AGAIN: Mutex<Vec<Area>> = Mutex::new(Vec::new());

#[derive(Clone, Copy)]
struct Area {
    start: usize,
    pages: usize,
}

impl Area {
    const NONE: Self = Self { start: 0, pages: 0 };

    /// Unused inaccessible pages; the last one stays inaccessible.
    fn reserve(pages: usize) -> Self {
        if pages == ONE_PAGE
            && let Some(area) = lock(&TO_LEND_AGAIN).pop()
        {
            return area;
        }
        let mut reserved = lock(&RESERVED);
        if reserved.pages < pages {
            let fresh = Self {
                start: map_inaccessible(pages.max(RESERVE)),
                pages: pages.max(RESERVE),
            };
            std::mem::replace(&mut *reserved, fresh).unmap();
        }
        let start = reserved.start;
        reserved.start += pages * PAGE;
        reserved.pages -= pages;
        Self { start, pages }
    }

    fn unmap(self) {
        if self.pages == 0 {
            return;
        }
        let start = std::ptr::with_exposed_provenance_mut(self.start);
        // SAFETY: our own mapping, which no code uses any more.
        unsafe { libc::munmap(start, self.pages * PAGE) };
    }
}

/// Maps inaccessible pages.
fn map_inaccessible(pages: usize) -> usize {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a fresh anonymous mapping; nothing else lies there.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            pages * PAGE,
            libc::PROT_NONE,
            flags,
            -1,
            0,
        )
    };
    assert_ne!(
        start,
        libc::MAP_FAILED,
        "mmap: {}",
        std::io::Error::last_os_error()
    );
    start.expose_provenance()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A value, or an array of them, lent to the provider. It never moves.
pub struct Lent<T> {
    area: Area,
    first: NonNull<T>,
    length: usize,
    owns: PhantomData<T>,
}

// SAFETY: an owned allocation of plain data.
unsafe impl<T: Send> Send for Lent<T> {}

impl<T: Copy> Lent<T> {
    /// Lends one value.
    pub fn new(value: T) -> Self {
        Self::array(&[value])
    }

    /// Lends a copy of an array.
    ///
    /// # Panics
    /// If the system is out of memory.
    pub fn array(values: &[T]) -> Self {
        let bytes = size_of_val(values).max(1);
        let pages = bytes.div_ceil(PAGE);
        let area = Area::reserve(pages + 1);
        let start = std::ptr::with_exposed_provenance_mut::<libc::c_void>(area.start);
        // SAFETY: all but the last of the pages just reserved.
        let opened =
            unsafe { libc::mprotect(start, pages * PAGE, libc::PROT_READ | libc::PROT_WRITE) };
        assert_eq!(opened, 0, "mprotect: {}", std::io::Error::last_os_error());
        // The end touches the inaccessible page, as closely as alignment allows.
        let offset = (pages * PAGE - size_of_val(values)) & !(align_of::<T>() - 1);
        // SAFETY: inside the pages just opened, aligned, with room for the values.
        let first = unsafe {
            start.cast::<u8>().write_bytes(0xa5, pages * PAGE);
            let first = start.cast::<u8>().add(offset).cast::<T>();
            first.copy_from_nonoverlapping(values.as_ptr(), values.len());
            NonNull::new_unchecked(first)
        };
        Self {
            area,
            first,
            length: values.len(),
            owns: PhantomData,
        }
    }

    /// Returns a pointer to the first value for the provider.
    pub fn as_ptr(&self) -> *mut T {
        self.first.as_ptr()
    }

    /// Returns a copy of the value at `index`.
    ///
    /// # Panics
    /// If `index` is past the end.
    pub fn get(&self, index: usize) -> T {
        assert!(index < self.length);
        // SAFETY: inside the array, see above.
        unsafe { self.first.add(index).read() }
    }

    /// Changes the value at `index`.
    ///
    /// # Panics
    /// If `index` is past the end.
    pub fn set(&mut self, index: usize, value: T) {
        assert!(index < self.length);
        // SAFETY: inside the array, see above.
        unsafe { self.first.add(index).write(value) };
    }
}

impl<T> Lent<T> {
    /// Makes the value inaccessible, or accessible again with its contents.
    pub fn set_accessible(&self, accessible: bool) {
        let start = std::ptr::with_exposed_provenance_mut(self.area.start);
        let access = if accessible {
            libc::PROT_READ | libc::PROT_WRITE
        } else {
            libc::PROT_NONE
        };
        // SAFETY: our own mapping, all but its last page, which stays inaccessible.
        unsafe { libc::mprotect(start, (self.area.pages - 1) * PAGE, access) };
    }
}

impl<T> Drop for Lent<T> {
    fn drop(&mut self) {
        self.set_accessible(false);
        let mut taken_back = lock(&TAKEN_BACK);
        taken_back.push_back(self.area);
        if taken_back.len() > QUARANTINE
            && let Some(oldest) = taken_back.pop_front()
        {
            oldest.unmap();
        }
    }
}

/// Ends the quarantine of all returned areas. Keeps some for reuse and unmaps the rest.
pub(super) fn end_quarantine() {
    let mut to_lend_again = lock(&TO_LEND_AGAIN);
    for area in lock(&TAKEN_BACK).drain(..) {
        match area.pages == ONE_PAGE && to_lend_again.len() < KEPT {
            true => to_lend_again.push(area),
            false => area.unmap(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_ends_at_an_inaccessible_page() {
        let lent = Lent::new([7_u64; 3]);
        assert_eq!(lent.get(0), [7; 3]);
        assert_eq!((lent.as_ptr() as usize + 24) % PAGE, 0);
        let big = Lent::array(&[[1_u8; 88]; 100]);
        assert_eq!(big.get(99), [1; 88]);
        assert_eq!((big.as_ptr() as usize + 8800) % PAGE, 0);
    }

    #[test]
    fn what_was_taken_back_is_inaccessible() {
        let lent = Lent::new(1_u64);
        let address = lent.as_ptr() as usize;
        let is_readable = |address: usize| {
            // SAFETY: write(2) reports an inaccessible buffer instead of faulting.
            unsafe {
                let mut pipe = [0; 2];
                assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0);
                let written = libc::write(pipe[1], std::ptr::with_exposed_provenance(address), 8);
                libc::close(pipe[0]);
                libc::close(pipe[1]);
                written == 8
            }
        };
        assert!(is_readable(address));
        lent.set_accessible(false);
        assert!(!is_readable(address));
        lent.set_accessible(true);
        assert_eq!(lent.get(0), 1);
        drop(lent);
        assert!(!is_readable(address));
        end_quarantine();
        assert!(!is_readable(address));
    }
}
