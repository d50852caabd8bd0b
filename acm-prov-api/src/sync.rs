//! Locks, atomics and threads, for this crate and for providers.
//!
//! Everything that the SDK and the reference providers share between threads comes from here and from nowhere else, so
//! that a model checker can take the place of the real primitives by changing this one file.

pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use std::sync::{Arc, OnceLock, Weak};

/// Makes a constructor `const`. A model checker's types have no such ones: there it is a plain function.
macro_rules! constructor {
    ($visibility:vis fn $($rest:tt)*) => {
        $visibility const fn $($rest)*
    };
}

pub(crate) use constructor;

/// Atomic integers and pointers.
pub mod atomic {
    pub use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

    /// Pointers to nothing.
    pub(crate) const fn nulls<T, const N: usize>() -> [AtomicPtr<T>; N] {
        [const { AtomicPtr::new(std::ptr::null_mut()) }; N]
    }
}

/// Threads.
pub mod thread {
    pub use std::thread::{Builder, JoinHandle};
}
