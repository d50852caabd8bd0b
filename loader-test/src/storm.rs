//! `loader-test storm`: measures a job start on a large fabric, through the real daemon with a real subnet manager: its
//! duration and its SA queries, beside rdma-core's own provider.
//!
//! Each run has its own fabric, opensm and daemon. Providers take turns, so that a disturbance affects all of them.

mod clients;
mod job;
mod verdict;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::{Args, value_parser};
use serde::Serialize;

use crate::client::{Destination, Status};
use crate::error::{Context, Error, Result};
use crate::ibacm::Host;
use crate::log::Mark;
use crate::record::{Gid, Lid};
use crate::rig::{FAT_TREE_1600, Rig};
use crate::sa::attribute::{CLASS_PORT_INFO, PATH_RECORD};
use crate::suite::progress::{say, steps};
use crate::wait::{self, PATIENCE};
use verdict::{Claim, Run, Runs};

/// The node of the fat tree that runs the daemon.
const ASKING: &str = "H800";

/// Starts a job on a simulated fabric of 1600 hosts: many clients resolve many destinations through one daemon, first with
/// a cold and then with a warm cache. Then the kernel resolves 64 hosts by netlink, each with 128 service ids, as rdma_cm
/// does.
///
/// Prints times, SA queries and the daemon's processor time, with opensm's defaults and with QoS (-Q). Without QoS a provider
/// must send the SA at most the reference's queries plus one ClassPortInfo. With three or more rounds, no part may take longer
/// in every round of the provider than in every round of the reference. With QoS nothing is judged, since the stock provider
/// ignores service ids.
///
/// Exit status: 0 every claim holds, 1 a claim fails or an answer was wrong, 2 could not run.
#[derive(Debug, Args)]
pub struct StormCommand {
    /// Provider libraries to judge
    #[arg(required = true, value_name = "LIB")]
    libraries: Vec<PathBuf>,
    /// The reference library
    #[arg(
        long,
        value_name = "LIB",
        default_value = "/usr/lib/x86_64-linux-gnu/ibacm/libibacmp.so"
    )]
    vs: PathBuf,
    /// Number of rounds
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = value_parser!(u16).range(1..=100))]
    rounds: u16,
    /// Skip the runs with QoS
    #[arg(long)]
    no_qos: bool,
    /// The fabric, a file for ibsim [default: a fat tree of 1600 hosts]
    #[arg(long, value_name = "FILE", requires = "host")]
    net: Option<PathBuf>,
    /// The node that runs the daemon
    #[arg(long, value_name = "NODE", default_value = ASKING)]
    host: String,
    /// Number of concurrent clients
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = value_parser!(u16).range(1..=1000))]
    clients: u16,
    /// Destinations per client with a cold cache
    #[arg(long, value_name = "N", default_value_t = 40)]
    cold: usize,
    /// Destinations per client with a warm cache
    #[arg(long, value_name = "N", default_value_t = 200)]
    warm: usize,
    /// Hosts that the kernel resolves
    #[arg(long, value_name = "N", default_value_t = 64)]
    job_hosts: usize,
    /// Service ids per host of the kernel
    #[arg(long, value_name = "N", default_value_t = 128)]
    services: u16,
    /// Write the results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the tables of docs/performance.md
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

/// The results, as JSON.
#[derive(Serialize)]
struct Results<'a> {
    schema: u32,
    rounds: u16,
    reference: &'a str,
    plain: &'a [Runs],
    qos: &'a [Runs],
    claims: &'a [Claim],
}

impl StormCommand {
    /// Runs the command.
    ///
    /// # Errors
    /// If the run cannot take place.
    pub fn run(self) -> Result<ExitCode> {
        wait::catch_signals()?;
        let libraries: Vec<&Path> = std::iter::once(&self.vs)
            .chain(&self.libraries)
            .map(PathBuf::as_path)
            .collect();
        for library in &libraries {
            if !library.is_file() {
                return Err(Error::Input(format!(
                    "{}: no such library",
                    library.display()
                )));
            }
        }
        let mut plain = runs_of(libraries.len());
        let mut qos = runs_of(if self.no_qos { 0 } else { libraries.len() });
        let bar = steps(usize::from(self.rounds) * (plain.len() + qos.len()));
        for _ in 0..self.rounds {
            for (has_qos, runs) in [(false, &mut plain), (true, &mut qos)] {
                for (library, runs) in libraries.iter().zip(runs) {
                    let with = if has_qos { "with" } else { "without" };
                    bar.set_message(format!("{} {with} QoS", library.display()));
                    let (name, run) = self.storm(library, has_qos)?;
                    runs.name = name;
                    runs.runs.push(run);
                    bar.inc(1);
                }
            }
        }
        bar.finish_and_clear();
        self.tell(&plain, &qos)
    }

    /// Runs one job start with one provider, and returns the provider's name and the result.
    fn storm(&self, library: &Path, qos: bool) -> Result<(String, Run)> {
        let mut builder = Rig::builder(library)
            .host(&self.host)
            .netlink()
            .option("log_level", 0)
            // No retries: on a busy machine they would add queries.
            .option("timeout", 20_000);
        builder = match &self.net {
            Some(net) => builder.net_file(net),
            None => builder.net(FAT_TREE_1600),
        };
        if qos {
            builder = builder.opensm_option("qos", "TRUE");
        }
        let rig = builder.start()?;
        let host = rig.host(&self.host)?;
        let fabric = rig.fabric()?;
        let own = host.first_lid();
        let ports: Vec<(Lid, Gid)> = fabric
            .destinations()
            .map(|(_, port)| (port.lid, rig.gid_of(port)))
            .filter(|(lid, _)| *lid != own)
            .collect();
        let lids: Vec<Lid> = ports.iter().map(|(lid, _)| *lid).collect();
        let gids: Vec<Gid> = ports
            .iter()
            .take(self.job_hosts)
            .map(|(_, gid)| *gid)
            .collect();

        // Stock answers only after its multicast join. The storm does not use the host's own LID, so this warms nothing.
        wait::until_true("the daemon's first path", PATIENCE, || {
            host.check()?;
            let answer = host.resolve(&Destination::Lid(own))?;
            Ok(answer.status == Status::SUCCESS)
        })?;

        let mut run = Run::default();
        let mark = rig.opensm().log().end();
        let clients = usize::from(self.clients);
        run.cold = clients::ask(host, &lids, clients, self.cold)?;
        run.cold.queries = queries(&rig, host, mark)?;

        let mark = rig.opensm().log().end();
        let cpu = verdict::cpu_time(host.pid())?;
        run.warm = clients::ask(host, &lids, clients, self.warm)?;
        let cpu = verdict::cpu_time(host.pid())?.saturating_sub(cpu);
        run.warm.queries = queries(&rig, host, mark)?;
        run.cpu_us_per_1000 = cpu.as_micros() as f64 / (run.warm.requests as f64 / 1000.0);

        let mark = rig.opensm().log().end();
        let begin = Instant::now();
        run.job = job::ask(host, &gids, self.services)?;
        run.job.seconds = begin.elapsed().as_secs_f64();
        run.job.queries = queries(&rig, host, mark)?;
        run.class_port_info = rig.queries(host, CLASS_PORT_INFO, Mark::default())?.len();
        rig.check()?;
        host.check()?;
        Ok((host.provider().name.clone(), run))
    }

    fn tell(&self, plain: &[Runs], qos: &[Runs]) -> Result<ExitCode> {
        let [reference, judged @ ..] = plain else {
            return Ok(ExitCode::FAILURE);
        };
        let claims: Vec<Claim> = judged
            .iter()
            .flat_map(|runs| verdict::claims(runs, reference))
            .collect();
        let mut text = verdict::table("opensm without QoS", plain);
        if !qos.is_empty() {
            text += &verdict::table("opensm with QoS (-Q), not judged", qos);
        }
        say(&text);
        for claim in &claims {
            say(&format!("{claim}\n"));
        }
        let written = |path: &Path, text: &str| {
            std::fs::write(path, text).context(|| format!("write {}", path.display()))
        };
        if let Some(path) = &self.markdown {
            written(path, &text)?;
        }
        if let Some(path) = &self.json {
            let results = Results {
                schema: 1,
                rounds: self.rounds,
                reference: &reference.name,
                plain,
                qos,
                claims: &claims,
            };
            let text = serde_json::to_string_pretty(&results)
                .map_err(|error| Error::Input(format!("{}: {error}", path.display())))?;
            written(path, &(text + "\n"))?;
        }
        let holds = claims.iter().all(|claim| claim.holds);
        Ok(u8::from(!holds).into())
    }
}

fn runs_of(count: usize) -> Vec<Runs> {
    (0..count).map(|_| Runs::default()).collect()
}

/// Path queries of the host's daemon since `mark`.
fn queries(rig: &Rig, host: &Host, mark: Mark) -> Result<usize> {
    Ok(rig.queries(host, PATH_RECORD, mark)?.len())
}
