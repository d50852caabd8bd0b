//! The structs that programs hold pointers to, each followed by its Rust data.

use std::ffi::c_int;

use crate::report::set_errno;

/// A C struct for programs, followed by Rust data for this crate.
#[repr(C)]
pub struct Handle<C, R> {
    c: C,
    rust: R,
}

/// Declares which Rust data follows a C struct.
///
/// # Safety
/// Every pointer to the struct that a program can get must come from [`create`].
pub unsafe trait Opaque: Sized {
    /// The data.
    type Rust;
}

/// Makes a handle; it lives until [`destroy`].
pub fn create<C: Opaque>(c: C, rust: C::Rust) -> *mut C {
    Box::into_raw(Box::new(Handle { c, rust })).cast()
}

/// Returns the data of a handle; `None` for NULL. Does not borrow the C struct, which the program may write.
///
/// # Safety
/// `pointer` is NULL or a handle from [`create`] that is not destroyed while the reference is used.
pub unsafe fn rust<'a, C: Opaque + 'a>(pointer: *mut C) -> Option<&'a C::Rust> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: made by `create`, so the data is there; the caller promises that it lives.
    Some(unsafe { &(*pointer.cast::<Handle<C, C::Rust>>()).rust })
}

/// Destroys a handle.
///
/// # Safety
/// `pointer` is a handle from [`create`], used no more.
pub unsafe fn destroy<C: Opaque>(pointer: *mut C) {
    // SAFETY: made by `Box::into_raw` in `create`; the caller promises that this is the last use.
    drop(unsafe { Box::from_raw(pointer.cast::<Handle<C, C::Rust>>()) });
}

/// Sets `errno` and returns NULL.
pub fn null<T>(errno: c_int) -> *mut T {
    set_errno(errno);
    std::ptr::null_mut()
}

/// Sets `errno` and returns -1.
pub fn minus_one(errno: c_int) -> c_int {
    set_errno(errno);
    -1
}
