//! A queue whose file descriptor polls readable while the queue is not empty.
//!
//! The kernel gives user space such descriptors for asynchronous events (`ibv_context.async_fd`), completion channels
//! (`ibv_comp_channel.fd`) and management ports (`umad_get_fd`); programs `poll` them, and make them non-blocking with
//! `fcntl`. An eventfd in semaphore mode behaves the same under both.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};

/// A queue of items with a descriptor, see the module. Any number of threads may push and pop.
#[derive(Debug)]
pub struct FdQueue<T> {
    items: Mutex<VecDeque<T>>,
    /// Counts the items: each successful read entitles to one item.
    ready: OwnedFd,
    capacity: usize,
}

impl<T> FdQueue<T> {
    /// Creates an empty queue for at most `capacity` items.
    ///
    /// # Errors
    /// The error of `eventfd(2)`, usually: no free descriptor.
    pub fn new(capacity: usize) -> io::Result<Self> {
        let ready = eventfd(0, EventfdFlags::SEMAPHORE | EventfdFlags::CLOEXEC)?;
        Ok(Self {
            items: Mutex::default(),
            ready,
            capacity,
        })
    }

    /// Appends an item, or returns it if the queue is full.
    pub fn push(&self, item: T) -> Result<(), T> {
        let mut items = self.items.lock();
        if items.len() >= self.capacity {
            return Err(item);
        }
        items.push_back(item);
        self.count_one();
        Ok(())
    }

    /// Removes the oldest item. If there is none: waits, or fails with `WouldBlock` if the descriptor is
    /// non-blocking.
    ///
    /// # Errors
    /// The error of `read(2)` on the descriptor.
    pub fn pop(&self) -> io::Result<T> {
        self.pop_if(|_| true)
            .map(|item| item.expect("the condition holds for every item"))
    }

    /// Like [`pop`](Self::pop), but if `condition` is false for the item, leaves it and returns `None`.
    ///
    /// # Errors
    /// Those of [`pop`](Self::pop).
    pub fn pop_if(&self, condition: impl FnOnce(&T) -> bool) -> io::Result<Option<T>> {
        let mut count = [0; 8];
        loop {
            match rustix::io::read(&self.ready, &mut count) {
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
                Ok(_) => break,
            }
        }
        let mut items = self.items.lock();
        match items.front() {
            Some(item) if condition(item) => Ok(items.pop_front()),
            Some(_) => {
                self.count_one();
                Ok(None)
            }
            // Only if something else wrote to the descriptor.
            None => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.items.lock().len()
    }

    /// Returns whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn count_one(&self) {
        // Fails only if the count would exceed 2^64 - 2.
        let _ = rustix::io::write(&self.ready, &1u64.to_ne_bytes());
    }
}

impl<T> AsFd for FdQueue<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}

impl<T> AsRawFd for FdQueue<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.ready.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::sync::Arc;

    fn is_readable<T>(queue: &FdQueue<T>) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(queue.as_fd(), PollFlags::IN)];
        poll(
            &mut fds,
            Some(&Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            }),
        )
        .unwrap()
            == 1
    }

    fn nonblocking<T>(queue: &FdQueue<T>) {
        rustix::fs::fcntl_setfl(queue, rustix::fs::OFlags::NONBLOCK).unwrap();
    }

    #[test]
    fn polls_readable_while_it_holds_something() {
        let queue = FdQueue::new(8).unwrap();
        assert!(!is_readable(&queue));
        queue.push('a').unwrap();
        queue.push('b').unwrap();
        assert!(is_readable(&queue));
        assert_eq!(queue.pop().unwrap(), 'a');
        assert!(is_readable(&queue));
        assert_eq!(queue.pop().unwrap(), 'b');
        assert!(!is_readable(&queue));
    }

    #[test]
    fn a_nonblocking_one_does_not_wait() {
        let queue = FdQueue::<u8>::new(8).unwrap();
        nonblocking(&queue);
        assert_eq!(queue.pop().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn a_blocking_one_waits() {
        let queue = Arc::new(FdQueue::new(8).unwrap());
        let waiter = std::thread::spawn({
            let queue = queue.clone();
            move || queue.pop().unwrap()
        });
        queue.push(5).unwrap();
        assert_eq!(waiter.join().unwrap(), 5);
    }

    #[test]
    fn an_item_that_fails_the_condition_stays_first() {
        let queue = FdQueue::new(8).unwrap();
        nonblocking(&queue);
        queue.push(1).unwrap();
        queue.push(2).unwrap();
        assert_eq!(queue.pop_if(|item| *item > 1).unwrap(), None);
        assert_eq!(queue.len(), 2);
        assert_eq!(queue.pop().unwrap(), 1);
        assert_eq!(queue.pop().unwrap(), 2);
        assert!(queue.pop().is_err());
    }

    #[test]
    fn a_full_one_gives_the_item_back() {
        let queue = FdQueue::new(1).unwrap();
        queue.push('a').unwrap();
        assert_eq!(queue.push('b'), Err('b'));
        assert_eq!(queue.pop().unwrap(), 'a');
        assert!(!is_readable(&queue));
    }
}
