//! The stock provider's options for paths and names. Every provider with the engine reads them here, so that an operator's
//! file means the same to all.

use std::path::PathBuf;
use std::time::Duration;

use super::engine::QosSetting;
use super::store::StoreLimits;
use crate::lookups::Limits;
use crate::text::options::{NamedOption, Options};

/// Reads the option that says whether service id and QoS class affect a path, under the provider's own name for it.
#[must_use]
pub fn qos(options: &Options, name: &str) -> QosSetting {
    options
        .named(name)
        .help("whether service id and QoS class affect a path; auto asks the SA")
        .choice(
            QosSetting::Auto,
            &[
                ("auto", QosSetting::Auto),
                ("on", QosSetting::On),
                ("off", QosSetting::Off),
            ],
        )
}

/// How long clients wait, and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookupLimits {
    /// The timeout of one try of a query (option `timeout`), in whole milliseconds.
    pub timeout: Duration,
    /// Retries of a query (option `retries`). A request is answered within timeout × (retries + 1).
    pub retries: u32,
    /// The most lookups at a time.
    pub lookups: usize,
    /// The most waiting requests at a time.
    pub waiters: usize,
}

impl Default for LookupLimits {
    /// The stock provider's times.
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(2),
            retries: 2,
            lookups: Self::DEFAULT_LOOKUPS,
            waiters: Self::DEFAULT_WAITERS,
        }
    }
}

impl LookupLimits {
    /// Enough for every unicast LID of a subnet at once.
    pub const DEFAULT_LOOKUPS: usize = Limits::DEFAULT_LOOKUPS;
    /// Well above the core's 1022 clients: one of them is the kernel, which can have many outstanding requests.
    pub const DEFAULT_WAITERS: usize = Limits::DEFAULT_WAITERS;

    /// Returns the time from a request's arrival to its deadline.
    #[must_use]
    pub const fn patience(&self) -> Duration {
        self.timeout.saturating_mul(self.retries.saturating_add(1))
    }
}

/// An hour, in milliseconds. A longer wait is surely a mistake.
const HOUR: u64 = 3_600_000;

/// The operator's settings from the stock provider's options.
#[derive(Clone, Debug)]
pub struct StockSettings {
    /// How long an address is cached; `None` is forever.
    pub address_ttl: Option<Duration>,
    /// How long a path is cached, no longer than its address; `None` is forever.
    pub path_ttl: Option<Duration>,
    /// How long clients wait, and how many.
    pub lookups: LookupLimits,
    /// Whether requests for own addresses are answered without the SA (`loopback_prot local`).
    pub answers_own_addresses: bool,
    /// The acm_hosts file, if it is enabled.
    pub hosts_file: Option<PathBuf>,
    /// The OpenSM dump, if it is enabled.
    pub routes_file: Option<PathBuf>,
}

impl Default for StockSettings {
    /// The settings without an options file.
    fn default() -> Self {
        Self::read(&Options::none())
    }
}

impl From<&StockSettings> for LookupLimits {
    fn from(stock: &StockSettings) -> Self {
        stock.lookups
    }
}

impl From<&StockSettings> for StoreLimits {
    fn from(stock: &StockSettings) -> Self {
        Self {
            ttl: stock.path_ttl,
            ..Self::default()
        }
    }
}

impl StockSettings {
    /// Reads the options. A value out of range is [reported](Options::reports), and the default is used.
    #[must_use]
    pub fn read(options: &Options) -> Self {
        let address_ttl = options
            .named("addr_timeout")
            .help("how long an address, and the path to it, is kept; -1 for ever")
            .minutes(Some(Duration::from_secs(1440 * 60)));
        let route_ttl = options
            .named("route_timeout")
            .help("how long a path is kept, -1 for ever; the smaller of the two counts")
            .minutes(None);
        // The core reads these options too, and limits its MADs by the same values.
        let lookups = LookupLimits {
            timeout: options
                .named("timeout")
                .help("one try of a query; a request is answered within timeout x (retries + 1)")
                .millis(2_000, 1..=HOUR),
            retries: options
                .named("retries")
                .help("further tries of a query")
                .number(2, 0..=255),
            ..LookupLimits::default()
        };
        // The SDK uses this option elsewhere; reading it here reports a value out of range.
        options
            .named("sa_depth")
            .unit("MADs")
            .help("queries of a port that the core sends at a time")
            .number(1, 1..=65_535_usize);
        Self {
            address_ttl,
            path_ttl: [address_ttl, route_ttl].into_iter().flatten().min(),
            lookups,
            answers_own_addresses: options
                .named("loopback_prot")
                .help("whether own addresses are answered without the SA")
                .choice(true, &[("none", false), ("local", true)]),
            hosts_file: preloaded(
                options
                    .named("addr_data_file")
                    .help("the acm_hosts file: `address GID` a line; changes are followed")
                    .path("/etc/rdma/ibacm_hosts.data"),
                options
                    .named("addr_preload")
                    .help("whether names and IP addresses are read from addr_data_file"),
                "acm_hosts",
            ),
            routes_file: preloaded(
                options
                    .named("route_data_file")
                    .help("the dump of OpenSM's dump_pr plugin; changes are followed")
                    .path("/etc/rdma/ibacm_route.data"),
                options
                    .named("route_preload")
                    .help("whether paths are read from route_data_file"),
                "opensm_full_v1",
            ),
        }
    }
}

/// Returns the file, if the option that enables it says so.
fn preloaded(file: PathBuf, switch: NamedOption<'_>, on: &str) -> Option<PathBuf> {
    switch
        .choice(false, &[("none", false), ("no", false), (on, true)])
        .then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_stocks() {
        let options = Options::parse("", &b""[..]);
        let settings = StockSettings::read(&options);
        assert_eq!(settings.path_ttl, Some(Duration::from_mins(1440)));
        assert_eq!(settings.lookups.patience(), Duration::from_secs(6));
        assert_eq!((settings.hosts_file, settings.routes_file), (None, None));
    }

    #[test]
    fn a_path_is_kept_no_longer_than_its_address() {
        for (text, address, path) in [
            ("addr_timeout -1\nroute_timeout 7\n", None, Some(7)),
            ("addr_timeout 5\nroute_timeout 7\n", Some(5), Some(5)),
            ("addr_timeout -1\n", None, None),
        ] {
            let settings = StockSettings::read(&Options::parse("", text.as_bytes()));
            assert_eq!(
                settings.address_ttl,
                address.map(Duration::from_mins),
                "{text}"
            );
            assert_eq!(settings.path_ttl, path.map(Duration::from_mins), "{text}");
        }
    }
}
