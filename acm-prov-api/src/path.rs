//! Path records, in answers to clients and in SA queries.
//!
//! The record is the PathRecord attribute of subnet administration (IBA vol. 1, 15.2.5.16;
//! `struct ibv_path_record` of `infiniband/sa.h`): 64 bytes in network order. Getters and
//! setters speak host order.
//!
//! Queries and answers have the same layout. In a query, a field of zero is left open, and MTU, rate and packet lifetime
//! have a [`Selector`] that says how to compare the value. An answer has [`Selector::Exactly`], or 0 if it comes from a
//! file without selectors.

use std::fmt;
use std::hash::{Hash, Hasher};

use crate::abi::{Be16, Be32, Be64, IBV_PATH_RECORD_REVERSIBLE, ibv_path_record};
use crate::address::{Gid, Lid, PKey};

/// How to compare an MTU, rate or packet lifetime: two bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Selector {
    /// More than the value.
    GreaterThan = 0,
    /// Less than the value.
    LessThan = 1,
    /// The value.
    Exactly = 2,
    /// The best available: the largest MTU or rate, the smallest lifetime. The value is ignored, but must be a valid code:
    /// OpenSM refuses others.
    Best = 3,
}

impl Selector {
    const fn of(byte: u8) -> Selector {
        match byte >> 6 {
            0 => Selector::GreaterThan,
            1 => Selector::LessThan,
            2 => Selector::Exactly,
            _ => Selector::Best,
        }
    }
}

/// An MTU, rate or packet lifetime with its selector: one byte of a path or multicast record.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Limit {
    /// How to compare the code.
    pub selector: Selector,
    /// The code, 6 bits.
    pub code: u8,
}

impl Limit {
    /// Returns a limit of exactly this code.
    #[must_use]
    pub const fn exactly(code: u8) -> Limit {
        Limit {
            selector: Selector::Exactly,
            code,
        }
    }

    /// Parses the byte of a record.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Limit {
        Limit {
            selector: Selector::of(byte),
            code: byte & VALUE,
        }
    }

    /// Returns the byte of a record; drops the code's bits above the sixth.
    #[must_use]
    pub const fn to_byte(self) -> u8 {
        (self.selector as u8) << 6 | (self.code & VALUE)
    }
}

impl fmt::Debug for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}({})", self.selector, self.code)
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = self.code;
        match self.selector {
            Selector::GreaterThan => write!(f, "above code {code}"),
            Selector::LessThan => write!(f, "below code {code}"),
            Selector::Exactly => write!(f, "code {code}"),
            Selector::Best => f.write_str("the best"),
        }
    }
}

const VALUE: u8 = 0x3f;
const FLOW_LABEL: u32 = 0xf_ffff;

/// A path record. A new one is all zeros.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct PathRecord(ibv_path_record);

/// Hashes all bytes at once; field by field takes much longer.
impl Hash for PathRecord {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(&self.to_bytes());
    }
}

impl PathRecord {
    /// Bytes of a record.
    pub const LENGTH: usize = size_of::<ibv_path_record>();

    /// Creates a record from its bytes on the wire. Reserved bits become zero.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; PathRecord::LENGTH]) -> PathRecord {
        // SAFETY: both are 64 bytes, and `ibv_path_record` holds integers and bytes only, of
        // which any bit pattern is one.
        PathRecord::from(unsafe { std::mem::transmute::<[u8; 64], ibv_path_record>(*bytes) })
    }

    /// Returns the record's bytes on the wire.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; PathRecord::LENGTH] {
        // SAFETY: both are 64 bytes, and the fields of `ibv_path_record` leave no padding
        // between them (8, 16, 16, 2, 2, 4, 1, 1, 2, 2, 1, 1, 1, 1, 6), so every byte is
        // initialised.
        unsafe { std::mem::transmute::<ibv_path_record, [u8; 64]>(self.0) }
    }

    /// Returns the service id of the path; 0 means none.
    #[must_use]
    pub const fn service_id(&self) -> u64 {
        self.0.service_id.to_host()
    }

    /// Sets the service id.
    pub const fn set_service_id(&mut self, id: u64) -> &mut Self {
        self.0.service_id = Be64::from_host(id);
        self
    }

    /// GID of the destination port.
    #[must_use]
    pub fn dgid(&self) -> Gid {
        Gid::from(self.0.dgid)
    }

    /// Sets the destination GID.
    pub fn set_dgid(&mut self, gid: Gid) -> &mut Self {
        self.0.dgid = gid.into();
        self
    }

    /// GID of the source port.
    #[must_use]
    pub fn sgid(&self) -> Gid {
        Gid::from(self.0.sgid)
    }

    /// Sets the source GID.
    pub fn set_sgid(&mut self, gid: Gid) -> &mut Self {
        self.0.sgid = gid.into();
        self
    }

    /// LID of the destination port, or of the router towards it.
    #[must_use]
    pub const fn dlid(&self) -> Lid {
        Lid(self.0.dlid.to_host())
    }

    /// Sets the destination LID.
    pub const fn set_dlid(&mut self, lid: Lid) -> &mut Self {
        self.0.dlid = Be16::from_host(lid.0);
        self
    }

    /// LID of the source port, path bits included.
    #[must_use]
    pub const fn slid(&self) -> Lid {
        Lid(self.0.slid.to_host())
    }

    /// Sets the source LID.
    pub const fn set_slid(&mut self, lid: Lid) -> &mut Self {
        self.0.slid = Be16::from_host(lid.0);
        self
    }

    /// Flow label of the GRH, 20 bits.
    #[must_use]
    pub const fn flow_label(&self) -> u32 {
        self.0.flowlabel_hoplimit.to_host() >> 8 & FLOW_LABEL
    }

    /// Sets the flow label; bits above the 20th are dropped.
    pub const fn set_flow_label(&mut self, label: u32) -> &mut Self {
        let hop_limit = self.hop_limit() as u32;
        self.0.flowlabel_hoplimit = Be32::from_host((label & FLOW_LABEL) << 8 | hop_limit);
        self
    }

    /// Hop limit of the GRH; 0 within a subnet.
    #[must_use]
    pub const fn hop_limit(&self) -> u8 {
        self.0.flowlabel_hoplimit.to_host() as u8
    }

    /// Sets the hop limit.
    pub const fn set_hop_limit(&mut self, limit: u8) -> &mut Self {
        self.0.flowlabel_hoplimit = Be32::from_host(self.flow_label() << 8 | limit as u32);
        self
    }

    /// Traffic class of the GRH.
    #[must_use]
    pub const fn traffic_class(&self) -> u8 {
        self.0.tclass
    }

    /// Sets the traffic class.
    pub const fn set_traffic_class(&mut self, class: u8) -> &mut Self {
        self.0.tclass = class;
        self
    }

    /// Whether the path serves both directions.
    #[must_use]
    pub const fn reversible(&self) -> bool {
        self.0.reversible_numpath & IBV_PATH_RECORD_REVERSIBLE != 0
    }

    /// Sets whether the path serves both directions.
    pub const fn set_reversible(&mut self, reversible: bool) -> &mut Self {
        let bit = if reversible {
            IBV_PATH_RECORD_REVERSIBLE
        } else {
            0
        };
        self.0.reversible_numpath = bit | self.numb_path();
        self
    }

    /// Number of requested paths, 7 bits.
    #[must_use]
    pub const fn numb_path(&self) -> u8 {
        self.0.reversible_numpath & !IBV_PATH_RECORD_REVERSIBLE
    }

    /// Sets the number of paths; the eighth bit is dropped.
    pub const fn set_numb_path(&mut self, count: u8) -> &mut Self {
        let reversible = self.0.reversible_numpath & IBV_PATH_RECORD_REVERSIBLE;
        self.0.reversible_numpath = reversible | count & !IBV_PATH_RECORD_REVERSIBLE;
        self
    }

    /// P_Key of the path.
    #[must_use]
    pub const fn pkey(&self) -> PKey {
        PKey(self.0.pkey.to_host())
    }

    /// Sets the P_Key.
    pub const fn set_pkey(&mut self, pkey: PKey) -> &mut Self {
        self.0.pkey = Be16::from_host(pkey.0);
        self
    }

    /// QoS class, 12 bits.
    #[must_use]
    pub const fn qos_class(&self) -> u16 {
        self.0.qosclass_sl.to_host() >> 4
    }

    /// Sets the QoS class; bits above the 12th are dropped.
    pub const fn set_qos_class(&mut self, class: u16) -> &mut Self {
        self.0.qosclass_sl = Be16::from_host(class << 4 | self.sl() as u16);
        self
    }

    /// Service level, 4 bits.
    #[must_use]
    pub const fn sl(&self) -> u8 {
        (self.0.qosclass_sl.to_host() & 0xf) as u8
    }

    /// Sets the service level; bits above the 4th are dropped.
    pub const fn set_sl(&mut self, sl: u8) -> &mut Self {
        self.0.qosclass_sl = Be16::from_host(self.qos_class() << 4 | sl as u16 & 0xf);
        self
    }

    /// MTU code, 6 bits: 1 is 256 bytes, 5 is 4096; see [`mtu_bytes`].
    #[must_use]
    pub const fn mtu(&self) -> u8 {
        self.0.mtu & VALUE
    }

    /// Returns how to compare the MTU.
    #[must_use]
    pub const fn mtu_selector(&self) -> Selector {
        Selector::of(self.0.mtu)
    }

    /// Sets the MTU code and how to compare it.
    pub const fn set_mtu(&mut self, selector: Selector, code: u8) -> &mut Self {
        self.0.mtu = Limit { selector, code }.to_byte();
        self
    }

    /// Rate code, 6 bits: 2 is 2.5 Gb/s, 3 is 10 Gb/s; codes follow no order, see
    /// [`rate_mbps`].
    #[must_use]
    pub const fn rate(&self) -> u8 {
        self.0.rate & VALUE
    }

    /// Returns how to compare the rate.
    #[must_use]
    pub const fn rate_selector(&self) -> Selector {
        Selector::of(self.0.rate)
    }

    /// Sets the rate code and how to compare it.
    pub const fn set_rate(&mut self, selector: Selector, code: u8) -> &mut Self {
        self.0.rate = Limit { selector, code }.to_byte();
        self
    }

    /// Packet lifetime n, 6 bits: 4.096 µs × 2^n.
    #[must_use]
    pub const fn packet_lifetime(&self) -> u8 {
        self.0.packetlifetime & VALUE
    }

    /// Returns how to compare the packet lifetime.
    #[must_use]
    pub const fn packet_lifetime_selector(&self) -> Selector {
        Selector::of(self.0.packetlifetime)
    }

    /// Sets the packet lifetime n and how to compare it.
    pub const fn set_packet_lifetime(&mut self, selector: Selector, n: u8) -> &mut Self {
        self.0.packetlifetime = Limit { selector, code: n }.to_byte();
        self
    }

    /// Preference among several paths; 0 is the most preferred.
    #[must_use]
    pub const fn preference(&self) -> u8 {
        self.0.preference
    }

    /// Sets the preference.
    pub const fn set_preference(&mut self, preference: u8) -> &mut Self {
        self.0.preference = preference;
        self
    }
}

/// Copies the record; reserved bits become zero.
impl From<ibv_path_record> for PathRecord {
    fn from(mut record: ibv_path_record) -> PathRecord {
        let flow_and_hops = record.flowlabel_hoplimit.to_host() & (FLOW_LABEL << 8 | 0xff);
        record.flowlabel_hoplimit = Be32::from_host(flow_and_hops);
        record.reserved = [0; 6];
        PathRecord(record)
    }
}

impl From<PathRecord> for ibv_path_record {
    fn from(record: PathRecord) -> ibv_path_record {
        record.0
    }
}

impl fmt::Debug for PathRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PathRecord")
            .field("service_id", &format_args!("{:#x}", self.service_id()))
            .field("dgid", &self.dgid())
            .field("sgid", &self.sgid())
            .field("dlid", &self.dlid())
            .field("slid", &self.slid())
            .field("flow_label", &format_args!("{:#x}", self.flow_label()))
            .field("hop_limit", &self.hop_limit())
            .field("traffic_class", &self.traffic_class())
            .field("reversible", &self.reversible())
            .field("numb_path", &self.numb_path())
            .field("pkey", &self.pkey())
            .field("qos_class", &format_args!("{:#x}", self.qos_class()))
            .field("sl", &self.sl())
            .field("mtu", &Limit::from_byte(self.0.mtu))
            .field("rate", &Limit::from_byte(self.0.rate))
            .field("packet_lifetime", &Limit::from_byte(self.0.packetlifetime))
            .field("preference", &self.preference())
            .finish()
    }
}

/// Bytes of an MTU code (IBA vol. 1, 14.2.5.6): 1 is 256, 5 is 4096; `None` for other codes.
#[must_use]
pub const fn mtu_bytes(code: u8) -> Option<u16> {
    match code {
        1..=5 => Some(128 << code),
        _ => None,
    }
}

/// Signalling rate of a rate code in Mb/s (IBA vol. 1, 15.2.5.16, and its later link speeds);
/// `None` for unknown codes, which newer hardware may use.
#[must_use]
pub const fn rate_mbps(code: u8) -> Option<u32> {
    Some(match code {
        2 => 2_500,
        3 => 10_000,
        4 => 30_000,
        5 => 5_000,
        6 => 20_000,
        7 => 40_000,
        8 => 60_000,
        9 => 80_000,
        10 => 120_000,
        11 => 14_062,
        12 => 56_250,
        13 => 112_500,
        14 => 168_750,
        15 => 25_781,
        16 => 103_125,
        17 => 206_250,
        18 => 309_375,
        19 => 28_125,
        20 => 53_125,
        21 => 425_000,
        22 => 637_500,
        23 => 850_000,
        24 => 1_275_000,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every bit that is not reserved, written by hand from the layout in the standard.
    #[rustfmt::skip]
    const BYTES: [u8; 64] = [
        0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08,
        0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x00, 0x10, 0, 0, 0, 0, 0, 0x02,
        0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x00, 0x10, 0, 0, 0, 0, 0, 0x01,
        0x12, 0x34, 0x00, 0x07,
        0x0a, 0xbc, 0xde, 0x40,
        0x55, 0x81, 0xff, 0xfe, 0xab, 0xc9, 0x84, 0x47, 0xd2, 0x09,
        0, 0, 0, 0, 0, 0,
    ];

    fn filled() -> PathRecord {
        let mut record = PathRecord::default();
        record
            .set_service_id(0x0102_0304_0506_0708)
            .set_dgid("fe80::10:0:0:2".parse().unwrap())
            .set_sgid("fe80::10:0:0:1".parse().unwrap())
            .set_dlid(Lid(0x1234))
            .set_slid(Lid(7))
            .set_flow_label(0xabcde)
            .set_hop_limit(0x40)
            .set_traffic_class(0x55)
            .set_reversible(true)
            .set_numb_path(1)
            .set_pkey(PKey(0xfffe))
            .set_qos_class(0xabc)
            .set_sl(9)
            .set_mtu(Selector::Exactly, 4)
            .set_rate(Selector::LessThan, 7)
            .set_packet_lifetime(Selector::Best, 18)
            .set_preference(9);
        record
    }

    #[test]
    fn setters_write_the_wire_format() {
        assert_eq!(filled().to_bytes(), BYTES);
    }

    #[test]
    fn getters_read_the_wire_format() {
        let record = PathRecord::from_bytes(&BYTES);
        assert_eq!(record, filled());
        assert_eq!(record.service_id(), 0x0102_0304_0506_0708);
        assert_eq!(record.dgid(), Gid::new(0xfe80 << 48, 0x0010_0000_0000_0002));
        assert_eq!(record.sgid(), Gid::new(0xfe80 << 48, 0x0010_0000_0000_0001));
        assert_eq!((record.dlid(), record.slid()), (Lid(0x1234), Lid(7)));
        assert_eq!((record.flow_label(), record.hop_limit()), (0xabcde, 0x40));
        assert_eq!(record.traffic_class(), 0x55);
        assert_eq!((record.reversible(), record.numb_path()), (true, 1));
        assert_eq!(record.pkey(), PKey(0xfffe));
        assert_eq!((record.qos_class(), record.sl()), (0xabc, 9));
        assert_eq!(
            (record.mtu_selector(), record.mtu()),
            (Selector::Exactly, 4)
        );
        assert_eq!(
            (record.rate_selector(), record.rate()),
            (Selector::LessThan, 7)
        );
        let lifetime = (record.packet_lifetime_selector(), record.packet_lifetime());
        assert_eq!(lifetime, (Selector::Best, 18));
        assert_eq!(record.preference(), 9);
    }

    #[test]
    fn setters_keep_to_their_bits() {
        let mut record = filled();
        record
            .set_flow_label(u32::MAX)
            .set_numb_path(u8::MAX)
            .set_qos_class(u16::MAX);
        record
            .set_sl(u8::MAX)
            .set_mtu(Selector::GreaterThan, u8::MAX);
        assert_eq!((record.flow_label(), record.hop_limit()), (0xf_ffff, 0x40));
        assert_eq!((record.numb_path(), record.reversible()), (0x7f, true));
        assert_eq!((record.qos_class(), record.sl()), (0xfff, 0xf));
        assert_eq!(
            (record.mtu(), record.mtu_selector()),
            (0x3f, Selector::GreaterThan)
        );
        record.set_hop_limit(0).set_reversible(false);
        assert_eq!((record.flow_label(), record.numb_path()), (0xf_ffff, 0x7f));
    }

    #[test]
    fn reserved_bits_do_not_come_through() {
        let mut dirty = BYTES;
        dirty[44] |= 0xf0;
        dirty[58..].fill(0xff);
        assert_eq!(PathRecord::from_bytes(&dirty).to_bytes(), BYTES);
    }

    #[test]
    fn debug_speaks_host_order() {
        let shown = format!("{:?}", filled());
        for part in [
            "dgid: fe80::10:0:0:2",
            "dlid: 4660",
            "pkey: 0xfffe",
            "mtu: Exactly(4)",
        ] {
            assert!(shown.contains(part), "{part} in {shown}");
        }
    }

    #[test]
    fn units_of_codes() {
        assert_eq!(
            [1, 2, 3, 4, 5].map(mtu_bytes),
            [256, 512, 1024, 2048, 4096].map(Some)
        );
        assert_eq!([0, 6, 0x3f].map(mtu_bytes), [None; 3]);
        assert_eq!(rate_mbps(3), Some(10_000));
        assert_eq!(rate_mbps(16), Some(103_125));
        assert_eq!([0, 1, 25, 0x3f].map(rate_mbps), [None; 4]);
    }
}
