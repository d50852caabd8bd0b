//! Faults of links.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::model::data_path::{DataPath, Datagram};
use crate::model::link_faults::{LinkCounts, LinkFaults, MAX_HELD};
use crate::model::port::STATE_DOWN;
use crate::testing::*;

/// Collects the datagrams that arrive.
#[derive(Default)]
struct Recorder(Mutex<Vec<Vec<u8>>>);

impl DataPath for Recorder {
    fn send(&self, datagram: &Datagram) {
        self.0.lock().push(datagram.payload.clone());
    }
}

impl Recorder {
    fn wait_for(&self, count: usize) -> Vec<Vec<u8>> {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let got = self.0.lock().clone();
            if got.len() >= count {
                return got;
            }
            assert!(Instant::now() < deadline, "{count} datagrams: {got:?}");
            std::thread::yield_now();
        }
    }
}

fn recorded(faults: LinkFaults) -> (Host, Arc<Recorder>) {
    let host = Host::ready(5);
    let recorder = Arc::<Recorder>::default();
    host.adapter.set_data_path(1, recorder.clone()).unwrap();
    host.adapter.set_link_faults(1, faults).unwrap();
    (host, recorder)
}

fn send(host: &Host, numbers: std::ops::Range<u8>) {
    for number in numbers {
        host.send(&[number; 8], at(6), 0x40);
    }
}

fn counts(host: &Host) -> LinkCounts {
    host.adapter.link_faults(1).unwrap().1
}

/// Sends a hundred datagrams; returns those that arrived.
fn fate(faults: LinkFaults) -> Vec<Vec<u8>> {
    let (host, recorder) = recorded(faults);
    send(&host, 0..100);
    let counts = counts(&host);
    assert_eq!(counts.sent, 100);
    recorder.wait_for((100 - counts.dropped + counts.duplicated) as usize)
}

#[test]
fn without_faults_everything_arrives_in_order() {
    let sent: Vec<_> = (0..100).map(|number| vec![number; 8]).collect();
    assert_eq!(fate(LinkFaults::default()), sent);
}

#[test]
fn all_or_nothing_is_lost() {
    let all = LinkFaults {
        drop: 100,
        ..LinkFaults::default()
    };
    assert!(fate(all).is_empty());
    let (host, recorder) = recorded(all);
    send(&host, 0..3);
    assert_eq!(counts(&host).dropped, 3);
    host.adapter
        .set_link_faults(1, LinkFaults::default())
        .unwrap();
    send(&host, 3..4);
    assert_eq!(recorder.wait_for(1), [[3; 8]]);
    assert_eq!(counts(&host).dropped, 0, "counting began anew");
}

#[test]
fn chance_follows_from_the_seed() {
    let faults = |seed| LinkFaults {
        drop: 30,
        duplicate: 30,
        corrupt: 30,
        seed,
        ..LinkFaults::default()
    };
    let first = fate(faults(1));
    assert_eq!(first, fate(faults(1)));
    assert_ne!(first, fate(faults(2)));
    // Other faults do not change which datagrams are lost.
    let numbers = |datagrams: Vec<Vec<u8>>| {
        let mut numbers: Vec<u8> = datagrams.iter().map(|bytes| bytes[0]).collect();
        numbers.dedup();
        numbers
    };
    let corrupt_nothing = LinkFaults {
        corrupt: 0,
        ..faults(1)
    };
    let drop_only = LinkFaults {
        duplicate: 0,
        ..corrupt_nothing
    };
    assert_eq!(numbers(fate(corrupt_nothing)), numbers(fate(drop_only)));
    let lost = 100 - fate(drop_only).len();
    assert!((10..60).contains(&lost), "{lost} of 100 at 30 %");
}

#[test]
fn each_fault_does_what_it_says() {
    let twice = fate(LinkFaults {
        duplicate: 100,
        ..LinkFaults::default()
    });
    let expected: Vec<_> = (0..100)
        .flat_map(|number| vec![vec![number; 8]; 2])
        .collect();
    assert_eq!(twice, expected);

    let wrong = fate(LinkFaults {
        corrupt: 100,
        ..LinkFaults::default()
    });
    for (number, bytes) in (0u8..).zip(&wrong) {
        let turned: u32 = bytes.iter().map(|byte| (byte ^ number).count_ones()).sum();
        assert_eq!(turned, 1, "{bytes:?}");
    }

    let swapped = fate(LinkFaults {
        reorder: 100,
        ..LinkFaults::default()
    });
    let expected: Vec<_> = (0..100).map(|number: u8| vec![number ^ 1; 8]).collect();
    assert_eq!(swapped, expected);
}

#[test]
fn a_datagram_that_is_not_overtaken_still_arrives() {
    let (host, recorder) = recorded(LinkFaults {
        reorder: 100,
        duplicate: 100,
        ..LinkFaults::default()
    });
    send(&host, 0..1);
    assert_eq!(recorder.wait_for(2), [[0; 8], [0; 8]]);
    send(&host, 1..2);
    assert_eq!(
        counts(&host).reordered,
        2,
        "it waits for a third, not for the first"
    );
}

#[test]
fn the_late_are_in_order() {
    let delay = Duration::from_millis(20);
    let begin = Instant::now();
    let late = fate(LinkFaults {
        delay,
        ..LinkFaults::default()
    });
    assert!(begin.elapsed() >= delay, "too early");
    assert_eq!(late, fate(LinkFaults::default()));
}

#[test]
fn all_of_it_can_come_together() {
    let faults = LinkFaults {
        duplicate: 100,
        reorder: 50,
        corrupt: 50,
        delay: Duration::from_millis(1),
        ..LinkFaults::default()
    };
    let (host, recorder) = recorded(faults);
    send(&host, 0..100);
    recorder.wait_for(200);
    let counts = counts(&host);
    assert_eq!((counts.duplicated, counts.delayed), (100, 200));
    assert!(counts.reordered > 0 && counts.corrupted > 0, "{counts:?}");
}

#[test]
fn held_datagrams_are_bounded_and_lost_with_the_port() {
    let (host, recorder) = recorded(LinkFaults {
        delay: Duration::from_secs(60),
        ..LinkFaults::default()
    });
    for _ in 0..=MAX_HELD / 100 {
        send(&host, 0..100);
    }
    let counted = counts(&host);
    assert_eq!(counted.delayed, MAX_HELD as u64);
    assert_eq!(counted.dropped, counted.sent - counted.delayed);

    let active = (*host.adapter.port(1).unwrap()).clone();
    let mut down = active.clone();
    down.info.state = STATE_DOWN;
    host.adapter.update_port(1, down).unwrap();
    host.adapter.update_port(1, active).unwrap();
    send(&host, 0..1);
    assert_eq!(counts(&host).delayed, MAX_HELD as u64 + 1, "room again");
    assert_eq!(recorder.0.lock().len(), 0);
}

#[test]
fn faults_do_not_apply_to_looped_back_datagrams() {
    let host = Host::ready(5);
    let other = Host::on(host.adapter.clone());
    other.make_ready(0);
    other.receive_into(1, 512);
    let all = LinkFaults {
        drop: 100,
        ..LinkFaults::default()
    };
    host.adapter.set_link_faults(1, all).unwrap();
    host.send(b"hello", at(5), other.pair.number());
    assert!(other.queue.poll().unwrap().receive);
}
