//! The devices that the process can see.

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

// SAFETY: the list is not written after it was made, and freeing it is bound to no thread.
unsafe impl Send for List {}
// SAFETY: as above.
unsafe impl Sync for List {}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: from `ibv_get_device_list`, freed nowhere else; no device of it is left (each holds the list).
        unsafe { ffi::ibv_free_device_list(self.0.as_ptr()) };
    }
}

/// A device, opened or not.
///
/// What it tells is as of [`devices`]; a device that was renamed or unplugged since then fails to open.
#[derive(Clone)]
pub struct Device {
    raw: NonNull<ffi::ibv_device>,
    _list: Arc<List>,
}

// SAFETY: libibverbs writes a device while it makes the list and counts its users behind a lock; the fields read here
// never change after that.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

/// All devices for which there is a driver library, in the order of libibverbs. None at all is no error.
///
/// # Errors
/// [`Cause::NotSupported`] if ib_uverbs is not loaded or of another version; else what `ibv_get_device_list` fails with.
pub fn devices() -> Result<Vec<Device>> {
    let mut count = 0;
    // SAFETY: the count may be written.
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
    // SAFETY: the list has that many devices, none of them NULL, and is not written any more.
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
    /// The device of that name, such as `mlx5_0`.
    ///
    /// # Errors
    /// Those of [`devices`]; [`Cause::NoDevice`] with the names that there are; [`Cause::Unusable`] if the kernel has it
    /// and libibverbs does not.
    pub fn by_name(name: &str) -> Result<Self> {
        Self::find(
            "find a device by name",
            &name,
            &Mark::Name(name),
            |device| device.name() == name,
        )
    }

    /// The device with that node GUID.
    ///
    /// # Errors
    /// Those of [`by_name`](Self::by_name), or [`Cause::Ambiguous`]: a physical function and its virtual ones can share a node GUID.
    pub fn by_node_guid(guid: Guid) -> Result<Self> {
        let mark = Mark::NodeGuid(guid);
        Self::find("find a device by node GUID", &guid, &mark, |device| {
            device.node_guid() == guid
        })
    }

    /// The device behind a device node, such as `/dev/infiniband/uverbs0`; the last part of the path is enough.
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

    /// The kernel's name for it, such as `mlx5_0`.
    pub fn name(&self) -> &str {
        // SAFETY: the device lives as long as its list, and its texts do not change.
        text::of_array(unsafe { &(*self.raw.as_ptr()).name })
    }

    /// Name of its file in `/dev/infiniband`, such as `uverbs0`.
    pub fn device_node(&self) -> &str {
        // SAFETY: as for the name.
        text::of_array(unsafe { &(*self.raw.as_ptr()).dev_name })
    }

    /// Its folder below `/sys/class/infiniband`.
    pub fn sysfs_path(&self) -> &Path {
        // SAFETY: as for the name.
        Path::new(text::of_array(unsafe { &(*self.raw.as_ptr()).ibdev_path }))
    }

    /// The node GUID; 0 if the kernel has none for it.
    pub fn node_guid(&self) -> Guid {
        // SAFETY: the device lives as long as its list.
        Guid(u64::from_be(unsafe {
            ffi::ibv_get_device_guid(self.raw.as_ptr())
        }))
    }

    /// Opens a context of its own.
    ///
    /// # Errors
    /// [`Cause::Io`] with the error number of what failed, found anew since libibverbs loses it, and its likely cause: no
    /// file in `/dev/infiniband`, no permission (whose file, which user and groups), no descriptor left, a limit of its
    /// control group, too little memory to lock, or a kernel that the driver library does not fit.
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
