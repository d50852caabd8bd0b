//! A request for a cached path allocates no memory, from the C table to the answer.

use acm_prov_api::prelude::*;
use acm_stand_in::allocations::Allocations;
use acm_stand_in::by_hand::{ByHand, Request};

use super::peer::Peer;
use super::{give_path, grant_join, ip, loaded, name};

#[global_allocator]
static ALLOCATOR: Allocations = Allocations;

#[test]
fn a_cached_answer_allocates_no_memory() {
    let folder = tempfile::tempdir().unwrap();
    let hosts = folder.path().join("hosts");
    let gid = Gid::new(ByHand::GID.subnet_prefix(), 0x2002);
    std::fs::write(
        &hosts,
        format!("node2 {gid}\n10.0.0.2 {gid}\nfd00::2 {gid}\n"),
    )
    .unwrap();
    let mut core = loaded(&format!(
        "addr_preload acm_hosts\naddr_data_file {}\n",
        hosts.display()
    ));
    let mut peer = Peer::at(2);
    core.open();
    grant_join(&core);
    let learnt = ip(3);
    let id = core.resolve(&Request::destination(&learnt));
    peer.answers(learnt);
    give_path(&core, &peer);
    assert_eq!(core.wait_for_answer(id).status, Status::SUCCESS);

    let mapped = std::net::Ipv4Addr::new(10, 0, 0, 3).to_ipv6_mapped();
    let mut by_lid = PathRecord::default();
    by_lid.set_dlid(peer.lid());
    let mut by_gid = PathRecord::default();
    by_gid.set_dgid(gid);
    let destination = |address| Request::destination(&address);
    for (form, request) in [
        ("NAME", destination(name("NODE2"))),
        ("IP", destination(ip(2))),
        ("own IP", destination(Address::Ip(ByHand::SOURCE))),
        ("learnt IP", destination(learnt)),
        ("learnt IP, mapped", destination(Address::Ip6(mapped))),
        ("IP6", destination(Address::Ip6("fd00::2".parse().unwrap()))),
        ("GID", destination(Address::Gid(gid))),
        ("LID", destination(Address::Lid(peer.lid()))),
        ("PATH with DLID", Request::path(&by_lid)),
        ("PATH with DGID", Request::path(&by_gid)),
        ("IP and PATH", Request::hinted(&ip(2), &by_gid)),
    ] {
        loop {
            let id = core.resolve(&request);
            if core.sa_queries().is_empty() {
                break;
            }
            core.sa_answers_with(|path| {
                path.set_dgid(gid).set_dlid(peer.lid());
            });
            assert_eq!(core.wait_for_answer(id).status, Status::SUCCESS, "{form}");
        }
        for _ in 0..3 {
            let before = Allocations::calls();
            let id = core.resolve(&request);
            let calls = Allocations::calls() - before;
            assert_eq!(calls, 0, "allocations for a request by {form}");
            assert_eq!(core.wait_for_answer(id).status, Status::SUCCESS, "{form}");
        }
    }
}
