//! Judges whether a client got the requested path.

use std::fmt;

use super::fixture::SUCCESS;
use super::{Outcome, failed};
use crate::stand_in::fabric::Peer;
use crate::stand_in::message::{PATH, Path, Reply};
use crate::stand_in::right::{Expected, same};
use crate::stand_in::{FIRST_PORT, StandIn};

/// The criterion for a path.
pub trait Right: fmt::Display {
    /// Whether a path is right.
    fn is_met_by(&self, path: &Path) -> bool;
}

/// Any path that the SA gives.
impl Right for Expected {
    fn is_met_by(&self, path: &Path) -> bool {
        Self::is_met_by(self, path)
    }
}

/// Exactly this record.
struct Exactly<'a>(&'a Path);

impl Right for Exactly<'_> {
    fn is_met_by(&self, path: &Path) -> bool {
        same(path, self.0)
    }
}

impl fmt::Display for Exactly<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// Returns the criterion for a path from the first port to a peer.
pub fn expected_path(core: &StandIn, peer: &Peer) -> Expected {
    expected_record(core, &Path::default().with_dgid(peer.gid()))
}

/// Returns the criterion for a request from the first port and, unless it names another, its first partition.
pub fn expected_record(core: &StandIn, asked: &Path) -> Expected {
    Expected::new(whole(core, asked), core.subnet())
}

fn whole(core: &StandIn, asked: &Path) -> Path {
    let port = core.port(FIRST_PORT);
    let mut asked = *asked;
    if asked.sgid().is_zero() {
        asked = asked.with_sgid(port.gid());
    }
    if asked.pkey() == 0 {
        asked = asked.with_pkey(port.pkeys[0]);
    }
    asked
}

/// Returns the SA's record for a path from the first port to a peer.
pub fn plain_path(core: &StandIn, peer: &Peer) -> Path {
    expected_path(core, peer).plain().unwrap_or_default()
}

/// Fields in which two paths to the same destination may differ.
fn service(path: &Path) -> [u16; 4] {
    let code = |byte: u8| u16::from(byte & 0x3f);
    let (mtu, rate, lifetime) = (code(path.mtu()), code(path.rate()), code(path.lifetime()));
    [path.qos_sl() & 0xf, mtu, rate, lifetime]
}

/// Checks that a plain request did not get the path of an earlier constrained request, `demanded`. `usual` is the provider's
/// path for a plain request without earlier ones: the provider may have a policy.
///
/// # Errors
/// If it was.
pub fn expect_undemanded(
    answer: &Reply,
    expected: &Expected,
    demanded: &Path,
    usual: &Path,
) -> Outcome {
    let (Some(path), Some(plain)) = (answer.path(), expected.plain()) else {
        return Ok(());
    };
    let seen = service(&path);
    if seen == service(demanded) && seen != service(&plain) && seen != service(usual) {
        return Err(failed(
            format!("{plain:?}, or another path that is not an earlier request's constrained path"),
            format!("{path:?}"),
        ));
    }
    Ok(())
}

/// Checks that an answer is successful and its path right.
///
/// # Errors
/// The failure.
pub fn expect_path(reply: &Reply, expected: &impl Right) -> Outcome {
    if reply.status != SUCCESS {
        return Err(failed(
            format!("status 0 and {expected}"),
            format!("status {}", reply.status),
        ));
    }
    let Some((_, code, field)) = reply.entry(0) else {
        return Err(failed(
            "an answer with a path",
            format!("length {}", reply.length),
        ));
    };
    if code != PATH {
        return Err(failed(
            format!("entry 0 of type {PATH:#x}"),
            format!("type {code:#x}"),
        ));
    }
    let path = Path(field);
    match expected.is_met_by(&path) {
        true => Ok(()),
        false => Err(failed(expected.to_string(), format!("{path:?}"))),
    }
}

/// Does the same for exactly this record.
///
/// # Errors
/// The failure.
pub fn expect_exactly(reply: &Reply, expected: &Path) -> Outcome {
    expect_path(reply, &Exactly(expected))
}
