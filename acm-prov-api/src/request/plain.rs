//! Recognizes a plain request in a client's bytes, without building a query.

use super::Entries;
use crate::abi::AcmEpType;
use crate::address::{ADDRESS_LENGTH, Gid, Lid, PKey};
use crate::sa::{Source, Target};

/// A path record on the wire (IBA vol. 1, 15.2.5.16).
type Record = [u8; ADDRESS_LENGTH];

const SERVICE_ID: usize = 0;
const DGID: usize = 8;
const SGID: usize = 24;
const DLID: usize = 40;
const TRAFFIC_CLASS: usize = 48;
const PKEY: usize = 50;
const PACKET_LIFETIME: usize = 56;

/// Bits of SLID and flow label in the word at [`DLID`]; a set bit names the component.
const LIDS_AND_FLOW: u64 = mask([0, 0, 0xff, 0xff, 0x0f, 0xff, 0xff, 0]);
/// Bits of traffic class, SL, and the selectors of MTU and rate in the word at [`TRAFFIC_CLASS`].
const CLASSES: u64 = mask([0xff, 0, 0, 0, 0, 0x0f, 0xc0, 0xc0]);
/// Bits of the QoS class in the same word.
const QOS_CLASS: u64 = mask([0, 0, 0, 0, 0xff, 0xf0, 0, 0]);
/// Bits of the packet lifetime's selector in the word at [`PACKET_LIFETIME`].
const LIFETIME: u64 = mask([0xc0, 0, 0, 0, 0, 0, 0, 0]);

const fn mask(bytes: [u8; 8]) -> u64 {
    u64::from_ne_bytes(bytes)
}

#[inline]
fn bytes<const N: usize>(record: &Record, at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&record[at..at + N]);
    bytes
}

#[inline]
fn word(record: &Record, at: usize) -> u64 {
    u64::from_ne_bytes(bytes(record, at))
}

#[inline]
fn lid(record: &Record, at: usize) -> Lid {
    Lid(u16::from_be_bytes(bytes(record, at)))
}

/// Whether a record names a DGID or DLID.
#[inline]
pub(super) fn has_destination(record: &Record) -> bool {
    word(record, DGID) | word(record, DGID + 8) != 0 || !lid(record, DLID).is_zero()
}

/// Whether service id and QoS class are part of the request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Qos {
    Counts,
    #[cfg(feature = "cache")]
    IsIgnored,
}

/// Whether a record names only a source and P_Key that match the endpoint, and possibly a destination.
#[inline]
fn names_no_more(record: &Record, source: &Source, qos: Qos) -> bool {
    let (classes, service_id) = match qos {
        Qos::Counts => (CLASSES | QOS_CLASS, word(record, SERVICE_ID)),
        #[cfg(feature = "cache")]
        Qos::IsIgnored => (CLASSES, 0),
    };
    let named = service_id
        | word(record, DLID) & LIDS_AND_FLOW
        | word(record, TRAFFIC_CLASS) & classes
        | word(record, PACKET_LIFETIME) & LIFETIME;
    let pkey = PKey(u16::from_be_bytes(bytes(record, PKEY)));
    let sgid = GidWords::at(record, SGID);
    named == 0
        && (!pkey.is_valid() || pkey.same_partition(source.pkey))
        && (sgid.is_zero() || sgid.in_subnet_of(source) == GidWords::of(source.gid))
}

/// A GID as two words in host order, which stay in registers.
#[derive(Clone, Copy, PartialEq, Eq)]
struct GidWords(u64, u64);

impl GidWords {
    #[inline]
    fn at(record: &Record, at: usize) -> Self {
        Self(
            u64::from_be_bytes(bytes(record, at)),
            u64::from_be_bytes(bytes(record, at + 8)),
        )
    }

    #[inline]
    fn of(gid: Gid) -> Self {
        Self(gid.subnet_prefix(), gid.interface_id())
    }

    #[inline]
    fn is_zero(self) -> bool {
        self.0 | self.1 == 0
    }

    #[inline]
    fn is_multicast(self) -> bool {
        self.0 >> 56 == 0xff
    }

    /// See [`Gid::in_subnet`].
    #[inline]
    fn in_subnet_of(self, source: &Source) -> Self {
        match self.0 >> 54 {
            LINK_LOCAL => Self(source.gid.subnet_prefix(), self.1),
            _ => self,
        }
    }
}

/// fe80::/10.
const LINK_LOCAL: u64 = 0xfe80 >> 6;

#[inline]
fn by_gid(gid: GidWords, source: &Source) -> Option<Target> {
    let gid = gid.in_subnet_of(source);
    (!gid.is_zero() && !gid.is_multicast()).then(|| Target::Gid(Gid::new(gid.0, gid.1)))
}

#[inline]
fn by_lid(lid: Lid) -> Option<Target> {
    lid.is_unicast().then_some(Target::Lid(lid))
}

impl Entries<'_> {
    /// See [`ResolveRequest::plain_target`](super::ResolveRequest::plain_target).
    #[inline]
    pub(super) fn plain_target(&self, source: &Source, qos: Qos) -> Option<Target> {
        let info = self.destination.info();
        let kind = self.destination.kind();
        if kind == AcmEpType::PATH {
            let (gid, lid) = (GidWords::at(info, DGID), lid(info, DLID));
            return match names_no_more(info, source, qos) {
                true if lid.is_zero() => by_gid(gid, source),
                true if gid.is_zero() => by_lid(lid),
                _ => None,
            };
        }
        if let Some(hint) = self.hint
            && !names_no_more(hint.info(), source, qos)
        {
            return None;
        }
        match kind {
            AcmEpType::ADDRESS_GID => by_gid(GidWords::at(info, 0), source),
            AcmEpType::ADDRESS_LID => by_lid(lid(info, 0)),
            _ => None,
        }
    }
}

impl Entries<'_> {
    /// As above, but with another destination: see
    /// [`EndpointCache::resolve_to`](crate::cache::engine::EndpointCache::resolve_to).
    #[cfg(feature = "cache")]
    #[inline]
    pub(super) fn plain_target_to(&self, target: Target, source: &Source) -> Option<Target> {
        if let Some(wanted) = self.wanted()
            && !names_no_more(wanted.info(), source, Qos::Counts)
        {
            return None;
        }
        match target {
            Target::Gid(gid) => by_gid(GidWords::of(gid), source),
            Target::Lid(lid) => by_lid(lid),
        }
    }
}

#[cfg(test)]
mod tests;
