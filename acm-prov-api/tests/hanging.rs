//! Files in a file system that hangs: a FUSE mount without a server. Needs a mount namespace and /dev/fuse.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;

use acm_prov_api::Status;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

#[path = "warm/provider.rs"]
mod provider;

use provider::{gid, learn, lid, opened};

/// A file system in which every call hangs until it is dropped.
struct Hanging<'a> {
    at: &'a Path,
    server: Option<File>,
}

impl<'a> Hanging<'a> {
    fn mount(at: &'a Path) -> Self {
        let mut options = OpenOptions::new();
        let server = options.read(true).write(true).open("/dev/fuse");
        let server = server.expect("/dev/fuse is there, and may be opened");
        let number = server.as_raw_fd();
        let data = format!("fd={number},rootmode=40000,user_id=0,group_id=0");
        let data = std::ffi::CString::new(data).unwrap();
        mount("none", at, "fuse", MountFlags::empty(), data.as_c_str())
            .expect("a FUSE file system can be mounted in a mount namespace");
        Self {
            at,
            server: Some(server),
        }
    }
}

impl Drop for Hanging<'_> {
    fn drop(&mut self) {
        // Hanging calls get an error.
        self.server = None;
        let _ = unmount(self.at, UnmountFlags::DETACH);
    }
}

#[test]
fn a_lookup_without_time_does_not_end_others_wait_for_files() {
    in_a_namespace("a_hasty_lookup_where_it_hangs");
}

#[test]
#[ignore = "the test above runs it in a namespace"]
fn a_hasty_lookup_where_it_hangs() {
    let folder = tempfile::tempdir().unwrap();
    let hanging = Hanging::mount(folder.path());
    let file = folder.path().join("file");
    let waited = "not read 100 ms after the first request";
    loop {
        let mut core = opened(&format!("routes {}\n", file.display()));
        let start = std::time::Instant::now();
        let hasty = core.resolve(&provider::hasty());
        core.wait_for_answer(hasty);
        let others_wait = !core.log().iter().any(|line| line.contains(waited));
        let is_soon = start.elapsed() < std::time::Duration::from_millis(100);
        if is_soon {
            assert!(others_wait, "{:?}", core.log());
            core.resolve(&lid(8));
            core.wait_for_log(waited);
            break;
        }
        // On a busy machine the wait may already be over.
        core.close();
    }
    drop(hanging);
}

/// Runs a test of this program in its own mount namespace.
fn in_a_namespace(test: &str) {
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "--"]);
    command.arg(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture"]);
    let output = command
        .output()
        .expect("unshare, of the package util-linux");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && printed.contains("1 passed"),
        "{printed}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn no_file_that_hangs_blocks_a_request_or_the_server_thread() {
    in_a_namespace("with_all_files_where_it_hangs");
}

#[test]
#[ignore = "the test above runs it in a namespace"]
fn with_all_files_where_it_hangs() {
    let folder = tempfile::tempdir().unwrap();
    for option in ["directory", "routes", "flush"] {
        let hanging = Hanging::mount(folder.path());
        let file = folder.path().join("file");
        let mut core = opened(&format!("{option} {}\n", file.display()));
        let start = std::time::Instant::now();
        let id = core.resolve(&lid(7));
        assert!(core.answers(id).is_empty());
        core.wait_for_sa_mads(1);
        let waited = "not read 100 ms after the first request";
        core.wait_for_log(waited);
        println!("{option}: the SA is asked after {:?}", start.elapsed());
        core.sa_answers_with(|_| ());
        assert_eq!(core.wait_for_answer(id).status, Status::SUCCESS);
        // No request waits for them a second time.
        let id = core.resolve(&gid(8));
        assert_eq!(core.sa_mads().len(), 1);
        core.sa_answers_with(|_| ());
        assert_eq!(core.wait_for_answer(id).status, Status::SUCCESS);
        core.reregister();
        learn(&mut core, &lid(7), 1);
        core.close();
        let log = core.log();
        assert_eq!(log.iter().filter(|line| line.contains(waited)).count(), 1);
        core.wait_for_log("did not end in time and is left behind");
        drop(hanging);
    }
}
