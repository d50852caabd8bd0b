//! Random sequences of calls, datagrams and faults, as [`sequence`](crate::stand_in::sequence) defines them. A failing
//! sequence is shrunk to the shortest that still fails, and written to a file for replay.
//!
//! One process loads the library and forks, so that a crash ends one copy only. A copy plays a few sequences, one after the
//! other. A failing sequence is played again alone, to find out whether it depends on the sequences before it.

mod fork;
mod growth;
mod orders;
mod part;
mod pool;
mod report;
mod round;
mod search;
mod shrink;
mod stage;

use std::io;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use fastrand::Rng;

use super::ability::Ability;
use super::cli::exists;
use super::fault::NO_FAULT;
use super::fixture::Fixture;
use super::lines::OptionLines;
use super::progress::{self, sayln};
use super::run::{self, Plan};
use super::{Check, Finding, Outcome, cannot_run};
use crate::scratch::Scratch;
use crate::stand_in::ledger::Harmed;
use orders::{ORDERS, Orders, RESULTS, ReplayFile, Results, Task};
use pool::Pool;
use search::Search;
use stage::Stage;

/// The process that plays sequences, as a check: the run's folder holds its orders.
pub(super) const FUZZ: Check = Check {
    name: "fuzz",
    rule: "whatever the core, clients and the SA do, every request is answered once and nothing is damaged",
    harmed: Harmed::Daemon,
    how: "plays a random sequence of calls, datagrams and faults",
    needs: &[Ability::OpensPort],
    run: serve,
    fault: NO_FAULT,
};

/// Concurrent sequences per processor: most of them wait for a deadline.
const JOBS_A_PROCESSOR: usize = 40;
/// Extra time for the process, which waits for sequences that hang.
const GRACE: Duration = Duration::from_secs(120);

/// Plays random sequences of calls, of datagrams from other nodes, and of faults to a provider.
///
/// Stops at the first failure, shrinks its sequence, and writes it to a file that --replay plays again. A failure that a
/// busy machine can cause, such as a late answer, counts only if it recurs while nothing else runs. One of 64 sequences is
/// played several times in one process, to find leaks. Exit status: 0 passed, 1 failed, 2 could not run.
#[derive(Debug, Args)]
pub struct FuzzCommand {
    /// The provider library
    #[arg(value_name = "LIB")]
    library: PathBuf,
    /// Seed of the first sequence; each further sequence adds one [default: random]
    #[arg(long, value_name = "N", conflicts_with = "replay")]
    seed: Option<u64>,
    /// Time limit of the run with shrinking, such as 90s or 5m
    #[arg(long = "for", value_name = "TIME", default_value = "60s", value_parser = duration)]
    time: Duration,
    /// Maximum number of sequences [default: as many as time allows]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    runs: Option<u64>,
    /// Concurrent sequences [default: 40 per processor, since most wait for deadlines]
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// Play the sequence in this file until it fails
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
    /// File for the shrunk failing sequence [default: fuzz-SEED.json]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write the result as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    lines: OptionLines,
}

impl FuzzCommand {
    /// Runs the command.
    ///
    /// # Errors
    /// If the run cannot take place.
    pub fn run(self) -> io::Result<ExitCode> {
        exists(&self.library)?;
        let mut options = self.lines.read()?;
        let task = match &self.replay {
            Some(path) => {
                let file = ReplayFile::read(path)?;
                if self.lines.opts.is_none() {
                    options = file.options;
                }
                Task::Replay {
                    sequence: file.sequence,
                    runs: self.runs,
                }
            }
            None => Task::Search {
                first: self.seed.unwrap_or_else(|| Rng::new().u64(..) >> 16),
                runs: self.runs,
            },
        };
        let mut plan = Plan {
            options: options.clone(),
            time_limit: Duration::from_secs(20),
            ..Plan::new(std::env::current_exe()?)
        };
        let unloadable = run::run_prepared(&super::load::PROBE, &self.library, &plan, |_| Ok(()))?;
        if unloadable.provider.is_none() {
            sayln!("the library does not load, so there is nothing to fuzz");
            progress::say(&progress::details(&unloadable, None));
            return Ok(ExitCode::FAILURE);
        }
        let place = Scratch::new("fuzz")?;
        let orders = Orders {
            options,
            results: place.path().to_owned(),
            jobs: self.jobs(),
            time: self.time,
            task,
        };
        plan.time_limit = self.time.saturating_add(GRACE);
        let served = run::run_prepared(&FUZZ, &self.library, &plan, |folder| {
            orders::write(&folder.join(ORDERS), &orders)
        })?;
        if served.status.is_bad(false) {
            sayln!("the process that loads the library crashed or hung:");
            progress::say(&progress::details(&served, None));
            return Ok(ExitCode::FAILURE);
        }
        let results: Results = orders::read(&place.path().join(RESULTS))?;
        self.show(&orders, &results)
    }

    fn jobs(&self) -> usize {
        let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        self.jobs
            .map_or(JOBS_A_PROCESSOR * processors, NonZeroUsize::get)
    }

    fn show(&self, orders: &Orders, results: &Results) -> io::Result<ExitCode> {
        let mut replay = None;
        if let Some(found) = &results.found {
            let default = || format!("fuzz-{}.json", found.shortest.seed).into();
            let path = self.output.clone().unwrap_or_else(default);
            orders::write(&path, &report::replay_file(found, &orders.options))?;
            replay = Some(path);
        }
        progress::say(&report::in_words(
            &report::Run {
                library: &self.library,
                task: &orders.task,
                again: &self.lines.again(),
                replay: replay.as_deref(),
            },
            results,
        ));
        if let Some(path) = &self.json {
            orders::write(path, &report::as_json(&self.library, orders, results))?;
        }
        Ok(u8::from(results.found.is_some()).into())
    }
}

/// Serves the orders in the process that loads the library.
fn serve(fixture: &mut Fixture) -> Outcome {
    let trouble = |error: io::Error| Finding::CannotRun(error.to_string());
    let orders: Orders = orders::read(&fixture.folder().join(ORDERS)).map_err(trouble)?;
    let (stage, loads_anew) =
        Stage::new(fixture.library(), orders.options, fixture.folder()).map_err(trouble)?;
    let pool = Pool::new(stage, orders.jobs, fixture.folder()).map_err(trouble)?;
    let search = Search::new(pool, orders.time, loads_anew);
    let results = match orders.task {
        Task::Search { first, runs } => search.seeds(first, runs),
        Task::Replay { sequence, runs } => search.replay(&sequence, runs),
    }
    .map_err(trouble)?;
    orders::write(&orders.results.join(RESULTS), &results).map_err(cannot_run("the results"))
}

fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = text.split_at(
        text.find(|character: char| !character.is_ascii_digit())
            .unwrap_or(text.len()),
    );
    let number: u32 = number
        .parse()
        .map_err(|_| format!("{text}: expected a number with the unit s, m or h"))?;
    let number = u64::from(number);
    match unit {
        "" | "s" => Ok(Duration::from_secs(number)),
        "m" => Ok(Duration::from_secs(number * 60)),
        "h" => Ok(Duration::from_secs(number * 3600)),
        _ => Err(format!("{text}: expected the unit s, m or h")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("90"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("5m"), Ok(Duration::from_mins(5)));
        assert!(duration("5 weeks").is_err() && duration("").is_err());
        assert!(duration("18446744073709551615h").is_err());
    }
}
