//! Four words that one thread at a time writes and any number read, without waiting for each other: a seqlock.
//!
//! The upper bits of the first word count. An odd count says that the words are being written; a reader that sees the same even
//! count before and after it has read the words has read what was written together. Every word is atomic, since a reader
//! that is late reads while they are written. The words are written by Release and read by Acquire: a reader that sees a
//! new word sees the odd count, too, when it looks again. So no fence is needed, which ThreadSanitizer does not know.

use crate::sync::atomic::{AtomicU64, Ordering};

/// What a slot holds. Of the first word, [the lower 40 bits](FIRST_WORD) count.
pub type Words = [u64; 4];

/// The bits of the first word that are not the slot's own.
pub const FIRST_WORD: u64 = ONE - 1;

const ONE: u64 = 1 << 40;

/// Looks at a slot that is being written before a reader gives up. A model has to try all numbers of them.
const TRIES: usize = if cfg!(loom) { 2 } else { 16 };

/// See the [module](self).
#[repr(align(32))]
pub struct Slot([AtomicU64; 4]);

impl Default for Slot {
    /// All zeros, like fresh memory.
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Slot {
    /// What was written last. `None`: it is being written.
    #[inline(always)]
    pub fn read(&self) -> Option<Words> {
        self.read_once().or_else(|| self.read_again())
    }

    #[cold]
    fn read_again(&self) -> Option<Words> {
        (1..TRIES).find_map(|_| {
            std::hint::spin_loop();
            self.read_once()
        })
    }

    #[inline]
    fn read_once(&self) -> Option<Words> {
        let [first, second, third, fourth] = &self.0;
        let before = first.load(Ordering::Acquire);
        let words = [
            before & FIRST_WORD,
            second.load(Ordering::Acquire),
            third.load(Ordering::Acquire),
            fourth.load(Ordering::Acquire),
        ];
        (before & ONE == 0 && first.load(Ordering::Relaxed) == before).then_some(words)
    }

    /// Replaces the words. One thread at a time.
    pub fn write(&self, words: Words) {
        let [first, second, third, fourth] = &self.0;
        let before = first.load(Ordering::Relaxed);
        first.store(before.wrapping_add(ONE), Ordering::Relaxed);
        second.store(words[1], Ordering::Release);
        third.store(words[2], Ordering::Release);
        // Swapped: marks are set in what was here or in what comes, and never bring back what was.
        fourth.swap(words[3], Ordering::Release);
        let count = before.wrapping_add(2 * ONE) & !FIRST_WORD;
        first.store(count | words[0] & FIRST_WORD, Ordering::Release);
    }

    /// Makes the words zeros, the count too. Readers do not find out by the slot alone that words are not of one time: the store
    /// changes the [current table](crate::cache::tables) before. One thread at a time.
    pub fn zero(&self) {
        for word in &self.0 {
            word.store(0, Ordering::Release);
        }
    }

    /// Sets bits of the last word. For any thread; what is being written meanwhile may get them, or lose them.
    #[inline]
    pub fn set_bits(&self, bits: u64) {
        self.0[3].fetch_or(bits, Ordering::Relaxed);
    }

    /// Clears bits of the last word.
    pub fn clear_bits(&self, bits: u64) {
        self.0[3].fetch_and(!bits, Ordering::Relaxed);
    }
}
