//! Temporary folders that the next run removes if their owner was killed.
//!
//! A process that ends normally removes its folder. SIGKILL leaves the folder behind. Neither its age nor a pid, which may have
//! been reused, proves that it is abandoned. So the owner holds a lock on a file in the folder, see flock(2), which the kernel
//! releases with the last process that has it. When a process creates its first folder, it removes all unlocked folders beside
//! it. The place may be shared: only folders of the same user count, and symbolic links are not followed.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Once;

use rustix::fs::{CWD, FileType, FlockOperation, Mode, OFlags, flock, fstat, openat};
use rustix::process::geteuid;
use tempfile::TempDir;

/// Prefix of all names.
const PREFIX: &str = "loader-test-";
/// The file whose lock says that the folder has an owner.
const LOCK: &str = ".owner";
/// A memory file system, which is much faster.
const IN_MEMORY: &str = "/dev/shm";

/// A temporary folder. Dropping it removes the folder; after SIGKILL the next run does.
#[derive(Debug)]
pub struct Scratch {
    folder: TempDir,
    /// Held until the folder is removed.
    _lock: File,
}

impl Scratch {
    /// Creates a folder in the place for temporary files. `what` is part of its name.
    ///
    /// # Errors
    /// If it cannot be created; the error names the place.
    pub fn new(what: &str) -> io::Result<Self> {
        Self::new_in(&std::env::temp_dir(), what)
    }

    /// Creates a folder for small, short-lived files: in memory if possible, unless the user chose another place for temporary
    /// files.
    ///
    /// # Errors
    /// As [`Scratch::new`].
    pub fn small(what: &str) -> io::Result<Self> {
        if std::env::var_os("TMPDIR").is_none()
            && let Ok(folder) = Self::new_in(Path::new(IN_MEMORY), what)
        {
            return Ok(folder);
        }
        Self::new(what)
    }

    fn new_in(place: &Path, what: &str) -> io::Result<Self> {
        static FIRST: Once = Once::new();
        FIRST.call_once(|| {
            remove_abandoned(&std::env::temp_dir());
            remove_abandoned(Path::new(IN_MEMORY));
        });
        let named = |error: io::Error| {
            let text = format!("make a folder in {}: {error}", place.display());
            io::Error::new(error.kind(), text)
        };
        let prefix = format!("{PREFIX}{what}-");
        let folder = tempfile::Builder::new().prefix(&prefix).tempdir_in(place);
        let folder = folder.map_err(named)?;
        let lock = own(folder.path()).map_err(named)?;
        Ok(Self {
            folder,
            _lock: lock,
        })
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Leaves the folder to the user: no run removes it.
    pub fn keep(mut self) -> PathBuf {
        self.folder.disable_cleanup(true);
        // Without the lock file no run takes the folder for one of its own.
        let _ = fs::remove_file(self.path().join(LOCK));
        self.path().to_owned()
    }
}

/// Creates the lock file under its name only once it is locked: another run would remove a folder without a lock.
fn own(folder: &Path) -> io::Result<File> {
    let lock = tempfile::Builder::new().tempfile_in(folder)?;
    flock(lock.as_file(), FlockOperation::NonBlockingLockExclusive)?;
    Ok(lock.persist(folder.join(LOCK))?)
}

/// Removes the folders in a place whose owner has ended. Ignores errors: a folder may stay.
fn remove_abandoned(place: &Path) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if name.as_encoded_bytes().starts_with(PREFIX.as_bytes())
            && let Some(_lock) = abandoned(&entry.path())
        {
            let _ = remove(&entry.path());
        }
    }
}

/// Locks a folder of this user, if no process holds the lock.
fn abandoned(folder: &Path) -> Option<File> {
    let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let directory = flags | OFlags::DIRECTORY | OFlags::RDONLY;
    let directory = File::from(openat(CWD, folder, directory, Mode::empty()).ok()?);
    let own = geteuid().as_raw();
    if directory.metadata().ok()?.uid() != own {
        return None;
    }
    let lock = openat(&directory, LOCK, flags | OFlags::RDONLY, Mode::empty()).ok()?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive).ok()?;
    let found = fstat(&lock).ok()?;
    // Another process may have removed it since it was opened, and the folder's name may be in use again.
    let is_ours = found.st_uid == own && found.st_nlink == 1;
    let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
    (is_ours && is_file).then(|| File::from(lock))
}

/// Removes a folder, the lock file last: if this process is killed in between, the next run removes the rest.
fn remove(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else if entry.file_name() != LOCK {
            fs::remove_file(entry.path())?;
        }
    }
    fs::remove_file(folder.join(LOCK))?;
    fs::remove_dir(folder)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A folder as a process leaves it that was killed.
    fn left_behind(place: &Path) -> PathBuf {
        let scratch = Scratch::new_in(place, "test").unwrap();
        let path = scratch.path().to_owned();
        let Scratch { folder, _lock } = scratch;
        let _ = folder.keep();
        fs::create_dir(path.join("check-1")).unwrap();
        fs::write(path.join("check-1/log"), "a line").unwrap();
        path
    }

    #[test]
    fn what_a_killed_owner_left_is_removed_and_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path();
        let used = Scratch::new_in(place, "test").unwrap();
        let kept = Scratch::new_in(place, "test").unwrap().keep();
        let without_lock = place.join("loader-test-by-hand");
        fs::create_dir(&without_lock).unwrap();
        let of_others = left_behind(place);
        let elsewhere = place.join("of-somebody");
        fs::rename(&of_others, &elsewhere).unwrap();
        symlink(&elsewhere, &of_others).unwrap();
        let abandoned = left_behind(place);
        // The removal follows no symbolic link.
        symlink(&elsewhere, abandoned.join("link")).unwrap();

        remove_abandoned(place);
        assert!(!abandoned.exists());
        for path in [used.path(), &kept, &without_lock, &elsewhere, &of_others] {
            assert!(path.exists(), "{}", path.display());
        }
        assert!(elsewhere.join("check-1/log").exists());
        let path = used.path().to_owned();
        drop(used);
        assert!(!path.exists());
    }

    #[test]
    fn a_lock_that_is_a_link_or_a_pipe_marks_no_folder_as_abandoned() {
        let place = tempfile::tempdir().unwrap();
        let victim = place.path().join("victim");
        fs::write(&victim, "").unwrap();
        let [link, second_name] = [(); 2].map(|()| left_behind(place.path()));
        for folder in [&link, &second_name] {
            fs::remove_file(folder.join(LOCK)).unwrap();
        }
        symlink(&victim, link.join(LOCK)).unwrap();
        fs::hard_link(&victim, second_name.join(LOCK)).unwrap();
        remove_abandoned(place.path());
        assert!(link.exists() && second_name.exists() && victim.exists());
    }
}
