//! The SA's behaviour in the checks of this family, and the expected results.

use std::time::{Duration, Instant};

use crate::stand_in::fabric::Peer;
use crate::stand_in::message::{Message, Path};
use crate::stand_in::sa::{COMP_DLID, COMP_SGID, GET, PATH_RECORD, Reaction, SaRequest};
use crate::stand_in::{AddressId, FIRST_PORT, MadFaults, StandIn};
use crate::suite::fixture::{
    ELSEWHERE, ERRORS, Fixture, HASTY, QUIET, SUCCESS, by_gid, by_lid, expect_path, expect_status,
    expected_path, let_go, plain_path, reply, resolve,
};
use crate::suite::{Finding, Outcome, failed};

/// Sets the SA's reaction to path queries for one peer; it responds correctly to all others.
pub(super) fn only(peer: Peer, reaction: Reaction) -> impl FnMut(&SaRequest) -> Reaction + Send {
    move |question| {
        if asks_for(question, &peer) {
            reaction.clone()
        } else {
            Reaction::Answer
        }
    }
}

fn asks_for(question: &SaRequest, peer: &Peer) -> bool {
    question.is_path_query()
        && (question.path().dlid() == peer.lid || question.path().dgid() == peer.gid())
}

/// Returns the path queries for a peer so far.
fn asked_for(core: &StandIn, peer: &Peer) -> Vec<SaRequest> {
    core.sa()
        .path_queries()
        .into_iter()
        .filter(|question| asks_for(question, peer))
        .collect()
}

fn good_again(core: &mut StandIn, from: AddressId, peer: &Peer) -> Outcome {
    core.sa().script(|_| Reaction::Answer);
    let answer = resolve(core, from, &by_lid(peer))?;
    expect_path(&answer, &expected_path(core, peer))
}

/// Expects an error while the SA fails for a peer, and the path after the SA has recovered.
pub(super) fn refused_then_asked_again(
    fixture: &mut Fixture,
    reaction: &Reaction,
    statuses: &[u8],
) -> Outcome {
    let (core, from) = fixture.up_with(HASTY)?;
    let peer = Peer::number(3);
    core.sa().script(only(peer.clone(), reaction.clone()));
    let answer = resolve(core, from, &by_lid(&peer))?;
    expect_status(&answer, statuses)?;
    // The provider may still be retrying the query.
    core.sa().script(|_| Reaction::Answer);
    core.settle();
    good_again(core, from, &peer)
}

/// Expects an error while the core's functions fail, and no leaked MAD.
pub(super) fn core_fails_then_recovers(fixture: &mut Fixture, faults: MadFaults) -> Outcome {
    let (core, from) = fixture.up_with(HASTY)?;
    let peer = Peer::number(3);
    core.fail_mads(faults);
    let answer = resolve(core, from, &by_lid(&peer))?;
    expect_status(&answer, &ERRORS)?;
    core.fail_mads(MadFaults::default());
    if core.mads_held() > 0 {
        return Err(failed(
            "every MAD freed",
            format!("{} kept", core.mads_held()),
        ));
    }
    good_again(core, from, &peer)
}

/// Time limit for concurrent queries to reach the SA on a busy machine.
const AT_A_TIME: Duration = Duration::from_millis(1500);

pub(super) fn out_of_order(fixture: &mut Fixture) -> Outcome {
    let (core, from) = fixture.up_with(&["sa_depth 8"])?;
    let peers: Vec<Peer> = (3..=6).map(Peer::number).collect();
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
    let deadline = Instant::now() + AT_A_TIME;
    while core.sa().path_queries().len() < before + peers.len() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    let questions = core.sa().path_queries();
    let out = questions.len() - before;
    if out < peers.len() {
        // Check that the provider sends the other queries at all.
        let_go(core);
        for (id, peer) in ids.into_iter().zip(&peers) {
            expect_path(&reply(core, id)?, &expected_path(core, peer))?;
        }
        return Err(Finding::Skipped(format!(
            "the provider sends {out} of {} queries at a time, with sa_depth 8: responses cannot overtake each other",
            peers.len()
        )));
    }
    for index in [2, 0, 3, 1] {
        core.sa()
            .release(questions[before + index].number, Reaction::Answer);
        core.settle();
    }
    for (id, peer) in ids.into_iter().zip(&peers) {
        expect_path(&reply(core, id)?, &expected_path(core, peer))?;
    }
    Ok(())
}

pub(super) fn too_late(fixture: &mut Fixture) -> Outcome {
    let (core, from) = fixture.up_with(HASTY)?;
    let peer = Peer::number(3);
    let late = core.deadline() + Duration::from_millis(200);
    core.sa().script(only(
        peer.clone(),
        Reaction::After(late, Box::new(Reaction::Answer)),
    ));
    let id = core.resolve_from(from, &by_lid(&peer));
    // Some providers wait for the SA without a deadline; no second answer may follow then either.
    reply(core, id)?;
    core.settle();
    std::thread::sleep(QUIET);
    match core.replies(id).len() {
        1 => good_again(core, from, &peer),
        count => Err(failed("one answer", format!("{count}"))),
    }
}

/// Reopens the port with another LID while a query is outstanding; the response comes before or after that.
pub(super) fn across_a_close(fixture: &mut Fixture, reopened_first: bool) -> Outcome {
    let (core, from) = fixture.up()?;
    let peer = Peer::number(3);
    core.sa().script(only(peer.clone(), Reaction::Hold));
    let id = core.resolve_from(from, &by_lid(&peer));
    let Some(question) = wait_for(core, &peer) else {
        return Err(failed("a query for the destination", "none"));
    };
    let old = core
        .subnet()
        .path(&question.path(), question.mask, question.number);
    let old = old.unwrap_or_default();
    core.port_down(FIRST_PORT);
    if !reopened_first {
        // The SA thread may be delivering a response while the server thread closes the port.
        core.sa().set_down(usize::from(FIRST_PORT.port), false);
        core.sa().release(question.number, Reaction::Record(old));
        core.settle();
    }
    core.change_port(FIRST_PORT, |port| port.lid = 77);
    let from = core
        .up(FIRST_PORT)
        .map_err(crate::suite::fixture::refused)?;
    core.settle();
    if reopened_first {
        core.sa().release(question.number, Reaction::Record(old));
        core.settle();
    }
    let first = reply(core, id)?;
    if first.status == SUCCESS && first.path() != Some(old) {
        return Err(failed(format!("{old:?} or an error"), format!("{first:?}")));
    }
    good_again(core, from, &peer)
}

/// Longest delay of a deferred query: a provider's retry pause.
const PUT_OFF: Duration = Duration::from_millis(300);

/// Closes the port while queries are outstanding, others wait for room or a retry pause, and the core refused one.
pub(super) fn ask_after_close(fixture: &mut Fixture) -> Outcome {
    const BUSY: u16 = 0x0001;
    let (core, from) = fixture.up_with(&[HASTY, &["sa_depth 2"]].concat())?;
    let refused = Peer::number(1);
    core.sa().script(move |question| match question {
        question if asks_for(question, &refused) => Reaction::Status(BUSY),
        question if question.is_path_query() => Reaction::Hold,
        _ => Reaction::Answer,
    });
    for number in 1..=8 {
        core.resolve_from(from, &by_lid(&Peer::number(number)));
    }
    let query = Message::query(&Path::default().with_dgid(Peer::number(9).gid()));
    core.query_from(from, &query);
    if wait_for(core, &Peer::number(2)).is_none() {
        return Err(failed("a query for a destination", "none"));
    }
    core.port_down(FIRST_PORT);
    let asked = core.sa().requests().len();
    std::thread::sleep(PUT_OFF);
    // The ledger records queries for a closed endpoint.
    match core.sa().requests().len() - asked {
        0 => Ok(()),
        more => Err(failed(
            "no MAD to the SA once the endpoint is closed",
            format!("{more} more"),
        )),
    }
}

fn wait_for(core: &StandIn, peer: &Peer) -> Option<SaRequest> {
    let deadline = Instant::now() + core.patience;
    while Instant::now() < deadline {
        if let Some(question) = asked_for(core, peer).into_iter().next() {
            return Some(question);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    None
}

/// Makes the SA respond with a record that is wrong in one field.
pub(super) fn spoilt_record(fixture: &mut Fixture, spoil: fn(Path) -> Path) -> Outcome {
    let (core, from) = fixture.up_with(HASTY)?;
    let peer = Peer::number(3);
    let bad = spoil(plain_path(core, &peer));
    core.sa().script(only(peer.clone(), Reaction::Record(bad)));
    let answer = resolve(core, from, &by_gid(&peer))?;
    if answer.status == SUCCESS {
        return Err(failed("an error", format!("{answer:?}")));
    }
    good_again(core, from, &peer)
}

pub(super) fn query_form(fixture: &mut Fixture) -> Outcome {
    let (core, from) = fixture.up()?;
    let peer = Peer::number(3);
    for (message, target) in [(by_lid(&peer), COMP_DLID), (by_gid(&Peer::number(4)), 0)] {
        resolve(core, from, &message)?;
        let Some(question) = core.sa().path_queries().pop() else {
            return Err(failed("a path query", "none"));
        };
        let form = (question.class, question.method, question.attribute);
        if form != (3, GET, PATH_RECORD) {
            return Err(failed(
                "class 3, GET (0x01), PathRecord (0x35)",
                format!("{form:x?}"),
            ));
        }
        let own = core.port(FIRST_PORT).gid();
        if question.mask & COMP_SGID == 0 || question.path().sgid() != own {
            return Err(failed(
                "the port's GID as SGID, in the record and in the component mask",
                format!("mask {:#x}, {:?}", question.mask, question.path()),
            ));
        }
        if question.mask & target != target {
            return Err(failed(
                "the destination in the component mask",
                format!("mask {:#x}", question.mask),
            ));
        }
    }
    Ok(())
}

pub(super) fn transaction_ids(fixture: &mut Fixture) -> Outcome {
    let (core, from) = fixture.up_with(&["sa_depth 64"])?;
    core.sa().script(|question| {
        if question.is_path_query() {
            Reaction::Hold
        } else {
            Reaction::Answer
        }
    });
    let ids: Vec<u64> = (1..=40)
        .map(|number| core.resolve_from(from, &by_lid(&Peer::number(number))))
        .collect();
    core.path_queries(ids.len());
    let held = core.sa().path_queries();
    let mut tids: Vec<u64> = held.iter().map(|question| question.tid).collect();
    if let Some(tid) = tids.iter().find(|tid| !(1..1 << 32).contains(*tid)) {
        return Err(failed("1 to 2^32 - 1", format!("{tid:#x}")));
    }
    tids.sort_unstable();
    tids.dedup();
    if tids.len() != held.len() {
        return Err(failed(
            format!("{} different ids", held.len()),
            format!("{}", tids.len()),
        ));
    }
    core.sa().script(|_| Reaction::Answer);
    for question in held {
        core.sa().release(question.number, Reaction::Answer);
    }
    for id in ids {
        reply(core, id)?;
    }
    Ok(())
}

pub(super) fn storm(fixture: &mut Fixture) -> Outcome {
    const REQUESTS: usize = 200;
    let (core, from) = fixture.up()?;
    let peer = Peer::number(3);
    core.sa().script(only(peer.clone(), Reaction::Hold));
    let ids: Vec<u64> = (0..REQUESTS)
        .map(|_| core.resolve_from(from, &by_lid(&peer)))
        .collect();
    let Some(question) = wait_for(core, &peer) else {
        return Err(failed("a query for the destination", "none"));
    };
    std::thread::sleep(QUIET);
    core.sa().script(|_| Reaction::Answer);
    core.sa().release(question.number, Reaction::Answer);
    for id in ids {
        expect_path(&reply(core, id)?, &expected_path(core, &peer))?;
    }
    core.settle();
    match asked_for(core, &peer).len() {
        1 => Ok(()),
        count => Err(failed(
            format!("one query for {REQUESTS} requests"),
            format!("{count}"),
        )),
    }
}

/// Moves a peer to another LID, as after a reboot, and reregisters the port.
pub(super) fn refresh(fixture: &mut Fixture) -> Outcome {
    let (core, from) = fixture.up()?;
    let peer = Peer::number(3);
    expect_path(
        &resolve(core, from, &by_gid(&peer))?,
        &expected_path(core, &peer),
    )?;
    let Some(first) = asked_for(core, &peer).into_iter().next() else {
        return Err(failed("a query for the destination", "none"));
    };
    let before = asked_for(core, &peer).len();
    core.reregister(FIRST_PORT);
    core.settle();
    core.move_peer(&peer, ELSEWHERE);
    let answer = resolve(core, from, &by_gid(&peer))?;
    let Some(renewal) = asked_for(core, &peer).into_iter().nth(before) else {
        return Err(Finding::Skipped(
            "the path survives a reregistration: the provider refreshes nothing".into(),
        ));
    };
    let demands = renewal.path();
    if (renewal.mask, demands) != (first.mask, first.path()) {
        return Err(failed(
            format!("the first query once more, {:?}", first.path()),
            format!("{demands:?}"),
        ));
    }
    expect_path(&answer, &expected_path(core, &peer))
}
