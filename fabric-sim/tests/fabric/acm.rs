//! Stock daemons with the stock provider on several hosts, which resolve each other's addresses by ACM multicast.
//!
//! No daemon has a file of addresses, so that only the owner of one can tell it. Each answer is compared with what the SA
//! says: `ib_acme -v` would ask the same provider again.

use fabric_sim::model::link_faults::LinkFaults;
use loader_test::client::{Destination, Status};
use loader_test::ibacm::Host;
use loader_test::log::Mark;
use loader_test::rig::{Builder, Rig};

use crate::{PATIENCE, fabric_sim, stock_provider};

const HOSTS: [&str; 3] = ["Hca2", "Hca3", "Hca4"];

/// The addresses of a host: name, IPv4 and IPv6.
fn addresses(node: &str) -> [String; 3] {
    let number = node.trim_start_matches("Hca");
    [
        format!("{node}-ib"),
        format!("10.0.0.{number}"),
        format!("fd00::{number}"),
    ]
}

/// Fields that the provider takes from the group when it does not ask the SA for the path (`route_prot acm`).
const OF_THE_GROUP: [&str; 3] = ["MTU", "rate", "packet lifetime"];

fn hosts() -> Builder {
    let mut rig = Rig::builder(stock_provider()).fabric_sim(fabric_sim());
    for node in HOSTS {
        rig = rig.host(node);
        for address in addresses(node) {
            rig = rig.address(node, address);
        }
    }
    rig.option("addr_preload", "none")
}

fn wait_until_joined(host: &Host, mark: Mark) {
    host.log()
        .wait_for(mark, "join successful", PATIENCE)
        .unwrap();
}

fn started(rig: Builder) -> Rig {
    let rig = rig.start().unwrap();
    rig.hosts()
        .iter()
        .for_each(|host| wait_until_joined(host, Mark::default()));
    rig
}

fn question(from: &str, to: &str, kind: usize) -> Destination {
    Destination::Address {
        destination: addresses(to)[kind].clone(),
        source: Some(addresses(from)[kind].clone()),
    }
}

fn resolve(rig: &Rig, from: &str, to: &str) -> Status {
    let host = rig.host(from).unwrap();
    host.resolve(&question(from, to, 0)).unwrap().status
}

/// Every host resolves every other by each of its addresses, as the SA would, fields in `except` left out.
fn assert_all_resolve(rig: &Rig, except: &[&str]) {
    for from in HOSTS {
        for to in HOSTS.into_iter().filter(|to| *to != from) {
            for kind in 0..3 {
                let question = question(from, to, kind);
                let differences = rig.differences(rig.host(from).unwrap(), &question);
                let mut differences =
                    differences.unwrap_or_else(|error| panic!("{from} to {question:?}: {error}"));
                differences
                    .retain(|difference| difference.judged && !except.contains(&difference.field));
                assert_eq!(differences, [], "{from} to {question:?}");
            }
        }
    }
}

#[test]
fn hosts_resolve_each_other_with_paths_of_the_sa() {
    assert_all_resolve(&started(hosts()), &[]);
}

#[test]
fn hosts_resolve_each_other_with_paths_of_the_group() {
    assert_all_resolve(&started(hosts().option("route_prot", "acm")), &OF_THE_GROUP);
}

#[test]
fn a_link_that_loses_everything_times_out() {
    let rig = started(hosts().option("timeout", 100).option("retries", 1));
    let host = rig.host(HOSTS[0]).unwrap();
    let all = LinkFaults {
        drop: 100,
        ..LinkFaults::default()
    };
    host.set_link_faults(all).unwrap();
    assert_eq!(resolve(&rig, HOSTS[0], HOSTS[1]), Status::ETIMEDOUT);
    assert!(
        host.link_faults().unwrap().counts.dropped >= 2,
        "the request, and again"
    );
    host.set_link_faults(LinkFaults::default()).unwrap();
    assert_eq!(resolve(&rig, HOSTS[0], HOSTS[1]), Status::SUCCESS);
}
