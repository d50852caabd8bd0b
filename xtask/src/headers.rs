//! Generates `include/acm_prov_abi.h`, the provider interface for C and C++ authors, from the Rust mirror.

use std::time::Duration;

use crate::error::Error;
use crate::supervise::{self, Budget};
use crate::{cargo, setup};

/// Time limit, enough for a cold build of the test.
const BUDGET: Duration = Duration::from_secs(900);

/// Runs the test that compares the header with the mirror, in the mode that writes the header instead.
pub fn run() -> Result<(), Error> {
    setup::ensure_for_build(true)?;
    let mut generate = cargo(&[
        "test",
        "--package",
        "acm-prov-api",
        "--test",
        "header",
        "checked_in_header",
    ]);
    generate.env("REGENERATE", "1");
    println!("$ REGENERATE=1 {}", crate::shown(&generate));
    supervise::run(&mut generate, Budget::start(BUDGET))?;
    println!("include/acm_prov_abi.h is up to date");
    Ok(())
}
