//! Native libraries that are looked up at run time, because a distribution may lack them.

use std::ffi::c_void;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::error::{Cause, Error, Result};

/// What is known of a library before it is loaded.
#[derive(Debug)]
pub struct Kind {
    /// The file by which the dynamic loader finds the system's own.
    pub file: &'static str,
    /// What is being done while it is loaded, for errors.
    pub operation: &'static str,
    /// What helps where it is missing.
    pub remedy: &'static str,
    /// Whether it is never unloaded: it has made itself known to others, or keeps open what it never closes.
    pub stays: bool,
}

/// A library that stays loaded as long as something of it is in use.
#[derive(Clone, Debug)]
pub struct NativeLibrary {
    library: Arc<Library>,
    kind: &'static Kind,
    /// Its file name, or the path that was given.
    name: String,
    /// Whether a library that the process has preloaded or is linked with may take the place of single functions.
    interposable: bool,
}

impl NativeLibrary {
    /// The system's library, found as the dynamic loader finds it. As for a program that is linked with it, a preloaded
    /// library's functions take precedence.
    pub fn system(kind: &'static Kind) -> Result<Self> {
        Self::load(kind.file.into(), true, kind)
    }

    /// The library in a file, and nothing in its place.
    pub fn in_file(kind: &'static Kind, path: &Path) -> Result<Self> {
        // A bare name would be looked for elsewhere.
        let path = if path.components().count() == 1 {
            Path::new(".").join(path)
        } else {
            path.to_owned()
        };
        Self::load(path, false, kind)
    }

    fn load(path: PathBuf, interposable: bool, kind: &'static Kind) -> Result<Self> {
        let name = path.display().to_string();
        let stays = if kind.stays { libc::RTLD_NODELETE } else { 0 };
        // SAFETY: loading runs the library's constructors; it is one of the distribution's, or the one that the caller
        // names.
        match unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL | stays) } {
            Ok(library) => Ok(Self {
                library: Arc::new(library),
                kind,
                name,
                interposable,
            }),
            Err(error) => {
                let cause = Cause::NoLibrary {
                    library: name.clone(),
                    reason: error.to_string(),
                    remedy: kind.remedy,
                };
                Err(Error::new(kind.operation, &name, cause))
            }
        }
    }

    /// A function, if there is one.
    ///
    /// # Safety
    /// `F` is the type of a pointer to the function of that name. It is not called after the library is dropped.
    pub unsafe fn find<F: Copy>(&self, symbol: &'static str) -> Option<F> {
        if self.interposable
            // SAFETY: the caller's promise.
            && let Ok(function) = unsafe { Library::this().get::<F>(symbol) }
        {
            return Some(*function);
        }
        // SAFETY: the caller's promise.
        unsafe { self.library.get::<F>(symbol) }
            .ok()
            .map(|function| *function)
    }

    /// A function that has to be there.
    ///
    /// # Safety
    /// As for [`find`](Self::find).
    pub unsafe fn get<F: Copy>(&self, symbol: &'static str) -> Result<F> {
        // SAFETY: the caller's promise.
        unsafe { self.find(symbol) }.ok_or_else(|| {
            let cause = Cause::NoSymbol {
                library: self.name.clone(),
                symbol,
                remedy: self.kind.remedy,
            };
            Error::new(self.kind.operation, &self.name, cause)
        })
    }
}

/// Where the library or program that an address is in begins in memory.
pub fn image_of(address: *const c_void) -> Option<NonZero<usize>> {
    // SAFETY: all zero is a value of this struct of pointers.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: the address is only compared, and the information may be written.
    let found = unsafe { libc::dladdr(address, &raw mut info) };
    NonZero::new(info.dli_fbase.addr()).filter(|_| found != 0)
}
