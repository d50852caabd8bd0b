//! What a path is asked for: the components that are named, and their values.

use std::fmt;

use crate::abi::AcmStatus;
use crate::address::{Gid, Lid, PKey};
use crate::path::{Limit, PathRecord, Selector, rate_mbps};

/// The asking side of the path queries of one endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Source {
    /// The port's GID.
    pub gid: Gid,
    /// The port's base LID.
    pub lid: Lid,
    /// The endpoint's P_Key, as the port's table has it.
    pub pkey: PKey,
}

/// The port that a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// A port by its GID.
    Gid(Gid),
    /// A port by its LID.
    Lid(Lid),
}

/// A component of a path record that a query can name (IBA vol. 1, 15.2.5.16). Hop limit, preference, number of paths and
/// the reversible bit are missing: the first two are the SA's to say, and every query asks for one reversible path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Component {
    /// GID of the destination port.
    Dgid,
    /// GID of the source port.
    Sgid,
    /// LID of the destination port, or of the router towards it.
    Dlid,
    /// LID of the source port.
    Slid,
    /// P_Key, of which the partition counts and the membership bit does not.
    PKey,
    /// Service id.
    ServiceId,
    /// QoS class.
    QosClass,
    /// Traffic class.
    TrafficClass,
    /// Flow label.
    FlowLabel,
    /// Service level.
    Sl,
    /// MTU, with its selector.
    Mtu,
    /// Rate, with its selector.
    Rate,
    /// Packet lifetime, with its selector.
    PacketLifetime,
}

/// Mask bits of the components that follow the first [`IN_PLAIN_QUERIES`].
const CHOICES: u64 = {
    let (mut mask, mut index) = (0, IN_PLAIN_QUERIES);
    while index < Component::ALL.len() {
        mask |= Component::ALL[index].mask();
        index += 1;
    }
    mask
};

/// How many of [`Component::ALL`], from the first on, say which ports are meant. The others choose between the paths of two ports:
/// few queries name one.
const IN_PLAIN_QUERIES: usize = 5;

/// Mask bits of what every query asks for: one reversible path.
const ONE_REVERSIBLE_PATH: u64 = Component::REVERSIBLE_MASK | Component::NUMBER_OF_PATHS_MASK;

impl Component {
    /// The mask bit of the reversible bit, which every query sets.
    pub const REVERSIBLE_MASK: u64 = 1 << 11;
    /// The mask bit of the number of paths, which every query sets to one.
    pub const NUMBER_OF_PATHS_MASK: u64 = 1 << 12;

    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Dgid,
        Self::Dlid,
        Self::Sgid,
        Self::Slid,
        Self::PKey,
        Self::ServiceId,
        Self::QosClass,
        Self::TrafficClass,
        Self::FlowLabel,
        Self::Sl,
        Self::Mtu,
        Self::Rate,
        Self::PacketLifetime,
    ];

    /// The bits of the component mask, host order. A value with a selector has two, which are always set together: an SA
    /// ignores a lone one.
    #[must_use]
    pub const fn mask(self) -> u64 {
        match self {
            Self::ServiceId => 1 << 0 | 1 << 1,
            Self::Dgid => 1 << 2,
            Self::Sgid => 1 << 3,
            Self::Dlid => 1 << 4,
            Self::Slid => 1 << 5,
            Self::FlowLabel => 1 << 8,
            Self::TrafficClass => 1 << 10,
            Self::PKey => 1 << 13,
            Self::QosClass => 1 << 14,
            Self::Sl => 1 << 15,
            Self::Mtu => 1 << 16 | 1 << 17,
            Self::Rate => 1 << 18 | 1 << 19,
            Self::PacketLifetime => 1 << 20 | 1 << 21,
        }
    }

    /// Whether the value of a record says that a path has what was asked for. The others only choose a path: SAs (OpenSM
    /// among them) return zero there.
    const fn is_shown_by_a_path(self) -> bool {
        !matches!(
            self,
            Self::ServiceId | Self::QosClass | Self::TrafficClass | Self::FlowLabel
        )
    }

    /// The limit in a record, of a component that has a selector.
    fn limit(self, record: &PathRecord) -> Option<Limit> {
        let (selector, code) = match self {
            Self::Mtu => (record.mtu_selector(), record.mtu()),
            Self::Rate => (record.rate_selector(), record.rate()),
            Self::PacketLifetime => (record.packet_lifetime_selector(), record.packet_lifetime()),
            _ => return None,
        };
        Some(Limit { selector, code })
    }

    /// What a code stands for, in an order that the codes themselves need not follow.
    fn meaning(self, code: u8) -> Option<u32> {
        match self {
            Self::Rate => rate_mbps(code),
            _ => Some(code.into()),
        }
    }

    /// The value as a number: equal numbers are equal demands.
    fn value(self, record: &PathRecord) -> u128 {
        match self {
            Self::Dgid => u128::from_be_bytes(record.dgid().0),
            Self::Sgid => u128::from_be_bytes(record.sgid().0),
            Self::Dlid => record.dlid().0.into(),
            Self::Slid => record.slid().0.into(),
            Self::PKey => record.pkey().partition().into(),
            Self::ServiceId => record.service_id().into(),
            Self::QosClass => record.qos_class().into(),
            Self::TrafficClass => record.traffic_class().into(),
            Self::FlowLabel => record.flow_label().into(),
            Self::Sl => record.sl().into(),
            Self::Mtu | Self::Rate | Self::PacketLifetime => {
                self.limit(record).map_or(0, Limit::to_byte).into()
            }
        }
    }

    fn copy(self, from: &PathRecord, to: &mut PathRecord) {
        let Limit { selector, code } = self.limit(from).unwrap_or(Limit::from_byte(0));
        match self {
            Self::Dgid => to.set_dgid(from.dgid()),
            Self::Sgid => to.set_sgid(from.sgid()),
            Self::Dlid => to.set_dlid(from.dlid()),
            Self::Slid => to.set_slid(from.slid()),
            Self::PKey => to.set_pkey(from.pkey()),
            Self::ServiceId => to.set_service_id(from.service_id()),
            Self::QosClass => to.set_qos_class(from.qos_class()),
            Self::TrafficClass => to.set_traffic_class(from.traffic_class()),
            Self::FlowLabel => to.set_flow_label(from.flow_label()),
            Self::Sl => to.set_sl(from.sl()),
            Self::Mtu => to.set_mtu(selector, code),
            Self::Rate => to.set_rate(selector, code),
            Self::PacketLifetime => to.set_packet_lifetime(selector, code),
        };
    }

    /// Shows a [value](Self::value).
    fn show(self, value: u128, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dgid | Self::Sgid => write!(f, "{}", Gid(value.to_be_bytes())),
            Self::PKey => write!(f, "{}", PKey(value as u16)),
            Self::ServiceId | Self::FlowLabel => write!(f, "{value:#x}"),
            Self::Mtu | Self::Rate | Self::PacketLifetime => {
                write!(f, "{}", Limit::from_byte(value as u8))
            }
            _ => write!(f, "{value}"),
        }
    }
}

impl Component {
    /// The component's name in log lines.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Dgid => "DGID",
            Self::Sgid => "SGID",
            Self::Dlid => "DLID",
            Self::Slid => "SLID",
            Self::PKey => "P_Key",
            Self::ServiceId => "service id",
            Self::QosClass => "QoS class",
            Self::TrafficClass => "traffic class",
            Self::FlowLabel => "flow label",
            Self::Sl => "SL",
            Self::Mtu => "MTU",
            Self::Rate => "rate",
            Self::PacketLifetime => "packet lifetime",
        }
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A query for one reversible path: each component is named with a value, 0 included, or left open.
///
/// ```
/// use acm_prov_api::address::Gid;
/// use acm_prov_api::path::Selector;
/// use acm_prov_api::sa::{Component, PathQuery, Target};
///
/// let peer: Gid = "fe80::2:c903:1".parse()?;
/// let mut query = PathQuery::to(Target::Gid(peer));
/// query.set_sl(0).set_mtu(Selector::GreaterThan, 3);
/// assert!(query.names(Component::Sl) && !query.names(Component::Rate));
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PathQuery {
    mask: u64,
    /// Zero wherever nothing is named.
    record: PathRecord,
}

/// Why a query asks for nothing that a path can lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathQueryError {
    /// Neither a DLID nor a DGID.
    #[error("the request names neither DLID nor DGID")]
    NoDestination,
    /// A DLID that no port has.
    #[error("DLID {0} is not unicast (1 to 49151)")]
    LidNotUnicast(Lid),
    /// A DGID that no port has.
    #[error("DGID {0} is a multicast group, which no path leads to")]
    GidNotUnicast(Gid),
}

impl PathQueryError {
    /// The status for the client.
    #[must_use]
    pub const fn status(self) -> AcmStatus {
        AcmStatus::EDESTADDR
    }
}

macro_rules! setters {
    ($($(#[$doc:meta])* $setter:ident($($value:ident: $type:ty),+), $component:ident;)+) => {
        $(
            $(#[$doc])*
            pub fn $setter(&mut self, $($value: $type),+) -> &mut Self {
                let mut record = PathRecord::default();
                self.name(Component::$component, record.$setter($($value),+))
            }
        )+
    };
}

impl PathQuery {
    /// The query for any path to `target`.
    #[must_use]
    pub fn to(target: Target) -> Self {
        let mut query = Self::open();
        query.set_target(target);
        query
    }

    /// Names nothing, not even a destination.
    pub(crate) fn open() -> Self {
        Self {
            mask: ONE_REVERSIBLE_PATH,
            record: PathRecord::default(),
        }
    }

    /// The query that a path record in a client's message asks.
    ///
    /// This is the one place where a client's zero gets its meaning: a component of zero is left open, and so are MTU, rate
    /// and packet lifetime whose selector is zero, and a P_Key of no partition (0x8000). Hop limit, preference, number
    /// of paths and the reversible bit are not looked at.
    #[must_use]
    pub fn from_client(record: &PathRecord) -> Self {
        let mut query = Self::open();
        for component in Component::ALL {
            let is_named = match component.limit(record) {
                Some(limit) => limit.selector as u8 != 0,
                None => component.value(record) != 0,
            };
            if is_named {
                query.name(component, record);
            }
        }
        query
    }

    /// Whether a component is named.
    #[must_use]
    pub const fn names(&self, component: Component) -> bool {
        self.mask & component.mask() != 0
    }

    /// The component mask, host order: what is named, and one reversible path.
    #[must_use]
    pub const fn mask(&self) -> u64 {
        self.mask
    }

    /// The values, zero where a component is left open.
    #[must_use]
    pub const fn values(&self) -> &PathRecord {
        &self.record
    }

    /// The record to ask the SA with. It goes with [`mask`](Self::mask).
    #[must_use]
    pub fn record(&self) -> PathRecord {
        let mut record = self.record;
        record.set_reversible(true).set_numb_path(1);
        record
    }

    /// Names another destination, in place of a DGID and DLID that were named.
    pub fn set_target(&mut self, target: Target) -> &mut Self {
        self.leave_open(Component::Dgid);
        self.leave_open(Component::Dlid);
        match target {
            Target::Gid(gid) => self.set_dgid(gid),
            Target::Lid(lid) => self.set_dlid(lid),
        }
    }

    /// Names a component, with its value in a record.
    pub(crate) fn name(&mut self, component: Component, record: &PathRecord) -> &mut Self {
        self.mask |= component.mask();
        component.copy(record, &mut self.record);
        self
    }

    setters! {
        /// Names the destination's GID.
        set_dgid(gid: Gid), Dgid;
        /// Names the source's GID.
        set_sgid(gid: Gid), Sgid;
        /// Names the destination's LID, or that of the router towards it.
        set_dlid(lid: Lid), Dlid;
        /// Names the source's LID.
        set_slid(lid: Lid), Slid;
        /// Names the P_Key.
        set_pkey(pkey: PKey), PKey;
        /// Names the service id.
        set_service_id(id: u64), ServiceId;
        /// Names the QoS class, 12 bits.
        set_qos_class(class: u16), QosClass;
        /// Names the traffic class.
        set_traffic_class(class: u8), TrafficClass;
        /// Names the flow label, 20 bits.
        set_flow_label(label: u32), FlowLabel;
        /// Names the service level, 4 bits.
        set_sl(sl: u8), Sl;
        /// Names the MTU: a code (1 = 256 bytes … 5 = 4096) and how it is meant.
        set_mtu(selector: Selector, code: u8), Mtu;
        /// Names the rate: a code of `ibv_rate` and how it is meant.
        set_rate(selector: Selector, code: u8), Rate;
        /// Names the packet lifetime: n of 4.096 µs × 2^n and how it is meant.
        set_packet_lifetime(selector: Selector, n: u8), PacketLifetime;
    }

    /// Leaves a component open.
    pub fn leave_open(&mut self, component: Component) -> &mut Self {
        self.mask &= !component.mask();
        component.copy(&PathRecord::default(), &mut self.record);
        self
    }

    /// Fills in what every query of an endpoint names, its GID and P_Key, and reads GIDs as the SA does: fe80::/10 is the
    /// port's own subnet, whatever its prefix.
    ///
    /// A P_Key of the endpoint's own partition becomes the endpoint's, with its membership bit; one of another
    /// partition becomes the full member's.
    #[must_use]
    pub fn complete(mut self, source: &Source) -> Self {
        let prefix = source.gid.subnet_prefix();
        if self.names(Component::Dgid) {
            self.record.set_dgid(self.record.dgid().in_subnet(prefix));
        }
        let sgid = match self.names(Component::Sgid) {
            true => self.record.sgid().in_subnet(prefix),
            false => source.gid,
        };
        let pkey = match self.record.pkey() {
            own if !self.names(Component::PKey) || own.same_partition(source.pkey) => source.pkey,
            other => PKey(other.0 | PKey::FULL_MEMBER),
        };
        self.set_sgid(sgid).set_pkey(pkey);
        self
    }

    /// Where the path is to lead: to the DGID or, without one, the DLID.
    ///
    /// # Errors
    /// No destination, or one that is not a port.
    pub fn target(&self) -> Result<Target, PathQueryError> {
        let (dgid, dlid) = (self.record.dgid(), self.record.dlid());
        if self.names(Component::Dlid) && !dlid.is_unicast() {
            return Err(PathQueryError::LidNotUnicast(dlid));
        }
        if dgid.is_multicast() {
            return Err(PathQueryError::GidNotUnicast(dgid));
        }
        if !dgid.is_zero() {
            Ok(Target::Gid(dgid))
        } else if !dlid.is_zero() {
            Ok(Target::Lid(dlid))
        } else {
            Err(PathQueryError::NoDestination)
        }
    }

    /// Whether nothing is named but one destination and what every query of `source` names.
    #[must_use]
    pub fn is_plain(&self, source: &Source) -> bool {
        const OF_ALL: u64 = ONE_REVERSIBLE_PATH | Component::Sgid.mask() | Component::PKey.mask();
        (self.mask == OF_ALL | Component::Dgid.mask()
            || self.mask == OF_ALL | Component::Dlid.mask())
            && self.record.sgid() == source.gid
            && self.record.pkey() == source.pkey
    }

    /// Whether the path has what is named of a component. A rate code that stands for nothing known is the SA's to judge:
    /// `unknown` then.
    fn is_met(&self, component: Component, path: &PathRecord, unknown: bool) -> bool {
        let Some(Limit { selector, code }) = component.limit(&self.record) else {
            return component.value(&self.record) == component.value(path);
        };
        let got = component.limit(path).map_or(0, |limit| limit.code);
        match selector {
            Selector::Exactly => got == code,
            Selector::Best => true,
            _ => match (component.meaning(code), component.meaning(got)) {
                (Some(limit), Some(got)) if selector == Selector::GreaterThan => got > limit,
                (Some(limit), Some(got)) => got < limit,
                _ => unknown,
            },
        }
    }

    /// Checks that a record of the SA answers this query.
    ///
    /// | component | is compared | why not otherwise |
    /// | --- | --- | --- |
    /// | DGID | with the one that was named; else it must be a port's | |
    /// | DLID | with the one that was named; else it must be a port's | |
    /// | SGID | always | |
    /// | SLID | with the one that was named; else it must be a port's | the SA knows of a new LID before the daemon does |
    /// | P_Key | the partition, always | an SA gives the full member's P_Key to limited members |
    /// | SL, MTU, rate, packet lifetime | if named, by selector; rates by Mb/s, not by code | |
    /// | MTU, rate, packet lifetime, "the best" | no | only the SA knows all paths |
    /// | service id, QoS class, traffic class, flow label | if named: as named, or zero | they choose a path; OpenSM returns zeros |
    /// | hop limit, preference, number of paths, reversible | no | the SA's to say: a query cannot name the first two, and asks for one reversible path |
    ///
    /// # Errors
    /// The first component that differs.
    pub fn check(&self, path: &PathRecord) -> Result<(), Mismatch> {
        // What is left open of the others is not compared.
        let compared = match self.mask & CHOICES {
            0 => IN_PLAIN_QUERIES,
            _ => Component::ALL.len(),
        };
        for component in Component::ALL.into_iter().take(compared) {
            let is_right = if !self.names(component) {
                match component {
                    Component::Dgid => !path.dgid().is_zero() && !path.dgid().is_multicast(),
                    Component::Dlid => path.dlid().is_unicast(),
                    Component::Slid => path.slid().is_unicast(),
                    _ => true,
                }
            } else if component.is_shown_by_a_path() {
                self.is_met(component, path, true)
            } else {
                component.value(path) == 0 || self.is_met(component, path, true)
            };
            if !is_right {
                let asked = self.names(component);
                return Err(Mismatch {
                    component,
                    asked: asked.then(|| component.value(&self.record)),
                    got: component.value(path),
                    dgid: path.dgid(),
                    dlid: path.dlid(),
                });
            }
        }
        Ok(())
    }

    /// Whether `path`, which the SA gave for the query `asked`, answers this query as well, so that the SA need not be
    /// asked. Both queries are [complete](Self::complete).
    ///
    /// It does in two cases:
    /// - All that `asked` named is named here with the same value, and the path has the rest: GIDs, LIDs and SL are
    ///   equal; MTU, rate and lifetime are compared by meaning; the partition is the same. A service id, QoS
    ///   class, traffic class, flow label or "the best" must have been asked for: a path does not show them.
    /// - This query repeats the path, as `rdma_getaddrinfo` does with the record that it was handed: an SA may refuse
    ///   its own record (OpenSM's DFSSSP routing draws an SL for each query).
    #[must_use]
    pub fn is_answered_by(&self, asked: &PathQuery, path: &PathRecord) -> bool {
        let follows = Component::ALL.into_iter().all(|component| {
            if asked.names(component) {
                self.names(component)
                    && component.value(&asked.record) == component.value(&self.record)
            } else if self.names(component) {
                let is_best = component
                    .limit(&self.record)
                    .is_some_and(|limit| limit.selector == Selector::Best);
                component.is_shown_by_a_path() && !is_best && self.is_met(component, path, false)
            } else {
                true
            }
        });
        follows || self.repeats(path)
    }

    /// Whether the query is the path itself.
    pub(crate) fn repeats(&self, path: &PathRecord) -> bool {
        let is_repeated = |component: Component| match component {
            Component::ServiceId | Component::QosClass => !self.names(component),
            Component::Sl | Component::TrafficClass | Component::FlowLabel => {
                component.value(&self.record) == component.value(path)
            }
            Component::Mtu | Component::Rate | Component::PacketLifetime => {
                let exactly = component
                    .limit(&self.record)
                    .is_some_and(|limit| limit.selector == Selector::Exactly);
                exactly && self.is_met(component, path, false)
            }
            _ => self.names(component) && self.is_met(component, path, false),
        };
        Component::ALL.into_iter().all(is_repeated)
    }
}

/// What is named, in one line.
impl fmt::Debug for PathQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before = "{";
        for component in Component::ALL {
            if self.names(component) {
                write!(f, "{before}{component}: ")?;
                component.show(component.value(&self.record), f)?;
                before = ", ";
            }
        }
        f.write_str(if before == "{" { "{}" } else { "}" })
    }
}

/// The SA's record differs from what it was asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Mismatch {
    /// The component that differs.
    pub component: Component,
    asked: Option<u128>,
    got: u128,
    dgid: Gid,
    dlid: Lid,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let component = self.component;
        write!(
            f,
            "the SA's path to {} (LID {}) has {component} ",
            self.dgid, self.dlid
        )?;
        component.show(self.got, f)?;
        match self.asked {
            Some(asked) => {
                f.write_str(", asked for: ")?;
                component.show(asked, f)
            }
            None => f.write_str(", which no port has"),
        }
    }
}

impl fmt::Debug for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Mismatch {}

#[cfg(test)]
mod tests;
