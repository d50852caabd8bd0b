//! Opens a provider's library as the core does.

use std::ffi::{CStr, CString, c_int, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use acm_prov_api::abi::{acm_provider, provider_query_fn};
use acm_prov_api::check;

use super::exports;

/// Why the core would refuse a library.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("{}: {reason}", path.display())]
    NoFile {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// Not a regular file: the core skips it.
    #[error("{}: not a regular file; the core follows no symbolic links", path.display())]
    NotRegular {
        /// The file.
        path: PathBuf,
    },
    /// The core skips files with other names.
    #[error("{}: the name does not end in .so", path.display())]
    NotSo {
        /// The file.
        path: PathBuf,
    },
    /// The loader refused.
    #[error("dlopen: {0}")]
    Dlopen(String),
    /// There is no `provider_query`.
    #[error("the library exports no provider_query")]
    NoQuery,
    /// The core could not be set up: this says nothing about the library.
    #[error("the core cannot be set up: {0}")]
    NoCore(String),
    /// `provider_query` failed, or its table is invalid.
    #[error("{0}")]
    Refused(String),
}

/// An open library.
pub struct Library {
    handle: *mut c_void,
}

impl Library {
    /// Opens a file as the core does: regular, named `.so`, by `dlopen(RTLD_LAZY)`.
    ///
    /// # Errors
    /// Why the core would refuse it.
    pub fn open(path: &Path) -> Result<Self, LoadError> {
        Self::has_right_name(path)?;
        Self::open_by_any_name(path)
    }

    /// Does the same for a file that the core would skip for its name or because it is a link: checks can still judge its
    /// contents.
    ///
    /// # Errors
    /// Why the loader refuses.
    pub fn open_by_any_name(path: &Path) -> Result<Self, LoadError> {
        Self::open_with(path, libc::RTLD_LAZY)
    }

    /// Does the same with RTLD_NOW, which resolves every function at once.
    ///
    /// # Errors
    /// Why the loader refuses, or a function that does not exist.
    pub fn open_now(path: &Path) -> Result<Self, LoadError> {
        Self::open_with(path, libc::RTLD_NOW)
    }

    /// Returns an error if the core would skip the file.
    fn has_right_name(path: &Path) -> Result<(), LoadError> {
        let owned = || path.to_owned();
        let metadata = std::fs::symlink_metadata(path).map_err(|error| LoadError::NoFile {
            path: owned(),
            reason: error.to_string(),
        })?;
        if !metadata.is_file() {
            return Err(LoadError::NotRegular { path: owned() });
        }
        match path.as_os_str().as_bytes().ends_with(b".so") {
            true => Ok(()),
            false => Err(LoadError::NotSo { path: owned() }),
        }
    }

    fn open_with(path: &Path, mode: c_int) -> Result<Self, LoadError> {
        let owned = || path.to_owned();
        // dlopen would search for a name without a slash.
        let absolute = std::path::absolute(path).map_err(|error| LoadError::NoFile {
            path: owned(),
            reason: error.to_string(),
        })?;
        let name =
            CString::new(absolute.as_os_str().as_bytes()).map_err(|error| LoadError::NoFile {
                path: owned(),
                reason: error.to_string(),
            })?;
        let handle = exports::recorded("dlopen", || {
            // SAFETY: a terminated name. The library's constructors run, which is what loading means.
            unsafe { libc::dlopen(name.as_ptr(), mode) }
        });
        if handle.is_null() {
            Err(LoadError::Dlopen(last_error()))
        } else {
            Ok(Self { handle })
        }
    }

    /// Returns the address of an exported symbol.
    pub fn symbol(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: an open handle and a terminated name.
        let address = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        (!address.is_null()).then_some(address)
    }

    /// Calls `provider_query` and judges the result: returns the table, NULL if there is none, and its faults.
    ///
    /// # Errors
    /// If there is no `provider_query`.
    pub fn judge(&self) -> Result<(*const acm_provider, check::Report), LoadError> {
        let query = self.provider_query()?;
        Ok(exports::recorded("provider_query", || {
            // SAFETY: the library is open; its table is a constant of it.
            unsafe { check::judge_query(query) }
        }))
    }

    /// Returns the library's `provider_query`.
    ///
    /// # Errors
    /// If there is none.
    pub fn provider_query(&self) -> Result<provider_query_fn, LoadError> {
        let query = self.symbol(c"provider_query").ok_or(LoadError::NoQuery)?;
        // SAFETY: the symbol of this name is a function of this signature (acm_prov.h).
        Ok(unsafe { std::mem::transmute::<*mut c_void, provider_query_fn>(query) })
    }

    /// Returns the provider's table, if the core would accept it. The library stays open until the process ends, as in the
    /// core.
    ///
    /// # Errors
    /// Why the core would refuse the table, or crash on it.
    pub fn provider(self) -> Result<&'static acm_provider, LoadError> {
        let (table, report) = self.judge()?;
        if !report.is_accepted() || table.is_null() {
            return Err(LoadError::Refused(report.to_string()));
        }
        // SAFETY: accepted, so a table of the right version and size.
        Ok(unsafe { &*table })
    }

    /// Closes the library, as the core does after a refusal.
    pub fn close(self) {
        // SAFETY: our handle, not used afterwards.
        unsafe { libc::dlclose(self.handle) };
    }
}

fn last_error() -> String {
    // SAFETY: NULL or a terminated string that lives until this thread's next dl call.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "no reason given".to_owned();
    }
    // SAFETY: see above.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}
