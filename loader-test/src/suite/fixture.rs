//! The environment of a check: the provider's library, a folder, and the stand-in core.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use acm_prov_api::check;
use serde::{Deserialize, Serialize};

use super::copies::Copies;
pub use super::right::{
    expect_exactly, expect_path, expect_undemanded, expected_path, expected_record, plain_path,
};
use super::{Finding, Outcome, cannot_run, failed, panics};
use crate::stand_in::fabric::{DeviceSpec, Peer};
use crate::stand_in::ledger::{Harmed, Violation, ViolationKind};
use crate::stand_in::library::{Library, LoadError};
use crate::stand_in::message::{Addr, Message, Path as PathRecord, Reply};
use crate::stand_in::sa::{Reaction, SaRequest};
use crate::stand_in::trace::Trace;
use crate::stand_in::{AddressId, FIRST_PORT, Refused, Setup, StandIn};

/// ACM status: success.
pub const SUCCESS: u8 = 0;
/// ACM status: no data.
pub const ENODATA: u8 = 3;
/// ACM status: timed out.
pub const ETIMEDOUT: u8 = 6;
/// ACM status: bad destination type.
pub const EDESTTYPE: u8 = 10;
/// Options for checks that wait for deadlines to pass.
pub const HASTY: &[&str] = &["timeout 500", "retries 1"];
/// Options with long deadlines.
pub const UNHURRIED: &[&str] = &["timeout 4000", "retries 1"];
/// A LID that no port has until a peer gets it.
pub const ELSEWHERE: u16 = 700;
/// Every ACM status that is an error.
pub const ERRORS: [u8; 9] = [1, 2, 3, 5, 6, 7, 8, 9, 10];

/// The environment of one check.
pub struct Fixture {
    library: PathBuf,
    folder: PathBuf,
    options: Vec<String>,
    trace: Option<PathBuf>,
    /// Whether departures that affect no one are checked too.
    pub strict: bool,
    copies: Option<Arc<Copies>>,
    core: Option<StandIn>,
    /// Of earlier cores.
    breaches: Vec<Violation>,
    provider_name: Option<String>,
    started: Instant,
    time: Time,
    /// Of earlier cores.
    lateness: Option<Late>,
    /// How long a client of a silent SA waited, as the deadline probe measured.
    pub shown_deadline: Option<Duration>,
}

/// The time limit of a check.
#[derive(Clone, Copy, Debug)]
pub struct Time {
    /// The runner kills the check after this time; some checks have a multiple.
    pub limit: Duration,
    /// Extra time for a slow provider.
    pub extra: Duration,
    /// The provider's measured deadline, if it is later than the options' deadline.
    pub deadline: Option<Duration>,
}

impl Time {
    /// A time limit for runs without one.
    pub const AMPLE: Self = Self {
        limit: Duration::from_secs(60),
        extra: Duration::ZERO,
        deadline: None,
    };
    /// Shortest limit that leaves time for the default deadlines.
    const LONG: Duration = Duration::from_secs(15);
    /// Wait beyond a deadline, minimum and maximum. The stock provider checks deadlines every two seconds.
    const BEYOND: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(8)];

    /// Returns how long to wait for an answer with this deadline, so that the check ends by itself.
    fn patience(self, deadline: Duration) -> Duration {
        let [least, most] = Self::BEYOND;
        deadline + (self.limit.saturating_sub(deadline) * 4 / 5).clamp(least, most)
    }

    /// Returns a long deadline within the limit, which a correct provider keeps even on a busy machine.
    fn unhurried(self) -> &'static [&'static str] {
        match self.limit < Self::LONG {
            true => &["timeout 1500", "retries 1"],
            false => UNHURRIED,
        }
    }

    /// Returns the lines of ibacm_opts.cfg for deadlines within the limit.
    fn options(self) -> &'static [&'static str] {
        match self.limit < Self::LONG {
            true => &["timeout 800", "retries 1"],
            false => &[],
        }
    }
}

/// How time may explain a bad result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Late {
    /// A client got the answer that the SA timed out.
    Expired,
    /// An event did not come by its deadline.
    Missed,
    /// The check timed out.
    Hung,
}

/// The library under test, and how to run it.
#[derive(Clone)]
pub struct Subject {
    /// The library.
    pub library: PathBuf,
    /// Lines of ibacm_opts.cfg that the provider needs to work at all.
    pub options: Vec<String>,
    /// Whether departures that affect no one are checked too.
    pub strict: bool,
    /// The file for a trace.
    pub trace: Option<PathBuf>,
    /// Copies of the library, if several checks share a process.
    pub copies: Option<Arc<Copies>>,
    /// The check's time limit.
    pub time: Time,
    /// The highest log level to keep.
    pub log_level: i32,
}

impl Fixture {
    /// Returns a fixture for one check; `folder` belongs to the check.
    pub fn new(subject: Subject, folder: &Path) -> Self {
        Self {
            library: subject.library,
            folder: folder.to_owned(),
            options: subject.options,
            trace: subject.trace,
            strict: subject.strict,
            copies: subject.copies,
            core: None,
            breaches: Vec::new(),
            provider_name: None,
            started: Instant::now(),
            time: subject.time,
            lateness: None,
            shown_deadline: None,
        }
    }

    /// Returns when a check with many rounds must stop and judge the rounds so far.
    pub fn deadline(&self) -> Instant {
        self.started + self.time.limit * 3 / 5
    }

    /// Returns options with long deadlines, which a correct provider keeps even on a busy machine.
    pub fn unhurried(&self) -> &'static [&'static str] {
        self.time.unhurried()
    }

    /// Returns how long threads may take to end. A joined thread stays in /proc for a moment, longer on a busy machine.
    pub fn patience_for_ends(&self) -> Duration {
        (self.time.limit / 2).min(Duration::from_secs(10))
    }

    /// Returns a deadline within the limit for requests that wait for many others.
    pub fn long_deadline(&self) -> Duration {
        (self.time.limit / 2).min(Duration::from_secs(8))
    }

    /// How time may explain the failures of the cores so far.
    pub fn lateness(&self) -> Option<Late> {
        let now = self.core.as_ref().and_then(lateness_of);
        self.lateness.max(now)
    }

    /// Returns the provider's name, once the library is loaded.
    pub fn provider_name(&self) -> Option<&str> {
        self.provider_name.as_deref()
    }

    /// The library.
    pub fn library(&self) -> &Path {
        &self.library
    }

    /// Whether the provider is tested with its own options.
    pub fn has_options(&self) -> bool {
        !self.options.is_empty()
    }

    /// Returns the folder for the check's files.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Starts a core with the default device and `extra` options: the provider is loaded, nothing is open.
    ///
    /// # Errors
    /// If the core would not load the library.
    pub fn core_with(
        &mut self,
        devices: Vec<DeviceSpec>,
        extra: &[&str],
    ) -> Result<&mut StandIn, Finding> {
        let mut options = self.default_options();
        options.extend(extra.iter().map(|line| (*line).to_owned()));
        let setup = self.setup(devices, options)?;
        self.start(setup)
    }

    /// Starts a core with one device and port and no ibacm_opts.cfg: the provider is loaded, nothing is open.
    ///
    /// # Errors
    /// If the core would not load the library.
    pub fn core_without_options(&mut self) -> Result<&mut StandIn, Finding> {
        let setup = self.setup(vec![DeviceSpec::single()], Vec::new())?;
        self.start(setup)
    }

    /// Opens the library as the core does, without calling `provider_query`.
    ///
    /// # Errors
    /// If the core would not open it.
    pub fn open(&mut self) -> Result<Library, Finding> {
        self.install_core()?;
        Library::open_by_any_name(&self.library).map_err(not_loaded)
    }

    /// Opens the library and judges the result of its `provider_query`.
    ///
    /// # Errors
    /// If the core would not open it, or finds no `provider_query`.
    pub fn judge(&mut self) -> Result<check::Report, Finding> {
        let (_, report) = self.open()?.judge().map_err(not_loaded)?;
        self.provider_name = report
            .name()
            .map(|name| name.to_string_lossy().into_owned());
        Ok(report)
    }

    /// Switches the check to a copy of the library that this process has not loaded.
    ///
    /// # Errors
    /// If it cannot be copied.
    pub fn take_unloaded_library(&mut self) -> Outcome {
        // The copy gets the same options.
        if let Some(copies) = self.copies.take() {
            self.library = copies.copy(&self.library).map_err(not_copied)?;
        }
        Ok(())
    }

    /// Installs a core behind the exported functions, for libraries that the check opens itself.
    ///
    /// # Errors
    /// If the trace cannot be written.
    pub fn install_core(&mut self) -> Result<(), Finding> {
        let options = self.default_options();
        let setup = self.setup(vec![DeviceSpec::single()], options)?;
        StandIn::install_alone(setup)
            .map_err(|error| Finding::CannotRun(format!("the core cannot be set up: {error}")))
    }

    /// Returns the harness's option lines, followed by those that the provider needs.
    fn default_options(&self) -> Vec<String> {
        let mut options = StandIn::default_options(&self.folder);
        options.extend(self.time.options().iter().map(|line| (*line).to_owned()));
        options.extend(self.options.iter().cloned());
        options
    }

    fn setup(&mut self, devices: Vec<DeviceSpec>, options: Vec<String>) -> Result<Setup, Finding> {
        if let Some(copies) = &self.copies {
            // Each check has its own files; a different path does not count as a different option.
            let folder = self.folder.to_string_lossy();
            let lines = options
                .iter()
                .map(|line| line.replace(&*folder, ""))
                .collect();
            self.library = copies
                .with_options(&self.library, lines)
                .map_err(not_copied)?;
        }
        let trace = match &self.trace {
            Some(path) => Some(Trace::create(path).map_err(cannot_run("the trace"))?),
            None => None,
        };
        Ok(Setup {
            devices,
            options,
            folder: self.folder.clone(),
            trace,
            deadline: self.time.deadline,
        })
    }

    /// Starts the default core, and calls `about_to_load` when the core is ready and before the provider loads.
    ///
    /// # Errors
    /// If the core would not load the library.
    pub fn core_watched(
        &mut self,
        about_to_load: &mut dyn FnMut(),
    ) -> Result<&mut StandIn, Finding> {
        let mut options = StandIn::default_options(&self.folder);
        options.extend(self.options.iter().cloned());
        let setup = self.setup(vec![DeviceSpec::single()], options)?;
        self.start_watched(setup, about_to_load)
    }

    fn start(&mut self, setup: Setup) -> Result<&mut StandIn, Finding> {
        self.start_watched(setup, &mut || ())
    }

    fn start_watched(
        &mut self,
        setup: Setup,
        about_to_load: &mut dyn FnMut(),
    ) -> Result<&mut StandIn, Finding> {
        // Close an earlier core first: the provider would keep working for it.
        if let Some(mut earlier) = self.core.take() {
            self.breaches.extend(earlier.finish());
            self.lateness = self.lateness.max(lateness_of(&earlier));
        }
        let mut core =
            StandIn::start_watched(setup, &self.library, about_to_load).map_err(not_loaded)?;
        core.patience = self.time.patience(core.deadline());
        self.provider_name = core.provider_name();
        Ok(self.core.insert(core))
    }

    /// Starts a core with one device and port: the provider is loaded, nothing is open.
    ///
    /// # Errors
    /// If the core would not load the library.
    pub fn core(&mut self) -> Result<&mut StandIn, Finding> {
        self.core_with(vec![DeviceSpec::single()], &[])
    }

    /// Does the same, and returns the loaded file too.
    ///
    /// # Errors
    /// If the core would not load the library.
    pub fn core_and_library(&mut self) -> Result<(&mut StandIn, &Path), Finding> {
        self.core()?;
        match &mut self.core {
            Some(core) => Ok((core, &self.library)),
            None => Err(failed("a core", "none")),
        }
    }

    /// Starts a core with one port up and one endpoint; returns the source address of requests too.
    ///
    /// # Errors
    /// If the library does not load or something does not open.
    pub fn up(&mut self) -> Result<(&mut StandIn, AddressId), Finding> {
        self.up_with(&[])
    }

    /// Does the same with more options.
    ///
    /// # Errors
    /// If the library does not load or something does not open.
    pub fn up_with(&mut self, extra: &[&str]) -> Result<(&mut StandIn, AddressId), Finding> {
        let core = self.core_with(vec![DeviceSpec::single()], extra)?;
        let from = core.up(FIRST_PORT).map_err(refused)?;
        // A provider may first have to join a multicast group.
        core.settle();
        Ok((core, from))
    }

    /// Closes everything and returns the ledger's violations, at the end of every check.
    pub fn finish(&mut self) -> Vec<Violation> {
        let mut breaches = std::mem::take(&mut self.breaches);
        breaches.extend(self.core.as_mut().map(StandIn::finish).unwrap_or_default());
        breaches.extend(panics::on_own_threads());
        breaches
    }
}

/// How time may explain a core's failures.
fn lateness_of(core: &StandIn) -> Option<Late> {
    let (mut missed, mut expired) = (core.has_timed_out(), false);
    core.each_request(|request| {
        missed |= request.replies.is_empty();
        expired |= request
            .replies
            .iter()
            .any(|reply| reply.status == ETIMEDOUT);
    });
    match (missed, expired) {
        (true, _) => Some(Late::Missed),
        (false, true) => Some(Late::Expired),
        (false, false) => None,
    }
}

/// Turns the core's refusal to load a library into a finding.
pub fn not_loaded(error: LoadError) -> Finding {
    match error {
        LoadError::NoCore(_) => Finding::CannotRun(error.to_string()),
        error => failed("a library that ibacm loads", error.to_string()),
    }
}

fn not_copied(error: std::io::Error) -> Finding {
    cannot_run("a copy of the library")(error)
}

/// Turns a refusal to open into a finding.
pub fn refused(refused: Refused) -> Finding {
    failed("a port that opens", refused.to_string())
}

/// Waits for the one answer to a client.
///
/// # Errors
/// If none comes in time.
pub fn reply(core: &StandIn, id: u64) -> Result<Reply, Finding> {
    core.reply(id).ok_or_else(|| Finding::Breach {
        kind: ViolationKind::NeverAnswered,
        harmed: Harmed::Client,
        expected: format!("an answer to client {id} within {:?}", core.deadline()),
        seen: format!(
            "none within {:?}: the client hangs, and its slot is lost",
            core.patience
        ),
    })
}

/// Resolves a peer by LID and expects its path, in checks with another subject: a failure names the violated general rule,
/// not the check's.
///
/// # Errors
/// If the answer does not come, or differs.
pub fn serves(core: &mut StandIn, from: AddressId, peer: &Peer) -> Outcome {
    let answer = resolve(core, from, &by_lid(peer))?;
    expect_path(&answer, &expected_path(core, peer)).map_err(|finding| match finding {
        Finding::Failed { expected, seen } => Finding::Breach {
            kind: ViolationKind::WrongAnswer,
            harmed: Harmed::Client,
            expected,
            seen,
        },
        other => other,
    })
}

/// Sends a resolve request and waits for the answer.
///
/// # Errors
/// If none comes in time.
pub fn resolve(core: &mut StandIn, from: AddressId, message: &Message) -> Result<Reply, Finding> {
    let id = core.resolve_from(from, message);
    reply(core, id)
}

/// Makes the SA hold path queries until [`let_go`].
pub fn hold(core: &StandIn) {
    core.sa().script(|question| {
        if question.is_path_query() {
            Reaction::Hold
        } else {
            Reaction::Answer
        }
    });
}

/// Makes the SA respond to the held queries and to all later ones.
pub fn let_go(core: &StandIn) {
    core.sa().script(|_| Reaction::Answer);
    for question in core.sa().requests() {
        core.sa().release(question.number, Reaction::Answer);
    }
}

/// Returns a request for the path to a peer by DLID.
pub fn by_lid(peer: &Peer) -> Message {
    Message::path(&PathRecord::default().with_dlid(peer.lid))
}

/// Returns a request for the path to a peer by DGID.
pub fn by_gid(peer: &Peer) -> Message {
    Message::path(&PathRecord::default().with_dgid(peer.gid()))
}

/// Returns a request for the path to an address from one of the endpoint's addresses, as the core passes it on.
pub fn by_addr(source: &Addr, destination: &Addr) -> Message {
    let message = Message::destination(Some(source), destination);
    match message.verified(None) {
        Ok((message, _)) => message,
        Err(_) => message,
    }
}

/// Skips the check if the provider answers that it cannot resolve the destination: an unknown type, or an address that it
/// does not find, possibly after a multicast request to which no node responds. A dropped request does not count as such an
/// answer, nor does any answer of a provider that complains about its options.
///
/// # Errors
/// The skip, or the provider's failure.
pub fn able(core: &StandIn, reply: &Reply, what: &str) -> Outcome {
    if reply.status == SUCCESS {
        return Ok(());
    }
    // Neither of these says what the provider supports.
    let violations = core.violations();
    let is_drop = |violation: &&Violation| violation.kind == ViolationKind::DroppedRequest;
    if let Some(dropped) = violations.iter().find(is_drop) {
        return Err(Finding::Breach {
            kind: dropped.kind,
            harmed: dropped.harmed,
            expected: format!("the provider's own answer to a request for {what}"),
            seen: dropped.text.clone(),
        });
    }
    if let Some(complaint) = core.complaints().first() {
        return Err(failed(
            format!(
                "{what} resolved, or refused by a provider without complaints about its options"
            ),
            format!("status {}, and in the log: {complaint}", reply.status),
        ));
    }
    let reason = match reply.status {
        ENODATA | EDESTTYPE => format!("refused with status {}", reply.status),
        ETIMEDOUT if joins_group(core) => {
            "it sent a multicast request, to which no node responds".into()
        }
        _ => return Ok(()),
    };
    Err(Finding::Skipped(format!(
        "the provider does not resolve {what} here: {reason}"
    )))
}

/// Whether the provider has joined a multicast group, to which it sends requests for addresses.
pub fn joins_group(core: &StandIn) -> bool {
    core.sa().requests().iter().any(SaRequest::is_join)
}

/// Checks the status of an answer.
///
/// # Errors
/// If it differs.
pub fn expect_status(reply: &Reply, expected: &[u8]) -> Outcome {
    if expected.contains(&reply.status) {
        Ok(())
    } else {
        Err(failed(format!("status {expected:?}"), format!("{reply:?}")))
    }
}

/// Splits violations into those that make a check fail and those that affect no one.
pub fn judge(violations: Vec<Violation>) -> (Vec<Violation>, Vec<Violation>) {
    violations.into_iter().partition(|violation| {
        !matches!(
            violation.kind,
            ViolationKind::MissingAck
                | ViolationKind::DirtyHeader
                | ViolationKind::CoreCounter
                | ViolationKind::DroppedRequest
        )
    })
}

/// Whether a busy machine can make a correct provider break this rule.
pub fn time_may_explain(kind: ViolationKind) -> bool {
    matches!(
        kind,
        ViolationKind::NeverAnswered | ViolationKind::WrongAnswer
    )
}

/// Waits long enough to detect a late event, even on a busy machine.
pub const QUIET: Duration = Duration::from_millis(100);
