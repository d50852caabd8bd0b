//! Multicast group membership (MCMemberRecord; IBA vol. 1, 15.2.5.17; umad_sa_mcm.h).

use crate::abi::{self, Be16, Be32, UMAD_LEN_SA_DATA, umad_sa_mcmember_record};
use crate::address::{Gid, Lid, PKey};
use crate::handles::EndpointHandle;
use crate::path::Limit;

/// A join request. All values are in host byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MulticastJoin {
    /// The group.
    pub mgid: Gid,
    /// The port that joins; `None` for the endpoint's own first GID.
    pub port_gid: Option<Gid>,
    /// The group's partition; `None` for the endpoint's P_Key.
    pub pkey: Option<PKey>,
    /// The group's Q_Key.
    pub qkey: u32,
    /// MTU code.
    pub mtu: Option<Limit>,
    /// Rate code.
    pub rate: Option<Limit>,
    /// Service level, 4 bits.
    pub sl: u8,
    /// Traffic class.
    pub tclass: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Scope, 4 bits (`UMAD_SA_MCM_ADDR_SCOPE_*`).
    pub scope: u8,
    /// Join state, 4 bits (`UMAD_SA_MCM_JOIN_STATE_*`).
    pub join_state: u8,
}

/// Membership as the SA granted it. All values are in host byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MulticastMember {
    /// The group.
    pub mgid: Gid,
    /// The port that is a member.
    pub port_gid: Gid,
    /// The group's Q_Key.
    pub qkey: u32,
    /// The group's LID.
    pub mlid: Lid,
    /// MTU code, without its selector.
    pub mtu: u8,
    /// Rate code, without its selector.
    pub rate: u8,
    /// Packet lifetime: 4.096 µs × 2^n, without its selector.
    pub packet_lifetime: u8,
    /// Traffic class.
    pub tclass: u8,
    /// The group's partition.
    pub pkey: PKey,
    /// Service level.
    pub sl: u8,
    /// Flow label.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
    /// Scope.
    pub scope: u8,
    /// Join state.
    pub join_state: u8,
}

impl MulticastJoin {
    fn record(&self, endpoint: &EndpointHandle) -> umad_sa_mcmember_record {
        let port_gid = self
            .port_gid
            .or_else(|| endpoint.port().gid(0))
            .unwrap_or_default();
        umad_sa_mcmember_record {
            mgid: self.mgid.0,
            portgid: port_gid.0,
            qkey: Be32::from_host(self.qkey),
            mtu: self.mtu.map_or(0, Limit::to_byte),
            tclass: self.tclass,
            pkey: Be16::from_host(self.pkey.unwrap_or(endpoint.pkey()).0),
            rate: self.rate.map_or(0, Limit::to_byte),
            sl_flow_hop: Be32::from_host(
                u32::from(self.sl & 0xf) << 28 | (self.flow_label & 0xf_ffff) << 8,
            ),
            scope_state: self.scope << 4 | (self.join_state & 0xf),
            ..Default::default()
        }
    }

    pub(super) fn record_and_mask(
        &self,
        endpoint: &EndpointHandle,
    ) -> (umad_sa_mcmember_record, u64) {
        let mut mask = abi::UMAD_SA_MCM_COMP_MASK_MGID
            | abi::UMAD_SA_MCM_COMP_MASK_PORT_GID
            | abi::UMAD_SA_MCM_COMP_MASK_QKEY
            | abi::UMAD_SA_MCM_COMP_MASK_TCLASS
            | abi::UMAD_SA_MCM_COMP_MASK_PKEY
            | abi::UMAD_SA_MCM_COMP_MASK_SL
            | abi::UMAD_SA_MCM_COMP_MASK_FLOW_LABEL
            | abi::UMAD_SA_MCM_COMP_MASK_SCOPE
            | abi::UMAD_SA_MCM_COMP_MASK_JOIN_STATE;
        if self.mtu.is_some() {
            mask |= abi::UMAD_SA_MCM_COMP_MASK_MTU_SEL | abi::UMAD_SA_MCM_COMP_MASK_MTU;
        }
        if self.rate.is_some() {
            mask |= abi::UMAD_SA_MCM_COMP_MASK_RATE_SEL | abi::UMAD_SA_MCM_COMP_MASK_RATE;
        }
        (self.record(endpoint), mask)
    }

    pub(super) fn leave_record_and_mask(
        &self,
        endpoint: &EndpointHandle,
    ) -> (umad_sa_mcmember_record, u64) {
        let mask = abi::UMAD_SA_MCM_COMP_MASK_MGID
            | abi::UMAD_SA_MCM_COMP_MASK_PORT_GID
            | abi::UMAD_SA_MCM_COMP_MASK_JOIN_STATE;
        (self.record(endpoint), mask)
    }
}

impl MulticastMember {
    /// Reads the record at the front of an SA MAD's data.
    pub(super) fn from_data(data: &[u8; UMAD_LEN_SA_DATA]) -> Self {
        let be16 = |at: usize| u16::from_be_bytes([data[at], data[at + 1]]);
        let be32 =
            |at: usize| u32::from_be_bytes([data[at], data[at + 1], data[at + 2], data[at + 3]]);
        let gid = |at: usize| Gid(std::array::from_fn(|index| data[at + index]));
        let sl_flow_hop = be32(44);
        Self {
            mgid: gid(0),
            port_gid: gid(16),
            qkey: be32(32),
            mlid: Lid(be16(36)),
            mtu: data[38] & 0x3f,
            tclass: data[39],
            pkey: PKey(be16(40)),
            rate: data[42] & 0x3f,
            packet_lifetime: data[43] & 0x3f,
            sl: (sl_flow_hop >> 28) as u8,
            flow_label: sl_flow_hop >> 8 & 0xf_ffff,
            hop_limit: sl_flow_hop as u8,
            scope: data[48] >> 4,
            join_state: data[48] & 0xf,
        }
    }
}

/// Returns the record in the form of an SA MAD's data.
pub(super) fn to_bytes(
    record: &umad_sa_mcmember_record,
) -> [u8; size_of::<umad_sa_mcmember_record>()] {
    // SAFETY: a repr(C) structure of bytes and big-endian integers: no padding, no invalid values.
    unsafe { std::mem::transmute(*record) }
}
