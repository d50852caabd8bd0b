//! Devices, whose contexts the core can forget without a close.
//!
//! ibacm opens a device with the first port that comes up, and counts the ports that are open in it. If `open_port` fails and
//! no other port is open, it drops its count and the context with it: there is no `close_device`, and the next port that
//! comes up opens the device anew. So the SDK ends such a device itself. A core that keeps the context all the same may use
//! it: `open_port` opens the device again, `close_device` finds nothing left to do.

use std::ffi::c_void;

use super::{Context, Contexts, leave};
use crate::abi::acm_device;
use crate::door::registry::Key;
use crate::door::slot::Exported;
use crate::handles::DeviceHandle;
use crate::host::Host;
use crate::host::guard::{Refusal, guard};
use crate::provider::{Device, DeviceState as _};
use crate::sync::{Arc, Mutex};

/// A device of the core's.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct CoreDevice(*const acm_device);

// SAFETY: the structure is constant while the core keeps it, and is only read.
unsafe impl Send for CoreDevice {}
// SAFETY: see above.
unsafe impl Sync for CoreDevice {}

impl CoreDevice {
    /// # Safety
    /// The core keeps the device until it closes the context that it gets for it, or opens another.
    pub(super) unsafe fn new(device: *const acm_device) -> Self {
        Self(device)
    }
}

/// A device that the core has a context for.
pub(super) struct OpenDevice<P: Exported> {
    host: Host,
    core: CoreDevice,
    state: Mutex<State<P>>,
}

struct State<P: Exported> {
    /// None after the open of its only port has failed.
    device: Option<Arc<Device<P>>>,
    /// Ports that are open in it, or are being opened.
    ports: usize,
}

impl<P: Exported> Context for OpenDevice<P> {
    const WHAT: &'static str = "device";

    fn host(&self) -> &Host {
        &self.host
    }
}

impl<P: Exported> OpenDevice<P> {
    pub(super) fn open(host: Host, core: CoreDevice) -> Result<Self, Refusal> {
        let open = Self {
            host,
            core,
            state: Mutex::new(State {
                device: None,
                ports: 0,
            }),
        };
        open.device()?;
        Ok(open)
    }

    /// The device, opened again if it has ended.
    fn device(&self) -> Result<Arc<Device<P>>, Refusal> {
        if let Some(device) = &self.state.lock().device {
            return Ok(Arc::clone(device));
        }
        let provider = P::slot()
            .provider()
            .ok_or_else(|| Refusal::error("the provider is not loaded"))?;
        // SAFETY: the core's device stays open until close_device.
        let handle = unsafe { DeviceHandle::new(self.host, self.core.0) };
        let device = Arc::new(Device::open(provider, handle).map_err(Refusal::error)?);
        self.state.lock().device = Some(Arc::clone(&device));
        Ok(device)
    }

    /// Ends the device, unless it has ended.
    pub(super) fn end(&self, callback: &str) {
        let device = self.state.lock().device.take();
        self.end_taken(callback, device);
    }

    fn end_taken(&self, callback: &str, device: Option<Arc<Device<P>>>) {
        let Some(device) = device else { return };
        guard(&self.host, callback, (), || device.state().close());
        device.handle().close();
        // The provider's destructor may panic, and a panic may be under way.
        guard(&self.host, callback, (), || drop(device));
    }
}

/// That a port is open in a device.
pub(super) struct UsedDevice<P: Exported>(Arc<OpenDevice<P>>);

impl<P: Exported> UsedDevice<P> {
    pub(super) fn new(device: &Arc<OpenDevice<P>>) -> Self {
        device.state.lock().ports += 1;
        Self(Arc::clone(device))
    }

    pub(super) fn device(&self) -> Result<Arc<Device<P>>, Refusal> {
        self.0.device()
    }
}

impl<P: Exported> Drop for UsedDevice<P> {
    fn drop(&mut self) {
        self.0.state.lock().ports -= 1;
    }
}

/// A port that is being opened. Unless it is in the end, a device without another open port ends.
pub(super) struct OpeningPort<'a, P: Exported> {
    contexts: &'a Contexts<P>,
    device: &'a OpenDevice<P>,
    context: *mut c_void,
}

impl<'a, P: Exported> OpeningPort<'a, P> {
    pub(super) fn new(
        contexts: &'a Contexts<P>,
        device: &'a OpenDevice<P>,
        context: *mut c_void,
    ) -> Self {
        Self {
            contexts,
            device,
            context,
        }
    }

    pub(super) fn succeeded(self) {
        self.contexts.failed_devices.remove(self.context);
        std::mem::forget(self);
    }
}

impl<P: Exported> Drop for OpeningPort<'_, P> {
    fn drop(&mut self) {
        let device = {
            let mut state = self.device.state.lock();
            if state.ports > 0 {
                return;
            }
            state.device.take()
        };
        self.device.end_taken("open_port", device);
        self.contexts
            .failed_devices
            .add(self.device.core, self.context);
    }
}

/// Devices that ended since the open of their only port failed, one for each of the core's.
pub(super) struct FailedDevices(Mutex<Vec<(CoreDevice, Key)>>);

impl FailedDevices {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    fn add(&self, device: CoreDevice, context: *mut c_void) {
        self.remove(context);
        let key = Key::from_context(context);
        self.0.lock().extend(key.map(|key| (device, key)));
    }

    pub(super) fn remove(&self, context: *mut c_void) {
        let key = Key::from_context(context);
        self.0.lock().retain(|(_, failed)| Some(*failed) != key);
    }
}

impl<P: Exported> Contexts<P> {
    /// The core opens a device: it has forgotten contexts of the same that have ended.
    pub(super) fn forget_failed(&self, callback: &str, device: CoreDevice) {
        let forgotten: Vec<Key> = {
            let mut failed = self.failed_devices.0.lock();
            let (forgotten, others) = failed.drain(..).partition(|(core, _)| *core == device);
            *failed = others;
            let forgotten: Vec<(CoreDevice, Key)> = forgotten;
            forgotten.into_iter().map(|(_, key)| key).collect()
        };
        for key in forgotten {
            if let Ok(guest) = super::entered(callback, &self.devices, key) {
                guest.close();
                leave(callback, guest);
            }
        }
    }
}
