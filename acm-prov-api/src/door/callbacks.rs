//! The twelve callbacks of `struct acm_provider`, for any [`Provider`](crate::Provider).
//!
//! Each runs behind the [guard](mod@guard), turns the core's pointers and keys into typed values, and calls the provider.
//! A callback with a context is its [guest](crate::door::registry::Guest): if the context is closed meanwhile, from another
//! thread or from inside the callback, it ends when the callback returns.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use crate::abi::{
    ACM_MAX_COUNTER, Be64, acm_address, acm_device, acm_endpoint, acm_msg, acm_port, ibv_event_type,
};
use crate::address::Address;
use crate::door::contexts::{
    Context, Contexts, CoreDevice, NotOpen, OpenDevice, OpenEndpoint, OpenPort, UsedDevice, find,
    leave,
};
use crate::door::registry::{ContextKey, Guest, Registry};
use crate::door::shown_counters;
use crate::door::slot::Exported;
use crate::handles::{EndpointHandle, PortHandle};
use crate::host::guard::{self, Refusal};
use crate::host::{Host, LogLevel};
use crate::provider::{Endpoint, LocalAddress, Port, PortContext as _};
use crate::request::message::Message;
use crate::request::{self, QueryRequest, ResolveRequest, View};
use crate::sync::Arc;

const DONE: c_int = 0;
const FAILED: c_int = -1;

fn contexts<P: Exported>() -> &'static Contexts<P> {
    P::slot().contexts()
}

/// Runs the body of a callback without a context behind the guard.
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

/// Runs the body of a callback behind the guard, as a guest of its context.
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

fn not_open(what: &str, context: *mut c_void) -> Refusal {
    Refusal::error(format_args!(
        "the core passed a {what} context that is not open: {context:p}"
    ))
}

#[inline]
fn not_null<T>(what: &str, pointer: *const T) -> Result<NonNull<T>, Refusal> {
    NonNull::new(pointer.cast_mut()).ok_or_else(|| null(what))
}

#[cold]
fn null(what: &str) -> Refusal {
    Refusal::error(format_args!("the core passed a NULL {what}"))
}

/// Undoes the work for an open that fails: the core never closes what did not open.
struct Opening<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Opening<F> {
    fn new(undo: F) -> Self {
        Self(Some(undo))
    }

    fn succeeded(mut self) {
        self.0 = None;
    }
}

impl<F: FnOnce()> Drop for Opening<F> {
    fn drop(&mut self) {
        if let Some(undo) = self.0.take() {
            undo();
        }
    }
}

/// Opens the core's object and registers its context. Writes the context's key last.
///
/// # Safety
/// `out` is NULL or may be written.
unsafe fn open<C, T, F: FnOnce()>(
    what: &str,
    pointer: *const C,
    out: *mut *mut c_void,
    registry: &Registry<T>,
    make: impl FnOnce(NonNull<C>) -> Result<(Arc<T>, Opening<F>), Refusal>,
) -> Result<ContextKey, Refusal> {
    let pointer = not_null(what, pointer)?;
    let out = not_null("context pointer", out)?;
    let (value, opening) = make(pointer)?;
    let key = registry
        .insert(value)
        .ok_or_else(|| Refusal::error("too many contexts are open"))?;
    // SAFETY: the caller's promise.
    unsafe { out.write(key.to_context()) };
    opening.succeeded();
    Ok(key)
}

/// Closes a context, and ends its value unless it has ended already.
fn close<P: Exported, T: Context<Provider = P>>(
    callback: &str,
    registry: &Registry<T>,
    context: *mut c_void,
) {
    visit::<P, T, _>(callback, (), registry, context, |_, guest| {
        contexts::<P>().close(callback, guest);
        Ok(())
    });
}

pub(crate) unsafe extern "C" fn open_device<P: Exported>(
    device: *const acm_device,
    dev_context: *mut *mut c_void,
) -> c_int {
    const NAME: &str = "open_device";
    enter::<P, _>(NAME, FAILED, |host| {
        let contexts = contexts::<P>();
        let make = |device: NonNull<acm_device>| {
            // SAFETY: the core's device stays open until close_device, or is opened again.
            let device = unsafe { CoreDevice::new(device.as_ptr()) };
            contexts.forget_failed(NAME, device);
            let device = OpenDevice::open(*host, device, || P::slot().provider())?;
            let device = Arc::new(device);
            let opened = Arc::clone(&device);
            Ok((device, Opening::new(move || opened.close(NAME))))
        };
        // SAFETY: an out-argument of the core's.
        unsafe { open("device", device, dev_context, &contexts.devices, make)? };
        Ok(DONE)
    })
}

pub(crate) unsafe extern "C" fn close_device<P: Exported>(dev_context: *mut c_void) {
    close::<P, _>("close_device", &contexts::<P>().devices, dev_context);
}

pub(crate) unsafe extern "C" fn open_port<P: Exported>(
    port: *const acm_port,
    dev_context: *mut c_void,
    port_context: *mut *mut c_void,
) -> c_int {
    const NAME: &str = "open_port";
    let contexts = contexts::<P>();
    visit::<P, _, _>(NAME, FAILED, &contexts.devices, dev_context, |_, device| {
        let make = |port: NonNull<acm_port>| {
            let port_failed = || device.port_failed(contexts, dev_context);
            let unused = Opening::new(port_failed);
            let used = UsedDevice::new(device);
            let device = used.device()?;
            // SAFETY: the core's port stays open until close_port.
            let handle = unsafe { PortHandle::new(device.handle().clone(), port.as_ptr()) };
            let opened = handle.clone();
            // The threads of a port that does not open end, too.
            let unopened = Opening::new(|| opened.close());
            let port = Port::open(device, handle).map_err(Refusal::error)?;
            unopened.succeeded();
            unused.succeeded();
            let undo = move || {
                opened.close();
                port_failed();
            };
            Ok((Arc::new(OpenPort::new(port, used)), Opening::new(undo)))
        };
        // SAFETY: an out-argument of the core's.
        unsafe { open("port", port, port_context, &contexts.ports, make)? };
        contexts.port_opened(dev_context);
        Ok(DONE)
    })
}

pub(crate) unsafe extern "C" fn close_port<P: Exported>(port_context: *mut c_void) {
    close::<P, _>("close_port", &contexts::<P>().ports, port_context);
}

pub(crate) unsafe extern "C" fn open_endpoint<P: Exported>(
    endpoint: *const acm_endpoint,
    port_context: *mut c_void,
    ep_context: *mut *mut c_void,
) -> c_int {
    const NAME: &str = "open_endpoint";
    let contexts = contexts::<P>();
    let endpoints = &contexts.endpoints;
    visit::<P, _, _>(NAME, FAILED, &contexts.ports, port_context, |_, parent| {
        let make = |endpoint: NonNull<acm_endpoint>| {
            let port = Arc::clone(parent.port());
            // SAFETY: the core's endpoint stays open until close_endpoint.
            let handle = unsafe { EndpointHandle::new(port.handle().clone(), endpoint.as_ptr()) };
            let opened = handle.clone();
            let opening = Opening::new(move || opened.close());
            let endpoint = Endpoint::open(port, handle).map_err(Refusal::error)?;
            Ok((Arc::new(OpenEndpoint::new(endpoint)), opening))
        };
        // SAFETY: an out-argument of the core's.
        unsafe { open("endpoint", endpoint, ep_context, endpoints, make)? };
        Ok(DONE)
    })
}

pub(crate) unsafe extern "C" fn close_endpoint<P: Exported>(ep_context: *mut c_void) {
    close::<P, _>("close_endpoint", &contexts::<P>().endpoints, ep_context);
}

pub(crate) unsafe extern "C" fn add_address<P: Exported>(
    addr: *const acm_address,
    ep_context: *mut c_void,
    addr_context: *mut *mut c_void,
) -> c_int {
    const NAME: &str = "add_address";
    let contexts = contexts::<P>();
    let endpoints = &contexts.endpoints;
    visit::<P, _, _>(NAME, FAILED, endpoints, ep_context, |host, parent| {
        let mut added = None;
        let make = |addr: NonNull<acm_address>| {
            // SAFETY: the core's address is valid during the call, and its union is bytes in every form.
            let (kind, field) = unsafe { ((*addr.as_ptr()).r#type, (*addr.as_ptr()).info.addr) };
            let address = Address::parse(kind.0, &field).map_err(Refusal::error)?;
            // After a netlink overflow the core forgets the contexts of addresses, and adds those that are still there. It
            // never removes the forgotten ones: the new context takes their place.
            if let Some(earlier) = parent.take((kind, address), &contexts.addresses) {
                host.log(
                    LogLevel::VERBOSE,
                    format_args!(
                        "add_address: {address} was added before; the new context replaces the old one"
                    ),
                );
                contexts.close_key(NAME, &contexts.addresses, earlier);
            }
            added = Some((kind, address));
            let local = LocalAddress::add(Arc::clone(parent.endpoint()), address);
            let local = Arc::new(local.map_err(Refusal::error)?);
            let opened = Arc::clone(&local);
            Ok((local, Opening::new(move || opened.remove())))
        };
        // SAFETY: an out-argument of the core's.
        let key = unsafe { open("address", addr, addr_context, &contexts.addresses, make)? };
        if let Some(address) = added {
            parent.keep(address, key);
        }
        Ok(DONE)
    })
}

pub(crate) unsafe extern "C" fn remove_address<P: Exported>(addr_context: *mut c_void) {
    close::<P, _>("remove_address", &contexts::<P>().addresses, addr_context);
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
        let port = open.port();
        if event == ibv_event_type::CLIENT_REREGISTER {
            port.context().reregister(port.handle());
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
        // SAFETY: an out-argument of the core's. The count is 0 in case the rest fails.
        unsafe { cnt.write(0) };
    }
    let endpoints = &contexts::<P>().endpoints;
    visit::<P, _, _>(NAME, (), endpoints, ep_context, |host, open| {
        let cnt = not_null("count pointer", cnt)?;
        let values = not_null("value array", values)?;
        let counted = open.endpoint().handle().counters().values();
        for (index, value) in counted.into_iter().enumerate() {
            // SAFETY: the core's array has room for ACM_MAX_COUNTER values (a message's data, 72 of them).
            unsafe { values.add(index).write(Be64::from_host(value)) };
        }
        // SAFETY: as above.
        unsafe { cnt.write(ACM_MAX_COUNTER as u8) };
        let own = shown_counters::counters::<P>();
        P::slot().shown_counters.show(host, &own);
        Ok(())
    });
}
