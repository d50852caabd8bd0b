//! What the tests share: libraries, rigs, and questions with their right answers.

use std::path::PathBuf;
use std::time::Duration;

use loader_test::client::{Answer, Client, Destination, Status, entries};
use loader_test::compare::compare;
use loader_test::ibacm::Host;
use loader_test::record::PathRecord;
use loader_test::rig::{Builder, Rig};
use loader_test::wait;

use crate::products;

/// How long a condition may take that normally comes true in a moment.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The library under test.
pub fn mcast_sa() -> PathBuf {
    products::folder().join("libibacm_mcast_sa.so")
}

/// The other one of this workspace, which knows addresses from the hosts file alone.
pub fn path_cache() -> PathBuf {
    products::folder().join("libibacm_path_cache.so")
}

/// Where the distribution's ibacm has the stock provider.
pub fn stock() -> PathBuf {
    let multiarch = std::fs::read_dir("/usr/lib").unwrap().flatten();
    let mut folders = multiarch
        .map(|entry| entry.path())
        .chain(["/usr/lib64".into()]);
    folders
        .find_map(|folder| Some(folder.join("ibacm/libibacmp.so")).filter(|file| file.is_file()))
        .expect("the stock provider libibacmp.so of the package ibacm")
}

/// A rig with the hosts and their providers, and names and addresses for each. Nobody is told them: they have to be asked
/// for by multicast.
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

/// A name, an IPv4 and an IPv6 address of `Hca<n>`. The stock provider looks for addresses at the machine's own interfaces:
/// these are hardly there.
pub fn addresses(node: &str) -> [String; 3] {
    let number = node.trim_start_matches("Hca");
    [
        format!("node{number}"),
        format!("10.77.0.{number}"),
        format!("fd5a:1b::{number}"),
    ]
}

/// From one host to another, by name, IPv4 and IPv6.
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

/// What the SA says about the path from `host` to a destination.
#[track_caller]
pub fn sa_path(rig: &Rig, host: &Host, destination: &Destination) -> PathRecord {
    let destination = rig.sa_destination(destination).unwrap();
    rig.sa_path(host.gid(), destination).unwrap()
}

/// Resolves on a connection of its own.
#[track_caller]
pub fn ask(host: &Host, destination: &Destination) -> Answer {
    host.resolve(destination).unwrap()
}

/// In what matters, how a path differs from what the SA says.
fn differences(path: &PathRecord, truth: &PathRecord) -> Vec<String> {
    let differences = compare(path, truth).into_iter();
    let judged = differences.filter(|difference| difference.judged);
    judged.map(|difference| difference.to_string()).collect()
}

/// Resolves, and asserts that the answer is what the SA says in all that matters.
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

/// Waits until a destination is resolved to what the SA says.
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

/// Asks for all destinations at once, each on a connection of its own.
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
