//! Error numbers of C functions.

/// Returns `errno`, or EIO if a function failed without setting it.
pub fn last_errno() -> i32 {
    match std::io::Error::last_os_error().raw_os_error() {
        None | Some(0) => rustix::io::Errno::IO.raw_os_error(),
        Some(errno) => errno,
    }
}

/// Returns the error number for a verb's return value: 0, the number itself, or -1 with the number in `errno`.
#[cfg(feature = "verbs")]
pub fn errno_of(returned: std::ffi::c_int) -> i32 {
    match returned {
        ..0 => last_errno(),
        number => number,
    }
}
