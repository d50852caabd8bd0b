//! The SA's records of the subnet: paths as OpenSM chooses them, and its ClassPortInfo.

use std::collections::BTreeMap;

use super::fabric::{
    ALIAS, FAR_PREFIX, PEERS, PREFIX, Peer, PortSpec, ROUTER_GUID, ROUTER_LID, gid_in,
};
use super::message::{Gid, Path};
use super::sa::{
    COMP_DGID, COMP_DLID, COMP_FLOW_LABEL, COMP_LIFETIME, COMP_LIFETIME_SELECTOR, COMP_MTU,
    COMP_MTU_SELECTOR, COMP_PKEY, COMP_QOS_CLASS, COMP_RATE, COMP_RATE_SELECTOR, COMP_SERVICE_ID,
    COMP_SGID, COMP_SL, COMP_SLID, COMP_TCLASS,
};

/// Splits a GID into prefix and GUID.
fn halves(gid: Gid) -> (u64, u64) {
    (gid.subnet_prefix(), gid.interface_id())
}

/// Whether a prefix is in fe80::/10, which every SA takes for its own subnet.
fn is_link_local(prefix: u64) -> bool {
    prefix >> 54 == PREFIX >> 54
}

/// The SA's records, and its rules for paths.
#[derive(Clone, Debug, Default)]
pub struct Subnet {
    /// This node's ports, and others besides the peers.
    pub ports: Vec<PortSpec>,
    /// Whether service id and QoS class select a path, as ClassPortInfo says.
    pub qos: bool,
    /// Whether the routing draws an SL for each query; the SA then refuses every query that names an SL.
    pub draws_sl: bool,
    /// SLs that the SA refuses for paths to a port, by the port's LID.
    pub refused_sls: BTreeMap<u16, Vec<u8>>,
    /// Changed LIDs of peers, by GUID.
    pub moved: BTreeMap<u64, u16>,
}

/// An end of a path.
struct End {
    guid: u64,
    /// The port's first LID.
    base: u16,
    lid: u16,
}

impl Subnet {
    /// Responds to a path query as OpenSM does: returns the record, or the status of a refusal. `number` is the query's number.
    ///
    /// # Errors
    /// The MAD status.
    pub fn path(&self, asked: &Path, mask: u64, number: usize) -> Result<Path, u16> {
        let names = |bits: u64| mask & bits == bits;
        let prefix = self.ports.first().map_or(PREFIX, |port| port.prefix);
        let source = match (names(COMP_SGID), names(COMP_SLID)) {
            // Without a source OpenSM takes the first port that it finds.
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
            // OpenSM adjusts an MTU and a lifetime to an exact constraint, but not a rate.
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
            (true, false) => self.granted_sl(&destination, asked.qos_sl() & 0xf)?,
            (false, true) => 1 + (number % 14) as u16,
            (false, false) => self.level_of_service(asked, mask),
        };
        // Service id, QoS class, traffic class and flow label are zero in OpenSM's responses.
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

    fn granted_sl(&self, destination: &End, sl: u16) -> Result<u16, u16> {
        let refused = self.refused_sls.get(&destination.base);
        match refused.is_some_and(|refused| refused.iter().any(|known| u16::from(*known) == sl)) {
            true => Err(NO_RECORDS),
            false => Ok(sl),
        }
    }

    /// Returns the LID of a peer by GUID.
    fn lid_of(&self, guid: u64) -> Option<u16> {
        let number = guid.checked_sub(Peer::number(0).guid)?;
        if !(1..=u64::from(PEERS)).contains(&number) {
            return None;
        }
        let usual = Peer::number(number as u16).lid;
        Some(self.moved.get(&guid).copied().unwrap_or(usual))
    }

    /// Returns the policy's SL for a service, a QoS class, a traffic class and a flow label. OpenSM only has the first two, if QoS
    /// is on; some SAs have the others.
    fn level_of_service(&self, asked: &Path, mask: u64) -> u16 {
        let of = |bit: u64, value: u64| if mask & bit != 0 { value } else { 0 };
        let always = of(COMP_TCLASS, asked.tclass().into())
            + of(COMP_FLOW_LABEL, (asked.flow_hop() >> 8 & 0xf_ffff).into());
        let with_qos = of(COMP_SERVICE_ID, asked.service_id() % 15)
            + of(COMP_QOS_CLASS, u64::from(asked.qos_sl() >> 4));
        ((always + if self.qos { with_qos } else { 0 }) % 15) as u16
    }

    /// Finds the port of a GID in a query: any of its GIDs, with the subnet's or a link-local prefix.
    fn by_gid(&self, gid: Gid, own_prefix: u64) -> Result<End, u16> {
        let (prefix, guid) = halves(gid);
        if prefix != own_prefix && !is_link_local(prefix) {
            return Err(NO_RECORDS);
        }
        let own = self.ports.iter().find(|port| port.guids.contains(&guid));
        let lid = match own {
            Some(port) => port.lid,
            None if guid == ROUTER_GUID => ROUTER_LID,
            None => self
                .lid_of(guid)
                .or_else(|| self.lid_of(guid.checked_sub(ALIAS)?))
                .ok_or(NO_RECORDS)?,
        };
        let base = lid;
        Ok(End { guid, base, lid })
    }

    /// Finds the port of a LID.
    fn by_lid(&self, lid: u16) -> Result<End, u16> {
        let own = self
            .ports
            .iter()
            .find(|port| port.lid != 0 && port.has_lid(lid));
        let number = lid.wrapping_sub(Peer::number(0).lid);
        let moved = self.moved.iter().find(|(_, known)| **known == lid);
        let (guid, base) = match own {
            Some(port) => (port.guids[0], port.lid),
            None if lid == ROUTER_LID => (ROUTER_GUID, lid),
            None if let Some((guid, _)) = moved => (*guid, lid),
            None if (1..=PEERS).contains(&number)
                && self.lid_of(Peer::number(number).guid) == Some(lid) =>
            {
                (Peer::number(number).guid, lid)
            }
            None => return Err(NO_RECORDS),
        };
        Ok(End { guid, base, lid })
    }

    /// Finds a GID's port, if the query's LID belongs to it.
    fn same(&self, by_gid: End, lid: u16) -> Result<End, u16> {
        if self.by_lid(lid)?.base == by_gid.base {
            Ok(End { lid, ..by_gid })
        } else {
            Err(REQUEST_INVALID)
        }
    }

    /// Returns the SA's ClassPortInfo (IBA vol. 1, 13.4.8.1), like OpenSM's.
    pub fn class_port_info(&self) -> [u8; 72] {
        /// CapabilityMask: Set(Notice), component mask of PortInfoRecord, UD multicast.
        const CAPABILITIES: u16 = 1 << 1 | 1 << 9 | 1 << 13;
        /// CapabilityMask2 of OpenSM without QoS.
        const CAPABILITIES_2: u32 = 0xb5e8;
        /// CapabilityMask2: service id and QoS class select paths.
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

/// MAD status: the query contradicts itself, or has an invalid field.
const REQUEST_INVALID: u16 = 0x0200;
/// MAD status: no record meets the query.
pub(super) const NO_RECORDS: u16 = 0x0300;

const MTU_2048: u8 = 4;
pub(super) const MTUS: [u8; 5] = [1, 2, 3, 4, 5];
const RATE_10: u8 = 3;
/// Codes by speed, from 2.5 to 1,200 Gb/s.
pub(super) const RATES: [u8; 23] = [
    2, 5, 3, 11, 6, 15, 19, 4, 7, 20, 12, 8, 9, 16, 13, 10, 14, 17, 18, 21, 22, 23, 24,
];
const LIFETIME: u8 = 18;

const GREATER: u8 = 0;
pub(super) const LESS: u8 = 1;
pub(super) const EXACTLY: u8 = 2;

/// Returns the value of a path with the maximum `has` under a constraint: a selector in the upper two bits, a code below.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::gid;

    const OWN: u64 = 0x0010_0001;

    fn subnet() -> Subnet {
        Subnet {
            ports: vec![PortSpec::new(OWN, 10)],
            ..Subnet::default()
        }
    }

    fn from_own() -> Path {
        Path::default().with_sgid(gid(OWN))
    }

    fn answer(subnet: &Subnet, asked: Path) -> Result<Path, u16> {
        subnet.path(&asked, asked.comp_mask(), 0)
    }

    #[test]
    fn ends_that_contradict_each_other_are_refused() {
        let (peer, other) = (Peer::number(3), Peer::number(4));
        let subnet = subnet();
        let by_gid = from_own().with_dgid(peer.gid());
        let plain = answer(&subnet, by_gid).unwrap();
        assert_eq!((plain.dlid(), plain.slid()), (peer.lid, 10));
        assert_eq!(answer(&subnet, by_gid.with_dlid(peer.lid)), Ok(plain));
        assert_eq!(answer(&subnet, by_gid.with_slid(10)), Ok(plain));
        for asked in [by_gid.with_dlid(other.lid), by_gid.with_slid(other.lid)] {
            assert_eq!(answer(&subnet, asked), Err(0x0200), "{asked:?}");
        }
        for asked in [
            from_own(),
            from_own().with_dlid(0x0bad),
            from_own().with_dgid(gid(0x0bad)),
            from_own().with_dgid(gid_in(0xfec0 << 48, peer.guid)),
            by_gid.with_sgid(gid(0x0bad)),
        ] {
            assert_eq!(answer(&subnet, asked), Err(0x0300), "{asked:?}");
        }
    }

    #[test]
    fn what_the_mask_does_not_name_is_not_asked() {
        let peer = Peer::number(3);
        let asked = from_own()
            .with_dgid(peer.gid())
            .with_dlid(Peer::number(4).lid);
        let seen = subnet().path(&asked, COMP_SGID | COMP_DGID, 0).unwrap();
        assert_eq!(seen.dlid(), peer.lid);
    }

    #[test]
    fn gids_of_one_lid_and_gids_behind_the_router_keep_their_lids() {
        let peer = Peer::number(3);
        let far = gid_in(FAR_PREFIX, 7);
        for (asked, dgid, dlid, hops) in [
            (
                from_own().with_dgid(peer.alias_gid()),
                peer.alias_gid(),
                peer.lid,
                0,
            ),
            (from_own().with_dlid(peer.lid), peer.gid(), peer.lid, 0),
            (from_own().with_dgid(far), far, ROUTER_LID, 0xff),
            (
                from_own().with_dlid(ROUTER_LID),
                gid(ROUTER_GUID),
                ROUTER_LID,
                0,
            ),
        ] {
            let path = answer(&subnet(), asked).unwrap();
            assert_eq!(
                (path.dgid(), path.dlid(), path.flow_hop()),
                (dgid, dlid, hops)
            );
        }
    }

    #[test]
    fn link_local_gids_are_the_subnets_own() {
        const OWN_PREFIX: u64 = 0xfec0_0000_0000_0001;
        let mut subnet = subnet();
        subnet.ports[0].prefix = OWN_PREFIX;
        let peer = Peer::number(3);
        let expected = gid_in(OWN_PREFIX, peer.guid);
        for dgid in [expected, peer.gid(), gid_in(0xfebf << 48, peer.guid)] {
            let asked = Path::default()
                .with_sgid(gid_in(OWN_PREFIX, OWN))
                .with_dgid(dgid);
            assert_eq!(answer(&subnet, asked).unwrap().dgid(), expected);
        }
    }

    #[test]
    fn mtu_rate_and_lifetime_are_limited_as_opensm_limits_them() {
        let plain = from_own().with_dgid(Peer::number(3).gid());
        let seen =
            |asked| answer(&subnet(), asked).map(|path| (path.mtu(), path.rate(), path.lifetime()));
        for (asked, expected) in [
            (plain, Ok((0x84, 0x83, 0x92))),
            (plain.with_mtu(0x81), Ok((0x81, 0x83, 0x92))),
            (plain.with_mtu(0x85), Err(0x0300)),
            (plain.with_mtu(0x44), Ok((0x83, 0x83, 0x92))),
            (plain.with_mtu(0x45), Ok((0x84, 0x83, 0x92))),
            (plain.with_mtu(0x41), Err(0x0300)),
            (plain.with_mtu(0x87), Err(0x0200)),
            (plain.with_rate(0x83), Ok((0x84, 0x83, 0x92))),
            (plain.with_rate(0x82), Err(0x0300)),
            (plain.with_rate(0x43), Ok((0x84, 0x85, 0x92))),
            (plain.with_lifetime(0x8a), Ok((0x84, 0x83, 0x8a))),
            (plain.with_lifetime(0xd2), Ok((0x84, 0x83, 0x92))),
            // Without a selector the core's mask only names the code, which OpenSM ignores.
            (plain.with_mtu(0x05), Ok((0x84, 0x83, 0x92))),
        ] {
            assert_eq!(seen(asked), expected, "{asked:?}");
        }
        let mask = plain.comp_mask() | COMP_MTU_SELECTOR | COMP_MTU;
        let greater = subnet().path(&plain.with_mtu(0x04), mask, 0);
        assert_eq!(greater, Err(0x0300), "more than it has");
    }

    #[test]
    fn services_choose_paths_where_class_port_info_says_so() {
        let mut subnet = subnet();
        let asked = from_own()
            .with_dgid(Peer::number(3).gid())
            .with_service_id(7);
        let word = |subnet: &Subnet| {
            let info = subnet.class_port_info();
            u32::from_be_bytes([info[4], info[5], info[6], info[7]])
        };
        assert_eq!(answer(&subnet, asked).unwrap().qos_sl(), 0);
        assert_eq!(word(&subnet), 0xb5e8 << 5 | 16);
        subnet.qos = true;
        assert_eq!(answer(&subnet, asked).unwrap().qos_sl(), 7);
        assert_eq!(answer(&subnet, asked).unwrap().service_id(), 0);
        assert_eq!(word(&subnet), 0xb5ea << 5 | 16);
    }

    #[test]
    fn an_sl_is_refused_on_the_paths_to_some_peers() {
        let (strict, lenient) = (Peer::number(3), Peer::number(4));
        let mut subnet = subnet();
        subnet.refused_sls.insert(strict.lid, vec![6, 7]);
        let to = |peer: &Peer, sl| {
            let asked = from_own().with_dgid(peer.gid()).with_qos_sl(sl);
            answer(&subnet, asked).map(|path| path.qos_sl())
        };
        for (peer, sl, expected) in [
            (&strict, 6, Err(0x0300)),
            (&strict, 7, Err(0x0300)),
            (&strict, 5, Ok(5)),
            (&strict, 0, Ok(0)),
            (&lenient, 6, Ok(6)),
        ] {
            assert_eq!(to(peer, sl), expected, "{sl} to {}", peer.name);
        }
    }

    #[test]
    fn a_peer_that_moved_has_its_new_lid_alone() {
        const NEW: u16 = 700;
        let peer = Peer::number(3);
        let mut subnet = subnet();
        subnet.moved.insert(peer.guid, NEW);
        for dgid in [peer.gid(), peer.alias_gid()] {
            assert_eq!(
                answer(&subnet, from_own().with_dgid(dgid)).unwrap().dlid(),
                NEW
            );
        }
        assert_eq!(
            answer(&subnet, from_own().with_dlid(NEW)).unwrap().dgid(),
            peer.gid()
        );
        assert_eq!(answer(&subnet, from_own().with_dlid(peer.lid)), Err(0x0300));
    }

    #[test]
    fn an_sl_that_is_drawn_cannot_be_asked_for() {
        let subnet = Subnet {
            draws_sl: true,
            ..subnet()
        };
        let plain = from_own().with_dgid(Peer::number(3).gid());
        let drawn = [0, 1].map(|number| subnet.path(&plain, plain.comp_mask(), number).unwrap());
        assert_ne!(drawn[0].qos_sl(), drawn[1].qos_sl());
        assert_eq!(answer(&subnet, drawn[0]), Err(0x0300));
    }
}
