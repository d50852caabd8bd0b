//! The command `demo`: shows a provider at work under the real daemon, step by step.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use crate::acme;
use crate::client;
use crate::compare::{SELECTORS, judged_fields};
use crate::error::{Context, Error, Result};
use crate::fabric::Kind;
use crate::ibacm::Host;
use crate::judge::{Asked, Judgement, Truth, judge};
use crate::log::Mark;
use crate::record::PathRecord;
use crate::rig::Rig;
use crate::sa;
use crate::wait;

/// Time limit for one answer: longer than the daemon waits for the SA by default, 6 s.
const PATIENCE: Duration = Duration::from_secs(15);

/// The resolving host, and its peers, each resolved in another address form.
const ASKING: &str = "Hca1";
const BY_IP: &str = "Hca2";
const BY_LID: &str = "Hca3";
const BY_GID: &str = "Hca4";
const OWN_IP: &str = "10.0.0.1";
const PEER_IP: &str = "10.0.0.2";

/// Starts a fabric of four hosts with the provider in `library`, resolves three destinations, and writes each step to `out`.
/// `options` are lines of ibacm_opts.cfg. Returns true if each answer equals the subnet administrator's record, and comes
/// from the cache the second time.
///
/// # Errors
/// If the run or the comparison cannot be made.
pub fn run(library: &Path, options: &[(String, String)], out: &mut dyn Write) -> Result<bool> {
    let options = options.iter();
    let rig = options
        .fold(Rig::builder(library), |rig, (key, value)| {
            rig.option(key, value)
        })
        .host(ASKING)
        .host(BY_IP)
        .address(ASKING, OWN_IP)
        .address(BY_IP, PEER_IP)
        .start()?;
    let right = show(&rig, out);
    // First report a dead SA: without it no result says anything about the provider.
    rig.check()?;
    right
}

fn show(rig: &Rig, out: &mut dyn Write) -> Result<bool> {
    let host = rig.host(ASKING)?;

    let fabric = rig.fabric()?;
    let count = |kind| fabric.nodes.iter().filter(|node| node.kind == kind).count();
    title(out, "the fabric")?;
    say(
        out,
        &format!(
            "ibsim simulates {} hosts and {} switches; opensm on {} is the subnet manager",
            count(Kind::ChannelAdapter),
            count(Kind::Switch),
            rig.opensm().node()
        ),
    )?;

    title(out, &format!("ibacm on {ASKING}, its log"))?;
    let loaded = format!("Provider {} (", host.provider().name);
    let line = host
        .log()
        .wait_for(Mark::default(), &loaded, wait::PATIENCE)
        .map_err(Error::of_the_daemon)?;
    say(out, &line)?;

    title(out, "its endpoints")?;
    run_acme(host, &["-e"], out)?;

    let mut right = true;
    let targets = targets(rig)?;
    let mark = rig.opensm().log().end();
    for target in &targets {
        title(out, &format!("{}, by its {}", target.node, target.form))?;
        right &= resolve(rig, host, target, out)?;
    }
    title(out, "the same again")?;
    let before = rig.path_queries(host, mark)?.len();
    say(out, &format!("so far ibacm sent the SA {before} queries"))?;
    right &= before > 0;
    right &= resolve_again(rig, host, &targets, out)?;

    title(out, "the counters")?;
    run_acme(host, &["-P", "col"], out)?;
    host.check().map_err(Error::of_the_daemon)?;
    Ok(right)
}

/// A destination, in the forms for ib_acme, for our client and for the SA.
struct Target {
    node: &'static str,
    form: &'static str,
    acme: Vec<String>,
    request: client::Destination,
    question: sa::Destination,
}

fn targets(rig: &Rig) -> Result<[Target; 3]> {
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
    let lid = rig.lid(BY_LID)?;
    let gid = rig.gid(BY_GID)?;
    Ok([
        Target {
            node: BY_LID,
            form: "LID",
            acme: words(&["-f", "l", "-d", &lid.to_string(), "-v"]),
            request: client::Destination::Lid(lid),
            question: sa::Destination::Lid(lid),
        },
        Target {
            node: BY_GID,
            form: "GID",
            acme: words(&["-f", "g", "-d", &gid.to_string(), "-v"]),
            request: client::Destination::Gid(gid),
            question: sa::Destination::Gid(gid),
        },
        Target {
            node: BY_IP,
            form: "IP address",
            acme: words(&["-f", "i", "-s", OWN_IP, "-d", PEER_IP, "-v"]),
            request: client::Destination::Address {
                destination: PEER_IP.to_owned(),
                source: Some(OWN_IP.to_owned()),
            },
            question: sa::Destination::Gid(rig.gid(BY_IP)?),
        },
    ])
}

/// Resolves with ib_acme, queries the SA, and shows the judged fields of both. Returns true if they are equal.
fn resolve(rig: &Rig, host: &Host, target: &Target, out: &mut dyn Write) -> Result<bool> {
    let arguments: Vec<&str> = target.acme.iter().map(String::as_str).collect();
    let printed = run_acme(host, &arguments, out)?;
    let truth = rig.sa_path(host.gid(), target.question)?;
    let resolution = acme::parse(&printed).pop().unwrap_or_default();
    let Some(path) = resolution.path else {
        say(out, "ib_acme has no path")?;
        return Ok(false);
    };
    let path = path.to_record(&truth);
    say(out, &table(&path, &truth))?;
    let verdict = judge_path(rig, host, target.question, &path, &truth)?;
    let right = !matches!(verdict, Judgement::Wrong(_)) && resolution.failure.is_none();
    let words = match verdict {
        _ if !right => "NOT the SA's record",
        Judgement::OtherPath(_) => {
            "not the plain path, but the SA returns it for a query with these values"
        }
        _ => "equal to the SA's record",
    };
    say(out, words)?;
    Ok(right)
}

/// Resolves everything again with our own client. Returns true if the answers are right and caused no SA query.
fn resolve_again(rig: &Rig, host: &Host, targets: &[Target], out: &mut dyn Write) -> Result<bool> {
    let truths = targets
        .iter()
        .map(|target| rig.sa_path(host.gid(), target.question))
        .collect::<Result<Vec<PathRecord>>>()?;
    let mark = rig.opensm().log().end();
    let mut client = host.connect()?;
    client.set_patience(PATIENCE);
    let (mut right, mut plain) = (true, true);
    for (target, truth) in targets.iter().zip(&truths) {
        let answer = client.resolve(&target.request);
        let path = answer
            .and_then(client::Answer::into_path)
            .map_err(Error::of_the_daemon)?;
        let verdict = judge_path(rig, host, target.question, &path, truth)?;
        right &= !matches!(verdict, Judgement::Wrong(_));
        plain &= matches!(verdict, Judgement::Plain(_));
    }
    let queries = rig.path_queries(host, mark)?.len();
    say(
        out,
        &format!(
            "{} answers, {}; ibacm sent the SA {queries} queries for them",
            targets.len(),
            match (right, plain) {
                (true, true) => "equal to the SA's records",
                (true, false) => "right, but not all of them the plain paths",
                (false, _) => "NOT ALL equal to the SA's records",
            },
        ),
    )?;
    Ok(right && queries == 0)
}

fn judge_path(
    rig: &Rig,
    host: &Host,
    destination: sa::Destination,
    path: &PathRecord,
    truth: &PathRecord,
) -> Result<Judgement> {
    let truth: Truth = Ok(*truth);
    let asked = Asked {
        sgid: host.gid(),
        destination,
        own_address: false,
    };
    judge(rig, &asked, path, &truth)
}

/// Formats two records side by side, without selectors, which ib_acme does not print.
fn table(path: &PathRecord, truth: &PathRecord) -> String {
    let mut rows = vec![format!("  {:<16} {:<20} {}", "", "ib_acme", "the SA")];
    let fields = judged_fields(path).zip(judged_fields(truth));
    for ((field, answered), (_, sa)) in fields.filter(|((field, _), _)| *field != SELECTORS) {
        rows.push(format!("  {field:<16} {answered:<20} {sa}"));
    }
    rows.join("\n")
}

/// Runs ib_acme, and shows the command and its output.
fn run_acme(host: &Host, arguments: &[&str], out: &mut dyn Write) -> Result<String> {
    let printed = host.acme(arguments, PATIENCE)?;
    say(
        out,
        &format!("$ ib_acme {}\n{}", arguments.join(" "), printed.trim_end()),
    )?;
    Ok(printed)
}

fn title(out: &mut dyn Write, text: &str) -> Result<()> {
    say(out, &format!("\n=== {text}"))
}

fn say(out: &mut dyn Write, text: &str) -> Result<()> {
    writeln!(out, "{text}").context(|| "write the report".to_owned())
}
