//! Checks of requests after an answer: for the same record, and without its constraint.

use super::{Demand, ask, when};
use crate::stand_in::fabric::Peer;
use crate::stand_in::ledger::Harmed;
use crate::stand_in::message::{Kind, Path};
use crate::suite::ability::Ability;
use crate::suite::fixture::{
    Fixture, able, by_gid, expect_exactly, expect_path, expect_undemanded, expected_path,
    expected_record, resolve,
};
use crate::suite::{Check, Outcome, failed};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "path-asked-again",
        rule: "a request that repeats a returned record gets the same record, without an SA query",
        harmed: Harmed::Client,
        how: "requests the returned record again, with four constraints, and counts the SA queries",
        needs: &[
            Ability::AnswersByLid,
            Ability::AnswersByGid,
            Ability::Closes,
        ],
        run: asked_again,
        fault: fault!(Fault {
            replace: &[(
                "\tif (!fresh)\n\t\tpath = find_repeated(ep, &question, now);\n",
                "",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "path-plainer",
        rule: "a path cached for a constrained request does not answer a request without the constraint",
        harmed: Harmed::Client,
        how: "resolves with a constraint and then without, by LID and by GID, and compares the second path with the SA's record",
        needs: &[
            Ability::AnswersByLid,
            Ability::AnswersByGid,
            Ability::Closes,
        ],
        run: plainer,
        fault: fault!(Fault {
            replace: &[
                (
                    "unsigned int bucket = hash(question, sizeof *question);",
                    "unsigned int bucket = hash(question, 54);",
                ),
                (
                    "!memcmp(&path->question, question, sizeof *question))",
                    "!memcmp(&path->question, question, 54))",
                ),
            ],
            status: &[Status::Failed],
            also: &["path-components", "path-hints"],
        }),
    },
];

/// With an SA that would return the record again, and with one that would not, since its routing draws the SL.
fn asked_again(fixture: &mut Fixture) -> Outcome {
    const CASES: [Demand; 4] = [
        ("a path", |path| path),
        ("an MTU", |path| path.with_mtu(0x81)),
        ("a traffic class", |path| path.with_tclass(0x21)),
        ("a service", |path| path.with_service_id(7)),
    ];
    let (core, from) = fixture.up()?;
    core.set_qos(true);
    let mut number = 100;
    for draws in [false, true] {
        core.set_draws_sl(draws);
        for (name, demand) in CASES {
            for by_lid in [false, true] {
                number += 1;
                let peer = Peer::number(number);
                let asked = demand(match by_lid {
                    true => Path::default().with_dlid(peer.lid),
                    false => Path::default().with_dgid(peer.gid()),
                });
                let first = ask(core, from, Kind::Resolve, &asked)?;
                if name != CASES[0].0 {
                    able(core, &first, &format!("paths with {name}"))?;
                }
                let Some(record) = first.path().filter(|_| first.status == 0) else {
                    return Err(failed("a path", format!("{first:?}")));
                };
                let queries = core.sa().path_queries().len();
                let again = ask(core, from, Kind::Resolve, &record)?;
                let sa = if draws { ", drawn SLs" } else { "" };
                expect_exactly(&again, &record).map_err(when(format!("{name}{sa}")))?;
                let more = core.sa().path_queries().len() - queries;
                if more > 0 {
                    let seen = format!("{more} more ({name}{sa})");
                    return Err(failed("no further path query", seen));
                }
            }
        }
    }
    Ok(())
}

/// The second request names the destination in the same way or in the other way.
fn plainer(fixture: &mut Fixture) -> Outcome {
    const CASES: [Demand; 5] = [
        ("MTU exactly 256", |path| path.with_mtu(0x81)),
        ("rate less than 10 Gb/s", |path| path.with_rate(0x43)),
        ("lifetime code exactly 10", |path| path.with_lifetime(0x8a)),
        ("SL 6", |path| path.with_qos_sl(6)),
        ("traffic class 0x21", |path| path.with_tclass(0x21)),
    ];
    let (core, from) = fixture.up()?;
    let usual = resolve(core, from, &by_gid(&Peer::number(1)))?;
    let usual = usual.path().unwrap_or_default();
    let mut number = 100;
    for (name, demand) in CASES {
        for is_gid_first in [true, false] {
            number += 1;
            let peer = Peer::number(number);
            let mut plain = [
                Path::default().with_dgid(peer.gid()),
                Path::default().with_dlid(peer.lid),
            ];
            if !is_gid_first {
                plain.reverse();
            }
            let asked = demand(plain[0]);
            let answer = ask(core, from, Kind::Resolve, &asked)?;
            if answer.status == 0 {
                expect_path(&answer, &expected_record(core, &asked)).map_err(when(name))?;
            }
            let demanded = answer.path().unwrap_or_default();
            for asked in plain {
                let answer = ask(core, from, Kind::Resolve, &asked)?;
                let expected = expected_path(core, &peer);
                let case = format!("after {name}");
                expect_path(&answer, &expected)
                    .and_then(|()| expect_undemanded(&answer, &expected, &demanded, &usual))
                    .map_err(when(case))?;
            }
        }
    }
    Ok(())
}
