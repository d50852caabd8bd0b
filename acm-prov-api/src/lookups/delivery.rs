//! How ends reach those who waited: outside all locks, and whatever happens between.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use smallvec::SmallVec;

use super::{End, Waiter};
use crate::host::Host;
use crate::host::guard;
use crate::sync::{Condvar, Mutex, MutexGuard};

/// Waiters and their ends, on the way. Dropping the list delivers it: it cannot be lost by an early return.
pub struct Replies<W: Waiter> {
    host: Option<Host>,
    /// As a rule, who waited was the only one.
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

    /// Whether nobody is on the way.
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

/// State that has something to do whenever its lock is released: delivering replies, sending, logging.
pub trait Deliver {
    /// What is to be done. Dropping it does it.
    type Batch;

    /// Takes out what is to be done; `None` if there is nothing.
    fn take_batch(&mut self) -> Option<Self::Batch>;
}

/// A lock that, on its release, has done what was decided under it. So code under the lock only decides, may return early,
/// and nobody is answered while it is held.
pub struct DeliveringMutex<S: Deliver>(Mutex<S>);

impl<S: Deliver> DeliveringMutex<S> {
    /// A lock around `state`.
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
    /// There but while a batch is delivered.
    guard: Option<MutexGuard<'a, S>>,
}

impl<S: Deliver> Locked<'_, S> {
    /// Delivers what there is, then waits for a signal, `timeout` at the most. `None` is without end. It may return sooner.
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

    /// Whether there was something to deliver, for which the lock was released and taken again.
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
