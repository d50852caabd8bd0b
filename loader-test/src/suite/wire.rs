//! Checks of the family `wire`: the ACM multicast protocol, in which nodes ask each other for addresses. The other nodes are
//! the harness, or the stock provider in a process of its own.

mod answers;
mod claims;
mod crowd;
mod life;
mod line;
mod malformed;
pub mod neighbour;
mod requests;
mod stock;

use super::Check;

pub(super) use claims::FLOOD_MEMORY;

/// Every check of the family, in the order of the list.
pub(super) const CHECKS: [&[Check]; 7] = [
    requests::CHECKS,
    malformed::CHECKS,
    answers::CHECKS,
    claims::CHECKS,
    crowd::CHECKS,
    life::CHECKS,
    stock::CHECKS,
];
