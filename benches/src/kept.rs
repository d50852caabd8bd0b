//! The counts that are kept in the repository, and what a new one says beside them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::count::{CASES, Counter, DESTINATIONS, Error, HITS};
use crate::environment::Environment;

/// How much more than what is kept is a regression, in percent of it.
pub const TOLERANCE: u64 = 5;

/// Counts of an environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Where they were made.
    pub environment: Environment,
    /// Destinations in the cache.
    pub destinations: u32,
    /// Hits that were counted.
    pub hits: u32,
    /// Instructions of a hit, by provider and case.
    pub instructions: BTreeMap<String, BTreeMap<String, u64>>,
}

/// The file in the repository.
#[must_use]
pub fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("counts.json")
}

impl Counts {
    /// Makes them, for libraries with the names that the file has for them.
    ///
    /// # Errors
    /// If something cannot be counted.
    pub fn make(program: &Path, libraries: &[(&str, &Path)]) -> Result<Self, Error> {
        let counter = Counter::new(program)?;
        let mut instructions = BTreeMap::new();
        for (name, library) in libraries {
            let of = CASES
                .iter()
                .map(|case| Ok(((*case).to_owned(), counter.count(library, case)?)));
            instructions.insert((*name).to_owned(), of.collect::<Result<_, Error>>()?);
        }
        Ok(Self {
            environment: Environment::here()?,
            destinations: DESTINATIONS,
            hits: HITS,
            instructions,
        })
    }

    /// Reads the kept ones.
    ///
    /// # Errors
    /// If there is no such file, or it has another form.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let wrong = |reason: String| Error::File {
            path: path.to_owned(),
            reason,
        };
        let text = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
        serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))
    }

    /// Keeps them.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        let text = serde_json::to_string_pretty(self).map_err(|error| error.to_string());
        let written = text
            .and_then(|text| std::fs::write(path, text + "\n").map_err(|error| error.to_string()));
        written.map_err(|reason| Error::File {
            path: path.to_owned(),
            reason,
        })
    }

    /// Holds them against those that are kept.
    #[must_use]
    pub fn compare(&self, kept: &Self) -> Comparison {
        let mut lines = Vec::new();
        for (provider, cases) in &self.instructions {
            for (case, count) in cases {
                let before = kept
                    .instructions
                    .get(provider)
                    .and_then(|cases| cases.get(case))
                    .copied();
                lines.push(Line {
                    name: format!("{provider} {case}"),
                    count: *count,
                    kept: before,
                });
            }
        }
        Comparison {
            lines,
            elsewhere: self.environment.differences(&kept.environment),
        }
    }
}

/// A count beside the kept one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    name: String,
    count: u64,
    kept: Option<u64>,
}

impl Line {
    fn kept(&self) -> u64 {
        self.kept.unwrap_or(self.count)
    }

    fn is_more(&self) -> bool {
        self.count * 100 > self.kept() * (100 + TOLERANCE)
    }

    fn is_less(&self) -> bool {
        self.count * 100 < self.kept() * (100 - TOLERANCE)
    }

    /// In percent of what is kept.
    fn change(&self) -> f64 {
        (self.count as f64 / self.kept().max(1) as f64 - 1.0) * 100.0
    }
}

/// Counts beside the kept ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparison {
    lines: Vec<Line>,
    /// What is other here than where the kept ones were made.
    elsewhere: Vec<String>,
}

impl Comparison {
    /// Whether a count says that something is slower: never elsewhere than where the kept ones were made.
    #[must_use]
    pub fn is_regression(&self) -> bool {
        self.elsewhere.is_empty() && self.lines.iter().any(Line::is_more)
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "instructions of a hit, the core's own taken off")?;
        for line in &self.lines {
            match line.kept {
                None => writeln!(f, "{:<24} {:>6}", line.name, line.count)?,
                Some(kept) => writeln!(
                    f,
                    "{:<24} {:>6}  kept {kept:>6}  {:+.1} %",
                    line.name,
                    line.count,
                    line.change()
                )?,
            }
        }
        if !self.elsewhere.is_empty() {
            return writeln!(f, "not judged here: {}", self.elsewhere.join("; "));
        }
        match self.is_regression() {
            true => writeln!(
                f,
                "more than {TOLERANCE} % above what is kept: a hit became slower. If it must be, `cargo run -p benches -- --record`"
            ),
            false if self.lines.iter().any(Line::is_less) => writeln!(
                f,
                "less than what is kept: `cargo run -p benches -- --record` keeps it that way"
            ),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(lid: u64, valgrind: &str) -> Counts {
        Counts {
            environment: Environment {
                toolchain: "rustc 1".into(),
                libc: "2.36".into(),
                valgrind: valgrind.into(),
                avx2: true,
            },
            destinations: 1000,
            hits: 10,
            instructions: BTreeMap::from([(
                "mine".to_owned(),
                BTreeMap::from([("lid".to_owned(), lid)]),
            )]),
        }
    }

    #[test]
    fn five_percent_more_is_a_regression_where_the_kept_ones_were_made() {
        let kept = counts(1000, "3.19");
        let is_regression = |lid, valgrind| counts(lid, valgrind).compare(&kept).is_regression();
        assert!(!is_regression(1050, "3.19"));
        assert!(is_regression(1051, "3.19"));
        assert!(!is_regression(10, "3.19"));
        assert!(!is_regression(9999, "3.20"), "elsewhere nothing is judged");
        let text = counts(1100, "3.19").compare(&kept).to_string();
        assert!(
            text.contains("+10.0 %") && text.contains("--record"),
            "{text}"
        );
        let text = counts(1100, "3.20").compare(&kept).to_string();
        assert!(
            text.contains("not judged here: valgrind 3.20, not 3.19"),
            "{text}"
        );
    }

    #[test]
    fn what_is_not_kept_is_no_regression() {
        let mut kept = counts(1000, "3.19");
        kept.instructions.clear();
        assert!(!counts(1000, "3.19").compare(&kept).is_regression());
    }

    #[test]
    fn the_file_in_the_repository_has_all_cases() {
        let kept = Counts::read(&file()).unwrap();
        let cases = &kept.instructions["path-cache"];
        assert!(
            CASES.iter().all(|case| cases.contains_key(*case)),
            "{cases:?}"
        );
        assert_eq!((kept.destinations, kept.hits), (DESTINATIONS, HITS));
    }

    #[test]
    fn counts_are_kept_as_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("counts");
        let made = counts(7, "3.19");
        made.write(&path).unwrap();
        assert_eq!(Counts::read(&path).unwrap(), made);
        assert!(Counts::read(folder.path()).is_err());
    }
}
