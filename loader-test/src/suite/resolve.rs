//! Checks of the family `resolve`: a request, and its one answer.

use super::bench::{
    Bench, EDESTTYPE, ENODATA, by_gid, by_lid, expect_path, expect_status, expected_path, resolve,
};
use super::fault::Fault;
use super::{Check, Outcome, Status, failed};
use crate::stand_in::fabric::Peer;
use crate::stand_in::ledger::Harmed;

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "resolve-by-lid",
        rule: "a path request with a DLID is answered with the SA's path to that LID",
        harmed: Harmed::Client,
        run: |bench| {
            let (core, from) = bench.up()?;
            let peer = Peer::number(3);
            let reply = resolve(core, from, &by_lid(&peer))?;
            expect_path(&reply, &expected_path(core, &peer))
        },
        fault: Fault {
            replace: &[],
            status: &[Status::Failed],
            also: &[],
        },
    },
    Check {
        name: "resolve-cached",
        rule: "the second request for a destination is answered without asking the SA again",
        harmed: Harmed::Sa,
        run: second_from_the_cache,
        fault: Fault {
            replace: &[],
            status: &[Status::Failed],
            also: &[],
        },
    },
];

fn second_from_the_cache(bench: &mut Bench) -> Outcome {
    let (core, from) = bench.up()?;
    let peer = Peer::number(3);
    let first = resolve(core, from, &by_gid(&peer))?;
    if [ENODATA, EDESTTYPE].contains(&first.status) {
        return expect_status(&first, &[0]);
    }
    let asked = core.sa().questions().len();
    let second = resolve(core, from, &by_gid(&peer))?;
    expect_path(&second, &expected_path(core, &peer))?;
    let again = core.sa().questions().len();
    if again != asked {
        return Err(failed(
            "no further query",
            format!("{} more", again - asked),
        ));
    }
    Ok(())
}
