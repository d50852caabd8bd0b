//! The provider in a test core, on a simulated adapter, with peers whose datagrams the tests write.

mod addresses;
mod allocations;
mod answering;
mod documents;
mod hostile;
mod joining;
mod opening;
mod peer;

use acm_prov_api::abi::{
    AcmCounter, UMAD_SA_ATTR_MCMEMBER_REC, UMAD_SA_ATTR_PATH_REC, umad_sa_packet,
};
use acm_prov_api::prelude::*;
use acm_stand_in::by_hand::{Answer, ByHand, Request};

use crate::McastSa;
use peer::{MLID, Peer, SHARED};

/// Deadlines short enough to wait for.
const QUICK: &str = "timeout 150\nretries 1\n";

/// Loads the provider into a core with the adapter `sim1`.
fn loaded(options: &str) -> ByHand {
    let core = ByHand::try_load::<McastSa>(options, peer::devices());
    let core = core.unwrap_or_else(|error| panic!("mcast-sa does not load: {error}"));
    peer::connect();
    core
}

/// Like [`loaded`], with everything open and the shared group joined.
fn opened(options: &str) -> ByHand {
    let mut core = loaded(options);
    core.open();
    grant_join(&core);
    core
}

fn attribute(packet: &umad_sa_packet) -> u16 {
    packet.mad_hdr.attr_id.to_host()
}

/// Grants the oldest join.
fn grant_join(core: &ByHand) {
    let asked = core.wait_for_sa_queries(1)[0];
    assert_eq!(attribute(&asked), UMAD_SA_ATTR_MCMEMBER_REC);
    core.sa_answers(|packet| packet.data[36..38].copy_from_slice(&MLID.0.to_be_bytes()));
    peer::join(&peer::providers());
}

/// Answers the oldest path query, which must be for this peer.
fn give_path(core: &ByHand, to: &Peer) -> PathRecord {
    let asked = core.wait_for_sa_queries(1)[0];
    assert_eq!(attribute(&asked), UMAD_SA_ATTR_PATH_REC);
    let asked = PathRecord::from_bytes(asked.data.first_chunk().unwrap());
    assert_eq!((asked.sgid(), asked.dgid()), (ByHand::GID, to.gid()));
    assert_eq!(
        (asked.dlid(), asked.slid(), asked.mtu()),
        (Lid(0), Lid(0), 0),
        "nothing of an old record"
    );
    let mut given = asked;
    core.sa_answers_with(|path| {
        path.set_dlid(to.lid());
        given = *path;
    });
    given
}

/// Answers path queries for several peers, in any order.
fn give_paths(core: &ByHand, to: &[&Peer]) {
    for asked in core.wait_for_sa_queries(to.len()) {
        let dgid = PathRecord::from_bytes(asked.data.first_chunk().unwrap()).dgid();
        give_path(core, to.iter().find(|peer| peer.gid() == dgid).unwrap());
    }
}

fn ip(last: u8) -> Address {
    Address::Ip([10, 0, 0, last].into())
}

fn name(text: &str) -> Address {
    Address::Name(Name::new(text).unwrap())
}

/// Returns the source address of the core's requests.
fn source() -> Address {
    Address::Ip(ByHand::SOURCE)
}

fn resolve(core: &mut ByHand, destination: Address) -> u64 {
    core.resolve(&Request::destination(&destination))
}

/// Resolves a peer's address, with the peer's answer and the SA's response.
fn learn(core: &mut ByHand, peer: &mut Peer, address: Address) -> Answer {
    let id = resolve(core, address);
    peer.answers(address);
    give_path(core, peer);
    core.wait_for_answer(id)
}

/// Resolves from the cache: neither a peer nor the SA gets a query.
#[track_caller]
fn known(core: &mut ByHand, destination: Address) -> PathRecord {
    let id = resolve(core, destination);
    let answers = core.answers(id);
    assert_eq!(
        answers.len(),
        1,
        "answered within the call; {:?}",
        core.log()
    );
    assert_eq!(answers[0].status, Status::SUCCESS);
    answers[0].path.unwrap()
}

fn counted(core: &mut ByHand, counter: AcmCounter) -> (u64, u64) {
    let index = usize::try_from(counter.0).unwrap();
    (core.endpoint_counters()[index], core.core_counters()[index])
}

/// Returns the provider's queue pair, as seen by a peer.
fn provider_qp(core: &mut ByHand, peer: &mut Peer) -> rdma_access::Qpn {
    resolve(core, ip(99));
    peer.request_for(ip(99)).qp_number
}

/// Waits until a condition holds.
#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !is_so() {
        assert!(std::time::Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}
