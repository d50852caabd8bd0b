//! A path query: the named components and their values.

use std::fmt;

use crate::abi::AcmStatus;
use crate::address::{Gid, Lid, PKey};
use crate::path::{Limit, PathRecord, Selector, rate_mbps};

/// The source side of an endpoint's path queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Source {
    /// The port's GID.
    pub gid: Gid,
    /// The port's base LID.
    pub lid: Lid,
    /// The endpoint's P_Key, as in the port's table.
    pub pkey: PKey,
}

/// The destination port of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// A port by its GID.
    Gid(Gid),
    /// A port by its LID.
    Lid(Lid),
}

/// A component of a path record that a query can name (IBA vol. 1, 15.2.5.16). Hop limit and preference are missing because
/// only the SA sets them; number of paths and the reversible bit, because every query asks for one reversible path.
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
    /// P_Key: the partition, without the membership bit.
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

/// How many of the first [`Component::ALL`] identify the two ports. The others choose between the paths of two ports;
/// few queries name one.
const IN_PLAIN_QUERIES: usize = 5;

/// Mask bits in every query: one reversible path.
const ONE_REVERSIBLE_PATH: u64 = Component::REVERSIBLE_MASK | Component::NUMBER_OF_PATHS_MASK;

impl Component {
    /// The mask bit of the reversible bit, which every query sets.
    pub const REVERSIBLE_MASK: u64 = 1 << 11;
    /// The mask bit of the number of paths, which every query sets to one.
    pub const NUMBER_OF_PATHS_MASK: u64 = 1 << 12;

    /// All components.
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

    /// Returns the bits of the component mask, host order. A value with a selector has two bits, which are always set
    /// together: an SA ignores a single one.
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

    /// Whether the SA's record shows the value of this component. The others only choose a path: SAs such as OpenSM return
    /// zero for them.
    const fn is_shown_by_a_path(self) -> bool {
        !matches!(
            self,
            Self::ServiceId | Self::QosClass | Self::TrafficClass | Self::FlowLabel
        )
    }

    /// Returns the limit in a record, if the component has a selector.
    fn limit(self, record: &PathRecord) -> Option<Limit> {
        let (selector, code) = match self {
            Self::Mtu => (record.mtu_selector(), record.mtu()),
            Self::Rate => (record.rate_selector(), record.rate()),
            Self::PacketLifetime => (record.packet_lifetime_selector(), record.packet_lifetime()),
            _ => return None,
        };
        Some(Limit { selector, code })
    }

    /// Returns the value behind a code, to compare: codes need not be in order.
    fn meaning(self, code: u8) -> Option<u32> {
        match self {
            Self::Rate => rate_mbps(code),
            _ => Some(code.into()),
        }
    }

    /// Returns the value as a number: equal numbers are equal constraints.
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

    /// Prints a [value](Self::value).
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
    /// Returns the component's name in log lines.
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

/// A query for one reversible path. Each component is either named with a value (0 is a value), or left open.
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
    /// Zero in components that are left open.
    record: PathRecord,
}

/// The reason why a query has no valid destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathQueryError {
    /// It names neither DLID nor DGID.
    #[error("the request names neither DLID nor DGID")]
    NoDestination,
    /// The DLID is not a port's.
    #[error("DLID {0} is not unicast (1 to 49151)")]
    LidNotUnicast(Lid),
    /// The DGID is not a port's.
    #[error("DGID {0} is a multicast group, not a port")]
    GidNotUnicast(Gid),
}

impl PathQueryError {
    /// Returns the status for the client.
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
    /// Creates a query for any path to `target`.
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

    /// Creates the query of a path record in a client's message.
    ///
    /// Only this function gives a client's zero its meaning: it leaves a component of zero open, and also MTU, rate
    /// and packet lifetime with the selector zero, and the P_Key 0x8000 (no partition). It ignores hop limit, preference,
    /// number of paths and the reversible bit.
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

    /// Returns the component mask, host order: the named components, and one reversible path.
    #[must_use]
    pub const fn mask(&self) -> u64 {
        self.mask
    }

    /// Returns the values, zero for components left open.
    #[must_use]
    pub const fn values(&self) -> &PathRecord {
        &self.record
    }

    /// Returns the record to send to the SA, together with [`mask`](Self::mask).
    #[must_use]
    pub fn record(&self) -> PathRecord {
        let mut record = self.record;
        record.set_reversible(true).set_numb_path(1);
        record
    }

    /// Names another destination, in place of a named DGID and DLID.
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
        /// Names the LID of the destination, or of the router towards it.
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
        /// Names the MTU: a code (1 = 256 bytes … 5 = 4096) and how to compare it.
        set_mtu(selector: Selector, code: u8), Mtu;
        /// Names the rate: a code of `ibv_rate` and how to compare it.
        set_rate(selector: Selector, code: u8), Rate;
        /// Names the packet lifetime: n of 4.096 µs × 2^n and how to compare it.
        set_packet_lifetime(selector: Selector, n: u8), PacketLifetime;
    }

    /// Leaves a component open.
    pub fn leave_open(&mut self, component: Component) -> &mut Self {
        self.mask &= !component.mask();
        component.copy(&PathRecord::default(), &mut self.record);
        self
    }

    /// Returns the query with the endpoint's GID and P_Key, and with GIDs read as the SA does: fe80::/10 is the port's own
    /// subnet, whatever its prefix.
    ///
    /// A P_Key of the endpoint's partition becomes the endpoint's P_Key, with its membership bit. A P_Key of another
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

    /// Returns the destination: the DGID or, without one, the DLID.
    ///
    /// # Errors
    /// If there is no destination, or it is not a port's.
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

    /// Whether the query names only one destination, and `source`'s own GID and P_Key.
    #[must_use]
    pub fn is_plain(&self, source: &Source) -> bool {
        const OF_ALL: u64 = ONE_REVERSIBLE_PATH | Component::Sgid.mask() | Component::PKey.mask();
        (self.mask == OF_ALL | Component::Dgid.mask()
            || self.mask == OF_ALL | Component::Dlid.mask())
            && self.record.sgid() == source.gid
            && self.record.pkey() == source.pkey
    }

    /// Whether the path has the named value of a component. For an unknown rate code, which only the SA can judge, it returns
    /// `unknown`.
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
    /// | DGID | with the named one; otherwise it must be a port's | |
    /// | DLID | with the named one; otherwise it must be a port's | |
    /// | SGID | always | |
    /// | SLID | with the named one; otherwise it must be a port's | the SA knows of a new LID before the daemon does |
    /// | P_Key | the partition, always | an SA gives the full member's P_Key to limited members |
    /// | SL, MTU, rate, packet lifetime | if named, by selector; rates by Mb/s, not by code | |
    /// | MTU, rate, packet lifetime, "the best" | no | only the SA knows all paths |
    /// | service id, QoS class, traffic class, flow label | if named: as named, or zero | they choose a path; OpenSM returns zeros |
    /// | hop limit, preference, number of paths, reversible | no | a query cannot name the first two, and always asks for one reversible path |
    ///
    /// # Errors
    /// The first component that differs.
    pub fn check(&self, path: &PathRecord) -> Result<(), Mismatch> {
        // Of the other components, compare only the named ones.
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

    /// Whether `path`, the SA's answer to the query `asked`, also answers this query, so that no SA query is needed. Both
    /// queries are [complete](Self::complete).
    ///
    /// It does in two cases:
    /// - This query names everything that `asked` named, with the same values, and the path has the rest: GIDs, LIDs and SL
    ///   are equal; MTU, rate and lifetime match by meaning; the partition is the same. `asked` must have named the service
    ///   id, QoS class, traffic class, flow label or "the best" of this query: a path does not show them.
    /// - This query repeats the path, as `rdma_getaddrinfo` does with the record that it got. An SA may refuse its own
    ///   record (OpenSM's DFSSSP routing draws a random SL for each query).
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

    /// Whether the query repeats the path.
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

/// Prints the named components in one line.
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

/// A difference between the SA's record and the query.
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
