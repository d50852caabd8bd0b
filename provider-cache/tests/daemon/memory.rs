//! What is cached, measured by the counters and by the SA queries in OpenSM's log.

use std::fs;
use std::path::PathBuf;

use loader_test::acme;
use loader_test::client::{Client, Counters, Destination, Status};
use loader_test::ibacm::Host;
use loader_test::log::Mark;
use loader_test::rig::Rig;
use loader_test::wait;

use crate::support::{
    NOBODYS_LID, PATIENCE, ask, by_address, by_gid, by_lid, increase, nobodys_gid, path_cache,
    printed_counters, reregister, resolve, rig, sa_path, stock_provider,
};

/// The cost of an answer: the increase of both sets of counters, and the number of SA queries.
#[derive(Debug, PartialEq, Eq)]
struct Cost {
    /// Counters of `ib_acme -P`.
    daemon: Counters,
    /// Counters of `ib_acme -P s -s ADDRESS`.
    endpoint: Counters,
    /// The daemon's path queries in OpenSM's log.
    queries: usize,
}

impl Cost {
    /// Both sets count one request, and what `set` adds.
    fn of_one(queries: usize, set: impl FnOnce(&mut Counters)) -> Self {
        let mut counters = Counters {
            error: 0,
            resolve: 1,
            no_data: 0,
            address_query: 0,
            address_cache: 0,
            route_query: 0,
            route_cache: 0,
        };
        set(&mut counters);
        Self {
            daemon: counters.clone(),
            endpoint: counters,
            queries,
        }
    }

    fn from_the_sa() -> Self {
        Self::of_one(1, |counters| counters.route_query = 1)
    }

    /// The GID of an address is known, the path to it is not.
    fn from_the_sa_by_address() -> Self {
        Self::of_one(1, |counters| {
            counters.address_cache = 1;
            counters.route_query = 1;
        })
    }

    fn from_the_cache() -> Self {
        Self::of_one(0, |counters| counters.route_cache = 1)
    }
}

const OWN_NAME: &str = "node1";

/// Resolves hosts by each form of address, one host a form, twice.
fn each_form_twice(library: PathBuf) -> Vec<(&'static str, Cost)> {
    let (own_ip, other_own_ip) = ("10.1.0.1", "10.1.0.9");
    let rig = Rig::builder(library)
        .address("Hca1", OWN_NAME)
        .address("Hca1", own_ip)
        .address("Hca1", other_own_ip)
        .address("Hca1", "fd00::1")
        .address("Hca4", "node4")
        .address("Hca5", "10.1.0.5")
        .address("Hca6", "fd00::6")
        .net(SIX_HOSTS)
        .host("Hca1")
        .host("Hca4")
        .host("Hca5")
        .host("Hca6")
        .start()
        .unwrap();
    let host = rig.host("Hca1").unwrap();
    let mut costs = Vec::new();
    for (form, destination) in [
        ("LID", by_lid(&rig, "Hca2")),
        ("GID", by_gid(&rig, "Hca3")),
        ("name", by_address(OWN_NAME, "node4")),
        ("IPv4", by_address(own_ip, "10.1.0.5")),
        ("IPv6", by_address("fd00::1", "fd00::6")),
        ("own IPv4", by_address(own_ip, other_own_ip)),
    ] {
        for _ in 0..2 {
            costs.push((form, cost(&rig, host, &destination)));
        }
    }
    costs
}

/// Four hosts on one switch and two on another.
const SIX_HOSTS: &str = "\
    Switch 8 \"Switch1\"\n[1] \"Hca1\"[1]\n[2] \"Hca2\"[1]\n[3] \"Hca3\"[1]\n[4] \"Hca4\"[1]\n[8] \"Switch2\"[8]\n\n\
    Switch 8 \"Switch2\"\n[1] \"Hca5\"[1]\n[2] \"Hca6\"[1]\n[8] \"Switch1\"[8]\n\n\
    Hca 1 \"Hca1\"\n[1] \"Switch1\"[1]\n\nHca 1 \"Hca2\"\n[1] \"Switch1\"[2]\n\n\
    Hca 1 \"Hca3\"\n[1] \"Switch1\"[3]\n\nHca 1 \"Hca4\"\n[1] \"Switch1\"[4]\n\n\
    Hca 1 \"Hca5\"\n[1] \"Switch2\"[1]\n\nHca 1 \"Hca6\"\n[1] \"Switch2\"[2]\n";

fn cost(rig: &Rig, host: &Host, destination: &Destination) -> Cost {
    let before = printed_counters(host, OWN_NAME);
    let mark = rig.opensm().log().end();
    let path = ask(host, destination).into_path().unwrap();
    let cost = Cost {
        daemon: increase(&before.0, &printed_counters(host, OWN_NAME).0),
        endpoint: increase(&before.1, &printed_counters(host, OWN_NAME).1),
        queries: rig.path_queries(host, mark).unwrap().len(),
    };
    // Stock's path to itself has no selectors.
    let sa = sa_path(rig, host, destination);
    let differences = loader_test::compare::compare(&path, &sa);
    assert!(
        !differences
            .iter()
            .any(|difference| difference.judged && !difference.field.starts_with("selectors")),
        "{differences:?}"
    );
    cost
}

#[test]
fn the_second_answer_comes_from_the_cache_and_is_counted_as_stock_counts_it() {
    let ours = each_form_twice(path_cache());
    assert_eq!(
        ours,
        [
            ("LID", Cost::from_the_sa()),
            ("LID", Cost::from_the_cache()),
            ("GID", Cost::from_the_sa()),
            ("GID", Cost::from_the_cache()),
            ("name", Cost::from_the_sa_by_address()),
            ("name", Cost::from_the_cache()),
            ("IPv4", Cost::from_the_sa_by_address()),
            ("IPv4", Cost::from_the_cache()),
            ("IPv6", Cost::from_the_sa_by_address()),
            ("IPv6", Cost::from_the_cache()),
            // Its own path needs no SA.
            ("own IPv4", Cost::from_the_cache()),
            ("own IPv4", Cost::from_the_cache()),
        ]
    );
    assert_eq!(ours, each_form_twice(stock_provider()));
}

/// Returns the number of SA queries while `act` runs.
fn queries_in(rig: &Rig, host: &Host, act: impl FnOnce()) -> usize {
    let mark = rig.opensm().log().end();
    act();
    rig.path_queries(host, mark).unwrap().len()
}

/// Stock sends a query for each form.
#[test]
fn a_lid_and_a_gid_cost_one_query_each() {
    for (library, queries) in [(path_cache(), 2), (stock_provider(), 3)] {
        let rig = Rig::builder(&library)
            .address("Hca1", OWN_NAME)
            .address("Hca2", "node2")
            .start()
            .unwrap();
        let host = rig.host("Hca1").unwrap();
        let asked = queries_in(&rig, host, || {
            resolve(&rig, host, &by_lid(&rig, "Hca2"));
            resolve(&rig, host, &by_gid(&rig, "Hca2"));
            resolve(&rig, host, &by_address(OWN_NAME, "node2"));
        });
        assert_eq!(asked, queries, "{}", library.display());
    }
}

/// With `ib_acme -c` the answer comes from the cache, or there is none.
#[test]
fn with_nodelay_there_is_no_data_at_once_and_the_lookup_starts() {
    let rig = rig().start().unwrap();
    let host = rig.host("Hca1").unwrap();
    let lid = rig.lid("Hca2").unwrap().to_string();
    let from_cache = || {
        let printed = host.acme(&["-f", "l", "-d", &lid, "-c"], PATIENCE).unwrap();
        let resolution = acme::parse(&printed).pop().unwrap();
        (resolution, printed)
    };

    // The SA is silent, so only a cached answer is possible.
    let mark = rig.opensm().log().end();
    rig.opensm().stop().unwrap();
    for _ in 0..3 {
        let (resolution, printed) = from_cache();
        assert_eq!(resolution.path, None, "{printed}");
        assert!(printed.contains("No data available"), "{printed}");
    }
    rig.opensm().resume().unwrap();
    let path = wait::until("the answer to be in the cache", PATIENCE, || {
        Ok(from_cache().0.path)
    })
    .unwrap();
    assert_eq!(rig.path_queries(host, mark).unwrap().len(), 1);
    let sa = sa_path(&rig, host, &by_lid(&rig, "Hca2"));
    assert_eq!(path.to_record(&sa), sa);
}

#[test]
fn no_data_is_remembered_for_the_time_that_the_option_says() {
    for (ttl, queries) in [("3600000", 2), ("0", 6)] {
        let rig = rig()
            .option("path_cache_negative_ttl", ttl)
            .start()
            .unwrap();
        let host = rig.host("Hca1").unwrap();
        let asked = queries_in(&rig, host, || {
            for _ in 0..3 {
                for nobody in [
                    Destination::Lid(NOBODYS_LID),
                    Destination::Gid(nobodys_gid(&rig)),
                ] {
                    assert_eq!(ask(host, &nobody).status, Status::ENODATA, "{nobody:?}");
                }
            }
        });
        assert_eq!(asked, queries, "path_cache_negative_ttl {ttl}");
    }
}

#[test]
fn a_full_cache_evicts_unused_paths_first() {
    let rig = rig().option("path_cache_capacity", 2).start().unwrap();
    let host = rig.host("Hca1").unwrap();
    let resolve = |node: &str| resolve(&rig, host, &by_lid(&rig, node));
    let asked = |nodes: &[&str]| {
        queries_in(&rig, host, || {
            for node in nodes {
                resolve(node);
            }
        })
    };
    assert_eq!(asked(&["Hca1", "Hca2", "Hca1"]), 2);
    assert_eq!(asked(&["Hca3"]), 1, "in place of Hca2");
    assert_eq!(asked(&["Hca1", "Hca3"]), 0);
    assert_eq!(asked(&["Hca2"]), 1, "it was not kept");
}

/// If service IDs matter, the query contains the service ID.
#[test]
fn queries_with_a_service_id_are_kept_apart() {
    let rig = rig().option("path_cache_qos", "on").start().unwrap();
    let host = rig.host("Hca1").unwrap();
    let lid = rig.lid("Hca2").unwrap();
    let mut client = host.connect().unwrap();
    let asked = |client: &mut Client, ids: std::ops::Range<u64>| {
        queries_in(&rig, host, || {
            for id in ids {
                let mut wanted = loader_test::record::PathRecord::EMPTY;
                wanted.set_dlid(lid).set_service_id(0x0106_0000 + id);
                let answer = client.resolve(&Destination::Path(wanted)).unwrap();
                assert_eq!(answer.into_path().unwrap().dlid(), lid);
            }
        }) as u64
    };
    assert_eq!(asked(&mut client, 0..3), 3);
    assert_eq!(asked(&mut client, 0..3), 0);
    assert_eq!(asked(&mut client, 3..200), 197);
    assert_eq!(asked(&mut client, 0..200), 0);
}

#[test]
fn touching_the_flush_file_drops_everything() {
    let rig = rig()
        .option("path_cache_flush_file", "/run/flush")
        .option("path_cache_negative_ttl", 3_600_000)
        .option("log_level", 0)
        .start()
        .unwrap();
    let host = rig.host("Hca1").unwrap();
    let file = host.directory().join("flush");
    let ask_all = || {
        queries_in(&rig, host, || {
            resolve(&rig, host, &by_lid(&rig, "Hca2"));
            resolve(&rig, host, &by_gid(&rig, "Hca3"));
            let nobody = Destination::Lid(NOBODYS_LID);
            assert_eq!(ask(host, &nobody).status, Status::ENODATA);
        })
    };
    // First the file is created, then it changes.
    for _ in 0..2 {
        assert!(ask_all() == 3 && ask_all() == 0);
        let mark = host.log().end();
        fs::write(&file, "").unwrap();
        let line = host.log().wait_for(mark, "flushed", PATIENCE).unwrap();
        assert!(line.contains("/run/flush was touched"), "{line}");
    }
    assert_eq!(ask_all(), 3);
    fs::remove_file(&file).unwrap();
    assert_eq!(ask_all(), 0, "a file that vanishes flushes nothing");
}

/// If the SA responds, a path from before a reregistration is queried and cached again.
#[test]
fn after_a_reregistration_everything_is_asked_for_once_more() {
    let rig = rig().start().unwrap();
    let host = rig.host("Hca1").unwrap();
    let [two, three] = ["Hca2", "Hca3"].map(|node| by_lid(&rig, node));
    let ask_both = || {
        resolve(&rig, host, &two);
        resolve(&rig, host, &three);
    };
    assert_eq!(queries_in(&rig, host, ask_both), 2);
    assert_eq!(queries_in(&rig, host, ask_both), 0);
    let mark: Mark = rig.opensm().log().end();
    reregister(host, &two);
    ask_both();
    assert_eq!(rig.path_queries(host, mark).unwrap().len(), 2);
    assert_eq!(queries_in(&rig, host, ask_both), 0);
}
