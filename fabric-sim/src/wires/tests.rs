//! Adapters on wires; one adapter here stands for one process.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::*;
use crate::model::adapter::Identity;
use crate::model::completion::Completion;
use crate::model::data_path::Datagram;
use crate::model::port::STATE_DOWN;
use crate::model::queue_pair::MULTICAST_QPN;
use crate::testing::*;

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// A process at the node whose only port has that LID.
fn process(folder: &Path, lid: u16) -> Host {
    let port = (*adapter(lid).port(1).unwrap()).clone();
    let identity = Identity {
        node_guid: lid.into(),
        ..Identity::default()
    };
    let adapter = Adapter::new(identity, vec![port]);
    connect(folder, &adapter, None).unwrap();
    let host = Host::on(adapter);
    host.make_ready(0);
    host.receive_into(1, 512);
    host
}

/// Returns the next received completion and posts the receive again.
fn next(host: &Host) -> Completion {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(completion) = host.received() {
            host.receive_into(1, 512);
            return completion;
        }
        assert!(Instant::now() < deadline, "nothing came");
        std::thread::yield_now();
    }
}

fn payload(host: &Host, completion: &Completion) -> Vec<u8> {
    host.buffer[40..completion.byte_len as usize].to_vec()
}

fn send(from: &Host, to: &Host, payload: &[u8]) {
    let lid = to.adapter.port(1).unwrap().info.lid;
    from.send(payload, at(lid), to.pair.number());
}

/// Wires keep the order: once this datagram has arrived, earlier ones have arrived or are lost.
fn assert_next_is(from: &Host, to: &Host, text: &[u8]) {
    send(from, to, text);
    let came = next(to);
    assert_eq!(payload(to, &came), text);
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap().flatten();
    let mut names: Vec<_> = entries
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn unicast_and_multicast_go_from_process_to_process() {
    let folder = folder();
    let [a, b, c] = [5, 6, 7].map(|lid| process(folder.path(), lid));
    send(&a, &b, b"hello");
    let came = next(&b);
    assert_eq!(payload(&b, &came), b"hello");
    assert_eq!((came.source_qp, came.source_lid), (a.pair.number(), 5));

    for host in [&a, &b] {
        host.join();
    }
    c.pair.attach(GROUP, MLID).unwrap();
    a.send(b"to all", group(), MULTICAST_QPN);
    let came = next(&b);
    assert_eq!(payload(&b, &came), b"to all");
    assert!(came.grh);
    // The first has not joined, the second sent it.
    assert_next_is(&b, &c, b"after it");
    assert_next_is(&b, &a, b"after it");
}

#[test]
fn processes_at_one_node_share_its_port() {
    let folder = folder();
    let [daemon, tool] = [5, 5].map(|lid| process(folder.path(), lid));
    let other = process(folder.path(), 6);
    assert_ne!(daemon.pair.number() >> 16, tool.pair.number() >> 16);
    for host in [&daemon, &tool, &other] {
        host.join();
    }
    send(&other, &daemon, b"to the daemon");
    send(&other, &tool, b"to the tool");
    for (host, text) in [(&daemon, &b"to the daemon"[..]), (&tool, b"to the tool")] {
        let came = next(host);
        assert_eq!(payload(host, &came), text);
    }
    assert_next_is(&daemon, &tool, b"from one to the other");
    daemon.send(b"to all", group(), MULTICAST_QPN);
    for host in [&tool, &other] {
        let came = next(host);
        assert_eq!(payload(host, &came), b"to all");
    }
    assert_next_is(&other, &daemon, b"it did not hear itself");
}

#[test]
fn a_port_that_is_not_active_sends_nothing() {
    let folder = folder();
    let [a, b] = [5, 6].map(|lid| process(folder.path(), lid));
    let active = a.adapter.port(1).unwrap().info.state;
    a.change_port(|port| port.info.state = STATE_DOWN);
    send(&a, &b, b"while it is down");
    a.change_port(|port| port.info.state = active);
    assert_next_is(&a, &b, b"afterwards");
}

#[test]
fn a_lid_that_changes_is_followed() {
    let folder = folder();
    let [a, b] = [5, 6].map(|lid| process(folder.path(), lid));
    b.change_port(|port| port.info.lid = 77);
    a.send(b"to the old", at(6), b.pair.number());
    assert_next_is(&a, &b, b"to the new");
}

#[test]
fn strangers_are_dropped() {
    let folder = folder();
    let [a, b] = [5, 6].map(|lid| process(folder.path(), lid));
    let stranger = UnixDatagram::unbound().unwrap();
    let names = names(folder.path());
    let name = names
        .iter()
        .find(|name| name.starts_with("0000000000000006") && name.ends_with("-01"));
    let address = folder.path().join(name.unwrap());
    let mut lies = encode(&Datagram::default());
    lies[26] = 0xff;
    for bytes in [
        &b""[..],
        b"?",
        b"FSUD",
        b"FSUD\x09",
        &[0; 300],
        &lies,
        &vec![b'F'; 60_000],
    ] {
        stranger.send_to(bytes, &address).unwrap();
    }
    assert_next_is(&a, &b, b"still there");
}

#[test]
fn a_slot_that_was_left_is_taken_over() {
    let folder = folder();
    // Left by a killed process: no process holds the lock or the socket.
    let name = folder.path().join("0000000000000005-00-01");
    drop(UnixDatagram::bind(&name).unwrap());
    drop(UnixDatagram::bind(folder.path().join("0000000000000009-00-01")).unwrap());
    std::fs::write(folder.path().join("0000000000000005-00.lock"), "").unwrap();
    let [a, b] = [5, 6].map(|lid| process(folder.path(), lid));
    assert_eq!(a.pair.number() >> 16, 0);
    assert_next_is(&a, &b, b"one way");
    assert_next_is(&b, &a, b"and back");
}

#[test]
fn wires_end_with_their_adapter() {
    let folder = folder();
    let [a, b] = [5, 6].map(|lid| process(folder.path(), lid));
    let weak = Arc::downgrade(&b.adapter);
    assert_next_is(&a, &b, b"hello");
    drop(b);
    let deadline = Instant::now() + Duration::from_secs(60);
    // The receiving thread may hold it for a moment.
    while weak.strong_count() > 0
        || names(folder.path()).contains(&"0000000000000006-00-01".to_owned())
    {
        assert!(Instant::now() < deadline, "{:?}", names(folder.path()));
        std::thread::yield_now();
    }
    a.send(b"nobody", at(6), 0x40);
    let b = process(folder.path(), 6);
    assert_next_is(&a, &b, b"its successor");
}

#[test]
fn a_full_receiver_does_not_block_the_sender() {
    let folder = folder();
    let [a, b] = [5, 6].map(|lid| process(folder.path(), lid));
    // The kernel queues a few datagrams for it, ten on many systems.
    let slow = UnixDatagram::bind(folder.path().join("000000000000000a-00-01")).unwrap();
    for number in 0..200u8 {
        send(&a, &b, &[number; 4]);
    }
    // B has received as many as it has posted receives, while the slow one has taken none.
    let came = next(&b);
    assert_eq!(payload(&b, &came).len(), 4);
    slow.set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let mut frame = [0; MAX_FRAME];
    for number in 0..200u8 {
        let length = slow.recv(&mut frame).unwrap();
        assert_eq!(
            parse(&frame[..length]).unwrap().payload,
            [number; 4],
            "in order"
        );
    }
}

/// The folder's change time may be too coarse to separate the changes: before Linux 6.13 the clock has a
/// resolution of milliseconds.
#[test]
fn a_process_that_just_joined_gets_the_next_datagram() {
    let folder = folder();
    let a = process(folder.path(), 5);
    for number in 0..50u8 {
        a.send(b"before", at(6), 0x40);
        let name = format!("00000000000000ff-{number:02x}-01");
        let new = UnixDatagram::bind(folder.path().join(name)).unwrap();
        a.send(b"hello", at(6), 0x40);
        new.set_nonblocking(true).unwrap();
        let mut frame = [0; MAX_FRAME];
        let length = new.recv(&mut frame).unwrap();
        assert_eq!(parse(&frame[..length]).unwrap().payload, b"hello");
    }
}

#[test]
fn folders_may_have_long_names() {
    let folder = folder();
    let long = folder.path().join("x".repeat(120)).join("y".repeat(120));
    std::fs::create_dir_all(&long).unwrap();
    let [a, b] = [5, 6].map(|lid| process(&long, lid));
    assert_next_is(&a, &b, b"hello");
}

#[test]
fn errors_of_the_folder_are_reported() {
    let folder = folder();
    let missing = folder.path().join("missing");
    let adapter = adapter(5);
    let error = connect(&missing, &adapter, None).unwrap_err().to_string();
    assert!(
        error.contains("missing") && error.contains("FABRIC_SIM_WIRES"),
        "{error}"
    );
    std::fs::create_dir(folder.path().join("0000000000000000-00-01")).unwrap();
    let error = connect(folder.path(), &adapter, None)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("cannot create 0000000000000000-00-01"),
        "{error}"
    );
}

#[test]
fn the_first_number_can_be_set() {
    let folder = folder();
    let [one, other] = [adapter(5), adapter(5)];
    for adapter in [&one, &other] {
        connect(folder.path(), adapter, Some(0x1234)).unwrap();
    }
    let numbers = [one, other].map(|adapter| Host::on(adapter).pair.number());
    assert_eq!(numbers, [0x00_1234, 0x01_1234]);
}
