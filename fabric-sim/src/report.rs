//! What goes wrong below a C interface: `errno` for the program, a line on stderr for whoever looks.

use std::collections::HashSet;
use std::ffi::c_int;
use std::fmt::Display;
use std::sync::LazyLock;

use parking_lot::Mutex;

/// Writes a line that names this library.
pub fn report(what: &dyn Display) {
    use std::io::Write;
    // Not eprintln!: a closed stderr is no reason to panic.
    let _ = writeln!(std::io::stderr(), "fabric-sim: {what}");
}

/// As [`report`], once for each different text.
pub fn report_once(what: &str) {
    static SEEN: LazyLock<Mutex<HashSet<String>>> = LazyLock::new(Default::default);
    if SEEN.lock().insert(what.to_owned()) {
        report(&what);
    }
}

/// Sets the calling thread's `errno`.
pub fn set_errno(errno: c_int) {
    // SAFETY: glibc's pointer to the thread's own errno.
    unsafe { *libc::__errno_location() = errno };
}
