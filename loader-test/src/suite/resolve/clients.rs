//! Checks of different clients: the kernel, librdmacm, many at once, and clients that leave.

use crate::stand_in::FIRST_PORT;
use crate::stand_in::fabric::Peer;
use crate::stand_in::ledger::Harmed;
use crate::stand_in::message::{Addr, FLAG_DEST, FLAG_NODELAY, FLAG_SOURCE, Message, PATH, Path};
use crate::suite::ability::{Ability, OPENS, SERVES};
use crate::suite::fixture::{
    Fixture, QUIET, able, by_gid, by_lid, expect_path, expected_path, hold, let_go, reply, resolve,
};
use crate::suite::{Check, Outcome, failed};

pub(in crate::suite) const CHECKS: &[Check] = &[
    Check {
        name: "resolve-kernel",
        rule: "a kernel request (client 0, transaction id a pointer) gets one answer, with its id and one path",
        harmed: Harmed::Daemon,
        how: "resolves twice as the kernel does, with client 0, and checks id, path and number of the answers",
        needs: &[Ability::AnswersByGid, Ability::Closes],
        run: kernel,
        fault: fault!(Fault {
            replace: &[(
                "\t\tacm_resolve_response(request->id, &msg);\n",
                "\t\tif (request->id)\n\t\t\tacm_resolve_response(request->id, &msg);\n",
            )],
            status: &[Status::Failed],
            also: &[
                "path-service-ids-reserved",
                "path-service-ids-chosen",
                "path-service-ids-untold",
                "path-kernel-qos-class",
            ],
        }),
    },
    Check {
        name: "resolve-librdmacm",
        rule: "a path entry beside source and destination addresses is a hint: the path leads to the destination address",
        harmed: Harmed::Client,
        how: "resolves as librdmacm does, with addresses and a path entry that names another peer",
        needs: OPENS,
        run: librdmacm,
        fault: fault!(Fault {
            replace: &[(
                "\t\t\t*wanted = hint.info.path;\n\t}\n",
                "\t\t\treturn *wanted = hint.info.path, ACM_STATUS_SUCCESS;\n\t}\n",
            )],
            status: &[Status::Failed],
            also: &["path-hints"],
        }),
    },
    Check {
        name: "resolve-client-gone",
        rule: "a client that left still gets one answer, and the next client is served",
        harmed: Harmed::Client,
        how: "disconnects a client while the SA is silent, counts its answers, and resolves two peers",
        needs: SERVES,
        run: client_gone,
        fault: fault!(Fault {
            replace: &[(
                "\t\tacm_resolve_response(request->id, &msg);\n",
                "\t\tif (acm_resolve_response(request->id, &msg))\n\t\t\tacm_resolve_response(request->id, &msg);\n",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "resolve-message-gone",
        rule: "the message belongs to the core again when resolve returns: the provider does not read it afterwards",
        harmed: Harmed::Daemon,
        how: "unmaps the message when resolve returns, lets the SA respond, and compares the paths",
        needs: &[
            Ability::AnswersByLid,
            Ability::AnswersByGid,
            Ability::Closes,
        ],
        run: message_gone,
        fault: fault!(Fault {
            replace: &[
                (
                    "\tstruct acm_ep_addr_data second;\t/* resolve:",
                    "\tconst struct acm_ep_addr_data *kept;\n\tstruct acm_ep_addr_data second;\t/* resolve:",
                ),
                (
                    "copy_entry(&request->second, msg, msg->hdr.src_index);",
                    "request->kept = &msg->resolve_data[msg->hdr.src_index];",
                ),
                (
                    "add_entry(&msg, &request->second);",
                    "add_entry(&msg, request->kept);",
                ),
            ],
            status: &[Status::Crashed],
            also: &["resolve-source-chosen", "hostile-random"],
        }),
    },
    Check {
        name: "resolve-many",
        rule: "many concurrent requests for as many destinations each get their own path",
        harmed: Harmed::Client,
        how: "sends 200 requests for 200 peers while the SA is silent, lets it respond, and compares each path",
        needs: &[Ability::AnswersByGid, Ability::Closes],
        run: many,
        fault: fault!(Fault {
            replace: &[("#define MAX_PATHS\t\t65536", "#define MAX_PATHS\t\t64")],
            status: &[Status::Failed],
            also: &["path-service-ids-chosen", "sa-burst"],
        }),
    },
];

/// A kernel request by netlink: SGID, DGID, P_Key, one reversible path.
fn kernel(fixture: &mut Fixture) -> Outcome {
    let (core, from) = fixture.up()?;
    let peer = Peer::number(3);
    let asked = Path::default()
        .with_sgid(core.port(FIRST_PORT).gid())
        .with_dgid(peer.gid())
        .with_pkey(from.pkey)
        .with_reversible_numpath(0x81);
    for _ in 0..2 {
        let id = core.kernel_asks(from, &asked);
        let answer = reply(core, id)?;
        expect_path(&answer, &expected_path(core, &peer))?;
        core.settle();
        let answers = core.replies(id).len();
        if answers != 1 || answer.entries() != 1 {
            return Err(failed(
                "one answer of one entry",
                format!("{answers} answers, {} entries", answer.entries()),
            ));
        }
    }
    Ok(())
}

/// A request of rdma_getaddrinfo for a numeric address with a route as a hint.
fn librdmacm(fixture: &mut Fixture) -> Outcome {
    let (core, from) = fixture.up()?;
    let (peer, hinted) = (Peer::number(3), Peer::number(4));
    let own = core.address(from).clone();
    let message = |flags| {
        let destination = Addr::Ip(peer.ip);
        let hints = Path::default().with_dgid(hinted.gid()).with_pkey(from.pkey);
        Message::resolve()
            .with_entry(FLAG_SOURCE, own.code(), &own.field())
            .with_entry(FLAG_DEST | flags, destination.code(), &destination.field())
            .with_entry(0, PATH, &hints.0)
    };
    for flags in [0, FLAG_NODELAY] {
        let id = core.ask(&message(flags)).map_err(|status| {
            failed("a message that the core takes", format!("status {status}"))
        })?;
        let answer = reply(core, id)?;
        if flags == 0 {
            able(core, &answer, "IPv4 addresses")?;
        }
        expect_path(&answer, &expected_path(core, &peer))?;
        if answer.entries() != answer.paths() {
            return Err(failed("paths only", format!("{answer:?}")));
        }
    }
    Ok(())
}

fn client_gone(fixture: &mut Fixture) -> Outcome {
    let (core, from) = fixture.up()?;
    let (peer, other) = (Peer::number(3), Peer::number(4));
    hold(core);
    let gone = core.resolve_from(from, &by_lid(&peer));
    core.client_leaves(gone);
    let_go(core);
    reply(core, gone)?;
    for peer in [&peer, &other] {
        let answer = resolve(core, from, &by_lid(peer))?;
        expect_path(&answer, &expected_path(core, peer))?;
    }
    std::thread::sleep(QUIET);
    match core.replies(gone).len() {
        1 => Ok(()),
        answers => Err(failed(
            "one answer to the client that left",
            format!("{answers}"),
        )),
    }
}

/// Sends two different requests while the SA is silent, and unmaps the core's buffers before the SA responds.
fn message_gone(fixture: &mut Fixture) -> Outcome {
    let (core, from) = fixture.up()?;
    let peers = [Peer::number(3), Peer::number(4), Peer::number(5)];
    let own = core.address(from).clone();
    hold(core);
    let first = core.resolve_from(from, &by_lid(&peers[0]));
    let second = core.resolve_from(from, &by_gid(&peers[1]));
    let third = core
        .ask(&Message::destination(None, &Addr::Ip(peers[2].ip)))
        .map_err(|status| failed("a source for the destination", format!("status {status}")))?;
    let_go(core);
    for (id, peer) in [first, second].into_iter().zip(&peers) {
        expect_path(&reply(core, id)?, &expected_path(core, peer))?;
    }
    let answer = reply(core, third)?;
    if answer.status == 0 {
        expect_path(&answer, &expected_path(core, &peers[2]))?;
        let source = answer.entry(answer.paths()).map(|(_, _, field)| field);
        if source != Some(own.field()) {
            return Err(failed(
                format!("the source {own}"),
                format!("{source:02x?}"),
            ));
        }
    }
    Ok(())
}

fn many(fixture: &mut Fixture) -> Outcome {
    const CLIENTS: u16 = 200;
    let (core, from) = fixture.up()?;
    hold(core);
    let ids: Vec<(u64, Peer)> = (1..=CLIENTS)
        .map(Peer::number)
        .map(|peer| (core.resolve_from(from, &by_gid(&peer)), peer))
        .collect();
    let_go(core);
    for (id, peer) in ids {
        expect_path(&reply(core, id)?, &expected_path(core, &peer))?;
    }
    Ok(())
}
