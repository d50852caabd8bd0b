//! Starts and ends a port's threads.

use std::time::{Duration, Instant};

use super::{OpenError, Shared};
use crate::host::LogLevel;
use crate::sync::Arc;
use crate::sync::thread::{Builder, JoinHandle};

/// How long a close waits for the port's threads. They end at once, unless a file system hangs.
const PATIENCE_WITH_THREADS: Duration = Duration::from_secs(2);

#[derive(Default)]
pub(super) struct Threads {
    pub(super) deadlines: Option<JoinHandle<()>>,
    pub(super) files: Option<JoinHandle<()>>,
    pub(super) snapshot: Option<JoinHandle<()>>,
}

impl Shared {
    /// Starts one of the port's threads.
    pub(super) fn start(
        self: &Arc<Self>,
        name: &str,
        run: impl FnOnce(&Arc<Self>) + Send + 'static,
    ) -> Result<JoinHandle<()>, OpenError> {
        let port = self.port.number();
        let shared = Arc::clone(self);
        self.state.lock().running += 1;
        let thread = Builder::new()
            .name(format!("{name}/{port}"))
            .spawn(move || {
                run(&shared);
                shared.ended();
            });
        thread.map_err(|error| {
            self.ended();
            OpenError::Thread { port, error }
        })
    }

    fn ended(&self) {
        self.state.lock().running -= 1;
        self.thread_ended.notify_all();
    }

    /// Waits for the port's threads to end, but not for ever: one may hang in a file system.
    pub(super) fn await_end(&self, threads: Threads) {
        let threads = [threads.deadlines, threads.files, threads.snapshot];
        if threads.iter().all(Option::is_none) {
            return;
        }
        let deadline = Instant::now() + PATIENCE_WITH_THREADS;
        let mut state = self.state.lock();
        while state.running > 0 {
            let now = Instant::now();
            if now >= deadline {
                drop(state);
                return self.port.host().log(
                    LogLevel::ALWAYS,
                    format_args!(
                        "port {}: a thread of the port did not end in time, and is left behind: a file that hangs holds it \
                         up, or the machine is busy",
                        self.port.number()
                    ),
                );
            }
            state.wait(&self.thread_ended, Some(deadline - now));
        }
        drop(state);
        for thread in threads.into_iter().flatten() {
            if thread.join().is_err() {
                self.port.host().log(
                    LogLevel::ALWAYS,
                    format_args!("port {}: its thread ended in a panic", self.port.number()),
                );
            }
        }
    }
}
