//! The identifiers of the InfiniBand Architecture, and the addresses by which ibacm's clients name hosts: a name, an IPv4
//! or IPv6 address, a GID or a LID.
//!
//! All are printed and parsed here: LIDs in decimal, GIDs like IPv6 addresses, GUIDs and keys in hexadecimal
//! with all digits. Numbers are in host byte order; a [`Gid`] holds its bytes in wire order.
//!
//! An [`Address`] is the typed form of a 64-byte address field of ibacm's messages. The field has no length:
//! its type says how many of the 64 bytes count, and the rest is whatever the sender had in memory. Two fields
//! that differ only in the rest are the same [`Address`].

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

mod gid;
mod name;
mod number;

pub use gid::Gid;
pub use name::Name;
pub use number::{Guid, Lid, PKey, QKey, Qpn};

/// Length of an address field in bytes (`ACM_MAX_ADDRESS` of `<infiniband/acm.h>`).
pub const ADDRESS_LENGTH: usize = 64;

/// Types of address fields (`ACM_EP_INFO_*`; GID and LID as ibacm's core accepts them from clients).
mod kind {
    pub const NAME: u16 = 1;
    pub const IP: u16 = 2;
    pub const IP6: u16 = 3;
    pub const GID: u16 = 4;
    pub const LID: u16 = 5;
}

/// Error from parsing an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// The type code is not an address type (0x10, a path record, for example).
    #[error(
        "unknown address type {0:#06x}; known are 1 (name), 2 (IPv4), 3 (IPv6), 4 (GID) and 5 (LID)"
    )]
    UnknownType(u16),
    /// The name is too long.
    #[error("a name of {length} bytes: at most {ADDRESS_LENGTH} fit an address field")]
    NameTooLong {
        /// Length of the name in bytes.
        length: usize,
    },
    /// The name contains a NUL, which would cut it.
    #[error("a name with a NUL at byte {at}")]
    NameWithNul {
        /// Offset of the first NUL.
        at: usize,
    },
    /// The text looks like an IP address but is not a valid one.
    #[error(
        "not a valid IPv4 or IPv6 address; write it in full, without prefix length or port \
         (a host name has a letter, '-' or '_', and no ':')"
    )]
    NotAnIp,
}

/// An address of any type. Two addresses are equal if the bytes that count are equal.
///
/// An IPv4-mapped IPv6 address (`::ffff:10.0.0.1`, as programs with dual-stack sockets write it) becomes the
/// IPv4 address inside it. [`Address::parse`], [`Address::from_host_text`] and the `From` conversions all do
/// this, so a look-up finds the host under either form, and requests to other nodes name the IPv4 address,
/// which is the one they own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A host name.
    Name(Name),
    /// An IPv4 address.
    Ip(Ipv4Addr),
    /// An IPv6 address.
    Ip6(Ipv6Addr),
    /// A GID.
    Gid(Gid),
    /// A LID.
    Lid(Lid),
}

impl Address {
    /// Returns whether [`parse`](Self::parse) accepts fields of type `kind`.
    #[inline]
    #[must_use]
    pub const fn is_known(kind: u16) -> bool {
        matches!(kind, kind::NAME..=kind::LID)
    }

    /// Parses an address field of type `kind`. The type says how many bytes count: 1 name, up to a NUL or all
    /// 64; 2 IPv4, 4; 3 IPv6, 16; 4 GID, 16; 5 LID, 2 (big-endian). An IPv4-mapped IPv6 address becomes IPv4.
    ///
    /// # Errors
    /// [`AddressError::UnknownType`] for any other type.
    #[inline]
    pub fn parse(kind: u16, field: &[u8; ADDRESS_LENGTH]) -> Result<Address, AddressError> {
        let first_16 = || *field.first_chunk::<16>().expect("64 bytes hold 16");
        Ok(match kind {
            kind::NAME => Address::Name(Name::from_field(field)),
            kind::IP => Address::Ip(Ipv4Addr::new(field[0], field[1], field[2], field[3])),
            kind::IP6 => Address::from(Ipv6Addr::from(first_16())),
            kind::GID => Address::Gid(Gid(first_16())),
            kind::LID => Address::Lid(Lid(u16::from_be_bytes([field[0], field[1]]))),
            other => return Err(AddressError::UnknownType(other)),
        })
    }

    /// Returns the address field, padded with zeros.
    #[inline]
    #[must_use]
    pub fn to_field(&self) -> [u8; ADDRESS_LENGTH] {
        let mut field = [0; ADDRESS_LENGTH];
        match self {
            Address::Name(name) => field = name.bytes,
            Address::Ip(ip) => field[..4].copy_from_slice(&ip.octets()),
            Address::Ip6(ip) => field[..16].copy_from_slice(&ip.octets()),
            Address::Gid(gid) => field[..16].copy_from_slice(&gid.0),
            Address::Lid(lid) => field[..2].copy_from_slice(&lid.0.to_be_bytes()),
        }
        field
    }

    /// Returns the type of the field, as in [`parse`](Self::parse).
    #[inline]
    #[must_use]
    pub const fn kind(&self) -> u16 {
        match self {
            Address::Name(_) => kind::NAME,
            Address::Ip(_) => kind::IP,
            Address::Ip6(_) => kind::IP6,
            Address::Gid(_) => kind::GID,
            Address::Lid(_) => kind::LID,
        }
    }

    /// Parses an address as a hosts file writes it: an IPv4 or IPv6 address, or else a name.
    ///
    /// Text with a ':', or without any letter, '-' or '_', must be an IP address: a mistyped one, such as
    /// `10.0.0.9/24`, is an error, because no client would ask for it as a name. A scope (`%ib0`) is dropped,
    /// because requests carry none.
    ///
    /// # Errors
    /// [`AddressError::NotAnIp`], [`AddressError::NameTooLong`] or [`AddressError::NameWithNul`].
    pub fn from_host_text(text: &[u8]) -> Result<Address, AddressError> {
        let of_a_name = |byte: &u8| {
            byte.is_ascii_alphabetic() || matches!(byte, b'-' | b'_') || !byte.is_ascii()
        };
        let scope = text.iter().position(|byte| *byte == b'%');
        let unscoped = &text[..scope.unwrap_or(text.len())];
        if !text.contains(&b':') && unscoped.iter().any(of_a_name) {
            return Name::new(text).map(Address::Name);
        }
        str::from_utf8(unscoped)
            .ok()
            .and_then(|ip| ip.parse::<IpAddr>().ok())
            .map(Address::from)
            .ok_or(AddressError::NotAnIp)
    }
}

impl From<Ipv4Addr> for Address {
    fn from(ip: Ipv4Addr) -> Address {
        Address::Ip(ip)
    }
}

/// An IPv4-mapped address becomes the IPv4 address.
impl From<Ipv6Addr> for Address {
    fn from(ip: Ipv6Addr) -> Address {
        ip.to_ipv4_mapped().map_or(Address::Ip6(ip), Address::Ip)
    }
}

/// An IPv4-mapped address becomes the IPv4 address.
impl From<IpAddr> for Address {
    fn from(ip: IpAddr) -> Address {
        match ip {
            IpAddr::V4(ip) => ip.into(),
            IpAddr::V6(ip) => ip.into(),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Name(name) => name.fmt(f),
            Address::Ip(ip) => ip.fmt(f),
            Address::Ip6(ip) => ip.fmt(f),
            Address::Gid(gid) => gid.fmt(f),
            Address::Lid(lid) => write!(f, "LID {lid}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn field(head: &[u8], padding: u8) -> [u8; ADDRESS_LENGTH] {
        let mut field = [padding; ADDRESS_LENGTH];
        field[..head.len()].copy_from_slice(head);
        field
    }

    #[test]
    fn bytes_behind_an_address_do_not_count() {
        let gid = Gid::new(0xfe80_0000_0000_0000, 0x0010_0000_0000_0002);
        let cases: [(u16, &[u8], Address); 5] = [
            (1, b"node1\0", Address::Name(Name::new("node1").unwrap())),
            (2, &[10, 0, 0, 1], Address::Ip(Ipv4Addr::new(10, 0, 0, 1))),
            (3, &gid.0, Address::Ip6(Ipv6Addr::from(gid.0))),
            (4, &gid.0, Address::Gid(gid)),
            (5, &[0x12, 0x34], Address::Lid(Lid(0x1234))),
        ];
        for (kind, head, expected) in cases {
            let clean = Address::parse(kind, &field(head, 0)).unwrap();
            let dirty = Address::parse(kind, &field(head, 0xa5)).unwrap();
            assert_eq!(clean, expected);
            assert_eq!(dirty, expected);
            assert_eq!(HashSet::from([clean, dirty]).len(), 1);
            assert_eq!(dirty.kind(), kind);
            assert_eq!(dirty.to_field(), field(head, 0));
        }
    }

    #[test]
    fn the_last_byte_that_counts_does_count() {
        for (kind, length) in [(2, 4), (3, 16), (4, 16), (5, 2), (1, 64)] {
            let address = |last| {
                let mut bytes = [b'x'; ADDRESS_LENGTH];
                bytes[length - 1] = last;
                Address::parse(kind, &bytes).unwrap()
            };
            assert_ne!(address(b'x'), address(b'y'), "type {kind}");
        }
    }

    #[test]
    fn an_unknown_type_is_an_error_with_its_code() {
        for kind in [0, 6, 0x10, 0x104, u16::MAX] {
            let error = Address::parse(kind, &[0; ADDRESS_LENGTH]).unwrap_err();
            assert_eq!(error, AddressError::UnknownType(kind));
        }
    }

    #[test]
    fn words_of_a_hosts_file() {
        let name = |text: &str| Address::Name(Name::new(text).unwrap());
        let ip = Address::Ip(Ipv4Addr::new(10, 0, 0, 1));
        let ip6 = |text: &str| Address::Ip6(text.parse().unwrap());
        for (text, expected) in [
            ("10.0.0.1", Some(ip)),
            ("::ffff:10.0.0.1", Some(ip)),
            ("::FFFF:0a00:0001", Some(ip)),
            ("fe80::1", Some(ip6("fe80::1"))),
            ("fe80::202:c903:10:7%ib0", Some(ip6("fe80::202:c903:10:7"))),
            ("fe80::1%3", Some(ip6("fe80::1"))),
            ("FE80:0:0:0:0:0:0:1", Some(ip6("fe80::1"))),
            ("10.0.0.1%ib0", Some(ip)),
            ("::10.0.0.1", Some(ip6("::10.0.0.1"))),
            // Without a letter, '-' or '_', or with a ':'.
            ("10.0.0", None),
            ("10.0.0.256", None),
            ("10.0.0.9/24", None),
            ("10.0.0.1.", None),
            ("010.0.0.1", None),
            ("10..0.1", None),
            ("42", None),
            (".", None),
            ("", None),
            ("10.0.0.1,", None),
            ("\"10.0.0.1\"", None),
            ("(10.0.0.1)", None),
            ("node%1:2", None),
            ("/", None),
            ("fe80::1/64", None),
            ("fe80::1::2", None),
            ("fe80:2", None),
            ("[fe80::1]", None),
            ("10.0.0.1:4791", None),
            ("node1:2", None),
            ("%ib0:", None),
            ("00:02:c9:03:00:10", None),
            // With a letter, '-' or '_', and no ':'.
            ("node1", Some(name("node1"))),
            ("1a", Some(name("1a"))),
            ("10-0-0-1", Some(name("10-0-0-1"))),
            ("1_2", Some(name("1_2"))),
            ("\u{fc}", Some(name("\u{fc}"))),
            ("10.0.0.1-ib0", Some(name("10.0.0.1-ib0"))),
            ("node/1", Some(name("node/1"))),
            ("node%1", Some(name("node%1"))),
        ] {
            let read = Address::from_host_text(text.as_bytes());
            assert_eq!(read, expected.ok_or(AddressError::NotAnIp), "{text}");
        }
        assert!(Address::from_host_text(b":\xff").is_err());
        let text = AddressError::NotAnIp.to_string();
        assert!(
            text.starts_with("not a valid IPv4 or IPv6 address; "),
            "{text}"
        );
    }

    #[test]
    fn an_ipv4_mapped_address_is_the_ipv4_address() {
        let mapped = Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped();
        let ip = Address::Ip(Ipv4Addr::new(10, 0, 0, 1));
        assert_eq!(Address::from(mapped), ip);
        assert_eq!(Address::from(IpAddr::V6(mapped)), ip);
        let read = Address::parse(3, &field(&mapped.octets(), 0xa5)).unwrap();
        assert_eq!((read, read.kind()), (ip, 2));
        assert_eq!(read.to_field(), field(&[10, 0, 0, 1], 0));
        // IPv4-compatible and NAT64 addresses stay IPv6 addresses, and a GID stays a GID.
        for other in ["::10.0.0.1", "64:ff9b::10.0.0.1", "::fffe:10.0.0.1"] {
            let other: Ipv6Addr = other.parse().unwrap();
            assert_eq!(Address::from(other), Address::Ip6(other));
        }
        let gid = Gid::from(mapped);
        let read = Address::parse(4, &field(&gid.0, 0)).unwrap();
        assert_eq!(read, Address::Gid(gid));
    }
}
