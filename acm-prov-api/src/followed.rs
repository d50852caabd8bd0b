//! Files that an operator may change while the daemon runs.
//!
//! A [`Followed`] file is read once at the start. Whoever has a thread calls [`look`](Follow::look) now and then: a file
//! that has changed, and then has stayed the same for a moment, is read again and takes the place of what was known, in
//! whole. One that vanished, or that looks as if it were still being written, keeps what was known, and that is said once.

use std::fmt;
use std::fs::{File, Metadata};
use std::io::{self, BufRead, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::address::Lid;
use crate::clock::Moment;
use crate::dump::Routes;
use crate::hosts::Hosts;
use crate::options::lines;
use crate::options::report::{Report, of_error, shown};
use crate::sync::{Arc, Mutex, RwLock};

/// How often [`look`](Follow::look) is to be called, in milliseconds.
pub const TICK: u64 = 1_000;

/// Milliseconds that a changed file must stay the same before it is read.
const SETTLED: u64 = 900;

/// What a file holds once it is read.
pub trait FileContent: Default + fmt::Debug + Send + Sync + 'static {
    /// What was wrong with it.
    fn reports(&self) -> &[Report];

    /// Why it cannot take the place of what was known before.
    fn unusable(&self) -> Option<&'static str> {
        None
    }

    /// How many things it tells.
    fn count(&self) -> usize;
}

impl FileContent for Hosts {
    fn reports(&self) -> &[Report] {
        Hosts::reports(self)
    }

    fn count(&self) -> usize {
        self.len()
    }
}

/// Something that is followed.
pub trait Follow: fmt::Debug + Send + Sync {
    /// Looks whether the file has changed, and reads it again if so. Lines for the operator.
    fn look(&self, now: Moment) -> Vec<String>;
}

/// What tells one state of a file from another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stamp {
    file: (u64, u64),
    size: u64,
    changed: [(i64, i64); 2],
}

impl Stamp {
    fn new(metadata: &Metadata) -> Self {
        Self {
            file: (metadata.dev(), metadata.ino()),
            size: metadata.size(),
            changed: [
                (metadata.mtime(), metadata.mtime_nsec()),
                (metadata.ctime(), metadata.ctime_nsec()),
            ],
        }
    }

    /// `None` if there is no such file.
    fn of(path: &Path) -> Option<Self> {
        std::fs::metadata(path)
            .ok()
            .map(|metadata| Self::new(&metadata))
    }
}

/// What was seen of the file.
#[derive(Debug)]
struct Watch {
    /// What the current content was read from, or what the operator was told cannot be read.
    settled: Option<Stamp>,
    /// A state that differs, and when it was first seen.
    pending: Option<(Option<Stamp>, Moment)>,
}

type Parse<T> = Box<dyn Fn(&Path, &mut dyn BufRead) -> T + Send + Sync>;

/// A file's content, as it was when the file was last good.
pub struct Followed<T> {
    file: PathBuf,
    parse: Parse<T>,
    current: RwLock<Arc<T>>,
    watch: Mutex<Watch>,
}

impl<T: FileContent> Followed<T> {
    /// Reads the file for the first time; what is wrong with it is in the content's reports.
    pub fn new(
        file: &Path,
        failed: impl FnOnce(Report) -> T,
        parse: impl Fn(&Path, &mut dyn BufRead) -> T + Send + Sync + 'static,
    ) -> Self {
        // Looked at first: a change while it is read is a change to be followed.
        let settled = Stamp::of(file);
        let content = match lines::open(file) {
            Ok(mut reader) => parse(file, &mut reader),
            Err(error) => failed(of_error(file, &error)),
        };
        Self {
            file: file.to_owned(),
            parse: Box::new(parse),
            current: RwLock::new(Arc::new(content)),
            watch: Mutex::new(Watch {
                settled,
                pending: None,
            }),
        }
    }

    /// The content.
    pub fn get(&self) -> Arc<T> {
        Arc::clone(&self.current.read())
    }

    /// Looks something up in the content, which is not replaced meanwhile.
    pub fn with<R>(&self, look_up: impl FnOnce(&T) -> R) -> R {
        look_up(&self.current.read())
    }

    /// Reads the file again, whole or not at all.
    fn read(&self) -> Result<T, String> {
        let reader = lines::open(&self.file).map_err(|error| error.to_string())?;
        let before = stamp_of_open(reader.get_ref())?;
        let mut reader = Watched::new(reader);
        let content = (self.parse)(&self.file, &mut reader);
        if let Some(error) = reader.error {
            return Err(error.to_string());
        }
        let after = stamp_of_open(reader.inner.get_ref())?;
        if before != after || Stamp::of(&self.file) != Some(after) {
            return Err("it changes while it is read".to_owned());
        }
        if reader.length == 0 {
            return Err("it is empty (to drop everything, leave a comment in it)".to_owned());
        }
        let last_line = reader.line_feeds + 1;
        let last_is_bad = content
            .reports()
            .iter()
            .any(|report| report.line == Some(last_line));
        if reader.last != Some(b'\n') && last_is_bad {
            return Err("it ends within a line".to_owned());
        }
        match content.unusable() {
            Some(reason) => Err(reason.to_owned()),
            None => Ok(content),
        }
    }
}

impl Followed<Hosts> {
    /// An acm_hosts file.
    pub fn hosts(file: &Path) -> Self {
        Self::new(file, Hosts::unread, |file, reader| {
            Hosts::parse(file, reader)
        })
    }
}

impl Followed<Routes> {
    /// A dump, read for the port with that GUID and base LID.
    pub fn routes(file: &Path, guid: u64, base_lid: Lid) -> Self {
        Self::new(file, Routes::unread, move |file, reader| {
            Routes::parse(file, reader, guid, base_lid)
        })
    }
}

fn stamp_of_open(file: &File) -> Result<Stamp, String> {
    file.metadata()
        .map(|metadata| Stamp::new(&metadata))
        .map_err(|error| error.to_string())
}

impl<T: FileContent> Follow for Followed<T> {
    fn look(&self, now: Moment) -> Vec<String> {
        // Several threads may follow one file; the others come again.
        let Some(mut watch) = self.watch.try_lock() else {
            return Vec::new();
        };
        let seen = Stamp::of(&self.file);
        if seen == watch.settled {
            watch.pending = None;
            return Vec::new();
        }
        let since = match watch.pending {
            Some((pending, since)) if pending == seen => since,
            _ => {
                watch.pending = Some((seen, now));
                return Vec::new();
            }
        };
        if now.since(since) < SETTLED {
            return Vec::new();
        }
        watch.settled = seen;
        watch.pending = None;
        let name = shown(self.file.as_os_str().as_encoded_bytes());
        if seen.is_none() {
            return vec![format!(
                "{name}: the file is gone; going on with what was read before"
            )];
        }
        match self.read() {
            Ok(content) => {
                let mut lines = vec![format!(
                    "{name}: the file has changed and was read again: {} entries",
                    content.count()
                )];
                lines.extend(content.reports().iter().map(ToString::to_string));
                *self.current.write() = Arc::new(content);
                lines
            }
            Err(reason) => {
                vec![format!(
                    "{name}: the file has changed, but {reason}; going on with what was read before"
                )]
            }
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Followed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Followed")
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

/// Notes how a file ended.
struct Watched<R> {
    inner: R,
    length: u64,
    line_feeds: u64,
    last: Option<u8>,
    error: Option<io::Error>,
}

impl<R> Watched<R> {
    fn new(inner: R) -> Self {
        Self {
            inner,
            length: 0,
            line_feeds: 0,
            last: None,
            error: None,
        }
    }
}

impl<R: BufRead> Read for Watched<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(into)?;
        self.consume(count);
        Ok(count)
    }
}

impl<R: BufRead> BufRead for Watched<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        match self.inner.fill_buf() {
            Ok(chunk) => Ok(chunk),
            Err(error) => {
                if error.kind() != io::ErrorKind::Interrupted {
                    self.error = Some(io::Error::from(error.kind()));
                }
                Err(error)
            }
        }
    }

    fn consume(&mut self, count: usize) {
        if let Ok(chunk) = self.inner.fill_buf() {
            let used = &chunk[..count.min(chunk.len())];
            self.length += used.len() as u64;
            self.line_feeds += used.iter().filter(|byte| **byte == b'\n').count() as u64;
            self.last = used.last().copied().or(self.last);
        }
        self.inner.consume(count);
    }
}

#[cfg(test)]
mod tests;
