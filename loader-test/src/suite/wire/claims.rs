//! Checks of what other nodes' requests leave behind: claimed addresses, memory and log lines.

use crate::suite::ability::OPENS;
use std::time::Instant;

use super::line::{Line, line, own_ip, own_name, stranger};
use crate::stand_in::FIRST_PORT;
use crate::stand_in::fabric::Peer;
use crate::stand_in::ledger::Harmed;
use crate::stand_in::message::Addr;
use crate::stand_in::wire::{AcmMad, Node, Wire, shared_group};
use crate::suite::fixture::{Fixture, SUCCESS, able, expect_path, expected_path};
use crate::suite::{Check, Finding, Outcome, failed};

/// Name of the check that sends the most.
pub(in crate::suite) const FLOOD_MEMORY: &str = "wire-flood-memory";

/// The fault of both checks below: a request that claims an address of kind `$whose` gets it.
#[cfg(feature = "faults")]
macro_rules! believes {
    ($whose:literal) => {
        &[
            (
                "\tah = ibv_create_ah(group->pd, &attr);\n\tif (!ah)\n",
                concat!(
                    "\tstruct lookup claim = { .type = mad->src_type };\n\n\tmemcpy(claim.addr, mad->src, sizeof claim.addr);\n\tif (",
                    $whose,
                    ")\n\t\tremember(group, &claim, &grh->sgid);\n\tah = ibv_create_ah(group->pd, &attr);\n\tif (!ah)\n"
                ),
            ),
            (
                "\tstruct acm_ep_addr_data dest;\n\tstruct waiting *waiting;\n\tunion ibv_gid gid;\n",
                "\tstruct acm_ep_addr_data dest = { .type = 0 };\n\tstruct waiting *waiting;\n\tunion ibv_gid gid;\n",
            ),
            (
                "\tif (!is_for_others(source->ep, msg, &dest)) {\n",
                "\tif (!is_for_others(source->ep, msg, &dest) && !find_known(group_of(source->ep), dest.type, dest.info.addr)) {\n",
            ),
        ]
    };
}

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "wire-claims-own",
        rule: "a node that claims one of the port's addresses in a request does not take it over",
        harmed: Harmed::Client,
        how: "sends requests that claim the port's addresses, and lets a client resolve them",
        needs: OPENS,
        run: own_address,
        fault: fault!(Fault {
            replace: believes!("is_own_addr(group->ep, claim.type, claim.addr)"),
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "wire-claims-preloaded",
        rule: "a node that claims an address of the hosts file in a request does not take it over",
        harmed: Harmed::Client,
        how: "sends requests that claim addresses of the hosts file, and lets a client resolve them",
        needs: OPENS,
        run: preloaded,
        fault: fault!(Fault {
            replace: believes!("find_host(group->ep->port->dev, claim.type, claim.addr)"),
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: FLOOD_MEMORY,
        rule: "requests from ever more sources do not take ever more memory",
        harmed: Harmed::Daemon,
        how: "sends requests from ever more sources and compares the heap after each doubling; if time runs short, after the requests sent so far",
        needs: OPENS,
        run: flood_memory,
        fault: fault!(Fault {
            replace: &[(
                "\tif (!is_address_type(mad->src_type) || !is_address_type(mad->dest_type))\n\t\treturn;\n",
                "\tif (!is_address_type(mad->src_type) || !is_address_type(mad->dest_type))\n\t\treturn;\n\tstruct host *host = calloc(1, sizeof *host);\n\n\tif (host)\n\t\tSLIST_INSERT_HEAD(&group->known[0], host, entry);\n",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "wire-flood-log",
        rule: "a flood of invalid datagrams does not fill the log at level 0, which is always written",
        harmed: Harmed::Operator,
        how: "sends 2,000 invalid datagrams, and counts the log lines at level 0",
        needs: OPENS,
        run: flood_log,
        fault: fault!(Fault {
            replace: &[(
                "\tif (!is_well_formed(mad) || ",
                "\tif (!is_well_formed(mad))\n\t\tacm_log(0, \"an odd datagram\\n\");\n\tif (!is_well_formed(mad) || ",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "wire-log-names",
        rule: "control characters in names from other nodes do not reach the log, where they could forge lines",
        harmed: Harmed::Operator,
        how: "sends names with control characters in requests and in a response, and searches the log for them",
        needs: OPENS,
        run: log_names,
        fault: fault!(Fault {
            replace: &[(
                "\tif (!is_address_type(mad->src_type) || ",
                "\tacm_log(2, \"%.64s asks for %.64s\\n\", mad->src, mad->dest);\n\tif (!is_address_type(mad->src_type) || ",
            )],
            status: &[Status::Warned],
            also: &[],
        }),
    },
];

/// Sends requests in which a stranger claims another's address, for a local and for an unknown address.
fn claim(line: &Line<'_>, claimed: &Addr) -> Outcome {
    for wanted in [own_name(), Addr::Name("nobody".into())] {
        let tid = line.tid();
        let group = shared_group(line.pkey());
        let request = AcmMad::request(tid, &wanted, claimed, &[group]);
        line.multicast(&stranger(1), &request.0);
        line.fence()?;
    }
    Ok(())
}

fn own_address(fixture: &mut Fixture) -> Outcome {
    let mut line = line(fixture, &[])?;
    for own in [own_name(), own_ip()] {
        claim(&line, &own)?;
        let id = line.client_asks(&own);
        let answer = line.reply(id)?;
        let lid = line.core.port(FIRST_PORT).lid;
        let path = answer.path().unwrap_or_default();
        if answer.status != SUCCESS || path.dlid() != lid {
            let expected = format!("the path of the port to itself, DLID {lid}");
            return Err(failed(expected, format!("{answer:?}")));
        }
    }
    Ok(())
}

fn preloaded(fixture: &mut Fixture) -> Outcome {
    let mut line = line(fixture, &[])?;
    // One cached address, and one not yet cached.
    for (number, is_used) in [(3, true), (4, false)] {
        let peer = Peer::number(number);
        let name = Addr::Name(peer.name.clone());
        if is_used {
            let id = line.client_asks(&name);
            able(line.core, &line.reply(id)?, "names of an acm_hosts file")?;
        }
        claim(&line, &name)?;
        let id = line.client_asks(&name);
        expect_path(&line.reply(id)?, &expected_path(line.core, &peer))?;
    }
    Ok(())
}

/// Sources per window.
const WINDOW: usize = 4096;
/// Windows after which memory must have stopped growing.
const MOST_WINDOWS: usize = 32;
/// Requests to send before waiting for the provider.
const BURST: usize = 32;
/// Bytes that a window with as many sources as all before may take.
const ALLOWED: usize = 64 << 10;

fn flood_memory(fixture: &mut Fixture) -> Outcome {
    let ends = fixture.deadline();
    let line = line(fixture, &["log_level 0"])?;
    let mut number = 0;
    let mut windows = 0;
    let mut window = |line: &Line<'_>| -> Result<usize, Finding> {
        for _ in 0..WINDOW / BURST {
            for _ in 0..BURST {
                number += 1;
                send_from_source(line, number);
            }
            line.probe_within(line.core.patience);
            line.wire.take();
        }
        line.core.forget_history();
        Ok(heap())
    };
    let mut after = vec![window(&line)?];
    while windows < MOST_WINDOWS {
        // Double the number of requests.
        windows = after.len();
        if Instant::now() > ends {
            return match windows {
                // At the start caches still fill.
                1 | 2 => Ok(()),
                _ => Err(too_much(&after)),
            };
        }
        for _ in 0..windows {
            after.push(window(&line)?);
        }
        let (half, all) = (after[windows - 1], after[2 * windows - 1]);
        if all <= half + ALLOWED {
            return Ok(());
        }
    }
    Err(too_much(&after))
}

/// Fails if the second half of the sources took more memory than allowed.
fn too_much(after: &[usize]) -> Finding {
    let sources = after.len() * WINDOW;
    let (half, all) = (after[after.len() / 2 - 1], after[after.len() - 1]);
    failed(
        format!("bounded memory for {sources} sources"),
        format!("{} bytes for the second half of them", all - half),
    )
}

/// Returns a request for an unknown address, from a new node with a new address.
fn send_from_source(line: &Line<'_>, number: usize) {
    let source = Addr::Name(format!("flood{number}"));
    let group = shared_group(line.pkey());
    let nowhere = Addr::Name("nobody".into());
    let request = AcmMad::request(line.tid(), &nowhere, &source, &[group]);
    let node = Node {
        lid: 1 + (number % 0xbf00) as u16,
        gid: crate::stand_in::fabric::gid(0x0f00_0000 + number as u64),
        qpn: 0x2000 + number as u32 % 0xf00,
    };
    line.wire
        .send(&Wire::to_group(&node, line.pkey(), &request.0));
}

/// Returns the used bytes of this process's heap.
fn heap() -> usize {
    // SAFETY: fills a struct of numbers.
    let heap = unsafe { libc::mallinfo2() };
    heap.uordblks + heap.hblkhd
}

fn flood_log(fixture: &mut Fixture) -> Outcome {
    const SENT: usize = 2000;
    const MOST_LINES: usize = 100;
    let line = line(fixture, &[])?;
    let before = line.core.log().len();
    for index in 0..SENT {
        let request = line.request(line.tid(), &stranger(1), &own_name());
        // Invalid by control word, version or source.
        let odd = match index % 3 {
            0 => request.with(6, &[0x77]),
            1 => request.with(2, &[0x77]),
            _ => request.with(18, &[0x77]),
        };
        line.multicast(&stranger(1), &odd.0);
        if index % BURST == 0 {
            line.probe_within(line.core.patience);
        }
    }
    line.fence()?;
    let log = line.core.log();
    let lines: Vec<&String> = log[before..]
        .iter()
        .filter(|(level, _)| *level <= 0)
        .map(|(_, text)| text)
        .collect();
    if lines.len() <= MOST_LINES {
        return Ok(());
    }
    Err(failed(
        format!("at most {MOST_LINES} lines for {SENT} datagrams"),
        format!("{} lines at level 0, such as {:?}", lines.len(), lines[0]),
    ))
}

fn log_names(fixture: &mut Fixture) -> Outcome {
    let mut line = line(fixture, &[])?;
    let before = line.core.log().len();
    let forged = Addr::Name("forged\nacm_server: \u{1b}[2Jline".into());
    for wanted in [own_name(), forged.clone()] {
        let tid = line.tid();
        let group = shared_group(line.pkey());
        line.multicast(
            &stranger(1),
            &AcmMad::request(tid, &wanted, &forged, &[group]).0,
        );
    }
    // In a response too.
    let wanted = Addr::Name(stranger(2).name);
    let id = line.client_asks(&wanted);
    let (_, request) = line.request_for(&wanted)?;
    let odd = AcmMad::answer(request.tid(), &shared_group(line.pkey()))
        .with(16, &[1, 64])
        .with(24, &forged.field());
    line.unicast(&stranger(3), &odd.0);
    line.fence()?;
    line.answer(&stranger(2), request.tid());
    line.reply(id)?;
    let control = |text: &str| text.chars().any(char::is_control);
    let log = line.core.log();
    match log[before..].iter().find(|(_, text)| control(text)) {
        Some((_, text)) => Err(Finding::Warned(format!("in the log: {text:?}"))),
        None => Ok(()),
    }
}
