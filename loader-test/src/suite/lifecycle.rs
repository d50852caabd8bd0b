//! Checks of the family `lifecycle`.

use super::Check;

pub(super) const CHECKS: &[Check] = &[];
