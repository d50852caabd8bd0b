//! A close, and what is under way.

use std::time::{Duration, Instant};

use super::serves;
use crate::stand_in::fabric::Peer;
use crate::stand_in::message::{Message, Path};
use crate::stand_in::{AddressId, FIRST_PORT, StandIn};
use crate::suite::apart::{End, Exit};
use crate::suite::fixture::{Fixture, HASTY, QUIET, by_lid, hold, let_go, refused, reply};
use crate::suite::{Finding, Outcome, cannot_run, failed};

/// What a busy machine may add to a deadline.
const ALLOWANCE: Duration = Duration::from_secs(5);

pub(super) fn in_flight(fixture: &mut Fixture) -> Outcome {
    let (core, from) = fixture.up_with(HASTY)?;
    let start = Instant::now();
    let clients = ask_in_vain(core, from);
    core.port_down(FIRST_PORT);
    for client in &clients {
        reply(core, *client)?;
    }
    let took = start.elapsed();
    if took > core.deadline() + ALLOWANCE {
        return Err(failed(
            format!("answers within {:?}", core.deadline()),
            format!("the last one after {took:?}"),
        ));
    }
    // What the SA says by now concerns nobody.
    let again = core.up(FIRST_PORT).map_err(refused)?;
    let_go(core);
    core.settle();
    serves(core, again, 1)
}

/// Requests of both kinds, one of them twice, to an SA that keeps its answers back.
fn ask_in_vain(core: &mut StandIn, from: AddressId) -> Vec<u64> {
    hold(core);
    let mut clients = Vec::new();
    for number in [1, 2, 3, 1] {
        let peer = Peer::number(number);
        clients.push(core.resolve_from(from, &by_lid(&peer)));
        let path = Path::default().with_dgid(peer.gid());
        clients.push(core.query_from(from, &Message::query(&path)));
    }
    clients
}

pub(super) fn memory(fixture: &mut Fixture) -> Outcome {
    if !fixture.strict {
        let text = "looked at with --strict alone: in the daemon this memory lives on";
        return Err(Finding::Skipped(text.into()));
    }
    let end = fixture.apart(Exit::AtOnce, |fixture| {
        let (core, from) = fixture.up()?;
        core.hides_closed = true;
        let clients = ask_in_vain(core, from);
        core.port_down(FIRST_PORT);
        for client in clients {
            reply(core, client)?;
        }
        // A thread of the provider's may look at its port once more.
        std::thread::sleep(QUIET);
        core.up(FIRST_PORT).map_err(refused)?;
        let_go(core);
        core.settle();
        core.port_down(FIRST_PORT);
        Ok(())
    });
    match end {
        Ok(End::Came(Err(trouble @ Finding::CannotRun(_)))) => Err(trouble),
        // Whether clients are answered is another check's matter.
        Ok(End::Came(_)) => Ok(()),
        Ok(End::Lost(how)) => Err(Finding::Warned(format!(
            "{how} once closed device and port structures are inaccessible; the daemon never frees them"
        ))),
        Err(error) => Err(cannot_run("a process for the check")(error)),
    }
}
