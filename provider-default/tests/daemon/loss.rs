//! Lost, duplicated and reordered datagrams.

use std::thread;
use std::time::Duration;

use loader_test::client::{Destination, Status};
use loader_test::ibacm::{Host, LinkFaults};
use loader_test::rig::{Builder, Rig};

use crate::support::{ask_at_once, by_address, mcast_sa, resolve, stock};

const REQUESTS: usize = 500;
/// Faults of each link. All links have the same seed, so the n-th datagram has the same fate for all senders.
const FAULTS: LinkFaults = LinkFaults {
    drop: 20,
    duplicate: 10,
    reorder: 10,
    corrupt: 0,
    delay: Duration::ZERO,
    seed: 11,
};

/// Every host has a name; hosts that answer have hundreds.
fn names(mut plan: Builder, node: &str, count: usize) -> Builder {
    plan = plan.address(node, node);
    for number in 0..count {
        plan = plan.address(node, format!("{node}-{number}"));
    }
    plan
}

fn wanted(from: &str, to: &str, count: usize) -> Vec<Destination> {
    let all = 0..count;
    all.map(|number| by_address(from, &format!("{to}-{number}")))
        .collect()
}

fn plan() -> Builder {
    Rig::builder_without_library()
        .option("addr_preload", "none")
        .option("resolve_depth", REQUESTS)
        .option("send_depth", 64)
        .option("log_level", 0)
}

/// Lets both sides learn each other's address, then starts the faults.
fn with_faults(rig: &Rig, pairs: &[(&str, &str)]) {
    for (from, to) in pairs {
        resolve(rig, rig.host(from).unwrap(), &by_address(from, to));
    }
    for host in rig.hosts() {
        host.set_link_faults(FAULTS).unwrap();
    }
}

/// Returns how many requests succeeded and how many timed out; there are no other results.
fn tally(host: &Host, wanted: &[Destination]) -> (usize, usize) {
    let answers = ask_at_once(host, wanted);
    let count = |status| {
        answers
            .iter()
            .filter(|answer| answer.status == status)
            .count()
    };
    let tally = (count(Status::SUCCESS), count(Status::ETIMEDOUT));
    assert_eq!(tally.0 + tally.1, wanted.len(), "{answers:?}");
    tally
}

#[test]
fn with_fifteen_retries_every_request_succeeds() {
    let (asks, stocks, ours) = ("Hca1", "Hca2", "Hca3");
    let mut plan = plan()
        .option("timeout", 500)
        .option("retries", 15)
        .host_with(asks, mcast_sa())
        .host_with(stocks, stock())
        .host_with(ours, mcast_sa());
    for (node, count) in [(asks, 0), (stocks, REQUESTS / 2), (ours, REQUESTS / 2)] {
        plan = names(plan, node, count);
    }
    let rig = plan.start().unwrap();
    with_faults(&rig, &[(asks, stocks), (asks, ours)]);
    let mut all = wanted(asks, stocks, REQUESTS / 2);
    all.extend(wanted(asks, ours, REQUESTS / 2));
    let host = rig.host(asks).unwrap();
    assert_eq!(tally(host, &all), (REQUESTS, 0));
    let dropped: u64 = rig
        .hosts()
        .iter()
        .map(|host| host.link_faults().unwrap().counts.dropped)
        .sum();
    assert!(dropped > 100, "{dropped} datagrams were lost");
    for destination in [&all[0], &all[REQUESTS - 1]] {
        resolve(&rig, host, destination);
    }
}

/// By default there are two retries, and some requests still fail.
#[test]
fn with_two_retries_no_more_time_out_than_with_the_stock_provider() {
    let pairs = [("Hca1", "Hca2"), ("Hca3", "Hca4")];
    let mut plan = plan()
        .host_with("Hca1", mcast_sa())
        .host_with("Hca2", mcast_sa())
        .host_with("Hca3", stock())
        .host_with("Hca4", mcast_sa());
    for (asks, answers) in pairs {
        plan = names(names(plan, asks, 0), answers, REQUESTS);
    }
    let rig = plan.start().unwrap();
    with_faults(&rig, &pairs);
    let of = |(asks, answers)| tally(rig.host(asks).unwrap(), &wanted(asks, answers, REQUESTS));
    let (ours, stocks) = thread::scope(|scope| {
        let stocks = scope.spawn(|| of(pairs[1]));
        (of(pairs[0]), stocks.join().unwrap())
    });
    assert!(stocks.1 > 0, "the faults are too few to tell anything");
    assert!(ours.1 <= stocks.1, "{ours:?} and {stocks:?}");
}
