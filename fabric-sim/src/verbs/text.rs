//! Names of events: `man 3 ibv_event_type_str`.
//!
//! The function needs no device, but programs that link this crate instead of libibverbs need it; the stock
//! provider does. libibverbs' other functions without a handle stay its own.

use std::ffi::{CStr, c_char, c_int};

/// Returns the name of an asynchronous event.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_event_type_str(event: c_int) -> *const c_char {
    const NAMES: [&CStr; 20] = [
        c"CQ error",
        c"QP fatal error",
        c"QP request error",
        c"QP access violation",
        c"communication established",
        c"SQ drained",
        c"path migrated",
        c"path migration failed",
        c"device fatal error",
        c"port active",
        c"port error",
        c"LID changed",
        c"P_Key table changed",
        c"SM changed",
        c"SRQ error",
        c"SRQ limit reached",
        c"last WQE reached",
        c"client reregistration asked",
        c"GID table changed",
        c"WQ fatal error",
    ];
    let name = usize::try_from(event)
        .ok()
        .and_then(|index| NAMES.get(index));
    name.unwrap_or(&c"unknown event").as_ptr()
}
