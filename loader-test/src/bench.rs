//! `loader-test bench`: measures the cost of a request with a provider, beside other providers.
//!
//! Each contestant runs in its own processes, one for each case and size. The contestants take turns, so that a disturbance
//! affects all of them. The timed loops use [`crate::stand_in::bare`]; the contestant `core` measures its own cost.

pub mod arrays;
mod case;
pub mod child;
mod files;
mod gather;
mod machine;
pub mod numbers;
mod plot;
mod requests;
mod results;
mod table;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use clap::{Args, value_parser};
use serde_json::ser::PrettyFormatter;
use supervisor::{Leftovers, Supervised};

use crate::error::{Context, Error, Result};
use crate::scratch::Scratch;
use crate::stand_in::bare::OWN_GUID;
use crate::suite::lines::OptionLines;
use crate::suite::progress::{say, steps};
use crate::{signals, wait};
use arrays::Array;
use case::{Case, DUMP_HOSTS};
use gather::{Rounds, cell, noise};
use numbers::{parse_count, ratio};
use results::{Cell, Contestant, Found, Results, Role, SCHEMA};

/// Time limit of a process: enough for a million destinations on a busy machine.
const PATIENCE: Duration = Duration::from_secs(600);

/// Measures what a request costs with a provider, beside other providers.
///
/// Measures cache hits by LID, GID, name and IP address, kernel requests, misses, a working set larger than the cache, hits
/// while SA responses arrive on another thread, memory, opening with a dump of paths, and the pause during a flush. Two
/// built-in providers run beside the given ones: `limit` answers by array index, and `core` looks nothing up, so that it
/// shows the cost of the bench itself. All providers read the same options. In an option line, @CAPACITY@ stands for the
/// number of answers that the cache should hold, and @FLUSH@ for the path of a file that the bench touches to flush the
/// cache. Build with --release: figures of other builds are meaningless.
///
/// Exit status: 0 every answer was right, 1 an answer was wrong or a provider failed, 2 could not run.
#[derive(Debug, Args)]
pub struct BenchCommand {
    /// The provider library
    #[arg(value_name = "LIB")]
    library: PathBuf,
    /// A library to compare with; the first one is the reference for all ratios [default: the provider `limit`]
    #[arg(long, value_name = "LIB")]
    vs: Vec<PathBuf>,
    /// Numbers of destinations; k is a thousand, m a million
    #[arg(long, value_name = "N", value_delimiter = ',', default_values = ["1k", "49k", "1m"], value_parser = parse_count)]
    dests: Vec<u32>,
    /// Cases to measure
    #[arg(long, value_name = "CASE", value_delimiter = ',', value_enum)]
    only: Vec<Case>,
    /// Number of rounds
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Measuring time of a figure in each round, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 300, value_parser = value_parser!(u64).range(1..=60_000))]
    time: u64,
    #[command(flatten)]
    lines: OptionLines,
    /// Draw the cache hits as SVG
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write the results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the table of docs/performance.md
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

impl BenchCommand {
    /// Runs the command.
    ///
    /// # Errors
    /// If the run cannot take place.
    pub fn run(self) -> Result<ExitCode> {
        wait::catch_signals()?;
        let folder = Scratch::new("bench").context(|| "make a temporary folder".to_owned())?;
        let contestants = self.contestants(folder.path())?;
        let lines = self
            .lines
            .read()
            .map_err(|error| Error::Input(error.to_string()))?;
        let dump = self.dump(folder.path())?;
        let mut all: Vec<Rounds> = self.plan(&contestants);
        if all.is_empty() {
            let most = |case: Case| {
                let most = numbers::show_count(case.most());
                format!("{}: at most {most} destinations", case.name())
            };
            let most: Vec<String> = self.cases().into_iter().map(most).collect();
            let most = most.join("; ");
            return Err(Error::Input(format!("nothing to measure: {most}")));
        }
        let bar = steps(all.len() * usize::from(self.rounds));
        for _ in 0..self.rounds {
            for rounds in &mut all {
                let contestant = &contestants[rounds.contestant];
                bar.set_message(format!(
                    "{} {} {}",
                    rounds.case.name(),
                    numbers::show_count(rounds.destinations),
                    contestant.name
                ));
                let child = self.child(contestant, rounds, &lines, dump.as_deref(), folder.path());
                rounds.found.push(child?);
                bar.inc(1);
            }
        }
        bar.finish_and_clear();
        let results = self.results(contestants, all);
        self.write(&results)?;
        let wrong: u64 = results.cells.iter().map(|cell| cell.wrong).sum();
        Ok(u8::from(wrong > 0).into())
    }

    fn contestants(&self, folder: &Path) -> Result<Vec<Contestant>> {
        let mut contestants: Vec<Contestant> = Vec::new();
        let given = std::iter::once((&self.library, Role::Measured));
        let given = given.chain(self.vs.iter().map(|library| (library, Role::Compared)));
        for (library, role) in given {
            if !library.is_file() {
                return Err(Error::Input(format!(
                    "{}: no such library",
                    library.display()
                )));
            }
            let stem = library.file_stem().unwrap_or_default().to_string_lossy();
            let short = stem
                .trim_start_matches("libibacm_")
                .trim_start_matches("lib");
            let mut name = match short {
                "ibacmp" => "stock".to_owned(),
                other => other.replace('_', "-"),
            };
            let others = contestants
                .iter()
                .filter(|other| other.name == name)
                .count();
            if others > 0 {
                name += &format!("-{}", contestants.len() + 1);
            }
            let library = std::path::absolute(library).context(|| "find the library".to_owned())?;
            contestants.push(Contestant {
                name,
                library: library.display().to_string(),
                role,
            });
        }
        for (array, role, name) in [
            (Array::Limit, Role::Limit, "limit"),
            (Array::Nothing, Role::Core, "core"),
        ] {
            let library =
                arrays::build(array, folder).map_err(|error| Error::Input(error.to_string()))?;
            contestants.push(Contestant {
                name: name.to_owned(),
                library: library.display().to_string(),
                role,
            });
        }
        Ok(contestants)
    }

    fn cases(&self) -> Vec<Case> {
        use clap::ValueEnum as _;
        let all = Case::value_variants().iter().copied();
        all.filter(|case| self.only.is_empty() || self.only.contains(case))
            .collect()
    }

    fn dump(&self, folder: &Path) -> Result<Option<PathBuf>> {
        if !self.cases().contains(&Case::Preload) {
            return Ok(None);
        }
        let path = folder.join("dump");
        files::write_dump(&path, DUMP_HOSTS, OWN_GUID)
            .context(|| "write a dump of paths".to_owned())?;
        Ok(Some(path))
    }

    /// Returns every contestant with the cases and sizes that it supports.
    fn plan(&self, contestants: &[Contestant]) -> Vec<Rounds> {
        let mut all = Vec::new();
        for case in self.cases() {
            for destinations in case.sizes(&self.dests) {
                let able = contestants.iter().enumerate();
                let able = able.filter(|(_, contestant)| contestant.role.is_able(case));
                all.extend(able.map(|(contestant, _)| Rounds {
                    case,
                    destinations,
                    contestant,
                    found: Vec::new(),
                }));
            }
        }
        all
    }

    fn child(
        &self,
        contestant: &Contestant,
        rounds: &Rounds,
        lines: &[String],
        dump: Option<&Path>,
        folder: &Path,
    ) -> Result<Found> {
        let own = tempfile::tempdir_in(folder).context(|| "make a temporary folder".to_owned())?;
        let (result, log) = (own.path().join("result"), own.path().join("output"));
        let output = fs::File::create(&log).context(|| "make a file for output".to_owned())?;
        let program = std::env::current_exe().context(|| "find this program".to_owned())?;
        let errors = output
            .try_clone()
            .context(|| "make a file for output".to_owned())?;
        let mut command = Command::new(program);
        command
            .args([
                "bench-child",
                "--case",
                rounds.case.name(),
                "--destinations",
            ])
            .arg(rounds.destinations.to_string())
            .args(["--time", &self.time.to_string(), "--folder"])
            .arg(own.path())
            .arg("--result")
            .arg(&result)
            .args(lines.iter().flat_map(|line| ["--line", line]))
            .arg(&contestant.library)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors);
        if let Some(dump) = dump {
            command.arg("--dump").arg(dump);
        }
        // The library may start processes.
        let child = Supervised::spawn(&mut command, Leftovers::END);
        let status = finish(child.context(|| "start loader-test".to_owned())?)?;
        let found = fs::read(&result)
            .ok()
            .and_then(|text| serde_json::from_slice(&text).ok());
        found.ok_or_else(|| {
            let said = fs::read_to_string(&log).unwrap_or_default();
            Error::Daemon(Box::new(Error::Ended {
                name: format!(
                    "{} in the case {} of {} destinations",
                    contestant.name,
                    rounds.case.name(),
                    rounds.destinations
                ),
                status,
                tail: said,
            }))
        })
    }

    fn results(&self, contestants: Vec<Contestant>, all: Vec<Rounds>) -> Results {
        let reference = contestants
            .iter()
            .find(|contestant| contestant.role == Role::Compared)
            .or_else(|| {
                contestants
                    .iter()
                    .find(|contestant| contestant.role == Role::Limit)
            })
            .map(|contestant| contestant.name.clone())
            .unwrap_or_default();
        let noise = noise(&all);
        let mut cells: Vec<Cell> = all
            .iter()
            .map(|rounds| cell(rounds, &contestants))
            .collect();
        let references: Vec<Cell> = cells
            .iter()
            .filter(|cell| cell.contestant == reference)
            .cloned()
            .collect();
        for cell in &mut cells {
            let of_reference = references
                .iter()
                .find(|other| (other.case, other.destinations) == (cell.case, cell.destinations));
            let Some(of_reference) = of_reference else {
                continue;
            };
            for (name, own) in &cell.figures {
                if let Some(ratio) = of_reference
                    .figures
                    .get(name)
                    .and_then(|other| ratio(other, own))
                {
                    cell.ratios.insert(name.clone(), ratio);
                }
            }
        }
        Results {
            schema: SCHEMA,
            processor: processor(),
            kernel: read_line("/proc/sys/kernel/osrelease"),
            huge_pages: read_line("/sys/kernel/mm/transparent_hugepage/enabled"),
            optimized: !cfg!(debug_assertions),
            rounds: usize::from(self.rounds),
            contestants,
            reference,
            cells,
            noise,
        }
    }

    fn write(&self, results: &Results) -> Result<()> {
        say(&table::text(results));
        let written = |path: &Path, text: String| {
            fs::write(path, text).context(|| format!("write {}", path.display()))
        };
        if let Some(path) = &self.json {
            let mut text = Vec::new();
            let mut serializer = serde_json::Serializer::with_formatter(
                &mut text,
                PrettyFormatter::with_indent(b" "),
            );
            serde::Serialize::serialize(results, &mut serializer)
                .map_err(|error| Error::Input(format!("{}: {error}", path.display())))?;
            text.push(b'\n');
            written(path, String::from_utf8_lossy(&text).into_owned())?;
        }
        if let Some(path) = &self.markdown {
            written(path, table::markdown(results))?;
        }
        if let Some(path) = &self.svg {
            let picture = plot::draw(results)
                .map_err(|reason| Error::Input(format!("{}: {reason}", path.display())))?;
            written(path, picture)?;
        }
        Ok(())
    }
}

impl Role {
    /// Whether the contestant supports a case: the built-in providers know LIDs and GIDs, and read no files.
    fn is_able(self, case: Case) -> bool {
        match self {
            Self::Measured | Self::Compared => true,
            Self::Limit => matches!(case, Case::Lid | Case::Gid | Case::Kernel | Case::Threads),
            Self::Core => matches!(
                case,
                Case::Lid | Case::Gid | Case::Name | Case::Ip | Case::Kernel
            ),
        }
    }
}

/// Waits for a child, and kills it after a signal or `PATIENCE`.
fn finish(mut child: Supervised) -> Result<String> {
    let deadline = Instant::now() + PATIENCE;
    let pause = Duration::from_millis(5);
    loop {
        let status = child
            .try_wait()
            .context(|| "wait for a measurement".to_owned())?;
        if let Some(status) = status {
            return Ok(status.to_string());
        }
        let is_late = Instant::now() > deadline;
        if is_late || signals::came().is_some() {
            // It may have ended meanwhile.
            let _ = child.kill();
            wait::check_signals()?;
            return Ok(format!("took longer than {PATIENCE:?}"));
        }
        std::thread::sleep(pause);
    }
}

fn processor() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find(|line| line.starts_with("model name"));
    let name = name.and_then(|line| line.split_once(':'));
    name.map_or_else(|| "unknown".into(), |(_, name)| name.trim().to_owned())
}

fn read_line(path: &str) -> String {
    let text: io::Result<String> = fs::read_to_string(path);
    text.map_or_else(|_| "unknown".into(), |text| text.trim().to_owned())
}
