//! The twelve callbacks of `struct acm_provider`, for any [`Provider`].
//!
//! Each goes through the [door](crate::door), turns the core's pointers and keys into typed values, and calls the provider.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use crate::abi::{
    ACM_MAX_COUNTER, AcmEpType, AcmStatus, Be64, acm_address, acm_device, acm_endpoint, acm_msg,
    acm_port, ibv_event_type,
};
use crate::address::Address;
use crate::door::{self, Refusal, guard};
use crate::handle::{DeviceHandle, EndpointHandle, PortHandle};
use crate::host::{Host, LogLevel};
use crate::load::Exported;
use crate::message::Message;
use crate::provider::{
    Device, DeviceState as _, Endpoint, EndpointState as _, LocalAddress, Port, PortState as _,
};
use crate::registry::{Key, Registry};
use crate::request::{QueryRequest, ResolveRequest};
use crate::sync::{Arc, Mutex};

const DONE: c_int = 0;
const FAILED: c_int = -1;

/// Everything of one provider that is open.
pub(crate) struct Contexts<P: Exported> {
    devices: Registry<Device<P>>,
    ports: Registry<Port<P>>,
    endpoints: Registry<OpenEndpoint<P>>,
    addresses: Registry<LocalAddress<P>>,
}

/// An endpoint and its addresses, which die with it.
struct OpenEndpoint<P: Exported> {
    endpoint: Arc<Endpoint<P>>,
    addresses: Mutex<Vec<(CoreAddress, Key)>>,
}

/// What an address is for the core: names are equal without case, and an IPv4 address in the form of an IPv6 address is
/// another one than in its own.
type CoreAddress = (AcmEpType, Address);

impl<P: Exported> OpenEndpoint<P> {
    /// Takes the context of an address out of the endpoint's, if there is one.
    fn take(&self, address: CoreAddress, open: &Registry<LocalAddress<P>>) -> Option<Key> {
        let mut addresses = self.addresses.lock();
        // Addresses come and go for as long as an endpoint lives.
        addresses.retain(|(_, key)| open.get(*key).is_some());
        let index = addresses.iter().position(|(own, _)| *own == address)?;
        Some(addresses.swap_remove(index).1)
    }
}

impl<P: Exported> Contexts<P> {
    pub(crate) const fn new() -> Self {
        Self {
            devices: Registry::new(),
            ports: Registry::new(),
            endpoints: Registry::new(),
            addresses: Registry::new(),
        }
    }

    /// Tells an address's state that it is gone, and forgets it.
    fn drop_address(&self, host: &Host, callback: &str, key: Key) {
        let Some(address) = self.addresses.remove(key) else {
            return;
        };
        guard(host, callback, (), || address.remove());
        // Not while a panic of the above unwinds: the state's own destructor may panic as well.
        guard(host, callback, (), || drop(address));
    }
}

fn contexts<P: Exported>() -> &'static Contexts<P> {
    P::slot().contexts()
}

/// Runs a callback's body behind the door.
fn enter<P: Exported, R>(
    callback: &str,
    fallback: R,
    body: impl FnOnce(&Host) -> Result<R, Refusal>,
) -> R {
    let host = P::slot().host();
    door::enter(callback, host.as_ref(), fallback, || {
        let host = host
            .as_ref()
            .ok_or_else(|| Refusal::error("called before provider_query succeeded"))?;
        body(host)
    })
}

fn not_null<T>(what: &str, pointer: *const T) -> Result<NonNull<T>, Refusal> {
    NonNull::new(pointer.cast_mut())
        .ok_or_else(|| Refusal::error(format_args!("the core passed a NULL {what}")))
}

fn open<T>(
    what: &str,
    registry: &Registry<T>,
    context: *mut c_void,
) -> Result<(Key, Arc<T>), Refusal> {
    let missing = || {
        Refusal::error(format_args!(
            "the core passed a {what} context that is not open: {context:p}"
        ))
    };
    let key = Key::from_context(context).ok_or_else(missing)?;
    registry
        .get(key)
        .map(|value| (key, value))
        .ok_or_else(missing)
}

/// An endpoint that is being opened. Unless it is in the end, nobody will tell of its close: the core frees a structure
/// that did not open without a word, so whatever keeps the handle must find it closed.
struct Opening(Option<EndpointHandle>);

impl Opening {
    fn succeeded(mut self) {
        self.0 = None;
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        if let Some(handle) = &self.0 {
            handle.close();
        }
    }
}

/// Registers a context and hands its key to the core; the last thing that an opening callback does.
///
/// # Safety
/// `out` may be written.
unsafe fn hand_out<T>(
    registry: &Registry<T>,
    value: Arc<T>,
    out: NonNull<*mut c_void>,
) -> Result<Key, Refusal> {
    let key = registry
        .insert(value)
        .ok_or_else(|| Refusal::error("too many contexts are open"))?;
    // SAFETY: the caller's promise.
    unsafe { out.write(key.to_context()) };
    Ok(key)
}

pub(crate) unsafe extern "C" fn open_device<P: Exported>(
    device: *const acm_device,
    dev_context: *mut *mut c_void,
) -> c_int {
    enter::<P, _>("open_device", FAILED, |host| {
        let device = not_null("device", device)?;
        let out = not_null("context pointer", dev_context)?;
        let provider = P::slot()
            .provider()
            .ok_or_else(|| Refusal::error("the provider is not loaded"))?;
        // SAFETY: the core's device stays open until close_device.
        let handle = unsafe { DeviceHandle::new(*host, device.as_ptr()) };
        let device = Device::open(provider, handle).map_err(Refusal::error)?;
        // SAFETY: an out-argument of the core's.
        unsafe { hand_out(&contexts::<P>().devices, Arc::new(device), out)? };
        Ok(DONE)
    })
}

pub(crate) unsafe extern "C" fn close_device<P: Exported>(dev_context: *mut c_void) {
    enter::<P, _>("close_device", (), |host| {
        let registry = &contexts::<P>().devices;
        let (key, device) = open("device", registry, dev_context)?;
        registry.remove(key);
        guard(host, "close_device", (), || device.state().close());
        device.handle().close();
        Ok(())
    });
}

pub(crate) unsafe extern "C" fn open_port<P: Exported>(
    port: *const acm_port,
    dev_context: *mut c_void,
    port_context: *mut *mut c_void,
) -> c_int {
    enter::<P, _>("open_port", FAILED, |_| {
        let port = not_null("port", port)?;
        let out = not_null("context pointer", port_context)?;
        let (_, device) = open("device", &contexts::<P>().devices, dev_context)?;
        // SAFETY: the core's port stays open until close_port.
        let handle = unsafe { PortHandle::new(device.handle().clone(), port.as_ptr()) };
        let port = Port::open(device, handle).map_err(Refusal::error)?;
        // SAFETY: an out-argument of the core's.
        unsafe { hand_out(&contexts::<P>().ports, Arc::new(port), out)? };
        Ok(DONE)
    })
}

pub(crate) unsafe extern "C" fn close_port<P: Exported>(port_context: *mut c_void) {
    enter::<P, _>("close_port", (), |host| {
        let registry = &contexts::<P>().ports;
        let (key, port) = open("port", registry, port_context)?;
        registry.remove(key);
        guard(host, "close_port", (), || port.state().close());
        port.handle().close();
        Ok(())
    });
}

pub(crate) unsafe extern "C" fn open_endpoint<P: Exported>(
    endpoint: *const acm_endpoint,
    port_context: *mut c_void,
    ep_context: *mut *mut c_void,
) -> c_int {
    enter::<P, _>("open_endpoint", FAILED, |_| {
        let endpoint = not_null("endpoint", endpoint)?;
        let out = not_null("context pointer", ep_context)?;
        let (_, port) = open("port", &contexts::<P>().ports, port_context)?;
        // SAFETY: the core's endpoint stays open until close_endpoint.
        let handle = unsafe { EndpointHandle::new(port.handle().clone(), endpoint.as_ptr()) };
        let opening = Opening(Some(handle.clone()));
        let endpoint = Endpoint::open(port, handle).map_err(Refusal::error)?;
        let endpoint = OpenEndpoint {
            endpoint: Arc::new(endpoint),
            addresses: Mutex::default(),
        };
        // SAFETY: an out-argument of the core's.
        unsafe { hand_out(&contexts::<P>().endpoints, Arc::new(endpoint), out)? };
        opening.succeeded();
        Ok(DONE)
    })
}

pub(crate) unsafe extern "C" fn close_endpoint<P: Exported>(ep_context: *mut c_void) {
    enter::<P, _>("close_endpoint", (), |host| {
        let contexts = contexts::<P>();
        let (key, open) = open("endpoint", &contexts.endpoints, ep_context)?;
        contexts.endpoints.remove(key);
        // The core may close an endpoint without taking its addresses away first.
        for (_, key) in std::mem::take(&mut *open.addresses.lock()) {
            contexts.drop_address(host, "close_endpoint", key);
        }
        // The core frees its structure after this call, whatever the provider's own code does.
        guard(host, "close_endpoint", (), || open.endpoint.state().close());
        open.endpoint.handle().close();
        Ok(())
    });
}

pub(crate) unsafe extern "C" fn add_address<P: Exported>(
    addr: *const acm_address,
    ep_context: *mut c_void,
    addr_context: *mut *mut c_void,
) -> c_int {
    enter::<P, _>("add_address", FAILED, |host| {
        let addr = not_null("address", addr)?;
        let out = not_null("context pointer", addr_context)?;
        let contexts = contexts::<P>();
        let (_, open) = open("endpoint", &contexts.endpoints, ep_context)?;
        // SAFETY: the core's address is valid during the call, and its union is bytes in every form.
        let (kind, field) = unsafe { ((*addr.as_ptr()).r#type, (*addr.as_ptr()).info.addr) };
        let address = Address::parse(kind.0, &field).map_err(Refusal::error)?;
        // After a netlink overflow the core forgets the contexts of addresses, and adds those that are still there. It
        // never removes the forgotten ones: the new context takes their place.
        if let Some(earlier) = open.take((kind, address), &contexts.addresses) {
            host.log(
                LogLevel::VERBOSE,
                format_args!(
                    "add_address: {address} was added before; the new context replaces the old one"
                ),
            );
            contexts.drop_address(host, "add_address", earlier);
        }
        let local = LocalAddress::add(Arc::clone(&open.endpoint), address);
        let local = Arc::new(local.map_err(Refusal::error)?);
        // SAFETY: an out-argument of the core's.
        let key = unsafe { hand_out(&contexts.addresses, Arc::clone(&local), out) }
            .inspect_err(|_| local.remove())?;
        open.addresses.lock().push(((kind, address), key));
        Ok(DONE)
    })
}

pub(crate) unsafe extern "C" fn remove_address<P: Exported>(addr_context: *mut c_void) {
    enter::<P, _>("remove_address", (), |host| {
        let contexts = contexts::<P>();
        let key = open("address", &contexts.addresses, addr_context)?.0;
        contexts.drop_address(host, "remove_address", key);
        Ok(())
    });
}

pub(crate) unsafe extern "C" fn resolve<P: Exported>(
    addr_context: *mut c_void,
    msg: *mut acm_msg,
    id: u64,
) -> c_int {
    enter::<P, _>("resolve", DONE, |host| {
        // SAFETY: the core's message, or NULL.
        let message = unsafe { Message::new(not_null("message", msg)?.as_ptr()) };
        let address = open("address", &contexts::<P>().addresses, addr_context);
        let endpoint = address
            .as_ref()
            .ok()
            .map(|(_, address)| address.endpoint().handle().clone());
        let Some(request) = ResolveRequest::read(*host, endpoint, id, message) else {
            return Ok(DONE);
        };
        match address {
            Ok((_, address)) => address.endpoint().provider().resolve(&address, request),
            Err(refusal) => {
                request.refuse(AcmStatus::ESRCADDR);
                return Err(refusal);
            }
        }
        Ok(DONE)
    })
}

pub(crate) unsafe extern "C" fn query<P: Exported>(
    addr_context: *mut c_void,
    msg: *mut acm_msg,
    id: u64,
) -> c_int {
    enter::<P, _>("query", DONE, |host| {
        // SAFETY: the core's message, or NULL.
        let message = unsafe { Message::new(not_null("message", msg)?.as_ptr()) };
        let address = open("address", &contexts::<P>().addresses, addr_context);
        let endpoint = address
            .as_ref()
            .ok()
            .map(|(_, address)| address.endpoint().handle().clone());
        let Some(request) = QueryRequest::read(*host, endpoint, id, message) else {
            return Ok(DONE);
        };
        match address {
            Ok((_, address)) => address.endpoint().provider().query(&address, request),
            Err(refusal) => {
                request.refuse(AcmStatus::ESRCADDR);
                return Err(refusal);
            }
        }
        Ok(DONE)
    })
}

pub(crate) unsafe extern "C" fn handle_event<P: Exported>(
    port_context: *mut c_void,
    event: ibv_event_type,
) -> c_int {
    enter::<P, _>("handle_event", FAILED, |host| {
        let (_, port) = open("port", &contexts::<P>().ports, port_context)?;
        if event == ibv_event_type::CLIENT_REREGISTER {
            port.state().reregister(port.handle());
        } else {
            host.log(
                LogLevel::VERBOSE,
                format_args!("handle_event: {event:?} on port {}", port.handle().number()),
            );
        }
        Ok(DONE)
    })
}

pub(crate) unsafe extern "C" fn query_perf<P: Exported>(
    ep_context: *mut c_void,
    values: *mut Be64,
    cnt: *mut u8,
) {
    enter::<P, _>("query_perf", (), |_| {
        let cnt = not_null("count pointer", cnt)?;
        // SAFETY: an out-argument of the core's. Nothing is counted yet if what follows fails.
        unsafe { cnt.write(0) };
        let values = not_null("value array", values)?;
        let (_, open) = open("endpoint", &contexts::<P>().endpoints, ep_context)?;
        for (index, value) in open
            .endpoint
            .handle()
            .counters()
            .values()
            .into_iter()
            .enumerate()
        {
            // SAFETY: the core's array has room for ACM_MAX_COUNTER values (a message's data, 72 of them).
            unsafe { values.add(index).write(Be64::from_host(value)) };
        }
        // SAFETY: as above.
        unsafe { cnt.write(ACM_MAX_COUNTER as u8) };
        Ok(())
    });
}
