//! Management datagrams: `umad_open_port(3)`, `umad_open_smi_port(3)`, `umad_register(3)`, `umad_send(3)`,
//! `umad_recv(3)`. libibumad (libibumad.so.3) is loaded at run time.
//!
//! A port sends and receives for its agents; an agent is registered for one management class. Two examples show
//! the whole sequence: `node_info` (NodeInfo by directed route, over an SMI port) and `sa_class_port_info`
//! (ClassPortInfo of the SA).
//!
//! # Choice of the port
//! You can leave device and port open. The choice within a device is: the first active InfiniBand port; else
//! the first InfiniBand port whose link is up; else the first port that is not disabled, which may be an
//! Ethernet port unless it is for subnet management. Among several devices, the first one with an active port
//! wins, else the first one with any of these. A port requested by number alone must be InfiniBand and not
//! disabled. Devices are in the order of `umad_get_ca_device_list(3)`, and a switch has port 0. libibumad has
//! the same rules; this crate applies them itself, so that [`Port::device`] and [`Port::number`] are known and
//! every libibumad chooses alike.
//!
//! # Differences from libibumad
//! | case | libibumad | here | why |
//! | --- | --- | --- | --- |
//! | `umad_open_smi_port` with device and port named, SMI disabled there | opens | [`Cause::Invalid`] | the C function checks neither; no SMP would ever get a response |
//! | the same, for a port that is not InfiniBand | opens | [`Cause::Invalid`] | Ethernet has no SMI |
//! | `umad_open_smi_port` with open choice, only ports without a link left | may choose an Ethernet port | chooses InfiniBand only | Ethernet has no SMI |
//! | open choice, no port fits | tries `mthca0` port 1, `-EINVAL` | [`Cause::NoDevice`] with the existing devices | that name is obsolete, and the manual says `-ENODEV` |
//! | `umad_open_smi_port` before libibumad 53 | does not exist | same choice, then `umad_open_port` | both open the same file |
//! | a file of one port cannot be read (`rate` of a port without a cable), or a port has number 10 | ignores the device | reads its other files | the ports can still be opened |
//! | ib_umad not loaded, or of a version below 5 | `-EOPNOTSUPP` | [`Cause::NotSupported`] naming the reason | the remedies differ |
//! | libibumad does not search as far as the port's file (rdma-core 44 and 56 search umad0 to umad63, 65 up to umad191), or the device's name has 20 characters | `-EINVAL` | [`Cause::Unusable`] naming the reason | the file exists |
//! | the file cannot be opened | `-EIO` | [`Cause::Io`] with the real errno, and the file's owner | the remedy depends on the errno |
//! | `umad_register` for a class with segmentation (RMPP) | an RMPP version | none: each segment arrives as a MAD | only tables of the SA (GetTable) need it, and no user of this crate queries them |
//! | `umad_send` with a timeout of 0 | expects no response | `None` means that; zero is rounded up to 1 ms | a computed timeout may be zero |
//! | `umad_recv` interrupted by a signal | `-EINTR` | continues to wait | the caller's timeout has not passed |
//! | a MAD longer than the buffer | `-ENOSPC`, and the caller must call again | returns the whole MAD | the length is known by then |
//! | `umad_close_port` with agents left | ends them, and their ids are stale | cannot happen: they hold the port | callers need not keep an order |
//!
//! # Threads
//! Any thread may use all types. A port's packets are one stream: each caller of `receive` gets the next
//! packet, for whichever agent.

mod agent;
pub(crate) mod ffi;
mod packet;
mod port;
mod select;
mod sysfs;
pub(crate) mod user_mad;

use std::ffi::CStr;
use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::address::{Guid, Lid};
use crate::error::Result;
use crate::library::{Kind, NativeLibrary};

pub use agent::{Agent, Methods};
pub use packet::{MadAddress, MadRoute, Received};
pub use port::Port;

#[cfg(doc)]
use crate::Cause;

static LIBRARY: Kind = Kind {
    file: "libibumad.so.3",
    operation: "load libibumad",
    remedy: "install libibumad (Debian: libibumad3)",
    stays: false,
};

/// libibumad, loaded.
#[derive(Clone, Debug)]
pub struct Umad {
    functions: Arc<ffi::Functions>,
}

/// A device with ports for MADs, as libibumad reports it, or as the kernel does if libibumad cannot read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UmadDevice {
    /// Its name.
    pub name: String,
    /// Whether it is a switch, whose management port is port 0.
    pub is_switch: bool,
    /// Its ports, by number, as far as the fields needed to choose a port could be read.
    pub ports: Vec<UmadPort>,
    /// The files that could not be read, if libibumad skips the device.
    pub unreadable: Vec<Unreadable>,
}

/// A sysfs file that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// Its path.
    pub path: PathBuf,
    /// The reason.
    pub reason: String,
}

impl Unreadable {
    fn new(path: &Path, error: &io::Error) -> Self {
        Self {
            path: path.to_owned(),
            reason: error.to_string(),
        }
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot read {}: {}", self.path.display(), self.reason)
    }
}

/// A port of a [`UmadDevice`], as of the query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UmadPort {
    /// Its number.
    pub number: u8,
    /// Logical state: 1 down, 2 initialised, 3 armed, 4 active.
    pub state: u32,
    /// Physical state: 2 polling, 3 disabled, 5 link up.
    pub physical_state: u32,
    /// Link layer: `InfiniBand`, `IB` (older kernels) or `Ethernet`.
    pub link_layer: String,
    /// Capability bits of PortInfo.
    pub capabilities: u32,
    /// Base LID.
    pub lid: Lid,
    /// LID of the subnet manager.
    pub sm_lid: Lid,
    /// Service level to the subnet manager.
    pub sm_sl: u8,
    /// GUID of the port.
    pub guid: Guid,
}

impl UmadPort {
    /// Bit IsSMDisabled of PortInfo's CapabilityMask.
    const SM_DISABLED: u32 = 1 << 10;

    /// Returns whether subnet management packets cannot be sent here and get no response.
    pub fn is_smi_disabled(&self) -> bool {
        self.capabilities & Self::SM_DISABLED != 0
    }

    /// Returns whether it is an InfiniBand port.
    pub fn is_infiniband(&self) -> bool {
        matches!(self.link_layer.as_str(), "InfiniBand" | "IB")
    }
}

impl Umad {
    /// Loads libibumad by its system name.
    ///
    /// # Errors
    /// [`Cause::NoLibrary`], [`Cause::NoSymbol`].
    pub fn load() -> Result<Self> {
        Self::of(NativeLibrary::system(&LIBRARY)?)
    }

    /// Loads libibumad from a file.
    ///
    /// # Errors
    /// [`Cause::NoLibrary`], [`Cause::NoSymbol`].
    pub fn load_from(path: impl AsRef<Path>) -> Result<Self> {
        Self::of(NativeLibrary::in_file(&LIBRARY, path.as_ref())?)
    }

    fn of(library: NativeLibrary) -> Result<Self> {
        Ok(Self {
            functions: Arc::new(ffi::Functions::find(library)?),
        })
    }

    /// Returns whether this libibumad has `umad_open_smi_port` (since rdma-core 53).
    pub fn has_smi_open(&self) -> bool {
        self.functions.open_smi_port.is_some()
    }

    /// Lists all devices with InfiniBand management, in libibumad's order.
    pub fn devices(&self) -> Vec<UmadDevice> {
        let functions = &*self.functions;
        let mut devices = Vec::new();
        // SAFETY: the function takes no arguments; the result is freed below.
        let list = unsafe { (functions.get_ca_device_list)() };
        // SAFETY: NULL, or a list of nodes that live until it is freed.
        let mut next = unsafe { list.as_ref() };
        while let Some(node) = next {
            // SAFETY: each node has a name that ends in NUL.
            devices.push(self.device(unsafe { CStr::from_ptr(node.ca_name) }));
            // SAFETY: as above.
            next = unsafe { node.next.as_ref() };
        }
        // SAFETY: from `umad_get_ca_device_list`, and not used any more; NULL is allowed.
        unsafe { (functions.free_ca_device_list)(list) };
        devices
    }

    /// Reads a device that libibumad lists by that name.
    fn device(&self, name: &CStr) -> UmadDevice {
        let functions = &*self.functions;
        let mut ca = MaybeUninit::<ffi::umad_ca>::zeroed();
        // SAFETY: the name ends in NUL, and the device is writable.
        if unsafe { (functions.get_ca)(name.as_ptr(), ca.as_mut_ptr()) } < 0 {
            return sysfs::read_device(&name.to_string_lossy());
        }
        // SAFETY: zeroed, which is a valid value of this struct, and then filled.
        let mut ca = unsafe { ca.assume_init() };
        let ports = ca.ports.iter().filter_map(|&port| {
            // SAFETY: NULL, or a port that lives until the device is released.
            unsafe { port.as_ref() }.map(UmadPort::from)
        });
        let device = UmadDevice {
            name: name.to_string_lossy().into_owned(),
            is_switch: ca.node_type == ffi::NODE_TYPE_SWITCH,
            ports: ports.collect(),
            unreadable: Vec::new(),
        };
        // SAFETY: filled by `umad_get_ca`, and not used any more.
        unsafe { (functions.release_ca)(&raw mut ca) };
        device
    }
}
