//! Tests for every provider of the workspace under the real daemon, with a real OpenSM on a simulated fabric.
//!
//! Each provider's daemon tests include this folder, and this crate's do so for the stock provider; `crate::subject` names the
//! library under test. If the stock provider legitimately differs, the test says so.

mod again;
mod components;
mod service_ids;
mod subnet_prefix;

use loader_test::client::{Answer, Client, Destination, Entry, Status, flag};
use loader_test::compare::compare;
use loader_test::ibacm::Host;
use loader_test::record::PathRecord;
use loader_test::rig::{Builder, Rig};
use loader_test::wait::{self, PATIENCE};

use crate::subject;

/// The host whose daemon has the provider, and its name in the hosts file.
pub const ASKING: &str = "Hca1";
pub const ASKING_NAME: &str = "node1";

pub const PEER: &str = "Hca2";
pub const PEER_NAME: &str = "node2";

pub const WHOLE_PKEY: u16 = 0xffff;

/// The hosts file, with the GIDs that ibsim gives out.
pub const HOSTS_FILE: &str = "node1 fe80::10:1\nnode2 fe80::10:4\n";

/// A rig with one daemon, on [`ASKING`], that knows both names.
pub fn rig() -> Builder {
    subject::builder()
        .host(ASKING)
        .address(ASKING, ASKING_NAME)
        .option("addr_preload", "acm_hosts")
        .file("ibacm_hosts.data", HOSTS_FILE)
}

/// Starts a rig whose daemons are too patient to ask the SA twice on a busy machine, and waits until that of `node` answers:
/// the stock provider has to have joined its group.
pub fn start(plan: Builder, node: &str) -> Rig {
    let rig = plan.option("timeout", 30_000).start().unwrap();
    wait_until_ready(rig.host(node).unwrap());
    rig
}

pub fn wait_until_ready(host: &Host) {
    let own = Destination::Gid(host.gid());
    wait::until_true("the daemon to answer", PATIENCE, || {
        Ok(host.resolve(&own)?.status == Status::SUCCESS)
    })
    .unwrap();
}

pub fn asking(rig: &Rig) -> &Host {
    rig.host(ASKING).unwrap()
}

/// A request by name, with a PATH entry beside it.
pub fn beside(record: &PathRecord) -> Vec<Entry> {
    vec![
        Entry::address(flag::SOURCE, ASKING_NAME).unwrap(),
        Entry::address(flag::DESTINATION, PEER_NAME).unwrap(),
        Entry::path(0, record),
    ]
}

pub fn ask(client: &mut Client, entries: &[Entry]) -> Answer {
    let id = client.send(entries).unwrap();
    client.receive(id).unwrap()
}

/// Asserts that no field differs, those that a client does not need included.
#[track_caller]
pub fn assert_equal(answered: &PathRecord, sa: &PathRecord) {
    let differences: Vec<String> = compare(answered, sa)
        .iter()
        .map(ToString::to_string)
        .collect();
    assert!(differences.is_empty(), "{answered:?}: {differences:?}");
}
