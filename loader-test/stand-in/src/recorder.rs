//! Records in the core's folder, for the time after a crash, which calls into the provider are running, and the last lines of
//! the log. With a trace, it records every call.

mod calls;

use std::collections::VecDeque;
use std::ffi::c_int;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, PoisonError};

use super::leaks;
use super::trace::Trace;
use calls::Calls;

/// The file with the calls.
const CALLS: &str = "calls";
/// The file with the log.
const LOG: &str = "log";
/// Lines to keep at level 0.
const LINES: usize = 10;
/// Lines to keep at all levels.
const ALL_LINES: usize = 1000;
/// The highest level to keep.
static LEVEL: AtomicI32 = AtomicI32::new(0);

/// Keeps the log up to this level from now on; the default is level 0, which is always written.
pub fn keep_up_to(level: c_int) {
    LEVEL.store(level, Ordering::Relaxed);
}

/// Whether to keep lines of a level.
pub(super) fn keeps(level: c_int) -> bool {
    level <= LEVEL.load(Ordering::Relaxed).max(0)
}

/// Number of lines to keep.
fn kept_lines(level: c_int) -> usize {
    if level > 0 { ALL_LINES } else { LINES }
}
/// Bytes to keep of a line.
const LINE: usize = 512;
/// Size at which the log file is truncated: more than the kept lines need.
const LONGEST: usize = 64 << 10;

/// A thread of the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    /// The thread that calls the callbacks.
    Core,
    /// The thread that returns MADs.
    Sa,
}

/// The recorder of one core.
pub(super) struct Recorder {
    calls: Calls,
    log: Mutex<Log>,
    trace: Option<Trace>,
}

struct Log {
    file: File,
    length: usize,
    last: VecDeque<String>,
}

impl Recorder {
    /// Continues the files of an earlier core in the folder.
    pub fn new(folder: &Path, trace: Option<Trace>) -> io::Result<Self> {
        let named = |name: &str, error: io::Error| {
            let path = folder.join(name);
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        };
        let calls = Calls::open(&folder.join(CALLS)).map_err(|error| named(CALLS, error))?;
        let mut options = OpenOptions::new();
        let options = options.create(true).append(true);
        let file = options
            .open(folder.join(LOG))
            .map_err(|error| named(LOG, error))?;
        Ok(Self {
            calls,
            log: Mutex::new(Log {
                file,
                length: 0,
                last: VecDeque::new(),
            }),
            trace,
        })
    }

    /// Records the start of a call into the provider. `meaning` describes its arguments; the trace also has their values.
    pub fn begin(
        &self,
        caller: Caller,
        name: &str,
        meaning: &str,
        arguments: impl FnOnce() -> String,
    ) {
        match meaning {
            "" => self.calls.begin(caller, name.as_bytes()),
            _ => self
                .calls
                .begin(caller, format!("{name} ({meaning})").as_bytes()),
        }
        if let Some(trace) = &self.trace {
            let separator = if meaning.is_empty() { "" } else { "; " };
            trace.begin(name, &format!("{meaning}{separator}{}", arguments()));
        }
        leaks::provider_begins();
    }

    /// Records the end of the call.
    pub fn end(&self, caller: Caller, name: &str, result: impl FnOnce() -> String) {
        leaks::provider_ends();
        self.calls.end(caller);
        if let Some(trace) = &self.trace {
            trace.end(name, &result());
        }
    }

    /// Records a call of the provider into the core, for the trace.
    pub fn event(&self, name: &str, arguments: impl FnOnce() -> String) {
        if let Some(trace) = &self.trace {
            trace.event(name, &arguments());
        }
    }

    /// Records a log line.
    pub fn log(&self, text: &str) {
        let mut line = printable(text);
        if let Some((end, _)) = line.char_indices().nth(LINE) {
            line.truncate(end);
            line.push_str(" [...]");
        }
        line.push('\n');
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.length += line.len();
        if log.last.len() == kept_lines(LEVEL.load(Ordering::Relaxed)) {
            log.last.pop_front();
        }
        log.last.push_back(line);
        let longest = LONGEST * (log.last.len() / LINES).max(1);
        let text = match log.length > longest && log.file.set_len(0).is_ok() {
            true => {
                let kept: String = log.last.iter().map(String::as_str).collect();
                log.length = kept.len();
                kept
            }
            false => log.last.back().cloned().unwrap_or_default(),
        };
        // Ignore errors: only messages lack the log then.
        let _ = log.file.write_all(text.as_bytes());
    }
}

/// Empties the log in `folder`, which a core may still use.
///
/// # Errors
/// If the file cannot be truncated.
pub fn forget_log(folder: &Path) -> io::Result<()> {
    OpenOptions::new()
        .write(true)
        .open(folder.join(LOG))?
        .set_len(0)
}

/// Returns the last lines of a core's log in `folder`, at most ten.
pub fn last_lines(folder: &Path) -> Vec<String> {
    last_lines_up_to(folder, 0)
}

/// Returns the same for a log [kept](keep_up_to) up to a level, at most a thousand if it is not 0.
pub fn last_lines_up_to(folder: &Path, level: c_int) -> Vec<String> {
    let most = kept_lines(level);
    let bytes = std::fs::read(folder.join(LOG)).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(most)..]
        .iter()
        .map(|line| (*line).to_owned())
        .collect()
}

/// Returns where in the provider a process was whose core used `folder`: "inside ..." or "after ..."; `None` if the provider
/// was never called.
pub fn last_call(folder: &Path) -> Option<String> {
    let calls = calls::read(&folder.join(CALLS))?;
    let under_way: Vec<&str> = calls
        .iter()
        .filter(|call| call.is_under_way)
        .map(|call| call.text.as_str())
        .collect();
    match (under_way.is_empty(), calls.first()) {
        (false, _) => Some(format!("inside {}", under_way.join(" and "))),
        (true, Some(call)) => Some(format!("after {}", call.text)),
        (true, None) => None,
    }
}

/// Returns text as one line without control characters.
pub fn printable(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.trim_end_matches('\n').chars() {
        if character.is_control() {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_seen_from_outside_as_they_are_made() {
        let folder = tempfile::tempdir().unwrap();
        let seen = || last_call(folder.path());
        let recorder = Recorder::new(folder.path(), None).unwrap();
        assert_eq!(seen(), None);
        let begin = |caller, name: &str, meaning: &str| {
            recorder.begin(caller, name, meaning, || unreachable!("there is no trace"));
        };
        begin(Caller::Core, "open_port", "port 1");
        assert_eq!(seen().unwrap(), "inside open_port (port 1)");
        recorder.end(Caller::Core, "open_port", String::new);
        assert_eq!(seen().unwrap(), "after open_port (port 1)");
        begin(Caller::Sa, "SA handler", "");
        assert_eq!(seen().unwrap(), "inside SA handler");
        begin(Caller::Core, "resolve", "");
        assert_eq!(seen().unwrap(), "inside resolve and SA handler");
        begin(Caller::Core, "resolve", &"x".repeat(9999));
        assert!(seen().unwrap().contains("xxx and SA handler"));
        // The next core in the same folder.
        let next = Recorder::new(folder.path(), None).unwrap();
        next.end(Caller::Sa, "SA handler", String::new);
        next.begin(Caller::Core, "query\u{1b}", "", String::new);
        assert_eq!(seen().unwrap(), "inside query\\u{1b}");
    }

    #[test]
    fn the_last_lines_are_kept_however_many_there_are() {
        let folder = tempfile::tempdir().unwrap();
        let recorder = Recorder::new(folder.path(), None).unwrap();
        assert!(last_lines(folder.path()).is_empty());
        recorder.log("one\n");
        recorder.log("forged\nline");
        assert_eq!(last_lines(folder.path()), ["one", "forged\\nline"]);
        for number in 0..5000 {
            recorder.log(&format!("line {number} {}", "y".repeat(2000)));
        }
        let lines = last_lines(folder.path());
        assert_eq!(lines.len(), LINES);
        assert!(lines[0].starts_with("line 4990 ") && lines[9].starts_with("line 4999 "));
        let length = std::fs::metadata(folder.path().join(LOG)).unwrap().len();
        assert!(length <= LONGEST as u64 + 1024, "{length}");
    }
}
