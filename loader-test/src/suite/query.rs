//! Checks of the family `query`: a query goes to the SA, whatever the cache holds.

use super::fixture::{
    ELSEWHERE, ERRORS, ETIMEDOUT, Fixture, HASTY, QUIET, SUCCESS, by_gid, expect_path,
    expect_status, expected_path, expected_record, hold, let_go, reply, resolve,
};
use super::{Check, Outcome, failed};
use crate::stand_in::fabric::Peer;
use crate::stand_in::ledger::Harmed;
use crate::stand_in::message::{ENTRY, HEADER, Message, Path, Reply};
use crate::stand_in::right::Expected;
use crate::stand_in::sa::{COMP_SGID, Reaction, SaRequest};
use crate::stand_in::{AddressId, FIRST_PORT, StandIn};
use crate::suite::ability::Ability;

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "query-answer",
        rule: "a query gets success and the SA's record, in a message of one entry",
        harmed: Harmed::Client,
        how: "sends a query and compares the answer with the SA's record",
        needs: &[Ability::AnswersQuery, Ability::Closes],
        run: |fixture| {
            let (core, from) = fixture.up()?;
            let peer = Peer::number(3);
            let answer = query(core, from, &to(core, &peer))?;
            expect_answer(&answer, &expected_path(core, &peer))
        },
        fault: fault!(Fault {
            replace: &[(
                "\t\tif (request->status != ACM_STATUS_SUCCESS)\n\t\t\tpath = request->second;\n",
                "\t\tpath = request->second;\n",
            )],
            status: &[Status::Failed],
            also: &[
                "query-asks-the-sa",
                "query-demands",
                "query-client-gone",
                "path-gid-and-lid",
                "path-far-gid",
                "path-link-local",
                "path-components",
                "path-selector-zero",
            ],
        }),
    },
    Check {
        name: "query-header",
        rule: "a query's answer has the version, the acknowledged opcode and the transaction id of its request",
        harmed: Harmed::Client,
        how: "checks the headers of an answer with a path and of an error",
        needs: &[Ability::AnswersQuery, Ability::Closes],
        run: |fixture| {
            let (core, from) = fixture.up()?;
            for peer in [Peer::number(3), unknown()] {
                let answer = query(core, from, &to(core, &peer))?;
                if answer.version() != 1 {
                    return Err(failed("version 1", format!("{}", answer.version())));
                }
            }
            Ok(())
        },
        fault: fault!(Fault {
            replace: &[(
                "\tmsg.hdr.version = request->hdr.version;\n",
                "\tmsg.hdr.version = request->is_query ? 0 : request->hdr.version;\n",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "query-function",
        rule: "the provider answers a query through acm_query_response, which does not count it as a resolve",
        harmed: Harmed::Operator,
        how: "compares the core's counts of errors, resolves and missing data before and after a query",
        needs: &[Ability::AnswersQuery, Ability::Closes],
        // The core counts by the answering function.
        run: |fixture| {
            let (core, from) = fixture.up()?;
            let before = core.counters();
            query(core, from, &to(core, &unknown()))?;
            let after = core.counters();
            if after[..3] == before[..3] {
                Ok(())
            } else {
                Err(failed(
                    format!("the core's counts as before, {:?}", &before[..3]),
                    format!("{:?}", &after[..3]),
                ))
            }
        },
        fault: fault!(Fault {
            replace: &[(
                "\t\tacm_query_response(request->id, &msg);\n",
                "\t\tacm_resolve_response(request->id, &msg);\n",
            )],
            status: &[Status::Failed],
            also: &[
                "lifecycle-close-in-flight",
                "query-answer",
                "query-header",
                "query-once",
                "query-asks-the-sa",
                "query-demands",
                "query-source",
                "query-no-records",
                "query-error-low-byte",
                "query-error-high-byte",
                "query-timeout",
                "query-never",
                "query-client-gone",
                "perf-route-query",
                "hostile-random",
                "path-gid-and-lid",
                "path-far-gid",
                "path-link-local",
                "path-components",
                "path-selector-zero",
                "lifecycle-core-thread",
                "sa-ask-after-close",
                "sa-deadline",
            ],
        }),
    },
    Check {
        name: "query-once",
        rule: "every query gets one answer, a path or an error",
        harmed: Harmed::Client,
        how: "sends two queries, waits until none is outstanding, and counts the answers to each",
        needs: &[Ability::AnswersQuery, Ability::Closes],
        run: answered_once,
        fault: fault!(Fault {
            replace: &[(
                "\t\tacm_query_response(request->id, &msg);\n",
                "\t\tacm_query_response(request->id, &msg);\n\t\tif (request->status != ACM_STATUS_SUCCESS)\n\t\t\tacm_query_response(request->id, &msg);\n",
            )],
            status: &[Status::Failed],
            also: &[
                "lifecycle-close-in-flight",
                "query-header",
                "query-function",
                "query-no-records",
                "query-error-low-byte",
                "query-error-high-byte",
                "query-timeout",
                "query-never",
                "hostile-random",
                "path-gid-and-lid",
                "path-components",
                "sa-ask-after-close",
                "sa-deadline",
            ],
        }),
    },
    Check {
        name: "query-asks-the-sa",
        rule: "a query gets the SA's current record, not a cached one",
        harmed: Harmed::Client,
        how: "resolves a peer, changes the SA's record, and sends a query for the same peer",
        needs: &[
            Ability::AnswersByGid,
            Ability::AnswersQuery,
            Ability::Closes,
        ],
        run: past_the_cache,
        fault: fault!(Fault {
            replace: &[(
                "look_up(ep, &question, request, false, true, &done);",
                "look_up(ep, &question, request, false, false, &done);",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "query-demands",
        rule: "the SA query carries every component that the client's record names",
        harmed: Harmed::Client,
        how: "sends four queries, each with another constraint, and compares each answer with the SA's record",
        needs: &[Ability::AnswersQuery, Ability::Closes],
        run: demands,
        fault: fault!(Fault {
            replace: &[(
                "make_question(ep, &request->second.info.path, &question);",
                "make_question(ep, &request->second.info.path, &question), question.tclass = 0;",
            )],
            status: &[Status::Failed],
            also: &["path-components"],
        }),
    },
    Check {
        name: "query-source",
        rule: "if a query names no source, the SA query has the port's GID as SGID, which some SAs require",
        harmed: Harmed::Client,
        how: "sends a query without a source and checks the SA query",
        needs: &[Ability::AnswersQuery, Ability::Closes],
        run: source,
        fault: fault!(Fault {
            replace: &[(
                "make_question(ep, &request->second.info.path, &question);",
                "make_question(ep, &request->second.info.path, &question), question.sgid = request->second.info.path.sgid;",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "query-no-records",
        rule: "a query for a record that the SA does not have gets an error",
        harmed: Harmed::Client,
        how: "sends a query for a GID that the SA does not know and compares the status",
        needs: &[Ability::AnswersQuery, Ability::Closes],
        run: |fixture| {
            let (core, from) = fixture.up()?;
            let answer = query(core, from, &to(core, &unknown()))?;
            expect_status(&answer, &ERRORS)
        },
        fault: fault!(Fault {
            replace: &[(
                "\t\tif (request->status != ACM_STATUS_SUCCESS)\n\t\t\tpath = request->second;\n",
                "\t\tif (request->status != ACM_STATUS_SUCCESS)\n\t\t\tpath = request->second;\n\t\tif (request->status == ACM_STATUS_ENODATA)\n\t\t\tmsg.hdr.status = ACM_STATUS_SUCCESS;\n",
            )],
            status: &[Status::Failed],
            also: &["query-error-high-byte", "path-components"],
        }),
    },
    Check {
        name: "query-error-low-byte",
        rule: "an error in the low byte of the SA's status (busy) is an error",
        harmed: Harmed::Client,
        how: "lets the SA respond with an error in the low byte of its status and compares the client's status",
        needs: &[Ability::AnswersQuery, Ability::Closes],
        run: |fixture| refused(fixture, Reaction::Status(0x0001), &ERRORS),
        fault: fault!(Fault {
            replace: &[
                ("\tif (!hdr->status)\n", "\tif (!class_status)\n"),
                (
                    "if (status == ACM_STATUS_SUCCESS && !fits(",
                    "if (status == ACM_STATUS_SUCCESS && (path->question.dlid || !mad->sa_mad.mad_hdr.status) && !fits(",
                ),
            ],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "query-error-high-byte",
        rule: "an error in the high byte of the SA's status is an error",
        harmed: Harmed::Client,
        how: "lets the SA respond with an error in the high byte of its status and compares the client's status",
        needs: &[Ability::AnswersQuery, Ability::Closes],
        run: |fixture| refused(fixture, Reaction::Status(0x0500), &ERRORS),
        fault: fault!(Fault {
            replace: &[
                (
                    "\tif (!hdr->status)\n",
                    "\tif (!(be16toh(hdr->status) & 0xff) && class_status != UMAD_SA_STATUS_NO_RECORDS)\n",
                ),
                (
                    "if (status == ACM_STATUS_SUCCESS && !fits(",
                    "if (status == ACM_STATUS_SUCCESS && (path->question.dlid || !mad->sa_mad.mad_hdr.status) && !fits(",
                ),
            ],
            status: &[Status::Failed],
            also: &["path-components", "path-gid-and-lid"],
        }),
    },
    Check {
        name: "query-timeout",
        rule: "a query to a silent SA gets a timeout status",
        harmed: Harmed::Client,
        how: "keeps the SA silent until the kernel returns the MAD, and compares the status",
        needs: &[Ability::AnswersQuery, Ability::Closes],
        run: |fixture| refused(fixture, Reaction::Silence, &[ETIMEDOUT]),
        fault: fault!(Fault {
            replace: &[(
                "\trequest->status = status;\n",
                "\trequest->status = request->is_query && status == ACM_STATUS_ETIMEDOUT ? ACM_STATUS_ENODATA : status;\n",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "query-never",
        rule: "if a MAD never comes back, the client gets an answer by its deadline",
        harmed: Harmed::Client,
        how: "never returns the MAD, and waits for the client's answer",
        needs: &[Ability::AnswersQuery, Ability::Closes],
        run: |fixture| refused(fixture, Reaction::Never, &ERRORS),
        fault: fault!(Fault {
            replace: &[(
                "\trequest->deadline = now_ms() + ep->port->dev->patience;\n",
                "\trequest->deadline = request->is_query ? FOR_EVER : now_ms() + ep->port->dev->patience;\n",
            )],
            status: &[Status::Failed],
            also: &["query-error-low-byte", "query-timeout", "sa-deadline"],
        }),
    },
    Check {
        name: "query-client-gone",
        rule: "a client that left still gets one answer, and the next client is served",
        harmed: Harmed::Client,
        how: "disconnects a client while the SA is silent, counts its answers, and sends a query and a request",
        needs: &[
            Ability::AnswersByGid,
            Ability::AnswersQuery,
            Ability::Closes,
        ],
        run: client_gone,
        fault: fault!(Fault {
            replace: &[(
                "\t\tacm_query_response(request->id, &msg);\n",
                "\t\tif (acm_query_response(request->id, &msg))\n\t\t\tacm_query_response(request->id, &msg);\n",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
];

/// Returns the record of ib_acme: source and destination GID, and P_Key.
fn to(core: &StandIn, peer: &Peer) -> Path {
    let port = core.port(FIRST_PORT);
    Path::default()
        .with_sgid(port.gid())
        .with_dgid(peer.gid())
        .with_pkey(port.pkeys[0])
}

/// A host that does not exist.
fn unknown() -> Peer {
    Peer::number(0x0bad)
}

fn query(core: &mut StandIn, from: AddressId, asked: &Path) -> Result<Reply, super::Finding> {
    let id = core.query_from(from, &Message::query(asked));
    reply(core, id)
}

fn expect_answer(answer: &Reply, expected: &Expected) -> Outcome {
    expect_status(answer, &[SUCCESS])?;
    if answer.path().is_some() && usize::from(answer.length) == HEADER + ENTRY {
        return expect_path(answer, expected);
    }
    Err(failed(
        format!("one entry with {expected}"),
        format!("length {}, {answer:?}", answer.length),
    ))
}

fn answered_once(fixture: &mut Fixture) -> Outcome {
    let (core, from) = fixture.up()?;
    let mut ids = Vec::new();
    for peer in [Peer::number(3), unknown()] {
        let id = core.query_from(from, &Message::query(&to(core, &peer)));
        reply(core, id)?;
        ids.push(id);
    }
    core.settle();
    // A second answer would come soon: it waits for nothing.
    std::thread::sleep(QUIET);
    for id in ids {
        let answers = core.replies(id);
        if answers.len() != 1 {
            return Err(failed("one answer", format!("{answers:?}")));
        }
    }
    Ok(())
}

/// Caches a path, then changes the SA's record.
fn past_the_cache(fixture: &mut Fixture) -> Outcome {
    let (core, from) = fixture.up()?;
    let peer = Peer::number(3);
    resolve(core, from, &by_gid(&peer))?;
    core.move_peer(&peer, ELSEWHERE);
    let answer = query(core, from, &to(core, &peer))?;
    expect_answer(&answer, &expected_path(core, &peer))
}

fn demands(fixture: &mut Fixture) -> Outcome {
    let (core, from) = fixture.up()?;
    core.set_qos(true);
    let plain = to(core, &Peer::number(3));
    for asked in [
        plain.with_service_id(0x0100_0000_0106_4853),
        plain.with_tclass(0x21),
        plain.with_qos_sl(0x0050),
        plain.with_qos_sl(0x0006),
    ] {
        let answer = query(core, from, &asked)?;
        expect_answer(&answer, &expected_record(core, &asked))?;
    }
    Ok(())
}

fn source(fixture: &mut Fixture) -> Outcome {
    let (core, from) = fixture.up()?;
    let peer = Peer::number(3);
    let asked = core.sa().path_queries().len();
    query(core, from, &Path::default().with_dlid(peer.lid))?;
    let own = core.port(FIRST_PORT).gid();
    match core.sa().path_queries().get(asked) {
        Some(question) if question.mask & COMP_SGID != 0 && question.path().sgid() == own => Ok(()),
        Some(question) => Err(failed(
            "the port's GID as SGID, in the record and in the component mask",
            format!("mask {:#x}, {:?}", question.mask, question.path()),
        )),
        None => Err(failed("a query to the SA", "none")),
    }
}

/// Keeps the SA silent for the first client, and lets it respond to the next.
fn refused(fixture: &mut Fixture, reaction: Reaction, statuses: &[u8]) -> Outcome {
    let (core, from) = fixture.up_with(HASTY)?;
    let peer = Peer::number(3);
    core.sa().script(move |question: &SaRequest| {
        if question.is_path_query() {
            reaction.clone()
        } else {
            Reaction::Answer
        }
    });
    let answer = query(core, from, &to(core, &peer))?;
    expect_status(&answer, statuses)
}

fn client_gone(fixture: &mut Fixture) -> Outcome {
    let (core, from) = fixture.up()?;
    let peer = Peer::number(3);
    hold(core);
    let gone = core.query_from(from, &Message::query(&to(core, &peer)));
    core.client_leaves(gone);
    let_go(core);
    reply(core, gone)?;
    let answer = query(core, from, &to(core, &peer))?;
    expect_answer(&answer, &expected_path(core, &peer))?;
    let answer = resolve(core, from, &by_gid(&peer))?;
    expect_path(&answer, &expected_path(core, &peer))?;
    std::thread::sleep(QUIET);
    match core.replies(gone).len() {
        1 => Ok(()),
        answers => Err(failed(
            "one answer to the client that left",
            format!("{answers}"),
        )),
    }
}
