//! Completion queues and channels.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::event::AsyncEvent;
use crate::fd_queue::FdQueue;

/// Maximum number of entries of a completion queue.
pub const MAX_ENTRIES: usize = 1 << 22;

/// Maximum number of events in a channel. A queue adds no event until it is armed again, so reaching it takes
/// as many queues on one channel.
const CHANNEL_CAPACITY: usize = 1 << 16;

/// The result of a work request: `enum ibv_wc_status`, the part that UD needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Status {
    /// Success.
    #[default]
    Success,
    /// The message is longer than the receive buffer, or than a UD message may be.
    LocalLength,
    /// A buffer lies outside its memory region, or the region does not exist.
    LocalProtection,
    /// The queue pair went to the error state first.
    Flushed,
}

/// A completion (`struct ibv_wc`). Host byte order, except the immediate data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// The work request's id.
    pub wr_id: u64,
    /// The result.
    pub status: Status,
    /// Whether it was a receive.
    pub receive: bool,
    /// Number of bytes received, including the 40 of the GRH.
    pub byte_len: u32,
    /// Immediate data, network byte order.
    pub immediate: Option<u32>,
    /// The queue pair that it belongs to.
    pub qp_num: u32,
    /// The sender's queue pair.
    pub source_qp: u32,
    /// Whether the first 40 bytes of the buffer hold a GRH.
    pub grh: bool,
    /// Index of the P_Key.
    pub pkey_index: u16,
    /// Source LID.
    pub source_lid: u16,
    /// Service level.
    pub sl: u8,
    /// Offset of the destination LID from the port's base LID; 0 for multicast.
    pub path_bits: u8,
}

/// A completion channel.
#[derive(Debug)]
pub struct CompletionChannel {
    events: FdQueue<Weak<CompletionQueue>>,
}

impl CompletionChannel {
    /// # Errors
    /// The error of `eventfd(2)`.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            events: FdQueue::new(CHANNEL_CAPACITY)?,
        })
    }

    /// Removes the next event and returns its queue. Skips events of destroyed queues.
    ///
    /// # Errors
    /// `WouldBlock` if there is none and the descriptor is non-blocking.
    pub fn next_event(&self) -> io::Result<Arc<CompletionQueue>> {
        loop {
            if let Some(queue) = self.events.pop()?.upgrade() {
                return Ok(queue);
            }
        }
    }

    /// Returns the descriptor to poll.
    pub fn fd(&self) -> RawFd {
        self.events.as_raw_fd()
    }
}

/// What a completion queue signals on its channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Armed {
    No,
    Solicited,
    Any,
}

#[derive(Debug)]
struct Entries {
    waiting: VecDeque<Completion>,
    armed: Armed,
    overrun: bool,
}

/// A completion queue.
#[derive(Debug)]
pub struct CompletionQueue {
    capacity: usize,
    channel: Option<Arc<CompletionChannel>>,
    errors: Weak<FdQueue<AsyncEvent>>,
    entries: Mutex<Entries>,
    cookie: AtomicUsize,
    itself: Weak<Self>,
}

impl CompletionQueue {
    /// Creates a queue of `capacity` entries that signals on `channel`, and on `errors` if it overruns.
    pub fn new(
        capacity: usize,
        channel: Option<Arc<CompletionChannel>>,
        errors: Weak<FdQueue<AsyncEvent>>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|itself| Self {
            capacity,
            channel,
            errors,
            entries: Mutex::new(Entries {
                waiting: VecDeque::new(),
                armed: Armed::No,
                overrun: false,
            }),
            cookie: AtomicUsize::new(0),
            itself: itself.clone(),
        })
    }

    /// Adds a completion. A full queue loses it, as hardware does, and raises `IBV_EVENT_CQ_ERR` once.
    pub fn add(&self, completion: Completion, solicited: bool) {
        let mut entries = self.entries.lock();
        if entries.waiting.len() >= self.capacity {
            if !std::mem::replace(&mut entries.overrun, true)
                && let Some(errors) = self.errors.upgrade()
            {
                let _ = errors.push(AsyncEvent::CqErr(self.itself.clone()));
            }
            return;
        }
        let failed = completion.status != Status::Success;
        entries.waiting.push_back(completion);
        let tell = match entries.armed {
            Armed::No => false,
            Armed::Solicited => solicited || failed,
            Armed::Any => true,
        };
        if tell && let Some(channel) = &self.channel {
            entries.armed = Armed::No;
            let _ = channel.events.push(self.itself.clone());
        }
    }

    /// Removes the oldest completion.
    pub fn poll(&self) -> Option<Completion> {
        self.entries.lock().waiting.pop_front()
    }

    /// Arms the queue: it signals the next completion (`solicited_only`: the next solicited or failed one).
    pub fn arm(&self, solicited_only: bool) {
        let mut entries = self.entries.lock();
        entries.armed = match (entries.armed, solicited_only) {
            (Armed::Any, _) | (_, false) => Armed::Any,
            (_, true) => Armed::Solicited,
        };
    }

    /// Removes the completions of a destroyed queue pair.
    pub fn forget(&self, qp_num: u32) {
        self.entries
            .lock()
            .waiting
            .retain(|completion| completion.qp_num != qp_num);
    }

    /// Stores a number for the owner, who finds the C handle by it when the channel returns this queue.
    pub fn set_cookie(&self, cookie: usize) {
        self.cookie.store(cookie, Ordering::Release);
    }

    /// Returns the number stored by [`set_cookie`](Self::set_cookie), else 0.
    pub fn cookie(&self) -> usize {
        self.cookie.load(Ordering::Acquire)
    }

    /// Returns its channel.
    pub fn channel(&self) -> Option<&Arc<CompletionChannel>> {
        self.channel.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rig(
        capacity: usize,
    ) -> (
        Arc<CompletionChannel>,
        Arc<FdQueue<AsyncEvent>>,
        Arc<CompletionQueue>,
    ) {
        let channel = Arc::new(CompletionChannel::new().unwrap());
        let errors = Arc::new(FdQueue::new(8).unwrap());
        let queue = CompletionQueue::new(capacity, Some(channel.clone()), Arc::downgrade(&errors));
        (channel, errors, queue)
    }

    fn completion(wr_id: u64) -> Completion {
        Completion {
            wr_id,
            ..Completion::default()
        }
    }

    #[test]
    fn one_event_for_each_arming() {
        let (channel, _errors, queue) = rig(8);
        queue.add(completion(1), false);
        assert_eq!(channel.events.len(), 0);
        queue.arm(false);
        queue.add(completion(2), false);
        queue.add(completion(3), false);
        assert_eq!(channel.events.len(), 1);
        assert!(Arc::ptr_eq(&channel.next_event().unwrap(), &queue));
        assert_eq!([1, 2, 3].map(|_| queue.poll().unwrap().wr_id), [1, 2, 3]);
        assert!(queue.poll().is_none());
    }

    #[test]
    fn solicited_only_waits_for_a_solicited_or_failed_one() {
        let (channel, _errors, queue) = rig(8);
        queue.arm(true);
        queue.add(completion(1), false);
        assert_eq!(channel.events.len(), 0);
        queue.add(completion(2), true);
        assert_eq!(channel.events.len(), 1);
        queue.arm(true);
        queue.add(
            Completion {
                status: Status::Flushed,
                ..completion(3)
            },
            false,
        );
        assert_eq!(channel.events.len(), 2);
    }

    #[test]
    fn an_overrun_is_reported_once_and_loses_the_newest() {
        let (_channel, errors, queue) = rig(1);
        for wr_id in 1..=3 {
            queue.add(completion(wr_id), false);
        }
        assert_eq!(errors.len(), 1);
        assert!(matches!(errors.pop().unwrap(), AsyncEvent::CqErr(_)));
        assert_eq!(queue.poll().unwrap().wr_id, 1);
        assert!(queue.poll().is_none());
    }

    #[test]
    fn events_of_a_destroyed_queue_are_skipped() {
        let (channel, _errors, queue) = rig(8);
        let other = CompletionQueue::new(8, Some(channel.clone()), Weak::new());
        for queue in [&queue, &other] {
            queue.arm(false);
            queue.add(completion(1), false);
        }
        drop(queue);
        assert!(Arc::ptr_eq(&channel.next_event().unwrap(), &other));
    }
}
