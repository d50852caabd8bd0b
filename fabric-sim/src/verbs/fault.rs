//! Failures on demand: whoever wants to see how a program takes a verb that fails lets each of its calls fail in turn.
//!
//! Calls that make or ask for something are counted; those that end something, and the data path, are not: they do not
//! fail on hardware that works.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

struct Plan {
    number: usize,
    calls: Vec<&'static str>,
}

/// Keeps programs that want no failures from taking the lock.
static ACTIVE: AtomicBool = AtomicBool::new(false);
static PLAN: Mutex<Option<Plan>> = Mutex::new(None);

/// Counts the calls of this process from now on, and lets the one of this number, from 0, fail: `ENOMEM`. With
/// `usize::MAX` none does.
pub fn fail_call(number: usize) {
    *PLAN.lock() = Some(Plan {
        number,
        calls: Vec::new(),
    });
    ACTIVE.store(true, Ordering::Release);
}

/// Counts no more and lets nothing fail; the calls since [`fail_call`], by name.
pub fn stop() -> Vec<&'static str> {
    ACTIVE.store(false, Ordering::Release);
    PLAN.lock()
        .take()
        .map(|plan| plan.calls)
        .unwrap_or_default()
}

/// Whether this call is to fail.
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
