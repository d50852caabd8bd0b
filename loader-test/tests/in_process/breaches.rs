//! A provider's violations are in the ledger of its core.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use acm_prov_api::prelude::*;
use acm_prov_api::provider_table;
use loader_test::stand_in::FIRST_PORT;
use loader_test::stand_in::fabric::Peer;
use loader_test::stand_in::in_process::InProcess;
use loader_test::stand_in::ledger::{Violation, ViolationKind};

use super::by_lid;

/// Treats a request as its LID says.
struct Odd {
    kept: Mutex<Vec<KeptRequest>>,
}

/// Holds the caller's thread for so many milliseconds: the first of three LIDs for 50, the second for 300.
const SLOW: [(u16, u64); 2] = [(1, 50), (2, 300)];
/// Answered after so many milliseconds.
const LATE: (u16, u64) = (3, 3000);
/// Kept for ever.
const KEPT: u16 = 4;

impl Provider for Odd {
    const NAME: &CStr = c"odd";
    type Endpoint = NoContext;

    fn load(_: &Host, _: &Options) -> Result<Self, Error> {
        let kept = Mutex::default();
        Ok(Self { kept })
    }

    fn resolve(&self, _: &LocalAddress<Self>, request: ResolveRequest) {
        let Address::Lid(lid) = request.destination() else {
            return request.refuse(Status::EDESTTYPE);
        };
        let number = lid.0 - Peer::number(0).lid;
        if let Some((_, milliseconds)) = SLOW.iter().find(|(slow, _)| *slow == number) {
            std::thread::sleep(Duration::from_millis(*milliseconds));
        }
        match number {
            KEPT => self
                .kept
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(request.keep()),
            number if number == LATE.0 => {
                let request = request.keep();
                std::thread::spawn(|| {
                    std::thread::sleep(Duration::from_millis(LATE.1));
                    request.refuse(Status::ETIMEDOUT);
                });
            }
            _ => request.refuse(Status::ENODATA),
        }
    }
}

provider_table!(Odd);

/// Returns the violations after one request for each of these peers.
fn breaches(peers: &[u16]) -> Vec<Violation> {
    let mut core = InProcess::load::<Odd>(&["timeout 200", "retries 0"]).expect("odd loads");
    let from = core.up(FIRST_PORT).expect("the port opens");
    for number in peers {
        let id = core.resolve_from(from, &by_lid(&Peer::number(*number)));
        if *number == KEPT {
            // No answer will come.
            core.patience = core.deadline();
        } else {
            core.reply(id).expect("an answer");
        }
    }
    core.finish()
}

fn kinds(breaches: &[Violation]) -> Vec<ViolationKind> {
    breaches.iter().map(|breach| breach.kind).collect()
}

#[test]
fn a_callback_that_holds_the_cores_thread_is_named() {
    for (number, milliseconds) in SLOW {
        let breaches = breaches(&[number, number]);
        assert_eq!(kinds(&breaches), [ViolationKind::BlockedCore]);
        assert!(breaches[0].text.starts_with("resolve held"), "{breaches:?}");
        assert!(
            breaches[0].text.contains("20ms"),
            "{milliseconds}: {breaches:?}"
        );
        // One slow call may be the machine's fault.
        assert_eq!(self::breaches(&[number]), []);
    }
}

#[test]
fn an_answer_long_after_its_deadline_is_a_breach() {
    assert_eq!(kinds(&breaches(&[LATE.0])), [ViolationKind::AnsweredLate]);
}

#[test]
fn a_provider_that_has_shown_a_longer_deadline_is_judged_by_it() {
    let mut core = InProcess::load::<Odd>(&["timeout 200", "retries 0"]).expect("odd loads");
    core.set_deadline(Duration::from_millis(LATE.1));
    let from = core.up(FIRST_PORT).expect("the port opens");
    let id = core.resolve_from(from, &by_lid(&Peer::number(LATE.0)));
    assert!(core.reply(id).is_some());
    assert_eq!(core.finish(), []);
}

#[test]
fn a_request_that_is_kept_for_ever_is_in_the_ledger_of_its_own_core() {
    let kept = breaches(&[KEPT]);
    assert_eq!(
        kinds(&kept),
        [ViolationKind::DroppedRequest, ViolationKind::NeverAnswered]
    );
    // The next core does not count it.
    assert_eq!(breaches(&[9]), []);
}

#[test]
fn an_answer_for_a_core_that_is_gone_is_in_no_other_ledger() {
    let mut core = InProcess::load::<Odd>(&["timeout 200", "retries 0"]).expect("odd loads");
    core.patience = core.deadline();
    let from = core.up(FIRST_PORT).expect("the port opens");
    core.resolve_from(from, &by_lid(&Peer::number(LATE.0)));
    assert_eq!(kinds(&core.finish()), [ViolationKind::NeverAnswered]);
    let core = InProcess::load::<Odd>(&[]).expect("odd loads");
    // It comes while this one is there.
    std::thread::sleep(Duration::from_millis(LATE.1));
    assert_eq!(core.finish(), []);
}
