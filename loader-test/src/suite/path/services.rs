//! Checks of service ids and QoS classes: the SA's ClassPortInfo says whether they select a path.

use super::{as_the_kernel, when};
use crate::stand_in::fabric::Peer;
use crate::stand_in::ledger::Harmed;
use crate::stand_in::message::Path;
use crate::stand_in::sa::{Reaction, SaRequest};
use crate::stand_in::{AddressId, FIRST_PORT, StandIn};
use crate::suite::ability::Ability;
use crate::suite::fixture::{
    ENODATA, Fixture, HASTY, SUCCESS, able, expect_path, expect_status, expected_record, refused,
    reply,
};
use crate::suite::{Check, Finding, Outcome};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "path-service-ids-reserved",
        rule: "if the SA says that service ids do not select paths, any number of service ids costs one path query",
        harmed: Harmed::Sa,
        how: "resolves 128 services of one host as the kernel does, and counts the SA queries",
        needs: &[Ability::AnswersByGid, Ability::Closes],
        run: reserved,
        fault: fault!(Fault {
            replace: &[(
                "\tif (ep->port->qos == RESERVED) {\n\t\tquestion.service_id = 0;\n",
                "\tif (ep->port->qos == RESERVED) {\n",
            )],
            status: &[Status::Warned],
            also: &[],
        }),
    },
    Check {
        name: "path-service-ids-chosen",
        rule: "if service ids select paths, each service id costs one path query",
        harmed: Harmed::Sa,
        how: "resolves 128 services of one host twice, while the SA says that they select paths, and counts the SA queries of the second round",
        needs: &[Ability::AnswersByGid, Ability::Closes],
        run: chosen,
        fault: fault!(Fault {
            replace: &[(
                "\treturn path->state != UNKNOWN && now < path->until;\n",
                "\treturn path->state != UNKNOWN && now < path->until && !path->question.service_id;\n",
            )],
            status: &[Status::Warned],
            also: &["path-asked-again"],
        }),
    },
    Check {
        name: "path-service-ids-untold",
        rule: "if the SA does not say whether service ids select paths, or its answer is malformed, the provider assumes that they do",
        harmed: Harmed::Client,
        how: "lets the SA refuse, garble or ignore the query for its ClassPortInfo, and resolves services",
        needs: &[Ability::AnswersByGid, Ability::Closes],
        run: untold,
        fault: fault!(Fault {
            replace: &[(
                "\tport->qos = is_told && !is_choosing ? RESERVED : CHOOSING;\n",
                "\tport->qos = is_told && is_choosing ? CHOOSING : RESERVED;\n",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "path-kernel-qos-class",
        rule: "the kernel's QoS class arrives garbled: if classes select paths the kernel gets ENODATA, and queries the SA itself",
        harmed: Harmed::Client,
        how: "resolves with the kernel's garbled QoS class, while classes select paths and while they do not",
        needs: &[Ability::AnswersByGid, Ability::Closes],
        run: kernels_class,
        fault: fault!(Fault {
            replace: &[(
                "\treturn !request->id && !request->is_query;\n",
                "\treturn !request->id && request->is_query;\n",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
];

const SERVICES: u64 = 128;

/// Like the kernel's requests for rdma_cm: each connection names a service id, derived from its port.
fn connects(
    core: &mut StandIn,
    from: AddressId,
    peer: &Peer,
    services: impl Iterator<Item = u64>,
) -> Outcome {
    const PORT_SPACE: u64 = 0x0000_0000_0106_0000;
    for service in services {
        let asked = as_the_kernel(core, from, peer).with_service_id(PORT_SPACE + service);
        asks_as_the_kernel(core, from, &asked)?;
    }
    Ok(())
}

fn asks_as_the_kernel(core: &mut StandIn, from: AddressId, asked: &Path) -> Outcome {
    let id = core.kernel_asks(from, asked);
    let answer = reply(core, id)?;
    able(core, &answer, "paths for a service")?;
    expect_path(&answer, &expected_record(core, asked))
}

fn reopen(core: &mut StandIn) -> Result<AddressId, Finding> {
    core.port_down(FIRST_PORT);
    let from = core.up(FIRST_PORT).map_err(refused)?;
    core.settle();
    Ok(from)
}

fn warned(text: String) -> Outcome {
    Err(Finding::Warned(text))
}

fn reserved(fixture: &mut Fixture) -> Outcome {
    /// Maximum: a second query may follow an unanswered first one.
    const QUESTIONS: usize = 2;
    let (core, from) = fixture.up()?;
    connects(core, from, &Peer::number(3), 0..SERVICES)?;
    let queries = core.sa().path_queries().len();
    if queries > 1 {
        return warned(format!(
            "{SERVICES} connections to one host cost the SA {queries} path queries, although its ClassPortInfo says that service ids select no paths"
        ));
    }
    let all = core.sa().requests();
    let told = all
        .iter()
        .filter(|question| question.is_class_port_info())
        .count();
    if told > QUESTIONS {
        return warned(format!(
            "{SERVICES} connections to one host cost the SA {told} queries for its ClassPortInfo"
        ));
    }
    Ok(())
}

fn chosen(fixture: &mut Fixture) -> Outcome {
    let (core, from) = fixture.up()?;
    core.set_qos(true);
    let peer = Peer::number(3);
    connects(core, from, &peer, 0..SERVICES)?;
    let first = core.sa().path_queries().len();
    connects(core, from, &peer, 0..SERVICES)?;
    let second = core.sa().path_queries().len() - first;
    if second > 0 {
        return warned(format!(
            "{SERVICES} connections to one host cost the SA {first} path queries, and {second} more in the second round"
        ));
    }
    Ok(())
}

fn untold(fixture: &mut Fixture) -> Outcome {
    let ways = [
        ("a refusal", Reaction::Status(0x000c)),
        ("an answer of another attribute", Reaction::OtherAttribute),
        ("an answer of zeros", Reaction::Record(Path::default())),
        ("silence", Reaction::Silence),
    ];
    let (core, _) = fixture.up_with(HASTY)?;
    core.set_qos(true);
    for (name, reaction) in ways {
        // The provider queries ClassPortInfo again when the port comes up.
        let from = reopen(core)?;
        core.sa().script(move |question: &SaRequest| {
            if question.is_class_port_info() {
                reaction.clone()
            } else {
                Reaction::Answer
            }
        });
        let peer = Peer::number(3);
        // A request that waits for ClassPortInfo may time out.
        let asked = as_the_kernel(core, from, &peer).with_service_id(6);
        let id = core.kernel_asks(from, &asked);
        let answer = reply(core, id)?;
        if answer.status == SUCCESS {
            expect_path(&answer, &expected_record(core, &asked)).map_err(when(name))?;
        }
        core.settle();
        connects(core, from, &peer, 7..10).map_err(when(name))?;
    }
    Ok(())
}

fn kernels_class(fixture: &mut Fixture) -> Outcome {
    let (core, _) = fixture.up()?;
    for qos in [false, true] {
        core.set_qos(qos);
        let from = reopen(core)?;
        let peer = Peer::number(3);
        // The core's garbled form of the kernel's class 0x5f.
        let asked = as_the_kernel(core, from, &peer).with_qos_sl(0x0050);
        for _ in 0..2 {
            if qos {
                let id = core.kernel_asks(from, &asked);
                expect_status(&reply(core, id)?, &[ENODATA])
            } else {
                asks_as_the_kernel(core, from, &asked)
            }
            .map_err(when(match qos {
                true => "classes select paths",
                false => "classes select no paths",
            }))?;
        }
    }
    Ok(())
}
