//! `loader-test storm`: a large fabric's job start through the real daemon, with a real subnet manager: how long it takes, and
//! what the SA is asked, beside rdma-core's own provider.
//!
//! Each run has a fabric, an opensm and a daemon of its own; providers take turns, so that what disturbs a round disturbs all.

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

/// Starts a job on a simulated fabric of 1600 hosts: many clients ask one daemon for many destinations, at first cold, then
/// warm; then the kernel asks by netlink for 64 hosts, each with 128 service ids, as rdma_cm does.
///
/// Shown are times, SA queries and the daemon's processor time, with opensm as it is and with QoS (-Q). Without QoS a provider
/// is judged: it sends the SA at most what the reference sends and one ClassPortInfo, and no part takes longer in each of its
/// rounds than in each of the reference's, if there are three rounds or more. With QoS nothing is judged: stock ignores service
/// ids.
///
/// Exit status: 0 if every claim holds, 1 if one fails or an answer was wrong, 2 if the run could not take place.
#[derive(Debug, Args)]
pub struct StormCommand {
    /// Provider libraries that are judged
    #[arg(required = true, value_name = "LIB")]
    libraries: Vec<PathBuf>,
    /// The library that they are held against
    #[arg(
        long,
        value_name = "LIB",
        default_value = "/usr/lib/x86_64-linux-gnu/ibacm/libibacmp.so"
    )]
    vs: PathBuf,
    /// How often the providers take turns
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = value_parser!(u16).range(1..=100))]
    rounds: u16,
    /// Leave the runs with QoS out
    #[arg(long)]
    no_qos: bool,
    /// The fabric, a file for ibsim [default: a fat tree of 1600 hosts]
    #[arg(long, value_name = "FILE", requires = "host")]
    net: Option<PathBuf>,
    /// The node that runs the daemon
    #[arg(long, value_name = "NODE", default_value = ASKING)]
    host: String,
    /// Clients at a time
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = value_parser!(u16).range(1..=1000))]
    clients: u16,
    /// Destinations of each client while the cache is cold
    #[arg(long, value_name = "N", default_value_t = 40)]
    cold: usize,
    /// Destinations of each client while the cache is warm
    #[arg(long, value_name = "N", default_value_t = 200)]
    warm: usize,
    /// Hosts that the kernel asks for
    #[arg(long, value_name = "N", default_value_t = 64)]
    job_hosts: usize,
    /// Service ids that it asks for each host with
    #[arg(long, value_name = "N", default_value_t = 128)]
    services: u16,
    /// Write the results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the tables of docs/performance.md
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

/// What was found, as JSON.
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

    /// One job start with one provider: the provider's name, and what was found.
    fn storm(&self, library: &Path, qos: bool) -> Result<(String, Run)> {
        let mut builder = Rig::builder(library)
            .host(&self.host)
            .netlink()
            .option("log_level", 0)
            // A busy machine must not cost a query more.
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

        // Stock answers nothing before it has joined its multicast group. The host's own LID is no destination of the storm.
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
            text += &verdict::table("opensm with QoS (-Q), shown and not judged", qos);
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
