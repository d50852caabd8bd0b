//! The port goes down, comes back, and gets another LID.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use loader_test::client::{Answer, Destination, Status};
use loader_test::ibacm::{Host, PortEvent};
use loader_test::record::{Lid, PathRecord};
use loader_test::wait;

use crate::support::{
    PATIENCE, ask, ask_until, by_address, by_gid, by_lid, count_lines, pull_cable, resolve, rig,
    send_all,
};

/// Deadlines that pass only in tests that want it.
const TIMEOUT: u32 = 4000;

#[test]
fn while_the_cable_is_out_everybody_is_refused_and_afterwards_served() {
    let rig = rig()
        .option("timeout", TIMEOUT)
        .option("retries", 0)
        .start()
        .unwrap();
    let host = rig.host("Hca2").unwrap();
    let nodes = ["Hca1", "Hca2", "Hca3", "Hca4"];
    let all: Vec<Destination> = nodes
        .iter()
        .flat_map(|node| [by_lid(&rig, node), by_gid(&rig, node)])
        .collect();
    resolve(&rig, host, &all[0]);
    for _ in 0..2 {
        pull_cable(&rig, host);
        for destination in &all {
            let answer = ask(host, destination);
            assert_eq!(answer.status, Status::ESRCADDR, "{destination:?}");
            assert_eq!(answer.entries, []);
        }
        let mark = rig.opensm().log().end();
        rig.put_cable_back(host.node()).unwrap();
        ask_until(host, &all[0], Status::SUCCESS);
        for destination in &all {
            resolve(&rig, host, destination);
        }
        // Nothing learnt before is left.
        assert_eq!(rig.path_queries(host, mark).unwrap().len(), all.len());
    }
    host.check().unwrap();
}

#[test]
fn waiting_clients_are_answered_when_the_cable_is_pulled() {
    let rig = rig()
        .option("timeout", TIMEOUT)
        .option("retries", 0)
        .start()
        .unwrap();
    let host = rig.host("Hca2").unwrap();
    // More than `sa_depth`: some wait in the core, some in the provider.
    let cold: Vec<Destination> = ["Hca1", "Hca3", "Hca4"]
        .iter()
        .cycle()
        .take(30)
        .map(|node| by_lid(&rig, node))
        .collect();
    let mark = host.log().end();
    rig.opensm().stop().unwrap();
    let waiting = send_all(host, &cold);
    assert_eq!(count_lines(host, mark, "acm_resolve_response"), 0);
    pull_cable(&rig, host);
    for (mut client, id) in waiting {
        let answer = client.receive(id).unwrap();
        // The close ends them, not the deadline.
        assert_eq!(answer.status, Status::ENOTCONN);
    }
    rig.opensm().resume().unwrap();
    rig.put_cable_back(host.node()).unwrap();
    for destination in &cold[..3] {
        ask_until(host, destination, Status::SUCCESS);
        resolve(&rig, host, destination);
    }
}

/// The port reopens while the SA works on a query: the response is dropped and not cached, and everything
/// cached before is gone.
#[test]
fn nothing_outlives_a_reopening_and_late_answers_do_not_fill_the_cache() {
    let rig = rig()
        .option("timeout", 600_000)
        .option("retries", 0)
        .start()
        .unwrap();
    let host = rig.host("Hca2").unwrap();
    let [known, cold] = ["Hca1", "Hca3"].map(|node| by_lid(&rig, node));
    resolve(&rig, host, &known);
    rig.opensm().stop().unwrap();
    let waiting = send_all(host, std::slice::from_ref(&cold));
    let mark = host.log().end();
    host.raise(PortEvent::LidChange).unwrap();
    let reopened = format!("acm_assign_ep_names: assigning {}", host.node());
    host.log().wait_for(mark, &reopened, PATIENCE).unwrap();
    for (mut client, id) in waiting {
        assert_eq!(client.receive(id).unwrap().status, Status::ENOTCONN);
    }
    let cached = |destination| {
        let mut client = host.connect().unwrap();
        client.resolve_cached(destination).unwrap().status
    };
    assert_eq!(cached(&known), Status::ENODATA);
    let sa_mark = rig.opensm().log().end();
    rig.opensm().resume().unwrap();
    // Once the SA has answered the next query, the late response has arrived.
    resolve(&rig, host, &by_lid(&rig, "Hca4"));
    assert_eq!(cached(&cold), Status::ENODATA);
    ask_until(host, &cold, Status::SUCCESS);
    resolve(&rig, host, &cold);
    resolve(&rig, host, &known);
    // The late one, and one for each of the three hosts.
    assert_eq!(rig.path_queries(host, sa_mark).unwrap().len(), 1 + 3);
}

/// Sets a flag when dropped, also by a panic, so that nothing waits for the flag without end.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sends requests continuously until `stop` is set; returns every path in an answer.
fn ask_on(host: &Host, destinations: &[Destination], stop: &AtomicBool) -> Vec<PathRecord> {
    let mut paths = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        for destination in destinations {
            // The daemon may refuse while the port is down; it must answer.
            let answer: Answer = ask(host, destination);
            paths.extend(answer.path());
        }
    }
    paths
}

/// The subnet manager gives the requesting port another LID.
#[test]
fn after_a_change_of_its_own_lid_no_answer_has_the_old_one() {
    let rig = rig()
        .option("timeout", 500)
        .option("retries", 1)
        .start()
        .unwrap();
    let host = rig.host("Hca2").unwrap();
    let new = Lid(0x123);
    let old = rig.lid("Hca2").unwrap();
    let known: Vec<Destination> = ["Hca1", "Hca3", "Hca4"]
        .iter()
        .flat_map(|node| [by_lid(&rig, node), by_gid(&rig, node)])
        .collect();
    for destination in &known {
        assert_eq!(resolve(&rig, host, destination).slid(), old);
    }

    let stop = AtomicBool::new(false);
    let during = thread::scope(|scope| {
        let asking = scope.spawn(|| ask_on(host, &known, &stop));
        let stop_asking = SetOnDrop(&stop);
        rig.change_lid("Hca2", new).unwrap();
        wait::until_true("an answer with the new LID", PATIENCE, || {
            let path = host.resolve(&known[0])?.path();
            Ok(path.is_some_and(|path| path.slid() == new))
        })
        .unwrap();
        for _ in 0..20 {
            for destination in &known {
                let path = ask(host, destination).into_path().unwrap();
                assert_eq!(path.slid(), new, "{destination:?}");
            }
        }
        drop(stop_asking);
        asking.join().unwrap()
    });
    // Both LIDs appear in answers, the old one never after the new one.
    let first_new = during.iter().position(|path| path.slid() == new);
    let first_new = first_new.expect("an answer with the new LID");
    assert!(during[..first_new].iter().all(|path| path.slid() == old));
    assert!(during[first_new..].iter().all(|path| path.slid() == new));

    for destination in &known {
        resolve(&rig, host, destination);
    }
    let own = resolve(&rig, host, &by_gid(&rig, "Hca2"));
    assert_eq!((own.slid(), own.dlid()), (new, new));
    resolve(&rig, host, &Destination::Lid(new));
    assert_eq!(ask(host, &Destination::Lid(old)).status, Status::ENODATA);
}

/// The subnet manager gives a destination another LID, and tells all ports to register again.
#[test]
fn after_a_change_of_a_destinations_lid_no_answer_leads_to_the_old_one() {
    let rig = rig()
        .address("Hca1", "node1")
        .address("Hca2", "node2")
        .host("Hca1")
        .host("Hca2")
        .host("Hca3")
        .start()
        .unwrap();
    let (old, new) = (rig.lid("Hca2").unwrap(), Lid(0x123));
    let by_old_lid = Destination::Lid(old);
    let by_gid = by_gid(&rig, "Hca2");
    let hosts = ["Hca1", "Hca3"].map(|node| rig.host(node).unwrap());
    for host in hosts {
        resolve(&rig, host, &by_gid);
        resolve(&rig, host, &by_old_lid);
    }
    rig.change_lid("Hca2", new).unwrap();
    for host in hosts {
        wait::until_true(format!("an answer with DLID {new}"), PATIENCE, || {
            let path = host.resolve(&by_gid)?.path();
            Ok(path.is_some_and(|path| path.dlid() == new))
        })
        .unwrap();
        for _ in 0..3 {
            resolve(&rig, host, &by_gid);
            resolve(&rig, host, &Destination::Lid(new));
            assert_eq!(ask(host, &by_old_lid).status, Status::ENODATA);
        }
    }
    let by_name = by_address("node1", "node2");
    assert_eq!(resolve(&rig, hosts[0], &by_name).dlid(), new);
}
