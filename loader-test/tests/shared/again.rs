//! A path that was handed out is asked for again as it is: by rdma_getaddrinfo with the route of an earlier call for hints.

use loader_test::client::{Client, Destination, Entry, Status, entries};
use loader_test::record::PathRecord;
use loader_test::rig::{RING, Rig};
use loader_test::sa;

use super::{ASKING_NAME, PEER, PEER_NAME, ask, asking, assert_equal, beside, rig};
use crate::subject;

#[track_caller]
fn path(client: &mut Client, entries: &[Entry]) -> PathRecord {
    let answer = ask(client, entries);
    assert_eq!(answer.status, Status::SUCCESS, "{entries:?}");
    answer.path().unwrap()
}

/// On a ring of switches DFSSSP draws the SL of a path for each query, and refuses every query that names one, also the one
/// that it has just handed out.
#[test]
fn a_record_that_was_handed_out_answers_though_the_sa_would_refuse_it() {
    let rig = rig()
        .net(RING)
        .opensm_option("routing_engine", "dfsssp")
        .opensm_option("qos", "TRUE")
        .start()
        .unwrap();
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
        (named, beside),
    ] {
        let record = path(&mut client, &entries(&first, 0).unwrap());
        expect_refusal(&rig, &record);
        let mark = rig.opensm().log().end();
        let repeated = path(&mut client, &again(&record));
        // The stock provider may have another record under the LID than under the GID.
        if subject::IS_STOCK {
            assert_eq!(repeated.dgid(), peer, "{first:?}");
            continue;
        }
        assert_equal(&repeated, &record);
        assert_equal(&path(&mut client, &again(&repeated)), &record);
        // Plainly, it is the same still.
        assert_equal(&path(&mut client, &entries(&first, 0).unwrap()), &record);
        assert_eq!(rig.path_queries(host, mark).unwrap(), [], "{first:?}");
    }
}

/// Without it the test above would prove nothing.
#[track_caller]
fn expect_refusal(rig: &Rig, record: &PathRecord) {
    use sa::component::{DGID, NUMBER_OF_PATHS, PKEY, REVERSIBLE, SGID, SL};
    let mut asked = *record;
    asked.set_reversible_and_number(true, 1);
    let mask = DGID | SGID | PKEY | SL | REVERSIBLE | NUMBER_OF_PATHS;
    let answer = rig.get_path(mask, &asked).unwrap();
    assert!(matches!(answer, sa::Answer::Refused(_)), "{answer:?}");
}

/// Each demand is the first that is heard of its destination.
#[test]
fn the_answer_to_a_demand_is_no_answer_to_who_demands_nothing() {
    const EXACTLY: u8 = 2 << 6;
    let rig = rig().start().unwrap();
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
