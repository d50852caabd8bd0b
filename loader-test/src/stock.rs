//! The command `stock`: resolves every destination of a fabric from every host, with stock's client and with our own, and
//! compares the answers with the SA's records.

use std::fmt;
use std::io::Write;
use std::net::IpAddr;
use std::time::Duration;

use crate::acme::{self, Resolution};
use crate::client::{self, Status};
use crate::compare::Difference;
use crate::error::{Context, Error, Result};
use crate::ibacm::Host;
use crate::judge::{self, Asked, Judgement, Truth};
use crate::record::{Gid, Lid, PathRecord};
use crate::rig::Rig;
use crate::sa;
use crate::words::counted;

/// Time limit for one answer: longer than the daemon waits for the SA by default, 6 s.
const PATIENCE: Duration = Duration::from_secs(15);

/// Number of LIDs in one run of ib_acme.
const LIDS_AT_ONCE: usize = 50;

/// The results, in destinations: each combination of host, address form and port is one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requested.
    pub asked: usize,
    /// Answered with a path record, to our own client.
    pub answered: usize,
    /// Answered with a path that the SA returns.
    pub equal: usize,
    /// ib_acme printed a path.
    pub printed: usize,
    /// ib_acme printed a path that the SA returns, and no error.
    pub printed_equal: usize,
    /// Daemons that ended unexpectedly.
    pub died: usize,
    /// Differences that are reported but not judged.
    pub notes: usize,
    /// Records of both clients that are right but not the plain path.
    pub other_paths: usize,
}

impl Tally {
    /// Whether there were requests and all answers were right.
    pub fn is_clean(&self) -> bool {
        self.asked > 0
            && self.died == 0
            && [self.answered, self.equal, self.printed, self.printed_equal] == [self.asked; 4]
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            asked,
            answered,
            equal,
            printed,
            printed_equal,
            died,
            notes,
            other_paths,
        } = self;
        writeln!(f, "{} requested", counted(*asked, "destination"))?;
        writeln!(f, "{answered} answered, {equal} equal to the SA's record")?;
        writeln!(
            f,
            "{printed} printed by ib_acme, {printed_equal} equal to the SA's record"
        )?;
        if *other_paths > 0 {
            writeln!(
                f,
                "{} not the plain path, but the SA returns them for a query with their values",
                counted(*other_paths, "record")
            )?;
        }
        if *died > 0 {
            writeln!(f, "{} died", counted(*died, "daemon"))?;
        }
        write!(f, "{notes} differences in fields that are not judged")
    }
}

/// A destination in one address form.
struct Target {
    node: String,
    form: Form,
    /// As ib_acme takes it.
    text: String,
    /// The source address, also for ib_acme.
    source: Option<String>,
    request: client::Destination,
    question: sa::Destination,
}

impl Target {
    fn asked_by(&self, host: &Host) -> Asked {
        Asked {
            sgid: host.gid(),
            destination: self.question,
            own_address: matches!(self.form, Form::Name | Form::Ip) && self.node == host.node(),
        }
    }
}

/// An address form of a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// By LID.
    Lid,
    /// By GID.
    Gid,
    /// By a name that the rig gave.
    Name,
    /// By an IP address that the rig gave.
    Ip,
}

impl Form {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Lid, Self::Gid, Self::Name, Self::Ip];

    /// Returns its letter for ib_acme's option -f.
    fn letter(self) -> &'static str {
        match self {
            Self::Lid => "l",
            Self::Gid => "g",
            Self::Name => "n",
            Self::Ip => "i",
        }
    }
}

/// Resolves every destination from every host of `rig`, and writes each result to `out` at once.
///
/// # Errors
/// If the comparison cannot be made. Wrong answers of a provider are no errors; the tally counts them.
pub fn run(rig: &Rig, forms: &[Form], out: &mut dyn Write) -> Result<Tally> {
    let mut tally = Tally::default();
    for host in rig.hosts() {
        say(
            out,
            &format!("\n=== {}: {}", host.node(), host.provider().line),
        )?;
        say(
            out,
            &format!(
                "--- {}: ib_acme -e\n{}",
                host.node(),
                host.acme(&["-e"], PATIENCE)?.trim_end()
            ),
        )?;
        for targets in batches(targets(rig, host, forms)?) {
            resolve_batch(rig, host, &targets, &mut tally, out)?;
        }
        if let Err(death) = host.check() {
            tally.died += 1;
            say(out, &format!("--- {}: {death}", host.node()))?;
            continue;
        }
        let counters = host.acme(&["-P"], PATIENCE)?;
        say(
            out,
            &format!("--- {}: ib_acme -P\n{}", host.node(), counters.trim_end()),
        )?;
    }
    say(out, &format!("\n{tally}"))?;
    Ok(tally)
}

fn say(out: &mut dyn Write, line: &str) -> Result<()> {
    writeln!(out, "{line}").context(|| "write the report".to_owned())
}

/// Returns all destinations for `host`.
fn targets(rig: &Rig, host: &Host, forms: &[Form]) -> Result<Vec<Target>> {
    let fabric = rig.fabric()?;
    let ports: Vec<(&str, Lid, Gid)> = fabric
        .destinations()
        .map(|(node, port)| (node.name.as_str(), port.lid, rig.gid_of(port)))
        .collect();
    if ports.is_empty() {
        return Err(Error::Input(
            "the fabric has no host with an active port".to_owned(),
        ));
    }
    let mut targets = Vec::new();
    for &(node, lid, _) in &ports {
        targets.push(Target {
            node: node.to_owned(),
            form: Form::Lid,
            text: lid.to_string(),
            source: None,
            request: client::Destination::Lid(lid),
            question: sa::Destination::Lid(lid),
        });
    }
    for &(node, _, gid) in &ports {
        targets.push(Target {
            node: node.to_owned(),
            form: Form::Gid,
            text: gid.to_string(),
            source: None,
            request: client::Destination::Gid(gid),
            question: sa::Destination::Gid(gid),
        });
    }
    for (other, address) in rig.given_addresses() {
        let family = family(address);
        // ib_acme requires both ends in one address family.
        let Some(source) = host
            .addresses()
            .iter()
            .find(|own| self::family(own) == family)
        else {
            continue;
        };
        targets.push(Target {
            node: other.node().to_owned(),
            form: if family == Family::Name {
                Form::Name
            } else {
                Form::Ip
            },
            source: Some(source.clone()),
            text: address.to_owned(),
            request: client::Destination::Address {
                destination: address.to_owned(),
                source: Some(source.clone()),
            },
            question: sa::Destination::Gid(other.gid()),
        });
    }
    targets.retain(|target| forms.contains(&target.form));
    Ok(targets)
}

#[derive(PartialEq, Eq)]
enum Family {
    Name,
    V4,
    V6,
}

fn family(address: &str) -> Family {
    match address.parse() {
        Ok(IpAddr::V4(_)) => Family::V4,
        Ok(IpAddr::V6(_)) => Family::V6,
        Err(_) => Family::Name,
    }
}

/// Groups destinations for ib_acme, which takes many LIDs at once but one destination of any other form.
fn batches(targets: Vec<Target>) -> Vec<Vec<Target>> {
    let mut batches: Vec<Vec<Target>> = Vec::new();
    for target in targets {
        match batches.last_mut() {
            Some(batch) if target.form == Form::Lid && batch.len() < LIDS_AT_ONCE => {
                batch.push(target)
            }
            _ => batches.push(vec![target]),
        }
    }
    batches
}

fn resolve_batch(
    rig: &Rig,
    host: &Host,
    targets: &[Target],
    tally: &mut Tally,
    out: &mut dyn Write,
) -> Result<()> {
    let arguments = acme_arguments(targets);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let limit = PATIENCE * u32::try_from(targets.len()).unwrap_or(u32::MAX);
    // Without an SA it would time out for each destination in turn.
    let printed = host.acme_while(&arguments, limit, || rig.check())?;
    say(
        out,
        &format!(
            "--- {}: ib_acme {}\n{}",
            host.node(),
            arguments.join(" "),
            printed.trim_end()
        ),
    )?;
    let mut resolutions = acme::parse(&printed).into_iter();
    for target in targets {
        let truth = judge::plain_path(rig, &target.asked_by(host))?;
        let resolution = resolutions
            .next()
            .filter(|resolution| resolution.destination == target.text);
        let findings = judge(rig, host, target, &truth, resolution, tally)?;
        let verdict = if findings.is_empty() {
            "equal to the SA's record".to_owned()
        } else {
            findings.join("; ")
        };
        say(
            out,
            &format!(
                "{} -> {} ({}): {verdict}",
                host.node(),
                target.text,
                target.node
            ),
        )?;
    }
    Ok(())
}

fn acme_arguments(targets: &[Target]) -> Vec<String> {
    let text: Vec<&str> = targets.iter().map(|target| target.text.as_str()).collect();
    let list = format!("[{}]", text.join(","));
    let Some(first) = targets.first() else {
        return Vec::new();
    };
    let mut words = vec!["-f", first.form.letter()];
    words.extend(first.source.iter().flat_map(|source| ["-s", source]));
    let destination = if first.form == Form::Lid {
        &list
    } else {
        &first.text
    };
    words.extend(["-d", destination, "-v"]);
    words.into_iter().map(str::to_owned).collect()
}

/// Counts one destination and reports what is wrong.
fn judge(
    rig: &Rig,
    host: &Host,
    target: &Target,
    truth: &Truth,
    resolution: Option<Resolution>,
    tally: &mut Tally,
) -> Result<Vec<String>> {
    tally.asked += 1;
    let mut findings = Vec::new();

    let answer = host.connect().and_then(|mut client| {
        client.set_patience(PATIENCE);
        client.resolve(&target.request)
    });
    match answer {
        Err(error) => findings.push(error.to_string()),
        Ok(answer) => match (answer.status, answer.path()) {
            (Status::SUCCESS, Some(path)) => {
                tally.answered += 1;
                let verdict = verdict(rig, host, target, "the answer", &path, truth, tally)?;
                tally.equal += usize::from(verdict.right);
                findings.extend(verdict.findings);
            }
            (Status::SUCCESS, None) => {
                findings.push("the answer is successful but has no path".to_owned())
            }
            (status, _) => findings.push(format!("the answer is {status:?}")),
        },
    }

    match resolution {
        None => findings.push("ib_acme does not show this destination".to_owned()),
        Some(Resolution { path, failure, .. }) => {
            if let Some(path) = path {
                tally.printed += 1;
                let record = path.to_record(truth.as_ref().unwrap_or(&PathRecord::EMPTY));
                let whose = "ib_acme's output";
                let verdict = verdict(rig, host, target, whose, &record, truth, tally)?;
                tally.printed_equal += usize::from(verdict.right && failure.is_none());
                findings.extend(verdict.findings);
            }
            findings.extend(failure.map(|failure| format!("ib_acme says \"{failure}\"")));
        }
    }
    Ok(findings)
}

/// The judgement of a record, and notes about it.
struct Verdict {
    right: bool,
    findings: Vec<String>,
}

/// Judges a record, and counts the notes.
fn verdict(
    rig: &Rig,
    host: &Host,
    target: &Target,
    whose: &str,
    record: &PathRecord,
    truth: &Truth,
    tally: &mut Tally,
) -> Result<Verdict> {
    let judgement = judge::judge(rig, &target.asked_by(host), record, truth)?;
    let describe = |differences: &[Difference]| -> Vec<String> {
        let describe = differences.iter();
        describe
            .map(|difference| format!("{whose} has {difference}"))
            .collect()
    };
    let (right, findings) = match &judgement {
        Judgement::Plain(notes) => (true, describe(notes)),
        Judgement::OtherPath(differences) => {
            tally.other_paths += 1;
            let mut findings = vec![format!(
                "{whose} is not the plain path, but the SA returns it for a query with its values"
            )];
            findings.extend(describe(differences));
            (true, findings)
        }
        Judgement::Wrong(differences) => (false, describe(differences)),
        Judgement::Unfounded(reason) => (false, vec![format!("{whose} has a path, but {reason}")]),
    };
    if let Judgement::Plain(all) | Judgement::OtherPath(all) | Judgement::Wrong(all) = &judgement {
        tally.notes += all.iter().filter(|difference| !difference.judged).count();
    }
    Ok(Verdict { right, findings })
}
