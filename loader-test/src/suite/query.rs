//! Checks of the family `query`.

use super::Check;

pub(super) const CHECKS: &[Check] = &[];
