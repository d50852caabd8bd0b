//! `<infiniband/sa.h>` (libibverbs): path records.

use super::{Be16, Be32, Be64, ibv_gid};

/// The bit of [`ibv_path_record::reversible_numpath`] for a path that works in both directions: a constraint in
/// a query, a fact in a response. `sa.h`
pub const IBV_PATH_RECORD_REVERSIBLE: u8 = 0x80;

/// A PathRecord as the SA sends it, 64 bytes. `sa.h`; InfiniBand Architecture Specification,
/// volume 1, section 15.2.5.16
///
/// Numbers are in network byte order, also between the core and its local clients.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
#[repr(C)]
pub struct ibv_path_record {
    /// The service id of the path; 0 if none was named.
    pub service_id: Be64,
    /// The destination port's GID.
    pub dgid: ibv_gid,
    /// The source port's GID.
    pub sgid: ibv_gid,
    /// The destination port's LID.
    pub dlid: Be16,
    /// The source port's LID.
    pub slid: Be16,
    /// Flow label in bits 27 to 8, hop limit in bits 7 to 0.
    pub flowlabel_hoplimit: Be32,
    /// Traffic class of a global route.
    pub tclass: u8,
    /// [`IBV_PATH_RECORD_REVERSIBLE`]; the number of requested paths in bits 6 to 0.
    pub reversible_numpath: u8,
    /// The partition, membership bit 0x8000 included.
    pub pkey: Be16,
    /// QoS class in bits 15 to 4, service level in bits 3 to 0.
    pub qosclass_sl: Be16,
    /// Selector in bits 7 and 6, an [`ibv_mtu`](super::ibv_mtu) code in the others.
    pub mtu: u8,
    /// Selector in bits 7 and 6, an [`ibv_rate`](super::ibv_rate) code in the others.
    pub rate: u8,
    /// Selector in bits 7 and 6; the other bits are n of 4.096 us x 2^n.
    pub packetlifetime: u8,
    /// Preference among several paths; 0 is the highest.
    pub preference: u8,
    /// Zero.
    pub reserved: [u8; 6],
}

/// The path serves general services (management). `sa.h`
pub const IBV_PATH_FLAG_GMP: u32 = 1 << 0;
/// The primary path. `sa.h`
pub const IBV_PATH_FLAG_PRIMARY: u32 = 1 << 1;
/// The alternate path, for failover. `sa.h`
pub const IBV_PATH_FLAG_ALTERNATE: u32 = 1 << 2;
/// From this host to the other side. `sa.h`
pub const IBV_PATH_FLAG_OUTBOUND: u32 = 1 << 3;
/// From the other side to this host. `sa.h`
pub const IBV_PATH_FLAG_INBOUND: u32 = 1 << 4;
/// From the other side to this host, written as the reverse path. `sa.h`
pub const IBV_PATH_FLAG_INBOUND_REVERSE: u32 = 1 << 5;
/// One record for both directions. `sa.h`
pub const IBV_PATH_FLAG_BIDIRECTIONAL: u32 = IBV_PATH_FLAG_OUTBOUND | IBV_PATH_FLAG_INBOUND_REVERSE;

/// A path and its use, as the kernel and librdmacm exchange it. `sa.h`
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
#[repr(C)]
pub struct ibv_path_data {
    /// `IBV_PATH_FLAG_` bits, in host byte order.
    pub flags: u32,
    /// Zero.
    pub reserved: u32,
    /// The path.
    pub path: ibv_path_record,
}
