//! Tests of a rig's control over the fabric and its daemons.

use std::path::Path;
use std::thread;
use std::time::Duration;

use loader_test::acme;
use loader_test::client::{Destination, Status, entries};
use loader_test::compare::compare;
use loader_test::error::Error;
use loader_test::ibacm::{Host, PortEvent};
use loader_test::record::Lid;
use loader_test::rig::{FAT_TREE_1600, Rig};
use loader_test::sa::{self, Answer, SaQuery};
use loader_test::wait::{self, PATIENCE};

use crate::providers;

fn ask(rig: &Rig, from: &str, to: &str) -> Answer {
    let query = SaQuery {
        sgid: rig.gid(from).unwrap(),
        destination: sa::Destination::Gid(rig.gid(to).unwrap()),
        pkey: Some(0xffff),
    };
    rig.ask_sa(&query).unwrap()
}

#[test]
fn the_sa_answers_refuses_and_is_silent() {
    let rig = Rig::builder(providers::stock())
        .host("Hca1")
        .start()
        .unwrap();
    let record = rig
        .sa_path(
            rig.gid("Hca1").unwrap(),
            sa::Destination::Lid(rig.lid("Hca2").unwrap()),
        )
        .unwrap();
    assert_eq!(
        (record.sgid(), record.dgid()),
        (rig.gid("Hca1").unwrap(), rig.gid("Hca2").unwrap())
    );
    assert_eq!(
        (record.slid(), record.dlid()),
        (rig.lid("Hca1").unwrap(), rig.lid("Hca2").unwrap())
    );
    assert_eq!(ask(&rig, "Hca1", "Hca2"), Answer::Record(record));

    let nowhere = SaQuery {
        sgid: rig.gid("Hca1").unwrap(),
        destination: sa::Destination::Lid(Lid(0x4444)),
        pkey: None,
    };
    assert!(matches!(rig.ask_sa(&nowhere).unwrap(), Answer::Refused(status) if status != 0));

    rig.opensm().stop().unwrap();
    assert_eq!(ask(&rig, "Hca1", "Hca2"), Answer::Silence);
    rig.opensm().resume().unwrap();
    assert_eq!(ask(&rig, "Hca1", "Hca2"), Answer::Record(record));

    rig.kill_opensm().unwrap();
    assert_eq!(ask(&rig, "Hca1", "Hca2"), Answer::Silence);
    rig.start_opensm().unwrap();
    assert_eq!(ask(&rig, "Hca1", "Hca2"), Answer::Record(record));
}

/// The provider asks the SA for every request, so each request is one query of its host's.
#[test]
fn path_queries_are_counted_by_host() {
    let good = providers::good();
    let rig = Rig::builder(good.path())
        .host("Hca1")
        .host("Hca3")
        .start()
        .unwrap();
    let mark = rig.opensm().log().end();
    let mut client = rig.host("Hca1").unwrap().connect().unwrap();
    for _ in 0..5 {
        let answer = client
            .resolve(&Destination::Lid(rig.lid("Hca2").unwrap()))
            .unwrap();
        assert_eq!(answer.status, Status::SUCCESS);
        ask(&rig, "Hca3", "Hca1");
    }
    let queries = |host| rig.path_queries(rig.host(host).unwrap(), mark).unwrap();
    assert_eq!((queries("Hca1").len(), queries("Hca3").len()), (5, 0));
    assert!(
        queries("Hca1")
            .iter()
            .all(|query| !query.table && query.component_mask & 1 << 4 != 0),
        "by DLID"
    );
    assert_eq!(rig.opensm().path_queries(mark).unwrap().len(), 10);
}

#[test]
fn requests_wait_while_opensm_is_stopped() {
    const CLIENTS: usize = 200;
    let good = providers::good();
    let rig = Rig::builder(good.path())
        .host("Hca1")
        .option("sa_depth", CLIENTS)
        .start()
        .unwrap();
    let host = rig.host("Hca1").unwrap();
    let destination = Destination::Gid(rig.gid("Hca4").unwrap());
    rig.opensm().stop().unwrap();

    let mut clients: Vec<_> = (0..CLIENTS).map(|_| host.connect().unwrap()).collect();
    let request = entries(&destination, 0).unwrap();
    let ids: Vec<_> = clients
        .iter_mut()
        .map(|client| client.send(&request).unwrap())
        .collect();
    let mut counting = host.connect().unwrap();
    wait::until_true("the daemon to have all requests", PATIENCE, || {
        Ok(counting.counters()?.resolve == CLIENTS as u64)
    })
    .unwrap();
    assert!(!clients.iter().any(|client| client.has_answer().unwrap()));

    rig.opensm().resume().unwrap();
    let truth = rig
        .sa_path(host.gid(), sa::Destination::Gid(rig.gid("Hca4").unwrap()))
        .unwrap();
    for (client, id) in clients.iter_mut().zip(ids) {
        assert_eq!(client.receive(id).unwrap().into_path().unwrap(), truth);
    }
}

/// Waits until the stock provider answers, which it does only after its join.
fn wait_until_joined(host: &Host) {
    let own = Destination::Gid(host.gid());
    wait::until_true("stock to answer", PATIENCE, || {
        Ok(host.resolve(&own)?.status == Status::SUCCESS)
    })
    .unwrap();
}

#[test]
fn many_clients_at_once_get_their_own_answers() {
    let rig = Rig::builder(providers::stock())
        .host("Hca2")
        .start()
        .unwrap();
    let host = rig.host("Hca2").unwrap();
    wait_until_joined(host);
    let resolved = || host.connect().unwrap().counters().unwrap().resolve;
    let before = resolved();
    let lids: Vec<Lid> = rig
        .fabric()
        .unwrap()
        .destinations()
        .map(|(_, port)| port.lid)
        .collect();
    thread::scope(|scope| {
        for index in 0..50 {
            let lid = lids[index % lids.len()];
            scope.spawn(move || {
                let mut client = host.connect().unwrap();
                for _ in 0..20 {
                    assert_eq!(
                        client
                            .resolve(&Destination::Lid(lid))
                            .unwrap()
                            .into_path()
                            .unwrap()
                            .dlid(),
                        lid
                    );
                }
            });
        }
    });
    assert_eq!(resolved() - before, 1000);
}

#[test]
fn a_cable_is_pulled_and_put_back() {
    let rig = Rig::builder(providers::stock())
        .host("Hca1")
        .host("Hca2")
        .start()
        .unwrap();
    let host = rig.host("Hca2").unwrap();
    let endpoints = |count| {
        wait::until_true(format!("{count} endpoints"), PATIENCE, || {
            Ok(host.endpoints()?.len() == count)
        })
        .unwrap();
    };
    endpoints(1);
    rig.pull_cable("Hca2").unwrap();
    endpoints(0);
    assert!(rig.pull_cable("Hca2").is_err(), "it is pulled already");
    let mark = host.log().end();
    rig.put_cable_back("Hca2").unwrap();
    endpoints(1);
    // Until then the stock provider has no path to anywhere.
    host.log()
        .wait_for(mark, "join successful", PATIENCE)
        .unwrap();
    let lid = rig.lid("Hca1").unwrap();
    let path = host
        .connect()
        .unwrap()
        .resolve(&Destination::Lid(lid))
        .unwrap()
        .into_path()
        .unwrap();
    assert_eq!(
        path,
        rig.sa_path(host.gid(), sa::Destination::Lid(lid)).unwrap()
    );
}

#[test]
fn a_lid_changes() {
    let good = providers::good();
    let rig = Rig::builder(good.path())
        .host("Hca1")
        .host("Hca2")
        .start()
        .unwrap();
    let (old, new) = (rig.lid("Hca2").unwrap(), Lid(0x123));
    rig.change_lid("Hca2", new).unwrap();
    let [first, second] = ["Hca1", "Hca2"].map(|node| rig.host(node).unwrap());
    assert_eq!(second.first_lid(), old);

    let to = |node| Destination::Gid(rig.gid(node).unwrap());
    let path = first
        .connect()
        .unwrap()
        .resolve(&to("Hca2"))
        .unwrap()
        .into_path()
        .unwrap();
    assert_eq!(path.dlid(), new);
    // The simulated adapter polls its port.
    wait::until_true("a path with the new SLID", PATIENCE, || {
        let answer = second.connect()?.resolve(&to("Hca1"))?;
        Ok(answer.path().is_some_and(|path| path.slid() == new))
    })
    .unwrap();
}

#[test]
fn daemons_are_killed_and_started_again() {
    let rig = Rig::builder(providers::stock())
        .host("Hca1")
        .host("Hca2")
        .start()
        .unwrap();
    let host = rig.host("Hca2").unwrap();
    // More restarts than ibsim has places.
    for _ in 0..10 {
        host.kill();
        assert!(matches!(host.connect(), Err(Error::Io { .. })));
        assert!(host.check().is_err());
        rig.start_host(host).unwrap();
        assert_eq!(host.endpoints().unwrap()[0].provider, "ibacmp");
    }
    assert!(host.directory().join("ibacm-10.log").is_file());
    assert_eq!(rig.ibsim().clients().unwrap().len(), 4);
}

#[test]
fn an_event_reaches_the_daemon() {
    let rig = Rig::builder(providers::stock())
        .host("Hca1")
        .start()
        .unwrap();
    let host = rig.host("Hca1").unwrap();
    let mark = host.log().end();
    host.raise(PortEvent::ClientReregister).unwrap();
    host.log()
        .wait_for(mark, "ibsim0 1 has reregistered", PATIENCE)
        .unwrap();
}

#[test]
fn counters_are_the_same_by_both_clients() {
    let rig = Rig::builder(providers::stock())
        .host("Hca1")
        .address("Hca1", "node1")
        .start()
        .unwrap();
    let host = rig.host("Hca1").unwrap();
    wait_until_joined(host);
    let mut client = host.connect().unwrap();
    let core_before = client.counters().unwrap();
    let endpoint_before = client.endpoint_counters("node1").unwrap();
    for node in ["Hca2", "Hca3", "Hca2"] {
        let lid = rig.lid(node).unwrap();
        client
            .resolve(&Destination::Lid(lid))
            .unwrap()
            .into_path()
            .unwrap();
    }
    let core = client.counters().unwrap();
    let endpoint = client.endpoint_counters("node1").unwrap();
    for (now, before) in [(&core, core_before), (&endpoint, endpoint_before)] {
        let counted = (
            now.resolve - before.resolve,
            now.route_query - before.route_query,
            now.route_cache - before.route_cache,
        );
        assert_eq!(counted, (3, 2, 1));
    }
    let printed = acme::parse_counters(&host.acme(&["-P"], PATIENCE).unwrap()).unwrap();
    let values: Vec<u64> = printed.iter().map(|(_, value)| *value).collect();
    assert_eq!(values, core.values());
}

#[test]
fn a_port_that_is_not_infiniband_is_named() {
    let source = Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/daemon/ethernet.c"
    ));
    let ethernet = providers::compile(source, &[]);
    let result = Rig::builder(providers::stock())
        .host("Hca1")
        .preload(ethernet.path())
        .start();
    let error = result.unwrap_err();
    assert!(!error.is_the_providers(), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("port of Hca1") && text.contains("ibsim0 port 1 is not an InfiniBand port"),
        "{text}"
    );
}

#[test]
fn a_ninth_host_finds_no_place() {
    let start = |count: usize| {
        let mut builder = Rig::builder(providers::stock()).net(FAT_TREE_1600);
        for index in 0..count {
            builder = builder.host(format!("H{index}"));
        }
        builder.start()
    };
    let error = start(9).unwrap_err();
    assert!(
        !error.is_the_providers() && error.to_string().contains("room for 8"),
        "{error}"
    );
}

#[test]
fn eight_daemons_on_1600_hosts_find_every_host() {
    let good = providers::good();
    let mut builder = Rig::builder(good.path()).net(FAT_TREE_1600);
    for index in 0..8 {
        builder = builder.host(format!("H{}", index * 200));
    }
    let rig = builder.start().unwrap();
    let lids: Vec<Lid> = rig
        .fabric()
        .unwrap()
        .destinations()
        .map(|(_, port)| port.lid)
        .collect();
    assert_eq!(lids.len(), 1600);
    let mut clients: Vec<_> = rig
        .hosts()
        .iter()
        .map(|host| host.connect().unwrap())
        .collect();
    for (index, lid) in lids.into_iter().enumerate() {
        let turn = index % rig.hosts().len();
        let path = clients[turn]
            .resolve(&Destination::Lid(lid))
            .unwrap()
            .into_path()
            .unwrap();
        let truth = rig
            .sa_path(rig.hosts()[turn].gid(), sa::Destination::Lid(lid))
            .unwrap();
        assert_eq!(compare(&path, &truth), []);
    }
}

/// Afterwards the SM has another LID, and the ports have it.
#[test]
fn another_node_takes_the_subnet_over() {
    let good = providers::good();
    let rig = Rig::builder(good.path()).host("Hca1").start().unwrap();
    let host = rig.host("Hca1").unwrap();
    let to = Destination::Gid(rig.gid("Hca4").unwrap());
    let old = rig.port("Hca1").unwrap().sm_lid;
    assert_eq!(old, rig.lid("Hca1").unwrap());
    rig.kill_opensm().unwrap();
    rig.start_opensm_on("Hca3").unwrap();
    assert_eq!(rig.opensm().node(), "Hca3");
    assert_eq!(rig.port("Hca1").unwrap().sm_lid, rig.lid("Hca3").unwrap());
    // The daemon asks the SM that it found when its port came up, so a new daemon is needed.
    host.kill();
    rig.start_host(host).unwrap();
    assert_eq!(rig.differences(host, &to).unwrap(), []);
}

#[test]
fn differences_are_those_with_the_sa() {
    let wrong = providers::build(&["SL_OFF_BY=2"]);
    let rig = Rig::builder(wrong.path()).host("Hca1").start().unwrap();
    let host = rig.host("Hca1").unwrap();
    let differences = rig
        .differences(host, &Destination::Lid(rig.lid("Hca2").unwrap()))
        .unwrap();
    let fields: Vec<_> = differences
        .iter()
        .map(|difference| difference.field)
        .collect();
    assert_eq!(fields, ["SL"]);
}

/// A response that never comes ends in a timeout that says so.
#[test]
fn silence_is_an_error() {
    let silent = providers::build(&["SILENT=1"]);
    let rig = Rig::builder(silent.path()).host("Hca1").start().unwrap();
    let mut client = rig.host("Hca1").unwrap().connect().unwrap();
    client.set_patience(Duration::from_millis(500));
    let error = client.resolve(&Destination::Lid(Lid(1))).unwrap_err();
    assert!(matches!(&error, Error::Timeout { .. }), "{error}");
    let printed = rig
        .host("Hca1")
        .unwrap()
        .acme(&["-f", "l", "-d", "1"], Duration::from_millis(500))
        .unwrap();
    assert!(
        printed.ends_with("ib_acme hung and was killed\n"),
        "{printed}"
    );
}
