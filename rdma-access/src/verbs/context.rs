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

/// The context's allocator, if set.
#[cfg(feature = "mana")]
type AllocatorSlot = parking_lot::Mutex<Option<std::sync::Arc<crate::mana::Shim>>>;

/// An open device. Share it by `Arc`; it cannot be cloned.
///
/// ```compile_fail,E0277
/// fn copies<T: Clone>() {}
/// copies::<rdma_access::verbs::Context>();
/// ```
///
/// The C context is closed by [`close`](Self::close), or when this value and all objects made in it are
/// dropped.
#[derive(Debug)]
pub struct Context {
    // Closed by `end`, before the allocator below, which the driver may call until then.
    handle: Handle<ffi::ibv_context>,
    name: String,
    node_guid: Guid,
    /// The driver may call it until the context is closed.
    #[cfg(feature = "mana")]
    mana_allocator: AllocatorSlot,
}

impl Context {
    /// Opens the device with that name, such as `mlx5_0`.
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

    /// Opens the device of a context that other code opened, for instance an ibacm provider's host, as a
    /// separate context.
    ///
    /// Only this function can never confuse devices: functions of one adapter may share a node GUID.
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
        // SAFETY: an open context keeps its device alive.
        unsafe { Self::open(device) }
    }

    /// # Safety
    /// The device is alive during the call.
    pub(super) unsafe fn open(device: *mut ffi::ibv_device) -> Result<Self> {
        // SAFETY: the caller's promise.
        let name = text::of_array(unsafe { &(*device).name }).to_owned();
        // SAFETY: the caller's promise; the handle owns the result.
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

    /// Closes the context.
    ///
    /// # Errors
    /// The error of `ibv_close_device`; the context then leaks.
    pub fn close(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        let ended = self.handle.end();
        #[cfg(feature = "mana")]
        if ended.is_err() {
            // The driver is still there and may call it.
            std::mem::forget(self.mana_allocator.get_mut().take());
        }
        ended
    }

    #[cfg(feature = "mana")]
    pub(crate) fn mana_allocator(&self) -> &AllocatorSlot {
        &self.mana_allocator
    }

    /// Returns the device's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the device's node GUID.
    pub fn node_guid(&self) -> Guid {
        self.node_guid
    }

    /// Returns the `struct ibv_context *`, valid as long as this value, for other C libraries.
    pub fn as_ptr(&self) -> *mut c_void {
        self.raw().cast()
    }

    pub(crate) fn raw(&self) -> *mut ffi::ibv_context {
        self.handle.as_ptr()
    }

    /// Returns the number of ports; ports count from 1.
    ///
    /// # Errors
    /// The error of `ibv_query_device`.
    pub fn port_count(&self) -> Result<u8> {
        let mut attributes = ffi::ibv_device_attr::default();
        // SAFETY: the context is open, and the attributes are writable.
        let returned = unsafe { ffi::ibv_query_device(self.raw(), &raw mut attributes) };
        self.check("ibv_query_device", &"", returned)?;
        Ok(attributes.phys_port_cnt)
    }

    /// Queries the current attributes of a port.
    ///
    /// # Errors
    /// The error of `ibv_query_port`; EINVAL if there is no such port.
    pub fn port(&self, port: u8) -> Result<PortAttributes> {
        let mut attributes = ffi::ibv_port_attr::default();
        // The exported function fills the struct's first version: all but the newest fields, which stay zero.
        // SAFETY: the context is open; the struct begins with the one that the function writes.
        let returned =
            unsafe { ffi::ibv_query_port(self.raw(), port, (&raw mut attributes).cast()) };
        self.check("ibv_query_port", &format_args!("port {port}"), returned)?;
        Ok(PortAttributes::from(&attributes))
    }

    /// Returns an entry of a port's GID table; all zeros if it is empty.
    ///
    /// # Errors
    /// The error of `ibv_query_gid`; EINVAL if there is no such entry.
    pub fn gid(&self, port: u8, index: u16) -> Result<Gid> {
        let mut gid = ffi::ibv_gid::default();
        // SAFETY: the context is open, and the GID is writable.
        let returned =
            unsafe { ffi::ibv_query_gid(self.raw(), port, c_int::from(index), &raw mut gid) };
        self.check(
            "ibv_query_gid",
            &format_args!("port {port}, index {index}"),
            returned,
        )?;
        // SAFETY: every byte pattern is valid.
        Ok(Gid(unsafe { gid.raw }))
    }

    /// Returns an entry of a port's P_Key table; partition 0 if it is empty.
    ///
    /// # Errors
    /// The error of `ibv_query_pkey`; EINVAL if there is no such entry.
    pub fn pkey(&self, port: u8, index: u16) -> Result<PKey> {
        let mut pkey = 0;
        // SAFETY: the context is open, and the P_Key is writable.
        let returned =
            unsafe { ffi::ibv_query_pkey(self.raw(), port, c_int::from(index), &raw mut pkey) };
        self.check(
            "ibv_query_pkey",
            &format_args!("port {port}, index {index}"),
            returned,
        )?;
        Ok(PKey(u16::from_be(pkey)))
    }

    /// Returns the index of a P_Key in a port's table, comparing the membership bit too; `None` if it is not
    /// there.
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

    /// Turns the return value of a verb into a result that names this device.
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
