//! The twelve callbacks of `struct acm_provider`, for any [`Provider`](crate::Provider).
//!
//! Each goes through the [door](crate::host::guard), turns the core's pointers and keys into typed values, and calls the provider.
//! One that comes with a context is its [guest](crate::door::registry::Guest): a close that comes meanwhile, from another thread
//! or from inside the callback, ends the context when the callback is over.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use crate::abi::{
    ACM_MAX_COUNTER, AcmEpType, Be64, acm_address, acm_device, acm_endpoint, acm_msg, acm_port,
    ibv_event_type,
};
use crate::address::Address;
use crate::door::registry::{Guest, Key, Registry};
use crate::door::slot::Exported;
use crate::handles::{EndpointHandle, PortHandle};
use crate::host::guard::{self, Refusal, guard};
use crate::host::{Host, LogLevel};
use crate::provider::{Endpoint, EndpointState as _, LocalAddress, Port, PortState as _};
use crate::request::message::Message;
use crate::request::{self, QueryRequest, ResolveRequest, View};
use crate::sync::{Arc, Mutex};

mod device;

use device::{CoreDevice, FailedDevices, OpenDevice, OpeningPort, UsedDevice};

const DONE: c_int = 0;
const FAILED: c_int = -1;

/// Everything of one provider that is open.
pub(crate) struct Contexts<P: Exported> {
    devices: Registry<OpenDevice<P>>,
    failed_devices: FailedDevices,
    ports: Registry<OpenPort<P>>,
    endpoints: Registry<OpenEndpoint<P>>,
    addresses: Registry<LocalAddress<P>>,
}

/// What the core has a context for.
trait Context {
    /// The word for it in the log.
    const WHAT: &'static str;

    /// The core that opened it.
    fn host(&self) -> &Host;
}

/// A port, and that it uses its device.
struct OpenPort<P: Exported> {
    port: Arc<Port<P>>,
    _device: UsedDevice<P>,
}

impl<P: Exported> Context for OpenPort<P> {
    const WHAT: &'static str = "port";

    fn host(&self) -> &Host {
        self.port.handle().host()
    }
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
        addresses.retain(|(_, key)| open.is_open(*key));
        let index = addresses.iter().position(|(own, _)| *own == address)?;
        Some(addresses.swap_remove(index).1)
    }
}

impl<P: Exported> Context for OpenEndpoint<P> {
    const WHAT: &'static str = "endpoint";

    fn host(&self) -> &Host {
        self.endpoint.handle().host()
    }
}

impl<P: Exported> Context for LocalAddress<P> {
    const WHAT: &'static str = "address";

    #[inline]
    fn host(&self) -> &Host {
        self.endpoint().handle().host()
    }
}

impl<P: Exported> Contexts<P> {
    pub(crate) const fn new() -> Self {
        Self {
            devices: Registry::new(),
            failed_devices: FailedDevices::new(),
            ports: Registry::new(),
            endpoints: Registry::new(),
            addresses: Registry::new(),
        }
    }

    /// Tells an address's state that it is gone, and forgets it.
    fn drop_address(&self, callback: &str, key: Key) {
        if let Ok(address) = entered(callback, &self.addresses, key) {
            remove(callback, &address);
            leave(callback, address);
        }
    }
}

/// Closes an address. False if it was closed already.
fn remove<P: Exported>(callback: &str, address: &Guest<'_, LocalAddress<P>>) -> bool {
    let is_open = address.close();
    if is_open {
        guard(address.host(), callback, (), || address.remove());
    }
    is_open
}

fn contexts<P: Exported>() -> &'static Contexts<P> {
    P::slot().contexts()
}

/// Runs the body of a callback without a context behind the door.
fn enter<P: Exported, R>(
    callback: &str,
    fallback: R,
    body: impl FnOnce(&Host) -> Result<R, Refusal>,
) -> R {
    let host = P::slot().host();
    guard::enter(callback, host.as_ref(), fallback, || {
        let host = host
            .as_ref()
            .ok_or_else(|| Refusal::error("called before provider_query succeeded"))?;
        body(host)
    })
}

/// Runs the body of a callback behind the door, as a guest of its context.
#[inline]
fn visit<P: Exported, T: Context, R>(
    callback: &str,
    fallback: R,
    registry: &Registry<T>,
    context: *mut c_void,
    body: impl FnOnce(&Host, &Guest<'_, T>) -> Result<R, Refusal>,
) -> R {
    match find(callback, registry, context) {
        Ok(guest) => {
            let host = guest.host();
            let value = guard::enter(callback, Some(host), fallback, || body(host, &guest));
            leave(callback, guest);
            value
        }
        Err(NotOpen) => enter::<P, _>(callback, fallback, |_| Err(not_open(T::WHAT, context))),
    }
}

/// A context that is none, or none any more.
struct NotOpen;

fn not_open(what: &str, context: *mut c_void) -> Refusal {
    Refusal::error(format_args!(
        "the core passed a {what} context that is not open: {context:p}"
    ))
}

#[inline]
fn find<'a, T: Context>(
    callback: &str,
    registry: &'a Registry<T>,
    context: *mut c_void,
) -> Result<Guest<'a, T>, NotOpen> {
    let key = Key::from_context(context).ok_or(NotOpen)?;
    entered(callback, registry, key)
}

#[inline]
fn entered<'a, T: Context>(
    callback: &str,
    registry: &'a Registry<T>,
    key: Key,
) -> Result<Guest<'a, T>, NotOpen> {
    registry.enter(key).map_err(|last| {
        if let Some(value) = last {
            end(callback, value);
        }
        NotOpen
    })
}

#[inline]
fn leave<T: Context>(callback: &str, guest: Guest<'_, T>) {
    if let Some(value) = guest.leave() {
        end(callback, value);
    }
}

/// Lets go of a closed context's value. Its destructor, the provider's, may panic.
#[cold]
fn end<T: Context>(callback: &str, value: Arc<T>) {
    let host = *value.host();
    guard(&host, callback, (), || drop(value));
}

#[inline]
fn not_null<T>(what: &str, pointer: *const T) -> Result<NonNull<T>, Refusal> {
    NonNull::new(pointer.cast_mut()).ok_or_else(|| null(what))
}

#[cold]
fn null(what: &str) -> Refusal {
    Refusal::error(format_args!("the core passed a NULL {what}"))
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
        let contexts = contexts::<P>();
        // SAFETY: the core's device stays open until close_device, or is opened again.
        let device = unsafe { CoreDevice::new(device.as_ptr()) };
        contexts.forget_failed("open_device", device);
        let open = OpenDevice::open(*host, device)?;
        // SAFETY: an out-argument of the core's.
        unsafe { hand_out(&contexts.devices, Arc::new(open), out)? };
        Ok(DONE)
    })
}

pub(crate) unsafe extern "C" fn close_device<P: Exported>(dev_context: *mut c_void) {
    const NAME: &str = "close_device";
    let contexts = contexts::<P>();
    visit::<P, _, _>(NAME, (), &contexts.devices, dev_context, |_, device| {
        if device.close() {
            device.end(NAME);
        }
        Ok(())
    });
}

pub(crate) unsafe extern "C" fn open_port<P: Exported>(
    port: *const acm_port,
    dev_context: *mut c_void,
    port_context: *mut *mut c_void,
) -> c_int {
    const NAME: &str = "open_port";
    let contexts = contexts::<P>();
    visit::<P, _, _>(NAME, FAILED, &contexts.devices, dev_context, |_, device| {
        let port = not_null("port", port)?;
        let out = not_null("context pointer", port_context)?;
        let opening = OpeningPort::new(contexts, device, dev_context);
        let used = UsedDevice::new(device);
        let device = used.device()?;
        // SAFETY: the core's port stays open until close_port.
        let handle = unsafe { PortHandle::new(device.handle().clone(), port.as_ptr()) };
        let port = OpenPort {
            port: Arc::new(Port::open(device, handle).map_err(Refusal::error)?),
            _device: used,
        };
        // SAFETY: an out-argument of the core's.
        unsafe { hand_out(&contexts.ports, Arc::new(port), out)? };
        opening.succeeded();
        Ok(DONE)
    })
}

pub(crate) unsafe extern "C" fn close_port<P: Exported>(port_context: *mut c_void) {
    const NAME: &str = "close_port";
    let ports = &contexts::<P>().ports;
    visit::<P, _, _>(NAME, (), ports, port_context, |host, open| {
        if open.close() {
            guard(host, NAME, (), || open.port.state().close());
            open.port.handle().close();
        }
        Ok(())
    });
}

pub(crate) unsafe extern "C" fn open_endpoint<P: Exported>(
    endpoint: *const acm_endpoint,
    port_context: *mut c_void,
    ep_context: *mut *mut c_void,
) -> c_int {
    const NAME: &str = "open_endpoint";
    let contexts = contexts::<P>();
    visit::<P, _, _>(NAME, FAILED, &contexts.ports, port_context, |_, open| {
        let endpoint = not_null("endpoint", endpoint)?;
        let out = not_null("context pointer", ep_context)?;
        let port = Arc::clone(&open.port);
        // SAFETY: the core's endpoint stays open until close_endpoint.
        let handle = unsafe { EndpointHandle::new(port.handle().clone(), endpoint.as_ptr()) };
        let opening = Opening(Some(handle.clone()));
        let endpoint = Endpoint::open(port, handle).map_err(Refusal::error)?;
        let endpoint = OpenEndpoint {
            endpoint: Arc::new(endpoint),
            addresses: Mutex::default(),
        };
        // SAFETY: an out-argument of the core's.
        unsafe { hand_out(&contexts.endpoints, Arc::new(endpoint), out)? };
        opening.succeeded();
        Ok(DONE)
    })
}

pub(crate) unsafe extern "C" fn close_endpoint<P: Exported>(ep_context: *mut c_void) {
    const NAME: &str = "close_endpoint";
    let contexts = contexts::<P>();
    visit::<P, _, _>(NAME, (), &contexts.endpoints, ep_context, |host, open| {
        if open.close() {
            // The core may close an endpoint without taking its addresses away first.
            for (_, key) in std::mem::take(&mut *open.addresses.lock()) {
                contexts.drop_address(NAME, key);
            }
            // The core frees its structure after this call, whatever the provider's own code does.
            guard(host, NAME, (), || open.endpoint.state().close());
            open.endpoint.handle().close();
        }
        Ok(())
    });
}

pub(crate) unsafe extern "C" fn add_address<P: Exported>(
    addr: *const acm_address,
    ep_context: *mut c_void,
    addr_context: *mut *mut c_void,
) -> c_int {
    const NAME: &str = "add_address";
    let contexts = contexts::<P>();
    let endpoints = &contexts.endpoints;
    visit::<P, _, _>(NAME, FAILED, endpoints, ep_context, |host, open| {
        let addr = not_null("address", addr)?;
        let out = not_null("context pointer", addr_context)?;
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
            contexts.drop_address(NAME, earlier);
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
    const NAME: &str = "remove_address";
    let addresses = &contexts::<P>().addresses;
    visit::<P, _, _>(NAME, (), addresses, addr_context, |_, address| {
        remove(NAME, address);
        Ok(())
    });
}

pub(crate) unsafe extern "C" fn resolve<P: Exported>(
    addr_context: *mut c_void,
    msg: *mut acm_msg,
    id: u64,
) -> c_int {
    const NAME: &str = "resolve";
    let Ok(address) = find(NAME, &contexts::<P>().addresses, addr_context) else {
        // SAFETY: the core's message, or NULL.
        return unsafe { refuse::<P>(NAME, addr_context, msg, id, request::refuse_resolve) };
    };
    guard::enter(NAME, Some(address.host()), DONE, || {
        // SAFETY: the core's message, or NULL.
        let message = unsafe { Message::new(not_null("message", msg)?.as_ptr()) };
        let endpoint = address.endpoint();
        if let Some(view) = View::read(endpoint.handle(), id, message) {
            let request = ResolveRequest::new(&view);
            endpoint.provider().resolve(&address, request);
        }
        Ok(DONE)
    });
    leave(NAME, address);
    DONE
}

pub(crate) unsafe extern "C" fn query<P: Exported>(
    addr_context: *mut c_void,
    msg: *mut acm_msg,
    id: u64,
) -> c_int {
    const NAME: &str = "query";
    let Ok(address) = find(NAME, &contexts::<P>().addresses, addr_context) else {
        // SAFETY: the core's message, or NULL.
        return unsafe { refuse::<P>(NAME, addr_context, msg, id, request::refuse_query) };
    };
    guard::enter(NAME, Some(address.host()), DONE, || {
        // SAFETY: the core's message, or NULL.
        let message = unsafe { Message::new(not_null("message", msg)?.as_ptr()) };
        let endpoint = address.endpoint();
        if let Some(request) = QueryRequest::read(endpoint.handle(), id, message) {
            endpoint.provider().query(&address, request);
        }
        Ok(DONE)
    });
    leave(NAME, address);
    DONE
}

/// Answers a client whose address is not open.
///
/// # Safety
/// `msg` is NULL or a whole message.
#[cold]
unsafe fn refuse<P: Exported>(
    callback: &str,
    addr_context: *mut c_void,
    msg: *mut acm_msg,
    id: u64,
    answer: fn(&Host, u64, Message<'_>),
) -> c_int {
    enter::<P, _>(callback, DONE, |host| {
        // SAFETY: the caller's promise.
        answer(host, id, unsafe {
            Message::new(not_null("message", msg)?.as_ptr())
        });
        Err(not_open("address", addr_context))
    })
}

pub(crate) unsafe extern "C" fn handle_event<P: Exported>(
    port_context: *mut c_void,
    event: ibv_event_type,
) -> c_int {
    const NAME: &str = "handle_event";
    let ports = &contexts::<P>().ports;
    visit::<P, _, _>(NAME, FAILED, ports, port_context, |host, open| {
        let port = &open.port;
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
    const NAME: &str = "query_perf";
    if let Some(cnt) = NonNull::new(cnt) {
        // SAFETY: an out-argument of the core's. Nothing is counted yet if what follows fails.
        unsafe { cnt.write(0) };
    }
    let endpoints = &contexts::<P>().endpoints;
    visit::<P, _, _>(NAME, (), endpoints, ep_context, |_, open| {
        let cnt = not_null("count pointer", cnt)?;
        let values = not_null("value array", values)?;
        let counted = open.endpoint.handle().counters().values();
        for (index, value) in counted.into_iter().enumerate() {
            // SAFETY: the core's array has room for ACM_MAX_COUNTER values (a message's data, 72 of them).
            unsafe { values.add(index).write(Be64::from_host(value)) };
        }
        // SAFETY: as above.
        unsafe { cnt.write(ACM_MAX_COUNTER as u8) };
        Ok(())
    });
}
