//! A checked view of `struct acm_msg` (acm.h): every index and length in it comes from a client.

use crate::abi::{ACM_MSG_EP_LENGTH, ACM_MSG_HDR_LENGTH, AcmEpType, acm_msg};
use crate::address::ADDRESS_LENGTH;
use crate::path::PathRecord;

const HEADER: usize = ACM_MSG_HDR_LENGTH;
const ENTRY: usize = ACM_MSG_EP_LENGTH;
const LENGTH: usize = size_of::<acm_msg>();

/// One of the eight entries of a resolve message (`struct acm_ep_addr_data`), as its bytes.
#[derive(Clone, Copy)]
pub(crate) struct Entry([u8; ENTRY]);

impl Entry {
    /// An entry that carries a path record.
    pub(crate) fn path(flags: u32, path: &PathRecord) -> Self {
        let mut entry = [0; ENTRY];
        entry[0..4].copy_from_slice(&flags.to_ne_bytes());
        entry[4..6].copy_from_slice(&AcmEpType::PATH.0.to_ne_bytes());
        entry[8..].copy_from_slice(&path.to_bytes());
        Self(entry)
    }

    pub(crate) fn flags(&self) -> u32 {
        u32::from_ne_bytes([self.0[0], self.0[1], self.0[2], self.0[3]])
    }

    pub(crate) fn kind(&self) -> AcmEpType {
        AcmEpType(u16::from_ne_bytes([self.0[4], self.0[5]]))
    }

    pub(crate) fn info(&self) -> &[u8; ADDRESS_LENGTH] {
        self.0[8..]
            .first_chunk()
            .expect("an entry holds 8 + 64 bytes")
    }

    pub(crate) fn path_record(&self) -> PathRecord {
        PathRecord::from_bytes(self.info())
    }
}

/// A message as the core hands it to a callback, to be read during the call only.
#[derive(Clone, Copy)]
pub(crate) struct Message<'a>(&'a [u8; LENGTH]);

impl<'a> Message<'a> {
    /// # Safety
    /// `msg` points to a whole `struct acm_msg` that stays unchanged for `'a`.
    pub(crate) unsafe fn new(msg: *const acm_msg) -> Self {
        // SAFETY: the caller's promise; bytes have no invalid values.
        Self(unsafe { &*msg.cast() })
    }

    pub(crate) fn header(&self) -> &'a [u8; HEADER] {
        self.0
            .first_chunk()
            .expect("a message is longer than its header")
    }

    /// `src_out`, `src_index`, `dst_index`: the core's, except in a path request, where they are the client's.
    pub(crate) fn source_is_out(&self) -> bool {
        self.0[3] != 0
    }

    pub(crate) fn source_index(&self) -> usize {
        self.0[4].into()
    }

    pub(crate) fn destination_index(&self) -> usize {
        self.0[5].into()
    }

    /// How many entries the sender filled; what lies behind them is garbage.
    pub(crate) fn entries(&self) -> usize {
        let length = usize::from(u16::from_ne_bytes([self.0[6], self.0[7]]));
        (length.min(LENGTH).saturating_sub(HEADER)) / ENTRY
    }

    /// The entry at `index`, filled or not; `None` past the message's end.
    pub(crate) fn entry(&self, index: usize) -> Option<Entry> {
        let at = index.checked_mul(ENTRY)?.checked_add(HEADER)?;
        self.0.get(at..)?.first_chunk().copied().map(Entry)
    }

    /// The entry at `index`, if the sender filled it.
    pub(crate) fn filled_entry(&self, index: usize) -> Option<Entry> {
        if index < self.entries() {
            self.entry(index)
        } else {
            None
        }
    }
}

/// A message of our own, built for the core.
#[repr(C, align(8))]
pub(crate) struct Outgoing([u8; LENGTH]);

impl Outgoing {
    /// A header with the request's version, opcode and tid, acknowledged, with zero data bytes.
    pub(crate) fn answer_to(header: &[u8; HEADER], status: u8) -> Self {
        const ACK: u8 = crate::abi::ACM_OP_ACK;
        let mut bytes = [0; LENGTH];
        bytes[..HEADER].copy_from_slice(header);
        bytes[1] |= ACK;
        bytes[2] = status;
        bytes[3..6].fill(0);
        let mut message = Self(bytes);
        message.set_length(HEADER);
        message
    }

    fn set_length(&mut self, length: usize) {
        self.0[6..8].copy_from_slice(&(length as u16).to_ne_bytes());
    }

    /// Puts the answer's `index`th entry in its place; entries are set in order.
    pub(crate) fn set_entry(&mut self, index: usize, entry: &Entry) {
        let at = HEADER + index * ENTRY;
        self.0[at..at + ENTRY].copy_from_slice(&entry.0);
        self.set_length(at + ENTRY);
    }

    pub(crate) fn as_msg(&mut self) -> *mut acm_msg {
        self.0.as_mut_ptr().cast()
    }
}

const _: () =
    assert!(align_of::<Outgoing>() >= align_of::<acm_msg>() && HEADER + 8 * ENTRY == LENGTH);
