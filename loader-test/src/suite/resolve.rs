//! Checks of the family `resolve`: each request gets one answer.

mod answers;
mod clients;
mod demands;
mod destinations;
pub(super) mod memory;

pub(super) use answers::CHECKS as ANSWERS;
pub(super) use clients::CHECKS as CLIENTS;
pub(super) use demands::CHECKS as DEMANDS;
pub(super) use destinations::CHECKS as DESTINATIONS;
pub(super) use memory::CHECKS as MEMORY;
