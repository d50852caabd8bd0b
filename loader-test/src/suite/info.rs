//! `loader-test info`: describes a library without running it as a provider.
//!
//! This process only reads the file. A child loads it, since loading runs its constructors.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use acm_prov_api::check::TableFault;
use acm_prov_api::introspection;
use clap::Args;
use serde::{Deserialize, Serialize};

mod options;

use options::ShownOption;
use supervisor::{Leftovers, Supervised};

use super::cli::exists;
use super::lines::OptionLines;
use super::progress::{say, sayln};
use super::run::Stop;
use crate::elf::SharedObject;
use crate::scratch::Scratch;
use crate::stand_in::fabric::DeviceSpec;
use crate::stand_in::library::Library;
use crate::stand_in::recorder;
use crate::stand_in::{FUNCTIONS, Setup, StandIn};

/// Callbacks in the table.
const CALLBACKS: usize = 12;
/// Longest time for a library to load.
const PATIENCE: Duration = Duration::from_secs(20);

/// Describes a provider library: name, version, table, imported symbols and where they are found, options and counters.
///
/// Exit status: 0 if ibacm would load it and every function exists, 1 if not, 2 if the file cannot be read.
#[derive(Debug, Args)]
pub struct InfoCommand {
    /// The library
    #[arg(value_name = "LIB")]
    library: PathBuf,
    #[command(flatten)]
    lines: OptionLines,
    /// Print only the options, as commented lines for ibacm_opts.cfg
    #[arg(long)]
    sample: bool,
    /// Print only the options, as a Markdown table
    #[arg(long, conflicts_with = "sample")]
    table: bool,
}

/// Loads a library and describes it as JSON (internal).
#[derive(Debug, Args)]
pub struct InfoChildCommand {
    library: PathBuf,
    folder: PathBuf,
    #[arg(long)]
    line: Vec<String>,
}

/// What the child found.
#[derive(Debug, Serialize, Deserialize)]
struct Loaded {
    accepted: bool,
    findings: Vec<String>,
    name: Option<String>,
    version: Option<u32>,
    size: Option<usize>,
    empty_slots: usize,
    introspection: Result<About, String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct About {
    version: String,
    sdk_version: String,
    abi_version: u32,
    options: Vec<ShownOption>,
    counters: Vec<String>,
    /// Counters of its own: name, and what it counts.
    own_counters: Vec<(String, String)>,
}

impl InfoCommand {
    /// Runs the command.
    ///
    /// # Errors
    /// If the library cannot be read or no child can be started.
    pub fn run(self) -> io::Result<ExitCode> {
        exists(&self.library)?;
        let object = SharedObject::read(&self.library)
            .map_err(|error| io::Error::other(format!("{}: {error}", self.library.display())))?;
        let options = self.lines.read()?;
        if self.sample || self.table {
            return self.show_options(&options);
        }
        sayln!("{}", self.library.display());
        let attempt = load_in_child(&self.library, &options, &[])?;
        let Attempt { loaded, log, place } = attempt;
        if let Some(loaded) = &loaded {
            show_table(loaded);
        }
        show_imports(&object);
        let missing = self.missing(&object, &options, loaded.as_ref())?;
        let Some(loaded) = loaded else {
            let place = place.map(|place| format!(", {place}")).unwrap_or_default();
            show_log(&log);
            sayln!("loading it ended the process, or took longer than {PATIENCE:?}{place}");
            return Ok(ExitCode::FAILURE);
        };
        show_about(&loaded.introspection);
        if !loaded.accepted {
            show_log(&log);
            sayln!("ibacm would not load it");
        } else if missing.is_empty() {
            sayln!("ibacm would load it");
        } else {
            let or = missing.join(" or ");
            sayln!(
                "ibacm would load it, and end at the first call of {or}: no library has that function"
            );
        }
        let is_good = loaded.accepted && missing.is_empty();
        Ok(u8::from(!is_good).into())
    }

    /// Prints only the options.
    fn show_options(&self, lines: &[String]) -> io::Result<ExitCode> {
        let library = self.library.display();
        let no_options = |reason: String| {
            io::Error::other(format!("{library}: cannot show its options: {reason}"))
        };
        let attempt = load_in_child(&self.library, lines, &[])?;
        let loaded = attempt
            .loaded
            .ok_or_else(|| no_options("loading it ended the process, or took too long".into()))?;
        let about = loaded.introspection.map_err(no_options)?;
        let name = loaded.name.unwrap_or_else(|| library.to_string());
        let text = match self.table {
            true => options::table(&about.options),
            false => options::sample(&name, &about.options),
        };
        say(&text);
        Ok(ExitCode::SUCCESS)
    }

    /// Returns the functions that no library has: a lazily bound call to one ends the daemon.
    fn missing(
        &self,
        object: &SharedObject,
        options: &[String],
        loaded: Option<&Loaded>,
    ) -> io::Result<Vec<String>> {
        if !loaded.is_some_and(|loaded| loaded.accepted) {
            return Ok(Vec::new());
        }
        let mut missing: Vec<String> = object
            .imports
            .iter()
            .filter(|symbol| !symbol.weak && is_nowhere(&symbol.name))
            .map(|symbol| symbol.name.clone())
            .collect();
        missing.sort();
        // For functions of other libraries: the loader names the first missing one.
        let at_once = load_in_child(&self.library, options, &[("LD_BIND_NOW", "1")])?;
        let findings = at_once.loaded.map(|loaded| loaded.findings);
        let findings = findings.unwrap_or_default();
        for finding in findings {
            if let Some((_, name)) = finding.split_once("undefined symbol: ") {
                let name = name.split([',', ' ']).next().unwrap_or(name).to_owned();
                if !missing.contains(&name) {
                    missing.push(name);
                }
            }
        }
        Ok(missing)
    }
}

/// Whether a symbol is named like the core's functions, but the core has no such function.
fn is_nowhere(name: &str) -> bool {
    name.starts_with("acm_") && !is_the_core_s(name)
}

fn is_the_core_s(name: &str) -> bool {
    FUNCTIONS
        .iter()
        .any(|known| known.to_bytes() == name.as_bytes())
}

/// Prints the log lines that say why the library does not load.
fn show_log(log: &[String]) {
    for line in log {
        sayln!("log           {line}");
    }
}

fn show_table(loaded: &Loaded) {
    if let Some(name) = &loaded.name {
        sayln!("provider      {name}");
    }
    if let (Some(version), Some(size)) = (loaded.version, loaded.size) {
        sayln!("table         version {version}, {size} bytes");
        sayln!(
            "callbacks     {} of {CALLBACKS}",
            CALLBACKS - loaded.empty_slots
        );
    }
    for finding in &loaded.findings {
        sayln!("fault         {finding}");
    }
}

/// Prints the imported symbols of the core and of the RDMA libraries.
fn show_imports(object: &SharedObject) {
    sayln!("needs");
    let mut any = false;
    let mut imports: Vec<_> = object.imports.iter().collect();
    imports.sort_by(|one, other| one.name.cmp(&other.name));
    for symbol in imports {
        let place = match symbol.name.as_str() {
            name if is_the_core_s(name) => "ibacm",
            name if is_nowhere(name) => "missing: ibacm has no such function",
            name if name.starts_with("ibv_") => "libibverbs",
            name if name.starts_with("umad_") => "libibumad",
            name if name.starts_with("rdma_") => "librdmacm",
            _ => continue,
        };
        any = true;
        sayln!("  {:<28} {place}", symbol.name);
    }
    if !any {
        sayln!("  nothing from ibacm or the RDMA libraries at load time");
    }
}

fn show_about(about: &Result<About, String>) {
    match about {
        Err(reason) => {
            sayln!("introspection {reason}");
        }
        Ok(about) => {
            sayln!(
                "introspection version {}, made with acm-prov-api {} for version {} of the interface",
                about.version,
                about.sdk_version,
                about.abi_version
            );
            sayln!("options");
            for option in &about.options {
                sayln!("  {}", option.line());
            }
            sayln!("counters      {}", about.counters.join(", "));
            sayln!("its own counters, which it logs when somebody asks for an endpoint's");
            for (name, summary) in &about.own_counters {
                sayln!("  {name:24} {summary}");
            }
        }
    }
}

/// The outcome of loading a library.
struct Attempt {
    /// `None` if the child crashed or was killed.
    loaded: Option<Loaded>,
    /// The end of the log.
    log: Vec<String>,
    /// The last callback that the child entered.
    place: Option<String>,
}

fn load_in_child(
    library: &Path,
    options: &[String],
    environment: &[(&str, &str)],
) -> io::Result<Attempt> {
    // A signal ends the wait, and the folder is removed.
    let stop = Stop::at_signals()?;
    let folder = Scratch::new("info")?;
    let result = folder.path().join("loaded.json");
    let mut command = Command::new(std::env::current_exe()?);
    command
        .arg("info-child")
        .args(options.iter().map(|line| format!("--line={line}")))
        .envs(environment.iter().copied())
        .arg("--")
        // A constructor may change the working folder.
        .arg(std::path::absolute(library)?)
        .arg(folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let mut child = Supervised::spawn(&mut command, Leftovers::END)?;
    let status = wait_for(&mut child, &stop)?;
    let text = std::fs::read(result).ok();
    Ok(Attempt {
        loaded: text
            .filter(|_| status.is_some_and(|status| status.success()))
            .and_then(|text| serde_json::from_slice(&text).ok()),
        log: recorder::last_lines(folder.path()),
        place: recorder::last_call(folder.path()),
    })
}

/// Returns the child's status, or `None` if it took too long.
fn wait_for(child: &mut Supervised, stop: &Stop) -> io::Result<Option<ExitStatus>> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if stop.is_set() {
            return Err(io::Error::from(io::ErrorKind::Interrupted));
        }
        if Instant::now() > deadline {
            child.kill()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl InfoChildCommand {
    /// Loads the library, prints the result, and ends the process without running the library's exit handlers.
    pub fn run(self) -> ExitCode {
        let loaded = self.load();
        let written = serde_json::to_vec(&loaded)
            .map_err(io::Error::from)
            .and_then(|text| std::fs::write(self.folder.join("loaded.json"), text));
        // SAFETY: ends the process at once; this program has nothing to clean up.
        unsafe { libc::_exit(i32::from(written.is_err())) }
    }

    fn load(&self) -> Loaded {
        let mut loaded = Loaded {
            accepted: false,
            findings: Vec::new(),
            name: None,
            version: None,
            size: None,
            empty_slots: 0,
            introspection: about(&self.library),
        };
        let mut options = StandIn::default_options(&self.folder);
        options.extend(self.line.iter().cloned());
        let core = StandIn::install_alone(Setup {
            devices: vec![DeviceSpec::single()],
            options,
            folder: self.folder.clone(),
            trace: None,
            deadline: None,
        });
        if let Err(error) = core {
            loaded
                .findings
                .push(format!("the core cannot be set up: {error}"));
            return loaded;
        }
        let judged = Library::open(&self.library).and_then(|library| library.judge());
        match judged {
            Err(error) => loaded.findings.push(error.to_string()),
            Ok((table, report)) => {
                loaded.accepted = report.is_accepted();
                loaded.findings = report.findings().iter().map(ToString::to_string).collect();
                loaded.name = report
                    .name()
                    .map(|name| name.to_string_lossy().into_owned());
                if report.is_accepted() && !table.is_null() {
                    // SAFETY: accepted, so a table of the right version and size.
                    let table = unsafe { &*table };
                    loaded.version = Some(table.version);
                    loaded.size = Some(table.size);
                    let is_empty_slot =
                        |finding: &&TableFault| matches!(finding, TableFault::NullSlot(_));
                    loaded.empty_slots = report.findings().iter().filter(is_empty_slot).count();
                }
            }
        }
        loaded
    }
}

fn about(library: &Path) -> Result<About, String> {
    let told = introspection::read(library).map_err(|error| match error {
        introspection::IntrospectionError::None(_) => {
            "none: a C provider, or one that does not use acm-prov-api".to_owned()
        }
        other => other.to_string(),
    })?;
    let own = told.own_counters.iter().map(|own| (own.name, own.summary));
    Ok(About {
        version: told.version,
        sdk_version: told.sdk_version,
        abi_version: told.abi_version,
        options: told.options.iter().map(ShownOption::from).collect(),
        counters: told.counters,
        own_counters: own
            .map(|(name, text)| (name.to_string(), text.to_string()))
            .collect(),
    })
}
