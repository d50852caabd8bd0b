//! Fabrics with several providers: each resolves the others.

use std::fs;

use loader_test::client::Destination;
use loader_test::compare::compare;
use loader_test::ibacm::Host;
use loader_test::log::Mark;
use loader_test::rig::Rig;
use loader_test::wait;

use crate::support::{
    PATIENCE, addresses, each_form, mcast_sa, path_cache, path_to, resolve, rig, sa_path, stock,
};

const HOSTS: [&str; 4] = ["Hca1", "Hca2", "Hca3", "Hca4"];
/// The host with path-cache, which does not speak the multicast protocol.
const SILENT: &str = "Hca4";

/// Lines of a hosts file.
fn hosts_file(rig: &Rig, nodes: &[&str]) -> String {
    let of = |node: &&str| {
        let gid = rig.gid(node).unwrap();
        addresses(node)
            .map(|address| format!("{address} {gid}\n"))
            .concat()
    };
    nodes.iter().map(of).collect()
}

/// Every host resolves every other one by name, IPv4 and IPv6. path-cache uses the hosts file, which also lists
/// its own host; all others must send requests and answers.
fn everybody_resolves_everybody(route_protocol: &str, resolve: impl Fn(&Rig, &Host, &Destination)) {
    // GIDs that ibsim assigns in the simulated fabric.
    let of_silent = addresses(SILENT).map(|address| format!("{address} fe80::10:a\n"));
    let rig = rig(&[
        ("Hca1", mcast_sa()),
        ("Hca2", stock()),
        ("Hca3", mcast_sa()),
        (SILENT, path_cache()),
    ])
    .option("addr_preload", "acm_hosts")
    .option("route_prot", route_protocol)
    .file("ibacm_hosts.data", of_silent.concat())
    .start()
    .unwrap();
    assert_eq!(rig.gid(SILENT).unwrap().to_string(), "fe80::10:a");
    let silent = rig.host(SILENT).unwrap();
    let mark = silent.log().end();
    let file = silent.directory().join("ibacm_hosts.data");
    fs::write(&file, hosts_file(&rig, &HOSTS)).unwrap();
    silent
        .log()
        .wait_for(mark, "was read again", PATIENCE)
        .unwrap();

    for from in HOSTS {
        let host = rig.host(from).unwrap();
        for to in HOSTS {
            for destination in each_form(from, to) {
                // The stock provider has no packet lifetime for its path to itself.
                if (from, to) != ("Hca2", "Hca2") {
                    resolve(&rig, host, &destination);
                }
            }
        }
    }
    for host in rig.hosts() {
        host.check().unwrap();
    }
}

#[test]
fn everybody_resolves_everybody_with_paths_of_the_sa() {
    everybody_resolves_everybody("sa", |rig, host, destination| {
        resolve(rig, host, destination);
    });
}

#[test]
fn everybody_resolves_everybody_with_paths_of_the_group() {
    everybody_resolves_everybody("acm", resolve_by_group);
}

/// Then GIDs in datagrams have the subnet's prefix.
#[test]
fn on_a_subnet_with_another_prefix_addresses_are_found_by_multicast() {
    let rig = rig(&[
        ("Hca1", mcast_sa()),
        ("Hca2", stock()),
        ("Hca3", mcast_sa()),
    ])
    .opensm_option("subnet_prefix", "0xfec0000000000001")
    .start()
    .unwrap();
    for from in rig.hosts() {
        for to in rig.hosts().iter().filter(|to| to.node() != from.node()) {
            for destination in each_form(from.node(), to.node()) {
                let path = resolve(&rig, from, &destination);
                assert_eq!(path.dgid(), to.gid());
            }
        }
    }
}

/// Asserts that an answer equals the SA's response except for the packet lifetime: OpenSM's groups have 0.
#[track_caller]
fn resolve_by_group(rig: &Rig, host: &Host, destination: &Destination) {
    let truth = sa_path(rig, host, destination);
    let path = path_to(host, destination);
    let others: Vec<_> = compare(&path, &truth)
        .into_iter()
        .filter(|difference| difference.judged && difference.field != "packet lifetime")
        .collect();
    assert_eq!(others, [], "{} on {}", host.provider().name, host.node());
}

/// Two groups, the shared one and the one of the ports' own speed, are joined and named; the better one is
/// used.
#[test]
fn the_better_group_determines_the_path() {
    let rig = rig(&[
        ("Hca1", mcast_sa()),
        ("Hca2", stock()),
        ("Hca3", mcast_sa()),
    ])
    .option("route_prot", "acm")
    .option("min_mtu", 1024)
    .start()
    .unwrap();
    // All have joined both.
    for node in ["Hca1", "Hca3"] {
        for mgid in ["ff15:4001:ffff:3:300::", "ff15:4001:ffff:3:400::"] {
            let log = rig.host(node).unwrap().log();
            log.wait_for(Mark::default(), &format!("joined {mgid}"), PATIENCE)
                .unwrap();
        }
    }
    let of_stock = rig.host("Hca2").unwrap().log();
    wait::until_true("the stock provider to join both groups", PATIENCE, || {
        let log = of_stock.since(Mark::default())?;
        Ok(log.matches("join successful").count() == 2)
    })
    .unwrap();
    for (from, to) in [
        ("Hca1", "Hca2"),
        ("Hca2", "Hca3"),
        ("Hca3", "Hca1"),
        ("Hca2", "Hca1"),
    ] {
        let mark = rig.opensm().log().end();
        let host = rig.host(from).unwrap();
        for destination in each_form(from, to) {
            resolve_by_group(&rig, host, &destination);
        }
        assert_eq!(rig.path_queries(host, mark).unwrap(), []);
    }
}
