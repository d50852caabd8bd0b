//! The open devices, ports, endpoints and addresses, each under the key that the core holds as its context.

mod device;

use std::ffi::c_void;

use crate::abi::AcmEpType;
use crate::address::Address;
use crate::door::registry::{ContextKey, Guest, Registry};
use crate::host::Host;
use crate::host::guard::guard;
use crate::provider::{
    Endpoint, EndpointContext as _, LocalAddress, Port, PortContext as _, Provider,
};
use crate::sync::{Arc, Mutex};

use device::FailedDevices;

pub(super) use device::{CoreDevice, OpenDevice, UsedDevice};

/// All open contexts of one provider.
pub(super) struct Contexts<P: Provider> {
    pub(super) devices: Registry<OpenDevice<P>>,
    failed_devices: FailedDevices,
    pub(super) ports: Registry<OpenPort<P>>,
    pub(super) endpoints: Registry<OpenEndpoint<P>>,
    pub(super) addresses: Registry<LocalAddress<P>>,
}

/// The value of a context.
pub(super) trait Context {
    /// The provider that it belongs to.
    type Provider: Provider;

    /// Its name in the log.
    const WHAT: &'static str;

    /// The core that opened it.
    fn host(&self) -> &Host;

    /// Calls the provider's close, and closes the handle. Called once, by the close of the context. A panic of the provider
    /// does not stop it.
    fn end(&self, callback: &str, contexts: &Contexts<Self::Provider>);
}

/// A port. It counts as a user of its device.
pub(super) struct OpenPort<P: Provider> {
    port: Arc<Port<P>>,
    _device: UsedDevice<P>,
}

impl<P: Provider> OpenPort<P> {
    pub(super) fn new(port: Port<P>, device: UsedDevice<P>) -> Self {
        Self {
            port: Arc::new(port),
            _device: device,
        }
    }

    pub(super) fn port(&self) -> &Arc<Port<P>> {
        &self.port
    }
}

impl<P: Provider> Context for OpenPort<P> {
    type Provider = P;
    const WHAT: &'static str = "port";

    fn host(&self) -> &Host {
        self.port.handle().host()
    }

    fn end(&self, callback: &str, _: &Contexts<P>) {
        guard(self.host(), callback, (), || self.port.context().close());
        self.port.handle().close();
    }
}

/// An endpoint and its addresses, which close with it.
pub(super) struct OpenEndpoint<P: Provider> {
    endpoint: Arc<Endpoint<P>>,
    addresses: Mutex<Vec<(CoreAddress, ContextKey)>>,
}

/// The identity of an address for the core: names compare without case, and an IPv4 address differs from the same one in
/// IPv6 form.
type CoreAddress = (AcmEpType, Address);

impl<P: Provider> OpenEndpoint<P> {
    pub(super) fn new(endpoint: Endpoint<P>) -> Self {
        Self {
            endpoint: Arc::new(endpoint),
            addresses: Mutex::default(),
        }
    }

    pub(super) fn endpoint(&self) -> &Arc<Endpoint<P>> {
        &self.endpoint
    }

    /// Keeps the context of an address with the endpoint's.
    pub(super) fn keep(&self, address: CoreAddress, key: ContextKey) {
        self.addresses.lock().push((address, key));
    }

    /// Takes the context of an address out of the endpoint's, if there is one.
    pub(super) fn take(
        &self,
        address: CoreAddress,
        open: &Registry<LocalAddress<P>>,
    ) -> Option<ContextKey> {
        let mut addresses = self.addresses.lock();
        // Addresses come and go for as long as an endpoint lives.
        addresses.retain(|(_, key)| open.is_open(*key));
        let index = addresses.iter().position(|(own, _)| *own == address)?;
        Some(addresses.swap_remove(index).1)
    }
}

impl<P: Provider> Context for OpenEndpoint<P> {
    type Provider = P;
    const WHAT: &'static str = "endpoint";

    fn host(&self) -> &Host {
        self.endpoint.handle().host()
    }

    fn end(&self, callback: &str, contexts: &Contexts<P>) {
        // The core may close an endpoint without removing its addresses first.
        for (_, key) in std::mem::take(&mut *self.addresses.lock()) {
            contexts.close_key(callback, &contexts.addresses, key);
        }
        // The core frees its structure after this call, even if the provider's code panics.
        guard(self.host(), callback, (), || {
            self.endpoint.context().close()
        });
        self.endpoint.handle().close();
    }
}

impl<P: Provider> Context for LocalAddress<P> {
    type Provider = P;
    const WHAT: &'static str = "address";

    #[inline]
    fn host(&self) -> &Host {
        self.endpoint().handle().host()
    }

    fn end(&self, callback: &str, _: &Contexts<P>) {
        guard(self.host(), callback, (), || self.remove());
    }
}

impl<P: Provider> Contexts<P> {
    pub(super) const fn new() -> Self {
        Self {
            devices: Registry::new(),
            failed_devices: FailedDevices::new(),
            ports: Registry::new(),
            endpoints: Registry::new(),
            addresses: Registry::new(),
        }
    }

    /// Closes a guest's context, unless it is closed already.
    pub(super) fn close<T: Context<Provider = P>>(&self, callback: &str, guest: &Guest<'_, T>) {
        if guest.close() {
            guest.end(callback, self);
        }
    }

    /// Closes the context of a key, if it is open.
    pub(super) fn close_key<T: Context<Provider = P>>(
        &self,
        callback: &str,
        registry: &Registry<T>,
        key: ContextKey,
    ) {
        if let Ok(guest) = enter(callback, registry, key) {
            self.close(callback, &guest);
            leave(callback, guest);
        }
    }
}

/// The key names no open context.
pub(super) struct NotOpen;

/// Enters the context that the core passed.
#[inline]
pub(super) fn find<'a, T: Context>(
    callback: &str,
    registry: &'a Registry<T>,
    context: *mut c_void,
) -> Result<Guest<'a, T>, NotOpen> {
    let key = ContextKey::from_context(context).ok_or(NotOpen)?;
    enter(callback, registry, key)
}

#[inline]
fn enter<'a, T: Context>(
    callback: &str,
    registry: &'a Registry<T>,
    key: ContextKey,
) -> Result<Guest<'a, T>, NotOpen> {
    registry.enter(key).map_err(|last| {
        if let Some(value) = last {
            let_go(callback, value);
        }
        NotOpen
    })
}

/// Leaves a context. The last guest of a closed context drops its value.
#[inline]
pub(super) fn leave<T: Context>(callback: &str, guest: Guest<'_, T>) {
    if let Some(value) = guest.leave() {
        let_go(callback, value);
    }
}

/// Drops a closed context's value. Its destructor belongs to the provider and may panic.
#[cold]
fn let_go<T: Context>(callback: &str, value: Arc<T>) {
    let host = *value.host();
    guard(&host, callback, (), || drop(value));
}
