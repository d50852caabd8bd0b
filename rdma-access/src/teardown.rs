//! Reports errors that no caller can receive: those from destroying an object in `drop`.

use std::io::Write as _;

use parking_lot::RwLock;

use crate::error::Error;

static REPORT: RwLock<fn(&Error)> = RwLock::new(on_stderr);

fn on_stderr(error: &Error) {
    // Not `eprintln!`, which panics if stderr is closed.
    let _ = writeln!(std::io::stderr(), "rdma-access: {error}");
}

/// Sets the function that gets the error if destroying a dropped object fails; the default prints it to stderr.
///
/// It is one function for the whole process. It runs on the thread that drops, possibly inside a driver, and
/// must not panic. An object that could not be destroyed is leaked, with the memory that a device might still
/// write to. Call `close` on an object to get its error instead.
pub fn set_teardown_report(report: fn(&Error)) {
    *REPORT.write() = report;
}

pub(crate) fn report(error: &Error) {
    let report = *REPORT.read();
    report(error);
}
