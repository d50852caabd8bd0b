//! The `loader-test` command.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use loader_test::error::{Error, Result};
use loader_test::launch::{self, Plan};
use loader_test::process::NOT_STARTED;
use loader_test::rig::Rig;
use loader_test::stock::Form;
use loader_test::suite::lines::OptionLines;
use loader_test::{bench, demo, kernel, namespace, sa, stock, storm, suite, wait};

/// Runs ibacm providers under the real daemon, with a real subnet manager, without InfiniBand hardware.
///
/// Exit status: 0 passed, 1 the provider failed, 2 could not run or another error, 128 + N stopped by signal N.
#[derive(Debug, Parser)]
#[command(version)]
struct Command {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Check(suite::cli::CheckCommand),
    List(suite::cli::ListCommand),
    Explain(suite::cli::ExplainCommand),
    Info(suite::info::InfoCommand),
    #[command(hide = true)]
    InfoChild(suite::info::InfoChildCommand),
    Trace(suite::cli::TraceCommand),
    Fuzz(suite::fuzz::FuzzCommand),
    Bench(bench::BenchCommand),
    #[command(hide = true)]
    BenchChild(bench::child::BenchChildCommand),
    Stock(Stock),
    Storm(storm::StormCommand),
    /// Shows a provider at work, step by step: ibacm loads it and resolves three destinations, and each path is compared
    /// with the subnet administrator's record.
    Demo {
        /// The provider library
        #[arg(value_name = "LIB")]
        library: PathBuf,
        #[command(flatten)]
        lines: OptionLines,
    },
    #[command(hide = true)]
    RunCheck(suite::cli::ChildCommand),
    #[command(hide = true)]
    Neighbour(suite::wire::neighbour::NeighbourCommand),
    /// Holds the network namespace of a run (internal).
    #[command(hide = true)]
    Namespace,
    /// Starts a program in the namespace of a run (internal).
    #[command(hide = true)]
    Launch(Launch),
    /// Opens a netlink socket in the namespace of a run (internal).
    #[command(hide = true)]
    NetlinkSocket,
    /// Sends queries to the subnet administrator (internal).
    #[command(hide = true)]
    SaAgent,
}

/// Resolves every destination of a simulated fabric through stock ibacm with a provider, and compares each path with the
/// subnet administrator's record.
///
/// Starts ibsim, opensm and one ibacm per host, each with a provider from a LIB. Every host resolves every port of every
/// host by LID, by GID and by the given addresses, with stock's ib_acme and with loader-test's own client.
#[derive(Debug, Args)]
struct Stock {
    /// Provider libraries; the hosts take them in turn
    #[arg(required = true, value_name = "LIB")]
    libraries: Vec<PathBuf>,
    /// The fabric, a file for ibsim [default: four hosts, Hca1 to Hca4]
    #[arg(long, value_name = "FILE")]
    net: Option<PathBuf>,
    /// A node that runs ibacm, at most 8 [default: the first four hosts]. NODE=LIB gives it one of the LIBs (by path or
    /// file name); the other nodes take the LIBs in turn
    #[arg(long = "host", value_name = "NODE[=LIB]")]
    hosts: Vec<String>,
    #[command(flatten)]
    lines: OptionLines,
    /// A name or IP address of a host. The providers get all of them in a file (addr_preload acm_hosts)
    #[arg(long = "address", value_name = "NODE=ADDRESS", value_parser = pair)]
    addresses: Vec<(String, String)>,
    /// Forms in which destinations are resolved
    #[arg(long, value_name = "FORM", value_delimiter = ',', value_enum, default_values = ["lid", "gid", "name", "ip"])]
    by: Vec<By>,
    /// A new folder for logs and configuration, which is kept [default: a temporary folder, kept only if something
    /// fails]
    #[arg(long, value_name = "DIR")]
    logs: Option<PathBuf>,
    /// The fabric-sim library [default: libfabric_sim.so beside this program]
    #[arg(long, value_name = "PATH")]
    sim: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum By {
    Lid,
    Gid,
    Name,
    Ip,
}

impl From<By> for Form {
    fn from(by: By) -> Self {
        match by {
            By::Lid => Self::Lid,
            By::Gid => Self::Gid,
            By::Name => Self::Name,
            By::Ip => Self::Ip,
        }
    }
}

#[derive(Debug, Args)]
struct Launch {
    #[arg(long)]
    namespace: i32,
    #[arg(long)]
    env: Vec<OsString>,
    #[arg(long, num_args = 2)]
    bind: Vec<PathBuf>,
    #[arg(long)]
    netlink: bool,
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

fn main() -> ExitCode {
    loader_test::stand_in::leaks::ignore_own();
    let result = match Command::parse().what {
        What::Check(command) => command
            .run()
            .map_err(|error| Error::Input(error.to_string())),
        What::Explain(command) => command
            .run()
            .map_err(|error| Error::Input(error.to_string())),
        What::List(command) => command
            .run()
            .map_err(|error| Error::Input(error.to_string())),
        What::Trace(command) => command
            .run()
            .map_err(|error| Error::Input(error.to_string())),
        What::Fuzz(command) => command
            .run()
            .map_err(|error| Error::Input(error.to_string())),
        What::Info(command) => command
            .run()
            .map_err(|error| Error::Input(error.to_string())),
        What::InfoChild(command) => Ok(command.run()),
        What::RunCheck(command) => Ok(command.run()),
        What::Neighbour(command) => Ok(command.run()),
        What::Bench(command) => command.run(),
        What::BenchChild(command) => Ok(command.run()),
        What::Stock(options) => run_stock(&options),
        What::Storm(command) => command.run(),
        What::Demo { library, lines } => run_demo(&library, &lines),
        What::Launch(options) => {
            run_launch(options).map_or_else(not_started, |never| match never {})
        }
        What::Namespace => namespace::hold().map(|()| ExitCode::from(NOT_STARTED)),
        What::NetlinkSocket => kernel::pass_socket().map(|()| ExitCode::SUCCESS),
        What::SaAgent => sa::agent::serve().map(|()| ExitCode::SUCCESS),
    };
    result.unwrap_or_else(|error| {
        if let Some(status) = loader_test::suite::run::signalled() {
            return ExitCode::from(status);
        }
        eprintln!("loader-test: {error}");
        match error {
            Error::Interrupted(signal) => ExitCode::from(u8::try_from(128 + signal).unwrap_or(1)),
            error if error.is_the_providers() => ExitCode::FAILURE,
            _ => ExitCode::from(2),
        }
    })
}

fn run_stock(options: &Stock) -> Result<ExitCode> {
    wait::catch_signals()?;
    let mut builder = Rig::builder_without_library();
    for library in &options.libraries {
        builder = builder.library(library);
    }
    if let Some(net) = &options.net {
        builder = builder.net_file(net);
    }
    for host in &options.hosts {
        builder = match host.split_once('=') {
            Some((node, provider)) => {
                builder.host_with(node, choose(&options.libraries, provider)?)
            }
            None => builder.host(host),
        };
    }
    for (key, value) in pairs(&options.lines)? {
        builder = builder.option(key, value);
    }
    for (node, address) in &options.addresses {
        builder = builder.address(node, address);
    }
    if let Some(logs) = &options.logs {
        builder = builder.logs(logs);
    }
    if let Some(sim) = &options.sim {
        builder = builder.fabric_sim(sim);
    }
    let mut rig = builder.start()?;
    let forms: Vec<Form> = options.by.iter().map(|by| Form::from(*by)).collect();
    let mut out = io::stdout().lock();
    let result = stock::run(&rig, &forms, &mut out);
    let wants_logs = match &result {
        Ok(tally) => !tally.is_clean(),
        Err(error) => !error.needs_no_logs(),
    };
    if wants_logs {
        rig.keep_logs();
    }
    if wants_logs || options.logs.is_some() {
        eprintln!("the logs are in {}", rig.directory().display());
    }
    // First report a dead SA: without it no result says anything about the provider.
    rig.check()?;
    Ok(if result?.is_clean() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn pairs(lines: &OptionLines) -> Result<Vec<(String, String)>> {
    lines
        .read_pairs()
        .map_err(|error| Error::Input(error.to_string()))
}

fn run_demo(library: &Path, lines: &OptionLines) -> Result<ExitCode> {
    wait::catch_signals()?;
    let right = demo::run(library, &pairs(lines)?, &mut io::stdout().lock())?;
    Ok(if right {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Returns the library that `wanted` names, by path or file name.
fn choose<'a>(libraries: &'a [PathBuf], wanted: &str) -> Result<&'a PathBuf> {
    let named = |library: &&PathBuf| {
        library.as_os_str() == wanted || library.file_name().is_some_and(|name| name == wanted)
    };
    libraries
        .iter()
        .find(named)
        .ok_or_else(|| Error::Input(format!("--host: {wanted} is not one of the LIBs")))
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}

fn not_started(error: Error) -> Result<ExitCode> {
    eprintln!("{error}");
    Ok(ExitCode::from(NOT_STARTED))
}

fn run_launch(options: Launch) -> Result<std::convert::Infallible> {
    let mut binds = options.bind.into_iter();
    let binds = std::iter::from_fn(|| Some((binds.next()?, binds.next()?)));
    launch::launch(Plan {
        namespace: options.namespace,
        environment: options.env,
        binds: binds.collect(),
        netlink: options.netlink,
        command: options.command,
    })
}
