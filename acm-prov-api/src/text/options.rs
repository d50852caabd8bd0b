//! The options file of the daemon and all its providers, `ibacm_opts.cfg`.
//!
//! A line is `name value`; what follows is ignored, and so are empty lines and those that begin
//! with `#`. Fields end at white space, tabs and carriage returns included; there is no quoting.
//! Names compare without case, and the last line that gives a name a value counts: all as the core
//! and the stock provider read it (`ib_acme -O` writes a commented sample). Unlike these, lines and
//! names can be of any length, and a value is taken whole or not at all: where `atoi` makes 0 of
//! `retries two`, here the option keeps its default and a [`Report`] says so.
//!
//! Reading an option declares it: [`declared`](Options::declared) lists name, unit, default, range and help of each, and what
//! `loader-test info` and the documentation show is that list.
//!
//! One file serves everybody, so a name that nobody asked for is no error. Options of one provider
//! alone share a prefix by custom; [`Options::report_unknown`] finds those of them that are
//! misspelt.
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

/// How long the core tries an SA MAD, and how many it sends at a time, by its options in ibacm_opts.cfg.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SaLimits {
    /// Milliseconds that one try of a MAD takes.
    pub(crate) timeout: u64,
    /// Further tries.
    pub(crate) retries: u64,
    /// MADs of a port that the core sends at a time.
    pub(crate) depth: usize,
}

impl SaLimits {
    /// Milliseconds until the core gives up a MAD that it has sent.
    pub(crate) fn patience(&self) -> u64 {
        self.timeout.saturating_mul(self.retries.saturating_add(1))
    }
}

/// Bytes of a file that are read before it is given up as endless.
const FILE_LIMIT: u64 = 16 << 20;
/// Different names that are kept.
const KEY_LIMIT: usize = 1024;

/// The options of a file, to be asked for by name.
///
/// Whatever is wrong is collected for [`reports`](Self::reports), and the default holds.
#[derive(Debug)]
pub struct Options {
    file: PathBuf,
    /// By name in lower case.
    entries: HashMap<Vec<u8>, Entry>,
    asked: Mutex<Asked>,
}

#[derive(Debug)]
struct Entry {
    line: u64,
    /// The name as the file has it.
    key: Vec<u8>,
    /// Empty if the line has none.
    value: Vec<u8>,
    /// Whether the line is so long that the value's end was not read.
    is_cut: bool,
}

#[derive(Debug, Default)]
struct Asked {
    reports: Vec<Report>,
    /// What was read, by name.
    declared: BTreeMap<String, Declared>,
}

impl Options {
    /// Reads a file. If it is missing or cannot be read, that is reported, and what was read
    /// before holds, defaults for the rest: the daemon runs without a file, too.
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

    /// No options: all defaults hold.
    #[must_use]
    pub fn none() -> Self {
        Self::parse("", &b""[..])
    }

    /// Reads text from anywhere; `file` is the name that reports give to it. An error from the
    /// reader is reported and ends the text.
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
            // A name alone does not undo an earlier line.
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
            asked: Mutex::new(Asked {
                reports,
                declared: BTreeMap::new(),
            }),
        }
    }

    /// The file, or the name that [`parse`](Self::parse) was given.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// An option of this name, to be described and read:
    /// `options.named("demo_depth").unit("queries").help("out at a time").number(1, 1..=100)`.
    pub fn named<'a>(&'a self, name: &'a str) -> NamedOption<'a> {
        NamedOption::new(self, name)
    }

    /// The level at which the daemon writes to its log: its own option `log_level`, read as the
    /// daemon reads it, so that a bad value is 0 and no report.
    pub fn log_level(&self) -> i32 {
        self.core_number("log_level").unwrap_or(0)
    }

    /// How long the core tries an SA MAD, and how many of a port it sends at a time, by its options `timeout`, `retries`
    /// and `sa_depth`. They are read as the daemon reads them; what makes no sense is its default.
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

    /// A number as the daemon reads it (`atoi`); `None` if the file has no such option.
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

    /// Reports every name of the file that begins with `prefix` and that nobody has asked for so
    /// far: to be called once all options were asked for, with a prefix that others do not use.
    pub fn report_unknown(&self, prefix: &str) {
        let prefix = prefix.to_ascii_lowercase();
        let asked = self.asked.lock();
        let mut unknown: Vec<_> = self
            .entries
            .iter()
            .filter(|(name, _)| name.starts_with(prefix.as_bytes()))
            .filter(|(name, _)| {
                !str::from_utf8(name).is_ok_and(|name| asked.declared.contains_key(name))
            })
            .map(|(_, entry)| entry)
            .collect();
        unknown.sort_by_key(|entry| entry.line);
        let known: Vec<_> = asked
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
        drop(asked);
        for entry in unknown {
            let problem = Problem::UnknownKey {
                key: shown(&entry.key),
                known: known.clone(),
            };
            self.report_at(entry, problem);
        }
    }

    /// The options that were read so far, by name.
    pub fn declared(&self) -> Vec<Declared> {
        self.asked.lock().declared.values().cloned().collect()
    }

    fn declare(&self, declared: Declared) {
        let mut asked = self.asked.lock();
        asked.declared.insert(declared.name.clone(), declared);
    }

    /// What was found wrong so far: with the file, and with the values that were asked for. The
    /// same thing is reported once.
    pub fn reports(&self) -> Vec<Report> {
        self.asked.lock().reports.clone()
    }

    /// The value of an option if it has one and `parse` likes it.
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
        let reports = &mut self.asked.lock().reports;
        // A provider may ask again for each port.
        if !reports.contains(&report) {
            reports.push(report);
        }
    }
}
