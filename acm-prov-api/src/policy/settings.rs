//! What an operator can set of a policy's provider.

use std::path::PathBuf;

use crate::cache::engine::CacheSettings;
use crate::cache::settings::StockSettings;
use crate::text::options::Options;

/// What a policy's provider is told by its operator.
#[derive(Clone, Debug)]
pub struct PolicySettings {
    /// For the cache engine.
    pub cache: CacheSettings,
    /// Whether own addresses are answered without asking the SA (`loopback_prot local`).
    pub answers_own_addresses: bool,
    /// The acm_hosts file, if one is to be read.
    pub hosts_file: Option<PathBuf>,
}

impl Default for PolicySettings {
    /// What holds without a file of options.
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
    /// Reads stock's options.
    #[must_use]
    pub fn read(options: &Options) -> Self {
        StockSettings::read(options).into()
    }
}
