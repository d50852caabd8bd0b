//! Why libibverbs shows no device, or does not open it: it does not say.

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
/// Versions of the kernel's interface that libibverbs knows (its kern-abi.h, since 2007).
const ABI_VERSIONS: std::ops::RangeInclusive<u32> = 3..=6;

/// What is wrong with the whole of the kernel's side; `None` if nothing is.
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

/// What a device is looked for by.
pub(crate) enum Mark<'a> {
    Name(&'a str),
    NodeGuid(Guid),
    /// The name of its file, such as `uverbs0`.
    Node(&'a str),
}

/// A device that the kernel has and libibverbs does not show.
struct Hidden {
    name: String,
    /// Its folder below `/sys/class/infiniband_verbs`, if it has one; or what cannot be read of those that there are.
    verbs: Result<Option<String>, String>,
    /// The name under which libibverbs shows it after all: the one that it had when this process first listed devices.
    shown_as: Option<String>,
}

/// The entries of a folder of sysfs. One that is missing has none.
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

/// The verbs folder of a device, if it has one.
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
            Err(error) => unreadable = Some(format!("{} cannot be read: {error}", file.display())),
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
                "{known}), but libibverbs keeps to the name that it had when this process first listed devices, {old}: ask \
                 for that one, or start the process anew"
            );
        }
        let node = match &self.verbs {
            Ok(Some(node)) => node,
            Ok(None) => return format!("{known}), but {}", without_node()),
            Err(why) => return format!("{known}), but which file is its is unknown: {why}"),
        };
        let file = Path::new(DEVICE_FILES).join(node);
        // libibverbs asks for the file's status, and leaves out the device if it gets none.
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
        // The kernel does not list a device to network namespaces other than its own.
        if let Err(cause) = file_of(node)
            && cause.raw_os_error() == Some(Errno::PERM.raw_os_error())
        {
            return format!("{known}), but {} cannot be opened: {cause}", file.display());
        }
        let version_file = format!("{CLASS_VERBS}/{node}/abi_version");
        let version = match fs::read_to_string(&version_file) {
            Ok(version) => version.trim().to_owned(),
            Err(error) => return format!("{known}), but {version_file} cannot be read: {error}"),
        };
        format!(
            "{known}, interface version {version}, file {}), but libibverbs has no driver library for it, or none for \
             that version: install rdma-core's (Debian: ibverbs-providers) or the vendor's. One that was installed \
             after this process first listed devices is not loaded until the process starts anew; IBV_SHOW_WARNINGS=1 in \
             its environment shows more",
            file.display()
        )
    }
}

/// Why a device has no file for programs.
fn without_node() -> String {
    let path = format!("{CLASS_VERBS}/abi_version");
    match fs::read_to_string(&path) {
        // It is loaded, and serves others.
        Ok(_) => {
            format!("its driver offers it to the kernel alone: nothing in {CLASS_VERBS} names it")
        }
        Err(error) => diagnosis::class_unreadable(&path, &error, "ib_uverbs").to_string(),
    }
}

/// Why there is no device that was looked for.
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

/// Why libibverbs shows no device at all, which others that are built on it do not say.
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

/// Why a device that libibverbs shows was not opened.
pub(super) fn not_opened(device: &str, device_node: &str, errno: i32) -> Cause {
    let path = Path::new(DEVICE_FILES).join(device_node);
    // libibverbs loses the error number of this very call.
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
        (_, None, _) => format!(
            "{} is no device file; something else stands in its place",
            path.display()
        ),
        (_, Some(number), Some(kernels)) if number != kernels.trim() => format!(
            "{} is another device, {number}, than the kernel's {device_node}, {}: whoever made it took a wrong number",
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
             be in a reset, or on its way out",
            path.display()
        ),
        _ => format!(
            "{} opens, so it is not a matter of rights: the device's driver library gave up after that, kernel and library \
             may not fit each other",
            path.display()
        ),
    };
    Cause::Io {
        source: io::Error::from_raw_os_error(errno),
        likely,
    }
}

fn gone(device_node: &str) -> String {
    format!("the device is gone: there is no {CLASS_VERBS}/{device_node} any more")
}

/// Whether the kernel has the device still. Other than its name, that of its file stays.
fn has_folder(device_node: &str) -> bool {
    Path::new(CLASS_VERBS).join(device_node).exists()
}

/// Why a device that the kernel has, by its name, cannot be used by a library that opens it by libibverbs; `None` if it can.
pub(crate) fn unusable(name: &str) -> Option<Cause> {
    let device = match Device::by_name(name) {
        Ok(device) => device,
        Err(error) => return Some(error.into_cause()),
    };
    // libibverbs tries for seconds to open a file that does not.
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
