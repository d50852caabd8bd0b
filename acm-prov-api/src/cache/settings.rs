//! The stock provider's options that concern paths and names, for every provider that has the engine: one reading
//! of each, so that an operator's file means the same to all.

use std::path::PathBuf;
use std::time::Duration;

use super::engine::QosSetting;
use super::store::StoreLimits;
use crate::lookups::Limits;
use crate::text::options::{NamedOption, Options};

/// Reads the option that says whether service id and QoS class choose a path, under the provider's own name for it.
#[must_use]
pub fn qos(options: &Options, name: &str) -> QosSetting {
    options
        .named(name)
        .help("whether service id and QoS class choose a path; auto asks the SA")
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
    /// How long one try of a query takes (option `timeout`), in whole milliseconds.
    pub timeout: Duration,
    /// Further tries (option `retries`). A request is answered within timeout × (retries + 1).
    pub retries: u32,
    /// Most queries looked up at a time.
    pub lookups: usize,
    /// Most requests waiting at a time.
    pub waiters: usize,
}

impl Default for LookupLimits {
    /// Stock's times.
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
    /// Enough for every LID of a large fabric to be asked for at once.
    pub const DEFAULT_LOOKUPS: usize = Limits::DEFAULT_LOOKUPS;
    /// Well above the core's 1022 clients; the kernel is one of them and can have many requests under way.
    pub const DEFAULT_WAITERS: usize = Limits::DEFAULT_WAITERS;

    /// The time from a request's arrival to its deadline.
    #[must_use]
    pub const fn patience(&self) -> Duration {
        self.timeout.saturating_mul(self.retries.saturating_add(1))
    }
}

/// An hour: longer waits in milliseconds are slips of the pen.
const HOUR: u64 = 3_600_000;

/// What an operator has set with the stock provider's options.
#[derive(Clone, Debug)]
pub struct StockSettings {
    /// How long an address is kept; `None` is without end.
    pub address_ttl: Option<Duration>,
    /// How long a path is kept, which is no longer than its address; `None` is without end.
    pub path_ttl: Option<Duration>,
    /// How long clients wait, and how many.
    pub lookups: LookupLimits,
    /// Whether own addresses are answered without asking anybody (`loopback_prot local`).
    pub answers_own_addresses: bool,
    /// The acm_hosts file, if one is to be read.
    pub hosts_file: Option<PathBuf>,
    /// The OpenSM dump, if one is to be read.
    pub routes_file: Option<PathBuf>,
}

impl Default for StockSettings {
    /// What holds without a file of options.
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
    /// Reads them. What is out of range is [reported](Options::reports), and the default holds.
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
        // The core's own, which bounds its MADs by the same values.
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
        // The SDK reads it for itself; here a value out of range is reported.
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

/// The file, if the option that switches it on says so.
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
