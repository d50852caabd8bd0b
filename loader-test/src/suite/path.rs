//! Checks of the family `path`: an answer meets exactly the constraints of its request.

mod again;
mod ends;
mod named;
mod services;

use super::fixture::{reply, resolve};
use super::{Check, Finding};
use crate::stand_in::fabric::Peer;
use crate::stand_in::message::{Kind, Message, Path, Reply};
use crate::stand_in::{AddressId, FIRST_PORT, StandIn};

/// Returns every check of the family, in list order.
pub(super) const CHECKS: [&[Check]; 4] =
    [ends::CHECKS, named::CHECKS, again::CHECKS, services::CHECKS];

/// A case: constraints besides the destination.
type Demand = (&'static str, fn(Path) -> Path);

/// The two ways in which a client requests a path.
const WAYS: [Kind; 2] = [Kind::Resolve, Kind::Query];

/// Requests a path by its record and waits for the answer.
fn ask(core: &mut StandIn, from: AddressId, way: Kind, asked: &Path) -> Result<Reply, Finding> {
    match way {
        Kind::Resolve => resolve(core, from, &Message::path(asked)),
        Kind::Query => {
            let id = core.query_from(from, &Message::query(asked));
            reply(core, id)
        }
    }
}

/// Returns the kernel's request: SGID, DGID, P_Key, one reversible path. The core accepts any DGID prefix.
fn as_the_kernel(core: &StandIn, from: AddressId, peer: &Peer) -> Path {
    Path::default()
        .with_sgid(core.port(FIRST_PORT).gid())
        .with_dgid(peer.gid())
        .with_pkey(from.pkey)
        .with_reversible_numpath(0x81)
}

/// Adds the case to a finding.
fn when(case: impl std::fmt::Display) -> impl FnOnce(Finding) -> Finding {
    move |finding| finding.map_texts(|expected, seen| (expected, format!("{seen} ({case})")))
}
