//! Tests which datagrams reach a program's own queue pair beside those of daemons.

use fabric_sim::model::event::PortEvent;
use loader_test::client::{Destination, Status};
use loader_test::log::Mark;
use loader_test::record::Gid;
use loader_test::rig::Rig;

use crate::probe::Probe;
use crate::{DAEMON, MANAGER, PATIENCE, PROBED, fabric};

/// The group of all stock daemons in the default partition.
const GROUP: Gid = Gid([
    0xff, 0x15, 0x40, 0x01, 0xff, 0xff, 0, 3, 4, 0, 0, 0, 0, 0, 0, 0,
]);
const QKEY: u32 = 0x8001_0000;
const SET: u8 = 0x02;
const DELETE: u8 = 0x15;
/// The host that owns the requested names.
const OWNER: &str = "Hca4";

/// A daemon that resolves names, and another that owns them.
fn daemons(names: &[&str]) -> Rig {
    let mut rig = fabric().host(OWNER).address(DAEMON, "asker");
    for name in names {
        rig = rig.address(OWNER, *name);
    }
    let rig = rig.option("addr_preload", "none").start().unwrap();
    for host in rig.hosts() {
        let log = host.log();
        log.wait_for(Mark::default(), "join successful", PATIENCE)
            .unwrap();
    }
    rig
}

/// The daemon sends the group a request for a name, and the owner responds.
fn ask_group(rig: &Rig, name: &str) {
    let question = Destination::Address {
        destination: name.to_owned(),
        source: Some("asker".to_owned()),
    };
    let answer = rig.host(DAEMON).unwrap().resolve(&question).unwrap();
    assert_eq!(answer.status, Status::SUCCESS, "{name}");
}

#[test]
fn a_group_is_heard_as_long_as_the_sa_has_the_port_for_a_member() {
    let rig = daemons(&["before", "member", "left", "refused", "again"]);
    let sm_lid = rig.lid(MANAGER).unwrap().0;
    let mut probe = Probe::start(&rig, PROBED);
    probe.make_queue_pair();

    // Join to get the group's LID, which the SA returns only to members.
    let joined = probe.change_membership(SET, 1, sm_lid, GROUP, QKEY);
    assert_eq!(joined.status, 0);
    let left = probe.change_membership(DELETE, 2, sm_lid, GROUP, QKEY);
    assert_eq!(left.status, 0);
    probe.attach(GROUP, joined.mlid);
    ask_group(&rig, "before");

    let again = probe.change_membership(SET, 3, sm_lid, GROUP, QKEY);
    assert_eq!(again, joined);
    ask_group(&rig, "member");
    let came = probe.wait_for_datagram("member");
    assert_eq!(
        (came.source_lid, came.grh, came.length),
        (rig.lid(DAEMON).unwrap().0, true, 256)
    );

    probe.change_membership(DELETE, 4, sm_lid, GROUP, QKEY);
    ask_group(&rig, "left");
    // Another Q_Key than the group's.
    let refused = probe.change_membership(SET, 5, sm_lid, GROUP, 0x1234);
    assert_ne!(refused.status, 0);
    ask_group(&rig, "refused");

    // The daemon's datagrams keep their order: with the last one here, all others have come or never will.
    probe.change_membership(SET, 6, sm_lid, GROUP, QKEY);
    ask_group(&rig, "again");
    probe.wait_for_datagram("again");
    let came = probe.datagrams();
    let texts: Vec<_> = came.iter().map(|datagram| &datagram.text[..]).collect();
    assert_eq!(texts, ["member", "again"]);
}

#[test]
fn programs_at_one_node_have_its_port_together() {
    let rig = daemons(&["both"]);
    let sm_lid = rig.lid(MANAGER).unwrap().0;
    let mut probes = [PROBED, PROBED].map(|node| Probe::start(&rig, node));
    let numbers = probes.each_mut().map(Probe::make_queue_pair);
    assert_ne!(numbers[0], numbers[1]);
    for probe in &mut probes {
        let joined = probe.change_membership(SET, 1, sm_lid, GROUP, QKEY);
        probe.attach(GROUP, joined.mlid);
    }
    ask_group(&rig, "both");
    for probe in &probes {
        probe.wait_for_datagram("both");
    }
    // One finds the other by the port's own LID.
    let (lid, gid) = (rig.lid(PROBED).unwrap(), rig.gid(PROBED).unwrap());
    let [one, other] = &mut probes;
    one.send(lid, numbers[1], None, "neighbour");
    let came = other.wait_for_datagram("neighbour");
    assert_eq!(
        (came.source_lid, came.source_qp, came.grh),
        (lid.0, numbers[0], false)
    );
    other.send(lid, numbers[0], Some(gid), "and-back");
    assert!(one.wait_for_datagram("and-back").grh);
    assert_eq!(one.datagrams().len(), 2);
}

#[test]
fn nothing_leaves_a_port_whose_cable_is_pulled() {
    let rig = fabric().start().unwrap();
    let [mut one, mut other] = [PROBED, OWNER].map(|node| Probe::start(&rig, node));
    let number = one.make_queue_pair();
    other.make_queue_pair();
    let lid = rig.lid(PROBED).unwrap();
    let mark = other.mark();
    rig.pull_cable(OWNER).unwrap();
    other.wait_for_event(mark, PortEvent::PortErr);
    other.send(lid, number, None, "pulled");
    rig.put_cable_back(OWNER).unwrap();
    other.wait_for_event(mark, PortEvent::PortActive);
    other.send(lid, number, None, "put-back");
    one.wait_for_datagram("put-back");
    assert_eq!(one.datagrams().len(), 1);
}
