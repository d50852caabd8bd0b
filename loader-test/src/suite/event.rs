//! Checks of the family `event`.

use super::Check;

pub(super) const CHECKS: &[Check] = &[];
