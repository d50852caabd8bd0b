//! Random sequences of calls and faults. Each runs in a process of its own; one that fails is shrunk to the shortest that
//! still does, and can be repeated by its seed.

mod datagrams;

use crate::suite::ability::Ability;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use fastrand::Rng;
use serde::{Deserialize, Serialize};

use super::bench::Bench;
use super::cli::exists;
use super::fault::Fault;
use super::lines::OptionLines;
use super::progress::{self, quoted, sayln};
use super::run::{self, Plan, Report};
use super::{Check, Finding, Outcome, failed};
use crate::stand_in::fabric::{DeviceSpec, Peer};
use crate::stand_in::ledger::Harmed;
use crate::stand_in::message::{Addr, HEADER, LENGTH, Message, Path as PathRecord};
use crate::stand_in::sa::Reaction;
use crate::stand_in::{AddressId, FIRST_PORT, MadFaults, StandIn};
use crate::words::counted;
use datagrams::Seen;

/// One sequence as a check: its steps lie in the folder of the run.
pub(super) const FUZZ: Check = Check {
    name: "fuzz",
    rule: "whatever the core, clients and the SA do, every request is answered once and nothing is damaged",
    harmed: Harmed::Daemon,
    needs: &[Ability::OpensPort],
    run: play,
    fault: Fault {
        replace: &[],
        status: &[],
        also: &[],
    },
};

/// The file that holds a sequence.
const STEPS: &str = "steps.json";
/// Steps of a sequence.
const LENGTH_OF_SEQUENCE: usize = 60;

/// Plays random sequences of calls, of datagrams from other nodes, and of faults to a provider.
///
/// A failure prints its seed and the shortest sequence that still fails. Exit status: 0 if nothing failed, 1 if something
/// did, 2 if the run could not take place.
#[derive(Debug, Args)]
pub struct FuzzCommand {
    /// The provider library
    #[arg(value_name = "LIB")]
    library: PathBuf,
    /// The first sequence's seed; the others count on from it [default: random]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// How long to go on, as 90s or 5m
    #[arg(long = "for", value_name = "TIME", default_value = "60s", value_parser = duration)]
    time: Duration,
    /// At most so many sequences [default: as many as there is time for]
    #[arg(long, value_name = "N")]
    runs: Option<u64>,
    #[command(flatten)]
    lines: OptionLines,
}

/// What can happen. Steps that make no sense at their place do nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Step {
    Up,
    Down,
    NewLid(u16),
    AddAddress(u16),
    RemoveAddress(u16),
    Reregister,
    Event(u32),
    Resolve { peer: u16, by_gid: bool, flags: u32 },
    ResolveName { peer: u16 },
    Query { peer: u16 },
    Hostile { seed: u64 },
    Datagram { seed: u64 },
    Leave,
    Sa(SaMood),
    Mads(MadMood),
    Settle,
    Perf,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
enum SaMood {
    Well,
    Refuses(u16),
    Silent,
    Slow(u16),
    Never,
    Confused,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
enum MadMood {
    Well,
    NoMemory,
    Refused,
}

impl Step {
    fn random(rng: &mut Rng) -> Self {
        let peer = rng.u16(1..20);
        match rng.u8(0..38) {
            0..2 => Self::Up,
            2 => Self::Down,
            3 => Self::NewLid(rng.u16(50..90)),
            4 => Self::AddAddress(rng.u16(0..5)),
            5 => Self::RemoveAddress(rng.u16(0..5)),
            6 => Self::Reregister,
            7 => Self::Event(rng.u32(0..25)),
            8..16 => {
                let flags = if rng.u8(0..4) == 0 { 1 << 30 } else { 0 };
                Self::Resolve {
                    peer,
                    by_gid: rng.bool(),
                    flags,
                }
            }
            16 => Self::ResolveName { peer },
            17..20 => Self::Query { peer },
            20..23 => Self::Hostile { seed: rng.u64(..) },
            23 => Self::Leave,
            24..28 => Self::Sa(match rng.u8(0..8) {
                0 => SaMood::Refuses(
                    *rng.choice(&[0x0001, 0x0100, 0x0200, 0x0300, 0x0500, 0x000c])
                        .unwrap_or(&1),
                ),
                1 => SaMood::Silent,
                2 => SaMood::Slow(rng.u16(1..50)),
                3 => SaMood::Never,
                4 => SaMood::Confused,
                _ => SaMood::Well,
            }),
            28 => Self::Mads(match rng.u8(0..3) {
                0 => MadMood::NoMemory,
                1 => MadMood::Refused,
                _ => MadMood::Well,
            }),
            29 => Self::Settle,
            30 => Self::Perf,
            31 => Self::ResolveName {
                peer: peer + NOBODY_PRELOADED,
            },
            _ => Self::Datagram { seed: rng.u64(..) },
        }
    }
}

fn sequence(seed: u64) -> Vec<Step> {
    let mut rng = Rng::with_seed(seed);
    (0..LENGTH_OF_SEQUENCE)
        .map(|_| Step::random(&mut rng))
        .collect()
}

/// Peers from here on are in no hosts file: other nodes are asked for them, by providers that do that.
const NOBODY_PRELOADED: u16 = 100;

/// The state of a session, as far as the steps need it.
struct Session<'a> {
    core: &'a mut StandIn,
    from: Option<AddressId>,
    added: Vec<(u16, AddressId)>,
    last: Option<u64>,
    seen: Seen,
}

fn play(bench: &mut Bench) -> Outcome {
    let path = bench.folder().join(STEPS);
    let steps: Vec<Step> = std::fs::read(&path)
        .map_err(|error| error.to_string())
        .and_then(|text| serde_json::from_slice(&text).map_err(|error| error.to_string()))
        .map_err(|error| Finding::CannotRun(format!("{}: {error}", path.display())))?;
    let core = bench.core_with(vec![DeviceSpec::single()], &["timeout 60", "retries 1"])?;
    core.judge_answers(true);
    let mut session = Session {
        seen: Seen::new(core.wire(FIRST_PORT)),
        core,
        from: None,
        added: Vec::new(),
        last: None,
    };
    for step in &steps {
        session.step(step)?;
    }
    // Everything that waits gets its answer; the books show what does not.
    session.core.fail_mads(MadFaults::default());
    session.core.sa().script(|_| Reaction::Answer);
    Ok(())
}

impl Session<'_> {
    fn step(&mut self, step: &Step) -> Outcome {
        match step {
            Step::Up => self.up(),
            Step::Down => self.down(),
            Step::NewLid(lid) => {
                let lid = *lid;
                if self.from.is_none() {
                    self.core.change_port(FIRST_PORT, |port| port.lid = lid);
                }
            }
            Step::AddAddress(number) => self.add(*number),
            Step::RemoveAddress(number) => self.remove(*number),
            Step::Reregister if self.from.is_some() => {
                self.core.reregister(FIRST_PORT);
            }
            Step::Event(event) if self.from.is_some() => {
                self.core.event(FIRST_PORT, *event);
            }
            Step::Resolve {
                peer,
                by_gid,
                flags,
            } => {
                let peer = Peer::number(*peer);
                let wanted = PathRecord::default();
                let wanted = if *by_gid {
                    wanted.with_dgid(peer.gid())
                } else {
                    wanted.with_dlid(peer.lid)
                };
                self.ask(&Message::path(&wanted).with_flags(0, *flags));
            }
            Step::ResolveName { peer } => {
                let source = Addr::Name("self1".into());
                let message =
                    Message::destination(Some(&source), &Addr::Name(Peer::number(*peer).name));
                self.ask(&message);
            }
            Step::Query { peer } => {
                self.ask(&Message::query(
                    &PathRecord::default().with_dlid(Peer::number(*peer).lid),
                ));
            }
            Step::Hostile { seed } => {
                if let Some(from) = self.from {
                    self.last = Some(self.core.resolve_from(from, &hostile(*seed)));
                }
            }
            Step::Datagram { seed } => self.seen.send(*seed),
            Step::Leave => {
                if let Some(id) = self.last {
                    self.core.client_leaves(id);
                }
            }
            Step::Sa(mood) => self.mood(*mood),
            Step::Mads(mood) => self.core.fail_mads(MadFaults {
                no_memory: *mood == MadMood::NoMemory,
                refuse: *mood == MadMood::Refused,
                only_call: None,
            }),
            Step::Settle => {
                self.core.settle();
            }
            Step::Perf => return self.perf(),
            Step::Reregister | Step::Event(_) => {}
        }
        Ok(())
    }

    fn up(&mut self) {
        if self.from.is_none() {
            // A provider may refuse while the core's functions fail; the core then tries no more until the next event.
            self.from = self.core.up(FIRST_PORT).ok();
            if self.from.is_none() {
                self.core.port_down(FIRST_PORT);
            }
        }
    }

    fn down(&mut self) {
        if self.from.take().is_some() {
            self.core.port_down(FIRST_PORT);
            self.added.clear();
        }
    }

    fn add(&mut self, number: u16) {
        if self.from.is_none() || self.added.iter().any(|(known, _)| *known == number) {
            return;
        }
        if let Ok(id) =
            self.core
                .add_address(FIRST_PORT, 0xffff, &Addr::Name(format!("extra{number}")))
        {
            self.added.push((number, id));
        }
    }

    fn remove(&mut self, number: u16) {
        if let Some(index) = self.added.iter().position(|(known, _)| *known == number) {
            let (_, id) = self.added.swap_remove(index);
            self.core.remove_address(id);
        }
    }

    fn ask(&mut self, message: &Message) {
        if self.from.is_some() {
            self.last = self.core.ask(message).ok().or(self.last);
        }
    }

    fn mood(&mut self, mood: SaMood) {
        let sa = self.core.sa();
        match mood {
            SaMood::Well => sa.script(|_| Reaction::Answer),
            SaMood::Refuses(status) => sa.script(move |_| Reaction::Status(status)),
            SaMood::Silent => sa.script(|_| Reaction::Silence),
            SaMood::Slow(ms) => {
                let wait = Duration::from_millis(ms.into());
                sa.script(move |_| Reaction::After(wait, Box::new(Reaction::Answer)));
            }
            SaMood::Never => sa.script(|_| Reaction::Never),
            SaMood::Confused => sa.script(|_| Reaction::Record(PathRecord::default().with_dlid(1))),
        }
    }

    fn perf(&mut self) -> Outcome {
        let Some(from) = self.from else { return Ok(()) };
        match self.core.query_perf(FIRST_PORT, from.pkey) {
            Some((count, _)) if count > 7 => Err(failed("at most 7 counters", count.to_string())),
            _ => Ok(()),
        }
    }
}

/// A message of noise, in the places that a provider looks at.
fn hostile(seed: u64) -> Message {
    let mut rng = Rng::with_seed(seed);
    let mut message = Message::resolve();
    for byte in &mut message.0[HEADER..LENGTH] {
        *byte = rng.u8(..);
    }
    for entry in 0..8 {
        // Types that mean something, more often than chance would have it.
        let at = HEADER + entry * 72;
        let code = *rng
            .choice(&[1_u16, 2, 3, 4, 5, 16, 0, 6, 0xffff])
            .unwrap_or(&1);
        message.0[at + 4..at + 6].copy_from_slice(&code.to_ne_bytes());
    }
    message.set_length(
        *rng.choice(&[16_u16, 88, 160, 592, 17, 0, 600, 0xffff])
            .unwrap_or(&88),
    );
    message.with_data([rng.u8(..2), rng.u8(..10), rng.u8(..10)])
}

impl FuzzCommand {
    /// Runs the command.
    ///
    /// # Errors
    /// If the run cannot take place.
    pub fn run(self) -> io::Result<ExitCode> {
        exists(&self.library)?;
        let first = self.seed.unwrap_or_else(|| Rng::new().u64(..) >> 16);
        let plan = Plan {
            program: std::env::current_exe()?,
            options: self.lines.read()?,
            strict: false,
            time_limit: Duration::from_secs(20),
            jobs: 1,
            in_process: false,
            trace: None,
        };
        let unloadable = run::run_prepared(&super::load::PROBE, &self.library, &plan, |_| Ok(()))?;
        if unloadable.provider.is_none() {
            sayln!("the library does not load; there is nothing to play to");
            progress::say(&progress::details(&unloadable, None));
            return Ok(ExitCode::FAILURE);
        }
        let end = Instant::now() + self.time;
        let mut runs = 0;
        while self.runs.is_none_or(|most| runs < most) && (Instant::now() < end || runs == 0) {
            let seed = first.wrapping_add(runs);
            runs += 1;
            let steps = sequence(seed);
            let report = try_steps(&steps, &self.library, &plan)?;
            if report.status.is_bad(false) {
                self.show(seed, steps, report, &plan)?;
                return Ok(ExitCode::FAILURE);
            }
        }
        let sequences = counted(runs as usize, "sequence");
        sayln!("{sequences} from seed {first}, nothing failed");
        Ok(ExitCode::SUCCESS)
    }

    /// A failure, and what it comes down to.
    fn show(&self, seed: u64, steps: Vec<Step>, report: Report, plan: &Plan) -> io::Result<()> {
        sayln!("seed {seed}: {}", report.status);
        progress::say(&progress::details(&report, None));
        let (steps, report) = shrink(steps, report, &self.library, plan)?;
        sayln!("the shortest sequence that fails ({}):", report.status);
        for step in &steps {
            sayln!("  {step:?}");
        }
        sayln!("ends so:");
        let again = format!(
            "{} fuzz {} --seed {seed} --runs 1{}",
            progress::program(),
            quoted(&self.library),
            self.lines.again()
        );
        progress::say(&progress::details(&report, Some(&again)));
        Ok(())
    }
}

fn try_steps(steps: &[Step], library: &Path, plan: &Plan) -> io::Result<Report> {
    let text = serde_json::to_vec(steps).map_err(io::Error::from)?;
    run::run_prepared(&FUZZ, library, plan, |folder| {
        std::fs::write(folder.join(STEPS), text)
    })
}

/// Leaves out what is not needed for the failure: halves, quarters, … single steps.
fn shrink(
    mut steps: Vec<Step>,
    mut report: Report,
    library: &Path,
    plan: &Plan,
) -> io::Result<(Vec<Step>, Report)> {
    let mut chunk = steps.len() / 2;
    while chunk > 0 {
        let mut start = 0;
        while start < steps.len() {
            let mut shorter = steps.clone();
            shorter.drain(start..(start + chunk).min(steps.len()));
            let shorter_report = try_steps(&shorter, library, plan)?;
            // A crash is not traded for a lesser fault on the way.
            if shorter_report.status == report.status {
                steps = shorter;
                report = shorter_report;
            } else {
                start += chunk;
            }
        }
        chunk /= 2;
    }
    Ok((steps, report))
}

fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = text.split_at(
        text.find(|character: char| !character.is_ascii_digit())
            .unwrap_or(text.len()),
    );
    let number: u64 = number
        .parse()
        .map_err(|_| format!("{text}: a number with s, m or h is wanted"))?;
    match unit {
        "" | "s" => Ok(Duration::from_secs(number)),
        "m" => Ok(Duration::from_secs(number * 60)),
        "h" => Ok(Duration::from_secs(number * 3600)),
        _ => Err(format!("{text}: the unit is s, m or h")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_sequence() {
        assert_eq!(sequence(7), sequence(7));
        assert_ne!(sequence(7), sequence(8));
        assert_eq!(hostile(3).0, hostile(3).0);
    }

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("90"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("5m"), Ok(Duration::from_mins(5)));
        assert!(duration("5 weeks").is_err() && duration("").is_err());
    }
}
