//! Write providers for `ibacm` in safe Rust.

pub mod address;
