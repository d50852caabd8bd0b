//! Opening and closing, in any order and any number of times.

use std::path::{Path, PathBuf};

use acm_stand_in::message::Addr;
use acm_stand_in::{FIRST_PORT, StandIn};
use fabric_sim::verbs::fault;

use super::*;

/// Returns the folders of the provider's threads in /proc.
fn tasks() -> Vec<PathBuf> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    tasks
        .map(|task| task.path())
        .filter(|task| {
            let name = std::fs::read_to_string(task.join("comm")).unwrap_or_default();
            name.starts_with("mcast-sa/") || name.starts_with("path-cache/")
        })
        .collect()
}

/// Waits until the provider has that many threads. A joined thread stays in /proc for a moment, and a new one
/// names itself.
fn wait_for_threads(count: usize, when: &str) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        let tasks = tasks();
        if tasks.len() == count {
            return;
        }
        let names = || -> Vec<String> {
            let names = tasks
                .iter()
                .map(|task| std::fs::read_to_string(task.join("comm")));
            names.map(Result::unwrap_or_default).collect()
        };
        assert!(
            std::time::Instant::now() < deadline,
            "{when}: {count} threads were expected, these are there: {:?}",
            names()
        );
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// Returns whether a thread waits in the kernel without a timeout.
fn sleeps_for_good(task: &Path) -> bool {
    let call = std::fs::read_to_string(task.join("syscall")).unwrap_or_default();
    let words: Vec<&str> = call.split_whitespace().collect();
    // System call numbers of x86-64: futex has its timeout as the fourth argument, ppoll as the third.
    match words[..] {
        ["202", _, _, _, timeout, ..] | ["271", _, _, timeout, ..] => timeout == "0x0",
        _ => false,
    }
}

#[test]
fn threads_end_with_their_device() {
    let mut core = opened("");
    wait_for_threads(2, "the device's and the port's");
    core.close();
    wait_for_threads(0, "after the close");
}

/// There is no polling: with nothing to do and nothing to expire, both threads wait without a timeout.
#[test]
fn threads_without_work_sleep() {
    let mut core = opened("addr_timeout -1\n");
    let mut peer = Peer::at(2);
    learn(&mut core, &mut peer, ip(2));
    until("both threads sleep", || {
        let tasks = tasks();
        tasks.len() == 2 && tasks.iter().all(|task| sleeps_for_good(task))
    });
    // Work wakes them.
    let mut other = Peer::at(3);
    learn(&mut core, &mut other, ip(3));
}

/// Fault 18: reopen after a LID change: cached answers keep the old SLID.
#[test]
fn nothing_learnt_outlives_the_port() {
    let mut core = opened("");
    let mut peer = Peer::at(2);
    for lid in [1, 5, 9] {
        core.change_port(|port| port.lid = lid);
        core.close_port();
        core.open();
        while core
            .sa_queries()
            .iter()
            .any(|packet| packet.mad_hdr.method == 0x15)
        {
            core.sa_answers(|_| ());
        }
        grant_join(&core);
        assert_eq!(known(&mut core, source()).slid(), Lid(lid));
        let id = resolve(&mut core, ip(2));
        peer.answers(ip(2));
        core.wait_for_sa_queries(1);
        core.sa_answers_with(|path| {
            path.set_slid(Lid(lid));
        });
        assert_eq!(core.wait_for_answer(id).path.unwrap().slid(), Lid(lid));
    }
}

#[test]
fn waiting_requests_are_refused_when_the_port_goes_down() {
    let mut core = opened("");
    let ids: Vec<u64> = (2..5).map(|n| resolve(&mut core, ip(n))).collect();
    core.close_port();
    for id in ids {
        assert_eq!(core.wait_for_answer(id).status, Status::ENOTCONN);
    }
}

/// Fault 19: closed twice.
#[test]
fn a_second_close_is_harmless() {
    let mut core = opened("");
    let contexts = core.contexts();
    core.close();
    core.close_again(contexts);
}

/// Fault 19: physical and virtual functions share a node GUID.
#[test]
fn two_devices_with_one_guid_are_two() {
    let mut core = opened("");
    core.port_up(peer::VIRTUAL_FUNCTION).unwrap();
    wait_for_threads(4, "with a second device");
    core.port_down(peer::VIRTUAL_FUNCTION);
    wait_for_threads(2, "after the second device's close");
    let mut peer = Peer::at(2);
    learn(&mut core, &mut peer, ip(2));
    core.port_up(peer::VIRTUAL_FUNCTION).unwrap();
    core.close();
    wait_for_threads(0, "after the close");
}

/// Fault 12: an unknown rate is not a rate of 0.
#[test]
fn a_port_of_unknown_speed_has_no_group_of_its_own() {
    let mut core = loaded("route_prot acm\n");
    core.change_port(|port| port.rate.1 = 3);
    core.open();
    assert_eq!(core.sa_queries().len(), 1);
    grant_join(&core);
    let mut peer = Peer::at(2);
    let id = resolve(&mut core, ip(2));
    peer.answers(ip(2));
    let path = core.wait_for_answer(id).path.unwrap();
    assert_eq!((path.dlid(), path.rate()), (peer.lid(), 3));
    // The SA provides what the port does not report.
    resolve(&mut core, source());
    core.wait_for_sa_queries(1);
}

/// HDR and faster, and width 2x, which the core's own table does not have.
#[test]
fn a_modern_port_has_a_group_of_its_own() {
    for (width, speed, rate) in [(2, 64, 17), (16, 64, 16), (2, 128, 21)] {
        let mut core = loaded("route_prot acm\n");
        core.change_port(|port| port.rate = (width, speed));
        core.open();
        grant_join(&core);
        let asked = core.wait_for_sa_queries(1)[0];
        let mut own = SHARED.0;
        (own[7], own[8]) = (rate, 5);
        assert_eq!(asked.data[..16], own, "width {width}, speed {speed}");
        // The port's attributes give the path to itself, without an SA query.
        assert_eq!(known(&mut core, source()).rate(), rate);
    }
}

/// Fault 14: a limited member joins with its P_Key as it is.
#[test]
fn a_limited_member_joins_the_full_members_group() {
    let mut core = loaded("");
    core.set_pkeys(&[0x7fff]);
    core.open();
    let asked = core.wait_for_sa_queries(1)[0];
    assert_eq!(asked.data[..16], SHARED.0);
    assert_eq!(asked.data[40..42], [0x7f, 0xff]);
    grant_join(&core);
    let mut peer = Peer::at(2);
    learn(&mut core, &mut peer, ip(2));
}

/// A limited member's P_Key is another one than the full member's, as for stock.
#[test]
fn a_pkey_that_the_port_does_not_have_is_refused() {
    let mut core = loaded("");
    core.port_up(FIRST_PORT).unwrap();
    for (pkey, text) in [(0x8123, "0x8123"), (0x0001, "0x0001")] {
        let name = Addr::Name("me".into());
        let refused = StandIn::add_address(&mut core, FIRST_PORT, pkey, &name).unwrap_err();
        assert_eq!(refused.callback, "open_endpoint");
        let line = core.wait_for_log(&format!("has no P_Key {text}"));
        assert!(line.contains("partitions.conf"), "{line}");
    }
}

/// Each verb that opening needs fails once; afterwards opening succeeds.
#[test]
fn verbs_that_fail_leave_nothing_behind() {
    let mut core = loaded("");
    fault::fail_call(usize::MAX);
    core.open();
    let calls = fault::stop();
    assert!(calls.contains(&"ibv_create_qp"), "{calls:?}");
    let close = |core: &mut ByHand| {
        core.close();
        while !core.sa_queries().is_empty() {
            core.sa_answers(|_| ());
        }
    };
    close(&mut core);
    for (number, call) in calls.iter().enumerate() {
        fault::fail_call(number);
        let opened = core.try_open();
        fault::stop();
        // The SDK also queries the port, and tolerates errors.
        assert!(
            opened.is_err() || *call == "ibv_query_port",
            "although {call} failed"
        );
        close(&mut core);
        wait_for_threads(0, &format!("after {call} failed"));
    }
    core.open();
    grant_join(&core);
    let mut peer = Peer::at(2);
    learn(&mut core, &mut peer, ip(2));
}
