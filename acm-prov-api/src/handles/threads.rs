//! Threads of a provider's own that end with their port.

use std::time::{Duration, Instant};

use super::{Closed, PortHandle};
use crate::host::LogLevel;
use crate::host::guard::guard;
use crate::sync::thread::{Builder, JoinHandle};
use crate::sync::{Condvar, Mutex};

/// How long the close of a port waits for its threads, all together.
const PATIENCE: Duration = Duration::from_secs(2);

/// Why a port's thread did not start.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The port closes: its threads have been asked to stop.
    #[error("cannot start thread {name:?}: the port is closed")]
    Closed {
        /// The thread's name.
        name: String,
        /// Always [`Closed`].
        source: Closed,
    },
    /// The system starts no thread.
    #[error("cannot start thread {name:?}: {source}")]
    System {
        /// The thread's name.
        name: String,
        /// The reason.
        source: std::io::Error,
    },
}

/// A port's threads.
pub(super) struct PortThreads {
    state: Mutex<State>,
    /// A stop was requested, or a thread ended.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_stopping: bool,
    /// The names of those that run.
    running: Vec<String>,
    handles: Vec<JoinHandle<()>>,
}

impl PortThreads {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }
}

/// Tells a thread when its port closes.
pub struct StopSignal(PortHandle);

impl StopSignal {
    /// Whether the thread is to end.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.0.threads.state.lock().is_stopping
    }

    /// Waits until the thread is to end, `timeout` at most. Returns whether it is to end.
    #[must_use = "a thread that goes on after the signal holds up the close of its port"]
    pub fn wait(&self, timeout: Duration) -> bool {
        let threads = &self.0.0.threads;
        let mut state = threads.state.lock();
        threads
            .changed
            .wait_while_for(&mut state, |state| !state.is_stopping, timeout);
        state.is_stopping
    }
}

/// Takes a thread off the list of those that run, also if its closure's destructor panics.
struct Running {
    port: PortHandle,
    name: String,
}

impl Drop for Running {
    fn drop(&mut self) {
        let threads = &self.port.0.threads;
        let mut state = threads.state.lock();
        if let Some(index) = state.running.iter().position(|name| *name == self.name) {
            state.running.swap_remove(index);
        }
        threads.changed.notify_all();
    }
}

impl PortHandle {
    /// Starts a thread that ends with the port.
    ///
    /// The port's close, or its failure to open, sets the [signal](StopSignal), after
    /// [`PortContext::close`](crate::PortContext::close). It then waits two seconds at most for all threads of the port, on the
    /// core's only thread. A thread that still runs is left behind and logged. What it calls of the port fails
    /// with [`Closed`].
    ///
    /// A panic ends the thread. It is logged and reported as one in a callback. The thread's name is `name/PORT`, of which
    /// the system shows 15 bytes.
    ///
    /// Call it from [`PortContext::open`](crate::PortContext::open) on, never from [`Provider::load`](crate::Provider::load).
    ///
    /// # Errors
    /// When the port is closed, or the system starts no thread.
    pub fn spawn(
        &self,
        name: &str,
        run: impl FnOnce(&StopSignal) + Send + 'static,
    ) -> Result<(), SpawnError> {
        let name = format!("{name}/{}", self.number());
        {
            let mut state = self.0.threads.state.lock();
            if state.is_stopping {
                let source = Closed;
                return Err(SpawnError::Closed { name, source });
            }
            state.running.push(name.clone());
        }
        // Dropped with the closure, also if that never runs.
        let running = Running {
            port: self.clone(),
            name: name.clone(),
        };
        let thread = Builder::new().name(name.clone()).spawn(move || {
            let Running { port, name } = &running;
            let what = format!("thread {name}");
            guard(port.host(), &what, (), || run(&StopSignal(port.clone())));
        });
        let thread = thread.map_err(|source| SpawnError::System { name, source })?;
        let mut state = self.0.threads.state.lock();
        state.handles.retain(|thread| !thread.is_finished());
        state.handles.push(thread);
        Ok(())
    }

    /// Asks the port's threads to end, and waits for them, but not for ever: one may hang in a file system that does.
    pub(super) fn stop_threads(&self) {
        let threads = &self.0.threads;
        let deadline = Instant::now() + PATIENCE;
        let mut state = threads.state.lock();
        state.is_stopping = true;
        threads.changed.notify_all();
        threads
            .changed
            .wait_while_until(&mut state, |state| !state.running.is_empty(), deadline);
        let (late, handles) = (state.running.join(", "), std::mem::take(&mut state.handles));
        drop(state);
        if !late.is_empty() {
            return self.host().log(
                LogLevel::ALWAYS,
                format_args!(
                    "port {}: thread {late} did not end in time and is left behind: it is blocked, for instance by a file \
                     system that hangs, or the machine is busy",
                    self.number()
                ),
            );
        }
        for thread in handles {
            // Panics end in the guard.
            let _ = thread.join();
        }
    }
}
