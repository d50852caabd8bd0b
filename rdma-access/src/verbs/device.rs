//! The devices that the process can use.

use std::fmt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;

use ibverbs_sys as ffi;

use super::Context;
use super::diagnosis::{self, Mark};
use crate::address::Guid;
use crate::errno::last_errno;
use crate::error::{Cause, Error, Result};
use crate::text;

/// The list of `ibv_get_device_list`, freed when the last device of it is dropped.
struct List(NonNull<*mut ffi::ibv_device>);

// SAFETY: the list is read-only after its creation, and any thread may free it.
unsafe impl Send for List {}
// SAFETY: as above.
unsafe impl Sync for List {}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: from `ibv_get_device_list`, and freed only here; no device of it is left (each holds the
        // list).
        unsafe { ffi::ibv_free_device_list(self.0.as_ptr()) };
    }
}

/// A device, open or not.
///
/// Its data is as of [`devices`]; opening fails if the device was renamed or unplugged since.
#[derive(Clone)]
pub struct Device {
    raw: NonNull<ffi::ibv_device>,
    _list: Arc<List>,
}

// SAFETY: libibverbs writes a device while it makes the list, and counts its users behind a lock; the fields
// read here never change after that.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

/// Lists all devices that have a driver library, in libibverbs' order. An empty list is not an error.
///
/// # Errors
/// [`Cause::NotSupported`] if ib_uverbs is not loaded or has an unknown version; else the error of
/// `ibv_get_device_list`.
pub fn devices() -> Result<Vec<Device>> {
    let mut count = 0;
    // SAFETY: the count is writable.
    let list = unsafe { ffi::ibv_get_device_list(&raw mut count) };
    let Some(list) = NonNull::new(list) else {
        let errno = last_errno();
        return Err(match diagnosis::kernel_side() {
            Some(cause) => Error::new("ibv_get_device_list", "", cause),
            None => Error::errno("ibv_get_device_list", "", errno, ""),
        });
    };
    let holder = Arc::new(List(list));
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: the list has that many devices, none of them NULL, and nothing writes to it.
    let raw = unsafe { std::slice::from_raw_parts(list.as_ptr(), count) };
    let devices = raw.iter().filter_map(|&device| NonNull::new(device));
    Ok(devices
        .map(|raw| Device {
            raw,
            _list: holder.clone(),
        })
        .collect())
}

impl Device {
    /// Finds the device with that name, such as `mlx5_0`.
    ///
    /// # Errors
    /// Those of [`devices`]; [`Cause::NoDevice`] with the names that exist; [`Cause::Unusable`] if only the
    /// kernel has it.
    pub fn by_name(name: &str) -> Result<Self> {
        Self::find(
            "find a device by name",
            &name,
            &Mark::Name(name),
            |device| device.name() == name,
        )
    }

    /// Finds the device with that node GUID.
    ///
    /// # Errors
    /// Those of [`by_name`](Self::by_name); [`Cause::Ambiguous`], because a physical function and its virtual
    /// functions can share a node GUID.
    pub fn by_node_guid(guid: Guid) -> Result<Self> {
        let mark = Mark::NodeGuid(guid);
        Self::find("find a device by node GUID", &guid, &mark, |device| {
            device.node_guid() == guid
        })
    }

    /// Finds the device of a device node, such as `/dev/infiniband/uverbs0`; only the last part of the path is
    /// compared.
    ///
    /// # Errors
    /// Those of [`by_name`](Self::by_name).
    pub fn by_device_node(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let node = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        Self::find(
            "find a device by device node",
            &path.display(),
            &Mark::Node(node.as_deref().unwrap_or_default()),
            |device| Some(device.device_node()) == node.as_deref(),
        )
    }

    fn find(
        operation: &'static str,
        wanted: &dyn fmt::Display,
        mark: &Mark<'_>,
        fits: impl Fn(&Self) -> bool,
    ) -> Result<Self> {
        let all = devices()?;
        let mut fitting: Vec<&Self> = all.iter().filter(|device| fits(device)).collect();
        let cause = match (fitting.pop(), fitting.is_empty()) {
            (Some(only), true) => return Ok(only.clone()),
            (Some(_), false) => {
                let fitting = all.iter().filter(|device| fits(device));
                Cause::Ambiguous {
                    fitting: fitting.map(|device| device.name().to_owned()).collect(),
                }
            }
            (None, _) => diagnosis::no_device(&all, mark),
        };
        Err(Error::new(operation, wanted, cause))
    }

    /// Returns the kernel's name of the device, such as `mlx5_0`.
    pub fn name(&self) -> &str {
        // SAFETY: the device lives as long as its list, and its texts do not change.
        text::of_array(unsafe { &(*self.raw.as_ptr()).name })
    }

    /// Returns the name of its file in `/dev/infiniband`, such as `uverbs0`.
    pub fn device_node(&self) -> &str {
        // SAFETY: as for the name.
        text::of_array(unsafe { &(*self.raw.as_ptr()).dev_name })
    }

    /// Returns its folder below `/sys/class/infiniband`.
    pub fn sysfs_path(&self) -> &Path {
        // SAFETY: as for the name.
        Path::new(text::of_array(unsafe { &(*self.raw.as_ptr()).ibdev_path }))
    }

    /// Returns the node GUID; 0 if the kernel has none.
    pub fn node_guid(&self) -> Guid {
        // SAFETY: the device lives as long as its list.
        Guid(u64::from_be(unsafe {
            ffi::ibv_get_device_guid(self.raw.as_ptr())
        }))
    }

    /// Opens the device as a new context.
    ///
    /// # Errors
    /// [`Cause::Io`] with the error number of the failed step, determined again because libibverbs loses it,
    /// and the likely cause: no file in `/dev/infiniband`, no permission (with the file's owner and mode, and
    /// this process's user and groups), no free descriptor, a limit of the control group, too little lockable
    /// memory, or a driver library that does not fit the kernel.
    pub fn open(&self) -> Result<Context> {
        // SAFETY: the device lives as long as its list, which `self` holds.
        unsafe { Context::open(self.raw.as_ptr()) }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} ({}, node GUID {})",
            self.name(),
            self.device_node(),
            self.node_guid()
        )
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({self})")
    }
}
