//! Requests and answers of a client, in the SDK's types.

use acm_prov_api::Status;
use acm_prov_api::address::Address;
use acm_prov_api::path::PathRecord;

use super::ByHand;
use crate::message::{
    Addr, ENTRY, FLAG_DEST, FLAG_NODELAY, FLAG_SOURCE, Message, PATH, Path, Reply,
};

/// A client's request to a provider.
#[derive(Clone, Debug)]
pub struct Request(Message);

impl Request {
    /// Returns a request for the path that `wanted` describes.
    pub fn path(wanted: &PathRecord) -> Self {
        Self(Message::path(&Path(wanted.to_bytes())))
    }

    /// Returns a request for a path to an address; the core chooses the source.
    pub fn destination(destination: &Address) -> Self {
        Self::entries(destination, None)
    }

    /// Returns the same with a path record of further constraints, as librdmacm sends it.
    pub fn hinted(destination: &Address, wanted: &PathRecord) -> Self {
        Self::entries(destination, Some(wanted))
    }

    fn entries(destination: &Address, wanted: Option<&PathRecord>) -> Self {
        let to = addr(destination);
        let mut message = Message::resolve().with_entry(FLAG_DEST, to.code(), &to.field());
        if let Some(wanted) = wanted {
            message = message.with_entry(0, PATH, &wanted.to_bytes());
        }
        let length = message.length();
        // The core appends the chosen source to the client's entries.
        let source = Addr::Ip(ByHand::SOURCE);
        let mut message = message.with_entry(FLAG_SOURCE, source.code(), &source.field());
        debug_assert_eq!(usize::from(message.length() - length), ENTRY);
        message.set_length(length);
        Self(message.with_data([1, 1 + u8::from(wanted.is_some()), 0]))
    }

    /// Sets NODELAY, for an answer at once.
    pub fn nodelay(self) -> Self {
        let flags = self.0.flags(0) | FLAG_NODELAY;
        Self(self.0.with_flags(0, flags))
    }

    /// Returns the whole message.
    pub fn message(&self) -> &Message {
        &self.0
    }
}

/// Converts an address into the core's type.
pub(super) fn addr(address: &Address) -> Addr {
    match address {
        Address::Name(name) => {
            let field = address.to_field();
            match std::str::from_utf8(name.as_bytes()) {
                Ok(text) => Addr::Name(text.to_owned()),
                Err(_) => Addr::Raw(crate::message::NAME, Box::new(field)),
            }
        }
        Address::Ip(ip) => Addr::Ip(*ip),
        Address::Ip6(ip) => Addr::Ip6(*ip),
        Address::Gid(gid) => Addr::Gid(*gid),
        Address::Lid(lid) => Addr::Lid(lid.0),
    }
}

/// A provider's answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status.
    pub status: Status,
    /// The path, in an answer that has one.
    pub path: Option<PathRecord>,
}

impl Answer {
    pub(super) fn of(reply: &Reply) -> Self {
        Self {
            status: Status(reply.status),
            path: reply.path().map(|path| PathRecord::from_bytes(&path.0)),
        }
    }
}
