//! A provider's own constraints on a path, in order of preference.

use smallvec::{SmallVec, smallvec};

use crate::path::{PathRecord, Selector};
use crate::sa::{Component, PathQuery};

/// Components that a provider names in a query to the SA, with their values.
///
/// ```
/// use acm_prov_api::path::Selector;
/// use acm_prov_api::cache::Constraints;
///
/// // Service level 3 and an MTU above 2048 bytes if the SA has such a path, else service level 3, else any path.
/// let level = Constraints::new().sl(3);
/// let alternatives = level.mtu(Selector::GreaterThan, 4).or(level).or(Constraints::new());
/// # let _ = alternatives;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Constraints(PathQuery);

impl Default for Constraints {
    fn default() -> Self {
        Self::new()
    }
}

impl Constraints {
    /// No constraint: any path.
    pub fn new() -> Self {
        Self(PathQuery::open())
    }

    /// Names the service level, 4 bits. 0 is a level like any other.
    pub fn sl(mut self, sl: u8) -> Self {
        self.0.set_sl(sl);
        self
    }

    /// Names the MTU: a code (1 = 256 bytes … 5 = 4096) and how to compare it.
    pub fn mtu(mut self, selector: Selector, code: u8) -> Self {
        self.0.set_mtu(selector, code);
        self
    }

    /// Names the rate: a code of `ibv_rate` and how to compare it.
    pub fn rate(mut self, selector: Selector, code: u8) -> Self {
        self.0.set_rate(selector, code);
        self
    }

    /// Names the packet lifetime: n of 4.096 µs × 2^n and how to compare it.
    pub fn packet_lifetime(mut self, selector: Selector, n: u8) -> Self {
        self.0.set_packet_lifetime(selector, n);
        self
    }

    /// Names the traffic class.
    pub fn traffic_class(mut self, class: u8) -> Self {
        self.0.set_traffic_class(class);
        self
    }

    /// Names the QoS class, 12 bits.
    pub fn qos_class(mut self, class: u16) -> Self {
        self.0.set_qos_class(class);
        self
    }

    /// Names the service id.
    pub fn service_id(mut self, id: u64) -> Self {
        self.0.set_service_id(id);
        self
    }

    /// These constraints, or else `next`.
    pub fn or(self, next: Self) -> Alternatives {
        Alternatives::from(self).or(next)
    }

    /// Returns the client's query with these constraints. The components that the client names stay unchanged.
    #[must_use]
    pub fn apply(&self, query: &PathQuery) -> PathQuery {
        let mut query = *query;
        for component in Component::ALL {
            if self.0.names(component) && !query.names(component) {
                query.name(component, self.0.values());
            }
        }
        query
    }
}

/// Constraints in order of preference; the first is tried first. [`Default`] is any path.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Alternatives {
    /// Empty means any path; then no component is compared.
    constraints: SmallVec<[Constraints; 2]>,
}

impl Default for Alternatives {
    fn default() -> Self {
        Self::any()
    }
}

impl From<Constraints> for Alternatives {
    fn from(only: Constraints) -> Self {
        Self {
            constraints: smallvec![only],
        }
    }
}

impl Alternatives {
    /// Any path: sends the client's query unchanged.
    pub fn any() -> Self {
        Self {
            constraints: SmallVec::new(),
        }
    }

    /// These alternatives, or else `next`.
    pub fn or(mut self, next: Constraints) -> Self {
        if self.is_any() {
            self.constraints.push(Constraints::new());
        }
        self.constraints.push(next);
        self
    }

    /// Whether the client's query goes to the SA unchanged.
    pub(super) fn is_any(&self) -> bool {
        self.constraints.is_empty()
    }

    /// Returns the queries to send to the SA for a client's `query`, in this order. Equal ones appear once: components that
    /// the client names can make two alternatives equal.
    pub(super) fn apply(&self, query: &PathQuery) -> SmallVec<[PathQuery; 2]> {
        if self.is_any() {
            return smallvec![*query];
        }
        let mut queries = SmallVec::new();
        for constraints in &self.constraints {
            let query = constraints.apply(query);
            if !queries.contains(&query) {
                queries.push(query);
            }
        }
        queries
    }

    /// Whether `path` answers the client's `query` and meets the first alternative.
    pub(super) fn prefer(&self, query: &PathQuery, path: &PathRecord) -> bool {
        self.constraints
            .first()
            .is_none_or(|first| first.apply(query).check(path).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::{Gid, Lid};
    use crate::sa::Target;

    fn query() -> PathQuery {
        PathQuery::to(Target::Lid(Lid(7)))
    }

    #[test]
    fn what_the_client_names_stays() {
        let level = Constraints::new().sl(3).mtu(Selector::GreaterThan, 4);
        let mut asked = query();
        asked.set_sl(0);
        let constrained = level.apply(&asked);
        assert_eq!(constrained.values().sl(), 0);
        assert_eq!(constrained.values().mtu(), 4);
        assert_eq!(level.apply(&query()).values().sl(), 3);
    }

    #[test]
    fn level_zero_is_named() {
        assert!(
            Constraints::new()
                .sl(0)
                .apply(&query())
                .names(Component::Sl)
        );
        assert!(!Constraints::new().apply(&query()).names(Component::Sl));
    }

    #[test]
    fn equal_alternatives_are_asked_once() {
        let alternatives = Constraints::new().sl(3).or(Constraints::new());
        assert_eq!(alternatives.apply(&query()).len(), 2);
        let any_first = Alternatives::any().or(Constraints::new().sl(3));
        assert_eq!(any_first.apply(&query()).len(), 2);
        assert_eq!(Alternatives::any().apply(&query()).as_slice(), [query()]);
        let mut asked = query();
        asked.set_sl(1);
        assert_eq!(alternatives.apply(&asked).as_slice(), [asked]);
    }

    #[test]
    fn the_first_alternative_is_the_preferred_one() {
        let alternatives = Constraints::new().sl(3).or(Constraints::new());
        let mut path = PathRecord::default();
        path.set_dgid(Gid::new(0xfe80 << 48, 1))
            .set_dlid(Lid(7))
            .set_slid(Lid(1));
        assert!(Alternatives::any().prefer(&query(), &path));
        assert!(!alternatives.prefer(&query(), &path));
        path.set_sl(3);
        assert!(alternatives.prefer(&query(), &path));
    }
}
