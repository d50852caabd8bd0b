//! The operators' program is built without the faults.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use loader_test::suite::all;
use loader_test::suite::fault::{DEPARTURES, Fault};
use object::{Object as _, ObjectSection as _};

use crate::products;

/// Long enough not to occur in a program by chance.
const LONG: usize = 24;

/// The operators' program. `cargo xtask test` copies it before it builds the tests; without xtask, `products` has just built
/// it.
fn program() -> PathBuf {
    let built = products::folder();
    match env::var_os("ACM_TESTS_BUILT") {
        Some(_) => built.with_file_name("tests/operators/loader-test"),
        None => built.join("loader-test"),
    }
}

/// The constants of a program.
fn constants(program: &Path) -> Vec<u8> {
    let bytes = fs::read(program).unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    let file = object::File::parse(&*bytes).expect("a program");
    let section = file.section_by_name(".rodata").expect("constants");
    section.uncompressed_data().expect("constants").into_owned()
}

/// What these faults put into a good provider.
fn texts(faults: impl Iterator<Item = &'static Fault>) -> BTreeSet<&'static str> {
    faults
        .flat_map(|fault| fault.replace)
        .map(|&(_, replacement)| replacement)
        .filter(|text| text.len() >= LONG)
        .collect()
}

#[test]
fn the_program_of_operators_carries_no_fault_and_that_of_the_tests_all() {
    let (theirs, ours) = (program(), Path::new(env!("CARGO_BIN_EXE_loader-test")));
    let of_checks = texts(all().map(|check| &check.fault));
    assert!(of_checks.len() > 150, "{} texts", of_checks.len());
    // Only tests look at these: no program has them.
    let of_departures = texts(DEPARTURES.iter().map(|(_, fault)| fault));
    let [theirs, ours] =
        [&*theirs, ours].map(|program| String::from_utf8_lossy(&constants(program)).into_owned());
    for text in &of_checks {
        assert!(
            ours.contains(text),
            "not in the program of the tests: {text}"
        );
    }
    for text in of_checks.union(&of_departures) {
        assert!(
            !theirs.contains(text),
            "in the program of operators: {text}"
        );
    }
}
