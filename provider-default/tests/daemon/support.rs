//! Shared by the tests: libraries, rigs, and requests with their expected answers.

use std::path::PathBuf;
use std::time::Duration;

use loader_test::client::{Answer, Client, Destination, Status, entries};
use loader_test::compare::compare;
use loader_test::ibacm::Host;
use loader_test::record::PathRecord;
use loader_test::rig::{Builder, Rig};
use loader_test::wait;

use crate::products;

/// Timeout for a condition that normally comes true in a moment.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the library under test.
pub fn mcast_sa() -> PathBuf {
    products::folder().join("libibacm_mcast_sa.so")
}

/// Returns path-cache, which knows addresses only from the hosts file.
pub fn path_cache() -> PathBuf {
    products::folder().join("libibacm_path_cache.so")
}

/// Returns the path of the distribution's stock provider.
pub fn stock() -> PathBuf {
    let multiarch = std::fs::read_dir("/usr/lib").unwrap().flatten();
    let mut folders = multiarch
        .map(|entry| entry.path())
        .chain(["/usr/lib64".into()]);
    folders
        .find_map(|folder| Some(folder.join("ibacm/libibacmp.so")).filter(|file| file.is_file()))
        .expect("the stock provider libibacmp.so of the package ibacm")
}

/// Builds a rig with these hosts and providers, and with names and addresses for each. There is no hosts file,
/// so the providers must resolve them by multicast.
pub fn rig(hosts: &[(&str, PathBuf)]) -> Builder {
    let mut plan = Rig::builder_without_library();
    for (node, library) in hosts {
        plan = plan.host_with(*node, library);
        for address in addresses(node) {
            plan = plan.address(*node, address);
        }
    }
    plan.option("addr_preload", "none")
}

/// Returns a name, an IPv4 and an IPv6 address of `Hca<n>`. The stock provider looks for addresses on the
/// machine's own interfaces, which hardly have these.
pub fn addresses(node: &str) -> [String; 3] {
    let number = node.trim_start_matches("Hca");
    [
        format!("node{number}"),
        format!("10.77.0.{number}"),
        format!("fd5a:1b::{number}"),
    ]
}

/// Returns the destinations of one host for another: by name, IPv4 and IPv6.
pub fn each_form(from: &str, to: &str) -> [Destination; 3] {
    let (sources, destinations) = (addresses(from), addresses(to));
    [0, 1, 2].map(|form| by_address(&sources[form], &destinations[form]))
}

pub fn by_address(source: &str, destination: &str) -> Destination {
    Destination::Address {
        destination: destination.to_owned(),
        source: Some(source.to_owned()),
    }
}

pub fn by_name(from: &str, to: &str) -> Destination {
    let [name, ..] = each_form(from, to);
    name
}

pub fn by_lid(rig: &Rig, node: &str) -> Destination {
    Destination::Lid(rig.lid(node).unwrap())
}

/// Queries the SA for the path from `host` to a destination.
#[track_caller]
pub fn sa_path(rig: &Rig, host: &Host, destination: &Destination) -> PathRecord {
    let destination = rig.sa_destination(destination).unwrap();
    rig.sa_path(host.gid(), destination).unwrap()
}

/// Resolves on a new connection.
#[track_caller]
pub fn ask(host: &Host, destination: &Destination) -> Answer {
    host.resolve(destination).unwrap()
}

/// Returns the relevant differences of a path from the SA's.
fn differences(path: &PathRecord, truth: &PathRecord) -> Vec<String> {
    let differences = compare(path, truth).into_iter();
    let judged = differences.filter(|difference| difference.judged);
    judged.map(|difference| difference.to_string()).collect()
}

/// Resolves, and asserts that the answer equals the SA's response in all relevant fields.
#[track_caller]
pub fn resolve(rig: &Rig, host: &Host, destination: &Destination) -> PathRecord {
    let truth = sa_path(rig, host, destination);
    let path = path_to(host, destination);
    assert_eq!(
        differences(&path, &truth),
        [""; 0],
        "{}: {path:?}",
        asked(host, destination)
    );
    path
}

/// Resolves.
#[track_caller]
pub fn path_to(host: &Host, destination: &Destination) -> PathRecord {
    let answer = ask(host, destination);
    assert_eq!(
        answer.status,
        Status::SUCCESS,
        "{}",
        asked(host, destination)
    );
    answer.into_path().unwrap()
}

fn asked(host: &Host, destination: &Destination) -> String {
    format!(
        "{} on {} for {destination:?}",
        host.provider().name,
        host.node()
    )
}

/// Waits until a destination resolves to the SA's path.
#[track_caller]
pub fn resolves_in_time(rig: &Rig, host: &Host, destination: &Destination) -> PathRecord {
    wait::until(asked(host, destination), PATIENCE, || {
        let Some(path) = host.resolve(destination)?.path() else {
            return Ok(None);
        };
        let truth = rig.sa_path(host.gid(), rig.sa_destination(destination)?)?;
        Ok(differences(&path, &truth).is_empty().then_some(path))
    })
    .unwrap()
}

/// Sends requests for all destinations at once, each on a new connection.
pub fn ask_at_once(host: &Host, destinations: &[Destination]) -> Vec<Answer> {
    let clients: Vec<(Client, u64)> = destinations
        .iter()
        .map(|destination| {
            let mut client = host.connect().unwrap();
            let id = client.send(&entries(destination, 0).unwrap()).unwrap();
            (client, id)
        })
        .collect();
    let receive = |(mut client, id): (Client, u64)| client.receive(id).unwrap();
    clients.into_iter().map(receive).collect()
}
