//! What is known of one destination.

use super::age::{Age, Epoch, Use};
use crate::address::{Gid, Lid};
use crate::clock::Moment;
use crate::path::PathRecord;
use crate::sa::{Component, PathQuery, Source, Target};

/// Most answers of a destination that name a service id; the oldest goes first.
pub const MAX_SERVICE_ANSWERS: usize = 4_096;

/// Most other answers of a destination to queries that are not plain (a port with LMC 7 has 128 LIDs); the oldest goes
/// first.
pub const MAX_OTHER_ANSWERS: usize = 128;

/// The paths to one destination. Small, as there are as many as hosts in the fabric.
#[derive(Default)]
pub(super) struct Destination {
    plain: Option<Plain>,
    /// Boxed, since most destinations have none.
    others: Option<Box<Others>>,
}

/// Where the part of a path record starts that neither the endpoint nor the plain query says: DLID up to preference.
const TAIL: usize = 40;
const TAIL_LENGTH: usize = 18;

/// The answer to the plain query, without what is known anyway: SGID (the endpoint's), service id (zero).
///
/// An [`Age`] as a field would cost eight more bytes.
struct Plain {
    learned: Moment,
    epoch: Epoch,
    dgid: [u8; 16],
    tail: [u8; TAIL_LENGTH],
    used: Use,
}

impl Plain {
    fn new(path: &PathRecord, age: Age, used: Use) -> Plain {
        let mut tail = [0; TAIL_LENGTH];
        tail.copy_from_slice(&path.to_bytes()[TAIL..TAIL + TAIL_LENGTH]);
        let Age { learned, epoch } = age;
        Plain {
            learned,
            epoch,
            dgid: path.dgid().0,
            tail,
            used,
        }
    }

    fn age(&self) -> Age {
        Age {
            learned: self.learned,
            epoch: self.epoch,
        }
    }

    fn port(&self) -> (Gid, Lid) {
        let dlid = u16::from_be_bytes([self.tail[0], self.tail[1]]);
        (Gid(self.dgid), Lid(dlid))
    }

    fn path(&self, source: &Source) -> PathRecord {
        let mut bytes = [0; PathRecord::LENGTH];
        bytes[8..24].copy_from_slice(&self.dgid);
        bytes[24..40].copy_from_slice(&source.gid.0);
        bytes[TAIL..TAIL + TAIL_LENGTH].copy_from_slice(&self.tail);
        PathRecord::from_bytes(&bytes)
    }
}

/// Answers to queries that are not plain. A thousand services of a host have one record, as a rule: what queries and
/// records have in common is kept once.
#[derive(Default)]
struct Others {
    used: Use,
    /// By service id, then the one learnt first first.
    answers: Vec<Answer>,
    /// Queries, without their service ids.
    queries: Vec<PathQuery>,
    records: Vec<PathRecord>,
}

/// An answer to a query that is not plain.
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
            epoch: self.epoch,
        }
    }
}

impl Destination {
    /// Number of answers.
    pub fn len(&self) -> usize {
        let others = self
            .others
            .as_ref()
            .map_or(0, |others| others.answers.len());
        usize::from(self.plain.is_some()) + others
    }

    /// When it was last used.
    pub fn used(&self) -> Use {
        let others = self.others.as_ref().map(|others| others.used);
        let plain = self.plain.as_ref().map(|plain| plain.used);
        plain.or(others).unwrap_or(0)
    }

    /// Notes that it is used.
    #[inline]
    pub fn touch(&mut self, used: Use) {
        if let Some(plain) = &mut self.plain
            && plain.used != used
        {
            plain.used = used;
        } else if let Some(others) = &mut self.others {
            others.used = used;
        }
    }

    /// The plain answer and its age.
    pub fn plain(&self, source: &Source) -> Option<(PathRecord, Age)> {
        let plain = self.plain.as_ref()?;
        Some((plain.path(source), plain.age()))
    }

    /// The queries that were answered, with the ages of the answers.
    pub fn queries(
        &self,
        target: Target,
        source: &Source,
    ) -> impl Iterator<Item = (PathQuery, Age)> {
        let plain = self.plain.as_ref();
        let plain = plain.map(|plain| (PathQuery::to(target).complete(source), plain.age()));
        let others = self.others.iter().flat_map(|others| others.queries());
        plain.into_iter().chain(others)
    }

    /// Drops the answer to a query.
    pub fn forget(&mut self, query: &PathQuery, source: &Source) {
        if query.is_plain(source) {
            self.plain = None;
        } else if let Some(others) = &mut self.others {
            let known = others.queries().position(|(known, _)| known == *query);
            if let Some(at) = known {
                others.remove(at);
            }
        }
    }

    /// GID and LID where the answers lead.
    pub fn ports(&self) -> impl Iterator<Item = (Gid, Lid)> {
        let others = self.others.iter().flat_map(|others| &others.records);
        let others = others.map(|path| (path.dgid(), path.dlid()));
        self.plain.iter().map(Plain::port).chain(others)
    }

    /// An answer to the plain query for `target`, whose age is right.
    #[inline]
    pub fn find_plain(
        &self,
        source: &Source,
        is_right: impl Fn(Age) -> bool,
    ) -> Option<PathRecord> {
        let plain = self.plain.as_ref()?;
        is_right(plain.age()).then(|| plain.path(source))
    }

    /// A record that the query repeats, whose age is right.
    pub fn find_repeated(
        &self,
        source: &Source,
        query: &PathQuery,
        is_right: impl Fn(Age) -> bool,
    ) -> Option<PathRecord> {
        let plain = self.find_plain(source, &is_right);
        plain
            .filter(|path| query.repeats(path))
            .or_else(|| self.others.as_ref()?.find_repeated(query, is_right))
    }

    /// An answer to any query for `target`, whose age is right.
    pub fn find(
        &self,
        target: Target,
        source: &Source,
        query: &PathQuery,
        is_right: impl Fn(Age) -> bool,
    ) -> Option<PathRecord> {
        let plain = self.find_plain(source, &is_right).filter(|path| {
            let asked = PathQuery::to(target).complete(source);
            query.is_answered_by(&asked, path)
        });
        plain.or_else(|| self.others.as_ref()?.find(query, is_right))
    }

    /// Takes in the answer to a query. If it shows that the destination is another port now, what else was known dates from
    /// before and goes. Gives where the destination was before, and since when, if that has changed.
    pub fn learn(
        &mut self,
        query: &PathQuery,
        source: &Source,
        path: &PathRecord,
        age: Age,
        used: Use,
    ) -> Option<(Gid, Lid, Epoch)> {
        let is_plain = query.is_plain(source);
        // The plain form has no room for a service id that nobody asked for.
        if !is_plain || path.service_id() != 0 {
            if is_plain {
                self.plain = None;
            }
            let others = self.others.get_or_insert_default();
            others.used = used;
            others.learn(query, path, age);
            return None;
        }
        let new = Plain::new(path, age, used);
        let port = new.port();
        let old = self.plain.replace(new)?;
        if old.port() == port {
            return None;
        }
        self.others = None;
        let (gid, lid) = old.port();
        Some((gid, lid, old.epoch))
    }

    /// Takes in the answer to the plain query unless there is one.
    pub fn load(&mut self, path: &PathRecord, age: Age) {
        self.plain.get_or_insert_with(|| Plain::new(path, age, 0));
    }

    /// Number of queries and of records besides the plain answer.
    #[cfg(test)]
    pub fn kept_once(&self) -> (usize, usize) {
        let others = self.others.as_ref();
        others.map_or((0, 0), |others| {
            (others.queries.len(), others.records.len())
        })
    }

    /// Drops an answer, the oldest that is not plain first. False: there was none.
    pub fn shrink(&mut self) -> bool {
        if let Some(others) = &mut self.others
            && others.drop_oldest(None)
        {
            return true;
        }
        self.plain.take().is_some()
    }
}

impl Others {
    fn find(&self, query: &PathQuery, is_right: impl Fn(Age) -> bool) -> Option<PathRecord> {
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
                let mut asked = *self.queries.get(usize::from(answer.query))?;
                if asked.names(Component::ServiceId) {
                    asked.set_service_id(answer.service_id);
                }
                (query.is_answered_by(&asked, path) && is_right(answer.age())).then_some(*path)
            });
        named.or_else(|| self.find_repeated(query, is_right))
    }

    /// A record that the query repeats, whatever query it answered.
    fn find_repeated(
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

    fn learn(&mut self, query: &PathQuery, path: &PathRecord, age: Age) {
        let service_id = query.values().service_id();
        let mut shape = *query;
        let names_service = shape.names(Component::ServiceId);
        if names_service {
            shape.set_service_id(0);
        }
        if let Some(known) = self.queries.iter().position(|known| *known == shape) {
            let is_replaced = |answer: &Answer| {
                answer.service_id == service_id && usize::from(answer.query) == known
            };
            if let Some(at) = self.answers.iter().position(is_replaced) {
                self.remove(at);
            }
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
            learned: age.learned,
            epoch: age.epoch,
            query: index_of(&mut self.queries, shape),
            record: index_of(&mut self.records, *path),
        };
        reserve_for_one(&mut self.answers);
        self.answers.insert(at, answer);
    }

    fn queries(&self) -> impl Iterator<Item = (PathQuery, Age)> {
        self.answers.iter().filter_map(|answer| {
            let mut query = *self.queries.get(usize::from(answer.query))?;
            if query.names(Component::ServiceId) {
                query.set_service_id(answer.service_id);
            }
            Some((query, answer.age()))
        })
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
    fn destinations_and_pairs_are_small() {
        assert_eq!(size_of::<Plain>(), 48);
        assert_eq!(size_of::<Destination>(), 56);
        assert_eq!(size_of::<Answer>(), 24);
    }
}
