//! Counters of a provider's own, beside those of acm.h.

use crate::sync::atomic::{AtomicU64, Ordering};

/// A counter of a provider's own: a `static` of its library, counted over all endpoints since the library was loaded.
///
/// ```
/// use acm_prov_api::Counter;
///
/// static DETOURS: Counter = Counter::new("mine_detours", "paths that lead through the spare switch");
///
/// DETOURS.increment();
/// assert_eq!(DETOURS.get(), 1);
/// ```
///
/// [`Provider::counters`](crate::Provider::counters) declares it. `query_perf` has no place for it: that shows the counters of
/// acm.h.
#[derive(Debug)]
pub struct Counter {
    name: &'static str,
    help: &'static str,
    value: AtomicU64,
}

impl Counter {
    /// A counter, its name with the provider's prefix, and what it counts in a few words.
    #[must_use]
    pub const fn new(name: &'static str, help: &'static str) -> Self {
        Self {
            name,
            help,
            value: AtomicU64::new(0),
        }
    }

    /// Adds one. For any thread; it takes no lock.
    #[inline]
    pub fn increment(&self) {
        self.value.fetch_add(1, Ordering::Relaxed);
    }

    /// The value.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.value.load(Ordering::Relaxed)
    }

    /// The name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// What it counts.
    #[must_use]
    pub const fn help(&self) -> &'static str {
        self.help
    }
}

/// Panics that the SDK kept from the core.
static CAUGHT_PANICS: Counter = Counter::new(
    "caught_panics",
    "panics in callbacks and guarded threads; each is logged",
);
/// Requests that the SDK answered for the provider.
static DROPPED_REQUESTS: Counter = Counter::new(
    "dropped_requests",
    "requests dropped unanswered, for which the SDK answers ENODATA; each is logged",
);

/// The counters that every provider has.
pub(crate) fn of_the_sdk() -> [&'static Counter; 2] {
    [&CAUGHT_PANICS, &DROPPED_REQUESTS]
}

pub(super) fn count_fault(kind: super::ProviderFault) {
    match kind {
        super::ProviderFault::CAUGHT_PANIC => CAUGHT_PANICS.increment(),
        super::ProviderFault::DROPPED_REQUEST => DROPPED_REQUESTS.increment(),
        _ => {}
    }
}
