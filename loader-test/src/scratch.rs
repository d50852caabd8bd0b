//! Temporary folders that the next run removes if their owner was killed.
//!
//! A process that ends in order removes its folder itself. SIGKILL leaves it behind, and nobody may remove it by its age or by a
//! pid, which another process may have got. So the owner holds a lock on a file in the folder, see flock(2), which the kernel
//! drops with the last process that has it. The first folder that a process makes removes all folders beside it whose lock
//! nobody holds. Only folders of the same user are looked at, and no symbolic link is followed: the place may be shared.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Once;

use rustix::fs::{CWD, FileType, FlockOperation, Mode, OFlags, flock, fstat, openat};
use rustix::process::geteuid;
use tempfile::TempDir;

/// The beginning of all names.
const PREFIX: &str = "loader-test-";
/// The file whose lock says that the folder has an owner.
const LOCK: &str = ".owner";
/// A place in memory, which is much quicker.
const IN_MEMORY: &str = "/dev/shm";

/// A temporary folder. It goes when this is dropped, or, after SIGKILL, with the next run.
#[derive(Debug)]
pub struct Scratch {
    folder: TempDir,
    /// Held until the folder is gone.
    _lock: File,
}

impl Scratch {
    /// Makes a folder in the place for temporary files. `what` stands in its name.
    ///
    /// # Errors
    /// If it cannot be made; the error names the place.
    pub fn new(what: &str) -> io::Result<Self> {
        Self::new_in(&std::env::temp_dir(), what)
    }

    /// Makes a folder for small files that live shortly: in memory if the system has a place for that, unless the user wants
    /// temporary files elsewhere.
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

    /// Leaves the folder to the user: nobody removes it.
    pub fn keep(mut self) -> PathBuf {
        self.folder.disable_cleanup(true);
        // Without it the folder is none of ours any more.
        let _ = fs::remove_file(self.path().join(LOCK));
        self.path().to_owned()
    }
}

/// Locks a folder's file. It gets its name when it is locked: without a lock it would be taken for abandoned.
fn own(folder: &Path) -> io::Result<File> {
    let lock = tempfile::Builder::new().tempfile_in(folder)?;
    flock(lock.as_file(), FlockOperation::NonBlockingLockExclusive)?;
    Ok(lock.persist(folder.join(LOCK))?)
}

/// Removes the folders in a place whose owner is gone. Nothing depends on it: what cannot be removed stays.
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

/// The lock of a folder of this user that nobody else has.
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
    // Another one may have removed it since it was opened, and the folder's name may be in use again.
    let is_ours = found.st_uid == own && found.st_nlink == 1;
    let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
    (is_ours && is_file).then(|| File::from(lock))
}

/// Removes a folder, the lock's file last: who is killed in between leaves it abandoned again.
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
        // It follows no link when it removes.
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
