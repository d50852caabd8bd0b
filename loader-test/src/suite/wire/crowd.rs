//! Checks with more requests from other nodes than a provider keeps.

use crate::suite::ability::OPENS;
use std::time::Instant;

use super::line::{ASK_AGAIN, Line, asks_for, line, mad, own_name, stranger};
use crate::stand_in::fabric::{Peer, gid};
use crate::stand_in::ledger::Harmed;
use crate::stand_in::message::{Addr, Gid};
use crate::stand_in::sa::Reaction;
use crate::stand_in::wire::{AcmMad, Node, Wire, shared_group};
use crate::suite::fixture::{Fixture, let_go};
use crate::suite::{Check, Outcome};

pub(super) const CHECKS: &[Check] = &[Check {
    name: "wire-awaited-in-a-crowd",
    rule: "while a client waits for an address, a request from the owner resolves it, even if the provider's table of unanswered requests is full",
    harmed: Harmed::Client,
    how: "sends 900 requests that stay unanswered, and then a request from the owner of an address that a client waits for",
    needs: OPENS,
    run: awaited,
    fault: fault!(Fault {
        replace: &[(
            "\tif (!is_own_addr(group->ep, mad->dest_type, mad->dest))\n\t\treturn;\n",
            "\tstatic unsigned int kept;\n\tstruct lookup *lookup;\n\n\tif (!is_own_addr(group->ep, mad->dest_type, mad->dest))\n\t\treturn;\n\tif (++kept > 256) {\n\t\tLIST_FOREACH(lookup, &group->lookups, entry)\n\t\t\tif (same_addr(lookup->type, lookup->addr, mad->src_type, mad->src))\n\t\t\t\tlookup->deadline = 0;\n\t\treturn;\n\t}\n",
        )],
        status: &[Status::Failed],
        also: &["wire-*"],
    }),
}];

/// More requests than any provider keeps, but no more than it can receive at a time.
const CROWD: u16 = 900;

/// Returns a request for the port's name from a node that the SA does not know.
fn of_the_crowd(line: &Line<'_>, number: u16) {
    let source = Addr::Name(format!("crowd{number}"));
    let request = AcmMad::request(
        line.tid(),
        &own_name(),
        &source,
        &[shared_group(line.pkey())],
    );
    let node = Node {
        lid: 0x1000 + number,
        gid: gid(0x0e00_0000 + u64::from(number)),
        qpn: 0x2000 + u32::from(number),
    };
    line.wire
        .send(&Wire::to_group(&node, line.pkey(), &request.0));
}

fn awaited(fixture: &mut Fixture) -> Outcome {
    // Room for all SA queries and multicast requests at once, for providers that query the SA first.
    let options = ["recv_depth 1024", "sa_depth 2000", "resolve_depth 8"];
    let mut line = line(fixture, &options)?;
    let (owner, mark) = (stranger(1), stranger(2));
    let answered = [&owner, &mark].map(|peer| (peer.lid, peer.gid()));
    line.core.sa().script(move |question| {
        let path = question.path();
        let is_for = |(lid, gid): &(u16, Gid)| path.dlid() == *lid || path.dgid() == *gid;
        match question.is_path_query() && !answered.iter().any(is_for) {
            true => Reaction::Hold,
            false => Reaction::Answer,
        }
    });
    let client = line.client_asks(&Addr::Name(owner.name.clone()));
    let (_, asked) = line.request_for(&Addr::Name(owner.name.clone()))?;
    let fence = line.client_asks(&Addr::Name(mark.name.clone()));
    let (_, marked) = line.request_for(&Addr::Name(mark.name.clone()))?;
    (0..CROWD).for_each(|number| of_the_crowd(&line, number));
    // The provider handles datagrams in order: the second client's answer shows that it handled the owner's request.
    until_served(&line, fence, &mark, marked.tid(), || {
        line.ask(&owner, &own_name());
    })?;
    // The owner's response counts too: a provider need not learn from requests.
    until_served(&line, client, &owner, asked.tid(), || {})?;
    let_go(line.core);
    Ok(())
}

/// Responds to the provider's requests until the waiting client has its path.
fn until_served(
    line: &Line<'_>,
    client: u64,
    node: &Peer,
    mut tid: u64,
    before: impl Fn(),
) -> Outcome {
    let wanted = Addr::Name(node.name.clone());
    let deadline = Instant::now() + line.core.patience;
    while line.core.waited(client).is_none() && Instant::now() < deadline {
        before();
        line.answer(node, tid);
        let is_again = |sent: &_| asks_for(sent, &wanted);
        if let Some(again) = line.wire.wait(ASK_AGAIN, is_again) {
            tid = mad(&again).map_or(tid, |mad| mad.tid());
        }
    }
    line.expect_path_to(client, node)
}
