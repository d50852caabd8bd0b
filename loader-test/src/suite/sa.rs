//! Checks of the family `sa`.

use super::Check;

pub(super) const CHECKS: &[Check] = &[];
