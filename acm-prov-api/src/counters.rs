//! An endpoint's counters (acm.h, `ACM_CNTR_*`; shown by `ib_acme -P s -s ADDRESS`).

use crate::abi::{ACM_MAX_COUNTER, AcmCounter};
use crate::sync::atomic::{AtomicU64, Ordering};

const LENGTH: usize = ACM_MAX_COUNTER;

/// The counters of one endpoint. They never run backwards while it is open.
#[derive(Debug, Default)]
pub struct Counters([AtomicU64; LENGTH]);

impl Counters {
    /// Adds one; a counter that acm.h does not know is ignored.
    pub(crate) fn increment(&self, counter: AcmCounter) {
        if let Some(value) = usize::try_from(counter.0)
            .ok()
            .and_then(|index| self.0.get(index))
        {
            value.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The value of one counter; 0 for one that acm.h does not know.
    pub fn get(&self, counter: AcmCounter) -> u64 {
        usize::try_from(counter.0)
            .ok()
            .and_then(|index| self.0.get(index))
            .map_or(0, |v| v.load(Ordering::Relaxed))
    }

    /// All values in the order of acm.h, in host byte order.
    pub fn values(&self) -> [u64; LENGTH] {
        std::array::from_fn(|index| self.0[index].load(Ordering::Relaxed))
    }
}
