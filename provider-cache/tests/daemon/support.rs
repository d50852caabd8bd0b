//! Shared by the tests: the library under test, rigs, and requests with their expected answers.

use std::path::PathBuf;
use std::time::Duration;

use loader_test::acme;
use loader_test::client::{Answer, Client, Counters, Destination, Status, entries};
use loader_test::compare::compare;
use loader_test::ibacm::{Host, PortEvent};
use loader_test::log::Mark;
use loader_test::record::{Gid, Lid, PathRecord};
use loader_test::rig::{Builder, Rig};
use loader_test::wait;

use crate::products;

/// Timeout for a condition that normally comes true in a moment.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the library under test.
pub fn path_cache() -> PathBuf {
    products::folder().join("libibacm_path_cache.so")
}

/// Returns the path of the distribution's stock provider.
pub fn stock_provider() -> PathBuf {
    let multiarch = std::fs::read_dir("/usr/lib").unwrap().flatten();
    let mut folders = multiarch
        .map(|entry| entry.path())
        .chain(["/usr/lib64".into()]);
    folders
        .find_map(|folder| Some(folder.join("ibacm/libibacmp.so")).filter(|file| file.is_file()))
        .expect("the stock provider libibacmp.so of the package ibacm")
}

/// Builds a rig of four hosts with path-cache.
pub fn rig() -> Builder {
    Rig::builder(path_cache())
}

/// Queries the SA for the path from `host` to a destination.
#[track_caller]
pub fn sa_path(rig: &Rig, host: &Host, destination: &Destination) -> PathRecord {
    let destination = rig.sa_destination(destination).unwrap();
    rig.sa_path(host.gid(), destination).unwrap()
}

/// Asserts that all fields are equal, including those that a client does not need.
#[track_caller]
pub fn assert_equal(answered: &PathRecord, sa: &PathRecord) {
    let differences: Vec<String> = compare(answered, sa)
        .iter()
        .map(ToString::to_string)
        .collect();
    assert!(differences.is_empty(), "{answered:?}: {differences:?}");
}

/// Resolves on a new connection.
#[track_caller]
pub fn ask(host: &Host, destination: &Destination) -> Answer {
    host.resolve(destination).unwrap()
}

/// Resolves, and asserts that the answer equals the SA's response.
#[track_caller]
pub fn resolve(rig: &Rig, host: &Host, destination: &Destination) -> PathRecord {
    let answer = ask(host, destination);
    assert_eq!(answer.status, Status::SUCCESS, "{destination:?}");
    let path = answer.path().unwrap();
    assert_equal(&path, &sa_path(rig, host, destination));
    path
}

/// Waits for an answer with that status.
#[track_caller]
pub fn ask_until(host: &Host, destination: &Destination, status: Status) -> Answer {
    wait::until(format!("{status:?} for {destination:?}"), PATIENCE, || {
        let answer = host.resolve(destination)?;
        Ok((answer.status == status).then_some(answer))
    })
    .unwrap()
}

pub fn by_lid(rig: &Rig, node: &str) -> Destination {
    Destination::Lid(rig.lid(node).unwrap())
}

pub fn by_gid(rig: &Rig, node: &str) -> Destination {
    Destination::Gid(rig.gid(node).unwrap())
}

pub fn by_address(source: &str, destination: &str) -> Destination {
    Destination::Address {
        destination: destination.to_owned(),
        source: Some(source.to_owned()),
    }
}

/// Returns a GID of the rig's subnet that no port has.
pub fn nobodys_gid(rig: &Rig) -> Gid {
    Gid::new(rig.opensm().subnet_prefix(), 0xdead)
}

/// A LID that opensm does not assign in a small fabric.
pub const NOBODYS_LID: Lid = Lid(0x1234);

/// Sends a request for each destination, each on a new connection, and waits until the daemon has started on
/// all of them. While the SA is silent, none is answered.
pub fn send_all(host: &Host, destinations: &[Destination]) -> Vec<(Client, u64)> {
    let mark = host.log().end();
    let clients = destinations
        .iter()
        .map(|destination| {
            let mut client = host.connect().unwrap();
            let id = client.send(&entries(destination, 0).unwrap()).unwrap();
            (client, id)
        })
        .collect();
    wait_for_lines(
        host,
        mark,
        "acm_svr_resolve_path: client",
        destinations.len(),
    );
    clients
}

/// Waits until the daemon's log has that many lines containing `text`. Lines about requests need log level 2.
pub fn wait_for_lines(host: &Host, mark: Mark, text: &str, count: usize) {
    wait::until_true(format!("{count} times \"{text}\""), PATIENCE, || {
        host.check()?;
        Ok(count_lines(host, mark, text) >= count)
    })
    .unwrap();
}

/// Counts the lines of the daemon's log that contain `text`.
pub fn count_lines(host: &Host, mark: Mark, text: &str) -> usize {
    lines(host, mark, text).len()
}

/// Returns the lines of the daemon's log that contain `text`.
pub fn lines(host: &Host, mark: Mark, text: &str) -> Vec<String> {
    let log = host.log().since(mark).unwrap();
    log.lines()
        .filter(|line| line.contains(text))
        .map(str::to_owned)
        .collect()
}

/// Raises CLIENT_REREGISTER and waits until the daemon has passed it on: then `destination` is no longer
/// answered without the SA.
pub fn reregister(host: &Host, destination: &Destination) {
    host.raise(PortEvent::ClientReregister).unwrap();
    wait::until_true("the cache to be stale", PATIENCE, || {
        let answer = host.connect()?.resolve_cached(destination)?;
        Ok(answer.status == Status::ENODATA)
    })
    .unwrap();
}

/// Unplugs the cable of a daemon's port and waits until the daemon has noticed: it refuses cached destinations.
pub fn pull_cable(rig: &Rig, host: &Host) {
    rig.pull_cable(host.node()).unwrap();
    let own = Destination::Gid(host.gid());
    wait::until_true("the daemon to see that its port is down", PATIENCE, || {
        Ok(host.resolve(&own)?.status == Status::ESRCADDR)
    })
    .unwrap();
}

/// Returns the difference of two readings of the counters.
pub fn increase(before: &Counters, after: &Counters) -> Counters {
    Counters {
        error: after.error - before.error,
        resolve: after.resolve - before.resolve,
        no_data: after.no_data - before.no_data,
        address_query: after.address_query - before.address_query,
        address_cache: after.address_cache - before.address_cache,
        route_query: after.route_query - before.route_query,
        route_cache: after.route_cache - before.route_cache,
    }
}

/// Returns both counter sets as ib_acme prints them: the daemon's own, and those of the endpoint with that
/// name.
pub fn printed_counters(host: &Host, name: &str) -> (Counters, Counters) {
    let own = host.acme(&["-P"], PATIENCE).unwrap();
    let endpoint = host
        .acme(&["-f", "n", "-P", "s", "-s", name], PATIENCE)
        .unwrap();
    (read_counters(&own), read_counters(&endpoint))
}

fn read_counters(printed: &str) -> Counters {
    let values = acme::parse_counters(printed).unwrap_or_else(|| panic!("{printed}"));
    let value = |name: &str| {
        let found = values.iter().find(|(known, _)| known == name);
        found.unwrap_or_else(|| panic!("no {name} in {printed}")).1
    };
    Counters {
        error: value("Error Count"),
        resolve: value("Resolve Count"),
        no_data: value("No Data"),
        address_query: value("Addr Query Count"),
        address_cache: value("Addr Cache Count"),
        route_query: value("Route Query Count"),
        route_cache: value("Route Cache Count"),
    }
}
