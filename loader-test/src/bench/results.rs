//! The results of a run, as JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::case::Case;
use super::numbers::Summary;

/// The schema version; it changes when a field changes its meaning or is removed.
pub const SCHEMA: u32 = 1;

/// All results of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The processor, from /proc/cpuinfo.
    pub processor: String,
    /// The kernel's release.
    pub kernel: String,
    /// The kernel's setting for huge pages.
    pub huge_pages: String,
    /// Whether the program was built with optimizations: figures of other builds are meaningless.
    pub optimized: bool,
    /// Rounds, in each of which every contestant ran once.
    pub rounds: usize,
    /// The contestants, in table order; `reference` is the reference of all ratios.
    pub contestants: Vec<Contestant>,
    /// The name of the reference contestant.
    pub reference: String,
    /// The cells.
    pub cells: Vec<Cell>,
    /// The disturbances.
    pub noise: Noise,
}

/// A measured provider.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Contestant {
    /// Its name in the table.
    pub name: String,
    /// Its library.
    pub library: String,
    /// Its role.
    pub role: Role,
}

/// The role of a contestant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The measured provider.
    Measured,
    /// A provider for comparison.
    Compared,
    /// Answers by array index.
    Limit,
    /// Answers without a lookup: shows the cost of the core.
    Core,
}

/// A contestant in a case of a size.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cell {
    /// The case.
    pub case: Case,
    /// Number of destinations.
    pub destinations: u32,
    /// The contestant's name.
    pub contestant: String,
    /// The figures, by name (see `figures` of the documentation); units are nanoseconds, microseconds, milliseconds, bytes.
    pub figures: BTreeMap<String, Summary>,
    /// By which factor each figure is smaller than the reference's.
    pub ratios: BTreeMap<String, f64>,
    /// Number of requests in all rounds.
    pub requests: u64,
    /// Number of answers with another path than the requested one.
    pub wrong: u64,
    /// Unsupported cases, and reasons for missing figures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

/// The disturbances of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Noise {
    /// Involuntary context switches of the measuring threads, a second.
    pub switches_per_second: f64,
    /// The largest part of the processors' time that a hypervisor took during a measurement.
    pub stolen: f64,
    /// Whether threads were bound to processors.
    pub pinned: bool,
    /// Reasons not to trust the figures of this run, if any.
    pub verdict: Vec<String>,
}

/// A child's result: one contestant, one case, one size, one round.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Found {
    /// The figures.
    pub figures: BTreeMap<String, f64>,
    /// Number of requests.
    pub requests: u64,
    /// Wrong answers.
    pub wrong: u64,
    /// Unsupported cases.
    pub remarks: Vec<String>,
    /// Involuntary context switches.
    pub switches: u64,
    /// Stolen part of the processors' time.
    pub stolen: f64,
    /// Measuring time, in seconds.
    pub seconds: f64,
    /// Whether its thread was bound to a processor.
    pub pinned: bool,
}
