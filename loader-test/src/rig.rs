//! A simulated fabric with a real subnet manager and real daemons.
//!
//! ```no_run
//! use loader_test::rig::Rig;
//!
//! let rig = Rig::builder("/usr/lib/x86_64-linux-gnu/ibacm/libibacmp.so").start()?;
//! let host = rig.host("Hca1")?;
//! let answer = host.connect()?.resolve(&loader_test::client::Destination::Lid(rig.lid("Hca2")?))?;
//! # Ok::<(), loader_test::error::Error>(())
//! ```
//!
//! | to | use |
//! | --- | --- |
//! | send a daemon requests | [`Host::resolve`], or [`Host::connect`] for a [`client::Client`]: resolve, cached, query, counters, endpoints, raw bytes |
//! | have many requests outstanding | a [`client::Client`] each, [`send`](client::Client::send), [`has_answer`](client::Client::has_answer), [`receive`](client::Client::receive) |
//! | run stock's client | [`Host::acme`], read by [`crate::acme`] |
//! | know the right answer | [`Rig::sa_path`], [`Rig::ask_sa`], [`Rig::differences`] |
//! | query the SA by any components, or for its ClassPortInfo | [`Rig::get_path`], [`Rig::class_port_info`] |
//! | send a daemon requests as the kernel does | [`Builder::netlink`], [`crate::kernel::Kernel`] |
//! | count SA queries | [`Rig::path_queries`], [`Rig::queries`] with `rig.opensm().log().end()` as the mark |
//! | silence the SA, and let it respond again | [`Opensm::stop`], [`Opensm::resume`] |
//! | stop the SA, and start it on the same or another node | [`Rig::kill_opensm`], [`Rig::start_opensm`], [`Rig::start_opensm_on`] |
//! | pull a cable | [`Rig::pull_cable`], [`Rig::put_cable_back`], [`Rig::wait_for_port`] |
//! | change a LID | [`Rig::change_lid`]; behind opensm's back, [`Ibsim::set_base_lid`] |
//! | raise an event in a daemon | [`Host::raise`] |
//! | lose, double, swap, corrupt or delay a daemon's datagrams | [`Host::set_link_faults`] |
//! | stop, kill and restart a daemon | [`Host::stop`], [`Host::resume`], [`Host::kill`], [`Rig::start_host`] |
//! | wait for a log line | [`Host::log`], [`Opensm::log`] and [`wait_for`](crate::log::Log::wait_for) |
//! | give a daemon files | [`Builder::file`], [`Host::directory`]: the daemon sees them in /run |
//! | have partitions or QoS | [`Builder::opensm_file`] for `partitions.conf`, `qos-policy.conf`, [`Builder::opensm_option`] for `qos` |
//!
//! The simulated adapter polls its port every tenth of a second, so a daemon gets a change with delay: wait for the expected
//! state with [`wait::until_true`].
//!
//! All programs of a rig end when the rig is dropped, at the latest with this process, even after a signal, a panic or
//! SIGKILL. They share the rig's own network namespace, see [`crate::namespace`]. Namespaces and mounts end with the programs.
//! Dropping the rig removes its folder with all logs (after SIGKILL, the next run does), unless the thread panics,
//! [`Builder::logs`] named the folder, or the environment variable `LOADER_TEST_KEEP` is set.
//!
//! Threads can share a rig. Its methods return after their change of the fabric is complete.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use crate::client;
use crate::compare::{Difference, compare};
use crate::error::{Context, Error, Result};
use crate::fabric::{Fabric, Kind, Node, Port};
use crate::ibacm::{self, Host, Provider, Setup};
use crate::ibsim::{Ibsim, MOST_CLIENTS};
use crate::log::Mark;
use crate::machine::Machine;
use crate::opensm::{LoggedQuery, Opensm};
use crate::programs::absolute;
use crate::record::{Gid, Lid, PathRecord};
use crate::sa::{Answer, Asker, ClassPortInfo, Destination, SaQuery, attribute};
use crate::scratch::Scratch;
use crate::stand_in::HOSTS;
use crate::wait::{self, PATIENCE};

/// Maximum number of hosts: opensm and the SA agent need places in ibsim too.
pub const MOST_HOSTS: usize = MOST_CLIENTS - 2;

/// Default number of hosts.
const DEFAULT_HOSTS: usize = 4;

/// Four hosts on two switches: the nodes Hca1 to Hca4.
pub const FOUR_HOSTS: &str = include_str!("../fabrics/four-hosts.net");

/// Six hosts, Hca1 to Hca6, on a ring of six switches: a subnet manager that avoids deadlocks needs several service levels.
pub const RING: &str = include_str!("../fabrics/ring.net");

/// 324 hosts, H0 to H323, on a fat tree of 27 switches.
pub const FAT_TREE_324: &str = include_str!("../fabrics/fat-tree-324.net");

/// 1600 hosts, H0 to H1599, on a fat tree of 120 switches.
pub const FAT_TREE_1600: &str = include_str!("../fabrics/fat-tree-1600.net");

/// The settings of a rig.
#[derive(Clone, Debug)]
pub struct Builder {
    libraries: Vec<PathBuf>,
    net: Net,
    hosts: Vec<HostChoice>,
    options: Vec<(String, String)>,
    opensm_options: Vec<(String, String)>,
    opensm_files: Vec<(String, Vec<u8>)>,
    addresses: Vec<(String, String)>,
    files: Vec<(String, Vec<u8>)>,
    logs: Option<PathBuf>,
    fabric_sim: Option<PathBuf>,
    preloads: Vec<PathBuf>,
    environment: Vec<(String, String)>,
    netlink: bool,
}

#[derive(Clone, Debug)]
enum Net {
    Text(String),
    File(PathBuf),
}

#[derive(Clone, Debug)]
struct HostChoice {
    node: String,
    library: Option<PathBuf>,
}

impl Builder {
    /// Adds a provider library. Hosts take them in turn.
    pub fn library(mut self, library: impl Into<PathBuf>) -> Self {
        self.libraries.push(library.into());
        self
    }

    /// Sets the fabric, as the text of a net file; the default is [`FOUR_HOSTS`].
    pub fn net(mut self, text: impl Into<String>) -> Self {
        self.net = Net::Text(text.into());
        self
    }

    /// Sets the fabric, as a net file.
    pub fn net_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.net = Net::File(path.into());
        self
    }

    /// Adds a node with a daemon. By default the first four hosts of the fabric have one.
    pub fn host(mut self, node: impl Into<String>) -> Self {
        let node = node.into();
        self.hosts.push(HostChoice {
            node,
            library: None,
        });
        self
    }

    /// Adds a node with a daemon and its own provider.
    pub fn host_with(mut self, node: impl Into<String>, library: impl Into<PathBuf>) -> Self {
        let library = Some(library.into());
        let node = node.into();
        self.hosts.push(HostChoice { node, library });
        self
    }

    /// Sets an option of every daemon, a line of ibacm_opts.cfg.
    pub fn option(mut self, key: impl Into<String>, value: impl ToString) -> Self {
        self.options.push((key.into(), value.to_string()));
        self
    }

    /// Sets an option of opensm, a line of opensm.conf.
    pub fn opensm_option(mut self, key: impl Into<String>, value: impl ToString) -> Self {
        self.opensm_options.push((key.into(), value.to_string()));
        self
    }

    /// Puts a file into opensm's folder, from which opensm reads `partitions.conf` and `qos-policy.conf`.
    pub fn opensm_file(mut self, name: impl Into<String>, content: impl Into<Vec<u8>>) -> Self {
        self.opensm_files.push((name.into(), content.into()));
        self
    }

    /// Gives a host a name or IP address. With at least one, every daemon reads all addresses of the rig from a file
    /// (`addr_preload acm_hosts`). A host without addresses has its node's name as its address.
    pub fn address(mut self, node: impl Into<String>, address: impl Into<String>) -> Self {
        self.addresses.push((node.into(), address.into()));
        self
    }

    /// Puts a file into each daemon's /run.
    pub fn file(mut self, name: impl Into<String>, content: impl Into<Vec<u8>>) -> Self {
        self.files.push((name.into(), content.into()));
        self
    }

    /// Sets the folder for the rig's files, which are then kept. It must be empty or not exist.
    pub fn logs(mut self, directory: impl Into<PathBuf>) -> Self {
        self.logs = Some(directory.into());
        self
    }

    /// Sets the fabric-sim library, if it is not beside the executable.
    pub fn fabric_sim(mut self, library: impl Into<PathBuf>) -> Self {
        self.fabric_sim = Some(library.into());
        self
    }

    /// Preloads a library into every daemon, before the simulation's.
    pub fn preload(mut self, library: impl Into<PathBuf>) -> Self {
        self.preloads.push(library.into());
        self
    }

    /// Sets an environment variable of every daemon, such as `FABRIC_SIM_SUBNET_TIMEOUT`; fabric-sim's documentation lists
    /// them.
    pub fn env(mut self, name: impl Into<String>, value: impl ToString) -> Self {
        self.environment.push((name.into(), value.to_string()));
        self
    }

    /// Starts every daemon as systemd does, with a netlink socket of the protocol [`crate::launch::NETLINK`]. Its port is the
    /// daemon's process id; a test plays the kernel by sending to it.
    pub fn netlink(mut self) -> Self {
        self.netlink = true;
        self
    }

    /// Starts everything and waits until the subnet is up and every daemon has an endpoint.
    pub fn start(self) -> Result<Rig> {
        Rig::start(self)
    }
}

/// A running fabric with its daemons.
#[derive(Debug)]
pub struct Rig {
    // Fields drop in this order.
    hosts: Vec<Host>,
    asker: Asker,
    opensm: Opensm,
    ibsim: Ibsim,
    machine: Arc<Machine>,
    folder: Folder,
    addresses: Vec<(String, String)>,
}

impl Rig {
    /// Returns the settings for four hosts whose daemons all have the provider in `library`.
    pub fn builder(library: impl Into<PathBuf>) -> Builder {
        Self::builder_without_library().library(library)
    }

    /// Returns the settings for four hosts; [`Builder::library`] or [`Builder::host_with`] must name the providers.
    pub fn builder_without_library() -> Builder {
        Builder {
            libraries: Vec::new(),
            net: Net::Text(FOUR_HOSTS.to_owned()),
            hosts: Vec::new(),
            options: Vec::new(),
            opensm_options: Vec::new(),
            opensm_files: Vec::new(),
            addresses: Vec::new(),
            files: Vec::new(),
            logs: None,
            fabric_sim: None,
            preloads: Vec::new(),
            environment: Vec::new(),
            netlink: false,
        }
    }

    fn start(plan: Builder) -> Result<Self> {
        // Check all input before starting the fabric.
        let machine = Machine::prepare(plan.fabric_sim.as_deref())?;
        let mut folder = Folder::new(plan.logs.as_deref())?;
        let result = Self::start_in(&machine, &plan, &folder);
        match result {
            Ok((hosts, asker, opensm, ibsim)) => Ok(Self {
                hosts,
                asker,
                opensm,
                ibsim,
                machine,
                folder,
                addresses: plan.addresses,
            }),
            Err(error) => {
                // Keep the logs for the reader of the error, unless nothing was logged.
                folder.keep |= !error.needs_no_logs();
                Err(error)
            }
        }
    }

    fn start_in(
        machine: &Arc<Machine>,
        plan: &Builder,
        folder: &Folder,
    ) -> Result<(Vec<Host>, Asker, Opensm, Ibsim)> {
        let libraries = plan
            .libraries
            .iter()
            .chain(plan.hosts.iter().filter_map(|host| host.library.as_ref()));
        // Before the fabric starts no node has a GID.
        let (options, files) = address_files(plan, |_| None);
        let mut providers: Vec<Provider> = Vec::new();
        for library in libraries {
            if !providers
                .iter()
                .any(|provider| provider.library == *library)
            {
                let directory = folder.make(&format!("probe-{}", providers.len() + 1))?;
                let provider = Provider::probe(machine, library, &directory, &options, &files)?;
                providers.push(provider);
            }
        }

        let fabric_directory = folder.make("fabric")?;
        let net = fabric_directory.join("fabric.net");
        match &plan.net {
            Net::Text(text) => {
                fs::write(&net, text).context(|| format!("write {}", net.display()))?
            }
            Net::File(file) => {
                let text = fs::read(file)
                    .map_err(|error| Error::Input(format!("{}: {error}", file.display())))?;
                if !has_node(&text) {
                    return Err(Error::Input(format!(
                        "{}: the file has no node; a net file for ibsim has lines like Hca 2 \"Hca1\"",
                        file.display()
                    )));
                }
                fs::write(&net, text).context(|| format!("write {}", net.display()))?;
            }
        }
        let ibsim = Ibsim::start(machine, &net, &fabric_directory)?;
        let fabric = ibsim.fabric()?;
        let choices = choose_hosts(plan, &fabric)?;
        for (node, _) in &plan.addresses {
            if !choices.iter().any(|choice| choice.node == *node) {
                return Err(Error::Input(format!(
                    "an address names {node}, which is not a host of the rig"
                )));
            }
        }

        let opensm_directory = folder.make("opensm")?;
        for (name, content) in &plan.opensm_files {
            let path = opensm_directory.join(name);
            fs::write(&path, content).context(|| format!("write {}", path.display()))?;
        }
        let manager = fabric
            .channel_adapters()
            .find(|node| is_linked(node))
            .ok_or_else(|| {
                Error::Input("no host of the fabric has a cable at its first port".to_owned())
            })?;
        let opensm = Opensm::prepare(
            machine,
            &manager.name,
            &opensm_directory,
            &plan.opensm_options,
        )?;
        opensm.start(&ibsim)?;
        let asker = Asker::start(machine, &manager.name, &fabric_directory)?;

        let wires = folder.make("wires")?;
        let fabric = ibsim.fabric()?;
        let (options, files) = address_files(plan, |node| {
            let port = fabric.node(node)?.attached_port()?;
            Some(Gid::new(opensm.subnet_prefix(), port.guid))
        });
        let hosts: Vec<Host> = choices
            .iter()
            .enumerate()
            .map(|(index, choice)| {
                let turn = plan.libraries.get(index % plan.libraries.len().max(1));
                let library = choice.library.as_ref().or(turn).ok_or_else(|| {
                    Error::Input(format!("no provider library for {}; name one", choice.node))
                })?;
                let provider = providers
                    .iter()
                    .find(|provider| provider.library == *library);
                let mut addresses: Vec<String> =
                    addresses_of(plan, &choice.node).cloned().collect();
                if addresses.is_empty() {
                    addresses.push(choice.node.clone());
                }
                Host::prepare(Setup {
                    machine,
                    node: find_node(&fabric, &choice.node)?,
                    subnet_prefix: opensm.subnet_prefix(),
                    directory: folder.make(&format!("host-{}", index + 1))?,
                    provider: provider.cloned().ok_or_else(|| {
                        Error::Input(format!("no provider was loaded from {}", library.display()))
                    })?,
                    options: &options,
                    addresses,
                    files: &files,
                    preloads: &plan.preloads,
                    environment: &plan.environment,
                    netlink: plan.netlink,
                    wires: &wires,
                })
            })
            .collect::<Result<_>>()?;
        for host in &hosts {
            // Without an SA a daemon may have no endpoint.
            host.start(&ibsim).or_else(|error| {
                ibsim.process().check()?;
                opensm.check()?;
                Err(error)
            })?;
        }
        Ok((hosts, asker, opensm, ibsim))
    }

    /// Returns an error with the end of the log if ibsim, opensm or the SA agent has ended: no answer of a daemon then says
    /// anything about its provider.
    pub fn check(&self) -> Result<()> {
        self.ibsim.process().check()?;
        self.opensm.check()?;
        self.asker.process().check()
    }

    /// Returns the environment of its programs, for programs that a test starts itself; see [`Launch`](crate::process::Launch).
    pub fn machine(&self) -> &Arc<Machine> {
        &self.machine
    }

    /// Returns the folder with all files of the rig's programs.
    pub fn directory(&self) -> &Path {
        &self.folder.path
    }

    /// Returns the hosts with a daemon.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// Iterates over all addresses given by [`Builder::address`], with their hosts.
    pub fn given_addresses(&self) -> impl Iterator<Item = (&Host, &str)> {
        let given = |host: &Host, address: &str| {
            self.addresses
                .iter()
                .any(|(node, of)| node == host.node() && of == address)
        };
        let all = self.hosts.iter().flat_map(|host| {
            host.addresses()
                .iter()
                .map(move |address| (host, address.as_str()))
        });
        all.filter(move |(host, address)| given(host, address))
    }

    /// Returns the host on that node.
    pub fn host(&self, node: &str) -> Result<&Host> {
        let host = self.hosts.iter().find(|host| host.node() == node);
        host.ok_or_else(|| Error::Input(format!("{node} is not a host of the rig")))
    }

    /// Returns the subnet manager. Use the rig's methods to start and kill it.
    pub fn opensm(&self) -> &Opensm {
        &self.opensm
    }

    /// Returns the fabric simulator.
    pub fn ibsim(&self) -> &Ibsim {
        &self.ibsim
    }

    /// Returns the current fabric.
    pub fn fabric(&self) -> Result<Fabric> {
        self.ibsim.fabric()
    }

    /// Returns the current state of the node's port to which programs are attached.
    pub fn port(&self, node: &str) -> Result<Port> {
        let node_now = self.ibsim.node(node)?;
        let port = node_now.attached_port();
        port.cloned()
            .ok_or_else(|| Error::Input(format!("{node} has no port")))
    }

    /// Returns the current LID of a node's port.
    pub fn lid(&self, node: &str) -> Result<Lid> {
        self.port(node).map(|port| port.lid)
    }

    /// Returns the GID of a node's port.
    pub fn gid(&self, node: &str) -> Result<Gid> {
        self.port(node).map(|port| self.gid_of(&port))
    }

    /// Returns the GID of a port.
    pub fn gid_of(&self, port: &Port) -> Gid {
        Gid::new(self.opensm.subnet_prefix(), port.guid)
    }

    /// Waits until a node's port is active, or inactive.
    pub fn wait_for_port(&self, node: &str, active: bool) -> Result<()> {
        let state = if active { "up" } else { "down" };
        wait::until_true(
            format!("the port of {node} to be {state}"),
            PATIENCE,
            || Ok(self.port(node)?.is_active() == active),
        )
    }

    /// Sends the SA a query.
    pub fn ask_sa(&self, query: &SaQuery) -> Result<Answer> {
        let sm_lid = self.port(&self.opensm.node())?.lid;
        self.asker.ask(sm_lid, query)
    }

    /// Queries the SA for one path by exactly the fields of `record` that `component_mask` names
    /// ([`crate::sa::component`]).
    pub fn get_path(&self, component_mask: u64, record: &PathRecord) -> Result<Answer> {
        let sm_lid = self.port(&self.opensm.node())?.lid;
        self.asker.get_path(sm_lid, component_mask, record)
    }

    /// Queries the SA's ClassPortInfo.
    pub fn class_port_info(&self) -> Result<ClassPortInfo> {
        let sm_lid = self.port(&self.opensm.node())?.lid;
        self.asker.class_port_info(sm_lid)
    }

    /// Returns the SA's path from a host's port, in the default partition.
    pub fn sa_path(&self, from: Gid, to: Destination) -> Result<PathRecord> {
        let query = SaQuery {
            sgid: from,
            destination: to,
            pkey: Some(0xffff),
        };
        match self.ask_sa(&query)? {
            Answer::Record(record) => Ok(record),
            other => Err(Error::protocol(
                "the SA",
                format!("answers {query:?} with {other:?}"),
            )),
        }
    }

    /// Resolves `destination` from `host` and returns every field in which the answer differs from the SA's record.
    ///
    /// # Errors
    /// If the answer has no path, or the SA has none.
    pub fn differences(
        &self,
        host: &Host,
        destination: &client::Destination,
    ) -> Result<Vec<Difference>> {
        let path = host.resolve(destination)?.into_path()?;
        let truth = self.sa_path(host.gid(), self.sa_destination(destination)?)?;
        Ok(compare(&path, &truth))
    }

    /// Returns the destination in a form for SA queries. Names and IP addresses are those given by [`Builder::address`].
    pub fn sa_destination(&self, destination: &client::Destination) -> Result<Destination> {
        Ok(match destination {
            client::Destination::Lid(lid) => Destination::Lid(*lid),
            client::Destination::Gid(gid) => Destination::Gid(*gid),
            client::Destination::Path(record) if record.dlid() != Lid(0) => {
                Destination::Lid(record.dlid())
            }
            client::Destination::Path(record) => Destination::Gid(record.dgid()),
            client::Destination::Address { destination, .. } => {
                let owner = self
                    .given_addresses()
                    .find(|(_, address)| address.eq_ignore_ascii_case(destination));
                let (host, _) = owner.ok_or_else(|| {
                    Error::Input(format!("no host of the rig has the address {destination}"))
                })?;
                Destination::Gid(host.gid())
            }
        })
    }

    /// Returns the path queries of `host`'s current daemon that the SA received since `mark`
    /// (`rig.opensm().log().end()`).
    pub fn path_queries(&self, host: &Host, mark: Mark) -> Result<Vec<LoggedQuery>> {
        self.queries(host, attribute::PATH_RECORD, mark)
    }

    /// Returns the same for queries of any attribute.
    pub fn queries(&self, host: &Host, attribute: u16, mark: Mark) -> Result<Vec<LoggedQuery>> {
        let pid = host.pid();
        let client = self
            .ibsim
            .clients()?
            .into_iter()
            .find(|client| Some(client.pid) == pid);
        let client = client
            .ok_or_else(|| Error::Input(format!("ibacm on {} is not running", host.node())))?;
        let mut queries = self.opensm.queries(attribute, mark)?;
        queries.retain(|query| query.client() == client.number);
        Ok(queries)
    }

    /// Starts a daemon that was killed.
    pub fn start_host(&self, host: &Host) -> Result<()> {
        host.start(&self.ibsim)
    }

    /// Kills opensm.
    pub fn kill_opensm(&self) -> Result<()> {
        self.opensm.kill(&self.ibsim)
    }

    /// Starts opensm after [`Self::kill_opensm`] and waits for the subnet to be up.
    pub fn start_opensm(&self) -> Result<()> {
        self.opensm.start(&self.ibsim)
    }

    /// Starts opensm after [`Self::kill_opensm`] on another node: the subnet manager's LID changes for all nodes, as after a
    /// failover. The ports keep their LIDs.
    pub fn start_opensm_on(&self, node: &str) -> Result<()> {
        self.ibsim.node(node)?;
        self.opensm.set_node(node);
        self.start_opensm()
    }

    /// Pulls the cable of a node's port and waits until the port is down.
    pub fn pull_cable(&self, node: &str) -> Result<()> {
        self.ibsim.unlink(node, self.port(node)?.number)?;
        self.wait_for_port(node, false)
    }

    /// Puts the cable of a node's port back and waits until the subnet manager has brought the port up.
    pub fn put_cable_back(&self, node: &str) -> Result<()> {
        self.ibsim.relink(node, self.port(node)?.number)?;
        self.wait_for_port(node, true)
    }

    /// Gives the port of a node another LID: kills opensm, changes its file of LIDs, and starts opensm again.
    pub fn change_lid(&self, node: &str, lid: Lid) -> Result<()> {
        let port = self.port(node)?;
        self.kill_opensm()?;
        self.opensm.write_lid(port.guid, lid)?;
        self.start_opensm()?;
        wait::until_true(format!("{node} to have LID {lid}"), PATIENCE, || {
            Ok(self.lid(node)? == lid)
        })
    }

    /// Keeps the rig's folder.
    pub fn keep_logs(&mut self) {
        self.folder.keep = true;
        if let Some(own) = self.folder.own.take() {
            own.keep();
        }
    }
}

fn is_linked(node: &Node) -> bool {
    node.attached_port()
        .is_some_and(|port| port.state != "Down")
}

fn find_node<'a>(fabric: &'a Fabric, name: &str) -> Result<&'a Node> {
    fabric
        .node(name)
        .ok_or_else(|| Error::Input(format!("the fabric has no node {name}")))
}

/// The nodes that get a daemon.
fn choose_hosts(plan: &Builder, fabric: &Fabric) -> Result<Vec<HostChoice>> {
    if plan.hosts.is_empty() {
        let nodes = fabric.channel_adapters().filter(|node| is_linked(node));
        return Ok(nodes
            .take(DEFAULT_HOSTS)
            .map(|node| HostChoice {
                node: node.name.clone(),
                library: None,
            })
            .collect());
    }
    if plan.hosts.len() > MOST_HOSTS {
        let asked = plan.hosts.len();
        return Err(Error::Input(format!(
            "{asked} hosts requested, but ibsim has room for {MOST_HOSTS}"
        )));
    }
    for (index, host) in plan.hosts.iter().enumerate() {
        let node = find_node(fabric, &host.node)?;
        if plan.hosts[..index]
            .iter()
            .any(|other| other.node == host.node)
        {
            return Err(Error::Input(format!(
                "the host {} is named twice",
                host.node
            )));
        }
        if node.kind != Kind::ChannelAdapter {
            return Err(Error::Input(format!(
                "{} is a {:?}, not a host",
                host.node, node.kind
            )));
        }
        if !is_linked(node) {
            return Err(Error::Input(format!(
                "the first port of {} has no cable; ibsim attaches programs to that port",
                host.node
            )));
        }
    }
    Ok(plan.hosts.clone())
}

fn addresses_of<'a>(plan: &'a Builder, node: &str) -> impl Iterator<Item = &'a String> {
    let node = node.to_owned();
    plan.addresses
        .iter()
        .filter(move |(of, _)| *of == node)
        .map(|(_, address)| address)
}

/// Files of a host's folder: name and content.
type Files = Vec<(String, Vec<u8>)>;

/// Returns the options and files of the daemons, including the file of all addresses. `gid` returns a node's GID. [`HOSTS`]
/// in an option stands for the path of the address file.
fn address_files(
    plan: &Builder,
    gid: impl Fn(&str) -> Option<Gid>,
) -> (Vec<(String, String)>, Files) {
    const FILE: &str = "ibacm_hosts.data";
    let mut options = Vec::new();
    let mut files = plan.files.clone();
    let path = format!("/run/{FILE}");
    let is_named = plan.options.iter().any(|(_, value)| value.contains(HOSTS));
    if !plan.addresses.is_empty() {
        options.push(("addr_preload".to_owned(), "acm_hosts".to_owned()));
        options.push(("addr_data_file".to_owned(), path.clone()));
    }
    let has_one = files.iter().any(|(given, _)| given == FILE);
    if !has_one && (is_named || !plan.addresses.is_empty()) {
        let known = plan.addresses.iter();
        let known = known.filter_map(|(node, address)| Some((address, gid(node)?)));
        let lines: String = known
            .map(|(address, gid)| format!("{address} {gid}\n"))
            .collect();
        files.push((FILE.to_owned(), lines.into_bytes()));
    }
    let given = plan.options.iter();
    options.extend(given.map(|(key, value)| (key.clone(), value.replace(HOSTS, &path))));
    (options, files)
}

/// Whether a net file has a line that declares a node.
fn has_node(text: &[u8]) -> bool {
    const KINDS: [&str; 4] = ["switch", "hca", "ca", "router"];
    let text = String::from_utf8_lossy(text);
    text.lines().any(|line| {
        let (kind, name) = line
            .trim()
            .split_once(char::is_whitespace)
            .unwrap_or_default();
        KINDS.contains(&kind.to_lowercase().as_str()) && name.contains('"')
    })
}

/// Removes the daemons' copies of the providers, which are large and not logs.
fn remove_copies(folder: &Path) {
    for host in fs::read_dir(folder).into_iter().flatten().flatten() {
        // A failure does no harm, and most folders have no copies.
        let _ = fs::remove_dir_all(host.path().join(ibacm::PROVIDERS));
    }
}

/// The rig's folder.
#[derive(Debug)]
struct Folder {
    path: PathBuf,
    /// A temporary folder, which is removed at the end.
    own: Option<Scratch>,
    /// Whether to keep it.
    keep: bool,
}

impl Folder {
    fn new(given: Option<&Path>) -> Result<Self> {
        let Some(path) = given else {
            let folder = Scratch::new("rig").map_err(|error| Error::Input(error.to_string()))?;
            return Ok(Self {
                path: folder.path().to_owned(),
                own: Some(folder),
                keep: env::var_os("LOADER_TEST_KEEP").is_some(),
            });
        };
        let path = absolute(path)?;
        let entries = fs::create_dir_all(&path).and_then(|()| fs::read_dir(&path));
        let mut entries = entries
            .map_err(|error| Error::Input(format!("keep logs in {}: {error}", path.display())))?;
        if entries.next().is_some() {
            let path = path.display();
            return Err(Error::Input(format!(
                "{path} is not empty; give the logs a new folder"
            )));
        }
        Ok(Self {
            path,
            own: None,
            keep: true,
        })
    }

    fn make(&self, name: &str) -> Result<PathBuf> {
        let path = self.path.join(name);
        fs::create_dir(&path).context(|| format!("make {}", path.display()))?;
        Ok(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let is_kept = self.keep || thread::panicking();
        if is_kept {
            remove_copies(&self.path);
        }
        if is_kept && let Some(own) = self.own.take() {
            own.keep();
            eprintln!("the logs are in {}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_net_file_has_a_node() {
        assert!(has_node(FOUR_HOSTS.as_bytes()));
        assert!(has_node(b"# one\n  Hca\t1 \"H1\"\n"));
        for text in [
            "",
            "# Hca 1 \"H1\"\n",
            "Switch to another \n",
            "# ibacm providers\n",
        ] {
            assert!(!has_node(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn what_is_kept_is_logs_and_no_libraries() {
        let mut folder = Folder::new(None).unwrap();
        folder.keep = true;
        let path = folder.path.clone();
        let host = folder.make("host-1").unwrap();
        fs::create_dir(host.join(ibacm::PROVIDERS)).unwrap();
        fs::write(host.join(ibacm::PROVIDERS).join("libmine.so"), "large").unwrap();
        fs::write(host.join("ibacm.log"), "a line").unwrap();
        drop(folder);
        assert!(host.join("ibacm.log").exists());
        assert!(!host.join(ibacm::PROVIDERS).exists());
        fs::remove_dir_all(path).unwrap();
    }
}
