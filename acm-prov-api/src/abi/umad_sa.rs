//! `<infiniband/umad_sa.h>` (libibumad): MADs of the subnet administration class.
//!
//! InfiniBand Architecture Specification, volume 1, chapter 15. The constants are numbers in host
//! byte order.

use super::{Be16, Be64, umad_hdr, umad_rmpp_hdr};

/// [`umad_hdr::class_version`] of the SA class.
pub const UMAD_SA_CLASS_VERSION: u8 = 2;

/// SA method: get all matching records.
pub const UMAD_SA_METHOD_GET_TABLE: u8 = 0x12;
/// SA method: the response to [`UMAD_SA_METHOD_GET_TABLE`].
pub const UMAD_SA_METHOD_GET_TABLE_RESP: u8 = 0x92;
/// SA method: delete a record, leave a multicast group.
pub const UMAD_SA_METHOD_DELETE: u8 = 0x15;
/// SA method: the response to [`UMAD_SA_METHOD_DELETE`].
pub const UMAD_SA_METHOD_DELETE_RESP: u8 = 0x95;
/// SA method: get paths between several ports.
pub const UMAD_SA_METHOD_GET_MULTI: u8 = 0x14;
/// SA method: the response to [`UMAD_SA_METHOD_GET_MULTI`].
pub const UMAD_SA_METHOD_GET_MULTI_RESP: u8 = 0x94;
/// SA method: get the route of a path.
pub const UMAD_SA_METHOD_GET_TRACE_TABLE: u8 = 0x13;

/// SA status (high byte of the MAD's status): success.
pub const UMAD_SA_STATUS_SUCCESS: u8 = 0;
/// SA status: no resources at the moment.
pub const UMAD_SA_STATUS_NO_RESOURCES: u8 = 1;
/// SA status: the request is not valid.
pub const UMAD_SA_STATUS_REQ_INVALID: u8 = 2;
/// SA status: no record matches.
pub const UMAD_SA_STATUS_NO_RECORDS: u8 = 3;
/// SA status: more than one record matches a GET.
pub const UMAD_SA_STATUS_TOO_MANY_RECORDS: u8 = 4;
/// SA status: a GID in the request is not valid.
pub const UMAD_SA_STATUS_INVALID_GID: u8 = 5;
/// SA status: the request lacks a required component.
pub const UMAD_SA_STATUS_INSUF_COMPS: u8 = 6;
/// SA status: denied.
pub const UMAD_SA_STATUS_REQ_DENIED: u8 = 7;
/// SA status: success, but the SA suggests another priority.
pub const UMAD_SA_STATUS_PRI_SUGGESTED: u8 = 8;

/// SA attribute: NodeRecord.
pub const UMAD_SA_ATTR_NODE_REC: u16 = 0x0011;
/// SA attribute: PortInfoRecord.
pub const UMAD_SA_ATTR_PORT_INFO_REC: u16 = 0x0012;
/// SA attribute: SLtoVLMappingTableRecord.
pub const UMAD_SA_ATTR_SLVL_REC: u16 = 0x0013;
/// SA attribute: SwitchInfoRecord.
pub const UMAD_SA_ATTR_SWITCH_INFO_REC: u16 = 0x0014;
/// SA attribute: LinearForwardingTableRecord.
pub const UMAD_SA_ATTR_LINEAR_FT_REC: u16 = 0x0015;
/// SA attribute: RandomForwardingTableRecord.
pub const UMAD_SA_ATTR_RANDOM_FT_REC: u16 = 0x0016;
/// SA attribute: MulticastForwardingTableRecord.
pub const UMAD_SA_ATTR_MCAST_FT_REC: u16 = 0x0017;
/// SA attribute: SMInfoRecord.
pub const UMAD_SA_ATTR_SM_INFO_REC: u16 = 0x0018;
/// SA attribute: LinkSpeedWidthPairsTableRecord.
pub const UMAD_SA_ATTR_LINK_SPD_WIDTH_TABLE_REC: u16 = 0x0019;
/// SA attribute: InformInfoRecord.
pub const UMAD_SA_ATTR_INFORM_INFO_REC: u16 = 0x00F3;
/// SA attribute: LinkRecord.
pub const UMAD_SA_ATTR_LINK_REC: u16 = 0x0020;
/// SA attribute: GUIDInfoRecord.
pub const UMAD_SA_ATTR_GUID_INFO_REC: u16 = 0x0030;
/// SA attribute: ServiceRecord.
pub const UMAD_SA_ATTR_SERVICE_REC: u16 = 0x0031;
/// SA attribute: P_KeyTableRecord.
pub const UMAD_SA_ATTR_PKEY_TABLE_REC: u16 = 0x0033;
/// SA attribute: PathRecord, an [`ibv_path_record`](super::ibv_path_record).
pub const UMAD_SA_ATTR_PATH_REC: u16 = 0x0035;
/// SA attribute: VLArbitrationTableRecord.
pub const UMAD_SA_ATTR_VL_ARB_REC: u16 = 0x0036;
/// SA attribute: MCMemberRecord, an
/// [`umad_sa_mcmember_record`](super::umad_sa_mcmember_record).
pub const UMAD_SA_ATTR_MCMEMBER_REC: u16 = 0x0038;
/// SA attribute: TraceRecord.
pub const UMAD_SA_ATTR_TRACE_REC: u16 = 0x0039;
/// SA attribute: MultiPathRecord.
pub const UMAD_SA_ATTR_MULTI_PATH_REC: u16 = 0x003A;
/// SA attribute: ServiceAssociationRecord.
pub const UMAD_SA_ATTR_SERVICE_ASSOC_REC: u16 = 0x003B;
/// SA attribute: HierarchyInfoRecord.
pub const UMAD_SA_ATTR_HIERARCHY_INFO_REC: u16 = 0x003C;
/// SA attribute: CableInfoRecord.
pub const UMAD_SA_ATTR_CABLE_INFO_REC: u16 = 0x003D;
/// SA attribute: PortInfoExtendedRecord.
pub const UMAD_SA_ATTR_PORT_INFO_EXT_REC: u16 = 0x003E;

/// Length of the data in an SA MAD, in bytes.
pub const UMAD_LEN_SA_DATA: usize = 200;

/// ClassPortInfo CapabilityMask of the SA: optional records.
pub const UMAD_SA_CAP_MASK_IS_SUBNET_OPT_REC_SUP: u16 = 1 << 8;
/// ClassPortInfo CapabilityMask of the SA: multicast.
pub const UMAD_SA_CAP_MASK_IS_UD_MCAST_SUP: u16 = 1 << 9;
/// ClassPortInfo CapabilityMask of the SA: MultiPathRecord.
pub const UMAD_SA_CAP_MASK_IS_MULTIPATH_SUP: u16 = 1 << 10;
/// ClassPortInfo CapabilityMask of the SA: reinitialisation.
pub const UMAD_SA_CAP_MASK_IS_REINIT_SUP: u16 = 1 << 11;
/// ClassPortInfo CapabilityMask of the SA: MultiPathRecord by scope of GID.
pub const UMAD_SA_CAP_MASK_IS_GID_SCOPED_MULTIPATH_SUP: u16 = 1 << 12;
/// ClassPortInfo CapabilityMask of the SA: PortInfoRecord by single capability bits.
pub const UMAD_SA_CAP_MASK_IS_PORTINFO_CAP_MASK_MATCH_SUP: u16 = 1 << 13;
/// ClassPortInfo CapabilityMask of the SA: LinkSpeedWidthPairsTableRecord.
pub const UMAD_SA_CAP_MASK_IS_LINK_SPEED_WIDTH_PAIRS_REC_SUP: u16 = 1 << 14;
/// ClassPortInfo CapabilityMask of the SA: performance administration services.
pub const UMAD_SA_CAP_MASK_IS_PA_SERVICES_SUP: u16 = 1 << 15;

/// ClassPortInfo CapabilityMask2 of the SA: notice of lost and regained paths.
pub const UMAD_SA_CAP_MASK2_IS_UNPATH_REPATH_SUP: u32 = 1 << 0;
/// ClassPortInfo CapabilityMask2 of the SA: quality of service.
pub const UMAD_SA_CAP_MASK2_IS_QOS_SUP: u32 = 1 << 1;
/// ClassPortInfo CapabilityMask2 of the SA: the membership bit of a reverse path's P_Key.
pub const UMAD_SA_CAP_MASK2_IS_REV_PATH_PKEY_MEM_BIT_SUP: u32 = 1 << 2;
/// ClassPortInfo CapabilityMask2 of the SA: the topmost switch of a multicast tree.
pub const UMAD_SA_CAP_MASK2_IS_MCAST_TOP_SUP: u32 = 1 << 3;
/// ClassPortInfo CapabilityMask2 of the SA: HierarchyInfoRecord.
pub const UMAD_SA_CAP_MASK2_IS_HIERARCHY_INFO_SUP: u32 = 1 << 4;
/// ClassPortInfo CapabilityMask2 of the SA: additional GUIDs for a port.
pub const UMAD_SA_CAP_MASK2_IS_ADDITIONAL_GUID_SUP: u32 = 1 << 5;
/// ClassPortInfo CapabilityMask2 of the SA: all of PortInfo in PortInfoRecord.
pub const UMAD_SA_CAP_MASK2_IS_FULL_PORTINFO_REC_SUP: u32 = 1 << 6;
/// ClassPortInfo CapabilityMask2 of the SA: extended link speeds.
pub const UMAD_SA_CAP_MASK2_IS_EXT_SPEEDS_SUP: u32 = 1 << 7;
/// ClassPortInfo CapabilityMask2 of the SA: ServiceRecords of multicast groups.
pub const UMAD_SA_CAP_MASK2_IS_MCAST_SERVICE_REC_SUP: u32 = 1 << 8;
/// ClassPortInfo CapabilityMask2 of the SA: CableInfoRecord.
pub const UMAD_SA_CAP_MASK2_IS_CABLE_INFO_REC_SUP: u32 = 1 << 9;
/// ClassPortInfo CapabilityMask2 of the SA: PortInfoRecord by single bits of the second mask.
pub const UMAD_SA_CAP_MASK2_IS_PORT_INFO_CAPMASK2_MATCH_SUP: u32 = 1 << 10;
/// ClassPortInfo CapabilityMask2 of the SA: PortInfoExtendedRecord.
pub const UMAD_SA_CAP_MASK2_IS_PORT_INFO_EXT_REC_SUP: u32 = 1 << 11;

/// Selector of MTU, rate or packet lifetime: more than the value.
pub const UMAD_SA_SELECTOR_GREATER_THAN: u8 = 0;
/// Selector of MTU, rate or packet lifetime: less than the value.
pub const UMAD_SA_SELECTOR_LESS_THAN: u8 = 1;
/// Selector of MTU, rate or packet lifetime: the value.
pub const UMAD_SA_SELECTOR_EXACTLY: u8 = 2;
/// Selector of MTU or rate: the largest available.
pub const UMAD_SA_SELECTOR_LARGEST_AVAIL: u8 = 3;
/// Selector of packet lifetime: the smallest available.
pub const UMAD_SA_SELECTOR_SMALLEST_AVAIL: u8 = 3;

/// Position of the selector in the byte of an MTU, rate or packet lifetime.
pub const UMAD_SA_SELECTOR_SHIFT: u8 = 6;
/// The bits of such a byte that hold the value.
pub const UMAD_SA_RATE_MTU_PKT_LIFE_MASK: u8 = 0x3f;
/// The bits of a selector, shifted down.
pub const UMAD_SA_SELECTOR_MASK: u8 = 0x3;

/// A MAD of the SA class, 256 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct umad_sa_packet {
    /// The header.
    pub mad_hdr: umad_hdr,
    /// The segment's header.
    pub rmpp_hdr: umad_rmpp_hdr,
    /// The SM_Key, in network byte order; zero in a client's request. A byte array because it is
    /// not aligned.
    pub sm_key: [u8; 8],
    /// Distance between records, in units of 8 bytes.
    pub attr_offset: Be16,
    /// Zero.
    pub reserved: Be16,
    /// The components of the record that the query constrains.
    pub comp_mask: Be64,
    /// The record, in network byte order.
    pub data: [u8; UMAD_LEN_SA_DATA],
}

impl Default for umad_sa_packet {
    fn default() -> Self {
        Self {
            mad_hdr: umad_hdr::default(),
            rmpp_hdr: umad_rmpp_hdr::default(),
            sm_key: [0; 8],
            attr_offset: Be16::default(),
            reserved: Be16::default(),
            comp_mask: Be64::default(),
            data: [0; UMAD_LEN_SA_DATA],
        }
    }
}
