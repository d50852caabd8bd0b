//! A provider that queries the SA without the cache engine: guarantees for its clients.

use std::time::{Duration, Instant};

use acm_prov_api::prelude::*;
use acm_prov_api::sync::Mutex;
use acm_prov_api::testing::{Request, TestCore};
use acm_prov_api::{EndpointHandle, provider_table};

/// The endpoint of the last request.
static HANDLE: Mutex<Option<EndpointHandle>> = Mutex::new(None);

/// Queries the SA for each LID, and leaves query requests to the SDK.
struct Asking;

impl Provider for Asking {
    const NAME: &CStr = c"asking";
    type Endpoint = NoContext;

    fn load(_: &Host, _: &Options) -> Result<Self, Error> {
        Ok(Asking)
    }

    fn resolve(&self, from: &LocalAddress<Self>, request: ResolveRequest) {
        *HANDLE.lock() = Some(from.endpoint().handle().clone());
        let handle = from.endpoint().handle();
        let request = request.keep();
        handle.ask_path(&request.path_query(), |answer| match answer {
            Ok(path) => request.answer(&path),
            Err(_) => request.refuse(Status::ENODATA),
        });
    }
}

provider_table!(Asking);

fn opened(options: &str) -> TestCore {
    let mut core = TestCore::load::<Asking>(options);
    core.open();
    core
}

fn by_lid(lid: u16) -> PathRecord {
    let mut wanted = PathRecord::default();
    wanted.set_dlid(Lid(lid));
    wanted
}

/// Waits for the end of the deadline thread.
fn expect_no_thread_that_keeps_deadlines() {
    let runs = || {
        let threads = std::fs::read_dir("/proc/self/task").expect("the threads of this process");
        threads.flatten().any(|thread| {
            std::fs::read(thread.path().join("comm")).is_ok_and(|name| name == b"sa-deadlines\n")
        })
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    while runs() {
        assert!(Instant::now() < deadline, "a thread sa-deadlines is left");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_mad_that_the_core_never_returns_ends_by_its_deadline() {
    let mut core = opened("timeout 30\nretries 0\n");
    let resolved = core.resolve(&Request::destination(&Address::Lid(Lid(7))));
    let queried = core.query(&Request::path(&by_lid(8)));
    core.wait_for_sa_mads(2);
    assert_eq!(core.wait_for_answer(resolved).status, Status::ENODATA);
    assert_eq!(core.wait_for_answer(queried).status, Status::ETIMEDOUT);
    // Late MADs are freed.
    for _ in 0..2 {
        core.sa_answers_with(|_| ());
    }
    assert_eq!(core.mads(), 0);
    assert_eq!(core.answers(resolved).len(), 1);
    core.close();
    expect_no_thread_that_keeps_deadlines();
}

#[test]
fn an_answer_in_time_is_the_answer_and_the_thread_ends_with_the_port() {
    let mut core = opened("");
    let id = core.query(&Request::path(&by_lid(8)));
    core.wait_for_sa_mads(1);
    core.sa_answers_with(|_| ());
    assert_eq!(core.wait_for_answer(id).status, Status::SUCCESS);
    core.close();
    expect_no_thread_that_keeps_deadlines();
}

#[test]
fn a_close_answers_and_ends_the_thread() {
    let mut core = opened("");
    let id = core.query(&Request::path(&by_lid(8)));
    core.wait_for_sa_mads(1);
    core.close();
    assert_eq!(core.wait_for_answer(id).status, Status::ENOTCONN);
    expect_no_thread_that_keeps_deadlines();
}

#[test]
fn a_querys_deadline_starts_when_it_is_handed_over() {
    // The first MAD is presumed lost after two seconds, the second after three. The core returns neither.
    let mut core = opened("timeout 1000\nretries 0\n");
    let ids: Vec<u64> = (7..11)
        .map(|lid| core.resolve(&Request::destination(&Address::Lid(Lid(lid)))))
        .collect();
    assert_eq!(core.sa_mads().len(), 2);
    let third = core.wait_for_sa_mads(3);
    assert_eq!(third.len(), 3, "the second MAD has its own end");
    assert_eq!(core.wait_for_answer(ids[0]).status, Status::ENODATA);
    // By now the third MAD has waited longer than a MAD may be out.
    for _ in 0..3 {
        core.sa_answers_with(|_| ());
    }
    assert_eq!(core.wait_for_answer(ids[2]).status, Status::SUCCESS);
    core.sa_answers_with(|_| ());
    assert_eq!(core.wait_for_answer(ids[3]).status, Status::SUCCESS);
    assert_eq!(core.mads(), 0);
}

#[test]
fn joins_and_class_port_info_queries_go_before_path_queries() {
    let mut core = opened("");
    core.play_class_port_info(true);
    for lid in 7..11 {
        core.resolve(&Request::destination(&Address::Lid(Lid(lid))));
    }
    let handle = HANDLE.lock().clone().expect("a request came");
    let (tell, told) = std::sync::mpsc::channel();
    handle.ask_class_port_info(move |answer| {
        let _ = tell.send(answer);
    });
    core.sa_answers_with(|_| ());
    let attribute = |packet: &acm_prov_api::abi::umad_sa_packet| packet.mad_hdr.attr_id.to_host();
    let out: Vec<u16> = core.sa_mads().iter().map(attribute).collect();
    assert_eq!(out, [0x35, 0x01], "before the third path query");
    core.sa_answers_with(|_| ());
    core.sa_answers_class_port_info(true);
    let info = told.recv().expect("called").expect("an answer");
    assert!(info.has_qos());
}

#[test]
fn a_client_of_a_silent_sa_does_not_wait_for_other_queries() {
    let mut core = opened("timeout 100\nretries 0\n");
    let ids: Vec<u64> = (7..57)
        .map(|lid| core.query(&Request::path(&by_lid(lid))))
        .collect();
    for id in ids {
        assert_eq!(core.wait_for_answer(id).status, Status::ETIMEDOUT);
    }
    let asked = core.sa_mads().len();
    assert!(asked < 25, "{asked} of 50 were sent");
}

#[test]
fn a_record_that_does_not_match_the_query_is_refused() {
    let mut core = opened("");
    let other: [fn(&mut PathRecord); 4] = [
        |path| {
            path.set_dlid(Lid(9));
        },
        |path| {
            path.set_dlid(Lid(0));
        },
        |path| {
            path.set_dlid(Lid(0xc001));
        },
        |path| {
            path.set_sgid("fe80::bad".parse().unwrap());
        },
    ];
    for change in other {
        let id = core.query(&Request::path(&by_lid(8)));
        core.wait_for_sa_mads(1);
        core.sa_answers_with(change);
        assert_eq!(core.wait_for_answer(id).status, Status::ENODATA);
    }
    core.wait_for_log("SGID fe80::bad, asked for: fe80::10:1");
}
