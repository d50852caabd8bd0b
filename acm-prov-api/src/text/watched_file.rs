//! Files that an operator may change while the daemon runs.
//!
//! A [`WatchedFile`] is read once at the start: a hosts file when it is created, a dump by the first look, since it may be
//! long. A thread calls [`look`](Follow::look) periodically. When the file has changed and then stays the same for a
//! moment, the content is replaced as a whole. If the file vanishes, or seems incomplete, the previous content stays, and
//! the log says so once.
//!
//! If the file cannot be read (no free descriptor, I/O error, stale NFS handle, no permission), the previous content stays
//! too. It is retried every five seconds, even if unchanged. The log says once that the file cannot be read, and once that it
//! can be read again.

use std::fmt;
use std::fs::{File, Metadata};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::address::Lid;
use crate::clock::Moment;
use crate::sync::{Arc, Mutex, RwLock};
use crate::text::dump::Routes;
use crate::text::hosts::Hosts;
use crate::text::lines;
use crate::text::report::{Problem, Report, of_error, shown};

/// Milliseconds between two calls of [`look`](Follow::look).
pub const TICK: u64 = 1_000;

/// Milliseconds that a changed file must stay the same before it is read.
const SETTLED: u64 = 900;

/// Milliseconds until the next try after a file could not be read.
const RETRY: u64 = 5_000;

/// The content of a watched file.
pub trait FileContent: Default + fmt::Debug + Send + Sync + 'static {
    /// Returns its problems.
    fn reports(&self) -> &[Report];

    /// Returns the reason not to replace the previous content by it, if there is one.
    fn unusable(&self) -> Option<&'static str> {
        None
    }

    /// Returns the number of entries.
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

/// A watched file.
pub trait Follow: fmt::Debug + Send + Sync {
    /// Reads the file for the first time, or again if it has changed. Returns lines for the log.
    fn look(&self, now: Moment) -> Vec<String>;
}

/// The attributes that change with a file's content.
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
}

/// What exists at a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Found {
    Nothing,
    File(Stamp),
}

impl Found {
    fn at(path: &Path) -> io::Result<Self> {
        match std::fs::metadata(path) {
            Ok(metadata) => Ok(Self::File(Stamp::new(&metadata))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::Nothing),
            Err(error) => Err(error),
        }
    }
}

/// The state of watching.
#[derive(Debug)]
struct Watch {
    /// Whether the first read has been tried.
    has_begun: bool,
    /// The state that was read last, usable or not; `None` if the first read failed. A state that could not be read is not
    /// recorded.
    read: Option<Found>,
    /// A changed state, and when it was first seen.
    pending: Option<(Found, Moment)>,
    /// Whether the log says that the file cannot be read.
    is_failing: bool,
    /// The earliest time of the next try.
    retry_at: Moment,
}

impl Watch {
    /// Notes a failed read. Returns a line for the log if it is the first one.
    fn fail(&mut self, now: Moment, reason: &str) -> Option<String> {
        self.retry_at = now.after(RETRY);
        let was_failing = std::mem::replace(&mut self.is_failing, true);
        (!was_failing)
            .then(|| format!("{reason}; going on with what was read before, and trying again"))
    }
}

/// The reason why a changed file does not replace the previous content.
enum Failure {
    /// It vanished between two steps.
    Vanished,
    /// It could not be read to its end.
    Unreadable(String),
    /// It was read, but is not usable.
    Unfit(Stamp, &'static str),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::NotFound {
            Self::Vanished
        } else {
            Self::Unreadable(format!("the file cannot be read: {error}"))
        }
    }
}

type Open = fn(&Path) -> io::Result<BufReader<File>>;
type Parse<T> = Box<dyn Fn(&Path, &mut dyn BufRead) -> T + Send + Sync>;
type Failed<T> = fn(Report) -> T;

/// A file's last usable content.
pub struct WatchedFile<T> {
    file: PathBuf,
    open: Open,
    failed: Failed<T>,
    parse: Parse<T>,
    current: RwLock<Arc<T>>,
    watch: Mutex<Watch>,
}

impl<T: FileContent> WatchedFile<T> {
    /// Reads the file for the first time; the content's reports list its problems.
    pub fn new(
        file: &Path,
        failed: fn(Report) -> T,
        parse: impl Fn(&Path, &mut dyn BufRead) -> T + Send + Sync + 'static,
    ) -> Self {
        let followed = Self::later(file, failed, parse);
        followed.read_first(&mut followed.watch.lock());
        followed
    }

    /// Does not read the file yet; the first [`look`](Follow::look) does. Until then the content is the default.
    pub fn later(
        file: &Path,
        failed: fn(Report) -> T,
        parse: impl Fn(&Path, &mut dyn BufRead) -> T + Send + Sync + 'static,
    ) -> Self {
        Self {
            file: file.to_owned(),
            open: lines::open,
            failed,
            parse: Box::new(parse),
            current: RwLock::default(),
            watch: Mutex::new(Watch {
                has_begun: false,
                read: None,
                pending: None,
                is_failing: false,
                retry_at: Moment::default(),
            }),
        }
    }

    fn read_first(&self, watch: &mut Watch) {
        watch.has_begun = true;
        // Take the stamp first, so that a change during the read is noticed later.
        let found = Found::at(&self.file).ok();
        let (content, read) = match (self.open)(&self.file) {
            Ok(reader) => {
                let mut reader = Watched::new(reader);
                let content = (self.parse)(&self.file, &mut reader);
                (content, found.filter(|_| reader.error.is_none()))
            }
            Err(error) => {
                let is_missing = error.kind() == io::ErrorKind::NotFound;
                let content = (self.failed)(of_error(&self.file, &error));
                (content, is_missing.then_some(Found::Nothing))
            }
        };
        watch.read = read;
        watch.is_failing = read.is_none();
        *self.current.write() = Arc::new(content);
    }

    /// Returns the content.
    pub fn get(&self) -> Arc<T> {
        Arc::clone(&self.current.read())
    }

    /// Calls `look_up` with the content, which is not replaced meanwhile.
    pub fn with<R>(&self, look_up: impl FnOnce(&T) -> R) -> R {
        look_up(&self.current.read())
    }

    /// Reads the file again; fails unless all of it is readable.
    fn read(&self) -> Result<(Stamp, T), Failure> {
        let reader = (self.open)(&self.file)?;
        let before = Stamp::new(&reader.get_ref().metadata()?);
        let mut reader = Watched::new(reader);
        let content = (self.parse)(&self.file, &mut reader);
        if let Some(error) = reader.error {
            return Err(error.into());
        }
        let after = Stamp::new(&reader.inner.get_ref().metadata()?);
        if before != after || Found::at(&self.file)? != Found::File(after) {
            let reason = "the file changes while it is read";
            return Err(Failure::Unreadable(reason.to_owned()));
        }
        let unfit = |reason| Err(Failure::Unfit(after, reason));
        if reader.length == 0 {
            return unfit("it is empty (to drop everything, leave a comment in it)");
        }
        let last_line = reader.line_feeds + 1;
        let last_is_bad = content
            .reports()
            .iter()
            .any(|report| report.line == Some(last_line));
        if reader.last != Some(b'\n') && last_is_bad {
            return unfit("it ends within a line");
        }
        let mut reports = content.reports().iter();
        if reports.any(|report| matches!(report.problem, Problem::Unreadable { .. })) {
            return unfit("it, or a line of it, is too long");
        }
        match content.unusable() {
            Some(reason) => unfit(reason),
            None => Ok((after, content)),
        }
    }

    /// Does the work of a look. Returns lines without the file's name.
    fn follow(&self, watch: &mut Watch, now: Moment) -> Vec<String> {
        let found = match Found::at(&self.file) {
            Ok(found) => found,
            Err(error) => {
                let reason = format!("the file cannot be read: {error}");
                return Vec::from_iter(watch.fail(now, &reason));
            }
        };
        if watch.read == Some(found) {
            watch.pending = None;
            let was_failing = std::mem::take(&mut watch.is_failing);
            let line = "the file can be read again and has not changed";
            return Vec::from_iter(was_failing.then(|| line.to_owned()));
        }
        let since = match watch.pending {
            Some((pending, since)) if pending == found => since,
            _ => {
                watch.pending = Some((found, now));
                return Vec::new();
            }
        };
        if now.since(since) < SETTLED || now < watch.retry_at {
            return Vec::new();
        }
        let (read, lines) = match found {
            Found::Nothing => {
                let line = "the file is gone; going on with what was read before";
                (Found::Nothing, vec![line.to_owned()])
            }
            Found::File(_) => match self.read() {
                Ok((stamp, content)) => {
                    let what = if watch.is_failing {
                        "can be read again"
                    } else {
                        "has changed and was read again"
                    };
                    let mut lines = vec![format!("the file {what}: {} entries", content.count())];
                    lines.extend(content.reports().iter().map(ToString::to_string));
                    *self.current.write() = Arc::new(content);
                    (Found::File(stamp), lines)
                }
                Err(Failure::Unfit(stamp, reason)) => {
                    let line = format!(
                        "the file has changed, but {reason}; going on with what was read before"
                    );
                    (Found::File(stamp), vec![line])
                }
                Err(Failure::Vanished) => {
                    watch.pending = Some((Found::Nothing, now));
                    return Vec::new();
                }
                Err(Failure::Unreadable(reason)) => {
                    return Vec::from_iter(watch.fail(now, &reason));
                }
            },
        };
        *watch = Watch {
            has_begun: true,
            read: Some(read),
            pending: None,
            is_failing: false,
            retry_at: Moment::default(),
        };
        lines
    }
}

impl WatchedFile<Hosts> {
    /// Watches an acm_hosts file.
    pub fn hosts(file: &Path) -> Self {
        let failed = |report: Report| Hosts::unread(report.named_by("addr_data_file"));
        Self::new(file, failed, |file, reader| Hosts::parse(file, reader))
    }
}

impl WatchedFile<Routes> {
    /// Watches a dump; the first look reads it for the port with that GUID and base LID.
    pub fn routes(file: &Path, guid: u64, base_lid: Lid) -> Self {
        let failed = |report: Report| Routes::unread(report.named_by("route_data_file"));
        Self::later(file, failed, move |file, reader| {
            Routes::parse(file, reader, guid, base_lid)
        })
    }
}

impl<T: FileContent> Follow for WatchedFile<T> {
    fn look(&self, now: Moment) -> Vec<String> {
        // Several threads may watch one file; the others look again later.
        let Some(mut watch) = self.watch.try_lock() else {
            return Vec::new();
        };
        if !watch.has_begun {
            self.read_first(&mut watch);
            return self
                .with(|content| content.reports().iter().map(ToString::to_string).collect());
        }
        let mut lines = self.follow(&mut watch, now);
        // The other lines, reports, name the file themselves.
        if let Some(line) = lines.first_mut() {
            let name = shown(self.file.as_os_str().as_encoded_bytes());
            *line = format!("{name}: {line}");
        }
        lines
    }
}

impl<T: fmt::Debug> fmt::Debug for WatchedFile<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchedFile")
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

/// A reader that notes how a file ended.
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
                    let copy = error.raw_os_error().map(io::Error::from_raw_os_error);
                    self.error = Some(copy.unwrap_or_else(|| error.kind().into()));
                }
                Err(error)
            }
        }
    }

    fn consume(&mut self, count: usize) {
        if let Ok(chunk) = self.inner.fill_buf() {
            let used = &chunk[..count.min(chunk.len())];
            self.length += used.len() as u64;
            self.line_feeds += memchr::memchr_iter(b'\n', used).count() as u64;
            self.last = used.last().copied().or(self.last);
        }
        self.inner.consume(count);
    }
}

#[cfg(test)]
mod tests;
