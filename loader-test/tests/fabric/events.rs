//! Changes of a port, as asynchronous events and as attributes.

use fabric_sim::control::{Client, ControlError};
use fabric_sim::model::event::PortEvent::{self, *};
use loader_test::record::Lid;
use loader_test::wait;

use crate::probe::{Port, Probe};
use crate::{MANAGER, PATIENCE, PROBED, fabric};

const DOWN: u8 = 1;
const ACTIVE: u8 = 4;

fn codes(events: &[PortEvent]) -> Vec<i32> {
    events.iter().map(|event| event.code()).collect()
}

#[test]
fn a_cable_is_pulled_and_put_back() {
    let rig = fabric().start().unwrap();
    let mut probe = Probe::start(&rig, PROBED);
    let before = probe.port();
    assert_eq!(
        (before.state, before.lid),
        (ACTIVE, rig.lid(PROBED).unwrap().0)
    );
    assert_eq!(before.gid.to_be_bytes(), rig.gid(PROBED).unwrap().0);
    assert_eq!(before.pkeys, [0xffff]);

    let mark = probe.mark();
    rig.pull_cable(PROBED).unwrap();
    probe.wait_for_event(mark, PortErr);
    assert_eq!(probe.events(mark), codes(&[PortErr]));
    assert_eq!(
        probe.port(),
        Port {
            state: DOWN,
            ..before.clone()
        }
    );

    let mark = probe.mark();
    rig.put_cable_back(PROBED).unwrap();
    probe.wait_for_event(mark, PortActive);
    assert_eq!(probe.events(mark), codes(&[ClientReregister, PortActive]));
    assert_eq!(probe.port(), before);
}

#[test]
fn a_lid_changes() {
    let rig = fabric().start().unwrap();
    let mut probe = Probe::start(&rig, PROBED);
    let mark = probe.mark();
    rig.change_lid(PROBED, Lid(77)).unwrap();
    probe.wait_for_event(mark, LidChange);
    assert_eq!(probe.port().lid, 77);
}

#[test]
fn the_subnet_manager_moves() {
    let rig = fabric().start().unwrap();
    let mut probe = Probe::start(&rig, PROBED);
    let mark = probe.mark();
    rig.change_lid(MANAGER, Lid(88)).unwrap();
    probe.wait_for_event(mark, SmChange);
    probe.wait_for_event(mark, ClientReregister);
    assert_eq!(probe.port().sm_lid, 88);
}

/// A new master has no memberships: OpenSM requests reregistration in its first sweep.
#[test]
fn the_subnet_manager_is_started_again() {
    let rig = fabric().start().unwrap();
    let mut probe = Probe::start(&rig, PROBED);
    let before = probe.port();
    let mut control = Client::connect(probe.control()).unwrap();
    assert!(control.status(1).unwrap().manager_present);

    // At once, so that it is back between two readings,
    let mark = probe.mark();
    rig.kill_opensm().unwrap();
    rig.start_opensm().unwrap();
    probe.wait_for_event(mark, ClientReregister);
    assert_eq!(probe.events(mark), codes(&[ClientReregister]));

    // and after it was missed.
    let mark = probe.mark();
    rig.kill_opensm().unwrap();
    wait::until_true("the manager to be missed", PATIENCE, || {
        Ok(!control.status(1).unwrap().manager_present)
    })
    .unwrap();
    rig.start_opensm().unwrap();
    probe.wait_for_event(mark, ClientReregister);
    assert_eq!(probe.events(mark), codes(&[ClientReregister]));
    assert_eq!(probe.port(), before);
}

#[test]
fn a_partition_is_added() {
    let rig = fabric()
        .opensm_file("partitions.conf", "Default=0x7fff, ipoib : ALL=full;\n")
        .start()
        .unwrap();
    let mut probe = Probe::start(&rig, PROBED);
    let mark = probe.mark();
    let partitions = rig.directory().join("opensm/partitions.conf");
    let content = "Default=0x7fff, ipoib : ALL=full;\nOther=0x0123 : ALL=full;\n";
    std::fs::write(partitions, content).unwrap();
    rig.opensm().sweep().unwrap();
    probe.wait_for_event(mark, PkeyChange);
    assert_eq!(probe.events(mark), codes(&[PkeyChange]));
    let mut pkeys = probe.port().pkeys;
    pkeys.sort_unstable();
    assert_eq!(pkeys, [0x8123, 0xffff]);
}

#[test]
fn the_subnet_prefix_changes() {
    let rig = fabric().start().unwrap();
    let mut probe = Probe::start(&rig, PROBED);
    let mark = probe.mark();
    rig.kill_opensm().unwrap();
    let config = rig.directory().join("opensm/opensm.conf");
    let old = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("{old}subnet_prefix 0xfec0000000000001\n")).unwrap();
    rig.start_opensm().unwrap();
    probe.wait_for_event(mark, GidChange);
    assert_eq!(probe.port().gid >> 64, 0xfec0_0000_0000_0001);
}

#[test]
fn events_are_injected() {
    let rig = fabric().start().unwrap();
    let mut probe = Probe::start(&rig, PROBED);
    let before = probe.port();
    let mut control = Client::connect(probe.control()).unwrap();

    let status = control.status(1).unwrap();
    assert_eq!(
        (status.state, status.lid, status.sm_lid),
        (before.state, before.lid, before.sm_lid)
    );
    assert_eq!(status.pkeys, before.pkeys);
    assert_eq!(
        u128::from(status.gid_prefix) << 64 | u128::from(status.guid),
        before.gid
    );

    let mark = probe.mark();
    for event in PortEvent::ALL {
        control.event(event, 1).unwrap();
        probe.wait_for_event(mark, event);
    }
    assert_eq!(probe.events(mark), codes(&PortEvent::ALL));
    assert_eq!(probe.port(), before, "only the events are injected");
}

#[test]
fn malformed_commands_change_nothing() {
    let rig = fabric().start().unwrap();
    let mut probe = Probe::start(&rig, PROBED);
    let before = probe.port();
    let mark = probe.mark();
    let mut control = Client::connect(probe.control()).unwrap();
    let long = format!(r#"{{"status":{{"port":1}}}}{}"#, " ".repeat(300));
    for line in [
        "",
        "event PORT_ERR 1",
        r#"{"event":{"event":"PORT_ERR"}}"#,
        r#"{"event":{"port":1,"event":"PORT_MELTED"}}"#,
        r#"{"event":{"port":2,"event":"PORT_ERR"}}"#,
        r#"{"status":{"port":0}}"#,
        r#"{"set_faults":{"port":1,"faults":{"drop":101}}}"#,
        &long,
    ] {
        let error = control.send(line).unwrap_err();
        assert!(
            matches!(error, ControlError::Refused { .. }),
            "{line:?}: {error}"
        );
    }
    // A client that says nothing and goes, and one that does not end its line.
    drop(Client::connect(probe.control()).unwrap());
    let mut half = std::os::unix::net::UnixStream::connect(probe.control()).unwrap();
    std::io::Write::write_all(&mut half, br#"{"event":{"port":1,"event":"PORT_ERR"}}"#).unwrap();
    drop(half);

    control.event(ClientReregister, 1).unwrap();
    probe.wait_for_event(mark, ClientReregister);
    assert_eq!(probe.events(mark), codes(&[ClientReregister]));
    assert_eq!(probe.port(), before);
}

#[test]
fn a_control_socket_in_use_is_left_alone() {
    let rig = fabric().start().unwrap();
    let probe = Probe::start(&rig, PROBED);
    let path = probe.control();
    let adapter = fabric_sim::model::adapter::Adapter::new(Default::default(), vec![]);
    let error = fabric_sim::control::serve(&path, adapter.clone()).unwrap_err();
    assert!(error.to_string().contains("in use"), "{error}");
    assert_eq!(
        Client::connect(&path).unwrap().status(1).unwrap().state,
        ACTIVE
    );

    // Once its process is gone, it is replaced.
    assert!(probe.end("quit").success());
    wait::until_true("nobody to serve the socket", PATIENCE, || {
        Ok(Client::connect(&path).is_err())
    })
    .unwrap();
    fabric_sim::control::serve(&path, adapter).unwrap();
    assert!(
        Client::connect(&path).unwrap().status(1).is_err(),
        "it has no port"
    );
}

#[test]
fn verbs_that_are_not_simulated_say_so_once() {
    let rig = fabric().start().unwrap();
    let mut probe = Probe::start(&rig, PROBED);
    let enosys = rustix::io::Errno::NOSYS.raw_os_error();
    let line = probe.ask("verbs", "verbs ");
    assert_eq!(
        line,
        format!(
            "verbs srq={enosys} mw={enosys} resize={enosys} again={enosys} rc={enosys} enosys={enosys}"
        )
    );
    probe.ask("verbs", "verbs ");
    let errors = probe.errors();
    for verb in [
        "ibv_create_srq",
        "ibv_alloc_mw",
        "ibv_resize_cq",
        "ibv_create_qp of type 2",
    ] {
        let lines = errors
            .lines()
            .filter(|line| line.starts_with("fabric-sim: ") && line.contains(verb));
        assert_eq!(lines.count(), 1, "{verb} in {errors}");
    }
}

#[test]
fn programs_end_as_they_should() {
    let rig = fabric().start().unwrap();
    for round in 0..10 {
        let mut probe = Probe::start(&rig, PROBED);
        let directory = probe.directory().to_owned();
        if round % 2 == 0 {
            let (sm, dlid) = (rig.lid(MANAGER).unwrap().0, rig.lid(PROBED).unwrap().0);
            probe.tell(&format!("path 1000 3 {} {sm} {dlid}", round + 1));
        }
        let status = probe.end(if round % 3 == 0 { "quit" } else { "exit" });
        assert!(status.success(), "round {round}: {status}");
        let left = std::fs::read_dir(directory)
            .unwrap()
            .flatten()
            .map(|entry| entry.file_name());
        let left: Vec<_> = left
            .filter(|name| name.to_string_lossy().starts_with("sys-"))
            .collect();
        assert!(left.is_empty(), "umad2sim could not clean up: {left:?}");
    }
    // ibsim reads what a program sends when it ends.
    wait::until_true("ibsim to forget the programs", PATIENCE, || {
        let clients = rig.ibsim().clients()?;
        Ok(clients.iter().all(|client| client.node != PROBED))
    })
    .unwrap_or_else(|error| panic!("{error}: {:?}", rig.ibsim().clients()));
}
