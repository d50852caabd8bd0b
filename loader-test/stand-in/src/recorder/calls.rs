//! The file of running calls into the provider, with a slot for each thread of the core, which is the slot's only writer.
//!
//! The file is mapped: recording needs no system call, and stored data survives any end of the process. A slot has a state and
//! room for two texts. The writer fills the room that the state does not name, then changes the state, so that one text is
//! always complete.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Caller, printable};

/// Size of a text's room, padded with NUL.
const TEXT: usize = WORDS * WORD;
const WORDS: usize = 31;
const WORD: usize = size_of::<u64>();
const CALLERS: usize = 2;
const SIZE: usize = size_of::<Slots>();

type Slots = [Slot; CALLERS];

#[repr(C)]
struct Slot {
    /// Number of started calls times two, plus one while the last one is running. The parity of the number of calls selects the
    /// room of its text.
    state: AtomicU64,
    rooms: [[AtomicU64; WORDS]; 2],
}

const UNDER_WAY: u64 = 1;
const ONE_CALL: u64 = 2;

/// Returns the room of the last call's text.
fn room(state: u64) -> usize {
    (state / ONE_CALL % 2) as usize
}

/// The mapped file.
pub(super) struct Calls {
    slots: NonNull<Slots>,
}

// SAFETY: the slots are atomics, in a mapping that lives as long as this.
unsafe impl Send for Calls {}
// SAFETY: as above.
unsafe impl Sync for Calls {}

impl Calls {
    /// Continues the file of an earlier core.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).read(true).write(true);
        let file = options.open(path)?;
        let length = file.metadata()?.len();
        if let Some(lacking) = (SIZE as u64)
            .checked_sub(length)
            .filter(|lacking| *lacking > 0)
        {
            // Write the bytes instead of extending the file: access to a mapped hole faults if the disk is full.
            file.write_all_at(&vec![0; lacking as usize], length)?;
        }
        Ok(Self { slots: map(&file)? })
    }

    fn slot(&self, caller: Caller) -> &Slot {
        // SAFETY: mapped until this is dropped, and long enough.
        let slots = unsafe { self.slots.as_ref() };
        &slots[caller as usize]
    }

    /// Records the start of a call; truncates a long `text`.
    pub fn begin(&self, caller: Caller, text: &[u8]) {
        let slot = self.slot(caller);
        let state = (slot.state.load(Ordering::Relaxed) | UNDER_WAY) + ONE_CALL;
        let mut text = text.chunks(WORD);
        for place in &slot.rooms[room(state)] {
            let mut word = [0; WORD];
            let bytes = text.next().unwrap_or_default();
            word[..bytes.len()].copy_from_slice(bytes);
            place.store(u64::from_ne_bytes(word), Ordering::Relaxed);
        }
        slot.state.store(state, Ordering::Release);
    }

    /// Records the end of the call.
    pub fn end(&self, caller: Caller) {
        let state = &self.slot(caller).state;
        let over = state.load(Ordering::Relaxed) & !UNDER_WAY;
        state.store(over, Ordering::Release);
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        // SAFETY: our own mapping, of which no reference is left.
        unsafe { libc::munmap(self.slots.as_ptr().cast(), SIZE) };
    }
}

fn map(file: &File) -> io::Result<NonNull<Slots>> {
    // SAFETY: a fresh mapping of a file that has these bytes.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            SIZE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(start.cast()).ok_or(io::ErrorKind::AddrInUse.into())
}

/// A recorded call.
pub(super) struct Call {
    pub is_under_way: bool,
    pub text: String,
}

/// Returns the last call of each thread with calls.
pub(super) fn read(path: &Path) -> Option<Vec<Call>> {
    /// Give up on a consistent read if the writer never pauses.
    const TRIES: usize = 1000;
    let mut bytes = std::fs::read(path).ok()?;
    for _ in 0..TRIES {
        // The text is consistent if the state did not change during the read.
        let again = std::fs::read(path).ok()?;
        if states(&bytes).eq(states(&again)) {
            break;
        }
        bytes = again;
    }
    let calls = bytes.chunks_exact(size_of::<Slot>()).zip(states(&bytes));
    Some(
        calls
            .filter(|(_, state)| *state > 0)
            .map(|(slot, state)| {
                let text = &slot[WORD + room(state) * TEXT..][..TEXT];
                let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
                Call {
                    is_under_way: state & UNDER_WAY > 0,
                    text: printable(&String::from_utf8_lossy(text)),
                }
            })
            .collect(),
    )
}

fn states(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes
        .chunks_exact(size_of::<Slot>())
        .filter_map(|slot| Some(u64::from_ne_bytes(*slot.first_chunk()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_never_half_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("calls");
        let calls = Calls::open(&path).unwrap();
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut letters = (b'a'..=b'z').cycle();
                while !is_over.load(Ordering::Relaxed) {
                    calls.begin(Caller::Sa, &[letters.next().unwrap(); TEXT]);
                    calls.end(Caller::Sa);
                    std::thread::yield_now();
                }
            });
            for _ in 0..2000 {
                for call in read(&path).unwrap() {
                    let letter = call.text.chars().next().unwrap();
                    let is_whole = call.text == letter.to_string().repeat(TEXT);
                    assert!(is_whole, "{}", call.text);
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
    }
}
