//! What stands between the driver, which calls in C, and an allocator.

use std::collections::HashMap;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Allocator, Buffer, manadv_ctx_allocators};
use crate::error::{Cause, Error};
use crate::teardown;

/// What failed, in reports.
const ALLOC: &str = "mana::Allocator::alloc";
const FREE: &str = "mana::Allocator::free";

/// An allocator, with what it has given out. The driver has the address of it, which an [`Arc`] keeps valid wherever the
/// `Arc` itself is moved to. A `Box` would not: moving it claims the memory for the box alone.
pub(crate) struct Shim {
    allocator: Box<dyn Allocator>,
    given: Mutex<HashMap<usize, Buffer>>,
}

impl Shim {
    pub fn new(allocator: impl Allocator) -> Arc<Self> {
        Arc::new(Self {
            allocator: Box::new(allocator),
            given: Mutex::default(),
        })
    }

    /// What libmana wants to know. It is copied there.
    pub(super) fn to_c(self: &Arc<Self>) -> manadv_ctx_allocators {
        manadv_ctx_allocators {
            alloc: Some(alloc),
            free: Some(free),
            data: Arc::as_ptr(self).cast_mut().cast(),
        }
    }

    fn alloc(&self, size: usize) -> *mut c_void {
        if size == 0 {
            return null_mut();
        }
        let given = match catch_unwind(AssertUnwindSafe(|| self.allocator.alloc(size))) {
            Ok(Some(buffer)) => buffer,
            Ok(None) => return null_mut(),
            Err(panic) => {
                report(
                    ALLOC,
                    size,
                    format!("the allocator panicked: {}", words(&*panic)),
                );
                return null_mut();
            }
        };
        if !given.does_for(size) {
            report(
                ALLOC,
                size,
                format!("the allocator gave {given:?}, which is too short or not at a page"),
            );
            self.give_back(given);
            return null_mut();
        }
        let start = given.start();
        if let Some(twin) = self.given.lock().insert(start.addr().get(), given) {
            // Of a length that is in use twice there is no telling whose it is; the owners are wrong about it.
            std::mem::forget(twin);
            report(
                ALLOC,
                size,
                "the allocator gave memory that is in use".to_owned(),
            );
        }
        start.as_ptr().cast()
    }

    fn free(&self, memory: *mut c_void) {
        if memory.is_null() {
            return;
        }
        let given = self.given.lock().remove(&memory.addr());
        match given {
            Some(buffer) => self.give_back(buffer),
            None => report(
                FREE,
                format_args!("{memory:p}"),
                "this allocator did not give it".to_owned(),
            ),
        }
    }

    fn give_back(&self, buffer: Buffer) {
        let length = buffer.length();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.allocator.free(buffer))) {
            report(
                FREE,
                length,
                format!("the allocator panicked: {}", words(&*panic)),
            );
        }
    }
}

impl std::fmt::Debug for Shim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shim({} buffers given)", self.given.lock().len())
    }
}

fn report(operation: &'static str, inputs: impl std::fmt::Display, what: String) {
    teardown::report(&Error::new(operation, inputs, Cause::Invalid(what)));
}

/// What a panic said.
fn words(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("(no message)")
}

/// # Safety
/// `data` is the address of a [`Shim`].
unsafe extern "C" fn alloc(size: usize, data: *mut c_void) -> *mut c_void {
    // SAFETY: the caller's promise.
    match unsafe { data.cast::<Shim>().as_ref() } {
        Some(shim) => shim.alloc(size),
        None => null_mut(),
    }
}

/// # Safety
/// `data` is the address of a [`Shim`].
unsafe extern "C" fn free(memory: *mut c_void, data: *mut c_void) {
    // SAFETY: the caller's promise.
    if let Some(shim) = unsafe { data.cast::<Shim>().as_ref() } {
        shim.free(memory);
    }
}
