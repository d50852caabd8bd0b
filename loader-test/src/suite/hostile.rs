//! Checks of the family `hostile`: any local program can send any bytes.

mod random;

use super::fixture::{
    ERRORS, Fixture, HASTY, by_addr, by_lid, expect_path, expect_status, expected_path, reply,
    resolve,
};
use super::{Check, Finding, Outcome, failed};
use crate::stand_in::fabric::{Peer, gid};
use crate::stand_in::ledger::Harmed;
use crate::stand_in::message::{Addr, ENTRIES, FLAG_DEST, FLAG_SOURCE, Message, NAME, Path, Reply};
use crate::stand_in::{FIRST_PORT, StandIn};
use crate::suite::ability::{OPENS, SERVES};

pub(super) use random::SEED;

/// Name of the check with random messages.
pub(super) const RANDOM: &str = "hostile-random";

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "hostile-path-data",
        rule: "the data bytes in a path request's header come from the client and mean nothing: they leak no memory",
        harmed: Harmed::Daemon,
        how: "sets the three data bytes of path requests to indices past the message, and expects no second entry in the answers",
        needs: SERVES,
        run: path_data,
        fault: fault!(Fault {
            replace: &[(
                "\t\t*nodelay = dest.flags & ACM_FLAGS_NODELAY;\n\t\t*wanted = dest.info.path;\n",
                "\t\t*nodelay = dest.flags & ACM_FLAGS_NODELAY;\n\t\t*wanted = dest.info.path;\n\t\tif (msg->hdr.src_out) {\n\t\t\tcopy_entry(&request->second, msg, msg->hdr.src_index);\n\t\t\trequest->has_second = true;\n\t\t}\n",
            )],
            status: &[Status::Failed, Status::Crashed],
            also: &["hostile-random"],
        }),
    },
    Check {
        name: "hostile-eight-entries",
        rule: "in a message of eight entries without a source, the source index points past the end: the provider neither reads nor returns it",
        harmed: Harmed::Daemon,
        how: "sends a message of eight entries without a source, and expects no second entry in the answers",
        needs: OPENS,
        run: eight_entries,
        fault: fault!(Fault {
            replace: &[(
                "if (msg->hdr.src_index > entries || msg->hdr.src_index >= ACM_MSG_DATA_LENGTH / ACM_MSG_EP_LENGTH)",
                "if (msg->hdr.src_index > entries)",
            )],
            status: &[Status::Failed, Status::Crashed],
            also: &[],
        }),
    },
    Check {
        name: "hostile-index",
        rule: "a request with an index past the message's end gets an error",
        harmed: Harmed::Daemon,
        how: "sends eight messages with indices past their end, and compares status and entries of the answers",
        needs: OPENS,
        run: indices,
        fault: fault!(Fault {
            replace: &[(
                "\tif (msg->hdr.dst_index >= entries)\n\t\treturn ACM_STATUS_EINVAL;\n",
                "",
            )],
            status: &[Status::Failed, Status::Crashed],
            also: &[],
        }),
    },
    Check {
        name: "hostile-length",
        rule: "a request with an invalid length gets an answer, and the provider reads nothing beyond the message",
        harmed: Harmed::Daemon,
        how: "sends messages with nine invalid lengths, and compares the entries of the answers",
        needs: OPENS,
        run: lengths,
        fault: fault!(Fault {
            replace: &[(
                "size_t length = earlier(msg->hdr.length, sizeof *msg);",
                "size_t length = msg->hdr.length;",
            )],
            status: &[Status::Crashed],
            also: &[],
        }),
    },
    Check {
        name: "hostile-type",
        rule: "a destination of an unknown type gets an error",
        harmed: Harmed::Daemon,
        how: "resolves destinations of four unknown types and compares the status",
        needs: OPENS,
        run: types,
        fault: fault!(Fault {
            replace: &[(
                "\tdefault:\n\t\treturn ACM_STATUS_EDESTTYPE;\n",
                "\tdefault:\n\t\twanted->dgid = ep->gid;\n\t\treturn ACM_STATUS_SUCCESS;\n",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "hostile-empty-path",
        rule: "a path request without a destination gets an error",
        harmed: Harmed::Client,
        how: "requests a path without a destination and compares the status",
        needs: OPENS,
        run: |fixture| no_port(fixture, &[Path::default()]),
        fault: fault!(Fault {
            replace: &[(
                "\t\t*wanted = dest.info.path;\n\t\treturn ACM_STATUS_SUCCESS;\n",
                "\t\t*wanted = dest.info.path;\n\t\tif (!wanted->dlid && is_zero(&wanted->dgid))\n\t\t\twanted->dgid = ep->gid;\n\t\treturn ACM_STATUS_SUCCESS;\n",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "hostile-multicast-lid",
        rule: "a request for a multicast LID or the permissive LID gets an error",
        harmed: Harmed::Client,
        how: "resolves two multicast LIDs and the permissive LID, and compares the status",
        needs: OPENS,
        run: |fixture| {
            no_port(
                fixture,
                &[0xc000, 0xfffe, 0xffff].map(|lid| Path::default().with_dlid(lid)),
            )
        },
        fault: fault!(Fault {
            replace: &[(
                "\t\t*wanted = dest.info.path;\n\t\treturn ACM_STATUS_SUCCESS;\n",
                "\t\t*wanted = dest.info.path;\n\t\tif (wanted->dlid == 0xffff)\n\t\t\twanted->dlid = htobe16(ep->port->attr.lid);\n\t\treturn ACM_STATUS_SUCCESS;\n",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "hostile-multicast-gid",
        rule: "a request for a multicast GID gets an error",
        harmed: Harmed::Client,
        how: "resolves a multicast GID and compares the status",
        needs: OPENS,
        run: |fixture| {
            let mut group = gid(1);
            group.0[..2].copy_from_slice(&[0xff, 0x12]);
            no_port(fixture, &[Path::default().with_dgid(group)])
        },
        fault: fault!(Fault {
            replace: &[(
                "\t\t*wanted = dest.info.path;\n\t\treturn ACM_STATUS_SUCCESS;\n",
                "\t\t*wanted = dest.info.path;\n\t\tif (wanted->dgid.raw[0] == 0xff)\n\t\t\twanted->dgid = ep->gid;\n\t\treturn ACM_STATUS_SUCCESS;\n",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "hostile-name-unterminated",
        rule: "a name may fill its 64 bytes: the provider reads nothing beyond them",
        harmed: Harmed::Daemon,
        how: "resolves a name of 64 bytes at the end of a full message that ends at unmapped memory",
        needs: OPENS,
        run: |fixture| named(fixture, &"unterminated-".repeat(5)[..64], |_, _| Ok(())),
        fault: fault!(Fault {
            replace: &[(
                "\t*nodelay = dest.flags & ACM_FLAGS_NODELAY;\n\tif (msg->hdr.src_out) {\n",
                "\tacm_log(2, \"%zu bytes\\n\", strlen((char *) msg->resolve_data[msg->hdr.dst_index].info.addr));\n\t*nodelay = dest.flags & ACM_FLAGS_NODELAY;\n\tif (msg->hdr.src_out) {\n",
            )],
            status: &[Status::Crashed],
            also: &["hostile-type", "hostile-random"],
        }),
    },
    Check {
        name: "hostile-name-format",
        rule: "a name is never a format string: the log shows its percent signs unchanged",
        harmed: Harmed::Daemon,
        how: "resolves a name of percent signs and searches the log for it",
        needs: OPENS,
        run: |fixture| {
            named(fixture, "%d%x-percent-%n%s%n", |line, name| {
                if line.contains("-percent-") && !line.contains(name) {
                    Err(failed(format!("{name} in the log"), line))
                } else {
                    Ok(())
                }
            })
        },
        fault: fault!(Fault {
            replace: &[(
                "\t*nodelay = dest.flags & ACM_FLAGS_NODELAY;\n\tif (msg->hdr.src_out) {\n",
                "\tchar name[ACM_MAX_ADDRESS + 1] = \"\";\n\n\tmemcpy(name, dest.info.addr, ACM_MAX_ADDRESS);\n\tacm_write(2, name);\n\t*nodelay = dest.flags & ACM_FLAGS_NODELAY;\n\tif (msg->hdr.src_out) {\n",
            )],
            status: &[Status::Failed, Status::Crashed],
            also: &["hostile-name-control"],
        }),
    },
    Check {
        name: "hostile-name-control",
        rule: "control characters in a name do not reach the log, where they could forge lines",
        harmed: Harmed::Operator,
        how: "resolves a name with control characters and searches the log for them",
        needs: OPENS,
        run: |fixture| {
            named(fixture, "forged\nacm_server: \x1b[2Jline", |line, _| {
                if line.contains(|character: char| character.is_control()) {
                    Err(Finding::Warned(format!("in the log: {line:?}")))
                } else {
                    Ok(())
                }
            })
        },
        fault: fault!(Fault {
            replace: &[(
                "\t*nodelay = dest.flags & ACM_FLAGS_NODELAY;\n\tif (msg->hdr.src_out) {\n",
                "\tacm_log(2, \"%.64s\\n\", (char *) dest.info.addr);\n\t*nodelay = dest.flags & ACM_FLAGS_NODELAY;\n\tif (msg->hdr.src_out) {\n",
            )],
            status: &[Status::Warned],
            also: &[],
        }),
    },
    Check {
        name: RANDOM,
        rule: "every message from a client, however malformed, gets one well-formed answer",
        harmed: Harmed::Daemon,
        how: "sends 2,000 random messages, and checks form and number of the answers",
        needs: OPENS,
        run: random::run,
        fault: fault!(Fault {
            replace: &[(
                "\tfor (i = 0; i < entries; i++) {\n\t\tcopy_entry(&hint, msg, i);\n",
                "\tfor (i = 0; i <= entries; i++) {\n\t\tcopy_entry(&hint, msg, i);\n",
            )],
            status: &[Status::Failed, Status::Crashed],
            also: &[
                "hostile-length",
                "hostile-name-unterminated",
                "hostile-name-format",
                "hostile-name-control",
            ],
        }),
    },
];

/// Data bytes that, as `src_out`, `src_index` and `dst_index`, point past the message.
fn path_data(fixture: &mut Fixture) -> Outcome {
    let (core, from) = fixture.up()?;
    for (number, data) in [[1, 200, 0], [1, 8, 0], [1, 255, 255], [0, 200, 200]]
        .into_iter()
        .enumerate()
    {
        let peer = Peer::number(3 + number as u16);
        // From the SA, and from the cache.
        for _ in 0..2 {
            let answer = resolve(core, from, &by_lid(&peer).with_data(data))?;
            expect_path(&answer, &expected_path(core, &peer))?;
            expect_paths_only(&answer)?;
        }
    }
    Ok(())
}

fn expect_paths_only(answer: &Reply) -> Outcome {
    match answer.entry(answer.paths()) {
        None => Ok(()),
        Some((_, _, field)) => Err(failed(
            "paths only",
            format!("another entry, with the daemon's memory: {field:02x?}"),
        )),
    }
}

/// Sends eight entries with the destination last, so that the core has no room for the source that it chooses. The answers
/// come from the SA and from the cache.
fn eight_entries(fixture: &mut Fixture) -> Outcome {
    let (core, from) = fixture.up()?;
    let peer = Peer::number(3);
    let destination = Addr::Ip(peer.ip);
    let mut message = Message::resolve();
    for _ in 1..ENTRIES {
        message = message.with_entry(0, NAME, &[b'x'; 64]);
    }
    message = message.with_entry(FLAG_DEST, destination.code(), &destination.field());
    let ask = |core: &mut StandIn| {
        let id = core.ask(&message).map_err(|status| {
            failed("a message that the core takes", format!("status {status}"))
        })?;
        let answer = reply(core, id)?;
        expect_paths_only(&answer)
    };
    ask(core)?;
    let own = core.address(from).clone();
    resolve(core, from, &by_addr(&own, &destination))?;
    ask(core)
}

/// Skips a check of messages that ibacm itself refuses, unless the run is strict.
fn only_strict(fixture: &Fixture, what: &str) -> Outcome {
    if fixture.strict {
        return Ok(());
    }
    Err(Finding::Skipped(format!(
        "ibacm itself refuses {what}: the check runs only with --strict"
    )))
}

fn indices(fixture: &mut Fixture) -> Outcome {
    only_strict(fixture, "such indices")?;
    let (core, from) = fixture.up()?;
    let own = core.address(from).clone();
    let request = by_addr(&own, &Addr::Ip(Peer::number(3).ip));
    for data in [
        [0, 0, 8],
        [0, 0, 200],
        [0, 0, 255],
        [1, 8, 8],
        [1, 255, 255],
    ] {
        let answer = resolve(core, from, &request.with_data(data))?;
        expect_status(&answer, &ERRORS)?;
    }
    for data in [[1, 8, 1], [1, 200, 1], [1, 255, 1]] {
        let answer = resolve(core, from, &request.with_data(data))?;
        expect_paths_only(&answer)?;
    }
    Ok(())
}

fn lengths(fixture: &mut Fixture) -> Outcome {
    let (core, from) = fixture.up()?;
    let own = core.address(from).clone();
    for request in [
        by_lid(&Peer::number(3)),
        by_addr(&own, &Addr::Ip(Peer::number(4).ip)),
    ] {
        for length in [0, 15, 16, 17, 87, 89, 592, 593, 0xffff] {
            let mut message = request;
            message.set_length(length);
            let answer = resolve(core, from, &message)?;
            expect_paths_only(&answer)?;
        }
    }
    Ok(())
}

fn types(fixture: &mut Fixture) -> Outcome {
    only_strict(fixture, "such types")?;
    let (core, from) = fixture.up()?;
    let own = core.address(from).clone();
    for code in [0, 6, 255, 0xffff] {
        let unknown = Addr::Raw(code, Box::new([1; 64]));
        let message = Message::destination(Some(&own), &unknown).with_data([0, 0, 1]);
        expect_status(&resolve(core, from, &message)?, &ERRORS)?;
    }
    Ok(())
}

fn no_port(fixture: &mut Fixture, paths: &[Path]) -> Outcome {
    let (core, from) = fixture.up()?;
    let own = core.port(FIRST_PORT).gid();
    for path in paths {
        let answer = resolve(core, from, &Message::path(&path.with_sgid(own)))?;
        expect_status(&answer, &ERRORS)?;
    }
    Ok(())
}

/// Resolves an unknown name, and returns the resulting log lines.
fn named(fixture: &mut Fixture, name: &str, look: fn(&str, &str) -> Outcome) -> Outcome {
    let (core, from) = fixture.up_with(HASTY)?;
    let own = core.address(from).clone();
    let logged = core.log().len();
    let destination = Addr::Name(name.into());
    // The last entry of a full message: the bytes after the name are not part of it.
    let mut message = Message::resolve().with_entry(FLAG_SOURCE, own.code(), &own.field());
    for _ in 2..ENTRIES {
        message = message.with_entry(0, NAME, &[b'x'; 64]);
    }
    message = message.with_entry(FLAG_DEST, destination.code(), &destination.field());
    let id = core
        .ask(&message)
        .map_err(|status| failed("a message that the core takes", format!("status {status}")))?;
    expect_status(&reply(core, id)?, &ERRORS)?;
    core.log()[logged..]
        .iter()
        .try_for_each(|(_, line)| look(line, name))
}
