//! Counters for the same script of requests, compared with the stock provider's.

use std::path::PathBuf;

use loader_test::client::{Client, Destination, Status};
use loader_test::record::{Lid, PathRecord};

use crate::support::{by_address, by_lid, by_name, each_form, mcast_sa, resolve, rig, stock};

/// The increase of the daemon's counters and of the endpoint's own by one step of the script.
#[derive(Debug, PartialEq, Eq)]
struct Added {
    step: &'static str,
    status: Status,
    daemon: [u64; 7],
    endpoint: [u64; 7],
}

fn both(client: &mut Client) -> [[u64; 7]; 2] {
    let endpoint = client.endpoint_counters("node1").unwrap();
    [client.counters().unwrap(), endpoint].map(|counters| counters.values())
}

/// Runs the script with the provider on Hca1.
fn played(library: PathBuf) -> Vec<Added> {
    // GIDs that ibsim assigns in the simulated fabric.
    let hosts = "known fe80::10:7\n";
    let rig = rig(&[
        ("Hca1", library),
        ("Hca2", stock()),
        ("Hca3", stock()),
        ("Hca4", stock()),
    ])
    .address("Hca3", "known")
    .file("ibacm_hosts.data", hosts)
    .option("addr_preload", "acm_hosts")
    .option("timeout", 100)
    .start()
    .unwrap();
    assert_eq!(rig.gid("Hca3").unwrap().to_string(), "fe80::10:7");
    let host = rig.host("Hca1").unwrap();
    let mut client = host.connect().unwrap();
    let mut all = Vec::new();
    let mut step = |step, act: &mut dyn FnMut(&mut Client) -> Status| {
        let before = both(&mut client);
        let status = act(&mut client);
        let after = both(&mut client);
        let [daemon, endpoint] =
            [0, 1].map(|set| std::array::from_fn(|index| after[set][index] - before[set][index]));
        all.push(Added {
            step,
            status,
            daemon,
            endpoint,
        });
    };
    let [name, ip, _] = each_form("Hca1", "Hca2");
    let ask = |destination: Destination| {
        move |client: &mut Client| client.resolve(&destination).unwrap().status
    };
    step("a name", &mut ask(name.clone()));
    step("the same again", &mut ask(name));
    step("another address of that host", &mut ask(ip));
    step("an own address", &mut ask(by_name("Hca1", "Hca1")));
    step(
        "a name of the hosts file",
        &mut ask(by_address("node1", "known")),
    );
    step(
        "the same name again",
        &mut ask(by_address("node1", "known")),
    );
    step("a LID", &mut ask(by_lid(&rig, "Hca4")));
    step("the same LID again", &mut ask(by_lid(&rig, "Hca4")));
    step(
        "a LID that nobody has",
        &mut ask(Destination::Lid(Lid(0x1234))),
    );
    step(
        "a name that nobody has",
        &mut ask(by_address("node1", "nobody")),
    );
    step("without delay", &mut |client| {
        let nobody = by_address("node1", "nobody-else");
        client.resolve_cached(&nobody).unwrap().status
    });
    step("a query", &mut |client| {
        let mut wanted = PathRecord::EMPTY;
        wanted
            .set_sgid(host.gid())
            .set_dlid(rig.lid("Hca2").unwrap());
        client.query(&wanted).unwrap().status
    });
    step("a request of a host that is not known", &mut |_| {
        resolve(&rig, rig.host("Hca4").unwrap(), &by_name("Hca4", "Hca1"));
        Status::SUCCESS
    });
    all
}

#[test]
fn the_same_traffic_counts_as_with_the_stock_provider() {
    let mut ours = played(mcast_sa());
    let mut stocks = played(stock());
    // The only documented difference: a path to one port is queried once, however many addresses it has.
    let at = |all: &mut Vec<Added>| {
        let index = all
            .iter()
            .position(|added| added.step == "another address of that host");
        all.remove(index.unwrap())
    };
    let (of_ours, of_stocks) = (at(&mut ours), at(&mut stocks));
    assert_eq!(
        (of_ours.daemon, of_ours.endpoint),
        ([0, 1, 0, 1, 0, 0, 1], [0, 1, 0, 1, 0, 0, 1])
    );
    assert_eq!(
        (of_stocks.daemon, of_stocks.endpoint),
        ([0, 1, 0, 1, 0, 1, 0], [0, 1, 0, 1, 0, 1, 0])
    );
    assert_eq!(ours, stocks);
}
