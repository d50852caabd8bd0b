//! rdma_getaddrinfo of the distribution's librdmacm, which most programs use.

use std::fs;
use std::io::Read as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use loader_test::compare::compare;
use loader_test::record::PathRecord;
use loader_test::rig::{RING, Rig};
use loader_test::sa::Destination;
use loader_test::stand_in::message::{
    Addr, FLAG_DEST, FLAG_NODELAY, FLAG_SOURCE, Message, PATH, Path as Record,
};
use loader_test::wait::PATIENCE;
use tempfile::TempDir;

use crate::{
    ASKED, ASKED_IP, ASKING, ASKING_IP, asking, mcast_sa, path_cache, plan, rig, shared, stock,
};

/// The program that asks.
fn build() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("getaddrinfo");
    let source = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/real_clients/getaddrinfo.c"
    );
    let output = Command::new("cc")
        .args(["-Wall", "-o"])
        .arg(&program)
        .args([source, "-lrdmacm"])
        .output()
        .expect("the C compiler cc");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cc: {errors}");
    (folder, program)
}

/// The path in what the program printed.
fn printed(output: &str) -> PathRecord {
    let (before, hex) = output.trim_end().rsplit_once(": ").expect(output);
    assert_eq!(before, "1 route of 72 bytes, flags 0x2b");
    let bytes: Vec<u8> = (0..hex.len() / 2)
        .map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap())
        .collect();
    PathRecord(bytes.try_into().expect("a path record"))
}

fn is_served(rig: &Rig, program: &Path) {
    let host = asking(rig);
    let truth = rig
        .sa_path(host.gid(), Destination::Gid(rig.gid(ASKED).unwrap()))
        .unwrap();
    // The second time numeric, which librdmacm takes for "no delay": from the cache then.
    for arguments in [
        &[ASKING_IP, ASKED_IP][..],
        &[ASKING_IP, ASKED_IP, "numeric"],
    ] {
        let output = host.run(program, arguments, PATIENCE).unwrap();
        let path = printed(&output);
        let differences = compare(&path, &truth);
        assert!(differences.is_empty(), "{path:?}: {differences:?}");
    }
    // An address that nobody has.
    let output = host.run(program, &[ASKING_IP, "10.9.9.9", "numeric"], PATIENCE);
    assert_eq!(output.unwrap(), "no route\n");
    host.check().unwrap();
}

#[test]
fn rdma_getaddrinfo_is_served_by_stocks_provider() {
    let (_folder, program) = build();
    is_served(&rig(stock()), &program);
}

#[test]
fn rdma_getaddrinfo_is_served_by_path_cache() {
    let (_folder, program) = build();
    is_served(&rig(path_cache()), &program);
}

/// A program that connects again has the route of the last time. On a ring of switches DFSSSP draws the SL of a path for each
/// query, and refuses a query that names another.
fn is_served_again(library: PathBuf) {
    let (_folder, program) = build();
    let plan = plan(library)
        .net(RING)
        .opensm_option("routing_engine", "dfsssp")
        .opensm_option("qos", "TRUE");
    let rig = shared::start(plan, ASKING);
    let host = asking(&rig);
    let mark = rig.opensm().log().end();
    let arguments = [ASKING_IP, ASKED_IP, "again"];
    let output = host.run(&program, &arguments, PATIENCE).unwrap();
    let [first, second] = output.lines().collect::<Vec<_>>()[..] else {
        panic!("{output}");
    };
    assert_eq!(printed(first).dgid(), rig.gid(ASKED).unwrap());
    assert_eq!(second, first);
    assert_eq!(rig.path_queries(host, mark).unwrap().len(), 1);
}

#[test]
fn rdma_getaddrinfo_is_served_again_by_stocks_provider() {
    is_served_again(stock());
}

#[test]
fn rdma_getaddrinfo_is_served_again_by_path_cache() {
    is_served_again(path_cache());
}

#[test]
fn rdma_getaddrinfo_is_served_again_by_mcast_sa() {
    is_served_again(mcast_sa());
}

/// The conformance check resolve-librdmacm plays this message.
#[test]
fn rdma_getaddrinfo_sends_source_destination_and_hints() {
    let (_folder, program) = build();
    let rig = rig(path_cache());
    let host = asking(&rig);
    // Where librdmacm looks for the daemon's socket.
    let socket = host.directory().join("ibacm.sock");
    fs::remove_file(&socket).unwrap();
    let listener = UnixListener::bind(&socket).unwrap();
    let heard = thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut message = vec![0; 1024];
        let length = client.read(&mut message).unwrap();
        message.truncate(length);
        message
    });
    // Hung up on, it has no route.
    let arguments = [ASKING_IP, ASKED_IP, "numeric"];
    assert_eq!(
        host.run(&program, &arguments, PATIENCE).unwrap(),
        "no route\n"
    );

    let ip = |text: &str| Addr::Ip(text.parse().unwrap());
    let hints = Record::default().with_pkey(0xffff);
    let expected = Message::resolve()
        .with_entry(FLAG_SOURCE, ip(ASKING_IP).code(), &ip(ASKING_IP).field())
        .with_entry(
            FLAG_DEST | FLAG_NODELAY,
            ip(ASKED_IP).code(),
            &ip(ASKED_IP).field(),
        )
        .with_entry(0, PATH, &hints.0);
    let length = usize::from(expected.length());
    assert_eq!(heard.join().unwrap(), expected.0[..length]);
}
