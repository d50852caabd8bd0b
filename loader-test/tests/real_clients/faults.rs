//! The faults that the conformance suite finds in stock's provider also occur under the real daemon; path-cache has none of them.

use std::time::Duration;

use loader_test::client::{Answer, Status};
use loader_test::error::Error;
use loader_test::ibacm::Host;
use loader_test::record::{Gid, Lid};
use loader_test::rig::Rig;
use loader_test::stand_in::message::{Addr, Message, Path};

use crate::{ASKED, ASKED_IP, ASKING_IP, asking, path_cache, rig, stock};

/// The answer, if one comes soon: stock's provider takes its time to give up.
fn exchange(host: &Host, message: &Message) -> Option<Answer> {
    const ID: u64 = 77;
    let message = message.with_tid(ID);
    let mut client = host.connect().unwrap();
    client.set_patience(Duration::from_secs(5));
    let length = usize::from(message.length());
    client.send_raw(&message.0[..length]).unwrap();
    match client.receive(ID) {
        Err(Error::Timeout { .. }) => None,
        answer => Some(answer.unwrap()),
    }
}

fn to(rig: &Rig) -> Path {
    let Lid(lid) = rig.lid(ASKED).unwrap();
    Path::default().with_dlid(lid)
}

/// The check hostile-path-data.
fn entries_for_path_data(rig: &Rig) -> usize {
    let message = Message::path(&to(rig)).with_data([1, 7, 0]);
    let answer = exchange(asking(rig), &message).unwrap();
    assert_eq!(answer.status, Status::SUCCESS);
    answer.entries.len()
}

/// The check resolve-ip-length.
fn knows_address_with_garbage(rig: &Rig) -> bool {
    let ip = |text: &str| Addr::Ip(text.parse().unwrap());
    let message = Message::destination(Some(&ip(ASKING_IP)), &ip(ASKED_IP).with_garbage());
    exchange(asking(rig), &message).is_some_and(|answer| answer.status == Status::SUCCESS)
}

/// The check query-source.
fn source_of_query(rig: &Rig) -> Gid {
    let answer = exchange(asking(rig), &Message::query(&to(rig))).unwrap();
    answer.into_path().unwrap().sgid()
}

#[test]
fn stocks_provider_fails_as_the_suite_says() {
    let rig = rig(stock());
    assert_eq!(entries_for_path_data(&rig), 2);
    assert!(!knows_address_with_garbage(&rig));
    // OpenSM takes any port for the source then, and the client a path from there.
    assert_ne!(source_of_query(&rig), asking(&rig).gid());
}

#[test]
fn path_cache_passes_as_the_suite_says() {
    let rig = rig(path_cache());
    assert_eq!(entries_for_path_data(&rig), 1);
    assert!(knows_address_with_garbage(&rig));
    assert_eq!(source_of_query(&rig), asking(&rig).gid());
}
