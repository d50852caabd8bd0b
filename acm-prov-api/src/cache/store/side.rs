//! Answers that the table has no room for: to queries that are not plain, and paths with a GRH, to other subnets or with
//! a service id that nobody asked for.

use lru::LruCache;

use super::age::{Age, Epoch, Use};
use crate::address::{Gid, Lid};
use crate::clock::Moment;
use crate::path::PathRecord;
use crate::sa::{Component, PathQuery, Target};

/// Most answers of a destination that name a service id; the oldest goes first.
pub const MAX_SERVICE_ANSWERS: usize = 4_096;

/// Most other answers of a destination beside the one in the table (a port with LMC 7 has 128 LIDs); the oldest goes
/// first.
pub const MAX_OTHER_ANSWERS: usize = 128;

/// Answers that are not in the table, by destination; the destination used least recently goes first, with all of them.
pub(super) struct Side {
    destinations: LruCache<Target, Others>,
    answers: usize,
}

impl Side {
    pub fn new() -> Self {
        Self {
            destinations: LruCache::unbounded(),
            answers: 0,
        }
    }

    /// Number of answers.
    pub fn len(&self) -> usize {
        self.answers
    }

    pub fn is_empty(&self) -> bool {
        self.answers == 0
    }

    /// What is known of a destination.
    pub fn peek(&self, target: Target) -> Option<&Others> {
        self.destinations.peek(&target)
    }

    /// What is known of each destination, the one used last first.
    pub fn destinations(&self) -> impl Iterator<Item = (Target, &Others)> {
        let destinations = self.destinations.iter();
        destinations.map(|(target, others)| (*target, others))
    }

    /// Notes that a destination is used.
    pub fn touch(&mut self, target: Target, used: Use) {
        if self.answers > 0
            && let Some(others) = self.destinations.get_mut(&target)
        {
            others.used = used;
        }
    }

    /// Takes in the answer to a query.
    pub fn learn(
        &mut self,
        target: Target,
        query: &PathQuery,
        path: &PathRecord,
        learned: (Moment, Epoch),
        used: Use,
    ) {
        let others = self.destinations.get_or_insert_mut(target, Others::default);
        let before = others.answers.len();
        others.used = used;
        others.learn(query, path, learned);
        self.answers = self.answers + others.answers.len() - before;
    }

    /// Forgets the answer to a query.
    pub fn forget_answer(&mut self, target: Target, query: &PathQuery) {
        if self.answers == 0 {
            return;
        }
        let Some(others) = self.destinations.peek_mut(&target) else {
            return;
        };
        if let Some(at) = others.position(query) {
            others.remove(at);
            self.answers -= 1;
            self.drop_if_empty(target);
        }
    }

    /// Forgets a destination.
    pub fn forget(&mut self, target: Target) {
        if self.answers > 0
            && let Some(others) = self.destinations.pop(&target)
        {
            self.answers -= others.answers.len();
        }
    }

    /// Makes room: other destinations first, then the oldest answers of the last one. False: there is nothing.
    pub fn evict(&mut self) -> bool {
        if self.destinations.len() > 1 {
            let evicted = self.destinations.pop_lru();
            self.answers -= evicted.map_or(0, |(_, others)| others.answers.len());
            return true;
        }
        let Some((&target, _)) = self.destinations.peek_mru() else {
            return false;
        };
        let last = self.destinations.peek_mut(&target);
        if last.is_some_and(|last| last.drop_oldest(None)) {
            self.answers -= 1;
        }
        self.drop_if_empty(target);
        true
    }

    fn drop_if_empty(&mut self, target: Target) {
        let others = self.destinations.peek(&target);
        if others.is_some_and(|others| others.answers.is_empty()) {
            self.destinations.pop(&target);
        }
    }
}

/// Such answers of one destination. A thousand services of a host have one record, as a rule: what queries and records
/// have in common is kept once.
#[derive(Default)]
pub(super) struct Others {
    used: Use,
    /// By service id, then the one learnt first first.
    answers: Vec<Answer>,
    /// Queries, without their service ids.
    queries: Vec<PathQuery>,
    records: Vec<PathRecord>,
}

/// One of them.
struct Answer {
    /// 0 if the query names none, or 0.
    service_id: u64,
    learned: Moment,
    epoch: Epoch,
    /// Index of the query.
    query: u16,
    /// Index of the path.
    record: u16,
}

impl Answer {
    fn age(&self) -> Age {
        Age {
            learned: self.learned,
            epoch: Some(self.epoch),
        }
    }
}

impl Others {
    /// When one of them was used last.
    pub fn used(&self) -> Use {
        self.used
    }

    /// The queries that were answered, with the ages of the answers.
    pub fn queries(&self) -> impl Iterator<Item = (PathQuery, Age)> {
        self.answers
            .iter()
            .filter_map(|answer| Some((self.query(answer)?, answer.age())))
    }

    /// The query that was given an answer.
    fn query(&self, answer: &Answer) -> Option<PathQuery> {
        let mut query = *self.queries.get(usize::from(answer.query))?;
        if query.names(Component::ServiceId) {
            query.set_service_id(answer.service_id);
        }
        Some(query)
    }

    /// GID and LID where the answers lead.
    pub fn ports(&self) -> impl Iterator<Item = (Gid, Lid)> {
        self.records.iter().map(|path| (path.dgid(), path.dlid()))
    }

    /// GID and LID where the answer to a query leads.
    pub fn port(&self, query: &PathQuery) -> Option<(Gid, Lid)> {
        let answer = self.answers.get(self.position(query)?)?;
        let path = self.records.get(usize::from(answer.record))?;
        Some((path.dgid(), path.dlid()))
    }

    /// Index of the answer to a query.
    fn position(&self, query: &PathQuery) -> Option<usize> {
        let (shape, service_id) = parts(query);
        let known = self.queries.iter().position(|known| *known == shape)?;
        let is_meant =
            |answer: &Answer| answer.service_id == service_id && usize::from(answer.query) == known;
        self.answers.iter().position(is_meant)
    }

    /// Number of queries and of records.
    #[cfg(test)]
    pub fn kept_once(&self) -> (usize, usize) {
        (self.queries.len(), self.records.len())
    }

    /// An answer whose age is right.
    pub fn find(&self, query: &PathQuery, is_right: impl Fn(Age) -> bool) -> Option<PathRecord> {
        let service_id = query.values().service_id();
        let start = self
            .answers
            .partition_point(|answer| answer.service_id < service_id);
        // A service id is met only by an answer to a query that named it.
        let named = self.answers[start..]
            .iter()
            .take_while(|answer| answer.service_id == service_id)
            .find_map(|answer| {
                let path = self.records.get(usize::from(answer.record))?;
                let asked = self.query(answer)?;
                (query.is_answered_by(&asked, path) && is_right(answer.age())).then_some(*path)
            });
        named.or_else(|| self.find_repeated(query, is_right))
    }

    /// A record that the query repeats, whatever query it answered.
    pub fn find_repeated(
        &self,
        query: &PathQuery,
        is_right: impl Fn(Age) -> bool,
    ) -> Option<PathRecord> {
        let (index, path) = (0..)
            .zip(&self.records)
            .find(|(_, path)| query.repeats(path))?;
        let is_there = |answer: &Answer| answer.record == index && is_right(answer.age());
        self.answers.iter().any(is_there).then_some(*path)
    }

    fn learn(&mut self, query: &PathQuery, path: &PathRecord, (learned, epoch): (Moment, Epoch)) {
        let (shape, service_id) = parts(query);
        let names_service = shape.names(Component::ServiceId);
        if let Some(at) = self.position(query) {
            self.remove(at);
        }
        let limit = if names_service {
            MAX_SERVICE_ANSWERS
        } else {
            MAX_OTHER_ANSWERS
        };
        let of_its_kind = |answer: &&Answer| self.names_service(answer) == names_service;
        if self.answers.iter().filter(of_its_kind).count() >= limit {
            self.drop_oldest(Some(names_service));
        }
        let at = self
            .answers
            .partition_point(|answer| answer.service_id <= service_id);
        let answer = Answer {
            service_id,
            learned,
            epoch,
            query: index_of(&mut self.queries, shape),
            record: index_of(&mut self.records, *path),
        };
        reserve_for_one(&mut self.answers);
        self.answers.insert(at, answer);
    }

    fn names_service(&self, answer: &Answer) -> bool {
        let query = self.queries.get(usize::from(answer.query));
        query.is_some_and(|query| query.names(Component::ServiceId))
    }

    /// Drops the oldest answer: of any kind, or among those that name a service id, or do not. False: there was none.
    fn drop_oldest(&mut self, names_service: Option<bool>) -> bool {
        let answers = self.answers.iter().enumerate();
        let oldest = answers
            .filter(|(_, answer)| {
                names_service.is_none_or(|wanted| self.names_service(answer) == wanted)
            })
            .min_by_key(|(_, answer)| answer.learned)
            .map(|(index, _)| index);
        oldest.inspect(|&index| self.remove(index)).is_some()
    }

    /// Removes an answer, and its query and record where no other has them.
    fn remove(&mut self, index: usize) {
        let gone = self.answers.remove(index);
        if !self.answers.iter().any(|answer| answer.query == gone.query) {
            let last = self.queries.len() - 1;
            self.queries.swap_remove(usize::from(gone.query));
            for answer in &mut self.answers {
                if usize::from(answer.query) == last {
                    answer.query = gone.query;
                }
            }
        }
        if !self
            .answers
            .iter()
            .any(|answer| answer.record == gone.record)
        {
            let last = self.records.len() - 1;
            self.records.swap_remove(usize::from(gone.record));
            for answer in &mut self.answers {
                if usize::from(answer.record) == last {
                    answer.record = gone.record;
                }
            }
        }
    }
}

/// What queries have in common that differ in the service id only, and that.
fn parts(query: &PathQuery) -> (PathQuery, u64) {
    let mut shape = *query;
    if shape.names(Component::ServiceId) {
        shape.set_service_id(0);
    }
    (shape, query.values().service_id())
}

/// Makes room in small steps: doubling would make an answer cost up to twice its size.
fn reserve_for_one<T>(values: &mut Vec<T>) {
    if values.len() == values.capacity() {
        values.reserve_exact(values.len() / 8 + 1);
    }
}

/// The index of a value, which is added if it is new. There are at most as many values as answers, which a `u16` holds.
fn index_of<T: PartialEq>(values: &mut Vec<T>, value: T) -> u16 {
    let index = values.iter().position(|known| *known == value);
    let index = index.unwrap_or_else(|| {
        reserve_for_one(values);
        values.push(value);
        values.len() - 1
    });
    u16::try_from(index).expect("at most MAX_SERVICE_ANSWERS + MAX_OTHER_ANSWERS values")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_small() {
        assert_eq!(size_of::<Answer>(), 24);
    }
}
