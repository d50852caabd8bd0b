//! Compares the answers of a measured provider with the requests.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::{Count, gid_of, lid_of};

/// Offset of the first entry's path record: behind the header and the entry's own 8 bytes.
const PATH: usize = 24;
const STATUS: usize = 2;
const TID: usize = 8;
const DGID: usize = PATH + 8;
const DLID: usize = PATH + 40;

/// The last request, and the counts of answers.
#[derive(Default)]
pub(super) struct Answers {
    /// The last request.
    expected: AtomicU64,
    /// The last answered request.
    done: AtomicU64,
    /// The DLID of the last answer.
    dlid: AtomicU32,
    wrong: Count,
    refused: Count,
    late: Count,
    errors: Count,
}

/// How the requests of a run were answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Paths to another destination than the requested one, and second answers to the last request.
    pub wrong: usize,
    /// Answers with an error.
    pub refused: usize,
    /// Answers to requests before the last one.
    pub late: usize,
    /// Callbacks that returned another value than 0.
    pub errors: usize,
}

impl Answers {
    #[inline]
    pub fn expect(&self, tid: u64) {
        self.expected.store(tid, Ordering::Relaxed);
    }

    #[inline]
    pub fn is_answered(&self, tid: u64) -> bool {
        self.done.load(Ordering::Acquire) == tid
    }

    #[inline]
    pub fn last_is_answered(&self) -> bool {
        self.is_answered(self.expected.load(Ordering::Relaxed))
    }

    #[inline]
    pub fn last_dlid(&self) -> u32 {
        self.dlid.load(Ordering::Relaxed)
    }

    #[cold]
    pub fn returned_an_error(&self) {
        self.errors.add();
    }

    /// Records an answer.
    ///
    /// # Safety
    /// `message` is a message of the length that it states.
    #[inline]
    pub unsafe fn take(&self, message: *const u8) {
        // SAFETY: a message has a header, by the caller's promise.
        let (status, tid) = unsafe { (*message.add(STATUS), read::<8>(message, TID)) };
        let tid = u64::from_ne_bytes(tid);
        if status == 0 {
            // SAFETY: an answer that says success has a path behind its header.
            let (dgid, dlid) = unsafe { (read::<16>(message, DGID), read::<2>(message, DLID)) };
            let destination = tid as u32;
            let dlid = u16::from_be_bytes(dlid);
            self.dlid.store(dlid.into(), Ordering::Relaxed);
            if dlid != lid_of(destination) || dgid != gid_of(destination).0 {
                self.wrong.add();
            }
        } else {
            self.refused.add();
        }
        if tid == self.expected.load(Ordering::Relaxed) {
            if self.is_answered(tid) {
                self.wrong.add();
            }
            self.done.store(tid, Ordering::Release);
        } else {
            self.late.add();
        }
    }

    pub fn tally(&self) -> Tally {
        Tally {
            wrong: self.wrong.get(),
            refused: self.refused.get(),
            late: self.late.get(),
            errors: self.errors.get(),
        }
    }
}

/// # Safety
/// `message` has the bytes of the value at `offset`.
#[inline]
unsafe fn read<const N: usize>(message: *const u8, offset: usize) -> [u8; N] {
    // SAFETY: the caller's promise; bytes need no alignment.
    unsafe { message.add(offset).cast::<[u8; N]>().read() }
}

#[cfg(test)]
mod tests {
    use super::super::super::message::{Message, Path};
    use super::*;

    fn answer(tid: u64, dlid: u16, destination: u32, status: u8) -> Message {
        let path = Path::default()
            .with_dlid(dlid)
            .with_dgid(gid_of(destination));
        let mut message = Message::path(&path).with_tid(tid);
        message.0[STATUS] = status;
        message
    }

    fn take(answers: &Answers, message: &Message) {
        // SAFETY: a whole message.
        unsafe { answers.take(message.0.as_ptr()) };
    }

    #[test]
    fn an_answer_is_held_against_what_was_asked_for() {
        let answers = Answers::default();
        answers.expect(1 << 32 | 7);
        take(&answers, &answer(1 << 32 | 7, lid_of(7), 7, 0));
        assert!(answers.last_is_answered());
        assert_eq!(answers.tally(), Tally::default());

        answers.expect(2 << 32 | 8);
        assert!(!answers.last_is_answered());
        // To an earlier request, to another LID, to another GID, and refused.
        take(&answers, &answer(1 << 32 | 7, lid_of(7), 7, 0));
        take(&answers, &answer(2 << 32 | 8, lid_of(9), 8, 0));
        answers.expect(3 << 32 | 8);
        take(&answers, &answer(3 << 32 | 8, lid_of(8), 9, 0));
        answers.expect(4 << 32 | 8);
        take(&answers, &answer(4 << 32 | 8, 0, 0, 3));
        // A second answer.
        take(&answers, &answer(4 << 32 | 8, lid_of(8), 8, 0));
        let tally = Tally {
            wrong: 3,
            refused: 1,
            late: 1,
            errors: 0,
        };
        assert_eq!(answers.tally(), tally);
    }
}
