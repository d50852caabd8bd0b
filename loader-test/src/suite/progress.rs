//! Shows a run's progress: one line per result, and on a terminal a bar with the running checks.

use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::Status;
use super::run::{Event, Report, Stop};
use crate::stand_in::recorder::printable;
use crate::words::counted;

/// Update interval of the bar.
const TICK: Duration = Duration::from_millis(200);
/// Lines of a provider's output to show, and characters per line.
const SHOWN_OUTPUT: (usize, usize) = (10, 400);

/// The stream for a run's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// The default.
    Stdout,
    /// For runs with JSON on standard output.
    Stderr,
}

impl Output {
    /// Whether it is a terminal that supports control sequences.
    fn is_terminal(self) -> bool {
        let is_terminal = match self {
            Self::Stdout => io::stdout().is_terminal(),
            Self::Stderr => io::stderr().is_terminal(),
        };
        is_terminal && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
    }

    /// Writes to it; returns false if the reader, such as `head`, has closed its end.
    pub fn say(self, text: &str) -> bool {
        let write = |out: &mut dyn Write| out.write_all(text.as_bytes()).and_then(|()| out.flush());
        let written = match self {
            Self::Stdout => write(&mut io::stdout().lock()),
            Self::Stderr => write(&mut io::stderr().lock()),
        };
        written.is_ok()
    }

    /// Prints a result's line, its details, and the command that repeats it; returns false if the reader closed its end.
    pub fn print(self, report: &Report, again: Option<&str>) -> bool {
        let status = report.status;
        let has_colours =
            self.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty());
        let (start, end) = match status {
            _ if !has_colours => ("", ""),
            Status::Passed => ("\x1b[32m", "\x1b[0m"),
            Status::Skipped | Status::Blocked => ("\x1b[2m", "\x1b[0m"),
            Status::Warned => ("\x1b[33m", "\x1b[0m"),
            Status::Failed | Status::TimedOut | Status::Crashed => ("\x1b[31m", "\x1b[0m"),
        };
        let mut text = format!(
            "{start}{status:<9}{end} {:<40} {:>6} ms\n",
            report.name, report.duration_ms
        );
        text += &details(report, again);
        self.say(&text)
    }
}

/// Writes to standard output; returns false if the reader closed its end.
pub fn say(text: &str) -> bool {
    Output::Stdout.say(text)
}

/// Prints a line like `println!`, but without a panic if the reader closed its end.
macro_rules! sayln {
    ($($arguments:tt)*) => {
        $crate::suite::progress::say(&(format!($($arguments)*) + "\n"))
    };
}
pub(crate) use sayln;

/// Returns the details of a check that did not simply pass, as lines.
pub fn details(report: &Report, again: Option<&str>) -> String {
    let mut text = String::new();
    for line in report.message.lines() {
        text += &format!("  {}\n", printable(line.trim_start()));
    }
    if report.repeated && report.status == Status::Passed {
        text += "  passed when it was repeated alone\n";
    }
    if !report.seen_by.is_empty() {
        text += &format!(
            "  seen by {}: {}\n",
            counted(report.seen_by.len(), "check"),
            cut_list(&report.seen_by)
        );
    }
    if report.status.is_bad(false) {
        text += &evidence(report);
    }
    for (what, path) in [("trace", &report.trace), ("folder", &report.folder)] {
        if let Some(path) = path {
            text += &format!("  {what}: {}\n", quoted(path));
        }
    }
    if let (true, Some(again)) = (report.status.is_bad(true), again) {
        text += &format!("  again: {again}\n");
    }
    text
}

/// Names to show of a list.
const SHOWN_NAMES: usize = 6;

/// Returns the first names, and the number of the rest.
pub fn cut_list(names: &[impl AsRef<str>]) -> String {
    let shown: Vec<&str> = names.iter().take(SHOWN_NAMES).map(AsRef::as_ref).collect();
    let mut text = shown.join(", ");
    if names.len() > SHOWN_NAMES {
        text += &format!(" and {} more", names.len() - SHOWN_NAMES);
    }
    text
}

/// Returns the provider's stacks, and the end of its log and output.
pub fn evidence(report: &Report) -> String {
    let mut text = String::new();
    if !report.stacks.is_empty() {
        text += "  the stacks of all threads:\n";
    }
    for line in &report.stacks {
        text += &format!("    {line}\n");
    }
    let lines: Vec<&str> = report.output.lines().collect();
    let (most, width) = SHOWN_OUTPUT;
    let output = lines[lines.len().saturating_sub(most)..]
        .iter()
        .map(|line| printable(line).chars().take(width).collect());
    let parts: [(&str, Vec<String>); 2] =
        [("log", report.log.clone()), ("output", output.collect())];
    for (title, lines) in parts {
        if !lines.is_empty() {
            text += &format!("  the end of the provider's {title}:\n");
        }
        for line in lines {
            text += &format!("    {line}\n");
        }
    }
    text
}

/// Quotes a word for a shell.
pub fn quoted(word: impl AsRef<OsStr>) -> String {
    let text = word.as_ref().to_string_lossy();
    let is_plain =
        |character: char| character.is_ascii_alphanumeric() || "-_./+=:@".contains(character);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.into_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// Returns this program's path as called, quoted for a shell.
pub fn program() -> String {
    std::env::args_os()
        .next()
        .map_or_else(|| env!("CARGO_PKG_NAME").to_owned(), quoted)
}

/// What to show of a run, and where.
#[derive(Clone, Copy)]
pub struct Shown<'a> {
    /// The command that repeats a result.
    pub again: &'a (dyn Fn(&Report) -> Option<String> + Sync),
    /// The stream.
    pub output: Output,
    /// Whether to show a bar: nothing else uses the terminal.
    pub has_bar: bool,
    /// Whether to show only bad results.
    pub only_bad: bool,
    /// Whether warnings are bad.
    pub strict: bool,
    /// Stops the run when the reader closes its end.
    pub stop: Option<&'a Stop>,
}

/// Returns a bar for a run without other output; hidden without a terminal.
pub fn steps(count: usize) -> ProgressBar {
    let target = match Output::Stderr.is_terminal() {
        true => ProgressDrawTarget::stderr(),
        false => ProgressDrawTarget::hidden(),
    };
    bar(target, count)
}

fn bar(target: ProgressDrawTarget, steps: usize) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(steps as u64), target);
    // No colours: the bar is the same with NO_COLOR.
    if let Ok(style) = ProgressStyle::with_template("[{bar:30}] {pos}/{len} {elapsed} {wide_msg}") {
        bar.set_style(style.progress_chars("=> "));
    }
    if !bar.is_hidden() {
        bar.enable_steady_tick(TICK);
    }
    bar
}

/// The progress of a run of one library. Without a terminal it prints only lines.
pub struct Progress<'a> {
    shown: Shown<'a>,
    bar: ProgressBar,
    at_work: Mutex<Vec<&'static str>>,
}

impl<'a> Progress<'a> {
    /// Creates the progress of a number of checks.
    pub fn new(shown: Shown<'a>, checks: usize) -> Self {
        let target = match (shown.output.is_terminal() && shown.has_bar, shown.output) {
            (false, _) => ProgressDrawTarget::hidden(),
            (true, Output::Stdout) => ProgressDrawTarget::stdout(),
            (true, Output::Stderr) => ProgressDrawTarget::stderr(),
        };
        let bar = bar(target, checks);
        Self {
            shown,
            bar,
            at_work: Mutex::default(),
        }
    }

    /// Handles the start or end of a check.
    pub fn tell(&self, event: Event<'_>) {
        let mut at_work = self.at_work.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Begun(check) => at_work.push(check.name),
            Event::Postponed(check) => at_work.retain(|name| *name != check.name),
            Event::Ended(report) => {
                at_work.retain(|name| *name != report.name);
                self.show(report);
                // Abilities and departures do not count as checks.
                if super::all().any(|check| check.name == report.name) {
                    self.bar.inc(1);
                }
            }
        }
        self.bar.set_message(at_work.join(" "));
    }

    fn show(&self, report: &Report) {
        let shown = &self.shown;
        // The summary has one line for all blocked checks.
        let is_hidden = report.status == Status::Blocked
            || shown.only_bad && !report.status.is_bad(shown.strict);
        if is_hidden {
            return;
        }
        let again = (shown.again)(report);
        let is_read = self
            .bar
            .suspend(|| shown.output.print(report, again.as_deref()));
        if let (false, Some(stop)) = (is_read, shown.stop) {
            stop.now();
        }
    }

    /// Removes the bar.
    pub fn finish(self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_needs_it() {
        for (word, expected) in [
            ("/lib/x.so", "/lib/x.so"),
            ("my lib.so", "'my lib.so'"),
            ("it's.so", r"'it'\''s.so'"),
            ("$(x).so", "'$(x).so'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(word), expected);
        }
    }
}
