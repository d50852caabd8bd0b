//! `<infiniband/acm.h>` (ibacm): the messages between the daemon and its local clients.

use core::ffi::c_int;
use core::fmt;

use super::{Be16, Be64, ibv_path_record};

/// [`acm_hdr::version`] of every message.
pub const ACM_VERSION: u8 = 1;

/// The bits of [`acm_hdr::opcode`] that hold the operation.
pub const ACM_OP_MASK: u8 = 0x0F;
/// The bit of [`acm_hdr::opcode`] that marks a response.
pub const ACM_OP_ACK: u8 = 0x80;

codes! {
    /// The operation of a message; a response also has [`ACM_OP_ACK`] set. C has plain `ACM_OP_` constants.
    /// `acm.h`
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
    /// The result of a request. C has plain `ACM_STATUS_` constants. `acm.h`
    pub struct AcmStatus(u8), prefix "ACM_STATUS_" {
        /// Success.
        SUCCESS = 0,
        /// Out of memory.
        ENOMEM = 1,
        /// The request is not valid.
        EINVAL = 2,
        /// The destination does not exist, or is not known yet.
        ENODATA = 3,
        /// Not connected.
        ENOTCONN = 5,
        /// No answer in time.
        ETIMEDOUT = 6,
        /// The source address is not an address of this host.
        ESRCADDR = 7,
        /// The type of the source address is not supported.
        ESRCTYPE = 8,
        /// The destination address is not valid.
        EDESTADDR = 9,
        /// The type of the destination address is not supported.
        EDESTTYPE = 10,
    }
}

/// Flag of an [`acm_ep_addr_data`]: ask the SA even if the answer is cached. `acm.h`
pub const ACM_FLAGS_QUERY_SA: u32 = 1 << 31;
/// Flag of an [`acm_ep_addr_data`]: answer at once from what is cached. `acm.h`
pub const ACM_FLAGS_NODELAY: u32 = 1 << 30;

/// Length of an [`acm_hdr`] in bytes. `acm.h`
pub const ACM_MSG_HDR_LENGTH: usize = 16;
/// Length of an address in bytes. `acm.h`
pub const ACM_MAX_ADDRESS: usize = 64;
/// Length of an [`acm_ep_addr_data`] in bytes. `acm.h`
pub const ACM_MSG_EP_LENGTH: usize = 72;
/// Maximum length of a provider's name in bytes, including its NUL. `acm.h`
pub const ACM_MAX_PROV_NAME: usize = 64;
/// Maximum length of a message in bytes after the header: eight entries. `acm.h`
pub const ACM_MSG_DATA_LENGTH: usize = ACM_MSG_EP_LENGTH * 8;

/// The header of every message, 16 bytes. `acm.h`
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct acm_hdr {
    /// [`ACM_VERSION`].
    pub version: u8,
    /// The operation.
    pub opcode: AcmOpcode,
    /// In a response, the result.
    pub status: AcmStatus,
    /// When the core calls a provider's `resolve`: `src_out`, `src_index`, `dst_index` (C has macros of these
    /// names). In responses with counters, the number of counters. In a [`PATH`](AcmEpType::PATH) request,
    /// whatever the client sent.
    pub data: [u8; 3],
    /// Length of the whole message in bytes. In host byte order in a resolve message, big-endian in all others;
    /// only the opcode tells which.
    pub length: u16,
    /// The client's transaction ID, returned unchanged; no byte order.
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
    /// A GID, 16 bytes. The core accepts it from clients although `acm.h` does not define it (the header of
    /// ibacm's network protocol does).
    pub const ADDRESS_GID: Self = Self(0x0004);
    /// A LID, 2 bytes in network byte order. The core accepts it from clients although `acm.h` does not define
    /// it (the header of ibacm's network protocol does).
    pub const ADDRESS_LID: Self = Self(0x0005);
}

/// An address or a path; the entry's `type` says which. `acm.h`
///
/// Bytes after an address's own length have any content.
#[derive(Clone, Copy)]
#[repr(C)]
pub union acm_ep_info {
    /// An address in network byte order.
    pub addr: [u8; ACM_MAX_ADDRESS],
    /// A name; not always NUL-terminated.
    pub name: [u8; ACM_MAX_ADDRESS],
    /// A path, in network byte order.
    pub path: ibv_path_record,
}

impl acm_ep_info {
    /// Returns the 64 bytes, whatever they mean.
    pub const fn bytes(&self) -> &[u8; ACM_MAX_ADDRESS] {
        // SAFETY: every variant fills all 64 bytes without padding, and bytes have no invalid value.
        unsafe { &self.addr }
    }

    /// Returns the 64 bytes as a path record.
    pub const fn path(&self) -> &ibv_path_record {
        // SAFETY: every variant fills all 64 bytes, the union has the record's alignment, and every byte
        // pattern is a valid record.
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
    /// In a request `ACM_EP_FLAG_` and `ACM_FLAGS_` bits, in a response `IBV_PATH_FLAG_` bits; in host byte
    /// order.
    pub flags: u32,
    /// The kind of `info`, in host byte order.
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

/// A resolve message of any length. It is used on the local socket only, so only addresses and paths are in
/// network byte order. `acm.h`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct acm_resolve_msg {
    /// The header.
    pub hdr: acm_hdr,
    /// Start of the entries.
    pub data: [acm_ep_addr_data; 0],
}

codes! {
    /// A counter: its index in the array of counters. C has a nameless enum. `acm.h`
    pub struct AcmCounter(c_int), prefix "ACM_CNTR_" {
        /// Requests that failed.
        ERROR = 0,
        /// Resolve requests.
        RESOLVE = 1,
        /// Requests answered with ENODATA.
        NODATA = 2,
        /// Address queries on the network.
        ADDR_QUERY = 3,
        /// Address cache hits.
        ADDR_CACHE = 4,
        /// Route queries on the network.
        ROUTE_QUERY = 5,
        /// Route cache hits.
        ROUTE_CACHE = 6,
    }
}

/// The number of counters. `acm.h`
pub const ACM_MAX_COUNTER: usize = 7;

/// A message with counters; all but `tid` is in network byte order. `acm.h`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct acm_perf_msg {
    /// The header.
    pub hdr: acm_hdr,
    /// Start of the counters.
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
    /// The device's number of ports.
    pub phys_port_cnt: u8,
    /// Zero.
    pub rsvd: [u8; 2],
    /// The endpoint's P_Key.
    pub pkey: Be16,
    /// The number of addresses that follow.
    pub addr_cnt: Be16,
    /// The provider's name, NUL-terminated.
    pub prov_name: [u8; ACM_MAX_PROV_NAME],
    /// Start of the addresses' texts.
    pub addrs: [acm_ep_info; 0],
}

/// A message with endpoints; all but `tid` is in network byte order. `acm.h`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct acm_ep_query_msg {
    /// The header.
    pub hdr: acm_hdr,
    /// Start of the endpoints.
    pub data: [acm_ep_config_data; 0],
}

/// A message with room for the maximum length, 592 bytes. `acm.h`
///
/// Bytes after `hdr.length` are undefined.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct acm_msg {
    /// The header.
    pub hdr: acm_hdr,
    /// The part after the header; nameless in C.
    pub body: acm_msg_body,
}

/// The part of a message after the header; a nameless union inside `struct acm_msg`. `acm.h`
#[derive(Clone, Copy)]
#[repr(C)]
pub union acm_msg_body {
    /// The bytes.
    pub data: [u8; ACM_MSG_DATA_LENGTH],
    /// Start of a resolve message's entries.
    pub resolve_data: [acm_ep_addr_data; 0],
    /// Start of the counters, in network byte order.
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
    /// Formats the header only, because it alone does not say what the body holds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("acm_msg")
            .field("hdr", &self.hdr)
            .finish_non_exhaustive()
    }
}
