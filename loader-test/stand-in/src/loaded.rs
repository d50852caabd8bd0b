//! A new core for a library that an earlier core loaded.

use acm_prov_api::abi::acm_provider;

use super::{Setup, StandIn, exports};

impl StandIn {
    /// Starts a core for a provider that an earlier core loaded.
    ///
    /// # Errors
    /// If the core's own files cannot be written.
    pub fn with_loaded(setup: Setup, provider: &'static acm_provider) -> std::io::Result<Self> {
        let (shared, devices) = Self::prepare(setup)?;
        Ok(Self::with_provider(shared, devices, provider))
    }

    /// Ends the core behind the exported functions, and waits for its thread. After [`install_alone`](Self::install_alone) and a
    /// load, all remaining threads belong to the library.
    pub fn remove_installed() {
        exports::remove();
    }
}
