//! The fabric that the stand-in core pretends to be part of: its own ports, and the hosts that the SA knows.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, LazyLock};

use fabric_sim::model::adapter::{Adapter, Identity, LinkLayer};
use fabric_sim::model::port::{PortSnapshot, STATE_ACTIVE};
use fabric_sim::smp::PortInfo;

use super::message::{Gid, Path};
use super::subnet::Subnet;

/// The subnet's prefix, unless a port has another one.
pub const PREFIX: u64 = 0xfe80_0000_0000_0000;
/// The LID of the subnet manager.
pub const SM_LID: u16 = 900;

/// The LID of the port that leads to other subnets.
pub const ROUTER_LID: u16 = 800;
/// The GUID of the port that leads to other subnets.
pub const ROUTER_GUID: u64 = 0x0050_0000;
/// The prefix of the subnet behind the router.
pub const FAR_PREFIX: u64 = 0xfec0_0000_0000_0fa5;

/// A GID of the usual subnet.
pub const fn gid(guid: u64) -> Gid {
    gid_in(PREFIX, guid)
}

/// A GID of a subnet.
pub const fn gid_in(prefix: u64, guid: u64) -> Gid {
    Gid::new(prefix, guid)
}

/// A simulated port of this node.
#[derive(Clone, Debug)]
pub struct PortSpec {
    /// Its GUIDs; the first makes its own GID, the others alias GIDs.
    pub guids: Vec<u64>,
    /// The prefix of its GIDs.
    pub prefix: u64,
    /// Its LID.
    pub lid: u16,
    /// LID mask count.
    pub lmc: u8,
    /// The subnet manager's LID.
    pub sm_lid: u16,
    /// Its P_Key table, holes included.
    pub pkeys: Vec<u16>,
    /// Whether it is active.
    pub active: bool,
    /// Whether it is an Ethernet port.
    pub ethernet: bool,
    /// Its MTU, by its code in verbs.h; what the SA says of paths does not depend on it.
    pub mtu: u8,
    /// Its width and its speed, by their codes in verbs.h; see [`mtu`](Self::mtu).
    pub rate: (u8, u8),
}

/// PortInfo.CapabilityMask: the port has extended speeds.
const CAP_EXTENDED_SPEEDS: u32 = 1 << 14;

impl PortSpec {
    /// An active port in the default partition.
    pub fn new(guid: u64, lid: u16) -> Self {
        Self {
            guids: vec![guid],
            prefix: PREFIX,
            lid,
            lmc: 0,
            sm_lid: SM_LID,
            pkeys: vec![0xffff],
            active: true,
            ethernet: false,
            mtu: 4,
            rate: (2, 1),
        }
    }

    /// The port's own GID.
    pub fn gid(&self) -> Gid {
        gid_in(self.prefix, self.guids[0])
    }

    /// All its GIDs.
    pub fn gids(&self) -> impl Iterator<Item = Gid> {
        self.guids.iter().map(|guid| gid_in(self.prefix, *guid))
    }

    /// Whether a LID is one of its own.
    pub fn has_lid(&self, lid: u16) -> bool {
        lid & !((1 << self.lmc) - 1) == self.lid
    }

    /// As fabric-sim shows it.
    pub(super) fn snapshot(&self) -> PortSnapshot {
        let (width, speed) = self.rate;
        // FDR and faster have a field of their own.
        let speed_ext = speed >> 4;
        let info = PortInfo {
            capability_mask: match speed_ext {
                0 => 0,
                _ => CAP_EXTENDED_SPEEDS,
            },
            speed_ext_active: speed_ext,
            gid_prefix: self.prefix,
            lid: self.lid,
            lmc: self.lmc,
            sm_lid: self.sm_lid,
            state: if self.active {
                STATE_ACTIVE
            } else {
                fabric_sim::model::port::STATE_DOWN
            },
            physical_state: if self.active { 5 } else { 2 },
            mtu_cap: self.mtu,
            neighbor_mtu: self.mtu,
            width_active: width,
            speed_active: speed & 0xf,
            subnet_timeout: 18,
            ..PortInfo::default()
        };
        let mut snapshot = PortSnapshot::down();
        snapshot.info = info;
        snapshot.pkeys.clone_from(&self.pkeys);
        snapshot.guids.clone_from(&self.guids);
        snapshot
    }
}

/// A simulated device of this node.
#[derive(Clone, Debug)]
pub struct DeviceSpec {
    /// Its name.
    pub name: String,
    /// Its node GUID, in host byte order.
    pub node_guid: u64,
    /// Its ports, from 1.
    pub ports: Vec<PortSpec>,
}

impl DeviceSpec {
    /// The usual device: one active port, LID 10.
    pub fn single() -> Self {
        Self {
            name: "sim0".into(),
            node_guid: 0x0010_0000,
            ports: vec![PortSpec::new(0x0010_0001, 10)],
        }
    }

    pub(super) fn adapter(&self) -> Arc<Adapter> {
        let identity = Identity {
            name: self.name.clone(),
            firmware: "1.0".into(),
            node_guid: self.node_guid,
            system_image_guid: self.node_guid,
            ..Identity::default()
        };
        let ethernet = (1_u8..)
            .zip(&self.ports)
            .filter(|(_, port)| port.ethernet)
            .map(|(number, _)| (number, LinkLayer::Ethernet))
            .collect();
        Adapter::mixed(
            identity,
            self.ports.iter().map(PortSpec::snapshot).collect(),
            ethernet,
        )
    }
}

/// Another node of the fabric.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its name.
    pub name: String,
    /// Its port's GUID.
    pub guid: u64,
    /// Its LID.
    pub lid: u16,
    /// Its IPv4 address.
    pub ip: Ipv4Addr,
    /// Its IPv6 address.
    pub ip6: Ipv6Addr,
}

impl Peer {
    /// The peer with a number: LID 100 + `number`, name `peer<number>`, 10.0.0.`number`.
    pub fn number(number: u16) -> Self {
        Self {
            name: format!("peer{number}"),
            guid: 0x0020_0000 + u64::from(number),
            lid: 100 + number,
            ip: Ipv4Addr::from(0x0a00_0000 + u32::from(number)),
            ip6: Ipv6Addr::from(0xfd00_u128 << 112 | u128::from(number)),
        }
    }

    /// Its GID.
    pub fn gid(&self) -> Gid {
        gid(self.guid)
    }

    /// Its other GID, which has the same LID.
    pub fn alias_gid(&self) -> Gid {
        gid(self.guid + ALIAS)
    }
}

/// What is between the GUIDs of a peer.
pub(super) const ALIAS: u64 = 0x0001_0000;

/// How many peers the SA knows.
pub const PEERS: u16 = 512;

/// All nodes that the SA knows besides this one.
pub fn peers() -> impl Iterator<Item = Peer> {
    (1..=PEERS).map(Peer::number)
}

/// How many of them the acm_hosts file names: providers read it whole at every start, some at every open.
pub const NAMED_PEERS: u16 = 64;

/// The acm_hosts file that names the first peers.
pub fn hosts_file() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(make_hosts_file);
    &TEXT
}

fn make_hosts_file() -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    for peer in peers().take(NAMED_PEERS.into()) {
        let gid = peer.gid();
        for address in [peer.name, peer.ip.to_string(), peer.ip6.to_string()] {
            // Writing to a String does not fail.
            let _ = writeln!(text, "{address} {gid}");
        }
    }
    text
}

/// The usual SA's record for a question, or none: what is not zero in it is asked for.
pub fn path_record(asked: &Path, ports: &[PortSpec]) -> Option<Path> {
    let ports = ports.to_vec();
    let subnet = Subnet {
        ports,
        ..Subnet::default()
    };
    subnet.path(asked, asked.comp_mask(), 0).ok()
}
