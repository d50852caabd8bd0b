//! The path store against a model that keeps all answers in one list and searches it.

use std::collections::HashMap;

use acm_prov_api::address::{Gid, Lid, PKey};
use acm_prov_api::cache::store::{Epoch, PathStore, StoreLimits};
use acm_prov_api::clock::Moment;
use acm_prov_api::path::{PathRecord, Selector};
use acm_prov_api::sa::{Component, PathQuery, Source, Target};
use proptest::prelude::*;

const TTL: u64 = 1_000;
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

/// The rules, written down without an eye on speed.
#[derive(Default)]
struct Model {
    capacity: usize,
    /// Oldest first.
    facts: Vec<Fact>,
    missing: HashMap<PathQuery, u64>,
    /// Destinations, the one used least recently first.
    used: Vec<Target>,
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

    /// All paths that may be answered with: those of the GID that is named, or else of the LID.
    fn candidates(&self, query: &PathQuery, is_right: impl Fn(&Fact) -> bool) -> Vec<PathRecord> {
        let of_targets = targets(query).into_iter().map(|target| {
            self.facts
                .iter()
                .filter(|fact| fact.target() == target && is_right(fact))
                .filter(|fact| query.is_answered_by(&fact.asked, &fact.path))
                .map(|fact| fact.path)
                .collect()
        });
        of_targets
            .into_iter()
            .find(|paths: &Vec<PathRecord>| !paths.is_empty())
            .unwrap_or_default()
    }

    fn touch(&mut self, target: Target) {
        if self.facts.iter().any(|fact| fact.target() == target) {
            self.used.retain(|used| *used != target);
            self.used.push(target);
        }
    }

    fn touch_those_looked_at(&mut self, query: &PathQuery, now: u64) {
        for target in targets(query) {
            self.touch(target);
            let is_found = self.facts.iter().any(|fact| {
                fact.target() == target
                    && self.is_fresh(fact, now)
                    && query.is_answered_by(&fact.asked, &fact.path)
            });
            if is_found {
                return;
            }
        }
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
        {
            // Another port, or the same one elsewhere.
            self.facts.retain(|fact| fact.target() != target);
            if last.path.dgid() == path.dgid() {
                self.forget_lid(path.dgid(), last.path.dlid());
            }
        }
        self.facts.retain(|fact| fact.asked != *query);
        self.facts.push(fact);
        self.touch(target);
        while self.facts.len() > self.capacity {
            if self.used.len() == 1 {
                let oldest = self.facts.iter().position(|fact| !fact.is_plain());
                self.facts.remove(oldest.unwrap_or(0));
            } else {
                let least = self.used.remove(0);
                self.facts.retain(|fact| fact.target() != least);
            }
            self.tidy();
        }
        self.tidy();
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
        self.tidy();
    }

    fn seen(&mut self, gid: Gid, lid: Lid) {
        let target = Target::Gid(gid);
        let (elsewhere, _): (Vec<Fact>, _) = self
            .facts
            .iter()
            .partition(|fact| fact.target() == target && fact.path.dlid() != lid);
        if !elsewhere.is_empty() {
            self.facts.retain(|fact| fact.target() != target);
        }
        for fact in elsewhere {
            self.forget_lid(gid, fact.path.dlid());
        }
        self.tidy();
    }

    fn tidy(&mut self) {
        let facts = &self.facts;
        self.used
            .retain(|target| facts.iter().any(|fact| fact.target() == *target));
    }

    fn clear(&mut self) {
        self.facts.clear();
        self.missing.clear();
        self.used.clear();
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
        /// The answer was asked for before the last re-registration.
        late: bool,
    },
    /// The answer to a query is asked for again, as it was handed out.
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

/// A path that answers `query`; `number` tells it from others.
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

fn is_one_of(path: Option<PathRecord>, candidates: &[PathRecord]) -> bool {
    match path {
        Some(path) => candidates.contains(&path),
        None => candidates.is_empty(),
    }
}

fn compare(capacity: usize, steps: &[Step]) {
    let mut store = PathStore::new(
        source(),
        StoreLimits {
            capacity,
            ttl: Some(TTL),
            stale_ttl: STALE_TTL,
            negative_ttl: NEGATIVE_TTL,
        },
    );
    let mut model = Model {
        capacity,
        ..Model::default()
    };
    let mut now = 0;
    let mut last_epoch: Option<Epoch> = None;
    for (number, step) in steps.iter().enumerate() {
        // Each answer has an age of its own, so that it is clear which is the oldest.
        now += 1;
        let moment = Moment::from_millis(now);
        let get = |store: &mut PathStore, model: &mut Model, query: &PathQuery| {
            let stale = model.candidates(query, |fact| model.is_usable(fact, now));
            let found = store.get_stale(query, moment);
            assert!(
                is_one_of(found, &stale),
                "{query:?}: {found:?}, not {stale:?}"
            );
            let fresh = model.candidates(query, |fact| model.is_fresh(fact, now));
            let found = store.get(query, moment);
            assert!(
                is_one_of(found, &fresh),
                "{query:?}: {found:?}, not {fresh:?}"
            );
            model.touch_those_looked_at(query, now);
        };
        match step {
            Step::Get(query) => {
                get(&mut store, &mut model, query);
                let missing = model.missing.get(query);
                let missing = missing.is_some_and(|said| now - said < NEGATIVE_TTL);
                assert_eq!(store.is_missing(query, moment), missing, "{query:?}");
            }
            Step::Repeat(query) => {
                let last = model.facts.iter().find(|fact| fact.asked == *query);
                if let Some(last) = last {
                    let repeated = PathQuery::from_client(&last.path).complete(&source());
                    get(&mut store, &mut model, &repeated);
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
        assert_eq!(store.len(), model.facts.len(), "after {step:?}");
        assert!(store.len() <= capacity);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_store_answers_like_the_model(
        capacity in 0..12usize,
        steps in prop::collection::vec(step(), 1..120),
    ) {
        compare(capacity, &steps);
    }
}
