//! The `ibv_*` functions that replace libibverbs'.
//!
//! They have no symbol version, so a preloaded library serves any program that was linked with libibverbs.
//! Functions that the header defines inline use the context's table, which this crate fills. libibverbs never
//! gets a handle made here: verbs that are not simulated fail with `ENOSYS` ([`mod@not_simulated`]).
//!
//! Return values are as in the man pages: 0 or an `errno` value for most, -1 or NULL with `errno` set for
//! others. A NULL handle returns `EINVAL` instead of crashing.

pub mod abi;
pub mod completion;
pub mod context;
pub mod device;
pub mod fault;
pub mod handle;
pub mod not_simulated;
pub mod query;
pub mod queue_pair;
pub mod resources;
pub mod text;
