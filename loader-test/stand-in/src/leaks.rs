//! What LeakSanitizer is told, when a provider was built with it: what the harness allocates is none of the provider's.

use std::cell::Cell;
use std::ffi::CStr;
use std::sync::OnceLock;

type Switch = unsafe extern "C" fn();

/// LeakSanitizer's switches, off and on; none if it is not in this process.
struct Switches {
    off: Switch,
    on: Switch,
}

thread_local! {
    static IS_OFF: Cell<bool> = const { Cell::new(false) };
}

/// From here on what this thread allocates is not looked at, but for what is allocated during calls into the provider. To
/// be called before anything else.
pub fn ignore_own() {
    if let Some(switches) = switches() {
        IS_OFF.set(true);
        // SAFETY: a function without arguments, which may be called at any time.
        unsafe { (switches.off)() };
    }
}

/// A call into the provider begins.
pub(crate) fn provider_begins() {
    if let Some(switches) = switches().filter(|_| IS_OFF.get()) {
        // SAFETY: this thread has switched it off.
        unsafe { (switches.on)() };
    }
}

/// It is over.
pub(crate) fn provider_ends() {
    if let Some(switches) = switches().filter(|_| IS_OFF.get()) {
        // SAFETY: a function without arguments, which may be called at any time.
        unsafe { (switches.off)() };
    }
}

/// Allocates for the harness on a thread that is in the provider, or is the provider's own.
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
