//! The datagrams of rdma-core's own provider, byte for byte: the reference file for mcast-sa's datagrams.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fabric_sim::fabric;
use fabric_sim::model::data_path::{DataPath, Datagram, GlobalRouteHeader};
use fabric_sim::model::membership::Membership;
use loader_test::stand_in::fabric::{DeviceSpec, Peer};
use loader_test::stand_in::message::{Addr, Message};
use loader_test::stand_in::sa::SaRequest;
use loader_test::stand_in::{FIRST_PORT, Setup, StandIn};

use super::STOCK;

const FIXTURE: &str = include_str!("../../../provider-default/tests/fixtures/stock-datagrams.txt");
const PKEY: u16 = 0xffff;
const QKEY: u32 = 0x8001_0000;

/// Keeps what leaves the port.
#[derive(Default)]
struct Recorder(Mutex<Vec<Datagram>>);

impl DataPath for Recorder {
    fn send(&self, datagram: &Datagram) {
        self.0.lock().unwrap().push(datagram.clone());
    }
}

impl Recorder {
    /// The next datagram.
    fn next(&self) -> Datagram {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let mut sent = self.0.lock().unwrap();
            if !sent.is_empty() {
                return sent.remove(0);
            }
            drop(sent);
            assert!(Instant::now() < deadline, "nothing was sent");
            std::thread::yield_now();
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The lines of the file: what it is and the bytes.
fn line(what: &str, datagram: &Datagram) -> String {
    format!("{what}: {}\n", hex(&datagram.payload))
}

/// A request of another host, `own` being one of the addresses here.
fn request_of(peer: &Peer, own: &Addr, groups: [[u8; 16]; 2]) -> Vec<u8> {
    let mut bytes = vec![1, 0x2c, 1, 1, 0, 0, 0, 1];
    bytes.extend(0x0102_0304_0506_0708_u64.to_be_bytes());
    bytes.extend([own.code() as u8, 64, 2, 64, 2, 0, 0, 0]);
    bytes.extend(own.field());
    bytes.extend(Addr::Ip(peer.ip).field());
    bytes.extend(groups.concat());
    bytes.resize(256, 0);
    bytes
}

#[test]
fn stocks_datagrams_are_those_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup {
        devices: vec![DeviceSpec::single()],
        // Two groups: the one that everybody shares is slower than the port.
        options: [
            "route_prot acm",
            "min_mtu 1024",
            "timeout 60000",
            "resolve_depth 8",
        ]
        .map(str::to_owned)
        .into(),
        folder: folder.path().to_owned(),
        trace: None,
        deadline: None,
    };
    let mut core = StandIn::start(setup, STOCK.as_ref()).unwrap();
    let adapter = fabric::adapters().unwrap().remove(0);
    let recorder = Arc::new(Recorder::default());
    adapter
        .set_data_path(1, Arc::clone(&recorder) as _)
        .unwrap();
    core.port_up(FIRST_PORT).unwrap();
    let own = [
        Addr::Name("Stock-Host".into()),
        Addr::Ip(Ipv4Addr::new(10, 1, 0, 201)),
        Addr::Ip6(Ipv6Addr::from(0xfd00_u128 << 112 | 0x201)),
    ];
    for address in &own {
        core.add_address(FIRST_PORT, PKEY, address).unwrap();
    }
    let joins = core.questions(2, SaRequest::is_join).unwrap();
    assert!(core.settle());
    // What the SA grants, the switches know.
    let groups: [[u8; 16]; 2] = [0, 1].map(|index| joins[index].record[..16].try_into().unwrap());
    let mlid = |mgid: &[u8; 16]| {
        let sum = mgid
            .iter()
            .fold(0_u16, |sum, byte| sum.wrapping_add((*byte).into()));
        0xc000 | sum & 0x0fff
    };
    for mgid in &groups {
        adapter
            .joined(1, Membership::full(*mgid, mlid(mgid)))
            .unwrap();
    }

    let peer = Peer::number(3);
    let mut text = String::new();
    let wanted = [
        ("a request for a name", Addr::Name("Peer-3".into())),
        ("a request for an IPv4 address", Addr::Ip(peer.ip)),
        ("a request for an IPv6 address", Addr::Ip6(peer.ip6)),
    ];
    let mut pair = 0;
    for (own, (what, wanted)) in own.iter().zip(&wanted) {
        core.ask(&Message::destination(Some(own), wanted)).unwrap();
        let sent = recorder.next();
        assert_eq!(sent.group(), Some((groups[0], mlid(&groups[0]))), "{what}");
        assert_eq!((sent.qkey, sent.pkey), (QKEY, PKEY));
        pair = sent.source_qp;
        text += &line(what, &sent);
    }

    let of_here = core.port(FIRST_PORT).clone();
    let mut grh = GlobalRouteHeader {
        source: peer.gid().0,
        destination: groups[0],
        ..GlobalRouteHeader::default()
    };
    let request = Datagram {
        source_lid: peer.lid,
        source_qp: 77,
        destination_lid: mlid(&groups[0]),
        destination_qp: 0x00ff_ffff,
        grh: Some(grh),
        qkey: QKEY,
        pkey: PKEY,
        payload: request_of(&peer, &own[1], groups),
        ..Datagram::default()
    };
    adapter.arrive(1, &request);
    let answer = recorder.next();
    grh.source = of_here.gid().0;
    grh.destination = peer.gid().0;
    let to = (
        answer.destination_lid,
        answer.destination_qp,
        answer.source_qp,
    );
    assert_eq!(to, (peer.lid, 77, pair));
    let ends = answer.grh.map(|grh| (grh.source, grh.destination));
    assert_eq!(ends, Some((grh.source, grh.destination)));
    text += &line("an answer", &answer);

    let known: String = FIXTURE
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| format!("{line}\n"))
        .collect();
    assert_eq!(text, known);
}
