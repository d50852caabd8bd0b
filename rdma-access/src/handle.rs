//! Owned handles of libibverbs' objects.

use std::ffi::c_int;
use std::mem;
use std::ptr::NonNull;

use ibverbs_sys as ffi;

use crate::errno::{errno_of, last_errno};
use crate::error::{Error, Result};
use crate::teardown;

/// A C object with exactly one function that destroys it.
pub trait Object {
    /// The name of that function.
    const DESTROY: &'static str;
    /// What keeps the object in use if destroying it returns `EBUSY`.
    const HELD_BY: &'static str;

    /// Calls the destroy function.
    ///
    /// # Safety
    /// `object` was made by libibverbs, and is not used again if this returns 0.
    unsafe fn destroy(object: *mut Self) -> c_int;
}

macro_rules! object {
    ($($object:ident $destroy:ident held by $held:literal;)*) => {
        $(impl Object for ffi::$object {
            const DESTROY: &'static str = stringify!($destroy);
            const HELD_BY: &'static str = $held;

            unsafe fn destroy(object: *mut Self) -> c_int {
                // SAFETY: the caller's promise.
                unsafe { ffi::$destroy(object) }
            }
        })*
    };
}

object! {
    ibv_context ibv_close_device held by "an object that was made in it";
    ibv_pd ibv_dealloc_pd held by "a memory region, queue pair or address handle";
    ibv_mr ibv_dereg_mr held by "a memory window";
    ibv_comp_channel ibv_destroy_comp_channel held by "a completion queue";
    ibv_cq ibv_destroy_cq held by "a queue pair";
    ibv_qp ibv_destroy_qp held by "an attached multicast group";
    ibv_ah ibv_destroy_ah held by "a request in flight";
}

/// Owns a C object: only this handle destroys it.
pub struct Handle<T: Object> {
    object: NonNull<T>,
    has_ended: bool,
}

// SAFETY: libibverbs ties no object to a thread: their state is in the object, behind its own lock, or in the
// kernel. What libibverbs does not lock (polling, posting) is behind a lock of this crate.
unsafe impl<T: Object> Send for Handle<T> {}
// SAFETY: as above; a shared handle gives access to the pointer only.
unsafe impl<T: Object> Sync for Handle<T> {}

impl<T: Object> Handle<T> {
    /// Takes the result of a libibverbs constructor; for NULL returns the error that `fault` makes of `errno`.
    ///
    /// # Safety
    /// `object` is NULL or was just made, and only this handle destroys it.
    pub unsafe fn take(object: *mut T, fault: impl FnOnce(i32) -> Error) -> Result<Self> {
        match NonNull::new(object) {
            Some(object) => Ok(Self {
                object,
                has_ended: false,
            }),
            None => Err(fault(last_errno())),
        }
    }

    /// Returns the object, which is alive until this handle has [ended](Self::end) it.
    pub fn as_ptr(&self) -> *mut T {
        self.object.as_ptr()
    }

    /// Destroys the object. If that fails, it is leaked.
    pub fn destroy(mut self) -> Result<()> {
        self.end()
    }

    /// Like [`destroy`](Self::destroy), for an owner that must do more around it: the first call destroys the
    /// object, later calls do nothing. The pointer is dangling from then on.
    pub fn end(&mut self) -> Result<()> {
        if mem::replace(&mut self.has_ended, true) {
            return Ok(());
        }
        // SAFETY: libibverbs made it, and only this call destroys it, once.
        let errno = errno_of(unsafe { T::destroy(self.object.as_ptr()) });
        if errno == 0 {
            return Ok(());
        }
        let likely = match rustix::io::Errno::from_raw_os_error(errno) {
            rustix::io::Errno::BUSY => format!("{} still uses it", T::HELD_BY),
            rustix::io::Errno::IO => "the device was removed".to_owned(),
            _ => String::new(),
        };
        Err(Error::errno(
            T::DESTROY,
            format_args!("{:p}", self.object),
            errno,
            likely,
        ))
    }

    /// Returns whether the object was destroyed, or cannot be.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }
}

impl<T: Object> Drop for Handle<T> {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            teardown::report(&error);
        }
    }
}

impl<T: Object> std::fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.object.fmt(f)
    }
}
