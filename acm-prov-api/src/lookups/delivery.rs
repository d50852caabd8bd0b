//! Delivers ends to waiters: outside all locks, even after an early return or a panic.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use smallvec::SmallVec;

use super::{End, Waiter};
use crate::host::Host;
use crate::host::guard;
use crate::sync::{Condvar, Mutex, MutexGuard};

/// Waiters and their ends. Dropping the list delivers it, so an early return cannot lose it.
pub struct Replies<W: Waiter> {
    host: Option<Host>,
    /// Usually there is only one waiter.
    list: SmallVec<[(W, End<W::Answer>); 1]>,
}

impl<W: Waiter> Replies<W> {
    pub(super) fn new(host: Option<Host>) -> Self {
        Self {
            host,
            list: SmallVec::new(),
        }
    }

    pub(super) fn push(&mut self, waiter: W, end: End<W::Answer>) {
        self.list.push((waiter, end));
    }

    pub(super) fn take(&mut self) -> Self {
        Self {
            host: self.host,
            list: std::mem::take(&mut self.list),
        }
    }

    /// Delivers the list before it is dropped.
    #[inline]
    pub fn deliver(&mut self) {
        if !self.list.is_empty() {
            self.deliver_all();
        }
    }

    fn deliver_all(&mut self) {
        for (waiter, end) in self.list.drain(..) {
            guard::enter("answer to a request", self.host.as_ref(), (), || {
                waiter.end(end);
                Ok(())
            });
        }
    }

    /// Whether the list is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

impl<W: Waiter> Drop for Replies<W> {
    fn drop(&mut self) {
        self.deliver();
    }
}

/// State with actions to run after its lock is released: deliver replies, send, log.
pub trait Deliver {
    /// The actions. Dropping them runs them.
    type Batch;

    /// Takes the actions out; `None` if there are none.
    fn take_batch(&mut self) -> Option<Self::Batch>;
}

/// A lock that runs actions after its release. So code under the lock only decides and may return early, and no reply is
/// delivered while it is held.
pub struct DeliveringMutex<S: Deliver>(Mutex<S>);

impl<S: Deliver> DeliveringMutex<S> {
    /// Creates a lock around `state`.
    #[must_use]
    pub const fn new(state: S) -> Self {
        Self(Mutex::new(state))
    }

    /// Takes the lock. Dropping the guard releases it, then delivers.
    pub fn lock(&self) -> Locked<'_, S> {
        Locked {
            mutex: &self.0,
            guard: Some(self.0.lock()),
        }
    }
}

/// The lock of a [`DeliveringMutex`], held.
pub struct Locked<'a, S: Deliver> {
    mutex: &'a Mutex<S>,
    /// `None` only while a batch is delivered.
    guard: Option<MutexGuard<'a, S>>,
}

impl<S: Deliver> Locked<'_, S> {
    /// Delivers the actions, then waits for a signal, at most for `timeout`; `None` waits forever. It may return sooner.
    pub fn wait(&mut self, signal: &Condvar, timeout: Option<Duration>) {
        if self.deliver() {
            return;
        }
        if let Some(guard) = &mut self.guard {
            match timeout {
                Some(timeout) => {
                    signal.wait_for(guard, timeout);
                }
                None => signal.wait(guard),
            }
        }
    }

    /// Delivers the actions, if any. True if it released the lock for that and took it again.
    fn deliver(&mut self) -> bool {
        let batch = self.guard.as_mut().and_then(|state| state.take_batch());
        if batch.is_none() {
            return false;
        }
        self.guard = None;
        drop(batch);
        self.guard = Some(self.mutex.lock());
        true
    }
}

impl<S: Deliver> Deref for Locked<'_, S> {
    type Target = S;

    fn deref(&self) -> &S {
        self.guard
            .as_ref()
            .expect("the lock is held except while a batch is delivered")
    }
}

impl<S: Deliver> DerefMut for Locked<'_, S> {
    fn deref_mut(&mut self) -> &mut S {
        self.guard
            .as_mut()
            .expect("the lock is held except while a batch is delivered")
    }
}

impl<S: Deliver> Drop for Locked<'_, S> {
    #[inline]
    fn drop(&mut self) {
        let Some(mut state) = self.guard.take() else {
            return;
        };
        let _delivered_unlocked = state.take_batch();
        drop(state);
    }
}
