//! Every call in both directions, written as it happens: what a crash leaves is the whole story.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// A trace in the format that Perfetto and chrome://tracing open: a JSON array of events, whose end may be missing.
pub struct Trace {
    file: Mutex<File>,
    start: Instant,
}

impl Trace {
    /// Begins a trace.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut file = File::create(path)?;
        file.write_all(b"[\n")?;
        Ok(Self {
            file: Mutex::new(file),
            start: Instant::now(),
        })
    }

    /// An instant: a call of the provider's into the core.
    pub fn event(&self, name: &str, arguments: &str) {
        self.write(name, "i", arguments);
    }

    /// A callback begins.
    pub fn begin(&self, name: &str, arguments: &str) {
        self.write(name, "B", arguments);
    }

    /// A callback ends.
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
        // A trace that cannot be written is cut short; the run goes on.
        let _ = writeln!(file, "{event},");
    }
}

/// The calling thread, as the system numbers it.
fn thread() -> i64 {
    // SAFETY: gettid takes nothing and cannot fail.
    i64::from(unsafe { libc::gettid() })
}
