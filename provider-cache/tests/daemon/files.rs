//! Errors in an operator's files appear in the daemon's log, and the rest of the file takes effect.

use std::fs;

use loader_test::client::Status;
use loader_test::ibacm::Host;
use loader_test::log::Mark;
use loader_test::rig::Builder;

use crate::support::{
    PATIENCE, ask, ask_until, assert_equal, by_address, by_lid, lines, resolve, rig,
};

/// Logs only what every operator sees.
fn plain() -> Builder {
    rig().option("log_level", 0).host("Hca1").host("Hca2")
}

/// Returns the number of the line of the options file that starts with this text.
fn option_line(host: &Host, begin: &str) -> usize {
    let options = fs::read_to_string(host.directory().join("ibacm_opts.cfg")).unwrap();
    let line = options.lines().position(|line| line.starts_with(begin));
    line.expect("the line in the options file") + 1
}

fn expect_line(host: &Host, text: &str) {
    host.log()
        .wait_for(Mark::default(), text, PATIENCE)
        .unwrap_or_else(|error| panic!("{error}\n{}", host.log().since(Mark::default()).unwrap()));
}

#[test]
fn bad_options_are_reported_and_the_defaults_hold() {
    let bad = [
        ("path_cache_capacity", "many", "not a number; using 65536"),
        (
            "path_cache_negative_ttl",
            "-5",
            "not within 0 to 3600000; using 1000",
        ),
        ("path_cache_renew", "5000", "not within 0 to 1000; using 0"),
        (
            "path_cache_snapshot_age",
            "0",
            "not within 1 to 86400; using 3600",
        ),
        (
            "path_cache_stale_ttl",
            "99999999999999999999",
            "using 600000",
        ),
        (
            "path_cache_capcity",
            "7",
            "no such option, ignored; known are path_cache_capacity",
        ),
        ("addr_timeout", "1h", "not a number; using 1440"),
        ("route_timeout", "-2", "using -1"),
        (
            "loopback_prot",
            "sometimes",
            "not one of none, local; using local",
        ),
        (
            "addr_preload",
            "hosts",
            "not one of none, no, acm_hosts; using none",
        ),
    ];
    let plan = bad
        .iter()
        .fold(plain(), |plan, (key, value, _)| plan.option(*key, value));
    // The last one is a shared option with a valid value, so nothing is logged.
    let rig = plan.option("route_prot", "sa").start().unwrap();
    let host = rig.host("Hca1").unwrap();
    for (key, value, reason) in bad {
        let line = option_line(host, key);
        let text = match key {
            "path_cache_capcity" => format!("/run/ibacm_opts.cfg:{line}: {key}: {reason}"),
            _ => format!("/run/ibacm_opts.cfg:{line}: {key} {value}: "),
        };
        expect_line(host, &text);
        let told = lines(host, Mark::default(), &text);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(
            told[0].contains("path-cache: ") && told[0].contains(reason),
            "{told:?}"
        );
    }
    let reports = lines(host, Mark::default(), "ibacm_opts.cfg:");
    assert_eq!(reports.len(), bad.len(), "{reports:#?}");
    // The value of loopback_prot is invalid, so it is local, and there is no SA query.
    let mark = rig.opensm().log().end();
    resolve(&rig, host, &by_lid(&rig, "Hca2"));
    resolve(&rig, host, &by_lid(&rig, "Hca2"));
    assert_eq!(rig.path_queries(host, mark).unwrap().len(), 1);
}

#[test]
fn good_options_are_not_reported() {
    let rig = plain()
        .address("Hca1", "node1")
        .option("path_cache_capacity", 10)
        .option("path_cache_negative_ttl", 0)
        .option("path_cache_renew", 5)
        .option("path_cache_stale_ttl", 0)
        .option("path_cache_snapshot", "/run/paths")
        .option("path_cache_snapshot_age", 600)
        .option("path_cache_snapshot_interval", 1)
        .option("path_cache_flush_file", "/run/flush")
        .option("addr_timeout", 10)
        .option("route_timeout", -1)
        .option("timeout", 1000)
        .option("retries", 3)
        .option("sa_depth", 2)
        .option("loopback_prot", "none")
        .start()
        .unwrap();
    let host = rig.host("Hca1").unwrap();
    assert_eq!(lines(host, Mark::default(), "path-cache: "), [""; 0]);
    // With loopback_prot none, the path to itself also comes from the SA.
    let mark = rig.opensm().log().end();
    resolve(&rig, host, &by_address("node1", "node1"));
    assert_eq!(rig.path_queries(host, mark).unwrap().len(), 1);
}

#[test]
fn without_a_hosts_file_the_daemon_goes_on() {
    let missing = "addr_data_file /run/nowhere.data: no such file; going on without it";
    let unreadable = "/run/providers: cannot be read: Is a directory";
    for (file, report) in [
        ("/run/nowhere.data", missing),
        ("/run/providers", unreadable),
    ] {
        let rig = plain()
            .address("Hca1", "node1")
            .address("Hca2", "node2")
            .option("addr_preload", "acm_hosts")
            .option("addr_data_file", file)
            .start()
            .unwrap();
        let host = rig.host("Hca1").unwrap();
        expect_line(host, report);
        assert_eq!(lines(host, Mark::default(), report).len(), 1);
        resolve(&rig, host, &by_lid(&rig, "Hca2"));
        // The file's entries are unknown, its own address is known.
        let unknown = ask(host, &by_address("node1", "node2"));
        assert_eq!(unknown.status, Status::ENODATA);
        resolve(&rig, host, &by_address("node1", "node1"));
    }
}

#[test]
fn bad_lines_of_the_hosts_file_are_reported_and_the_others_count() {
    // GIDs that ibsim assigns in the simulated fabric.
    let gid = "fe80::10:4";
    let text = format!(
        "# a comment\r\n\
         \r\n\
         node2\t{gid}\r\n\
         nonsense\n\
         node3 fe80:2\n\
         {} {gid}\n\
         10.1.0.2 {gid}\n\
         fd00::2 {gid}",
        "n".repeat(5000)
    );
    let rig = plain()
        .address("Hca1", "node1")
        .address("Hca1", "10.1.0.1")
        .address("Hca1", "fd00::1")
        .address("Hca2", "node2")
        .address("Hca2", "10.1.0.2")
        .address("Hca2", "fd00::2")
        .file("ibacm_hosts.data", text)
        .start()
        .unwrap();
    assert_eq!(rig.gid("Hca2").unwrap().to_string(), gid);
    let host = rig.host("Hca1").unwrap();
    for line in [4, 5, 6] {
        expect_line(host, &format!("path-cache: /run/ibacm_hosts.data:{line}: "));
    }
    let reports = lines(host, Mark::default(), "ibacm_hosts.data:");
    assert_eq!(reports.len(), 3, "{reports:#?}");
    for (own, peer) in [
        ("node1", "node2"),
        ("10.1.0.1", "10.1.0.2"),
        ("fd00::1", "fd00::2"),
    ] {
        resolve(&rig, host, &by_address(own, peer));
    }
    let skipped = ask(host, &by_address("node1", "node3"));
    assert_eq!(skipped.status, Status::ENODATA);
}

/// Hosts appear and disappear without a restart.
#[test]
fn a_changed_hosts_file_is_read_again() {
    let rig = plain()
        .address("Hca1", "node1")
        .address("Hca2", "node2")
        .start()
        .unwrap();
    let host = rig.host("Hca1").unwrap();
    let [old, new] = ["node2", "renamed"].map(|name| by_address("node1", name));
    let path = resolve(&rig, host, &old);
    assert_eq!(ask(host, &new).status, Status::ENODATA);

    let file = host.directory().join("ibacm_hosts.data");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("node2", "renamed")).unwrap();
    let answer = ask_until(host, &new, Status::SUCCESS);
    assert_equal(&answer.into_path().unwrap(), &path);
    assert_eq!(ask(host, &old).status, Status::ENODATA);

    // Without the file, its last content stays in effect.
    let mark = host.log().end();
    fs::remove_file(&file).unwrap();
    host.log()
        .wait_for(mark, "ibacm_hosts.data", PATIENCE)
        .unwrap();
    assert_equal(&ask(host, &new).into_path().unwrap(), &path);
}
