//! Failures on demand: a test can let each verb call of a program fail in turn.
//!
//! Counts calls that create or query objects. Calls that destroy objects, and the data path, are not counted:
//! they do not fail on working hardware.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

struct Plan {
    number: usize,
    calls: Vec<&'static str>,
}

/// Saves programs without failures from taking the lock.
static ACTIVE: AtomicBool = AtomicBool::new(false);
static PLAN: Mutex<Option<Plan>> = Mutex::new(None);

/// Starts counting this process's calls, and lets the one with this number, from 0, fail with `ENOMEM`. With
/// `usize::MAX` none fails.
pub fn fail_call(number: usize) {
    *PLAN.lock() = Some(Plan {
        number,
        calls: Vec::new(),
    });
    ACTIVE.store(true, Ordering::Release);
}

/// Stops counting and failing; returns the names of the calls since [`fail_call`].
pub fn stop() -> Vec<&'static str> {
    ACTIVE.store(false, Ordering::Release);
    PLAN.lock()
        .take()
        .map(|plan| plan.calls)
        .unwrap_or_default()
}

/// Returns whether this call must fail.
pub(super) fn strikes(call: &'static str) -> bool {
    if !ACTIVE.load(Ordering::Acquire) {
        return false;
    }
    let mut plan = PLAN.lock();
    let Some(plan) = &mut *plan else { return false };
    plan.calls.push(call);
    plan.calls.len() - 1 == plan.number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_call_fails_and_all_are_named() {
        assert!(!strikes("before"));
        fail_call(1);
        assert_eq!(["a", "b", "c"].map(strikes), [false, true, false]);
        assert_eq!(stop(), ["a", "b", "c"]);
        fail_call(usize::MAX);
        assert!(!strikes("a"));
        assert_eq!(stop(), ["a"]);
        assert!(!strikes("after"));
        assert_eq!(stop(), [""; 0]);
    }
}
