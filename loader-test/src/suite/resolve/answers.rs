//! Checks of the answer's form, number and time.

use crate::suite::ability::{Ability, OPENS, SERVES};
use std::time::Instant;

use crate::stand_in::fabric::{DeviceSpec, Peer};
use crate::stand_in::ledger::Harmed;
use crate::stand_in::message::{
    ANSWER_FLAGS, Addr, ENTRY, FLAG_NODELAY, FLAG_SOURCE, HEADER, Message, PATH, Path, Reply,
};
use crate::stand_in::{AddressId, FIRST_PORT, StandIn};
use crate::suite::fixture::{
    ENODATA, Fixture, QUIET, SUCCESS, able, by_addr, by_gid, by_lid, expect_path, expect_status,
    expected_path, hold, let_go, refused, reply, resolve,
};
use crate::suite::{Check, Outcome, failed};

pub(in crate::suite) const CHECKS: &[Check] = &[
    Check {
        name: "resolve-header",
        rule: "an answer has the version, opcode and transaction id of its request, and zero data bytes",
        harmed: Harmed::Client,
        how: "checks the header of four answers: from the SA, from the cache, an error, and one to a request with NODELAY",
        needs: SERVES,
        run: |fixture| {
            form(fixture, |answer| {
                if answer.version() == 1 {
                    Ok(())
                } else {
                    Err(failed("version 1", format!("{}", answer.version())))
                }
            })
        },
        fault: fault!(Fault {
            replace: &[(
                "\tmsg.hdr.version = request->hdr.version;\n",
                "\tmsg.hdr.version = request->is_query ? request->hdr.version : 0;\n",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "resolve-length",
        rule: "an answer with paths is the 16-byte header and one to eight entries of 72 bytes; an error is the header alone",
        harmed: Harmed::Client,
        how: "checks the length of four answers: from the SA, from the cache, an error, and one to a request with NODELAY",
        needs: SERVES,
        run: |fixture| {
            form(fixture, |answer| {
                let expected = match answer.status {
                    SUCCESS => HEADER + answer.paths().max(1) * ENTRY,
                    _ => HEADER,
                };
                if usize::from(answer.length) == expected {
                    Ok(())
                } else {
                    Err(failed(
                        format!("length {expected} for status {}", answer.status),
                        format!("{}", answer.length),
                    ))
                }
            })
        },
        fault: fault!(Fault {
            replace: &[(
                "\t\tif (request->status == ACM_STATUS_SUCCESS)\n\t\t\tadd_entry(&msg, &path);\n",
                "\t\tif (request->status == ACM_STATUS_SUCCESS)\n\t\t\tadd_entry(&msg, &path), msg.hdr.length += ACM_MSG_EP_LENGTH;\n",
            )],
            status: &[Status::Failed],
            also: &[
                "resolve-source-chosen",
                "resolve-source-given",
                "resolve-kernel",
                "resolve-librdmacm",
                "resolve-message-gone",
                "hostile-path-data",
                "hostile-length",
                "hostile-random",
            ],
        }),
    },
    Check {
        name: "resolve-byte-order",
        rule: "the header's length is in host byte order, the path record in network byte order",
        harmed: Harmed::Client,
        how: "resolves a peer whose LID and P_Key differ in the other byte order",
        needs: SERVES,
        run: |fixture| {
            // The two bytes of the LIDs and of the P_Key differ.
            let mut device = DeviceSpec::single();
            device.ports[0].pkeys = vec![0x8001];
            let core = fixture.core_with(vec![device], &[])?;
            let from = core.up(FIRST_PORT).map_err(refused)?;
            core.settle();
            let peer = Peer::number(300);
            let answer = resolve(core, from, &by_lid(&peer))?;
            expect_path(&answer, &expected_path(core, &peer))
        },
        fault: fault!(Fault {
            replace: &[(
                "\tanswer_waiters(path, status, &record, done);\n",
                "\trecord.pkey = be16toh(record.pkey);\n\tanswer_waiters(path, status, &record, done);\n",
            )],
            status: &[Status::Failed],
            also: &[
                "lifecycle-pkeys",
                "lifecycle-pkey-holes",
                "lifecycle-limited-member",
                "resolve-partition",
            ],
        }),
    },
    Check {
        name: "resolve-flags",
        rule: "a path has the flags GMP, PRIMARY and BIDIRECTIONAL",
        harmed: Harmed::Client,
        how: "checks the flags of four answers: from the SA, from the cache, an error, and one to a request with NODELAY",
        needs: SERVES,
        run: |fixture| {
            form(fixture, |answer| match answer.entry(0) {
                Some((flags, code, _)) if (flags, code) != (ANSWER_FLAGS, PATH) => Err(failed(
                    format!("type {PATH:#x}, flags {ANSWER_FLAGS:#x}"),
                    format!("type {code:#x}, flags {flags:#x}"),
                )),
                _ => Ok(()),
            })
        },
        fault: fault!(Fault {
            replace: &[(
                "(IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL)",
                "(IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_OUTBOUND)",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "resolve-return-value",
        rule: "resolve returns 0 if the provider answers the request, now or later, whatever the status",
        harmed: Harmed::Client,
        how: "checks the return value of resolve for four requests: to the SA, to the cache, for an error, and with NODELAY",
        needs: SERVES,
        // The core checks the return value.
        run: |fixture| form(fixture, |_| Ok(())),
        fault: fault!(Fault {
            replace: &[(
                "\tsend_answers(&done);\n\treturn 0;\n}\n\n/* The SA is asked, whatever is known. */",
                "\tif (!TAILQ_EMPTY(&done))\n\t\tstatus = TAILQ_FIRST(&done)->status;\n\tsend_answers(&done);\n\treturn status;\n}\n\n/* The SA is asked, whatever is known. */",
            )],
            status: &[Status::Failed],
            also: &[
                "lifecycle-address-removed",
                "lifecycle-address-moved",
                "lifecycle-address-kept",
                "resolve-unknown-name",
                "resolve-unknown-ip",
                "resolve-header",
                "resolve-length",
                "resolve-flags",
                "resolve-once",
                "resolve-nodelay",
                "resolve-nodelay-address",
                "hostile-eight-entries",
                "hostile-index",
                "hostile-length",
                "hostile-type",
                "hostile-empty-path",
                "hostile-multicast-lid",
                "hostile-multicast-gid",
                "hostile-name-unterminated",
                "hostile-name-format",
                "hostile-name-control",
                "hostile-random",
                "path-kernel-qos-class",
                "lifecycle-address-lost",
                "resolve-memory",
                "path-sl-refused",
                "sa-deadline",
            ],
        }),
    },
    Check {
        name: "resolve-source-chosen",
        rule: "if the core chose the source, the entry after the paths is that source as the core wrote it",
        harmed: Harmed::Client,
        how: "resolves an IP address without a source, twice, and compares the entry after the paths",
        needs: OPENS,
        run: source_chosen,
        fault: fault!(Fault {
            replace: &[("\t\trequest->has_second = true;\n", "")],
            status: &[Status::Failed],
            also: &["resolve-message-gone"],
        }),
    },
    Check {
        name: "resolve-source-given",
        rule: "if the client gave the source, the answer has paths and nothing else",
        harmed: Harmed::Client,
        how: "resolves an IP address from one of the port's addresses, twice, and counts the entries of the answer",
        needs: OPENS,
        run: source_given,
        fault: fault!(Fault {
            replace: &[(
                "\tif (msg->hdr.src_out) {\n",
                "\tif (msg->hdr.src_index < entries) {\n",
            )],
            status: &[Status::Failed],
            also: &[
                "resolve-source-chosen",
                "resolve-librdmacm",
                "resolve-message-gone",
                "hostile-length",
            ],
        }),
    },
    Check {
        name: "resolve-once",
        rule: "every request gets one answer: from the cache, from the SA, or an error",
        harmed: Harmed::Client,
        how: "sends four requests, waits until none is outstanding, and counts the answers to each",
        needs: SERVES,
        run: answered_once,
        fault: fault!(Fault {
            replace: &[(
                "\t\tpath->owed = !path->query;\n\t\tfinish(ep, request, ACM_STATUS_ENODATA, NULL, done);\n",
                "\t\tstruct request *again = malloc(sizeof *again);\n\n\t\t*again = *request;\n\t\tagain->deadline = now + ep->port->dev->patience;\n\t\tTAILQ_INSERT_TAIL(&path->waiters, again, entry);\n\t\tfinish(ep, request, ACM_STATUS_ENODATA, NULL, done);\n",
            )],
            status: &[Status::Failed],
            also: &[
                "resolve-header",
                "resolve-length",
                "resolve-flags",
                "resolve-return-value",
                "resolve-nodelay",
                "resolve-nodelay-address",
                "hostile-random",
            ],
        }),
    },
    Check {
        name: "resolve-nodelay",
        rule: "a request with NODELAY gets the cached path or ENODATA at once, and the lookup starts",
        harmed: Harmed::Client,
        how: "resolves an unknown path with NODELAY while the SA is silent, expects the SA query, and resolves again once the SA has responded",
        needs: &[Ability::AnswersByGid, Ability::Closes],
        run: |fixture| nodelay(fixture, 0, |_, peer| by_gid(peer)),
        fault: fault!(Fault {
            replace: &[(
                "\t\t*nodelay = dest.flags & ACM_FLAGS_NODELAY;\n\t\t*wanted = dest.info.path;\n",
                "\t\t*nodelay = false;\n\t\t*wanted = dest.info.path;\n",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "resolve-nodelay-address",
        rule: "NODELAY also counts in the flags of the destination entry",
        harmed: Harmed::Client,
        how: "resolves an unknown IP address with NODELAY on its entry while the SA is silent, and again once the SA has responded",
        needs: OPENS,
        run: |fixture| nodelay(fixture, 1, |own, peer| by_addr(own, &Addr::Ip(peer.ip))),
        fault: fault!(Fault {
            replace: &[(
                "\tcopy_entry(&dest, msg, msg->hdr.dst_index);\n\t*nodelay = dest.flags & ACM_FLAGS_NODELAY;\n",
                "\tcopy_entry(&dest, msg, msg->hdr.dst_index);\n",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "resolve-cached",
        rule: "the second request for a destination causes no SA query",
        harmed: Harmed::Sa,
        how: "resolves a peer twice and counts the SA queries",
        needs: &[Ability::AnswersByGid, Ability::Closes],
        run: second_from_the_cache,
        fault: fault!(Fault {
            replace: &[("\t\tpath->state = KNOWN;\n", "")],
            status: &[Status::Failed],
            also: &[
                "resolve-nodelay",
                "resolve-nodelay-address",
                "resolve-librdmacm",
                "path-asked-again",
                "path-service-ids-reserved",
                "path-service-ids-chosen",
            ],
        }),
    },
];

/// Judges answers from the SA, from the cache, with an error, and to a request with NODELAY.
fn form(fixture: &mut Fixture, right: fn(&Reply) -> Outcome) -> Outcome {
    let (core, from) = fixture.up()?;
    for message in [
        by_lid(&Peer::number(3)),
        by_lid(&Peer::number(3)),
        Message::path(&Path::default().with_dlid(0x0bad)),
        by_lid(&Peer::number(4)).with_flags(0, FLAG_NODELAY),
    ] {
        let answer = resolve(core, from, &message)?;
        right(&answer)?;
    }
    Ok(())
}

/// Resolves an IP address without a source, which the core then chooses: from the SA, and from the cache.
fn source_chosen(fixture: &mut Fixture) -> Outcome {
    let (core, from) = fixture.up()?;
    let peer = Peer::number(3);
    let own = core.address(from).clone();
    let expected = (FLAG_SOURCE, own.code(), own.field());
    for _ in 0..2 {
        let message = Message::destination(None, &Addr::Ip(peer.ip));
        let id = core
            .ask(&message)
            .map_err(|status| failed("a source for the destination", format!("status {status}")))?;
        let answer = reply(core, id)?;
        able(core, &answer, "IPv4 addresses")?;
        expect_path(&answer, &expected_path(core, &peer))?;
        let paths = answer.paths();
        let source = answer.entry(paths);
        if answer.entries() != paths + 1 || source != Some(expected) {
            return Err(failed(
                format!("after the path one entry: the source {own}"),
                format!("{} entries, {source:02x?}", answer.entries()),
            ));
        }
    }
    Ok(())
}

fn source_given(fixture: &mut Fixture) -> Outcome {
    let (core, from) = fixture.up()?;
    let peer = Peer::number(3);
    let own = core.address(from).clone();
    for _ in 0..2 {
        let answer = resolve(core, from, &by_addr(&own, &Addr::Ip(peer.ip)))?;
        able(core, &answer, "IPv4 addresses")?;
        expect_path(&answer, &expected_path(core, &peer))?;
        if answer.entries() != answer.paths() {
            return Err(failed(
                format!("nothing but {} paths", answer.paths()),
                format!("{} entries", answer.entries()),
            ));
        }
    }
    Ok(())
}

fn answered_once(fixture: &mut Fixture) -> Outcome {
    let (core, from) = fixture.up()?;
    let messages = [
        by_lid(&Peer::number(3)),
        by_lid(&Peer::number(3)),
        by_lid(&Peer::number(4)).with_flags(0, FLAG_NODELAY),
        Message::path(&Path::default().with_dlid(0x0bad)),
    ];
    let mut ids = Vec::new();
    for message in &messages {
        let id = core.resolve_from(from, message);
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

/// `message` names a peer in the entry `index`.
fn nodelay(fixture: &mut Fixture, index: usize, message: fn(&Addr, &Peer) -> Message) -> Outcome {
    // A deadline much longer than an answer on a busy machine.
    let (core, from) = fixture.up_with(&["timeout 2000", "retries 0"])?;
    let (peer, other) = (Peer::number(3), Peer::number(4));
    let own = core.address(from).clone();
    // If the provider also refuses without the flag, the flag is not the cause.
    let unhurried = resolve(core, from, &message(&own, &other))?;
    able(core, &unhurried, "such destinations")?;
    let message = message(&own, &peer).with_flags(index, FLAG_NODELAY);
    hold(core);
    let asked = core.sa().path_queries().len();
    let before = Instant::now();
    let answer = resolve(core, from, &message)?;
    expect_status(&answer, &[ENODATA])?;
    if before.elapsed() >= core.deadline() {
        return Err(failed(
            "ENODATA at once",
            format!("after {:?}", before.elapsed()),
        ));
    }
    if core.path_queries(asked + 1).is_none() {
        return Err(failed("an SA query", "no query to the SA"));
    }
    let_go(core);
    core.settle();
    expect_soon(core, from, &message, &peer)
}

/// Expects the answer from the cache once the lookup has ended.
fn expect_soon(core: &mut StandIn, from: AddressId, message: &Message, peer: &Peer) -> Outcome {
    let deadline = Instant::now() + core.deadline();
    loop {
        let answer = resolve(core, from, message)?;
        if answer.status != ENODATA || Instant::now() > deadline {
            return expect_path(&answer, &expected_path(core, peer));
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

fn second_from_the_cache(fixture: &mut Fixture) -> Outcome {
    let (core, from) = fixture.up()?;
    let peer = Peer::number(3);
    let first = resolve(core, from, &by_gid(&peer))?;
    expect_path(&first, &expected_path(core, &peer))?;
    let asked = core.sa().path_queries().len();
    let second = resolve(core, from, &by_gid(&peer))?;
    expect_path(&second, &expected_path(core, &peer))?;
    let again = core.sa().path_queries().len();
    if again != asked {
        return Err(failed(
            "no further query",
            format!("{} more", again - asked),
        ));
    }
    Ok(())
}
