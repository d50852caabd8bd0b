//! Loads native libraries at run time, because a distribution may lack them.

use std::ffi::{CStr, c_void};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::error::{Cause, Error, Result};

/// A kind of library, as known before it is loaded.
#[derive(Debug)]
pub struct Kind {
    /// File name by which the dynamic loader finds the system's library.
    pub file: &'static str,
    /// Operation to name in errors while the library is loaded.
    pub operation: &'static str,
    /// Remedy if the library is missing.
    pub remedy: &'static str,
    /// Whether to keep it loaded: it registered itself elsewhere, or keeps open what it never closes.
    pub stays: bool,
}

/// A library that stays loaded as long as any part of it is in use.
#[derive(Clone, Debug)]
pub struct NativeLibrary {
    library: Arc<Library>,
    kind: &'static Kind,
    /// Its file name, or the path given by the caller.
    name: String,
    /// Whether a preloaded or linked library may replace single functions.
    interposable: bool,
}

impl NativeLibrary {
    /// Loads the system's library, as the dynamic loader finds it. Functions of a preloaded library take
    /// precedence, as in a program that is linked with it.
    pub fn system(kind: &'static Kind) -> Result<Self> {
        Self::load(kind.file.into(), true, kind)
    }

    /// Loads the library from a file; nothing can replace its functions.
    pub fn in_file(kind: &'static Kind, path: &Path) -> Result<Self> {
        // The loader would search for a bare name elsewhere.
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
        // SAFETY: loading runs the library's constructors; it is the distribution's library, or one that the
        // caller chose.
        match unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL | stays) } {
            Ok(library) => Ok(Self {
                library: Arc::new(library),
                kind,
                name,
                interposable,
            }),
            Err(error) => {
                // libloading wraps the loader's message, so the message is its source.
                let source = std::error::Error::source(&error).map(ToString::to_string);
                let reason = source.unwrap_or_else(|| error.to_string());
                let cause = Cause::NoLibrary {
                    remedy: remedy(kind, &name, &reason),
                    library: name.clone(),
                    reason,
                };
                Err(Error::new(kind.operation, &name, cause))
            }
        }
    }

    /// Looks up a function.
    ///
    /// # Safety
    /// `F` is the pointer type of the function of that name. The caller does not call it after dropping the
    /// library.
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

    /// Looks up a required function.
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

/// Returns the remedy for the dynamic loader's message. A library that exists is not missing: its file may be
/// for another machine, lack a library it needs, or be inaccessible to this process.
fn remedy(kind: &Kind, name: &str, reason: &str) -> &'static str {
    let is_missing = reason.split_once(name).is_some_and(|(_, rest)| {
        rest.starts_with(": cannot open shared object file: No such file")
    });
    if is_missing {
        kind.remedy
    } else {
        "the library exists; fix what the loader reports"
    }
}

/// A library or program in memory.
#[derive(Debug)]
pub struct Image {
    /// Its start address.
    pub start: NonZero<usize>,
    /// Its file.
    pub file: String,
}

/// Returns the library or program that contains an address.
pub fn image_of(address: *const c_void) -> Option<Image> {
    // SAFETY: all zeros is a valid value of this struct of pointers.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: the address is only compared, and `info` is writable.
    let found = unsafe { libc::dladdr(address, &raw mut info) };
    let start = NonZero::new(info.dli_fbase.addr()).filter(|_| found != 0)?;
    let file = NonNull::new(info.dli_fname.cast_mut()).map(|name| {
        // SAFETY: the text lives as long as the image.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) };
        name.to_string_lossy().into_owned()
    });
    Some(Image {
        start,
        file: file.unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    static KIND: Kind = Kind {
        file: "libibumad.so.3",
        operation: "load libibumad",
        remedy: "install it",
        stays: false,
    };

    #[test]
    fn a_library_that_is_there_need_not_be_installed() {
        for (reason, remedied) in [
            (
                "libibumad.so.3: cannot open shared object file: No such file or directory",
                "install it",
            ),
            (
                "libnl-3.so.200: cannot open shared object file: No such file or directory",
                "the library exists",
            ),
            (
                "libibumad.so.3: cannot open shared object file: Too many open files",
                "the library exists",
            ),
            (
                "libibumad.so.3: wrong ELF class: ELFCLASS32",
                "the library exists",
            ),
        ] {
            let remedy = remedy(&KIND, "libibumad.so.3", reason);
            assert!(remedy.starts_with(remedied), "{reason}: {remedy}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "loads a library")]
    fn a_file_that_does_not_load_and_a_missing_file_have_different_remedies() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("libibumad.so.3");
        let error = NativeLibrary::in_file(&KIND, &path).unwrap_err();
        assert!(error.to_string().contains("No such file"), "{error}");
        assert!(error.to_string().ends_with("; install it"), "{error}");
        std::fs::write(&path, "no library").unwrap();
        let error = NativeLibrary::in_file(&KIND, &path).unwrap_err();
        assert!(error.to_string().contains("too short"), "{error}");
        assert!(
            error.to_string().contains("fix what the loader reports"),
            "{error}"
        );
    }
}
