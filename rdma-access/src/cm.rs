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
//! | short and octal IPv4 (`10.7.1`, `10.7.0.01`) | taken, as `inet_aton(3)` does | [`Cause::Invalid`] | they are read in two ways |
//! | `0.0.0.0` and `::`, local | success, and NULL for the context | [`Cause::Invalid`] | an address of all interfaces leads to no device |
//! | the same, remote | whichever device comes first | [`Cause::Invalid`] | as above |
//! | a local loopback address | success, and NULL for the context | [`Cause::NoDevice`] | the loopback interface has no device |
//! | librdmacm may not open its file, or has no descriptor left | `RPMA_E_PROVIDER` (librdmacm: `ENOMEM`) | [`Cause::Io`] with the error number of the file | memory is not what is missing |
//! | the address's device is there, and its file not (a container that was not given it) | `RPMA_E_PROVIDER` (librdmacm: `ENODEV` or `EPERM`) | the cause that [`Device::by_name`](crate::verbs::Device::by_name) gives | librdmacm drops the kernel's answer |
//! | link-local IPv6 without a scope | what the kernel makes of it | [`Cause::Invalid`] | it is ambiguous |
//!
//! As there, nothing is given on failure, and everything is undone.
//!
//! # Threads
//! librdmacm stays loaded once it is: it opens every device, and closes none when it is unloaded.
//!
//! All types may be used from any thread. A lookup blocks its thread, a remote one for its timeout at most.

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
    // It opens every device once, and closes none when it is unloaded.
    stays: true,
};

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
    /// [`Cause::Invalid`] for an address that cannot lead to one device; [`Cause::OutOfMemory`]; [`Cause::NoDevice`] for
    /// a loopback address; where the kernel knows the device and the process cannot use it, the cause that
    /// [`Device::by_name`](crate::verbs::Device::by_name) or [`Device::open`](crate::verbs::Device::open) gives; else
    /// [`Cause::Io`] with the call that failed.
    pub fn local(&self, address: &ScopedIp) -> Result<AddressDevice> {
        const OPERATION: &str = "rdma_bind_addr";
        let id = self.create(address)?;
        let mut c = address.to_c();
        // SAFETY: the identifier is alive; an address of its family's length is behind the pointer.
        let returned = unsafe { (self.functions.bind_addr)(id.raw.as_ptr(), (&raw mut c).cast()) };
        if returned != 0 {
            let cause = diagnosis::lookup_failed(Lookup::Local, address, last_errno());
            return Err(Error::new(OPERATION, address, cause));
        }
        id.with_device(OPERATION, Lookup::Local, address)
    }

    /// The device by which another machine's address is reached. Waits for the neighbour's answer (ARP, ND) for
    /// `timeout`, in whole milliseconds, at most.
    ///
    /// # Errors
    /// As for [`local`](Self::local); [`Cause::TimedOut`] if there is no answer.
    pub fn remote(&self, address: &ScopedIp, timeout: Duration) -> Result<AddressDevice> {
        const OPERATION: &str = "rdma_resolve_addr";
        let id = self.create(address)?;
        let mut c = address.to_c();
        let wait = c_int::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX);
        // SAFETY: the identifier is alive and synchronous; an address of its family's length is behind the pointer.
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
            None => Err(Error::new(
                OPERATION,
                address,
                diagnosis::unavailable(errno),
            )),
        }
    }
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
