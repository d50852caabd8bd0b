//! Copies of a library, for checks that run in one process: a library is loaded once a process and may read its options
//! only then.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::scratch::Scratch;

/// The library itself for the first options that it meets, and a copy for each other set.
pub struct Copies {
    folder: Scratch,
    known: Mutex<HashMap<Vec<String>, PathBuf>>,
}

impl Copies {
    /// None yet.
    ///
    /// # Errors
    /// If there is no place for them.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            folder: Scratch::new("copies")?,
            known: Mutex::default(),
        })
    }

    /// The file that has met no other options than these.
    ///
    /// # Errors
    /// If the library cannot be copied.
    pub fn with_options(&self, library: &Path, options: Vec<String>) -> io::Result<PathBuf> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(path) = known.get(&options) {
            return Ok(path.clone());
        }
        let path = match known.is_empty() {
            true => library.to_owned(),
            false => self.copy(library)?,
        };
        known.insert(options, path.clone());
        Ok(path)
    }

    /// A copy that nobody has loaded.
    ///
    /// # Errors
    /// If the library cannot be copied.
    pub fn copy(&self, library: &Path) -> io::Result<PathBuf> {
        // What is no regular file is not loaded anyway.
        if !library.symlink_metadata()?.is_file() {
            return Ok(library.to_owned());
        }
        let folder = tempfile::Builder::new()
            .tempdir_in(self.folder.path())?
            .keep();
        let copy = folder.join(library.file_name().unwrap_or_default());
        std::fs::copy(library, &copy)?;
        Ok(copy)
    }
}
