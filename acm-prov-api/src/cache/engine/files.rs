//! The thread of a port that checks the operator's files: the flush file and the watched files. They can be
//! long, and their file system can hang.

use std::path::Path;
use std::time::{Duration, SystemTime};

use super::Shared;
use super::preload::Preload;
use super::worker::AFTER_A_PANIC;
use crate::clock::Moment;
use crate::host::LogLevel;
use crate::host::guard;
use crate::sync::Arc;
use crate::text::watched_file::TICK;

/// Milliseconds between two checks of the flush file.
const FLUSH_TICK: u64 = 500;

/// Whether a port has files from the start.
pub(super) fn has_some(shared: &Shared) -> bool {
    shared.settings.flush_file.is_some() || shared.preload.is_some()
}

/// Runs until the port is closed.
pub(super) fn run(shared: &Arc<Shared>) {
    let host = *shared.port.host();
    let now = Moment::now();
    let flushes = shared.settings.flush_file.is_some();
    let mut due = Due {
        flush: if flushes { now } else { Moment::NEVER },
        look: now,
        is_first: true,
    };
    loop {
        // A panic ends one turn, not the thread.
        let rest = guard::enter("thread for files", Some(&host), AFTER_A_PANIC, || {
            Ok(due.turn(shared))
        });
        let mut state = shared.state.lock();
        if state.closed {
            return;
        }
        state.wait(&shared.wake_files, Some(rest));
        if state.closed {
            return;
        }
    }
}

/// When to check the files again.
struct Due {
    flush: Moment,
    look: Moment,
    is_first: bool,
}

impl Due {
    /// Checks the files that are due, with no lock held. Returns the time until the next turn.
    fn turn(&mut self, shared: &Shared) -> Duration {
        let now = Moment::now();
        let looks = self.look <= now;
        let mut lines = Vec::new();
        if looks {
            self.look = now.after(TICK);
            lines.extend(
                shared
                    .preload
                    .iter()
                    .flat_map(|preload| look(shared, preload)),
            );
        }
        if self.flush <= now {
            self.flush = now.after(FLUSH_TICK);
            flush_if_touched(shared, self.is_first);
        }
        // Requests may wait for these two files, but not for the others.
        if std::mem::take(&mut self.is_first) {
            shared.state.lock().files_are_read();
        }
        log(shared, lines);
        if looks {
            let followed = shared.followed.lock().clone();
            for file in followed {
                log(shared, file.look(Moment::now()));
            }
        }
        let next = self.flush.min(self.look);
        Duration::from_millis(next.since(Moment::now()))
    }
}

/// Checks the dump. Returns lines for the log.
fn look(shared: &Shared, preload: &Preload) -> Vec<String> {
    let (lines, is_new) = preload.look();
    if is_new {
        for endpoint in shared.state.lock().endpoints.values() {
            endpoint.store.forget_preloaded(|_, _| true);
        }
    }
    lines
}

fn log(shared: &Shared, lines: Vec<String>) {
    for line in lines {
        let host = shared.port.host();
        host.log(LogLevel::ALWAYS, format_args!("{line}"));
    }
}

/// Returns when the file was last changed; `None` if there is no file.
pub(super) fn touched(file: &Path) -> Option<SystemTime> {
    std::fs::metadata(file)
        .and_then(|metadata| metadata.modified())
        .ok()
}

fn flush_if_touched(shared: &Shared, is_first: bool) {
    let Some(file) = shared.settings.flush_file.as_deref() else {
        return;
    };
    let touched = touched(file);
    let mut state = shared.state.lock();
    // A file that vanishes flushes nothing.
    if touched.is_none() || touched == state.flushed {
        return;
    }
    state.flushed = touched;
    // At the first check the cache may hold paths of a snapshot that was written just before the touch.
    if is_first && !touched.is_some_and(|time| state.snapshot.was_written_before(time)) {
        return;
    }
    state.forget_snapshot();
    let mut answers = 0;
    let mut discarded = Vec::new();
    for endpoint in state.endpoints.values() {
        answers += endpoint.store.len();
        discarded.push(endpoint.store.clear());
    }
    state.supersede(Moment::now());
    let port = shared.port.number();
    let line = format!(
        "port {port}: {} was touched: flushed {answers} paths",
        file.display()
    );
    state.log(LogLevel::ALWAYS, line);
    // The memory is freed with no lock held.
    drop(state);
    drop(discarded);
}
