//! One option: declares and reads it in one step.

use std::ffi::OsStr;
use std::fmt::Display;
use std::num::{IntErrorKind, ParseIntError};
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Options;

/// A provider's declaration of an option: see [`Options::declared`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// The name, in lower case.
    pub name: String,
    /// The kind of value: `number`, `minutes`, `path`, `text`, or the words to choose from (`none|local`).
    pub kind: String,
    /// The unit; empty if there is none.
    pub unit: String,
    /// The default.
    pub default: String,
    /// The smallest and the largest value (`1 to 255`); empty if there is none.
    pub range: String,
    /// The effect, in one line.
    pub help: String,
}

/// An option, found by its name. The last method in the chain, such as [`number`](Self::number), declares it and reads its
/// value. The methods before it set what `loader-test info` and documentation show: unit and help.
#[must_use = "an option is read by its last method, such as `number`"]
pub struct NamedOption<'a> {
    options: &'a Options,
    name: &'a str,
    unit: &'a str,
    help: &'a str,
}

impl<'a> NamedOption<'a> {
    pub(super) fn new(options: &'a Options, name: &'a str) -> Self {
        Self {
            options,
            name,
            unit: "",
            help: "",
        }
    }

    /// Sets the unit of the value, such as `queries/s`. The methods for times set it themselves.
    pub fn unit(mut self, unit: &'a str) -> Self {
        self.unit = unit;
        self
    }

    /// Sets the help: the effect, in one line.
    pub fn help(mut self, help: &'a str) -> Self {
        self.help = help;
        self
    }

    /// Reads a decimal whole number within `range`.
    pub fn number<T: Number>(self, default: T, range: RangeInclusive<T>) -> T {
        self.declare("number", &default, &shown_range(&range));
        self.value(&default, |value| within(value, &range))
            .unwrap_or(default)
    }

    /// Reads a whole number within `range`; `None` without a value or for the word `none`.
    pub fn optional_number<T: Number>(self, range: RangeInclusive<T>) -> Option<T> {
        self.declare("number", &NONE, &shown_range(&range));
        self.value(&NONE, |value| match is_none(value) {
            true => Ok(None),
            false => within(value, &range).map(Some),
        })
        .flatten()
    }

    /// Reads a time in whole milliseconds.
    pub fn millis(mut self, default: u64, range: RangeInclusive<u64>) -> Duration {
        self.unit = "ms";
        Duration::from_millis(self.number(default, range))
    }

    /// Reads a time in whole seconds.
    pub fn seconds(mut self, default: u64, range: RangeInclusive<u64>) -> Duration {
        self.unit = "s";
        Duration::from_secs(self.number(default, range))
    }

    /// Reads a time in whole minutes, at most 2^32 - 1; -1 means never, `None`.
    pub fn minutes(mut self, default: Option<Duration>) -> Option<Duration> {
        self.unit = "min";
        let shown = match default {
            Some(time) => (time.as_secs() / 60).to_string(),
            None => "-1".to_owned(),
        };
        self.declare("minutes", &shown, &format!("0 to {}, or -1", u32::MAX));
        self.value(&shown, |value| match whole_number(value)? {
            -1 => Ok(None),
            number => match u32::try_from(number) {
                Ok(minutes) => Ok(Some(Duration::from_secs(u64::from(minutes) * 60))),
                Err(_) => Err(format!("not within 0 to {}, nor -1 (never)", u32::MAX)),
            },
        })
        .unwrap_or(default)
    }

    /// Reads one of several words, without regard to case.
    ///
    /// Several words may stand for the same value; reports show the first of them.
    pub fn choice<T: Clone + PartialEq>(self, default: T, choices: &[(&str, T)]) -> T {
        let mut kind: Vec<&str> = Vec::new();
        for (index, (word, choice)) in choices.iter().enumerate() {
            if !choices[..index].iter().any(|(_, before)| before == choice) {
                kind.push(word);
            }
        }
        let default_word = choices
            .iter()
            .find(|(_, choice)| *choice == default)
            .map_or("the default", |(word, _)| word);
        self.declare(&kind.join("|"), &default_word, "");
        self.value(&default_word, |value| {
            choices
                .iter()
                .find(|(word, _)| value.eq_ignore_ascii_case(word.as_bytes()))
                .map(|(_, choice)| choice.clone())
                .ok_or_else(|| {
                    let words: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
                    format!("not one of {}", words.join(", "))
                })
        })
        .unwrap_or(default)
    }

    /// Reads a path. It cannot contain white space, which ends a field.
    pub fn path(self, default: impl AsRef<Path>) -> PathBuf {
        let default = default.as_ref();
        self.declare("path", &default.display(), "");
        self.value(&default.display(), path)
            .unwrap_or_else(|| default.to_owned())
    }

    /// Reads a path; `None` without a value or for the word `none`.
    pub fn optional_path(self) -> Option<PathBuf> {
        self.declare("path", &NONE, "");
        self.value(&NONE, |value| match is_none(value) {
            true => Ok(None),
            false => path(value).map(Some),
        })
        .flatten()
    }

    /// Reads a word, which must be UTF-8.
    pub fn text(self, default: &str) -> String {
        self.declare("text", &default, "");
        self.value(&default, |value| {
            String::from_utf8(value.to_owned()).map_err(|_| "not UTF-8".to_owned())
        })
        .unwrap_or_else(|| default.to_owned())
    }

    /// Reads a value of another kind; `None` without a value or for the word `none`. `parse` returns `None` for a bad
    /// value. `kind` says what the value should be, such as `six hexadecimal digits`.
    pub fn optional<T>(self, kind: &str, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        self.declare(kind, &NONE, "");
        self.value(&NONE, |value| match is_none(value) {
            true => Ok(None),
            false => str::from_utf8(value)
                .ok()
                .and_then(parse)
                .map(Some)
                .ok_or_else(|| format!("not {kind}")),
        })
        .flatten()
    }

    fn declare(&self, kind: &str, default: &dyn Display, range: &str) {
        self.options.declare(Declared {
            name: self.name.to_ascii_lowercase(),
            kind: kind.to_owned(),
            unit: self.unit.to_owned(),
            default: default.to_string(),
            range: range.to_owned(),
            help: self.help.to_owned(),
        });
    }

    fn value<T>(
        &self,
        default: &dyn Display,
        parse: impl FnOnce(&[u8]) -> Result<T, String>,
    ) -> Option<T> {
        self.options.value(self.name, default, parse)
    }
}

/// The types that an option's number can have: whole numbers.
pub trait Number: Copy + PartialOrd + Display + TryFrom<i128> {}

impl<T: Copy + PartialOrd + Display + TryFrom<i128>> Number for T {}

/// The word for no value, also shown as the default.
const NONE: &str = "none";

fn is_none(value: &[u8]) -> bool {
    value.eq_ignore_ascii_case(NONE.as_bytes())
}

fn shown_range<T: Display>(range: &RangeInclusive<T>) -> String {
    format!("{} to {}", range.start(), range.end())
}

fn within<T: Number>(value: &[u8], range: &RangeInclusive<T>) -> Result<T, String> {
    match T::try_from(whole_number(value)?) {
        Ok(number) if range.contains(&number) => Ok(number),
        _ => Err(format!("not within {}", shown_range(range))),
    }
}

fn whole_number(value: &[u8]) -> Result<i128, String> {
    let text = str::from_utf8(value).map_err(|_| "not a number")?;
    text.parse()
        .or_else(|error: ParseIntError| match error.kind() {
            // Outside every range.
            IntErrorKind::PosOverflow => Ok(i128::MAX),
            IntErrorKind::NegOverflow => Ok(i128::MIN),
            _ => Err("not a number".to_owned()),
        })
}

fn path(value: &[u8]) -> Result<PathBuf, String> {
    if value.contains(&0) {
        return Err("a path cannot contain a NUL".to_owned());
    }
    Ok(PathBuf::from(OsStr::from_bytes(value)))
}
