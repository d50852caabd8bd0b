//! The options that path-cache reads from ibacm_opts.cfg.

use std::path::PathBuf;
use std::time::Duration;

use acm_prov_api::cache::engine::CacheSettings;
use acm_prov_api::cache::lookups::LookupLimits;
use acm_prov_api::cache::store::StoreLimits;
use acm_prov_api::introspection::OptionInfo;
use acm_prov_api::options::Options;

/// What an operator has set.
pub(crate) struct Settings {
    /// For the engine.
    pub cache: CacheSettings,
    /// Whether the port's own addresses are answered without the SA (`loopback_prot local`).
    pub answers_own_addresses: bool,
    /// The acm_hosts file, if one is to be read.
    pub hosts_file: Option<PathBuf>,
}

/// The options, for those who ask the library what it knows.
pub(crate) const OPTIONS: &[OptionInfo] = &[
    OptionInfo::new(
        "addr_data_file",
        "path",
        "",
        "/etc/rdma/ibacm_hosts.data",
        "the acm_hosts file",
    ),
    OptionInfo::new(
        "addr_preload",
        "none|acm_hosts",
        "",
        "none",
        "where names and IP addresses are read from",
    ),
    OptionInfo::new(
        "addr_timeout",
        "minutes",
        "min",
        "1440",
        "how long a path is kept, -1 for ever; the smaller counts",
    ),
    OptionInfo::new(
        "loopback_prot",
        "none|local",
        "",
        "local",
        "whether own addresses are answered without the SA",
    ),
    OptionInfo::new(
        "path_cache_capacity",
        "number",
        "answers",
        "65536",
        "kept an endpoint; the least recently used goes",
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
    OptionInfo::new(
        "path_cache_stale_ttl",
        "number",
        "ms",
        "600000",
        "how long older paths stand in for a silent SA",
    ),
    OptionInfo::new("retries", "number", "", "2", "further tries of a query"),
    OptionInfo::new(
        "route_data_file",
        "path",
        "",
        "/etc/rdma/ibacm_route.data",
        "the dump of OpenSM's dump_pr plugin",
    ),
    OptionInfo::new(
        "route_preload",
        "none|opensm_full_v1",
        "",
        "none",
        "paths that are known without asking",
    ),
    OptionInfo::new(
        "route_timeout",
        "minutes",
        "min",
        "-1",
        "how long a path is kept, -1 for ever; the smaller counts",
    ),
    OptionInfo::new(
        "sa_depth",
        "number",
        "MADs",
        "1",
        "queries of a port that the core sends at a time",
    ),
    OptionInfo::new(
        "timeout",
        "number",
        "ms",
        "2000",
        "one try of a query; a request waits timeout x (retries + 1)",
    ),
];

/// An hour: longer waits in milliseconds are slips of the pen.
const HOUR: u64 = 3_600_000;
const DAY: u64 = 24 * HOUR;

impl Settings {
    pub(crate) fn read(options: &Options) -> Self {
        let addr_timeout = options.minutes("addr_timeout", Some(Duration::from_mins(1440)));
        let route_timeout = options.minutes("route_timeout", None);
        let store = StoreLimits {
            capacity: options.number("path_cache_capacity", 65_536, 1..=16_777_216),
            ttl: [addr_timeout, route_timeout]
                .into_iter()
                .flatten()
                .min()
                .map(millis),
            stale_ttl: options.number("path_cache_stale_ttl", 600_000, 0..=DAY),
            negative_ttl: options.number("path_cache_negative_ttl", 1_000, 0..=HOUR),
        };
        // The first three are the core's own: it bounds its MADs by the same values.
        let lookups = LookupLimits {
            timeout: options.number("timeout", 2_000, 1..=HOUR),
            retries: options.number("retries", 2, 0..=255),
            out: options.number("sa_depth", 1, 1..=65_535_usize) + 1,
            lookups: LookupLimits::DEFAULT_LOOKUPS,
            waiters: LookupLimits::DEFAULT_WAITERS,
        };
        let reads_routes = options.choice(
            "route_preload",
            false,
            &[("none", false), ("no", false), ("opensm_full_v1", true)],
        );
        let routes_file = options.path("route_data_file", "/etc/rdma/ibacm_route.data");
        let cache = CacheSettings {
            store,
            lookups,
            flush_file: options.optional_path("path_cache_flush_file"),
            routes_file: reads_routes.then_some(routes_file),
        };
        let answers_own_addresses =
            options.choice("loopback_prot", true, &[("none", false), ("local", true)]);
        let reads_hosts = options.choice(
            "addr_preload",
            false,
            &[("none", false), ("no", false), ("acm_hosts", true)],
        );
        let hosts_file = options.path("addr_data_file", "/etc/rdma/ibacm_hosts.data");
        options.report_unknown("path_cache_");
        Self {
            cache,
            answers_own_addresses,
            hosts_file: reads_hosts.then_some(hosts_file),
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
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
