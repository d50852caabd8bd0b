//! Checks of the family `sa`: what a provider asks the subnet administrator, and what it makes of the answers.

use std::time::Duration;

use super::bench::{
    Bench, ERRORS, ETIMEDOUT, HASTY, QUIET, SUCCESS, by_gid, by_lid, expect_path, expect_status,
    expected_path, reply, resolve,
};
use super::fault::Fault;
use super::{Check, Finding, Outcome, Status, failed};
use crate::stand_in::fabric::{Peer, gid};
use crate::stand_in::ledger::Harmed;
use crate::stand_in::message::Path;
use crate::stand_in::sa::{COMP_DLID, COMP_SGID, GET, PATH_RECORD, Question, Reaction};
use crate::stand_in::{AddressId, FIRST_PORT, MadFaults, StandIn};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "sa-timeout",
        rule: "a request whose query times out is answered with an error by the deadline, and the next one asks again",
        harmed: Harmed::Client,
        run: |bench| refused_then_asked_again(bench, &Reaction::Silence, &[ETIMEDOUT]),
        fault: Fault {
            replace: &[
                ("*again = mad->umad.status;", "*again = false;"),
                (
                    "\tif (mad->umad.status)\n\t\treturn ACM_STATUS_ETIMEDOUT;",
                    "\tif (mad->umad.status)\n\t\treturn ACM_STATUS_ENODATA;",
                ),
                (
                    "finish(path->ep, request, ACM_STATUS_ETIMEDOUT, NULL, done);",
                    "finish(path->ep, request, ACM_STATUS_ENODATA, NULL, done);",
                ),
            ],
            status: &[Status::Failed],
            also: &["perf-error", "query-timeout"],
        },
    },
    Check {
        name: "sa-error-high-byte",
        rule: "an error in the high byte of the SA's status is no path, and is not kept as one",
        harmed: Harmed::Client,
        run: |bench| refused_then_asked_again(bench, &Reaction::Status(0x0500), &ERRORS),
        fault: Fault {
            replace: &[
                (
                    "if (!hdr->status)\n",
                    "if (!(hdr->status & htobe16(0x00ff)))\n",
                ),
                (
                    "if (status == ACM_STATUS_SUCCESS && !fits(",
                    "if (status == ACM_STATUS_SUCCESS && !mad->sa_mad.mad_hdr.status && !fits(",
                ),
            ],
            status: &[Status::Failed],
            also: &[
                "perf-no-data",
                "query-error-high-byte",
                "query-no-records",
                "resolve-unknown-gid",
                "resolve-unknown-lid",
            ],
        },
    },
    Check {
        name: "sa-error-low-byte",
        rule: "an error in the low byte of the SA's status (busy) is no path, and is not kept as one",
        harmed: Harmed::Client,
        run: |bench| refused_then_asked_again(bench, &Reaction::Status(0x0001), &ERRORS),
        fault: Fault {
            replace: &[
                ("if (!hdr->status)\n", "if (!class_status)\n"),
                (
                    "if (status == ACM_STATUS_SUCCESS && !fits(",
                    "if (status == ACM_STATUS_SUCCESS && !mad->sa_mad.mad_hdr.status && !fits(",
                ),
            ],
            status: &[Status::Failed],
            also: &["query-error-low-byte", "sa-error-field"],
        },
    },
    Check {
        name: "sa-error-field",
        rule: "an SA that does not support the query, or finds a field invalid, has given no path",
        harmed: Harmed::Client,
        run: |bench| {
            refused_then_asked_again(bench, &Reaction::Status(0x000c), &ERRORS)?;
            refused_then_asked_again(bench, &Reaction::Status(0x001c), &ERRORS)
        },
        fault: Fault {
            replace: &[
                (
                    "if (!hdr->status)\n",
                    "if (!hdr->status || hdr->status == htobe16(0x000c))\n",
                ),
                (
                    "if (status == ACM_STATUS_SUCCESS && !fits(",
                    "if (status == ACM_STATUS_SUCCESS && !mad->sa_mad.mad_hdr.status && !fits(",
                ),
            ],
            status: &[Status::Failed],
            also: &[],
        },
    },
    Check {
        name: "sa-not-sent",
        rule: "a MAD that comes back unsent (errno in umad.status) is answered with an error",
        harmed: Harmed::Client,
        run: |bench| refused_then_asked_again(bench, &Reaction::NotSent(libc::EIO), &ERRORS),
        fault: Fault {
            replace: &[(
                "*again = mad->umad.status;",
                "if (mad->umad.status && mad->umad.status != ETIMEDOUT)\n\t\tabort();\n\t*again = mad->umad.status;",
            )],
            status: &[Status::Crashed],
            also: &[],
        },
    },
    Check {
        name: "sa-send-refused",
        rule: "when acm_send_sa_mad refuses, the MAD is freed and the client answered",
        harmed: Harmed::Client,
        run: |bench| {
            core_fails_then_recovers(
                bench,
                MadFaults {
                    refuse: true,
                    ..MadFaults::default()
                },
            )
        },
        fault: Fault {
            replace: &[(
                "\t\t/* A MAD that was not taken is still ours. */\n\t\tacm_free_sa_mad(mad);\n",
                "",
            )],
            status: &[Status::Failed],
            also: &["lifecycle-mad-fails"],
        },
    },
    Check {
        name: "sa-no-memory",
        rule: "when acm_alloc_sa_mad gives NULL, the client is answered and nothing is written through it",
        harmed: Harmed::Daemon,
        run: |bench| {
            core_fails_then_recovers(
                bench,
                MadFaults {
                    no_memory: true,
                    ..MadFaults::default()
                },
            )
        },
        fault: Fault {
            replace: &[(
                "\tif (!mad) {\n\t\tfree(query);\n\t\treturn NULL;\n\t}\n",
                "",
            )],
            status: &[Status::Crashed],
            also: &["lifecycle-mad-fails"],
        },
    },
    Check {
        name: "sa-out-of-order",
        rule: "answers that come in another order than the questions reach the clients that asked for them",
        harmed: Harmed::Client,
        run: out_of_order,
        fault: Fault {
            replace: &[(
                "path_answered(query->path, mad, &done);",
                "path_answered(LIST_FIRST(&ep->busy), mad, &done);",
            )],
            status: &[Status::Failed, Status::Crashed, Status::TimedOut],
            also: &[
                "event-reregister-in-flight",
                "resolve-many",
                "resolve-message-gone",
            ],
        },
    },
    Check {
        name: "sa-never",
        rule: "a MAD that never comes back costs its clients their deadline, not for ever",
        harmed: Harmed::Client,
        run: |bench| {
            let (core, from) = bench.up_with(HASTY)?;
            core.sa().script(only(Peer::number(3), Reaction::Never));
            let answer = resolve(core, from, &by_lid(&Peer::number(3)))?;
            expect_status(&answer, &ERRORS)
        },
        fault: Fault {
            replace: &[("request->deadline <= now) {", "request->deadline <= 0) {")],
            status: &[Status::Failed],
            also: &[
                "perf-error",
                "query-error-low-byte",
                "query-never",
                "query-timeout",
                "sa-error-low-byte",
                "sa-no-memory",
                "sa-not-sent",
                "sa-send-refused",
                "sa-timeout",
            ],
        },
    },
    Check {
        name: "sa-late",
        rule: "an answer that comes after the client's deadline answers nobody a second time",
        harmed: Harmed::Client,
        run: too_late,
        fault: Fault {
            replace: &[(
                "\t\tTAILQ_REMOVE(&path->waiters, request, entry);\n\t\tfinish(path->ep, request, ACM_STATUS_ETIMEDOUT, NULL, done);",
                "\t\tstruct request *copy = malloc(sizeof *copy);\n\n\t\t*copy = *request;\n\t\trequest->deadline = FOR_EVER;\n\t\tfinish(path->ep, copy, ACM_STATUS_ETIMEDOUT, NULL, done);",
            )],
            status: &[Status::Failed],
            also: &[
                "perf-error",
                "query-error-low-byte",
                "query-never",
                "query-timeout",
                "sa-error-low-byte",
                "sa-never",
                "sa-no-memory",
                "sa-not-sent",
                "sa-send-refused",
                "sa-timeout",
            ],
        },
    },
    Check {
        name: "sa-after-close",
        rule: "an answer that comes after its endpoint was closed touches nothing, and its client is answered once",
        harmed: Harmed::Daemon,
        run: |bench| across_a_close(bench, false),
        fault: Fault {
            replace: &[
                (
                    "\tforget(&path->query);\n\tif (path->busy)\n",
                    "\tif (path->busy)\n",
                ),
                (
                    "\tpath->ep->path_count--;\n\tfree(path);\n",
                    "\tpath->ep->path_count--;\n\tmemset(path, 0xdb, sizeof *path);\n",
                ),
                (
                    "\tpthread_mutex_unlock(&lock);\n\tfree(ep);\n\tsend_answers(&done);\n",
                    "\tpthread_mutex_unlock(&lock);\n\tmemset(ep, 0xdb, sizeof *ep);\n\tsend_answers(&done);\n",
                ),
            ],
            status: &[Status::Crashed],
            also: &[
                "lifecycle-close-in-flight",
                "lifecycle-closed-memory",
                "lifecycle-reopen-thousand",
                "sa-after-reopen",
            ],
        },
    },
    Check {
        name: "sa-after-reopen",
        rule: "an answer from before a reopen does not fill the cache of the new endpoint",
        harmed: Harmed::Client,
        run: |bench| across_a_close(bench, true),
        fault: Fault {
            replace: &[
                (
                    "static void from_sa(struct acm_sa_mad *mad);\n",
                    "static void from_sa(struct acm_sa_mad *mad);\nstatic struct endpoint *newest;\n",
                ),
                (
                    "\tLIST_INSERT_HEAD(&ep->port->endpoints, ep, entry);\n",
                    "\tLIST_INSERT_HEAD(&ep->port->endpoints, ep, entry);\n\tnewest = ep;\n",
                ),
                (
                    "\tLIST_REMOVE(ep, entry);\n",
                    "\tLIST_REMOVE(ep, entry);\n\tnewest = NULL;\n",
                ),
                (
                    "\tpthread_mutex_unlock(&lock);\n\tacm_free_sa_mad(mad);\n",
                    "\tif (!query && newest && !mad->umad.status) {\n\t\tstruct ibv_path_record question = { .reversible_numpath = IBV_PATH_RECORD_REVERSIBLE | 1 };\n\t\tstruct ibv_path_record *record = (void *) mad->sa_mad.data;\n\t\tstruct path *path;\n\n\t\tquestion.dlid = record->dlid;\n\t\tquestion.sgid = record->sgid;\n\t\tquestion.pkey = record->pkey;\n\t\tpath = get_path(newest, &question);\n\t\tpath->state = KNOWN;\n\t\tpath->record = *record;\n\t\tpath->until = FOR_EVER;\n\t}\n\tpthread_mutex_unlock(&lock);\n\tacm_free_sa_mad(mad);\n",
                ),
            ],
            status: &[Status::Failed],
            also: &[],
        },
    },
    Check {
        name: "sa-never-then-close",
        rule: "a MAD that never comes back does not keep its client waiting beyond a close of the port",
        harmed: Harmed::Client,
        run: |bench| {
            let (core, from) = bench.up()?;
            core.sa().script(only(Peer::number(3), Reaction::Never));
            let id = core.resolve_from(from, &by_lid(&Peer::number(3)));
            core.port_down(FIRST_PORT);
            expect_status(&reply(core, id)?, &ERRORS)
        },
        fault: Fault {
            replace: &[(
                "\t\t\tanswer_waiters(path, ACM_STATUS_ENOTCONN, NULL, &done);\n",
                "",
            )],
            status: &[Status::Failed],
            also: &[
                "lifecycle-close-in-flight",
                "sa-after-close",
                "sa-after-reopen",
            ],
        },
    },
    Check {
        name: "sa-other-destination",
        rule: "a record for another destination than asked for is not given to the client",
        harmed: Harmed::Client,
        run: |bench| {
            spoilt_record(bench, |path| {
                path.with_dlid(Peer::number(9).lid)
                    .with_dgid(Peer::number(9).gid())
            })
        },
        fault: Fault {
            replace: &[(
                "\tif (question->dlid ? record->dlid != question->dlid : !same_gid(&record->dgid, &question->dgid))\n\t\treturn false;\n",
                "",
            )],
            status: &[Status::Failed],
            also: &[],
        },
    },
    Check {
        name: "sa-dlid-zero",
        rule: "a record with DLID 0 is no path",
        harmed: Harmed::Client,
        run: |bench| spoilt_record(bench, |path| path.with_dlid(0)),
        fault: Fault {
            replace: &[("return is_port_lid(record->dlid) && ", "return ")],
            status: &[Status::Failed],
            also: &[],
        },
    },
    Check {
        name: "sa-other-source",
        rule: "a record that starts at another port is not given to the client",
        harmed: Harmed::Client,
        run: |bench| spoilt_record(bench, |path| path.with_sgid(gid(0x0bad))),
        fault: Fault {
            replace: &[(" && same_gid(&record->sgid, &question->sgid)", "")],
            status: &[Status::Failed],
            also: &[],
        },
    },
    Check {
        name: "sa-query-form",
        rule: "a path query is a GET of PathRecord of class SA, and names the source GID, which some SAs insist on",
        harmed: Harmed::Client,
        run: query_form,
        fault: Fault {
            replace: &[(
                "acm_path_comp_mask(&path->question),",
                "acm_path_comp_mask(&path->question) & ~htobe64(1 << 3),",
            )],
            status: &[Status::Failed],
            also: &["query-source"],
        },
    },
    Check {
        name: "sa-tid",
        rule: "transaction ids are not zero, fit in 32 bits, and differ among outstanding MADs",
        harmed: Harmed::Daemon,
        run: transaction_ids,
        fault: Fault {
            replace: &[(
                "mad->sa_mad.mad_hdr.tid = htobe64(query->tid);",
                "mad->sa_mad.mad_hdr.tid = htobe64(query->tid | 1);",
            )],
            status: &[Status::Failed],
            also: &["event-reregister-in-flight", "sa-out-of-order"],
        },
    },
    Check {
        name: "sa-storm",
        rule: "many requests for one destination are one query",
        harmed: Harmed::Sa,
        run: storm,
        fault: Fault {
            replace: &[(
                "if (!path->outdated && !memcmp(",
                "if (!path->outdated && !path->busy && !memcmp(",
            )],
            status: &[Status::Failed],
            also: &[],
        },
    },
    Check {
        name: "sa-refresh-unconstrained",
        rule: "a query that renews a path demands nothing that only the old path had (LID, SL, MTU, rate)",
        harmed: Harmed::Client,
        run: refresh,
        fault: Fault {
            replace: &[
                (
                    "\t\t\telse\n\t\t\t\tfree_path(path);\n",
                    "\t\t\telse\n\t\t\t\tpath->until = 0;\n",
                ),
                (
                    "acm_path_comp_mask(&path->question), &path->question, sizeof path->question);",
                    "acm_path_comp_mask(path->record.dlid ? &path->record : &path->question),\n\t\t\t       path->record.dlid ? &path->record : &path->question, sizeof path->question);",
                ),
            ],
            status: &[Status::Failed],
            also: &[],
        },
    },
];

/// The SA reacts so to path queries for one peer, and well to all else.
fn only(peer: Peer, reaction: Reaction) -> impl FnMut(&Question) -> Reaction + Send {
    move |question| {
        if asks_for(question, &peer) {
            reaction.clone()
        } else {
            Reaction::Answer
        }
    }
}

fn asks_for(question: &Question, peer: &Peer) -> bool {
    question.is_path_query()
        && (question.path().dlid() == peer.lid || question.path().dgid() == peer.gid())
}

/// Path queries for a peer so far.
fn asked_for(core: &StandIn, peer: &Peer) -> Vec<Question> {
    core.sa()
        .questions()
        .into_iter()
        .filter(|question| asks_for(question, peer))
        .collect()
}

fn good_again(core: &mut StandIn, from: AddressId, peer: &Peer) -> Outcome {
    core.sa().script(|_| Reaction::Answer);
    let answer = resolve(core, from, &by_lid(peer))?;
    expect_path(&answer, &expected_path(core, peer))
}

/// The SA fails for a peer: the client gets an error; then it is well, and the client gets the path.
fn refused_then_asked_again(bench: &mut Bench, reaction: &Reaction, statuses: &[u8]) -> Outcome {
    let (core, from) = bench.up_with(HASTY)?;
    let peer = Peer::number(3);
    core.sa().script(only(peer.clone(), reaction.clone()));
    let answer = resolve(core, from, &by_lid(&peer))?;
    expect_status(&answer, statuses)?;
    // An error that a provider asks again about may be out still.
    core.sa().script(|_| Reaction::Answer);
    core.settle();
    good_again(core, from, &peer)
}

/// The core's own functions fail: the client gets an error, and nothing is left of the MAD.
fn core_fails_then_recovers(bench: &mut Bench, faults: MadFaults) -> Outcome {
    let (core, from) = bench.up_with(HASTY)?;
    let peer = Peer::number(3);
    core.fail_mads(faults);
    let answer = resolve(core, from, &by_lid(&peer))?;
    expect_status(&answer, &ERRORS)?;
    core.fail_mads(MadFaults::default());
    if core.mads_held() > 0 {
        return Err(failed(
            "every MAD freed",
            format!("{} kept", core.mads_held()),
        ));
    }
    good_again(core, from, &peer)
}

fn out_of_order(bench: &mut Bench) -> Outcome {
    let (core, from) = bench.up_with(&["sa_depth 8"])?;
    let peers: Vec<Peer> = (3..=6).map(Peer::number).collect();
    core.sa().script(|question| {
        if question.is_path_query() {
            Reaction::Hold
        } else {
            Reaction::Answer
        }
    });
    let before = core.sa().questions().len();
    let ids: Vec<u64> = peers
        .iter()
        .map(|peer| core.resolve_from(from, &by_lid(peer)))
        .collect();
    let Some(questions) = core.questions(before + peers.len()) else {
        return Err(failed(
            format!("{} queries at a time with sa_depth 8", peers.len()),
            format!("{}", core.sa().questions().len() - before),
        ));
    };
    for index in [2, 0, 3, 1] {
        core.sa()
            .release(questions[before + index].number, Reaction::Answer);
        core.settle();
    }
    for (id, peer) in ids.into_iter().zip(&peers) {
        expect_path(&reply(core, id)?, &expected_path(core, peer))?;
    }
    Ok(())
}

fn too_late(bench: &mut Bench) -> Outcome {
    let (core, from) = bench.up_with(HASTY)?;
    let peer = Peer::number(3);
    let late = core.deadline() + Duration::from_millis(200);
    core.sa().script(only(
        peer.clone(),
        Reaction::After(late, Box::new(Reaction::Answer)),
    ));
    let id = core.resolve_from(from, &by_lid(&peer));
    // Some wait for the SA as long as it takes: that is their deadline then, and no second answer may follow.
    reply(core, id)?;
    core.settle();
    std::thread::sleep(QUIET);
    match core.replies(id).len() {
        1 => good_again(core, from, &peer),
        count => Err(failed("one answer", format!("{count}"))),
    }
}

/// A query is out while the port goes down and up again with another LID; its answer comes before or after that.
fn across_a_close(bench: &mut Bench, reopened_first: bool) -> Outcome {
    let (core, from) = bench.up()?;
    let peer = Peer::number(3);
    core.sa().script(only(peer.clone(), Reaction::Hold));
    let id = core.resolve_from(from, &by_lid(&peer));
    let Some(question) = wait_for(core, &peer) else {
        return Err(failed("a query for the destination", "none"));
    };
    let old = expected_path(core, &peer);
    core.port_down(FIRST_PORT);
    if !reopened_first {
        // The core's thread may be in the middle of an answer while its server closes the port.
        core.sa().set_down(usize::from(FIRST_PORT.port), false);
        core.sa().release(question.number, Reaction::Record(old));
        core.settle();
    }
    core.change_port(FIRST_PORT, |port| port.lid = 77);
    let from = core.up(FIRST_PORT).map_err(super::bench::refused)?;
    core.settle();
    if reopened_first {
        core.sa().release(question.number, Reaction::Record(old));
        core.settle();
    }
    let first = reply(core, id)?;
    if first.status == SUCCESS && first.path() != Some(old) {
        return Err(failed(format!("{old:?} or an error"), format!("{first:?}")));
    }
    good_again(core, from, &peer)
}

fn wait_for(core: &StandIn, peer: &Peer) -> Option<Question> {
    let deadline = std::time::Instant::now() + core.patience;
    while std::time::Instant::now() < deadline {
        if let Some(question) = asked_for(core, peer).into_iter().next() {
            return Some(question);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    None
}

/// The SA answers with a record that is wrong in one way.
fn spoilt_record(bench: &mut Bench, spoil: fn(Path) -> Path) -> Outcome {
    let (core, from) = bench.up_with(HASTY)?;
    let peer = Peer::number(3);
    let bad = spoil(expected_path(core, &peer));
    core.sa().script(only(peer.clone(), Reaction::Record(bad)));
    let answer = resolve(core, from, &by_gid(&peer))?;
    if answer.status == SUCCESS {
        return Err(failed("an error", format!("{answer:?}")));
    }
    good_again(core, from, &peer)
}

fn query_form(bench: &mut Bench) -> Outcome {
    let (core, from) = bench.up()?;
    let peer = Peer::number(3);
    for (message, target) in [(by_lid(&peer), COMP_DLID), (by_gid(&Peer::number(4)), 0)] {
        resolve(core, from, &message)?;
        let Some(question) = core
            .sa()
            .questions()
            .into_iter()
            .rfind(Question::is_path_query)
        else {
            return Err(failed("a path query", "none"));
        };
        let form = (question.class, question.method, question.attribute);
        if form != (3, GET, PATH_RECORD) {
            return Err(failed(
                "class 3, GET (0x01), PathRecord (0x35)",
                format!("{form:x?}"),
            ));
        }
        let own = core.port(FIRST_PORT).gid();
        if question.mask & COMP_SGID == 0 || question.path().sgid() != own {
            return Err(failed(
                "the port's GID as SGID, in the record and in the component mask",
                format!("mask {:#x}, {:?}", question.mask, question.path()),
            ));
        }
        if question.mask & target != target {
            return Err(failed(
                "the destination in the component mask",
                format!("mask {:#x}", question.mask),
            ));
        }
    }
    Ok(())
}

fn transaction_ids(bench: &mut Bench) -> Outcome {
    let (core, from) = bench.up_with(&["sa_depth 64"])?;
    core.sa().script(|question| {
        if question.is_path_query() {
            Reaction::Hold
        } else {
            Reaction::Answer
        }
    });
    let ids: Vec<u64> = (1..=40)
        .map(|number| core.resolve_from(from, &by_lid(&Peer::number(number))))
        .collect();
    core.questions(ids.len());
    let held: Vec<Question> = core
        .sa()
        .questions()
        .into_iter()
        .filter(Question::is_path_query)
        .collect();
    let mut tids: Vec<u64> = held.iter().map(|question| question.tid).collect();
    if let Some(tid) = tids.iter().find(|tid| !(1..1 << 32).contains(*tid)) {
        return Err(failed("1 to 2^32 - 1", format!("{tid:#x}")));
    }
    tids.sort_unstable();
    tids.dedup();
    if tids.len() != held.len() {
        return Err(failed(
            format!("{} different ids", held.len()),
            format!("{}", tids.len()),
        ));
    }
    core.sa().script(|_| Reaction::Answer);
    for question in held {
        core.sa().release(question.number, Reaction::Answer);
    }
    for id in ids {
        reply(core, id)?;
    }
    Ok(())
}

fn storm(bench: &mut Bench) -> Outcome {
    const REQUESTS: usize = 200;
    let (core, from) = bench.up()?;
    let peer = Peer::number(3);
    core.sa().script(only(peer.clone(), Reaction::Hold));
    let ids: Vec<u64> = (0..REQUESTS)
        .map(|_| core.resolve_from(from, &by_lid(&peer)))
        .collect();
    let Some(question) = wait_for(core, &peer) else {
        return Err(failed("a query for the destination", "none"));
    };
    std::thread::sleep(QUIET);
    core.sa().script(|_| Reaction::Answer);
    core.sa().release(question.number, Reaction::Answer);
    for id in ids {
        expect_path(&reply(core, id)?, &expected_path(core, &peer))?;
    }
    core.settle();
    match asked_for(core, &peer).len() {
        1 => Ok(()),
        count => Err(failed(
            format!("one query for {REQUESTS} requests"),
            format!("{count}"),
        )),
    }
}

/// A peer was rebooted and came back with another LID; the fabric was swept, the port reregistered.
fn refresh(bench: &mut Bench) -> Outcome {
    let (core, from) = bench.up()?;
    let peer = Peer::number(3);
    expect_path(
        &resolve(core, from, &by_gid(&peer))?,
        &expected_path(core, &peer),
    )?;
    let before = asked_for(core, &peer).len();
    core.reregister(FIRST_PORT);
    core.settle();
    let moved = expected_path(core, &peer)
        .with_dlid(Peer::number(400).lid)
        .with_qos_sl(3)
        .with_rate(0x82);
    let wanted = peer.gid();
    core.sa().script(move |question| {
        if question.is_path_query() && question.path().dgid() == wanted {
            Reaction::Record(moved)
        } else {
            Reaction::Answer
        }
    });
    let answer = resolve(core, from, &by_gid(&peer))?;
    let Some(renewal) = asked_for(core, &peer).into_iter().nth(before) else {
        return Err(Finding::Skipped(
            "the path is kept across a reregistration: nothing is renewed".into(),
        ));
    };
    let demands = renewal.path();
    if demands.dlid() != 0 || demands.qos_sl() != 0 || demands.mtu() != 0 || demands.rate() != 0 {
        return Err(failed("a query for the GID alone", format!("{demands:?}")));
    }
    expect_path(&answer, &moved)
}
