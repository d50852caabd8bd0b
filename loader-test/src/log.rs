//! Files that running programs write and we read.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Context, Result};
use crate::wait;

/// A place in a [`Log`]: what is written later lies behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(u64);

/// A log file that grows. It need not exist yet.
#[derive(Clone, Debug)]
pub struct Log {
    path: PathBuf,
}

impl Log {
    /// The log in the file `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The present end.
    pub fn end(&self) -> Mark {
        Mark(self.path.metadata().map_or(0, |metadata| metadata.len()))
    }

    /// All that is written behind `mark`; [`Mark::default`] is the beginning. Bytes that are not UTF-8 are replaced.
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

    /// The first complete line behind `mark` that `wanted` accepts.
    pub fn find(&self, mark: Mark, wanted: impl Fn(&str) -> bool) -> Result<Option<String>> {
        let text = self.since(mark)?;
        // The last piece is a line only once its end is written.
        let complete = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
        Ok(complete
            .lines()
            .find(|line| wanted(line))
            .map(str::to_owned))
    }

    /// Waits for a line behind `mark` that holds `text`, at most `limit` long.
    pub fn wait_for(&self, mark: Mark, text: &str, limit: Duration) -> Result<String> {
        let what = format!("\"{text}\" in {}", self.path.display());
        wait::until(what, limit, || self.find(mark, |line| line.contains(text)))
    }

    /// The last `count` lines.
    pub fn tail(&self, count: usize) -> String {
        let text = self
            .since(Mark::default())
            .unwrap_or_else(|error| error.to_string());
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(count)..].join("\n")
    }
}
