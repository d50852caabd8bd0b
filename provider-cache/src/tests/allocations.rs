//! A request for a cached path allocates no memory, from the C table to the answer.

use acm_prov_api::prelude::*;
use acm_stand_in::allocations::Allocations;
use acm_stand_in::by_hand::{ByHand, Request};

use super::{known, opened, peer};

#[global_allocator]
static ALLOCATOR: Allocations = Allocations;

/// Repeats the request until it causes no more SA queries; then it must not allocate memory.
fn is_free_when_known(core: &mut ByHand, form: &str, request: &Request) {
    loop {
        let id = core.resolve(request);
        if core.sa_queries().is_empty() {
            break;
        }
        core.sa_answers_with(|_| ());
        assert_eq!(core.wait_for_answer(id).status, Status::SUCCESS, "{form}");
    }
    for _ in 0..3 {
        let before = Allocations::calls();
        core.resolve(request);
        let calls = Allocations::calls() - before;
        assert_eq!(calls, 0, "allocations for a request by {form}");
    }
    known(core, request);
}

#[test]
fn a_cached_answer_allocates_no_memory() {
    let folder = tempfile::tempdir().unwrap();
    let hosts = folder.path().join("hosts");
    let gid = peer(7);
    std::fs::write(
        &hosts,
        format!("node7 {gid}\n10.0.0.7 {gid}\nfd00::7 {gid}\n"),
    )
    .unwrap();
    let mut core = opened(&format!(
        "addr_preload acm_hosts\naddr_data_file {}\n",
        hosts.display()
    ));
    let name = Address::Name(Name::new("NODE7").unwrap());
    let ip = std::net::Ipv4Addr::new(10, 0, 0, 7);
    let mut by_lid = PathRecord::default();
    by_lid.set_dlid(Lid(7));
    let mut by_gid = PathRecord::default();
    by_gid.set_dgid(gid);
    let destination = |address| Request::destination(&address);
    for (form, request) in [
        ("NAME", destination(name)),
        ("IP", destination(Address::Ip(ip))),
        ("own IP", destination(Address::Ip(ByHand::SOURCE))),
        ("IP6", destination(Address::Ip6("fd00::7".parse().unwrap()))),
        ("mapped IP6", destination(Address::Ip6(ip.to_ipv6_mapped()))),
        ("GID", destination(Address::Gid(gid))),
        ("LID", destination(Address::Lid(Lid(7)))),
        ("PATH with DLID", Request::path(&by_lid)),
        ("PATH with DGID", Request::path(&by_gid)),
        ("IP and PATH", Request::hinted(&Address::Ip(ip), &by_gid)),
    ] {
        is_free_when_known(&mut core, form, &request);
    }
}
