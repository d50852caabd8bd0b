//! Compares the stand-in core's SA with OpenSM. The stock provider sends the queries to OpenSM: it passes a client's record to
//! the SA unchanged, and the class-specific status of the response to the client.

use loader_test::record::PathRecord;
use loader_test::rig::Rig;
use loader_test::stand_in::fabric::{Peer, PortSpec, gid_in};
use loader_test::stand_in::message::{Gid, Path};
use loader_test::stand_in::subnet::Subnet;

const STOCK: &str = "/usr/lib/x86_64-linux-gnu/ibacm/libibacmp.so";

/// The requesting port, a host, and another host.
struct Ends {
    prefix: u64,
    own: u64,
    guid: u64,
    lid: u16,
    other_lid: u16,
}

impl Ends {
    fn gid(&self) -> Gid {
        gid_in(self.prefix, self.guid)
    }

    fn plain(&self) -> Path {
        Path::default()
            .with_sgid(gid_in(self.prefix, self.own))
            .with_dgid(self.gid())
            .with_pkey(0xffff)
            .with_reversible_numpath(0x81)
    }
}

type Case = (&'static str, fn(&Ends) -> Path);

const CASES: [Case; 19] = [
    ("a GID", Ends::plain),
    ("a LID", |ends| {
        ends.plain().with_dgid(Gid::ZERO).with_dlid(ends.lid)
    }),
    ("GID and LID", |ends| ends.plain().with_dlid(ends.lid)),
    ("another's LID", |ends| {
        ends.plain().with_dlid(ends.other_lid)
    }),
    ("another's SLID", |ends| {
        ends.plain().with_slid(ends.other_lid)
    }),
    ("an unknown GID", |ends| {
        ends.plain().with_dgid(gid_in(ends.prefix, 0x0bad))
    }),
    ("an unknown LID", |ends| {
        ends.plain().with_dgid(Gid::ZERO).with_dlid(999)
    }),
    ("a GID of a subnet that no router leads to", |ends| {
        ends.plain()
            .with_dgid(gid_in(0xfec0_0000_0000_0bad, ends.guid))
    }),
    ("a link-local GID", |ends| {
        ends.plain().with_dgid(gid_in(0xfe80 << 48, ends.guid))
    }),
    ("MTU exactly 256", |ends| ends.plain().with_mtu(0x81)),
    ("MTU less than 2048", |ends| ends.plain().with_mtu(0x44)),
    ("MTU without a selector", |ends| ends.plain().with_mtu(0x05)),
    ("an MTU that cannot be", |ends| ends.plain().with_mtu(0x87)),
    ("rate exactly 2.5", |ends| ends.plain().with_rate(0x82)),
    ("rate less than 10", |ends| ends.plain().with_rate(0x43)),
    ("a rate that cannot be", |ends| ends.plain().with_rate(0x81)),
    ("lifetime exactly 10", |ends| {
        ends.plain().with_lifetime(0x8a)
    }),
    ("SL 6", |ends| ends.plain().with_qos_sl(6)),
    ("a service that no policy has", |ends| {
        ends.plain().with_service_id(15)
    }),
];

/// The comparable parts of an answer from two fabrics: the GID prefixes, and the fields after the LIDs.
fn comparable(path: &[u8; 64]) -> Vec<u8> {
    [&path[..16], &path[24..32], &path[44..57]].concat()
}

#[test]
fn the_sa_of_the_stand_in_answers_as_opensm_does() {
    for (prefix, qos) in [
        (0xfe80_0000_0000_0000, false),
        (0xfec0_0000_0000_0001, true),
    ] {
        let rig = Rig::builder(STOCK)
            .opensm_option("subnet_prefix", format!("{prefix:#018x}"))
            .opensm_option("qos", if qos { "TRUE" } else { "FALSE" })
            .start()
            .unwrap();
        let [own, host, other] = ["Hca1", "Hca2", "Hca3"].map(|node| rig.port(node).unwrap());
        let real = Ends {
            prefix,
            own: own.guid,
            guid: host.guid,
            lid: host.lid.0,
            other_lid: other.lid.0,
        };
        let port = PortSpec {
            prefix,
            ..PortSpec::new(0x0010_0001, 10)
        };
        let [peer, other] = [3, 4].map(Peer::number);
        let played = Ends {
            prefix,
            own: port.guids[0],
            guid: peer.guid,
            lid: peer.lid,
            other_lid: other.lid,
        };
        let subnet = Subnet {
            ports: vec![port],
            qos,
            ..Subnet::default()
        };
        let mut client = rig.host("Hca1").unwrap().connect().unwrap();
        for (name, case) in CASES {
            let answer = client.query(&PathRecord(case(&real).0)).unwrap();
            let asked = case(&played);
            let seen = subnet.path(&asked, asked.comp_mask(), 0);
            let expected = match u16::from(answer.status.0) {
                0 => Ok(comparable(&answer.path().unwrap().0)),
                class => Err(class << 8),
            };
            assert_eq!(
                seen.map(|path| comparable(&path.0)),
                expected,
                "{name}, QoS {qos}"
            );
        }
    }
}
