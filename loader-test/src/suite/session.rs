//! The session of `loader-test trace`, which calls every callback once.

use super::fault::NO_FAULT;
use super::fixture::{Fixture, by_gid, by_lid, refused, reply};
use super::{Check, Outcome};
use crate::stand_in::FIRST_PORT;
use crate::stand_in::fabric::Peer;
use crate::stand_in::ledger::Harmed;
use crate::stand_in::message::{Addr, Message, Path};
use crate::suite::ability::Ability;

/// Not part of the suite: it has no rule.
pub(super) const SESSION: Check = Check {
    name: "session",
    rule: "a usual session goes well",
    harmed: Harmed::Client,
    how: "sends each kind of request once, reregisters, and closes and opens the port",
    needs: &[Ability::OpensPort],
    run: session,
    fault: NO_FAULT,
};

fn session(fixture: &mut Fixture) -> Outcome {
    let (core, from) = fixture.up()?;
    let peer = Peer::number(3);
    let own = Addr::Name("self1".into());
    let by_name = Message::destination(Some(&own), &Addr::Name(peer.name.clone()));
    let mut ids = Vec::new();
    for message in [by_lid(&peer), by_gid(&peer), by_lid(&peer), by_name] {
        // The core itself refuses some requests.
        ids.extend(core.ask(&message));
    }
    ids.push(core.query_from(from, &Message::query(&Path::default().with_dlid(peer.lid))));
    for id in ids {
        reply(core, id)?;
    }
    core.query_perf(FIRST_PORT, from.pkey);
    core.reregister(FIRST_PORT);
    core.settle();
    core.port_down(FIRST_PORT);
    let from = core.up(FIRST_PORT).map_err(refused)?;
    let id = core.resolve_from(from, &by_lid(&peer));
    reply(core, id)?;
    core.remove_address(from);
    Ok(())
}
