//! Write providers for `ibacm` in safe Rust.
