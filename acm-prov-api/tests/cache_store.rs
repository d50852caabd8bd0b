//! Compares the path store with a model that keeps all answers in one list and searches it. The model evicts nothing: a store
//! that evicts gives the model's answer, or none.

use std::collections::HashMap;
use std::time::Duration;

use acm_prov_api::address::{Gid, Lid, PKey};
use acm_prov_api::cache::store::{Epoch, PathStore, StoreLimits};
use acm_prov_api::clock::Moment;
use acm_prov_api::path::{PathRecord, Selector};
use acm_prov_api::sa::{Component, PathQuery, Source, Target};
use proptest::prelude::*;

const TTL: u64 = 1_000;
/// Milliseconds at the end of such a TTL in which `plain` finds nothing.
const TICK: u64 = 100;
const STALE_TTL: u64 = 500;
const NEGATIVE_TTL: u64 = 200;

fn source() -> Source {
    Source {
        gid: gid(0xffff),
        lid: Lid(0xbfff),
        pkey: PKey(0xffff),
    }
}

fn gid(id: u64) -> Gid {
    Gid::new(0xfe80_0000_0000_0000, id)
}

/// An answer in the model.
#[derive(Clone, Copy)]
struct Fact {
    asked: PathQuery,
    path: PathRecord,
    learned: u64,
    epoch: usize,
}

impl Fact {
    fn target(&self) -> Target {
        self.asked.target().unwrap()
    }

    fn is_plain(&self) -> bool {
        self.asked.is_plain(&source())
    }

    fn leads_to(&self, target: Target, gid: Gid, lid: Lid) -> bool {
        self.target() == target && self.path.dgid() == gid && self.path.dlid() == lid
    }
}

/// The rules, without regard to speed.
#[derive(Default)]
struct Model {
    /// Whether the store evicts. It may then have dropped an answer that would show others to be outdated.
    evicts: bool,
    /// Oldest first.
    facts: Vec<Fact>,
    missing: HashMap<PathQuery, u64>,
    /// When each epoch ended; `None` if by a clear.
    ends: Vec<Option<u64>>,
}

impl Model {
    fn epoch(&self) -> usize {
        self.ends.len()
    }

    fn is_fresh(&self, fact: &Fact, now: u64) -> bool {
        now - fact.learned < TTL && fact.epoch == self.epoch()
    }

    fn is_usable(&self, fact: &Fact, now: u64) -> bool {
        let young = now - fact.learned < TTL;
        young
            && match self.ends.get(fact.epoch) {
                None => true,
                Some(end) => end.is_some_and(|end| now - end < STALE_TTL),
            }
    }

    /// Returns all possible answers: paths to the named GID, or otherwise to the LID.
    fn candidates(&self, query: &PathQuery, is_right: impl Fn(&Fact) -> bool) -> Vec<PathRecord> {
        let of_targets = targets(query).into_iter().map(|target| {
            self.facts
                .iter()
                .filter(|fact| fact.target() == target && is_right(fact))
                .filter(|fact| query.is_answered_by(&fact.asked, &fact.path))
                .map(|fact| fact.path)
                .collect::<Vec<PathRecord>>()
        });
        let mut of_targets: Vec<Vec<PathRecord>> = of_targets.collect();
        if self.evicts {
            return of_targets.concat();
        }
        of_targets.retain(|paths| !paths.is_empty());
        of_targets.into_iter().next().unwrap_or_default()
    }

    fn learn(&mut self, query: &PathQuery, path: PathRecord, now: u64) {
        self.missing.remove(query);
        let fact = Fact {
            asked: *query,
            path,
            learned: now,
            epoch: self.epoch(),
        };
        let target = fact.target();
        let last = self.facts.iter().find(|fact| fact.asked == *query).copied();
        if let Some(last) = last.filter(|last| last.is_plain())
            && (last.path.dgid(), last.path.dlid()) != (path.dgid(), path.dlid())
            && !self.evicts
        {
            // Another port, or the same one elsewhere.
            self.facts.retain(|fact| fact.target() != target);
            if last.path.dgid() == path.dgid() {
                self.forget_lid(path.dgid(), last.path.dlid());
            }
        }
        self.facts.retain(|fact| fact.asked != *query);
        self.facts.push(fact);
    }

    fn forget_lid(&mut self, gid: Gid, lid: Lid) {
        let target = Target::Lid(lid);
        if self
            .facts
            .iter()
            .any(|fact| fact.leads_to(target, gid, lid))
        {
            self.facts.retain(|fact| fact.target() != target);
        }
    }

    fn seen(&mut self, gid: Gid, lid: Lid) {
        let target = Target::Gid(gid);
        let (elsewhere, _): (Vec<Fact>, _) = self
            .facts
            .iter()
            .partition(|fact| fact.target() == target && fact.path.dlid() != lid);
        if self.evicts {
            let is_elsewhere = |fact: &Fact| fact.target() == target && fact.path.dlid() != lid;
            self.facts.retain(|fact| !is_elsewhere(fact));
            return;
        }
        if !elsewhere.is_empty() {
            self.facts.retain(|fact| fact.target() != target);
        }
        for fact in elsewhere {
            self.forget_lid(gid, fact.path.dlid());
        }
    }

    fn clear(&mut self) {
        self.facts.clear();
        self.missing.clear();
        self.ends.push(None);
    }
}

fn targets(query: &PathQuery) -> Vec<Target> {
    let mut targets = Vec::new();
    if query.names(Component::Dgid) {
        targets.push(Target::Gid(query.values().dgid()));
    }
    if query.names(Component::Dlid) {
        targets.push(Target::Lid(query.values().dlid()));
    }
    targets
}

#[derive(Clone, Debug)]
enum Step {
    Get(PathQuery),
    /// The SA answers a query with this GID (for a LID) or this LID (for a GID).
    Learn {
        query: PathQuery,
        other: u8,
        /// The query was sent before the last re-registration.
        late: bool,
    },
    /// A query repeats the answer to an earlier query.
    Repeat(PathQuery),
    LearnMissing(PathQuery),
    Seen(u64, u16),
    Reregister,
    Clear,
    Pass(u64),
}

fn query() -> impl Strategy<Value = PathQuery> {
    let to_gid = |id| PathQuery::to(Target::Gid(gid(id)));
    let target = prop_oneof![
        4 => (1..5u64).prop_map(to_gid),
        3 => (1..7u16).prop_map(|lid| PathQuery::to(Target::Lid(Lid(lid)))),
        1 => (1..5u64, 1..7u16).prop_map(move |(id, lid)| *to_gid(id).set_dlid(Lid(lid))),
    ];
    type Demand = fn(&mut PathQuery, u8);
    let demands: [(u32, Demand); 6] = [
        (8, |_, _| ()),
        (2, |query, value| _ = query.set_service_id(value.into())),
        (1, |query, value| _ = query.set_sl(value)),
        (1, |query, value| {
            _ = query.set_mtu(Selector::GreaterThan, value)
        }),
        (1, |query, value| _ = query.set_flow_label(value.into())),
        (1, |query, value| {
            _ = query.set_service_id(7).set_qos_class(value.into())
        }),
    ];
    let demand = prop::sample::select(
        demands
            .into_iter()
            .flat_map(|(weight, demand)| vec![demand; weight as usize])
            .collect::<Vec<_>>(),
    );
    (target, demand, 0..3u8).prop_map(|(mut query, demand, value)| {
        demand(&mut query, value);
        query.complete(&source())
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => query().prop_map(Step::Get),
        8 => (query(), 1..6u8, prop::bool::weighted(0.1))
            .prop_map(|(query, other, late)| Step::Learn { query, other, late }),
        2 => query().prop_map(Step::Repeat),
        2 => query().prop_map(Step::LearnMissing),
        1 => (1..5u64, 1..7u16).prop_map(|(id, lid)| Step::Seen(id, lid)),
        1 => Just(Step::Reregister),
        1 => prop::bool::weighted(0.2).prop_map(|clear| if clear { Step::Clear } else { Step::Reregister }),
        4 => (0..300u64).prop_map(Step::Pass),
    ]
}

/// Returns a path that answers `query`; `number` makes it unique.
fn answer(query: &PathQuery, other: u8, number: usize) -> PathRecord {
    let mut path = *query.values();
    if !query.names(Component::Dlid) {
        path.set_dlid(Lid(other.into()));
    }
    if !query.names(Component::Dgid) {
        path.set_dgid(gid(other.into()));
    }
    path.set_service_id(0).set_qos_class(0).set_flow_label(0);
    path.set_slid(Lid(number as u16 + 1))
        .set_mtu(Selector::Exactly, 3 + other % 2)
        .set_rate(Selector::Exactly, 3)
        .set_packet_lifetime(Selector::Exactly, 18);
    assert_eq!(query.check(&path), Ok(()));
    path
}

fn is_one_of(path: Option<PathRecord>, candidates: &[PathRecord], may_be_gone: bool) -> bool {
    match path {
        Some(path) => candidates.contains(&path),
        None => candidates.is_empty() || may_be_gone,
    }
}

fn compare(capacity: usize, steps: &[Step]) {
    let store = PathStore::new(
        source(),
        StoreLimits {
            capacity,
            ttl: Some(Duration::from_millis(TTL)),
            stale_ttl: Duration::from_millis(STALE_TTL),
            negative_ttl: Duration::from_millis(NEGATIVE_TTL),
        },
    );
    let evicts = capacity < steps.len();
    let mut model = Model {
        evicts,
        ..Model::default()
    };
    let mut now = 0;
    let mut last_epoch: Option<Epoch> = None;
    for (number, step) in steps.iter().enumerate() {
        // Each answer has its own age, so that the oldest is unique.
        now += 1;
        let moment = Moment::from_millis(now);
        let get = |store: &PathStore, model: &Model, query: &PathQuery| {
            let stale = model.candidates(query, |fact| model.is_usable(fact, now));
            let found = store.get_stale(query, moment);
            assert!(
                is_one_of(found, &stale, evicts),
                "{query:?}: {found:?}, not {stale:?}"
            );
            let fresh = model.candidates(query, |fact| model.is_fresh(fact, now));
            let found = store.get(query, moment);
            assert!(
                is_one_of(found, &fresh, evicts),
                "{query:?}: {found:?}, not {fresh:?}"
            );
            // `plain` finds no more than `get`.
            if query.is_plain(&source()) {
                let plain = store.plain(query.target().unwrap());
                assert!(
                    plain.is_none_or(|plain| fresh.contains(&plain)),
                    "{query:?}: {plain:?}, not {fresh:?}"
                );
                let is_sure = |fact: &Fact| {
                    fact.asked == *query && model.is_fresh(fact, now + TICK) && !evicts
                };
                assert!(plain.is_some() || !model.facts.iter().any(is_sure));
            }
        };
        match step {
            Step::Get(query) => {
                get(&store, &model, query);
                let missing = model.missing.get(query);
                let missing = missing.is_some_and(|said| now - said < NEGATIVE_TTL);
                assert_eq!(store.is_missing(query, moment), missing, "{query:?}");
            }
            Step::Repeat(query) => {
                let last = model.facts.iter().find(|fact| fact.asked == *query);
                if let Some(last) = last {
                    let repeated = PathQuery::from_client(&last.path).complete(&source());
                    get(&store, &model, &repeated);
                }
            }
            Step::Learn { query, other, late } => {
                let path = answer(query, *other, number);
                match last_epoch.filter(|_| *late) {
                    Some(before) => {
                        store.learn(query, &path, before, moment);
                    }
                    None => {
                        store.learn(query, &path, store.epoch(), moment);
                        model.learn(query, path, now);
                        let known = store.get(query, moment);
                        assert_eq!(known.is_some(), capacity > 0, "the last answer is stored");
                    }
                }
            }
            Step::LearnMissing(query) => {
                store.learn_missing(query, store.epoch(), moment);
                model.missing.insert(*query, now);
            }
            Step::Seen(id, lid) => {
                store.forget_unless(gid(*id), |known| known == Lid(*lid));
                model.seen(gid(*id), Lid(*lid));
            }
            Step::Reregister => {
                last_epoch = Some(store.epoch());
                store.reregister(moment);
                model.ends.push(Some(now));
                model.missing.clear();
            }
            Step::Clear => {
                last_epoch = Some(store.epoch());
                store.clear();
                model.clear();
            }
            Step::Pass(millis) => now += millis,
        }
        if evicts {
            assert!(store.len() <= capacity.min(model.facts.len()));
        } else {
            assert_eq!(store.len(), model.facts.len(), "after {step:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_store_answers_like_the_model(
        capacity in prop_oneof![Just(1_000), 0..12usize],
        steps in prop::collection::vec(step(), 1..120),
    ) {
        compare(capacity, &steps);
    }
}
