//! `<infiniband/umad_sa_mcm.h>` (libibumad): multicast membership at the SA.
//!
//! InfiniBand Architecture Specification, volume 1, section 15.2.5.17. The constants are numbers in
//! host byte order.

use super::{Be16, Be32};

/// Component of MCMemberRecord: the group's GID.
pub const UMAD_SA_MCM_COMP_MASK_MGID: u64 = 1 << 0;
/// Component of MCMemberRecord: the member's GID.
pub const UMAD_SA_MCM_COMP_MASK_PORT_GID: u64 = 1 << 1;
/// Component of MCMemberRecord: the Q_Key.
pub const UMAD_SA_MCM_COMP_MASK_QKEY: u64 = 1 << 2;
/// Component of MCMemberRecord: the group's LID.
pub const UMAD_SA_MCM_COMP_MASK_MLID: u64 = 1 << 3;
/// Component of MCMemberRecord: the MTU's selector.
pub const UMAD_SA_MCM_COMP_MASK_MTU_SEL: u64 = 1 << 4;
/// Component of MCMemberRecord: the MTU.
pub const UMAD_SA_MCM_COMP_MASK_MTU: u64 = 1 << 5;
/// Component of MCMemberRecord: the traffic class.
pub const UMAD_SA_MCM_COMP_MASK_TCLASS: u64 = 1 << 6;
/// Component of MCMemberRecord: the P_Key.
pub const UMAD_SA_MCM_COMP_MASK_PKEY: u64 = 1 << 7;
/// Component of MCMemberRecord: the rate's selector.
pub const UMAD_SA_MCM_COMP_MASK_RATE_SEL: u64 = 1 << 8;
/// Component of MCMemberRecord: the rate.
pub const UMAD_SA_MCM_COMP_MASK_RATE: u64 = 1 << 9;
/// Component of MCMemberRecord: the packet lifetime's selector.
pub const UMAD_SA_MCM_COMP_MASK_LIFE_TIME_SEL: u64 = 1 << 10;
/// Component of MCMemberRecord: the packet lifetime.
pub const UMAD_SA_MCM_COMP_MASK_LIFE_TIME: u64 = 1 << 11;
/// Component of MCMemberRecord: the service level.
pub const UMAD_SA_MCM_COMP_MASK_SL: u64 = 1 << 12;
/// Component of MCMemberRecord: the flow label.
pub const UMAD_SA_MCM_COMP_MASK_FLOW_LABEL: u64 = 1 << 13;
/// Component of MCMemberRecord: the hop limit.
pub const UMAD_SA_MCM_COMP_MASK_HOP_LIMIT: u64 = 1 << 14;
/// Component of MCMemberRecord: the scope.
pub const UMAD_SA_MCM_COMP_MASK_SCOPE: u64 = 1 << 15;
/// Component of MCMemberRecord: the join state.
pub const UMAD_SA_MCM_COMP_MASK_JOIN_STATE: u64 = 1 << 16;
/// Component of MCMemberRecord: joined on behalf of another port.
pub const UMAD_SA_MCM_COMP_MASK_PROXY_JOIN: u64 = 1 << 17;

/// Join state: sends and receives.
pub const UMAD_SA_MCM_JOIN_STATE_FULL_MEMBER: u8 = 1 << 0;
/// Join state: receives; does not keep the group alive.
pub const UMAD_SA_MCM_JOIN_STATE_NON_MEMBER: u8 = 1 << 1;
/// Join state: sends only; does not keep the group alive.
pub const UMAD_SA_MCM_JOIN_STATE_SEND_ONLY_NON_MEMBER: u8 = 1 << 2;
/// Join state: sends only.
pub const UMAD_SA_MCM_JOIN_STATE_SEND_ONLY_FULL_MEMBER: u8 = 1 << 3;

/// Scope: the subnet.
pub const UMAD_SA_MCM_ADDR_SCOPE_LINK_LOCAL: u8 = 0x2;
/// Scope: the site.
pub const UMAD_SA_MCM_ADDR_SCOPE_SITE_LOCAL: u8 = 0x5;
/// Scope: the organisation.
pub const UMAD_SA_MCM_ADDR_SCOPE_ORG_LOCAL: u8 = 0x8;
/// Scope: everywhere.
pub const UMAD_SA_MCM_ADDR_SCOPE_GLOBAL: u8 = 0xE;

/// An MCMemberRecord as the SA sends it, padded to 56 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(C)]
pub struct umad_sa_mcmember_record {
    /// The group's GID, in network byte order.
    pub mgid: [u8; 16],
    /// The member's GID, in network byte order.
    pub portgid: [u8; 16],
    /// The group's Q_Key.
    pub qkey: Be32,
    /// The group's LID, 0xC000 or above.
    pub mlid: Be16,
    /// Selector in bits 7 and 6, an [`ibv_mtu`](super::ibv_mtu) code in the others.
    pub mtu: u8,
    /// Traffic class.
    pub tclass: u8,
    /// The group's partition.
    pub pkey: Be16,
    /// Selector in bits 7 and 6, an [`ibv_rate`](super::ibv_rate) code in the others.
    pub rate: u8,
    /// Selector in bits 7 and 6; the other bits are n of 4.096 us x 2^n.
    pub pkt_life: u8,
    /// Service level in bits 31 to 28, flow label in bits 27 to 8, hop limit in bits 7 to 0.
    pub sl_flow_hop: Be32,
    /// Scope in bits 7 to 4, join state in bits 3 to 0.
    pub scope_state: u8,
    /// Bit 7: joined on behalf of another port, set by the SA.
    pub proxy_join: u8,
    /// Zero.
    pub reserved: [u8; 2],
    /// Pads the record to a multiple of 8 bytes.
    pub pad: [u8; 4],
}
