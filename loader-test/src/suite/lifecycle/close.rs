//! Checks of a close with requests in flight.

use std::time::{Duration, Instant};

use super::serves;
use crate::stand_in::fabric::Peer;
use crate::stand_in::message::{Message, Path};
use crate::stand_in::{AddressId, FIRST_PORT, StandIn};
use crate::suite::apart::{End, Exit};
use crate::suite::fixture::{Fixture, HASTY, QUIET, by_lid, hold, let_go, refused, reply};
use crate::suite::{Finding, Outcome, cannot_run, failed};

/// Tolerance beyond a deadline on a busy machine.
const ALLOWANCE: Duration = Duration::from_secs(5);

pub(super) fn in_flight(fixture: &mut Fixture) -> Outcome {
    let (core, from) = fixture.up_with(HASTY)?;
    let start = Instant::now();
    let clients = ask_silent_sa(core, from);
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
    // Responses of the SA no longer matter.
    let again = core.up(FIRST_PORT).map_err(refused)?;
    let_go(core);
    core.settle();
    serves(core, again, 1)
}

/// Sends requests of both kinds, one of them twice, while the SA holds its responses.
fn ask_silent_sa(core: &mut StandIn, from: AddressId) -> Vec<u64> {
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
        let text = "runs only with --strict: the daemon keeps this memory";
        return Err(Finding::Skipped(text.into()));
    }
    let end = fixture.apart(Exit::AtOnce, |fixture| {
        let (core, from) = fixture.up()?;
        core.hides_closed = true;
        let clients = ask_silent_sa(core, from);
        core.port_down(FIRST_PORT);
        for client in clients {
            reply(core, client)?;
        }
        // A thread of the provider may use its port once more.
        std::thread::sleep(QUIET);
        core.up(FIRST_PORT).map_err(refused)?;
        let_go(core);
        core.settle();
        core.port_down(FIRST_PORT);
        Ok(())
    });
    match end {
        Ok(End::Came(Err(trouble @ Finding::CannotRun(_)))) => Err(trouble),
        // Another check judges the answers to clients.
        Ok(End::Came(_)) => Ok(()),
        Ok(End::Lost(how)) => Err(Finding::Warned(format!(
            "{how} after closed device and port structures became inaccessible; the daemon never frees them"
        ))),
        Err(error) => Err(cannot_run("a process for the check")(error)),
    }
}
