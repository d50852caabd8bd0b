//! The operator's files.

use std::path::Path;
use std::process::Command;

use loader_test::client::Destination;
use loader_test::log::Mark;
use loader_test::record::Lid;
use loader_test::rig::{FAT_TREE_324, Rig};

use crate::support::{PATIENCE, by_address, each_form, mcast_sa, resolve, rig};

/// OpenSM's dump of the fat tree, and a hosts file of some of its hosts.
#[test]
fn with_a_dump_of_324_hosts_there_are_no_sa_queries() {
    let packed = Path::new("../acm-prov-api/tests/fixtures/opensm-full-v1-324hosts.dump.xz");
    let packed = std::fs::read(packed).unwrap();
    let mut dump = Vec::new();
    lzma_rs::xz_decompress(&mut packed.as_slice(), &mut dump).unwrap();
    // Host n has the GUID 0x100001 + 2n in this fabric.
    let gid = |host: u64| {
        format!(
            "fe80::{:x}:{:x}",
            (0x10_0001 + 2 * host) >> 16,
            (0x10_0001 + 2 * host) & 0xffff
        )
    };
    let rig = Rig::builder(mcast_sa())
        .net(FAT_TREE_324)
        .host("H0")
        .host("H323")
        .address("H0", "node0")
        .address("H323", "node323")
        .file(
            "ibacm_hosts.data",
            format!("node323 {}\nnode0 {}\n", gid(323), gid(0)),
        )
        .file("routes.dump", dump)
        .option("route_preload", "opensm_full_v1")
        .option("route_data_file", "/run/routes.dump")
        .start()
        .unwrap();
    assert_eq!(rig.gid("H323").unwrap().to_string(), gid(323));
    let fabric = rig.fabric().unwrap();
    let lids: Vec<Lid> = fabric.destinations().map(|(_, port)| port.lid).collect();
    assert_eq!(lids.len(), 324);
    let host = rig.host("H0").unwrap();
    host.log()
        .wait_for(Mark::default(), "routes.dump: ", PATIENCE)
        .unwrap();
    let mark = rig.opensm().log().end();
    for lid in lids {
        resolve(&rig, host, &Destination::Lid(lid));
    }
    resolve(&rig, host, &by_address("node0", "node323"));
    assert_eq!(rig.path_queries(host, mark).unwrap(), []);
}

/// The file that `ib_acme -O` writes works unchanged.
#[test]
fn the_sample_of_ib_acme_works_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let status = Command::new("ib_acme")
        .args(["-O", "-D"])
        .arg(folder.path())
        .status()
        .expect("ib_acme, of the package ibacm");
    assert!(status.success());
    let sample = std::fs::read_to_string(folder.path().join("ibacm_opts.cfg")).unwrap();
    // The rig chooses the paths of the daemon's own files.
    let of_the_rig = [
        "log_file",
        "lock_file",
        "server_mode",
        "server_port",
        "log_level",
    ];
    let mut plan = rig(&[("Hca1", mcast_sa()), ("Hca2", mcast_sa())]);
    let lines = sample.lines().filter(|line| !line.starts_with('#'));
    let mut count = 0;
    for (key, value) in lines.filter_map(|line| line.split_once(' ')) {
        if !of_the_rig.contains(&key) {
            plan = plan.option(key, value.trim());
            count += 1;
        }
    }
    assert!(count >= 15, "{sample}");
    let rig = plan.start().unwrap();
    let host = rig.host("Hca1").unwrap();
    for destination in each_form("Hca1", "Hca2") {
        resolve(&rig, host, &destination);
    }
    let log = host.log().since(Mark::default()).unwrap();
    let reports: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("ibacm_opts.cfg:"))
        .collect();
    assert_eq!(reports, [""; 0]);
}
