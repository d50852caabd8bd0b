//! The subnet manager and administrator.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rustix::process::Signal;

use crate::error::{Context, Error, Result};
use crate::ibsim::{Ibsim, SOCKET_NAME};
use crate::log::{Log, Mark};
use crate::machine::Machine;
use crate::process::{Launch, Process, lock};
use crate::record::{DEFAULT_SUBNET_PREFIX, Lid};
use crate::sa::attribute::PATH_RECORD;
use crate::wait;

/// Time limit for the subnet to be up: a fabric of 1600 hosts takes seconds on idle processors.
const PATIENCE: Duration = Duration::from_secs(180);

const SUBNET_UP: &str = "SUBNET UP";

/// Bits of opensm's log flags: errors and information; with frames, each MAD that the SA receives.
const LOG_FLAGS: &str = "0x03";
const MODULE_LOG_FLAGS: &str = "osm_sa_mad_ctrl.c 0x23\n";

/// An opensm on a node of a fabric: running, stopped or dead.
#[derive(Debug)]
pub struct Opensm {
    machine: Arc<Machine>,
    node: Mutex<String>,
    directory: PathBuf,
    log: Log,
    subnet_prefix: u64,
    process: Mutex<Option<Process>>,
}

/// A query that the SA received: a Get, or a GetTable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedQuery {
    /// The attribute, see [`crate::sa::attribute`].
    pub attribute: u16,
    /// Whether it is a GetTable, for all records, not a Get.
    pub table: bool,
    /// The transaction ID as it arrived. Its highest 16 bits are the number of [`crate::ibsim::Client`].
    pub transaction_id: u64,
    /// The component mask, with the bits of <infiniband/sa.h>.
    pub component_mask: u64,
}

impl LoggedQuery {
    /// Returns ibsim's number of the sending program.
    pub fn client(&self) -> u16 {
        (self.transaction_id >> 48) as u16
    }
}

impl Opensm {
    /// Writes the configuration into `directory`; `options` are lines of opensm.conf.
    pub(crate) fn prepare(
        machine: &Arc<Machine>,
        node: &str,
        directory: &Path,
        options: &[(String, String)],
    ) -> Result<Self> {
        let file = |name: &str| directory.join(name).display().to_string();
        let mut config = BTreeMap::from([
            ("force_log_flush", "TRUE".to_owned()),
            ("per_module_logging_file", file("modules.conf")),
            ("partition_config_file", file("partitions.conf")),
            ("qos_policy_file", file("qos-policy.conf")),
            ("dump_files_dir", directory.display().to_string()),
            // Makes opensm use the LIDs of its file, see `assign_lid`.
            ("honor_guid2lid_file", "TRUE".to_owned()),
        ]);
        for (key, value) in options {
            config.insert(key, value.clone());
        }
        let subnet_prefix = match config.get("subnet_prefix") {
            None => DEFAULT_SUBNET_PREFIX,
            Some(text) => parse_hex(text).ok_or_else(|| {
                Error::Input(format!(
                    "opensm's subnet_prefix is a number in hex, not {text}"
                ))
            })?,
        };
        let mut text = String::new();
        for (key, value) in &config {
            let _ = writeln!(text, "{key} {value}");
        }
        for (name, content) in [
            ("opensm.conf", text.as_str()),
            ("modules.conf", MODULE_LOG_FLAGS),
        ] {
            fs::write(directory.join(name), content).context(|| format!("write {}", file(name)))?;
        }
        // Without the file opensm reads the machine's own.
        let partitions = directory.join("partitions.conf");
        if !partitions.exists() {
            fs::write(&partitions, "Default=0x7fff, ipoib : ALL=full;\n")
                .context(|| format!("write {}", partitions.display()))?;
        }
        Ok(Self {
            machine: Arc::clone(machine),
            node: Mutex::new(node.to_owned()),
            directory: directory.to_owned(),
            log: Log::new(directory.join("opensm.log")),
            subnet_prefix,
            process: Mutex::default(),
        })
    }

    /// Returns its node.
    pub fn node(&self) -> String {
        lock(&self.node).clone()
    }

    /// Sets its node for the next start.
    pub(crate) fn set_node(&self, node: &str) {
        node.clone_into(&mut lock(&self.node));
    }

    /// Returns the subnet prefix of all GIDs, host order.
    pub fn subnet_prefix(&self) -> u64 {
        self.subnet_prefix
    }

    /// Returns opensm's log.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Starts it and waits for the subnet to be up. `ibsim` must have a free place.
    pub fn start(&self, ibsim: &Ibsim) -> Result<()> {
        let mut running = lock(&self.process);
        if running.is_some() {
            return Err(Error::Input("opensm is already running".to_owned()));
        }
        ibsim.drop_dead_clients()?;
        let mark = self.log.end();
        let directory = self.directory.join("");
        let process = Launch::new(
            &self.machine,
            "opensm",
            &self.machine.programs.opensm,
            &self.directory,
        )
        .logs_to(&self.log)
        .args(["-F", "opensm.conf", "-D", LOG_FLAGS, "-f"])
        .args([self.log.path()])
        .env("LD_PRELOAD", &self.machine.programs.umad2sim)
        .env("SIM_HOST", self.node())
        .env("IBSIM_SOCKNAME", SOCKET_NAME)
        .env("OSM_CACHE_DIR", &directory)
        .env("OSM_TMP_DIR", &directory)
        .start()?;
        wait::until_true("opensm to bring the subnet up", PATIENCE, || {
            process.check()?;
            Ok(self
                .log
                .find(mark, |line| line.contains(SUBNET_UP))?
                .is_some())
        })?;
        *running = Some(process);
        Ok(())
    }

    /// Sets an option, a line of opensm.conf, for the next start. At SIGHUP opensm rereads some of them.
    pub fn set_option(&self, key: &str, value: &str) -> Result<()> {
        let path = self.directory.join("opensm.conf");
        let operation = |verb: &str| format!("{verb} {}", path.display());
        let old = fs::read_to_string(&path).context(|| operation("read"))?;
        let mut new = String::new();
        for line in old.lines() {
            if line.split_whitespace().next() != Some(key) {
                let _ = writeln!(new, "{line}");
            }
        }
        let _ = writeln!(new, "{key} {value}");
        fs::write(&path, new).context(|| operation("write"))
    }

    fn running(&self) -> MutexGuard<'_, Option<Process>> {
        lock(&self.process)
    }

    fn with<T>(&self, action: impl FnOnce(&Process) -> Result<T>) -> Result<T> {
        match &*self.running() {
            Some(process) => action(process),
            None => Err(Error::Input("opensm is not running".to_owned())),
        }
    }

    /// Returns the process id, if it is running.
    pub fn pid(&self) -> Option<i32> {
        self.running().as_ref().map(Process::pid)
    }

    /// Returns an error with the end of its log if it ended by itself, but not if it was killed.
    pub(crate) fn check(&self) -> Result<()> {
        self.running().as_ref().map_or(Ok(()), Process::check)
    }

    /// Stops it (SIGSTOP): MADs reach it and stay unanswered until [`Self::resume`].
    pub fn stop(&self) -> Result<()> {
        self.with(Process::stop)
    }

    /// Continues it (SIGCONT).
    pub fn resume(&self) -> Result<()> {
        self.with(Process::resume)
    }

    /// Kills it (SIGKILL) and notifies ibsim, which then returns MADs for the SA at once with status 110.
    pub fn kill(&self, ibsim: &Ibsim) -> Result<()> {
        // Dropping a process kills it.
        if self.running().take().is_none() {
            return Err(Error::Input("opensm is not running".to_owned()));
        }
        ibsim.drop_dead_clients()
    }

    /// Makes it sweep the whole subnet (SIGHUP), and waits until the subnet is up again.
    pub fn sweep(&self) -> Result<()> {
        let mark = self.log.end();
        self.with(|process| process.signal(Signal::HUP))?;
        self.log.wait_for(mark, SUBNET_UP, PATIENCE).map(drop)
    }

    /// Gives the port of a GUID another LID in the file that opensm reads at start.
    pub(crate) fn write_lid(&self, guid: u64, lid: Lid) -> Result<()> {
        let path = self.directory.join("guid2lid");
        let operation = |verb: &str| format!("{verb} {}", path.display());
        let old = fs::read_to_string(&path).context(|| operation("read"))?;
        let mut new = String::new();
        for line in old.lines().filter(|line| !line.trim().is_empty()) {
            if line.split_whitespace().next().and_then(parse_hex) != Some(guid) {
                let _ = writeln!(new, "{line}\n");
            }
        }
        let _ = writeln!(new, "0x{guid:016x} 0x{0:04x} 0x{0:04x}\n", lid.0);
        fs::write(&path, new).context(|| operation("write"))
    }

    /// Returns all queries for an attribute ([`crate::sa::attribute`]) since `mark`, in order, from any program.
    pub fn queries(&self, attribute: u16, mark: Mark) -> Result<Vec<LoggedQuery>> {
        Ok(parse_queries(attribute, &self.log.since(mark)?))
    }

    /// Returns all path queries since `mark`, in order, from any program.
    pub fn path_queries(&self, mark: Mark) -> Result<Vec<LoggedQuery>> {
        self.queries(PATH_RECORD, mark)
    }
}

fn parse_hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
}

fn parse_queries(attribute: u16, log: &str) -> Vec<LoggedQuery> {
    let mut queries = Vec::new();
    // One frame: lines of a name, dots and a value, up to the next line that does not begin with blanks.
    for frame in log.split("SA MAD dump:").skip(1) {
        let value = |name: &str| {
            frame
                .lines()
                .skip(1)
                .map_while(|line| line.strip_prefix('\t'))
                .find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix('.'))
                .and_then(|rest| parse_hex(rest.trim_start_matches('.').split_whitespace().next()?))
        };
        if value("attr_id") != Some(attribute.into()) {
            continue;
        }
        let table = match value("method") {
            Some(0x01) => false,
            Some(0x12) => true,
            _ => continue,
        };
        if let (Some(transaction_id), Some(component_mask)) =
            (value("trans_id"), value("comp_mask"))
        {
            queries.push(LoggedQuery {
                attribute,
                table,
                transaction_id,
                component_mask,
            });
        }
    }
    queries
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sa::attribute::CLASS_PORT_INFO;

    fn frame(method: &str, attribute: &str) -> String {
        format!(
            "Nov 30 03:18:17 784919 [2E7446C0] 0x20 -> SA MAD dump:\n\
             \t\t\t\tbase_ver................0x1\n\
             \t\t\t\tmethod..................{method}\n\
             \t\t\t\ttrans_id................0x1000034e30ced\n\
             \t\t\t\tattr_id.................{attribute}\n\
             \t\t\t\tcomp_mask...............0x0000000000001030\n\n"
        )
    }

    #[test]
    fn queries_are_told_from_everything_else() {
        let log = [
            frame("0x12 (SubnAdmGetTable)", "0x35 (PathRecord)"),
            frame("0x92 (SubnAdmGetTableResp)", "0x35 (PathRecord)"),
            frame("0x1 (SubnAdmGet)", "0x38 (MCMemberRecord)"),
            "Nov 30 03:18:17 797000 [2E7446C0] 0x02 -> SUBNET UP\n".to_owned(),
            frame("0x1 (SubnAdmGet)", "0x35 (PathRecord)"),
            frame("0x1 (SubnAdmGet)", "0x1 (ClassPortInfo)"),
        ];
        let query = |attribute, table| LoggedQuery {
            attribute,
            table,
            transaction_id: 0x1_0000_34e3_0ced,
            component_mask: 0x1030,
        };
        assert_eq!(
            parse_queries(PATH_RECORD, &log.concat()),
            [query(PATH_RECORD, true), query(PATH_RECORD, false)]
        );
        assert_eq!(
            parse_queries(CLASS_PORT_INFO, &log.concat()),
            [query(CLASS_PORT_INFO, false)]
        );
        assert_eq!(query(PATH_RECORD, true).client(), 1);
    }

    #[test]
    fn a_query_counts_once_it_is_written_whole() {
        let log = frame("0x1 (SubnAdmGet)", "0x35 (PathRecord)");
        let half = log.split("comp_mask").next().unwrap();
        assert_eq!(parse_queries(PATH_RECORD, half), []);
    }
}
