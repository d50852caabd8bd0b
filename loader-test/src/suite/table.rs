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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::suite::explain;

    const MISUSE: &str = include_str!("../../../docs/misuse.md");

    /// What stands in backquotes in a column of the rows of one part of the page.
    fn quoted(part: &str, column: usize) -> Vec<&'static str> {
        let part = MISUSE.split("\n## ").find(|text| text.starts_with(part));
        let part = part.expect("the page has this part");
        let rows = part.lines().filter(|line| line.starts_with("| ")).skip(2);
        let cells = rows.map(|row| row.split(" | ").nth(column).expect("the column"));
        cells
            .flat_map(|cell| cell.split('`').skip(1).step_by(2))
            .collect()
    }

    #[test]
    fn the_page_of_misuse_names_checks_that_exist() {
        let names = quoted("Compiles", 2);
        assert!(names.len() > 20, "{names:?}");
        for name in names {
            assert!(explain::of(name).is_ok(), "nothing is called {name}");
        }
    }

    #[test]
    fn the_page_of_misuse_names_the_programs_that_do_not_compile() {
        let folder =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../acm-prov-api/misuse/tests/cases");
        let mut named = quoted("Does not compile", 1);
        named.sort_unstable();
        let files = std::fs::read_dir(folder).unwrap().flatten();
        let mut files: Vec<_> = files
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|end| end == "rs"))
            .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
            .collect();
        files.sort_unstable();
        assert_eq!(named, files);
    }
}
