//! Reads the tables of CHECKS.md: each check's rule, whom it affects, and the outcome for rdma-core's own provider.

use std::collections::BTreeMap;

const TEXT: &str = include_str!("../../CHECKS.md");

/// A check's row.
#[derive(Clone, Debug)]
pub struct Row {
    /// The rule.
    pub rule: String,
    /// Whom a violation affects.
    pub harmed: String,
    /// The outcomes for libibacmp.so: several if it corrupts memory.
    pub outcomes: Vec<String>,
    /// Why it does not pass.
    pub why: String,
}

/// Returns the rows by check.
///
/// # Panics
/// If a row does not have five cells; a test detects that.
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
