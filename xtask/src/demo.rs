use std::process::Command;
use std::time::Duration;

use crate::error::Error;
use crate::supervise::{self, Budget};
use crate::{built, cargo, heading, setup};

const BUILD: Duration = Duration::from_secs(1800);
const SHOW: Duration = Duration::from_secs(120);

/// The packages whose versions the demo prints; the distribution's programs in the run.
const SHOWN_PACKAGES: [&str; 4] = ["ibacm", "rdma-core", "opensm", "ibsim-utils"];

/// Sets up, builds, and runs `loader-test` to demonstrate the daemon.
pub fn run() -> Result<(), Error> {
    setup::ensure_for_demo()?;

    heading("build");
    let mut build = cargo(&["build"]);
    for package in ["loader-test", "provider-cache", "fabric-sim"] {
        build.args(["--package", package]);
    }
    supervise::run(&mut build, Budget::start(BUILD))?;
    let program = built("loader-test")?;
    let provider = built("libibacm_path_cache.so")?;

    let budget = Budget::start(SHOW);
    heading("versions");
    for (name, version) in setup::versions(&SHOWN_PACKAGES)? {
        println!("{name} {version}");
    }
    supervise::run(Command::new("rustc").arg("--version"), budget)?;
    supervise::run_clean(Command::new(program).arg("demo").arg(provider), budget)
}
