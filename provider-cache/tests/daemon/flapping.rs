//! A port that goes down and up many times, with requests in flight.

use std::fs;

use loader_test::client::{Status, entries};
use loader_test::ibacm::{Host, PortEvent};
use loader_test::wait;

use crate::support::{PATIENCE, ask_until, by_lid, count_lines, resolve, rig};

const REOPENINGS: usize = 200;

/// Returns the number of threads and descriptors of the daemon.
fn held(host: &Host) -> (usize, usize) {
    let pid = host.pid().unwrap();
    let entries = |folder: &str| {
        fs::read_dir(format!("/proc/{pid}/{folder}"))
            .unwrap()
            .count()
    };
    (entries("task"), entries("fd"))
}

/// Every opening starts threads and watches files, and the SA is silent, so that MADs are left in flight.
#[test]
fn two_hundred_reopenings_leave_no_thread_and_no_descriptor_and_the_daemon_resolves() {
    let dump = "Channel Adapter 0x0000000000000011, base LID 1, \"nobody\", port 1\n";
    let rig = rig()
        .option("timeout", 500)
        .option("retries", 0)
        .option("addr_preload", "acm_hosts")
        .option("route_preload", "opensm_full_v1")
        .option("route_data_file", "/run/dump")
        .option("path_cache_flush_file", "/run/flush")
        .option("path_cache_snapshot", "/run/paths")
        .file("dump", dump)
        .start()
        .unwrap();
    let host = rig.host("Hca2").unwrap();
    let all = ["Hca1", "Hca3", "Hca4"].map(|node| by_lid(&rig, node));
    resolve(&rig, host, &all[0]);
    let before = held(host);
    let mark = host.log().end();
    rig.opensm().stop().unwrap();
    let mut waiting = Vec::new();
    for opening in 0..REOPENINGS {
        for destination in &all {
            let mut client = host.connect().unwrap();
            let id = client.send(&entries(destination, 0).unwrap()).unwrap();
            waiting.push((client, id));
        }
        host.raise(PortEvent::LidChange).unwrap();
        if opening % 10 == 9 {
            for (mut client, id) in waiting.drain(..) {
                client.receive(id).unwrap();
            }
        }
    }
    wait::until_true("all reopenings", PATIENCE, || {
        host.check()?;
        Ok(count_lines(host, mark, "acm_assign_ep_names: assigning Hca2") >= REOPENINGS)
    })
    .unwrap();
    rig.opensm().resume().unwrap();
    for destination in &all {
        ask_until(host, destination, Status::SUCCESS);
        resolve(&rig, host, destination);
    }
    // The first count may include a client; a leak at each reopening would be more than one.
    wait::until_true("the clients' descriptors to be closed", PATIENCE, || {
        let now = held(host);
        Ok(now.0 <= before.0 && now.1 <= before.1)
    })
    .unwrap_or_else(|error| panic!("{error}: {before:?} before, {:?} now", held(host)));
}
