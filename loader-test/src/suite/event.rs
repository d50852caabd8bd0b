//! Checks of the family `event`: reregistration, joins, and reopened ports with changed attributes.

mod hosts;

use super::fixture::{
    Fixture, QUIET, SUCCESS, by_lid, expect_path, expected_path, refused, reply, resolve,
};
use super::{Check, Finding, Outcome, failed};
use crate::stand_in::fabric::{DeviceSpec, Peer};
use crate::stand_in::ledger::Harmed;
use crate::stand_in::message::{Addr, Message, Path};
use crate::stand_in::sa::{Reaction, SaRequest};
use crate::stand_in::{AddressId, FIRST_PORT, StandIn};
use crate::suite::ability::{Ability, OPENS, SERVES};

/// Name of the check that waits several times for the provider to read a file.
pub(super) const HOSTS_UNREADABLE: &str = "event-hosts-unreadable";

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "event-reregister",
        rule: "the endpoint keeps serving after IBV_EVENT_CLIENT_REREGISTER",
        harmed: Harmed::Client,
        how: "sends the event, then resolves a known and a new peer",
        needs: SERVES,
        run: |fixture| {
            let (core, from) = fixture.up()?;
            serves(core, from, 3)?;
            reregister(core);
            core.settle();
            serves(core, from, 3)?;
            serves(core, from, 4)
        },
        fault: fault!(Fault {
            replace: &[(
                "\tpthread_cond_signal(&port->wake);\n\tpthread_mutex_unlock(&lock);\n\treturn 0;\n",
                "\tpthread_cond_signal(&port->wake);\n\treturn 0;\n",
            )],
            status: &[Status::TimedOut],
            also: &[
                "event-reregister-after-open",
                "event-reregister-closed-endpoint",
                "event-reregister-in-flight",
                "event-reregister-joins-again",
                "event-reregister-twice",
                "perf-monotonic",
                "sa-refresh-unconstrained",
                "sa-burst",
                "lifecycle-core-thread",
            ],
        }),
    },
    Check {
        name: "event-reregister-joins-again",
        rule: "after IBV_EVENT_CLIENT_REREGISTER the provider joins its multicast groups again: the new SM does not know its memberships",
        harmed: Harmed::Node,
        how: "compares the groups joined after the event with those joined before",
        needs: OPENS,
        run: |fixture| {
            let (core, _) = fixture.up()?;
            let groups = joined(core)?;
            reregister(core);
            core.settle();
            let again = groups_of(&core.sa().requests()[groups.1..]);
            if groups.0.iter().all(|group| again.contains(group)) {
                Ok(())
            } else {
                Err(failed(
                    format!("joins of {} groups", groups.0.len()),
                    format!("{}", again.len()),
                ))
            }
        },
        fault: fault!(Fault {
            replace: &[("\tep->joined = false;\n", "")],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "event-reregister-in-flight",
        rule: "requests whose queries are outstanding during a reregistration get their answers",
        harmed: Harmed::Client,
        how: "sends the event while three queries are outstanding, and compares their clients' paths",
        needs: SERVES,
        run: in_flight,
        fault: fault!(Fault {
            replace: &[(
                "\t\t\tif (path->busy)\n\t\t\t\tpath->outdated = true;\n\t\t\telse\n\t\t\t\tfree_path(path);\n",
                "\t\t\tfree_path(path);\n",
            )],
            status: &[Status::Failed],
            also: &["sa-burst"],
        }),
    },
    Check {
        name: "event-reregister-twice",
        rule: "a second reregistration while the joins of the first are outstanding does no harm",
        harmed: Harmed::Daemon,
        how: "sends the event twice while joins are outstanding, lets the SA respond, and resolves a peer",
        needs: SERVES,
        run: twice,
        fault: fault!(Fault {
            replace: &[(
                "\tforget(&ep->join);\n\tep->joined = false;\n",
                "\tif (ep->join)\n\t\tabort();\n\tep->joined = false;\n",
            )],
            status: &[Status::Crashed],
            also: &["event-reregister-after-open"],
        }),
    },
    Check {
        name: "event-reregister-after-open",
        rule: "a reregistration right after open does no harm",
        harmed: Harmed::Daemon,
        how: "sends the event right after a port opens, and right after an address is added, and resolves a peer",
        needs: SERVES,
        run: |fixture| {
            let core = fixture.core()?;
            core.port_up(FIRST_PORT).map_err(refused)?;
            reregister(core);
            let from = core
                .add_address(FIRST_PORT, 0xffff, &Addr::Name("self".into()))
                .map_err(refused)?;
            reregister(core);
            core.settle();
            serves(core, from, 3)
        },
        fault: fault!(Fault {
            replace: &[(
                "\tif (type != IBV_EVENT_CLIENT_REREGISTER)\n\t\treturn 0;\n",
                "\tif (type != IBV_EVENT_CLIENT_REREGISTER)\n\t\treturn 0;\n\tif (LIST_EMPTY(&port->endpoints))\n\t\tabort();\n",
            )],
            status: &[Status::Crashed],
            also: &[],
        }),
    },
    Check {
        name: "event-reregister-closed-endpoint",
        rule: "a reregistration does not touch endpoints that were closed with an earlier opening of the port",
        harmed: Harmed::Daemon,
        how: "opens two endpoints, closes them, opens one, sends the event, and resolves a peer",
        needs: SERVES,
        run: closed_endpoint,
        fault: fault!(Fault {
            replace: &[
                (
                    "static uint32_t last_tid;\n",
                    "static uint32_t last_tid;\nstatic struct endpoint *opened[4096];\nstatic int opened_count;\n",
                ),
                (
                    "\t*ep_context = ep;\n",
                    "\topened[opened_count++ % 4096] = ep;\n\t*ep_context = ep;\n",
                ),
                (
                    "\tLIST_FOREACH(ep, &port->endpoints, entry) {\n\t\tdrop_paths(ep);\n\t\tjoin_anew(ep, now_ms());\n",
                    "\tfor (int i = 0; i < opened_count; i++) {\n\t\tep = opened[i];\n\t\tdrop_paths(ep);\n\t\tjoin_anew(ep, now_ms());\n",
                ),
                (
                    "\tpthread_mutex_unlock(&lock);\n\tfree(ep);\n\tsend_answers(&done);\n",
                    "\tpthread_mutex_unlock(&lock);\n\tmemset(ep, 0xdb, sizeof *ep);\n\tsend_answers(&done);\n",
                ),
            ],
            status: &[Status::Crashed],
            also: &["lifecycle-reopen-thousand", "lifecycle-core-thread"],
        }),
    },
    Check {
        name: "event-join-refused",
        rule: "if the SA refuses a join, requests that need only the SA still work",
        harmed: Harmed::Client,
        how: "lets the SA refuse every join, and resolves a peer",
        needs: SERVES,
        run: join_refused,
        fault: fault!(Fault {
            replace: &[(
                "status = read_resolve(ep, msg, request, &wanted, &by_address, &nodelay);",
                "status = ep->port->dev->join && !ep->joined ? ACM_STATUS_ENODATA :\n\t\tread_resolve(ep, msg, request, &wanted, &by_address, &nodelay);",
            )],
            status: &[Status::Failed],
            also: &["lifecycle-reopen-thousand", "sa-burst"],
        }),
    },
    Check {
        name: "event-join-after-close",
        rule: "a join response after its endpoint was closed touches nothing",
        harmed: Harmed::Daemon,
        how: "closes the port while joins are outstanding, answers them, opens the port, and resolves a peer",
        needs: SERVES,
        run: join_after_close,
        fault: fault!(Fault {
            replace: &[
                (
                    "\twhile (!LIST_EMPTY(&port->queries))\n\t\tend_query(LIST_FIRST(&port->queries));\n",
                    "",
                ),
                (
                    "\tpthread_mutex_lock(&lock);\n\tforget(&ep->join);\n\tfor (i = 0;",
                    "\tpthread_mutex_lock(&lock);\n\tfor (i = 0;",
                ),
                (
                    "\tpthread_mutex_unlock(&lock);\n\tfree(ep);\n\tsend_answers(&done);\n",
                    "\tpthread_mutex_unlock(&lock);\n\tmemset(ep, 0xdb, sizeof *ep);\n\tsend_answers(&done);\n",
                ),
            ],
            status: &[Status::Crashed],
            also: &[
                "lifecycle-reopen-thousand",
                "lifecycle-close-in-flight",
                "lifecycle-closed-memory",
                "sa-after-reopen",
            ],
        }),
    },
    Check {
        name: "event-unknown",
        rule: "unknown events do no harm",
        harmed: Harmed::Daemon,
        how: "sends nine events of other types and resolves a peer",
        needs: SERVES,
        run: |fixture| {
            let (core, from) = fixture.up()?;
            for event in [0, 9, 10, 11, 12, 18, 19, 9999, u32::MAX] {
                core.event(FIRST_PORT, event);
            }
            core.settle();
            serves(core, from, 3)
        },
        fault: fault!(Fault {
            replace: &[(
                "\tif (type != IBV_EVENT_CLIENT_REREGISTER)\n\t\treturn 0;\n",
                "\tif (type != IBV_EVENT_CLIENT_REREGISTER)\n\t\tabort();\n",
            )],
            status: &[Status::Crashed],
            also: &[],
        }),
    },
    Check {
        name: "event-lid-change",
        rule: "after a reopen with another LID, no answer has the old SLID",
        harmed: Harmed::Client,
        how: "opens the port with another LID and compares the SLID of paths that were cached before",
        needs: &[
            Ability::AnswersByLid,
            Ability::AnswersByGid,
            Ability::Closes,
        ],
        run: lid_change,
        fault: fault!(Fault {
            replace: &[(
                "\tif (path)\n\t\trequest->path = *path;\n",
                "\tif (path) {\n\t\tstatic __be16 slid;\n\n\t\tif (!slid)\n\t\t\tslid = path->slid;\n\t\trequest->path = *path;\n\t\trequest->path.slid = slid;\n\t}\n",
            )],
            status: &[Status::Failed],
            also: &[
                "lifecycle-address-moved",
                "lifecycle-shared-node-guid",
                "lifecycle-two-devices",
                "lifecycle-two-ports",
            ],
        }),
    },
    Check {
        name: HOSTS_UNREADABLE,
        rule: "if the hosts file changes while it cannot be opened, the provider reads it once it can, without another change",
        harmed: Harmed::Operator,
        how: "replaces the hosts file while the process has no free descriptor, and checks that the provider reads it once it has",
        needs: OPENS,
        run: hosts::unreadable,
        fault: fault!(Fault {
            replace: &[(
                "\tfresh = calloc(1, sizeof *fresh);\n",
                "\tdev->hosts_state = state;\n\tfresh = calloc(1, sizeof *fresh);\n",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
];

fn serves(core: &mut StandIn, from: AddressId, number: u16) -> Outcome {
    let peer = Peer::number(number);
    let answer = resolve(core, from, &by_lid(&peer))?;
    expect_path(&answer, &expected_path(core, &peer))
}

/// Ignores the return value of handle_event, as the core does.
fn reregister(core: &mut StandIn) {
    core.reregister(FIRST_PORT);
}

/// Returns the MGIDs of joins.
fn groups_of(questions: &[SaRequest]) -> Vec<[u8; 16]> {
    questions
        .iter()
        .filter(|question| question.is_join())
        .map(|question| std::array::from_fn(|index| question.record[index]))
        .collect()
}

/// Returns the groups that the provider has joined, and the number of MADs so far.
fn joined(core: &StandIn) -> Result<(Vec<[u8; 16]>, usize), Finding> {
    core.settle();
    let questions = core.sa().requests();
    let groups = groups_of(&questions);
    if groups.is_empty() {
        Err(no_groups())
    } else {
        Ok((groups, questions.len()))
    }
}

fn no_groups() -> Finding {
    Finding::Skipped("the provider joins no multicast group".into())
}

fn in_flight(fixture: &mut Fixture) -> Outcome {
    let (core, from) = fixture.up_with(&["sa_depth 8"])?;
    let peers: Vec<Peer> = (3..=5).map(Peer::number).collect();
    core.sa().script(|question| {
        if question.is_path_query() {
            Reaction::Hold
        } else {
            Reaction::Answer
        }
    });
    let before = core.sa().path_queries().len();
    let ids: Vec<u64> = peers
        .iter()
        .map(|peer| core.resolve_from(from, &by_lid(peer)))
        .collect();
    core.path_queries(before + peers.len());
    core.sa().script(|_| Reaction::Answer);
    let held = core.sa().path_queries();
    reregister(core);
    for question in held {
        core.sa().release(question.number, Reaction::Answer);
    }
    for (id, peer) in ids.into_iter().zip(&peers) {
        expect_path(&reply(core, id)?, &expected_path(core, peer))?;
    }
    core.settle();
    serves(core, from, 3)
}

fn twice(fixture: &mut Fixture) -> Outcome {
    let (core, from) = fixture.up()?;
    core.settle();
    core.sa().script(|question| {
        if question.is_join() {
            Reaction::Hold
        } else {
            Reaction::Answer
        }
    });
    let before = core.sa().requests().len();
    for _ in 0..2 {
        reregister(core);
    }
    std::thread::sleep(QUIET);
    core.sa().script(|_| Reaction::Answer);
    for question in &core.sa().requests()[before..] {
        core.sa().release(question.number, Reaction::Answer);
    }
    core.settle();
    serves(core, from, 3)
}

fn closed_endpoint(fixture: &mut Fixture) -> Outcome {
    let mut device = DeviceSpec::single();
    device.ports[0].pkeys = vec![0xffff, 0x8001];
    let core = fixture.core_with(vec![device], &[])?;
    let open = |core: &mut StandIn, pkeys: &[u16]| -> Result<AddressId, Finding> {
        core.port_up(FIRST_PORT).map_err(refused)?;
        let mut last = None;
        for pkey in pkeys {
            let name = Addr::Name(format!("self{pkey:x}"));
            last = Some(
                core.add_address(FIRST_PORT, *pkey, &name)
                    .map_err(refused)?,
            );
        }
        core.settle();
        last.ok_or_else(|| failed("an address", "none"))
    };
    open(core, &[0x8001, 0xffff])?;
    core.port_down(FIRST_PORT);
    core.change_port(FIRST_PORT, |port| port.pkeys = vec![0xffff]);
    let from = open(core, &[0xffff])?;
    reregister(core);
    core.settle();
    serves(core, from, 3)
}

fn join_refused(fixture: &mut Fixture) -> Outcome {
    let core = fixture.core()?;
    core.sa().script(|question| {
        if question.is_join() {
            Reaction::Status(0x0700)
        } else {
            Reaction::Answer
        }
    });
    let from = core.up(FIRST_PORT).map_err(refused)?;
    core.settle();
    if groups_of(&core.sa().requests()).is_empty() {
        return Err(no_groups());
    }
    serves(core, from, 3)
}

fn join_after_close(fixture: &mut Fixture) -> Outcome {
    let core = fixture.core()?;
    core.sa().script(|question| {
        if question.is_join() {
            Reaction::Hold
        } else {
            Reaction::Answer
        }
    });
    core.up(FIRST_PORT).map_err(refused)?;
    std::thread::sleep(QUIET);
    let joins: Vec<usize> = core
        .sa()
        .requests()
        .iter()
        .filter(|question| question.is_join())
        .map(|question| question.number)
        .collect();
    if joins.is_empty() {
        return Err(no_groups());
    }
    core.port_down(FIRST_PORT);
    core.sa().script(|_| Reaction::Answer);
    core.sa().set_down(usize::from(FIRST_PORT.port), false);
    for number in joins {
        core.sa().release(number, Reaction::Answer);
    }
    core.settle();
    let from = core.up(FIRST_PORT).map_err(refused)?;
    core.settle();
    serves(core, from, 3)
}

fn lid_change(fixture: &mut Fixture) -> Outcome {
    let (core, from) = fixture.up()?;
    let peers: Vec<Peer> = (3..=6).map(Peer::number).collect();
    let own = Message::path(&Path::default().with_dgid(core.port(FIRST_PORT).gid()));
    for peer in &peers {
        resolve(core, from, &by_lid(peer))?;
    }
    resolve(core, from, &own)?;
    let old = core.port(FIRST_PORT).lid;
    core.port_down(FIRST_PORT);
    core.change_port(FIRST_PORT, |port| port.lid = 77);
    let from = core.up(FIRST_PORT).map_err(refused)?;
    core.settle();
    for message in peers.iter().map(by_lid).chain([own]) {
        let answer = resolve(core, from, &message)?;
        let Some(path) = answer.path().filter(|_| answer.status == SUCCESS) else {
            return Err(failed("a path", format!("{answer:?}")));
        };
        if path.slid() == old {
            return Err(failed("SLID 77", format!("{path:?}")));
        }
    }
    Ok(())
}
