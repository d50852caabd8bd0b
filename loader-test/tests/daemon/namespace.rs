//! The network namespace of a run.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use loader_test::rig::Rig;

use crate::providers;

fn network(pid: i32) -> PathBuf {
    fs::read_link(format!("/proc/{pid}/ns/net")).unwrap()
}

fn networks(rig: &Rig) -> BTreeSet<PathBuf> {
    let daemons = rig.hosts().iter().map(|host| host.pid().unwrap());
    let others = [rig.ibsim().process().pid(), rig.opensm().pid().unwrap()];
    daemons.chain(others).map(network).collect()
}

/// A daemon in the machine's own namespace would take part in the kernel's path requests.
#[test]
fn each_rig_has_one_of_its_own() {
    let good = providers::good();
    let rigs = [(); 2].map(|()| Rig::builder(good.path()).start().unwrap());
    let [one, other] = rigs.each_ref().map(networks);
    let own = BTreeSet::from([fs::read_link("/proc/self/ns/net").unwrap()]);
    assert_eq!([one.len(), other.len()], [1, 1], "{one:?} {other:?}");
    assert!(
        one != other && one != own && other != own,
        "{own:?} {one:?} {other:?}"
    );
    for rig in &rigs {
        assert_eq!(rig.hosts()[0].endpoints().unwrap().len(), 1);
    }
}

#[test]
fn its_loopback_is_up() {
    let good = providers::good();
    let rig = Rig::builder(good.path()).host("Hca1").start().unwrap();
    let connect = "(: </dev/tcp/127.0.0.1/9) 2>&1; :";
    let said = rig.hosts()[0].run(
        Path::new("/bin/bash"),
        &["-c", connect],
        Duration::from_secs(60),
    );
    let said = said.unwrap();
    // Else: Network is unreachable.
    assert!(said.contains("Connection refused"), "{said}");
}
