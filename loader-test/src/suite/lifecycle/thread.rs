//! Checks that no callback blocks the core's only thread.

use crate::stand_in::fabric::Peer;
use crate::stand_in::ledger::ViolationKind;
use crate::stand_in::message::{Message, Path};
use crate::stand_in::{FIRST_PORT, StandIn};
use crate::suite::fixture::{Fixture, by_gid, by_lid, refused, reply};
use crate::suite::{Finding, Outcome};

/// Number of calls that separates a slow callback from a slow machine.
const TRIES: u16 = 3;

/// Calls every callback several times; the ledger times them.
pub(super) fn held(fixture: &mut Fixture) -> Outcome {
    let core = fixture.core()?;
    for round in 0..TRIES {
        let from = core.up(FIRST_PORT).map_err(refused)?;
        core.settle();
        let (known, new) = (Peer::number(1), Peer::number(10 + round));
        for message in [by_lid(&known), by_gid(&new), by_lid(&known)] {
            let id = core.resolve_from(from, &message);
            is_free(core)?;
            reply(core, id)?;
        }
        let asked = Message::query(&Path::default().with_dlid(known.lid));
        let id = core.query_from(from, &asked);
        is_free(core)?;
        reply(core, id)?;
        core.query_perf(FIRST_PORT, from.pkey);
        core.reregister(FIRST_PORT);
        is_free(core)?;
        core.settle();
        core.remove_address(from);
        core.port_down(FIRST_PORT);
        is_free(core)?;
    }
    Ok(())
}

/// Fails at the first violation, before further slow calls take more time.
fn is_free(core: &StandIn) -> Outcome {
    let violations = core.violations();
    let held = violations
        .iter()
        .find(|violation| violation.kind == ViolationKind::BlockedCore);
    match held {
        None => Ok(()),
        Some(held) => Err(Finding::Breach {
            kind: held.kind,
            harmed: held.harmed,
            expected: "callbacks that return at once".into(),
            seen: held.text.clone(),
        }),
    }
}
