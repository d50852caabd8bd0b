//! `ibv_create_comp_channel(3)`, `ibv_get_cq_event(3)`.

use std::ffi::c_void;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::Duration;

use ibverbs_sys as ffi;
use parking_lot::{Mutex, MutexGuard};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

use crate::diagnosis;
use crate::errno::last_errno;
use crate::error::Result;
use crate::handle::Handle;
use crate::verbs::Context;

/// Identifies the completion queue of an event; see [`CompletionQueue::id`](super::CompletionQueue::id). Unique
/// in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId(pub(super) usize);

/// Signals completions of completion queues. Its descriptor ([`AsFd`]) is then readable, and never blocks.
#[derive(Debug)]
pub struct CompletionChannel {
    handle: Handle<ffi::ibv_comp_channel>,
    // Held while an event is taken and while a queue is destroyed, so that no event outlives its queue.
    events: Mutex<()>,
    context: Arc<Context>,
}

impl CompletionChannel {
    /// # Errors
    /// The error of `ibv_create_comp_channel`, usually EMFILE: no free descriptor.
    pub fn new(context: &Arc<Context>) -> Result<Self> {
        const OPERATION: &str = "ibv_create_comp_channel";
        // SAFETY: the context is open; the handle owns the result.
        let handle = unsafe {
            Handle::take(ffi::ibv_create_comp_channel(context.raw()), |errno| {
                let likely = match Errno::from_raw_os_error(errno) {
                    Errno::MFILE => diagnosis::descriptor_limit(),
                    _ => String::new(),
                };
                context.fault(OPERATION, &"", errno, &likely)
            })
        }?;
        let channel = Self {
            handle,
            events: Mutex::new(()),
            context: context.clone(),
        };
        fcntl_getfl(&channel)
            .and_then(|flags| fcntl_setfl(&channel, flags | OFlags::NONBLOCK))
            .map_err(|errno| {
                context.fault("fcntl", &"completion channel", errno.raw_os_error(), "")
            })?;
        Ok(channel)
    }

    /// Takes and acknowledges one event; `None` if there is none. An event means that its queue may have
    /// completions. No further event follows until the queue is armed again.
    ///
    /// # Errors
    /// The error of `ibv_get_cq_event`; EIO if the device was removed.
    pub fn take_event(&self) -> Result<Option<QueueId>> {
        let _in_hand = self.events.lock();
        let mut queue = null_mut();
        let mut id: *mut c_void = null_mut();
        // SAFETY: the channel is alive, and both are writable.
        let returned =
            unsafe { ffi::ibv_get_cq_event(self.handle.as_ptr(), &raw mut queue, &raw mut id) };
        if returned != 0 {
            return match last_errno() {
                errno if errno == Errno::AGAIN.raw_os_error() => Ok(None),
                errno => Err(self.context.fault("ibv_get_cq_event", &"", errno, "")),
            };
        }
        // SAFETY: the queue is alive: it and its events end only under the lock held here.
        unsafe { ffi::ibv_ack_cq_events(queue, 1) };
        Ok(Some(QueueId(id.addr())))
    }

    /// Waits for an event, for at most `timeout` (`None`: without limit). Returns whether there is one.
    ///
    /// # Errors
    /// The error of `poll(2)`. A signal ends the wait without an error.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<bool> {
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        match poll(&mut [PollFd::new(self, PollFlags::IN)], timeout.as_ref()) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(false),
            Err(errno) => {
                Err(self
                    .context
                    .fault("poll", &"completion channel", errno.raw_os_error(), ""))
            }
        }
    }

    /// Destroys it.
    ///
    /// # Errors
    /// The error of `ibv_destroy_comp_channel`; the channel then leaks.
    pub fn close(self) -> Result<()> {
        self.handle.destroy()
    }

    /// While the guard lives, no thread handles an event.
    pub(super) fn no_event_in_hand(&self) -> MutexGuard<'_, ()> {
        self.events.lock()
    }

    pub(super) fn raw(&self) -> *mut ffi::ibv_comp_channel {
        self.handle.as_ptr()
    }

    pub(super) fn context(&self) -> &Arc<Context> {
        &self.context
    }
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel is alive, and its descriptor open as long as the channel.
        unsafe { BorrowedFd::borrow_raw((*self.handle.as_ptr()).fd) }
    }
}
