//! The SA stops responding: the answers, the log lines, and the recovery.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use loader_test::client::{Client, Destination, Status, entries};
use loader_test::ibacm::Host;
use loader_test::rig::{Builder, Rig};
use loader_test::wait;

use crate::support::{
    PATIENCE, ask, ask_until, assert_equal, by_gid, by_lid, count_lines, lines, pull_cable,
    reregister, resolve, rig, sa_path, send_all, wait_for_lines,
};

const TIMEOUT: Duration = Duration::from_millis(500);
const RETRIES: u32 = 1;

/// The provider's clock advances by the kernel's ticks, which are at most this long.
const TICK: Duration = Duration::from_millis(10);

const SILENT: &str = "SA not responding";
const ANSWERS: &str = "SA responding again";

/// Short deadlines, and only the log lines that every operator sees.
fn quick() -> Builder {
    rig()
        .option("timeout", TIMEOUT.as_millis())
        .option("retries", RETRIES)
        .option("log_level", 0)
}

/// How OpenSM becomes silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Silence {
    /// It runs but does nothing, as if hung.
    Stopped,
    /// It was killed.
    Killed,
}

impl Silence {
    fn begin(self, rig: &Rig) {
        match self {
            Self::Stopped => rig.opensm().stop().unwrap(),
            Self::Killed => rig.kill_opensm().unwrap(),
        }
    }

    fn end(self, rig: &Rig) {
        match self {
            Self::Stopped => rig.opensm().resume().unwrap(),
            Self::Killed => rig.start_opensm().unwrap(),
        }
    }
}

/// Asserts that a request waits as long as the options say, and not much longer.
fn expect_timeout(host: &Host, destination: &Destination) {
    let asked = Instant::now();
    let answer = ask(host, destination);
    let took = asked.elapsed();
    assert_eq!(answer.status, Status::ETIMEDOUT, "{destination:?}");
    assert_eq!(answer.entries, []);
    let deadline = TIMEOUT * (RETRIES + 1);
    let slack = Duration::from_secs(10);
    assert!(
        took + TICK >= deadline && took < deadline + slack,
        "{took:?}"
    );
}

fn cached_paths_are_answered_and_others_time_out(silence: Silence) {
    let rig = quick().start().unwrap();
    let host = rig.host("Hca2").unwrap();
    let [known, unknown] = [by_lid(&rig, "Hca3"), by_lid(&rig, "Hca4")];
    let learnt = resolve(&rig, host, &known);

    silence.begin(&rig);
    let mark = host.log().end();
    // Cached paths need no SA.
    assert_equal(&ask(host, &known).into_path().unwrap(), &learnt);
    // A stale path is the answer, whether or not the SA is known to be silent.
    reregister(host, &known);
    assert_equal(&ask(host, &known).into_path().unwrap(), &learnt);
    expect_timeout(host, &unknown);
    host.log().wait_for(mark, SILENT, PATIENCE).unwrap();
    for _ in 0..3 {
        assert_equal(&ask(host, &known).into_path().unwrap(), &learnt);
        expect_timeout(host, &unknown);
    }
    assert_eq!(count_lines(host, mark, ANSWERS), 0);

    silence.end(&rig);
    let mark_of_end = rig.opensm().log().end();
    let path = ask_until(host, &unknown, Status::SUCCESS)
        .into_path()
        .unwrap();
    assert_equal(&path, &sa_path(&rig, host, &unknown));
    let line = host.log().wait_for(mark, ANSWERS, PATIENCE).unwrap();
    assert!(line.contains("SM LID 1,"), "{line}");
    // The stale path is queried, once, and then fresh.
    wait::until_true("a fresh answer", PATIENCE, || {
        Ok(host.connect()?.resolve_cached(&known)?.status == Status::SUCCESS)
    })
    .unwrap();
    resolve(&rig, host, &known);
    resolve(&rig, host, &by_gid(&rig, "Hca1"));
    assert!(!rig.path_queries(host, mark_of_end).unwrap().is_empty());
    assert_eq!(
        (
            count_lines(host, mark, SILENT),
            count_lines(host, mark, ANSWERS)
        ),
        (1, 1),
        "{}",
        host.log().since(mark).unwrap()
    );
}

#[test]
fn cached_paths_are_answered_and_others_time_out_while_opensm_is_stopped() {
    cached_paths_are_answered_and_others_time_out(Silence::Stopped);
}

#[test]
fn cached_paths_are_answered_and_others_time_out_while_opensm_is_killed() {
    cached_paths_are_answered_and_others_time_out(Silence::Killed);
}

fn without_stale_paths_everything_times_out(silence: Silence) {
    let rig = quick().option("path_cache_stale_ttl", 0).start().unwrap();
    let host = rig.host("Hca2").unwrap();
    let known = by_lid(&rig, "Hca3");
    let learnt = resolve(&rig, host, &known);
    silence.begin(&rig);
    assert_equal(&ask(host, &known).into_path().unwrap(), &learnt);
    reregister(host, &known);
    for _ in 0..2 {
        expect_timeout(host, &known);
    }
    silence.end(&rig);
    let path = ask_until(host, &known, Status::SUCCESS)
        .into_path()
        .unwrap();
    assert_equal(&path, &sa_path(&rig, host, &known));
}

#[test]
fn without_stale_paths_everything_times_out_while_opensm_is_stopped() {
    without_stale_paths_everything_times_out(Silence::Stopped);
}

#[test]
fn without_stale_paths_everything_times_out_while_opensm_is_gone() {
    without_stale_paths_everything_times_out(Silence::Killed);
}

/// The operator's log line: port, SM LID, P_Key, how long silent, pending requests, last error.
#[test]
fn the_log_names_the_silent_sa() {
    let rig = quick().start().unwrap();
    let host = rig.host("Hca2").unwrap();
    let unknown = by_lid(&rig, "Hca4");
    let mark = host.log().end();
    rig.kill_opensm().unwrap();
    // Requests wait all the time, and the first ones detect the silence. The daemon has room for few more.
    const MOST: usize = 200;
    let mut waiting: VecDeque<(Client, u64)> = VecDeque::new();
    let line = wait::until("the line in the log", PATIENCE, || {
        if waiting.len() == MOST
            && let Some((mut client, id)) = waiting.pop_front()
        {
            assert_eq!(client.receive(id)?.status, Status::ETIMEDOUT);
        }
        let mut client = host.connect()?;
        let id = client.send(&entries(&unknown, 0)?)?;
        waiting.push_back((client, id));
        host.log().find(mark, |line| line.contains(SILENT))
    })
    .unwrap();
    let guid = rig.ibsim().node("Hca2").unwrap().guid;
    let own = format!("device {guid:#018x} port {}: {SILENT}:", host.port_number());
    for part in [own.as_str(), "SM LID 1,", "P_Key 0xffff,", "last error: "] {
        assert!(line.contains(part), "{part} in {line}");
    }
    let number = |before: &str, after: &str| -> u64 {
        let (_, rest) = line.split_once(before).unwrap_or_else(|| panic!("{line}"));
        let (number, _) = rest.split_once(after).unwrap_or_else(|| panic!("{line}"));
        number.parse().unwrap_or_else(|_| panic!("{line}"))
    };
    let silent_for = Duration::from_millis(number("silent for ", " ms"));
    assert!(silent_for + TICK >= TIMEOUT * (RETRIES + 1), "{line}");
    assert!(silent_for < PATIENCE, "{line}");
    let waited = usize::try_from(number(" ms, ", " requests pending")).unwrap();
    assert!((1..=waiting.len()).contains(&waited), "{line}");
    for (mut client, id) in waiting {
        assert_eq!(client.receive(id).unwrap().status, Status::ETIMEDOUT);
    }
}

/// Two hundred clients ask for one unknown destination while the SA is silent: one query is sent, and answers
/// them all.
#[test]
fn two_hundred_clients_that_wait_for_one_path_cost_one_query() {
    const CLIENTS: usize = 200;
    let rig = rig()
        // There is no second try before the SA responds again.
        .option("timeout", 600_000)
        .option("retries", 0)
        .option("log_level", 2)
        .start()
        .unwrap();
    let host = rig.host("Hca2").unwrap();
    let destination = by_gid(&rig, "Hca3");
    let (mark, sa_mark) = (host.log().end(), rig.opensm().log().end());
    rig.opensm().stop().unwrap();
    let clients = send_all(host, &vec![destination.clone(); CLIENTS]);
    // Every request has arrived, and none is answered.
    assert_eq!(
        count_lines(host, mark, "acm_svr_resolve_path: client"),
        CLIENTS
    );
    assert_eq!(count_lines(host, mark, "acm_resolve_response"), 0);
    assert!(
        clients
            .iter()
            .all(|(client, _)| !client.has_answer().unwrap())
    );
    let waiting: BTreeSet<_> = lines(host, mark, "acm_svr_resolve_path: client")
        .into_iter()
        .map(|line| line.rsplit(' ').next().unwrap().to_owned())
        .collect();
    assert_eq!(
        waiting.len(),
        CLIENTS,
        "each in a place of its own in the daemon"
    );

    rig.opensm().resume().unwrap();
    let answers: Vec<_> = clients
        .into_iter()
        .map(|(mut client, id)| client.receive(id).unwrap())
        .collect();
    let right = sa_path(&rig, host, &destination);
    for answer in &answers {
        assert_eq!(answer, &answers[0]);
    }
    assert_equal(&answers[0].clone().into_path().unwrap(), &right);
    assert_eq!(rig.path_queries(host, sa_mark).unwrap().len(), 1);
    assert_eq!(count_lines(host, mark, "acm_send_sa_mad"), 1);
    wait_for_lines(host, mark, "acm_resolve_response: client", CLIENTS);
}

/// More requests wait than `sa_depth`: all are answered, each with its own path.
#[test]
fn many_destinations_that_wait_are_each_answered_with_their_own_path() {
    let rig = rig()
        .option("timeout", 600_000)
        .option("retries", 0)
        .start()
        .unwrap();
    let host = rig.host("Hca2").unwrap();
    let nodes = ["Hca1", "Hca2", "Hca3", "Hca4"];
    let destinations: Vec<Destination> = (0..100)
        .flat_map(|_| nodes)
        .map(|node| by_lid(&rig, node))
        .collect();
    let mark = rig.opensm().log().end();
    rig.opensm().stop().unwrap();
    let clients = send_all(host, &destinations);
    rig.opensm().resume().unwrap();
    for ((mut client, id), destination) in clients.into_iter().zip(&destinations) {
        let path = client.receive(id).unwrap().into_path().unwrap();
        assert_equal(&path, &sa_path(&rig, host, destination));
    }
    assert_eq!(rig.path_queries(host, mark).unwrap().len(), nodes.len());
}

/// After a failover the core queries the SA at the old LID until the port reopens. The log says so.
#[test]
fn the_log_warns_when_the_subnet_manager_has_moved() {
    let rig = quick().host("Hca2").start().unwrap();
    let host = rig.host("Hca2").unwrap();
    let [known, unknown] = ["Hca1", "Hca4"].map(|node| by_lid(&rig, node));
    let learnt = resolve(&rig, host, &known);
    let mark = host.log().end();
    let then = rig.lid("Hca1").unwrap();
    rig.kill_opensm().unwrap();
    rig.start_opensm_on("Hca3").unwrap();
    let now = rig.lid("Hca3").unwrap();
    assert_ne!(now, then);
    let line = host.log().wait_for(mark, "SM LID is", PATIENCE).unwrap();
    assert!(line.contains(&format!("SM LID is {now} now")), "{line}");
    assert!(line.contains(&format!("at SM LID {then} until")), "{line}");

    // Cached paths are answered meanwhile, others after the port has reopened.
    assert_equal(&ask(host, &known).into_path().unwrap(), &learnt);
    expect_timeout(host, &unknown);
    pull_cable(&rig, host);
    rig.put_cable_back(host.node()).unwrap();
    ask_until(host, &unknown, Status::SUCCESS);
    resolve(&rig, host, &known);
    resolve(&rig, host, &unknown);
    assert_eq!(count_lines(host, mark, "SM LID is"), 1);
}
