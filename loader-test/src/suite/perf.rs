//! Checks of the family `perf`.

use super::Check;

pub(super) const CHECKS: &[Check] = &[];
