//! The cache engine with renewal and with snapshots.

use std::path::{Path, PathBuf};

use acm_prov_api::abi::{AcmCounter, Be16, umad_sa_packet};
use acm_prov_api::cache::snapshot::{Snapshot, file};
use acm_prov_api::prelude::*;
use acm_prov_api::testing::{Request, TestCore};

mod provider;

use provider::{gid, gid_of, learn, lid, opened};

/// Returns the LIDs of the outstanding SA queries, oldest first.
fn asked(core: &TestCore) -> Vec<u16> {
    let lid = |packet: &umad_sa_packet| {
        let record = packet.data.first_chunk().expect("200 bytes of data");
        PathRecord::from_bytes(record).dlid().0
    };
    core.sa_mads().iter().map(lid).collect()
}

/// Returns the answer, if there is one at once.
fn known(core: &mut TestCore, request: &Request) -> Option<PathRecord> {
    let id = core.resolve(request);
    core.answers(id).first().and_then(|answer| answer.path)
}

/// Returns the SL of the answer, while the SA is silent.
#[track_caller]
fn sl(core: &mut TestCore, request: &Request) -> u8 {
    let id = core.resolve(request);
    core.wait_for_answer(id).path.expect("a path").sl()
}

/// Returns the number of path queries so far.
fn queries(core: &TestCore) -> u64 {
    core.core_counters()[AcmCounter::ROUTE_QUERY.0 as usize]
}

/// Calls `is_so` until it returns true. The test runner ends a test that hangs.
fn until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        std::thread::yield_now();
    }
}

#[test]
fn after_a_re_registration_paths_in_use_answer_and_are_renewed() {
    let mut core = opened("renew 1000\n");
    learn(&mut core, &lid(7), 1);
    core.reregister();
    assert_eq!(sl(&mut core, &lid(7)), 1);
    core.wait_for_sa_mads(1);
    assert_eq!(asked(&core), [7], "though nobody waits");
    assert_eq!(sl(&mut core, &lid(7)), 1);
    core.sa_answers_with(|path| {
        path.set_sl(2);
    });
    until(|| sl(&mut core, &lid(7)) == 2);
    assert_eq!(queries(&core), 2);
    // Renewed once more, after a single request since the last renewal.
    core.reregister();
    core.wait_for_sa_mads(1);
    assert_eq!(asked(&core), [7]);
}

#[test]
fn without_renewal_paths_are_queried_at_their_next_use() {
    let mut core = opened("renew 0\n");
    learn(&mut core, &lid(7), 1);
    core.reregister();
    let id = core.resolve(&lid(7));
    assert!(core.answers(id).is_empty());
    assert_eq!(asked(&core), [7]);
}

#[test]
fn one_renewal_at_a_time_and_clients_first() {
    let mut core = opened("renew 1000\n");
    for destination in [7, 8, 9] {
        learn(&mut core, &lid(destination), 1);
    }
    core.reregister();
    core.wait_for_sa_mads(1);
    // Many requests arrive while the first renewal is outstanding.
    let clients = 100..400;
    for destination in clients.clone() {
        core.resolve(&lid(destination));
    }
    let mut order = Vec::new();
    for _ in 0..3 + clients.len() {
        core.wait_for_sa_mads(1);
        order.push(asked(&core)[0]);
        core.sa_answers_with(|_| ());
    }
    assert!(
        order[1..=clients.len()].iter().copied().eq(clients),
        "{order:?}"
    );
    let mut renewed = [&order[..1], &order[order.len() - 2..]].concat();
    renewed.sort_unstable();
    assert_eq!(renewed, [7, 8, 9]);
}

#[test]
fn a_path_that_the_sa_no_longer_has_is_not_given_to_clients() {
    let mut core = opened("renew 1000\n");
    learn(&mut core, &lid(7), 1);
    core.reregister();
    core.wait_for_sa_mads(1);
    core.sa_answers(|packet| packet.mad_hdr.status = Be16::from_host(0x0300));
    let id = core.resolve(&lid(7));
    assert!(core.answers(id).is_empty());
    assert_eq!(asked(&core), [7]);
}

struct Restarting {
    folder: tempfile::TempDir,
}

impl Restarting {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder }
    }

    fn file(&self) -> PathBuf {
        file::path(&self.directory(), TestCore::GID.interface_id())
    }

    fn directory(&self) -> PathBuf {
        self.folder.path().join("paths")
    }

    fn flush_file(&self) -> PathBuf {
        self.folder.path().join("flush")
    }

    fn opened(&self) -> TestCore {
        opened(&format!(
            "directory {}\nflush {}\n",
            self.directory().display(),
            self.flush_file().display()
        ))
    }

    fn snapshot(&self) -> Option<Snapshot> {
        let bytes = std::fs::read(self.file()).ok()?;
        Snapshot::from_bytes(&bytes).ok()
    }

    /// Runs a daemon that caches paths to LIDs 7 and 8 and to a GID, and kills it once they are in its file.
    fn killed(&self) {
        let mut core = self.opened();
        learn(&mut core, &lid(7), 1);
        learn(&mut core, &lid(8), 2);
        learn(&mut core, &gid(9), 3);
        until(|| self.snapshot().is_some_and(|snapshot| snapshot.len() == 3));
        core.close();
    }

    fn change(&self, change: impl FnOnce(&mut Snapshot)) {
        let mut snapshot = self.snapshot().unwrap();
        change(&mut snapshot);
        file::write(&self.file(), &snapshot.to_bytes()).unwrap();
    }
}

#[test]
fn a_restarted_daemon_answers_from_the_snapshot() {
    let restarting = Restarting::new();
    restarting.killed();
    let mut core = restarting.opened();
    core.wait_for_log("3 paths from ");
    // The SA is silent.
    assert_eq!(sl(&mut core, &lid(8)), 2);
    assert_eq!(sl(&mut core, &gid(9)), 3);
    let path = known(&mut core, &lid(7)).unwrap();
    assert_eq!((path.dgid(), path.sgid()), (gid_of(7), TestCore::GID));
    assert_eq!((path.slid(), path.sl()), (Lid(1), 1));
}

#[test]
fn a_request_that_comes_before_the_snapshot_is_read_waits_for_it() {
    let restarting = Restarting::new();
    restarting.killed();
    let mut core = restarting.opened();
    let id = core.resolve(&lid(7));
    // It is answered in any case: on a slow machine by the SA.
    until(|| {
        if !core.sa_mads().is_empty() {
            core.sa_answers_with(|_| ());
        }
        !core.answers(id).is_empty()
    });
    assert_eq!(core.wait_for_answer(id).status, Status::SUCCESS);
}

#[test]
fn a_path_from_a_snapshot_that_is_used_is_renewed() {
    let restarting = Restarting::new();
    restarting.killed();
    let mut core = restarting.opened();
    core.wait_for_log("3 paths from ");
    assert_eq!(sl(&mut core, &lid(8)), 2);
    core.wait_for_sa_mads(1);
    assert_eq!(asked(&core), [8]);
    core.sa_answers_with(|path| {
        path.set_sl(4);
    });
    until(|| sl(&mut core, &lid(8)) == 4);
    assert_eq!(sl(&mut core, &lid(7)), 1, "the others stay");
    // Without the option for renewals, a re-registration drops the paths, as without a snapshot.
    core.reregister();
    for destination in [7, 8] {
        assert_eq!(known(&mut core, &lid(destination)), None);
    }
}

#[test]
fn one_path_that_is_wrong_drops_the_whole_snapshot() {
    let restarting = Restarting::new();
    restarting.killed();
    let mut core = restarting.opened();
    core.wait_for_log("3 paths from ");
    assert_eq!(sl(&mut core, &gid(9)), 3);
    core.wait_for_sa_mads(1);
    core.sa_answers_with(|path| {
        path.set_dlid(Lid(10));
    });
    core.wait_for_log("dropped all paths of the snapshot");
    assert_eq!(known(&mut core, &gid(9)).unwrap().dlid(), Lid(10));
    for destination in [7, 8] {
        assert_eq!(known(&mut core, &lid(destination)), None);
    }
    until(|| {
        restarting
            .snapshot()
            .is_some_and(|snapshot| snapshot.len() == 1)
    });
}

#[test]
fn another_lid_of_the_same_port_contradicts_nothing() {
    let restarting = Restarting::new();
    restarting.killed();
    restarting.change(|snapshot| snapshot.port.lmc = 3);
    let mut core = restarting.opened();
    core.wait_for_log("another LMC");
    core.close_port();
    core.change_port(|port| port.lmc = 3);
    core.open();
    core.wait_for_log("3 paths from ");
    assert_eq!(sl(&mut core, &gid(9)), 3);
    core.wait_for_sa_mads(1);
    core.sa_answers_with(|path| {
        path.set_dlid(Lid(5));
    });
    until(|| known(&mut core, &gid(9)).is_some_and(|path| path.dlid() == Lid(5)));
    assert_eq!(sl(&mut core, &lid(8)), 2);
    assert!(known(&mut core, &lid(7)).is_some(), "{:?}", core.log());
}

#[test]
fn unused_paths_of_a_snapshot_get_no_younger() {
    let restarting = Restarting::new();
    restarting.killed();
    restarting.change(|snapshot| snapshot.time -= 1_000);
    let time = restarting.snapshot().unwrap().time;
    let mut core = restarting.opened();
    core.wait_for_log("3 paths from ");
    learn(&mut core, &lid(20), 1);
    core.wait_for_log("stays as it is");
    assert_eq!(restarting.snapshot().unwrap().time, time);
}

#[test]
fn a_snapshot_of_another_port_or_time_is_not_used_and_the_log_says_why() {
    type Change = fn(&mut Snapshot);
    let changes: [(Change, &str); 4] = [
        (
            |snapshot| snapshot.port.sm_lid = Lid(1),
            "another LID of the subnet manager",
        ),
        (
            |snapshot| snapshot.port.lid = Lid(2),
            "another LID of the port",
        ),
        (|snapshot| snapshot.time += 1_000, "s in the future"),
        (
            |snapshot| snapshot.time -= 4_000,
            "s old, older than 3600 s",
        ),
    ];
    for (change, reason) in changes {
        let restarting = Restarting::new();
        restarting.killed();
        restarting.change(change);
        not_used(&restarting, reason);
    }
}

#[test]
fn a_damaged_or_writable_file_is_not_used() {
    use std::os::unix::fs::PermissionsExt;
    type Damage = fn(&Path);
    let damages: [(Damage, &str); 3] = [
        (
            |file| {
                let bytes = std::fs::read(file).unwrap();
                std::fs::write(file, &bytes[..bytes.len() - 1]).unwrap();
            },
            "it is torn or damaged",
        ),
        (
            |file| std::fs::set_permissions(file, PermissionsExt::from_mode(0o622)).unwrap(),
            "others can write to it",
        ),
        (
            |file| {
                let moved = file.with_extension("moved");
                std::fs::rename(file, &moved).unwrap();
                std::os::unix::fs::symlink(moved, file).unwrap();
            },
            "is a link or a special file",
        ),
    ];
    for (damage, reason) in damages {
        let restarting = Restarting::new();
        restarting.killed();
        damage(&restarting.file());
        not_used(&restarting, reason);
    }
}

#[test]
fn a_flush_while_no_daemon_ran_counts() {
    let restarting = Restarting::new();
    restarting.killed();
    std::fs::write(restarting.flush_file(), "").unwrap();
    not_used(
        &restarting,
        "the flush file was touched after it was written",
    );
}

/// Returns the answer of an endpoint that opens after the snapshot was read and `happens` was called.
fn known_to_a_later_endpoint(happens: impl FnOnce(&Restarting, &mut TestCore)) -> Option<u8> {
    const LATER: u16 = 0x8001;
    let restarting = Restarting::new();
    restarting.killed();
    restarting.change(|snapshot| {
        let mut section = snapshot.sections[0].clone();
        section.pkey = PKey(LATER);
        snapshot.sections.push(section);
    });
    let mut core = restarting.opened();
    core.wait_for_log("3 paths from ");
    happens(&restarting, &mut core);
    core.set_pkeys(&[0xffff, LATER]);
    let endpoint = core.open_endpoint(LATER).expect("an endpoint");
    let address = Address::Ip("10.0.0.9".parse().unwrap());
    let address = core.add_address_to(endpoint, &address).expect("an address");
    let id = core.resolve_from(address, &lid(8));
    // It waits for the snapshot.
    until(|| !core.answers(id).is_empty() || !core.sa_mads().is_empty());
    let path = core.answers(id).first()?.path?;
    Some(path.sl())
}

#[test]
fn an_endpoint_that_opens_later_has_paths_of_the_snapshot_too() {
    assert_eq!(known_to_a_later_endpoint(|_, _| ()), Some(2));
}

#[test]
fn a_flush_counts_for_endpoints_that_open_later() {
    let known = known_to_a_later_endpoint(|restarting, core| {
        std::fs::write(restarting.flush_file(), "").unwrap();
        core.wait_for_log("was touched: flushed");
    });
    assert_eq!(known, None);
}

#[test]
fn a_re_registration_counts_for_endpoints_that_open_later() {
    let known = known_to_a_later_endpoint(|_, core| core.reregister());
    assert_eq!(known, None);
}

#[test]
fn after_a_flush_the_file_is_written_again() {
    let restarting = Restarting::new();
    restarting.killed();
    let mut core = restarting.opened();
    core.wait_for_log("3 paths from ");
    std::fs::write(restarting.flush_file(), "").unwrap();
    core.wait_for_log("was touched: flushed");
    learn(&mut core, &lid(20), 1);
    until(|| {
        restarting
            .snapshot()
            .is_some_and(|snapshot| snapshot.len() == 1)
    });
}

#[track_caller]
fn not_used(restarting: &Restarting, reason: &str) {
    let mut core = restarting.opened();
    core.wait_for_log(reason);
    learn(&mut core, &lid(7), 5);
    let reported = |core: &TestCore| {
        let log = core.log();
        log.iter().filter(|line| line.contains(reason)).count()
    };
    assert_eq!(reported(&core), 1);
    // A new one takes its place.
    until(|| {
        restarting
            .snapshot()
            .is_some_and(|snapshot| snapshot.len() == 1)
    });
}

#[test]
fn a_directory_that_cannot_be_written_to_is_reported_once() {
    let restarting = Restarting::new();
    std::fs::write(restarting.directory(), "not a directory").unwrap();
    let mut core = restarting.opened();
    learn(&mut core, &lid(7), 1);
    let line = core.wait_for_log("paths are not saved");
    assert!(line.contains("is a link or a special file"), "{line}");
    learn(&mut core, &lid(8), 1);
    assert_eq!(sl(&mut core, &lid(7)), 1);
    core.close();
    let log = core.log();
    let lines = log.iter().filter(|line| line.contains("not saved"));
    assert_eq!(lines.count(), 1, "{log:?}");
}
