//! Checks of the family `load`.

use super::Check;

pub(super) const CHECKS: &[Check] = &[];
