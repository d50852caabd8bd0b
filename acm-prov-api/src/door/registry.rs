//! Contexts by key. The core holds a number, not a pointer, for a device, port, endpoint or address.
//!
//! A key names one context for the life of the process. After the context is closed, the key names none: a second close or
//! a late call causes an error message instead of a read of freed memory.
//!
//! A callback [enters](Registry::enter) a context as its guest, without a lock. The value lives until the last guest
//! [leaves](Guest::leave) a context that was [closed](Guest::close), on any thread. The test package
//! `acm-prov-api-models` includes this file and runs it under loom.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::num::NonZeroUsize;
use std::ops::Deref;

use crate::sync::atomic::{AtomicPtr, AtomicU64, Ordering, nulls};
use crate::sync::{Arc, Mutex, constructor};

/// Bits of a key for the slot's index; the others count earlier uses of the slot.
const INDEX_BITS: u32 = 24;
const INDEX_MASK: usize = (1 << INDEX_BITS) - 1;

/// A context's key: never zero, since a NULL context means "not open" to the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ContextKey(NonZeroUsize);

impl ContextKey {
    fn new(index: usize, generation: usize) -> Option<Self> {
        NonZeroUsize::new((generation << INDEX_BITS) | (index + 1)).map(Self)
    }

    /// Returns the key as a pointer for the core. It must never be dereferenced.
    pub(crate) fn to_context(self) -> *mut c_void {
        std::ptr::without_provenance_mut(self.0.get())
    }

    /// Returns the key of a context; `None` for NULL.
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

// A slot's word, from the lowest bit: guests, whether it holds a value, whether it is open, generation.
const GUEST: u64 = 1;
const GUESTS: u64 = (1 << 22) - 1;
const HOLDS: u64 = 1 << 22;
const OPEN: u64 = 1 << 23;
const GENERATION: u32 = 24;

/// The most guests of one slot. Further guests are refused before the count can overflow into the next bit.
const MOST_GUESTS: u64 = GUESTS / 2;

struct Slot<T> {
    word: AtomicU64,
    /// From [`Arc::into_raw`] while the word says that there is one.
    value: AtomicPtr<T>,
}

impl<T> Slot<T> {
    fn new() -> Self {
        Self {
            word: AtomicU64::new(0),
            value: AtomicPtr::new(std::ptr::null_mut()),
        }
    }
}

/// Slots of the first chunk. Each further chunk has as many as all before it together, plus this number.
const FIRST_CHUNK: usize = 16;
const CHUNKS: usize = (INDEX_BITS - FIRST_CHUNK.ilog2()) as usize + 1;

/// Returns the chunk of a slot, and the slot's place in it.
fn place(index: usize) -> Option<(usize, usize)> {
    let at = index.checked_add(FIRST_CHUNK)?;
    let chunk = (at.ilog2() - FIRST_CHUNK.ilog2()) as usize;
    Some((chunk, at - chunk_length(chunk)))
}

const fn chunk_length(chunk: usize) -> usize {
    FIRST_CHUNK << chunk
}

struct Free {
    /// Free slots that were used before. It has capacity for all slots.
    slots: Vec<usize>,
    /// The number of slots ever used.
    used: usize,
}

/// All open contexts of one kind.
pub(crate) struct Registry<T> {
    /// The slots. They are never moved or freed.
    chunks: [AtomicPtr<Slot<T>>; CHUNKS],
    free: Mutex<Free>,
    /// Values are dropped on any thread.
    _values: PhantomData<Arc<T>>,
}

impl<T> Registry<T> {
    constructor! {
        pub(crate) fn new() -> Self {
            Self {
                chunks: nulls(),
                free: Mutex::new(Free {
                    slots: Vec::new(),
                    used: 0,
                }),
                _values: PhantomData,
            }
        }
    }

    fn slot(&self, index: usize) -> Option<&Slot<T>> {
        let (chunk, place) = place(index)?;
        let first = self.chunks.get(chunk)?.load(Ordering::Acquire);
        // SAFETY: a published chunk has its full length, lives as long as the registry, and is only shared.
        (!first.is_null()).then(|| unsafe { &*first.add(place) })
    }

    /// Keeps `value` until its context is closed and left; `None` when 2^24 contexts are open.
    pub(crate) fn insert(&self, value: Arc<T>) -> Option<ContextKey> {
        let mut free = self.free.lock();
        let index = match free.slots.pop() {
            Some(index) => index,
            None if free.used < INDEX_MASK => self.use_another(&mut free)?,
            None => return None,
        };
        let slot = self.slot(index)?;
        slot.value
            .store(Arc::into_raw(value).cast_mut(), Ordering::Relaxed);
        // A call with an old key may be counted at this moment.
        let word = slot.word.fetch_or(OPEN | HOLDS, Ordering::Release);
        ContextKey::new(index, (word >> GENERATION) as usize)
    }

    #[cold]
    fn use_another(&self, free: &mut Free) -> Option<usize> {
        let index = free.used;
        let (chunk, place) = place(index)?;
        if place == 0 {
            let slots: Box<[Slot<T>]> = (0..chunk_length(chunk)).map(|_| Slot::new()).collect();
            let first = Box::into_raw(slots).cast::<Slot<T>>();
            self.chunks.get(chunk)?.store(first, Ordering::Release);
        }
        free.used += 1;
        // Reserve now, because returning a slot must not fail.
        let room = free.used - free.slots.len();
        free.slots.reserve(room);
        Some(index)
    }

    /// Enters an open context. If the key names none, this may return the value of a closed context, for the caller to drop:
    /// its attempt was counted as the last guest.
    #[inline]
    pub(crate) fn enter(&self, key: ContextKey) -> Result<Guest<'_, T>, Option<Arc<T>>> {
        let index = key.index();
        let slot = self.slot(index).ok_or(None)?;
        let word = slot.word.fetch_add(GUEST, Ordering::Acquire);
        let open = (key.generation() as u64) << GENERATION | OPEN | HOLDS;
        if word & !GUESTS != open || word & GUESTS >= MOST_GUESTS {
            return Err(self.leave(slot, index));
        }
        let value = slot.value.load(Ordering::Relaxed);
        // SAFETY: an open slot holds its value until its guests have left, and this is one of them.
        let value = ManuallyDrop::new(unsafe { Arc::from_raw(value) });
        Ok(Guest {
            registry: self,
            slot,
            index,
            value,
        })
    }

    /// Whether the key names an open context.
    pub(crate) fn is_open(&self, key: ContextKey) -> bool {
        let word = self
            .slot(key.index())
            .map_or(0, |slot| slot.word.load(Ordering::Relaxed));
        word & !GUESTS == (key.generation() as u64) << GENERATION | OPEN | HOLDS
    }

    /// Subtracts a guest. The last guest of a closed slot takes the value.
    #[inline]
    fn leave(&self, slot: &Slot<T>, index: usize) -> Option<Arc<T>> {
        let word = slot.word.fetch_sub(GUEST, Ordering::Release) - GUEST;
        if word & (GUESTS | HOLDS | OPEN) == HOLDS {
            self.empty(slot, index, word)
        } else {
            None
        }
    }

    #[cold]
    fn empty(&self, slot: &Slot<T>, index: usize, word: u64) -> Option<Arc<T>> {
        let generation = (word >> GENERATION) + 1;
        // Retire a slot whose generations are used up; otherwise an old key would name it.
        let is_used_up = generation > (usize::MAX >> INDEX_BITS) as u64;
        let emptied = if is_used_up {
            word & !HOLDS
        } else {
            generation << GENERATION
        };
        // A call with an old key may be counted meanwhile; it then empties the slot. Acquire: everything that guests did
        // with the value is complete.
        slot.word
            .compare_exchange(word, emptied, Ordering::Acquire, Ordering::Relaxed)
            .ok()?;
        let value = slot.value.load(Ordering::Relaxed);
        // SAFETY: `insert` stored the value, and only this thread takes it: the exchange succeeds once for it.
        let value = unsafe { Arc::from_raw(value) };
        if !is_used_up {
            self.free.lock().slots.push(index);
        }
        Some(value)
    }
}

impl<T> Drop for Registry<T> {
    fn drop(&mut self) {
        for chunk in 0..CHUNKS {
            let first = self.chunks[chunk].load(Ordering::Acquire);
            if first.is_null() {
                continue;
            }
            let slots = std::ptr::slice_from_raw_parts_mut(first, chunk_length(chunk));
            // SAFETY: made by `use_another` with this length, and `self` is no longer shared.
            for slot in unsafe { Box::from_raw(slots) } {
                if slot.word.load(Ordering::Acquire) & HOLDS != 0 {
                    // SAFETY: the value is from `insert` and was not taken.
                    drop(unsafe { Arc::from_raw(slot.value.load(Ordering::Relaxed)) });
                }
            }
        }
    }
}

/// A visit of a context, whose value lives at least as long.
pub(crate) struct Guest<'a, T> {
    registry: &'a Registry<T>,
    slot: &'a Slot<T>,
    index: usize,
    value: ManuallyDrop<Arc<T>>,
}

impl<T> Guest<'_, T> {
    /// Closes the context: its key names none from now on. False if it was closed before.
    pub(crate) fn close(&self) -> bool {
        self.slot.word.fetch_and(!OPEN, Ordering::Relaxed) & OPEN != 0
    }

    /// Ends the visit. The last guest of a closed context gets its value, to drop it where a panic is caught.
    #[inline]
    #[must_use]
    pub(crate) fn leave(self) -> Option<Arc<T>> {
        let this = ManuallyDrop::new(self);
        this.registry.leave(this.slot, this.index)
    }
}

impl<T> Deref for Guest<'_, T> {
    type Target = Arc<T>;

    #[inline]
    fn deref(&self) -> &Arc<T> {
        &self.value
    }
}

impl<T> Drop for Guest<'_, T> {
    fn drop(&mut self) {
        drop(self.registry.leave(self.slot, self.index));
    }
}

// Under loom the models are the tests.
#[cfg(all(test, not(loom)))]
mod tests;
