//! Partitions with limited members.

use loader_test::client::{Destination, Status};
use loader_test::compare::compare;
use loader_test::ibacm::Host;
use loader_test::rig::Rig;
use loader_test::sa::{Answer, SaQuery};

use crate::support::{ask, each_form, mcast_sa, path_to, rig, stock};

const FULL: u16 = 0xffff;
const LIMITED: u16 = 0x7fff;

/// Resolves, and asserts that the answer equals the SA's response for this P_Key. The stock provider uses the
/// group's P_Key, the full member's.
#[track_caller]
fn resolve(rig: &Rig, host: &Host, pkey: u16, destination: &Destination) {
    let query = SaQuery {
        sgid: host.gid(),
        destination: rig.sa_destination(destination).unwrap(),
        pkey: Some(pkey),
    };
    let Answer::Record(truth) = rig.ask_sa(&query).unwrap() else {
        panic!("the SA has no path: {query:?}");
    };
    let path = path_to(host, destination);
    let judged: Vec<_> = compare(&path, &truth)
        .into_iter()
        .filter(|difference| difference.judged)
        .filter(|difference| host.provider().name == "mcast-sa" || difference.field != "P_Key")
        .collect();
    assert_eq!(judged, [], "{} on {}", host.provider().name, host.node());
}

/// Hosts 1 and 2 are full members of the default partition, 3 and 4 limited ones.
#[test]
fn limited_members_reach_full_members_and_not_each_other() {
    // GUID of Hca2's port, as ibsim assigns it.
    let partitions =
        "Default=0x7fff, ipoib, defmember=limited : ALL=limited, SELF=full, 0x100004=full ;\n";
    let members = [
        ("Hca1", FULL),
        ("Hca2", FULL),
        ("Hca3", LIMITED),
        ("Hca4", LIMITED),
    ];
    let rig = rig(&[
        ("Hca1", stock()),
        ("Hca2", mcast_sa()),
        ("Hca3", mcast_sa()),
        ("Hca4", stock()),
    ])
    .opensm_file("partitions.conf", partitions)
    .option("timeout", 500)
    .start()
    .unwrap();
    for (from, pkey) in members {
        let host = rig.host(from).unwrap();
        assert_eq!(host.endpoints().unwrap()[0].pkey, pkey, "{from}");
        for (to, other) in members.into_iter().filter(|(to, _)| *to != from) {
            for destination in each_form(from, to) {
                if (pkey, other) == (LIMITED, LIMITED) {
                    let answer = ask(host, &destination);
                    assert_eq!(answer.status, Status::ETIMEDOUT, "{from} to {to}");
                } else {
                    resolve(&rig, host, pkey, &destination);
                }
            }
        }
    }
}
