//! The values that paths are made of, and the 64 bytes of a path record, read and written on their own so that a
//! mistake of the SDK cannot hide here.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

/// A local identifier, in host order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lid(pub u16);

/// A global identifier: 64 bits of subnet prefix, 64 bits of port GUID, in network order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gid(pub [u8; 16]);

/// The subnet prefix that a subnet manager uses unless it is told another.
pub const DEFAULT_SUBNET_PREFIX: u64 = 0xfe80_0000_0000_0000;

impl Gid {
    /// The GID of a port, from numbers in host order.
    pub fn new(subnet_prefix: u64, guid: u64) -> Self {
        Self(((u128::from(subnet_prefix) << 64) | u128::from(guid)).to_be_bytes())
    }

    /// The port GUID in it, in host order.
    pub fn guid(self) -> u64 {
        u128::from_be_bytes(self.0) as u64
    }
}

impl fmt::Display for Lid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
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
    type Err = std::net::AddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(Ipv6Addr::from_str(text)?.octets()))
    }
}

/// A PathRecord, table 208 of the InfiniBand Architecture Specification (volume 1, release 1.3), as
/// `struct ibv_path_record` of <infiniband/sa.h> holds it: 64 bytes, all in network order. The getters give host order.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PathRecord(pub [u8; Self::SIZE]);

/// What a selector of MTU, rate or packet lifetime says about the value beside it.
pub const SELECTOR_SHIFT: u32 = 6;
const VALUE_MASK: u8 = 0x3f;

impl PathRecord {
    /// Bytes of a record.
    pub const SIZE: usize = 64;

    /// A record of zeros: nothing is asked for.
    pub const EMPTY: Self = Self([0; Self::SIZE]);

    fn bytes<const N: usize>(&self, offset: usize) -> [u8; N] {
        std::array::from_fn(|i| self.0[offset + i])
    }

    fn put(&mut self, offset: usize, bytes: &[u8]) -> &mut Self {
        self.0[offset..offset + bytes.len()].copy_from_slice(bytes);
        self
    }

    /// Service ID.
    pub fn service_id(&self) -> u64 {
        u64::from_be_bytes(self.bytes(0))
    }
    /// Destination GID.
    pub fn dgid(&self) -> Gid {
        Gid(self.bytes(8))
    }
    /// Source GID.
    pub fn sgid(&self) -> Gid {
        Gid(self.bytes(24))
    }
    /// Destination LID.
    pub fn dlid(&self) -> Lid {
        Lid(u16::from_be_bytes(self.bytes(40)))
    }
    /// Source LID.
    pub fn slid(&self) -> Lid {
        Lid(u16::from_be_bytes(self.bytes(42)))
    }
    /// Flow label, 20 bits.
    pub fn flow_label(&self) -> u32 {
        (u32::from_be_bytes(self.bytes(44)) >> 8) & 0xf_ffff
    }
    /// Whether raw traffic is meant, the highest bit of the word.
    pub fn raw_traffic(&self) -> bool {
        self.0[44] & 0x80 != 0
    }
    /// Hop limit.
    pub fn hop_limit(&self) -> u8 {
        self.0[47]
    }
    /// Traffic class.
    pub fn traffic_class(&self) -> u8 {
        self.0[48]
    }
    /// Whether the path can be used in both directions.
    pub fn reversible(&self) -> bool {
        self.0[49] & 0x80 != 0
    }
    /// Number of paths asked for, 7 bits.
    pub fn number_of_paths(&self) -> u8 {
        self.0[49] & 0x7f
    }
    /// P_Key with its membership bit.
    pub fn pkey(&self) -> u16 {
        u16::from_be_bytes(self.bytes(50))
    }
    /// QoS class, 12 bits.
    pub fn qos_class(&self) -> u16 {
        u16::from_be_bytes(self.bytes(52)) >> 4
    }
    /// Service level, 4 bits.
    pub fn sl(&self) -> u8 {
        self.0[53] & 0xf
    }
    /// MTU code: 1 to 5 stand for 256 to 4096 bytes.
    pub fn mtu(&self) -> u8 {
        self.0[54] & VALUE_MASK
    }
    /// Rate code as in `enum ibv_rate` of <infiniband/verbs.h>: 2 stands for 2.5 Gb/s, 3 for 10 Gb/s.
    pub fn rate(&self) -> u8 {
        self.0[55] & VALUE_MASK
    }
    /// Packet lifetime: 4.096 µs times two to the power of this.
    pub fn packet_lifetime(&self) -> u8 {
        self.0[56] & VALUE_MASK
    }
    /// The selectors of MTU, rate and packet lifetime: 0 greater, 1 less, 2 exactly, 3 best.
    pub fn selectors(&self) -> [u8; 3] {
        [54, 55, 56].map(|offset| self.0[offset] >> SELECTOR_SHIFT)
    }
    /// Preference: 0 is the best.
    pub fn preference(&self) -> u8 {
        self.0[57]
    }

    /// Sets the service ID.
    pub fn set_service_id(&mut self, id: u64) -> &mut Self {
        self.put(0, &id.to_be_bytes())
    }
    /// Sets the destination GID.
    pub fn set_dgid(&mut self, gid: Gid) -> &mut Self {
        self.put(8, &gid.0)
    }
    /// Sets the source GID.
    pub fn set_sgid(&mut self, gid: Gid) -> &mut Self {
        self.put(24, &gid.0)
    }
    /// Sets the destination LID.
    pub fn set_dlid(&mut self, lid: Lid) -> &mut Self {
        self.put(40, &lid.0.to_be_bytes())
    }
    /// Sets the source LID.
    pub fn set_slid(&mut self, lid: Lid) -> &mut Self {
        self.put(42, &lid.0.to_be_bytes())
    }
    /// Sets the flow label (its low 20 bits) and the hop limit.
    pub fn set_flow_label_and_hop_limit(&mut self, flow_label: u32, hop_limit: u8) -> &mut Self {
        let word = ((flow_label & 0xf_ffff) << 8) | u32::from(hop_limit);
        self.put(44, &word.to_be_bytes())
    }
    /// Sets the traffic class.
    pub fn set_traffic_class(&mut self, class: u8) -> &mut Self {
        self.put(48, &[class])
    }
    /// Sets whether the path shall be reversible, and how many paths are asked for (7 bits).
    pub fn set_reversible_and_number(&mut self, reversible: bool, number: u8) -> &mut Self {
        self.put(49, &[(u8::from(reversible) << 7) | (number & 0x7f)])
    }
    /// Sets the P_Key.
    pub fn set_pkey(&mut self, pkey: u16) -> &mut Self {
        self.put(50, &pkey.to_be_bytes())
    }
    /// Sets the QoS class (12 bits) and the service level (4 bits).
    pub fn set_qos_class_and_sl(&mut self, qos_class: u16, sl: u8) -> &mut Self {
        self.put(52, &((qos_class << 4) | u16::from(sl & 0xf)).to_be_bytes())
    }
    /// Sets the MTU byte, selector included.
    pub fn set_mtu_byte(&mut self, byte: u8) -> &mut Self {
        self.put(54, &[byte])
    }
    /// Sets the rate byte, selector included.
    pub fn set_rate_byte(&mut self, byte: u8) -> &mut Self {
        self.put(55, &[byte])
    }
    /// Sets the packet lifetime byte, selector included.
    pub fn set_packet_lifetime_byte(&mut self, byte: u8) -> &mut Self {
        self.put(56, &[byte])
    }
}

impl fmt::Debug for PathRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} (LID {}) -> {} (LID {}), P_Key 0x{:04x}, SL {}, MTU {}, rate {}, packet lifetime {}",
            self.sgid(),
            self.slid(),
            self.dgid(),
            self.dlid(),
            self.pkey(),
            self.sl(),
            self.mtu(),
            self.rate(),
            self.packet_lifetime()
        )
    }
}
