//! What the engine counts beside the counters of acm.h, over all its ports and endpoints.

use crate::host::own_counters::Counter;

pub(super) static EVICTIONS: Counter = Counter::new(
    "cache_evictions",
    "answers that made room for others: the capacity is too small if it grows all the time",
);
pub(super) static NEGATIVE_HITS: Counter = Counter::new(
    "cache_negative_hits",
    "requests refused because the SA lately had no such path",
);
pub(super) static STALE_ANSWERS: Counter = Counter::new(
    "cache_stale_answers",
    "requests answered with an older path: the SA was silent, or paths are renewed",
);
pub(super) static RENEWALS: Counter = Counter::new(
    "cache_renewals",
    "queries for paths in use, before anybody needs them",
);

/// The engine's own counters, for [`Provider::counters`](crate::Provider::counters). A hit counts in none of them.
#[must_use]
pub fn counters() -> Vec<&'static Counter> {
    vec![&EVICTIONS, &NEGATIVE_HITS, &STALE_ANSWERS, &RENEWALS]
}
