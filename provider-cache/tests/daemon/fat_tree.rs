//! A fabric of 1600 hosts.

use loader_test::acme;
use loader_test::client::{Client, Destination, entries};
use loader_test::ibacm::Host;
use loader_test::record::{Lid, PathRecord};
use loader_test::rig::{FAT_TREE_1600, Rig};

use crate::support::{PATIENCE, assert_equal, path_cache, printed_counters, sa_path};

const HOSTS: usize = 1600;

/// Interval of the hosts that are also resolved by ib_acme: fifty in all.
const SAMPLE: usize = 32;

/// Number of concurrent clients.
const AT_ONCE: usize = 200;

fn resolve_all(host: &Host, lids: &[Lid]) -> Vec<PathRecord> {
    let mut paths = Vec::new();
    for lids in lids.chunks(AT_ONCE) {
        let asked: Vec<(Client, u64)> = lids
            .iter()
            .map(|lid| {
                let mut client = host.connect().unwrap();
                let request = entries(&Destination::Lid(*lid), 0).unwrap();
                let id = client.send(&request).unwrap();
                (client, id)
            })
            .collect();
        for (mut client, id) in asked {
            paths.push(client.receive(id).unwrap().into_path().unwrap());
        }
    }
    paths
}

#[test]
fn every_lid_of_a_fat_tree_of_1600_hosts_resolves_to_the_sas_path() {
    let rig = Rig::builder(path_cache())
        .net(FAT_TREE_1600)
        .host("H800")
        .option("timeout", 30_000)
        .option("log_level", 0)
        .start()
        .unwrap();
    let host = rig.host("H800").unwrap();
    let fabric = rig.fabric().unwrap();
    let lids: Vec<Lid> = fabric.destinations().map(|(_, port)| port.lid).collect();
    assert_eq!(lids.len(), HOSTS);
    let truth: Vec<PathRecord> = lids
        .iter()
        .map(|lid| sa_path(&rig, host, &Destination::Lid(*lid)))
        .collect();

    for queries in [HOSTS, 0] {
        let mark = rig.opensm().log().end();
        let paths = resolve_all(host, &lids);
        for (path, truth) in paths.iter().zip(&truth) {
            assert_equal(path, truth);
        }
        assert_eq!(rig.path_queries(host, mark).unwrap().len(), queries);
    }

    let sample: Vec<String> = lids.iter().step_by(SAMPLE).map(Lid::to_string).collect();
    let list = format!("[{}]", sample.join(","));
    let printed = host.acme(&["-f", "l", "-d", &list], PATIENCE).unwrap();
    let resolutions = acme::parse(&printed);
    assert_eq!(resolutions.len(), sample.len(), "{printed}");
    for ((resolution, lid), truth) in resolutions
        .iter()
        .zip(&sample)
        .zip(truth.iter().step_by(SAMPLE))
    {
        assert_eq!((&resolution.destination, &resolution.failure), (lid, &None));
        assert_equal(&resolution.path.unwrap().to_record(truth), truth);
    }

    let (daemon, endpoint) = printed_counters(host, "H800");
    assert_eq!(daemon, endpoint);
    let asked = (2 * HOSTS + sample.len()) as u64;
    assert_eq!((daemon.resolve, daemon.route_query), (asked, HOSTS as u64));
    assert_eq!(daemon.route_cache, asked - HOSTS as u64);
    assert_eq!((daemon.error, daemon.no_data), (0, 0));
}
