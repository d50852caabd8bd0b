//! Checks of the port's own multicast requests, and of the responses that it accepts.

use crate::suite::ability::OPENS;
use std::collections::HashSet;

use super::line::{Line, asks_for, line, own_ip, stranger};
use crate::stand_in::ledger::Harmed;
use crate::stand_in::message::{Addr, Gid};
use crate::stand_in::wire::{AcmMad, Datagram, LENGTH, Node, shared_group};
use crate::suite::fixture::{ERRORS, Fixture, expect_path, expect_status, expected_path};
use crate::suite::{Check, Finding, Outcome, failed};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "wire-request",
        rule: "for an unknown address the port sends the group a complete request, with the client's address as source",
        harmed: Harmed::Client,
        how: "lets clients resolve a name and two IP addresses, and checks the requests that the port sends",
        needs: OPENS,
        run: request,
        fault: fault!(Fault {
            replace: &[("\tmad.src_type = lookup->src_type;\n", "")],
            status: &[Status::Failed],
            also: &["wire-stock-answers"],
        }),
    },
    Check {
        name: "wire-resolve",
        rule: "the client gets the path to the node that responded",
        harmed: Harmed::Client,
        how: "lets a client resolve a name, responds to the port's request, and compares the path",
        needs: OPENS,
        run: |fixture| {
            let mut line = line(fixture, &[])?;
            line.resolves(&stranger(1)).map(drop)
        },
        fault: fault!(Fault {
            replace: &[("waiting->gid = grh->sgid;", "waiting->gid = grh->dgid;")],
            status: &[Status::Failed],
            also: &[
                "wire-asked-while-asking",
                "wire-request",
                "wire-resolve-*",
                "wire-tid",
                "wire-answer-*",
                "wire-stock-answers",
                "wire-awaited-in-a-crowd",
            ],
        }),
    },
    Check {
        name: "wire-resolve-cached",
        rule: "a second request for a resolved address sends nothing to the group",
        harmed: Harmed::Node,
        how: "lets a second client resolve the same address, and counts the requests",
        needs: OPENS,
        run: cached,
        fault: fault!(Fault {
            replace: &[("\tremember(group, lookup, &grh->sgid);\n", "")],
            status: &[Status::Failed],
            also: &["wire-answer-twice"],
        }),
    },
    Check {
        name: "wire-resolve-together",
        rule: "however many clients request an address at once, the port sends one multicast request",
        harmed: Harmed::Node,
        how: "lets sixteen clients resolve one address, and counts the requests",
        needs: OPENS,
        run: together,
        fault: fault!(Fault {
            replace: &[(
                "\t\tif (same_addr(lookup->type, lookup->addr, dest->type, dest->info.addr))\n\t\t\tbreak;",
                "\t\tif (lookup == (void *) dest)\n\t\t\tbreak;",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "wire-retries",
        rule: "the port repeats an unanswered request as often as the options say, then answers the client",
        harmed: Harmed::Client,
        how: "never responds, and counts the requests with retries 2",
        needs: OPENS,
        run: retries,
        fault: fault!(Fault {
            replace: &[("lookup->tries = group->retries + 1;", "lookup->tries = 1;")],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "wire-tid",
        rule: "no node can guess the transaction id of the next request and answer it in another node's place",
        harmed: Harmed::Client,
        how: "compares the transaction ids of six requests",
        needs: OPENS,
        run: tids,
        fault: fault!(Fault {
            replace: &[(
                "\t\tif (!lookup || getrandom(&lookup->tid, sizeof lookup->tid, 0) != sizeof lookup->tid) {",
                "\t\tif (lookup)\n\t\t\tlookup->tid = htobe64(new_tid());\n\t\tif (!lookup) {",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "wire-answer-unknown",
        rule: "a response with an unknown transaction id is ignored",
        harmed: Harmed::Client,
        how: "sends a response with another transaction id before the right one",
        needs: OPENS,
        run: |fixture| stranger_first(fixture, |line, tid| line.answer(&stranger(2), tid ^ 1)),
        fault: fault!(Fault {
            replace: &[("\t\tif (lookup->tid == mad->tid)\n", "\t\tif (mad->tid)\n")],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "wire-answer-multicast",
        rule: "responses come by unicast: a response sent to the group is ignored",
        harmed: Harmed::Client,
        how: "sends a response to the group before the right one",
        needs: OPENS,
        run: |fixture| {
            stranger_first(fixture, |line, tid| {
                let answer = AcmMad::answer(tid, &shared_group(line.pkey()));
                line.multicast(&stranger(2), &answer.0);
            })
        },
        fault: fault!(Fault {
            replace: &[("!same_gid(&grh->dgid, &group->ep->gid) || ", "")],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "wire-answer-no-grh",
        rule: "a response without a GRH, which does not name its source, is ignored",
        harmed: Harmed::Client,
        how: "sends a response without a GRH before the right one",
        needs: OPENS,
        run: no_grh,
        fault: fault!(Fault {
            replace: &[
                (
                    "if (wc->byte_len != BUFFER_LENGTH || !(wc->wc_flags & IBV_WC_GRH))",
                    "if (wc->byte_len != BUFFER_LENGTH || (mad->method == UMAD_METHOD_GET && !(wc->wc_flags & IBV_WC_GRH)))",
                ),
                (
                    " || !is_port_gid(&grh->sgid))\n\t\treturn;\n\tif (mad->method",
                    " || (mad->method == UMAD_METHOD_GET && !is_port_gid(&grh->sgid)))\n\t\treturn;\n\tif (mad->method",
                ),
                (
                    "!same_gid(&grh->dgid, &group->ep->gid) || ",
                    "!(is_zero(&grh->dgid) || same_gid(&grh->dgid, &group->ep->gid)) || ",
                ),
            ],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "wire-answer-group",
        rule: "a response that names none of the port's groups is ignored",
        harmed: Harmed::Client,
        how: "sends responses that name a foreign group, and none, before the right one",
        needs: OPENS,
        run: |fixture| {
            stranger_first(fixture, |line, tid| {
                let foreign = Gid([
                    0xff, 0x15, 0x40, 0x01, 0xff, 0xff, 0, 7, 5, 0, 0, 0, 0, 0, 0, 0,
                ]);
                line.unicast(&stranger(2), &AcmMad::answer(tid, &foreign).0);
                let none = AcmMad::answer(tid, &foreign).with(20, &[0]);
                line.unicast(&stranger(2), &none.0);
            })
        },
        fault: fault!(Fault {
            replace: &[(
                "!names_group(group, mad)",
                "(mad->method == UMAD_METHOD_GET && !names_group(group, mad))",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "wire-answer-class",
        rule: "a datagram of class SA is no response, whatever its transaction id",
        harmed: Harmed::Client,
        how: "sends a response of class SA before the right one",
        needs: OPENS,
        run: |fixture| {
            stranger_first(fixture, |line, tid| {
                // The header of an SA response, with the rest of an ACM response.
                let answer = AcmMad::answer(tid, &shared_group(line.pkey()))
                    .with(1, &[3, 2])
                    .with(16, &[0, 0x35]);
                line.unicast(&stranger(2), &answer.0);
            })
        },
        fault: fault!(Fault {
            replace: &[(
                "mad->mgmt_class == ACM_CLASS && mad->class_version == 1 &&",
                "((mad->mgmt_class == ACM_CLASS && mad->class_version == 1) ||\n\t\t(mad->mgmt_class == UMAD_CLASS_SUBN_ADM && mad->class_version == 2)) &&",
            )],
            status: &[Status::Failed],
            also: &["wire-class"],
        }),
    },
    Check {
        name: "wire-answer-short",
        rule: "a datagram that is too short is no response",
        harmed: Harmed::Client,
        how: "sends responses of four lengths that are too short before the right one",
        needs: OPENS,
        run: |fixture| {
            stranger_first(fixture, |line, tid| {
                let answer = AcmMad::answer(tid, &shared_group(line.pkey()));
                for length in [LENGTH - 1, 168, 24, 16] {
                    line.unicast(&stranger(2), &answer.0[..length]);
                }
            })
        },
        fault: fault!(Fault {
            replace: &[(
                "if (wc->byte_len != BUFFER_LENGTH || !(wc",
                "if ((mad->method == UMAD_METHOD_GET && wc->byte_len != BUFFER_LENGTH) || !(wc",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "wire-answer-status",
        rule: "a response with a non-zero status carries no address",
        harmed: Harmed::Client,
        how: "sends responses with a non-zero status before the right one",
        needs: OPENS,
        run: status,
        fault: fault!(Fault {
            replace: &[(" || mad->status)", ")")],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "wire-answer-address",
        rule: "a response that names another address than the requested one is ignored",
        harmed: Harmed::Client,
        how: "sends a response that names another address before the right one",
        needs: OPENS,
        run: |fixture| {
            stranger_first(fixture, |line, tid| {
                let other = Addr::Name(stranger(2).name);
                let answer = AcmMad::answer(tid, &shared_group(line.pkey()))
                    .with(16, &[other.code() as u8, 64])
                    .with(24, &other.field());
                line.unicast(&stranger(2), &answer.0);
            })
        },
        fault: fault!(Fault {
            replace: &[(
                "\tif (mad->dest_type && !same_addr(mad->dest_type, mad->dest, lookup->type, lookup->addr))\n\t\treturn;\n",
                "",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "wire-answer-twice",
        rule: "a second response changes nothing: the client gets one answer, and the cached path stays",
        harmed: Harmed::Client,
        how: "sends a second response, from the same node and from another, and lets a client resolve again",
        needs: OPENS,
        run: twice,
        fault: fault!(Fault {
            replace: &[
                (
                    "\t/* By unicast, from a port, and about what was asked. The stock provider leaves the addresses out. */\n",
                    "\tstatic struct lookup last;\n\n\tif (!lookup && last.tid == mad->tid)\n\t\tremember(group, &last, &grh->sgid);\n",
                ),
                (
                    "\tremember(group, lookup, &grh->sgid);\n",
                    "\tremember(group, lookup, &grh->sgid);\n\tlast = *lookup;\n",
                ),
            ],
            status: &[Status::Failed],
            also: &[],
        }),
    },
];

fn request(fixture: &mut Fixture) -> Outcome {
    let mut line = line(fixture, &[])?;
    let peer = stranger(1);
    let group = shared_group(line.pkey());
    for wanted in [
        Addr::Name(peer.name.clone()),
        Addr::Ip(peer.ip),
        Addr::Ip6(peer.ip6),
    ] {
        let id = line.client_asks(&wanted);
        let (sent, mad) = line.request_for(&wanted)?;
        let is_to_group = sent.group().is_some_and(|(mgid, _)| mgid == group.0);
        let source = own_ip();
        let is_whole = mad.0[..8] == [1, 0x2c, 1, 1, 0, 0, 0, 1]
            && mad.tid() != 0
            && mad.groups().contains(&group)
            && mad.source() == (source.code(), source.field());
        if !is_to_group || !is_whole {
            let expected = format!("a request to the group, which it names, from {source}");
            return Err(failed(expected, format!("{mad:?}")));
        }
        line.answer(&peer, mad.tid());
        line.expect_path_to(id, &peer)?;
    }
    Ok(())
}

fn cached(fixture: &mut Fixture) -> Outcome {
    let mut line = line(fixture, &[])?;
    let peer = stranger(1);
    line.resolves(&peer)?;
    line.wire.take();
    let wanted = Addr::Name(peer.name.clone());
    let id = line.client_asks(&wanted);
    line.expect_path_to(id, &peer)?;
    expect_no_request(&line, &wanted)
}

fn together(fixture: &mut Fixture) -> Outcome {
    let mut line = line(fixture, &[])?;
    let peer = stranger(1);
    let wanted = Addr::Name(peer.name.clone());
    let ids: Vec<u64> = (0..16).map(|_| line.client_asks(&wanted)).collect();
    let (_, request) = line.request_for(&wanted)?;
    line.answer(&peer, request.tid());
    for id in ids {
        line.expect_path_to(id, &peer)?;
    }
    expect_no_request(&line, &wanted)
}

/// Counts the further requests for an address.
fn requests(line: &Line<'_>, wanted: &Addr) -> Result<usize, Finding> {
    line.fence()?;
    let sent = line.wire.take();
    Ok(sent.iter().filter(|sent| asks_for(sent, wanted)).count())
}

fn expect_no_request(line: &Line<'_>, wanted: &Addr) -> Outcome {
    match requests(line, wanted)? {
        0 => Ok(()),
        more => Err(failed(
            format!("no further request for {wanted}"),
            more.to_string(),
        )),
    }
}

fn retries(fixture: &mut Fixture) -> Outcome {
    let mut line = line(fixture, &["timeout 700", "retries 2"])?;
    let wanted = Addr::Name(stranger(1).name);
    let id = line.client_asks(&wanted);
    let answer = line.reply(id)?;
    expect_status(&answer, &ERRORS)?;
    // On a busy machine the deadline can come before the last retry.
    match requests(&line, &wanted)? {
        2 | 3 => Ok(()),
        other => Err(failed(
            format!("2 or 3 requests for {wanted} with retries 2"),
            other.to_string(),
        )),
    }
}

fn tids(fixture: &mut Fixture) -> Outcome {
    let mut line = line(fixture, &[])?;
    let mut seen = Vec::new();
    for number in 1..=6 {
        seen.push(line.resolves(&stranger(number))?.tid());
    }
    let steps: Vec<u64> = seen
        .windows(2)
        .map(|pair| pair[1].wrapping_sub(pair[0]))
        .collect();
    let is_small = |step: &u64| step.min(&step.wrapping_neg()) < &(1 << 20);
    let distinct: HashSet<&u64> = steps.iter().collect();
    if steps.iter().filter(|step| is_small(step)).count() > 1 || distinct.len() < steps.len() - 1 {
        return Err(failed(
            "transaction ids at random",
            format!("{seen:#x?}")
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" "),
        ));
    }
    Ok(())
}

/// Lets a client resolve a peer's name, sends an invalid response from a stranger, and then the peer's response.
fn stranger_first(fixture: &mut Fixture, forge: impl FnOnce(&Line<'_>, u64)) -> Outcome {
    let mut line = line(fixture, &[])?;
    let peer = stranger(1);
    let wanted = Addr::Name(peer.name.clone());
    let id = line.client_asks(&wanted);
    let (_, request) = line.request_for(&wanted)?;
    forge(&line, request.tid());
    line.fence()?;
    line.answer(&peer, request.tid());
    expect_path(&line.reply(id)?, &expected_path(line.core, &peer))
}

fn no_grh(fixture: &mut Fixture) -> Outcome {
    stranger_first(fixture, |line, tid| {
        let payload = AcmMad::answer(tid, &shared_group(line.pkey())).0;
        let bare = Datagram {
            grh: None,
            ..line
                .wire
                .to_pair(&Node::of(&stranger(2)), line.pkey(), line.qpn, &payload)
        };
        line.wire.send(&bare);
    })
}

fn status(fixture: &mut Fixture) -> Outcome {
    let mut line = line(fixture, &[])?;
    let peer = stranger(1);
    let wanted = Addr::Name(peer.name.clone());
    let id = line.client_asks(&wanted);
    let (_, request) = line.request_for(&wanted)?;
    for code in [0x0300_u16, 0x0001] {
        let refusal =
            AcmMad::answer(request.tid(), &shared_group(line.pkey())).with(4, &code.to_be_bytes());
        line.unicast(&stranger(2), &refusal.0);
    }
    line.fence()?;
    line.answer(&peer, request.tid());
    let answer = line.reply(id)?;
    // A provider that takes it for a refusal fails the client's request.
    if ERRORS.contains(&answer.status) {
        return Ok(());
    }
    expect_path(&answer, &expected_path(line.core, &peer))
}

fn twice(fixture: &mut Fixture) -> Outcome {
    let mut line = line(fixture, &[])?;
    let peer = stranger(1);
    let request = line.resolves(&peer)?;
    for from in [&peer, &stranger(2)] {
        line.answer(from, request.tid());
        line.fence()?;
    }
    let id = line.client_asks(&Addr::Name(peer.name.clone()));
    line.expect_path_to(id, &peer)
}
