//! Stock daemons with the stock provider on several hosts, which resolve each other's addresses by ACM multicast.
//!
//! No daemon has an address file, so only the owner of an address can answer for it. Each answer is compared with the SA's
//! record: `ib_acme -v` would ask the same provider again.

use std::time::Duration;

use fabric_sim::model::link_faults::LinkFaults;
use loader_test::client::{Destination, Status};
use loader_test::ibacm::Host;
use loader_test::log::Mark;
use loader_test::record::Lid;
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

/// Fields that the provider takes from the group if it does not query the SA for the path (`route_prot acm`).
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

/// Extra wait for a peer's response beyond the option: 4.096 us times two to the power of this.
const SUBNET_TIMEOUT: &str = "FABRIC_SIM_SUBNET_TIMEOUT";
const QUICK: u8 = 10;

/// Daemons with short time-outs, for tests of time-outs.
fn impatient(rig: Builder) -> Builder {
    rig.env(SUBNET_TIMEOUT, QUICK)
        .option("timeout", 250)
        .option("retries", 3)
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

fn everywhere(rig: &Rig, faults: LinkFaults) {
    for host in rig.hosts() {
        host.set_link_faults(faults).unwrap();
    }
}

#[test]
fn hosts_resolve_each_other_over_bad_links() {
    let rig = started(hosts().env(SUBNET_TIMEOUT, QUICK).option("timeout", 200));
    let faults = LinkFaults {
        duplicate: 100,
        reorder: 50,
        delay: Duration::from_millis(5),
        seed: 3,
        ..LinkFaults::default()
    };
    everywhere(&rig, faults);
    assert_all_resolve(&rig, &[]);
    for host in rig.hosts() {
        let counts = host.link_faults().unwrap().counts;
        assert!(
            counts.duplicated > 0 && counts.reordered > 0 && counts.delayed > 0,
            "{}: {counts:?}",
            host.node()
        );
    }
}

/// A fifth of all datagrams is lost, and retries make up for it.
#[test]
fn retries_make_up_for_losses() {
    let rig = hosts().env(SUBNET_TIMEOUT, QUICK);
    let rig = started(rig.option("timeout", 100).option("retries", 15));
    let faults = LinkFaults {
        drop: 20,
        seed: 11,
        ..LinkFaults::default()
    };
    everywhere(&rig, faults);
    assert_all_resolve(&rig, &[]);
    let lost = rig.hosts().iter();
    let lost = lost.map(|host| host.link_faults().unwrap().counts.dropped);
    assert!(lost.sum::<u64>() > 0);
}

#[test]
fn a_link_that_loses_everything_times_out() {
    let rig = started(impatient(hosts()));
    let host = rig.host(HOSTS[0]).unwrap();
    let all = LinkFaults {
        drop: 100,
        ..LinkFaults::default()
    };
    host.set_link_faults(all).unwrap();
    assert_eq!(resolve(&rig, HOSTS[0], HOSTS[1]), Status::ETIMEDOUT);
    let counts = host.link_faults().unwrap().counts;
    assert!(
        counts.sent >= 2 && counts.dropped == counts.sent,
        "the request, and again: {counts:?}"
    );
    // Its responses are lost too.
    assert_eq!(resolve(&rig, HOSTS[1], HOSTS[0]), Status::ETIMEDOUT);
    assert_eq!(resolve(&rig, HOSTS[1], HOSTS[2]), Status::SUCCESS);
    host.set_link_faults(LinkFaults::default()).unwrap();
    assert_all_resolve(&rig, &[]);
}

#[test]
fn a_host_whose_cable_is_pulled_is_not_heard() {
    let rig = started(impatient(hosts()));
    let [asking, pulled, other] = HOSTS;
    let log = rig.host(pulled).unwrap().log();
    let mark = log.end();
    rig.pull_cable(pulled).unwrap();
    log.wait_for(mark, "ibsim0 1 is down", PATIENCE).unwrap();
    assert_eq!(resolve(&rig, asking, pulled), Status::ETIMEDOUT);
    assert_eq!(resolve(&rig, asking, other), Status::SUCCESS);
    let mark = log.end();
    rig.put_cable_back(pulled).unwrap();
    wait_until_joined(rig.host(pulled).unwrap(), mark);
    assert_all_resolve(&rig, &[]);
}

#[test]
fn a_host_is_found_at_its_new_lid() {
    let rig = started(hosts());
    let moved = HOSTS[1];
    let marks: Vec<Mark> = rig.hosts().iter().map(|host| host.log().end()).collect();
    rig.change_lid(moved, Lid(77)).unwrap();
    // The subnet manager was started again for it, and knows no memberships.
    for (host, mark) in rig.hosts().iter().zip(&marks) {
        wait_until_joined(host, *mark);
    }
    let log = rig.host(moved).unwrap().log();
    log.wait_for(marks[1], "processing async event LID changed", PATIENCE)
        .unwrap();
    assert_all_resolve(&rig, &[]);
}

#[test]
fn a_daemon_that_was_killed_is_found_again() {
    let rig = started(hosts());
    let host = rig.host(HOSTS[1]).unwrap();
    host.kill();
    rig.start_host(host).unwrap();
    wait_until_joined(host, Mark::default());
    assert_all_resolve(&rig, &[]);
}
