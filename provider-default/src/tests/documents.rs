//! The tests that the documents name must exist.

use std::fs;
use std::path::{Path, PathBuf};

use acm_prov_api::options::Options;

use crate::settings::Settings;

const BESIDE_STOCK: &str = include_str!("../../BESIDE-STOCK.md");
const CHECKS: &str = include_str!("../../../loader-test/CHECKS.md");

/// Returns the rows of the table of faults: number and tests.
fn faults() -> Vec<(u32, &'static str)> {
    let table = BESIDE_STOCK.split("| fault | tests |").nth(1).unwrap();
    let row = |line: &'static str| {
        let (fault, tests) = line.strip_prefix("| ")?.split_once(" | ")?;
        Some((fault.split(' ').next()?.parse().ok()?, tests))
    };
    table.lines().filter_map(row).collect()
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => found.extend(sources(&path)),
            false if path.extension().is_some_and(|name| name == "rs") => found.push(path),
            false => {}
        }
    }
    found
}

/// Returns whether a file of the module has the test: `MODULE.rs`, or a file in a folder with that name.
fn has_test(module: &str, test: &str) -> bool {
    let (folders, module) = match module.split_once('/') {
        None => (vec!["src"], module),
        Some(("daemon", module)) => (vec!["tests/daemon"], module),
        Some(("acm-prov-api", module)) => {
            (vec!["../acm-prov-api/src", "../acm-prov-api/tests"], module)
        }
        Some(("rdma-access", module)) => (vec!["../rdma-access/src"], module),
        Some(_) => return false,
    };
    let declared = format!("fn {test}(");
    folders
        .into_iter()
        .flat_map(|folder| sources(Path::new(folder)))
        .filter(|file| {
            file.components()
                .any(|part| Path::new(part.as_os_str()).file_stem() == Some(module.as_ref()))
        })
        .any(|file| fs::read_to_string(file).unwrap().contains(&declared))
}

#[test]
fn every_fault_has_tests_and_all_that_are_named_exist() {
    let faults = faults();
    let numbers: Vec<u32> = faults.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, (1..=38).collect::<Vec<u32>>());
    for (number, tests) in faults {
        let named: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        assert!(!named.is_empty(), "fault {number} has no test");
        for name in named {
            let exists = match name.split_once(": ") {
                Some((module, test)) => has_test(module, test),
                None => CHECKS.contains(&format!("| `{name}` |")),
            };
            assert!(exists, "fault {number}: there is no {name}");
        }
    }
}

#[test]
fn every_option_is_described() {
    let table = BESIDE_STOCK.split("## Behaviour").next().unwrap();
    let options = Options::none();
    Settings::read(&options);
    for option in options.declared() {
        let key = format!("`{}`", option.name);
        assert!(table.contains(&key), "{key}");
    }
}
