//! Native libraries that are looked up at run time, because a distribution may lack them.

use std::ffi::c_void;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::error::{Cause, Error, Result};

/// A library that stays loaded as long as something of it is in use.
#[derive(Clone, Debug)]
pub struct NativeLibrary {
    library: Arc<Library>,
    name: String,
    /// Whether a library that the process has preloaded or is linked with may take the place of single functions.
    interposable: bool,
    remedy: &'static str,
}

impl NativeLibrary {
    /// The system's library of that name, found as the dynamic loader finds it. As for a program that is linked with
    /// it, a preloaded library's functions take precedence.
    pub fn system(name: &str, operation: &'static str, remedy: &'static str) -> Result<Self> {
        Self::load(name.into(), true, operation, remedy)
    }

    /// The library in a file, and nothing in its place.
    pub fn in_file(path: &Path, operation: &'static str, remedy: &'static str) -> Result<Self> {
        // A bare name would be looked for elsewhere.
        let path = if path.components().count() == 1 {
            Path::new(".").join(path)
        } else {
            path.to_owned()
        };
        Self::load(path, false, operation, remedy)
    }

    fn load(
        path: PathBuf,
        interposable: bool,
        operation: &'static str,
        remedy: &'static str,
    ) -> Result<Self> {
        let name = path.display().to_string();
        // SAFETY: loading runs the library's constructors; it is one of the distribution's, or the one that the caller
        // names.
        match unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) } {
            Ok(library) => Ok(Self {
                library: Arc::new(library),
                name,
                interposable,
                remedy,
            }),
            Err(error) => {
                let reason = error.to_string();
                Err(Error::new(
                    operation,
                    &name,
                    Cause::NoLibrary {
                        library: name.clone(),
                        reason,
                        remedy,
                    },
                ))
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
    pub unsafe fn get<F: Copy>(&self, operation: &'static str, symbol: &'static str) -> Result<F> {
        // SAFETY: the caller's promise.
        unsafe { self.find(symbol) }.ok_or_else(|| {
            let cause = Cause::NoSymbol {
                library: self.name.clone(),
                symbol,
                remedy: self.remedy,
            };
            Error::new(operation, &self.name, cause)
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
