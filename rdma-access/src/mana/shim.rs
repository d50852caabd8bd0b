//! Connects the driver's C calls with an [`Allocator`](super::Allocator).

use std::collections::HashMap;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Allocator, Buffer, manadv_ctx_allocators};
use crate::error::{Cause, Error};
use crate::teardown;

/// Operations to name in errors.
const ALLOC: &str = "mana::Allocator::alloc";
const FREE: &str = "mana::Allocator::free";

/// An allocator, and the buffers in use. The driver holds its address, which an [`Arc`] keeps valid wherever
/// the `Arc` itself moves. A `Box` would not: moving a `Box` asserts unique access to its memory.
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

    /// Returns the struct for libmana, which copies it.
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
        if !given.suits(size) {
            report(
                ALLOC,
                size,
                format!("the allocator returned {given:?}, which is too short or not page-aligned"),
            );
            self.give_back(given);
            return null_mut();
        }
        let start = given.start();
        if let Some(twin) = self.given.lock().insert(start.addr().get(), given) {
            // Both owners claim this address, so neither buffer is safe to free; leak the second.
            std::mem::forget(twin);
            report(
                ALLOC,
                size,
                "the allocator returned memory that is in use".to_owned(),
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
                "this allocator did not allocate it".to_owned(),
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

/// Returns the message of a panic.
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
