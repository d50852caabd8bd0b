//! The options that path-cache reads from ibacm_opts.cfg.

use acm_prov_api::cache::engine::{RenewalSetting, SnapshotSetting};
use acm_prov_api::cache::settings::qos;
use acm_prov_api::options::Options;
use acm_prov_api::policy::PolicySettings;

/// A longer time in milliseconds is surely a typo.
const HOUR: u64 = 3_600_000;
const DAY: u64 = 24 * HOUR;

/// Reads the options.
pub(crate) fn read(options: &Options) -> PolicySettings {
    let mut settings = PolicySettings::read(options);
    let cache = &mut settings.cache;
    cache.store.capacity = options
        .named("path_cache_capacity")
        .unit("answers")
        .help("maximum per endpoint; a full cache evicts one that was not used recently")
        .number(65_536, 1..=16_777_216);
    cache.store.negative_ttl = options
        .named("path_cache_negative_ttl")
        .help("how long the SA's \"no records\" is cached")
        .millis(1_000, 0..=HOUR);
    cache.store.stale_ttl = options
        .named("path_cache_stale_ttl")
        .help("how long paths from before a reregistration may replace those of a silent SA")
        .millis(600_000, 0..=DAY);
    cache.flush_file = options
        .named("path_cache_flush_file")
        .help("touch it to drop everything cached")
        .optional_path();
    cache.qos = qos(options, "path_cache_qos");
    cache.renewal = RenewalSetting::at(
        options
            .named("path_cache_renew")
            .unit("queries/s")
            .help("rate at which a port renews paths in use; 0 renews only those of a snapshot, 10 a second")
            .number(0, 0..=1_000),
    );
    let directory = options
        .named("path_cache_snapshot")
        .help("directory for the paths that survive a restart of the daemon")
        .optional_path();
    let interval = options
        .named("path_cache_snapshot_interval")
        .help("minimum time between two writes of a snapshot")
        .seconds(60, 1..=DAY / 1_000);
    let max_age = options
        .named("path_cache_snapshot_age")
        .help("maximum age of a snapshot that is used")
        .seconds(3_600, 1..=DAY / 1_000);
    cache.snapshot = directory.map(|directory| SnapshotSetting {
        directory,
        interval,
        max_age,
    });
    options.report_unknown("path_cache_");
    settings
}
