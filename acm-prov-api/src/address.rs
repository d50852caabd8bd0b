//! GIDs, LIDs, P_Keys, names, and the typed form of the 64-byte address fields of `acm_msg` and `acm_address`. The types are
//! from `rdma-access`; this module converts them, and a port's attributes, from and to the [C mirror](crate::abi).

pub use rdma_access::address::{ADDRESS_LENGTH, Address, AddressError, Gid, Guid, Lid, Name, PKey};

use rdma_access::{LinkLayer, PortAttributes, PortState};

use crate::abi::{_compat_ibv_port_attr, ibv_gid};

impl From<ibv_gid> for Gid {
    fn from(gid: ibv_gid) -> Gid {
        Gid(gid.bytes())
    }
}

impl From<Gid> for ibv_gid {
    fn from(gid: Gid) -> ibv_gid {
        ibv_gid::from_bytes(gid.0)
    }
}

impl From<_compat_ibv_port_attr> for PortAttributes {
    fn from(port: _compat_ibv_port_attr) -> PortAttributes {
        PortAttributes {
            state: PortState(port.state.0),
            link_layer: LinkLayer(port.link_layer),
            lid: Lid(port.lid),
            lmc: port.lmc,
            sm_lid: Lid(port.sm_lid),
            sm_sl: port.sm_sl,
            max_mtu: u8::try_from(port.max_mtu.0).unwrap_or(0),
            active_mtu: u8::try_from(port.active_mtu.0).unwrap_or(0),
            active_width: port.active_width,
            active_speed: port.active_speed,
            subnet_timeout: port.subnet_timeout,
            gid_table_length: u16::try_from(port.gid_tbl_len).unwrap_or(u16::MAX),
            pkey_table_length: port.pkey_tbl_len,
            capabilities: port.port_cap_flags,
        }
    }
}

/// Returns one of 64 bits, the same for equal addresses: if the bit is missing in a set's marks, the set does not contain
/// the address.
pub(crate) fn mark(address: &Address) -> u64 {
    let sum = |bytes: &[u8]| {
        bytes
            .iter()
            .fold(0, |sum: u8, byte| sum.wrapping_add(*byte))
    };
    let sum = match address {
        Address::Name(name) => sum(&name.to_lower_case()),
        Address::Ip(ip) => sum(&ip.octets()),
        Address::Ip6(ip) => sum(&ip.octets()),
        Address::Gid(gid) => sum(&gid.0),
        Address::Lid(lid) => sum(&lid.0.to_be_bytes()),
    };
    1 << (sum % 64)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;
    use crate::abi::{ACM_MAX_ADDRESS, AcmEpType};

    #[test]
    fn types_and_length_of_address_fields_are_the_mirrors() {
        assert_eq!(ADDRESS_LENGTH, ACM_MAX_ADDRESS);
        let gid = Gid::new(0xfe80 << 48, 7);
        for (kind, address) in [
            (AcmEpType::NAME, Address::Name(Name::new("node1").unwrap())),
            (AcmEpType::ADDRESS_IP, Ipv4Addr::LOCALHOST.into()),
            (AcmEpType::ADDRESS_IP6, Ipv6Addr::LOCALHOST.into()),
            (AcmEpType::ADDRESS_GID, Address::Gid(gid)),
            (AcmEpType::ADDRESS_LID, Address::Lid(Lid(3))),
        ] {
            assert_eq!(address.kind(), kind.0);
            assert!(Address::is_known(kind.0), "{kind:?}");
        }
        assert!(!Address::is_known(AcmEpType::PATH.0) && !Address::is_known(0));
        assert_eq!(Gid::from(ibv_gid::from(gid)), gid);
    }

    #[test]
    fn equal_addresses_have_one_mark() {
        let name = |text: &str| Address::Name(Name::new(text).unwrap());
        assert_eq!(mark(&name("Node-1")), mark(&name("nODE-1")));
        assert_ne!(mark(&name("node-1")), mark(&name("node-2")));
        assert_eq!(mark(&Address::Lid(Lid(0x1234))), 1 << ((0x12 + 0x34) % 64));
    }
}
