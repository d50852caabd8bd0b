//! Contexts and their asynchronous events: `man 3 ibv_open_device`, `ibv_get_async_event`.

use std::ffi::c_int;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use super::abi::{
    ibv_async_event, ibv_async_event_element, ibv_context, ibv_context_ops, ibv_device,
};
use super::fault;
use super::handle::{self, Opaque, minus_one, null};
use super::{completion, not_simulated, queue_pair};
use crate::fd_queue::FdQueue;
use crate::model::adapter::Adapter;
use crate::model::event::AsyncEvent;
use crate::report::report;

/// The Rust part of an open context.
pub struct Context {
    pub(super) adapter: Arc<Adapter>,
    pub(super) events: Arc<FdQueue<AsyncEvent>>,
}

// SAFETY: programs get contexts from `ibv_open_device` alone.
unsafe impl Opaque for ibv_context {
    type Rust = Context;
}

const EVENT_CQ_ERR: c_int = 0;

fn operations() -> ibv_context_ops {
    let compat: super::abi::CompatSlot = Some(not_simulated::first_abi);
    ibv_context_ops {
        _compat_query_device: compat,
        _compat_query_port: compat,
        _compat_alloc_pd: compat,
        _compat_dealloc_pd: compat,
        _compat_reg_mr: compat,
        _compat_rereg_mr: compat,
        _compat_dereg_mr: compat,
        alloc_mw: Some(not_simulated::alloc_mw),
        bind_mw: Some(not_simulated::bind_mw),
        dealloc_mw: Some(not_simulated::dealloc_mw),
        _compat_create_cq: compat,
        poll_cq: Some(completion::poll_cq),
        req_notify_cq: Some(completion::req_notify_cq),
        _compat_cq_event: compat,
        _compat_resize_cq: compat,
        _compat_destroy_cq: compat,
        _compat_create_srq: compat,
        _compat_modify_srq: compat,
        _compat_query_srq: compat,
        _compat_destroy_srq: compat,
        post_srq_recv: Some(not_simulated::post_srq_recv),
        _compat_create_qp: compat,
        _compat_query_qp: compat,
        _compat_modify_qp: compat,
        _compat_destroy_qp: compat,
        post_send: Some(queue_pair::post_send),
        post_recv: Some(queue_pair::post_recv),
        _compat_create_ah: compat,
        _compat_destroy_ah: compat,
        _compat_attach_mcast: compat,
        _compat_detach_mcast: compat,
        _compat_async_event: compat,
    }
}

/// # Safety
/// `device` is NULL or from `ibv_get_device_list`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    if fault::strikes("ibv_open_device") {
        return null(libc::ENOMEM);
    }
    // SAFETY: the caller's promise.
    let Some(adapter) = (unsafe { handle::rust(device) }) else {
        return null(libc::EINVAL);
    };
    let events = match adapter.listen() {
        Ok(events) => events,
        Err(error) => {
            report(&format_args!(
                "ibv_open_device({}): {error}",
                adapter.identity().name
            ));
            return null(error.raw_os_error().unwrap_or(libc::EMFILE));
        }
    };
    let context = ibv_context {
        device,
        ops: operations(),
        cmd_fd: -1,
        async_fd: events.as_raw_fd(),
        num_comp_vectors: 1,
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        abi_compat: std::ptr::null_mut(),
    };
    handle::create(
        context,
        Context {
            adapter: adapter.clone(),
            events,
        },
    )
}

/// # Safety
/// `context` is NULL or from [`ibv_open_device`], used no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    if context.is_null() {
        return minus_one(libc::EINVAL);
    }
    // SAFETY: the caller's promise.
    unsafe { handle::destroy(context) };
    0
}

/// # Safety
/// `context` is NULL or open; `event` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    // SAFETY: the caller's promise.
    let Some(inner) = (unsafe { handle::rust(context) }) else {
        return minus_one(libc::EINVAL);
    };
    if event.is_null() {
        return minus_one(libc::EINVAL);
    }
    // Keeps the queue alive: another thread may close the context while this one waits.
    let events = inner.events.clone();
    loop {
        let translated = match events.pop() {
            Ok(next) => translate(&next),
            Err(error) => return minus_one(error.raw_os_error().unwrap_or(libc::EAGAIN)),
        };
        // Skips an event about an object that was destroyed meanwhile.
        if let Some(translated) = translated {
            // SAFETY: the caller's promise.
            unsafe { event.write(translated) };
            return 0;
        }
    }
}

fn translate(event: &AsyncEvent) -> Option<ibv_async_event> {
    Some(match event {
        AsyncEvent::Port(event, port) => ibv_async_event {
            element: ibv_async_event_element {
                port_num: c_int::from(*port),
            },
            event_type: event.code(),
        },
        AsyncEvent::CqErr(queue) => {
            let queue = queue.upgrade()?;
            ibv_async_event {
                element: ibv_async_event_element {
                    cq: completion::handle_of(&queue)?,
                },
                event_type: EVENT_CQ_ERR,
            }
        }
    })
}

/// Does nothing: destroying does not wait for acknowledgements.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_ack_async_event(_event: *mut ibv_async_event) {}
