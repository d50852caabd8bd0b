//! Numeric identifiers, in host byte order.

use std::fmt;

/// Defines a number that prints in hexadecimal, with all its digits.
macro_rules! hexadecimal {
    ($(#[$doc:meta])* $name:ident($number:ty) shown as $format:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(pub $number);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $format, self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

hexadecimal! {
    /// A GUID of a node, port or system (EUI-64; IBA vol. 1, 4.1); prints as `0x0002c90300a1b2c3`.
    Guid(u64) shown as "0x{:016x}"
}

hexadecimal! {
    /// A partition key (IBA vol. 1, 10.9.1); prints as `0x7fff`.
    ///
    /// The top bit says whether its holder is a full member, the rest identifies the partition. `==` compares
    /// all 16 bits; usually you need [`same_partition`](PKey::same_partition).
    PKey(u16) shown as "0x{:04x}"
}

hexadecimal! {
    /// A Q_Key (IBA vol. 1, 10.2.5); prints as `0x80010000`.
    QKey(u32) shown as "0x{:08x}"
}

hexadecimal! {
    /// A queue pair number of 24 bits; prints as `0x000001`.
    Qpn(u32) shown as "0x{:06x}"
}

impl Qpn {
    /// The destination queue pair of a multicast datagram.
    pub const MULTICAST: Qpn = Qpn(0x00ff_ffff);
}

impl PKey {
    /// The membership bit: set for a full member.
    pub const FULL_MEMBER: u16 = 0x8000;

    /// Returns the partition without the membership bit: 0x0000 to 0x7FFF.
    #[must_use]
    pub const fn partition(self) -> u16 {
        self.0 & !PKey::FULL_MEMBER
    }

    /// Returns whether the holder is a full member.
    #[must_use]
    pub const fn is_full_member(self) -> bool {
        self.0 & PKey::FULL_MEMBER != 0
    }

    /// Returns whether this identifies a partition: 0x0000 and 0x8000 mark empty table entries.
    #[must_use]
    pub const fn is_valid(self) -> bool {
        self.partition() != 0
    }

    /// Returns whether both name the same partition, whatever their membership.
    #[must_use]
    pub const fn same_partition(self, other: PKey) -> bool {
        self.partition() == other.partition()
    }
}

/// A local identifier (IBA vol. 1, 4.1.3) in host byte order; prints in decimal.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Lid(pub u16);

impl Lid {
    /// Reserved by the architecture: "none" in a path record.
    pub const ZERO: Lid = Lid(0);

    /// Returns whether this is a valid unicast LID: 0x0001 to 0xBFFF.
    #[must_use]
    pub const fn is_unicast(self) -> bool {
        matches!(self.0, 0x0001..=0xbfff)
    }

    /// Returns whether this is a multicast LID: 0xC000 to 0xFFFE.
    #[must_use]
    pub const fn is_multicast(self) -> bool {
        matches!(self.0, 0xc000..=0xfffe)
    }

    /// Returns whether this is 0, which means "no LID".
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

#[cfg(test)]
mod tests {
    use super::*;

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
    fn lids_are_shown_in_decimal_and_the_rest_in_hex_with_all_digits() {
        assert_eq!(Lid(0x1234).to_string(), "4660");
        assert_eq!(format!("{:>6}", Lid(7)), "     7");
        assert_eq!(Guid(0x2_c903_00a1_b2c3).to_string(), "0x0002c90300a1b2c3");
        assert_eq!(PKey(1).to_string(), "0x0001");
        assert_eq!(QKey(0x1_0000).to_string(), "0x00010000");
        assert_eq!(Qpn(1).to_string(), "0x000001");
        assert_eq!(
            format!("{:?}, {:?}", Lid(9), Guid(1)),
            "9, 0x0000000000000001"
        );
    }
}
