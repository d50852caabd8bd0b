//! An open port.

use std::ffi::{CString, c_int, c_void};
use std::fmt;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::ffi::{ABI_VERSION, CA_NAME_LENGTH, Functions};
use super::packet::{Buffer, Received};
use super::select::{self, Purpose, select};
use super::sysfs::{self, CLASS_MADS, MadFile};
use super::{Umad, UmadDevice, UmadPort};
use crate::diagnosis;
use crate::errno::last_errno;
use crate::error::{Cause, Error, Result};
use crate::library::image_of;

/// Length of an unsegmented MAD.
pub(super) const MAD_LENGTH: usize = 256;
/// Maximum length of a received MAD; a longer one is the sender's error.
const LONGEST: usize = 1 << 26;
/// Every libibumad searches at least umad0 to umad63. None reports its limit; this is the smallest limit of the
/// tested versions.
const LEAST_FILES: u32 = 64;

/// A port opened for MADs. Dropping the port and all its agents closes it.
pub struct Port {
    pub(super) functions: Arc<Functions>,
    pub(super) id: c_int,
    /// Number of agents registered on it.
    pub(super) agents: AtomicU32,
    device: String,
    number: u8,
}

impl Umad {
    /// Opens a port (`umad_open_port(3)`), choosing what is `None`; port 0 means `None` as well.
    ///
    /// # Errors
    /// [`Cause::NotSupported`]: ib_umad is not loaded, or too old. [`Cause::NoDevice`]: no port fits.
    /// [`Cause::Invalid`]: the port does not exist or has no file. [`Cause::Unusable`]: libibumad does not find
    /// it though the kernel has it, or sysfs files cannot be read. [`Cause::Io`]: opening the file failed.
    pub fn open_port(&self, device: Option<&str>, port: Option<u8>) -> Result<Port> {
        self.open("umad_open_port", device, port, Purpose::Any)
    }

    /// Opens a port for subnet management packets (`umad_open_smi_port(3)`), choosing what is `None` among the
    /// ports that support them.
    ///
    /// # Errors
    /// Those of [`open_port`](Self::open_port); [`Cause::Invalid`] also for a named port without an SMI.
    pub fn open_smi_port(&self, device: Option<&str>, port: Option<u8>) -> Result<Port> {
        self.open("umad_open_smi_port", device, port, Purpose::Smi)
    }

    fn open(
        &self,
        operation: &'static str,
        device: Option<&str>,
        port: Option<u8>,
        purpose: Purpose,
    ) -> Result<Port> {
        // 0 is UMAD_ANY_PORT; a switch has only port 0.
        let port = port.filter(|&number| number != 0);
        let inputs = format!("{}, {}", device.unwrap_or("any device"), shown_port(port));
        let fault = |cause| Error::new(operation, &inputs, cause);
        let devices = self.devices();
        let (name, number) = match select(&devices, device, port, purpose) {
            Ok(selected) => selected,
            // Without ib_umad no device is listed, so report that first.
            Err(cause) => {
                let hidden = || device.and_then(|name| not_listed(name, &devices));
                let cause = self.unsupported().or_else(hidden).unwrap_or(cause);
                return Err(fault(cause));
            }
        };
        let Ok(c_name) = CString::new(name.as_str()) else {
            return Err(fault(Cause::Invalid(
                "a device's name must not contain a NUL".to_owned(),
            )));
        };
        let functions = &self.functions;
        let open = match purpose {
            Purpose::Smi => functions.open_smi_port.unwrap_or(functions.open_port),
            Purpose::Any => functions.open_port,
        };
        // SAFETY: the name ends in NUL.
        let id = unsafe { open(c_name.as_ptr(), number.into()) };
        if id < 0 {
            let errno = last_errno();
            return Err(fault(self.open_fault(id, errno, &name, number, &devices)));
        }
        Ok(Port {
            functions: functions.clone(),
            id,
            agents: AtomicU32::new(0),
            device: name,
            number,
        })
    }

    /// Returns the cause if libibumad rejects the kernel's ib_umad. libibumad remembers its first check.
    fn unsupported(&self) -> Option<Cause> {
        // No device has an empty name; libibumad checks the version before the name.
        // SAFETY: the name ends in NUL.
        let id = unsafe { (self.functions.open_port)(c"".as_ptr(), 1) };
        (id == -Errno::OPNOTSUPP.raw_os_error()).then(kernel_side)
    }

    /// Explains a negative return value of `umad_open_port`.
    fn open_fault(
        &self,
        returned: c_int,
        errno: i32,
        name: &str,
        number: u8,
        devices: &[UmadDevice],
    ) -> Cause {
        match Errno::from_raw_os_error(-returned) {
            Errno::OPNOTSUPP => kernel_side(),
            Errno::NODEV => Cause::NoDevice {
                wanted: format!("device {name} with port {number}"),
                present: devices.iter().map(|device| device.name.clone()).collect(),
            },
            Errno::INVAL => self.not_found(name, number, devices),
            _ => match sysfs::mad_file(name, number) {
                MadFile::Found(path, _) => diagnosis::open_failed(&path, errno),
                MadFile::None | MadFile::Unknown(_) => Cause::Io {
                    source: std::io::Error::from_raw_os_error(errno),
                    likely: String::new(),
                },
            },
        }
    }

    /// Returns why libibumad finds no file for a port.
    fn not_found(&self, name: &str, number: u8, devices: &[UmadDevice]) -> Cause {
        let Some(device) = devices.iter().find(|device| device.name == name) else {
            return not_listed(name, devices).unwrap_or_else(|| select::absent(devices, name));
        };
        let unusable = |why| Cause::Unusable {
            device: name.to_owned(),
            why,
        };
        match sysfs::mad_file(name, number) {
            MadFile::Found(file, _) if name.len() >= CA_NAME_LENGTH => unusable(format!(
                "libibumad compares only {} characters of a device's name, and {name} has more, so it does not find {}: give the \
                 device a shorter name (rdma dev set {name} name ...)",
                CA_NAME_LENGTH - 1,
                file.display()
            )),
            MadFile::Found(file, Some(index)) if index >= LEAST_FILES => unusable(format!(
                "libibumad did not find {}, which {CLASS_MADS} names for port {number} of {name}. It may not search that far: \
                 rdma-core 44 and 56 search umad0 to umad63, 65 up to umad191; the file of this libibumad is {}",
                file.display(),
                self.file()
            )),
            MadFile::Found(file, _) => unusable(format!(
                "libibumad did not find {}, which {CLASS_MADS} names for port {number} of {name}; the file may be new: \
                 try again",
                file.display()
            )),
            MadFile::Unknown(file) => unusable(format!(
                "cannot determine the file of port {number} of {name}: {file}"
            )),
            MadFile::None if !device.ports.iter().any(|port| port.number == number) => {
                select::missing_port(device, number)
            }
            MadFile::None => Cause::Invalid(format!(
                "the kernel offers no MADs on port {number} of {name} (nothing in {CLASS_MADS} names it)"
            )),
        }
    }

    /// Returns the file of the loaded libibumad; its name contains the version.
    fn file(&self) -> String {
        let image = image_of(self.functions.open_port as *const c_void);
        let file = image.map(|image| image.file).unwrap_or_default();
        let whole = std::fs::canonicalize(&file).unwrap_or_else(|_| file.into());
        whole.display().to_string()
    }
}

/// Returns why libibumad does not list a device that the kernel has; `None` if it does, or if there is none.
fn not_listed(name: &str, devices: &[UmadDevice]) -> Option<Cause> {
    if devices.iter().any(|device| device.name == name) {
        return None;
    }
    sysfs::why_not_listed(name).map(|why| Cause::Unusable {
        device: name.to_owned(),
        why,
    })
}

fn shown_port(port: Option<u8>) -> impl fmt::Display {
    fmt::from_fn(move |f| match port {
        Some(number) => write!(f, "port {number}"),
        None => f.write_str("any port"),
    })
}

/// Returns why libibumad rejects the kernel's ib_umad.
fn kernel_side() -> Cause {
    let path = format!("{CLASS_MADS}/abi_version");
    let text = match std::fs::read_to_string(&path) {
        Ok(version)
            if version
                .trim()
                .parse()
                .is_ok_and(|version: u32| version >= ABI_VERSION) =>
        {
            // libibumad reads the version only once, even if that fails.
            "libibumad failed to read ib_umad's version at its first try, and does not try again; restart the \
             process"
                .to_owned()
        }
        Ok(version) => format!(
            "the kernel's ib_umad has interface version {}, libibumad needs {ABI_VERSION} or later",
            version.trim()
        ),
        Err(error) => return diagnosis::class_unreadable(&path, &error, "ib_umad"),
    };
    Cause::NotSupported(text)
}

impl Port {
    /// Returns the device's name.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// Returns the port's number.
    pub fn number(&self) -> u8 {
        self.number
    }

    /// Reads the port's current attributes; `None` if they cannot be read.
    pub(super) fn look(&self) -> Option<UmadPort> {
        let umad = Umad {
            functions: self.functions.clone(),
        };
        let name = CString::new(self.device.as_str()).ok()?;
        let mut ports = umad.device(&name).ports;
        ports.retain(|port| port.number == self.number);
        ports.pop()
    }

    /// Returns the descriptor to poll (`umad_get_fd(3)`), open as long as the port.
    ///
    /// Poll it by the C library: in a simulation that replaces C library functions, it is not a kernel
    /// descriptor.
    pub fn raw_fd(&self) -> RawFd {
        // SAFETY: the port is open.
        unsafe { (self.functions.get_fd)(self.id) }
    }

    /// Receives the next packet, for whichever agent; `None` if none arrives within `timeout` (`None`: wait
    /// without limit).
    ///
    /// # Errors
    /// The error of `umad_recv`: EIO if the device was removed.
    pub fn receive(&self, timeout: Option<Duration>) -> Result<Option<Received>> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut buffer = Buffer::new(MAD_LENGTH);
        loop {
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            let wait = left.map_or(-1, milliseconds);
            let mut length = c_int::try_from(buffer.capacity()).unwrap_or(c_int::MAX);
            // SAFETY: the port is open; a MAD of that length fits after the header.
            let agent = unsafe {
                (self.functions.receive)(self.id, buffer.as_mut_ptr(), &raw mut length, wait)
            };
            let errno = last_errno();
            let length = usize::try_from(length).unwrap_or(0);
            if agent >= 0 {
                return Ok(Some(buffer.received(&self.functions, length)));
            }
            match Errno::from_raw_os_error(errno) {
                Errno::TIMEDOUT => return Ok(None),
                // A signal, or another thread took the packet.
                Errno::AGAIN | Errno::INTR if left.is_some_and(|left| left.is_zero()) => {
                    return Ok(None);
                }
                Errno::AGAIN | Errno::INTR => {}
                // The packet stays in the kernel, which reported its length.
                Errno::NOSPC if (buffer.capacity() + 1..=LONGEST).contains(&length) => {
                    buffer = Buffer::new(length);
                }
                _ => return Err(self.fault("umad_recv", "", errno, "")),
            }
        }
    }

    /// Closes the port; the kernel then ends its agents. Returns the port if an agent still holds it.
    pub fn close(self: Arc<Self>) -> Result<(), Arc<Self>> {
        Arc::try_unwrap(self).map(drop)
    }

    pub(super) fn fault(
        &self,
        operation: &'static str,
        inputs: impl fmt::Display,
        errno: i32,
        likely: &str,
    ) -> Error {
        let separator = if inputs.to_string().is_empty() {
            ""
        } else {
            ", "
        };
        let inputs = format_args!("{} port {}{separator}{inputs}", self.device, self.number);
        Error::errno(operation, inputs, errno, likely)
    }
}

/// Converts to whole milliseconds, rounded up, for C.
pub(super) fn milliseconds(duration: Duration) -> c_int {
    c_int::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX)
}

impl Drop for Port {
    fn drop(&mut self) {
        // Closes a descriptor, which cannot fail.
        // SAFETY: opened by `umad_open_port`, and not used any more.
        unsafe { (self.functions.close_port)(self.id) };
    }
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Port({} port {})", self.device, self.number)
    }
}
