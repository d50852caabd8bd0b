//! The options that path-cache reads from ibacm_opts.cfg.

use std::time::Duration;

use acm_prov_api::cache::engine::{CacheSettings, RenewalSetting, SnapshotSetting};
use acm_prov_api::cache::settings::{StockSettings, described, qos};
use acm_prov_api::cache::store::StoreLimits;
use acm_prov_api::options::OptionInfo;
use acm_prov_api::options::Options;

/// What an operator has set.
pub(crate) struct Settings {
    /// For the engine.
    pub cache: CacheSettings,
    /// What path-cache shares with the stock provider.
    pub stock: StockSettings,
}

/// The options, for those who ask the library what it knows.
pub(crate) const OPTIONS: &[OptionInfo] = &[
    described::ADDR_DATA_FILE,
    described::ADDR_PRELOAD,
    described::ADDR_TIMEOUT,
    described::LOOPBACK_PROT,
    OptionInfo::new(
        "path_cache_capacity",
        "number",
        "answers",
        "65536",
        "kept per endpoint; when full, one not used lately goes",
    ),
    OptionInfo::new(
        "path_cache_flush_file",
        "path",
        "",
        "none",
        "touch it, and everything cached is dropped",
    ),
    OptionInfo::new(
        "path_cache_negative_ttl",
        "number",
        "ms",
        "1000",
        "how long the SA's \"no records\" is remembered",
    ),
    described::qos("path_cache_qos"),
    OptionInfo::new(
        "path_cache_renew",
        "number",
        "queries/s",
        "0",
        "pace at which a port renews paths in use; 0 renews those of a snapshot only, 10 a second",
    ),
    OptionInfo::new(
        "path_cache_snapshot",
        "directory",
        "",
        "none",
        "where a port keeps its paths over a restart of the daemon",
    ),
    OptionInfo::new(
        "path_cache_snapshot_age",
        "number",
        "s",
        "3600",
        "an older snapshot is not used",
    ),
    OptionInfo::new(
        "path_cache_snapshot_interval",
        "number",
        "s",
        "60",
        "shortest time between two writings of a snapshot",
    ),
    OptionInfo::new(
        "path_cache_stale_ttl",
        "number",
        "ms",
        "600000",
        "how long older paths stand in for a silent SA",
    ),
    described::RETRIES,
    described::ROUTE_DATA_FILE,
    described::ROUTE_PRELOAD,
    described::ROUTE_TIMEOUT,
    described::SA_DEPTH,
    described::TIMEOUT,
];

/// Longer waits in milliseconds are slips of the pen.
const HOUR: u64 = 3_600_000;
const DAY: u64 = 24 * HOUR;

impl Settings {
    pub(crate) fn read(options: &Options) -> Self {
        let stock = StockSettings::read(options);
        let millis =
            |key, default, most| Duration::from_millis(options.number(key, default, 0..=most));
        let store = StoreLimits {
            capacity: options.number("path_cache_capacity", 65_536, 1..=16_777_216),
            ttl: stock.path_ttl,
            stale_ttl: millis("path_cache_stale_ttl", 600_000, DAY),
            negative_ttl: millis("path_cache_negative_ttl", 1_000, HOUR),
        };
        let seconds =
            |key, default, range| Duration::from_secs(options.number(key, default, range));
        let interval = seconds("path_cache_snapshot_interval", 60, 1..=DAY / 1_000);
        let max_age = seconds("path_cache_snapshot_age", 3_600, 1..=DAY / 1_000);
        let snapshot = options.optional_path("path_cache_snapshot");
        let cache = CacheSettings {
            store,
            lookups: stock.lookups,
            flush_file: options.optional_path("path_cache_flush_file"),
            routes_file: stock.routes_file.clone(),
            qos: qos(options, "path_cache_qos"),
            renewal: RenewalSetting::at(options.number("path_cache_renew", 0, 0..=1_000)),
            snapshot: snapshot.map(|directory| SnapshotSetting {
                directory,
                interval,
                max_age,
            }),
        };
        options.report_unknown("path_cache_");
        Self { cache, stock }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_that_are_read_are_those_that_are_told() {
        let options = Options::parse("", &b""[..]);
        Settings::read(&options);
        let told: Vec<&str> = OPTIONS.iter().map(|option| option.key.as_str()).collect();
        assert_eq!(options.asked(), told);
    }
}
