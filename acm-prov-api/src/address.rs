//! Addresses as a provider meets them: GIDs, LIDs, P_Keys, names, and the typed form of the
//! 64-byte address fields of `acm_msg` and `acm_address`.
//!
//! An address field carries no length of its own: its type says how many of the 64 bytes
//! count, and what follows them is whatever the sender had in memory. Everything here looks
//! at the bytes that count and at nothing else, so two fields that differ only behind their
//! address are the same [`Address`].

use std::fmt::{self, Write as _};
use std::hash::{Hash, Hasher};
use std::net::{AddrParseError, IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use crate::abi::{ACM_MAX_ADDRESS, AcmEpType, ibv_gid};

/// Bytes of an address field (`ACM_MAX_ADDRESS`).
pub const ADDRESS_LENGTH: usize = ACM_MAX_ADDRESS;

/// A global identifier (IBA vol. 1, 4.1): 64 bits of subnet prefix, 64 of interface id.
///
/// Held in network order, byte for byte as on the wire; shown and parsed like an IPv6 address.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The GID of zeros: "none" in a path record.
    pub const ZERO: Gid = Gid([0; 16]);

    /// A unicast GID from its two halves, host order.
    #[must_use]
    pub const fn new(subnet_prefix: u64, interface_id: u64) -> Gid {
        Gid(((subnet_prefix as u128) << 64 | interface_id as u128).to_be_bytes())
    }

    /// The upper 64 bits, host order.
    #[must_use]
    pub const fn subnet_prefix(self) -> u64 {
        (u128::from_be_bytes(self.0) >> 64) as u64
    }

    /// The lower 64 bits (the port GUID, or an alias of it), host order.
    #[must_use]
    pub const fn interface_id(self) -> u64 {
        u128::from_be_bytes(self.0) as u64
    }

    /// Whether this names a multicast group (first byte 0xff).
    #[must_use]
    pub const fn is_multicast(self) -> bool {
        self.0[0] == 0xff
    }

    /// Whether all bytes are zero, which stands for "no GID".
    #[must_use]
    pub const fn is_zero(self) -> bool {
        u128::from_be_bytes(self.0) == 0
    }

    /// Returns the GID by which this port is known in the subnet with that prefix: a GID of fe80::/10 gets the prefix, any
    /// other is returned as it is.
    ///
    /// fe80::/10 is the default, link-local prefix (IBA vol. 1, 4.1.1): every port answers to it, whatever prefix the
    /// subnet manager assigned (`subnet_prefix` in opensm.conf). The SA treats both as the same port, and returns the
    /// assigned prefix.
    #[must_use]
    pub const fn in_subnet(self, subnet_prefix: u64) -> Gid {
        if self.0[0] == 0xfe && self.0[1] & 0xc0 == 0x80 {
            Gid::new(subnet_prefix, self.interface_id())
        } else {
            self
        }
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv6Addr::from(self.0).fmt(f)
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Gid {
    type Err = AddrParseError;

    fn from_str(text: &str) -> Result<Gid, AddrParseError> {
        text.parse::<Ipv6Addr>().map(Gid::from)
    }
}

impl From<ibv_gid> for Gid {
    fn from(gid: ibv_gid) -> Gid {
        Gid(gid.bytes())
    }
}

impl From<Gid> for ibv_gid {
    fn from(gid: Gid) -> ibv_gid {
        ibv_gid::from_bytes(gid.0)
    }
}

impl From<Ipv6Addr> for Gid {
    fn from(address: Ipv6Addr) -> Gid {
        Gid(address.octets())
    }
}

/// A local identifier (IBA vol. 1, 4.1.3), host order; shown in decimal.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Lid(pub u16);

impl Lid {
    /// Reserved by the architecture: "none" in a path record.
    pub const ZERO: Lid = Lid(0);

    /// Whether this can be a port's LID: 0x0001 to 0xBFFF.
    #[must_use]
    pub const fn is_unicast(self) -> bool {
        matches!(self.0, 0x0001..=0xbfff)
    }

    /// Whether this is a multicast group's LID: 0xC000 to 0xFFFE.
    #[must_use]
    pub const fn is_multicast(self) -> bool {
        matches!(self.0, 0xc000..=0xfffe)
    }

    /// Whether this is 0, which stands for "no LID".
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for Lid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for Lid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A partition key (IBA vol. 1, 10.9.1), host order; shown as `0x7fff`.
///
/// The top bit says whether its holder is a full member, the rest names the partition.
/// Equality is that of all 16 bits; [`same_partition`](PKey::same_partition) is usually meant.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct PKey(pub u16);

impl PKey {
    /// The bit of a full member.
    pub const FULL_MEMBER: u16 = 0x8000;

    /// The partition without the membership bit: 0x0000 to 0x7FFF.
    #[must_use]
    pub const fn partition(self) -> u16 {
        self.0 & !PKey::FULL_MEMBER
    }

    /// Whether the holder is a full member.
    #[must_use]
    pub const fn is_full_member(self) -> bool {
        self.0 & PKey::FULL_MEMBER != 0
    }

    /// Whether this names a partition at all: 0x0000 and 0x8000 mark empty table entries.
    #[must_use]
    pub const fn is_valid(self) -> bool {
        self.partition() != 0
    }

    /// Whether both name one partition, whatever their membership.
    #[must_use]
    pub const fn same_partition(self, other: PKey) -> bool {
        self.partition() == other.partition()
    }
}

impl fmt::Display for PKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x}", self.0)
    }
}

impl fmt::Debug for PKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A host name of at most 64 bytes, none of them NUL.
///
/// Compared and hashed without ASCII case. The bytes need not be UTF-8: they come from
/// clients and files. Shown with control characters and stray bytes escaped, so a name is
/// safe in a log line.
#[derive(Clone, Copy)]
pub struct Name {
    bytes: [u8; ADDRESS_LENGTH],
    length: u8,
}

impl Name {
    /// A name from text.
    ///
    /// # Errors
    /// Longer than 64 bytes, or a NUL inside.
    pub fn new(text: impl AsRef<[u8]>) -> Result<Name, AddressError> {
        let text = text.as_ref();
        if text.len() > ADDRESS_LENGTH {
            return Err(AddressError::NameTooLong { length: text.len() });
        }
        if let Some(at) = text.iter().position(|&byte| byte == 0) {
            return Err(AddressError::NameWithNul { at });
        }
        let mut bytes = [0; ADDRESS_LENGTH];
        bytes[..text.len()].copy_from_slice(text);
        Ok(Name {
            bytes,
            length: text.len() as u8,
        })
    }

    /// The name in an address field: up to the first NUL, or all 64 bytes.
    #[must_use]
    pub fn from_field(field: &[u8; ADDRESS_LENGTH]) -> Name {
        let length = field.iter().position(|&byte| byte == 0);
        let length = length.unwrap_or(ADDRESS_LENGTH);
        let mut bytes = [0; ADDRESS_LENGTH];
        bytes[..length].copy_from_slice(&field[..length]);
        Name {
            bytes,
            length: length as u8,
        }
    }

    /// The bytes of the name, as written.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// All bytes, in lower case: what is behind the name is zero. Each request by name is hashed and compared, so nothing is
    /// allocated, and a compiler makes use of the fixed length.
    #[inline]
    fn lower(&self) -> [u8; ADDRESS_LENGTH] {
        let mut lower = self.bytes;
        lower.make_ascii_lowercase();
        lower
    }

    /// Whether the name has no bytes; no host has such a name.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Name) -> bool {
        // Ends at the first byte that differs: who has hundreds of names looks through them.
        self.as_bytes().eq_ignore_ascii_case(other.as_bytes())
    }
}

impl Eq for Name {}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(&self.lower());
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.as_bytes().utf8_chunks() {
            for char in chunk.valid().chars() {
                match char {
                    '"' | '\'' => f.write_char(char)?,
                    _ => write!(f, "{}", char.escape_debug())?,
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// Why bytes or text are no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// A type code that stands for no address (a path record's 0x10 among them).
    #[error("address type {0:#06x} is none of name 1, IPv4 2, IPv6 3, GID 4, LID 5")]
    UnknownType(u16),
    /// A name that does not fit.
    #[error("a name of {length} bytes: at most {ADDRESS_LENGTH} fit an address field")]
    NameTooLong {
        /// Bytes of the name.
        length: usize,
    },
    /// A name that would be cut at its NUL.
    #[error("a name with a NUL at byte {at}")]
    NameWithNul {
        /// Offset of the first NUL.
        at: usize,
    },
    /// Text that has the form of an IP address and is not a valid one.
    #[error(
        "not a valid IPv4 or IPv6 address; write it in full, without prefix length or port \
         (a host name has a letter, '-' or '_', and no ':')"
    )]
    NotAnIp,
}

/// An address of any type, equal to another when the bytes that count are.
///
/// An IPv4-mapped IPv6 address (`::ffff:10.0.0.1`, as programs with dual-stack sockets use them) is the IPv4 address
/// inside it, wherever an address is read: [`Address::parse`], [`Address::from_host_text`], and [`Address::from`] an IPv6
/// address. So it is found under either form, and other nodes are asked for the IPv4 address, which is what they own.
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
    /// Whether fields of this type can be [parsed](Self::parse).
    #[inline]
    pub(crate) const fn is_known(kind: AcmEpType) -> bool {
        matches!(
            kind,
            AcmEpType::NAME
                | AcmEpType::ADDRESS_IP
                | AcmEpType::ADDRESS_IP6
                | AcmEpType::ADDRESS_GID
                | AcmEpType::ADDRESS_LID
        )
    }

    /// Reads an address field of type `kind` (an [`AcmEpType`]). How many of its bytes count:
    /// name up to a NUL or 64, IPv4 4, IPv6 and GID 16, LID 2 (big-endian). An IPv4-mapped IPv6 address is returned as
    /// IPv4.
    ///
    /// # Errors
    /// [`AddressError::UnknownType`] for any other type.
    pub fn parse(kind: u16, field: &[u8; ADDRESS_LENGTH]) -> Result<Address, AddressError> {
        let first_16 = || *field.first_chunk::<16>().expect("64 bytes hold 16");
        Ok(match AcmEpType(kind) {
            AcmEpType::NAME => Address::Name(Name::from_field(field)),
            AcmEpType::ADDRESS_IP => {
                Address::Ip(Ipv4Addr::new(field[0], field[1], field[2], field[3]))
            }
            AcmEpType::ADDRESS_IP6 => Address::from(Ipv6Addr::from(first_16())),
            AcmEpType::ADDRESS_GID => Address::Gid(Gid(first_16())),
            AcmEpType::ADDRESS_LID => Address::Lid(Lid(u16::from_be_bytes([field[0], field[1]]))),
            AcmEpType(other) => return Err(AddressError::UnknownType(other)),
        })
    }

    /// The address field, padded with zeros.
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

    /// One of 64 bits, the same for addresses that are equal: a set of addresses without it has no such address.
    pub(crate) fn mark(&self) -> u64 {
        let sum = |bytes: &[u8]| {
            bytes
                .iter()
                .fold(0, |sum: u8, byte| sum.wrapping_add(*byte))
        };
        let sum = match self {
            Address::Name(name) => sum(&name.lower()),
            Address::Ip(ip) => sum(&ip.octets()),
            Address::Ip6(ip) => sum(&ip.octets()),
            Address::Gid(gid) => sum(&gid.0),
            Address::Lid(lid) => sum(&lid.0.to_be_bytes()),
        };
        1 << (sum % 64)
    }

    /// The type that belongs to the field.
    #[must_use]
    pub const fn kind(&self) -> u16 {
        match self {
            Address::Name(_) => AcmEpType::NAME,
            Address::Ip(_) => AcmEpType::ADDRESS_IP,
            Address::Ip6(_) => AcmEpType::ADDRESS_IP6,
            Address::Gid(_) => AcmEpType::ADDRESS_GID,
            Address::Lid(_) => AcmEpType::ADDRESS_LID,
        }
        .0
    }

    /// Reads an address as a hosts file writes it: an IPv4 or IPv6 address, or else a name.
    ///
    /// Text with a ':', or without any letter, '-' or '_', is an IP address: a mistyped one, such as `10.0.0.9/24`, is an
    /// error, not a name that nobody asks for. A scope (`%ib0`) is dropped, since requests carry none.
    ///
    /// # Errors
    /// [`AddressError::NotAnIp`], or a name that is too long or holds a NUL.
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
    fn names_compare_without_ascii_case() {
        let names = ["Node-1", "NODE-1", "node-1"].map(|text| Name::new(text).unwrap());
        assert_eq!(HashSet::from(names).len(), 1);
        assert_ne!(Name::new("node-1").unwrap(), Name::new("node-10").unwrap());
        assert_eq!(names[0].to_string(), "Node-1");
    }

    #[test]
    fn a_name_may_fill_its_field() {
        let full = Name::from_field(&[b'n'; ADDRESS_LENGTH]);
        assert_eq!(full.as_bytes().len(), ADDRESS_LENGTH);
        assert_eq!(full, Name::new([b'N'; ADDRESS_LENGTH]).unwrap());
        let error = Name::new([b'n'; ADDRESS_LENGTH + 1]).unwrap_err();
        assert_eq!(error, AddressError::NameTooLong { length: 65 });
        let error = Name::new("a\0b").unwrap_err();
        assert_eq!(error, AddressError::NameWithNul { at: 1 });
        assert!(Name::from_field(&[0; ADDRESS_LENGTH]).is_empty());
    }

    #[test]
    fn a_shown_name_is_one_harmless_line() {
        let shown = |bytes: &[u8]| Name::new(bytes).unwrap().to_string();
        assert_eq!(shown(b"a\nb\x1b[0m"), "a\\nb\\u{1b}[0m");
        assert_eq!(shown(b"\xff\xc3(x"), "\\xff\\xc3(x");
        assert_eq!(shown("käse\u{2028}".as_bytes()), "käse\\u{2028}");
        assert_eq!(shown(b"back\\slash's"), "back\\\\slash's");
        assert_eq!(shown(b"plain-1.example"), "plain-1.example");
    }

    #[test]
    fn gids_read_and_show_like_ipv6() {
        let gid: Gid = "fe80::10:0:0:2".parse().unwrap();
        assert_eq!(gid.subnet_prefix(), 0xfe80_0000_0000_0000);
        assert_eq!(gid.interface_id(), 0x0010_0000_0000_0002);
        assert_eq!(gid, Gid::new(gid.subnet_prefix(), gid.interface_id()));
        assert_eq!(gid.to_string(), "fe80::10:0:0:2");
        assert!(!gid.is_multicast() && !gid.is_zero() && Gid::ZERO.is_zero());
        assert!("ff12:401b::1".parse::<Gid>().unwrap().is_multicast());
    }

    #[test]
    fn lid_ranges() {
        for (lid, unicast, multicast) in [
            (0, false, false),
            (1, true, false),
            (0xbfff, true, false),
            (0xc000, false, true),
            (0xfffe, false, true),
            (0xffff, false, false),
        ] {
            assert_eq!(Lid(lid).is_unicast(), unicast, "{lid:#x}");
            assert_eq!(Lid(lid).is_multicast(), multicast, "{lid:#x}");
        }
    }

    #[test]
    fn one_partition_for_full_and_limited_members() {
        assert!(PKey(0xffff).same_partition(PKey(0x7fff)));
        assert!(!PKey(0xffff).same_partition(PKey(0x8001)));
        assert!(PKey(0xffff).is_full_member() && !PKey(0x7fff).is_full_member());
        assert!(!PKey(0).is_valid() && !PKey(0x8000).is_valid() && PKey(1).is_valid());
        assert_eq!(PKey(0x7fff).to_string(), "0x7fff");
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

    #[test]
    fn a_link_local_gid_gets_the_prefix_of_its_subnet() {
        const PREFIX: u64 = 0xfec0_0000_0000_0001;
        let moved = |gid: &str| gid.parse::<Gid>().unwrap().in_subnet(PREFIX).to_string();
        for (gid, expected) in [
            ("fe80::10:1", "fec0::1:0:0:10:1"),
            ("fe80:0:0:5::10:1", "fec0::1:0:0:10:1"),
            ("febf:ffff:ffff:ffff::10:1", "fec0::1:0:0:10:1"),
            ("fe7f:ffff:ffff:ffff::10:1", "fe7f:ffff:ffff:ffff::10:1"),
            ("fec0::10:1", "fec0::10:1"),
            ("ff80::1", "ff80::1"),
            ("2001:db8::1", "2001:db8::1"),
            ("::", "::"),
        ] {
            assert_eq!(moved(gid), expected, "{gid}");
        }
        let gid: Gid = "fe80::1".parse().unwrap();
        assert_eq!(gid.in_subnet(0xfe80 << 48), gid);
    }
}
