use std::time::Duration;

use crate::error::Error;
use crate::supervise::{self, Budget};
use crate::{cargo, heading, setup};

/// Time limit, enough for a cold build of everything on two cores.
const BUDGET: Duration = Duration::from_secs(900);

/// Sets up, then checks the format, clippy on everything, and the documentation. Every warning is an error.
pub fn run() -> Result<(), Error> {
    // clippy runs build scripts, which need some of it.
    setup::ensure_for_build(true)?;
    let budget = Budget::start(BUDGET);
    heading("format");
    supervise::run(&mut cargo(&["fmt", "--all", "--", "--check"]), budget)?;
    for (what, selection) in [
        // All features together may hide code that is unused, or missing, without them.
        (
            "clippy, default features",
            ["--workspace", "--all-targets"].as_slice(),
        ),
        (
            // In the workspace the providers enable its features.
            "clippy, the SDK with default features",
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

/// The allowed dependencies between the crates of the workspace.
#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use crate::cargo;

    fn output_of(arguments: &[&str]) -> String {
        let output = cargo(arguments).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns each crate of the workspace with its dependencies in the workspace, those of its tests included.
    fn crates() -> BTreeMap<String, BTreeSet<String>> {
        let metadata = output_of(&[
            "metadata",
            "--offline",
            "--no-deps",
            "--format-version",
            "1",
        ]);
        let metadata: serde_json::Value = serde_json::from_str(&metadata).unwrap();
        let text = |value: &serde_json::Value| value["name"].as_str().unwrap().to_owned();
        let packages = metadata["packages"].as_array().unwrap();
        packages
            .iter()
            .map(|package| {
                let name = text(package);
                let dependencies = package["dependencies"].as_array().unwrap().iter();
                let local = dependencies
                    .filter(|dependency| dependency["path"].is_string())
                    .map(text)
                    // A crate depends on itself to enable features in its own tests.
                    .filter(|other| *other != name);
                let local = local.collect();
                (name, local)
            })
            .collect()
    }

    #[test]
    fn no_crate_is_built_from_one_that_is_built_from_it() {
        let mut left = crates();
        assert!(left["loader-test"].contains("fabric-sim"), "{left:?}");
        while !left.is_empty() {
            let known: BTreeSet<String> = left.keys().cloned().collect();
            left.retain(|_, dependencies| !dependencies.is_disjoint(&known));
            assert!(left.len() < known.len(), "a circle: {left:?}");
        }
    }

    #[test]
    fn addresses_cost_one_dependency() {
        let tree = output_of(&[
            "tree",
            "--offline",
            "--package",
            "rdma-access",
            "--no-default-features",
            "--edges",
            "normal",
            "--depth",
            "1",
            "--prefix",
            "none",
        ]);
        let packages: Vec<_> = tree
            .lines()
            .filter_map(|line| line.split(' ').next())
            .collect();
        assert_eq!(packages, ["rdma-access", "thiserror"]);
    }
}
