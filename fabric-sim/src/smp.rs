//! Subnet management packets: attributes of ports (InfiniBand Architecture Specification, volume 1, sections
//! 14.2.1.2 "directed route", 14.2.5.3 NodeInfo, 14.2.5.5 GUIDInfo, 14.2.5.6 PortInfo, 14.2.5.7 P_KeyTable,
//! 14.4.1 SMInfo).

/// Length of a MAD in bytes.
pub const MAD_SIZE: usize = 256;
/// A MAD as it is on the wire.
pub type Mad = [u8; MAD_SIZE];

/// Management class of subnet management routed by LID.
pub const CLASS_SUBNET_LID_ROUTED: u8 = 0x01;
/// Management class of directed-route subnet management.
pub const CLASS_SUBNET_DIRECTED_ROUTE: u8 = 0x81;
/// Method SubnGet.
pub const METHOD_GET: u8 = 0x01;
/// Method SubnGetResp.
pub const METHOD_GET_RESP: u8 = 0x81;
/// The LID that means "this port".
pub const PERMISSIVE_LID: u16 = 0xffff;

/// The attributes that this crate queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Attribute {
    /// NodeInfo.
    NodeInfo = 0x0011,
    /// GUIDInfo: eight GUIDs a block; the modifier is the block.
    GuidInfo = 0x0014,
    /// PortInfo; the modifier is the port.
    PortInfo = 0x0015,
    /// P_KeyTable: 32 P_Keys a block; the modifier is the block.
    PKeyTable = 0x0016,
    /// SMInfo, of the subnet manager at a port.
    SmInfo = 0x0020,
}

const DATA: usize = 64;
const DATA_SIZE: usize = 64;

/// CapabilityMask of PortInfo: a subnet manager is at the port.
pub const CAPABILITY_IS_SM: u32 = 1 << 1;

/// The route of a SubnGet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// By directed route with hop count 0: the sending port itself.
    Own,
    /// By LID.
    Lid(u16),
}

impl Route {
    /// Returns the management class.
    pub fn class(self) -> u8 {
        match self {
            Self::Own => CLASS_SUBNET_DIRECTED_ROUTE,
            Self::Lid(_) => CLASS_SUBNET_LID_ROUTED,
        }
    }

    /// Returns the destination LID.
    pub fn lid(self) -> u16 {
        match self {
            Self::Own => PERMISSIVE_LID,
            Self::Lid(lid) => lid,
        }
    }
}

/// Makes a SubnGet.
///
/// The caller chooses the low 32 bits of the transaction id; the kernel (or umad2sim) writes the high ones.
pub fn get(route: Route, attribute: Attribute, modifier: u32, transaction: u32) -> Mad {
    let mut mad = [0; MAD_SIZE];
    mad[0] = 1; // base version
    mad[1] = route.class();
    mad[2] = 1; // class version
    mad[3] = METHOD_GET;
    mad[12..16].copy_from_slice(&transaction.to_be_bytes());
    mad[16..18].copy_from_slice(&(attribute as u16).to_be_bytes());
    mad[20..24].copy_from_slice(&modifier.to_be_bytes());
    if route == Route::Own {
        mad[32..34].copy_from_slice(&PERMISSIVE_LID.to_be_bytes()); // DrSLID
        mad[34..36].copy_from_slice(&PERMISSIVE_LID.to_be_bytes()); // DrDLID
    }
    mad
}

/// Returns the attribute data of a response, or its status if that is not 0. `None`: not a response to that
/// query.
pub fn answer(
    mad: &Mad,
    route: Route,
    attribute: Attribute,
    modifier: u32,
) -> Option<Result<[u8; DATA_SIZE], u16>> {
    let answers = mad[1] == route.class()
        && mad[3] == METHOD_GET_RESP
        && u16_at(mad, 16) == attribute as u16
        && u32_at(mad, 20) == modifier;
    if !answers {
        return None;
    }
    // Bit 15 of a directed-route response's status is the direction.
    Some(match u16_at(mad, 4) & 0x7fff {
        0 => Ok(mad[DATA..DATA + DATA_SIZE]
            .try_into()
            .expect("a slice of that length")),
        status => Err(status),
    })
}

fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    u16::from_be_bytes([bytes[offset], bytes[offset + 1]])
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from(u16_at(bytes, offset)) << 16 | u32::from(u16_at(bytes, offset + 2))
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from(u32_at(bytes, offset)) << 32 | u64::from(u32_at(bytes, offset + 4))
}

/// NodeInfo, in host byte order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeInfo {
    /// Number of ports.
    pub port_count: u8,
    /// GUID of the system.
    pub system_image_guid: u64,
    /// GUID of the node.
    pub node_guid: u64,
    /// GUID of the queried port.
    pub port_guid: u64,
    /// Number of entries of each port's P_Key table.
    pub partition_cap: u16,
    /// Device ID.
    pub device_id: u16,
    /// Revision.
    pub revision: u32,
    /// The queried port.
    pub local_port: u8,
    /// Vendor ID, 24 bits.
    pub vendor_id: u32,
}

impl NodeInfo {
    /// Parses the attribute's data.
    pub fn read(data: &[u8; DATA_SIZE]) -> Self {
        Self {
            port_count: data[3],
            system_image_guid: u64_at(data, 4),
            node_guid: u64_at(data, 12),
            port_guid: u64_at(data, 20),
            partition_cap: u16_at(data, 28),
            device_id: u16_at(data, 30),
            revision: u32_at(data, 32),
            local_port: data[36],
            vendor_id: u32_at(data, 36) & 0x00ff_ffff,
        }
    }
}

/// PortInfo, the part that verbs report. Numbers in host byte order, codes as on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortInfo {
    /// Upper half of the port's GIDs.
    pub gid_prefix: u64,
    /// Base LID.
    pub lid: u16,
    /// LID of the master subnet manager.
    pub sm_lid: u16,
    /// CapabilityMask.
    pub capability_mask: u32,
    /// LinkWidthActive.
    pub width_active: u8,
    /// LinkSpeedActive, 4 bits.
    pub speed_active: u8,
    /// LinkSpeedExtActive, 4 bits; 0 if not in use.
    pub speed_ext_active: u8,
    /// PortState: 1 down, 2 initialize, 3 armed, 4 active.
    pub state: u8,
    /// PortPhysicalState.
    pub physical_state: u8,
    /// LID mask control.
    pub lmc: u8,
    /// NeighborMTU (the port's active MTU), IB code.
    pub neighbor_mtu: u8,
    /// MTUCap, IB code.
    pub mtu_cap: u8,
    /// SL to the subnet manager.
    pub sm_sl: u8,
    /// VLCap.
    pub vl_cap: u8,
    /// InitTypeReply.
    pub init_type_reply: u8,
    /// P_KeyViolations.
    pub pkey_violations: u16,
    /// Q_KeyViolations.
    pub qkey_violations: u16,
    /// Number of entries of the GUID table.
    pub guid_cap: u8,
    /// ClientReregister: a subnet manager asks ports to subscribe and join multicast groups again.
    pub client_reregister: bool,
    /// SubnetTimeOut: 4.096 us x 2^n.
    pub subnet_timeout: u8,
}

impl PortInfo {
    /// Parses the attribute's data.
    pub fn read(data: &[u8; DATA_SIZE]) -> Self {
        Self {
            gid_prefix: u64_at(data, 8),
            lid: u16_at(data, 16),
            sm_lid: u16_at(data, 18),
            capability_mask: u32_at(data, 20),
            width_active: data[31],
            state: data[32] & 0x0f,
            physical_state: data[33] >> 4,
            lmc: data[34] & 0x07,
            speed_active: data[35] >> 4,
            neighbor_mtu: data[36] >> 4,
            sm_sl: data[36] & 0x0f,
            vl_cap: data[37] >> 4,
            mtu_cap: data[41] & 0x0f,
            init_type_reply: data[41] >> 4,
            pkey_violations: u16_at(data, 46),
            qkey_violations: u16_at(data, 48),
            guid_cap: data[50],
            client_reregister: data[51] & 0x80 != 0,
            subnet_timeout: data[51] & 0x1f,
            speed_ext_active: data[62] >> 4,
        }
    }
}

/// Returns ActCount of an SMInfo: the activity of the subnet manager since its start. OpenSM counts the subnet
/// management packets that it sent.
pub fn manager_activity(data: &[u8; DATA_SIZE]) -> u32 {
    u32_at(data, 16)
}

/// Returns whether an SMInfo is from the master; a new subnet manager first discovers the subnet.
pub fn is_master(data: &[u8; DATA_SIZE]) -> bool {
    const STATE_MASTER: u8 = 3;
    data[20] & 0x0f == STATE_MASTER
}

/// Returns the P_Keys of a block of the P_Key table, in host byte order.
pub fn pkeys(data: &[u8; DATA_SIZE]) -> [u16; 32] {
    std::array::from_fn(|index| u16_at(data, 2 * index))
}

/// Returns the GUIDs of a block of the GUID table, in host byte order.
pub fn guids(data: &[u8; DATA_SIZE]) -> [u64; 8] {
    std::array::from_fn(|index| u64_at(data, 8 * index))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(fields: &[(usize, &[u8])]) -> [u8; DATA_SIZE] {
        let mut data = [0; DATA_SIZE];
        for (offset, bytes) in fields {
            data[*offset..*offset + bytes.len()].copy_from_slice(bytes);
        }
        data
    }

    #[test]
    fn a_question_is_a_directed_route_get_without_hops() {
        let mad = get(Route::Own, Attribute::PKeyTable, 1, 0x0102_0304);
        assert_eq!(mad[..4], [1, 0x81, 1, 1]);
        assert_eq!(mad[4..8], [0; 4], "status, hop pointer and hop count");
        assert_eq!(mad[8..16], [0, 0, 0, 0, 1, 2, 3, 4]);
        assert_eq!(mad[16..18], [0, 0x16]);
        assert_eq!(mad[20..24], [0, 0, 0, 1]);
        assert_eq!(mad[32..36], [0xff; 4], "permissive source and destination");
    }

    #[test]
    fn a_question_to_a_lid_has_no_directed_route() {
        let mad = get(Route::Lid(7), Attribute::PortInfo, 0, 1);
        assert_eq!(mad[..4], [1, 0x01, 1, 1]);
        assert_eq!(mad[32..36], [0; 4]);
    }

    #[test]
    fn only_its_own_answer_is_read() {
        let mut mad = get(Route::Own, Attribute::PortInfo, 1, 9);
        assert_eq!(
            answer(&mad, Route::Own, Attribute::PortInfo, 1),
            None,
            "a query is not a response"
        );
        mad[3] = METHOD_GET_RESP;
        mad[4] = 0x80; // direction
        mad[DATA] = 7;
        assert_eq!(
            answer(&mad, Route::Own, Attribute::PortInfo, 1)
                .unwrap()
                .unwrap()[0],
            7
        );
        assert_eq!(answer(&mad, Route::Own, Attribute::PortInfo, 2), None);
        assert_eq!(answer(&mad, Route::Own, Attribute::NodeInfo, 1), None);
        mad[5] = 0x1c;
        assert_eq!(
            answer(&mad, Route::Own, Attribute::PortInfo, 1),
            Some(Err(0x1c))
        );
        mad[1] = CLASS_SUBNET_LID_ROUTED;
        assert_eq!(answer(&mad, Route::Own, Attribute::PortInfo, 1), None);
        assert!(answer(&mad, Route::Lid(7), Attribute::PortInfo, 1).is_some());
    }

    #[test]
    fn port_info_is_read_as_the_specification_lays_it_out() {
        let info = PortInfo::read(&data(&[
            (8, &[0xfe, 0x80, 0, 0, 0, 0, 0, 1]),
            (16, &[0x12, 0x34]),
            (18, &[0x00, 0x21]),
            (20, &[0x02, 0x50, 0xc0, 0x48]),
            (31, &[2]),
            (32, &[0x14]),
            (33, &[0x52]),
            (34, &[0x83]),
            (35, &[0x47]),
            (36, &[0x5a]),
            (37, &[0x30]),
            (41, &[0x94]),
            (46, &[0, 3]),
            (48, &[1, 0]),
            (50, &[32]),
            (51, &[0x92]),
            (62, &[0x27]),
        ]));
        let expected = PortInfo {
            gid_prefix: 0xfe80_0000_0000_0001,
            lid: 0x1234,
            sm_lid: 0x21,
            capability_mask: 0x0250_c048,
            width_active: 2,
            speed_active: 4,
            speed_ext_active: 2,
            state: 4,
            physical_state: 5,
            lmc: 3,
            neighbor_mtu: 5,
            mtu_cap: 4,
            sm_sl: 0xa,
            vl_cap: 3,
            init_type_reply: 9,
            pkey_violations: 3,
            qkey_violations: 256,
            guid_cap: 32,
            client_reregister: true,
            subnet_timeout: 18,
        };
        assert_eq!(info, expected);
    }

    #[test]
    fn node_info_is_read_as_the_specification_lays_it_out() {
        let node = NodeInfo::read(&data(&[
            (0, &[1, 1, 1, 2]),
            (4, &[0, 0, 0, 0, 0, 0, 0, 3]),
            (12, &[0, 0, 0, 0, 0, 0, 0, 4]),
            (20, &[0, 0, 0, 0, 0, 0, 0, 5]),
            (28, &[0, 64]),
            (30, &[0x5a, 0x44]),
            (32, &[0, 0, 0, 0xa1]),
            (36, &[1, 0, 2, 0xc9]),
        ]));
        let expected = NodeInfo {
            port_count: 2,
            system_image_guid: 3,
            node_guid: 4,
            port_guid: 5,
            partition_cap: 64,
            device_id: 0x5a44,
            revision: 0xa1,
            local_port: 1,
            vendor_id: 0x02c9,
        };
        assert_eq!(node, expected);
    }

    #[test]
    fn tables_are_big_endian() {
        let bytes = data(&[(0, &[0xff, 0xff]), (62, &[0x80, 0x01])]);
        assert_eq!((pkeys(&bytes)[0], pkeys(&bytes)[31]), (0xffff, 0x8001));
        assert_eq!(manager_activity(&data(&[(16, &[0, 0, 1, 0x48])])), 328);
        assert!(is_master(&data(&[(20, &[0x53])])));
        assert!(!is_master(&data(&[(20, &[0x31])])));
        let bytes = data(&[(8, &[0, 0, 0, 0, 0, 0x10, 0, 4])]);
        assert_eq!(guids(&bytes), [0, 0x10_0004, 0, 0, 0, 0, 0, 0]);
    }
}
