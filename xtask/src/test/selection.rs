//! The packages, features and test programs to run.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use crate::cargo;
use crate::error::Error;

/// Packages that need ibverbs-sys, and what is lost without them.
const VERBS_PACKAGES: [(&str, &str); 2] = [
    ("rdma-access", "verbs contexts, MAD ports, MANA attributes"),
    ("provider-default", "mcast-sa, which opens verbs contexts"),
];
/// The feature by which other packages depend on the first of them.
const VERBS_FEATURE: &str = "verbs";

/// The part of the workspace to build and test.
pub struct Selection {
    /// `PACKAGE/FEATURE` for each feature, in a build without verbs.
    features: Vec<String>,
    without_verbs: bool,
    /// Names of the integration tests.
    integration: BTreeSet<String>,
}

impl Selection {
    /// Reads the workspace from cargo; `without_verbs` leaves out what needs ibverbs-sys.
    pub fn of(without_verbs: bool) -> Result<Self, Error> {
        let mut command = cargo(&["metadata", "--no-deps", "--format-version", "1"]);
        let name = crate::shown(&command);
        let output = command
            .stderr(Stdio::inherit())
            .output()
            .map_err(|source| Error::Spawn {
                command: name.clone(),
                source,
            })?;
        if !output.status.success() {
            return Err(Error::Failed {
                command: name,
                status: output.status,
            });
        }
        Self::read(&output.stdout, without_verbs).ok_or(Error::Unreadable { command: name })
    }

    /// Parses the output of `cargo metadata`.
    fn read(metadata: &[u8], without_verbs: bool) -> Option<Self> {
        let metadata: serde_json::Value = serde_json::from_slice(metadata).ok()?;
        let mut features = vec![];
        let mut integration = BTreeSet::new();
        for package in metadata["packages"].as_array()? {
            let name = package["name"].as_str()?;
            if without_verbs && VERBS_PACKAGES.iter().any(|(left_out, _)| *left_out == name) {
                continue;
            }
            for target in package["targets"].as_array()? {
                if target["kind"].as_array()?.iter().any(|kind| kind == "test") {
                    integration.insert(target["name"].as_str()?.to_owned());
                }
            }
            let known = package["features"].as_object()?.keys();
            features.extend(
                known
                    .filter(|feature| *feature != VERBS_FEATURE && *feature != "default")
                    .map(|feature| format!("{name}/{feature}")),
            );
        }
        Some(Self {
            features,
            without_verbs,
            integration,
        })
    }

    /// Returns the names of the integration tests.
    pub fn integration(&self) -> &BTreeSet<String> {
        &self.integration
    }

    /// Adds packages and features to a cargo command. All commands need the same, or cargo would compile again.
    pub fn add_to(&self, command: &mut Command) {
        command.arg("--workspace");
        if !self.without_verbs {
            command.arg("--all-features");
            return;
        }
        for (package, _) in VERBS_PACKAGES {
            command.args(["--exclude", package]);
        }
        command.args(["--features", &self.features.join(",")]);
    }

    /// Returns whether a package is built.
    pub fn has(&self, package: &str) -> bool {
        !self.without_verbs
            || !VERBS_PACKAGES
                .iter()
                .any(|(left_out, _)| *left_out == package)
    }

    /// Returns a line for each package that is left out.
    pub fn left_out(&self) -> Vec<String> {
        match self.without_verbs {
            true => VERBS_PACKAGES
                .iter()
                .map(|(package, what)| format!("{package}: {what}"))
                .collect(),
            false => vec![],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const METADATA: &[u8] = br#"{"packages":[
        {"name":"a","features":{"default":["x"],"x":[],"verbs":[]},"targets":[
            {"kind":["test"],"name":"one"},{"kind":["bin"],"name":"two"},{"kind":["test"],"name":"three"}]},
        {"name":"rdma-access","features":{},"targets":[{"kind":["test"],"name":"kernel"}]}]}"#;

    fn words(selection: &Selection) -> String {
        let mut command = Command::new("cargo");
        selection.add_to(&mut command);
        crate::shown(&command)
    }

    #[test]
    fn everything_is_selected_with_all_features() {
        let all = Selection::read(METADATA, false).unwrap();
        assert_eq!(words(&all), "cargo --workspace --all-features");
        assert_eq!(
            *all.integration(),
            ["kernel", "one", "three"].map(str::to_owned).into()
        );
        assert!(all.left_out().is_empty() && all.has("rdma-access"));
    }

    #[test]
    fn without_verbs_two_packages_and_a_feature_are_left_out_and_named() {
        let some = Selection::read(METADATA, true).unwrap();
        assert_eq!(
            words(&some),
            "cargo --workspace --exclude rdma-access --exclude provider-default --features a/x"
        );
        assert_eq!(
            *some.integration(),
            ["one", "three"].map(str::to_owned).into()
        );
        assert!(some.left_out()[0].starts_with("rdma-access: "));
        assert!(!some.has("rdma-access") && some.has("a"));
    }

    #[test]
    fn malformed_metadata_is_refused() {
        for bad in ["", "{}", r#"{"packages":[{}]}"#] {
            assert!(Selection::read(bad.as_bytes(), false).is_none(), "{bad}");
        }
    }
}
