//! The stock provider's options that concern paths and names, for every provider that has the engine: one reading and one
//! description of each, so that an operator's file means the same to all.

use std::path::PathBuf;
use std::time::Duration;

use super::engine::QosSetting;
use crate::text::options::Options;

/// Descriptions of the options that [`StockSettings`] reads, for [`Provider::OPTIONS`](crate::Provider::OPTIONS).
pub mod described {
    use crate::text::options::OptionInfo;

    /// `addr_data_file`
    pub const ADDR_DATA_FILE: OptionInfo = OptionInfo::new(
        "addr_data_file",
        "path",
        "",
        "/etc/rdma/ibacm_hosts.data",
        "the acm_hosts file; changes are followed",
    );
    /// `addr_preload`
    pub const ADDR_PRELOAD: OptionInfo = OptionInfo::new(
        "addr_preload",
        "none|acm_hosts",
        "",
        "none",
        "names and IP addresses that are known without asking",
    );
    /// `addr_timeout`
    pub const ADDR_TIMEOUT: OptionInfo = OptionInfo::new(
        "addr_timeout",
        "minutes",
        "min",
        "1440",
        "how long an address, and the path to it, is kept, -1 for ever",
    );
    /// `loopback_prot`
    pub const LOOPBACK_PROT: OptionInfo = OptionInfo::new(
        "loopback_prot",
        "none|local",
        "",
        "local",
        "whether own addresses are answered without asking",
    );
    /// `path_cache_qos`, `mcast_sa_qos`: a provider's own name for it
    #[must_use]
    pub const fn qos(key: &'static str) -> OptionInfo {
        OptionInfo::new(
            key,
            "auto|on|off",
            "",
            "auto",
            "whether service id and QoS class choose a path; auto asks the SA",
        )
    }
    /// `retries`
    pub const RETRIES: OptionInfo =
        OptionInfo::new("retries", "number", "", "2", "further tries of a question");
    /// `route_data_file`
    pub const ROUTE_DATA_FILE: OptionInfo = OptionInfo::new(
        "route_data_file",
        "path",
        "",
        "/etc/rdma/ibacm_route.data",
        "the dump of OpenSM's dump_pr plugin; changes are followed",
    );
    /// `route_preload`
    pub const ROUTE_PRELOAD: OptionInfo = OptionInfo::new(
        "route_preload",
        "none|opensm_full_v1",
        "",
        "none",
        "paths that are known without asking",
    );
    /// `route_timeout`
    pub const ROUTE_TIMEOUT: OptionInfo = OptionInfo::new(
        "route_timeout",
        "minutes",
        "min",
        "-1",
        "how long a path is kept, -1 for ever; the smaller of the two counts",
    );
    /// `sa_depth`
    pub const SA_DEPTH: OptionInfo = OptionInfo::new(
        "sa_depth",
        "number",
        "MADs",
        "1",
        "queries of a port that the core sends at a time",
    );
    /// `timeout`
    pub const TIMEOUT: OptionInfo = OptionInfo::new(
        "timeout",
        "number",
        "ms",
        "2000",
        "one try of a question; a client waits timeout x (retries + 1) for each",
    );
}

/// Reads the option that says whether service id and QoS class choose a path, under the provider's own name for it.
#[must_use]
pub fn qos(options: &Options, key: &str) -> QosSetting {
    let words = [
        ("auto", QosSetting::Auto),
        ("on", QosSetting::On),
        ("off", QosSetting::Off),
    ];
    options.choice(key, QosSetting::Auto, &words)
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

impl LookupLimits {
    /// Enough for every LID of a large fabric to be asked for at once.
    pub const DEFAULT_LOOKUPS: usize = 49_152;
    /// Well above the core's 1022 clients; the kernel is one of them and can have many requests under way.
    pub const DEFAULT_WAITERS: usize = 16_384;

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

impl StockSettings {
    /// Reads them. What is out of range is [reported](Options::reports), and the default holds.
    #[must_use]
    pub fn read(options: &Options) -> Self {
        let address_ttl = options.minutes("addr_timeout", Some(Duration::from_mins(1440)));
        let route_ttl = options.minutes("route_timeout", None);
        // The core's own, which bounds its MADs by the same values.
        let lookups = LookupLimits {
            timeout: Duration::from_millis(options.number("timeout", 2_000, 1..=HOUR)),
            retries: options.number("retries", 2, 0..=255),
            lookups: LookupLimits::DEFAULT_LOOKUPS,
            waiters: LookupLimits::DEFAULT_WAITERS,
        };
        // The SDK reads it for itself; here a value out of range is reported.
        options.number("sa_depth", 1, 1..=65_535_usize);
        let preloaded = |key, word, file, default: &str| {
            let words = [("none", false), ("no", false), (word, true)];
            let file = options.path(file, default);
            options.choice(key, false, &words).then_some(file)
        };
        Self {
            address_ttl,
            path_ttl: [address_ttl, route_ttl].into_iter().flatten().min(),
            lookups,
            answers_own_addresses: options.choice(
                "loopback_prot",
                true,
                &[("none", false), ("local", true)],
            ),
            hosts_file: preloaded(
                "addr_preload",
                "acm_hosts",
                "addr_data_file",
                "/etc/rdma/ibacm_hosts.data",
            ),
            routes_file: preloaded(
                "route_preload",
                "opensm_full_v1",
                "route_data_file",
                "/etc/rdma/ibacm_route.data",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_what_is_described() {
        let options = Options::parse("", &b""[..]);
        let settings = StockSettings::read(&options);
        let described = [
            described::ADDR_DATA_FILE,
            described::ADDR_PRELOAD,
            described::ADDR_TIMEOUT,
            described::LOOPBACK_PROT,
            described::RETRIES,
            described::ROUTE_DATA_FILE,
            described::ROUTE_PRELOAD,
            described::ROUTE_TIMEOUT,
            described::SA_DEPTH,
            described::TIMEOUT,
        ];
        let keys: Vec<&str> = described.iter().map(|info| info.key.as_str()).collect();
        assert_eq!(options.asked(), keys);
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
