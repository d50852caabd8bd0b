//! Checks of the family `perf`: an endpoint's counters, and the core's counters that a provider increments.

use crate::suite::ability::{Ability, OPENS, SERVES};
use std::time::{Duration, Instant};

use super::fixture::{
    Fixture, HASTY, able, by_addr, by_gid, by_lid, refused, reply, resolve, serves,
};
use super::{Check, Finding, Outcome, failed};
use crate::stand_in::fabric::{DeviceSpec, Peer};
use crate::stand_in::ledger::Harmed;
use crate::stand_in::message::{Addr, Message, Path};
use crate::stand_in::sa::Reaction;
use crate::stand_in::{AddressId, FIRST_PORT, StandIn};
use crate::words;

/// The counters in the order of acm.h.
const NAMES: [&str; 7] = [
    "error",
    "resolve",
    "no data",
    "address query",
    "address cache",
    "route query",
    "route cache",
];
const ERROR: usize = 0;
const RESOLVE: usize = 1;
const NO_DATA: usize = 2;
const ADDRESS_CACHE: usize = 4;
const ROUTE_QUERY: usize = 5;
const ROUTE_CACHE: usize = 6;

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "perf-count",
        rule: "query_perf reports at most 7 counters, and writes nothing beyond the reported ones",
        harmed: Harmed::Daemon,
        how: "compares the count that query_perf reports with the values that it wrote",
        needs: SERVES,
        run: count,
        fault: fault!(Fault {
            replace: &[(
                "\t*cnt = ACM_MAX_COUNTER;\n",
                "\tvalues[ACM_MAX_COUNTER] = 0;\n\t*cnt = ACM_MAX_COUNTER + 1;\n",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "perf-byte-order",
        rule: "counters are big-endian",
        harmed: Harmed::Operator,
        how: "reads the counters after a few requests and rejects large numbers",
        needs: SERVES,
        run: |fixture| {
            let (core, from) = fixture.up()?;
            work(core, from)?;
            let values = counters(core, from)?;
            // The counts are small, so never multiples of 2^32.
            match values.iter().find(|value| **value > u64::from(u32::MAX)) {
                None => Ok(()),
                Some(value) => Err(failed("small numbers, big-endian", format!("{value:#x}"))),
            }
        },
        fault: fault!(Fault {
            replace: &[(
                "values[i] = htobe64(ep->counters[i]);",
                "values[i] = ep->counters[i];",
            )],
            status: &[Status::Failed],
            also: &[
                "perf-resolve",
                "perf-no-data",
                "perf-error",
                "perf-route-query",
                "perf-route-cache",
                "perf-address-cache",
                "perf-class-port-info",
            ],
        }),
    },
    Check {
        name: "perf-monotonic",
        rule: "no counter decreases while its endpoint is open",
        harmed: Harmed::Operator,
        how: "reads the counters after requests, a reregistration, and an address that is added and removed",
        needs: &[Ability::AnswersByLid, Ability::Reregisters, Ability::Closes],
        run: monotonic,
        fault: fault!(Fault {
            replace: &[(
                "\t\tdrop_paths(ep);\n\t\tjoin_anew(ep, now_ms());\n",
                "\t\tdrop_paths(ep);\n\t\tmemset(ep->counters, 0, sizeof ep->counters);\n\t\tjoin_anew(ep, now_ms());\n",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "perf-resolve",
        rule: "every resolve counts once as a resolve",
        harmed: Harmed::Operator,
        how: "sends three requests and reads the endpoint's counter",
        needs: SERVES,
        run: |fixture| {
            counted(fixture, RESOLVE, 3, |core, from| {
                for message in [
                    by_lid(&Peer::number(3)),
                    by_lid(&Peer::number(3)),
                    nowhere(),
                ] {
                    resolve(core, from, &message)?;
                }
                Ok(())
            })
        },
        fault: fault!(Fault {
            replace: &[(
                "\tep->counters[ACM_CNTR_RESOLVE]++;\n\tstatus = read_resolve(ep, msg, request, &wanted, &by_address, &nodelay);\n",
                "\tstatus = read_resolve(ep, msg, request, &wanted, &by_address, &nodelay);\n\tep->counters[ACM_CNTR_RESOLVE] += by_address;\n",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "perf-no-data",
        rule: "every ENODATA answer counts once as no data",
        harmed: Harmed::Operator,
        how: "sends one request for an unknown destination and one for a known one, and reads the endpoint's counter",
        needs: SERVES,
        run: |fixture| {
            counted(fixture, NO_DATA, 1, |core, from| {
                resolve(core, from, &nowhere())?;
                resolve(core, from, &by_lid(&Peer::number(3)))?;
                Ok(())
            })
        },
        fault: fault!(Fault {
            replace: &[(
                "\t\tep->counters[ACM_CNTR_NODATA]++;\n",
                "\t\tep->counters[ACM_CNTR_ERROR]++;\n",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "perf-error",
        rule: "every answer with another error than ENODATA counts once as an error",
        harmed: Harmed::Operator,
        how: "sends a request while the SA is silent and reads the endpoint's counter",
        needs: SERVES,
        run: |fixture| {
            counted(fixture, ERROR, 1, |core, from| {
                core.sa().script(|question| {
                    if question.is_path_query() {
                        Reaction::Silence
                    } else {
                        Reaction::Answer
                    }
                });
                resolve(core, from, &by_lid(&Peer::number(3)))?;
                Ok(())
            })
        },
        fault: fault!(Fault {
            replace: &[(
                "\t\tep->counters[ACM_CNTR_ERROR]++;\n",
                "\t\tep->counters[ACM_CNTR_NODATA]++;\n",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "perf-route-query",
        rule: "every path query to the SA counts once as a route query, in the endpoint's counters and in the core's",
        harmed: Harmed::Operator,
        how: "sends two requests and a query, and reads the endpoint's and the core's counters",
        needs: &[
            Ability::AnswersByLid,
            Ability::AnswersByGid,
            Ability::AnswersQuery,
            Ability::Closes,
        ],
        run: |fixture| {
            counted(fixture, ROUTE_QUERY, 3, |core, from| {
                resolve(core, from, &by_lid(&Peer::number(3)))?;
                resolve(core, from, &by_gid(&Peer::number(4)))?;
                let asked = Path::default()
                    .with_sgid(core.port(FIRST_PORT).gid())
                    .with_dgid(Peer::number(5).gid());
                let id = core.query_from(from, &Message::query(&asked));
                reply(core, id)?;
                Ok(())
            })
        },
        fault: fault!(Fault {
            replace: &[(
                "\t\tcount_both(path->ep, ACM_CNTR_ROUTE_QUERY);\n",
                "\t\tpath->ep->counters[ACM_CNTR_ROUTE_QUERY]++;\n",
            )],
            status: &[Status::Failed],
            also: &["perf-class-port-info"],
        }),
    },
    Check {
        name: "perf-class-port-info",
        rule: "a query for the SA's ClassPortInfo does not count as a route query",
        harmed: Harmed::Operator,
        how: "sends a request for a service and reads the endpoint's and the core's counters",
        needs: &[Ability::AnswersByGid, Ability::Closes],
        run: |fixture| {
            counted(fixture, ROUTE_QUERY, 1, |core, from| {
                let asked = Path::default()
                    .with_dgid(Peer::number(3).gid())
                    .with_service_id(7);
                let answer = resolve(core, from, &Message::path(&asked))?;
                able(core, &answer, "paths for a service")
            })
        },
        fault: fault!(Fault {
            replace: &[(
                "\tif (!port->qos_query)\n\t\tdecide_qos(port, false, false, done);\n",
                "\tif (!port->qos_query)\n\t\tdecide_qos(port, false, false, done);\n\telse\n\t\tcount_both(ep, ACM_CNTR_ROUTE_QUERY);\n",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "perf-route-cache",
        rule: "every path from the cache counts once in the route cache, in the endpoint's counters and in the core's",
        harmed: Harmed::Operator,
        how: "sends three requests for one peer and reads the endpoint's and the core's counters",
        needs: SERVES,
        run: |fixture| {
            counted(fixture, ROUTE_CACHE, 2, |core, from| {
                let asked = core.sa().path_queries().len();
                for _ in 0..3 {
                    resolve(core, from, &by_lid(&Peer::number(3)))?;
                }
                if core.sa().path_queries().len() == asked + 1 {
                    Ok(())
                } else {
                    Err(Finding::Skipped("the provider keeps no paths".into()))
                }
            })
        },
        fault: fault!(Fault {
            replace: &[(
                "\t\t\tcount_both(ep, ACM_CNTR_ROUTE_CACHE);\n",
                "\t\t\tacm_increment_counter(ACM_CNTR_ROUTE_CACHE);\n",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "perf-address-cache",
        rule: "every request for a known address counts once in the address cache, in the endpoint's counters and in the core's",
        harmed: Harmed::Operator,
        how: "resolves an IP address of the hosts file and reads the endpoint's and the core's counters",
        needs: OPENS,
        run: |fixture| {
            counted(fixture, ADDRESS_CACHE, 1, |core, from| {
                let own = core.address(from).clone();
                let message = by_addr(&own, &Addr::Ip(Peer::number(3).ip));
                let answer = resolve(core, from, &message)?;
                able(core, &answer, "IPv4 addresses")
            })
        },
        fault: fault!(Fault {
            replace: &[(
                "\t\tif (by_address)\n\t\t\tcount_both(ep, ACM_CNTR_ADDR_CACHE);\n",
                "",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "perf-endpoints",
        rule: "every endpoint has its own counters",
        harmed: Harmed::Operator,
        how: "sends requests to one endpoint and compares another's counters",
        needs: SERVES,
        run: endpoints,
        fault: fault!(Fault {
            replace: &[(
                "\tfor (i = 0; i < ACM_MAX_COUNTER; i++)\n\t\tvalues[i] = htobe64(ep->counters[i]);\n",
                "\tstruct endpoint *any;\n\n\tmemset(values, 0, ACM_MAX_COUNTER * sizeof *values);\n\tLIST_FOREACH(any, &ep->port->endpoints, entry)\n\t\tfor (i = 0; i < ACM_MAX_COUNTER; i++)\n\t\t\tvalues[i] = htobe64(be64toh(values[i]) + any->counters[i]);\n",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
];

fn nowhere() -> Message {
    Message::path(&Path::default().with_dlid(0x0bad))
}

/// Requests a path from the SA, from the cache, and an unknown one.
fn work(core: &mut StandIn, from: AddressId) -> Outcome {
    let peer = Peer::number(3);
    for _ in 0..2 {
        serves(core, from, &peer)?;
    }
    resolve(core, from, &nowhere())?;
    Ok(())
}

/// Returns the counters of an address's endpoint.
fn counters(core: &mut StandIn, from: AddressId) -> Result<Vec<u64>, Finding> {
    let (count, mut values) = core
        .query_perf(from.port, from.pkey)
        .ok_or_else(|| failed("an endpoint", "none"))?;
    if count == 0 {
        return Err(Finding::Skipped("the provider counts nothing".into()));
    }
    values.truncate(count.into());
    Ok(values)
}

fn count(fixture: &mut Fixture) -> Outcome {
    let (core, from) = fixture.up()?;
    work(core, from)?;
    let (count, values) = core
        .query_perf(from.port, from.pkey)
        .ok_or_else(|| failed("an endpoint", "none"))?;
    if usize::from(count) > NAMES.len() {
        return Err(failed(
            format!("at most {} counters", NAMES.len()),
            format!("{count}: ib_acme reads past its table of names"),
        ));
    }
    let untouched = StandIn::UNTOUCHED;
    let written = values
        .iter()
        .rposition(|value| *value != untouched)
        .map_or(0, |last| last + 1);
    if written == usize::from(count) {
        Ok(())
    } else {
        Err(failed(
            format!("{count} values written, as reported"),
            format!("{written}"),
        ))
    }
}

fn monotonic(fixture: &mut Fixture) -> Outcome {
    let (core, from) = fixture.up()?;
    let mut before = counters(core, from)?;
    for round in 0..4 {
        match round {
            0 | 2 => work(core, from)?,
            1 => {
                core.reregister(FIRST_PORT);
                core.settle();
            }
            _ => {
                let address = Addr::Name("another".into());
                let added = core
                    .add_address(FIRST_PORT, from.pkey, &address)
                    .map_err(refused)?;
                core.remove_address(added);
            }
        }
        let after = counters(core, from)?;
        if let Some(index) = (0..before.len()).find(|index| after.get(*index) < before.get(*index))
        {
            return Err(failed(
                format!("{} at {} or more", NAMES[index], before[index]),
                format!("{:?}", after.get(index)),
            ));
        }
        before = after;
    }
    Ok(())
}

/// Acts several times and expects one counter to grow by that number: the endpoint's, and the core's if the provider counts
/// it.
fn counted(
    fixture: &mut Fixture,
    counter: usize,
    times: u64,
    what: fn(&mut StandIn, AddressId) -> Outcome,
) -> Outcome {
    let (core, from) = fixture.up_with(HASTY)?;
    let count = |values: &[u64]| values.get(counter).copied();
    let Some(own_before) = count(&counters(core, from)?) else {
        return Err(Finding::Skipped(format!(
            "the provider has no counter for {}",
            NAMES[counter]
        )));
    };
    let core_before = core.counters()[counter];
    what(core, from)?;
    core.settle();
    // The provider may count right after the answer.
    let deadline = Instant::now() + Duration::from_secs(1);
    loop {
        let own = count(&counters(core, from)?)
            .unwrap_or(0)
            .wrapping_sub(own_before);
        let cores = core.counters()[counter] - core_before;
        // The core counts the first three itself.
        if own == times && (counter <= NO_DATA || cores == times) {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(failed(
                format!("{} counted {}", NAMES[counter], words::times(times)),
                format!(
                    "{} in the endpoint's counters, {} in the core's",
                    words::times(own),
                    words::times(cores)
                ),
            ));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn endpoints(fixture: &mut Fixture) -> Outcome {
    const OTHER: u16 = 0x8001;
    let mut device = DeviceSpec::single();
    device.ports[0].pkeys.push(OTHER);
    let core = fixture.core_with(vec![device], &[])?;
    let busy = core.up(FIRST_PORT).map_err(refused)?;
    let idle = core
        .add_address(FIRST_PORT, OTHER, &Addr::Ip([10, 1, 0, 2].into()))
        .map_err(refused)?;
    core.settle();
    let before = counters(core, idle)?;
    work(core, busy)?;
    let after = counters(core, idle)?;
    if before == after {
        Ok(())
    } else {
        Err(failed(
            format!("{before:?} on the idle endpoint"),
            format!("{after:?}"),
        ))
    }
}
