//! The device behind an IP address: what `rpma_utils_get_ibv_context(3)` does, over librdmacm (`rdma_create_id(3)`,
//! `rdma_bind_addr(3)`, `rdma_resolve_addr(3)`; port space TCP, which is reliable and connected). librdmacm
//! (librdmacm.so.1) is looked up at run time.
//!
//! ```no_run
//! use std::time::Duration;
//! use rdma_access::cm::Cm;
//!
//! let cm = Cm::load()?;
//! let found = cm.remote(&"192.0.2.7".parse()?, Duration::from_secs(2))?;
//! println!("by {} port {} from {}", found.device(), found.port(), found.gid());
//! let context = found.open()?;
//! # Ok::<(), rdma_access::Error>(())
//! ```
//!
//! # Where this differs from librpma
//! | case | librpma | here | why |
//! | --- | --- | --- | --- |
//! | what comes back | a bare context of librdmacm's, held by nobody: newer ones close it when its device is gone | a handle that says device, port, GID and P_Key, keeps the lookup alive, and opens a context of one's own | its life is then in the type |
//! | failure of a call | `RPMA_E_PROVIDER`, the rest in a log | the call, its errno and the likely cause | a log is not where a program looks |
//! | remote lookup | one second | the caller's timeout | how long is too long is the caller's to say |
//! | host names | looked up | not taken: [`std::net::ToSocketAddrs`] does that | a lookup of a name can take any time |
//! //! | short and octal IPv4 (`10.7.1`, `10.7.0.01`) | taken, as `inet_aton(3)` does | [`Cause::Invalid`] | they are read in two ways |
//! | `0.0.0.0` and `::`, local | success, and NULL for the context | [`Cause::Invalid`] | an address of all interfaces leads to no device |
//! | the same, remote | whichever device comes first | [`Cause::Invalid`] | as above |
//! | a local loopback address | success, and NULL for the context | [`Cause::NoDevice`] | the loopback interface has no device |
//! | librdmacm may not open its file, or has no descriptor left | `RPMA_E_PROVIDER` (librdmacm: `ENOMEM`) | [`Cause::Io`] with the error number of the file | memory is not what is missing |
//! | link-local IPv6 without a scope | what the kernel makes of it | [`Cause::Invalid`] | it is ambiguous |
//!
//! As there, nothing is given on failure, and everything is undone.
//!
//! # Threads
//! librdmacm stays loaded once it is: it opens every device, and closes none when it is unloaded.
//!
//! All types may be used from any thread. A lookup blocks its thread, a remote one for its timeout at most.

mod address;
pub(crate) mod ffi;

use std::ffi::{c_int, c_void};
use std::fmt;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;

use crate::diagnosis;
use crate::error::{Cause, Error, Result};
use crate::handle::last_errno;
use crate::library::{Kind, NativeLibrary};
use crate::teardown;
use crate::text;
use crate::types::{Gid, PKey};
use crate::verbs::Context;

pub use address::Address;

static LIBRARY: Kind = Kind {
    file: "librdmacm.so.1",
    operation: "load librdmacm",
    remedy: "install librdmacm (Debian: librdmacm1)",
    // It opens every device once, and closes none when it is unloaded.
    stays: true,
};
const DEVICE_FILE: &str = "/dev/infiniband/rdma_cm";

/// librdmacm, loaded.
#[derive(Clone, Debug)]
pub struct Cm {
    functions: Arc<ffi::Functions>,
}

impl Cm {
    /// Loads the system's librdmacm.
    ///
    /// # Errors
    /// [`Cause::NoLibrary`], [`Cause::NoSymbol`].
    pub fn load() -> Result<Self> {
        Self::of(NativeLibrary::system(&LIBRARY)?)
    }

    /// Loads the librdmacm in a file.
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

    /// The device that has an address of this machine.
    ///
    /// # Errors
    /// [`Cause::Invalid`] for an address that cannot lead to one device; [`Cause::OutOfMemory`]; [`Cause::NoDevice`] if
    /// the interface is no RDMA device's; else [`Cause::Io`] with the call that failed.
    pub fn local(&self, address: &Address) -> Result<AddressDevice> {
        const OPERATION: &str = "rdma_bind_addr";
        let id = self.create(address)?;
        let mut c = address.to_c();
        // SAFETY: the identifier is alive; an address of its family's length is behind the pointer.
        let returned = unsafe { (self.functions.bind_addr)(id.raw.as_ptr(), (&raw mut c).cast()) };
        if returned != 0 {
            return Err(fault(OPERATION, address, last_errno(), Duration::ZERO));
        }
        id.with_device(OPERATION, address)
    }

    /// The device by which another machine's address is reached. Waits for the neighbour's answer (ARP, ND) for
    /// `timeout`, in whole milliseconds, at most.
    ///
    /// # Errors
    /// As for [`local`](Self::local); [`Cause::TimedOut`] if there is no answer.
    pub fn remote(&self, address: &Address, timeout: Duration) -> Result<AddressDevice> {
        const OPERATION: &str = "rdma_resolve_addr";
        let id = self.create(address)?;
        let mut c = address.to_c();
        let wait = c_int::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX);
        // SAFETY: the identifier is alive and synchronous; an address of its family's length is behind the pointer.
        let returned = unsafe {
            (self.functions.resolve_addr)(id.raw.as_ptr(), null_mut(), (&raw mut c).cast(), wait)
        };
        if returned != 0 {
            return Err(fault(OPERATION, address, last_errno(), timeout));
        }
        id.with_device(OPERATION, address)
    }

    fn create(&self, address: &Address) -> Result<AddressDevice> {
        const OPERATION: &str = "rdma_create_id";
        if let Some(why) = address.misfit() {
            let cause = Cause::Invalid(why.to_owned());
            return Err(Error::new("find a device by address", address, cause));
        }
        let mut id = null_mut();
        // Without an event channel the calls on it wait for their end.
        // SAFETY: the identifier may be written.
        let returned = unsafe {
            (self.functions.create_id)(null_mut(), &raw mut id, null_mut(), ffi::RDMA_PS_TCP)
        };
        let errno = last_errno();
        match NonNull::new(id).filter(|_| returned == 0) {
            Some(raw) => Ok(AddressDevice {
                raw,
                functions: self.functions.clone(),
                has_ended: false,
            }),
            None => Err(Error::new(OPERATION, address, unavailable(errno))),
        }
    }
}

/// Why librdmacm cannot start.
fn unavailable(errno: i32) -> Cause {
    let file = Path::new(DEVICE_FILE);
    // It says ENOMEM whatever it is that keeps it from opening the file.
    if errno == Errno::NOMEM.raw_os_error() {
        return match open(file, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
            Err(error) if error != Errno::NOENT => {
                diagnosis::open_failed(file, error.raw_os_error())
            }
            _ => Cause::OutOfMemory,
        };
    }
    match Errno::from_raw_os_error(errno) {
        Errno::NODEV | Errno::NOENT if !file.exists() => Cause::Io {
            source: std::io::Error::from_raw_os_error(errno),
            likely: format!(
                "there is no {DEVICE_FILE}: is the module rdma_ucm loaded? (modprobe rdma_ucm), or no RDMA device \
                 is in this machine or container"
            ),
        },
        Errno::NODEV => Cause::NoDevice {
            wanted: "RDMA device".to_owned(),
            present: Vec::new(),
        },
        _ => diagnosis::open_failed(file, errno),
    }
}

/// What a failed lookup most likely means.
fn fault(operation: &'static str, address: &Address, errno: i32, timeout: Duration) -> Error {
    let likely = match Errno::from_raw_os_error(errno) {
        Errno::NOMEM => return Error::new(operation, address, Cause::OutOfMemory),
        Errno::TIMEDOUT => {
            let likely = "nobody has that address, or it does not answer".to_owned();
            return Error::new(
                operation,
                address,
                Cause::TimedOut {
                    limit: timeout,
                    likely,
                },
            );
        }
        Errno::NODEV if operation == "rdma_bind_addr" => {
            "the interface with that address has no RDMA device (rdma link shows those that have)"
        }
        Errno::NODEV => {
            "the way there leaves by an interface that has no RDMA device, or there is no interface of that scope"
        }
        Errno::ADDRNOTAVAIL => "no interface of this machine has that address",
        Errno::NETUNREACH | Errno::HOSTUNREACH => "there is no route to that address",
        Errno::INVAL => "the kernel takes no such address",
        _ => "",
    };
    Error::errno(operation, address, errno, likely)
}

/// What an address led to. It keeps the lookup, and with it librdmacm's context, alive.
pub struct AddressDevice {
    raw: NonNull<ffi::rdma_cm_id>,
    functions: Arc<ffi::Functions>,
    has_ended: bool,
}

// SAFETY: librdmacm ties an identifier to no thread. Nothing but its end is called on it after it was made, and then
// nobody shares it; what is read here does not change.
unsafe impl Send for AddressDevice {}
// SAFETY: as above.
unsafe impl Sync for AddressDevice {}

impl AddressDevice {
    fn with_device(self, operation: &'static str, address: &Address) -> Result<Self> {
        if !self.id().verbs.is_null() {
            return Ok(self);
        }
        let wanted = "RDMA device of that address (a loopback interface has none)".to_owned();
        Err(Error::new(
            operation,
            address,
            Cause::NoDevice {
                wanted,
                present: Vec::new(),
            },
        ))
    }

    fn id(&self) -> &ffi::rdma_cm_id {
        // SAFETY: alive as long as this is, and not written after the lookup.
        unsafe { self.raw.as_ref() }
    }

    /// The device's name.
    pub fn device(&self) -> &str {
        // SAFETY: there is a context (see `with_device`), which is open as long as an identifier has it, and a context has a
        // device.
        text::of_array(unsafe { &(*(*self.id().verbs).device).name })
    }

    /// The port; ports count from 1.
    pub fn port(&self) -> u8 {
        self.id().port_num
    }

    /// The local GID that belongs to the address.
    pub fn gid(&self) -> Gid {
        Gid(self.id().route.addr.ibaddr.sgid)
    }

    /// The P_Key that belongs to the address.
    pub fn pkey(&self) -> PKey {
        PKey(u16::from_be(self.id().route.addr.ibaddr.pkey))
    }

    /// The local address; for a remote lookup the one that the kernel sends from.
    pub fn local_address(&self) -> Option<IpAddr> {
        let storage = &self.id().route.addr.src_addr;
        let bytes = (&raw const *storage).cast::<c_void>();
        match c_int::from(storage.ss_family) {
            // SAFETY: the family says what stands in the storage, which has room for each.
            libc::AF_INET => Some(
                Ipv4Addr::from(u32::from_be(unsafe {
                    (*bytes.cast::<libc::sockaddr_in>()).sin_addr.s_addr
                }))
                .into(),
            ),
            // SAFETY: as above.
            libc::AF_INET6 => Some(
                Ipv6Addr::from(unsafe { (*bytes.cast::<libc::sockaddr_in6>()).sin6_addr.s6_addr })
                    .into(),
            ),
            _ => None,
        }
    }

    /// librdmacm's own `struct ibv_context *` of the device, valid as long as this value. It is shared by all of the
    /// process that use librdmacm, and not to be closed; [`open`](Self::open) gives one's own.
    pub fn as_ptr(&self) -> *mut c_void {
        self.id().verbs.cast()
    }

    /// Opens the device as a context of one's own.
    ///
    /// # Errors
    /// Those of [`Device::open`](crate::verbs::Device::open).
    pub fn open(&self) -> Result<Context> {
        // SAFETY: librdmacm's context is open as long as the identifier has it.
        unsafe { Context::open_same_device(self.as_ptr()) }
    }

    /// Ends the lookup.
    ///
    /// # Errors
    /// What `rdma_destroy_id` fails with; the kernel then ends it with the process.
    pub fn close(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        if mem::replace(&mut self.has_ended, true) {
            return Ok(());
        }
        // SAFETY: made by `rdma_create_id`, and ended here alone, once.
        match unsafe { (self.functions.destroy_id)(self.raw.as_ptr()) } {
            0 => Ok(()),
            _ => Err(Error::errno("rdma_destroy_id", "", last_errno(), "")),
        }
    }
}

impl Drop for AddressDevice {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            teardown::report(&error);
        }
    }
}

impl fmt::Debug for AddressDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.id().verbs.is_null() {
            return f.write_str("AddressDevice(none)");
        }
        write!(
            f,
            "AddressDevice({} port {}, GID {})",
            self.device(),
            self.port(),
            self.gid()
        )
    }
}
