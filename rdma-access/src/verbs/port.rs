//! Converts a port's attributes from libibverbs' structure.

use ibverbs_sys as ffi;

use crate::address::Lid;
use crate::port::{LinkLayer, PortAttributes, PortState};

impl From<&ffi::ibv_port_attr> for PortAttributes {
    fn from(c: &ffi::ibv_port_attr) -> Self {
        Self {
            state: PortState(c.state),
            link_layer: LinkLayer(c.link_layer),
            lid: Lid(c.lid),
            lmc: c.lmc,
            sm_lid: Lid(c.sm_lid),
            sm_sl: c.sm_sl,
            max_mtu: u8::try_from(c.max_mtu).unwrap_or(0),
            active_mtu: u8::try_from(c.active_mtu).unwrap_or(0),
            active_width: c.active_width,
            active_speed: c.active_speed,
            subnet_timeout: c.subnet_timeout,
            gid_table_length: u16::try_from(c.gid_tbl_len).unwrap_or(u16::MAX),
            pkey_table_length: c.pkey_tbl_len,
            capabilities: c.port_cap_flags,
        }
    }
}
