//! Checks of the family `wire`: the ACM multicast protocol, by which nodes resolve addresses. The harness plays the other
//! nodes, or the stock provider does so in its own process.

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

/// Returns every check of the family, in list order.
pub(super) const CHECKS: [&[Check]; 7] = [
    requests::CHECKS,
    malformed::CHECKS,
    answers::CHECKS,
    claims::CHECKS,
    crowd::CHECKS,
    life::CHECKS,
    stock::CHECKS,
];
