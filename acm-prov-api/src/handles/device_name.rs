//! The kernel's name of a device, out of libibverbs' own structures.

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::abi::ibv_context;

/// The beginning of libibverbs' `struct ibv_context` (verbs.h), the same in all its releases.
#[repr(C)]
struct Context {
    device: *const Device,
}

/// The beginning of `struct ibv_device`.
#[repr(C)]
struct Device {
    operations: [*const c_void; 2],
    node_type: c_int,
    transport_type: c_int,
    name: [c_char; 64],
}

/// The kernel's name of the device that a context was opened on, such as `mlx5_0`. Copied: the device is libibverbs' own,
/// and may go with its last context.
///
/// # Safety
/// `context` is NULL or an open context of libibverbs.
pub(super) unsafe fn device_name(context: *const ibv_context) -> Option<String> {
    // SAFETY: the caller's promise; an open context keeps its device alive.
    let device = unsafe { context.cast::<Context>().as_ref()?.device.as_ref()? };
    // SAFETY: C's characters are bytes.
    let name = unsafe { &*(&raw const device.name).cast::<[u8; 64]>() };
    let name = CStr::from_bytes_until_nul(name).ok()?;
    Some(name.to_str().ok()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_that_of_the_contexts_device() {
        let name = |text: &[u8]| {
            let mut device = Device {
                operations: [std::ptr::null(); 2],
                node_type: 1,
                transport_type: 0,
                name: [0x41; 64],
            };
            for (to, from) in device.name.iter_mut().zip(text) {
                *to = from.cast_signed() as c_char;
            }
            let context = Context { device: &device };
            // SAFETY: a context with a device, as far as both are read.
            unsafe { device_name((&raw const context).cast()) }
        };
        assert_eq!(name(b"mlx5_0\0").as_deref(), Some("mlx5_0"));
        assert_eq!(name(b"\xff\0"), None);
        assert_eq!(name(b"it goes on"), None, "no end within the field");
        let no_device = Context {
            device: std::ptr::null(),
        };
        // SAFETY: NULL, and a context without a device.
        unsafe {
            assert_eq!(device_name(std::ptr::null()), None);
            assert_eq!(device_name((&raw const no_device).cast()), None);
        }
    }

    /// Compared with verbs.h by `tests/layout`.
    #[test]
    fn the_mirror_is_where_c_has_it() {
        assert_eq!(std::mem::offset_of!(Context, device), 0);
        assert_eq!(
            std::mem::offset_of!(Device, name),
            2 * size_of::<usize>() + 8
        );
    }
}
