//! How many instructions a cached resolve takes, from the C callback to the core's function for the answer: a figure that needs no
//! quiet machine.
//!
//! Callgrind counts hits that `loader-test bench-child` makes: in the provider as it is shipped, a library that is loaded as
//! ibacm loads it, and in the libraries that it calls. What the program itself does, the core, is left out. gungraun counts functions
//! of a program that it is linked into, and needs a runner of the very same version to be installed; neither fits a loaded library.
//!
//! The counts are kept in `counts.json`, for a toolchain, libc and valgrind. There, more than [`TOLERANCE`] above what is kept
//! is a regression. Elsewhere counts are shown and not judged: another compiler inlines otherwise.

pub mod count;
pub mod environment;
pub mod kept;

pub use kept::TOLERANCE;
