//! The options that path-cache reads from ibacm_opts.cfg.

use acm_prov_api::cache::engine::{RenewalSetting, SnapshotSetting};
use acm_prov_api::cache::settings::qos;
use acm_prov_api::options::Options;
use acm_prov_api::policy::PolicySettings;

/// Longer waits in milliseconds are slips of the pen.
const HOUR: u64 = 3_600_000;
const DAY: u64 = 24 * HOUR;

/// Reads what an operator has set.
pub(crate) fn read(options: &Options) -> PolicySettings {
    let mut settings = PolicySettings::read(options);
    let cache = &mut settings.cache;
    cache.store.capacity = options
        .named("path_cache_capacity")
        .unit("answers")
        .help("kept per endpoint; when full, one not used lately goes")
        .number(65_536, 1..=16_777_216);
    cache.store.negative_ttl = options
        .named("path_cache_negative_ttl")
        .help("how long the SA's \"no records\" is remembered")
        .millis(1_000, 0..=HOUR);
    cache.store.stale_ttl = options
        .named("path_cache_stale_ttl")
        .help("how long older paths stand in for a silent SA")
        .millis(600_000, 0..=DAY);
    cache.flush_file = options
        .named("path_cache_flush_file")
        .help("touch it, and everything cached is dropped")
        .optional_path();
    cache.qos = qos(options, "path_cache_qos");
    cache.renewal = RenewalSetting::at(
        options
            .named("path_cache_renew")
            .unit("queries/s")
            .help("pace at which a port renews paths in use; 0 renews those of a snapshot only, 10 a second")
            .number(0, 0..=1_000),
    );
    let directory = options
        .named("path_cache_snapshot")
        .help("directory in which a port keeps its paths over a restart of the daemon")
        .optional_path();
    let interval = options
        .named("path_cache_snapshot_interval")
        .help("shortest time between two writings of a snapshot")
        .seconds(60, 1..=DAY / 1_000);
    let max_age = options
        .named("path_cache_snapshot_age")
        .help("an older snapshot is not used")
        .seconds(3_600, 1..=DAY / 1_000);
    cache.snapshot = directory.map(|directory| SnapshotSetting {
        directory,
        interval,
        max_age,
    });
    options.report_unknown("path_cache_");
    settings
}
