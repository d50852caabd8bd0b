//! The process that measures one contestant in one case.

mod measure;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use super::case::Case;
use super::files::{ip_of, name_of, write_hosts};
use super::machine::{self, Disturbance};
use super::requests::{Requests, shuffled};
use super::results::Found;
use crate::stand_in::HOSTS;
use crate::stand_in::bare::{Asked, Core};
use clap::Args;

/// Time limit for a provider's first answer, and for its reaction to a touched flush file.
const START: Duration = Duration::from_secs(15);
/// Placeholders in an option line for the path of the flush file and for the capacity.
const FLUSH: &str = "@FLUSH@";
const CAPACITY: &str = "@CAPACITY@";

/// Measures one provider in one case (internal).
#[derive(Clone, Debug, Args)]
pub struct BenchChildCommand {
    /// The library
    pub library: PathBuf,
    /// The case
    #[arg(long, value_enum)]
    pub case: Case,
    /// Number of destinations
    #[arg(long)]
    pub destinations: u32,
    /// Folder for files
    #[arg(long)]
    pub folder: PathBuf,
    /// File for the figures, as JSON
    #[arg(long)]
    pub result: PathBuf,
    /// The dump to preload
    #[arg(long)]
    pub dump: Option<PathBuf>,
    /// Measuring time of a figure, in milliseconds
    #[arg(long, default_value_t = 300)]
    pub time: u64,
    /// Number of hits to make in the function `acm_bench_counted` without measuring, for an instruction counter
    #[arg(long)]
    pub count: Option<u32>,
    /// A line of ibacm_opts.cfg
    #[arg(long)]
    pub line: Vec<String>,
}

impl BenchChildCommand {
    /// Measures, and writes the figures.
    pub fn run(&self) -> ExitCode {
        let outcome = self.measure().and_then(|found| {
            let text = serde_json::to_vec(&found).map_err(|error| error.to_string())?;
            fs::write(&self.result, text)
                .map_err(|error| format!("{}: {error}", self.result.display()))
        });
        match outcome {
            Ok(()) => ExitCode::SUCCESS,
            Err(reason) => {
                eprintln!("{reason}");
                ExitCode::FAILURE
            }
        }
    }

    fn measure(&self) -> Result<Found, String> {
        let processors = machine::processors();
        let processor = processors.last().copied();
        let pinned = processor.is_some_and(|processor| machine::pin(processor).is_ok());
        let mut run = Run {
            plan: self,
            processors,
            flush_file: self.folder.join("flush"),
            found: Found {
                pinned,
                ..Found::default()
            },
        };
        run.run()?;
        Ok(run.found)
    }
}

struct Run<'a> {
    plan: &'a BenchChildCommand,
    /// Processors of the process; the measuring thread is bound to the last one.
    processors: Vec<usize>,
    flush_file: PathBuf,
    found: Found,
}

impl Run<'_> {
    fn run(&mut self) -> Result<(), String> {
        let plan = self.plan;
        let (case, destinations) = (plan.case, plan.destinations);
        let io = |error: std::io::Error| format!("{}: {error}", plan.folder.display());
        fs::write(&self.flush_file, "").map_err(io)?;
        let core = Core::load(&plan.library, &self.options().map_err(io)?, &plan.folder)
            .map_err(|error| error.to_string())?;
        let mut requests = Requests::new(core, case, destinations);
        let opened = requests.core.open().map_err(|error| error.to_string())?;
        let before = Disturbance::so_far();
        let begin = Instant::now();
        let mut refused_before = 0;
        if case == Case::Preload {
            self.preload(&mut requests, begin - opened.all, opened.longest)?;
        } else if let Err(refusal) = serves(&mut requests)? {
            self.found.remarks.push(refusal);
            let log = requests.core.log().into_iter().take(3);
            self.found
                .remarks
                .extend(log.map(|line| format!("log: {line}")));
        } else if let Some(count) = plan.count {
            counted_hits(&mut requests, destinations, count)?;
        } else {
            refused_before = requests.core.tally().refused;
            if case == Case::Gid {
                self.figure("open", opened.all.as_nanos() as f64 / 1000.0);
            }
            self.filled(&mut requests)?;
        }
        self.found.seconds = begin.elapsed().as_secs_f64();
        (self.found.switches, self.found.stolen) = before.since();
        let tally = requests.core.tally();
        self.found.requests = requests.made;
        self.found.wrong = (tally.wrong + tally.errors) as u64;
        let remarks = &mut self.found.remarks;
        if tally.refused > refused_before && remarks.is_empty() {
            let refused = tally.refused - refused_before;
            remarks.push(format!("{refused} requests were refused"));
        }
        Ok(())
    }

    /// Returns the lines of ibacm_opts.cfg, the same for all providers; each ignores the others' own options.
    fn options(&self) -> std::io::Result<Vec<String>> {
        let plan = self.plan;
        let capacity = match plan.case {
            Case::Churn => plan.destinations.div_ceil(2),
            _ => plan.destinations.saturating_mul(2).saturating_add(1 << 16),
        };
        let mut options = vec![
            "log_level 0".to_owned(),
            "timeout 10000".into(),
            "retries 2".into(),
            "route_prot sa".into(),
            "addr_prot acm".into(),
            format!("path_cache_capacity {capacity}"),
            format!("mcast_sa_capacity {capacity}"),
            format!("path_cache_flush_file {}", self.flush_file.display()),
        ];
        let hosts: Option<fn(u32) -> _> = match plan.case {
            Case::Name => Some(name_of),
            Case::Ip => Some(ip_of),
            _ => None,
        };
        if let Some(address) = hosts {
            let file = write_hosts(&plan.folder, plan.destinations, address)?;
            options.push("addr_preload acm_hosts".into());
            options.push(format!("addr_data_file {}", file.display()));
        }
        if let (Case::Preload, Some(dump)) = (plan.case, &plan.dump) {
            options.push("route_preload opensm_full_v1".into());
            options.push(format!("route_data_file {}", dump.display()));
        }
        let hosts = plan.folder.join("hosts");
        if !hosts.exists() {
            std::fs::write(&hosts, "")?;
        }
        let given = plan.line.iter().map(|line| {
            line.replace(CAPACITY, &capacity.to_string())
                .replace(HOSTS, &hosts.to_string_lossy())
                .replace(FLUSH, &self.flush_file.to_string_lossy())
        });
        options.extend(given);
        Ok(options)
    }

    fn figure(&mut self, name: &str, value: f64) {
        self.found.figures.insert(name.to_owned(), value);
    }

    fn time(&self) -> Duration {
        Duration::from_millis(self.plan.time)
    }
}

/// Waits until a first request gets a path: a provider may first join a multicast group. Returns a remark if the provider
/// refuses.
///
/// # Errors
/// If it is not answered at all.
fn serves(requests: &mut Requests) -> Result<Result<(), String>, String> {
    let deadline = Instant::now() + START;
    requests.core.pump();
    loop {
        let refused = requests.core.tally().refused;
        requests.resolve(0)?;
        if requests.core.tally().refused == refused {
            return Ok(Ok(()));
        }
        if Instant::now() > deadline {
            return Ok(Err("it refuses such requests".into()));
        }
        requests.core.pump();
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Fills the cache, then makes hits only in the function that an instruction counter watches.
fn counted_hits(requests: &mut Requests, destinations: u32, count: u32) -> Result<(), String> {
    requests.fill(&shuffled(destinations))?;
    let mut pending = 0;
    acm_bench_counted(requests, destinations, count, &mut pending);
    match pending {
        0 => Ok(()),
        _ => Err(format!("{pending} hits were not answered from the cache")),
    }
}

/// The measuring window of an instruction counter: callgrind finds it by name.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn acm_bench_counted(
    requests: &mut Requests,
    destinations: u32,
    count: u32,
    pending: &mut u32,
) {
    for _ in 0..count {
        let destination = requests.any(destinations);
        if requests.ask(destination) == Asked::Pending {
            *pending += 1;
        }
    }
}
