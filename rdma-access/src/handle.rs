//! Owned handles of libibverbs' objects.

use std::ffi::c_int;
use std::mem;
use std::ptr::NonNull;

use ibverbs_sys as ffi;

use crate::errno::{errno_of, last_errno};
use crate::error::{Error, Result};
use crate::teardown;

/// A C object that exactly one function ends.
pub trait Object {
    /// The name of that function.
    const DESTROY: &'static str;
    /// What keeps it from ending, if it answers `EBUSY`.
    const HELD_BY: &'static str;

    /// Calls that function.
    ///
    /// # Safety
    /// `object` is one that libibverbs made, and is not used any more if this returns 0.
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

/// An object that this handle alone ends.
pub struct Handle<T: Object> {
    object: NonNull<T>,
    has_ended: bool,
}

// SAFETY: libibverbs ties none of its objects to a thread: all state lies in the object, behind the lock in it or in the
// kernel. What it does not lock (polling, posting) is behind a lock of this crate.
unsafe impl<T: Object> Send for Handle<T> {}
// SAFETY: as above; a shared handle gives out nothing but the pointer.
unsafe impl<T: Object> Sync for Handle<T> {}

impl<T: Object> Handle<T> {
    /// Takes what a constructor of libibverbs returned: NULL becomes the error that `fault` makes of `errno`.
    ///
    /// # Safety
    /// `object` is NULL or was just made, and nobody else ends it.
    pub unsafe fn take(object: *mut T, fault: impl FnOnce(i32) -> Error) -> Result<Self> {
        match NonNull::new(object) {
            Some(object) => Ok(Self {
                object,
                has_ended: false,
            }),
            None => Err(fault(last_errno())),
        }
    }

    /// The object, alive as long as this handle has not [ended](Self::end).
    pub fn as_ptr(&self) -> *mut T {
        self.object.as_ptr()
    }

    /// Ends the object. If that fails the object stays, for ever.
    pub fn destroy(mut self) -> Result<()> {
        self.end()
    }

    /// As [`destroy`](Self::destroy), for an owner with more to do around it: the first call ends the object, and others
    /// do nothing. The pointer is dead from then on.
    pub fn end(&mut self) -> Result<()> {
        if mem::replace(&mut self.has_ended, true) {
            return Ok(());
        }
        // SAFETY: made by libibverbs, and ended here alone, once.
        let errno = errno_of(unsafe { T::destroy(self.object.as_ptr()) });
        if errno == 0 {
            return Ok(());
        }
        let likely = match rustix::io::Errno::from_raw_os_error(errno) {
            rustix::io::Errno::BUSY => format!("{} still uses it", T::HELD_BY),
            rustix::io::Errno::IO => "the device is gone".to_owned(),
            _ => String::new(),
        };
        Err(Error::errno(
            T::DESTROY,
            format_args!("{:p}", self.object),
            errno,
            likely,
        ))
    }

    /// Whether the object was ended, or cannot be.
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
