//! A returned path is requested again unchanged: by rdma_getaddrinfo with an earlier call's route as hints.

use loader_test::client::{Client, Destination, Entry, Status, entries};
use loader_test::record::PathRecord;
use loader_test::rig::RING;
use loader_test::sa::{self, component};

use super::{ASKING, ASKING_NAME, PEER, PEER_NAME, ask, asking, assert_equal, beside, rig, start};
use crate::subject;

#[track_caller]
fn path(client: &mut Client, entries: &[Entry]) -> PathRecord {
    let answer = ask(client, entries);
    assert_eq!(answer.status, Status::SUCCESS, "{entries:?}");
    answer.path().unwrap()
}

/// On a ring of switches DFSSSP draws the SLs of most paths for each query, and refuses a query that names another; and to
/// Hca3 it always gives an SL that it always refuses.
#[test]
fn a_record_that_was_handed_out_answers_though_the_sa_would_refuse_it() {
    let rig = start(
        rig()
            .net(RING)
            .opensm_option("routing_engine", "dfsssp")
            .opensm_option("qos", "TRUE"),
        ASKING,
    );
    let host = asking(&rig);
    let peer = rig.gid(PEER).unwrap();
    let named = Destination::Address {
        destination: PEER_NAME.to_owned(),
        source: Some(ASKING_NAME.to_owned()),
    };
    let mut client = host.connect().unwrap();
    type Again = fn(&PathRecord) -> Vec<Entry>;
    let alone: Again = |record| vec![Entry::path(0, record)];
    for (first, again) in [
        (Destination::Gid(peer), alone),
        (Destination::Lid(rig.lid(PEER).unwrap()), alone),
        (Destination::Gid(rig.gid("Hca3").unwrap()), alone),
        (named, beside),
    ] {
        let record = path(&mut client, &entries(&first, 0).unwrap());
        let mark = rig.opensm().log().end();
        let repeated = path(&mut client, &again(&record));
        // The stock provider may have another record under the LID than under the GID.
        if subject::IS_STOCK {
            assert_eq!(repeated.dgid(), record.dgid(), "{first:?}");
            continue;
        }
        assert_equal(&repeated, &record);
        assert_equal(&path(&mut client, &again(&repeated)), &record);
        // Plainly, it is the same still.
        assert_equal(&path(&mut client, &entries(&first, 0).unwrap()), &record);
        assert_eq!(rig.path_queries(host, mark).unwrap(), [], "{first:?}");
    }
}

/// Each demand is the first that is heard of its destination.
#[test]
fn the_answer_to_a_demand_is_no_answer_to_who_demands_nothing() {
    const EXACTLY: u8 = 2 << 6;
    let rig = start(rig(), ASKING);
    let host = asking(&rig);
    let mut client = host.connect().unwrap();
    let demands: [fn(&mut PathRecord); 3] = [
        |record| {
            record.set_mtu_byte(EXACTLY | 1);
        },
        |record| {
            record.set_packet_lifetime_byte(EXACTLY | 1);
        },
        |record| {
            record.set_qos_class_and_sl(0, 5);
        },
    ];
    for (node, demand) in ["Hca2", "Hca3", "Hca4"].into_iter().zip(demands) {
        let gid = rig.gid(node).unwrap();
        let truth = rig.sa_path(host.gid(), sa::Destination::Gid(gid)).unwrap();
        let mut asked = PathRecord::EMPTY;
        demand(asked.set_dgid(gid));
        let demanded = path(&mut client, &[Entry::path(0, &asked)]);
        // The stock provider looks at the destination alone.
        if subject::IS_STOCK {
            assert_equal(&demanded, &truth);
        } else {
            assert_ne!(demanded, truth);
        }
        let plain = path(&mut client, &entries(&Destination::Gid(gid), 0).unwrap());
        assert_equal(&plain, &truth);
    }
}

/// A demand on the path to a peer.
struct Demand {
    component: u64,
    set: fn(&mut PathRecord, &PathRecord),
    /// Whether the path to the peer that is asked for plainly meets it.
    is_met: bool,
}

/// MTU 2048, 10 Gb/s (code 3), packet lifetime 18. By their codes 20 Gb/s (6) are more than 10, and 5 Gb/s (5) too.
const DEMANDS: [Demand; 14] = {
    use component::{DLID, MTU, PACKET_LIFETIME, PKEY, RATE, SGID, SLID};
    const LESS: u8 = 1 << 6;
    const EXACTLY: u8 = 2 << 6;
    const BEST: u8 = 3 << 6;
    const fn demand(component: u64, is_met: bool, set: fn(&mut PathRecord, &PathRecord)) -> Demand {
        Demand {
            component,
            set,
            is_met,
        }
    }
    [
        demand(SGID, true, |asked, path| _ = asked.set_sgid(path.sgid())),
        demand(SLID, true, |asked, path| _ = asked.set_slid(path.slid())),
        demand(DLID, true, |asked, path| _ = asked.set_dlid(path.dlid())),
        demand(PKEY, true, |asked, _| _ = asked.set_pkey(0x7fff)),
        demand(MTU, true, |asked, _| _ = asked.set_mtu_byte(EXACTLY | 4)),
        demand(MTU, true, |asked, _| _ = asked.set_mtu_byte(LESS | 5)),
        demand(MTU, false, |asked, _| _ = asked.set_mtu_byte(LESS | 4)),
        demand(MTU, false, |asked, _| _ = asked.set_mtu_byte(BEST | 4)),
        demand(RATE, true, |asked, _| _ = asked.set_rate_byte(EXACTLY | 3)),
        demand(RATE, true, |asked, _| _ = asked.set_rate_byte(LESS | 6)),
        demand(RATE, false, |asked, _| _ = asked.set_rate_byte(LESS | 5)),
        demand(PACKET_LIFETIME, true, |asked, _| {
            _ = asked.set_packet_lifetime_byte(EXACTLY | 18);
        }),
        demand(PACKET_LIFETIME, true, |asked, _| {
            _ = asked.set_packet_lifetime_byte(LESS | 19);
        }),
        demand(PACKET_LIFETIME, false, |asked, _| {
            _ = asked.set_packet_lifetime_byte(LESS | 18);
        }),
    ]
};

#[test]
fn a_demand_that_the_known_path_meets_costs_no_query() {
    use component::{DGID, NUMBER_OF_PATHS, PKEY, REVERSIBLE, SGID};
    let rig = start(rig(), ASKING);
    let host = asking(&rig);
    let mut client = host.connect().unwrap();
    let peer = rig.gid(PEER).unwrap();
    let plain = path(&mut client, &entries(&Destination::Gid(peer), 0).unwrap());
    for (number, demand) in DEMANDS.iter().enumerate() {
        let mut asked = PathRecord::EMPTY;
        (demand.set)(asked.set_dgid(peer), &plain);
        let mark = rig.opensm().log().end();
        let answer = path(&mut client, &[Entry::path(0, &asked)]);
        let queries = rig.path_queries(host, mark).unwrap();
        // The stock provider looks at the destination alone; it knows that by its LID, too, once it was asked for it.
        if subject::IS_STOCK {
            assert_equal(&answer, &plain);
            continue;
        }
        assert_eq!(
            queries.is_empty(),
            demand.is_met,
            "demand {number}: {asked:?}"
        );
        let mut truth = asked;
        truth
            .set_sgid(host.gid())
            .set_pkey(plain.pkey())
            .set_reversible_and_number(true, 1);
        let mask = DGID | SGID | PKEY | REVERSIBLE | NUMBER_OF_PATHS | demand.component;
        let sa::Answer::Record(truth) = rig.get_path(mask, &truth).unwrap() else {
            panic!("the SA has no path for demand {number}: {asked:?}");
        };
        assert_equal(&answer, &truth);
    }
}
