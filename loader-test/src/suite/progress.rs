//! What a run shows while it goes on: a line a check, in the order of the list, and on a terminal a bar below with those at
//! work.

use std::ffi::OsStr;
use std::io::{self, IsTerminal as _, Write as _};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::run::{Event, NOT_LOOKED_AT, Report, Stop};
use super::{Check, Status};
use crate::stand_in::recorder::printable;
use crate::words::counted;

/// How often the bar's clock goes on.
const TICK: Duration = Duration::from_millis(200);
/// Lines of a provider's output that are shown, and characters of each.
const SHOWN_OUTPUT: (usize, usize) = (10, 400);

/// Whether standard output is a terminal that knows more than lines.
fn is_terminal() -> bool {
    io::stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Writes to standard output; whether there is still somebody who reads it. `head` goes when it has enough.
pub fn say(text: &str) -> bool {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .is_ok()
}

/// Prints a line like `println!`, which would panic when nobody reads it any longer.
macro_rules! sayln {
    ($($arguments:tt)*) => {
        $crate::suite::progress::say(&(format!($($arguments)*) + "\n"))
    };
}
pub(crate) use sayln;

/// One check's line, what there is to say about it, and how to run it again; whether somebody reads it.
pub fn print(report: &Report, again: Option<&str>) -> bool {
    let status = report.status;
    let has_colours = is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty());
    let (start, end) = match status {
        _ if !has_colours => ("", ""),
        Status::Passed => ("\x1b[32m", "\x1b[0m"),
        Status::Skipped => ("\x1b[2m", "\x1b[0m"),
        Status::Warned => ("\x1b[33m", "\x1b[0m"),
        Status::Failed | Status::TimedOut | Status::Crashed => ("\x1b[31m", "\x1b[0m"),
    };
    let mut text = format!(
        "{start}{status:<9}{end} {:<40} {:>6} ms\n",
        report.name, report.duration_ms
    );
    text += &details(report, again);
    say(&text)
}

/// All that there is to say about a check that did not simply pass, a line each.
pub fn details(report: &Report, again: Option<&str>) -> String {
    let mut text = String::new();
    for line in report.message.lines() {
        text += &format!("  {}\n", printable(line.trim_start()));
    }
    if report.status.is_bad(false) {
        text += &told(report);
    }
    if let (true, Some(again)) = (report.status.is_bad(true), again) {
        text += &format!("  again: {again}\n");
    }
    text
}

/// What the provider itself said: the end of its log and of its output.
pub fn told(report: &Report) -> String {
    let mut text = String::new();
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

/// A word of a command as a shell takes it.
pub fn quoted(word: impl AsRef<OsStr>) -> String {
    let text = word.as_ref().to_string_lossy();
    let is_plain =
        |character: char| character.is_ascii_alphanumeric() || "-_./+=:@".contains(character);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.into_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// This program as it was called, as a shell takes it.
pub fn program() -> String {
    std::env::args_os()
        .next()
        .map_or_else(|| env!("CARGO_PKG_NAME").to_owned(), quoted)
}

/// The progress of a run of one library. Lines go to standard output; without a terminal there is nothing else.
pub struct Progress<'a> {
    /// The command that repeats one check, by its name.
    again: &'a (dyn Fn(&str) -> String + Sync),
    bar: ProgressBar,
    /// Ends the run when nobody reads of it any longer.
    stop: Option<&'a Stop>,
    state: Mutex<State>,
}

struct State {
    at_work: Vec<&'static str>,
    /// In the order in which they are shown.
    checks: Vec<(&'static str, Option<Report>)>,
    /// How many are shown.
    shown: usize,
    /// Of these, those of which one line in the end tells.
    not_looked_at: usize,
}

impl<'a> Progress<'a> {
    /// For these checks. `again` is the command that repeats one of them; `has_bar` is for runs in which nothing else needs
    /// the terminal; `stop` ends a run of which nobody reads.
    pub fn new(
        again: &'a (dyn Fn(&str) -> String + Sync),
        checks: &[&'static Check],
        has_bar: bool,
        stop: Option<&'a Stop>,
    ) -> Self {
        let target = match is_terminal() && has_bar {
            true => ProgressDrawTarget::stdout(),
            false => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(Some(checks.len() as u64), target);
        // No colours: the bar is the same with NO_COLOR.
        if let Ok(style) =
            ProgressStyle::with_template("[{bar:30}] {pos}/{len} {elapsed} {wide_msg}")
        {
            bar.set_style(style.progress_chars("=> "));
        }
        if !bar.is_hidden() {
            bar.enable_steady_tick(TICK);
        }
        let state = State {
            at_work: Vec::new(),
            checks: checks.iter().map(|check| (check.name, None)).collect(),
            shown: 0,
            not_looked_at: 0,
        };
        Self {
            again,
            bar,
            stop,
            state: Mutex::new(state),
        }
    }

    /// Takes notice of a check's beginning or end.
    pub fn tell(&self, event: Event<'_>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Begun(check) => state.at_work.push(check.name),
            Event::Ended(report) => {
                state.at_work.retain(|name| *name != report.name);
                for (name, ended) in &mut state.checks {
                    if *name == report.name {
                        *ended = Some(report.clone());
                    }
                }
                // Whichever ends first: two runs can be compared.
                while let Some((_, Some(report))) = state.checks.get(state.shown) {
                    if report.message == NOT_LOOKED_AT {
                        state.not_looked_at += 1;
                    } else {
                        self.show(report);
                    }
                    state.shown += 1;
                }
                self.bar.inc(1);
            }
        }
        self.bar.set_message(state.at_work.join(" "));
    }

    fn show(&self, report: &Report) {
        let again = (self.again)(&report.name);
        let is_read = self.bar.suspend(|| print(report, Some(&again)));
        if let (false, Some(stop)) = (is_read, self.stop) {
            stop.now();
        }
    }

    /// The run could not go on: shows what has ended and was not shown yet.
    pub fn give_up(self) {
        self.bar.finish_and_clear();
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, report) in &state.checks[state.shown..] {
            report.iter().for_each(|report| self.show(report));
        }
    }

    /// The last line: how many ended how.
    pub fn finish(self, reports: &[Report]) {
        self.bar.finish_and_clear();
        let count = |status| {
            reports
                .iter()
                .filter(|report| report.status == status)
                .count()
        };
        let statuses = [
            Status::Passed,
            Status::Failed,
            Status::Warned,
            Status::Skipped,
            Status::Crashed,
            Status::TimedOut,
        ];
        let counts: Vec<String> = statuses
            .iter()
            .map(|status| format!("{} {status}", count(*status)))
            .collect();
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.not_looked_at > 0 {
            let checks = counted(state.not_looked_at, "check");
            sayln!("{checks} {NOT_LOOKED_AT}");
        }
        let all = counted(reports.len(), "check");
        if let (false, Some(stop)) = (sayln!("{all}: {}", counts.join(", ")), self.stop) {
            stop.now();
        }
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
