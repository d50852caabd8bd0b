//! A client's messages and the answers to them.

use std::ptr;

use crate::abi::*;
use crate::address::Address;
use crate::path::PathRecord;

/// A client's message, to send to a provider.
#[derive(Clone)]
pub struct Request {
    pub(super) message: acm_msg,
}

impl Request {
    /// A request for the path that `wanted` describes.
    pub fn path(wanted: &PathRecord) -> Self {
        let mut request = Self::empty();
        request.push(AcmEpType::PATH, 0, &wanted.to_bytes());
        request
    }

    /// A request for a path to an address, from the core's own choice of source.
    pub fn destination(destination: &Address) -> Self {
        Self::entries(destination, None)
    }

    /// As above, with a path record of hints, as librdmacm sends it.
    pub fn hinted(destination: &Address, wanted: &PathRecord) -> Self {
        Self::entries(destination, Some(wanted))
    }

    fn entries(destination: &Address, wanted: Option<&PathRecord>) -> Self {
        let mut request = Self::empty();
        request.push(
            AcmEpType(destination.kind()),
            ACM_EP_FLAG_DEST,
            &destination.to_field(),
        );
        if let Some(wanted) = wanted {
            request.push(AcmEpType::PATH, 0, &wanted.to_bytes());
        }
        // The core's chosen source comes after the client's entries.
        let source = Address::Ip(std::net::Ipv4Addr::LOCALHOST);
        request.push(
            AcmEpType(source.kind()),
            ACM_EP_FLAG_SOURCE,
            &source.to_field(),
        );
        request.message.hdr.length -= ACM_MSG_EP_LENGTH as u16;
        request.message.hdr.data = [1, 1 + u8::from(wanted.is_some()), 0];
        request
    }

    /// Sets NODELAY: answer at once.
    pub fn nodelay(mut self) -> Self {
        // SAFETY: resolve messages are made of entries, see `push`.
        unsafe { (*self.entry(0)).flags |= ACM_FLAGS_NODELAY };
        self
    }

    /// Returns the message, for changes without a method of their own.
    pub fn message(&mut self) -> &mut acm_msg {
        &mut self.message
    }

    fn empty() -> Self {
        let mut message = acm_msg::default();
        message.hdr.version = ACM_VERSION;
        message.hdr.opcode = AcmOpcode::RESOLVE;
        message.hdr.length = ACM_MSG_HDR_LENGTH as u16;
        Self { message }
    }

    fn entry(&mut self, index: usize) -> *mut acm_ep_addr_data {
        assert!(index < 8, "a message has eight entries");
        let at = ACM_MSG_HDR_LENGTH + index * ACM_MSG_EP_LENGTH;
        // SAFETY: inside the message, see above.
        unsafe { ptr::from_mut(&mut self.message).cast::<u8>().add(at).cast() }
    }

    fn push(&mut self, kind: AcmEpType, flags: u32, field: &[u8; ACM_MAX_ADDRESS]) {
        let index = (usize::from(self.message.hdr.length) - ACM_MSG_HDR_LENGTH) / ACM_MSG_EP_LENGTH;
        let mut entry = acm_ep_addr_data {
            flags,
            r#type: kind,
            ..Default::default()
        };
        entry.info.addr = *field;
        // SAFETY: the entry lies inside the message.
        unsafe { self.entry(index).write(entry) };
        self.message.hdr.length += ACM_MSG_EP_LENGTH as u16;
    }
}

/// A provider's answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The client.
    pub id: u64,
    /// The transaction id, as the client sent it.
    pub tid: u64,
    /// The opcode, with the acknowledge bit.
    pub opcode: u8,
    /// The status.
    pub status: AcmStatus,
    /// The path, in an answer that has one.
    pub path: Option<PathRecord>,
    /// The answer's length in bytes.
    pub length: u16,
}
