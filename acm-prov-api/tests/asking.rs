//! A provider that asks the SA without the cache engine: what its clients can rely on.

use std::time::{Duration, Instant};

use acm_prov_api::prelude::*;
use acm_prov_api::provider_table;
use acm_prov_api::testing::{Request, TestCore};

/// Asks the SA for each LID, and leaves queries to the SDK.
struct Asking;

impl Provider for Asking {
    const NAME: &CStr = c"asking";
    type Endpoint = Plain;

    fn load(_: &Host, _: &Options) -> Result<Self, Error> {
        Ok(Asking)
    }

    fn resolve(&self, from: &LocalAddress<Self>, request: ResolveRequest) {
        let Address::Lid(lid) = request.destination() else {
            return request.refuse(Status::EDESTTYPE);
        };
        let mut wanted = PathRecord::default();
        wanted.set_dlid(lid);
        let asked = from
            .endpoint()
            .handle()
            .ask_path(&wanted, |answer| match answer {
                Ok(path) => request.answer(&path),
                Err(_) => request.refuse(Status::ENODATA),
            });
        if let Err(error) = asked {
            panic!("{error}");
        }
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

/// Waits for the end of the thread that keeps deadlines.
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
fn nobody_waits_for_a_mad_that_never_comes_back() {
    let mut core = opened("timeout 30\nretries 0\n");
    let resolved = core.resolve(&Request::destination(&Address::Lid(Lid(7))));
    let queried = core.query(&Request::path(&by_lid(8)));
    core.wait_for_sa_questions(2);
    assert_eq!(core.wait_for_answer(resolved).status, Status::ENODATA);
    assert_eq!(core.wait_for_answer(queried).status, Status::ETIMEDOUT);
    expect_no_thread_that_keeps_deadlines();
    // Late ones find nobody, and are freed.
    for _ in 0..2 {
        core.sa_answers_with(|_| ());
    }
    assert_eq!(core.mads(), 0);
    assert_eq!(core.answers(resolved).len(), 1);
}

#[test]
fn an_answer_in_time_is_the_answer_and_ends_the_thread() {
    let mut core = opened("");
    let id = core.query(&Request::path(&by_lid(8)));
    core.wait_for_sa_questions(1);
    core.sa_answers_with(|_| ());
    assert_eq!(core.wait_for_answer(id).status, Status::SUCCESS);
    expect_no_thread_that_keeps_deadlines();
}

#[test]
fn a_close_answers_and_ends_the_thread() {
    let mut core = opened("");
    let id = core.query(&Request::path(&by_lid(8)));
    core.wait_for_sa_questions(1);
    core.close();
    assert_eq!(core.wait_for_answer(id).status, Status::ENOTCONN);
    expect_no_thread_that_keeps_deadlines();
}

#[test]
fn a_record_that_was_not_asked_for_is_no_answer() {
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
        core.wait_for_sa_questions(1);
        core.sa_answers_with(change);
        assert_eq!(core.wait_for_answer(id).status, Status::ENODATA);
    }
    core.wait_for_log("which was not asked for");
}
