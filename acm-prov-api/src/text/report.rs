//! One-line reports of problems in text files.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::address::Lid;

/// A problem in an options, hosts or dump file; printed as one line, `FILE:LINE: problem`.
///
/// Text from the file is escaped and cut, so that a report is safe to log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// The option that names the file, if the file cannot be read.
    pub option: Option<&'static str>,
    /// The file.
    pub file: PathBuf,
    /// The line, from 1; `None` for the whole file.
    pub line: Option<u64>,
    /// The problem.
    pub problem: Problem,
}

impl Report {
    /// The same, of a file that an option names.
    pub(crate) fn named_by(self, option: &'static str) -> Self {
        let option = Some(option);
        Self { option, ..self }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.as_os_str().as_encoded_bytes();
        if let Some(option) = self.option {
            write!(f, "{option} ")?;
        }
        write!(f, "{}:", shown(file))?;
        if let Some(line) = self.line {
            write!(f, "{line}:")?;
        }
        write!(f, " {}", self.problem)
    }
}

/// A problem of a file or a line.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum Problem {
    /// The file does not exist. For the options file that is allowed.
    #[error("no such file; going on without it")]
    Missing,
    /// The file, or the rest of it, cannot be read.
    #[error("cannot be read: {}; going on with what was read before", io::Error::from_raw_os_error(*errno))]
    Unreadable {
        /// The reason, as an `errno`.
        errno: i32,
    },
    /// The value of an option is bad.
    #[error("{key} {value}: {reason}; using {default}")]
    BadValue {
        /// The option.
        key: String,
        /// The value as the file has it.
        value: String,
        /// What is wrong with it.
        reason: String,
        /// What holds instead.
        default: String,
    },
    /// An option has no value.
    #[error("{key}: the value is missing; using {default}")]
    NoValue {
        /// The option.
        key: String,
        /// What holds instead.
        default: String,
    },
    /// The option is unknown.
    #[error("{key}: no such option, ignored; known are {known}")]
    UnknownKey {
        /// The option.
        key: String,
        /// The known options.
        known: String,
    },
    /// The file has too many different options.
    #[error("more than {limit} different options: this one and further new ones are ignored")]
    TooManyKeys {
        /// How many are kept.
        limit: usize,
    },
    /// A line of a hosts file is not `address GID`.
    #[error("{text}: {reason}; line skipped")]
    BadHost {
        /// The part of the line that is wrong.
        text: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A line of a dump is not valid.
    #[error("{text}: {reason}; line skipped")]
    BadRoute {
        /// The line.
        text: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A dump has paths to LIDs for which it has no section.
    #[error("{count} paths lead to LIDs that no section of the dump has; skipped")]
    RoutesWithoutOwner {
        /// How many.
        count: usize,
    },
    /// A dump has no section for the local port.
    #[error(
        "no section for the port with GUID {guid:#018x} and base LID {lid}; is the dump from before the port moved?"
    )]
    NoSection {
        /// The port's GUID.
        guid: u64,
        /// The port's base LID.
        lid: Lid,
    },
    /// There are more bad lines than are reported one by one.
    #[error("{count} more bad lines skipped")]
    MoreBadLines {
        /// How many.
        count: u64,
    },
}

/// Creates a report about the whole file, for an error of opening or reading it.
pub(crate) fn of_error(file: &Path, error: &io::Error) -> Report {
    let problem = if error.kind() == io::ErrorKind::NotFound {
        Problem::Missing
    } else {
        // Only readers that are not files return errors without an errno.
        Problem::Unreadable {
            errno: error.raw_os_error().unwrap_or(libc::EIO),
        }
    };
    Report {
        option: None,
        file: file.to_owned(),
        line: None,
        problem,
    }
}

/// Returns text from a file for a log line: escapes control characters and bytes that are not UTF-8, and cuts long
/// text.
pub(crate) fn shown(text: &[u8]) -> String {
    const SHOWN: usize = 200;
    let (text, rest) = text.split_at(text.len().min(SHOWN));
    let mut line = String::new();
    for chunk in text.utf8_chunks() {
        for character in chunk.valid().chars() {
            if matches!(character, '"' | '\'') {
                line.push(character);
            } else {
                line.extend(character.escape_debug());
            }
        }
        for byte in chunk.invalid() {
            line += &format!("\\x{byte:02x}");
        }
    }
    if !rest.is_empty() {
        line += "...";
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_whatever_the_file_says() {
        assert_eq!(shown(b"plain it's"), "plain it's");
        assert_eq!(shown("knoten-\u{fc}".as_bytes()), "knoten-\u{fc}");
        assert_eq!(shown(b"a\n\x1b[31m\xff\0"), "a\\n\\u{1b}[31m\\xff\\0");
        let long = shown(&[b'x'; 5000]);
        assert!(long.len() == 203 && long.ends_with("x..."), "{long}");
    }

    #[test]
    fn forms() {
        let report = |line, problem| {
            Report {
                option: None,
                file: "/etc/x.cfg".into(),
                line,
                problem,
            }
            .to_string()
        };
        assert_eq!(
            report(None, Problem::Missing),
            "/etc/x.cfg: no such file; going on without it"
        );
        assert_eq!(
            report(
                None,
                Problem::Unreadable {
                    errno: libc::EISDIR
                }
            ),
            "/etc/x.cfg: cannot be read: Is a directory (os error 21); going on with what was read before"
        );
        assert_eq!(
            report(
                Some(7),
                Problem::NoValue {
                    key: "retries".into(),
                    default: "2".into()
                }
            ),
            "/etc/x.cfg:7: retries: the value is missing; using 2"
        );
    }
}
