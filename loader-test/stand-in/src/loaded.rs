//! A core for a library that an earlier one has loaded.

use acm_prov_api::abi::acm_provider;

use super::{Setup, StandIn, exports};

impl StandIn {
    /// A core for a provider that an earlier core has loaded.
    ///
    /// # Errors
    /// If the core's own files cannot be written.
    pub fn with_loaded(setup: Setup, provider: &'static acm_provider) -> std::io::Result<Self> {
        let (shared, devices) = Self::prepare(setup)?;
        Ok(Self::with_provider(shared, devices, provider))
    }

    /// Ends the core behind the exported functions, and waits for its thread: after
    /// [`install_alone`](Self::install_alone) and loading, no thread is left but those that the library has started.
    pub fn remove_installed() {
        exports::remove();
    }
}
