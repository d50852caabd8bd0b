//! `<infiniband/umad_types.h>` (libibumad): headers, classes, methods and status of MADs.
//!
//! InfiniBand Architecture Specification, volume 1, section 13.4. The constants are numbers in host
//! byte order.

use super::{Be16, Be32, Be64};

/// [`umad_hdr::base_version`] of every MAD.
pub const UMAD_BASE_VERSION: u8 = 1;
/// The queue key of queue pair 1.
pub const UMAD_QKEY: u32 = 0x8001_0000;

/// Management class: subnet management, routed by LID.
pub const UMAD_CLASS_SUBN_LID_ROUTED: u8 = 0x01;
/// Management class: subnet management, routed hop by hop.
pub const UMAD_CLASS_SUBN_DIRECTED_ROUTE: u8 = 0x81;
/// Management class: subnet administration, the SA.
pub const UMAD_CLASS_SUBN_ADM: u8 = 0x03;
/// Management class: performance counters.
pub const UMAD_CLASS_PERF_MGMT: u8 = 0x04;
/// Management class: baseboard management.
pub const UMAD_CLASS_BM: u8 = 0x05;
/// Management class: device management.
pub const UMAD_CLASS_DEVICE_MGMT: u8 = 0x06;
/// Management class: connection management.
pub const UMAD_CLASS_CM: u8 = 0x07;
/// Management class: SNMP tunnelling.
pub const UMAD_CLASS_SNMP: u8 = 0x08;
/// First of the vendors' classes without RMPP.
pub const UMAD_CLASS_VENDOR_RANGE1_START: u8 = 0x09;
/// Last of the vendors' classes without RMPP.
pub const UMAD_CLASS_VENDOR_RANGE1_END: u8 = 0x0F;
/// First of the applications' classes.
pub const UMAD_CLASS_APPLICATION_START: u8 = 0x10;
/// Management class: device administration.
pub const UMAD_CLASS_DEVICE_ADM: u8 = UMAD_CLASS_APPLICATION_START;
/// Management class: boot management.
pub const UMAD_CLASS_BOOT_MGMT: u8 = 0x11;
/// Management class: BIS.
pub const UMAD_CLASS_BIS: u8 = 0x12;
/// Management class: congestion control.
pub const UMAD_CLASS_CONG_MGMT: u8 = 0x21;
/// Last of the applications' classes; ACM's own 0x2C lies in this range.
pub const UMAD_CLASS_APPLICATION_END: u8 = 0x2F;
/// First of the vendors' classes with RMPP.
pub const UMAD_CLASS_VENDOR_RANGE2_START: u8 = 0x30;
/// Last of the vendors' classes with RMPP.
pub const UMAD_CLASS_VENDOR_RANGE2_END: u8 = 0x4F;

/// Method: read an attribute.
pub const UMAD_METHOD_GET: u8 = 0x01;
/// Method: write an attribute; at the SA: create a record, join a group.
pub const UMAD_METHOD_SET: u8 = 0x02;
/// Method: the response to [`UMAD_METHOD_GET`] and [`UMAD_METHOD_SET`].
pub const UMAD_METHOD_GET_RESP: u8 = 0x81;
/// Method: a datagram without a response.
pub const UMAD_METHOD_SEND: u8 = 0x03;
/// Method: a notice of an event.
pub const UMAD_METHOD_TRAP: u8 = 0x05;
/// Method: a trap forwarded to a subscriber.
pub const UMAD_METHOD_REPORT: u8 = 0x06;
/// Method: the response to [`UMAD_METHOD_REPORT`].
pub const UMAD_METHOD_REPORT_RESP: u8 = 0x86;
/// Method: a trap was received, stop repeating it.
pub const UMAD_METHOD_TRAP_REPRESS: u8 = 0x07;
/// The bit that marks a method as a response.
pub const UMAD_METHOD_RESP_MASK: u8 = 0x80;

/// Status: success.
pub const UMAD_STATUS_SUCCESS: u16 = 0x0000;
/// Status: busy, try again.
pub const UMAD_STATUS_BUSY: u16 = 0x0001;
/// Status: redirected, send the request elsewhere.
pub const UMAD_STATUS_REDIRECT: u16 = 0x0002;
/// Status, invalid field code: the version of base or class is not supported.
pub const UMAD_STATUS_BAD_VERSION: u16 = 1 << 2;
/// Status, invalid field code: the method is not supported.
pub const UMAD_STATUS_METHOD_NOT_SUPPORTED: u16 = 2 << 2;
/// Status, invalid field code: the attribute does not support the method.
pub const UMAD_STATUS_ATTR_NOT_SUPPORTED: u16 = 3 << 2;
/// Status, invalid field code: a value in the attribute or its modifier is not valid.
pub const UMAD_STATUS_INVALID_ATTR_VALUE: u16 = 7 << 2;
/// The bits of a status that hold the invalid field code.
pub const UMAD_STATUS_INVALID_FIELD_MASK: u16 = 0x001C;
/// The bits of a status that belong to the management class.
pub const UMAD_STATUS_CLASS_MASK: u16 = 0xFF00;

/// Attribute of several classes: what the class at this port supports.
pub const UMAD_ATTR_CLASS_PORT_INFO: u16 = 0x0001;
/// Attribute of several classes: the content of a trap.
pub const UMAD_ATTR_NOTICE: u16 = 0x0002;
/// Attribute of several classes: a subscription to traps.
pub const UMAD_ATTR_INFORM_INFO: u16 = 0x0003;

/// [`umad_rmpp_hdr::rmpp_version`] of a MAD that uses RMPP.
pub const UMAD_RMPP_VERSION: u8 = 1;
/// The bit of [`umad_rmpp_hdr::rmpp_rtime_flags`] that says that RMPP is active.
pub const UMAD_RMPP_FLAG_ACTIVE: u8 = 1;

/// Length of the data after the header of a plain MAD, in bytes.
pub const UMAD_LEN_DATA: usize = 232;
/// Length of the data after the header of an RMPP MAD, in bytes.
pub const UMAD_LEN_RMPP_DATA: usize = 220;
/// Length of the data in a device management MAD, in bytes.
pub const UMAD_LEN_DM_DATA: usize = 192;
/// Length of the data in a vendor's MAD with an OUI, in bytes.
pub const UMAD_LEN_VENDOR_DATA: usize = 216;

/// The header of every MAD, 24 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(C)]
pub struct umad_hdr {
    /// [`UMAD_BASE_VERSION`].
    pub base_version: u8,
    /// A `UMAD_CLASS_` code.
    pub mgmt_class: u8,
    /// The version of the class, 2 for the SA.
    pub class_version: u8,
    /// A `UMAD_METHOD_` or `UMAD_SA_METHOD_` code.
    pub method: u8,
    /// 0 in a request. In a response, a code of the class in the high byte and a `UMAD_STATUS_` code in the low
    /// byte: either one means failure.
    pub status: Be16,
    /// Used for directed routes only.
    pub class_specific: Be16,
    /// Chosen by the sender and repeated in the response. Only the low 32 bits are the sender's: the kernel
    /// overwrites the high ones.
    pub tid: Be64,
    /// A `UMAD_ATTR_` or `UMAD_SA_ATTR_` code.
    pub attr_id: Be16,
    /// Zero.
    pub resv: Be16,
    /// Part or port of the attribute; 0 for the SA.
    pub attr_mod: Be32,
}

/// The 12 bytes after [`umad_hdr`], which divide a long message into segments.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(C)]
pub struct umad_rmpp_hdr {
    /// [`UMAD_RMPP_VERSION`], or 0 without RMPP.
    pub rmpp_version: u8,
    /// 1 data, 2 acknowledgement, 3 stop, 4 abort.
    pub rmpp_type: u8,
    /// Response time in bits 7 to 3, flags in bits 2 to 0.
    pub rmpp_rtime_flags: u8,
    /// 0 unless stopped or aborted.
    pub rmpp_status: u8,
    /// The segment's number, from 1.
    pub seg_num: Be32,
    /// In data the length of the payload in bytes, in an acknowledgement the last segment of the new window.
    pub paylen_newwin: Be32,
}

/// A plain MAD, 256 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct umad_packet {
    /// The header.
    pub mad_hdr: umad_hdr,
    /// The data, in network byte order.
    pub data: [u8; UMAD_LEN_DATA],
}

/// A MAD with RMPP, 256 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct umad_rmpp_packet {
    /// The header.
    pub mad_hdr: umad_hdr,
    /// The segment's header.
    pub rmpp_hdr: umad_rmpp_hdr,
    /// The data, in network byte order.
    pub data: [u8; UMAD_LEN_RMPP_DATA],
}

impl Default for umad_packet {
    fn default() -> Self {
        Self {
            mad_hdr: umad_hdr::default(),
            data: [0; UMAD_LEN_DATA],
        }
    }
}

impl Default for umad_rmpp_packet {
    fn default() -> Self {
        Self {
            mad_hdr: umad_hdr::default(),
            rmpp_hdr: umad_rmpp_hdr::default(),
            data: [0; UMAD_LEN_RMPP_DATA],
        }
    }
}
