//! The README says of the options what the library says.

use std::process::Command;

use crate::products;
use crate::support::path_cache;

const README: &str = include_str!("../../../README.md");

#[test]
fn the_readme_has_the_librarys_own_table_of_options() {
    let program = products::folder().join("loader-test");
    let output = Command::new(program)
        .args(["info", "--table"])
        .arg(path_cache())
        .output()
        .expect("loader-test");
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && table.contains("`path_cache_capacity`"));
    let (_, rest) = README
        .split_once("path-cache -->\n")
        .expect("the mark before the table");
    let (shown, _) = rest.split_once("<!-- end -->").expect("the mark after it");
    assert_eq!(
        shown.trim(),
        table.trim(),
        "write into the README what `loader-test info --table` prints of the library"
    );
}
