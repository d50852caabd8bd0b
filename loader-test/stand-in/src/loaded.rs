//! A core for a library that an earlier one has loaded.

use std::path::Path;

use acm_prov_api::abi::acm_provider;

use super::library::{Library, LoadError};
use super::{Setup, StandIn, exports};

impl StandIn {
    /// Loads a provider, and ends the core that it met while it was loaded: of this process no thread is left but what the
    /// library itself has started. What is loaded stays loaded, in copies of the process too.
    ///
    /// # Errors
    /// Why the library is not accepted, or that the core's own files cannot be written.
    pub fn preload(setup: Setup, library: &Path) -> Result<&'static acm_provider, LoadError> {
        let (shared, _devices) =
            Self::prepare(setup).map_err(|error| LoadError::NoCore(error.to_string()))?;
        let provider = Library::open(library).and_then(Library::provider);
        drop(shared);
        exports::remove();
        provider
    }

    /// A core for a provider that [`preload`](Self::preload) has loaded.
    ///
    /// # Errors
    /// If the core's own files cannot be written.
    pub fn with_loaded(setup: Setup, provider: &'static acm_provider) -> std::io::Result<Self> {
        let (shared, devices) = Self::prepare(setup)?;
        Ok(Self::with_provider(shared, devices, provider))
    }
}
