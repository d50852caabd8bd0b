//! More checks of the family `sa`: MADs that the core refuses, and more queries than the SA answers at a time.

use crate::suite::ability::{Ability, SERVES};
use std::time::Duration;

use super::fixture::{
    ERRORS, Fixture, HASTY, SUCCESS, by_addr, by_gid, by_lid, expect_path, expect_status,
    expected_path, hold, let_go, refused, reply, resolve,
};
use super::{Check, Outcome, failed};
use crate::stand_in::fabric::{DeviceSpec, Peer};
use crate::stand_in::ledger::{Harmed, ViolationKind};
use crate::stand_in::message::{Addr, Message, Path};
use crate::stand_in::sa::Reaction;
use crate::stand_in::{FIRST_PORT, MadFaults, StandIn};

/// ACM statuses of a query that could not be sent: no memory, not connected, timed out.
const NOT_ASKED: [u8; 3] = [1, 5, 6];

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "sa-refused-status",
        rule: "if the core does not take a query, the client gets its path later or a status that says so; not ENODATA, which means that there is no path",
        harmed: Harmed::Client,
        how: "lets the core refuse all MADs, compares the status of three clients, and resolves again",
        needs: &[
            Ability::AnswersByLid,
            Ability::AnswersByGid,
            Ability::Closes,
        ],
        run: refused_status,
        fault: fault!(Fault {
            replace: &[
                (
                    "\t} else {\n\t\tpath->ask_at = now + path->pause;\n\t\tpath->pause = longer(path->pause);\n\t}\n}\n",
                    "\t} else {\n\t\tpath->state = NONE;\n\t\tpath->ask_at = now + path->pause;\n\t}\n}\n",
                ),
                (
                    "\tif (TAILQ_EMPTY(&path->waiters) && !path->owed)\n",
                    "\tif (path->state == NONE)\n\t\tanswer_waiters(path, ACM_STATUS_ENODATA, NULL, done);\n\tif (TAILQ_EMPTY(&path->waiters) && !path->owed)\n",
                ),
            ],
            status: &[Status::Failed],
            also: &["sa-refused-one"],
        }),
    },
    Check {
        name: "sa-refused-one",
        rule: "a query that the core does not take does not affect other requests",
        harmed: Harmed::Client,
        how: "lets the core refuse one of three MADs, checks each client's answer, and resolves all again",
        needs: SERVES,
        run: refused_one,
        fault: fault!(Fault {
            replace: &[(
                "\t} else {\n\t\tpath->ask_at = now + path->pause;\n\t\tpath->pause = longer(path->pause);\n\t}\n}\n",
                "\t} else {\n\t\tTAILQ_FOREACH(path, &path->ep->port->busy, busy_entry) {\n\t\t\tforget(&path->query);\n\t\t\tpath->ask_at = FOR_EVER;\n\t\t}\n\t}\n}\n",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "sa-burst",
        rule: "however many queries and joins are pending, the core holds at most sa_depth + 1 MADs of a port, and each request is answered",
        harmed: Harmed::Client,
        how: "sends 200 requests and a reregistration while the SA answers one MAD after the other, and counts the MADs that the core holds",
        needs: SERVES,
        run: burst,
        fault: fault!(Fault {
            replace: &[(
                "\tdev->depth = options.sa_depth + 1;\n",
                "\tdev->depth = 4096;\n",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "sa-deadline",
        rule: "if the SA is silent, every client gets an answer by its deadline, timeout x (retries + 1)",
        harmed: Harmed::Client,
        how: "resolves and queries while the SA is silent, and measures when each client is answered",
        needs: &[Ability::AnswersByLid],
        run: deadline,
        fault: fault!(Fault {
            replace: &[(
                "\tdev->patience = (uint64_t) options.timeout * (options.retries + 1);\n",
                "\tdev->patience = (uint64_t) options.timeout * (options.retries + 1) * 5;\n",
            )],
            status: &[Status::Failed],
            also: &[
                "lifecycle-*",
                "path-*",
                "perf-*",
                "query-*",
                "resolve-*",
                "sa-*",
            ],
        }),
    },
    Check {
        name: "sa-own-deadline",
        rule: "each client times out by its own deadline, not by the deadline of an earlier client's query",
        harmed: Harmed::Client,
        how: "holds one client's query, resolves another peer meanwhile, and measures when each client is answered",
        needs: SERVES,
        run: own_deadline,
        fault: fault!(Fault {
            replace: &[
                (
                    "2 * ep->port->dev->patience + 1000;",
                    "ep->port->dev->patience;",
                ),
                (
                    "\t\tif (query->lost_at <= now)\n\t\t\tend_query(query);\n",
                    "\t\tif (query->lost_at > now)\n\t\t\tcontinue;\n\t\tif (query->owner && query->path)\n\t\t\tanswer_waiters(query->path, ACM_STATUS_ETIMEDOUT, NULL, done);\n\t\tend_query(query);\n",
                ),
            ],
            status: &[Status::Failed],
            also: &[],
        }),
    },
];

/// Sends requests of every kind while the SA is silent; the ledger records late answers.
fn deadline(fixture: &mut Fixture) -> Outcome {
    let (core, from) = fixture.up_with(HASTY)?;
    // Answers after that time are late.
    core.patience = core.deadline() * 2 + Duration::from_secs(2);
    core.sa().script(|question| {
        if question.is_path_query() {
            Reaction::Silence
        } else {
            Reaction::Answer
        }
    });
    let own = core.address(from).clone();
    let (by_number, other) = (Peer::number(3), Peer::number(4));
    let query = Message::query(&Path::default().with_dgid(other.gid()));
    let mut ids: Vec<u64> = [
        by_lid(&by_number),
        by_gid(&by_number),
        by_addr(&own, &Addr::Ip([10, 9, 9, 9].into())),
    ]
    .iter()
    .map(|message| core.resolve_from(from, message))
    .collect();
    ids.push(core.query_from(from, &query));
    for id in ids {
        let Some(answer) = core.reply(id) else {
            return Err(failed(
                format!("an answer after {:?}", core.deadline()),
                format!("none after {:?}", core.patience),
            ));
        };
        expect_status(&answer, &ERRORS)?;
    }
    Ok(())
}

/// Fails if the provider dropped a request and the SDK answered it.
fn nothing_dropped(core: &StandIn) -> Outcome {
    match core.forgive(ViolationKind::DroppedRequest).first() {
        Some(dropped) => Err(failed("the provider's own answer", &*dropped.text)),
        None => Ok(()),
    }
}

fn refused_status(fixture: &mut Fixture) -> Outcome {
    let refusals = [
        MadFaults {
            refuse: true,
            ..MadFaults::default()
        },
        MadFaults {
            no_memory: true,
            ..MadFaults::default()
        },
    ];
    let (core, from) = fixture.up_with(HASTY)?;
    for (faults, number) in refusals.into_iter().zip([3, 5]) {
        let [first, second] = [number, number + 1].map(Peer::number);
        core.fail_mads(faults);
        let ids = [by_lid(&first), by_gid(&second), by_lid(&first)]
            .map(|message| core.resolve_from(from, &message));
        for id in ids {
            expect_status(&reply(core, id)?, &NOT_ASKED)?;
        }
        nothing_dropped(core)?;
        core.fail_mads(MadFaults::default());
        for peer in [first, second] {
            let answer = resolve(core, from, &by_lid(&peer))?;
            expect_path(&answer, &expected_path(core, &peer))?;
        }
    }
    Ok(())
}

fn refused_one(fixture: &mut Fixture) -> Outcome {
    let (core, from) = fixture.up_with(&[HASTY, &["sa_depth 8"]].concat())?;
    hold(core);
    let peers = [3, 4, 5].map(Peer::number);
    let (_, sends) = core.mad_calls();
    core.fail_mads(MadFaults {
        refuse: true,
        only_call: Some(sends + 1),
        ..MadFaults::default()
    });
    let ids = peers
        .each_ref()
        .map(|peer| core.resolve_from(from, &by_lid(peer)));
    let_go(core);
    let mut refusals = 0;
    for (id, peer) in ids.into_iter().zip(&peers) {
        let answer = reply(core, id)?;
        if answer.status == SUCCESS {
            expect_path(&answer, &expected_path(core, peer))?;
        } else {
            expect_status(&answer, &NOT_ASKED)?;
            refusals += 1;
        }
    }
    nothing_dropped(core)?;
    if refusals > 1 {
        return Err(failed(
            "at most one client without a path, if the core refuses one query of three",
            refusals.to_string(),
        ));
    }
    for peer in peers {
        let answer = resolve(core, from, &by_lid(&peer))?;
        expect_path(&answer, &expected_path(core, &peer))?;
    }
    Ok(())
}

/// Pause of a polling loop.
const STEP: Duration = Duration::from_millis(1);

fn burst(fixture: &mut Fixture) -> Outcome {
    const PKEYS: [u16; 2] = [0xffff, 0x8001];
    const DEPTH: usize = 1;
    let mut device = DeviceSpec::single();
    device.ports[0].pkeys = PKEYS.to_vec();
    let deadline = format!("timeout {}", fixture.long_deadline().as_millis());
    let core = fixture.core_with(
        vec![device],
        &[&deadline, "retries 0", &format!("sa_depth {DEPTH}")],
    )?;
    core.port_up(FIRST_PORT).map_err(refused)?;
    let mut from = Vec::new();
    for pkey in PKEYS {
        let name = Addr::Name(format!("self{pkey:x}"));
        from.push(core.add_address(FIRST_PORT, pkey, &name).map_err(refused)?);
    }
    core.settle();
    let mut released = core.sa().requests().len();
    core.sa().script(|_| Reaction::Hold);
    let mut clients = Vec::new();
    for number in 1..=100 {
        let peer = Peer::number(number);
        for address in &from {
            clients.push((core.resolve_from(*address, &by_lid(&peer)), peer.lid));
        }
        if number == 50 {
            // Joins of both endpoints and a ClassPortInfo query come in between.
            core.reregister(FIRST_PORT);
            let asked = Path::default().with_dgid(peer.gid()).with_service_id(7);
            core.resolve_from(from[0], &Message::path(&asked));
        }
    }
    // The SA responds to one MAD after the other.
    let is_answered = |core: &StandIn, id| core.waited(id).is_some();
    let mut left: Vec<u64> = clients.iter().map(|(id, _)| *id).collect();
    let deadline = std::time::Instant::now() + core.patience;
    while !left.is_empty() && std::time::Instant::now() < deadline {
        for question in core.sa().requests().into_iter().skip(released) {
            core.sa().release(question.number, Reaction::Answer);
            released += 1;
        }
        std::thread::sleep(STEP);
        left.retain(|id| !is_answered(core, *id));
    }
    let_go(core);
    core.settle();
    for (id, lid) in clients {
        let answer = reply(core, id)?;
        let dlid = answer.path().map(|path| path.dlid());
        let early = core.waited(id).is_some_and(|time| time < core.deadline());
        if dlid != Some(lid) && (early || answer.status == SUCCESS) {
            let expected = format!("the path to LID {lid}, since the SA responds to every query");
            return Err(failed(expected, format!("{answer:?}")));
        }
    }
    match core.sa().most_out() {
        // The core sends a waiting MAD for each one that comes back. If that send fails, no event sends the MADs behind it.
        most if most > DEPTH + 1 => Err(failed(
            format!(
                "at most {} MADs of the port at the core, which sends {DEPTH} at a time",
                DEPTH + 1
            ),
            format!(
                "{most}: if the core cannot send one of the waiting MADs, those behind it wait for ever"
            ),
        )),
        _ => Ok(()),
    }
}

/// Tolerance for clocks of whole milliseconds on both sides.
const COARSE: Duration = Duration::from_millis(20);

fn own_deadline(fixture: &mut Fixture) -> Outcome {
    let (core, from) = fixture.up_with(&[HASTY, &["sa_depth 1"]].concat())?;
    let (slow, other) = (Peer::number(3), Peer::number(4));
    hold(core);
    let first = core.resolve_from(from, &by_lid(&slow));
    // This query is outstanding; the query for the other destination waits behind it, in the core or in the provider.
    let mut clients = Vec::new();
    let limit = std::time::Instant::now() + core.deadline() * 2;
    while core.waited(first).is_none() && std::time::Instant::now() < limit {
        clients.push(core.resolve_from(from, &by_lid(&other)));
        std::thread::sleep(core.deadline() / 10);
    }
    // The kernel returns the unanswered MAD, and the SA responds again.
    core.sa().script(|_| Reaction::Answer);
    for question in core.sa().requests() {
        core.sa().release(question.number, Reaction::Silence);
    }
    for id in clients {
        let answer = reply(core, id)?;
        if answer.status == SUCCESS {
            expect_path(&answer, &expected_path(core, &other))?;
            continue;
        }
        let waited = core.waited(id).unwrap_or_default();
        if waited + COARSE < core.deadline() {
            return Err(failed(
                format!("a path, or an error after {:?}", core.deadline()),
                format!("status {} after {waited:?}", answer.status),
            ));
        }
    }
    Ok(())
}
