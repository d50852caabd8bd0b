//! The request in a resolve message, read from its entries without a copy.

use crate::abi::{AcmEpType, AcmStatus};
use crate::address::{Address, AddressError};
use crate::request::message::{Entry, Message};
use crate::sa::{Component, PathQuery};

use super::plain;

/// The entries of a request.
#[derive(Clone, Copy)]
pub(super) struct Entries<'a> {
    /// A path record, or an address of a known type.
    pub(super) destination: Entry<'a>,
    /// The source that the core chose, if the answer is to name it.
    pub(super) source: Option<Entry<'a>>,
    /// A path record beside an address.
    pub(super) hint: Option<Entry<'a>>,
}

/// The reason why a message is invalid.
pub(super) enum Invalid {
    NoEntry,
    NoDestination,
    DestinationIndex,
    DestinationType,
    SourceIndex,
}

impl Invalid {
    pub(super) fn status(&self) -> AcmStatus {
        match self {
            Self::NoEntry | Self::DestinationIndex | Self::SourceIndex => AcmStatus::EINVAL,
            Self::NoDestination => AcmStatus::EDESTADDR,
            Self::DestinationType => AcmStatus::EDESTTYPE,
        }
    }

    pub(super) fn reason(&self, message: Message<'_>) -> String {
        let entries = message.entries();
        match self {
            Self::NoEntry => "the message has no entry".to_owned(),
            Self::NoDestination => "a path request names neither DLID nor DGID".to_owned(),
            Self::DestinationIndex => {
                let index = message.destination_index();
                format!("destination index {index} of {entries} entries")
            }
            Self::DestinationType => {
                let entry = message.entry(message.destination_index());
                let kind = entry.map_or(0, |entry| entry.kind().0);
                AddressError::UnknownType(kind).to_string()
            }
            Self::SourceIndex => {
                let index = message.source_index();
                format!("source index {index} of {entries} entries")
            }
        }
    }
}

impl<'a> Entries<'a> {
    #[inline]
    pub(super) fn read(message: Message<'a>) -> Result<Self, Invalid> {
        let first = message.filled_entry(0).ok_or(Invalid::NoEntry)?;
        if first.kind() == AcmEpType::PATH {
            // In a path request the header's data bytes are the client's own; ignore them.
            if !plain::has_destination(first.info()) {
                return Err(Invalid::NoDestination);
            }
            return Ok(Self {
                destination: first,
                source: None,
                hint: None,
            });
        }
        Self::read_address(message)
    }

    fn read_address(message: Message<'a>) -> Result<Self, Invalid> {
        let index = message.destination_index();
        let destination = message
            .filled_entry(index)
            .ok_or(Invalid::DestinationIndex)?;
        if !Address::is_known(destination.kind().0) {
            return Err(Invalid::DestinationType);
        }
        let source_index = message.source_index();
        let source = if message.source_is_out() {
            // The core writes its chosen source right after the client's entries; after eight it would be the ninth.
            let is_there = source_index <= message.entries();
            let source = message.entry(source_index).filter(|_| is_there);
            Some(source.ok_or(Invalid::SourceIndex)?)
        } else {
            None
        };
        let hint = (0..message.entries())
            .filter(|&other| other != index && other != source_index)
            .filter_map(|other| message.filled_entry(other))
            .find(|entry| entry.kind() == AcmEpType::PATH);
        Ok(Self {
            destination,
            source,
            hint,
        })
    }

    pub(super) fn is_path(&self) -> bool {
        self.destination.kind() == AcmEpType::PATH
    }

    pub(super) fn wanted(&self) -> Option<Entry<'a>> {
        if self.is_path() {
            Some(self.destination)
        } else {
            self.hint
        }
    }

    pub(super) fn destination(&self) -> Address {
        if self.is_path() {
            let wanted = self.destination.path_record();
            return match wanted.dgid() {
                none if none.is_zero() => Address::Lid(wanted.dlid()),
                gid => Address::Gid(gid),
            };
        }
        Address::parse(self.destination.kind().0, self.destination.info())
            .expect("`read` has checked the type")
    }

    pub(super) fn path_query(&self) -> PathQuery {
        let wanted = self.wanted().map(Entry::path_record);
        let mut query = PathQuery::from_client(&wanted.unwrap_or_default());
        if !self.is_path() {
            query
                .leave_open(Component::Dgid)
                .leave_open(Component::Dlid);
            match self.destination() {
                Address::Gid(gid) => query.set_dgid(gid),
                Address::Lid(lid) => query.set_dlid(lid),
                Address::Name(_) | Address::Ip(_) | Address::Ip6(_) => &mut query,
            };
        }
        query
    }
}
