//! The tables of CHECKS.md: of each check its rule, who is harmed, and how rdma-core's own provider fares.

use std::collections::BTreeMap;

const TEXT: &str = include_str!("../../CHECKS.md");

/// A check's row.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its rule.
    pub rule: String,
    /// Who suffers.
    pub harmed: String,
    /// How libibacmp.so ends: several where it damages memory.
    pub outcomes: Vec<String>,
    /// Why it does not pass.
    pub why: String,
}

/// The rows by check.
///
/// # Panics
/// If a row of the file has not five cells, which a test finds.
pub fn rows() -> BTreeMap<String, Row> {
    TEXT.lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .map(|line| {
            let cells: Vec<&str> = line
                .trim_end_matches('|')
                .split(" | ")
                .map(str::trim)
                .collect();
            let [name, rule, harmed, outcomes, why] = cells[..] else {
                panic!("five cells in a row: {line}")
            };
            let row = Row {
                rule: rule.to_owned(),
                harmed: harmed.to_owned(),
                outcomes: outcomes.split(" or ").map(str::to_owned).collect(),
                why: why.trim_end_matches('|').trim().to_owned(),
            };
            (name.trim_end_matches('`').to_owned(), row)
        })
        .collect()
}
