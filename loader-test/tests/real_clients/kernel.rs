//! Path requests of the kernel, which it sends by netlink when it connects.

use std::thread;
use std::time::{Duration, Instant};

use loader_test::compare::compare;
use loader_test::kernel::attribute::{DGID, MANDATORY, PKEY, SERVICE_ID};
use loader_test::kernel::{Kernel, RESOLVE, Request};
use loader_test::record::{Gid, PathRecord};
use loader_test::rig::Rig;
use loader_test::sa::Destination;

use crate::{ASKED, asking, path_cache, rig, stock};

/// Long enough for an answer too many.
const QUIET: Duration = Duration::from_millis(300);

const OTHER_CLIENT: u16 = 2 << 10;
const UNKNOWN_OPERATION: u16 = RESOLVE + 7;
const NOISE: u16 = 3 << 10;

/// What the kernel asks for at least.
fn path(rig: &Rig, to: Gid) -> Request {
    Request::path(asking(rig).gid(), to, 0xffff)
}

/// Nothing was answered that was not asked, and nothing twice.
#[track_caller]
fn expect_one_answer_each(kernel: &mut Kernel, requests: &[u32]) {
    let end = Instant::now() + QUIET;
    while Instant::now() < end {
        kernel.receive().unwrap();
    }
    for (sequence, answers) in kernel.answers() {
        assert!(requests.contains(sequence), "an answer to {sequence}");
        assert_eq!(answers.len(), 1, "request {sequence}: {answers:?}");
    }
    assert_eq!(kernel.answers().len(), requests.len());
}

#[track_caller]
fn expect_path(rig: &Rig, answer: Option<PathRecord>, to: Gid) {
    let truth = rig
        .sa_path(asking(rig).gid(), Destination::Gid(to))
        .unwrap();
    let answer = answer.expect("a path");
    let differences = compare(&answer, &truth);
    assert!(differences.is_empty(), "{answer:?}: {differences:?}");
}

fn is_served(rig: &Rig) {
    let mut kernel = Kernel::of(asking(rig)).unwrap();
    let to = rig.gid(ASKED).unwrap();
    let plain = path(rig, to);
    let mut requests = Vec::new();
    for request in [
        plain.clone(),
        // From the cache.
        plain.clone(),
        plain.clone().service_id(0x0100_0000_0106_4853),
        plain.clone().traffic_class(0x20),
        // The kernel's own attribute that a daemon need not know.
        plain.clone().with(99, &[0; 4]),
    ] {
        requests.push(kernel.ask(&request).unwrap());
        let answer = kernel.answer(*requests.last().unwrap()).unwrap();
        expect_path(rig, answer, to);
    }

    // All at once, each for a destination that is there and one that is not.
    let nowhere = path(rig, Gid::new(0xfe80_0000_0000_0000, 0x0bad));
    let at_once: Vec<(u32, u32)> = (0..50)
        .map(|_| (kernel.ask(&plain).unwrap(), kernel.ask(&nowhere).unwrap()))
        .collect();
    for (known, unknown) in at_once {
        let answer = kernel.answer(known).unwrap();
        expect_path(rig, answer, to);
        assert_eq!(kernel.answer(unknown).unwrap(), None);
        requests.extend([known, unknown]);
    }
    expect_one_answer_each(&mut kernel, &requests);
    asking(rig).check().unwrap();
}

fn is_told_of_mistakes(rig: &Rig) {
    let mut kernel = Kernel::of(asking(rig)).unwrap();
    let to = rig.gid(ASKED).unwrap();
    let plain = path(rig, to);
    let mut requests = Vec::new();
    let mut refused = |kernel: &mut Kernel, kind: u16, payload: &[u8]| {
        let (message, sequence) = kernel.message(kind, payload);
        kernel.send(&message).unwrap();
        assert_eq!(kernel.answer(sequence).unwrap(), None, "{message:02x?}");
        requests.push(sequence);
    };

    for request in [
        // What the daemon does not know, and must.
        plain.clone().with(MANDATORY | 99, &[0; 4]),
        // A partition that the port is not in; no destination; values of a wrong length.
        Request::empty()
            .with(MANDATORY | DGID, &to.0)
            .with(MANDATORY | PKEY, &0x8123_u16.to_ne_bytes()),
        Request::empty().with(MANDATORY | PKEY, &0xffff_u16.to_ne_bytes()),
        plain.clone().with(MANDATORY | SERVICE_ID, &[0; 4]),
        plain.clone().with(MANDATORY | DGID, &[0; 15]),
        // No attributes at all.
        Request::empty(),
    ] {
        refused(&mut kernel, RESOLVE, &request.payload());
    }
    // Nothing behind the header, an operation that the daemon does not know.
    refused(&mut kernel, RESOLVE, &[]);
    refused(&mut kernel, UNKNOWN_OPERATION, &plain.payload());

    // Not for the daemon, or no message: no answer.
    let (other, _) = kernel.message(OTHER_CLIENT, &plain.payload());
    kernel.send(&other).unwrap();
    let (mut long, _) = kernel.message(RESOLVE, &plain.payload());
    long[..4].copy_from_slice(&5000_u32.to_ne_bytes());
    kernel.send(&long).unwrap();
    kernel.send(&[0xff; 7]).unwrap();
    for seed in 0..50_u8 {
        let noise: Vec<u8> = (0..200_u8)
            .map(|at| at.wrapping_mul(31) ^ seed.wrapping_mul(97))
            .collect();
        let (message, _) = kernel.message(NOISE, &noise);
        kernel.send(&message).unwrap();
    }

    requests.push(kernel.ask(&plain).unwrap());
    let answer = kernel.answer(*requests.last().unwrap()).unwrap();
    expect_path(rig, answer, to);
    expect_one_answer_each(&mut kernel, &requests);
    asking(rig).check().unwrap();
}

/// Requests of the kernel's in between do not disturb a client.
fn others_are_served_meanwhile(rig: &Rig) {
    let mut kernel = Kernel::of(asking(rig)).unwrap();
    let to = rig.gid(ASKED).unwrap();
    let plain = path(rig, to);
    let requests: Vec<u32> = thread::scope(|scope| {
        let clients = scope.spawn(|| {
            for _ in 0..50 {
                let destination = loader_test::client::Destination::Gid(to);
                let differences = rig.differences(asking(rig), &destination).unwrap();
                assert!(differences.is_empty(), "{differences:?}");
            }
        });
        let requests = (0..200).map(|_| {
            let request = kernel.ask(&plain).unwrap();
            let answer = kernel.answer(request).unwrap();
            expect_path(rig, answer, to);
            request
        });
        let requests = requests.collect();
        clients.join().unwrap();
        requests
    });
    expect_one_answer_each(&mut kernel, &requests);
}

#[test]
fn the_kernel_is_served_by_stocks_provider() {
    let rig = rig(stock());
    is_served(&rig);
    is_told_of_mistakes(&rig);
    others_are_served_meanwhile(&rig);
}

#[test]
fn the_kernel_is_served_by_path_cache() {
    let rig = rig(path_cache());
    is_served(&rig);
    is_told_of_mistakes(&rig);
    others_are_served_meanwhile(&rig);
}
