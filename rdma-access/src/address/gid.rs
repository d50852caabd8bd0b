//! GIDs.

use std::fmt;
use std::net::{AddrParseError, Ipv6Addr};
use std::str::FromStr;

/// A global identifier (IBA vol. 1, 4.1): 64 bits of subnet prefix and 64 bits of interface id.
///
/// Holds the bytes in wire order; prints and parses like an IPv6 address.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The all-zero GID: "none" in a path record.
    pub const ZERO: Gid = Gid([0; 16]);

    /// Makes a unicast GID of its two halves, in host byte order.
    #[must_use]
    pub const fn new(subnet_prefix: u64, interface_id: u64) -> Gid {
        Gid(((subnet_prefix as u128) << 64 | interface_id as u128).to_be_bytes())
    }

    /// Returns the upper 64 bits, in host byte order.
    #[must_use]
    pub const fn subnet_prefix(self) -> u64 {
        (u128::from_be_bytes(self.0) >> 64) as u64
    }

    /// Returns the lower 64 bits (the port GUID, or an alias of it), in host byte order.
    #[must_use]
    pub const fn interface_id(self) -> u64 {
        u128::from_be_bytes(self.0) as u64
    }

    /// Returns whether this is a multicast GID (first byte 0xff).
    #[must_use]
    pub const fn is_multicast(self) -> bool {
        self.0[0] == 0xff
    }

    /// Returns whether all bytes are zero, which means "no GID".
    #[must_use]
    pub const fn is_zero(self) -> bool {
        u128::from_be_bytes(self.0) == 0
    }

    /// Returns the GID of the same port in the subnet with that prefix: a GID of fe80::/10 gets the prefix, any
    /// other is returned unchanged.
    ///
    /// fe80::/10 is the default, link-local prefix (IBA vol. 1, 4.1.1): every port answers to it, whatever
    /// prefix the subnet manager assigned (`subnet_prefix` in opensm.conf). The SA takes both for the same
    /// port, and returns the assigned prefix.
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

impl From<Ipv6Addr> for Gid {
    fn from(address: Ipv6Addr) -> Gid {
        Gid(address.octets())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
