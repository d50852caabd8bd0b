//! The part of `<infiniband/umad.h>` (libibumad) that the provider interface uses: a MAD's envelope.

use core::fmt;
use core::net::Ipv6Addr;

use super::{Be16, Be32, Be64};

/// A GID inside a MAD: 16 bytes in network byte order, aligned to 4. `umad.h`
///
/// Do not cast it from or to [`ibv_gid`](super::ibv_gid), whose alignment is 8.
#[derive(Clone, Copy)]
#[repr(C, align(4))]
pub union umad_gid {
    /// The 16 bytes in wire order.
    pub raw: [u8; 16],
    /// Eight groups of 16 bits.
    pub raw_be16: [Be16; 8],
    /// The two halves.
    pub global: umad_gid_global,
}

/// The two halves of a GID; a nameless structure inside `union umad_gid`. `umad.h`
///
/// Packed, unlike the nameless structure in C, so that it fits a union aligned to 4.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
#[repr(C, packed)]
pub struct umad_gid_global {
    /// The subnet's prefix.
    pub subnet_prefix: Be64,
    /// Usually the port's GUID.
    pub interface_id: Be64,
}

impl umad_gid {
    /// Makes a GID of its 16 bytes in wire order.
    pub const fn from_bytes(raw: [u8; 16]) -> Self {
        Self { raw }
    }

    /// Returns the 16 bytes in wire order.
    pub const fn bytes(&self) -> [u8; 16] {
        // SAFETY: every variant fills all 16 bytes, and bytes have no invalid value.
        unsafe { self.raw }
    }
}

impl Default for umad_gid {
    /// Returns the GID `::`, which means "none".
    fn default() -> Self {
        Self::from_bytes([0; 16])
    }
}

impl fmt::Debug for umad_gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Ipv6Addr::from(self.bytes()))
    }
}

/// The other side of a MAD: its destination or its source. `umad.h`
///
/// For a MAD to the SA, the core fills it in.
#[derive(Clone, Copy, Default, Debug)]
#[repr(C)]
pub struct ib_mad_addr {
    /// The other side's queue pair number; 1 is the general services interface.
    pub qpn: Be32,
    /// The queue key, [`UMAD_QKEY`](super::UMAD_QKEY) for queue pair 1.
    pub qkey: Be32,
    /// The other side's LID.
    pub lid: Be16,
    /// The service level.
    pub sl: u8,
    /// The low bits of the local LID; the port's LMC says how many.
    pub path_bits: u8,
    /// Non-zero if the fields of a global route (those that follow) are valid.
    pub grh_present: u8,
    /// Index of the local GID.
    pub gid_index: u8,
    /// Hop limit of the global route.
    pub hop_limit: u8,
    /// Traffic class of the global route.
    pub traffic_class: u8,
    /// The other side's GID; in C a nameless union of this and a plain array called `gid`.
    pub gid: umad_gid,
    /// Flow label of the global route.
    pub flow_label: Be32,
    /// Index of the P_Key in the port's table, in host byte order.
    pub pkey_index: u16,
    /// Zero.
    pub reserved: [u8; 6],
}

/// The envelope of a MAD that is written to or read from the kernel; the MAD follows. `umad.h`
///
/// Numbers are in host byte order unless the address says otherwise.
#[derive(Clone, Copy, Default, Debug)]
#[repr(C)]
pub struct ib_user_mad {
    /// The kernel agent that sends or receives.
    pub agent_id: u32,
    /// 0, or the errno of the failure: 110 (`ETIMEDOUT`) without a response.
    pub status: u32,
    /// Time to wait for a response before the next try, in milliseconds; 0 expects no response.
    pub timeout_ms: u32,
    /// Number of further tries.
    pub retries: u32,
    /// Length of envelope and MAD in bytes.
    pub length: u32,
    /// The other side.
    pub addr: ib_mad_addr,
    /// Start of the MAD.
    pub data: [u8; 0],
}
