//! Paths that survive a restart of the daemon, and paths that are renewed before a client needs them.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use acm_prov_api::address::{Gid, Lid};
use acm_prov_api::cache::snapshot::{Section, Snapshot, file};
use acm_prov_api::cache::store::Kept;
use acm_prov_api::path::PathRecord;
use acm_prov_api::sa::Target;
use loader_test::client::{Client, Destination, Status, entries};
use loader_test::ibacm::{Host, PortEvent};
use loader_test::log::Mark;
use loader_test::rig::{Builder, Rig};
use loader_test::{record, wait};

use crate::support::{PATIENCE, ask, assert_equal, by_gid, by_lid, resolve, rig, sa_path};

/// A daemon with a snapshot. Requests to the SA wait longer than the test.
fn snapshots() -> Builder {
    rig()
        .host("Hca1")
        .option("path_cache_snapshot", "/run/paths")
        .option("path_cache_snapshot_interval", 1)
        .option("timeout", 600_000)
        .option("log_level", 0)
}

/// Returns the snapshot's file once it exists.
fn snapshot_file(host: &Host) -> Option<PathBuf> {
    let files = fs::read_dir(host.directory().join("paths")).ok()?;
    let mut files = files.map(|file| file.unwrap().path());
    files.find(|file| file.extension().is_none())
}

/// Waits until the file has that many paths.
fn wait_for_snapshot(host: &Host, paths: usize) -> Snapshot {
    wait::until(format!("{paths} paths in the file"), PATIENCE, || {
        host.check()?;
        let bytes = snapshot_file(host).and_then(|file| fs::read(file).ok());
        let snapshot = bytes.and_then(|bytes| Snapshot::from_bytes(&bytes).ok());
        Ok(snapshot.filter(|snapshot| snapshot.len() == paths))
    })
    .unwrap()
}

/// Restarts a killed daemon while the SA is silent, and waits until it has read the snapshot.
fn start_without_sa(rig: &Rig, host: &Host, paths: usize) {
    rig.opensm().stop().unwrap();
    rig.start_host(host).unwrap();
    let line = format!(": {paths} paths from /run/paths/paths-");
    host.log()
        .wait_for(Mark::default(), &line, PATIENCE)
        .unwrap();
}

#[test]
fn a_restarted_daemon_answers_its_cached_paths_without_the_sa() {
    let rig = snapshots().start().unwrap();
    let host = rig.host("Hca1").unwrap();
    let nodes = ["Hca1", "Hca2", "Hca3", "Hca4"];
    let known: Vec<Destination> = nodes
        .iter()
        .flat_map(|node| [by_lid(&rig, node), by_gid(&rig, node)])
        .collect();
    let paths: Vec<record::PathRecord> = known
        .iter()
        .map(|destination| resolve(&rig, host, destination))
        .collect();
    wait_for_snapshot(host, known.len());
    host.kill();
    start_without_sa(&rig, host, known.len());
    for (destination, path) in known.iter().zip(&paths) {
        assert_equal(&ask(host, destination).into_path().unwrap(), path);
    }
    let mark = rig.opensm().log().end();
    rig.opensm().resume().unwrap();
    // Used paths are renewed, once each, without a request.
    wait::until_true("the renewals", PATIENCE, || {
        host.check()?;
        Ok(rig.path_queries(host, mark)?.len() == known.len())
    })
    .unwrap();
    for destination in &known {
        resolve(&rig, host, destination);
    }
    assert_eq!(rig.path_queries(host, mark).unwrap().len(), known.len());
}

/// As many paths as a subnet has LIDs.
#[test]
fn a_snapshot_of_a_whole_subnet_answers_the_first_request() {
    const PATHS: u64 = 49_000;
    let rig = snapshots().start().unwrap();
    let host = rig.host("Hca1").unwrap();
    let [real, cold] = ["Hca2", "Hca3"].map(|node| by_lid(&rig, node));
    let path = resolve(&rig, host, &real);
    let mut snapshot = wait_for_snapshot(host, 1);
    host.kill();

    let prefix = rig.opensm().subnet_prefix();
    let made_up = |number: u64| {
        let gid = Gid::new(prefix, 0xaa00_0000 + number);
        let mut path = PathRecord::default();
        path.set_dgid(gid)
            .set_dlid(Lid(7))
            .set_pkey(snapshot.sections[0].pkey);
        Kept {
            target: Target::Gid(gid),
            path,
            age: Duration::ZERO,
        }
    };
    let file = snapshot_file(host).unwrap();
    let mut kept: Vec<Kept> = (1..PATHS).map(made_up).collect();
    let source = acm_prov_api::sa::Source {
        gid: Gid::new(prefix, snapshot.port.guid),
        lid: snapshot.port.lid,
        pkey: snapshot.sections[0].pkey,
    };
    kept.extend(snapshot.sections[0].kept(source, Duration::ZERO));
    snapshot.sections = vec![Section::new(source.pkey, kept)];
    let bytes = snapshot.to_bytes();
    assert!(bytes.len() as u64 <= 48 * PATHS);
    file::write(&file, &bytes).unwrap();

    start_without_sa(&rig, host, PATHS as usize);
    assert_equal(&ask(host, &real).into_path().unwrap(), &path);
    for number in [1, PATHS / 2, PATHS - 1] {
        let gid = record::Gid::new(prefix, 0xaa00_0000 + number);
        let path = ask(host, &Destination::Gid(gid)).into_path().unwrap();
        assert_eq!((path.dgid(), path.sgid()), (gid, host.gid()));
    }
    // Paths that are not in the snapshot are queried.
    let mut client: Client = host.connect().unwrap();
    let id = client.send(&entries(&cold, 0).unwrap()).unwrap();
    let mark = rig.opensm().log().end();
    rig.opensm().resume().unwrap();
    let answer = client.receive(id).unwrap();
    assert_eq!(answer.status, Status::SUCCESS);
    assert_equal(&answer.into_path().unwrap(), &sa_path(&rig, host, &cold));
    let asked = rig.path_queries(host, mark).unwrap();
    assert!(!asked.is_empty());
}

/// After a reregistration, paths in use are queried once, without a request.
#[test]
fn after_a_reregistration_paths_in_use_are_renewed_and_answered_meanwhile() {
    let rig = rig().option("path_cache_renew", 1000).start().unwrap();
    let host = rig.host("Hca1").unwrap();
    let known = ["Hca2", "Hca3", "Hca4"].map(|node| by_lid(&rig, node));
    for destination in &known {
        resolve(&rig, host, destination);
    }
    let mark = rig.opensm().log().end();
    host.raise(PortEvent::ClientReregister).unwrap();
    wait::until_true("the renewals", PATIENCE, || {
        host.check()?;
        for destination in &known {
            let mut client = host.connect()?;
            let answer = client.resolve_cached(destination)?;
            assert_eq!(answer.status, Status::SUCCESS, "without a pause");
        }
        Ok(rig.path_queries(host, mark)?.len() == known.len())
    })
    .unwrap();
    for destination in &known {
        resolve(&rig, host, destination);
    }
    assert_eq!(rig.path_queries(host, mark).unwrap().len(), known.len());
}
