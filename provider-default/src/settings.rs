//! The options that mcast-sa reads from ibacm_opts.cfg: all of the stock provider's, with its defaults, and one of its own.

use std::time::Duration;

use acm_prov_api::cache::settings::{LookupLimits, StockSettings, qos};
use acm_prov_api::options::Options;
use acm_prov_api::policy::PolicySettings;

use crate::resolver::ResolverLimits;

/// The source of the path to a known address (`route_prot`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RouteProtocol {
    /// The SA.
    Sa,
    /// The record of the group that both ends are members of.
    Acm,
}

/// The options.
#[derive(Debug)]
pub(crate) struct Settings {
    /// Options that every provider has: names, own addresses, the cache.
    pub policy: PolicySettings,
    /// Options of address resolution.
    pub resolver: ResolverLimits,
    /// The source of paths.
    pub route_protocol: RouteProtocol,
    /// Maximum number of posted answers to other nodes.
    pub send_depth: u32,
    /// Number of posted receives.
    pub receive_depth: u32,
    /// MTU code of the shared group.
    pub min_mtu: u8,
    /// Rate code of the shared group.
    pub min_rate: u8,
}

/// How long paths from before a reregistration may replace those of a silent SA. The stock provider uses them
/// without limit.
const STALE: Duration = Duration::from_mins(10);
/// More work requests than any adapter supports.
const DEPTH: u32 = 32_768;

impl Settings {
    pub(crate) fn read(options: &Options) -> Self {
        options
            .named("addr_prot")
            .help("how addresses are resolved: by the ACM multicast protocol")
            .choice((), &[("acm", ())]);
        let stock = StockSettings::read(options);
        let capacity = options
            .named("mcast_sa_capacity")
            .unit("entries")
            .help("maximum number of addresses, and of paths, per endpoint")
            .number(65_536, 1..=16_777_216);
        let resolver = ResolverLimits {
            timeout: u64::try_from(stock.lookups.timeout.as_millis()).unwrap_or(u64::MAX),
            retries: stock.lookups.retries,
            out: options
                .named("resolve_depth")
                .unit("requests")
                .help("address requests in flight, per endpoint")
                .number(1, 1..=DEPTH) as usize,
            waiters: LookupLimits::DEFAULT_WAITERS,
            addresses: capacity,
            ttl: stock
                .address_ttl
                .map(|ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)),
        };
        let route_protocol = options
            .named("route_prot")
            .help("where paths come from: the SA or the group's record")
            .choice(
                RouteProtocol::Sa,
                &[("sa", RouteProtocol::Sa), ("acm", RouteProtocol::Acm)],
            );
        let mut policy = PolicySettings::from(stock);
        policy.cache.store.capacity = capacity;
        policy.cache.store.stale_ttl = STALE;
        // Stock asks again each time.
        policy.cache.store.negative_ttl = Duration::ZERO;
        policy.cache.qos = qos(options, "mcast_sa_qos");
        let settings = Self {
            policy,
            resolver,
            route_protocol,
            send_depth: options
                .named("send_depth")
                .unit("answers")
                .help("answers to other nodes in flight, per endpoint")
                .number(1, 1..=DEPTH),
            receive_depth: options
                .named("recv_depth")
                .unit("receives")
                .help("receives posted, per endpoint")
                .number(1_024, 1..=DEPTH),
            min_mtu: options
                .named("min_mtu")
                .unit("bytes")
                .help("MTU of the shared group, in bytes")
                .choice(4, MTUS),
            min_rate: options
                .named("min_rate")
                .unit("Gb/s")
                .help("rate of the shared group, in Gb/s")
                .choice(3, RATES),
        };
        options.report_unknown("mcast_sa_");
        settings
    }
}

/// Codes of the MTUs that `acm_convert_mtu` knows.
const MTUS: &[(&str, u8)] = &[
    ("256", 1),
    ("512", 2),
    ("1024", 3),
    ("2048", 4),
    ("4096", 5),
];

/// Codes of the rates, in Gb/s, that `acm_convert_rate` knows.
const RATES: &[(&str, u8)] = &[
    ("2", 2),
    ("5", 5),
    ("10", 3),
    ("14", 11),
    ("20", 6),
    ("25", 15),
    ("30", 4),
    ("40", 7),
    ("56", 12),
    ("60", 8),
    ("80", 9),
    ("100", 16),
    ("112", 13),
    ("120", 10),
    ("168", 14),
    ("200", 17),
    ("300", 18),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Settings, Vec<String>) {
        let options = Options::parse("opts", text.as_bytes());
        let settings = Settings::read(&options);
        (
            settings,
            options.reports().iter().map(ToString::to_string).collect(),
        )
    }

    #[test]
    fn defaults_are_stocks() {
        let (settings, reports) = read("");
        assert_eq!(reports, [""; 0]);
        assert_eq!(settings.route_protocol, RouteProtocol::Sa);
        assert!(settings.policy.answers_own_addresses);
        assert_eq!((settings.min_mtu, settings.min_rate), (4, 3));
        assert_eq!((settings.send_depth, settings.receive_depth), (1, 1024));
        let limits = settings.resolver;
        assert_eq!((limits.timeout, limits.retries, limits.out), (2000, 2, 1));
        assert_eq!(limits.ttl, Some(1440 * 60_000));
        assert_eq!(
            (
                settings.policy.hosts_file,
                settings.policy.cache.routes_file
            ),
            (None, None)
        );
    }

    #[test]
    fn every_option_takes_effect() {
        let (settings, reports) = read(
            "addr_prot acm\naddr_timeout -1\nroute_prot ACM\nroute_timeout 7\nloopback_prot none\ntimeout 500\n\
             retries 15\nresolve_depth 4\nsend_depth 5\nrecv_depth 6\nmin_mtu 4096\nmin_rate 100\n\
             route_preload opensm_full_v1\nroute_data_file /r\naddr_preload acm_hosts\naddr_data_file /h\n\
             mcast_sa_capacity 9\n",
        );
        assert_eq!(reports, [""; 0]);
        assert_eq!(settings.route_protocol, RouteProtocol::Acm);
        assert!(!settings.policy.answers_own_addresses);
        assert_eq!((settings.min_mtu, settings.min_rate), (5, 16));
        assert_eq!((settings.send_depth, settings.receive_depth), (5, 6));
        let limits = settings.resolver;
        assert_eq!((limits.timeout, limits.retries, limits.out), (500, 15, 4));
        assert_eq!((limits.ttl, limits.addresses), (None, 9));
        assert_eq!(
            settings.policy.cache.store.ttl,
            Some(Duration::from_mins(7))
        );
        assert_eq!(settings.policy.hosts_file, Some("/h".into()));
        assert_eq!(settings.policy.cache.routes_file, Some("/r".into()));
    }

    /// The file that `ib_acme -O` writes, including the core's options, sets the defaults.
    #[test]
    fn the_sample_that_ib_acme_writes_changes_nothing() {
        let (sample, reports) = read(
            "# comment\nlog_file /var/log/ibacm.log\nlog_level 0\numad_debug_level 0\nlock_file /run/ibacm.pid\n\
             addr_prot acm\naddr_timeout 1440\nroute_prot sa\nroute_timeout -1\nloopback_prot local\n\
             server_port 6125\nserver_mode unix\nacme_plus_kernel_only no\ntimeout 2000\nretries 2\n\
             resolve_depth 1\nsa_depth 1\nsend_depth 1\nrecv_depth 1024\nmin_mtu 2048\nmin_rate 10\n\
             route_preload none\naddr_preload none\n",
        );
        assert_eq!(reports, [""; 0]);
        assert_eq!(format!("{sample:?}"), format!("{:?}", read("").0));
    }

    /// Fault 26: `retries -1`, `resolve_depth 0`, `retries abc`.
    #[test]
    fn values_out_of_range_are_reported_and_replaced() {
        let (settings, reports) =
            read("retries -1\nresolve_depth 0\nmin_rate 11\nsend_depth many\n");
        assert_eq!((settings.resolver.retries, settings.resolver.out), (2, 1));
        assert_eq!((settings.min_rate, settings.send_depth), (3, 1));
        assert_eq!(reports.len(), 4, "{reports:?}");
        assert!(reports[0].contains("retries -1"), "{reports:?}");
    }

    /// Fault 36: an unknown value silently ignored.
    #[test]
    fn an_unknown_word_is_reported() {
        let (_, reports) = read("addr_prot sa\nroute_preload osm_full_v1\nmcast_sa_capcity 3\n");
        assert_eq!(reports.len(), 3, "{reports:?}");
        assert!(
            reports[0].contains("addr_prot sa: not one of acm"),
            "{reports:?}"
        );
        assert!(
            reports[2].contains("known are mcast_sa_capacity"),
            "{reports:?}"
        );
    }
}
