//! A checked view of `struct acm_msg` (acm.h): every index and length in it comes from a client.

use std::mem::MaybeUninit;

use crate::abi::{ACM_MSG_EP_LENGTH, ACM_MSG_HDR_LENGTH, ACM_OP_ACK, AcmEpType, acm_msg};
use crate::address::ADDRESS_LENGTH;
use crate::path::PathRecord;

/// Bytes of a message's header.
pub(crate) const HEADER: usize = ACM_MSG_HDR_LENGTH;
/// Bytes of an entry.
pub(crate) const ENTRY: usize = ACM_MSG_EP_LENGTH;
/// Entries that a message has room for.
pub(crate) const ENTRIES: usize = 8;
const LENGTH: usize = size_of::<acm_msg>();

/// One of the eight entries of a resolve message (`struct acm_ep_addr_data`), as its bytes.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'a>(pub(crate) &'a [u8; ENTRY]);

impl<'a> Entry<'a> {
    pub(crate) fn flags(self) -> u32 {
        u32::from_ne_bytes([self.0[0], self.0[1], self.0[2], self.0[3]])
    }

    pub(crate) fn kind(self) -> AcmEpType {
        AcmEpType(u16::from_ne_bytes([self.0[4], self.0[5]]))
    }

    pub(crate) fn info(self) -> &'a [u8; ADDRESS_LENGTH] {
        self.0[8..]
            .first_chunk()
            .expect("an entry holds 8 + 64 bytes")
    }

    pub(crate) fn path_record(self) -> PathRecord {
        PathRecord::from_bytes(self.info())
    }
}

/// A message as the core passes it to a callback. Valid only during the call.
#[derive(Clone, Copy)]
pub(crate) struct Message<'a>(&'a [u8; LENGTH]);

impl<'a> Message<'a> {
    /// # Safety
    /// `msg` points to a whole `struct acm_msg` that stays unchanged for `'a`.
    pub(crate) unsafe fn new(msg: *const acm_msg) -> Self {
        // SAFETY: the caller's promise; bytes have no invalid values.
        Self(unsafe { &*msg.cast() })
    }

    pub(crate) fn header(self) -> &'a [u8; HEADER] {
        self.0
            .first_chunk()
            .expect("a message is longer than its header")
    }

    /// `src_out`, `src_index` and `dst_index` are set by the core, but in a path request by the client.
    pub(crate) fn source_is_out(self) -> bool {
        self.0[3] != 0
    }

    pub(crate) fn source_index(self) -> usize {
        self.0[4].into()
    }

    pub(crate) fn destination_index(self) -> usize {
        self.0[5].into()
    }

    /// Returns how many entries the sender filled; the bytes after them are garbage.
    pub(crate) fn entries(self) -> usize {
        let length = usize::from(u16::from_ne_bytes([self.0[6], self.0[7]]));
        (length.min(LENGTH).saturating_sub(HEADER)) / ENTRY
    }

    /// Returns the entry at `index`, filled or not; `None` past the message's end.
    pub(crate) fn entry(self, index: usize) -> Option<Entry<'a>> {
        let at = index.checked_mul(ENTRY)?.checked_add(HEADER)?;
        self.0.get(at..)?.first_chunk().map(Entry)
    }

    /// Returns the entry at `index`, if the sender filled it.
    pub(crate) fn filled_entry(self, index: usize) -> Option<Entry<'a>> {
        if index < self.entries() {
            self.entry(index)
        } else {
            None
        }
    }
}

/// A message for the core, with room for a full one; only `hdr.length` bytes are written.
#[repr(C, align(8))]
pub(crate) struct Outgoing {
    bytes: [MaybeUninit<u8>; LENGTH],
    length: usize,
}

impl Outgoing {
    /// Begins with a header: the request's version, opcode and tid, the acknowledge bit, zero data bytes.
    #[inline]
    pub(crate) fn answer_to(header: &[u8; HEADER], status: u8) -> Self {
        let mut answer = Self {
            bytes: [const { MaybeUninit::uninit() }; LENGTH],
            length: 0,
        };
        let [version, opcode, _, _, _, _, _, _, tid @ ..] = header;
        answer.push(&[*version, opcode | ACM_OP_ACK, status, 0, 0, 0, 0, 0]);
        answer.push(tid);
        answer
    }

    #[inline]
    fn push<const N: usize>(&mut self, bytes: &[u8; N]) {
        let room = &mut self.bytes[self.length..self.length + N];
        for (room, byte) in room.iter_mut().zip(bytes) {
            room.write(*byte);
        }
        self.length += N;
    }

    /// Appends an entry.
    #[inline]
    pub(crate) fn entry(&mut self, entry: &[u8; ENTRY]) {
        self.push(entry);
    }

    /// Appends an entry with a path record.
    #[inline]
    pub(crate) fn path(&mut self, flags: u32, path: &PathRecord) {
        let [a, b, c, d] = flags.to_ne_bytes();
        let [e, f] = AcmEpType::PATH.0.to_ne_bytes();
        self.push(&[a, b, c, d, e, f, 0, 0]);
        self.push(&path.to_bytes());
    }

    /// Returns the written part of the message. The pointer is valid while this value is.
    #[inline]
    pub(crate) fn as_msg(&mut self) -> *mut acm_msg {
        let [low, high] = (self.length as u16).to_ne_bytes();
        self.bytes[6].write(low);
        self.bytes[7].write(high);
        self.bytes.as_mut_ptr().cast()
    }
}

const _: () =
    assert!(align_of::<Outgoing>() >= align_of::<acm_msg>() && HEADER + ENTRIES * ENTRY == LENGTH);
