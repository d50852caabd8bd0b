//! Answers that the table cannot hold: answers to queries that are not plain, and paths with a GRH, to other subnets, or with
//! a service id that the query did not name.

use lru::LruCache;

use super::age::{Age, Epoch, Use};
use crate::address::{Gid, Lid};
use crate::clock::Moment;
use crate::path::PathRecord;
use crate::sa::{Component, PathQuery, Target};

/// The most answers of a destination that name a service id; the oldest is evicted first.
pub const MAX_SERVICE_ANSWERS: usize = 4_096;

/// The most other answers of a destination outside the table (a port with LMC 7 has 128 LIDs); the oldest is evicted
/// first.
pub const MAX_OTHER_ANSWERS: usize = 128;

/// Answers outside the table, by destination. The least recently used destination is evicted first, with all its answers.
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

    /// Returns the number of answers.
    pub fn len(&self) -> usize {
        self.answers
    }

    pub fn is_empty(&self) -> bool {
        self.answers == 0
    }

    /// Returns the answers of a destination, without marking it as used.
    pub fn peek(&self, target: Target) -> Option<&Others> {
        self.destinations.peek(&target)
    }

    /// Returns all destinations with their answers, the most recently used first.
    pub fn destinations(&self) -> impl Iterator<Item = (Target, &Others)> {
        let destinations = self.destinations.iter();
        destinations.map(|(target, others)| (*target, others))
    }

    /// Marks a destination as used.
    pub fn touch(&mut self, target: Target, used: Use) {
        if self.answers > 0
            && let Some(others) = self.destinations.get_mut(&target)
        {
            others.used = used;
        }
    }

    /// Stores the answer to a query.
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

    /// Drops the answer to a query.
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

    /// Drops a destination.
    pub fn forget(&mut self, target: Target) {
        if self.answers > 0
            && let Some(others) = self.destinations.pop(&target)
        {
            self.answers -= others.answers.len();
        }
    }

    /// Makes room: evicts the least recently used destination, or the oldest answer of the last one. False: nothing is left.
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

/// The answers of one destination. A thousand services of a host usually share one record, so equal queries (without the
/// service id) and equal records are stored once.
#[derive(Default)]
pub(super) struct Others {
    used: Use,
    /// Sorted by service id, then oldest first.
    answers: Vec<Answer>,
    /// Queries, without their service ids.
    queries: Vec<PathQuery>,
    records: Vec<PathRecord>,
}

/// An answer: indices into the queries and records.
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
    /// Returns when one of the answers was last used.
    pub fn used(&self) -> Use {
        self.used
    }

    /// Returns the queries, with the ages of their answers.
    pub fn queries(&self) -> impl Iterator<Item = (PathQuery, Age)> {
        self.answers
            .iter()
            .filter_map(|answer| Some((self.query(answer)?, answer.age())))
    }

    /// Returns the query of an answer.
    fn query(&self, answer: &Answer) -> Option<PathQuery> {
        let mut query = *self.queries.get(usize::from(answer.query))?;
        if query.names(Component::ServiceId) {
            query.set_service_id(answer.service_id);
        }
        Some(query)
    }

    /// Returns the GIDs and LIDs of the answers' paths.
    pub fn ports(&self) -> impl Iterator<Item = (Gid, Lid)> {
        self.records.iter().map(|path| (path.dgid(), path.dlid()))
    }

    /// Returns the GID and LID of the path that answers a query.
    pub fn port(&self, query: &PathQuery) -> Option<(Gid, Lid)> {
        let answer = self.answers.get(self.position(query)?)?;
        let path = self.records.get(usize::from(answer.record))?;
        Some((path.dgid(), path.dlid()))
    }

    /// Returns the index of the answer to a query.
    fn position(&self, query: &PathQuery) -> Option<usize> {
        let (shape, service_id) = parts(query);
        let known = self.queries.iter().position(|known| *known == shape)?;
        let is_meant =
            |answer: &Answer| answer.service_id == service_id && usize::from(answer.query) == known;
        self.answers.iter().position(is_meant)
    }

    /// Returns the number of queries and of records.
    #[cfg(test)]
    pub fn kept_once(&self) -> (usize, usize) {
        (self.queries.len(), self.records.len())
    }

    /// Returns an answer to `query`, if `is_right` accepts its age.
    pub fn find(&self, query: &PathQuery, is_right: impl Fn(Age) -> bool) -> Option<PathRecord> {
        let service_id = query.values().service_id();
        let start = self
            .answers
            .partition_point(|answer| answer.service_id < service_id);
        // Only an answer to a query with the same service id matches a service id.
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

    /// Returns a record that the query repeats, whichever query it answered.
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

    /// Drops the oldest answer: of all, or of those with (or without) a service id. False: there was none.
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

    /// Removes an answer, and its query and record if no other answer uses them.
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

/// Splits a query into the query without its service id, and the service id.
fn parts(query: &PathQuery) -> (PathQuery, u64) {
    let mut shape = *query;
    if shape.names(Component::ServiceId) {
        shape.set_service_id(0);
    }
    (shape, query.values().service_id())
}

/// Reserves in small steps: doubling could cost twice an answer's size.
fn reserve_for_one<T>(values: &mut Vec<T>) {
    if values.len() == values.capacity() {
        values.reserve_exact(values.len() / 8 + 1);
    }
}

/// Returns the index of a value, and adds it if it is new. There are at most as many values as answers, so a `u16` suffices.
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
