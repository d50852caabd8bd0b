//! Memory regions, and copying between them and datagrams.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::RwLock;

/// A segment of a registered region in a work request (`struct ibv_sge`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its start address.
    pub addr: u64,
    /// Its length in bytes.
    pub length: u32,
    /// The key of its region.
    pub lkey: u32,
}

#[derive(Clone, Copy, Debug)]
struct Region {
    addr: u64,
    length: u64,
    local_write: bool,
}

/// A segment is outside its region, its key is unknown, or the region is not writable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("segment of {} bytes at {:#x} is not within a memory region of key {:#x} that allows it", .0.length, .0.addr, .0.lkey)]
pub struct ProtectionError(pub Segment);

/// The memory regions of a protection domain.
#[derive(Debug, Default)]
pub struct MemoryRegions {
    regions: RwLock<HashMap<u32, Region>>,
}

static NEXT_KEY: AtomicU32 = AtomicU32::new(0x100);

impl MemoryRegions {
    /// Registers `length` bytes from `addr` and returns the key.
    ///
    /// # Safety
    /// The memory must be readable, and writable if `local_write`, until the key is deregistered. While
    /// requests with the key are posted, nothing else may write it (or, for receives, read it).
    pub unsafe fn register(&self, addr: u64, length: u64, local_write: bool) -> u32 {
        let key = NEXT_KEY.fetch_add(1, Ordering::Relaxed);
        self.regions.write().insert(
            key,
            Region {
                addr,
                length,
                local_write,
            },
        );
        key
    }

    /// Deregisters a region. Returns false if there is no such key.
    pub fn deregister(&self, key: u32) -> bool {
        self.regions.write().remove(&key).is_some()
    }

    /// Copies the bytes of the segments.
    ///
    /// # Errors
    /// If a segment is outside its region.
    pub fn gather(&self, segments: &[Segment]) -> Result<Vec<u8>, ProtectionError> {
        let regions = self.regions.read();
        let mut bytes = Vec::new();
        for segment in segments.iter().filter(|segment| segment.length > 0) {
            check(&regions, segment, false)?;
            // SAFETY: the segment lies within a registered region, readable by the promise made to `register`.
            bytes.extend_from_slice(unsafe { slice(segment) });
        }
        Ok(bytes)
    }

    /// Writes `bytes` to the segments, which must have enough room. The rest of the segments stays unchanged.
    ///
    /// # Errors
    /// If a segment is not in a writable region; then nothing is written.
    pub fn scatter(&self, segments: &[Segment], bytes: &[u8]) -> Result<(), ProtectionError> {
        let regions = self.regions.read();
        for segment in segments.iter().filter(|segment| segment.length > 0) {
            check(&regions, segment, true)?;
        }
        let mut rest = bytes;
        for segment in segments {
            let (now, later) = rest.split_at(rest.len().min(segment.length as usize));
            if !now.is_empty() {
                // SAFETY: the segment is in a registered region, writable by the promise made to `register`,
                // and `now` is not longer.
                unsafe {
                    std::ptr::copy_nonoverlapping(now.as_ptr(), segment.addr as *mut u8, now.len())
                };
            }
            rest = later;
        }
        Ok(())
    }
}

fn check(
    regions: &HashMap<u32, Region>,
    segment: &Segment,
    write: bool,
) -> Result<(), ProtectionError> {
    let within = |region: &Region| {
        (!write || region.local_write)
            && segment.addr.checked_sub(region.addr).is_some_and(|offset| {
                offset
                    .checked_add(segment.length.into())
                    .is_some_and(|end| end <= region.length)
            })
    };
    if regions.get(&segment.lkey).is_some_and(within) {
        Ok(())
    } else {
        Err(ProtectionError(*segment))
    }
}

/// # Safety
/// The segment is readable for the returned lifetime.
unsafe fn slice(segment: &Segment) -> &[u8] {
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(segment.addr as *const u8, segment.length as usize) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(buffer: &[u8], offset: usize, length: u32, lkey: u32) -> Segment {
        Segment {
            addr: buffer.as_ptr() as u64 + offset as u64,
            length,
            lkey,
        }
    }

    /// # Safety
    /// As for `MemoryRegions::register`.
    unsafe fn register(regions: &MemoryRegions, buffer: &mut [u8], local_write: bool) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { regions.register(buffer.as_mut_ptr() as u64, buffer.len() as u64, local_write) }
    }

    #[test]
    fn gathers_and_scatters_over_segments() {
        let regions = MemoryRegions::default();
        let mut buffer = *b"abcdefgh";
        // SAFETY: the buffer outlives its use through the key.
        let key = unsafe { register(&regions, &mut buffer, true) };
        let parts = [segment(&buffer, 0, 2, key), segment(&buffer, 6, 2, key)];
        assert_eq!(regions.gather(&parts).unwrap(), b"abgh");
        regions.scatter(&parts, b"XYZ").unwrap();
        assert_eq!(&buffer, b"XYcdefZh");
    }

    #[test]
    fn refuses_segments_outside_a_region() {
        let regions = MemoryRegions::default();
        let mut buffer = [0; 8];
        // SAFETY: the buffer outlives its use through the key.
        let key = unsafe { register(&regions, &mut buffer, false) };
        let outside = [
            segment(&buffer, 7, 2, key),
            segment(&buffer, 0, 1, key + 1000),
            Segment {
                addr: buffer.as_ptr() as u64 - 1,
                length: 1,
                lkey: key,
            },
            Segment {
                addr: u64::MAX,
                length: u32::MAX,
                lkey: key,
            },
        ];
        for segment in outside {
            assert_eq!(regions.gather(&[segment]), Err(ProtectionError(segment)));
        }
        let inside = segment(&buffer, 0, 8, key);
        assert_eq!(
            regions.scatter(&[inside], b"x"),
            Err(ProtectionError(inside)),
            "not registered for writing"
        );
        assert!(regions.deregister(key));
        assert!(!regions.deregister(key));
        assert_eq!(regions.gather(&[inside]), Err(ProtectionError(inside)));
    }
}
