//! Changes of subnet managers, cables, LIDs and peers.

use loader_test::client::{Status, entries};
use loader_test::ibacm::{Host, PortEvent};
use loader_test::log::Mark;
use loader_test::record::Lid;
use loader_test::rig::Rig;
use loader_test::wait;

use crate::support::{
    PATIENCE, addresses, ask, by_address, by_name, each_form, mcast_sa, path_to, resolve,
    resolves_in_time, rig, stock,
};

/// Deadlines short enough to wait for.
const TIMEOUT: u32 = 500;

/// Every host resolves every other one, by an address that was not used before. `form` is one of three.
fn all_ask(rig: &Rig, form: usize) {
    for from in rig.hosts() {
        for to in rig.hosts().iter().filter(|to| to.node() != from.node()) {
            let destinations = each_form(from.node(), to.node());
            resolves_in_time(rig, from, &destinations[form]);
        }
    }
}

/// Waits after `act` until every daemon has got the event to register again. For the stock provider no request
/// may be in flight meanwhile, since that crashes it.
fn all_reregister(rig: &Rig, act: impl FnOnce()) {
    let mark = |host: &Host| host.log().end();
    let marks: Vec<Mark> = rig.hosts().iter().map(mark).collect();
    act();
    for (host, mark) in rig.hosts().iter().zip(marks) {
        let told = host.log().wait_for(mark, "has reregistered", PATIENCE);
        told.unwrap();
    }
}

/// A restarted subnet manager knows no members, and asks all ports to register again.
#[test]
fn after_a_restart_of_the_subnet_manager_groups_are_joined_again() {
    let rig = rig(&[
        ("Hca1", mcast_sa()),
        ("Hca2", mcast_sa()),
        ("Hca3", stock()),
    ])
    .option("timeout", TIMEOUT)
    .start()
    .unwrap();
    all_ask(&rig, 0);
    rig.kill_opensm().unwrap();
    // Known addresses and paths need no subnet manager.
    for (from, to) in [("Hca1", "Hca2"), ("Hca2", "Hca1")] {
        let answer = ask(rig.host(from).unwrap(), &by_name(from, to));
        assert_eq!(answer.status, Status::SUCCESS);
    }
    all_reregister(&rig, || rig.start_opensm().unwrap());
    all_ask(&rig, 1);
    all_ask(&rig, 2);
}

/// The port gets the event to register again while a request is in flight; then the owner of the address
/// answers. (The stock provider frees memory that it has not allocated, which crashes most daemons.)
#[test]
fn a_request_that_is_out_survives_a_reregistration() {
    let rig = rig(&[("Hca1", mcast_sa()), ("Hca2", mcast_sa())])
        .option("timeout", TIMEOUT)
        .option("retries", 100)
        .start()
        .unwrap();
    let [host, owner] = ["Hca1", "Hca2"].map(|node| rig.host(node).unwrap());
    let mut client = host.connect().unwrap();
    owner.stop().unwrap();
    let request = entries(&by_name("Hca1", "Hca2"), 0).unwrap();
    let id = client.send(&request).unwrap();
    wait::until_true("the request to be out", PATIENCE, || {
        Ok(host.connect()?.counters()?.address_query == 1)
    })
    .unwrap();
    let mark = host.log().end();
    host.raise(PortEvent::ClientReregister).unwrap();
    host.log()
        .wait_for(mark, "joined ff15:4001:", PATIENCE)
        .unwrap();
    assert!(!client.has_answer().unwrap());
    owner.resume().unwrap();
    assert_eq!(client.receive(id).unwrap().status, Status::SUCCESS);
    resolve(&rig, host, &by_name("Hca1", "Hca2"));
}

/// The subnet manager is silent when the daemons start. The stock provider then gives up: it gets no event to
/// join again.
#[test]
fn a_join_that_failed_is_asked_for_again() {
    let rig = rig(&[
        ("Hca1", mcast_sa()),
        ("Hca2", mcast_sa()),
        ("Hca3", stock()),
    ])
    .option("timeout", 200)
    .option("retries", 1)
    .start()
    .unwrap();
    let [ours, stocks] = ["Hca1", "Hca3"].map(|node| rig.host(node).unwrap());
    rig.opensm().stop().unwrap();
    for (host, failed) in [
        (ours, "not a member of the shared group"),
        (stocks, "send join failed"),
    ] {
        host.kill();
        rig.start_host(host).unwrap();
        host.log()
            .wait_for(Mark::default(), failed, PATIENCE)
            .unwrap();
    }
    rig.opensm().resume().unwrap();
    for (from, to) in [("Hca2", "Hca1"), ("Hca1", "Hca2")] {
        resolves_in_time(&rig, rig.host(from).unwrap(), &by_name(from, to));
    }
    let answer = ask(stocks, &by_name("Hca3", "Hca2"));
    assert_eq!(answer.status, Status::ENODATA);
}

#[test]
fn a_pulled_cable_is_noticed_and_one_put_back_serves_again() {
    let rig = rig(&[
        ("Hca1", mcast_sa()),
        ("Hca2", mcast_sa()),
        ("Hca3", stock()),
    ])
    .option("timeout", TIMEOUT)
    .start()
    .unwrap();
    let pulled = rig.host("Hca2").unwrap();
    all_ask(&rig, 0);
    rig.pull_cable("Hca2").unwrap();
    wait::until_true("the daemon to see that its port is down", PATIENCE, || {
        Ok(pulled.resolve(&by_name("Hca2", "Hca1"))?.status == Status::ESRCADDR)
    })
    .unwrap();
    // A missing host does not answer; the others do.
    let one = rig.host("Hca1").unwrap();
    let [_, gone, _] = each_form("Hca1", "Hca2");
    assert_eq!(ask(one, &gone).status, Status::ETIMEDOUT);
    let [_, there, _] = each_form("Hca1", "Hca3");
    resolve(&rig, one, &there);
    rig.put_cable_back("Hca2").unwrap();
    all_ask(&rig, 1);
    all_ask(&rig, 2);
}

/// The subnet manager gives a port another LID. mcast-sa gets it from the SA; the stock provider keeps the old
/// one, which the SA does not know.
#[test]
fn after_a_change_of_a_peers_lid_paths_lead_to_the_new_one() {
    let rig = rig(&[
        ("Hca1", mcast_sa()),
        ("Hca2", mcast_sa()),
        ("Hca3", stock()),
    ])
    .option("timeout", TIMEOUT)
    .start()
    .unwrap();
    let [ours, stocks] = ["Hca1", "Hca3"].map(|node| rig.host(node).unwrap());
    all_ask(&rig, 0);
    let new = Lid(0x123);
    all_reregister(&rig, || rig.change_lid("Hca2", new).unwrap());
    for form in 0..2 {
        let path = resolves_in_time(&rig, ours, &each_form("Hca1", "Hca2")[form]);
        assert_eq!(path.dlid(), new);
    }
    // The moved host itself, from its new LID.
    let moved = rig.host("Hca2").unwrap();
    for destination in each_form("Hca2", "Hca1") {
        assert_eq!(resolves_in_time(&rig, moved, &destination).slid(), new);
    }
    wait::until_true(
        "the stock provider to lose the moved host",
        PATIENCE,
        || {
            let answer = stocks.resolve(&by_name("Hca3", "Hca2"))?;
            Ok(answer.status == Status::ENODATA)
        },
    )
    .unwrap();
}

/// The path is built from the peer's datagrams, so only the peer knows its new LID. There is no request without
/// a client.
#[test]
fn after_a_change_of_a_peers_lid_the_peer_is_asked_again_for_a_path_of_the_group() {
    let rig = rig(&[("Hca1", mcast_sa()), ("Hca2", mcast_sa())])
        .option("route_prot", "acm")
        .option("timeout", TIMEOUT)
        // The peer must have joined again before it answers.
        .option("retries", 100)
        .start()
        .unwrap();
    let [host, moved] = ["Hca1", "Hca2"].map(|node| rig.host(node).unwrap());
    let asked = || Ok(host.connect()?.counters()?.address_query);
    let [by_name, by_ip, _] = each_form("Hca1", "Hca2");
    let expect = |lid| {
        for destination in [&by_name, &by_ip] {
            assert_eq!(path_to(host, destination).dlid(), lid, "{destination:?}");
        }
    };
    expect(rig.lid("Hca2").unwrap());
    let new = Lid(0x123);
    rig.change_lid("Hca2", new).unwrap();
    let own = self::by_name("Hca2", "Hca2");
    wait::until_true("the moved host to know its LID", PATIENCE, || {
        let path = moved.resolve(&own)?.path();
        Ok(path.is_some_and(|path| path.dlid() == new))
    })
    .unwrap();
    let mark = host.log().end();
    host.raise(PortEvent::ClientReregister).unwrap();
    host.log()
        .wait_for(mark, "has reregistered", PATIENCE)
        .unwrap();
    let before = asked().unwrap();
    expect(new);
    assert!(asked().unwrap() > before);
    wait::until_true("the addresses to be known again", PATIENCE, || {
        let before = asked()?;
        expect(new);
        Ok(asked()? == before)
    })
    .unwrap();
}

/// A restarted peer has a new queue pair.
#[test]
fn a_peer_that_was_started_again_asks_and_is_found() {
    let rig = rig(&[
        ("Hca1", mcast_sa()),
        ("Hca2", mcast_sa()),
        ("Hca3", stock()),
    ])
    .option("timeout", TIMEOUT)
    .start()
    .unwrap();
    let one = rig.host("Hca1").unwrap();
    for node in ["Hca2", "Hca3"] {
        let peer = rig.host(node).unwrap();
        let [name, ip, ip6] = addresses(node);
        let from_name = |form: usize| by_address(&name, &addresses("Hca1")[form]);
        resolves_in_time(&rig, peer, &from_name(1));
        peer.kill();
        rig.start_host(peer).unwrap();
        // It sends a request to a node that knows its old queue pair, and gets one.
        for form in [1, 2] {
            resolves_in_time(&rig, peer, &from_name(form));
        }
        for destination in [&name, &ip, &ip6] {
            resolve(&rig, one, &by_address("node1", destination));
        }
    }
}

/// The stock provider keeps its queue pair when its port's LID changes: a peer with a new LID and the same
/// queue pair.
#[test]
fn a_peer_with_a_new_lid_and_the_same_queue_pair_is_answered_at_the_new_one() {
    let rig = rig(&[("Hca1", mcast_sa()), ("Hca2", stock()), ("Hca3", stock())])
        .option("timeout", TIMEOUT)
        .start()
        .unwrap();
    all_ask(&rig, 0);
    let new = Lid(0x123);
    all_reregister(&rig, || rig.change_lid("Hca2", new).unwrap());
    let moved = rig.host("Hca2").unwrap();
    // It asks by a name that both others know it by.
    let [ours, stocks] = ["Hca1", "Hca3"].map(|node| by_address("node2", &addresses(node)[1]));
    resolves_in_time(&rig, moved, &ours);
    // The cached entries now lead to the new LID.
    let path = resolves_in_time(&rig, rig.host("Hca1").unwrap(), &by_name("Hca1", "Hca2"));
    assert_eq!(path.dlid(), new);
    // The stock provider sends its answer to the old LID, which no port has.
    assert_eq!(ask(moved, &stocks).status, Status::ETIMEDOUT);
}
