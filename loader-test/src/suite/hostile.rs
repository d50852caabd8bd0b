//! Checks of the family `hostile`.

use super::Check;

pub(super) const CHECKS: &[Check] = &[];
