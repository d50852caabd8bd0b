//! Devices: `man 3 ibv_get_device_list`, `ibv_get_device_name`, `ibv_get_device_guid`.

use std::collections::HashMap;
use std::ffi::{c_char, c_int};
use std::sync::Arc;

use parking_lot::Mutex;

use super::abi::{
    IBV_NODE_CA, IBV_SYSFS_NAME_MAX, IBV_SYSFS_PATH_MAX, IBV_TRANSPORT_IB, ibv_device,
};
use super::fault;
use super::handle::{self, Opaque, null};

#[cfg(feature = "preload")]
use crate::control;
use crate::fabric;
use crate::model::adapter::Adapter;
use crate::report::report;

// SAFETY: programs get devices from `ibv_get_device_list` alone.
unsafe impl Opaque for ibv_device {
    type Rust = Arc<Adapter>;
}

/// Returns the device of an adapter, which is never freed: programs use devices after they freed the list
/// (ibacm does), and expect the same devices in a second list. The key is the adapter's address, since
/// `install` may add others.
fn device_of(adapter: &Arc<Adapter>) -> *mut ibv_device {
    static DEVICES: Mutex<Option<HashMap<usize, usize>>> = Mutex::new(None);
    let mut devices = DEVICES.lock();
    let device = *devices
        .get_or_insert_default()
        .entry(Arc::as_ptr(adapter) as usize)
        .or_insert_with(|| handle::create(describe(adapter), adapter.clone()) as usize);
    device as *mut ibv_device
}

fn describe(adapter: &Adapter) -> ibv_device {
    let name = &adapter.identity().name;
    ibv_device {
        _dummy1: None,
        _dummy2: None,
        node_type: IBV_NODE_CA,
        transport_type: IBV_TRANSPORT_IB,
        name: c_text::<IBV_SYSFS_NAME_MAX>(name),
        dev_name: c_text::<IBV_SYSFS_NAME_MAX>("uverbs0"),
        dev_path: c_text::<IBV_SYSFS_PATH_MAX>("/sys/class/infiniband_verbs/uverbs0"),
        ibdev_path: c_text::<IBV_SYSFS_PATH_MAX>(&format!("/sys/class/infiniband/{name}")),
    }
}

/// Returns a NUL-terminated text in an array, truncated if needed.
pub(super) fn c_text<const N: usize>(text: &str) -> [c_char; N] {
    let mut array = [0; N];
    for (to, from) in array[..N - 1].iter_mut().zip(text.bytes()) {
        *to = from.cast_signed();
    }
    array
}

/// # Safety
/// `count` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device {
    if fault::strikes("ibv_get_device_list") {
        return null(libc::ENOMEM);
    }
    let adapters = match fabric::adapters() {
        Ok(adapters) => adapters,
        Err(error) => {
            report(&error);
            return null(libc::EIO);
        }
    };
    #[cfg(feature = "preload")]
    control::serve_once(&adapters);
    let size = std::mem::size_of::<*mut ibv_device>();
    // SAFETY: calloc takes any sizes.
    let list: *mut *mut ibv_device = unsafe { libc::calloc(adapters.len() + 1, size) }.cast();
    if list.is_null() {
        return null(libc::ENOMEM);
    }
    for (index, adapter) in adapters.iter().enumerate() {
        // SAFETY: the list has room for all adapters and the final NULL.
        unsafe { list.add(index).write(device_of(adapter)) };
    }
    if !count.is_null() {
        // SAFETY: the caller's promise.
        unsafe { count.write(c_int::try_from(adapters.len()).unwrap_or(c_int::MAX)) };
    }
    list
}

/// # Safety
/// `list` is NULL or from [`ibv_get_device_list`], freed once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    // SAFETY: from calloc; free takes NULL.
    unsafe { libc::free(list.cast()) };
}

/// # Safety
/// `device` is NULL or from [`ibv_get_device_list`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    if device.is_null() {
        return null(libc::EINVAL);
    }
    // SAFETY: devices are never freed.
    unsafe { (&raw const (*device).name).cast() }
}

/// Returns the node GUID in network byte order; 0 for NULL.
///
/// # Safety
/// `device` is NULL or from [`ibv_get_device_list`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_guid(device: *mut ibv_device) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { handle::rust(device) }.map_or(0, |adapter| adapter.identity().node_guid.to_be())
}

/// Returns that a device has no kernel index.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_get_device_index(_device: *mut ibv_device) -> c_int {
    -1
}
