//! Why libibverbs shows no device, or does not open it: it does not say.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::io::Errno;

use super::Device;
use crate::diagnosis;
use crate::error::Cause;

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
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            format!("{path}: {error}; is the module ib_uverbs loaded? (modprobe ib_uverbs)")
        }
        Err(error) => {
            let errno = error.raw_os_error().unwrap_or(0);
            return Some(diagnosis::open_failed(path.as_ref(), errno));
        }
    };
    Some(Cause::NotSupported(text))
}

/// A device that the kernel has and libibverbs does not show.
struct Hidden {
    name: String,
    /// Its folder below `/sys/class/infiniband_verbs`, if it has one.
    verbs: Option<String>,
}

fn hidden(shown: &[Device]) -> Vec<Hidden> {
    let entries = |folder: &str| {
        let names = fs::read_dir(folder).into_iter().flatten().flatten();
        names
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect::<Vec<_>>()
    };
    let verbs: Vec<(String, String)> = entries(CLASS_VERBS)
        .into_iter()
        .filter_map(|node| {
            let device = fs::read_to_string(format!("{CLASS_VERBS}/{node}/ibdev")).ok()?;
            Some((device.trim().to_owned(), node))
        })
        .collect();
    let mut names = entries(CLASS_DEVICES);
    names.retain(|name| !shown.iter().any(|device| device.name() == name));
    names.sort();
    names
        .into_iter()
        .map(|name| {
            let verbs = verbs.iter().find(|(device, _)| *device == name);
            Hidden {
                verbs: verbs.map(|(_, node)| node.clone()),
                name,
            }
        })
        .collect()
}

impl Hidden {
    fn why(&self) -> String {
        let driver = fs::read_link(format!("{CLASS_DEVICES}/{}/device/driver", self.name)).ok();
        let driver = driver.as_deref().and_then(Path::file_name).map_or_else(
            || "unknown".to_owned(),
            |name| name.to_string_lossy().into_owned(),
        );
        let Some(node) = &self.verbs else {
            return format!(
                "the kernel has {} (driver {driver}), but not for programs: is the module ib_uverbs loaded?",
                self.name
            );
        };
        let file = Path::new(DEVICE_FILES).join(node);
        if !file.exists() {
            return format!(
                "the kernel has {} (driver {driver}), but there is no {}: udev has not made it, or this container was \
                 not given it",
                self.name,
                file.display()
            );
        }
        let version = fs::read_to_string(format!("{CLASS_VERBS}/{node}/abi_version"));
        let version = version.map_or_else(|error| error.to_string(), |text| text.trim().to_owned());
        format!(
            "the kernel has {} (driver {driver}, interface version {version}), but libibverbs has no driver library \
             for it, or none for that version: install rdma-core's (Debian: ibverbs-providers) or the vendor's",
            self.name
        )
    }
}

/// Why there is no device that was looked for: by `name`, if that is known.
pub(super) fn no_device(shown: &[Device], name: Option<&str>) -> Cause {
    let hidden = hidden(shown);
    if let Some(device) = name.and_then(|name| hidden.iter().find(|device| device.name == name)) {
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
    let mut present: Vec<String> = shown.iter().map(ToString::to_string).collect();
    present.extend(
        hidden
            .iter()
            .map(|device| format!("{} (not usable: {})", device.name, device.why())),
    );
    Cause::NoDevice {
        wanted: "such device".to_owned(),
        present,
    }
}

/// Why a device that libibverbs shows was not opened.
pub(super) fn not_opened(device_node: &str, errno: i32) -> Cause {
    let path = Path::new(DEVICE_FILES).join(device_node);
    // libibverbs loses the error number of this very call.
    let file: OwnedFd = match open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
        Ok(file) => file,
        Err(error) => return diagnosis::open_failed(&path, error.raw_os_error()),
    };
    let is_device = fstat(&file)
        .is_ok_and(|status| FileType::from_raw_mode(status.st_mode) == FileType::CharacterDevice);
    let likely = match Errno::from_raw_os_error(errno) {
        _ if !is_device => format!(
            "{} is no device file; something else stands in its place",
            path.display()
        ),
        limit @ (Errno::NOMEM | Errno::AGAIN) => diagnosis::resource_limit(limit),
        Errno::MFILE => diagnosis::descriptor_limit(),
        Errno::NODEV | Errno::IO => "the device is gone, or being reset".to_owned(),
        _ => format!(
            "{} opens, but the device's driver library does not take it: kernel and library do not fit \
             each other",
            path.display()
        ),
    };
    Cause::Io {
        source: io::Error::from_raw_os_error(errno),
        likely,
    }
}
