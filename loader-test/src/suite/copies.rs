//! Copies of a library, for checks that run in one process: a process loads a library once, and the library may read its
//! options only then.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::scratch::Scratch;

/// The library for the first set of options, and a copy for each further set.
pub struct Copies {
    folder: Scratch,
    known: Mutex<HashMap<Vec<String>, PathBuf>>,
}

impl Copies {
    /// Returns an empty set.
    ///
    /// # Errors
    /// If no folder can be created.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            folder: Scratch::new("copies")?,
            known: Mutex::default(),
        })
    }

    /// Returns the file that has been used only with these options.
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

    /// Returns a copy that this process has not loaded.
    ///
    /// # Errors
    /// If the library cannot be copied.
    pub fn copy(&self, library: &Path) -> io::Result<PathBuf> {
        // The core loads only regular files.
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
