//! Models of the lock-free parts of acm-prov-api. [loom] runs them in every possible order of their threads.
//!
//! Each model, a file of `tests/`, includes a source file of the SDK. Its `crate::sync` is [`sync`] here: the same names for
//! loom's types.
//!
//! [loom]: https://docs.rs/loom

pub mod sync;
