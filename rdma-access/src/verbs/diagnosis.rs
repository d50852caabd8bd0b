//! Finds out why libibverbs lists no device, or cannot open one; it does not say why.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, fstat, major, minor, open};
use rustix::io::Errno;

use super::Device;
use crate::address::Guid;
use crate::diagnosis;
use crate::error::{Cause, Error};

const CLASS_VERBS: &str = "/sys/class/infiniband_verbs";
const CLASS_DEVICES: &str = "/sys/class/infiniband";
const DEVICE_FILES: &str = "/dev/infiniband";
/// Versions of the kernel's interface that libibverbs supports (its kern-abi.h, since 2007).
const ABI_VERSIONS: std::ops::RangeInclusive<u32> = 3..=6;

/// Returns what is wrong with the kernel's RDMA support as a whole, if anything.
pub(super) fn kernel_side() -> Option<Cause> {
    let path = format!("{CLASS_VERBS}/abi_version");
    let text = match fs::read_to_string(&path) {
        Ok(version) => match version.trim().parse::<u32>() {
            Ok(number) if ABI_VERSIONS.contains(&number) => return None,
            _ => format!(
                "the kernel's ib_uverbs has interface version {}, libibverbs knows {} to {}",
                version.trim(),
                ABI_VERSIONS.start(),
                ABI_VERSIONS.end()
            ),
        },
        Err(error) => return Some(diagnosis::class_unreadable(&path, &error, "ib_uverbs")),
    };
    Some(Cause::NotSupported(text))
}

/// The key of a device lookup.
pub(crate) enum Mark<'a> {
    Name(&'a str),
    NodeGuid(Guid),
    /// The name of its file, such as `uverbs0`.
    Node(&'a str),
}

/// A device that the kernel has and libibverbs does not list.
struct Hidden {
    name: String,
    /// Its folder below `/sys/class/infiniband_verbs`, if it has one; an error if some could not be read.
    verbs: Result<Option<String>, String>,
    /// The name under which libibverbs lists it: its name when this process first listed devices.
    shown_as: Option<String>,
}

/// Returns the entries of a sysfs folder; none if it does not exist.
fn entries(folder: &str) -> Result<Vec<String>, Cause> {
    match fs::read_dir(folder) {
        Ok(entries) => {
            let names = entries.flatten().map(|entry| entry.file_name());
            let mut names: Vec<_> = names
                .map(|name| name.to_string_lossy().into_owned())
                .collect();
            names.sort();
            Ok(names)
        }
        Err(error)
            if error.kind() == io::ErrorKind::NotFound && Path::new("/sys/class").exists() =>
        {
            Ok(Vec::new())
        }
        Err(error) => Err(diagnosis::class_unreadable(folder, &error, "ib_core")),
    }
}

/// Returns the verbs folder of a device, if it has one.
fn verbs_of(name: &str) -> Result<Option<String>, String> {
    let mut unreadable = None;
    for node in entries(CLASS_VERBS).map_err(|cause| cause.to_string())? {
        let folder = Path::new(CLASS_VERBS).join(&node);
        if !folder.is_dir() {
            continue;
        }
        let file = folder.join("ibdev");
        match fs::read_to_string(&file) {
            Ok(device) if device.trim() == name => return Ok(Some(node)),
            Ok(_) => {}
            Err(error) => unreadable = Some(format!("cannot read {}: {error}", file.display())),
        }
    }
    unreadable.map_or(Ok(None), Err)
}

fn hidden(shown: &[Device]) -> Result<Vec<Hidden>, Cause> {
    let mut names = entries(CLASS_DEVICES)?;
    names.retain(|name| !shown.iter().any(|device| device.name() == name));
    let hidden = names.into_iter().map(|name| {
        let verbs = verbs_of(&name);
        let is_its =
            |device: &&Device| matches!(&verbs, Ok(Some(node)) if node == device.device_node());
        Hidden {
            shown_as: shown
                .iter()
                .find(is_its)
                .map(|device| device.name().to_owned()),
            verbs,
            name,
        }
    });
    Ok(hidden.collect())
}

impl Hidden {
    fn has(&self, mark: &Mark<'_>) -> bool {
        match mark {
            Mark::Name(name) => self.name == *name,
            Mark::Node(node) => matches!(&self.verbs, Ok(Some(own)) if own == node),
            Mark::NodeGuid(guid) => {
                let text = fs::read_to_string(format!("{CLASS_DEVICES}/{}/node_guid", self.name));
                let digits = text.unwrap_or_default().trim().replace(':', "");
                u64::from_str_radix(&digits, 16) == Ok(guid.0)
            }
        }
    }

    fn why(&self) -> String {
        let driver = fs::read_link(format!("{CLASS_DEVICES}/{}/device/driver", self.name)).ok();
        let driver = driver.as_deref().and_then(Path::file_name).map_or_else(
            || "unknown".to_owned(),
            |name| name.to_string_lossy().into_owned(),
        );
        let known = format!("the kernel has {} (driver {driver}", self.name);
        if let Some(old) = &self.shown_as {
            return format!(
                "{known}), but libibverbs keeps its name from when this process first listed devices, {old}: use that \
                 name, or restart the process"
            );
        }
        let node = match &self.verbs {
            Ok(Some(node)) => node,
            Ok(None) => return format!("{known}), but {}", without_node()),
            Err(why) => {
                return format!("{known}), but its device file cannot be determined: {why}");
            }
        };
        let file = Path::new(DEVICE_FILES).join(node);
        // libibverbs reads the file's status, and omits the device if that fails.
        if let Err(error) = fs::metadata(&file) {
            let why = match error.kind() {
                io::ErrorKind::NotFound => diagnosis::absent(&file),
                _ => {
                    let errno = error.raw_os_error().unwrap_or(0);
                    diagnosis::open_failed(&file, errno).to_string()
                }
            };
            return format!("{known}), but {why}");
        }
        // The kernel hides a device from network namespaces other than its own.
        if let Err(cause) = file_of(node)
            && cause.raw_os_error() == Some(Errno::PERM.raw_os_error())
        {
            return format!("{known}), but opening {} fails: {cause}", file.display());
        }
        let version_file = format!("{CLASS_VERBS}/{node}/abi_version");
        let version = match fs::read_to_string(&version_file) {
            Ok(version) => version.trim().to_owned(),
            Err(error) => return format!("{known}), but reading {version_file} fails: {error}"),
        };
        format!(
            "{known}, interface version {version}, file {}), but libibverbs has no driver library for it, or none for \
             that version: install rdma-core's (Debian: ibverbs-providers) or the vendor's. One that was installed \
             after this process first listed devices is loaded only after a restart of the process; IBV_SHOW_WARNINGS=1 in \
             its environment shows more",
            file.display()
        )
    }
}

/// Returns why a device has no file for programs.
fn without_node() -> String {
    let path = format!("{CLASS_VERBS}/abi_version");
    match fs::read_to_string(&path) {
        // ib_uverbs is loaded, and serves other devices.
        Ok(_) => {
            format!("its driver offers it only to the kernel: nothing in {CLASS_VERBS} names it")
        }
        Err(error) => diagnosis::class_unreadable(&path, &error, "ib_uverbs").to_string(),
    }
}

/// Returns why a lookup found no device.
pub(crate) fn no_device(shown: &[Device], mark: &Mark<'_>) -> Cause {
    let hidden = match hidden(shown) {
        Ok(hidden) => hidden,
        Err(cause) => return cause,
    };
    if let Some(device) = hidden.iter().find(|device| device.has(mark)) {
        return Cause::Unusable {
            device: device.name.clone(),
            why: device.why(),
        };
    }
    if shown.is_empty()
        && let Some(cause) = kernel_side()
    {
        return cause;
    }
    Cause::NoDevice {
        wanted: "such device".to_owned(),
        present: listed(shown, &hidden),
    }
}

/// Returns why there is no usable device at all; libraries built on libibverbs do not say.
pub(crate) fn none_shown() -> Cause {
    let shown = match super::devices() {
        Ok(shown) => shown,
        Err(error) => return error.into_cause(),
    };
    let hidden = match hidden(&shown) {
        Ok(hidden) => hidden,
        Err(cause) => return cause,
    };
    match (&shown[..], &hidden[..]) {
        ([], []) => kernel_side().unwrap_or(Cause::NoDevice {
            wanted: "RDMA device".to_owned(),
            present: Vec::new(),
        }),
        _ => Cause::NoDevice {
            wanted: "RDMA device that libibverbs can use".to_owned(),
            present: listed(&shown, &hidden),
        },
    }
}

fn listed(shown: &[Device], hidden: &[Hidden]) -> Vec<String> {
    let mut present: Vec<String> = shown.iter().map(ToString::to_string).collect();
    present.extend(
        hidden
            .iter()
            .map(|device| format!("{} (not usable: {})", device.name, device.why())),
    );
    present
}

/// Returns why a device that libibverbs lists did not open.
pub(super) fn not_opened(device: &str, device_node: &str, errno: i32) -> Cause {
    let path = Path::new(DEVICE_FILES).join(device_node);
    // libibverbs loses the error number of opening this file.
    let file = match file_of(device_node) {
        Ok(file) => file,
        Err(cause) => return cause,
    };
    let number = fstat(&file).ok().and_then(|status| {
        let is_device = FileType::from_raw_mode(status.st_mode) == FileType::CharacterDevice;
        is_device.then(|| format!("{}:{}", major(status.st_rdev), minor(status.st_rdev)))
    });
    let kernels = fs::read_to_string(format!("{CLASS_VERBS}/{device_node}/dev")).ok();
    let likely = match (Errno::from_raw_os_error(errno), number, kernels) {
        (_, None, _) => format!("{} is not a device file", path.display()),
        (_, Some(number), Some(kernels)) if number != kernels.trim() => format!(
            "{} has device number {number}, but the kernel's {device_node} has {}: create the file with the right number",
            path.display(),
            kernels.trim()
        ),
        _ if !has_folder(device_node) => gone(device_node),
        (limit @ (Errno::NOMEM | Errno::AGAIN), ..) => {
            diagnosis::resource_limit(limit, device, None)
        }
        (Errno::MFILE, ..) => diagnosis::descriptor_limit(),
        (Errno::NODEV | Errno::IO, ..) => format!(
            "{} opens and {CLASS_VERBS}/{device_node} is there, but the device's driver library could not start it: it may \
             be resetting or being removed",
            path.display()
        ),
        _ => format!(
            "{} opens, so permissions are not the cause: the device's driver library failed afterwards; kernel and library \
             may not match",
            path.display()
        ),
    };
    Cause::Io {
        source: io::Error::from_raw_os_error(errno),
        likely,
    }
}

fn gone(device_node: &str) -> String {
    format!("the device was removed: {CLASS_VERBS}/{device_node} no longer exists")
}

/// Returns whether the kernel still has the device. Unlike the device's name, its file's name never changes.
fn has_folder(device_node: &str) -> bool {
    Path::new(CLASS_VERBS).join(device_node).exists()
}

/// Returns why a device that the kernel has by that name cannot be used by a library on libibverbs; `None` if
/// it can.
pub(crate) fn unusable(name: &str) -> Option<Cause> {
    let device = match Device::by_name(name) {
        Ok(device) => device,
        Err(error) => return Some(error.into_cause()),
    };
    // libibverbs retries for seconds if the file does not open, so try the file first.
    file_of(device.device_node())
        .err()
        .or_else(|| device.open().err().map(Error::into_cause))
}

/// Opens a device's file, as libibverbs does.
fn file_of(device_node: &str) -> Result<OwnedFd, Cause> {
    let path = Path::new(DEVICE_FILES).join(device_node);
    open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(|error| match error {
        Errno::NOENT | Errno::NXIO | Errno::NODEV | Errno::IO if !has_folder(device_node) => {
            Cause::Io {
                source: error.into(),
                likely: gone(device_node),
            }
        }
        _ => diagnosis::open_failed(&path, error.raw_os_error()),
    })
}
