//! Writes every call in both directions at once, so that the trace is complete up to a crash.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use serde_json::Value;

/// A trace for Perfetto and chrome://tracing: a JSON array of events. They accept a file without its end; [`close`] adds the
/// end for JSON parsers.
pub struct Trace {
    file: Mutex<File>,
    start: Instant,
    is_first: AtomicBool,
}

impl Trace {
    /// Starts a trace.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut file = File::create(path)?;
        file.write_all(b"[")?;
        Ok(Self {
            file: Mutex::new(file),
            start: Instant::now(),
            is_first: AtomicBool::new(true),
        })
    }

    /// Writes an instant: a call of the provider into the core.
    pub fn event(&self, name: &str, arguments: &str) {
        self.write(name, "i", arguments);
    }

    /// Writes the start of a callback.
    pub fn begin(&self, name: &str, arguments: &str) {
        self.write(name, "B", arguments);
    }

    /// Writes the end of a callback.
    pub fn end(&self, name: &str, result: &str) {
        self.write(name, "E", result);
    }

    fn write(&self, name: &str, phase: &str, arguments: &str) {
        let event = serde_json::json!({
            "name": name,
            "ph": phase,
            "ts": self.start.elapsed().as_micros() as u64,
            "pid": std::process::id(),
            "tid": thread(),
            "s": "t",
            "args": { "what": arguments },
        });
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let separator = match self.is_first.swap(false, Ordering::Relaxed) {
            true => "",
            false => ",",
        };
        // One write per event, so that a crash leaves complete events. After a write error the trace ends; the run continues.
        let _ = file.write_all(format!("{separator}\n{event}").as_bytes());
    }
}

/// Ends the trace of an ended process. Removes an incomplete last event.
///
/// # Errors
/// If the file cannot be read or written.
pub fn close(path: &Path) -> io::Result<()> {
    let text = std::fs::read_to_string(path)?;
    let whole = match text.rsplit_once('\n') {
        Some((before, last)) if serde_json::from_str::<Value>(last).is_err() => {
            before.trim_end_matches(',')
        }
        _ => &text,
    };
    let start = if whole.is_empty() { "[" } else { whole };
    std::fs::write(path, format!("{start}\n]\n"))
}

/// Returns the system's id of the calling thread.
fn thread() -> i64 {
    // SAFETY: gettid takes nothing and cannot fail.
    i64::from(unsafe { libc::gettid() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closed(text: &str) -> Value {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace");
        std::fs::write(&path, text).unwrap();
        close(&path).unwrap();
        serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap()
    }

    #[test]
    fn whatever_a_crash_leaves_becomes_json() {
        let events = |numbers: &[u64]| {
            serde_json::json!(
                numbers
                    .iter()
                    .map(|n| serde_json::json!({ "ts": n }))
                    .collect::<Vec<_>>()
            )
        };
        assert_eq!(closed(""), events(&[]));
        assert_eq!(closed("["), events(&[]));
        assert_eq!(closed("[\n{\"ts\":1}"), events(&[1]));
        assert_eq!(closed("[\n{\"ts\":1},\n{\"ts\":2}"), events(&[1, 2]));
        assert_eq!(closed("[\n{\"ts\":1},\n{\"ts"), events(&[1]));
        assert_eq!(closed("[\n{\"t"), events(&[]));
        assert_eq!(closed("[\n{\"ts\":1},\n"), events(&[1]));
    }
}
