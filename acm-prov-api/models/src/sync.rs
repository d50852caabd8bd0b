//! The part of the SDK's `sync` that the modelled files use.

pub use loom::sync::Arc;

/// Makes a plain function of a constructor that is `const` in the SDK: loom's types have no const constructors.
#[macro_export]
macro_rules! constructor {
    ($visibility:vis fn $($rest:tt)*) => {
        $visibility fn $($rest)*
    };
}

pub use crate::constructor;

/// A lock without poisoning.
#[derive(Debug)]
pub struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// Creates an unlocked lock.
    pub fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    /// Waits for the lock.
    ///
    /// # Panics
    /// If a thread of the model panicked while it held the lock; that fails the model.
    pub fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
        self.0.lock().expect("no thread of a model panics")
    }
}

/// Atomic integers and pointers.
pub mod atomic {
    pub use loom::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

    /// Returns null pointers.
    pub fn nulls<T, const N: usize>() -> [AtomicPtr<T>; N] {
        std::array::from_fn(|_| AtomicPtr::new(std::ptr::null_mut()))
    }
}
