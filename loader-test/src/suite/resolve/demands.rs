//! Checks of constraints besides the destination.

use crate::stand_in::FIRST_PORT;
use crate::stand_in::fabric::{DeviceSpec, Peer};
use crate::stand_in::ledger::Harmed;
use crate::stand_in::message::{Addr, Message, Path};
use crate::suite::ability::SERVES;
use crate::suite::fixture::{
    Fixture, able, expect_path, expect_undemanded, expected_record, refused, reply, resolve,
};
use crate::suite::{Check, Outcome, failed};

pub(in crate::suite) const CHECKS: &[Check] = &[
    Check {
        name: "resolve-traffic-class",
        rule: "a request with a traffic class never gets the default path, nor the other way round",
        harmed: Harmed::Client,
        how: "resolves a peer with and without a traffic class, in both orders, and compares each path with the SA's record",
        needs: SERVES,
        run: |fixture| demand(fixture, "traffic classes", |path| path.with_tclass(0x21)),
        fault: fault!(Fault {
            replace: &[("\tquestion->tclass = wanted->tclass;\n", "")],
            status: &[Status::Failed],
            also: &["query-demands", "path-components", "path-plainer"],
        }),
    },
    Check {
        name: "resolve-service-id",
        rule: "a request for one service never gets another service's path, nor the other way round",
        harmed: Harmed::Client,
        how: "resolves a peer with and without a service id, in both orders, and compares each path with the SA's record",
        needs: SERVES,
        run: |fixture| {
            demand(fixture, "service ids", |path| {
                path.with_service_id(0x0100_0000_0106_4853)
            })
        },
        fault: fault!(Fault {
            replace: &[("\tquestion->service_id = wanted->service_id;\n", "")],
            status: &[Status::Failed],
            also: &[
                "query-demands",
                "path-service-ids-chosen",
                "path-service-ids-untold",
            ],
        }),
    },
    Check {
        name: "resolve-qos-class",
        rule: "a request for one QoS class never gets another class's path, nor the other way round",
        harmed: Harmed::Client,
        how: "resolves a peer with and without a QoS class, in both orders, and compares each path with the SA's record",
        needs: SERVES,
        run: |fixture| demand(fixture, "QoS classes", |path| path.with_qos_sl(0x0050)),
        fault: fault!(Fault {
            replace: &[(
                "\tquestion->qosclass_sl = wanted->qosclass_sl;\n",
                "\tquestion->qosclass_sl = wanted->qosclass_sl & htobe16(0xf);\n",
            )],
            status: &[Status::Failed],
            also: &["query-demands", "path-kernel-qos-class"],
        }),
    },
    Check {
        name: "resolve-sl",
        rule: "a request for one service level never gets a path of another",
        harmed: Harmed::Client,
        how: "resolves a peer with and without a service level, in both orders, and compares each path with the SA's record",
        needs: SERVES,
        run: |fixture| demand(fixture, "service levels", |path| path.with_qos_sl(0x0006)),
        fault: fault!(Fault {
            replace: &[(
                "\tquestion->qosclass_sl = wanted->qosclass_sl;\n",
                "\tquestion->qosclass_sl = wanted->qosclass_sl & htobe16(0xfff0);\n",
            )],
            status: &[Status::Failed],
            also: &[
                "query-demands",
                "path-components",
                "path-record-differs",
                "path-asked-again",
                "path-plainer",
                "path-sl-refused",
            ],
        }),
    },
    Check {
        name: "resolve-partition",
        rule: "the path is in the partition of the endpoint that the request names",
        harmed: Harmed::Client,
        how: "resolves one peer in two partitions in turn and compares each path with the SA's record",
        needs: SERVES,
        run: partitions,
        fault: fault!(Fault {
            replace: &[(
                "\tquestion->pkey = htobe16(ep->acm->pkey);\n\tif (wanted->pkey && !same_partition(wanted->pkey, question->pkey))\n\t\tquestion->pkey = wanted->pkey | htobe16(0x8000);\n",
                "\tquestion->pkey = htobe16(0xffff);\n",
            )],
            status: &[Status::Failed],
            also: &[
                "lifecycle-pkeys",
                "lifecycle-pkey-holes",
                "resolve-byte-order",
                "lifecycle-address-twice",
            ],
        }),
    },
];

/// Resolves without, with and without a constraint; then in the other order for another peer.
fn demand(fixture: &mut Fixture, what: &str, demanding: fn(Path) -> Path) -> Outcome {
    let (core, from) = fixture.up()?;
    core.set_qos(true);
    let (mut usual, mut demanded) = (None, None);
    for (peer, order) in [
        (Peer::number(3), [false, true, false]),
        (Peer::number(4), [true, false, true]),
    ] {
        for demands in order {
            let plain = Path::default().with_dlid(peer.lid);
            let asked = if demands { demanding(plain) } else { plain };
            let answer = resolve(core, from, &Message::path(&asked))?;
            if demands {
                able(core, &answer, what)?;
            }
            let expected = expected_record(core, &asked);
            expect_path(&answer, &expected)?;
            let path = answer.path().unwrap_or_default();
            let usual = usual.get_or_insert(path);
            if demands {
                demanded = Some(path);
            } else if let Some(demanded) = &demanded {
                expect_undemanded(&answer, &expected, demanded, usual)?;
            }
        }
    }
    Ok(())
}

/// A second endpoint, in another partition.
fn partitions(fixture: &mut Fixture) -> Outcome {
    const OTHER: u16 = 0x8001;
    let mut device = DeviceSpec::single();
    device.ports[0].pkeys.push(OTHER);
    let core = fixture.core_with(vec![device], &[])?;
    core.up(FIRST_PORT).map_err(refused)?;
    core.add_address(FIRST_PORT, OTHER, &Addr::Ip([10, 1, 0, 2].into()))
        .map_err(refused)?;
    core.settle();
    // A LID with two different bytes reveals a wrong byte order.
    let peer = Peer::number(300);
    let plain = Path::default().with_dlid(peer.lid);
    for asked in [plain, plain.with_pkey(OTHER), plain, plain.with_pkey(OTHER)] {
        let id = core
            .ask(&Message::path(&asked))
            .map_err(|status| failed("an endpoint for the P_Key", format!("status {status}")))?;
        expect_path(&reply(core, id)?, &expected_record(core, &asked))?;
    }
    Ok(())
}
