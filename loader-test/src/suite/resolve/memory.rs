//! Checks that answered requests leave no memory allocated.

use std::time::{Duration, Instant};

use crate::stand_in::fabric::{Peer, gid};
use crate::stand_in::ledger::Harmed;
use crate::stand_in::message::{Addr, Message, Path};
use crate::stand_in::{AddressId, StandIn};
use crate::suite::ability::Ability;
use crate::suite::fixture::{ETIMEDOUT, Fixture, by_addr, by_gid, by_lid, reply};
use crate::suite::lifecycle::heap;
use crate::suite::{Check, Finding, Outcome, failed};

pub(in crate::suite) const RESOLVE_MEMORY: &str = "resolve-memory";

pub(in crate::suite) const CHECKS: &[Check] = &[Check {
    name: RESOLVE_MEMORY,
    rule: "answered requests leave no memory allocated, however many there were",
    harmed: Harmed::Daemon,
    how: "sends thousands of requests, a batch at a time, and compares the heap between batches",
    needs: &[Ability::AnswersByLid],
    run: many_requests,
    fault: fault!(Fault {
        replace: &[(
            "\tmemset(&wanted, 0, sizeof wanted);\n\ttake_up(ep, request);\n",
            "\tmemset(&wanted, 0, sizeof wanted);\n\ttake_up(ep, request);\n\tif (!malloc(100))\n\t\treturn ENOMEM;\n",
        )],
        status: &[Status::Failed],
        also: &["lifecycle-reopen-thousand"],
    }),
}];

/// Requests of each kind between two heap samples.
const REQUESTS: usize = 500;
/// Maximum number of windows, and how many without growth suffice: caches fill up and then stop growing.
const WINDOWS: usize = 16;
const AT_REST: usize = 2;
/// Time after which the check judges the samples so far: a busy machine takes long for so many requests.
const BUDGET: Duration = Duration::from_secs(2);
/// Bytes per request that count as noise.
const ALLOWED: usize = 4;

fn many_requests(fixture: &mut Fixture) -> Outcome {
    let (core, from) = fixture.up_with(&["log_level 0"])?;
    let own = core.address(from).clone();
    let (known, unknown) = (Peer::number(1), gid(0x0bad));
    let kinds: [(&str, Message); 6] = [
        ("a known LID", by_lid(&known)),
        ("a known GID", by_gid(&known)),
        (
            "an unknown GID",
            Message::path(&Path::default().with_dgid(unknown)),
        ),
        ("no destination", Message::path(&Path::default())),
        ("its own address", by_addr(&own, &own)),
        ("a host's address", by_addr(&own, &Addr::Ip(known.ip))),
    ];
    let end = Instant::now() + BUDGET;
    for (name, message) in &kinds {
        if let Some(grown) = growth(core, from, message, end)? {
            return Err(failed(
                format!("no lasting growth with requests for {name}"),
                format!("{grown} bytes of heap more with each {REQUESTS}"),
            ));
        }
    }
    Ok(())
}

/// Returns the heap's growth per window, if it does not stop.
fn growth(
    core: &mut StandIn,
    from: AddressId,
    message: &Message,
    end: Instant,
) -> Result<Option<usize>, Finding> {
    let (mut at_rest, mut last) = (0, 0);
    for window in 0..WINDOWS {
        if Instant::now() > end {
            // Caches fill up in the first window.
            let is_clear = window > 2 && at_rest == 0;
            return Ok(is_clear.then_some(last));
        }
        core.forget_history();
        let before = heap();
        for _ in 0..REQUESTS {
            let id = core.resolve_from(from, message);
            let answer = reply(core, id)?;
            // Requests that wait for other nodes take long: one suffices.
            if answer.status == ETIMEDOUT {
                return Ok(None);
            }
        }
        core.settle();
        core.forget_history();
        last = heap().saturating_sub(before);
        if window > 0 {
            at_rest += usize::from(last <= REQUESTS * ALLOWED);
        }
        if at_rest >= AT_REST {
            return Ok(None);
        }
    }
    Ok(Some(last))
}
