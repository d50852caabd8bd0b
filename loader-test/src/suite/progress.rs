//! What a run shows while it goes on: a line a check as it ends and, on a terminal, a bar below with those at work.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::Status;
use super::run::{Event, Report};

/// How often the bar's clock goes on.
const TICK: Duration = Duration::from_millis(200);

/// Whether standard output is a terminal that knows more than lines.
fn is_terminal() -> bool {
    io::stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// One check's line, what there is to say about it, and how to run it again if it has a name of its own there.
pub fn print(report: &Report, again: Option<&str>) {
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
    if !report.message.is_empty() {
        text += &format!("  {}\n", report.message);
    }
    if let (true, false, Some(again)) = (status.is_bad(true), report.message.is_empty(), again) {
        text += &format!("  again: {again} --only '^{}$'\n", report.name);
    }
    say(&text);
}

/// Writes to standard output. Whoever reads it may have gone, as `head` does; the run and its other reports go on.
pub fn say(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// A word of a command as a shell takes it.
pub fn quoted(word: &Path) -> String {
    let text = word.to_string_lossy();
    let is_plain =
        |character: char| character.is_ascii_alphanumeric() || "-_./+=:@".contains(character);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.into_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// The progress of a run of one library. Lines go to standard output; without a terminal there is nothing else.
pub struct Progress {
    /// The command that repeats one check, up to its name.
    again: String,
    bar: ProgressBar,
    at_work: Mutex<Vec<&'static str>>,
}

impl Progress {
    /// For so many checks. `again` is the command that repeats one of them, without the choice of it; `has_bar` is for runs
    /// in which nothing else needs the terminal.
    pub fn new(again: String, checks: usize, has_bar: bool) -> Self {
        let is_terminal = io::stdout().is_terminal()
            && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        let target = if is_terminal && has_bar {
            ProgressDrawTarget::stdout()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(Some(checks as u64), target);
        // No colours: the bar is the same with NO_COLOR.
        if let Ok(style) =
            ProgressStyle::with_template("[{bar:30}] {pos}/{len} {elapsed} {wide_msg}")
        {
            bar.set_style(style.progress_chars("=> "));
        }
        if !bar.is_hidden() {
            bar.enable_steady_tick(TICK);
        }
        Self {
            again,
            bar,
            at_work: Mutex::default(),
        }
    }

    /// Takes notice of a check's beginning or end.
    pub fn tell(&self, event: Event<'_>) {
        let mut at_work = self.at_work.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Begun(check) => at_work.push(check.name),
            Event::Ended(report) => {
                if let Some(index) = at_work.iter().position(|name| *name == report.name) {
                    at_work.remove(index);
                }
                self.bar.suspend(|| print(report, Some(&self.again)));
                self.bar.inc(1);
            }
        }
        self.bar.set_message(at_work.join(" "));
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
        say(&format!(
            "{} checks: {}\n",
            reports.len(),
            counts.join(", ")
        ));
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
            assert_eq!(quoted(Path::new(word)), expected);
        }
    }
}
