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

    /// Returns a path that needs no SA. The client gets it if it [answers](PathQuery::check) its query. It is not cached.
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
    /// `None`: there are no rules; send the client's query.
    #[inline]
    pub(super) fn attempt(&self, query: &PathQuery, attempt: usize) -> Option<(PathQuery, bool)> {
        let rules = self.rules.as_ref()?;
        let queries = self.alternatives(rules, query).apply(query);
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

    /// Whether a path that the SA gave some time ago still meets an alternative.
    pub(super) fn accept(&self, kept: &Kept, source: &Source) -> bool {
        let Some(rules) = &self.rules else {
            return true;
        };
        let plain = PathQuery::to(kept.target).complete(source);
        let queries = self.alternatives(rules, &plain).apply(&plain);
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
