//! An open device.

use std::ffi::{c_int, c_void};
use std::fmt;

use ibverbs_sys as ffi;

use super::device::Device;
use super::diagnosis;
use crate::address::{Gid, Guid, PKey};
use crate::errno::errno_of;
use crate::error::{Cause, Error, Result};
use crate::handle::Handle;
use crate::port::PortAttributes;
use crate::teardown;
use crate::text;

/// The allocator that a context was given, if any.
#[cfg(feature = "mana")]
type AllocatorSlot = parking_lot::Mutex<Option<std::sync::Arc<crate::mana::Shim>>>;

/// An open device. Share it by `Arc`: it is one thing, so it has no copy.
///
/// ```compile_fail,E0277
/// fn copies<T: Clone>() {}
/// copies::<rdma_access::verbs::Context>();
/// ```
///
/// C's own context ends at [`close`](Self::close), or when this and all that was made in it are dropped.
#[derive(Debug)]
pub struct Context {
    // Ended by `end`, before the allocator that the driver may call until then.
    handle: Handle<ffi::ibv_context>,
    name: String,
    node_guid: Guid,
    /// Called by the driver until the context has ended.
    #[cfg(feature = "mana")]
    mana_allocator: AllocatorSlot,
}

impl Context {
    /// Opens the device of that name, such as `mlx5_0`.
    ///
    /// # Errors
    /// Those of [`Device::by_name`] and [`Device::open`].
    pub fn open_by_name(name: &str) -> Result<Self> {
        Device::by_name(name)?.open()
    }

    /// Opens the device with that node GUID.
    ///
    /// # Errors
    /// Those of [`Device::by_node_guid`] and [`Device::open`].
    pub fn open_by_node_guid(guid: Guid) -> Result<Self> {
        Device::by_node_guid(guid)?.open()
    }

    /// Opens the device behind a context that somebody else opened, an ibacm provider's host for instance, as a context
    /// of its own.
    ///
    /// This is the way that never takes one device for another: node GUIDs can be shared by functions of one adapter.
    ///
    /// # Errors
    /// Those of [`Device::open`]; [`Cause::Invalid`] for NULL or a context without a device.
    ///
    /// # Safety
    /// `foreign` is NULL or a `struct ibv_context *` that stays open during the call.
    pub unsafe fn open_same_device(foreign: *mut c_void) -> Result<Self> {
        // SAFETY: the caller's promise.
        let device = unsafe { foreign.cast::<ffi::ibv_context>().as_ref() }
            .map(|context| context.device)
            .filter(|device| !device.is_null());
        let Some(device) = device else {
            let cause = Cause::Invalid("the context is NULL or has no device".to_owned());
            return Err(Error::new(
                "ibv_open_device",
                format_args!("the device of {foreign:p}"),
                cause,
            ));
        };
        // SAFETY: a context keeps its device alive.
        unsafe { Self::open(device) }
    }

    /// # Safety
    /// The device is alive during the call.
    pub(super) unsafe fn open(device: *mut ffi::ibv_device) -> Result<Self> {
        // SAFETY: the caller's promise.
        let name = text::of_array(unsafe { &(*device).name }).to_owned();
        // SAFETY: the caller's promise; the result is nobody else's.
        let handle = unsafe {
            Handle::take(ffi::ibv_open_device(device), |errno| {
                let node = text::of_array(&(*device).dev_name);
                Error::new(
                    "ibv_open_device",
                    &name,
                    diagnosis::not_opened(&name, node, errno),
                )
            })
        }?;
        // SAFETY: the caller's promise.
        let node_guid = Guid(u64::from_be(unsafe { ffi::ibv_get_device_guid(device) }));
        Ok(Self {
            handle,
            name,
            node_guid,
            #[cfg(feature = "mana")]
            mana_allocator: AllocatorSlot::default(),
        })
    }

    /// Ends the context.
    ///
    /// # Errors
    /// What `ibv_close_device` fails with; the context then stays, for ever.
    pub fn close(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        let ended = self.handle.end();
        #[cfg(feature = "mana")]
        if ended.is_err() {
            // The driver lives on, and may call it.
            std::mem::forget(self.mana_allocator.get_mut().take());
        }
        ended
    }

    #[cfg(feature = "mana")]
    pub(crate) fn mana_allocator(&self) -> &AllocatorSlot {
        &self.mana_allocator
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The device's node GUID.
    pub fn node_guid(&self) -> Guid {
        self.node_guid
    }

    /// The `struct ibv_context *`, alive as long as this value, for C libraries that work on one.
    pub fn as_ptr(&self) -> *mut c_void {
        self.raw().cast()
    }

    pub(crate) fn raw(&self) -> *mut ffi::ibv_context {
        self.handle.as_ptr()
    }

    /// Number of ports; they count from 1.
    ///
    /// # Errors
    /// What `ibv_query_device` fails with.
    pub fn port_count(&self) -> Result<u8> {
        let mut attributes = ffi::ibv_device_attr::default();
        // SAFETY: the context is open, and the attributes may be written.
        let returned = unsafe { ffi::ibv_query_device(self.raw(), &raw mut attributes) };
        self.check("ibv_query_device", &"", returned)?;
        Ok(attributes.phys_port_cnt)
    }

    /// What a port is like now.
    ///
    /// # Errors
    /// What `ibv_query_port` fails with; EINVAL if there is no such port.
    pub fn port(&self, port: u8) -> Result<PortAttributes> {
        let mut attributes = ffi::ibv_port_attr::default();
        // The exported function fills the struct that it had first: all but the newest fields, which stay zero.
        // SAFETY: the context is open; the struct begins with the one that the function writes.
        let returned =
            unsafe { ffi::ibv_query_port(self.raw(), port, (&raw mut attributes).cast()) };
        self.check("ibv_query_port", &format_args!("port {port}"), returned)?;
        Ok(PortAttributes::from(&attributes))
    }

    /// An entry of a port's GID table; zero if it is empty.
    ///
    /// # Errors
    /// What `ibv_query_gid` fails with; EINVAL if there is no such entry.
    pub fn gid(&self, port: u8, index: u16) -> Result<Gid> {
        let mut gid = ffi::ibv_gid::default();
        // SAFETY: the context is open, and the GID may be written.
        let returned =
            unsafe { ffi::ibv_query_gid(self.raw(), port, c_int::from(index), &raw mut gid) };
        self.check(
            "ibv_query_gid",
            &format_args!("port {port}, index {index}"),
            returned,
        )?;
        // SAFETY: bytes have no invalid value.
        Ok(Gid(unsafe { gid.raw }))
    }

    /// An entry of a port's P_Key table; partition 0 if it is empty.
    ///
    /// # Errors
    /// What `ibv_query_pkey` fails with; EINVAL if there is no such entry.
    pub fn pkey(&self, port: u8, index: u16) -> Result<PKey> {
        let mut pkey = 0;
        // SAFETY: the context is open, and the P_Key may be written.
        let returned =
            unsafe { ffi::ibv_query_pkey(self.raw(), port, c_int::from(index), &raw mut pkey) };
        self.check(
            "ibv_query_pkey",
            &format_args!("port {port}, index {index}"),
            returned,
        )?;
        Ok(PKey(u16::from_be(pkey)))
    }

    /// Where a P_Key stands in a port's table, membership bit included; `None` if it does not.
    ///
    /// # Errors
    /// Those of [`port`](Self::port) and [`pkey`](Self::pkey).
    pub fn pkey_index(&self, port: u8, pkey: PKey) -> Result<Option<u16>> {
        for index in 0..self.port(port)?.pkey_table_length {
            if self.pkey(port, index)? == pkey {
                return Ok(Some(index));
            }
        }
        Ok(None)
    }

    /// Turns the return value of a verb into an error that names this device.
    pub(crate) fn check(
        &self,
        operation: &'static str,
        inputs: &dyn fmt::Display,
        returned: c_int,
    ) -> Result<()> {
        match returned {
            0 => Ok(()),
            _ => Err(self.fault(operation, inputs, errno_of(returned), "")),
        }
    }

    pub(crate) fn fault(
        &self,
        operation: &'static str,
        inputs: &dyn fmt::Display,
        errno: i32,
        likely: &str,
    ) -> Error {
        let inputs = match inputs.to_string() {
            empty if empty.is_empty() => self.name.clone(),
            inputs => format!("{}, {inputs}", self.name),
        };
        Error::errno(operation, inputs, errno, likely)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            teardown::report(&error);
        }
    }
}
