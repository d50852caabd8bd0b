//! The stock daemon, with the stock provider, on the simulated adapter.

use fabric_sim::control::Client;
use fabric_sim::model::event::PortEvent;
use loader_test::client::{Destination, Status};
use loader_test::log::Mark;
use loader_test::record::Lid;
use loader_test::rig::Rig;

use crate::{DAEMON, MANAGER, PATIENCE, PROBED, fabric};

fn wait_for_log(rig: &Rig, mark: Mark, text: &str) {
    rig.host(DAEMON)
        .unwrap()
        .log()
        .wait_for(mark, text, PATIENCE)
        .unwrap();
}

fn log_end(rig: &Rig) -> Mark {
    rig.host(DAEMON).unwrap().log().end()
}

fn resolve(rig: &Rig, node: &str) -> Status {
    let lid = rig.lid(node).unwrap();
    let mut client = rig.host(DAEMON).unwrap().connect().unwrap();
    let answer = client.resolve(&Destination::Lid(lid)).unwrap();
    if answer.status == Status::SUCCESS {
        assert_eq!(answer.path().unwrap().dlid(), lid);
    }
    answer.status
}

#[test]
fn joins_and_resolves() {
    let rig = fabric().start().unwrap();
    wait_for_log(&rig, Mark::default(), "join successful");
    assert_eq!(resolve(&rig, PROBED), Status::SUCCESS);
    let mut client = rig.host(DAEMON).unwrap().connect().unwrap();
    let answer = client
        .resolve(&Destination::Gid(rig.gid(MANAGER).unwrap()))
        .unwrap();
    assert_eq!(
        answer.into_path().unwrap().dlid(),
        rig.lid(MANAGER).unwrap()
    );
}

/// Without the time-outs the daemon waits for ever, and has lost its one credit towards the SA.
#[test]
fn survives_an_sa_that_is_silent() {
    let rig = fabric()
        .option("timeout", 200)
        .option("retries", 1)
        .start()
        .unwrap();
    wait_for_log(&rig, Mark::default(), "join successful");
    rig.opensm().stop().unwrap();
    assert_eq!(resolve(&rig, PROBED), Status::ETIMEDOUT);
    assert_eq!(resolve(&rig, PROBED), Status::ETIMEDOUT);
    rig.opensm().resume().unwrap();
    assert_eq!(resolve(&rig, MANAGER), Status::SUCCESS);
    assert_eq!(resolve(&rig, PROBED), Status::SUCCESS);
}

/// The provider joins once after the event and never retries: time-outs are long enough for the new manager's first sweep,
/// during which it ignores requests.
#[test]
fn survives_an_sa_that_is_killed() {
    let rig = fabric()
        .option("timeout", 500)
        .option("retries", 5)
        .start()
        .unwrap();
    wait_for_log(&rig, Mark::default(), "join successful");
    let lid = rig.lid(PROBED).unwrap();
    let mut client = rig.host(DAEMON).unwrap().connect().unwrap();
    rig.opensm().stop().unwrap();
    let entries = loader_test::client::entries(&Destination::Lid(lid), 0).unwrap();
    let request = client.send(&entries).unwrap();
    rig.kill_opensm().unwrap();
    assert_eq!(client.receive(request).unwrap().status, Status::ETIMEDOUT);
    assert_eq!(resolve(&rig, MANAGER), Status::ETIMEDOUT);
    let mark = log_end(&rig);
    rig.start_opensm().unwrap();
    // The event says that the new master has lost its membership.
    wait_for_log(&rig, mark, "ibsim0 1 has reregistered");
    wait_for_log(&rig, mark, "join successful");
    assert_eq!(resolve(&rig, PROBED), Status::SUCCESS);
}

#[test]
fn follows_a_cable() {
    let rig = fabric().start().unwrap();
    wait_for_log(&rig, Mark::default(), "join successful");
    let mark = log_end(&rig);
    rig.pull_cable(DAEMON).unwrap();
    wait_for_log(&rig, mark, "processing async event port error for ibsim0");
    wait_for_log(&rig, mark, "ibsim0 1 is down");
    let mark = log_end(&rig);
    rig.put_cable_back(DAEMON).unwrap();
    wait_for_log(&rig, mark, "processing async event port active for ibsim0");
    wait_for_log(&rig, mark, "join successful");
    assert_eq!(resolve(&rig, PROBED), Status::SUCCESS);
}

#[test]
fn follows_a_lid() {
    let rig = fabric().start().unwrap();
    wait_for_log(&rig, Mark::default(), "join successful");
    let mark = log_end(&rig);
    rig.change_lid(DAEMON, Lid(77)).unwrap();
    wait_for_log(&rig, mark, "processing async event LID changed for ibsim0");
    // It opens the port anew, and asks the SA from its new LID.
    wait_for_log(&rig, mark, "join successful");
    assert_eq!(resolve(&rig, PROBED), Status::SUCCESS);
}

#[test]
fn joins_again_when_told_to() {
    let rig = fabric().start().unwrap();
    wait_for_log(&rig, Mark::default(), "join successful");
    let mark = log_end(&rig);
    let host = rig.host(DAEMON).unwrap();
    let mut control = Client::connect(host.directory().join("fabric-sim.sock")).unwrap();
    control.event(PortEvent::ClientReregister, 1).unwrap();
    wait_for_log(&rig, mark, "ibsim0 1 has reregistered");
    wait_for_log(&rig, mark, "join successful");
    // The rig's own way to say it.
    let mark = log_end(&rig);
    host.raise(PortEvent::ClientReregister).unwrap();
    wait_for_log(&rig, mark, "ibsim0 1 has reregistered");
}
