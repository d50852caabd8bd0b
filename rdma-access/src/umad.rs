//! Management datagrams: `umad_open_port(3)`, `umad_open_smi_port(3)`, `umad_register(3)`, `umad_send(3)`,
//! `umad_recv(3)`. libibumad (libibumad.so.3) is looked up at run time.
//!
//! A port sends and receives for its agents; an agent is registered for one management class. The examples `node_info`
//! (NodeInfo by directed route, over an SMI port) and `sa_class_port_info` (ClassPortInfo of the SA) show the whole way.
//!
//! # Which port is opened
//! Device and port can each be left open. Of a device's InfiniBand ports the first active one is taken, else the first
//! whose link is up; else, Ethernet ports among them unless it is for subnet management, the first that is not disabled.
//! Of several devices it is the first with an active port, else the first with any of these. A port that is asked for by
//! its number alone has to be InfiniBand and not disabled. Devices come in the order of `umad_get_ca_device_list(3)`, and
//! a switch has port 0. That is what libibumad does, but it is done here, so that [`Port::device`] and [`Port::number`]
//! are known and one libibumad chooses as any other.
//!
//! # Where this differs from libibumad
//! | case | libibumad | here | why |
//! | --- | --- | --- | --- |
//! | `umad_open_smi_port` with device and port named, SMI disabled there | opens | [`Cause::Invalid`] | the C function looks at neither; no SMP would ever be answered |
//! | the same, port not InfiniBand | opens | [`Cause::Invalid`] | Ethernet has no SMI |
//! | `umad_open_smi_port` chooses, only ports without a link are left | takes an Ethernet port as well | InfiniBand only | as above |
//! | nothing named, nothing fits | tries `mthca0` port 1, `-EINVAL` | [`Cause::NoDevice`] with the devices that there are | that name is long gone, and the manual says `-ENODEV` |
//! | `umad_open_smi_port` before libibumad 53 | does not exist | same choice, then `umad_open_port` | the two open the same file |
//! | a file of one port cannot be read (`rate` of one without a cable), or a port has the number 10 | the device is none | its other files are read here | none of that keeps a port from being opened |
//! | ib_umad not loaded, or of a version below 5 | `-EOPNOTSUPP` | [`Cause::NotSupported`] that says which | the remedies differ |
//! | the port's file is beyond those that libibumad looks at (rdma-core 44 and 56: umad0 to umad63; 65: to umad191), or the device's name has 20 characters | `-EINVAL` | [`Cause::Unusable`] that says so | the file is there |
//! | the file cannot be opened | `-EIO` | [`Cause::Io`] with the real errno, and whose file it is | the remedy is in the errno |
//! | `umad_register` for a class in segments (RMPP) | a version of it | none: each segment comes as a MAD | the kernel would put them together, but tables of the SA (GetTable) are not asked for here |
//! | `umad_send` with a timeout of 0 | no answer is wanted | `None` says that, and zero is rounded up to 1 ms | a computed time can come out as zero |
//! | `umad_recv` interrupted by a signal | `-EINTR` | waits on | the caller's time is not over |
//! | a MAD longer than the buffer | `-ENOSPC`, and the caller has to ask again | comes whole | its length is known there |
//! | `umad_close_port` with agents left | ends them, and their numbers are stale | cannot happen: they hold the port | order is then nobody's task |
//!
//! # Threads
//! All types may be used from any thread. A port's packets are one stream: whoever receives gets the next one, whichever
//! agent it is for.

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

/// A device that has ports for MADs, as libibumad shows it; where libibumad cannot read it, as the kernel does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UmadDevice {
    /// Its name.
    pub name: String,
    /// Whether it is a switch, whose management port is port 0.
    pub is_switch: bool,
    /// Its ports, by number: all of which is known whether they are fit for use.
    pub ports: Vec<UmadPort>,
    /// What could not be read of the rest, if libibumad did not take the device.
    pub unreadable: Vec<Unreadable>,
}

/// A file of sysfs that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// Its path.
    pub path: PathBuf,
    /// Why.
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
        write!(f, "{} cannot be read: {}", self.path.display(), self.reason)
    }
}

/// A port of a [`UmadDevice`], as of the moment that it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UmadPort {
    /// Its number.
    pub number: u8,
    /// Logical state: 1 down, 2 initialised, 3 armed, 4 active.
    pub state: u32,
    /// Physical state: 2 polling, 3 disabled, 5 link up.
    pub physical_state: u32,
    /// What it is linked to: `InfiniBand`, `IB` (older kernels) or `Ethernet`.
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

    /// Whether subnet management packets are not answered here, and cannot be sent.
    pub fn is_smi_disabled(&self) -> bool {
        self.capabilities & Self::SM_DISABLED != 0
    }

    /// Whether it is an InfiniBand port.
    pub fn is_infiniband(&self) -> bool {
        matches!(self.link_layer.as_str(), "InfiniBand" | "IB")
    }
}

impl Umad {
    /// Loads the system's libibumad.
    ///
    /// # Errors
    /// [`Cause::NoLibrary`], [`Cause::NoSymbol`].
    pub fn load() -> Result<Self> {
        Self::of(NativeLibrary::system(&LIBRARY)?)
    }

    /// Loads the libibumad in a file.
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

    /// Whether this libibumad has `umad_open_smi_port` (since rdma-core 53).
    pub fn has_smi_open(&self) -> bool {
        self.functions.open_smi_port.is_some()
    }

    /// All devices of InfiniBand's kind, in libibumad's order.
    pub fn devices(&self) -> Vec<UmadDevice> {
        let functions = &*self.functions;
        let mut devices = Vec::new();
        // SAFETY: the function takes nothing; what it returns is freed below.
        let list = unsafe { (functions.get_ca_device_list)() };
        // SAFETY: NULL, or a list of nodes that stay until it is freed.
        let mut next = unsafe { list.as_ref() };
        while let Some(node) = next {
            // SAFETY: each node has a name that ends in NUL.
            devices.push(self.device(unsafe { CStr::from_ptr(node.ca_name) }));
            // SAFETY: as above.
            next = unsafe { node.next.as_ref() };
        }
        // SAFETY: from `umad_get_ca_device_list`, not used any more; NULL is allowed.
        unsafe { (functions.free_ca_device_list)(list) };
        devices
    }

    /// A device by the name that libibumad lists.
    fn device(&self, name: &CStr) -> UmadDevice {
        let functions = &*self.functions;
        let mut ca = MaybeUninit::<ffi::umad_ca>::zeroed();
        // SAFETY: the name ends in NUL, and the device may be written.
        if unsafe { (functions.get_ca)(name.as_ptr(), ca.as_mut_ptr()) } < 0 {
            return sysfs::read_device(&name.to_string_lossy());
        }
        // SAFETY: zeroed, which is a value of this struct, and then filled.
        let mut ca = unsafe { ca.assume_init() };
        let ports = ca.ports.iter().filter_map(|&port| {
            // SAFETY: NULL, or a port that stays until the device is released.
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
