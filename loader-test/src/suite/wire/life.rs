//! Checks of the protocol across reregistrations and closes.

use crate::suite::ability::OPENS;
use std::time::{Duration, Instant};

use super::line::{line, own_name, shown, stranger};
use crate::stand_in::FIRST_PORT;
use crate::stand_in::ledger::Harmed;
use crate::suite::fixture::{Fixture, refused};
use crate::suite::{Check, Outcome, failed};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "wire-reregister",
        rule: "after a reregistration, which ends all memberships, the port joins again and answers",
        harmed: Harmed::Node,
        how: "sends the event three times, and sends the group a request for the port's name after each",
        needs: OPENS,
        run: reregister,
        fault: fault!(Fault {
            replace: &[(
                "\treturn handle_event(port_context, type);\n",
                "\tstruct port *port = port_context;\n\tstruct endpoint *ep;\n\n\tpthread_mutex_lock(&lock);\n\tLIST_FOREACH(ep, &port->endpoints, entry)\n\t\tdrop_paths(ep);\n\tpthread_mutex_unlock(&lock);\n\treturn 0;\n",
            )],
            status: &[Status::Failed],
            also: &["event-reregister-joins-again"],
        }),
    },
    Check {
        name: "wire-reopen",
        rule: "a reopened port answers as before",
        harmed: Harmed::Node,
        how: "closes and opens the port three times, and sends the group a request for the port's name after each",
        needs: OPENS,
        run: reopen,
        fault: fault!(Fault {
            replace: &[(
                "\t\tep->send_join = join_group;\n",
                "\t\tstatic bool was_open;\n\n\t\tif (!was_open)\n\t\t\tep->send_join = join_group;\n\t\twas_open = true;\n",
            )],
            status: &[Status::Failed],
            also: &["wire-partition"],
        }),
    },
    Check {
        name: "wire-pair-broken",
        rule: "if a failed work request puts the queue pair into the error state, the provider recovers or replaces it",
        harmed: Harmed::Node,
        how: "puts the queue pair into the error state three times, and sends the group a request for the port's name after each",
        needs: OPENS,
        run: pair_broken,
        fault: fault!(Fault {
            replace: &[(
                "\t\tif (wc.status != IBV_WC_SUCCESS)\n\t\t\trevive(group);\n",
                "",
            )],
            status: &[Status::Failed],
            also: &[],
        }),
    },
    Check {
        name: "wire-close",
        rule: "a closed endpoint answers no node: its queue pair is gone",
        harmed: Harmed::Node,
        how: "closes the port, and sends requests to the group and to the port's former queue pair",
        needs: OPENS,
        run: close,
        fault: fault!(Fault {
            replace: &[("\tif (group->qp)\n\t\tibv_destroy_qp(group->qp);\n", "")],
            status: &[Status::Failed],
            also: &["lifecycle-reopen-thousand", "process-descriptors"],
        }),
    },
];

fn reregister(fixture: &mut Fixture) -> Outcome {
    let line = line(fixture, &[])?;
    for _ in 0..3 {
        line.core.reregister(FIRST_PORT);
        line.core.settle();
        line.fence()?;
    }
    Ok(())
}

fn reopen(fixture: &mut Fixture) -> Outcome {
    let line = line(fixture, &[])?;
    for _ in 0..3 {
        line.core.port_down(FIRST_PORT);
        line.core.up(FIRST_PORT).map_err(refused)?;
        line.core.settle();
        line.fence()?;
    }
    Ok(())
}

fn pair_broken(fixture: &mut Fixture) -> Outcome {
    let line = line(fixture, &["recv_depth 8"])?;
    let mut qpn = line.qpn;
    for number in 1..=3 {
        if !line.wire.break_queue_pair(qpn) {
            return Err(failed("a queue pair that answered", "none of its number"));
        }
        // The provider may have replaced the queue pair.
        qpn = line.probe(number)?.source_qp;
    }
    line.fence()
}

fn close(fixture: &mut Fixture) -> Outcome {
    let line = line(fixture, &[])?;
    line.core.port_down(FIRST_PORT);
    // Another thread may do it.
    let deadline = Instant::now() + line.core.patience;
    while line.wire.queue_pairs() > 0 {
        if Instant::now() > deadline {
            let seen = format!("{} queue pairs", line.wire.queue_pairs());
            return Err(failed("none after the port was closed", seen));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    line.wire.take();
    let tid = line.tid();
    let request = line.request(tid, &stranger(1), &own_name());
    line.multicast(&stranger(1), &request.0);
    line.unicast(&stranger(1), &request.0);
    let sent = line.wire.take();
    if sent.is_empty() {
        Ok(())
    } else {
        Err(failed("silence after the port was closed", shown(&sent)))
    }
}
