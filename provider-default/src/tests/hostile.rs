//! Datagrams from untrusted nodes.

use super::*;
use crate::wire::{Body, Datagram, Groups};

/// Returns a core that waits for the owner of 10.0.0.2, and the transaction id and queue pair of its request.
fn waiting() -> (ByHand, Peer, u64, peer::Came) {
    let mut core = opened("timeout 60000\n");
    let mut peer = Peer::at(2);
    let id = resolve(&mut core, ip(2));
    let request = peer.request_for(ip(2));
    (core, peer, id, request)
}

/// Asserts that the datagram had no effect and that the service continues.
fn goes_on(core: &ByHand, peer: &mut Peer, id: u64, request: &peer::Came) {
    assert!(core.answers(id).is_empty());
    peer.unicast(&peer::answer(request.datagram.tid), request.qp_number);
    give_path(core, peer);
    assert_eq!(core.wait_for_answer(id).status, Status::SUCCESS);
}

/// Fault 30: length and GRH unchecked. Fault 31: other classes.
#[test]
fn malformed_datagrams_are_dropped() {
    let (core, mut peer, id, request) = waiting();
    let good = peer::answer(request.datagram.tid);
    let changes: [(usize, u8); 6] = [(0, 2), (1, 3), (2, 2), (3, 2), (7, 0), (20, 255)];
    for (at, value) in changes {
        let mut bytes = good;
        bytes[at] = value;
        peer.unicast(&bytes, request.qp_number);
    }
    for length in [1, 16, 255] {
        peer.unicast(&good[..length], request.qp_number);
    }
    core.wait_for_log("dropped");
    goes_on(&core, &mut peer, id, &request);
}

/// Fault 30: a datagram longer than the protocol's neither breaks the queue pair nor is parsed.
#[test]
fn overlong_datagrams_are_dropped() {
    let (core, mut peer, id, request) = waiting();
    for length in [257, 1000, 4096] {
        let mut bytes = vec![0; length];
        bytes[..crate::wire::LENGTH].copy_from_slice(&peer::answer(request.datagram.tid));
        peer.unicast(&bytes, request.qp_number);
    }
    core.wait_for_log("4096 bytes instead of 256");
    assert!(core.log().iter().all(|line| !line.contains("failed")));
    goes_on(&core, &mut peer, id, &request);
}

/// Fault 25: a failed work completion loses the credit, the message, the client and the receive.
#[test]
fn a_broken_queue_pair_is_replaced_and_clients_are_served() {
    let mut core = opened("log_level 1\nrecv_depth 4\nresolve_depth 4\ntimeout 200\nretries 100\n");
    let mut peer = Peer::at(2);
    let before = provider_qp(&mut core, &mut peer);
    let id = resolve(&mut core, ip(2));
    peer::break_queue_pair(1, before);
    core.wait_for_log("a work request failed: FLUSHED");
    core.wait_for_log("replaced the broken queue pair");
    // Waiting requests are sent from the new queue pair, which has all its receives. There may be more than one
    // path query for the peer, because an answer to it needs one as well.
    until("the client is served", || {
        for request in peer.rest() {
            if request.qp_number != before {
                peer.unicast(&peer::answer(request.datagram.tid), request.qp_number);
            }
        }
        if !core.sa_queries().is_empty() {
            give_path(&core, &peer);
        }
        !core.answers(id).is_empty()
    });
    assert_eq!(core.wait_for_answer(id).status, Status::SUCCESS);
    // And it is attached to the group.
    peer.asks(7, source(), ip(2));
    peer.answer_to(7);
}

#[test]
fn an_answer_without_a_grh_is_dropped() {
    let (core, mut peer, id, request) = waiting();
    peer.without_grh(&peer::answer(request.datagram.tid), request.qp_number);
    core.wait_for_log("no GRH");
    goes_on(&core, &mut peer, id, &request);
}

#[test]
fn an_answer_by_multicast_is_dropped() {
    let (core, mut peer, id, request) = waiting();
    peer.multicast(&peer::answer(request.datagram.tid));
    core.wait_for_log("an answer to another GID than ours");
    goes_on(&core, &mut peer, id, &request);
}

/// Fault 31: answers accepted from anybody, matched by a guessable transaction id.
#[test]
fn an_answer_with_a_guessed_tid_is_dropped() {
    let (core, mut peer, id, request) = waiting();
    let mut stranger = Peer::at(3);
    for tid in (0..100).chain([
        request.datagram.tid ^ 1,
        request.datagram.tid & u64::from(u32::MAX),
    ]) {
        stranger.unicast(&peer::answer(tid), request.qp_number);
    }
    goes_on(&core, &mut peer, id, &request);
}

#[test]
fn an_answer_with_another_group_is_dropped() {
    let (core, mut peer, id, request) = waiting();
    let other: Gid = "ff15:4001:ffff:7:500::".parse().unwrap();
    for groups in [&[][..], &[other], &[Gid::ZERO], &[ByHand::GID]] {
        let body = Body::Answer {
            status: 0,
            destination: None,
            source: None,
        };
        let answer = Datagram {
            tid: request.datagram.tid,
            groups: Groups::new(groups),
            body,
        };
        peer.unicast(&answer.to_bytes(), request.qp_number);
    }
    goes_on(&core, &mut peer, id, &request);
}

#[test]
fn an_answer_with_a_status_or_another_address_is_dropped() {
    let (core, mut peer, id, request) = waiting();
    for (status, destination) in [(0x0100, None), (1, None), (0, Some(ip(3)))] {
        let body = Body::Answer {
            status,
            destination,
            source: None,
        };
        let answer = Datagram {
            tid: request.datagram.tid,
            groups: Groups::new(&[SHARED]),
            body,
        };
        peer.unicast(&answer.to_bytes(), request.qp_number);
    }
    goes_on(&core, &mut peer, id, &request);
}

/// Fault 28: anyone's request overwrites any cached entry, our own addresses too.
#[test]
fn a_claim_to_our_own_address_changes_nothing() {
    let mut core = opened("");
    let before = known(&mut core, source());
    Peer::at(3).asks(1, ip(9), source());
    core.wait_for_log("it claims our own address 127.0.0.1");
    assert_eq!(known(&mut core, source()), before);
}

#[test]
fn a_claim_to_another_nodes_address_triggers_a_request() {
    let mut core = opened("");
    let (mut two, mut three) = (Peer::at(2), Peer::at(3));
    let before = learn(&mut core, &mut two, ip(2)).path.unwrap();
    three.rest();
    three.asks(1, ip(9), ip(2));
    // Both receive the request; the owner of the address answers.
    let request = three.request_for(ip(2));
    assert_eq!(known(&mut core, ip(2)), before);
    three.unicast(&peer::answer(request.datagram.tid), request.qp_number);
    let mut id = 0;
    until("the claimant has answered", || {
        id = resolve(&mut core, ip(2));
        core.answers(id).is_empty()
    });
    give_path(&core, &three);
    assert_eq!(core.wait_for_answer(id).path.unwrap().dgid(), three.gid());
}

/// Fault 29: no bound on what others' requests leave behind; one line a second.
#[test]
fn a_flood_is_one_line_a_second_and_clients_are_served() {
    let mut core = opened("mcast_sa_capacity 16\n");
    let mut flood = Peer::at(3);
    let started = std::time::Instant::now();
    for n in 0..3_000_u32 {
        let from = Address::Ip((0x0a01_0000 + n).into());
        flood.asks(u64::from(n), ip(9), from);
        flood.multicast(&[0; 256]);
    }
    let mut peer = Peer::at(2);
    resolve(&mut core, ip(2));
    peer.request_for(ip(2));
    let lines = core
        .log()
        .iter()
        .filter(|line| line.contains("dropped"))
        .count() as u64;
    let seconds = started.elapsed().as_secs() + 1;
    assert!(lines <= seconds + 1, "{lines} lines in {seconds} s");
}

/// Unused entries must not evict used ones.
#[test]
fn gids_and_lids_are_not_learnt() {
    let mut core = opened("mcast_sa_capacity 1\n");
    let mut peer = Peer::at(2);
    let before = learn(&mut core, &mut peer, ip(2)).path.unwrap();
    peer.asks(1, source(), Address::Lid(Lid(77)));
    peer.asks(2, source(), Address::Gid(peer.gid()));
    peer.answer_to(1);
    peer.answer_to(2);
    assert_eq!(known(&mut core, ip(2)), before);
}

/// Faults 2 and 27: names from the wire are escaped.
#[test]
fn names_in_the_log_are_one_harmless_line() {
    let mut core = opened("");
    let nasty = name("x\n\u{1b}[31m%s%n");
    core.add_address(&nasty).unwrap();
    Peer::at(3).asks(1, ip(9), nasty);
    let line = core.wait_for_log("it claims our own address");
    assert!(line.ends_with("x\\n\\u{1b}[31m%s%n"), "{line:?}");
}

/// The number of waiting answers is limited: a peer that sends many requests does not keep the SA from clients.
#[test]
fn requests_whose_path_does_not_come_are_bounded() {
    let mut core = opened("timeout 60000\n");
    let mut peer = Peer::at(2);
    for tid in 0..2_000 {
        peer.asks(tid, source(), ip(2));
    }
    core.wait_for_log("too many answers are waiting");
    let id = resolve(&mut core, Address::Lid(Lid(7)));
    core.wait_for_sa_queries(2);
    give_path(&core, &peer);
    core.sa_answers_with(|_| ());
    assert_eq!(core.wait_for_answer(id).status, Status::SUCCESS);
}

/// A request that is dropped because too many answers wait is still a claim to its source address.
#[test]
fn a_dropped_request_still_answers_clients_that_wait_for_its_sender() {
    let mut core = opened("timeout 60000\n");
    let (mut two, mut three) = (Peer::at(2), Peer::at(3));
    let ids = [0; 3].map(|_| resolve(&mut core, ip(2)));
    two.request_for(ip(2));
    for tid in 0..257 {
        three.asks(tid, source(), ip(3));
    }
    core.wait_for_log("too many answers are waiting");
    assert!(ids.iter().all(|id| core.answers(*id).is_empty()));
    two.asks(1_000, source(), ip(2));
    // Their path is queried as after an answer.
    core.wait_for_sa_queries(2);
    give_path(&core, &three);
    let given = give_path(&core, &two);
    for id in ids {
        let answer = core.wait_for_answer(id);
        assert_eq!((answer.status, answer.path), (Status::SUCCESS, Some(given)));
    }
    assert!(
        core.log()
            .iter()
            .all(|line| !line.contains("dropped unanswered"))
    );
}
