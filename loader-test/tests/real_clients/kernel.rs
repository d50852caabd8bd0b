//! The kernel asks by netlink (RDMA_NL_LS, <rdma/rdma_netlink.h>) when it connects on behalf of a program or of itself.
//!
//! In the protocol that the tests use nobody has the kernel's port 0. So the daemon's answers reach the group and its log says
//! all the same that they could not be sent; for its provider the kernel is a client that has left.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use loader_test::compare::compare;
use loader_test::ibacm::Host;
use loader_test::launch::NETLINK;
use loader_test::record::{Gid, PathRecord};
use loader_test::rig::Rig;
use loader_test::sa::Destination;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, bind, recv, sendto, socket};

use crate::{ASKED, asking, path_cache, rig, stock};

const LOCAL_SERVICE: u16 = 4;
/// The group to which ibacm answers, as a bit.
const GROUP: u32 = 1 << 2;
const RESOLVE: u16 = 0;
const REQUEST: u16 = 1;
const FAILED: u16 = 0x0100;

const PATH_RECORD: u16 = 1;
const SERVICE_ID: u16 = 3;
const DGID: u16 = 4;
const SGID: u16 = 5;
const TRAFFIC_CLASS: u16 = 6;
const PKEY: u16 = 7;
const QOS_CLASS: u16 = 8;
const MANDATORY: u16 = 0x2000;

/// General management, primary, outbound and inbound-reverse.
const FLAGS: u32 = 1 | 2 | 8 | 32;

/// Longer than any deadline of the daemon's.
const PATIENCE: Duration = Duration::from_secs(30);
/// Long enough for an answer too many.
const QUIET: Duration = Duration::from_millis(300);

/// What is asked for: an attribute each.
type Attributes = Vec<(u16, Vec<u8>)>;

/// One end of the daemon's netlink.
struct Kernel {
    socket: OwnedFd,
    daemon: u32,
    sequence: u32,
    /// What came, by sequence number: the path, or that there is none.
    answers: BTreeMap<u32, Vec<Option<PathRecord>>>,
}

impl Kernel {
    fn of(host: &Host) -> Self {
        let socket = socket(AddressFamily::NETLINK, SocketType::RAW, Some(NETLINK)).unwrap();
        bind(&socket, &SocketAddrNetlink::new(0, GROUP)).unwrap();
        let slice = Some(Duration::from_millis(50));
        set_socket_timeout(&socket, Timeout::Recv, slice).unwrap();
        Self {
            socket,
            daemon: host.pid().unwrap().cast_unsigned(),
            sequence: 1000,
            answers: BTreeMap::new(),
        }
    }

    fn send(&self, message: &[u8]) {
        let daemon = SocketAddrNetlink::new(self.daemon, 0);
        let sent = sendto(&self.socket, message, SendFlags::empty(), &daemon).unwrap();
        assert_eq!(sent, message.len());
    }

    /// A message with a sequence number of its own.
    fn message(&mut self, kind: u16, payload: &[u8]) -> Vec<u8> {
        self.sequence += 1;
        let mut message = Vec::new();
        message.extend((16 + payload.len() as u32).to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend(REQUEST.to_ne_bytes());
        message.extend(self.sequence.to_ne_bytes());
        message.extend(0_u32.to_ne_bytes());
        message.extend(payload);
        message
    }

    /// Asks for a path, and returns the sequence number.
    fn ask(&mut self, attributes: &Attributes) -> u32 {
        let message = self.message(LOCAL_SERVICE << 10 | RESOLVE, &payload(attributes));
        self.send(&message);
        self.sequence
    }

    /// Takes in what comes until `enough`.
    fn listen(&mut self, enough: impl Fn(&BTreeMap<u32, Vec<Option<PathRecord>>>) -> bool) -> bool {
        let deadline = Instant::now() + PATIENCE;
        while !enough(&self.answers) {
            if Instant::now() > deadline {
                return false;
            }
            self.take_in();
        }
        true
    }

    fn take_in(&mut self) {
        let mut message = vec![0; 1024];
        // Nothing came within the time slice.
        let Ok((length, _)) = recv(&self.socket, &mut message[..], RecvFlags::empty()) else {
            return;
        };
        let word = |at: usize| u32::from_ne_bytes(message[at..at + 4].try_into().unwrap());
        let half = |at: usize| u16::from_ne_bytes(message[at..at + 2].try_into().unwrap());
        // Other daemons answer to the same group.
        if word(12) != self.daemon {
            return;
        }
        let kind = half(4);
        assert_eq!(kind >> 10, LOCAL_SERVICE, "the kind of the request");
        assert_eq!(
            word(0) as usize,
            length,
            "the length that the header states"
        );
        let path = match half(6) {
            FAILED => {
                assert_eq!(length, 16, "a failure is the header alone");
                None
            }
            0 => {
                assert_eq!((length, half(16), half(18)), (16 + 76, 76, PATH_RECORD));
                assert_eq!(word(20), FLAGS);
                Some(PathRecord(message[28..92].try_into().unwrap()))
            }
            other => panic!("flags {other:#x}"),
        };
        self.answers.entry(word(8)).or_default().push(path);
    }

    /// The one answer to a request.
    #[track_caller]
    fn answer(&mut self, sequence: u32) -> Option<PathRecord> {
        let came = self.listen(|answers| answers.contains_key(&sequence));
        assert!(came, "no answer to request {sequence} in {PATIENCE:?}");
        self.answers[&sequence][0]
    }

    /// Nothing was answered that was not asked, and nothing twice.
    fn expect_one_answer_each(&mut self, requests: &[u32]) {
        let end = Instant::now() + QUIET;
        while Instant::now() < end {
            self.take_in();
        }
        for (sequence, answers) in &self.answers {
            assert!(requests.contains(sequence), "an answer to {sequence}");
            assert_eq!(answers.len(), 1, "request {sequence}: {answers:?}");
        }
        assert_eq!(self.answers.len(), requests.len());
    }
}

/// The device, the port and the use of the path, which is both ways; then what is asked for.
fn payload(attributes: &Attributes) -> Vec<u8> {
    let mut payload = b"ibsim0".to_vec();
    payload.resize(64, 0);
    payload.extend([1, 0, 0, 0]);
    for (kind, value) in attributes {
        payload.extend((4 + value.len() as u16).to_ne_bytes());
        payload.extend(kind.to_ne_bytes());
        payload.extend(value);
        payload.resize(payload.len().next_multiple_of(4), 0);
    }
    payload
}

/// What the kernel asks for at least.
fn path(rig: &Rig, to: Gid) -> Attributes {
    vec![
        (MANDATORY | DGID, to.0.to_vec()),
        (MANDATORY | SGID, asking(rig).gid().0.to_vec()),
        (MANDATORY | PKEY, 0xffff_u16.to_ne_bytes().to_vec()),
    ]
}

fn with(mut attributes: Attributes, kind: u16, value: &[u8]) -> Attributes {
    attributes.push((kind, value.to_vec()));
    attributes
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
    let mut kernel = Kernel::of(asking(rig));
    let to = rig.gid(ASKED).unwrap();
    let plain = path(rig, to);
    let service = 0x0100_0000_0106_4853_u64.to_ne_bytes();
    let mut requests = Vec::new();
    for attributes in [
        plain.clone(),
        // From the cache.
        plain.clone(),
        with(plain.clone(), MANDATORY | SERVICE_ID, &service),
        with(plain.clone(), MANDATORY | TRAFFIC_CLASS, &[0x20]),
        // The kernel's own attribute that a daemon need not know.
        with(plain.clone(), 99, &[0; 4]),
    ] {
        requests.push(kernel.ask(&attributes));
        let answer = kernel.answer(*requests.last().unwrap());
        expect_path(rig, answer, to);
    }

    // This subnet manager has no QoS policy: there may be no path for a class, but an answer.
    requests.push(kernel.ask(&with(
        plain.clone(),
        MANDATORY | QOS_CLASS,
        &0x50_u16.to_ne_bytes(),
    )));
    if let path @ Some(_) = kernel.answer(*requests.last().unwrap()) {
        expect_path(rig, path, to);
    }

    // All at once, each for a destination that is there and one that is not.
    let nowhere = Gid::new(0xfe80_0000_0000_0000, 0x0bad);
    let at_once: Vec<(u32, u32)> = (0..50)
        .map(|_| (kernel.ask(&plain), kernel.ask(&path(rig, nowhere))))
        .collect();
    for (known, unknown) in at_once {
        let answer = kernel.answer(known);
        expect_path(rig, answer, to);
        assert_eq!(kernel.answer(unknown), None);
        requests.extend([known, unknown]);
    }
    kernel.expect_one_answer_each(&requests);
    asking(rig).check().unwrap();
}

fn is_told_of_mistakes(rig: &Rig) {
    let mut kernel = Kernel::of(asking(rig));
    let to = rig.gid(ASKED).unwrap();
    let plain = path(rig, to);
    let resolve = LOCAL_SERVICE << 10 | RESOLVE;
    let mut requests = Vec::new();
    let mut refused = |kernel: &mut Kernel, message: &[u8]| {
        kernel.send(message);
        let sequence = kernel.sequence;
        assert_eq!(kernel.answer(sequence), None, "{message:02x?}");
        requests.push(sequence);
    };

    for attributes in [
        // What the daemon does not know, and must.
        with(plain.clone(), MANDATORY | 99, &[0; 4]),
        // A partition that the port is not in; no destination; values of a wrong length.
        vec![
            plain[0].clone(),
            (MANDATORY | PKEY, 0x8123_u16.to_ne_bytes().to_vec()),
        ],
        vec![plain[1].clone()],
        with(plain.clone(), MANDATORY | SERVICE_ID, &[0; 4]),
        with(plain.clone(), MANDATORY | DGID, &[0; 15]),
    ] {
        let message = kernel.message(resolve, &payload(&attributes));
        refused(&mut kernel, &message);
    }
    // No attributes at all, nothing behind the header, an operation that the daemon does not know.
    for (kind, payload) in [
        (resolve, payload(&Vec::new())),
        (resolve, Vec::new()),
        (LOCAL_SERVICE << 10 | 7, payload(&plain)),
    ] {
        let message = kernel.message(kind, &payload);
        refused(&mut kernel, &message);
    }

    // Not for the daemon, or no message: no answer.
    let other = kernel.message(2 << 10, &payload(&plain));
    kernel.send(&other);
    let mut long = kernel.message(resolve, &payload(&plain));
    long[..4].copy_from_slice(&5000_u32.to_ne_bytes());
    kernel.send(&long);
    kernel.send(&[0xff; 7]);
    for seed in 0..50_u8 {
        let noise: Vec<u8> = (0..200_u8)
            .map(|at| at.wrapping_mul(31) ^ seed.wrapping_mul(97))
            .collect();
        let message = kernel.message(3 << 10, &noise);
        kernel.send(&message);
    }

    requests.push(kernel.ask(&plain));
    let answer = kernel.answer(*requests.last().unwrap());
    expect_path(rig, answer, to);
    kernel.expect_one_answer_each(&requests);
    asking(rig).check().unwrap();
}

/// Requests of the kernel's in between do not disturb a client.
fn others_are_served_meanwhile(rig: &Rig) {
    let mut kernel = Kernel::of(asking(rig));
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
            let request = kernel.ask(&plain);
            let answer = kernel.answer(request);
            expect_path(rig, answer, to);
            request
        });
        let requests = requests.collect();
        clients.join().unwrap();
        requests
    });
    kernel.expect_one_answer_each(&requests);
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
