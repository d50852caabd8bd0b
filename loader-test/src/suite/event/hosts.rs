//! Checks of a hosts file that changes while it cannot be read.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::super::apart::{End, Exit};
use super::super::fixture::{Fixture, HASTY, SUCCESS, able, by_addr, resolve};
use super::super::{Finding, Outcome, cannot_run, failed};
use crate::stand_in::fabric::{Peer, hosts_file};
use crate::stand_in::message::{Addr, Message, Path as PathRecord};
use crate::stand_in::{AddressId, StandIn};

/// Time within which a provider that watches its file uses a change.
const FOLLOWED_WITHIN: Duration = Duration::from_secs(6);
/// Time within which a provider retries an unreadable file, including its retry pause.
const READ_AGAIN_WITHIN: Duration = Duration::from_secs(15);
/// Poll interval.
const STEP: Duration = Duration::from_millis(20);

/// Runs in its own process, which gets no free descriptor.
pub(super) fn unreadable(fixture: &mut Fixture) -> Outcome {
    let end = fixture.apart(Exit::AtOnce, changes_while_unreadable);
    match end.map_err(cannot_run("a process without descriptors"))? {
        End::Came(outcome) => outcome,
        End::Lost(how) => Err(failed("a provider that keeps running", how)),
    }
}

fn changes_while_unreadable(fixture: &mut Fixture) -> Outcome {
    let cannot = cannot_run("the hosts file");
    let file = fixture.folder().join("hosts");
    let draft = fixture.folder().join("hosts.new");
    let (core, from) = fixture.up_with(HASTY)?;
    let answer = resolve(core, from, &asks())?;
    able(core, &answer, "names of an acm_hosts file")?;
    write_hosts(&draft, 4)
        .and_then(|()| fs::rename(&draft, &file))
        .map_err(cannot)?;
    if !leads_to(core, from, 4, FOLLOWED_WITHIN)? {
        let text = "the provider does not watch its hosts file";
        return Err(Finding::Skipped(text.into()));
    }
    write_hosts(&draft, 5).map_err(cannot)?;
    let before = core.log().len();
    let taken = NoDescriptors::take().map_err(cannot_run("the last descriptor"))?;
    fs::rename(&draft, &file).map_err(cannot)?;
    // Wait until the provider logs the failure, if it does.
    let deadline = Instant::now() + FOLLOWED_WITHIN;
    let is_told = |core: &StandIn| {
        let log = core.log();
        log[before..].iter().any(|(_, text)| text.contains("hosts"))
    };
    while !is_told(core) && Instant::now() < deadline {
        // The new address, if the provider still had a free descriptor.
        let is_known =
            leads_to(core, from, 4, Duration::ZERO)? || leads_to(core, from, 5, Duration::ZERO)?;
        if !is_known {
            let seen = "the provider forgets it when it cannot open the file";
            return Err(failed("the earlier contents of the hosts file", seen));
        }
        thread::sleep(STEP);
    }
    drop(taken);
    if !leads_to(core, from, 5, READ_AGAIN_WITHIN)? {
        return Err(failed(
            format!(
                "the provider to read the hosts file within {READ_AGAIN_WITHIN:?} once it can be opened"
            ),
            "it did not: the change is lost until the file changes again",
        ));
    }
    if is_told(core) {
        Ok(())
    } else {
        let text = "the log does not say that the hosts file could not be read";
        Err(Finding::Warned(text.into()))
    }
}

/// A name of the hosts file.
const NAME: &str = "peer3";

fn asks() -> Message {
    by_addr(&Addr::Name("self1".into()), &Addr::Name(NAME.into()))
}

/// Writes a hosts file in which the name belongs to another peer.
fn write_hosts(file: &Path, number: u16) -> io::Result<()> {
    let line = |number| format!("{NAME} {}\n", Peer::number(number).gid());
    fs::write(file, hosts_file().replace(&line(3), &line(number)))
}

/// Whether the name resolves to a peer within some time.
fn leads_to(
    core: &mut StandIn,
    from: AddressId,
    number: u16,
    within: Duration,
) -> Result<bool, Finding> {
    let deadline = Instant::now() + within;
    loop {
        let answer = resolve(core, from, &asks())?;
        let dlid = answer.path().as_ref().map(PathRecord::dlid);
        if answer.status == SUCCESS && dlid == Some(Peer::number(number).lid) {
            return Ok(true);
        }
        if Instant::now() >= deadline {
            return Ok(false);
        }
        thread::sleep(STEP);
    }
}

/// Holds all descriptors that this process may open.
struct NoDescriptors {
    limit: Rlimit,
    held: Vec<File>,
}

impl NoDescriptors {
    fn take() -> io::Result<Self> {
        // The lowest free number: all lower ones are in use.
        let first = File::open("/dev/null")?;
        let above = first.as_raw_fd().cast_unsigned() + 1;
        let mut taken = Self {
            limit: getrlimit(Resource::Nofile),
            held: vec![first],
        };
        setrlimit(
            Resource::Nofile,
            Rlimit {
                current: Some(above.into()),
                ..taken.limit
            },
        )?;
        loop {
            match File::open("/dev/null") {
                Ok(file) => taken.held.push(file),
                Err(error) if error.raw_os_error() == Some(Errno::MFILE.raw_os_error()) => {
                    return Ok(taken);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for NoDescriptors {
    fn drop(&mut self) {
        // Restores the earlier limit.
        let _ = setrlimit(Resource::Nofile, self.limit);
    }
}
