//! The SDK itself allocates nothing for a request, from the C table to the answer.

use acm_prov_api::hosts::Hosts;
use acm_prov_api::prelude::*;
use acm_prov_api::provider_table;
use acm_prov_api::testing::{Allocations, Request, TestCore};
use acm_prov_api::watched_file::WatchedFile;

#[global_allocator]
static ALLOCATOR: Allocations = Allocations;

/// Answers for LIDs and GIDs, for names and IP addresses of a hosts file, and for its own addresses.
struct Answering(WatchedFile<Hosts>);

impl Provider for Answering {
    const NAME: &CStr = c"answering";
    type Endpoint = NoContext;

    fn load(_: &Host, options: &Options) -> Result<Self, Error> {
        let file = options.named("hosts").path("/nonexistent/hosts");
        Ok(Self(WatchedFile::hosts(&file)))
    }

    fn resolve(&self, from: &LocalAddress<Self>, request: ResolveRequest) {
        let mut path = PathRecord::default();
        match request.destination() {
            Address::Lid(lid) => path.set_dlid(lid),
            Address::Gid(gid) => path.set_dgid(gid),
            own if from.endpoint().has_address(&own) => path.set_dgid(TestCore::GID),
            other => match self.0.with(|hosts| hosts.get(&other)) {
                Some(gid) => path.set_dgid(gid),
                None => return request.refuse(Status::ENODATA),
            },
        };
        request.answer_from_cache(&path);
    }
}

provider_table!(Answering);

#[test]
fn a_request_in_any_form_takes_no_memory() {
    let folder = tempfile::tempdir().unwrap();
    let hosts = folder.path().join("hosts");
    std::fs::write(&hosts, "node7 fe80::7\n10.0.0.7 fe80::7\nfd00::7 fe80::7\n").unwrap();
    let mut core = TestCore::load::<Answering>(&format!("hosts {}\n", hosts.display()));
    core.open();
    let name = |text| Address::Name(Name::new(text).unwrap());
    core.add_address(&name("node1")).unwrap();
    let gid = Gid::new(0xfe80 << 48, 7);
    let ip = std::net::Ipv4Addr::new(10, 0, 0, 7);
    let mut by_lid = PathRecord::default();
    by_lid.set_dlid(Lid(7));
    let mut by_gid = PathRecord::default();
    by_gid.set_dgid(gid);
    let destination = |address| Request::destination(&address);
    for (form, request, status) in [
        ("NAME", destination(name("NODE7")), Status::SUCCESS),
        ("own NAME", destination(name("NODE1")), Status::SUCCESS),
        ("unknown NAME", destination(name("node8")), Status::ENODATA),
        ("IP", destination(Address::Ip(ip)), Status::SUCCESS),
        (
            "own IP",
            destination(Address::Ip(TestCore::SOURCE)),
            Status::SUCCESS,
        ),
        (
            "IP6",
            destination(Address::Ip6("fd00::7".parse().unwrap())),
            Status::SUCCESS,
        ),
        (
            "mapped IP6",
            destination(Address::Ip6(ip.to_ipv6_mapped())),
            Status::SUCCESS,
        ),
        ("GID", destination(Address::Gid(gid)), Status::SUCCESS),
        ("LID", destination(Address::Lid(Lid(7))), Status::SUCCESS),
        ("PATH by LID", Request::path(&by_lid), Status::SUCCESS),
        ("PATH by GID", Request::path(&by_gid), Status::SUCCESS),
        (
            "IP with a PATH",
            Request::hinted(&Address::Ip(ip), &by_gid),
            Status::SUCCESS,
        ),
    ] {
        for round in 0..3 {
            let before = Allocations::calls();
            let id = core.resolve(&request);
            let calls = Allocations::calls() - before;
            assert_eq!(core.wait_for_answer(id).status, status, "{form}");
            // The first request may make lasting allocations, such as the panic hook.
            assert!(round == 0 || calls == 0, "{form}: {calls} allocations");
        }
    }
}
