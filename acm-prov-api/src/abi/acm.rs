//! `<infiniband/acm.h>` (ibacm): the messages between the daemon and its local clients.

use core::ffi::c_int;
use core::fmt;

use super::{Be16, Be64, ibv_path_record};

/// [`acm_hdr::version`] of every message.
pub const ACM_VERSION: u8 = 1;

/// The bits of [`acm_hdr::opcode`] that tell the operation.
pub const ACM_OP_MASK: u8 = 0x0F;
/// The bit of [`acm_hdr::opcode`] that marks an answer.
pub const ACM_OP_ACK: u8 = 0x80;

codes! {
    /// What a message asks for; an answer has [`ACM_OP_ACK`] set besides. C has plain `ACM_OP_`
    /// constants. `acm.h`
    pub struct AcmOpcode(u8), prefix "ACM_OP_" {
        /// Resolve an address to a path.
        RESOLVE = 0x01,
        /// Read counters.
        PERF_QUERY = 0x02,
        /// List endpoints.
        EP_QUERY = 0x03,
    }
}

codes! {
    /// How a request ended. C has plain `ACM_STATUS_` constants. `acm.h`
    pub struct AcmStatus(u8), prefix "ACM_STATUS_" {
        /// Answered.
        SUCCESS = 0,
        /// Out of memory.
        ENOMEM = 1,
        /// The request is not valid.
        EINVAL = 2,
        /// There is no such destination, or none is known yet.
        ENODATA = 3,
        /// Not connected.
        ENOTCONN = 5,
        /// Nobody answered in time.
        ETIMEDOUT = 6,
        /// The source address is not one of this host's.
        ESRCADDR = 7,
        /// The source address is of a type that cannot be used.
        ESRCTYPE = 8,
        /// The destination address is not valid.
        EDESTADDR = 9,
        /// The destination address is of a type that cannot be used.
        EDESTTYPE = 10,
    }
}

/// Flag of an [`acm_ep_addr_data`]: ask the SA, whatever a cache knows. `acm.h`
pub const ACM_FLAGS_QUERY_SA: u32 = 1 << 31;
/// Flag of an [`acm_ep_addr_data`]: answer at once from what is known. `acm.h`
pub const ACM_FLAGS_NODELAY: u32 = 1 << 30;

/// Bytes of an [`acm_hdr`]. `acm.h`
pub const ACM_MSG_HDR_LENGTH: usize = 16;
/// Bytes of an address. `acm.h`
pub const ACM_MAX_ADDRESS: usize = 64;
/// Bytes of an [`acm_ep_addr_data`]. `acm.h`
pub const ACM_MSG_EP_LENGTH: usize = 72;
/// Bytes of a provider's name with its NUL. `acm.h`
pub const ACM_MAX_PROV_NAME: usize = 64;
/// Bytes behind the header of the longest message: eight entries. `acm.h`
pub const ACM_MSG_DATA_LENGTH: usize = ACM_MSG_EP_LENGTH * 8;

/// The head of every message, 16 bytes. `acm.h`
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct acm_hdr {
    /// [`ACM_VERSION`].
    pub version: u8,
    /// The operation.
    pub opcode: AcmOpcode,
    /// In an answer, how it ended.
    pub status: AcmStatus,
    /// On the way from the core to a provider's `resolve`: `src_out`, `src_index`, `dst_index`
    /// (C has macros of these names). In counters' answers the number of counters. For a
    /// [`PATH`](AcmEpType::PATH) request whatever the client sent.
    pub data: [u8; 3],
    /// Bytes of the whole message. In host byte order in a resolve message, big-endian in the
    /// others: which, only the opcode tells.
    pub length: u16,
    /// The client's own mark, to be returned unchanged; no byte order.
    pub tid: u64,
}

impl Default for acm_hdr {
    /// All zero.
    fn default() -> Self {
        Self {
            version: 0,
            opcode: AcmOpcode(0),
            status: AcmStatus(0),
            data: [0; 3],
            length: 0,
            tid: 0,
        }
    }
}

codes! {
    /// The type of an address. C has plain `ACM_EP_INFO_` constants for the types that clients
    /// use. `acm.h`
    pub struct AcmEpType(u16), prefix "ACM_EP_INFO_" {
        /// A host name, NUL-terminated unless it fills all 64 bytes.
        NAME = 0x0001,
        /// An IPv4 address, 4 bytes.
        ADDRESS_IP = 0x0002,
        /// An IPv6 address, 16 bytes.
        ADDRESS_IP6 = 0x0003,
        /// A path record.
        PATH = 0x0010,
    }
}

impl AcmEpType {
    /// A GID, 16 bytes. The core takes it from clients although `acm.h` does not name it (ibacm's
    /// own header for its network protocol does).
    pub const ADDRESS_GID: Self = Self(0x0004);
    /// A LID, 2 bytes in network byte order. The core takes it from clients although `acm.h` does
    /// not name it (ibacm's own header for its network protocol does).
    pub const ADDRESS_LID: Self = Self(0x0005);
}

/// An address or a path, as the type beside it says. `acm.h`
///
/// Bytes past an address's own length are whatever the sender left there.
#[derive(Clone, Copy)]
#[repr(C)]
pub union acm_ep_info {
    /// An address's bytes, in network byte order.
    pub addr: [u8; ACM_MAX_ADDRESS],
    /// A name; not always NUL-terminated.
    pub name: [u8; ACM_MAX_ADDRESS],
    /// A path, in network byte order.
    pub path: ibv_path_record,
}

impl acm_ep_info {
    /// The 64 bytes, whatever they mean.
    pub const fn bytes(&self) -> &[u8; ACM_MAX_ADDRESS] {
        // SAFETY: every variant fills all 64 bytes without padding, and bytes have no invalid value.
        unsafe { &self.addr }
    }

    /// The 64 bytes read as a path record.
    pub const fn path(&self) -> &ibv_path_record {
        // SAFETY: every variant fills all 64 bytes, the union is aligned for the record, and a
        // record of integers and bytes has no invalid value.
        unsafe { &self.path }
    }
}

impl Default for acm_ep_info {
    /// All zero.
    fn default() -> Self {
        Self {
            addr: [0; ACM_MAX_ADDRESS],
        }
    }
}

impl PartialEq for acm_ep_info {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for acm_ep_info {}

impl fmt::Debug for acm_ep_info {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "acm_ep_info(\"{}\")", self.bytes().escape_ascii())
    }
}

/// Flag of an [`acm_ep_addr_data`]: the source. `acm.h`
pub const ACM_EP_FLAG_SOURCE: u32 = 1 << 0;
/// Flag of an [`acm_ep_addr_data`]: the destination. `acm.h`
pub const ACM_EP_FLAG_DEST: u32 = 1 << 1;

/// One entry of a resolve message, 72 bytes: an address or a path. `acm.h`
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct acm_ep_addr_data {
    /// In a request `ACM_EP_FLAG_` and `ACM_FLAGS_` bits, in an answer `IBV_PATH_FLAG_` bits; in
    /// host byte order.
    pub flags: u32,
    /// What `info` holds, in host byte order.
    pub r#type: AcmEpType,
    /// Zero.
    pub reserved: u16,
    /// The address or path.
    pub info: acm_ep_info,
}

impl Default for acm_ep_addr_data {
    /// All zero.
    fn default() -> Self {
        Self {
            flags: 0,
            r#type: AcmEpType(0),
            reserved: 0,
            info: acm_ep_info::default(),
        }
    }
}

/// A resolve message of any length; only on the local socket, so only addresses and paths are in
/// network byte order. `acm.h`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct acm_resolve_msg {
    /// The head.
    pub hdr: acm_hdr,
    /// The entries begin here.
    pub data: [acm_ep_addr_data; 0],
}

codes! {
    /// A counter: an index into the counters' array. C has a nameless enum. `acm.h`
    pub struct AcmCounter(c_int), prefix "ACM_CNTR_" {
        /// Requests that ended in an error.
        ERROR = 0,
        /// Resolve requests.
        RESOLVE = 1,
        /// Requests answered with no data.
        NODATA = 2,
        /// Addresses asked for on the network.
        ADDR_QUERY = 3,
        /// Addresses found in the cache.
        ADDR_CACHE = 4,
        /// Routes asked for on the network.
        ROUTE_QUERY = 5,
        /// Routes found in the cache.
        ROUTE_CACHE = 6,
    }
}

/// The number of counters. `acm.h`
pub const ACM_MAX_COUNTER: usize = 7;

/// A message with counters; all but `tid` is in network byte order. `acm.h`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct acm_perf_msg {
    /// The head.
    pub hdr: acm_hdr,
    /// The counters begin here.
    pub data: [Be64; 0],
}

/// An endpoint and its addresses; numbers are in network byte order. `acm.h`
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct acm_ep_config_data {
    /// The device's node GUID.
    pub dev_guid: Be64,
    /// The port's number, from 1.
    pub port_num: u8,
    /// How many ports the device has.
    pub phys_port_cnt: u8,
    /// Zero.
    pub rsvd: [u8; 2],
    /// The endpoint's P_Key.
    pub pkey: Be16,
    /// How many addresses follow.
    pub addr_cnt: Be16,
    /// The provider's name, NUL-terminated.
    pub prov_name: [u8; ACM_MAX_PROV_NAME],
    /// The addresses' texts begin here.
    pub addrs: [acm_ep_info; 0],
}

/// A message with endpoints; all but `tid` is in network byte order. `acm.h`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct acm_ep_query_msg {
    /// The head.
    pub hdr: acm_hdr,
    /// The endpoints begin here.
    pub data: [acm_ep_config_data; 0],
}

/// A message with room for the longest one, 592 bytes. `acm.h`
///
/// Bytes past `hdr.length` are garbage.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct acm_msg {
    /// The head.
    pub hdr: acm_hdr,
    /// What follows the head; nameless in C.
    pub body: acm_msg_body,
}

/// What follows the head of a message; a nameless union inside `struct acm_msg`. `acm.h`
#[derive(Clone, Copy)]
#[repr(C)]
pub union acm_msg_body {
    /// The bytes.
    pub data: [u8; ACM_MSG_DATA_LENGTH],
    /// A resolve message's entries begin here.
    pub resolve_data: [acm_ep_addr_data; 0],
    /// The counters begin here, in network byte order.
    pub perf_data: [Be64; 0],
    /// An endpoint.
    pub ep_data: acm_ep_config_data,
}

impl Default for acm_msg {
    /// All zero.
    fn default() -> Self {
        Self {
            hdr: acm_hdr::default(),
            body: acm_msg_body {
                data: [0; ACM_MSG_DATA_LENGTH],
            },
        }
    }
}

impl fmt::Debug for acm_msg {
    /// Shows the head only: what the body holds, if anything, the head alone does not tell.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("acm_msg")
            .field("hdr", &self.hdr)
            .finish_non_exhaustive()
    }
}
