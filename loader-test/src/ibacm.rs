//! One stock ibacm on a host of the fabric, in its own mount namespace.
//!
//! The daemon's paths are fixed or limited in length. Its namespace therefore mounts the host's folder as /run, which holds
//! options, addresses, provider, log and socket.

use std::fmt::Write as _;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fabric_sim::control::{self, ControlError, LinkStatus};
pub use fabric_sim::model::event::PortEvent;
pub use fabric_sim::model::link_faults::LinkFaults;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use crate::client::{Answer, Client, Destination, Endpoint, connect_unix};
use crate::error::{Context, Error, Result};
use crate::fabric::{Node, Port};
use crate::ibsim::{Ibsim, SOCKET_NAME};
use crate::kernel;
use crate::log::{Log, Mark};
use crate::machine::Machine;
use crate::needed::copy_needed;
use crate::process::{Launch, Process, describe, lock};
use crate::programs::absolute;
use crate::record::{Gid, Lid};
use crate::wait::{self, PATIENCE};

/// The daemon's socket in its namespace.
const SOCKET: &str = "ibacm-unix.sock";
/// The daemon's log and its providers there.
const LOG: &str = "/run/ibacm.log";
const LIBRARIES: &str = "/run/providers";
/// fabric-sim's socket for commands.
const CONTROL: &str = "fabric-sim.sock";
/// The folder of the rig's wires, in the host's folder.
const WIRES: &str = "wires";
/// The daemon's options, in the host's folder.
const OPTIONS: &str = "ibacm_opts.cfg";
/// The daemon truncates lines of its files at this length.
const LONGEST_LINE: usize = 118;
/// The simulated adapter's name in libibumad and libibverbs.
const DEVICE: &str = "ibsim0";
/// Folders of sysfs that show the machine's real adapters.
const REAL_DEVICES: [&str; 3] = [
    "/sys/class/infiniband",
    "/sys/class/infiniband_mad",
    "/sys/class/infiniband_verbs",
];

/// A provider that the daemon has loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provider {
    /// The library.
    pub library: PathBuf,
    /// The provider's name.
    pub name: String,
    /// The daemon's log line about the load.
    pub line: String,
}

impl Provider {
    /// Finds a provider's name by starting the daemon without an adapter: it loads the library, logs the name and ends. This
    /// process does not load the library. Uses a new folder `directory`, with the options and files of the later run, since
    /// the library may read them when it is loaded.
    ///
    /// # Errors
    /// [`Error::Refused`] if the daemon refuses the library.
    pub fn probe(
        machine: &Arc<Machine>,
        library: &Path,
        directory: &Path,
        options: &[(String, String)],
        files: &[(String, Vec<u8>)],
    ) -> Result<Self> {
        let file = install(machine, library, directory)?;
        write_files(directory, files)?;
        let empty = directory.join("empty");
        fs::create_dir_all(&empty).context(|| format!("make {}", empty.display()))?;
        let own = [
            ("log_level", "1"),
            ("log_file", LOG),
            ("provider_lib_path", LIBRARIES),
        ];
        let own = own.map(|(key, value)| (key.to_owned(), value.to_owned()));
        write_options(directory, &[options, &own].concat())?;
        let log = daemon_log(directory);
        let mut launch = Launch::new(machine, "ibacm", &machine.programs.ibacm, directory)
            .logs_to(&log)
            .args(DAEMON_ARGUMENTS)
            .own_run(directory);
        for path in REAL_DEVICES {
            launch = launch.hide(Path::new(path), &empty);
        }
        let (status, output) = launch.run(PATIENCE)?;

        let suffix = format!(" (/run/providers/{file}) loaded");
        let loaded = |line: &str| {
            Some(
                line.strip_suffix(&suffix)?
                    .split_once(": Provider ")?
                    .1
                    .to_owned(),
            )
        };
        if let Some(line) = log.find(Mark::default(), |line| loaded(line).is_some())? {
            let name = loaded(&line).unwrap_or_default();
            check_name(&name, library)?;
            let library = library.to_owned();
            return Ok(Self {
                library,
                name,
                line,
            });
        }
        match refusal(&log)? {
            Some(line) => Err(Error::Refused {
                library: library.to_owned(),
                line,
            }),
            None => Err(Error::Ended {
                name: format!("ibacm, while it loaded {},", library.display()),
                status: status.map_or("killed: it hung".to_owned(), describe),
                tail: format!("{output}{}", log.tail(8)),
            }
            .of_the_daemon()),
        }
    }
}

/// Checks that the name fits the line `provider NAME default` of the options file, whose fields end at a blank.
fn check_name(name: &str, library: &Path) -> Result<()> {
    if name.is_empty() || name.len() >= 64 || name.contains(char::is_whitespace) {
        return Err(Error::Input(format!(
            "the provider in {} calls itself \"{name}\", which ibacm's options file cannot name: 1 to 63 bytes without a \
             blank",
            library.display()
        )));
    }
    Ok(())
}

/// Returns the log line in which the daemon refuses a library; the library's own log lines precede it.
fn refusal(log: &Log) -> Result<Option<String>> {
    const REFUSALS: [&str; 4] = [
        "could not load provider",
        "provider_query not found",
        "provider_query failed",
        "unmatched provider version",
    ];
    const CORE: [&str; 3] = ["acm_open_providers: ", "acm_log_options: ", "main: "];
    let text = log.since(Mark::default())?;
    let lines: Vec<&str> = text.lines().collect();
    let refused = |line: &&str| REFUSALS.iter().any(|refusal| line.contains(refusal));
    let Some(end) = lines.iter().position(refused) else {
        return Ok(None);
    };
    let is_core = |line: &&str| CORE.iter().any(|function| line.contains(function));
    let begin = lines[..end].iter().rposition(is_core);
    Ok(Some(lines[begin.map_or(0, |at| at + 1)..=end].join("\n")))
}

/// Returns the last log lines about errors.
fn complaints(log: &Log) -> Result<String> {
    const MOST: usize = 12;
    let text = log.since(Mark::default())?;
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| line.to_lowercase().contains("error"))
        .collect();
    Ok(lines[lines.len().saturating_sub(MOST)..].join("\n"))
}

const DAEMON_ARGUMENTS: [&str; 5] = [
    "-P",
    "-A",
    "/run/ibacm_addr.cfg",
    "-O",
    "/run/ibacm_opts.cfg",
];

fn daemon_log(directory: &Path) -> Log {
    Log::new(directory.join("ibacm.log"))
}

/// The folder for copies of libraries, in a daemon's folder.
pub(crate) const PROVIDERS: &str = "providers";

/// Copies a library to the provider folder of a daemon, which skips symbolic links and names that do not end in .so. Also
/// copies the libraries beside it that it needs. Returns the file's name.
fn install(machine: &Machine, library: &Path, directory: &Path) -> Result<String> {
    if !library.is_file() {
        return Err(Error::Input(format!("{} is not a file", library.display())));
    }
    let mut name = library
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    if !name.ends_with(".so") {
        name.push_str(".so");
    }
    let folder = directory.join(PROVIDERS);
    fs::create_dir_all(&folder).context(|| format!("make {}", folder.display()))?;
    let copy = folder.join(&name);
    fs::copy(library, &copy)
        .context(|| format!("copy {} to {}", library.display(), copy.display()))?;
    copy_needed(
        &machine.programs.ibacm,
        &absolute(library)?,
        &copy,
        directory,
    )?;
    Ok(name)
}

fn write_files(directory: &Path, files: &[(String, Vec<u8>)]) -> Result<()> {
    for (name, content) in files {
        let path = directory.join(name);
        fs::write(&path, content).context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

fn write_options(directory: &Path, options: &[(String, String)]) -> Result<()> {
    let mut lines: Vec<(String, String)> = [
        ("log_file", LOG),
        ("lock_file", "/run/ibacm.pid"),
        ("provider_lib_path", LIBRARIES),
        ("server_mode", "unix"),
        ("support_ips_in_addr_cfg", "1"),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into();
    for (key, value) in options {
        if key.eq_ignore_ascii_case("server_mode") && value != "unix" {
            return Err(Error::Input(format!(
                "server_mode {value}: a run needs ibacm's Unix socket; remove the option"
            )));
        }
        // Only this key may occur several times, once for each subnet.
        if !key.eq_ignore_ascii_case("provider") {
            lines.retain(|(known, _)| !known.eq_ignore_ascii_case(key));
        }
        lines.push((key.clone(), value.clone()));
    }
    let mut text = String::new();
    for (key, value) in lines {
        let line = format!("{key} {value}");
        if key.is_empty() || key.contains(char::is_whitespace) || value.contains('\n') {
            return Err(Error::Input(format!(
                "{line:?} is not an option; expected a name without blanks and a value, in one line"
            )));
        }
        if line.len() > LONGEST_LINE {
            return Err(Error::Input(format!(
                "option line longer than the {LONGEST_LINE} bytes that ibacm reads: {line}"
            )));
        }
        let _ = writeln!(text, "{line}");
    }
    write(directory, OPTIONS, &text)
}

fn write(directory: &Path, name: &str, text: &str) -> Result<()> {
    let path = directory.join(name);
    fs::write(&path, text).context(|| format!("write {}", path.display()))
}

/// Links libraries into the folder, so that their paths have no blanks, which separate preloads. Returns the value of
/// LD_PRELOAD for a program whose /run is the folder.
fn link_preloads<'a>(
    libraries: impl Iterator<Item = &'a PathBuf>,
    directory: &Path,
) -> Result<String> {
    let folder = directory.join("preload");
    fs::create_dir_all(&folder).context(|| format!("make {}", folder.display()))?;
    let mut names = Vec::new();
    for (number, library) in libraries.enumerate() {
        let name = format!("{number}.so");
        symlink(absolute(library)?, folder.join(&name))
            .context(|| format!("link {} into {}", library.display(), folder.display()))?;
        names.push(format!("/run/preload/{name}"));
    }
    Ok(names.join(" "))
}

/// A host of a rig: a node of the fabric with a daemon.
#[derive(Debug)]
pub struct Host {
    machine: Arc<Machine>,
    node: String,
    directory: PathBuf,
    provider: Provider,
    addresses: Vec<String>,
    port: Port,
    gid: Gid,
    preloads: String,
    environment: Vec<(String, String)>,
    netlink: bool,
    wires: PathBuf,
    daemon: Mutex<Option<Process>>,
    acme: Mutex<()>,
}

/// The settings of a [`Host`].
#[derive(Debug)]
pub(crate) struct Setup<'a> {
    pub machine: &'a Arc<Machine>,
    pub node: &'a Node,
    pub subnet_prefix: u64,
    pub directory: PathBuf,
    pub provider: Provider,
    pub options: &'a [(String, String)],
    pub addresses: Vec<String>,
    /// Files for the host's folder, the daemon's /run.
    pub files: &'a [(String, Vec<u8>)],
    /// Libraries to preload before the simulation's.
    pub preloads: &'a [PathBuf],
    /// Variables for programs at the host's port.
    pub environment: &'a [(String, String)],
    /// Whether systemd passes a netlink socket to the daemon.
    pub netlink: bool,
    /// The folder through which the rig's daemons exchange datagrams.
    pub wires: &'a Path,
}

impl Host {
    pub(crate) fn prepare(setup: Setup<'_>) -> Result<Self> {
        let Setup {
            node, directory, ..
        } = &setup;
        let port = node
            .attached_port()
            .ok_or_else(|| Error::Input(format!("the node {} has no port", node.name)))?;
        fs::create_dir_all(directory).context(|| format!("make {}", directory.display()))?;
        write_files(directory, setup.files)?;
        let wires = directory.join(WIRES);
        fs::create_dir_all(&wires).context(|| format!("make {}", wires.display()))?;
        install(setup.machine, &setup.provider.library, directory)?;
        let mut options = vec![
            ("log_level".to_owned(), "2".to_owned()),
            (
                "provider".to_owned(),
                format!("{} default", setup.provider.name),
            ),
        ];
        options.extend_from_slice(setup.options);
        write_options(directory, &options)?;
        let mut lines = String::new();
        for address in &setup.addresses {
            if address.is_empty() || address.len() >= 47 || address.contains(char::is_whitespace) {
                return Err(Error::Input(format!(
                    "ibacm's address file takes addresses of 1 to 46 bytes without a blank, not \"{address}\""
                )));
            }
            let _ = writeln!(lines, "{address} {DEVICE} {} default", port.number);
        }
        write(directory, "ibacm_addr.cfg", &lines)?;
        let simulation = [
            &setup.machine.programs.umad2sim,
            &setup.machine.programs.fabric_sim,
        ];
        let preloads = link_preloads(setup.preloads.iter().chain(simulation), directory)?;
        Ok(Self {
            machine: Arc::clone(setup.machine),
            node: node.name.clone(),
            gid: Gid::new(setup.subnet_prefix, port.guid),
            port: port.clone(),
            preloads,
            environment: setup.environment.to_vec(),
            netlink: setup.netlink,
            wires: setup.wires.to_owned(),
            directory: setup.directory,
            provider: setup.provider,
            addresses: setup.addresses,
            daemon: Mutex::default(),
            acme: Mutex::default(),
        })
    }

    /// Returns the node's name in the net file.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// Returns its folder, which is /run for the daemon and its clients. Tests can put files for the daemon there.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns its provider.
    pub fn provider(&self) -> &Provider {
        &self.provider
    }

    /// Returns the GID of its port.
    pub fn gid(&self) -> Gid {
        self.gid
    }

    /// Returns the LID of its port when the rig started; [`crate::rig::Rig::lid`] returns the current one.
    pub fn first_lid(&self) -> Lid {
        self.port.lid
    }

    /// Returns the number of its port.
    pub fn port_number(&self) -> u8 {
        self.port.number
    }

    /// Returns its names and IP addresses, at least one.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// Returns the daemon's log, which starts empty at each start of the daemon.
    pub fn log(&self) -> Log {
        daemon_log(&self.directory)
    }

    /// Returns the path of the daemon's socket.
    pub fn socket(&self) -> PathBuf {
        self.directory.join(SOCKET)
    }

    /// Starts the daemon and waits until it answers and its port has an endpoint. `ibsim` must have a free place.
    pub fn start(&self, ibsim: &Ibsim) -> Result<()> {
        let mut running = lock(&self.daemon);
        if running.is_some() {
            return Err(Error::Input(format!(
                "ibacm on {} is already running",
                self.node
            )));
        }
        ibsim.drop_dead_clients()?;
        // A killed daemon leaves its socket behind.
        let _ = fs::remove_file(self.socket());
        self.set_log_aside()?;
        let launch = Launch::new(
            &self.machine,
            "ibacm",
            &self.machine.programs.ibacm,
            &self.directory,
        )
        .logs_to(&self.log())
        .called(format!("ibacm on {}", self.node))
        .args(DAEMON_ARGUMENTS)
        .args(self.netlink.then_some("--systemd"))
        .netlink(self.netlink)
        .env("FABRIC_SIM_CONTROL", format!("/run/{CONTROL}"));
        let process = self.at_the_port(launch).start()?;
        wait::until_true(
            format!("ibacm on {} to listen", self.node),
            PATIENCE,
            || {
                process.check().map_err(|ended| self.explain(ended))?;
                Ok(self.socket().exists() && Client::connect(&self.socket()).is_ok())
            },
        )
        .map_err(Error::of_the_daemon)?;
        let provider = &self.provider.name;
        if !self
            .endpoints()
            .map_err(Error::of_the_daemon)?
            .iter()
            .any(|endpoint| endpoint.provider == *provider)
        {
            return Err(self.explain(Error::NoEndpoint {
                host: self.node.clone(),
                provider: provider.clone(),
                complaints: complaints(&self.log())?,
            }));
        }
        *running = Some(process);
        Ok(())
    }

    /// Sets up a program with this host's port, and the host's folder as /run.
    fn at_the_port(&self, launch: Launch) -> Launch {
        let variables = self.environment.iter();
        variables
            .fold(launch, |launch, (name, value)| launch.env(name, value))
            .env("LD_PRELOAD", &self.preloads)
            .env("SIM_HOST", &self.node)
            .env("IBSIM_SOCKNAME", SOCKET_NAME)
            .env("FABRIC_SIM_WIRES", format!("/run/{WIRES}"))
            .show(&self.wires, &self.directory.join(WIRES))
            .own_run(&self.directory)
    }

    /// Renames the log of an earlier daemon, since the daemon truncates its log at start.
    fn set_log_aside(&self) -> Result<()> {
        let log = self.log();
        let free = (1..).map(|number| self.directory.join(format!("ibacm-{number}.log")));
        match free.into_iter().find(|path| !path.exists()) {
            Some(aside) if log.path().exists() => fs::rename(log.path(), &aside)
                .context(|| format!("rename {} to {}", log.path().display(), aside.display())),
            _ => Ok(()),
        }
    }

    /// Adds the daemon's own log line about the failure, if there is one.
    fn explain(&self, error: Error) -> Error {
        let log = self.log();
        if let Ok(Some(line)) = refusal(&log) {
            return Error::Refused {
                library: self.provider.library.clone(),
                line,
            };
        }
        match log.find(Mark::default(), |line| {
            line.contains("is not an InfiniBand port")
        }) {
            Ok(Some(line)) => Error::Port {
                host: self.node.clone(),
                line,
            },
            _ => error,
        }
    }

    fn with<T>(&self, action: impl FnOnce(&Process) -> Result<T>) -> Result<T> {
        match &*lock(&self.daemon) {
            Some(process) => action(process),
            None => Err(Error::Input(format!(
                "ibacm on {} is not running",
                self.node
            ))),
        }
    }

    /// Returns the daemon's process id, if it was started and not killed.
    pub fn pid(&self) -> Option<i32> {
        lock(&self.daemon).as_ref().map(Process::pid)
    }

    /// Returns an error with the end of its output if the daemon is not running.
    pub fn check(&self) -> Result<()> {
        self.with(Process::check)
    }

    /// Stops the daemon (SIGSTOP).
    pub fn stop(&self) -> Result<()> {
        self.with(Process::stop)
    }

    /// Continues the daemon (SIGCONT).
    pub fn resume(&self) -> Result<()> {
        self.with(Process::resume)
    }

    /// Kills the daemon (SIGKILL).
    pub fn kill(&self) {
        // Dropping a process kills it.
        lock(&self.daemon).take();
    }

    /// Sets the daemon's descriptor limit, and returns the old one. Below its number of open descriptors it can open no
    /// more.
    pub fn limit_descriptors(&self, limit: u64) -> Result<u64> {
        let operation = || format!("limit the descriptors of ibacm on {}", self.node);
        let pid = self.with(|process| Ok(process.pid()))?;
        let pid = Pid::from_raw(pid);
        let old = prlimit(
            pid,
            Resource::Nofile,
            Rlimit {
                current: Some(limit),
                maximum: getrlimit(Resource::Nofile).maximum,
            },
        );
        let current = old.context(operation)?.current;
        Ok(current.unwrap_or(u64::MAX))
    }

    /// Sets an option of the daemon, a line of its ibacm_opts.cfg, for its next start.
    pub fn set_option(&self, key: &str, value: &str) -> Result<()> {
        let path = self.directory.join(OPTIONS);
        let operation = |verb: &str| format!("{verb} {}", path.display());
        let old = fs::read_to_string(&path).context(|| operation("read"))?;
        let others = old
            .lines()
            .filter(|line| line.split(' ').next() != Some(key));
        let lines: Vec<String> = others
            .map(str::to_owned)
            .chain([format!("{key} {value}\n")])
            .collect();
        fs::write(&path, lines.join("\n")).context(|| operation("write"))
    }

    /// Opens a new connection to the daemon.
    pub fn connect(&self) -> Result<Client> {
        Client::connect(&self.socket())
    }

    /// Resolves a destination over a new connection.
    pub fn resolve(&self, destination: &Destination) -> Result<Answer> {
        self.connect()?.resolve(destination)
    }

    /// Returns the daemon's endpoints.
    pub fn endpoints(&self) -> Result<Vec<Endpoint>> {
        self.connect()?.endpoints(self.port.number)
    }

    /// Runs `ib_acme` in the daemon's namespace and returns its output with its exit status. Kills it after `limit`.
    pub fn acme(&self, arguments: &[&str], limit: Duration) -> Result<String> {
        self.acme_while(arguments, limit, || Ok(()))
    }

    /// Does the same; an error of `check` ends it.
    pub fn acme_while(
        &self,
        arguments: &[&str],
        limit: Duration,
        check: impl Fn() -> Result<()>,
    ) -> Result<String> {
        let _one_at_a_time = lock(&self.acme);
        Launch::new(
            &self.machine,
            "ib_acme",
            &self.machine.programs.ib_acme,
            &self.directory,
        )
        .args(arguments)
        .own_run(&self.directory)
        .run_while(limit, check)
        .map(|(status, output)| match status {
            Some(_) => output,
            None => format!("{output}ib_acme hung and was killed\n"),
        })
    }

    /// Opens a netlink socket of the daemons' protocol in the rig's network namespace, see [`crate::kernel`].
    pub(crate) fn netlink_socket(&self) -> Result<OwnedFd> {
        let (ours, theirs) = UnixStream::pair().context(|| "make a pair of sockets".to_owned())?;
        let program = &self.machine.programs.loader_test;
        let launch = Launch::new(&self.machine, "netlink-socket", program, &self.directory)
            .args(["netlink-socket"])
            .stdin(Stdio::from(OwnedFd::from(theirs)));
        let (status, output) = launch.run(PATIENCE)?;
        match status {
            Some(status) if status.success() => kernel::take_socket(&ours),
            _ => Err(Error::protocol("netlink-socket", output)),
        }
    }

    /// Runs a program with this host's port and daemon, and returns its output. ibsim must have a free place.
    ///
    /// # Errors
    /// If it fails, or takes longer than `limit`.
    pub fn run(&self, program: &Path, arguments: &[&str], limit: Duration) -> Result<String> {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        let launch = Launch::new(&self.machine, &name, program, &self.directory).args(arguments);
        let (status, output) = self.at_the_port(launch).run(limit)?;
        match status {
            Some(status) if status.success() => Ok(output),
            status => Err(Error::Ended {
                name: name.into_owned(),
                status: status.map_or("killed: it hung".to_owned(), describe),
                tail: output,
            }),
        }
    }

    /// Sets the faults for datagrams that the daemon sends; [`LinkFaults::default`] has none. A restarted daemon has none.
    pub fn set_link_faults(&self, faults: LinkFaults) -> Result<()> {
        let port = self.port.number;
        self.adapter(|adapter| adapter.set_link_faults(port, faults))
    }

    /// Returns the faults for the daemon's datagrams, and the counts since they were set.
    pub fn link_faults(&self) -> Result<LinkStatus> {
        self.adapter(|adapter| adapter.link_faults(self.port.number))
    }

    /// Raises an event of the daemon's port.
    pub fn raise(&self, event: PortEvent) -> Result<()> {
        self.adapter(|adapter| adapter.event(event, self.port.number))
    }

    /// Sends the simulated adapter a command.
    fn adapter<R>(
        &self,
        does: impl FnOnce(&mut control::Client) -> std::result::Result<R, ControlError>,
    ) -> Result<R> {
        let path = self.directory.join(CONTROL);
        control::Client::over(connect_unix(&path)?, path)
            .and_then(|mut adapter| does(&mut adapter))
            .map_err(|error| Error::protocol("fabric-sim", error.to_string()))
    }
}
