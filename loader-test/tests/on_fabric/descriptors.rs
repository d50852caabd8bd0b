//! A file that changes while the daemon has no free descriptor. The stock provider reads it only at start.

use std::fs;

use loader_test::client::{Destination, Entry, Status, entries, flag};
use loader_test::wait::{self, PATIENCE};

use crate::shared::{ASKING, ASKING_NAME, HOSTS_FILE, PEER_NAME, ask, asking, rig, start};

const FILE: &str = "ibacm_hosts.data";
const NEW_NAME: &str = "renamed";

/// A request that is answered from what is known: mcast-sa would look for an unknown name on the fabric.
fn from_memory(name: &str) -> Vec<Entry> {
    by_name(name, flag::NO_DELAY)
}

fn by_name(name: &str, flags: u32) -> Vec<Entry> {
    let destination = Destination::Address {
        destination: name.to_owned(),
        source: Some(ASKING_NAME.to_owned()),
    };
    entries(&destination, flags).unwrap()
}

#[test]
fn a_change_of_the_hosts_file_that_could_not_be_read_is_read_later() {
    let rig = start(rig().option("log_level", 0), ASKING);
    let host = asking(&rig);
    let log = host.log();
    let mut client = host.connect().unwrap();
    assert_eq!(
        ask(&mut client, &by_name(PEER_NAME, 0)).status,
        Status::SUCCESS
    );
    let unknown = ask(&mut client, &from_memory(NEW_NAME));
    assert_ne!(unknown.status, Status::SUCCESS);

    let lines = |mark, text: &str| -> Vec<String> {
        let log = log.since(mark).unwrap();
        let lines = log
            .lines()
            .filter(|line| line.contains(FILE) && line.contains(text));
        lines.map(str::to_owned).collect()
    };
    let mark = log.end();
    let before = host.limit_descriptors(3).unwrap();
    let file = host.directory().join(FILE);
    fs::write(&file, HOSTS_FILE.replace(PEER_NAME, NEW_NAME)).unwrap();
    let refused = "Too many open files";
    wait::until_true("the daemon to try to read the file", PATIENCE, || {
        Ok(!lines(mark, refused).is_empty())
    })
    .unwrap();
    // What was read before still counts.
    assert_eq!(
        ask(&mut client, &from_memory(PEER_NAME)).status,
        Status::SUCCESS
    );

    host.limit_descriptors(before).unwrap();
    wait::until_true("the new name to be known", PATIENCE, || {
        Ok(ask(&mut client, &from_memory(NEW_NAME)).status == Status::SUCCESS)
    })
    .unwrap();
    assert_ne!(
        ask(&mut client, &from_memory(PEER_NAME)).status,
        Status::SUCCESS
    );
    // That it cannot be read is said once, and that it was.
    assert_eq!(lines(mark, refused).len(), 1);
    assert_eq!(lines(mark, "").len(), 2, "{:#?}", lines(mark, ""));
}
