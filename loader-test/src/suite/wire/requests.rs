//! Checks of other nodes' requests for the port's addresses.

use crate::suite::ability::OPENS;
use std::time::{Duration, Instant};

use super::line::{ASK_AGAIN, Line, answers, line, mad, own_ip, own_name, shown, speaks, stranger};
use crate::stand_in::fabric::{DeviceSpec, Peer};
use crate::stand_in::ledger::Harmed;
use crate::stand_in::message::{Addr, Gid};
use crate::stand_in::wire::{AcmMad, Datagram, Node, QKEY, Wire, shared_group};
use crate::stand_in::{FIRST_PORT, StandIn};
use crate::suite::fixture::{Fixture, hold, let_go, refused};
use crate::suite::{Check, Outcome, failed};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "wire-answer",
        rule: "a request for one of the port's addresses gets one unicast response, with its transaction id and the group that both nodes are in",
        harmed: Harmed::Node,
        how: "sends the group requests for the port's name and IP address, and checks addresses, header and number of the responses",
        needs: OPENS,
        run: answer,
        fault: fault!(Fault {
            replace: &[(
                ".is_global = 1, .grh = { .dgid = grh->sgid } };",
                ".is_global = 1, .grh = { .dgid = group->mgid } };",
            )],
            status: &[Status::Failed],
            also: &["wire-stock-asks"],
        }),
    },
    Check {
        name: "wire-keys",
        rule: "datagrams carry the protocol's Q_Key and the endpoint's P_Key",
        harmed: Harmed::Node,
        how: "checks the keys of a response and of a request, and sends a request with another Q_Key",
        needs: OPENS,
        run: keys,
        fault: fault!(Fault {
            replace: &[(".remote_qkey = ACM_QKEY }", ".remote_qkey = 0x1ee7 }")],
            status: &[Status::Failed],
            also: &["wire-stock-*"],
        }),
    },
    Check {
        name: "wire-partition",
        rule: "each endpoint answers for its own addresses, in its own partition",
        harmed: Harmed::Node,
        how: "requests the addresses of two endpoints in both partitions",
        needs: OPENS,
        run: partition,
        fault: fault!(Fault {
            replace: &[("&& pkey == htobe16(wanted)", "&& pkey")],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "wire-foreign-address",
        rule: "the port does not answer a request for another node's address",
        harmed: Harmed::Node,
        how: "sends the group requests for five addresses that are not the port's",
        needs: OPENS,
        run: foreign_address,
        fault: fault!(Fault {
            replace: &[(
                "\tif (!is_own_addr(group->ep, mad->dest_type, mad->dest))\n\t\treturn;\n",
                "",
            )],
            status: &[Status::Failed],
            also: &[
                "wire-partition",
                "wire-address-removed",
                "wire-address-twice",
            ],
        }),
    },
    Check {
        name: "wire-address-case",
        rule: "names in multicast requests are compared without regard to case",
        harmed: Harmed::Node,
        how: "sends the group a request for the port's name in upper case",
        needs: OPENS,
        run: |fixture| {
            let line = line(fixture, &[])?;
            let tid = line.ask(&stranger(1), &Addr::Name("SELF1".into()));
            line.answer_to(tid).map(drop)
        },
        fault: fault!(Fault {
            replace: &[(
                "if (!is_own_addr(group->ep, mad->dest_type, mad->dest))",
                "if (!is_own_addr(group->ep, mad->dest_type, mad->dest) || mad->dest[0] == 'S')",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "wire-address-length",
        rule: "only the bytes that an address type defines count: the rest of the field is ignored",
        harmed: Harmed::Node,
        how: "sends the group a request for the port's IP address with other bytes behind it",
        needs: OPENS,
        run: |fixture| {
            let line = line(fixture, &[])?;
            let tid = line.ask(&stranger(1), &own_ip().with_garbage());
            line.answer_to(tid).map(drop)
        },
        fault: fault!(Fault {
            replace: &[(
                "if (!is_own_addr(group->ep, mad->dest_type, mad->dest))",
                "if (!is_own_addr(group->ep, mad->dest_type, mad->dest) || (mad->dest_type == ACM_EP_INFO_ADDRESS_IP && mad->dest[10]))",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "wire-address-removed",
        rule: "the port answers for an address from when it is added until it is removed",
        harmed: Harmed::Node,
        how: "sends the group a request for an address before it is added, while it is there, and after its removal",
        needs: OPENS,
        run: address_removed,
        fault: fault!(Fault {
            replace: &[
                (
                    "static struct acm_provider provider = {",
                    "static void keep_address(void *addr_context)\n{\n}\n\nstatic struct acm_provider provider = {",
                ),
                (
                    ".remove_address = remove_address,",
                    ".remove_address = keep_address,",
                ),
            ],
            status: &[Status::Failed],
            also: &[
                "lifecycle-address-removed",
                "lifecycle-address-moved",
                "lifecycle-address-twice",
                "lifecycle-address-lost",
                "wire-address-twice",
            ],
        }),
    },
    Check {
        name: "wire-address-twice",
        rule: "the port does not answer for an address that was added twice and removed once",
        harmed: Harmed::Node,
        how: "adds an address a second time, removes it once, and sends the group a request for it",
        needs: OPENS,
        run: address_twice,
        fault: fault!(Fault {
            replace: &[
                (
                    "static struct acm_provider provider = {",
                    "static int add_another(const struct acm_address *acm, void *ep_context, void **addr_context)\n{\n\tstruct address *address = calloc(1, sizeof *address);\n\n\taddress->ep = ep_context;\n\taddress->type = acm->type;\n\tmemcpy(address->addr, acm->info.addr, sizeof address->addr);\n\tpthread_mutex_lock(&lock);\n\tLIST_INSERT_HEAD(&address->ep->addresses, address, entry);\n\tpthread_mutex_unlock(&lock);\n\t*addr_context = address;\n\treturn 0;\n}\n\nstatic struct acm_provider provider = {",
                ),
                (".add_address = add_address,", ".add_address = add_another,"),
            ],
            status: &[Status::Failed],
            also: &["lifecycle-address-twice", "lifecycle-address-lost"],
        }),
    },
    Check {
        name: "wire-every-requester",
        rule: "every requesting node gets a response, however many request at once",
        harmed: Harmed::Node,
        how: "sends requests from sixteen nodes while the SA is silent, lets it respond, and waits for all responses",
        needs: OPENS,
        run: every_requester,
        fault: fault!(Fault {
            replace: &[(
                "\tah = ibv_create_ah(group->pd, &attr);\n\tif (!ah)\n",
                "\tstatic uint16_t seen[6];\n\tunsigned int i;\n\n\tfor (i = 0; i < 6 && seen[i] && seen[i] != wc->slid; i++)\n\t\t;\n\tif (i == 6)\n\t\treturn;\n\tseen[i] = wc->slid;\n\tah = ibv_create_ah(group->pd, &attr);\n\tif (!ah)\n",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "wire-same-requester",
        rule: "a node that repeats its request before it was answered gets a response to both transaction ids",
        harmed: Harmed::Node,
        how: "sends two requests from one node while the SA is silent, lets it respond, and waits for both responses",
        needs: OPENS,
        run: same_requester,
        fault: fault!(Fault {
            replace: &[(
                "\tinit_mad(group, &answer, UMAD_METHOD_GET_RESP, mad->tid);\n",
                "\tstatic uint8_t last[ACM_MAX_ADDRESS];\n\tstatic __be64 tid;\n\n\tif (memcmp(last, mad->src, sizeof last))\n\t\ttid = mad->tid;\n\tmemcpy(last, mad->src, sizeof last);\n\tinit_mad(group, &answer, UMAD_METHOD_GET_RESP, tid);\n",
            )],
            status: &[Status::Failed],
            also: &[
                "wire-partition",
                "wire-many-requests",
                "wire-short",
                "wire-group-count",
                "wire-no-grh",
                "wire-flood-*",
                "wire-stock-asks",
            ],
        }),
    },
    Check {
        name: "wire-asked-while-asking",
        rule: "a node gets a response even if the SA query for the path to it is outstanding",
        harmed: Harmed::Node,
        how: "sends a node's request while the SA query for the path to that node is outstanding",
        needs: OPENS,
        run: asked_while_asking,
        fault: fault!(Fault {
            replace: &[(
                "\tah = ibv_create_ah(group->pd, &attr);\n\tif (!ah)\n",
                "\tif (!TAILQ_EMPTY(&group->ep->port->busy))\n\t\treturn;\n\tah = ibv_create_ah(group->pd, &attr);\n\tif (!ah)\n",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "wire-many-requests",
        rule: "each used receive is posted again: the port answers more than recv_depth requests",
        harmed: Harmed::Node,
        how: "sends 1,100 requests, one after the other",
        needs: OPENS,
        run: many_requests,
        fault: fault!(Fault {
            replace: &[(
                "if (wc.status != IBV_WC_WR_FLUSH_ERR)",
                "if (wc.status != IBV_WC_SUCCESS)",
            )],
            status: &[Status::Failed],
            also: &[
                "wire-short",
                "wire-long",
                "wire-base-version",
                "wire-class",
                "wire-class-version",
                "wire-method",
                "wire-control",
                "wire-group-count",
                "wire-no-grh",
                "wire-flood-*",
            ],
        }),
    },
];

fn answer(fixture: &mut Fixture) -> Outcome {
    let line = line(fixture, &[])?;
    for (number, wanted) in (1..).zip([own_name(), own_ip()]) {
        let peer = stranger(number);
        let tid = line.ask(&peer, &wanted);
        let answer = line.answer_to(tid)?;
        expect_answer(&line, &answer, &Node::of(&peer))?;
        line.fence()?;
        let more = line.wire.take();
        if more.iter().any(|sent| answers(sent, tid)) {
            return Err(failed("one answer to one request", shown(&more)));
        }
    }
    Ok(())
}

/// Checks every field of a response to a node.
fn expect_answer(line: &Line<'_>, answer: &Datagram, node: &Node) -> Outcome {
    let group = shared_group(line.pkey());
    let own = line.core.port(FIRST_PORT);
    let route = answer.grh.unwrap_or_default();
    let expected = (node.lid, node.qpn, own.lid, own.gid(), node.gid);
    let seen = (
        answer.destination_lid,
        answer.destination_qp,
        answer.source_lid,
        Gid(route.source),
        Gid(route.destination),
    );
    if seen != expected {
        return Err(failed(
            format!("from LID, GID and to LID, queue pair, GID {expected:?}"),
            format!("{seen:?}"),
        ));
    }
    let told = mad(answer);
    let is_right = told.is_some_and(|mad| {
        mad.0[..8] == [1, 0x2c, 1, 0x81, 0, 0, 0, 1] && mad.groups().contains(&group)
    });
    if is_right {
        Ok(())
    } else {
        let expected = "an answer of version 1 and status 0 that names the shared group";
        Err(failed(expected, format!("{told:?}")))
    }
}

fn keys(fixture: &mut Fixture) -> Outcome {
    let mut line = line(fixture, &[])?;
    let tid = line.ask(&stranger(1), &own_name());
    let answer = line.answer_to(tid)?;
    let wanted = Addr::Name(stranger(2).name);
    let id = line.client_asks(&wanted);
    let (request, told) = line.request_for(&wanted)?;
    for sent in [&answer, &request] {
        let (seen, expected) = ((sent.qkey, sent.pkey), (QKEY, line.pkey()));
        if seen != expected {
            let text = |keys| format!("Q_Key and P_Key {keys:#x?}");
            return Err(failed(text(expected), text(seen)));
        }
    }
    line.answer(&stranger(2), told.tid());
    line.reply(id)?;
    // The port receives nothing with another Q_Key.
    let tid = line.tid();
    let payload = line.request(tid, &stranger(3), &own_name()).0;
    let foreign = Datagram {
        qkey: 0x1ee7,
        ..Wire::to_group(&Node::of(&stranger(3)), line.pkey(), &payload)
    };
    line.wire.send(&foreign);
    line.expect_no_answer(tid, "a request with another Q_Key")
}

/// The other partition.
const PARTITION: u16 = 0x8001;

fn partition(fixture: &mut Fixture) -> Outcome {
    let mut device = DeviceSpec::single();
    device.ports[0].pkeys.push(PARTITION);
    let options = fixture.unhurried();
    let core = fixture.core_with(vec![device], options)?;
    let wire = core.wire(FIRST_PORT);
    core.up(FIRST_PORT).map_err(refused)?;
    core.settle();
    speaks(core, &wire, 0xffff)?;
    let other = Addr::Name("other1".into());
    core.add_address(FIRST_PORT, PARTITION, &other)
        .map_err(refused)?;
    core.settle();
    let mut tid = 0x9a27_0000_0000_0000;
    let mut asks = |wanted: &Addr, pkey: u16| {
        tid += 1;
        let source = Addr::Name(stranger(1).name);
        let request = AcmMad::request(tid, wanted, &source, &[shared_group(pkey)]);
        wire.send(&Wire::to_group(&Node::of(&stranger(1)), pkey, &request.0));
        tid
    };
    for (own, foreign, pkey) in [
        (&other, own_name(), PARTITION),
        (&own_name(), other.clone(), 0xffff),
    ] {
        let unwanted = asks(&foreign, pkey);
        // Repeated until it succeeds: the join may be outstanding.
        let answer = until_answered(core, &wire, || asks(own, pkey)).ok_or_else(|| {
            failed(
                format!("an answer for {own} in the partition {pkey:#06x}"),
                shown(&wire.take()),
            )
        })?;
        if answer.pkey != pkey {
            let seen = format!("P_Key {:#06x}", answer.pkey);
            return Err(failed(format!("P_Key {pkey:#06x}"), seen));
        }
        if wire.take().iter().any(|sent| answers(sent, unwanted)) {
            let expected = format!("no answer for {foreign} in the partition {pkey:#06x}");
            return Err(failed(expected, "one"));
        }
    }
    Ok(())
}

fn until_answered(core: &StandIn, wire: &Wire, mut ask: impl FnMut() -> u64) -> Option<Datagram> {
    let deadline = Instant::now() + core.patience;
    let mut tids = Vec::new();
    while Instant::now() < deadline {
        tids.push(ask());
        let is_answer = |sent: &Datagram| tids.iter().any(|tid| answers(sent, *tid));
        if let Some(answer) = wire.wait(ASK_AGAIN, is_answer) {
            return Some(answer);
        }
    }
    None
}

fn foreign_address(fixture: &mut Fixture) -> Outcome {
    let line = line(fixture, &[])?;
    let foreign = [
        Addr::Name("self".into()),
        Addr::Name("self11".into()),
        Addr::Name(Peer::number(3).name),
        Addr::Ip([10, 1, 0, 20].into()),
        Addr::Ip6(Peer::number(3).ip6),
    ];
    for wanted in foreign {
        let tid = line.ask(&stranger(1), &wanted);
        line.expect_no_answer(tid, &format!("a request for {wanted}"))?;
    }
    Ok(())
}

fn address_removed(fixture: &mut Fixture) -> Outcome {
    let line = line(fixture, &[])?;
    let extra = Addr::Name("extra1".into());
    let add = |core: &mut StandIn| {
        core.add_address(FIRST_PORT, 0xffff, &extra)
            .map_err(refused)
    };
    let not_yet = line.ask(&stranger(1), &extra);
    line.expect_no_answer(not_yet, "a request for an address that is added later")?;
    for number in [2, 3] {
        let id = add(line.core)?;
        let tid = line.ask(&stranger(number), &extra);
        line.answer_to(tid)?;
        line.core.remove_address(id);
        let tid = line.ask(&stranger(number), &extra);
        line.expect_no_answer(tid, "a request for a removed address")?;
    }
    Ok(())
}

fn address_twice(fixture: &mut Fixture) -> Outcome {
    let line = line(fixture, &[])?;
    let extra = Addr::Name("extra1".into());
    let add = |core: &mut StandIn| {
        core.add_address(FIRST_PORT, 0xffff, &extra)
            .map_err(refused)
    };
    let first = add(line.core)?;
    line.core.lose_address(first);
    let second = add(line.core)?;
    let tid = line.ask(&stranger(1), &extra);
    line.answer_to(tid)?;
    line.core.remove_address(second);
    let tid = line.ask(&stranger(2), &extra);
    line.expect_no_answer(tid, "a request for a removed address")
}

fn every_requester(fixture: &mut Fixture) -> Outcome {
    let line = line(fixture, &[])?;
    // A provider that first queries the SA for the path back keeps all of them waiting.
    hold(line.core);
    let tids: Vec<u64> = (1..=16)
        .map(|number| line.ask(&stranger(number), &own_name()))
        .collect();
    line.probe_within(Duration::from_secs(1));
    let_go(line.core);
    for tid in tids {
        line.answer_to(tid)?;
    }
    Ok(())
}

fn same_requester(fixture: &mut Fixture) -> Outcome {
    let line = line(fixture, &[])?;
    hold(line.core);
    let tids = [1, 1].map(|number| line.ask(&stranger(number), &own_name()));
    line.probe_within(Duration::from_secs(1));
    let_go(line.core);
    for tid in tids {
        line.answer_to(tid)?;
    }
    Ok(())
}

fn asked_while_asking(fixture: &mut Fixture) -> Outcome {
    let mut line = line(fixture, &[])?;
    let peer = stranger(1);
    let wanted = Addr::Name(peer.name.clone());
    let asked_before = line.core.sa().path_queries().len();
    hold(line.core);
    let id = line.client_asks(&wanted);
    let (_, request) = line.request_for(&wanted)?;
    line.answer(&peer, request.tid());
    if line.core.path_queries(asked_before + 1).is_none() {
        return Err(failed(
            "a query for the path to the node that responded",
            "none",
        ));
    }
    let tid = line.ask(&peer, &own_name());
    // Handled before the SA responds.
    line.probe_within(Duration::from_secs(1));
    let_go(line.core);
    line.answer_to(tid)?;
    line.expect_path_to(id, &peer)
}

fn many_requests(fixture: &mut Fixture) -> Outcome {
    let line = line(fixture, &["recv_depth 4"])?;
    // Also more than any default depth, for providers that ignore the option.
    for _ in 0..1100 {
        let tid = line.ask(&stranger(1), &own_name());
        line.answer_to(tid)?;
    }
    Ok(())
}
