//! The small part of `<infiniband/verbs.h>` (libibverbs) that the provider interface uses.

use core::ffi::{c_int, c_uint};
use core::fmt;
use core::hash::{Hash, Hasher};
use core::marker::{PhantomData, PhantomPinned};
use core::net::Ipv6Addr;

use super::{Be16, Be64};

/// An open device of libibverbs, used only through a pointer. `verbs.h`
///
/// The core opens it and keeps it open as long as the process lives.
#[derive(Debug)]
#[repr(C)]
pub struct ibv_context {
    _opaque: [u8; 0],
    _not_send_sync_unpin: PhantomData<(*mut u8, PhantomPinned)>,
}

/// A GID: the 128-bit address of a port, in network byte order. `verbs.h`
///
/// Aligned to 8 bytes; [`umad_gid`](super::umad_gid) is the same value aligned to 4.
#[derive(Clone, Copy)]
#[repr(C)]
pub union ibv_gid {
    /// The 16 bytes in wire order.
    pub raw: [u8; 16],
    /// The two halves.
    pub global: ibv_gid_global,
}

/// The two halves of a GID; a nameless structure inside `union ibv_gid`. `verbs.h`
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
#[repr(C)]
pub struct ibv_gid_global {
    /// The subnet's prefix, by default `fe80::/64`.
    pub subnet_prefix: Be64,
    /// Usually the port's GUID.
    pub interface_id: Be64,
}

impl ibv_gid {
    /// Makes a GID of its 16 bytes in wire order.
    pub const fn from_bytes(raw: [u8; 16]) -> Self {
        Self { raw }
    }

    /// Returns the 16 bytes in wire order.
    pub const fn bytes(&self) -> [u8; 16] {
        // SAFETY: both variants fill all 16 bytes, and bytes have no invalid value.
        unsafe { self.raw }
    }
}

impl Default for ibv_gid {
    /// Returns the GID `::`, which means "none".
    fn default() -> Self {
        Self::from_bytes([0; 16])
    }
}

impl PartialEq for ibv_gid {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for ibv_gid {}

impl Hash for ibv_gid {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.bytes().hash(state);
    }
}

impl fmt::Debug for ibv_gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Ipv6Addr::from(self.bytes()))
    }
}

codes! {
    /// An asynchronous event: C's `enum ibv_event_type`. `verbs.h`
    ///
    /// The core passes only [`CLIENT_REREGISTER`](Self::CLIENT_REREGISTER) to providers.
    pub struct ibv_event_type(c_uint), prefix "IBV_EVENT_" {
        /// A completion queue is in error.
        CQ_ERR = 0,
        /// A queue pair went to the error state.
        QP_FATAL = 1,
        /// An invalid request reached a queue pair.
        QP_REQ_ERR = 2,
        /// A remote access violated a queue pair's rights.
        QP_ACCESS_ERR = 3,
        /// Data arrived on a queue pair that is not yet ready to send.
        COMM_EST = 4,
        /// A queue pair's send queue was drained as requested.
        SQ_DRAINED = 5,
        /// A connection moved to its alternate path.
        PATH_MIG = 6,
        /// A connection failed to move to its alternate path.
        PATH_MIG_ERR = 7,
        /// The device no longer works.
        DEVICE_FATAL = 8,
        /// A port became active.
        PORT_ACTIVE = 9,
        /// A port's link went down.
        PORT_ERR = 10,
        /// A port got another LID.
        LID_CHANGE = 11,
        /// A port's P_Key table changed.
        PKEY_CHANGE = 12,
        /// Another subnet manager took over.
        SM_CHANGE = 13,
        /// A shared receive queue is in error.
        SRQ_ERR = 14,
        /// A shared receive queue fell to its limit.
        SRQ_LIMIT_REACHED = 15,
        /// The last receive of a queue pair with a shared receive queue is done.
        QP_LAST_WQE_REACHED = 16,
        /// The subnet manager asks every client to subscribe and join again.
        CLIENT_REREGISTER = 17,
        /// A port's GID table changed.
        GID_CHANGE = 18,
        /// A work queue is in error.
        WQ_FATAL = 19,
    }
}

codes! {
    /// A path MTU: C's `enum ibv_mtu`, which is also InfiniBand's code on the wire. `verbs.h`
    pub struct ibv_mtu(c_uint), prefix "" {
        /// 256 bytes.
        IBV_MTU_256 = 1,
        /// 512 bytes.
        IBV_MTU_512 = 2,
        /// 1024 bytes.
        IBV_MTU_1024 = 3,
        /// 2048 bytes.
        IBV_MTU_2048 = 4,
        /// 4096 bytes.
        IBV_MTU_4096 = 5,
    }
}

codes! {
    /// A path rate: C's `enum ibv_rate`, which is also InfiniBand's code on the wire. `verbs.h`
    ///
    /// The codes are not in the order of the speeds.
    pub struct ibv_rate(c_uint), prefix "" {
        /// The maximum of the port; the core's `acm_get_rate` also returns it for unknown speeds.
        IBV_RATE_MAX = 0,
        /// 2.5 Gb/s.
        IBV_RATE_2_5_GBPS = 2,
        /// 5 Gb/s.
        IBV_RATE_5_GBPS = 5,
        /// 10 Gb/s.
        IBV_RATE_10_GBPS = 3,
        /// 20 Gb/s.
        IBV_RATE_20_GBPS = 6,
        /// 30 Gb/s.
        IBV_RATE_30_GBPS = 4,
        /// 40 Gb/s.
        IBV_RATE_40_GBPS = 7,
        /// 60 Gb/s.
        IBV_RATE_60_GBPS = 8,
        /// 80 Gb/s.
        IBV_RATE_80_GBPS = 9,
        /// 120 Gb/s.
        IBV_RATE_120_GBPS = 10,
        /// 14 Gb/s.
        IBV_RATE_14_GBPS = 11,
        /// 56 Gb/s.
        IBV_RATE_56_GBPS = 12,
        /// 112 Gb/s.
        IBV_RATE_112_GBPS = 13,
        /// 168 Gb/s.
        IBV_RATE_168_GBPS = 14,
        /// 25 Gb/s.
        IBV_RATE_25_GBPS = 15,
        /// 100 Gb/s.
        IBV_RATE_100_GBPS = 16,
        /// 200 Gb/s.
        IBV_RATE_200_GBPS = 17,
        /// 300 Gb/s.
        IBV_RATE_300_GBPS = 18,
        /// 28 Gb/s.
        IBV_RATE_28_GBPS = 19,
        /// 50 Gb/s.
        IBV_RATE_50_GBPS = 20,
        /// 400 Gb/s.
        IBV_RATE_400_GBPS = 21,
        /// 600 Gb/s.
        IBV_RATE_600_GBPS = 22,
        /// 800 Gb/s.
        IBV_RATE_800_GBPS = 23,
        /// 1200 Gb/s.
        IBV_RATE_1200_GBPS = 24,
    }
}

codes! {
    /// The state of a port's link: C's `enum ibv_port_state`. `verbs.h`
    pub struct ibv_port_state(c_uint), prefix "IBV_PORT_" {
        /// No state; in a request, InfiniBand's code for "do not change the state".
        NOP = 0,
        /// No link.
        DOWN = 1,
        /// Link, not yet configured by the subnet manager.
        INIT = 2,
        /// Configured, not yet active.
        ARMED = 3,
        /// In use.
        ACTIVE = 4,
        /// In use with a link error that may pass.
        ACTIVE_DEFER = 5,
    }
}

/// [`_compat_ibv_port_attr::link_layer`] of a driver that does not report it: InfiniBand. `verbs.h`
pub const IBV_LINK_LAYER_UNSPECIFIED: u8 = 0;
/// [`_compat_ibv_port_attr::link_layer`] of an InfiniBand port. `verbs.h`
pub const IBV_LINK_LAYER_INFINIBAND: u8 = 1;
/// [`_compat_ibv_port_attr::link_layer`] of an Ethernet (RoCE) port: no LIDs, no SA. `verbs.h`
pub const IBV_LINK_LAYER_ETHERNET: u8 = 2;

/// A port's attributes as the exported function `ibv_query_port` writes them.
///
/// `verbs.h` declares the type without its fields. They are those that `struct ibv_port_attr` had when the
/// function's symbol version was fixed. That structure still grows; this one never changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct _compat_ibv_port_attr {
    /// The link's state.
    pub state: ibv_port_state,
    /// The largest MTU of the port.
    pub max_mtu: ibv_mtu,
    /// The MTU in use.
    pub active_mtu: ibv_mtu,
    /// Entries in the GID table.
    pub gid_tbl_len: c_int,
    /// PortInfo's CapabilityMask, in host byte order.
    pub port_cap_flags: u32,
    /// The largest message, in bytes.
    pub max_msg_sz: u32,
    /// Packets refused for their P_Key.
    pub bad_pkey_cntr: u32,
    /// Packets refused for their Q_Key.
    pub qkey_viol_cntr: u32,
    /// Entries in the P_Key table.
    pub pkey_tbl_len: u16,
    /// The port's base LID, in host byte order; 0 until the subnet manager assigns one.
    pub lid: u16,
    /// The subnet manager's LID, in host byte order.
    pub sm_lid: u16,
    /// LID mask control: the port has 2^lmc LIDs, starting at its base LID.
    pub lmc: u8,
    /// The code of the number of virtual lanes.
    pub max_vl_num: u8,
    /// The service level that reaches the subnet manager.
    pub sm_sl: u8,
    /// PortInfo's SubnetTimeOut: the subnet's maximum delay is 4.096 us x 2^subnet_timeout.
    pub subnet_timeout: u8,
    /// PortInfo's InitTypeReply.
    pub init_type_reply: u8,
    /// Link width, one bit set: 1 for 1x, 2 for 4x, 4 for 8x, 8 for 12x, 16 for 2x.
    pub active_width: u8,
    /// Link speed, one bit set: 1 SDR, 2 DDR, 4 QDR, 8 FDR10, 16 FDR, 32 EDR, 64 HDR, 128 NDR.
    pub active_speed: u8,
    /// PortInfo's PortPhysicalState: 5 is "link up".
    pub phys_state: u8,
    /// One of the `IBV_LINK_LAYER_` codes.
    pub link_layer: u8,
    /// Flags of `verbs.h` about a port's need for a GRH.
    pub flags: u8,
}

impl Default for _compat_ibv_port_attr {
    /// Returns all zeros, to be filled by `ibv_query_port`.
    fn default() -> Self {
        Self {
            state: ibv_port_state(0),
            max_mtu: ibv_mtu(0),
            active_mtu: ibv_mtu(0),
            gid_tbl_len: 0,
            port_cap_flags: 0,
            max_msg_sz: 0,
            bad_pkey_cntr: 0,
            qkey_viol_cntr: 0,
            pkey_tbl_len: 0,
            lid: 0,
            sm_lid: 0,
            lmc: 0,
            max_vl_num: 0,
            sm_sl: 0,
            subnet_timeout: 0,
            init_type_reply: 0,
            active_width: 0,
            active_speed: 0,
            phys_state: 0,
            link_layer: 0,
            flags: 0,
        }
    }
}

/// `ibv_query_port`: fills `port_attr` with the attributes of port `port_num` (from 1). Returns 0 or an errno.
/// libibverbs, symbol version `IBVERBS_1.1`.
pub type ibv_query_port_fn = unsafe extern "C" fn(
    context: *mut ibv_context,
    port_num: u8,
    port_attr: *mut _compat_ibv_port_attr,
) -> c_int;

/// `ibv_query_pkey`: stores the P_Key at `index` (from 0) of the port's table; an empty entry reads as 0x0000
/// or 0x8000. Returns 0, or non-zero on failure. libibverbs, symbol version `IBVERBS_1.1`.
pub type ibv_query_pkey_fn = unsafe extern "C" fn(
    context: *mut ibv_context,
    port_num: u8,
    index: c_int,
    pkey: *mut Be16,
) -> c_int;

/// `ibv_query_gid`: stores the GID at `index` (from 0) of the port's table. Returns 0, or non-zero on failure.
/// libibverbs, symbol version `IBVERBS_1.1`.
pub type ibv_query_gid_fn = unsafe extern "C" fn(
    context: *mut ibv_context,
    port_num: u8,
    index: c_int,
    gid: *mut ibv_gid,
) -> c_int;
