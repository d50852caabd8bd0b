//! A provider's rules for the paths that clients get.

use super::constraints::Alternatives;
use super::store::Kept;
use crate::host::Host;
use crate::host::guard::guard;
use crate::path::PathRecord;
use crate::sa::{PathQuery, Source};
use crate::sync::Arc;

/// A provider's rules: what to ask the SA for, and paths that need no SA.
///
/// The engine calls these methods when a path is not cached, on the core's thread, the SA's or the port's, with no lock
/// held. They must not block. They must return the same result for the same query while the port is open, because an answer
/// is cached under the client's query. After a panic, the engine logs it and uses the default.
pub trait PathRules: Send + Sync {
    /// Returns the constraints for the SA query, in order of preference. `query` is the client's, complete with the endpoint's
    /// GID and P_Key.
    ///
    /// The engine tries the next alternative when the SA has no record for one, but not after a timeout or while the SA is
    /// busy. All share the request's deadline. The result is cached under the client's query, so a later request costs no query.
    fn alternatives(&self, query: &PathQuery) -> Alternatives {
        let _ = query;
        Alternatives::any()
    }

    /// Returns a path that needs no SA. The client gets the path only if it [answers](PathQuery::check) the client's query.
    /// It is not cached.
    fn path(&self, query: &PathQuery) -> Option<PathRecord> {
        let _ = query;
        None
    }
}

/// The rules of one port. A panic in them is caught.
#[derive(Clone)]
pub(super) struct Rules {
    rules: Option<Arc<dyn PathRules>>,
    host: Host,
}

impl Rules {
    pub(super) fn new(rules: Option<Arc<dyn PathRules>>, host: Host) -> Self {
        Self { rules, host }
    }

    /// Returns the query of the `attempt`th alternative, from 0, and whether another one follows.
    /// `None`: any path will do; send the client's query.
    #[inline]
    pub(super) fn attempt(&self, query: &PathQuery, attempt: usize) -> Option<(PathQuery, bool)> {
        let rules = self.rules.as_ref()?;
        let alternatives = self.alternatives(rules, query);
        if alternatives.is_any() {
            return None;
        }
        let queries = alternatives.apply(query);
        let last = queries.len().saturating_sub(1);
        let asked = queries.get(attempt.min(last)).unwrap_or(query);
        Some((*asked, attempt < last))
    }

    /// Whether `path`, which did not come from the SA, meets the first alternative.
    pub(super) fn prefer(&self, query: &PathQuery, path: &PathRecord) -> bool {
        let Some(rules) = &self.rules else {
            return true;
        };
        self.alternatives(rules, query).prefer(query, path)
    }

    /// Whether a path that the SA returned earlier, such as one of a snapshot, still meets an alternative.
    pub(super) fn accept(&self, kept: &Kept, source: &Source) -> bool {
        let Some(rules) = &self.rules else {
            return true;
        };
        let plain = PathQuery::to(kept.target).complete(source);
        let alternatives = self.alternatives(rules, &plain);
        // The path was checked against its query when the SA returned it.
        if alternatives.is_any() {
            return true;
        }
        let queries = alternatives.apply(&plain);
        queries.iter().any(|query| query.check(&kept.path).is_ok())
    }

    /// Returns the provider's own path.
    pub(super) fn path(&self, query: &PathQuery) -> Option<PathRecord> {
        let rules = self.rules.as_ref()?;
        let path = guard(&self.host, "path rule", None, || rules.path(query))?;
        match query.check(&path) {
            Ok(()) => Some(path),
            Err(_) => None,
        }
    }

    fn alternatives(&self, rules: &Arc<dyn PathRules>, query: &PathQuery) -> Alternatives {
        guard(&self.host, "path rule", Alternatives::any(), || {
            rules.alternatives(query)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::address::{Gid, Lid, PKey};
    use crate::cache::Constraints;
    use crate::sa::Target;
    use crate::testing::host_that_logs;

    const SOURCE: Source = Source {
        gid: Gid::new(0xfe80 << 48, 1),
        lid: Lid(1),
        pkey: PKey(0xffff),
    };

    /// Service level 3, or else 2, towards the LID 7.
    struct Levels;

    impl PathRules for Levels {
        fn alternatives(&self, query: &PathQuery) -> Alternatives {
            match query.target() {
                Ok(Target::Lid(Lid(7))) => Constraints::new().sl(3).or(Constraints::new().sl(2)),
                _ => Alternatives::any(),
            }
        }
    }

    fn rules() -> Rules {
        Rules::new(Some(Arc::new(Levels)), host_that_logs(|_, _| ()))
    }

    fn to(lid: u16) -> PathQuery {
        PathQuery::to(Target::Lid(Lid(lid))).complete(&SOURCE)
    }

    fn path(lid: u16, sl: u8) -> PathRecord {
        let mut path = to(lid).record();
        path.set_dgid(Gid::new(0xfe80 << 48, u64::from(lid)))
            .set_slid(SOURCE.lid)
            .set_sl(sl);
        path
    }

    #[test]
    fn alternatives_follow_each_other_and_end() {
        let sl = |attempt| {
            let (query, has_next) = rules().attempt(&to(7), attempt).unwrap();
            (query.values().sl(), has_next)
        };
        assert_eq!([sl(0), sl(1), sl(2)], [(3, true), (2, false), (2, false)]);
        assert!(rules().attempt(&to(8), 0).is_none());
    }

    #[test]
    fn a_path_that_nobody_asked_for_must_be_the_preferred_one() {
        assert!(rules().prefer(&to(7), &path(7, 3)));
        assert!(!rules().prefer(&to(7), &path(7, 2)));
        assert!(rules().prefer(&to(8), &path(8, 2)));
    }

    #[test]
    fn a_path_that_was_kept_must_meet_one_of_the_alternatives() {
        let kept = |lid, sl| Kept {
            target: Target::Lid(Lid(lid)),
            path: path(lid, sl),
            age: Duration::ZERO,
        };
        assert!(rules().accept(&kept(7, 3), &SOURCE));
        assert!(rules().accept(&kept(7, 2), &SOURCE));
        assert!(!rules().accept(&kept(7, 0), &SOURCE));
        assert!(rules().accept(&kept(8, 0), &SOURCE));
    }
}
