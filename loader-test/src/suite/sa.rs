//! Checks of the family `sa`: what a provider asks the subnet administrator, and what it makes of the answers.

mod played;

use super::Check;
use super::fixture::{ERRORS, ETIMEDOUT, HASTY, by_lid, expect_status, reply, resolve};
use crate::stand_in::fabric::{Peer, gid};
use crate::stand_in::ledger::Harmed;
use crate::stand_in::sa::Reaction;
use crate::stand_in::{FIRST_PORT, MadFaults};
use crate::suite::ability::{Ability, SERVES};

use played::{
    across_a_close, ask_after_close, core_fails_then_recovers, only, out_of_order, query_form,
    refresh, refused_then_asked_again, spoilt_record, storm, too_late, transaction_ids,
};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "sa-timeout",
        rule: "a request whose query times out is answered with an error by the deadline, and the next one asks again",
        harmed: Harmed::Client,
        how: "lets the SA be silent until the kernel brings the MAD back, looks at the status, and asks again",
        needs: SERVES,
        run: |fixture| refused_then_asked_again(fixture, &Reaction::Silence, &[ETIMEDOUT]),
        fault: fault!(Fault {
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
            also: &["perf-error", "query-timeout", "sa-refused-status"],
        }),
    },
    Check {
        name: "sa-error-high-byte",
        rule: "an error in the high byte of the SA's status is no path, and is not kept as one",
        harmed: Harmed::Client,
        how: "lets the SA answer with an error in the high byte of its status, looks at the client's, and asks again",
        needs: SERVES,
        run: |fixture| refused_then_asked_again(fixture, &Reaction::Status(0x0500), &ERRORS),
        fault: fault!(Fault {
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
                "path-gid-and-lid",
                "path-components",
                "path-sl-refused",
            ],
        }),
    },
    Check {
        name: "sa-error-low-byte",
        rule: "an error in the low byte of the SA's status (busy) is no path, and is not kept as one",
        harmed: Harmed::Client,
        how: "lets the SA answer with an error in the low byte of its status, looks at the client's, and asks again",
        needs: SERVES,
        run: |fixture| refused_then_asked_again(fixture, &Reaction::Status(0x0001), &ERRORS),
        fault: fault!(Fault {
            replace: &[
                ("if (!hdr->status)\n", "if (!class_status)\n"),
                (
                    "if (status == ACM_STATUS_SUCCESS && !fits(",
                    "if (status == ACM_STATUS_SUCCESS && !mad->sa_mad.mad_hdr.status && !fits(",
                ),
            ],
            status: &[Status::Failed],
            also: &["query-error-low-byte", "sa-error-field"],
        }),
    },
    Check {
        name: "sa-error-field",
        rule: "an SA that does not support the query, or finds a field invalid, has given no path",
        harmed: Harmed::Client,
        how: "lets the SA answer that it does not support the query, and that a field is invalid, and asks again after each",
        needs: SERVES,
        run: |fixture| {
            refused_then_asked_again(fixture, &Reaction::Status(0x000c), &ERRORS)?;
            refused_then_asked_again(fixture, &Reaction::Status(0x001c), &ERRORS)
        },
        fault: fault!(Fault {
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
        }),
    },
    Check {
        name: "sa-not-sent",
        rule: "a MAD that comes back unsent (errno in umad.status) is answered with an error",
        harmed: Harmed::Client,
        how: "brings the MAD back with an errno in its status, looks at the client's, and asks again",
        needs: SERVES,
        run: |fixture| refused_then_asked_again(fixture, &Reaction::NotSent(libc::EIO), &ERRORS),
        fault: fault!(Fault {
            replace: &[(
                "*again = mad->umad.status;",
                "if (mad->umad.status && mad->umad.status != ETIMEDOUT)\n\t\tabort();\n\t*again = mad->umad.status;",
            )],
            status: &[Status::Crashed],
            also: &[],
        }),
    },
    Check {
        name: "sa-send-refused",
        rule: "when acm_send_sa_mad refuses, the MAD is freed and the client answered",
        harmed: Harmed::Client,
        how: "lets acm_send_sa_mad refuse, looks at the status, counts the MADs that are kept, and asks again",
        needs: SERVES,
        run: |fixture| {
            core_fails_then_recovers(
                fixture,
                MadFaults {
                    refuse: true,
                    ..MadFaults::default()
                },
            )
        },
        fault: fault!(Fault {
            replace: &[(
                "\t\t/* A MAD that was not taken is still ours. */\n\t\tacm_free_sa_mad(mad);\n",
                "",
            )],
            status: &[Status::Failed],
            also: &["lifecycle-mad-fails", "sa-refused-status", "sa-refused-one"],
        }),
    },
    Check {
        name: "sa-no-memory",
        rule: "when acm_alloc_sa_mad gives NULL, the client is answered and nothing is written through it",
        harmed: Harmed::Daemon,
        how: "lets acm_alloc_sa_mad give NULL, looks at the status, and asks again",
        needs: SERVES,
        run: |fixture| {
            core_fails_then_recovers(
                fixture,
                MadFaults {
                    no_memory: true,
                    ..MadFaults::default()
                },
            )
        },
        fault: fault!(Fault {
            replace: &[("\tif (!mad) {\n\t\tfree(query);\n\t\treturn;\n\t}\n", "")],
            status: &[Status::Crashed],
            also: &["lifecycle-mad-fails", "sa-refused-status"],
        }),
    },
    Check {
        name: "sa-out-of-order",
        rule: "answers that come in another order than the questions reach the clients that asked for them",
        harmed: Harmed::Client,
        how: "keeps four queries back, answers them in another order, and compares the path of each client",
        needs: SERVES,
        run: out_of_order,
        fault: fault!(Fault {
            replace: &[(
                "path_answered(query->path, mad, &done);",
                "path_answered(TAILQ_FIRST(&port->busy), mad, &done);",
            )],
            status: &[Status::Failed, Status::Crashed, Status::TimedOut],
            also: &[
                "event-reregister-in-flight",
                "resolve-many",
                "resolve-message-gone",
                "sa-refused-one",
            ],
        }),
    },
    Check {
        name: "sa-never",
        rule: "a MAD that never comes back costs its clients their deadline, not for ever",
        harmed: Harmed::Client,
        how: "keeps the MAD for ever, and waits for the client's answer",
        needs: SERVES,
        run: |fixture| {
            let (core, from) = fixture.up_with(HASTY)?;
            core.sa().script(only(Peer::number(3), Reaction::Never));
            let answer = resolve(core, from, &by_lid(&Peer::number(3)))?;
            expect_status(&answer, &ERRORS)
        },
        fault: fault!(Fault {
            replace: &[(
                "TAILQ_FIRST(&path->waiters)) && request->deadline <= now) {",
                "TAILQ_FIRST(&path->waiters)) && request->deadline <= 0) {",
            )],
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
                "sa-refused-status",
                "sa-deadline",
            ],
        }),
    },
    Check {
        name: "sa-late",
        rule: "an answer that comes after the client's deadline answers nobody a second time",
        harmed: Harmed::Client,
        how: "answers a query after the client's deadline, counts the client's answers, and asks again",
        needs: SERVES,
        run: too_late,
        fault: fault!(Fault {
            replace: &[(
                "\t\tTAILQ_REMOVE(&path->waiters, request, entry);\n\t\tfinish(path->ep, request, ACM_STATUS_ETIMEDOUT, NULL, done);",
                "\t\tstruct request *copy = malloc(sizeof *copy);\n\n\t\t*copy = *request;\n\t\trequest->deadline = FOR_EVER;\n\t\tfinish(path->ep, copy, ACM_STATUS_ETIMEDOUT, NULL, done);",
            )],
            status: &[Status::Failed],
            also: &[
                "path-service-ids-untold",
                "hostile-random",
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
                "hostile-random",
                "sa-refused-status",
                "sa-own-deadline",
                "sa-deadline",
            ],
        }),
    },
    Check {
        name: "sa-after-close",
        rule: "an answer that comes after its endpoint was closed touches nothing, and its client is answered once",
        harmed: Harmed::Daemon,
        how: "closes the port while a query is out, answers it, and opens the port with another LID",
        needs: SERVES,
        run: |fixture| across_a_close(fixture, false),
        fault: fault!(Fault {
            replace: &[
                (
                    "\twhile (!LIST_EMPTY(&port->queries))\n\t\tend_query(LIST_FIRST(&port->queries));\n",
                    "",
                ),
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
        }),
    },
    Check {
        name: "sa-after-reopen",
        rule: "an answer from before a reopen does not fill the cache of the new endpoint",
        harmed: Harmed::Client,
        how: "closes the port while a query is out, opens it with another LID, and answers the query then",
        needs: SERVES,
        run: |fixture| across_a_close(fixture, true),
        fault: fault!(Fault {
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
        }),
    },
    Check {
        name: "sa-never-then-close",
        rule: "a MAD that never comes back does not keep its client waiting beyond a close of the port",
        harmed: Harmed::Client,
        how: "keeps the MAD for ever, closes the port, and waits for the client's answer",
        needs: SERVES,
        run: |fixture| {
            let (core, from) = fixture.up()?;
            core.sa().script(only(Peer::number(3), Reaction::Never));
            let id = core.resolve_from(from, &by_lid(&Peer::number(3)));
            core.port_down(FIRST_PORT);
            expect_status(&reply(core, id)?, &ERRORS)
        },
        fault: fault!(Fault {
            replace: &[(
                "\t\t\tanswer_waiters(path, ACM_STATUS_ENOTCONN, NULL, &done);\n",
                "",
            )],
            status: &[Status::Failed],
            also: &[
                "lifecycle-close-in-flight",
                "sa-after-close",
                "sa-after-reopen",
                "sa-ask-after-close",
            ],
        }),
    },
    Check {
        name: "sa-ask-after-close",
        rule: "once an endpoint is closed nothing is asked for it: the daemon would follow its freed memory",
        harmed: Harmed::Daemon,
        how: "closes an endpoint while the SA is busy, and looks for queries after that",
        needs: &[Ability::AnswersByLid],
        run: ask_after_close,
        fault: fault!(Fault {
            replace: &[
                (
                    "static void from_sa(struct acm_sa_mad *mad);\n",
                    "static void from_sa(struct acm_sa_mad *mad);\nstatic struct acm_sa_mad *late;\n",
                ),
                (
                    "\tpthread_mutex_lock(&lock);\n\tforget(&ep->join);\n",
                    "\tpthread_mutex_lock(&lock);\n\tif (ep->port->out > 1 && !late) {\n\t\tlate = acm_alloc_sa_mad(ep->acm, NULL, from_sa);\n\t\tif (late)\n\t\t\tlate->sa_mad.mad_hdr.tid = htobe64(new_tid());\n\t}\n\tforget(&ep->join);\n",
                ),
                (
                    "\tport->dev->open_ports--;\n\tfree(port);\n",
                    "\tport->dev->open_ports--;\n\tfree(port);\n\tif (late && acm_send_sa_mad(late))\n\t\tacm_free_sa_mad(late);\n\tlate = NULL;\n",
                ),
            ],
            status: &[Status::Failed],
            also: &[
                "lifecycle-closed-memory",
                "lifecycle-close-in-flight",
                "sa-deadline",
            ],
        }),
    },
    Check {
        name: "sa-other-destination",
        rule: "a record for another destination than asked for is not given to the client",
        harmed: Harmed::Client,
        how: "lets the SA answer with the record of another peer, looks at the status, and asks again",
        needs: &[
            Ability::AnswersByLid,
            Ability::AnswersByGid,
            Ability::Closes,
        ],
        run: |fixture| {
            spoilt_record(fixture, |path| {
                path.with_dlid(Peer::number(9).lid)
                    .with_dgid(Peer::number(9).gid())
            })
        },
        fault: fault!(Fault {
            replace: &[(
                "\treturn is_zero(&question->dgid) || same_gid(&record->dgid, &question->dgid);\n",
                "\treturn true;\n",
            )],
            status: &[Status::Failed],
            also: &["path-record-differs"],
        }),
    },
    Check {
        name: "sa-dlid-zero",
        rule: "a record with DLID 0 is no path",
        harmed: Harmed::Client,
        how: "lets the SA answer with a record of DLID 0, looks at the status, and asks again",
        needs: &[
            Ability::AnswersByLid,
            Ability::AnswersByGid,
            Ability::Closes,
        ],
        run: |fixture| spoilt_record(fixture, |path| path.with_dlid(0)),
        fault: fault!(Fault {
            replace: &[(
                "&& is_port_lid(record->dlid) && is_port_gid(",
                "&& is_port_gid(",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "sa-other-source",
        rule: "a record that starts at another port is not given to the client",
        harmed: Harmed::Client,
        how: "lets the SA answer with a record of another SGID, looks at the status, and asks again",
        needs: &[
            Ability::AnswersByLid,
            Ability::AnswersByGid,
            Ability::Closes,
        ],
        run: |fixture| spoilt_record(fixture, |path| path.with_sgid(gid(0x0bad))),
        fault: fault!(Fault {
            replace: &[("\t       same_gid(&record->sgid, &question->sgid) &&\n", "")],
            status: &[Status::Failed],
            also: &["path-record-differs"],
        }),
    },
    Check {
        name: "sa-query-form",
        rule: "a path query is a GET of PathRecord of class SA, and names the source GID, which some SAs insist on",
        harmed: Harmed::Client,
        how: "looks at class, method, attribute, component mask and source of the queries for a LID and for a GID",
        needs: &[
            Ability::AnswersByLid,
            Ability::AnswersByGid,
            Ability::Closes,
        ],
        run: query_form,
        fault: fault!(Fault {
            replace: &[(
                "mad->sa_mad.mad_hdr.mgmt_class = UMAD_CLASS_SUBN_ADM;",
                "mad->sa_mad.mad_hdr.mgmt_class = path ? UMAD_CLASS_DEVICE_ADM : UMAD_CLASS_SUBN_ADM;",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "sa-tid",
        rule: "transaction ids are not zero, fit in 32 bits, and differ among outstanding MADs",
        harmed: Harmed::Daemon,
        how: "keeps 40 queries back and compares their transaction ids",
        needs: SERVES,
        run: transaction_ids,
        fault: fault!(Fault {
            replace: &[(
                "mad->sa_mad.mad_hdr.tid = htobe64(query->tid);",
                "mad->sa_mad.mad_hdr.tid = htobe64(query->tid | 1);",
            )],
            status: &[Status::Failed],
            also: &["event-reregister-in-flight", "sa-out-of-order"],
        }),
    },
    Check {
        name: "sa-storm",
        rule: "many requests for one destination are one query",
        harmed: Harmed::Sa,
        how: "makes 200 requests for one peer while its query is kept back, and counts the queries",
        needs: SERVES,
        run: storm,
        fault: fault!(Fault {
            replace: &[(
                "if (!path->outdated && !memcmp(",
                "if (!path->outdated && !path->busy && !memcmp(",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "sa-refresh-unconstrained",
        rule: "a query that renews a path demands nothing that only the old path had (LID, SL, MTU, rate)",
        harmed: Harmed::Client,
        how: "lets the peer move during a reregistration and looks at the query that renews its path",
        needs: &[Ability::AnswersByGid, Ability::Reregisters, Ability::Closes],
        run: refresh,
        fault: fault!(Fault {
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
            also: &["path-selector-zero", "query-asks-the-sa"],
        }),
    },
];
