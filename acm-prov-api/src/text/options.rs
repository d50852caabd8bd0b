//! Reads `ibacm_opts.cfg`, the options file of the daemon and all its providers.
//!
//! A line is `name value`. Further words are ignored, and so are empty lines and lines that begin with `#`. Fields end at
//! white space, tabs and carriage returns included; there is no quoting. Names compare without case, and the last line
//! that gives a name a value counts. The core and the stock provider read the file in the same way (`ib_acme -O` writes a
//! sample with comments). Unlike them, this reader accepts lines and names of any length, and refuses a value that is not
//! valid as a whole: for `retries two`, `atoi` returns 0, but here the option keeps its default and a [`Report`] says so.
//!
//! Reading an option declares it: [`declared`](Options::declared) lists name, unit, default, range and help of each.
//! `loader-test info` and the documentation show this list.
//!
//! The daemon and all providers share the file, so unknown names are no error. By convention the options of one provider
//! share a prefix; [`Options::report_unknown`] reports misspelt names with that prefix.
//!
//! ```
//! use acm_prov_api::options::Options;
//! use std::time::Duration;
//!
//! let text = "timeout 500\nRetries many\nloopback_prot local\nroute_timeout -1\ndemo_dpeth 3\n";
//! let options = Options::parse("opts.cfg", text.as_bytes());
//!
//! assert_eq!(options.named("timeout").millis(2000, 1..=3_600_000), Duration::from_millis(500));
//! assert_eq!(options.named("retries").number(2, 0..=255), 2);
//! assert!(options.named("loopback_prot").choice(true, &[("none", false), ("local", true)]));
//! assert_eq!(options.named("route_timeout").minutes(Some(Duration::from_secs(600))), None);
//! let depth = options.named("demo_depth").unit("queries").help("out at a time").number(1, 1..=100);
//! assert_eq!(depth, 1);
//! options.report_unknown("demo_");
//!
//! let reports: Vec<String> = options.reports().iter().map(ToString::to_string).collect();
//! assert_eq!(reports, [
//!     "opts.cfg:2: Retries many: not a number; using 2",
//!     "opts.cfg:5: demo_dpeth: no such option, ignored; known are demo_depth",
//! ]);
//! ```

mod info;
mod named;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;
use std::io::BufRead;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use crate::sync::Mutex;
use crate::text::lines::{self, Lines};
use crate::text::report::{Problem, Report, of_error, shown};

pub use info::OptionInfo;
pub use named::{Declared, NamedOption, Number};

/// How long the core retries an SA MAD, and how many it sends at a time, from its options in ibacm_opts.cfg.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SaLimits {
    /// The timeout of one try, in milliseconds.
    pub(crate) timeout: u64,
    /// The number of retries.
    pub(crate) retries: u64,
    /// How many MADs of a port the core sends at a time.
    pub(crate) depth: usize,
}

impl SaLimits {
    /// Returns after how many milliseconds the core gives up a MAD that it has sent.
    pub(crate) fn patience(&self) -> u64 {
        self.timeout.saturating_mul(self.retries.saturating_add(1))
    }
}

/// The most bytes to read, a bound for endless files.
const FILE_LIMIT: u64 = 16 << 20;
/// The most different names to keep.
const KEY_LIMIT: usize = 1024;

/// The options of a file, by name.
///
/// For a bad value the default is used; [`reports`](Self::reports) lists all problems.
#[derive(Debug)]
pub struct Options {
    file: PathBuf,
    /// By name in lower case.
    entries: HashMap<Vec<u8>, Entry>,
    uses: Mutex<Uses>,
}

#[derive(Debug)]
struct Entry {
    line: u64,
    /// The name as in the file.
    key: Vec<u8>,
    /// Empty if the line has no value.
    value: Vec<u8>,
    /// Whether the line was cut within the value.
    is_cut: bool,
}

#[derive(Debug, Default)]
struct Uses {
    reports: Vec<Report>,
    /// The options read so far, by name.
    declared: BTreeMap<String, Declared>,
}

impl Options {
    /// Reads a file. Reports a missing or unreadable file, and uses defaults for options that were not read: the daemon runs
    /// without a file too.
    pub fn read(file: &Path) -> Self {
        match lines::open(file) {
            Ok(reader) => Self::parse(file, reader),
            Err(error) => {
                let options = Self::parse(file, &b""[..]);
                options.report(of_error(file, &error));
                options
            }
        }
    }

    /// No options: all have their defaults.
    #[must_use]
    pub fn none() -> Self {
        Self::parse("", &b""[..])
    }

    /// Parses text from a reader; `file` is its name in reports. An error of the reader is reported and ends the text.
    pub fn parse(file: impl AsRef<Path>, reader: impl BufRead) -> Self {
        let file = file.as_ref();
        let mut entries = HashMap::new();
        let mut reports = Vec::new();
        let mut too_many_keys = None;
        let mut lines = Lines::new(reader, FILE_LIMIT);
        loop {
            let line = match lines.next() {
                Ok(Some(line)) => line,
                Ok(None) => break,
                Err(error) => {
                    reports.push(of_error(file, &error));
                    break;
                }
            };
            let mut words = line.words();
            let Some((key, false)) = words.next() else {
                continue;
            };
            if key.starts_with(b"#") {
                continue;
            }
            let (value, is_cut) = words.next().unwrap_or((b"", line.is_cut));
            let name = key.to_ascii_lowercase();
            // A name without a value does not override an earlier line.
            if value.is_empty() && entries.contains_key(&name) {
                continue;
            }
            if entries.len() >= KEY_LIMIT && !entries.contains_key(&name) {
                too_many_keys.get_or_insert(line.number);
                continue;
            }
            let entry = Entry {
                line: line.number,
                key: key.to_owned(),
                value: value.to_owned(),
                is_cut,
            };
            entries.insert(name, entry);
        }
        reports.extend(too_many_keys.map(|line| Report {
            option: None,
            file: file.to_owned(),
            line: Some(line),
            problem: Problem::TooManyKeys { limit: KEY_LIMIT },
        }));
        Self {
            file: file.to_owned(),
            entries,
            uses: Mutex::new(Uses {
                reports,
                declared: BTreeMap::new(),
            }),
        }
    }

    /// Returns the file, or the name passed to [`parse`](Self::parse).
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Returns an option, to be described and read:
    /// `options.named("demo_depth").unit("queries").help("out at a time").number(1, 1..=100)`.
    pub fn named<'a>(&'a self, name: &'a str) -> NamedOption<'a> {
        NamedOption::new(self, name)
    }

    /// Returns the daemon's log level: its option `log_level`, read as the daemon does, so a bad value is 0 without a
    /// report.
    pub fn log_level(&self) -> i32 {
        self.core_number("log_level").unwrap_or(0)
    }

    /// Returns the core's limits for SA MADs, from its options `timeout`, `retries` and `sa_depth`, read as the daemon does.
    /// For impossible values it returns the daemon's defaults.
    pub(crate) fn sa_limits(&self) -> SaLimits {
        let number = |key, default, range: RangeInclusive<i32>| {
            let value = self.core_number(key);
            value
                .filter(|value| range.contains(value))
                .unwrap_or(default)
        };
        SaLimits {
            timeout: number("timeout", 2_000, 1..=3_600_000) as u64,
            retries: number("retries", 2, 0..=255) as u64,
            depth: number("sa_depth", 1, 1..=65_535) as usize,
        }
    }

    /// Returns a number as the daemon reads it (`atoi`); `None` if the file has no such option.
    fn core_number(&self, key: &str) -> Option<i32> {
        let value = &self.entries.get(key.as_bytes())?.value;
        let (negative, digits) = match value.as_slice() {
            [b'-', digits @ ..] => (true, digits),
            [b'+', digits @ ..] => (false, digits),
            digits => (false, digits),
        };
        let number = digits
            .iter()
            .take_while(|digit| digit.is_ascii_digit())
            .fold(0_i32, |number, digit| {
                number
                    .saturating_mul(10)
                    .saturating_add(i32::from(digit - b'0'))
            });
        Some(if negative { -number } else { number })
    }

    /// Reports every name in the file that begins with `prefix` and was not read. Call this after reading all options, with
    /// a prefix that no other program uses.
    pub fn report_unknown(&self, prefix: &str) {
        let prefix = prefix.to_ascii_lowercase();
        let uses = self.uses.lock();
        let mut unknown: Vec<_> = self
            .entries
            .iter()
            .filter(|(name, _)| name.starts_with(prefix.as_bytes()))
            .filter(|(name, _)| {
                !str::from_utf8(name).is_ok_and(|name| uses.declared.contains_key(name))
            })
            .map(|(_, entry)| entry)
            .collect();
        unknown.sort_by_key(|entry| entry.line);
        let known: Vec<_> = uses
            .declared
            .keys()
            .map(String::as_str)
            .filter(|name| name.starts_with(&prefix))
            .collect();
        let known = if known.is_empty() {
            "none".to_owned()
        } else {
            known.join(", ")
        };
        drop(uses);
        for entry in unknown {
            let problem = Problem::UnknownKey {
                key: shown(&entry.key),
                known: known.clone(),
            };
            self.report_at(entry, problem);
        }
    }

    /// Returns the options read so far, by name.
    pub fn declared(&self) -> Vec<Declared> {
        self.uses.lock().declared.values().cloned().collect()
    }

    fn declare(&self, declared: Declared) {
        let mut uses = self.uses.lock();
        uses.declared.insert(declared.name.clone(), declared);
    }

    /// Returns the problems found so far: of the file, and of the values that were read. Each problem appears once.
    pub fn reports(&self) -> Vec<Report> {
        self.uses.lock().reports.clone()
    }

    /// Returns the value of an option if `parse` accepts it; reports a bad one.
    fn value<T>(
        &self,
        key: &str,
        default: &dyn Display,
        parse: impl FnOnce(&[u8]) -> Result<T, String>,
    ) -> Option<T> {
        let name = key.to_ascii_lowercase();
        let entry = self.entries.get(name.as_bytes());
        let entry = entry?;
        let key = shown(&entry.key);
        let parsed = if entry.is_cut {
            Err(format!(
                "it does not end within the line's first {} bytes",
                lines::KEPT
            ))
        } else if entry.value.is_empty() {
            self.report_at(
                entry,
                Problem::NoValue {
                    key,
                    default: default.to_string(),
                },
            );
            return None;
        } else {
            parse(&entry.value)
        };
        match parsed {
            Ok(value) => Some(value),
            Err(reason) => {
                let value = shown(&entry.value);
                let default = default.to_string();
                self.report_at(
                    entry,
                    Problem::BadValue {
                        key,
                        value,
                        reason,
                        default,
                    },
                );
                None
            }
        }
    }

    fn report_at(&self, entry: &Entry, problem: Problem) {
        self.report(Report {
            option: None,
            file: self.file.clone(),
            line: Some(entry.line),
            problem,
        });
    }

    fn report(&self, report: Report) {
        let reports = &mut self.uses.lock().reports;
        // A provider may read the option again for each port.
        if !reports.contains(&report) {
            reports.push(report);
        }
    }
}
