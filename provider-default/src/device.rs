//! A device: its verbs context, and the thread that polls completions and keeps deadlines.
//!
//! The thread sleeps until a queue pair has a completion, a deadline passes, or another thread sets an earlier
//! deadline. It ends when the device is closed.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use acm_prov_api::clock::Moment;
use acm_prov_api::sync::thread::{Builder, JoinHandle};
use acm_prov_api::sync::{Arc, Mutex};
use acm_prov_api::{DeviceHandle, Host, LogLevel, OpenVerbsError, guard};
use rdma_access::ud::{CompletionChannel, ProtectionDomain, QueueId};
use rdma_access::verbs::Context;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use crate::endpoint::AcmEndpoint;

/// Pause of the thread after a turn that panicked, and after a system failure.
const REST: Duration = Duration::from_secs(1);

/// The verbs objects shared by a device's queue pairs.
pub(crate) struct DeviceVerbs {
    pub context: Arc<Context>,
    pub domain: Arc<ProtectionDomain>,
    pub channel: Arc<CompletionChannel>,
}

/// Error from opening a device.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    #[error(transparent)]
    Device(#[from] OpenVerbsError),
    #[error(transparent)]
    Verbs(#[from] rdma_access::Error),
    #[error("cannot start the thread of device {name}: {error}")]
    Thread { name: String, error: io::Error },
}

/// An open device.
pub(crate) struct OpenDevice {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    host: Host,
    verbs: DeviceVerbs,
    waker: Waker,
    state: Mutex<State>,
    /// The thread holds it while it uses endpoints.
    serving: Mutex<()>,
}

#[derive(Default)]
struct State {
    endpoints: HashMap<QueueId, Arc<AcmEndpoint>>,
    closed: bool,
}

/// Wakes the device's thread for an earlier deadline.
#[derive(Clone)]
pub(crate) struct Waker(Arc<Alarm>);

struct Alarm {
    bell: OwnedFd,
    /// The earliest deadline for which the thread was woken since it last checked.
    woken_for: Mutex<Moment>,
}

impl Waker {
    fn new() -> io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Arc::new(Alarm {
            bell,
            woken_for: Mutex::new(Moment::NEVER),
        })))
    }

    /// Wakes the thread if `moment` is earlier than its next deadline.
    pub(crate) fn due(&self, moment: Moment) {
        let mut woken_for = self.0.woken_for.lock();
        if moment < *woken_for {
            *woken_for = moment;
            // A full counter means that it is awake already.
            let _ = rustix::io::write(&self.0.bell, &1_u64.to_ne_bytes());
        }
    }

    /// The next deadline wakes the thread again.
    fn awake(&self) {
        let _ = rustix::io::read(&self.0.bell, &mut [0; 8]);
        *self.0.woken_for.lock() = Moment::NEVER;
    }
}

impl OpenDevice {
    /// Opens an own context of the device, and starts the thread.
    pub(crate) fn open(handle: &DeviceHandle) -> Result<Self, OpenError> {
        let context = Arc::new(handle.open_verbs()?);
        let domain = Arc::new(ProtectionDomain::new(&context)?);
        let channel = Arc::new(CompletionChannel::new(&context)?);
        let name = context.name().to_owned();
        let no_thread = |error| OpenError::Thread {
            name: name.clone(),
            error,
        };
        let shared = Arc::new(Shared {
            host: *handle.host(),
            verbs: DeviceVerbs {
                context,
                domain,
                channel,
            },
            waker: Waker::new().map_err(no_thread)?,
            state: Mutex::default(),
            serving: Mutex::default(),
        });
        let of_thread = Arc::clone(&shared);
        let thread = Builder::new()
            .name(format!("mcast-sa/{name}"))
            .spawn(move || of_thread.run())
            .map_err(no_thread)?;
        Ok(Self {
            shared,
            thread: Mutex::new(Some(thread)),
        })
    }

    pub(crate) fn verbs(&self) -> &DeviceVerbs {
        &self.shared.verbs
    }

    pub(crate) fn waker(&self) -> Waker {
        self.shared.waker.clone()
    }

    /// Lets the thread serve the endpoint.
    pub(crate) fn serve(&self, endpoint: &Arc<AcmEndpoint>) {
        self.shared
            .state
            .lock()
            .endpoints
            .insert(endpoint.id(), Arc::clone(endpoint));
        self.shared.waker.due(Moment::default());
    }

    /// Stops serving the endpoint. When this returns, the thread no longer uses it.
    pub(crate) fn leave(&self, endpoint: &AcmEndpoint) {
        self.shared.state.lock().endpoints.remove(&endpoint.id());
        drop(self.shared.serving.lock());
    }

    /// Ends the thread.
    pub(crate) fn close(&self) {
        let endpoints = {
            let mut state = self.shared.state.lock();
            state.closed = true;
            std::mem::take(&mut state.endpoints)
        };
        for endpoint in endpoints.values() {
            endpoint.close();
        }
        self.shared.waker.due(Moment::default());
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            self.shared.host.log(
                LogLevel::ALWAYS,
                format_args!(
                    "device {}: its thread ended in a panic",
                    self.shared.verbs.context.name()
                ),
            );
        }
    }
}

impl Drop for OpenDevice {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn run(&self) {
        let what = format!("thread of device {}", self.verbs.context.name());
        // Queues that may have more completions than one turn takes.
        let mut ready = Vec::new();
        loop {
            // A panic ends one turn, not the service.
            match guard(&self.host, &what, None, || Some(self.turn(&mut ready))) {
                Some(true) => {}
                Some(false) => return,
                // A repeating panic must not fill the log or keep a processor busy.
                None if self.state.lock().closed => return,
                None => std::thread::sleep(REST),
            }
        }
    }

    /// Waits for events and deadlines and handles them; returns false once the device is closed.
    fn turn(&self, ready: &mut Vec<QueueId>) -> bool {
        self.waker.awake();
        let now = Moment::now();
        let Some(due) = self.with_endpoints(|endpoints| {
            let dues = endpoints.iter().filter_map(|endpoint| endpoint.turn(now));
            dues.min().unwrap_or(Moment::NEVER)
        }) else {
            return false;
        };
        self.wait(if ready.is_empty() { due } else { now });
        self.take_events(ready);
        // A queue whose handling panics must not be retried forever.
        let queues = std::mem::take(ready);
        let served = self.with_endpoints(|endpoints| {
            for endpoint in endpoints {
                if queues.contains(&endpoint.id()) && endpoint.take_completions() {
                    ready.push(endpoint.id());
                }
            }
        });
        served.is_some()
    }

    /// Calls `serve` with the endpoints, none of which closes meanwhile; returns `None` once the device is
    /// closed.
    fn with_endpoints<R>(&self, serve: impl FnOnce(&[Arc<AcmEndpoint>]) -> R) -> Option<R> {
        let _serving = self.serving.lock();
        let endpoints: Vec<_> = {
            let state = self.state.lock();
            if state.closed {
                return None;
            }
            state.endpoints.values().cloned().collect()
        };
        Some(serve(&endpoints))
    }

    fn wait(&self, until: Moment) {
        let millis = until.since(Moment::now());
        let timeout = (until != Moment::NEVER).then(|| Duration::from_millis(millis));
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let mut fds = [
            PollFd::new(&*self.verbs.channel, PollFlags::IN),
            PollFd::new(&self.waker.0.bell, PollFlags::IN),
        ];
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => {
                // Out of memory; the next turn may succeed.
                self.host
                    .log(LogLevel::ALWAYS, format_args!("poll: {errno}"));
                std::thread::sleep(REST);
            }
        }
    }

    fn take_events(&self, ready: &mut Vec<QueueId>) {
        loop {
            match self.verbs.channel.take_event() {
                Ok(Some(queue)) => {
                    if !ready.contains(&queue) {
                        ready.push(queue);
                    }
                }
                Ok(None) => return,
                Err(error) => {
                    self.host.log(LogLevel::ALWAYS, format_args!("{error}"));
                    // The device was removed; the core will close it.
                    std::thread::sleep(REST);
                    return;
                }
            }
        }
    }
}
