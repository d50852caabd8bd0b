//! The operator's settings for a policy's provider.

use std::path::PathBuf;

use crate::cache::engine::CacheSettings;
use crate::cache::settings::StockSettings;
use crate::text::options::Options;

/// The operator's settings for a [`PolicyProvider`](super::PolicyProvider).
#[derive(Clone, Debug)]
pub struct PolicySettings {
    /// Settings of the cache engine.
    pub cache: CacheSettings,
    /// Whether the provider answers requests for the endpoint's own addresses without the SA (`loopback_prot local`).
    pub answers_own_addresses: bool,
    /// The acm_hosts file, if one is to be read.
    pub hosts_file: Option<PathBuf>,
}

impl Default for PolicySettings {
    /// Returns the defaults, which apply without an options file.
    fn default() -> Self {
        StockSettings::default().into()
    }
}

impl From<StockSettings> for PolicySettings {
    fn from(stock: StockSettings) -> Self {
        Self {
            answers_own_addresses: stock.answers_own_addresses,
            hosts_file: stock.hosts_file.clone(),
            cache: stock.into(),
        }
    }
}

impl PolicySettings {
    /// Reads the stock provider's options.
    #[must_use]
    pub fn read(options: &Options) -> Self {
        StockSettings::read(options).into()
    }
}
