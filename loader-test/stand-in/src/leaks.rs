//! Makes LeakSanitizer ignore the harness's allocations, for a provider that was built with it.

use std::cell::Cell;
use std::ffi::CStr;
use std::sync::OnceLock;

type Switch = unsafe extern "C" fn();

/// LeakSanitizer's functions to disable and enable it; `None` if it is not in this process.
struct Switches {
    off: Switch,
    on: Switch,
}

thread_local! {
    static IS_OFF: Cell<bool> = const { Cell::new(false) };
}

/// Makes LeakSanitizer ignore this thread's allocations, except during calls into the provider. Call this first.
pub fn ignore_own() {
    if let Some(switches) = switches() {
        IS_OFF.set(true);
        // SAFETY: a function without arguments, which may be called at any time.
        unsafe { (switches.off)() };
    }
}

/// Marks the start of a call into the provider.
pub(crate) fn provider_begins() {
    if let Some(switches) = switches().filter(|_| IS_OFF.get()) {
        // SAFETY: this thread has switched it off.
        unsafe { (switches.on)() };
    }
}

/// Marks the end of the call.
pub(crate) fn provider_ends() {
    if let Some(switches) = switches().filter(|_| IS_OFF.get()) {
        // SAFETY: a function without arguments, which may be called at any time.
        unsafe { (switches.off)() };
    }
}

/// Allocates for the harness on a thread that runs provider code.
pub(crate) fn own<R>(allocate: impl FnOnce() -> R) -> R {
    if let Some(switches) = switches() {
        // SAFETY: a function without arguments, which may be called at any time.
        unsafe { (switches.off)() };
    }
    let result = allocate();
    if let Some(switches) = switches() {
        // SAFETY: it was switched off above.
        unsafe { (switches.on)() };
    }
    result
}

fn switches() -> Option<&'static Switches> {
    static SWITCHES: OnceLock<Option<Switches>> = OnceLock::new();
    SWITCHES
        .get_or_init(|| {
            Some(Switches {
                off: switch(c"__lsan_disable")?,
                on: switch(c"__lsan_enable")?,
            })
        })
        .as_ref()
}

fn switch(name: &CStr) -> Option<Switch> {
    // SAFETY: a terminated name.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    // SAFETY: sanitizer/lsan_interface.h gives both this signature.
    (!address.is_null())
        .then(|| unsafe { std::mem::transmute::<*mut libc::c_void, Switch>(address) })
}
