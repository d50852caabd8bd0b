//! An endpoint's counters (acm.h, `ACM_CNTR_*`; shown by `ib_acme -P s -s ADDRESS`).

use crate::abi::{ACM_MAX_COUNTER, AcmCounter};
use crate::sync::atomic::{AtomicU64, Ordering};

const LENGTH: usize = ACM_MAX_COUNTER;

/// The counters of one endpoint. They never run backwards while it is open.
#[derive(Debug, Default)]
pub struct Counters {
    counted: [AtomicU64; LENGTH],
    /// Requests that a cache answered at once. They count as requests and as route cache hits: one addition instead of two.
    resolved_from_cache: AtomicU64,
}

impl Counters {
    /// Adds one; a counter that acm.h does not know is ignored.
    pub(crate) fn increment(&self, counter: AcmCounter) {
        if let Some(value) = index(counter).and_then(|index| self.counted.get(index)) {
            value.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Adds one to the requests and one to the route cache hits.
    #[inline]
    pub(crate) fn count_resolved_from_cache(&self) {
        self.resolved_from_cache.fetch_add(1, Ordering::Relaxed);
    }

    /// The value of one counter; 0 for one that acm.h does not know.
    pub fn get(&self, counter: AcmCounter) -> u64 {
        index(counter)
            .and_then(|index| self.values().get(index).copied())
            .unwrap_or(0)
    }

    /// All values in the order of acm.h, in host byte order.
    pub fn values(&self) -> [u64; LENGTH] {
        let mut values = std::array::from_fn(|index| self.counted[index].load(Ordering::Relaxed));
        let from_cache = self.resolved_from_cache.load(Ordering::Relaxed);
        for counter in [AcmCounter::RESOLVE, AcmCounter::ROUTE_CACHE] {
            if let Some(value) = index(counter).and_then(|index| values.get_mut(index)) {
                *value += from_cache;
            }
        }
        values
    }
}

fn index(counter: AcmCounter) -> Option<usize> {
    usize::try_from(counter.0).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_answered_from_a_cache_counts_in_both() {
        let counters = Counters::default();
        counters.count_resolved_from_cache();
        counters.increment(AcmCounter::RESOLVE);
        counters.increment(AcmCounter(99));
        let named = [
            AcmCounter::RESOLVE,
            AcmCounter::ROUTE_CACHE,
            AcmCounter::NODATA,
            AcmCounter(99),
        ];
        assert_eq!(named.map(|counter| counters.get(counter)), [2, 1, 0, 0]);
        assert_eq!(counters.values().iter().sum::<u64>(), 3);
    }
}
