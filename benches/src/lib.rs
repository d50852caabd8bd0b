//! Counts the instructions of a cached resolve, from the C callback to the core's function for the answer.
//! Counting does not need a quiet machine.
//!
//! Callgrind counts the hits of `loader-test bench-child`: in the provider's release build, loaded as ibacm
//! loads it, and in the libraries that it calls. The instructions of the program itself are left out. gungraun
//! does not fit a loaded library: it counts functions of the program that it is linked into, and needs an
//! installed runner of exactly the same version.
//!
//! `counts.json` records the counts for a toolchain, libc and valgrind. In that environment, more than
//! [`TOLERANCE`] above the recorded count is a regression. In other environments the counts are only shown,
//! because another compiler inlines differently.

pub mod count;
pub mod environment;
pub mod recorded;

pub use recorded::TOLERANCE;
