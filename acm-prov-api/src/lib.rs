//! Write providers for `ibacm` in safe Rust.

pub mod abi;
pub mod address;
pub mod check;
pub mod path;
