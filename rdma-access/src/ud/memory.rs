//! Registered memory, divided into slots: `ibv_reg_mr(3)`.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use ibverbs_sys as ffi;
use parking_lot::Mutex;
use rustix::io::Errno;

use super::ProtectionDomain;
use crate::diagnosis;
use crate::error::{Cause, Error, Result};
use crate::handle::Handle;
use crate::teardown;

/// Alignment of the memory: drivers pin whole pages.
const PAGE: usize = 4096;

/// Memory that a device may write to, divided into slots of equal size.
pub struct MemoryRegion {
    // Ended by `end`, before the memory is freed.
    handle: Handle<ffi::ibv_mr>,
    memory: NonNull<u8>,
    layout: Layout,
    slot_size: usize,
    local_key: u32,
    free: Mutex<Vec<u32>>,
    domain: Arc<ProtectionDomain>,
}

// SAFETY: only slots reach the memory, each slot has one owner, and the list of free slots is locked.
unsafe impl Send for MemoryRegion {}
// SAFETY: as above.
unsafe impl Sync for MemoryRegion {}

impl MemoryRegion {
    /// Allocates and registers `count` slots of `slot_size` bytes, zeroed.
    ///
    /// To receive, a slot needs [`GRH_LENGTH`](super::GRH_LENGTH) bytes in addition to the payload.
    ///
    /// # Errors
    /// [`Cause::Invalid`] if the size or count is 0, or the total exceeds 4 GiB; [`Cause::OutOfMemory`]; else
    /// the error of `ibv_reg_mr`, usually ENOMEM because of the limit of locked memory.
    pub fn new(domain: &Arc<ProtectionDomain>, slot_size: usize, count: u32) -> Result<Self> {
        const OPERATION: &str = "ibv_reg_mr";
        let context = domain.context();
        let inputs = format!("{}, {count} slots of {slot_size} bytes", context.name());
        let layout = (count as usize)
            .checked_mul(slot_size)
            .filter(|&size| size > 0 && u32::try_from(size).is_ok())
            .and_then(|size| Layout::from_size_align(size, PAGE).ok());
        let Some(layout) = layout else {
            let cause = Cause::Invalid("a region must have 1 byte to 4 GiB".to_owned());
            return Err(Error::new(OPERATION, inputs, cause));
        };
        let mut free = Vec::new();
        if free.try_reserve_exact(count as usize).is_err() {
            return Err(Error::new(OPERATION, inputs, Cause::OutOfMemory));
        }
        free.extend((0..count).rev());
        // SAFETY: the size is not 0.
        let Some(memory) = NonNull::new(unsafe { alloc_zeroed(layout) }) else {
            return Err(Error::new(OPERATION, inputs, Cause::OutOfMemory));
        };
        let access = ffi::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0;
        // SAFETY: the domain is alive; the memory has that length and is freed only after the region ends.
        let registered = unsafe {
            let region = ffi::ibv_reg_mr(
                domain.raw(),
                memory.as_ptr().cast(),
                layout.size(),
                access.cast_signed(),
            );
            Handle::take(region, |errno| {
                let likely = match Errno::from_raw_os_error(errno) {
                    limit @ (Errno::NOMEM | Errno::AGAIN) => {
                        diagnosis::resource_limit(limit, context.name(), Some(layout.size()))
                    }
                    _ => String::new(),
                };
                Error::errno(OPERATION, inputs, errno, likely)
            })
        };
        let handle = match registered {
            Ok(handle) => handle,
            Err(error) => {
                // SAFETY: allocated above with this layout, and not registered.
                unsafe { dealloc(memory.as_ptr(), layout) };
                return Err(error);
            }
        };
        // SAFETY: the region is alive.
        let local_key = unsafe { (*handle.as_ptr()).lkey };
        Ok(Self {
            handle,
            memory,
            layout,
            slot_size,
            local_key,
            free: Mutex::new(free),
            domain: domain.clone(),
        })
    }

    /// Returns a free slot, or `None` if all are in use. Its bytes are those last written to it.
    pub fn take_slot(self: &Arc<Self>) -> Option<Slot> {
        let index = self.free.lock().pop()?;
        Some(Slot {
            region: self.clone(),
            index,
        })
    }

    /// Returns the number of free slots.
    pub fn free_slots(&self) -> usize {
        self.free.lock().len()
    }

    /// Returns the size of a slot in bytes.
    pub fn slot_size(&self) -> usize {
        self.slot_size
    }

    /// Deregisters and frees the memory.
    ///
    /// # Errors
    /// The error of `ibv_dereg_mr`; the region and its memory then leak.
    pub fn close(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        if self.handle.has_ended() {
            return Ok(());
        }
        self.handle.end()?;
        // SAFETY: allocated with this layout, and freed once. No device can reach it any more, and no slot,
        // because each holds the region.
        unsafe { dealloc(self.memory.as_ptr(), self.layout) };
        Ok(())
    }

    pub(super) fn domain(&self) -> &Arc<ProtectionDomain> {
        &self.domain
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            teardown::report(&error);
        }
    }
}

impl fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.layout.size();
        write!(
            f,
            "MemoryRegion({bytes} bytes in slots of {})",
            self.slot_size
        )
    }
}

/// A piece of registered memory with one owner. Dropping it returns it to its region.
///
/// While a program owns a slot, no device uses it: posting consumes it, and a completion returns it.
pub struct Slot {
    region: Arc<MemoryRegion>,
    index: u32,
}

impl Slot {
    fn start(&self) -> NonNull<u8> {
        // SAFETY: the index is below the number of slots in the memory.
        unsafe {
            self.region
                .memory
                .add(self.index as usize * self.region.slot_size)
        }
    }

    pub(super) fn region(&self) -> &Arc<MemoryRegion> {
        &self.region
    }

    /// Returns the first `length` bytes as a scatter-gather entry.
    pub(super) fn segment(&self, length: u32) -> ffi::ibv_sge {
        ffi::ibv_sge {
            addr: self.start().as_ptr() as u64,
            length,
            lkey: self.region.local_key,
        }
    }
}

impl Deref for Slot {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: only this slot reaches the bytes, they are initialised, and no device writes while the slot
        // is owned.
        unsafe { std::slice::from_raw_parts(self.start().as_ptr(), self.region.slot_size) }
    }
}

impl DerefMut for Slot {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for deref, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start().as_ptr(), self.region.slot_size) }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.region.free.lock().push(self.index);
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slot({})", self.index)
    }
}
