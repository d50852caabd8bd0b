//! What is measured.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::stand_in::bare::{GUIDS, LIDS};

/// Hosts of the dump that is preloaded.
pub const DUMP_HOSTS: u32 = 1600;

/// One thing that is measured, in a process of its own.
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
    /// Hits of requests as the kernel makes them, with service ids
    Kernel,
    /// Requests for twice as many destinations as the cache holds
    Churn,
    /// Hits on one thread, SA answers on another
    Threads,
    /// Hits while the cache is flushed
    Flush,
    /// Opening with a dump of paths
    Preload,
}

impl Case {
    /// Its name, as the command line and the results have it.
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

    /// The most destinations that it makes sense for.
    pub fn most(self) -> u32 {
        match self {
            Self::Lid | Self::Name | Self::Ip | Self::Kernel | Self::Churn => LIDS,
            // Misses need as many others.
            Self::Gid | Self::Threads | Self::Flush => GUIDS / 2,
            Self::Preload => DUMP_HOSTS,
        }
    }

    /// The sizes of it that a run measures, of those that were asked for.
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

/// Whether a figure of a case is on a page for people; a terminal and JSON have all of them.
pub fn is_on_page(case: Case, figure: &Figure) -> bool {
    match figure.name {
        "hit-p50" | "miss-p99" | "rss" => false,
        "cold" | "used" => matches!(case, Case::Lid | Case::Gid),
        _ => true,
    }
}

/// What a figure is: its name in the results, its unit, and what it says. Smaller is better in all of them.
pub struct Figure {
    /// Its name.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// What it is.
    pub what: &'static str,
}

const fn figure(name: &'static str, unit: &'static str, what: &'static str) -> Figure {
    Figure { name, unit, what }
}

/// All figures, in the order in which they are shown.
pub const FIGURES: &[Figure] = &[
    figure(
        "hit",
        "ns",
        "a request that the cache answers, the answer included; median of batches",
    ),
    figure(
        "hit-p50",
        "ns",
        "median of single hits, the clock's own time taken off",
    ),
    figure("hit-p99", "ns", "99th percentile of single hits"),
    figure(
        "cold",
        "ns",
        "a request that the SA answers, while the cache fills; the SA answers at once",
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
        "a request of which one in a hundred misses",
    ),
    figure(
        "churn",
        "ns",
        "a request for one of twice as many destinations as the cache holds",
    ),
    figure(
        "churn-queries",
        "per request",
        "SA queries of such a request",
    ),
    figure(
        "pause",
        "us",
        "the longest that a request held its thread while the cache was flushed",
    ),
    figure("quiet-pause", "us", "the same for as long without a flush"),
    figure(
        "rss",
        "bytes",
        "growth of the resident memory by destination",
    ),
    figure(
        "used",
        "bytes",
        "growth of allocated and mapped memory by destination",
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
