//! What a modelled file uses of the SDK's own `sync`.

pub use loom::sync::Arc;

/// Makes a constructor that is `const` in the SDK a plain function: loom's types have no other.
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
    /// An open lock.
    pub fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    /// Waits for the lock.
    ///
    /// # Panics
    /// If a thread of the model panicked with it, which fails the model.
    pub fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
        self.0.lock().expect("no thread of a model panics")
    }
}

/// Atomic integers and pointers.
pub mod atomic {
    pub use loom::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

    /// Pointers to nothing.
    pub fn nulls<T, const N: usize>() -> [AtomicPtr<T>; N] {
        std::array::from_fn(|_| AtomicPtr::new(std::ptr::null_mut()))
    }
}
