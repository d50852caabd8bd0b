//! Checks of a request's other components: the provider puts each into the query, or compares it with the response.

use super::{Demand, WAYS, ask, when};
use crate::stand_in::fabric::{DeviceSpec, Peer, gid};
use crate::stand_in::ledger::Harmed;
use crate::stand_in::message::{Message, Path};
use crate::stand_in::sa::{
    COMP_LIFETIME, COMP_LIFETIME_SELECTOR, COMP_MTU, COMP_MTU_SELECTOR, COMP_RATE,
    COMP_RATE_SELECTOR, Reaction, SaRequest,
};
use crate::stand_in::{FIRST_PORT, StandIn};
use crate::suite::ability::Ability;
use crate::suite::fixture::{
    Fixture, HASTY, SUCCESS, by_gid, expect_path, expected_path, expected_record, refused, resolve,
};
use crate::suite::{Check, Outcome, failed};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "path-components",
        rule: "the answer meets every component that the request names, or the request is refused: none is ignored",
        harmed: Harmed::Client,
        how: "names 13 constraints in turn, by resolve and by query, for known and new peers, and compares each path",
        needs: &[
            Ability::AnswersByGid,
            Ability::AnswersQuery,
            Ability::Closes,
        ],
        run: components,
        fault: fault!(Fault {
            replace: &[("\tquestion->flowlabel_hoplimit = flow_label(wanted);\n", "")],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "path-selector-zero",
        rule: "an MTU, rate or packet lifetime with selector 0 is no constraint: it is neither in the SA query nor compared",
        harmed: Harmed::Client,
        how: "names an MTU, rate or lifetime with selector 0, by resolve and by query, and reads the component masks of the SA queries",
        needs: &[
            Ability::AnswersByGid,
            Ability::AnswersQuery,
            Ability::Closes,
        ],
        run: selector_zero,
        fault: fault!(Fault {
            replace: &[(
                "\treturn wanted >> UMAD_SA_SELECTOR_SHIFT == UMAD_SA_SELECTOR_GREATER_THAN ? 0 : wanted;\n",
                "\treturn wanted;\n",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "path-record-differs",
        rule: "a record from the SA that contradicts the query, even in one component, is refused",
        harmed: Harmed::Client,
        how: "lets the SA respond with a record that differs in one of 16 components, and compares the status",
        needs: &[
            Ability::AnswersByLid,
            Ability::AnswersByGid,
            Ability::Closes,
        ],
        run: record_differs,
        fault: fault!(Fault {
            replace: &[(
                "\t       (!question->slid || record->slid == question->slid) &&\n",
                "",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "path-sl-refused",
        rule: "a request for an SL that the SA grants on no path to a port is refused, and does not affect the next request",
        harmed: Harmed::Client,
        how: "requests an SL that the SA refuses, then none, and checks the answers and the SA queries",
        needs: &[Ability::AnswersByLid],
        run: sl_refused,
        fault: fault!(Fault {
            replace: &[(
                "\t} else if (mad->sa_mad.mad_hdr.status == htobe16(UMAD_SA_STATUS_NO_RECORDS << 8)) {\n",
                "\t} else if (service_level(&path->question)) {\n\t\tpath->question.qosclass_sl &= htobe16(0xfff0);\n\t\tpath->ask_at = now;\n\t\treturn;\n\t} else if (mad->sa_mad.mad_hdr.status == htobe16(UMAD_SA_STATUS_NO_RECORDS << 8)) {\n",
            )],
            status: &[Status::Failed],
            also: &["path-asked-again", "path-record-differs"],
        }),
    },
];

const ALIAS: u64 = 0x0010_00a1;

const DEMANDS: [Demand; 13] = [
    ("MTU exactly 256", |path| path.with_mtu(0x81)),
    ("MTU less than 2048", |path| path.with_mtu(0x44)),
    ("rate exactly 2.5 Gb/s", |path| path.with_rate(0x82)),
    ("rate less than 10 Gb/s", |path| path.with_rate(0x43)),
    ("rate exactly 10 Gb/s", |path| path.with_rate(0x83)),
    ("lifetime code exactly 10", |path| path.with_lifetime(0x8a)),
    ("lifetime code less than 18", |path| {
        path.with_lifetime(0x52)
    }),
    ("SL 6", |path| path.with_qos_sl(6)),
    ("traffic class 0x21", |path| path.with_tclass(0x21)),
    ("flow label 0x21", |path| path.with_flow_hop(0x21 << 8)),
    ("the port's own SLID", |path| path.with_slid(10)),
    ("another port's SLID", |path| {
        path.with_slid(Peer::number(9).lid)
    }),
    ("the port's alias GID as SGID", |path| {
        path.with_sgid(gid(ALIAS))
    }),
];

/// Names each constraint for a cached peer and for a new one.
fn components(fixture: &mut Fixture) -> Outcome {
    let mut device = DeviceSpec::single();
    device.ports[0].guids.push(ALIAS);
    let core = fixture.core_with(vec![device], &[])?;
    let from = core.up(FIRST_PORT).map_err(refused)?;
    core.settle();
    let own = core.port(FIRST_PORT).gid();
    let mut number = 100;
    for way in WAYS {
        for (name, demand) in DEMANDS {
            for known in [true, false] {
                number += 1;
                let peer = Peer::number(number);
                if known {
                    resolve(core, from, &by_gid(&peer))?;
                }
                let asked = demand(Path::default().with_dgid(peer.gid()).with_sgid(own));
                let answer = ask(core, from, way, &asked)?;
                if answer.status != SUCCESS {
                    continue;
                }
                expect_path(&answer, &expected_record(core, &asked))
                    .map_err(when(format!("{name}, {way}")))?;
            }
        }
    }
    Ok(())
}

/// Two peers whose paths have different SLs.
fn sl_refused(fixture: &mut Fixture) -> Outcome {
    const SLS: [u16; 2] = [6, 9];
    let (core, from) = fixture.up_with(HASTY)?;
    let own = core.port(FIRST_PORT).gid();
    let peers = [Peer::number(3), Peer::number(4)];
    core.refuse_sls(&peers[0], &[6, 7, 8]);
    core.refuse_sls(&peers[1], &[9, 10]);
    for sl in [SLS[0], SLS[1], 0, SLS[0]] {
        for peer in &peers {
            let asked = Path::default().with_dgid(peer.gid()).with_sgid(own);
            let asked = asked.with_qos_sl(sl);
            let answer = resolve(core, from, &Message::path(&asked))?;
            let expected = expected_record(core, &asked);
            // The SA refuses, so the provider must too.
            if expected.plain().is_none() && answer.status != SUCCESS {
                continue;
            }
            let case = format!("SL {sl} to {}", peer.name);
            expect_path(&answer, &expected).map_err(when(case))?;
        }
    }
    Ok(())
}

fn selector_zero(fixture: &mut Fixture) -> Outcome {
    const MASK: u64 = COMP_MTU_SELECTOR
        | COMP_MTU
        | COMP_RATE_SELECTOR
        | COMP_RATE
        | COMP_LIFETIME_SELECTOR
        | COMP_LIFETIME;
    /// Values that no path here reaches.
    const ODD: [Demand; 4] = [
        ("MTU", |path| path.with_mtu(5)),
        ("rate", |path| path.with_rate(7)),
        ("lifetime", |path| path.with_lifetime(30)),
        ("all three", |path| {
            path.with_mtu(5).with_rate(7).with_lifetime(30)
        }),
    ];
    let (core, from) = fixture.up()?;
    let own = core.port(FIRST_PORT).gid();
    // A provider with a policy may name these in every query.
    resolve(core, from, &by_gid(&Peer::number(99)))?;
    let limits = |query: &SaRequest| {
        let asked = query.path();
        let values = [asked.mtu(), asked.rate(), asked.lifetime()];
        (query.mask & MASK, values)
    };
    let usual = core.sa().path_queries().first().map(limits);
    let mut number = 100;
    for way in WAYS {
        for (name, odd) in ODD {
            number += 1;
            let peer = Peer::number(number);
            let case = || format!("{name} with selector 0, {way}");
            for _ in 0..2 {
                let asked = odd(Path::default().with_sgid(own).with_dgid(peer.gid()));
                let answer = ask(core, from, way, &asked)?;
                expect_path(&answer, &expected_path(core, &peer)).map_err(when(case()))?;
            }
        }
    }
    match core
        .sa()
        .path_queries()
        .iter()
        .find(|query| Some(limits(query)) != usual)
    {
        Some(query) => Err(failed(
            "the MTU, rate and lifetime of a query without these constraints",
            format!("mask {:#x}, {:?}", query.mask, query.path()),
        )),
        None => Ok(()),
    }
}

/// A case of a wrong record: the constraint in the request, and the SA's change to its record.
type Difference = (&'static str, fn(Path) -> Path, fn(Path) -> Path);

const PLAIN: fn(Path) -> Path = |path| path;

const BY_GID: [Difference; 15] = [
    ("DGID", PLAIN, |record| record.with_dgid(gid(0x0bad))),
    ("SGID", PLAIN, |record| record.with_sgid(gid(0x0bad))),
    // The SA decides components that the request does not name: it knows a new LID before the daemon does.
    (
        "SLID",
        |path| path.with_slid(10),
        |record| record.with_slid(0x0bad),
    ),
    ("P_Key", PLAIN, |record| record.with_pkey(0x8001)),
    (
        "SL",
        |path| path.with_qos_sl(6),
        |record| record.with_qos_sl(5),
    ),
    (
        "MTU, exactly",
        |path| path.with_mtu(0x81),
        |record| record.with_mtu(0x84),
    ),
    (
        "MTU, less than",
        |path| path.with_mtu(0x44),
        |record| record.with_mtu(0x84),
    ),
    // Code 4 is 30 Gb/s, code 5 is 5 Gb/s.
    (
        "rate, exactly",
        |path| path.with_rate(0x83),
        |record| record.with_rate(0x85),
    ),
    (
        "rate, less than",
        |path| path.with_rate(0x46),
        |record| record.with_rate(0x84),
    ),
    (
        "lifetime, exactly",
        |path| path.with_lifetime(0x8a),
        |record| record.with_lifetime(0x92),
    ),
    (
        "lifetime, less than",
        |path| path.with_lifetime(0x52),
        |record| record.with_lifetime(0x92),
    ),
    (
        "traffic class",
        |path| path.with_tclass(0x21),
        |record| record.with_tclass(0x22),
    ),
    (
        "flow label",
        |path| path.with_flow_hop(0x2100),
        |record| record.with_flow_hop(0x2200),
    ),
    (
        "service id",
        |path| path.with_service_id(7),
        |record| record.with_service_id(8),
    ),
    (
        "QoS class",
        |path| path.with_qos_sl(0x50),
        |record| record.with_qos_sl(0x60 | record.qos_sl() & 0xf),
    ),
];

fn record_differs(fixture: &mut Fixture) -> Outcome {
    let (core, from) = fixture.up_with(HASTY)?;
    core.set_qos(true);
    let mut number = 100;
    let by_lid: Difference = ("DLID", PLAIN, |record| record.with_dlid(0x0bad));
    for (name, demand, spoil) in BY_GID.into_iter().chain([by_lid]) {
        number += 1;
        let peer = Peer::number(number);
        let asked = demand(match name {
            "DLID" => Path::default().with_dlid(peer.lid),
            _ => Path::default().with_dgid(peer.gid()),
        });
        let bad = spoil(expected_record(core, &asked).plain().unwrap_or_default());
        answers_with(core, bad);
        let answer = resolve(core, from, &Message::path(&asked))?;
        if answer.status == SUCCESS {
            let seen = format!("{answer:?} ({name}: asked for {asked:?})");
            return Err(failed("an error", seen));
        }
    }
    Ok(())
}

fn answers_with(core: &StandIn, record: Path) {
    core.sa().script(move |question| {
        if question.is_path_query() {
            Reaction::Record(record)
        } else {
            Reaction::Answer
        }
    });
}
