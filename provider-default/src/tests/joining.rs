//! Membership in the groups.

use super::*;

#[test]
fn a_request_waits_for_the_join_and_goes_out_with_it() {
    let mut core = loaded("");
    core.open();
    let mut peer = Peer::at(2);
    let id = resolve(&mut core, ip(2));
    core.wait_for_sa_queries(1);
    assert!(peer.rest().is_empty() && core.answers(id).is_empty());
    grant_join(&core);
    peer.answers(ip(2));
    give_path(&core, &peer);
    assert_eq!(core.wait_for_answer(id).status, Status::SUCCESS);
}

#[test]
fn before_the_join_requests_keep_their_deadlines_and_nodelay_gets_no_data() {
    let mut core = loaded(QUICK);
    core.open();
    let id = core.resolve(&Request::destination(&ip(2)).nodelay());
    assert_eq!(core.answers(id)[0].status, Status::ENODATA);
    let id = resolve(&mut core, ip(2));
    assert_eq!(core.wait_for_answer(id).status, Status::ETIMEDOUT);
}

/// Fault 17: a join that is refused once.
#[test]
fn a_refused_join_is_asked_for_again() {
    let mut core = loaded("");
    core.open();
    core.wait_for_sa_queries(1);
    core.sa_answers(|packet| packet.mad_hdr.status = acm_prov_api::abi::Be16::from_host(0x0001));
    let line = core.wait_for_log("not a member of the shared group");
    assert!(line.contains("busy"), "{line}");
    grant_join(&core);
    let mut peer = Peer::at(2);
    learn(&mut core, &mut peer, ip(2));
}

#[test]
fn a_join_that_the_core_does_not_take_is_asked_for_again() {
    let mut core = loaded("");
    core.refuse_mads(true);
    core.open();
    core.wait_for_log("not a member of the shared group");
    core.refuse_mads(false);
    grant_join(&core);
    let mut peer = Peer::at(2);
    learn(&mut core, &mut peer, ip(2));
}

/// Fault 20: re-registration right after open. Fault 17: joining again while a join is in flight.
#[test]
fn a_reregistration_joins_again_and_the_first_answer_does_not_count() {
    let mut core = loaded("");
    core.open();
    core.reregister();
    core.wait_for_sa_queries(2);
    // The first response has an outdated group LID.
    core.sa_answers(|packet| packet.data[36..38].copy_from_slice(&0xc0ff_u16.to_be_bytes()));
    grant_join(&core);
    let mut peer = Peer::at(2);
    learn(&mut core, &mut peer, ip(2));
    core.reregister();
    grant_join(&core);
    let id = resolve(&mut core, ip(3));
    peer.request_for(ip(3));
    core.close();
    assert_eq!(core.wait_for_answer(id).status, Status::ENOTCONN);
}

#[test]
fn a_request_that_waits_survives_a_reregistration() {
    let mut core = opened("");
    let mut peer = Peer::at(2);
    let id = resolve(&mut core, ip(2));
    let request = peer.request_for(ip(2));
    core.reregister();
    grant_join(&core);
    peer.unicast(&peer::answer(request.datagram.tid), request.qp_number);
    give_path(&core, &peer);
    assert_eq!(core.wait_for_answer(id).status, Status::SUCCESS);
}

/// LIDs may have changed, and with `route_prot acm` only the peer itself knows its LID.
#[test]
fn with_route_prot_acm_an_address_is_asked_for_again_after_a_reregistration() {
    let mut core = loaded("route_prot acm\n");
    core.open();
    let mut peer = Peer::at(2);
    grant_join(&core);
    grant_join(&core);
    let id = resolve(&mut core, ip(2));
    peer.answers(ip(2));
    assert_eq!(core.wait_for_answer(id).path.unwrap().dlid(), Lid(2));
    assert_eq!(known(&mut core, ip(2)).dlid(), Lid(2));

    drop(peer);
    core.reregister();
    grant_join(&core);
    grant_join(&core);
    let mut moved = Peer::at(4);
    // There are no requests without a client, so what a client needs comes first.
    let other = resolve(&mut core, ip(3));
    assert!(core.answers(other).is_empty());
    let request = moved.request_for(ip(3));
    assert_eq!(moved.rest().len(), 0);
    moved.unicast(&peer::answer(request.datagram.tid), request.qp_number);
    core.wait_for_answer(other);
    // A client that needs the address waits until its owner has answered.
    let ids = [0; 2].map(|_| resolve(&mut core, ip(2)));
    assert!(ids.iter().all(|id| core.answers(*id).is_empty()));
    moved.answers(ip(2));
    for id in ids {
        assert_eq!(core.wait_for_answer(id).path.unwrap().dlid(), Lid(4));
    }
    assert_eq!(known(&mut core, ip(2)).dlid(), Lid(4));
    assert_eq!(counted(&mut core, AcmCounter::ADDR_QUERY).0, 3);
    assert!(core.sa_queries().is_empty());
}

/// With `route_prot sa` the SA knows the peer's LID.
#[test]
fn with_route_prot_sa_an_address_is_kept_across_a_reregistration() {
    let mut core = opened("");
    let mut peer = Peer::at(2);
    learn(&mut core, &mut peer, ip(2));
    core.reregister();
    grant_join(&core);
    let id = resolve(&mut core, ip(2));
    give_path(&core, &peer);
    assert_eq!(core.wait_for_answer(id).status, Status::SUCCESS);
    assert_eq!(counted(&mut core, AcmCounter::ADDR_QUERY).0, 1);
}

#[test]
fn the_groups_are_left_at_the_end_of_an_active_port() {
    let mut core = opened("");
    core.close_port();
    let left = core.sa_queries();
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].mad_hdr.method, 0x15);
    assert_eq!(left[0].data[..16], SHARED.0);
    core.sa_answers(|_| ());
}

#[test]
fn nothing_is_asked_of_a_port_that_is_down() {
    let mut core = opened("");
    core.change_port(|port| port.active = false);
    core.close_port();
    assert_eq!(core.sa_queries().len(), 0);
}

/// Fault 16: the response to a join after close_endpoint and close_port.
#[test]
fn the_answer_to_a_join_may_come_after_the_end() {
    let mut core = loaded("");
    core.open();
    core.wait_for_sa_queries(1);
    core.close_port();
    // The SA may still grant it, so it is left.
    let methods: Vec<u8> = core
        .sa_queries()
        .iter()
        .map(|packet| packet.mad_hdr.method)
        .collect();
    assert_eq!(methods, [0x02, 0x15]);
    grant_join(&core);
    core.sa_answers(|_| ());
    core.open();
    grant_join(&core);
    let mut peer = Peer::at(2);
    learn(&mut core, &mut peer, ip(2));
}

/// Fault 15: after a change of P_Keys a re-registration must not touch a closed endpoint.
#[test]
fn a_reregistration_joins_for_the_endpoints_that_are_open_and_no_other() {
    let pkeys = |questions: &[umad_sa_packet]| -> Vec<[u8; 2]> {
        let of = |packet: &umad_sa_packet| [packet.data[40], packet.data[41]];
        questions.iter().map(of).collect()
    };
    let mut core = loaded("");
    core.set_pkeys(&[0xffff, 0x8001]);
    core.open();
    core.add_address_to(0x8001, &name("second")).unwrap();
    let both = core.wait_for_sa_queries(2);
    assert_eq!(pkeys(&both), [[0xff, 0xff], [0x80, 0x01]]);
    grant_join(&core);
    grant_join(&core);
    core.close_port();
    while !core.sa_queries().is_empty() {
        core.sa_answers(|_| ());
    }
    core.set_pkeys(&[0xffff]);
    core.open();
    grant_join(&core);
    core.reregister();
    assert_eq!(pkeys(&core.sa_queries()), [[0xff, 0xff]]);
    grant_join(&core);
    let mut peer = Peer::at(2);
    learn(&mut core, &mut peer, ip(2));
}
