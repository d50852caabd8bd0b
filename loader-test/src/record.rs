//! A path record of 64 bytes, with typed fields. The stand-in core defines the layout, independent of the SDK, so that a
//! mistake of the SDK cannot hide here.

use std::fmt;

pub use rdma_access::{Gid, Lid, PKey};

use crate::stand_in::message::Path;

/// A subnet manager's default subnet prefix.
pub const DEFAULT_SUBNET_PREFIX: u64 = 0xfe80_0000_0000_0000;

/// A PathRecord, table 208 of the InfiniBand Architecture Specification (volume 1, release 1.3), as
/// `struct ibv_path_record` of <infiniband/sa.h> holds it: 64 bytes, all in network order. The getters give host order.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PathRecord(pub [u8; Self::SIZE]);

/// The selector of an MTU, rate or packet lifetime.
pub const SELECTOR_SHIFT: u32 = 6;
const VALUE_MASK: u8 = 0x3f;

impl PathRecord {
    /// Bytes of a record.
    pub const SIZE: usize = 64;

    /// A record of zeros, without constraints.
    pub const EMPTY: Self = Self([0; Self::SIZE]);

    /// The record in the stand-in core's type, which defines the layout.
    fn path(&self) -> Path {
        Path(self.0)
    }

    fn set(&mut self, path: Path) -> &mut Self {
        self.0 = path.0;
        self
    }

    /// Service ID.
    pub fn service_id(&self) -> u64 {
        self.path().service_id()
    }
    /// Destination GID.
    pub fn dgid(&self) -> Gid {
        self.path().dgid()
    }
    /// Source GID.
    pub fn sgid(&self) -> Gid {
        self.path().sgid()
    }
    /// Destination LID.
    pub fn dlid(&self) -> Lid {
        Lid(self.path().dlid())
    }
    /// Source LID.
    pub fn slid(&self) -> Lid {
        Lid(self.path().slid())
    }
    /// Flow label, 20 bits.
    pub fn flow_label(&self) -> u32 {
        (self.path().flow_hop() >> 8) & 0xf_ffff
    }
    /// Whether the path is for raw traffic, the highest bit of the word.
    pub fn raw_traffic(&self) -> bool {
        self.path().flow_hop() >> 31 != 0
    }
    /// Hop limit.
    pub fn hop_limit(&self) -> u8 {
        self.path().flow_hop() as u8
    }
    /// Traffic class.
    pub fn traffic_class(&self) -> u8 {
        self.path().tclass()
    }
    /// Whether the path can be used in both directions.
    pub fn reversible(&self) -> bool {
        self.path().reversible_numpath() & 0x80 != 0
    }
    /// Number of requested paths, 7 bits.
    pub fn number_of_paths(&self) -> u8 {
        self.path().reversible_numpath() & 0x7f
    }
    /// P_Key with its membership bit.
    pub fn pkey(&self) -> u16 {
        self.path().pkey()
    }
    /// QoS class, 12 bits.
    pub fn qos_class(&self) -> u16 {
        self.path().qos_sl() >> 4
    }
    /// Service level, 4 bits.
    pub fn sl(&self) -> u8 {
        (self.path().qos_sl() & 0xf) as u8
    }
    /// MTU code: 1 to 5 stand for 256 to 4096 bytes.
    pub fn mtu(&self) -> u8 {
        self.path().mtu() & VALUE_MASK
    }
    /// Rate code as in `enum ibv_rate` of <infiniband/verbs.h>: 2 stands for 2.5 Gb/s, 3 for 10 Gb/s.
    pub fn rate(&self) -> u8 {
        self.path().rate() & VALUE_MASK
    }
    /// Packet lifetime: 4.096 µs times two to the power of this.
    pub fn packet_lifetime(&self) -> u8 {
        self.path().lifetime() & VALUE_MASK
    }
    /// The selectors of MTU, rate and packet lifetime: 0 greater, 1 less, 2 exactly, 3 best.
    pub fn selectors(&self) -> [u8; 3] {
        let path = self.path();
        [path.mtu(), path.rate(), path.lifetime()].map(|byte| byte >> SELECTOR_SHIFT)
    }
    /// Preference: 0 is the best.
    pub fn preference(&self) -> u8 {
        self.0[57]
    }

    /// Sets the service ID.
    pub fn set_service_id(&mut self, id: u64) -> &mut Self {
        self.set(self.path().with_service_id(id))
    }
    /// Sets the destination GID.
    pub fn set_dgid(&mut self, gid: Gid) -> &mut Self {
        self.set(self.path().with_dgid(gid))
    }
    /// Sets the source GID.
    pub fn set_sgid(&mut self, gid: Gid) -> &mut Self {
        self.set(self.path().with_sgid(gid))
    }
    /// Sets the destination LID.
    pub fn set_dlid(&mut self, lid: Lid) -> &mut Self {
        self.set(self.path().with_dlid(lid.0))
    }
    /// Sets the source LID.
    pub fn set_slid(&mut self, lid: Lid) -> &mut Self {
        self.set(self.path().with_slid(lid.0))
    }
    /// Sets the flow label (its low 20 bits) and the hop limit.
    pub fn set_flow_label_and_hop_limit(&mut self, flow_label: u32, hop_limit: u8) -> &mut Self {
        let word = ((flow_label & 0xf_ffff) << 8) | u32::from(hop_limit);
        self.set(self.path().with_flow_hop(word))
    }
    /// Sets the traffic class.
    pub fn set_traffic_class(&mut self, class: u8) -> &mut Self {
        self.set(self.path().with_tclass(class))
    }
    /// Sets whether the path must be reversible, and the number of requested paths (7 bits).
    pub fn set_reversible_and_number(&mut self, reversible: bool, number: u8) -> &mut Self {
        let byte = (u8::from(reversible) << 7) | (number & 0x7f);
        self.set(self.path().with_reversible_numpath(byte))
    }
    /// Sets the P_Key.
    pub fn set_pkey(&mut self, pkey: u16) -> &mut Self {
        self.set(self.path().with_pkey(pkey))
    }
    /// Sets the QoS class (12 bits) and the service level (4 bits).
    pub fn set_qos_class_and_sl(&mut self, qos_class: u16, sl: u8) -> &mut Self {
        self.set(
            self.path()
                .with_qos_sl((qos_class << 4) | u16::from(sl & 0xf)),
        )
    }
    /// Sets the MTU byte, selector included.
    pub fn set_mtu_byte(&mut self, byte: u8) -> &mut Self {
        self.set(self.path().with_mtu(byte))
    }
    /// Sets the rate byte, selector included.
    pub fn set_rate_byte(&mut self, byte: u8) -> &mut Self {
        self.set(self.path().with_rate(byte))
    }
    /// Sets the packet lifetime byte, selector included.
    pub fn set_packet_lifetime_byte(&mut self, byte: u8) -> &mut Self {
        self.set(self.path().with_lifetime(byte))
    }
}

impl fmt::Debug for PathRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} (LID {}) -> {} (LID {}), P_Key {}, SL {}, MTU {}, rate {}, packet lifetime {}",
            self.sgid(),
            self.slid(),
            self.dgid(),
            self.dlid(),
            PKey(self.pkey()),
            self.sl(),
            self.mtu(),
            self.rate(),
            self.packet_lifetime()
        )
    }
}
