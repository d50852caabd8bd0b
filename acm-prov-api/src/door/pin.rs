//! Keeps the library mapped once a core uses it.

use std::ffi::c_void;
use std::mem::MaybeUninit;

/// The reason why the library could not be pinned.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PinError {
    #[error("dladdr does not know which library {0:p} belongs to")]
    UnknownLibrary(*const c_void),
    #[error("dlopen(RTLD_NOLOAD | RTLD_NODELETE): {0}")]
    Open(String),
}

/// Keeps the library of `symbol` mapped after `dlclose`: threads of the provider and late SA responses still need its
/// code.
pub(crate) fn pin_library(symbol: *const c_void) -> Result<(), PinError> {
    let mut info = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: dladdr takes any address and fills `info` if it returns non-zero.
    let known = unsafe { libc::dladdr(symbol, info.as_mut_ptr()) } != 0;
    if !known {
        return Err(PinError::UnknownLibrary(symbol));
    }
    // SAFETY: filled, see above.
    let info = unsafe { info.assume_init() };
    // SAFETY: the file name lives as long as the library is loaded, which it is: this code runs in it.
    let handle = unsafe {
        libc::dlopen(
            info.dli_fname,
            libc::RTLD_NOW | libc::RTLD_NOLOAD | libc::RTLD_NODELETE,
        )
    };
    if handle.is_null() {
        // SAFETY: dlerror returns NULL or a terminated string that lives until this thread's next dl call.
        let text = unsafe { libc::dlerror() };
        let text = if text.is_null() {
            "no reason given".into()
        } else {
            // SAFETY: see above.
            unsafe { std::ffi::CStr::from_ptr(text) }
                .to_string_lossy()
                .into_owned()
        };
        return Err(PinError::Open(text));
    }
    // SAFETY: the handle is dlopen's own; RTLD_NODELETE outlives it.
    unsafe { libc::dlclose(handle) };
    Ok(())
}
