//! What a run found, as JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::case::Case;
use super::numbers::Summary;

/// The version of this form; it changes when a field changes its meaning or goes.
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
    /// What the kernel does about huge pages.
    pub huge_pages: String,
    /// Whether the program was built with optimizations: figures of another build say nothing.
    pub optimized: bool,
    /// Rounds, in each of which every contestant ran once.
    pub rounds: usize,
    /// Who was measured, in the order of the table; the reference of all ratios is `reference`.
    pub contestants: Vec<Contestant>,
    /// The name of the contestant that ratios are held against.
    pub reference: String,
    /// What was measured.
    pub cells: Vec<Cell>,
    /// What disturbed the run.
    pub noise: Noise,
}

/// A provider that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Contestant {
    /// What the table calls it.
    pub name: String,
    /// Its library.
    pub library: String,
    /// What it is there for.
    pub role: Role,
}

/// What a contestant is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// It is measured.
    Measured,
    /// It is compared with.
    Compared,
    /// Answers by array index.
    Limit,
    /// Answers without looking anything up: what the core costs.
    Core,
}

/// A contestant in a case of a size.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cell {
    /// The case.
    pub case: Case,
    /// How many destinations.
    pub destinations: u32,
    /// The contestant's name.
    pub contestant: String,
    /// The figures, by name (see `figures` of the documentation); units are nanoseconds, microseconds, milliseconds, bytes.
    pub figures: BTreeMap<String, Summary>,
    /// How many times smaller than the reference's each figure is.
    pub ratios: BTreeMap<String, f64>,
    /// Requests that were made, in all rounds.
    pub requests: u64,
    /// Answers that were not the path that was asked for.
    pub wrong: u64,
    /// What it cannot do, or why a figure is missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

/// What disturbed a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Noise {
    /// Involuntary context switches of the measuring threads, a second.
    pub switches_per_second: f64,
    /// The largest part of the processors' time that a hypervisor took during a measurement.
    pub stolen: f64,
    /// Whether threads were bound to processors.
    pub pinned: bool,
    /// Why figures of this run are not to be trusted; empty if nothing was found.
    pub verdict: Vec<String>,
}

/// What a child found out: one contestant, one case, one size, one round.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Found {
    /// The figures.
    pub figures: BTreeMap<String, f64>,
    /// Requests that were made.
    pub requests: u64,
    /// Wrong answers.
    pub wrong: u64,
    /// What it cannot do.
    pub remarks: Vec<String>,
    /// Involuntary context switches.
    pub switches: u64,
    /// The part of the processors' time that was stolen.
    pub stolen: f64,
    /// How long it measured, in seconds.
    pub seconds: f64,
    /// Whether its thread was bound to a processor.
    pub pinned: bool,
}
