//! `struct ib_user_mad` of `<infiniband/umad.h>`, the header before a MAD.
//!
//! A test of acm-prov-api compares it with that crate's mirror. fabric-sim, which depends on no crate of the
//! workspace, includes this file by its path.

/// `ib_mad_addr_t`. `qpn`, `qkey`, `lid` and `flow_label` are in network byte order.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct ib_mad_addr {
    pub qpn: u32,
    pub qkey: u32,
    pub lid: u16,
    pub sl: u8,
    pub path_bits: u8,
    pub grh_present: u8,
    pub gid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
    pub gid: [u8; 16],
    pub flow_label: u32,
    pub pkey_index: u16,
    pub reserved: [u8; 6],
}

/// `ib_user_mad_t`, without the data after it.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct ib_user_mad {
    pub agent_id: u32,
    pub status: u32,
    pub timeout_ms: u32,
    pub retries: u32,
    pub length: u32,
    pub addr: ib_mad_addr,
}
