//! Log files of running programs.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Context, Result};
use crate::wait;

/// A position in a [`Log`]; later output follows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(u64);

/// A log file that grows. It need not exist yet.
#[derive(Clone, Debug)]
pub struct Log {
    path: PathBuf,
}

impl Log {
    /// Returns the log in the file `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Returns the file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the current end.
    pub fn end(&self) -> Mark {
        Mark(self.path.metadata().map_or(0, |metadata| metadata.len()))
    }

    /// Returns the text after `mark`; [`Mark::default`] is the beginning. Replaces invalid UTF-8.
    pub fn since(&self, mark: Mark) -> Result<String> {
        let mut bytes = Vec::new();
        let read = || -> io::Result<()> {
            let mut file = File::open(&self.path)?;
            file.seek(SeekFrom::Start(mark.0))?;
            file.read_to_end(&mut bytes)?;
            Ok(())
        };
        match { read }() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other.context(|| format!("read {}", self.path.display()))?,
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Returns the first complete line after `mark` that `wanted` accepts.
    pub fn find(&self, mark: Mark, wanted: impl Fn(&str) -> bool) -> Result<Option<String>> {
        let text = self.since(mark)?;
        // The last piece is incomplete until its line end is written.
        let complete = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
        Ok(complete
            .lines()
            .find(|line| wanted(line))
            .map(str::to_owned))
    }

    /// Waits up to `limit` for a line after `mark` that contains `text`.
    pub fn wait_for(&self, mark: Mark, text: &str, limit: Duration) -> Result<String> {
        let what = format!("\"{text}\" in {}", self.path.display());
        wait::until(what, limit, || self.find(mark, |line| line.contains(text)))
    }

    /// Returns the last `count` lines.
    pub fn tail(&self, count: usize) -> String {
        let text = self
            .since(Mark::default())
            .unwrap_or_else(|error| error.to_string());
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(count)..].join("\n")
    }
}
