//! Contexts by key: what the core holds for a device, port, endpoint or address is a number, not a pointer.
//!
//! A key names one context for the life of the process. After the context is closed its key names nothing, so a second
//! close, or a call that comes too late, is an error message instead of a read of freed memory.

use std::ffi::c_void;
use std::num::NonZeroUsize;

use crate::sync::{Arc, RwLock};

/// Bits of a key that name the slot; the rest count how often the slot was used before.
const INDEX_BITS: u32 = 24;
const INDEX_MASK: usize = (1 << INDEX_BITS) - 1;

/// A context's key: never zero, since the core takes a NULL context for "not open".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key(NonZeroUsize);

impl Key {
    fn new(index: usize, generation: usize) -> Option<Self> {
        NonZeroUsize::new((generation << INDEX_BITS) | (index + 1)).map(Self)
    }

    /// The key in the form that the core keeps. It must never be dereferenced.
    pub(crate) fn to_context(self) -> *mut c_void {
        std::ptr::without_provenance_mut(self.0.get())
    }

    /// The key that `context` was made from; `None` for NULL.
    pub(crate) fn from_context(context: *mut c_void) -> Option<Self> {
        NonZeroUsize::new(context.addr()).map(Self)
    }

    fn index(self) -> usize {
        (self.0.get() & INDEX_MASK).wrapping_sub(1)
    }

    fn generation(self) -> usize {
        self.0.get() >> INDEX_BITS
    }
}

struct Slot<T> {
    generation: usize,
    value: Option<Arc<T>>,
}

struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: Vec<usize>,
}

/// All open contexts of one kind.
pub(crate) struct Registry<T> {
    slots: RwLock<Slots<T>>,
}

impl<T> Registry<T> {
    pub(crate) const fn new() -> Self {
        Self {
            slots: RwLock::new(Slots {
                slots: Vec::new(),
                free: Vec::new(),
            }),
        }
    }

    /// Keeps `value` until its key is removed; `None` when 2^24 contexts are open.
    pub(crate) fn insert(&self, value: Arc<T>) -> Option<Key> {
        let mut inner = self.slots.write();
        let index = match inner.free.pop() {
            Some(index) => index,
            None if inner.slots.len() < INDEX_MASK => {
                inner.slots.push(Slot {
                    generation: 0,
                    value: None,
                });
                inner.slots.len() - 1
            }
            None => return None,
        };
        let slot = &mut inner.slots[index];
        slot.value = Some(value);
        Key::new(index, slot.generation)
    }

    pub(crate) fn get(&self, key: Key) -> Option<Arc<T>> {
        let inner = self.slots.read();
        let slot = inner.slots.get(key.index())?;
        if slot.generation == key.generation() {
            slot.value.clone()
        } else {
            None
        }
    }

    pub(crate) fn remove(&self, key: Key) -> Option<Arc<T>> {
        let mut inner = self.slots.write();
        let slot = inner.slots.get_mut(key.index())?;
        if slot.generation != key.generation() {
            return None;
        }
        let value = slot.value.take()?;
        // A slot whose count is used up is retired rather than given out under an old key.
        let generation = slot.generation + 1;
        if generation <= usize::MAX >> INDEX_BITS {
            slot.generation = generation;
            inner.free.push(key.index());
        }
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_dies_with_its_context() {
        let registry = Registry::new();
        let first = registry.insert(Arc::new(1)).unwrap();
        assert_eq!(registry.get(first).as_deref(), Some(&1));
        assert_eq!(registry.remove(first).as_deref(), Some(&1));
        assert!(registry.remove(first).is_none());
        let second = registry.insert(Arc::new(2)).unwrap();
        assert_ne!(first, second, "the slot is used again under another key");
        assert!(registry.get(first).is_none());
        assert_eq!(registry.get(second).as_deref(), Some(&2));
    }

    #[test]
    fn made_up_keys_name_nothing() {
        let registry = Registry::<u8>::new();
        assert!(Key::from_context(std::ptr::null_mut()).is_none());
        for address in [1, INDEX_MASK, INDEX_MASK + 1, usize::MAX] {
            let key = Key::from_context(std::ptr::without_provenance_mut(address)).unwrap();
            assert!(registry.get(key).is_none());
            assert!(registry.remove(key).is_none());
        }
    }

    #[test]
    fn reopening_reuses_slots() {
        let registry = Registry::new();
        for round in 0..1000 {
            let key = registry.insert(Arc::new(round)).unwrap();
            assert!(registry.remove(key).is_some());
        }
        assert_eq!(registry.slots.read().slots.len(), 1);
    }
}
