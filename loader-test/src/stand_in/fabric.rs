//! The fabric that the stand-in core pretends to be part of: its own ports, and the hosts that the SA knows.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use fabric_sim::model::adapter::{Adapter, Identity, LinkLayer};
use fabric_sim::model::port::{PortSnapshot, STATE_ACTIVE};
use fabric_sim::smp::PortInfo;

use super::message::{Gid, Path};
use super::sa::{
    COMP_DGID, COMP_DLID, COMP_FLOW_LABEL, COMP_LIFETIME, COMP_LIFETIME_SELECTOR, COMP_MTU,
    COMP_MTU_SELECTOR, COMP_PKEY, COMP_QOS_CLASS, COMP_RATE, COMP_RATE_SELECTOR, COMP_SERVICE_ID,
    COMP_SGID, COMP_SL, COMP_SLID, COMP_TCLASS,
};

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
    (((prefix as u128) << 64) | guid as u128).to_be_bytes()
}

/// A GID's prefix and GUID.
fn halves(gid: Gid) -> (u64, u64) {
    let bits = u128::from_be_bytes(gid);
    ((bits >> 64) as u64, bits as u64)
}

/// Whether a prefix is of fe80::/10, which every SA takes for its own subnet's.
fn is_link_local(prefix: u64) -> bool {
    prefix >> 54 == PREFIX >> 54
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
}

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
        let info = PortInfo {
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
            mtu_cap: 4,
            neighbor_mtu: 4,
            width_active: 2,
            speed_active: 1,
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
const ALIAS: u64 = 0x0001_0000;

/// How many peers the SA knows.
pub const PEERS: u16 = 512;

/// All nodes that the SA knows besides this one.
pub fn peers() -> impl Iterator<Item = Peer> {
    (1..=PEERS).map(Peer::number)
}

/// How many of them the acm_hosts file names: providers read it whole at every start, some at every open.
pub const NAMED_PEERS: u16 = 64;

/// The acm_hosts file that names the first peers.
pub fn hosts_file() -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    for peer in peers().take(NAMED_PEERS.into()) {
        let gid = Ipv6Addr::from(peer.gid());
        for address in [peer.name, peer.ip.to_string(), peer.ip6.to_string()] {
            // Writing to a String does not fail.
            let _ = writeln!(text, "{address} {gid}");
        }
    }
    text
}

/// What the SA knows, and how it chooses paths.
#[derive(Clone, Debug, Default)]
pub struct Subnet {
    /// This node's ports, and others besides the [`peers`].
    pub ports: Vec<PortSpec>,
    /// Whether service id and QoS class choose a path. ClassPortInfo says so.
    pub qos: bool,
    /// Whether the routing draws an SL for each query: a query that names one is refused, be it the one of the last answer.
    pub draws_sl: bool,
}

/// An end of a path.
struct End {
    guid: u64,
    /// The port's first LID.
    base: u16,
    lid: u16,
}

impl Subnet {
    /// What the SA answers to a path query, as OpenSM does: the record, or the status of a refusal. `number` is the
    /// query's.
    ///
    /// # Errors
    /// The MAD status.
    pub fn path(&self, asked: &Path, mask: u64, number: usize) -> Result<Path, u16> {
        let names = |bits: u64| mask & bits == bits;
        let prefix = self.ports.first().map_or(PREFIX, |port| port.prefix);
        let source = match (names(COMP_SGID), names(COMP_SLID)) {
            // Without any source OpenSM takes the first port that it finds.
            (false, false) => self.by_lid(Peer::number(1).lid)?,
            (false, true) => self.by_lid(asked.slid())?,
            (true, false) => self.by_gid(asked.sgid(), prefix)?,
            (true, true) => self.same(self.by_gid(asked.sgid(), prefix)?, asked.slid())?,
        };
        let far = names(COMP_DGID) && halves(asked.dgid()).0 == FAR_PREFIX;
        let wanted = match asked.dgid() {
            _ if far => gid_in(prefix, ROUTER_GUID),
            wanted => wanted,
        };
        let destination = match (names(COMP_DGID), names(COMP_DLID)) {
            (false, false) => return Err(NO_RECORDS),
            (false, true) => self.by_lid(asked.dlid())?,
            (true, false) => self.by_gid(wanted, prefix)?,
            (true, true) => self.same(self.by_gid(wanted, prefix)?, asked.dlid())?,
        };
        let own = destination.base == source.base;
        let limit = |selector, value, byte: u8, has, order: &[u8]| {
            let demand = names(selector | value).then_some(byte);
            limited(demand, has, order)
        };
        let mtu = limit(COMP_MTU_SELECTOR, COMP_MTU, asked.mtu(), MTU_2048, &MTUS)?;
        let rate = limit(COMP_RATE_SELECTOR, COMP_RATE, asked.rate(), RATE_10, &RATES)?;
        if names(COMP_RATE_SELECTOR | COMP_RATE) && asked.rate() >> 6 == EXACTLY && rate != RATE_10
        {
            // OpenSM adjusts an MTU and a lifetime to what is asked for exactly, and no rate.
            return Err(NO_RECORDS);
        }
        let lifetime = limit(
            COMP_LIFETIME_SELECTOR,
            COMP_LIFETIME,
            asked.lifetime(),
            if own { 0 } else { LIFETIME },
            &std::array::from_fn::<u8, 64, _>(|value| value as u8),
        )?;
        let sl = match (names(COMP_SL), self.draws_sl) {
            (true, true) => return Err(NO_RECORDS),
            (true, false) => asked.qos_sl() & 0xf,
            (false, true) => 1 + (number % 14) as u16,
            (false, false) => self.level_of_service(asked, mask),
        };
        // Service id, QoS class, traffic class and flow label are zero in OpenSM's answers.
        Ok(Path::default()
            .with_dgid(if far {
                asked.dgid()
            } else {
                gid_in(prefix, destination.guid)
            })
            .with_sgid(if names(COMP_SGID) {
                asked.sgid()
            } else {
                gid_in(prefix, source.guid)
            })
            .with_dlid(destination.lid)
            .with_slid(source.lid)
            .with_flow_hop(if far { 0xff } else { 0 })
            .with_reversible_numpath(0x80)
            .with_pkey(if names(COMP_PKEY) {
                asked.pkey()
            } else {
                0xffff
            })
            .with_qos_sl(sl)
            .with_mtu(EXACTLY << 6 | mtu)
            .with_rate(EXACTLY << 6 | rate)
            .with_lifetime(EXACTLY << 6 | lifetime))
    }

    /// The SL that the fabric's policy has for a service, a QoS class, a traffic class and a flow label. OpenSM's has the
    /// first two only, if QoS is on; some SAs have the others.
    fn level_of_service(&self, asked: &Path, mask: u64) -> u16 {
        let of = |bit: u64, value: u64| if mask & bit != 0 { value } else { 0 };
        let always = of(COMP_TCLASS, asked.tclass().into())
            + of(COMP_FLOW_LABEL, (asked.flow_hop() >> 8 & 0xf_ffff).into());
        let with_qos = of(COMP_SERVICE_ID, asked.service_id() % 15)
            + of(COMP_QOS_CLASS, u64::from(asked.qos_sl() >> 4));
        ((always + if self.qos { with_qos } else { 0 }) % 15) as u16
    }

    /// The port that a GID in a query means: any of its GIDs, with the subnet's prefix or a link-local one.
    fn by_gid(&self, gid: Gid, own_prefix: u64) -> Result<End, u16> {
        let (prefix, guid) = halves(gid);
        if prefix != own_prefix && !is_link_local(prefix) {
            return Err(NO_RECORDS);
        }
        let own = self.ports.iter().find(|port| port.guids.contains(&guid));
        let peer = |guid: u64| {
            let number = guid.checked_sub(Peer::number(0).guid)?;
            (1..=u64::from(PEERS)).contains(&number).then_some(number)
        };
        let lid = match own {
            Some(port) => port.lid,
            None if guid == ROUTER_GUID => ROUTER_LID,
            None => {
                let number = peer(guid).or_else(|| peer(guid.checked_sub(ALIAS)?));
                Peer::number(number.ok_or(NO_RECORDS)? as u16).lid
            }
        };
        let base = lid;
        Ok(End { guid, base, lid })
    }

    /// The port of a LID.
    fn by_lid(&self, lid: u16) -> Result<End, u16> {
        let own = self
            .ports
            .iter()
            .find(|port| port.lid != 0 && port.has_lid(lid));
        let number = lid.wrapping_sub(Peer::number(0).lid);
        let (guid, base) = match own {
            Some(port) => (port.guids[0], port.lid),
            None if lid == ROUTER_LID => (ROUTER_GUID, lid),
            None if (1..=PEERS).contains(&number) => (Peer::number(number).guid, lid),
            None => return Err(NO_RECORDS),
        };
        Ok(End { guid, base, lid })
    }

    /// A GID's port, if the LID that a query names as well is one of its own.
    fn same(&self, by_gid: End, lid: u16) -> Result<End, u16> {
        if self.by_lid(lid)?.base == by_gid.base {
            Ok(End { lid, ..by_gid })
        } else {
            Err(REQUEST_INVALID)
        }
    }

    /// What the SA says of itself (ClassPortInfo, IBA vol. 1, 13.4.8.1), as OpenSM does.
    pub fn class_port_info(&self) -> [u8; 72] {
        /// CapabilityMask: Set(Notice), component mask of PortInfoRecord, UD multicast.
        const CAPABILITIES: u16 = 1 << 1 | 1 << 9 | 1 << 13;
        /// CapabilityMask2 of OpenSM without QoS.
        const CAPABILITIES_2: u32 = 0xb5e8;
        /// CapabilityMask2: service id and QoS class choose paths.
        const QOS: u32 = 1 << 1;
        /// 4.096 us x 2^16, OpenSM's default.
        const RESPONSE_TIME: u32 = 16;
        /// The Q_Key of QP 1.
        const QKEY: u32 = 0x8001_0000;
        let mask = CAPABILITIES_2 | if self.qos { QOS } else { 0 };
        let mut info = [0; 72];
        info[..2].copy_from_slice(&[1, 2]);
        info[2..4].copy_from_slice(&CAPABILITIES.to_be_bytes());
        // 27 bits of CapabilityMask2, five of RespTimeValue.
        info[4..8].copy_from_slice(&(mask << 5 | RESPONSE_TIME).to_be_bytes());
        // RedirectQP and RedirectQ_Key, TrapQ_Key.
        info[32..36].copy_from_slice(&1_u32.to_be_bytes());
        info[36..40].copy_from_slice(&QKEY.to_be_bytes());
        info[68..72].copy_from_slice(&QKEY.to_be_bytes());
        info
    }
}

/// MAD status: a query that contradicts itself, or has a field that cannot be.
const REQUEST_INVALID: u16 = 0x0200;
/// MAD status: nothing is known that meets the query.
pub(super) const NO_RECORDS: u16 = 0x0300;

const MTU_2048: u8 = 4;
const MTUS: [u8; 5] = [1, 2, 3, 4, 5];
const RATE_10: u8 = 3;
/// Codes by speed: 2.5, 5, 10, 14, 20, 25, 30 and 40 Gb/s.
const RATES: [u8; 8] = [2, 5, 3, 11, 6, 15, 4, 7];
const LIFETIME: u8 = 18;

const GREATER: u8 = 0;
const LESS: u8 = 1;
const EXACTLY: u8 = 2;

/// What a path that could have `has` has under a demand: a selector in the upper two bits, a code below.
fn limited(demand: Option<u8>, has: u8, order: &[u8]) -> Result<u8, u16> {
    let Some(demand) = demand else {
        return Ok(has);
    };
    let place = |code: u8| {
        order
            .iter()
            .position(|known| *known == code)
            .ok_or(REQUEST_INVALID)
    };
    let (selector, wanted, most) = (demand >> 6, place(demand & 0x3f)?, place(has)?);
    match selector {
        GREATER if most > wanted => Ok(has),
        LESS if most < wanted => Ok(has),
        LESS if wanted > 0 => Ok(order[wanted - 1]),
        EXACTLY if most >= wanted => Ok(order[wanted]),
        GREATER | LESS | EXACTLY => Err(NO_RECORDS),
        _ => Ok(has),
    }
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
