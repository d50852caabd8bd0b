//! The identifiers of the InfiniBand Architecture, all in host byte order except the GID.

use std::fmt;
use std::net::Ipv6Addr;

/// A GID: the 128-bit address of a port or multicast group, in the order of the wire.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// Whether it is `::`, which marks an empty entry of a GID table.
    pub fn is_zero(self) -> bool {
        self.0 == [0; 16]
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv6Addr::from(self.0).fmt(f)
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gid({self})")
    }
}

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($number:ty) shown as $format:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $number);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $format, self.0)
            }
        }
    };
}

number! {
    /// A GUID of a node, port or system.
    Guid(u64) shown as "0x{:016x}"
}

number! {
    /// A LID; from 0xC000 on a multicast group's (MLID).
    Lid(u16) shown as "0x{:04x}"
}

number! {
    /// A P_Key. Its highest bit says full member, the rest is the partition.
    PKey(u16) shown as "0x{:04x}"
}

number! {
    /// A Q_Key.
    QKey(u32) shown as "0x{:08x}"
}

number! {
    /// The number of a queue pair, 24 bits.
    Qpn(u32) shown as "0x{:06x}"
}

impl Qpn {
    /// What a datagram to a multicast group is addressed to.
    pub const MULTICAST: Self = Self(0x00ff_ffff);
}
