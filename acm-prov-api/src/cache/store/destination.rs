//! What is known about one destination.

use super::age::{Age, Epoch};
use crate::address::{Gid, Lid};
use crate::cache::question::{Demands, Question, Source, Target};
use crate::clock::Moment;
use crate::path::PathRecord;

/// Most variants of a destination that name a service id; the oldest goes first.
pub const MAX_SERVICE_VARIANTS: usize = 64;

/// Most other variants of a destination (a port with LMC 7 has 128 LIDs); the oldest goes
/// first.
pub const MAX_OTHER_VARIANTS: usize = 128;

/// The paths to one destination. Small, as there are as many as hosts in the fabric.
#[derive(Default)]
pub(super) struct Destination {
    plain: Option<Plain>,
    /// Boxed, since most destinations have none.
    variants: Option<Box<Variants>>,
}

/// Where the part of a path record starts that neither the key, nor the endpoint, nor the
/// plain question says: DLID up to preference.
const TAIL: usize = 40;
const TAIL_LENGTH: usize = 18;

/// The answer to the plain question, without what is known anyway: DGID (the key), SGID (the
/// endpoint's), service id (none was named).
///
/// An [`Age`] as a field would cost eight more bytes.
struct Plain {
    learned: Moment,
    epoch: Epoch,
    tail: [u8; TAIL_LENGTH],
}

/// Another answer, whole.
struct Variant {
    demands: Demands,
    path: PathRecord,
    age: Age,
}

impl Plain {
    fn new(path: &PathRecord, age: Age) -> Plain {
        let mut tail = [0; TAIL_LENGTH];
        tail.copy_from_slice(&path.to_bytes()[TAIL..TAIL + TAIL_LENGTH]);
        let Age { learned, epoch } = age;
        Plain {
            learned,
            epoch,
            tail,
        }
    }

    fn age(&self) -> Age {
        Age {
            learned: self.learned,
            epoch: self.epoch,
        }
    }

    fn dlid(&self) -> Lid {
        Lid(u16::from_be_bytes([self.tail[0], self.tail[1]]))
    }

    fn path(&self, gid: Gid, source: &Source) -> PathRecord {
        let mut bytes = [0; PathRecord::LENGTH];
        bytes[8..24].copy_from_slice(&gid.0);
        bytes[24..40].copy_from_slice(&source.gid.0);
        bytes[TAIL..TAIL + TAIL_LENGTH].copy_from_slice(&self.tail);
        PathRecord::from_bytes(&bytes)
    }
}

impl Variant {
    fn names_a_service(&self) -> bool {
        self.demands.service_id != 0
    }
}

impl Destination {
    /// Number of answers.
    pub fn len(&self) -> usize {
        usize::from(self.plain.is_some()) + self.variants().len()
    }

    fn variants(&self) -> &[Variant] {
        self.variants.as_ref().map_or(&[], |variants| &variants.0)
    }

    /// DLID of the answer to the plain question.
    pub fn plain_lid(&self) -> Option<Lid> {
        self.plain.as_ref().map(Plain::dlid)
    }

    /// DLIDs of all answers, some more than once.
    pub fn lids(&self) -> impl Iterator<Item = Lid> {
        let variants = self.variants().iter().map(|variant| variant.path.dlid());
        self.plain.iter().map(Plain::dlid).chain(variants)
    }

    /// Whether any answer has this DLID.
    pub fn leads_to(&self, lid: Lid) -> bool {
        self.lids().any(|other| other == lid)
    }

    /// An answer to `question` whose age is right.
    #[inline]
    pub fn find(
        &self,
        gid: Gid,
        source: &Source,
        question: &Question,
        right: impl Fn(Age) -> bool,
    ) -> Option<PathRecord> {
        let wanted = |dlid| match question.target {
            Target::Gid(_) => true,
            Target::Lid(lid) => dlid == lid,
        };
        if question.demands.is_none()
            && let Some(plain) = &self.plain
            && wanted(plain.dlid())
        {
            return right(plain.age()).then(|| plain.path(gid, source));
        }
        let matching = self.variants().iter().find(|variant| {
            variant.demands == question.demands && wanted(variant.path.dlid()) && right(variant.age)
        });
        matching.map(|variant| variant.path)
    }

    /// Takes in the answer to a question. Returns the DLIDs of answers that went, some more
    /// than once.
    pub fn learn(
        &mut self,
        question: &Question,
        path: &PathRecord,
        age: Age,
        fresh: impl Fn(Age) -> bool,
    ) -> Vec<Lid> {
        if question.demands.is_none() {
            let other = self
                .plain
                .as_ref()
                .filter(|plain| plain.dlid() != path.dlid());
            let by_lid = matches!(question.target, Target::Lid(_));
            match other {
                // Another LID of the port: the plain path stays what it is.
                Some(plain) if by_lid && fresh(plain.age()) => {}
                // The port has moved to another LID: what else is known dates from before.
                Some(plain) => {
                    let mut gone = vec![plain.dlid()];
                    gone.extend(self.variants().iter().map(|variant| variant.path.dlid()));
                    self.variants = None;
                    self.plain = Some(Plain::new(path, age));
                    return gone;
                }
                None => {
                    self.plain = Some(Plain::new(path, age));
                    return Vec::new();
                }
            }
        }
        let variant = Variant {
            demands: question.demands,
            path: *path,
            age,
        };
        self.variants
            .get_or_insert_default()
            .learn(question.target, variant)
    }

    /// Drops an answer, the oldest variant first. Returns its DLID.
    pub fn shrink(&mut self) -> Option<Lid> {
        match &mut self.variants {
            Some(variants) if !variants.0.is_empty() => Some(variants.0.remove(0).path.dlid()),
            _ => self.plain.take().map(|plain| plain.dlid()),
        }
    }
}

/// The variants of a destination, the one learnt first first.
#[derive(Default)]
struct Variants(Vec<Variant>);

impl Variants {
    /// Adds an answer to a question about `target`, in place of the one it replaces. Returns
    /// the DLIDs of answers that went.
    fn learn(&mut self, target: Target, variant: Variant) -> Vec<Lid> {
        let replaced = |other: &mut Variant| {
            other.demands == variant.demands
                && match target {
                    Target::Gid(_) => true,
                    Target::Lid(lid) => other.path.dlid() == lid,
                }
        };
        let mut gone: Vec<Variant> = self.0.extract_if(.., replaced).collect();
        let service = variant.names_a_service();
        let limit = if service {
            MAX_SERVICE_VARIANTS
        } else {
            MAX_OTHER_VARIANTS
        };
        self.0.push(variant);
        let of_its_kind = |other: &Variant| other.names_a_service() == service;
        if self.0.iter().filter(|other| of_its_kind(other)).count() > limit
            && let Some(oldest) = self.0.iter().position(of_its_kind)
        {
            gone.push(self.0.remove(oldest));
        }
        gone.iter().map(|variant| variant.path.dlid()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_destination_is_small() {
        assert_eq!(size_of::<Plain>(), 32);
        assert_eq!(size_of::<Destination>(), 40);
    }
}
