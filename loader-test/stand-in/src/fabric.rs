//! The simulated fabric of the stand-in core: its own ports, and the hosts that the SA knows.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, LazyLock};

use fabric_sim::model::adapter::{Adapter, Identity, LinkLayer};
use fabric_sim::model::port::{PortSnapshot, STATE_ACTIVE};
use fabric_sim::smp::PortInfo;

use super::message::{Gid, Path};
use super::subnet::Subnet;

/// The default subnet prefix.
pub const PREFIX: u64 = 0xfe80_0000_0000_0000;
/// The LID of the subnet manager.
pub const SM_LID: u16 = 900;

/// The LID of the port that leads to other subnets.
pub const ROUTER_LID: u16 = 800;
/// The GUID of the port that leads to other subnets.
pub const ROUTER_GUID: u64 = 0x0050_0000;
/// The prefix of the subnet behind the router.
pub const FAR_PREFIX: u64 = 0xfec0_0000_0000_0fa5;

/// Returns a GID with the default prefix.
pub const fn gid(guid: u64) -> Gid {
    gid_in(PREFIX, guid)
}

/// Returns a GID with a prefix.
pub const fn gid_in(prefix: u64, guid: u64) -> Gid {
    Gid::new(prefix, guid)
}

/// A simulated port of this node.
#[derive(Clone, Debug)]
pub struct PortSpec {
    /// Its GUIDs: the first is for its own GID, the others for alias GIDs.
    pub guids: Vec<u64>,
    /// The prefix of its GIDs.
    pub prefix: u64,
    /// Its LID.
    pub lid: u16,
    /// LID mask count.
    pub lmc: u8,
    /// The subnet manager's LID.
    pub sm_lid: u16,
    /// Its P_Key table, including holes.
    pub pkeys: Vec<u16>,
    /// Whether it is active.
    pub active: bool,
    /// Whether it is an Ethernet port.
    pub ethernet: bool,
    /// Its MTU code of verbs.h; the SA's records do not depend on it.
    pub mtu: u8,
    /// Its width and speed codes of verbs.h; see [`mtu`](Self::mtu).
    pub rate: (u8, u8),
}

/// PortInfo.CapabilityMask: the port has extended speeds.
const CAP_EXTENDED_SPEEDS: u32 = 1 << 14;

impl PortSpec {
    /// Returns an active port in the default partition.
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

    /// Returns the port's own GID.
    pub fn gid(&self) -> Gid {
        gid_in(self.prefix, self.guids[0])
    }

    /// Returns all its GIDs.
    pub fn gids(&self) -> impl Iterator<Item = Gid> {
        self.guids.iter().map(|guid| gid_in(self.prefix, *guid))
    }

    /// Whether the port has this LID.
    pub fn has_lid(&self, lid: u16) -> bool {
        lid & !((1 << self.lmc) - 1) == self.lid
    }

    /// Returns the port's attributes for fabric-sim.
    pub(super) fn snapshot(&self) -> PortSnapshot {
        let (width, speed) = self.rate;
        // FDR and faster speeds have a separate field.
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
    /// Returns the default device: one active port, LID 10.
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
    /// Returns a peer: LID 100 + `number`, name `peer<number>`, 10.0.0.`number`.
    pub fn number(number: u16) -> Self {
        Self {
            name: format!("peer{number}"),
            guid: 0x0020_0000 + u64::from(number),
            lid: 100 + number,
            ip: Ipv4Addr::from(0x0a00_0000 + u32::from(number)),
            ip6: Ipv6Addr::from(0xfd00_u128 << 112 | u128::from(number)),
        }
    }

    /// Returns its GID.
    pub fn gid(&self) -> Gid {
        gid(self.guid)
    }

    /// Returns its alias GID, with the same LID.
    pub fn alias_gid(&self) -> Gid {
        gid(self.guid + ALIAS)
    }
}

/// Difference between the GUIDs of a peer.
pub(super) const ALIAS: u64 = 0x0001_0000;

/// Number of peers that the SA knows.
pub const PEERS: u16 = 512;

/// Iterates over all nodes that the SA knows besides this one.
pub fn peers() -> impl Iterator<Item = Peer> {
    (1..=PEERS).map(Peer::number)
}

/// Number of peers in the acm_hosts file: providers read the whole file at every start, some at every open.
pub const NAMED_PEERS: u16 = 64;

/// Returns the acm_hosts file with the first peers.
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

/// Returns the default SA's record for a query, if any; the non-zero fields are the query's components.
pub fn path_record(asked: &Path, ports: &[PortSpec]) -> Option<Path> {
    let ports = ports.to_vec();
    let subnet = Subnet {
        ports,
        ..Subnet::default()
    };
    subnet.path(asked, asked.comp_mask(), 0).ok()
}
