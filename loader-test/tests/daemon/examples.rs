//! The SDK's examples of a provider: they pass the conformance checks, and do under the real daemon what they say.

use std::path::{Path, PathBuf};
use std::process::Command;

use loader_test::client::{Destination, Status};
use loader_test::log::Mark;
use loader_test::record::Lid;
use loader_test::rig::Rig;
use loader_test::wait::PATIENCE;

/// An example's library.
pub fn example(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_BIN_EXE_loader-test")).with_file_name("examples");
    let library = folder.join(format!("lib{name}.so"));
    assert!(
        library.is_file(),
        "{} is missing: cargo build -p acm-prov-api --examples --all-features",
        library.display()
    );
    library
}

/// Runs the conformance checks strictly.
#[track_caller]
fn passes(name: &str, options: &[&str]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_loader-test"));
    command.args(["check", "--strict"]);
    command.args(options.iter().flat_map(|option| ["--opt", option]));
    let output = command.arg(example(name)).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}");
    assert!(told.contains(" passed"), "{told}");
}

#[test]
fn names_and_sa_passes_all_checks() {
    passes("names_and_sa", &[]);
}

#[test]
fn by_vendor_passes_all_checks() {
    passes("by_vendor", &[]);
}

/// The peers of the checks have OUI 0, and their SA grants every service level.
#[test]
fn by_vendor_passes_all_checks_where_its_rule_holds() {
    passes("by_vendor", &["by_vendor_sl 3", "by_vendor_oui 000000"]);
}

/// An operator's policy of service level 0 only: OpenSM refuses queries for another one.
const LEVEL_ZERO: &str = "\
qos-levels
    qos-level
        name: DEFAULT
        sl: 0
    end-qos-level
end-qos-levels
";

#[test]
fn by_vendor_takes_any_path_where_opensm_refuses_its_level() {
    const BY_SL: u64 = 1 << 15;
    let rig = Rig::builder(example("by_vendor"))
        .host("Hca1")
        .option("by_vendor_sl", 5)
        // The simulated adapters' OUI.
        .option("by_vendor_oui", "000000")
        .opensm_option("qos", "TRUE")
        .opensm_file("qos-policy.conf", LEVEL_ZERO)
        .start()
        .unwrap();
    let host = rig.host("Hca1").unwrap();
    assert_eq!(host.provider().name, "by-vendor");
    let to = Destination::Gid(rig.gid("Hca3").unwrap());
    let mark = rig.opensm().log().end();
    let path = host.resolve(&to).unwrap().into_path().unwrap();
    assert_eq!(path.dlid(), rig.lid("Hca3").unwrap());
    assert_eq!(path.sl(), 0);
    let named = |mark| -> Vec<bool> {
        let queries = rig.path_queries(host, mark).unwrap();
        let masks = queries
            .iter()
            .map(|query| query.component_mask & BY_SL != 0);
        masks.collect()
    };
    assert_eq!(named(mark), [true, false], "the level first, then any path");
    // The outcome is kept.
    let mark = rig.opensm().log().end();
    assert_eq!(host.resolve(&to).unwrap().into_path().unwrap(), path);
    assert!(named(mark).is_empty());
}

#[test]
fn a_provider_opens_the_smi_port_of_the_device_that_it_was_given() {
    let rig = Rig::builder(example("smi_port"))
        .host("Hca1")
        .host("Hca3")
        .start()
        .unwrap();
    for node in ["Hca1", "Hca3"] {
        let host = rig.host(node).unwrap();
        assert_eq!(host.provider().name, "smi-ports");
        let line = "SMI of ibsim0 port 1 is open";
        host.log()
            .wait_for(Mark::default(), line, PATIENCE)
            .unwrap();
    }
}

#[test]
fn the_static_table_answers_from_its_file() {
    let rig = Rig::builder(example("static_table"))
        .host("Hca1")
        .file("table.data", "fe80::7 9\nfe80::8 10\n")
        .option("static_table_file", "/run/table.data")
        .start()
        .unwrap();
    let host = rig.host("Hca1").unwrap();
    assert_eq!(host.provider().name, "static-table");
    let resolve = |destination| host.resolve(&destination).unwrap();
    let path = resolve(Destination::Gid("fe80::8".parse().unwrap()))
        .into_path()
        .unwrap();
    assert_eq!(path.dlid(), Lid(10));
    assert_eq!(
        resolve(Destination::Gid("fe80::9".parse().unwrap())).status,
        Status::ENODATA
    );
    assert_eq!(resolve(Destination::Lid(Lid(9))).status, Status::EDESTTYPE);
}

/// What a library says of its own load is told with the refusal.
#[test]
fn a_library_that_does_not_find_its_file_is_refused_with_its_reason() {
    let result = Rig::builder(example("static_table"))
        .host("Hca1")
        .option("static_table_file", "/nonexistent")
        .start();
    let error = result.unwrap_err();
    assert!(error.is_the_providers(), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("/nonexistent") && text.contains("provider_query failed"),
        "{text}"
    );
}
