//! The lock-free parts of acm-prov-api in every order in which their threads can run: [loom] plays the atomics.
//!
//! Each model, a file of `tests/`, includes a source file of the SDK, whose `crate::sync` is here [`sync`]: the same names with
//! loom's types behind them.
//!
//! [loom]: https://docs.rs/loom

pub mod sync;
