//! What failed when nobody could be given an error: the end of an object that was dropped.

use std::io::Write as _;

use parking_lot::RwLock;

use crate::error::Error;

static REPORT: RwLock<fn(&Error)> = RwLock::new(on_stderr);

fn on_stderr(error: &Error) {
    // Not by `eprintln!`, which panics without a stderr to write to.
    let _ = writeln!(std::io::stderr(), "rdma-access: {error}");
}

/// Sets who is told when the end of a dropped object fails; stderr unless this is called.
///
/// One for the whole process, called on the thread that drops, possibly from within a driver: it must not panic. What could not be destroyed is leaked, with the memory
/// that a device might still write to. Close an object by its `close` to get the error instead.
pub fn set_teardown_report(report: fn(&Error)) {
    *REPORT.write() = report;
}

pub(crate) fn report(error: &Error) {
    let report = *REPORT.read();
    report(error);
}
