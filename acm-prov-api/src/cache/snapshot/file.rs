//! The files of snapshots: one per port, in a directory of the daemon.

use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags};
use rustix::process::geteuid;

/// An error of reading or writing a file.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {reason}", path = path.display())]
pub struct FileError {
    /// The file or directory.
    pub path: PathBuf,
    /// The problem.
    pub reason: FileProblem,
}

/// A problem with a file or directory.
#[derive(Debug, thiserror::Error)]
pub enum FileProblem {
    /// A system call failed.
    #[error("cannot be {0}: {1}")]
    Io(&'static str, io::Error),
    /// It is not a regular file, or not a directory.
    #[error("is a link or a special file")]
    Kind,
    /// Another user can write to it.
    #[error("belongs to another user, or others can write to it")]
    NotOurs,
    /// Larger than any snapshot.
    #[error("is larger than {0} bytes")]
    TooLarge(u64),
}

/// Returns the file of the port with that GUID.
#[must_use]
pub fn path(directory: &Path, guid: u64) -> PathBuf {
    directory.join(format!("paths-{guid:016x}"))
}

/// Reads a file of at most `limit` bytes; `None` if it does not exist.
///
/// # Errors
/// If it cannot be read, is not a regular file, belongs to another user, or is writable by others.
pub fn read(file: &Path, limit: u64) -> Result<Option<Vec<u8>>, FileError> {
    let failed = |reason| FileError {
        path: file.to_owned(),
        reason,
    };
    // NONBLOCK: opening a FIFO must not block the thread.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = match rustix::fs::open(file, flags, Mode::empty()) {
        Ok(opened) => File::from(opened),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(rustix::io::Errno::LOOP) => return Err(failed(FileProblem::Kind)),
        Err(error) => return Err(failed(FileProblem::Io("opened", error.into()))),
    };
    let reading = |error| failed(FileProblem::Io("read", error));
    let metadata = opened.metadata().map_err(reading)?;
    if !metadata.is_file() || metadata.nlink() != 1 {
        return Err(failed(FileProblem::Kind));
    }
    if !is_ours(&metadata) {
        return Err(failed(FileProblem::NotOurs));
    }
    let mut bytes = Vec::new();
    opened
        .take(limit.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(reading)?;
    if bytes.len() as u64 > limit {
        return Err(failed(FileProblem::TooLarge(limit)));
    }
    Ok(Some(bytes))
}

/// Replaces a file by `bytes`, atomically. Creates a missing directory with mode 0700.
///
/// # Errors
/// If a call fails, or the directory is a link, belongs to another user, or is writable by others.
pub fn write(file: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let failed = |path: &Path, reason| FileError {
        path: path.to_owned(),
        reason,
    };
    let directory = file.parent().unwrap_or(Path::new("."));
    let opened = open_directory(directory).map_err(|reason| failed(directory, reason))?;
    // Another daemon with the same port GUID would use the same temporary file. On a file system without locks two daemons
    // may damage it; the checksums show that.
    let _ = rustix::fs::flock(&opened, FlockOperation::LockExclusive);
    let name = file.file_name().unwrap_or_default();
    let mut temporary = name.to_owned();
    temporary.push(".new");
    let writing = |error: io::Error| failed(file, FileProblem::Io("written", error));
    // A killed daemon may have left one.
    match rustix::fs::unlinkat(&opened, &temporary, AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => {}
        Err(error) => return Err(writing(error.into())),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    let created = rustix::fs::openat(&opened, &temporary, flags, mode)
        .map_err(|error| writing(error.into()))?;
    let mut created = File::from(created);
    let done = created
        .write_all(bytes)
        .and_then(|()| created.sync_all())
        .and_then(|()| Ok(rustix::fs::renameat(&opened, &temporary, &opened, name)?))
        .and_then(|()| Ok(rustix::fs::fsync(&opened)?));
    if done.is_err() {
        // If this fails, the next write removes it.
        let _ = rustix::fs::unlinkat(&opened, &temporary, AtFlags::empty());
    }
    done.map_err(writing)
}

fn open_directory(directory: &Path) -> Result<rustix::fd::OwnedFd, FileProblem> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(FileProblem::Io("created", error));
        }
        _ => {}
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = match rustix::fs::openat(CWD, directory, flags, Mode::empty()) {
        Ok(opened) => File::from(opened),
        Err(rustix::io::Errno::LOOP | rustix::io::Errno::NOTDIR) => {
            return Err(FileProblem::Kind);
        }
        Err(error) => return Err(FileProblem::Io("opened", error.into())),
    };
    let metadata = opened
        .metadata()
        .map_err(|error| FileProblem::Io("read", error))?;
    if is_ours(&metadata) {
        Ok(opened.into())
    } else {
        Err(FileProblem::NotOurs)
    }
}

/// Whether it belongs to the daemon's user, and no other user can write to it.
fn is_ours(metadata: &std::fs::Metadata) -> bool {
    metadata.uid() == geteuid().as_raw() && metadata.mode() & 0o022 == 0
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    fn text<T: std::fmt::Debug>(result: Result<T, FileError>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn what_is_written_is_read_and_replaced() {
        let folder = folder();
        let file = path(&folder.path().join("ibacm"), 0x12);
        assert!(file.ends_with("ibacm/paths-0000000000000012"));
        assert_eq!(read(&file, 100).unwrap(), None);
        for text in [&b"first"[..], b"second"] {
            write(&file, text).unwrap();
            assert_eq!(read(&file, 6).unwrap().unwrap(), text);
        }
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        assert_eq!(mode(&file), 0o600);
        assert_eq!(mode(file.parent().unwrap()), 0o700);
        let names = fs::read_dir(file.parent().unwrap()).unwrap();
        assert_eq!(names.count(), 1, "no temporary file is left");
        assert!(text(read(&file, 5)).ends_with("is larger than 5 bytes"));
    }

    #[test]
    fn what_a_killed_daemon_left_is_in_nobodys_way() {
        let folder = folder();
        let file = folder.path().join("paths");
        let elsewhere = folder.path().join("elsewhere");
        symlink(&elsewhere, folder.path().join("paths.new")).unwrap();
        write(&file, b"text").unwrap();
        assert_eq!(read(&file, 100).unwrap().unwrap(), b"text");
        assert!(!elsewhere.exists());
    }

    #[test]
    fn two_daemons_that_write_one_file_leave_it_whole() {
        let folder = folder();
        let file = path(folder.path(), 0x12);
        let texts = [b'a', b'b'].map(|byte| vec![byte; 1 << 18]);
        std::thread::scope(|scope| {
            for text in &texts {
                scope.spawn(|| (0..100).for_each(|_| write(&file, text).unwrap()));
            }
            for _ in 0..100 {
                if let Some(bytes) = read(&file, 1 << 20).unwrap_or_default() {
                    assert!(texts.contains(&bytes), "{} bytes", bytes.len());
                }
            }
        });
        assert!(texts.contains(&read(&file, 1 << 20).unwrap().unwrap()));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_others_can_make_is_refused() {
        let folder = folder();
        let file = folder.path().join("paths");
        write(&file, b"text").unwrap();
        let link = folder.path().join("link");
        symlink(&file, &link).unwrap();
        assert!(text(read(&link, 100)).ends_with("is a link or a special file"));
        fs::set_permissions(&file, Permissions::from_mode(0o620)).unwrap();
        assert!(text(read(&file, 100)).contains("others can write to it"));
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        fs::hard_link(&file, folder.path().join("second")).unwrap();
        assert!(text(read(&file, 100)).ends_with("is a link or a special file"));
        assert!(text(read(folder.path(), 100)).ends_with("is a link or a special file"));
    }

    #[test]
    fn a_fifo_holds_nobody() {
        let folder = folder();
        let fifo = folder.path().join("fifo");
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert!(text(read(&fifo, 100)).ends_with("is a link or a special file"));
    }

    #[test]
    fn a_directory_that_is_not_the_daemons_is_refused() {
        let folder = folder();
        let (open, link) = (folder.path().join("open"), folder.path().join("link"));
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, Permissions::from_mode(0o777)).unwrap();
        assert!(text(write(&open.join("paths"), b"")).contains("others can write to it"));
        symlink(&open, &link).unwrap();
        assert!(text(write(&link.join("paths"), b"")).ends_with("is a link or a special file"));
        let nowhere = folder.path().join("no/where/paths");
        assert!(text(write(&nowhere, b"")).contains("cannot be created: No such file"));
    }
}
