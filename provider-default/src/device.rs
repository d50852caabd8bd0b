//! A device: its verbs context, and the one thread that takes completions and keeps deadlines.
//!
//! The thread sleeps until a queue pair has something, until something is due, or until it is woken because something
//! will be due sooner. It ends when the device is closed.

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

/// How long the thread rests after a turn that panicked, and after a failure of the system.
const REST: Duration = Duration::from_secs(1);

/// What the queue pairs of a device are made in.
pub(crate) struct DeviceVerbs {
    pub context: Arc<Context>,
    pub domain: Arc<ProtectionDomain>,
    pub channel: Arc<CompletionChannel>,
}

/// Why a device does not open.
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
    /// Held by the thread while it has endpoints in hand.
    serving: Mutex<()>,
}

#[derive(Default)]
struct State {
    endpoints: HashMap<QueueId, Arc<AcmEndpoint>>,
    closed: bool,
}

/// Wakes the device's thread when something will be due sooner than it knows.
#[derive(Clone)]
pub(crate) struct Waker(Arc<Alarm>);

struct Alarm {
    bell: OwnedFd,
    /// The earliest moment that the thread has been woken for since it last looked.
    rung_for: Mutex<Moment>,
}

impl Waker {
    fn new() -> io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Arc::new(Alarm {
            bell,
            rung_for: Mutex::new(Moment::NEVER),
        })))
    }

    /// Something is due at `moment`.
    pub(crate) fn due(&self, moment: Moment) {
        let mut rung_for = self.0.rung_for.lock();
        if moment < *rung_for {
            *rung_for = moment;
            // Full means rung already.
            let _ = rustix::io::write(&self.0.bell, &1_u64.to_ne_bytes());
        }
    }

    /// What is due from now on rings again.
    fn heard(&self) {
        let _ = rustix::io::read(&self.0.bell, &mut [0; 8]);
        *self.0.rung_for.lock() = Moment::NEVER;
    }
}

impl OpenDevice {
    /// Opens the device for ourselves, and starts its thread.
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

    /// From now on the thread serves the endpoint.
    pub(crate) fn serve(&self, endpoint: &Arc<AcmEndpoint>) {
        self.shared
            .state
            .lock()
            .endpoints
            .insert(endpoint.id(), Arc::clone(endpoint));
        self.shared.waker.due(Moment::default());
    }

    /// The thread serves the endpoint no longer, and has let go of it when this returns.
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
        // Queues that may hold more than was taken in one turn.
        let mut ready = Vec::new();
        loop {
            // A panic ends one turn, not the service.
            match guard(&self.host, &what, None, || Some(self.turn(&mut ready))) {
                Some(true) => {}
                Some(false) => return,
                // One that repeats itself must fill neither the log nor a processor.
                None if self.state.lock().closed => return,
                None => std::thread::sleep(REST),
            }
        }
    }

    /// Waits for what comes next and does it; false once the device is closed.
    fn turn(&self, ready: &mut Vec<QueueId>) -> bool {
        self.waker.heard();
        let now = Moment::now();
        let Some(due) = self.with_endpoints(|endpoints| {
            let dues = endpoints.iter().filter_map(|endpoint| endpoint.turn(now));
            dues.min().unwrap_or(Moment::NEVER)
        }) else {
            return false;
        };
        self.wait(if ready.is_empty() { due } else { now });
        self.take_events(ready);
        // What is taken out here and panics is not looked at for ever.
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

    /// Does something with the endpoints, none of which ends meanwhile; `None` once the device is closed.
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
                // Out of memory: the next turn may find some.
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
                    // The device is gone; the core closes it in its time.
                    std::thread::sleep(REST);
                    return;
                }
            }
        }
    }
}
