//! Locks, atomics and threads, for this crate and for providers.
//!
//! Everything that the SDK and the reference providers share between threads comes from here and from nowhere else, so
//! that a model checker can take the place of the real primitives by changing this one file.

pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use std::sync::{Arc, OnceLock, Weak};

/// Atomic integers.
pub mod atomic {
    pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
}

/// Threads.
pub mod thread {
    pub use std::thread::{Builder, JoinHandle};
}
