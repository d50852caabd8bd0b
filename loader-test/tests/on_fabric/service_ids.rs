//! The kernel names a service ID (from the TCP port) and a QoS class (from the type of service) with every connection.
//!
//! The SA says whether these select a path.

use loader_test::ibacm::{Host, PortEvent};
use loader_test::kernel::{Kernel, Request, service_id_of_port};
use loader_test::log::Mark;
use loader_test::record::{Gid, PathRecord};
use loader_test::rig::{FAT_TREE_324, Rig};
use loader_test::sa::{self, attribute};
use loader_test::wait::PATIENCE;

use super::{ASKING, WHOLE_PKEY, asking, assert_equal, rig, start, wait_until_ready};
use crate::subject;

const PEERS: [&str; 3] = ["Hca2", "Hca3", "Hca4"];
const PORTS: u16 = 128;

/// Requests of rdma_cm for a connection to each of the ports of each destination.
fn connections(own: Gid, to: &[Gid], ports: u16) -> Vec<(Gid, Request)> {
    let one = |gid: Gid, port: u16| {
        let request = Request::path(own, gid, WHOLE_PKEY)
            .service_id(service_id_of_port(4000 + port))
            .qos_class(0);
        (gid, request)
    };
    (0..ports)
        .flat_map(|port| to.iter().map(move |&gid| one(gid, port)))
        .collect()
}

/// What the SA has been asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asked {
    paths: usize,
    port_infos: usize,
}

impl Asked {
    const NOTHING: Self = Self {
        paths: 0,
        port_infos: 0,
    };

    fn since(rig: &Rig, host: &Host, mark: Mark) -> Self {
        let count = |attribute| rig.queries(host, attribute, mark).unwrap().len();
        Self {
            paths: count(attribute::PATH_RECORD),
            port_infos: count(attribute::CLASS_PORT_INFO),
        }
    }
}

/// Connects to all ports of all destinations; every path has to be the SA's.
#[track_caller]
fn connect(rig: &Rig, host: &Host, kernel: &mut Kernel, to: &[Gid], ports: u16) -> Asked {
    let own = host.gid();
    let truth: Vec<PathRecord> = to
        .iter()
        .map(|gid| rig.sa_path(own, sa::Destination::Gid(*gid)).unwrap())
        .collect();
    let mark = rig.opensm().log().end();
    let route_queries = || host.connect().unwrap().counters().unwrap().route_query;
    let before = route_queries();
    let connections = connections(own, to, ports);
    let requests: Vec<Request> = connections
        .iter()
        .map(|(_, request)| request.clone())
        .collect();
    let answers = kernel.resolve_all(&requests).unwrap();
    for ((gid, request), answer) in connections.iter().zip(answers) {
        let answer = answer.unwrap_or_else(|| panic!("no path for {request:?}"));
        let truth = truth.iter().find(|truth| truth.dgid() == *gid).unwrap();
        assert_equal(&answer, truth);
    }
    let asked = Asked::since(rig, host, mark);
    // What the SA can do is no route.
    assert_eq!(route_queries() - before, asked.paths as u64);
    asked
}

/// A type of service that arrives as a QoS class, and one that the core cuts off.
const CLASS: u16 = 0x50;
const CLASS_CUT_OFF: u16 = 0x0f;

#[track_caller]
fn answers_class(rig: &Rig, kernel: &mut Kernel, class: u16) -> bool {
    let (own, peer) = (asking(rig).gid(), rig.gid(PEERS[0]).unwrap());
    let request = Request::path(own, peer, WHOLE_PKEY)
        .service_id(service_id_of_port(4000))
        .qos_class(class);
    let answer = kernel.resolve(&request).unwrap();
    if let Some(path) = &answer {
        let truth = rig.sa_path(own, sa::Destination::Gid(peer)).unwrap();
        assert_equal(path, &truth);
    }
    answer.is_some()
}

/// Lets opensm read its options again, with QoS or without, and has the daemon register again.
fn change_qos(rig: &Rig, qos: bool) {
    let value = if qos { "TRUE" } else { "FALSE" };
    rig.opensm().set_option("qos", value).unwrap();
    rig.opensm().sweep().unwrap();
    assert_eq!(rig.class_port_info().unwrap().has_qos(), qos);
    let host = asking(rig);
    let log = host.log();
    let mark = log.end();
    host.raise(PortEvent::ClientReregister).unwrap();
    log.wait_for(mark, "has reregistered", PATIENCE).unwrap();
}

/// Starts the daemon again with another value of the option.
fn restart_daemon(rig: &Rig, value: &str) {
    let host = asking(rig);
    host.kill();
    host.set_option(subject::QOS_OPTION, value).unwrap();
    rig.start_host(host).unwrap();
    wait_until_ready(host);
}

/// Two rounds in which service IDs count, or do not.
#[track_caller]
fn two_rounds(rig: &Rig, they_count: bool, port_infos: usize) {
    let peers = PEERS.map(|node| rig.gid(node).unwrap());
    let host = asking(rig);
    let mut kernel = Kernel::of(host).unwrap();
    let first = connect(rig, host, &mut kernel, &peers, PORTS);
    let most = if they_count {
        peers.len() * usize::from(PORTS)
    } else {
        peers.len()
    };
    assert!(first.paths <= most, "{first:?} in place of {most}");
    assert_eq!(first.port_infos, port_infos);
    let second = connect(rig, host, &mut kernel, &peers, PORTS);
    assert_eq!(second, Asked::NOTHING);
    // The kernel asks the SA itself if there is no answer.
    assert_eq!(answers_class(rig, &mut kernel, CLASS), !they_count);
    assert!(answers_class(rig, &mut kernel, CLASS_CUT_OFF));
}

#[test]
fn service_ids_cost_queries_only_where_they_choose_a_path() {
    let rig = start(rig().netlink(), ASKING);
    if subject::IS_STOCK {
        // It looks at nothing but the destination, wherever it leads.
        two_rounds(&rig, false, 0);
        change_qos(&rig, true);
        return two_rounds(&rig, false, 0);
    }
    two_rounds(&rig, false, 1);
    // After a re-registration the SA is asked anew what it can do.
    change_qos(&rig, true);
    two_rounds(&rig, true, 1);
    restart_daemon(&rig, "off");
    two_rounds(&rig, false, 0);
    change_qos(&rig, false);
    restart_daemon(&rig, "on");
    two_rounds(&rig, true, 0);
}

/// A job of 65 hosts, and a server with many ports.
#[test]
fn what_many_service_ids_cost_where_they_count_is_paid_once() {
    let rig = start(
        subject::builder()
            .net(FAT_TREE_324)
            .host("H0")
            .opensm_option("qos", "TRUE")
            .netlink()
            .option("log_level", 0),
        "H0",
    );
    let host = rig.host("H0").unwrap();
    let mut kernel = Kernel::of(host).unwrap();
    let peers: Vec<Gid> = (1..=64)
        .map(|number| rig.gid(&format!("H{number}")).unwrap())
        .collect();
    for (peers, ports) in [(&peers[..], 128), (&peers[..1], 1024)] {
        let first = connect(&rig, host, &mut kernel, peers, ports);
        let second = connect(&rig, host, &mut kernel, peers, ports);
        assert!(first.paths <= peers.len() * usize::from(ports), "{first:?}");
        assert_eq!(second, Asked::NOTHING);
    }
}
