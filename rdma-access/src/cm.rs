//! Finds the device of an IP address, like `rpma_utils_get_ibv_context(3)`, through librdmacm
//! (`rdma_create_id(3)`, `rdma_bind_addr(3)`, `rdma_resolve_addr(3)`; port space TCP, which is reliable and
//! connected). librdmacm (librdmacm.so.1) is loaded at run time.
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
//! # Differences from librpma
//! | case | librpma | here | why |
//! | --- | --- | --- | --- |
//! | result | a bare context of librdmacm, which newer versions close when the device is removed | a handle with device, port, GID and P_Key, which keeps the lookup alive and opens an own context | the type system tracks its lifetime |
//! | failed call | `RPMA_E_PROVIDER`, details in a log | the call, its errno and the likely cause | a program cannot read a log |
//! | timeout of a remote lookup | one second | set by the caller | only the caller knows how long to wait |
//! | host names | resolved | not accepted; use [`std::net::ToSocketAddrs`] | resolving a name has no time limit |
//! | short and octal IPv4 (`10.7.1`, `10.7.0.01`) | accepted, as by `inet_aton(3)` | [`Cause::Invalid`] | they are ambiguous |
//! | `0.0.0.0` and `::`, local | success, and NULL for the context | [`Cause::Invalid`] | the address of all interfaces has no device |
//! | `0.0.0.0` and `::`, remote | the first device | [`Cause::Invalid`] | the address of all interfaces has no device |
//! | local loopback address | success, and NULL for the context | [`Cause::NoDevice`] | the loopback interface has no device |
//! | librdmacm lacks permission for its device file, or a free descriptor | `RPMA_E_PROVIDER` (librdmacm: `ENOMEM`) | [`Cause::Io`] with the error of opening the file | the cause is not memory |
//! | the device exists but not its file (as in a container without it) | `RPMA_E_PROVIDER` (librdmacm: `ENODEV` or `EPERM`) | the cause from [`Device::by_name`](crate::verbs::Device::by_name) | librdmacm drops the kernel's answer |
//! | link-local IPv6 without a scope | depends on the kernel | [`Cause::Invalid`] | it is ambiguous |
//!
//! As with librpma, a failed call returns nothing and undoes all it did.
//!
//! # Threads
//! Once loaded, librdmacm stays loaded, because it opens every device and closes none when it is unloaded.
//!
//! All types may be used from any thread. A lookup blocks its thread; a remote lookup blocks for at most its
//! timeout.

mod diagnosis;
pub(crate) mod ffi;
mod network;
mod scoped_ip;

use std::ffi::{c_int, c_void};
use std::fmt;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

use self::diagnosis::Lookup;
use crate::address::{Gid, PKey};
use crate::errno::last_errno;
use crate::error::{Cause, Error, Result};
use crate::library::{Kind, NativeLibrary};
use crate::teardown;
use crate::text;
use crate::verbs::Context;

pub use scoped_ip::ScopedIp;

static LIBRARY: Kind = Kind {
    file: "librdmacm.so.1",
    operation: "load librdmacm",
    remedy: "install librdmacm (Debian: librdmacm1)",
    // It opens every device once and closes none when it is unloaded.
    stays: true,
};

/// librdmacm, loaded.
#[derive(Clone, Debug)]
pub struct Cm {
    functions: Arc<ffi::Functions>,
}

impl Cm {
    /// Loads librdmacm by its system name.
    ///
    /// # Errors
    /// [`Cause::NoLibrary`], [`Cause::NoSymbol`].
    pub fn load() -> Result<Self> {
        Self::of(NativeLibrary::system(&LIBRARY)?)
    }

    /// Loads librdmacm from a file.
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

    /// Finds the device of a local address.
    ///
    /// # Errors
    /// [`Cause::Invalid`] if the address cannot belong to one device; [`Cause::OutOfMemory`];
    /// [`Cause::NoDevice`] for a loopback address. If the kernel knows the device but the process cannot use
    /// it: the cause from [`Device::by_name`](crate::verbs::Device::by_name) or
    /// [`Device::open`](crate::verbs::Device::open). Else [`Cause::Io`] with the call that failed.
    pub fn local(&self, address: &ScopedIp) -> Result<AddressDevice> {
        const OPERATION: &str = "rdma_bind_addr";
        let id = self.create(address)?;
        let mut c = address.to_c();
        // SAFETY: the identifier is alive; the pointer is to an address of its family's length.
        let returned = unsafe { (self.functions.bind_addr)(id.raw.as_ptr(), (&raw mut c).cast()) };
        if returned != 0 {
            let cause = diagnosis::lookup_failed(Lookup::Local, address, last_errno());
            return Err(Error::new(OPERATION, address, cause));
        }
        id.with_device(OPERATION, Lookup::Local, address)
    }

    /// Finds the device that reaches a remote address. Waits at most `timeout` (in whole milliseconds) for the
    /// neighbour's answer (ARP, ND).
    ///
    /// # Errors
    /// Those of [`local`](Self::local), and [`Cause::TimedOut`] without an answer.
    pub fn remote(&self, address: &ScopedIp, timeout: Duration) -> Result<AddressDevice> {
        const OPERATION: &str = "rdma_resolve_addr";
        let id = self.create(address)?;
        let mut c = address.to_c();
        let wait = c_int::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX);
        // SAFETY: the identifier is alive and synchronous; the pointer is to an address of its family's length.
        let returned = unsafe {
            (self.functions.resolve_addr)(id.raw.as_ptr(), null_mut(), (&raw mut c).cast(), wait)
        };
        if returned != 0 {
            let cause = diagnosis::lookup_failed(Lookup::Remote(timeout), address, last_errno());
            return Err(Error::new(OPERATION, address, cause));
        }
        id.with_device(OPERATION, Lookup::Remote(timeout), address)
    }

    fn create(&self, address: &ScopedIp) -> Result<AddressDevice> {
        const OPERATION: &str = "rdma_create_id";
        if let Some(why) = address.unsuitable() {
            let cause = Cause::Invalid(why.to_owned());
            return Err(Error::new("find a device by address", address, cause));
        }
        let mut id = null_mut();
        // Without an event channel, calls on the identifier block until they are done.
        // SAFETY: the identifier is writable.
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
            None => Err(Error::new(
                OPERATION,
                address,
                diagnosis::unavailable(errno),
            )),
        }
    }
}

/// Result of a lookup. Keeps the lookup, and with it librdmacm's context, alive.
pub struct AddressDevice {
    raw: NonNull<ffi::rdma_cm_id>,
    functions: Arc<ffi::Functions>,
    has_ended: bool,
}

// SAFETY: librdmacm ties an identifier to no thread. After its creation the only call on it is the one that
// destroys it, when no other reference exists; the fields that are read here do not change.
unsafe impl Send for AddressDevice {}
// SAFETY: as above.
unsafe impl Sync for AddressDevice {}

impl AddressDevice {
    fn with_device(
        self,
        operation: &'static str,
        lookup: Lookup,
        address: &ScopedIp,
    ) -> Result<Self> {
        if !self.id().verbs.is_null() {
            return Ok(self);
        }
        let cause = if address.ip().is_loopback() {
            let shown = crate::verbs::devices().unwrap_or_default();
            Cause::NoDevice {
                wanted: "RDMA device of a loopback address".to_owned(),
                present: shown.iter().map(ToString::to_string).collect(),
            }
        } else {
            diagnosis::without_device(lookup, address, Errno::NODEV)
        };
        Err(Error::new(operation, address, cause))
    }

    fn id(&self) -> &ffi::rdma_cm_id {
        // SAFETY: alive as long as `self`, and not written after the lookup.
        unsafe { self.raw.as_ref() }
    }

    /// Returns the device's name.
    pub fn device(&self) -> &str {
        // SAFETY: the context exists (see `with_device`) and stays open as long as the identifier; every
        // context has a device.
        text::of_array(unsafe { &(*(*self.id().verbs).device).name })
    }

    /// Returns the port number, from 1.
    pub fn port(&self) -> u8 {
        self.id().port_num
    }

    /// Returns the local GID of the address.
    pub fn gid(&self) -> Gid {
        Gid(self.id().route.addr.ibaddr.sgid)
    }

    /// Returns the P_Key of the address.
    pub fn pkey(&self) -> PKey {
        PKey(u16::from_be(self.id().route.addr.ibaddr.pkey))
    }

    /// Returns the local address; for a remote lookup, the address that the kernel sends from.
    pub fn local_address(&self) -> Option<IpAddr> {
        let storage = &self.id().route.addr.src_addr;
        let bytes = (&raw const *storage).cast::<c_void>();
        match c_int::from(storage.ss_family) {
            // SAFETY: the family says which type the storage holds, and the storage has room for each.
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

    /// Returns librdmacm's own `struct ibv_context *` of the device, valid as long as this value. All users of
    /// librdmacm in the process share it, so do not close it; [`open`](Self::open) returns an own context.
    pub fn as_ptr(&self) -> *mut c_void {
        self.id().verbs.cast()
    }

    /// Opens an own context of the device.
    ///
    /// # Errors
    /// Those of [`Device::open`](crate::verbs::Device::open).
    pub fn open(&self) -> Result<Context> {
        // SAFETY: librdmacm's context stays open as long as the identifier.
        unsafe { Context::open_same_device(self.as_ptr()) }
    }

    /// Ends the lookup.
    ///
    /// # Errors
    /// The error of `rdma_destroy_id`. The kernel then ends the lookup when the process exits.
    pub fn close(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        if mem::replace(&mut self.has_ended, true) {
            return Ok(());
        }
        // SAFETY: `rdma_create_id` made it, and only this call destroys it, once.
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
