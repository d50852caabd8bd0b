//! The cases and figures of the bench.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::stand_in::bare::{GUIDS, LIDS};

/// Number of hosts in the preloaded dump.
pub const DUMP_HOSTS: u32 = 1600;

/// A case, measured in its own process.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Case {
    /// Hits by LID
    Lid,
    /// Hits by GID, misses, and the close of a full cache
    Gid,
    /// Hits by name
    Name,
    /// Hits by IPv4 address
    Ip,
    /// Hits by kernel requests, with service ids
    Kernel,
    /// Requests for twice as many destinations as the cache holds
    Churn,
    /// Hits on one thread, SA responses on another
    Threads,
    /// Hits while the cache is flushed
    Flush,
    /// Opening with a dump of paths
    Preload,
}

impl Case {
    /// Returns its name on the command line and in the results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lid => "lid",
            Self::Gid => "gid",
            Self::Name => "name",
            Self::Ip => "ip",
            Self::Kernel => "kernel",
            Self::Churn => "churn",
            Self::Threads => "threads",
            Self::Flush => "flush",
            Self::Preload => "preload",
        }
    }

    /// Returns the maximum sensible number of destinations.
    pub fn most(self) -> u32 {
        match self {
            Self::Lid | Self::Name | Self::Ip | Self::Kernel | Self::Churn => LIDS,
            // Misses need as many further destinations.
            Self::Gid | Self::Threads | Self::Flush => GUIDS / 2,
            Self::Preload => DUMP_HOSTS,
        }
    }

    /// Returns the requested sizes that a run measures.
    pub fn sizes(self, asked: &[u32]) -> Vec<u32> {
        if self == Self::Preload {
            return vec![DUMP_HOSTS];
        }
        let mut sizes: Vec<u32> = asked
            .iter()
            .copied()
            .filter(|size| *size <= self.most())
            .collect();
        sizes.dedup();
        sizes
    }
}

/// Whether the documentation page shows a figure of a case; the terminal and JSON show all.
pub fn is_on_page(case: Case, figure: &Figure) -> bool {
    match figure.name {
        "hit-p50" | "miss-p99" | "rss" => false,
        "cold" | "used" => matches!(case, Case::Lid | Case::Gid),
        _ => true,
    }
}

/// A figure: its name in the results, its unit, and its meaning. Smaller is always better.
pub struct Figure {
    /// Its name.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// Its meaning.
    pub what: &'static str,
}

const fn figure(name: &'static str, unit: &'static str, what: &'static str) -> Figure {
    Figure { name, unit, what }
}

/// All figures, in display order.
pub const FIGURES: &[Figure] = &[
    figure(
        "hit",
        "ns",
        "a request that the cache answers, including the answer; median of batches",
    ),
    figure(
        "hit-p50",
        "ns",
        "median of single hits, less the clock's own time",
    ),
    figure("hit-p99", "ns", "99th percentile of single hits"),
    figure(
        "cold",
        "ns",
        "a request that the SA answers at once, while the cache fills",
    ),
    figure(
        "miss-p50",
        "ns",
        "median of single misses beside a full cache",
    ),
    figure("miss-p99", "ns", "99th percentile of single misses"),
    figure(
        "one-percent-misses",
        "ns",
        "a request, of which one in a hundred misses",
    ),
    figure(
        "churn",
        "ns",
        "a request for one of twice as many destinations as the cache holds",
    ),
    figure(
        "churn-queries",
        "per request",
        "SA queries per such request",
    ),
    figure(
        "pause",
        "us",
        "longest time of a request while the cache was flushed",
    ),
    figure("quiet-pause", "us", "the same for as long without a flush"),
    figure("rss", "bytes", "growth of resident memory per destination"),
    figure(
        "used",
        "bytes",
        "growth of allocated and mapped memory per destination",
    ),
    figure("open", "us", "all callbacks that open an empty cache"),
    figure("close", "us", "all callbacks that close a full cache"),
    figure(
        "ready",
        "ms",
        "from the first callback until a path of the dump is answered",
    ),
    figure("held", "ms", "the longest callback meanwhile"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_fit_the_case() {
        let asked = [1000, 49_000, 1_000_000];
        assert_eq!(Case::Lid.sizes(&asked), [1000, 49_000]);
        assert_eq!(Case::Gid.sizes(&asked), asked);
        assert_eq!(Case::Preload.sizes(&asked), [DUMP_HOSTS]);
        assert_eq!(Case::Name.sizes(&[50_000]), [0; 0]);
    }

    #[test]
    fn the_name_of_a_case_is_the_command_lines_and_the_results() {
        for case in Case::value_variants() {
            assert_eq!(Case::from_str(case.name(), false), Ok(*case));
            assert_eq!(serde_json::to_value(case).unwrap(), case.name());
        }
    }
}
