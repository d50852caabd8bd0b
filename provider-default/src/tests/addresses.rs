//! Clients' requests: resolving the address, and then the path.

use acm_prov_api::dump::Routes;

use super::*;

#[test]
fn a_name_is_resolved_by_multicast_and_its_path_by_the_sa() {
    let mut core = opened("");
    let mut peer = Peer::at(2);
    let id = resolve(&mut core, name("Node2"));
    let request = peer.answers(name("node2"));
    assert_eq!(request.to, SHARED);
    assert_eq!(request.datagram.groups.as_slice(), [SHARED]);
    assert!(
        matches!(request.datagram.body, crate::wire::Body::Request { source, .. } if source == super::source())
    );
    let given = give_path(&core, &peer);
    let answer = core.wait_for_answer(id);
    assert_eq!((answer.status, answer.path), (Status::SUCCESS, Some(given)));
    // The second request needs no query.
    assert_eq!(known(&mut core, name("NODE2")), given);
    assert_eq!(counted(&mut core, AcmCounter::ADDR_QUERY), (1, 1));
    assert_eq!(counted(&mut core, AcmCounter::ROUTE_QUERY), (1, 1));
    assert_eq!(counted(&mut core, AcmCounter::ROUTE_CACHE), (1, 1));
    assert_eq!(counted(&mut core, AcmCounter::ADDR_CACHE), (0, 0));
    assert_eq!(counted(&mut core, AcmCounter::RESOLVE).0, 2);
}

#[test]
fn ipv4_and_ipv6_addresses_are_resolved() {
    let mut core = opened("");
    let mut peer = Peer::at(2);
    let first = learn(&mut core, &mut peer, ip(2)).path.unwrap();
    // Another address of the same port: its path is cached.
    let ip6 = Address::Ip6("fd00::2".parse().unwrap());
    let id = resolve(&mut core, ip6);
    peer.answers(ip6);
    assert_eq!(core.wait_for_answer(id).path, Some(first));
}

#[test]
fn with_route_prot_acm_the_path_comes_from_the_groups_record() {
    let mut core = loaded("route_prot acm\n");
    core.open();
    grant_join(&core);
    // The port's own MTU is larger, so there is a second group.
    let asked = core.wait_for_sa_queries(1)[0];
    let own = Gid(asked.data[..16].try_into().unwrap());
    assert_eq!(own, "ff15:4001:ffff:3:500::".parse().unwrap());
    core.sa_answers(|packet| {
        packet.data[36..38].copy_from_slice(&0xc002_u16.to_be_bytes());
        packet.data[43] = 0x92;
        packet.data[44] = 0x30;
    });
    let mut peer = Peer::at(2);
    let id = resolve(&mut core, ip(2));
    let request = peer.request_for(ip(2));
    assert_eq!(request.datagram.groups.as_slice(), [SHARED, own]);
    let body = crate::wire::Body::Answer {
        status: 0,
        destination: None,
        source: None,
    };
    let groups = crate::wire::Groups::new(&[own]);
    let answer = crate::wire::Datagram {
        tid: request.datagram.tid,
        groups,
        body,
    };
    peer.unicast(&answer.to_bytes(), request.qp_number);
    let path = core.wait_for_answer(id).path.unwrap();
    assert_eq!(
        (path.dgid(), path.dlid(), path.sgid(), path.slid()),
        (peer.gid(), Lid(2), ByHand::GID, Lid(1))
    );
    assert_eq!(
        (path.mtu(), path.rate(), path.packet_lifetime(), path.sl()),
        (5, 3, 18, 3)
    );
    assert_eq!(
        path.to_bytes()[54..57],
        [0x85, 0x83, 0x92],
        "with selectors, as an SA's record has them"
    );
    assert_eq!(known(&mut core, ip(2)), path);
    assert_eq!(counted(&mut core, AcmCounter::ROUTE_QUERY).0, 0);
    assert_eq!(counted(&mut core, AcmCounter::ROUTE_CACHE).0, 1);
}

#[test]
fn paths_are_asked_of_the_sa_alone() {
    // Not even the join is needed.
    let mut core = loaded("");
    core.open();
    core.wait_for_sa_queries(1);
    let id = resolve(&mut core, Address::Lid(Lid(2)));
    core.wait_for_sa_queries(2);
    core.sa_times_out();
    core.sa_answers_with(|_| ());
    assert_eq!(core.wait_for_answer(id).path.unwrap().dlid(), Lid(2));
    assert_eq!(known(&mut core, Address::Lid(Lid(2))).dlid(), Lid(2));
    // The LID is a constraint on the path, so this path does not answer a request for the GID alone.
    grant_join(&core);
    let peer = Peer::at(2);
    let id = resolve(&mut core, Address::Gid(peer.gid()));
    let given = give_path(&core, &peer);
    assert_eq!(core.wait_for_answer(id).path, Some(given));
    assert_eq!(known(&mut core, Address::Gid(peer.gid())), given);
}

#[test]
fn own_addresses_are_answered_at_once() {
    let mut core = opened("");
    core.add_address(&name("me")).unwrap();
    for address in [source(), name("ME")] {
        let path = known(&mut core, address);
        assert_eq!((path.sgid(), path.dgid()), (ByHand::GID, ByHand::GID));
        assert_eq!((path.slid(), path.dlid()), (Lid(1), Lid(1)));
    }
}

#[test]
fn constraints_of_a_client_go_to_the_sa() {
    // Service ids matter for this SA.
    let mut core = opened("mcast_sa_qos on\n");
    let mut wanted = PathRecord::default();
    wanted.set_service_id(9);
    let id = core.resolve(&Request::hinted(&source(), &wanted));
    let asked = core.wait_for_sa_queries(1)[0];
    let asked = PathRecord::from_bytes(asked.data.first_chunk().unwrap());
    assert_eq!((asked.dgid(), asked.service_id()), (ByHand::GID, 9));
    core.sa_answers_with(|path| {
        path.set_dlid(Lid(1)).set_sl(4);
    });
    assert_eq!(core.wait_for_answer(id).path.unwrap().sl(), 4);
    // The same for a peer's address.
    let mut peer = Peer::at(2);
    let plain = learn(&mut core, &mut peer, ip(2)).path.unwrap();
    let id = core.resolve(&Request::hinted(&ip(2), &wanted));
    core.wait_for_sa_queries(1);
    core.sa_answers_with(|path| {
        path.set_dlid(peer.lid()).set_sl(5);
    });
    assert_eq!(core.wait_for_answer(id).path.unwrap().sl(), 5);
    assert_eq!(known(&mut core, ip(2)), plain);
}

#[test]
fn own_addresses_are_asked_for_with_loopback_prot_none() {
    let mut core = opened("loopback_prot none\n");
    let mut peer = Peer::at(2);
    resolve(&mut core, source());
    peer.request_for(source());
}

#[test]
fn requests_are_sent_again_until_the_deadline() {
    let mut core = opened(QUICK);
    let mut peer = Peer::at(2);
    let id = resolve(&mut core, ip(2));
    let first = peer.request_for(ip(2));
    let second = peer.request_for(ip(2));
    assert_eq!(first.datagram, second.datagram);
    let answer = core.wait_for_answer(id);
    assert_eq!(answer.status, Status::ETIMEDOUT);
    assert_eq!(
        counted(&mut core, AcmCounter::ADDR_QUERY).0,
        1,
        "tries are not queries"
    );
    assert_eq!(peer.rest().len(), 0);
}

#[test]
fn an_answer_to_the_second_try_is_as_good() {
    let mut core = opened("timeout 150\nretries 20\n");
    let mut peer = Peer::at(2);
    let id = resolve(&mut core, ip(2));
    peer.request_for(ip(2));
    peer.answers(ip(2));
    give_path(&core, &peer);
    assert_eq!(core.wait_for_answer(id).status, Status::SUCCESS);
}

#[test]
fn a_nodelay_request_gets_no_data_and_the_next_request_the_path() {
    let mut core = opened("");
    let mut peer = Peer::at(2);
    let request = Request::destination(&ip(2)).nodelay();
    let id = core.resolve(&request);
    assert_eq!(core.answers(id)[0].status, Status::ENODATA);
    peer.answers(ip(2));
    until("the address is known", || {
        let id = core.resolve(&request);
        assert_eq!(core.answers(id)[0].status, Status::ENODATA);
        !core.sa_queries().is_empty()
    });
    give_path(&core, &peer);
    until("the path is known", || {
        let id = core.resolve(&request);
        core.answers(id)[0].status == Status::SUCCESS
    });
}

#[test]
fn hosts_are_known_and_only_their_paths_are_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hosts");
    std::fs::write(&file, "node2 fe80::2002\n10.0.0.2 fe80::2002\n").unwrap();
    let mut core = opened(&format!(
        "addr_preload acm_hosts\naddr_data_file {}\n",
        file.display()
    ));
    let mut peer = Peer::at(2);
    let id = resolve(&mut core, name("NODE2"));
    let given = give_path(&core, &peer);
    assert_eq!(core.wait_for_answer(id).path, Some(given));
    assert_eq!(known(&mut core, ip(2)), given);
    assert_eq!(counted(&mut core, AcmCounter::ADDR_CACHE).0, 1);
    assert_eq!(counted(&mut core, AcmCounter::ADDR_QUERY).0, 0);
    // Fault 28: the operator's entry wins over any claim.
    Peer::at(3).asks(5, ip(9), ip(2));
    core.wait_for_log("claims 10.0.0.2, which the hosts file gives to another node");
    assert_eq!(known(&mut core, ip(2)), given);
    assert_eq!(peer.rest().len(), 0);
    // The file is watched.
    std::fs::write(folder.path().join("new"), "node2 fe80::2003\n").unwrap();
    std::fs::rename(folder.path().join("new"), &file).unwrap();
    core.wait_for_log("was read again: 1 entries");
    let id = resolve(&mut core, name("node2"));
    let other = give_path(&core, &Peer::at(3));
    assert_eq!(core.wait_for_answer(id).path, Some(other));
}

#[test]
fn preloaded_paths_are_answered_without_the_sa() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("dump");
    let dump = "Channel Adapter 0x0000000000100001, base LID 1, \"me\", port 1\n# LID  : SL : MTU : RATE\n\
                0x0001 : 0  : 4   : 3\n0x0002 : 1  : 4   : 7\n\n\
                Channel Adapter 0x0000000000002002, base LID 2, \"node2\", port 1\n# LID  : SL : MTU : RATE\n";
    std::fs::write(&file, dump).unwrap();
    let mut core = opened(&format!(
        "route_preload opensm_full_v1\nroute_data_file {}\n",
        file.display()
    ));
    core.wait_for_log(": 2 paths");
    let mut peer = Peer::at(2);
    let path = known(&mut core, Address::Lid(Lid(2)));
    assert_eq!(
        (path.dgid(), path.dlid(), path.sgid(), path.slid()),
        (peer.gid(), Lid(2), ByHand::GID, Lid(1))
    );
    assert_eq!(
        path.to_bytes()[50..56],
        [0xff, 0xff, 0, 1, 0x84, 0x87],
        "P_Key, SL, MTU, rate"
    );
    assert_eq!(known(&mut core, Address::Gid(peer.gid())), path);
    // The address must be resolved, its path is preloaded.
    let id = resolve(&mut core, ip(2));
    peer.answers(ip(2));
    assert_eq!(core.wait_for_answer(id).path, Some(path));
    // Fault 10: the peer appears elsewhere, so the dump is wrong about it.
    let mut moved = Peer::at(4);
    moved.asks(1, ip(9), ip(2));
    until("the dump is not asked any more", || {
        let id = resolve(&mut core, ip(2));
        core.answers(id).is_empty()
    });
    give_path(&core, &moved);
    until("the new path", || {
        let id = resolve(&mut core, Address::Gid(moved.gid()));
        core.answers(id)
            .first()
            .and_then(|answer| answer.path)
            .is_some_and(|path| path.dlid() == Lid(4))
    });
}

/// Fault 10: a rebooted peer with a new LID and a new queue pair, or with a new LID and the same queue pair.
#[test]
fn a_peer_that_moved_is_found_again() {
    let mut core = opened("");
    let mut peer = Peer::at(2);
    learn(&mut core, &mut peer, ip(2));
    drop(peer);
    let mut moved = Peer::at(4);
    moved.asks(1, ip(9), ip(2));
    let mut id = 0;
    until("the old path is forgotten", || {
        id = resolve(&mut core, ip(2));
        core.answers(id).is_empty()
    });
    give_path(&core, &moved);
    assert_eq!(core.wait_for_answer(id).path.unwrap().dlid(), Lid(4));
    assert_eq!(known(&mut core, ip(2)).dlid(), Lid(4));
}

/// Fault 5: an address that moves from one host to another.
#[test]
fn a_removed_own_address_can_move_to_another_node() {
    let mut core = opened("");
    let mine = core.add_address(&ip(7)).unwrap();
    assert_eq!(known(&mut core, ip(7)).dlid(), Lid(1));
    core.remove_address(mine);
    let mut peer = Peer::at(2);
    assert_eq!(
        learn(&mut core, &mut peer, ip(7)).path.unwrap().dlid(),
        Lid(2)
    );
    // And back again.
    core.add_address(&ip(7)).unwrap();
    assert_eq!(known(&mut core, ip(7)).dlid(), Lid(1));
}

#[test]
fn one_request_serves_all_clients_that_ask_at_once() {
    let mut core = opened("");
    let mut peer = Peer::at(2);
    let ids: Vec<u64> = (0..50).map(|_| resolve(&mut core, ip(2))).collect();
    peer.answers(ip(2));
    let given = give_path(&core, &peer);
    for id in ids {
        assert_eq!(core.wait_for_answer(id).path, Some(given));
    }
    assert_eq!(
        (
            counted(&mut core, AcmCounter::ADDR_QUERY).0,
            counted(&mut core, AcmCounter::ROUTE_QUERY).0
        ),
        (1, 1)
    );
}

#[test]
fn requests_of_other_nodes_are_learnt_from() {
    let mut core = opened("");
    let mut peer = Peer::at(2);
    let id = resolve(&mut core, ip(2));
    peer.request_for(ip(2));
    // It sends a request itself instead of an answer.
    peer.asks(1, ip(9), ip(2));
    let given = give_path(&core, &peer);
    assert_eq!(core.wait_for_answer(id).path, Some(given));
}

/// Fault 3: kept pointers: the core's structure is overwritten after the call, and moves when another is added.
#[test]
fn no_pointer_to_the_cores_addresses_is_kept() {
    let mut core = opened("");
    let mut peer = Peer::at(2);
    let first = core.add_address(&name("first")).unwrap();
    core.add_address(&ip(8)).unwrap();
    core.remove_address(first);
    assert_eq!(known(&mut core, ip(8)).dlid(), Lid(1));
    assert_eq!(known(&mut core, source()).dlid(), Lid(1));
    resolve(&mut core, name("first"));
    peer.request_for(name("first"));
}

/// Fault 4: a limit of four addresses an endpoint.
#[test]
fn there_is_no_limit_to_addresses() {
    let mut core = opened("");
    let addresses: Vec<Address> = (0..100).map(ip).collect();
    for address in &addresses {
        core.add_address(address).unwrap();
    }
    for address in addresses {
        assert_eq!(known(&mut core, address).dlid(), Lid(1));
    }
}

/// After a lost notice the core adds an address a second time.
#[test]
fn an_address_that_was_added_twice_is_gone_once_it_is_removed() {
    let mut core = opened("");
    let mut peer = Peer::at(2);
    core.add_address(&ip(7)).unwrap();
    let again = core.add_address(&ip(7)).unwrap();
    core.remove_address(again);
    learn(&mut core, &mut peer, ip(7));
}

/// No port has an IPv4-mapped address; the IPv4 address is requested and claimed.
#[test]
fn an_ipv4_mapped_address_is_the_ipv4_address() {
    let mapped = |last| Address::Ip6(std::net::Ipv4Addr::new(10, 0, 0, last).to_ipv6_mapped());
    let mut core = opened("");
    let mut peer = Peer::at(2);
    let id = resolve(&mut core, mapped(2));
    let request = peer.answers(ip(2));
    let bytes = request.datagram.to_bytes();
    assert_eq!((bytes[16], &bytes[24..28]), (2, &[10, 0, 0, 2][..]));
    give_path(&core, &peer);
    let path = core.wait_for_answer(id).path;
    assert_eq!(Some(known(&mut core, ip(2))), path);
    assert_eq!(Some(known(&mut core, mapped(2))), path);
    // An own address in one form is removed while the other form is present.
    let plain = core.add_address(&ip(7)).unwrap();
    let other = core.add_address(&mapped(7)).unwrap();
    core.remove_address(plain);
    known(&mut core, ip(7));
    core.remove_address(other);
    let id = resolve(&mut core, mapped(7));
    peer.answers(ip(7));
    assert_eq!(core.wait_for_answer(id).path.unwrap().dlid(), peer.lid());
}

/// Fault 6: interfaces matched by prefix, so that 10.0.0.12 is taken for 10.0.0.1.
#[test]
fn an_address_with_an_own_one_as_prefix_is_not_own() {
    let mut core = opened("");
    let mut peer = Peer::at(2);
    core.add_address(&ip(1)).unwrap();
    core.add_address(&name("node1")).unwrap();
    for address in [ip(12), name("node12"), name("node")] {
        let id = resolve(&mut core, address);
        peer.request_for(address);
        assert!(core.answers(id).is_empty());
    }
}

/// Both dumps come from an OpenSM; in both the local port is the first host.
#[test]
fn the_dumps_of_real_fabrics_give_every_path() {
    let fixtures = std::path::Path::new("../acm-prov-api/tests/fixtures");
    let folder = tempfile::tempdir().unwrap();
    let packed = std::fs::read(fixtures.join("opensm-full-v1-324hosts.dump.xz")).unwrap();
    let mut text = Vec::new();
    lzma_rs::xz_decompress(&mut packed.as_slice(), &mut text).unwrap();
    let of_324_hosts = folder.path().join("dump");
    std::fs::write(&of_324_hosts, text).unwrap();
    for (file, ports) in [
        (fixtures.join("opensm-full-v1-4hosts.dump"), 6),
        (of_324_hosts, 324 + 27),
    ] {
        let routes = Routes::read(&file, ByHand::GID.interface_id(), Lid(1));
        assert_eq!(routes.len(), ports);
        let mut core = opened(&format!(
            "route_preload opensm_full_v1\nroute_data_file {}\n",
            file.display()
        ));
        core.wait_for_log(&format!(": {ports} paths"));
        for (lid, route) in routes.iter() {
            let path = known(&mut core, Address::Lid(lid));
            let gid = Gid::new(ByHand::GID.subnet_prefix(), route.guid);
            assert_eq!((path.dlid(), path.dgid()), (lid, gid));
            assert_eq!(
                (path.sl(), path.mtu(), path.rate()),
                (route.sl, route.mtu, route.rate)
            );
            assert_eq!(known(&mut core, Address::Gid(gid)), path);
        }
        assert!(core.sa_queries().is_empty());
    }
}
