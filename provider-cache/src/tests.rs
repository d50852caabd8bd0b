//! The provider in a test core, with the test as its SA: answers to clients, and queries to the SA.

mod allocations;
mod random;
mod stand_in;

use acm_prov_api::abi::{AcmCounter, Be16};
use acm_prov_api::dump::Routes;
use acm_prov_api::prelude::*;
use acm_stand_in::by_hand::{Answer, ByHand, Request};

use acm_prov_api::policy::PolicyProvider;

use crate::PathCache;

/// Deadlines short enough to wait for.
const QUICK: &str = "timeout 150\nretries 1\n";

fn opened(options: &str) -> ByHand {
    let mut core = ByHand::load::<PolicyProvider<PathCache>>(options);
    core.open();
    core
}

fn lid(lid: u16) -> Request {
    Request::destination(&Address::Lid(Lid(lid)))
}

fn path(set: impl FnOnce(&mut PathRecord)) -> Request {
    let mut wanted = PathRecord::default();
    set(&mut wanted);
    Request::path(&wanted)
}

fn peer(lid: u16) -> Gid {
    Gid::new(ByHand::GID.subnet_prefix(), 0x2000 + u64::from(lid))
}

/// Resolves with an SA query.
fn learn(core: &mut ByHand, request: &Request) -> Answer {
    let id = core.resolve(request);
    core.wait_for_sa_queries(1);
    core.sa_answers_with(|_| ());
    core.wait_for_answer(id)
}

/// Resolves from the cache, without an SA query.
#[track_caller]
fn known(core: &mut ByHand, request: &Request) -> PathRecord {
    let id = core.resolve(request);
    let answers = core.answers(id);
    assert_eq!(answers.len(), 1, "answered within the call");
    assert_eq!(answers[0].status, Status::SUCCESS);
    answers[0].path.unwrap()
}

fn counted(core: &mut ByHand, counter: AcmCounter) -> (u64, u64) {
    let index = usize::try_from(counter.0).unwrap();
    (core.endpoint_counters()[index], core.core_counters()[index])
}

#[test]
fn a_path_that_is_known_answers_all_that_it_meets() {
    let mut core = opened("");
    let first = learn(&mut core, &lid(7)).path.unwrap();
    assert_eq!((first.dlid(), first.dgid()), (Lid(7), peer(7)));
    for request in [
        lid(7),
        path(|p| {
            p.set_dlid(Lid(7));
        }),
        path(|p| {
            p.set_dlid(Lid(7)).set_dgid(peer(7)).set_slid(Lid(1));
        }),
        // As rdma_getaddrinfo sends it the second time.
        Request::path(&first),
        path(|p| {
            p.set_dlid(Lid(7))
                .set_pkey(PKey(0x7fff))
                .set_sgid(ByHand::GID);
        }),
    ] {
        assert_eq!(known(&mut core, &request), first);
    }
    assert_eq!(counted(&mut core, AcmCounter::ROUTE_QUERY), (1, 1));
    assert_eq!(counted(&mut core, AcmCounter::ROUTE_CACHE), (5, 5));
    assert_eq!(counted(&mut core, AcmCounter::RESOLVE).0, 6);
}

#[test]
fn a_gid_says_nothing_of_the_lid_that_leads_to_it() {
    let mut core = opened("");
    // A remote GID has the router's LID, an alias GID its port's.
    let far: Gid = "fd00::7".parse().unwrap();
    let id = core.resolve(&Request::destination(&Address::Gid(far)));
    core.wait_for_sa_queries(1);
    core.sa_answers_with(|p| {
        p.set_dlid(Lid(7));
    });
    assert_eq!(core.wait_for_answer(id).path.unwrap().dlid(), Lid(7));
    assert_eq!(learn(&mut core, &lid(7)).path.unwrap().dgid(), peer(7));
    assert_eq!(known(&mut core, &lid(7)).dgid(), peer(7));
    let far = Request::destination(&Address::Gid(far));
    assert_eq!(known(&mut core, &far).dlid(), Lid(7));
}

#[test]
fn other_demands_are_other_questions() {
    let mut core = opened("path_cache_qos on\n");
    learn(&mut core, &lid(7));
    let demands: [fn(&mut PathRecord); 4] = [
        |p| {
            p.set_dlid(Lid(7)).set_service_id(5);
        },
        |p| {
            p.set_dlid(Lid(7)).set_traffic_class(5);
        },
        |p| {
            p.set_dlid(Lid(7)).set_qos_class(5);
        },
        |p| {
            p.set_dlid(Lid(7)).set_sl(3);
        },
    ];
    for demand in demands {
        let request = path(demand);
        let id = core.resolve(&request);
        assert!(core.answers(id).is_empty(), "not from the plain path");
        let question = core.wait_for_sa_queries(1)[0];
        let asked = PathRecord::from_bytes(question.data.first_chunk().unwrap());
        let mut wanted = asked;
        demand(&mut wanted);
        assert_eq!(asked, wanted, "the SA is asked for what the client demands");
        core.sa_answers_with(|_| ());
        assert_eq!(core.wait_for_answer(id).status, Status::SUCCESS);
        known(&mut core, &request);
    }
    known(&mut core, &lid(7));
}

#[test]
fn an_answer_that_differs_is_reported_once_for_each_component() {
    let mut core = opened("log_level 0\n");
    for _ in 0..3 {
        let id = core.resolve(&lid(7));
        core.wait_for_sa_queries(1);
        core.sa_answers_with(|p| {
            p.set_dlid(Lid(8));
        });
        assert_eq!(core.wait_for_answer(id).status, Status::ENODATA);
    }
    let id = core.resolve(&path(|p| {
        p.set_dlid(Lid(7)).set_sl(3);
    }));
    core.wait_for_sa_queries(1);
    core.sa_answers_with(|p| {
        p.set_sl(4);
    });
    assert_eq!(core.wait_for_answer(id).status, Status::ENODATA);
    core.wait_for_log("has SL 4, asked for: 3; the answer is not used (1 such");
    let lines = core.log();
    let about = |what: &str| lines.iter().filter(|line| line.contains(what)).count();
    assert_eq!(about("has DLID 8, asked for: 7"), 1, "{lines:?}");
    assert_eq!(about("the answer is not used"), 2, "{lines:?}");
}

#[test]
fn a_gid_with_the_default_prefix_is_the_ports_own_subnets() {
    let hosts = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(hosts.path(), "node7 fe80::2007\n").unwrap();
    let file = hosts.path().display();
    let mut core = opened(&format!("addr_preload acm_hosts\naddr_data_file {file}\n"));
    core.close_port();
    core.change_port(|port| {
        port.prefix = 0xfec0_0000_0000_0001;
        port.guids = vec![0x10];
    });
    core.open();
    let port: Gid = "fec0::1:0:0:0:2007".parse().unwrap();
    let asked = path(|p| {
        p.set_dgid("fe80::2007".parse().unwrap())
            .set_sgid("fe80::10".parse().unwrap());
    });
    let first = learn(&mut core, &asked).path.unwrap();
    assert_eq!(first.dgid(), port, "as the SA has it");
    let name = Request::destination(&Address::Name(Name::new("node7").unwrap()));
    for request in [
        name,
        Request::destination(&Address::Gid(port)),
        Request::destination(&Address::Gid("fe80::2007".parse().unwrap())),
    ] {
        assert_eq!(known(&mut core, &request), first);
    }
}

#[test]
fn one_query_answers_all_waiting_clients() {
    let mut core = opened("");
    let ids: Vec<u64> = (0..200).map(|_| core.resolve(&lid(7))).collect();
    assert_eq!(core.wait_for_sa_queries(1).len(), 1);
    core.sa_answers_with(|_| ());
    let first = core.wait_for_answer(ids[0]).path;
    for id in ids {
        let answer = core.wait_for_answer(id);
        assert_eq!((answer.status, answer.path), (Status::SUCCESS, first));
    }
    assert!(core.sa_queries().is_empty());
    assert_eq!(counted(&mut core, AcmCounter::ROUTE_QUERY), (1, 1));
}

#[test]
fn the_core_gets_no_more_than_sa_depth_and_one_queries() {
    for (options, out) in [("", 2), ("sa_depth 4\n", 5)] {
        let mut core = opened(options);
        let ids: Vec<u64> = (10..40)
            .map(|destination| core.resolve(&lid(destination)))
            .collect();
        for answered in 0..ids.len() {
            let questions = core.wait_for_sa_queries(out.min(ids.len() - answered));
            assert!(questions.len() <= out, "{} at a time", questions.len());
            core.sa_answers_with(|_| ());
        }
        for id in ids {
            assert_eq!(core.wait_for_answer(id).status, Status::SUCCESS);
        }
    }
}

#[test]
fn a_deadline_is_kept_when_the_sa_is_silent() {
    let mut core = opened(QUICK);
    let ids: Vec<u64> = (10..20)
        .map(|destination| core.resolve(&lid(destination)))
        .collect();
    for id in ids {
        assert_eq!(core.wait_for_answer(id).status, Status::ETIMEDOUT);
    }
    assert!(
        core.sa_queries().len() <= 2,
        "a queued lookup that nobody waits for is dropped"
    );
    let line = core.wait_for_log("SA not responding");
    for part in ["port 1", "SM LID 9", "0xffff"] {
        assert!(line.contains(part), "{part} in {line}");
    }
    while !core.sa_queries().is_empty() {
        core.sa_times_out();
    }
    learn(&mut core, &lid(30));
    core.wait_for_log("SA responding again");
    let told = core
        .log()
        .iter()
        .filter(|line| line.contains("SA "))
        .count();
    assert_eq!(told, 2, "{:?}", core.log());
}

#[test]
fn a_record_that_does_not_match_is_neither_accepted_nor_cached() {
    let spoil: [fn(&mut PathRecord); 4] = [
        |p| {
            p.set_dlid(Lid(8));
        },
        |p| {
            p.set_dlid(Lid(0));
        },
        |p| {
            p.set_dlid(Lid(0xc001));
        },
        |p| {
            p.set_sgid(Gid::new(1, 2));
        },
    ];
    let mut core = opened("");
    for spoilt in spoil {
        let id = core.resolve(&lid(7));
        core.wait_for_sa_queries(1);
        core.sa_answers_with(spoilt);
        assert_eq!(core.wait_for_answer(id).status, Status::ENODATA);
    }
    learn(&mut core, &lid(7));
    known(&mut core, &lid(7));
}

#[test]
fn sa_statuses_become_acm_statuses_on_purpose() {
    for (status, expected, remembered) in [
        (0x0300_u16, Status::ENODATA, true),
        (0x0200, Status::EINVAL, false),
        (0x0500, Status::ENODATA, false),
        (0x000c, Status::ENODATA, false),
        (0x001c, Status::ENODATA, false),
    ] {
        let mut core = opened("path_cache_negative_ttl 60000\n");
        let id = core.resolve(&lid(7));
        core.wait_for_sa_queries(1);
        core.sa_answers(|packet| packet.mad_hdr.status = Be16::from_host(status));
        assert_eq!(core.wait_for_answer(id).status, expected, "{status:#06x}");
        let id = core.resolve(&lid(7));
        let at_once = core.answers(id).first().map(|answer| answer.status);
        assert_eq!(
            at_once,
            remembered.then_some(Status::ENODATA),
            "{status:#06x}"
        );
    }
}

#[test]
fn a_busy_sa_is_asked_again_until_the_deadline() {
    let mut core = opened("timeout 1000\nretries 3\n");
    let id = core.resolve(&lid(7));
    for status in [0x0001_u16, 0x0100, 0x0001] {
        core.wait_for_sa_queries(1);
        core.sa_answers(|packet| packet.mad_hdr.status = Be16::from_host(status));
    }
    core.wait_for_sa_queries(1);
    core.sa_answers_with(|_| ());
    assert_eq!(core.wait_for_answer(id).status, Status::SUCCESS);

    let mut core = {
        drop(core);
        opened(QUICK)
    };
    let id = core.resolve(&lid(7));
    while core.answers(id).is_empty() {
        if !core.sa_queries().is_empty() {
            core.sa_answers(|packet| packet.mad_hdr.status = Be16::from_host(0x0001));
        }
        std::thread::yield_now();
    }
    assert_eq!(core.wait_for_answer(id).status, Status::ETIMEDOUT);
}

#[test]
fn nodelay_answers_at_once_and_starts_the_lookup() {
    let mut core = opened("");
    let id = core.resolve(&lid(7).nodelay());
    assert_eq!(core.answers(id)[0].status, Status::ENODATA);
    core.wait_for_sa_queries(1);
    core.sa_answers_with(|_| ());
    known(&mut core, &lid(7).nodelay());
}

#[test]
fn paths_from_before_a_reregister_replace_those_of_a_silent_sa() {
    let mut core = opened(QUICK);
    learn(&mut core, &lid(7));
    core.reregister();
    // The SA responds to the query.
    let id = core.resolve(&lid(7));
    core.wait_for_sa_queries(1);
    assert!(core.answers(id).is_empty());
    core.sa_answers_with(|p| {
        p.set_sl(3);
    });
    assert_eq!(core.wait_for_answer(id).path.unwrap().sl(), 3);
    assert_eq!(known(&mut core, &lid(7)).sl(), 3);
    // The SA is silent: the client gets the stale path instead of a timeout.
    core.reregister();
    let id = core.resolve(&lid(7));
    assert_eq!(core.wait_for_answer(id).path.unwrap().sl(), 3);
    // An uncached path times out.
    let id = core.resolve(&lid(8));
    assert_eq!(core.wait_for_answer(id).status, Status::ETIMEDOUT);
    // The SA is known to be silent: the client gets the stale path at once.
    core.wait_for_log("SA not responding");
    assert_eq!(known(&mut core, &lid(7)).sl(), 3);
}

#[test]
fn stale_paths_can_be_switched_off() {
    let mut core = opened(&format!("{QUICK}path_cache_stale_ttl 0\n"));
    learn(&mut core, &lid(7));
    core.reregister();
    let id = core.resolve(&lid(7));
    assert_eq!(core.wait_for_answer(id).status, Status::ETIMEDOUT);
}

#[test]
fn a_response_from_before_a_reregister_is_not_cached() {
    let mut core = opened("");
    let id = core.resolve(&lid(7));
    core.wait_for_sa_queries(1);
    core.reregister();
    core.sa_answers_with(|_| ());
    assert_eq!(core.wait_for_answer(id).status, Status::SUCCESS);
    core.resolve(&lid(7));
    core.wait_for_sa_queries(1);
}

#[test]
fn a_close_drops_everything_and_a_late_answer_fills_nothing() {
    let mut core = opened("");
    learn(&mut core, &lid(7));
    let waiting = core.resolve(&lid(8));
    core.wait_for_sa_queries(1);
    core.close_port();
    let status = core.wait_for_answer(waiting).status;
    assert_eq!(
        status,
        Status::ENOTCONN,
        "nobody waits for a port that is down"
    );
    core.change_port(|attributes| attributes.lid = 55);
    core.open();
    core.sa_answers_with(|_| ());
    for destination in [7, 8] {
        let id = core.resolve(&lid(destination));
        assert!(core.answers(id).is_empty());
        core.wait_for_sa_queries(1);
        core.sa_answers_with(|p| {
            p.set_slid(Lid(55));
        });
        assert_eq!(core.wait_for_answer(id).path.unwrap().slid(), Lid(55));
    }
    core.close();
    assert_eq!(core.mads(), 0);
}

#[test]
fn a_thousand_reopens_leave_no_thread() {
    let mut core = opened("");
    core.close();
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let before = threads();
    for _ in 0..1000 {
        core.open();
        let id = core.resolve(&lid(7));
        core.close();
        assert_eq!(core.answers(id).len(), 1);
    }
    // Threads of other tests start and end, and a joined thread stays in /proc for a moment; a leak would show
    // a thousand.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while threads() >= before + 100 {
        assert!(
            std::time::Instant::now() < deadline,
            "{} threads, {before} before",
            threads()
        );
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn own_addresses_are_answered_locally() {
    let mut core = opened("");
    let own = Address::Ip(ByHand::SOURCE);
    let record = known(&mut core, &Request::destination(&own));
    assert_eq!((record.sgid(), record.dgid()), (ByHand::GID, ByHand::GID));
    assert_eq!(
        (record.slid(), record.dlid(), record.pkey()),
        (Lid(1), Lid(1), PKey(0xffff))
    );
    let name = Address::Name(Name::new("self").unwrap());
    let context = core.add_address(&name).unwrap();
    known(
        &mut core,
        &Request::destination(&Address::Name(Name::new("SELF").unwrap())),
    );
    core.remove_address(context);
    let id = core.resolve(&Request::destination(&name));
    assert_eq!(
        core.answers(id)[0].status,
        Status::ENODATA,
        "an address that moved away"
    );

    let mut core = {
        drop(core);
        opened("loopback_prot none\n")
    };
    let id = core.resolve(&Request::destination(&own));
    assert_eq!(core.answers(id)[0].status, Status::ENODATA);
}

#[test]
fn names_and_ip_addresses_lead_through_the_hosts_file() {
    let hosts = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(
        hosts.path(),
        format!(
            "node7 {}\r\n10.0.0.7\t{}\nbad line\nfd00::7 {}",
            peer(7),
            peer(7),
            peer(7)
        ),
    )
    .unwrap();
    let mut core = opened(&format!(
        "addr_preload acm_hosts\naddr_data_file {}\n",
        hosts.path().display()
    ));
    core.wait_for_log(":3:");
    let name = Request::destination(&Address::Name(Name::new("NODE7").unwrap()));
    let id = core.resolve(&name);
    core.wait_for_sa_queries(1);
    core.sa_answers_with(|p| {
        p.set_dlid(Lid(7));
    });
    assert_eq!(core.wait_for_answer(id).path.unwrap().dlid(), Lid(7));
    assert_eq!(counted(&mut core, AcmCounter::ADDR_CACHE), (1, 1));
    for address in [
        Address::Ip([10, 0, 0, 7].into()),
        Address::Ip6("fd00::7".parse().unwrap()),
    ] {
        assert_eq!(
            known(&mut core, &Request::destination(&address)).dlid(),
            Lid(7)
        );
    }
    assert_eq!(counted(&mut core, AcmCounter::ADDR_CACHE), (1, 1));
    let id = core.resolve(&Request::destination(&Address::Name(
        Name::new("node8").unwrap(),
    )));
    assert_eq!(core.answers(id)[0].status, Status::ENODATA);
}

#[test]
fn touching_the_flush_file_drops_the_cache() {
    let flush = tempfile::NamedTempFile::new().unwrap();
    let mut core = opened(&format!(
        "path_cache_flush_file {}\n",
        flush.path().display()
    ));
    learn(&mut core, &lid(7));
    known(&mut core, &lid(7));
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(5);
    flush.as_file().set_modified(later).unwrap();
    core.wait_for_log("flushed");
    core.resolve(&lid(7));
    core.wait_for_sa_queries(1);
}

#[test]
fn bad_options_are_reported_with_key_and_default() {
    let core =
        opened("retries -1\npath_cache_capacity none\npath_cache_capcity 5\nloopback_prot maybe\n");
    for text in [
        "retries -1",
        "path_cache_capacity none",
        "path_cache_capcity",
        "loopback_prot maybe",
    ] {
        core.wait_for_log(text);
    }
}

#[test]
fn a_changed_sm_lid_is_logged() {
    let mut core = opened("");
    core.change_port(|attributes| attributes.sm_lid = 33);
    core.reregister();
    let line = core.wait_for_log("SM LID");
    assert!(line.contains('9') && line.contains("33"), "{line}");
}

#[test]
fn an_sgid_of_another_port_is_refused() {
    let mut core = opened("");
    let id = core.resolve(&path(|p| {
        p.set_dlid(Lid(7)).set_sgid(Gid::new(1, 2));
    }));
    assert_eq!(core.answers(id)[0].status, Status::ESRCADDR);
    assert!(core.sa_queries().is_empty());
}

#[test]
fn a_full_cache_evicts_unused_entries() {
    let mut core = opened("path_cache_capacity 2\n");
    for destination in [7, 8] {
        learn(&mut core, &lid(destination));
    }
    known(&mut core, &lid(7));
    learn(&mut core, &lid(9));
    known(&mut core, &lid(7));
    known(&mut core, &lid(9));
    core.resolve(&lid(8));
    core.wait_for_sa_queries(1);
}

#[test]
fn operators_files_are_followed() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        std::fs::write(folder.path().join("new"), text).unwrap();
        std::fs::rename(folder.path().join("new"), folder.path().join(name)).unwrap();
    };
    let dump = |sl: u8| {
        format!(
            "Channel Adapter 0x0000000000100001, base LID 1, \"me\", port 1\n# LID  : SL : MTU : RATE\n\
             0x0007 : {sl}  : 4   : 3\n\n\
             Channel Adapter 0x0000000000002007, base LID 7, \"node7\", port 1\n# LID  : SL : MTU : RATE\n"
        )
    };
    write("hosts", "node7 fe80::2007\n");
    write("dump", &dump(1));
    let mut core = opened(&format!(
        "addr_preload acm_hosts\naddr_data_file {0}/hosts\nroute_preload opensm_full_v1\nroute_data_file {0}/dump\n",
        folder.path().display()
    ));
    core.wait_for_log("dump: 1 paths");
    let name = |text: &str| Request::destination(&Address::Name(Name::new(text).unwrap()));
    let path = known(&mut core, &name("NODE7"));
    assert_eq!((path.dlid(), path.dgid(), path.sl()), (Lid(7), peer(7), 1));
    assert_eq!(known(&mut core, &lid(7)), path);
    write("dump", &dump(2));
    write("hosts", "node7 fe80::2007\nseven fe80::2007\n");
    core.wait_for_log("hosts: the file has changed and was read again: 2 entries");
    core.wait_for_log("dump: the file has changed and was read again: 1 entries");
    assert_eq!(known(&mut core, &name("seven")).sl(), 2);
    std::fs::remove_file(folder.path().join("hosts")).unwrap();
    core.wait_for_log("hosts: the file is gone; going on with what was read before");
    assert_eq!(known(&mut core, &name("seven")).sl(), 2);
    assert!(core.sa_queries().is_empty());
}

/// Both dumps come from an OpenSM; in both the local port is the first host.
#[test]
fn the_dumps_of_real_fabrics_give_every_path() {
    let fixtures = std::path::Path::new("../acm-prov-api/tests/fixtures");
    let folder = tempfile::tempdir().unwrap();
    let packed = std::fs::read(fixtures.join("opensm-full-v1-324hosts.dump.xz")).unwrap();
    let mut text = Vec::new();
    lzma_rs::xz_decompress(&mut packed.as_slice(), &mut text).unwrap();
    let of_324_hosts = folder.path().join("dump");
    std::fs::write(&of_324_hosts, text).unwrap();
    for (file, ports) in [
        (fixtures.join("opensm-full-v1-4hosts.dump"), 6),
        (of_324_hosts, 324 + 27),
    ] {
        let routes = Routes::read(&file, ByHand::GID.interface_id(), Lid(1));
        assert_eq!(routes.len(), ports);
        let mut core = opened(&format!(
            "route_preload opensm_full_v1\nroute_data_file {}\n",
            file.display()
        ));
        core.wait_for_log(&format!(": {ports} paths"));
        for (destination, route) in routes.iter() {
            let path = known(&mut core, &lid(destination.0));
            let gid = Gid::new(ByHand::GID.subnet_prefix(), route.guid);
            assert_eq!((path.dlid(), path.dgid()), (destination, gid));
            assert_eq!(
                (path.sl(), path.mtu(), path.rate()),
                (route.sl, route.mtu, route.rate)
            );
            assert_eq!(
                known(&mut core, &Request::destination(&Address::Gid(gid))),
                path
            );
        }
        assert!(core.sa_queries().is_empty());
    }
}

/// After a netlink overflow the core adds an address a second time, and removes it once; then another host has
/// it.
#[test]
fn an_address_that_was_added_twice_is_gone_once_it_is_removed() {
    let hosts = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&hosts, format!("10.0.0.7 {}\n", peer(7))).unwrap();
    let mut core = opened(&format!(
        "addr_preload acm_hosts\naddr_data_file {}\n",
        hosts.path().display()
    ));
    let address = Address::Ip([10, 0, 0, 7].into());
    let request = Request::destination(&address);
    core.add_address(&address).unwrap();
    let again = core.add_address(&address).unwrap();
    assert_eq!(known(&mut core, &request).dgid(), ByHand::GID);
    core.remove_address(again);
    assert_eq!(learn(&mut core, &request).path.unwrap().dgid(), peer(7));
}
