//! Locks, atomics and threads, for this crate and for providers.
//!
//! The SDK and the reference providers use only these primitives to share data between threads, so that replacing this one
//! file puts a model checker in their place.

pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use std::sync::{Arc, OnceLock, Weak};

/// Makes a constructor `const`. The types of a model checker have no const constructors; there it is a plain function.
macro_rules! constructor {
    ($visibility:vis fn $($rest:tt)*) => {
        $visibility const fn $($rest)*
    };
}

pub(crate) use constructor;

/// Atomic integers and pointers.
pub mod atomic {
    pub use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

    /// Returns null pointers.
    pub(crate) const fn nulls<T, const N: usize>() -> [AtomicPtr<T>; N] {
        [const { AtomicPtr::new(std::ptr::null_mut()) }; N]
    }
}

/// Threads.
pub mod thread {
    pub use std::thread::{Builder, JoinHandle};
}
