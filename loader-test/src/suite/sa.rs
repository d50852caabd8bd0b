//! Checks of the family `sa`: a provider's queries to the subnet administrator, and its handling of the responses.

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
        rule: "a request whose SA query times out gets an error by its deadline, and the next request queries the SA again",
        harmed: Harmed::Client,
        how: "keeps the SA silent until the kernel returns the MAD, compares the status, and resolves again",
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
        rule: "a response with an error in the high byte of its status is no path, and is not cached as one",
        harmed: Harmed::Client,
        how: "lets the SA respond with an error in the high byte of its status, compares the client's status, and resolves again",
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
        rule: "a response with an error in the low byte of its status (busy) is no path, and is not cached as one",
        harmed: Harmed::Client,
        how: "lets the SA respond with an error in the low byte of its status, compares the client's status, and resolves again",
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
        rule: "a response with the status \"unsupported\" or \"invalid field\" is no path",
        harmed: Harmed::Client,
        how: "lets the SA respond that it does not support the query, and that a field is invalid, and resolves again after each",
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
        rule: "a request whose MAD comes back unsent (errno in umad.status) gets an error",
        harmed: Harmed::Client,
        how: "returns the MAD with an errno in its status, compares the client's status, and resolves again",
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
        rule: "if acm_send_sa_mad fails, the provider frees the MAD and answers the client",
        harmed: Harmed::Client,
        how: "lets acm_send_sa_mad fail, compares the status, counts the allocated MADs, and resolves again",
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
        rule: "if acm_alloc_sa_mad returns NULL, the provider answers the client and does not write through the pointer",
        harmed: Harmed::Daemon,
        how: "lets acm_alloc_sa_mad return NULL, compares the status, and resolves again",
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
        rule: "responses in any order reach the clients whose queries they answer",
        harmed: Harmed::Client,
        how: "holds four queries, responds in another order, and compares each client's path",
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
        rule: "if a MAD never comes back, its clients get an answer by their deadline",
        harmed: Harmed::Client,
        how: "never returns the MAD, and waits for the client's answer",
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
        rule: "a response after the client's deadline does not answer the client again",
        harmed: Harmed::Client,
        how: "responds to a query after the client's deadline, counts the client's answers, and resolves again",
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
        rule: "a response after its endpoint was closed touches nothing, and its client gets one answer",
        harmed: Harmed::Daemon,
        how: "closes the port while a query is outstanding, responds to it, and opens the port with another LID",
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
        rule: "a response from before a reopen does not fill the new endpoint's cache",
        harmed: Harmed::Client,
        how: "closes the port while a query is outstanding, opens it with another LID, and then responds to the query",
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
        rule: "if a MAD never comes back, closing the port ends the client's wait",
        harmed: Harmed::Client,
        how: "never returns the MAD, closes the port, and waits for the client's answer",
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
        rule: "the provider sends no query for a closed endpoint: the daemon would follow its freed memory",
        harmed: Harmed::Daemon,
        how: "closes an endpoint while the SA is busy, and looks for later queries",
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
        rule: "a record for another destination than requested does not reach the client",
        harmed: Harmed::Client,
        how: "lets the SA respond with another peer's record, compares the status, and resolves again",
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
        how: "lets the SA respond with a record of DLID 0, compares the status, and resolves again",
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
        rule: "a record with another port as its source does not reach the client",
        harmed: Harmed::Client,
        how: "lets the SA respond with a record of another SGID, compares the status, and resolves again",
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
        rule: "a path query is a GET of PathRecord in class SA, and names the source GID, which some SAs require",
        harmed: Harmed::Client,
        how: "checks class, method, attribute, component mask and source of the queries for a LID and for a GID",
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
        how: "holds 40 queries and compares their transaction ids",
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
        rule: "many concurrent requests for one destination cost one SA query",
        harmed: Harmed::Sa,
        how: "sends 200 requests for one peer while its query is outstanding, and counts the queries",
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
        rule: "a query that refreshes a path names no attribute of the old path (LID, SL, MTU, rate)",
        harmed: Harmed::Client,
        how: "moves the peer during a reregistration and checks the query that refreshes its path",
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
