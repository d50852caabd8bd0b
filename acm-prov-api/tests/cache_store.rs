//! The path store against a model that keeps all answers in one list and searches it.

use std::collections::HashMap;

use acm_prov_api::address::{Gid, Lid, PKey};
use acm_prov_api::cache::question::{Demands, Question, Source, Target};
use acm_prov_api::cache::store::{Epoch, PathStore, StoreLimits};
use acm_prov_api::clock::Moment;
use acm_prov_api::path::PathRecord;
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
    path: PathRecord,
    demands: Demands,
    plain: bool,
    learned: u64,
    epoch: usize,
}

/// The rules, written down without an eye on speed.
#[derive(Default)]
struct Model {
    capacity: usize,
    /// Oldest first.
    facts: Vec<Fact>,
    lids: HashMap<Lid, Gid>,
    missing: HashMap<Question, u64>,
    /// Destinations, the one used least recently first.
    used: Vec<Gid>,
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

    fn destination(&self, question: &Question) -> Option<Gid> {
        match question.target {
            Target::Gid(gid) => Some(gid),
            Target::Lid(lid) => self.lids.get(&lid).copied(),
        }
    }

    fn find(&self, question: &Question, right: impl Fn(&Fact) -> bool) -> Option<PathRecord> {
        let gid = self.destination(question)?;
        let wanted = |fact: &Fact| match question.target {
            Target::Gid(_) => true,
            Target::Lid(lid) => fact.path.dlid() == lid,
        };
        let candidates: Vec<&Fact> = self
            .facts
            .iter()
            .filter(|fact| fact.path.dgid() == gid && fact.demands == question.demands)
            .filter(|fact| wanted(fact))
            .collect();
        if let Some(plain) = candidates.iter().find(|fact| fact.plain) {
            return right(plain).then_some(plain.path);
        }
        candidates
            .into_iter()
            .find(|fact| right(fact))
            .map(|fact| fact.path)
    }

    fn touch(&mut self, gid: Gid) {
        if self.facts.iter().any(|fact| fact.path.dgid() == gid) {
            self.used.retain(|used| *used != gid);
            self.used.push(gid);
        }
    }

    fn get(&mut self, question: &Question, now: u64) -> Option<PathRecord> {
        let gid = self.destination(question)?;
        self.touch(gid);
        self.find(question, |fact| self.is_fresh(fact, now))
    }

    fn learn(&mut self, question: &Question, path: PathRecord, now: u64) {
        self.missing.remove(question);
        let gid = path.dgid();
        let mut fact = Fact {
            path,
            demands: question.demands,
            plain: question.demands.is_none(),
            learned: now,
            epoch: self.epoch(),
        };
        let by_lid = matches!(question.target, Target::Lid(_));
        let known = self
            .facts
            .iter()
            .find(|fact| fact.plain && fact.path.dgid() == gid)
            .copied();
        if fact.plain
            && let Some(known) = known
            && known.path.dlid() != path.dlid()
        {
            if by_lid && self.is_fresh(&known, now) {
                fact.plain = false;
            } else {
                self.facts.retain(|fact| fact.path.dgid() != gid);
            }
        }
        self.facts.retain(|old| {
            old.path.dgid() != gid
                || old.plain != fact.plain
                || old.demands != fact.demands
                || (by_lid && !fact.plain && old.path.dlid() != path.dlid())
        });
        self.facts.push(fact);
        self.lids.insert(path.dlid(), gid);
        self.touch(gid);
        while self.facts.len() > self.capacity {
            let last_one = self.used.len() == 1;
            if last_one {
                let oldest = self.facts.iter().position(|fact| !fact.plain).unwrap_or(0);
                self.facts.remove(oldest);
            } else {
                let least = self.used.remove(0);
                self.facts.retain(|fact| fact.path.dgid() != least);
            }
        }
        let facts = &self.facts;
        self.used
            .retain(|gid| facts.iter().any(|fact| fact.path.dgid() == *gid));
        self.lids.retain(|lid, gid| {
            facts
                .iter()
                .any(|fact| fact.path.dlid() == *lid && fact.path.dgid() == *gid)
        });
    }

    fn clear(&mut self) {
        self.facts.clear();
        self.lids.clear();
        self.missing.clear();
        self.used.clear();
        self.ends.push(None);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Get(Question),
    /// The SA answers a question with this GID (for a LID) or this LID (for a GID).
    Learn {
        question: Question,
        other: u8,
        /// The answer was asked for before the last re-registration.
        late: bool,
    },
    LearnMissing(Question),
    Reregister,
    Clear,
    Pass(u64),
}

fn question() -> impl Strategy<Value = Question> {
    let target = prop_oneof![
        (1..6u64).prop_map(|id| Target::Gid(gid(id))),
        (1..8u16).prop_map(|lid| Target::Lid(Lid(lid))),
    ];
    let demands = prop_oneof![
        4 => Just(Demands::default()),
        1 => (1..4u64).prop_map(|service_id| Demands { service_id, ..Demands::default() }),
        1 => (1..3u8).prop_map(|sl| Demands { sl, ..Demands::default() }),
    ];
    (target, demands).prop_map(|(target, demands)| Question { target, demands })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => question().prop_map(Step::Get),
        8 => (question(), 1..8u8, prop::bool::weighted(0.1))
            .prop_map(|(question, other, late)| Step::Learn { question, other, late }),
        2 => question().prop_map(Step::LearnMissing),
        1 => Just(Step::Reregister),
        1 => prop::bool::weighted(0.2).prop_map(|clear| if clear { Step::Clear } else { Step::Reregister }),
        4 => (0..300u64).prop_map(Step::Pass),
    ]
}

/// A path that answers `question`; `number` tells it from others.
fn answer(question: &Question, other: u8, number: usize) -> PathRecord {
    let mut path = PathRecord::default();
    match question.target {
        Target::Gid(gid) => path.set_dgid(gid).set_dlid(Lid(other.into())),
        Target::Lid(lid) => path.set_dlid(lid).set_dgid(gid(other.into())),
    };
    path.set_sgid(source().gid)
        .set_slid(Lid(number as u16 + 1))
        .set_pkey(source().pkey);
    path.set_sl(question.demands.sl);
    path
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
        let moment = Moment::from_millis(now);
        match step {
            Step::Get(question) => {
                let stale = model.find(question, |fact| model.is_usable(fact, now));
                assert_eq!(store.get_stale(question, moment), stale, "{question:?}");
                assert_eq!(store.get(question, moment), model.get(question, now));
                let missing = model.missing.get(question);
                let missing = missing.is_some_and(|said| now - said < NEGATIVE_TTL);
                assert_eq!(store.is_missing(question, moment), missing, "{question:?}");
            }
            Step::Learn {
                question,
                other,
                late,
            } => {
                let path = answer(question, *other, number);
                match last_epoch.filter(|_| *late) {
                    Some(before) => store.learn(question, &path, before, moment),
                    None => {
                        store.learn(question, &path, store.epoch(), moment);
                        model.learn(question, path, now);
                    }
                }
            }
            Step::LearnMissing(question) => {
                store.learn_missing(question, store.epoch(), moment);
                model.missing.insert(*question, now);
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
