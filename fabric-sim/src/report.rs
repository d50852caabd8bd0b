//! Reports errors below a C interface: `errno` for the program, a line on stderr for the user.

use std::collections::HashSet;
use std::ffi::c_int;
use std::fmt::Display;
use std::sync::LazyLock;

use parking_lot::Mutex;

/// Writes a line with this library's name.
pub fn report(what: &dyn Display) {
    use std::io::Write;
    // Not eprintln!, which panics if stderr is closed.
    let _ = writeln!(std::io::stderr(), "fabric-sim: {what}");
}

/// Like [`report`], but once for each different text.
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
