//! The recorded counts in the repository, and the comparison of new counts with them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::count::{CASES, Counter, DESTINATIONS, Error, HITS};
use crate::environment::Environment;

/// Increase over the recorded count, in percent, above which it is a regression.
pub const TOLERANCE: u64 = 5;

/// Counts in one environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// The environment.
    pub environment: Environment,
    /// Number of destinations in the cache.
    pub destinations: u32,
    /// Number of counted hits.
    pub hits: u32,
    /// Instructions of a hit, by provider and case.
    pub instructions: BTreeMap<String, BTreeMap<String, u64>>,
}

/// Returns the path of the file in the repository.
#[must_use]
pub fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("counts.json")
}

impl Counts {
    /// Counts the hits of libraries, by the names that the file has for them.
    ///
    /// # Errors
    /// If counting fails.
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

    /// Reads recorded counts.
    ///
    /// # Errors
    /// If the file is missing or malformed.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let wrong = |reason: String| Error::File {
            path: path.to_owned(),
            reason,
        };
        let text = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
        serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))
    }

    /// Records the counts.
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

    /// Compares the counts with recorded ones.
    #[must_use]
    pub fn compare(&self, recorded: &Self) -> Comparison {
        let mut lines = Vec::new();
        for (provider, cases) in &self.instructions {
            for (case, count) in cases {
                let before = recorded
                    .instructions
                    .get(provider)
                    .and_then(|cases| cases.get(case))
                    .copied();
                lines.push(Line {
                    name: format!("{provider} {case}"),
                    count: *count,
                    recorded: before,
                });
            }
        }
        Comparison {
            lines,
            elsewhere: self.environment.differences(&recorded.environment),
        }
    }
}

/// A count and the recorded one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    name: String,
    count: u64,
    recorded: Option<u64>,
}

impl Line {
    fn recorded(&self) -> u64 {
        self.recorded.unwrap_or(self.count)
    }

    fn is_more(&self) -> bool {
        self.count * 100 > self.recorded() * (100 + TOLERANCE)
    }

    fn is_less(&self) -> bool {
        self.count * 100 < self.recorded() * (100 - TOLERANCE)
    }

    /// Returns the change in percent of the recorded count.
    fn change(&self) -> f64 {
        (self.count as f64 / self.recorded().max(1) as f64 - 1.0) * 100.0
    }
}

/// Counts and the recorded ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparison {
    lines: Vec<Line>,
    /// Differences of this environment to the recorded one.
    elsewhere: Vec<String>,
}

impl Comparison {
    /// Returns whether a count increased too much; always false in an environment other than the recorded one.
    #[must_use]
    pub fn is_regression(&self) -> bool {
        self.elsewhere.is_empty() && self.lines.iter().any(Line::is_more)
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "instructions of a hit, without the core's own")?;
        for line in &self.lines {
            match line.recorded {
                None => writeln!(f, "{:<24} {:>6}", line.name, line.count)?,
                Some(recorded) => writeln!(
                    f,
                    "{:<24} {:>6}  recorded {recorded:>6}  {:+.1} %",
                    line.name,
                    line.count,
                    line.change()
                )?,
            }
        }
        if !self.elsewhere.is_empty() {
            return writeln!(
                f,
                "not compared, because the environment differs: {}",
                self.elsewhere.join("; ")
            );
        }
        match self.is_regression() {
            true => writeln!(
                f,
                "more than {TOLERANCE} % above the recorded count: a hit became slower. If that is intended, run `cargo run -p benches -- --record`"
            ),
            false if self.lines.iter().any(Line::is_less) => writeln!(
                f,
                "below the recorded count: run `cargo run -p benches -- --record` to record the new one"
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
    fn five_percent_more_is_a_regression_where_the_counts_were_recorded() {
        let recorded = counts(1000, "3.19");
        let is_regression =
            |lid, valgrind| counts(lid, valgrind).compare(&recorded).is_regression();
        assert!(!is_regression(1050, "3.19"));
        assert!(is_regression(1051, "3.19"));
        assert!(!is_regression(10, "3.19"));
        assert!(
            !is_regression(9999, "3.20"),
            "another environment is not compared"
        );
        let text = counts(1100, "3.19").compare(&recorded).to_string();
        assert!(
            text.contains("+10.0 %") && text.contains("--record"),
            "{text}"
        );
        let text = counts(1100, "3.20").compare(&recorded).to_string();
        assert!(
            text.contains("the environment differs: valgrind 3.20, not 3.19"),
            "{text}"
        );
    }

    #[test]
    fn a_case_without_record_is_no_regression() {
        let mut recorded = counts(1000, "3.19");
        recorded.instructions.clear();
        assert!(!counts(1000, "3.19").compare(&recorded).is_regression());
    }

    #[test]
    fn the_file_in_the_repository_has_all_cases() {
        let recorded = Counts::read(&file()).unwrap();
        let cases = &recorded.instructions["path-cache"];
        assert!(
            CASES.iter().all(|case| cases.contains_key(*case)),
            "{cases:?}"
        );
        assert_eq!((recorded.destinations, recorded.hits), (DESTINATIONS, HITS));
    }

    #[test]
    fn recorded_counts_are_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("counts");
        let made = counts(7, "3.19");
        made.write(&path).unwrap();
        assert_eq!(Counts::read(&path).unwrap(), made);
        assert!(Counts::read(folder.path()).is_err());
    }
}
