//! The kernel's MAD time-outs. Tests only check that times are not too short.

use crate::probe::{Probe, Received};
use crate::{DAEMON, MANAGER, PROBED, fabric};

const GET_RESP: u8 = 0x81;
const GET: u8 = 0x01;
const SA: u8 = 0x03;
const ETIMEDOUT: u32 = 110;
/// The part of a request that the kernel returns: the MAD header.
const HEADER: u32 = 24;

fn assert_timed_out(mad: &Received, timeout_ms: u64, retries: u64) {
    let expected = Received {
        transaction: mad.transaction,
        status: ETIMEDOUT,
        length: HEADER,
        method: GET,
        class: SA,
        milliseconds: mad.milliseconds,
    };
    assert_eq!(*mad, expected);
    assert!(
        mad.milliseconds >= timeout_ms * (retries + 1),
        "given back too early: {mad:?}"
    );
}

fn assert_answered(mad: &Received) {
    assert_eq!(
        (mad.status, mad.method, mad.length),
        (0, GET_RESP, 256),
        "{mad:?}"
    );
}

#[test]
fn an_answer_comes_once() {
    let rig = fabric().start().unwrap();
    let mut probe = Probe::start(&rig, PROBED);
    let (sm, dlid) = (rig.lid(MANAGER).unwrap().0, rig.lid(DAEMON).unwrap().0);
    for transaction in 1..=20 {
        probe.ask_for_path(5000, 1, transaction, sm, dlid);
        assert_answered(&probe.wait_for_mad(transaction));
    }
    for transaction in 1..=20 {
        assert_eq!(probe.received(transaction).len(), 1);
    }
}

#[test]
fn opensm_stopped() {
    let rig = fabric().start().unwrap();
    let mut probe = Probe::start(&rig, PROBED);
    let (sm, dlid) = (rig.lid(MANAGER).unwrap().0, rig.lid(DAEMON).unwrap().0);
    let mark = rig.opensm().log().end();
    rig.opensm().stop().unwrap();

    // The first waits longer than the second takes to be given back, and is sent again meanwhile.
    probe.ask_for_path(300, 600, 1, sm, dlid);
    probe.ask_for_path(300, 2, 2, sm, dlid);
    assert_timed_out(&probe.wait_for_mad(2), 300, 2);
    assert_eq!(probe.received(1), []);
    let refused = probe.ask(&format!("path 300 2 1 {sm} {dlid}"), "refused 1 ");
    assert_eq!(
        refused,
        format!("refused 1 {}", rustix::io::Errno::INVAL.raw_os_error()),
        "it is still out"
    );

    rig.opensm().resume().unwrap();
    assert_answered(&probe.wait_for_mad(1));
    // The SA answers everything that was sent to it in its order: once this answer is here, all others have been.
    probe.ask_for_path(5000, 5, 3, sm, dlid);
    assert_answered(&probe.wait_for_mad(3));
    assert_eq!(
        probe.received(1).len(),
        1,
        "answers to what was sent again are dropped"
    );
    assert_eq!(probe.received(2).len(), 1, "late answers are dropped");

    let queries = rig.opensm().path_queries(mark).unwrap();
    let sent = |transaction: u32| {
        queries
            .iter()
            .filter(|query| query.transaction_id as u32 == transaction && !query.table)
            .count()
    };
    assert!(
        sent(1) >= 3,
        "sent again with the same transaction id: {queries:?}"
    );
    assert_eq!(sent(2), 3, "once and two retries: {queries:?}");
    assert!(sent(3) >= 1);
}

#[test]
fn opensm_killed() {
    let rig = fabric().start().unwrap();
    let mut probe = Probe::start(&rig, PROBED);
    let (sm, dlid) = (rig.lid(MANAGER).unwrap().0, rig.lid(DAEMON).unwrap().0);
    // A request at the stopped SA, to which ibsim never responds.
    rig.opensm().stop().unwrap();
    probe.ask_for_path(400, 1, 1, sm, dlid);
    rig.kill_opensm().unwrap();
    // A request to a missing destination, which ibsim returns at once.
    probe.ask_for_path(400, 2, 2, sm, dlid);
    assert_timed_out(&probe.wait_for_mad(1), 400, 1);
    assert_timed_out(&probe.wait_for_mad(2), 400, 2);

    // A request that is outstanding while the SA comes back.
    probe.ask_for_path(500, 600, 3, sm, dlid);
    rig.start_opensm().unwrap();
    assert_answered(&probe.wait_for_mad(3));
    for transaction in 1..=3 {
        assert_eq!(probe.received(transaction).len(), 1);
    }
}

#[test]
fn without_a_time_out_nothing_comes_back() {
    let rig = fabric().start().unwrap();
    let mut probe = Probe::start(&rig, PROBED);
    let (sm, dlid) = (rig.lid(MANAGER).unwrap().0, rig.lid(DAEMON).unwrap().0);
    probe.ask_for_path(0, 0, 1, sm, dlid);
    probe.ask_for_path(5000, 5, 2, sm, dlid);
    assert_answered(&probe.wait_for_mad(2));
    assert_eq!(
        probe.received(1),
        [],
        "the kernel drops answers that nobody waits for"
    );
}

#[test]
fn a_destination_that_does_not_exist() {
    let rig = fabric().start().unwrap();
    let mut probe = Probe::start(&rig, PROBED);
    probe.ask_for_path(200, 1, 1, 0xbfff, 1);
    assert_timed_out(&probe.wait_for_mad(1), 200, 1);
}

/// umad2sim has room for 8 descriptors and 32 agents, and crashes on an answer to one that is closed.
#[test]
fn ports_are_closed_with_requests_out() {
    let rig = fabric().start().unwrap();
    let mut probe = Probe::start(&rig, PROBED);
    let (sm, dlid) = (rig.lid(MANAGER).unwrap().0, rig.lid(DAEMON).unwrap().0);
    let answer = probe.ask(&format!("reopen 100 {sm} {dlid}"), "reopened ");
    assert_eq!(answer, "reopened 100");
    // All of that has been answered once this is.
    probe.ask_for_path(5000, 5, 2, sm, dlid);
    assert_answered(&probe.wait_for_mad(2));
    assert_eq!(
        probe.received(1),
        [],
        "answers for closed ports are not for this one"
    );
}
