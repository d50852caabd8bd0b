//! The `ibv_*` functions that programs call instead of libibverbs'.
//!
//! They carry no symbol version, so a preloaded library serves any program that was linked with libibverbs. The calls
//! that the header makes inline go through the context's table, which this crate fills. Nothing of libibverbs gets to
//! see a handle made here: what is not simulated fails with `ENOSYS` ([`mod@not_simulated`]).
//!
//! Return values are those of the man pages: 0 or an `errno` value for most, -1 or NULL with `errno` set where they say
//! so. A NULL handle is `EINVAL`, not a crash.

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
