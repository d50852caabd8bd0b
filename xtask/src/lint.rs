use std::time::Duration;

use crate::error::Error;
use crate::supervise::{self, Budget};
use crate::{cargo, heading, setup};

/// Enough for a cold build of everything on two cores.
const BUDGET: Duration = Duration::from_secs(900);

/// Sets up, then checks the format, clippy on everything, and the documentation, warnings being errors.
pub fn run() -> Result<(), Error> {
    // Build scripts, which clippy runs, need some of it.
    setup::ensure_for_build(true)?;
    let budget = Budget::start(BUDGET);
    heading("format");
    supervise::run(&mut cargo(&["fmt", "--all", "--", "--check"]), budget)?;
    for (what, selection) in [
        // Together the features could hide what is unused, or missing, without them.
        (
            "clippy, default features",
            ["--workspace", "--all-targets"].as_slice(),
        ),
        (
            // In the workspace the providers ask for its features.
            "clippy, the SDK as a first provider takes it",
            &["--package", "acm-prov-api"],
        ),
        (
            "clippy, all features",
            &["--workspace", "--all-targets", "--all-features"],
        ),
    ] {
        heading(what);
        let mut clippy = cargo(&["clippy"]);
        clippy.args(selection).args(["--", "-D", "warnings"]);
        supervise::run(&mut clippy, budget)?;
    }
    heading("documentation");
    let mut doc = cargo(&["doc", "--workspace", "--all-features", "--no-deps"]);
    supervise::run(doc.env("RUSTDOCFLAGS", "-D warnings"), budget)
}
