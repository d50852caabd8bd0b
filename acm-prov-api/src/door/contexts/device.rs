//! Devices. The core can forget their contexts without a close.
//!
//! ibacm opens a device with its first port that comes up, and counts its open ports. If `open_port` fails and
//! no other port is open, it forgets the context without `close_device`, and the next port that
//! comes up opens the device anew. So the SDK ends such a device itself. A core that keeps the context may still use
//! it: `open_port` reopens the device, and `close_device` has nothing left to do.

use std::ffi::c_void;

use super::{Context, Contexts};
use crate::abi::acm_device;
use crate::door::registry::ContextKey;
use crate::handles::DeviceHandle;
use crate::host::Host;
use crate::host::guard::{Refusal, guard};
use crate::provider::{Device, DeviceContext as _, Provider};
use crate::sync::{Arc, Mutex};

/// A device of the core's.
#[derive(Clone, Copy, PartialEq)]
pub(in crate::door) struct CoreDevice(*const acm_device);

// SAFETY: the structure is constant while the core keeps it, and is only read.
unsafe impl Send for CoreDevice {}
// SAFETY: see above.
unsafe impl Sync for CoreDevice {}

impl CoreDevice {
    /// # Safety
    /// The core keeps the device until it closes the context that it gets for it, or opens the device again.
    pub(in crate::door) unsafe fn new(device: *const acm_device) -> Self {
        Self(device)
    }
}

/// A device that the core has a context for.
pub(in crate::door) struct OpenDevice<P: Provider> {
    host: Host,
    core: CoreDevice,
    /// The provider, as long as it is loaded.
    provider: fn() -> Option<Arc<P>>,
    state: Mutex<State<P>>,
}

struct State<P: Provider> {
    /// `None` after its only port failed to open.
    device: Option<Arc<Device<P>>>,
    /// The number of ports that are open or being opened.
    ports: usize,
}

impl<P: Provider> Context for OpenDevice<P> {
    type Provider = P;
    const WHAT: &'static str = "device";

    fn host(&self) -> &Host {
        &self.host
    }

    fn end(&self, callback: &str, _: &Contexts<P>) {
        self.close(callback);
    }
}

impl<P: Provider> OpenDevice<P> {
    pub(in crate::door) fn open(
        host: Host,
        core: CoreDevice,
        provider: fn() -> Option<Arc<P>>,
    ) -> Result<Self, Refusal> {
        let open = Self {
            host,
            core,
            provider,
            state: Mutex::new(State {
                device: None,
                ports: 0,
            }),
        };
        open.device()?;
        Ok(open)
    }

    /// Returns the device; reopens it if it has ended.
    fn device(&self) -> Result<Arc<Device<P>>, Refusal> {
        if let Some(device) = &self.state.lock().device {
            return Ok(Arc::clone(device));
        }
        let provider =
            (self.provider)().ok_or_else(|| Refusal::error("the provider is not loaded"))?;
        // SAFETY: the core's device stays open until close_device.
        let handle = unsafe { DeviceHandle::new(self.host, self.core.0) };
        let device = Arc::new(Device::open(provider, handle).map_err(Refusal::error)?);
        self.state.lock().device = Some(Arc::clone(&device));
        Ok(device)
    }

    /// Ends the device, unless it has ended.
    pub(in crate::door) fn close(&self, callback: &str) {
        let device = self.state.lock().device.take();
        self.end_taken(callback, device);
    }

    /// Ends the device after a port failed to open, unless another port is open.
    pub(in crate::door) fn port_failed(&self, contexts: &Contexts<P>, context: *mut c_void) {
        let device = {
            let mut state = self.state.lock();
            if state.ports > 0 {
                return;
            }
            state.device.take()
        };
        self.end_taken("open_port", device);
        contexts.failed_devices.add(self.core, context);
    }

    fn end_taken(&self, callback: &str, device: Option<Arc<Device<P>>>) {
        let Some(device) = device else { return };
        guard(&self.host, callback, (), || device.context().close());
        device.handle().close();
        // The provider's destructor may panic, even during another panic.
        guard(&self.host, callback, (), || drop(device));
    }
}

/// A port's use of its device; dropping it ends the use.
pub(in crate::door) struct UsedDevice<P: Provider>(Arc<OpenDevice<P>>);

impl<P: Provider> UsedDevice<P> {
    pub(in crate::door) fn new(device: &Arc<OpenDevice<P>>) -> Self {
        device.state.lock().ports += 1;
        Self(Arc::clone(device))
    }

    pub(in crate::door) fn device(&self) -> Result<Arc<Device<P>>, Refusal> {
        self.0.device()
    }
}

impl<P: Provider> Drop for UsedDevice<P> {
    fn drop(&mut self) {
        self.0.state.lock().ports -= 1;
    }
}

/// Devices that ended because their only port failed to open; at most one per device of the core.
pub(super) struct FailedDevices(Mutex<Vec<(CoreDevice, ContextKey)>>);

impl FailedDevices {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    fn add(&self, device: CoreDevice, context: *mut c_void) {
        self.remove(context);
        let key = ContextKey::from_context(context);
        self.0.lock().extend(key.map(|key| (device, key)));
    }

    fn remove(&self, context: *mut c_void) {
        let key = ContextKey::from_context(context);
        self.0.lock().retain(|(_, failed)| Some(*failed) != key);
    }
}

impl<P: Provider> Contexts<P> {
    /// Removes ended contexts of a device that the core opens again: it has forgotten them.
    pub(in crate::door) fn forget_failed(&self, callback: &str, device: CoreDevice) {
        let forgotten: Vec<ContextKey> = {
            let mut failed = self.failed_devices.0.lock();
            let (forgotten, others) = failed.drain(..).partition(|(core, _)| *core == device);
            *failed = others;
            let forgotten: Vec<(CoreDevice, ContextKey)> = forgotten;
            forgotten.into_iter().map(|(_, key)| key).collect()
        };
        for key in forgotten {
            self.close_key(callback, &self.devices, key);
        }
    }

    /// Notes that a port has opened: the core keeps the context of its device.
    pub(in crate::door) fn port_opened(&self, context: *mut c_void) {
        self.failed_devices.remove(context);
    }
}
