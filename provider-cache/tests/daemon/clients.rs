//! Misbehaving clients.

use loader_test::client::{Destination, entries};
use loader_test::ibacm::Host;

use crate::support::{by_gid, by_lid, count_lines, resolve, rig, wait_for_lines};

const CLIENTS: usize = 1000;

/// Sends a request and disconnects.
fn ask_and_vanish(host: &Host, destination: &Destination) {
    let mut client = host.connect().unwrap();
    client.send(&entries(destination, 0).unwrap()).unwrap();
}

/// The daemon serves at most 1022 clients. A client that disconnects before its answer must free its place.
#[test]
fn a_thousand_clients_that_disconnect_before_their_answer_free_their_places() {
    let rig = rig()
        .option("timeout", 600_000)
        .option("retries", 0)
        .start()
        .unwrap();
    let host = rig.host("Hca2").unwrap();
    let [one, three, four] = ["Hca1", "Hca3", "Hca4"].map(|node| by_lid(&rig, node));
    for cold in [&one, &three, &four] {
        let mark = host.log().end();
        rig.opensm().stop().unwrap();
        for _ in 0..CLIENTS {
            ask_and_vanish(host, cold);
        }
        // All have sent their requests, none is answered, and the daemon has noticed that they disconnected.
        wait_for_lines(host, mark, "acm_svr_resolve_path: client", CLIENTS);
        wait_for_lines(host, mark, "client disconnected", CLIENTS);
        assert_eq!(count_lines(host, mark, "acm_resolve_response"), 0);
        rig.opensm().resume().unwrap();
        wait_for_lines(host, mark, "acm_resolve_response: client", CLIENTS);
        assert_eq!(count_lines(host, mark, "all connections busy"), 0);
        resolve(&rig, host, cold);
    }
    host.check().unwrap();
}

/// The same with immediate answers.
#[test]
fn clients_that_disconnect_do_no_harm_when_the_answer_is_cached() {
    let rig = rig().start().unwrap();
    let host = rig.host("Hca2").unwrap();
    let known = by_gid(&rig, "Hca3");
    resolve(&rig, host, &known);
    let mark = host.log().end();
    for _ in 0..CLIENTS {
        ask_and_vanish(host, &known);
    }
    wait_for_lines(host, mark, "client disconnected", CLIENTS);
    resolve(&rig, host, &known);
    host.check().unwrap();
}
