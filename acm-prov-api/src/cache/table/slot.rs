//! Four words that one thread writes and many read, without waiting for each other: a seqlock.
//!
//! The upper bits of the first word are a counter. It is odd while the words are being written. If a reader sees the same even
//! count before and after it reads the words, they belong together. Every word is atomic, since a late reader reads
//! while they are written. Words are written with Release and read with Acquire: a reader that sees a new word also sees
//! the odd count in its second look. So no fence is needed (ThreadSanitizer does not support fences).

use crate::sync::atomic::{AtomicU64, Ordering};

/// The content of a slot. Of the first word it uses [the lower 40 bits](FIRST_WORD).
pub type Words = [u64; 4];

/// The bits of the first word that are content; the slot's counter has the others.
pub const FIRST_WORD: u64 = ONE - 1;

const ONE: u64 = 1 << 40;

/// How often a reader retries a slot that is being written. Few under loom, which tries all interleavings.
const TRIES: usize = if cfg!(loom) { 2 } else { 16 };

/// See the [module](self).
#[repr(align(32))]
pub struct Slot([AtomicU64; 4]);

impl Default for Slot {
    /// All zeros, as in fresh memory.
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Slot {
    /// Returns the words written last. `None`: they are being written.
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
        // A swap: a concurrent mark lands in the old or in the new word, and never restores the old word.
        fourth.swap(words[3], Ordering::Release);
        let count = before.wrapping_add(2 * ONE) & !FIRST_WORD;
        first.store(count | words[0] & FIRST_WORD, Ordering::Release);
    }

    /// Sets all words to zero, the counter too. A reader cannot detect this by the slot alone, so the store first makes
    /// [another table current](crate::cache::tables). One thread at a time.
    pub fn zero(&self) {
        for word in &self.0 {
            word.store(0, Ordering::Release);
        }
    }

    /// Sets bits of the last word. For any thread. A concurrent write may keep or lose them.
    #[inline]
    pub fn set_bits(&self, bits: u64) {
        self.0[3].fetch_or(bits, Ordering::Relaxed);
    }

    /// Clears bits of the last word.
    pub fn clear_bits(&self, bits: u64) {
        self.0[3].fetch_and(!bits, Ordering::Relaxed);
    }
}
