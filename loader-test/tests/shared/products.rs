//! The products that tests load or start without linking them: both providers, `loader-test`, fabric-sim.
//!
//! Cargo builds neither such libraries nor other packages' programs for a test, and an old file must not pass for the current
//! source.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The folder where they lie, built as an operator builds them. `cargo xtask test` has built them before any test, and says
/// so by this variable.
pub fn folder() -> &'static Path {
    const BUILT: &str = "ACM_TESTS_BUILT";
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let executable = env::current_exe().expect("the path of this test");
        // …/PROFILE/deps/TEST-HASH
        let folder = executable.parent().and_then(Path::parent);
        let folder = folder.expect("the folder of cargo's profile").to_owned();
        if env::var_os(BUILT).is_none() {
            build(&folder);
        }
        folder
    })
}

fn build(folder: &Path) {
    let profile = match folder.file_name().and_then(OsStr::to_str) {
        Some("debug") => "dev",
        Some(other) => other,
        None => panic!("{} names no profile", folder.display()),
    };
    let packages = [
        "provider-cache",
        "provider-default",
        "loader-test",
        "fabric-sim",
    ];
    let output = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["build", "--quiet", "--profile", profile, "--target-dir"])
        .arg(folder.parent().expect("cargo's target folder"))
        .args(packages.iter().flat_map(|package| ["--package", package]))
        .output()
        .expect("cargo, to build what is tested");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo build: {errors}");
}
