//! What a vendor's tests build with this package: nothing of the harness but the core.

use std::process::Command;

/// What this package is built from, each line a package or a feature of one.
fn tree() -> String {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["tree", "--locked", "--offline", "--package", "acm-stand-in"])
        .args(["--edges", "normal,build,features", "--prefix", "none"])
        .output()
        .expect("cargo, for its tree of packages");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo tree: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn a_vendors_tests_build_nothing_else_of_the_harness() {
    const FORBIDDEN: [&str; 7] = [
        "loader-test",
        "clap",
        "clap_builder",
        "indicatif",
        "object",
        "quick-junit",
        "ibverbs-sys",
    ];
    let tree = tree();
    let packages: Vec<&str> = tree
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    // The list is one of packages, so that what is not there would be.
    for there in [
        "acm-stand-in",
        "acm-prov-api",
        "fabric-sim",
        "rdma-access",
        "tempfile",
    ] {
        assert!(packages.contains(&there), "{there} in {tree}");
    }
    for forbidden in FORBIDDEN {
        assert!(!packages.contains(&forbidden), "{forbidden} in {tree}");
    }
    assert!(tree.contains("fabric-sim v"), "{tree}");
    assert!(
        !tree.contains("fabric-sim feature \"preload\""),
        "fabric-sim's part for programs that are preloaded with it, in {tree}"
    );
    for feature in ["cm", "mana", "umad", "verbs"] {
        assert!(
            !tree.contains(&format!("rdma-access feature \"{feature}\"")),
            "rdma-access's feature {feature}, in {tree}"
        );
    }
}
