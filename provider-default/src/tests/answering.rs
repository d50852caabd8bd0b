//! Other nodes' requests for our addresses.

use super::*;
use crate::wire::Body;

#[test]
fn a_request_for_an_own_address_is_answered_by_unicast_on_the_sas_path() {
    let mut core = opened("");
    core.add_address(&name("Me")).unwrap();
    let mut peer = Peer::at(2);
    peer.asks(0x1234_5678_9abc, name("mE"), ip(2));
    give_path(&core, &peer);
    let answer = peer.answer_to(0x1234_5678_9abc);
    assert_eq!(answer.to, peer.gid());
    assert_eq!(answer.datagram.groups.as_slice(), [SHARED]);
    assert_eq!(
        answer.datagram.body,
        Body::Answer {
            status: 0,
            destination: None,
            source: None
        }
    );
    // Both sides know each other now.
    assert_eq!(known(&mut core, ip(2)).dlid(), Lid(2));
    assert_eq!(counted(&mut core, AcmCounter::ADDR_QUERY), (0, 0));
}

/// A stock peer sends the address as its client wrote it.
#[test]
fn a_request_for_an_own_ipv4_address_in_ipv6_form_is_answered() {
    let core = opened("");
    let mut peer = Peer::at(2);
    let mut request = super::peer::request(8, source(), ip(2));
    for (kind, field, ip) in [(16, 24, ByHand::SOURCE), (18, 88, [10, 0, 0, 2].into())] {
        request[kind] = 3;
        request[field..field + 16].copy_from_slice(&ip.to_ipv6_mapped().octets());
    }
    peer.multicast(&request);
    give_path(&core, &peer);
    peer.answer_to(8);
}

#[test]
fn with_route_prot_acm_the_sa_is_not_asked() {
    let mut core = loaded("route_prot acm\n");
    core.open();
    grant_join(&core);
    grant_join(&core);
    let own = "ff15:4001:ffff:3:500::".parse().unwrap();
    let body = Body::Request {
        destination: source(),
        source: ip(2),
    };
    let groups = crate::wire::Groups::new(&[SHARED, own]);
    let mut peer = Peer::at(2);
    peer.multicast(
        &crate::wire::Datagram {
            tid: 8,
            groups,
            body,
        }
        .to_bytes(),
    );
    assert_eq!(
        peer.answer_to(8).datagram.groups.as_slice(),
        [own],
        "the best that both have"
    );
    assert!(core.sa_queries().is_empty());
    let path = known(&mut core, ip(2));
    assert_eq!((path.dlid(), path.mtu()), (Lid(2), 5));
}

/// Fault 32: one response buffer for several requesters of one source.
#[test]
fn every_requester_gets_its_answer() {
    let mut core = opened("");
    core.add_address(&name("me")).unwrap();
    let (mut two, mut three) = (Peer::at(2), Peer::at(3));
    let mut again = Peer::at(2);
    two.asks(1, name("me"), ip(2));
    two.asks(2, source(), ip(2));
    again.asks(3, name("me"), ip(2));
    three.asks(4, name("me"), ip(3));
    give_paths(&core, &[&two, &three]);
    two.answer_to(1);
    two.answer_to(2);
    again.answer_to(3);
    three.answer_to(4);
}

/// Fault 24: a peer's request while our own query for its path is in flight.
#[test]
fn a_request_that_comes_while_our_query_for_the_peer_is_out_is_answered() {
    let mut core = opened("");
    let mut peer = Peer::at(2);
    let id = resolve(&mut core, ip(2));
    peer.answers(ip(2));
    core.wait_for_sa_queries(1);
    peer.asks(77, source(), ip(2));
    give_path(&core, &peer);
    assert_eq!(core.wait_for_answer(id).status, Status::SUCCESS);
    peer.answer_to(77);
}

#[test]
fn a_request_for_another_is_not_answered() {
    let mut core = opened("");
    let mut peer = Peer::at(2);
    peer.asks(1, ip(99), ip(2));
    peer.asks(2, source(), ip(2));
    give_path(&core, &peer);
    peer.answer_to(2);
    assert!(peer.rest().is_empty());
    assert_eq!(known(&mut core, ip(2)).dlid(), Lid(2));
}

#[test]
fn the_own_gid_and_lid_are_addresses_too() {
    let core = opened("");
    let mut peer = Peer::at(2);
    peer.asks(1, Address::Gid(ByHand::GID), ip(2));
    give_path(&core, &peer);
    peer.answer_to(1);
    peer.asks(2, Address::Lid(Lid(1)), ip(2));
    peer.answer_to(2);
    peer.asks(3, Address::Lid(Lid(2)), ip(2));
    peer.asks(4, Address::Lid(Lid(1)), ip(2));
    peer.answer_to(4);
    assert!(peer.rest().is_empty());
}

#[test]
fn a_peer_without_a_path_gets_no_answer_and_the_next_one_does() {
    let core = opened("");
    let (mut two, mut three) = (Peer::at(2), Peer::at(3));
    two.asks(1, source(), ip(2));
    core.wait_for_sa_queries(1);
    core.sa_answers(|packet| packet.mad_hdr.status = acm_prov_api::abi::Be16::from_host(0x0300));
    three.asks(2, source(), ip(3));
    give_path(&core, &three);
    three.answer_to(2);
    assert!(two.rest().is_empty());
}
