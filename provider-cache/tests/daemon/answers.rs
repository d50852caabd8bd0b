//! Answers for LIDs, GIDs, names and IP addresses: equal to the SA's response, and refused if there is no path.

use loader_test::client::{ACKNOWLEDGE, Answer, Destination, Entry, Status, entries, flag, kind};
use loader_test::record::{Gid, Lid, PathRecord};
use loader_test::stock::{self, Form};

use crate::support::{
    NOBODYS_LID, ask, assert_equal, by_address, by_gid, by_lid, nobodys_gid, resolve, rig, sa_path,
};

/// Resolves every address of every host, from every host, by ib_acme and by our own client.
#[test]
fn every_form_of_address_leads_to_the_path_that_the_sa_has() {
    let mut plan = rig();
    for host in 1..=4 {
        let node = format!("Hca{host}");
        for address in [
            format!("node{host}"),
            format!("10.1.0.{host}"),
            format!("fd00::{host}"),
        ] {
            plan = plan.address(&node, address);
        }
    }
    let rig = plan.start().unwrap();
    let mut report = Vec::new();
    let tally = stock::run(&rig, &Form::ALL, &mut report).unwrap();
    let report = String::from_utf8_lossy(&report);
    assert!(tally.is_clean(), "{report}");
    // Four hosts ask for four, in five forms.
    assert_eq!((tally.asked, tally.notes), (4 * 4 * 5, 0), "{report}");
}

fn send(host: &loader_test::ibacm::Host, entries: &[Entry]) -> Answer {
    let mut client = host.connect().unwrap();
    let id = client.send(entries).unwrap();
    client.receive(id).unwrap()
}

#[test]
fn an_answer_has_the_form_of_the_protocol() {
    let rig = rig()
        .address("Hca1", "10.1.0.1")
        .address("Hca2", "10.1.0.2")
        .host("Hca1")
        .host("Hca2")
        .start()
        .unwrap();
    let host = rig.host("Hca1").unwrap();
    for destination in [by_lid(&rig, "Hca2"), by_address("10.1.0.1", "10.1.0.2")] {
        let answer = ask(host, &destination);
        assert_eq!(answer.operation & ACKNOWLEDGE, ACKNOWLEDGE);
        assert_eq!((answer.status, answer.data), (Status::SUCCESS, [0; 3]));
        assert_eq!(answer.entries.len(), 1, "{answer:?}");
        // IBV_PATH_FLAG_GMP, PRIMARY and both bits of BIDIRECTIONAL in <infiniband/sa.h>.
        let path = answer.entries[0];
        assert_eq!((path.kind, path.flags), (kind::PATH, 1 | 2 | 8 | 32));
    }
    let refused = ask(host, &Destination::Lid(NOBODYS_LID));
    assert_eq!(refused.status, Status::ENODATA);
    assert_eq!((refused.data, refused.entries.len()), ([0; 3], 0));
    assert_eq!(refused.operation & ACKNOWLEDGE, ACKNOWLEDGE);
}

#[test]
fn addresses_are_their_own_bytes_and_nothing_else() {
    let rig = rig()
        .address("Hca1", "node1")
        .address("Hca1", "10.1.0.1")
        .address("Hca2", "node2")
        .address("Hca2", "10.1.0.2")
        .start()
        .unwrap();
    let host = rig.host("Hca1").unwrap();
    let right = sa_path(&rig, host, &by_gid(&rig, "Hca2"));

    let source = Entry::address(flag::SOURCE, "10.1.0.1").unwrap();
    let mut destination = Entry::address(flag::DESTINATION, "10.1.0.2").unwrap();
    destination.info[10] = 0xaa;
    assert_equal(
        &send(host, &[source, destination]).into_path().unwrap(),
        &right,
    );

    let source = Entry::address(flag::SOURCE, "node1").unwrap();
    let mut destination = Entry::address(flag::DESTINATION, "NODE2").unwrap();
    destination.info[20] = b'x';
    assert_equal(
        &send(host, &[source, destination]).into_path().unwrap(),
        &right,
    );

    // Without a NUL, all 64 bytes are the name.
    let endless = Entry::new(kind::NAME, flag::DESTINATION, &[b'n'; 64]).unwrap();
    assert_eq!(send(host, &[source, endless]).status, Status::ENODATA);
    resolve(&rig, host, &by_address("node1", "node2"));
}

/// rdma_getaddrinfo sends both addresses and the part of the path that it knows.
#[test]
fn addresses_with_a_path_of_hints_are_resolved() {
    let rig = rig()
        .address("Hca1", "10.1.0.1")
        .address("Hca2", "10.1.0.2")
        .start()
        .unwrap();
    let host = rig.host("Hca1").unwrap();
    let mut hints = PathRecord::EMPTY;
    hints
        .set_pkey(0xffff)
        .set_service_id(0x0106_1234)
        .set_reversible_and_number(true, 1);
    let mut message = entries(&by_address("10.1.0.1", "10.1.0.2"), 0).unwrap();
    message.push(Entry::path(0, &hints));
    let path = send(host, &message).into_path().unwrap();
    let right = sa_path(&rig, host, &by_gid(&rig, "Hca2"));
    assert_eq!(
        (
            path.dgid(),
            path.dlid(),
            path.slid(),
            path.mtu(),
            path.rate(),
            path.sl()
        ),
        (
            right.dgid(),
            right.dlid(),
            right.slid(),
            right.mtu(),
            right.rate(),
            right.sl()
        )
    );
}

#[test]
fn unknown_destinations_are_no_data() {
    let rig = rig()
        .address("Hca1", "node1")
        .address("Hca1", "10.1.0.1")
        .start()
        .unwrap();
    let host = rig.host("Hca1").unwrap();
    for destination in [
        Destination::Lid(NOBODYS_LID),
        Destination::Gid(nobodys_gid(&rig)),
        by_address("node1", "node9"),
        by_address("10.1.0.1", "10.1.0.9"),
    ] {
        let answer = ask(host, &destination);
        assert_eq!(answer.status, Status::ENODATA, "{destination:?}");
        assert_eq!(answer.entries, [], "{destination:?}");
    }
    resolve(&rig, host, &by_lid(&rig, "Hca2"));
}

#[test]
fn an_impossible_path_is_refused_without_an_sa_query() {
    let rig = rig().start().unwrap();
    let host = rig.host("Hca1").unwrap();
    let lid = rig.lid("Hca2").unwrap();
    let mark = rig.opensm().log().end();
    let refused = |set: &dyn Fn(&mut PathRecord)| {
        let mut record = PathRecord::EMPTY;
        set(&mut record);
        let answer = ask(host, &Destination::Path(record));
        assert_ne!(answer.status, Status::SUCCESS, "{record:?}: {answer:?}");
        assert_eq!(answer.entries, []);
    };
    refused(&|_| ());
    refused(&|path| {
        path.set_dlid(Lid(0xc001));
    });
    refused(&|path| {
        path.set_dlid(Lid(0xffff));
    });
    let foreign = nobodys_gid(&rig);
    refused(&|path| {
        path.set_dlid(lid).set_sgid(foreign);
    });
    refused(&|path| {
        path.set_dlid(lid).set_pkey(0x8123);
    });
    refused(&|path| {
        path.set_dgid(Gid([0xff; 16]));
    });
    assert_eq!(rig.path_queries(host, mark).unwrap(), []);
    resolve(&rig, host, &Destination::Lid(lid));
}

/// With the flag QUERY_SA, the answer comes from the SA, whatever is cached.
#[test]
fn a_query_asks_the_sa_each_time() {
    let rig = rig().start().unwrap();
    let host = rig.host("Hca1").unwrap();
    let destination = by_lid(&rig, "Hca3");
    let path = resolve(&rig, host, &destination);
    let mark = rig.opensm().log().end();
    let mut client = host.connect().unwrap();
    for _ in 0..3 {
        let mut wanted = PathRecord::EMPTY;
        wanted.set_dlid(path.dlid());
        assert_equal(&client.query(&wanted).unwrap().into_path().unwrap(), &path);
    }
    assert_eq!(rig.path_queries(host, mark).unwrap().len(), 3);

    let mut unknown = path;
    unknown.set_dlid(NOBODYS_LID);
    assert_ne!(client.query(&unknown).unwrap().status, Status::SUCCESS);
}
