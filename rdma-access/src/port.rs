//! A port's attributes.

use crate::address::Lid;

/// A subset of `struct ibv_port_attr`: the fields that matter to more than a subnet manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortAttributes {
    /// Logical state.
    pub state: PortState,
    /// Link layer.
    pub link_layer: LinkLayer,
    /// Base LID; 0 without one.
    pub lid: Lid,
    /// LMC: the port answers to `2^lmc` LIDs.
    pub lmc: u8,
    /// LID of the subnet manager.
    pub sm_lid: Lid,
    /// Service level to the subnet manager.
    pub sm_sl: u8,
    /// Largest MTU, as the architecture's code: 1 is 256 bytes, each further step doubles it.
    pub max_mtu: u8,
    /// MTU in use, as the architecture's code.
    pub active_mtu: u8,
    /// Active width (1, 2, 4, 8, 16: 1x, 4x, 8x, 12x, 2x).
    pub active_width: u8,
    /// Active speed of a lane (1 SDR, 2 DDR, 4 QDR, 8 FDR10, 16 FDR, 32 EDR, 64 HDR; faster ones need a newer
    /// query).
    pub active_speed: u8,
    /// Expected response time of the subnet manager: 4.096 us * 2^n.
    pub subnet_timeout: u8,
    /// Length of the GID table.
    pub gid_table_length: u16,
    /// Length of the P_Key table.
    pub pkey_table_length: u16,
    /// Capability bits (`enum ibv_port_cap_flags`).
    pub capabilities: u32,
}

/// Logical state of a port (`enum ibv_port_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortState(pub u32);

impl PortState {
    /// No link.
    pub const DOWN: Self = Self(1);
    /// Linked, waiting for the subnet manager.
    pub const INIT: Self = Self(2);
    /// Set up by the subnet manager, not yet in use.
    pub const ARMED: Self = Self(3);
    /// In use.
    pub const ACTIVE: Self = Self(4);
}

/// A port's link layer (`IBV_LINK_LAYER_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkLayer(pub u8);

impl LinkLayer {
    /// Reported by older kernels for InfiniBand.
    pub const UNSPECIFIED: Self = Self(0);
    /// InfiniBand.
    pub const INFINIBAND: Self = Self(1);
    /// Ethernet: RoCE or iWARP.
    pub const ETHERNET: Self = Self(2);
}
