//! A provider with a policy is right if the SA returns its answers.

use std::sync::Arc;

use acm_prov_api::prelude::*;
use acm_prov_api::provider_table;
use loader_test::stand_in::FIRST_PORT;
use loader_test::stand_in::fabric::Peer;
use loader_test::stand_in::in_process::InProcess;
use loader_test::stand_in::ledger::ViolationKind;

use super::by_lid;

/// Asks for SL 2 and, where the SA refuses that, for SL 3. With `policy_claims` it says SL 2 without having asked.
struct Policy {
    claims: bool,
}

const SLS: [u8; 2] = [2, 3];

impl Provider for Policy {
    const NAME: &CStr = c"policy";
    type Endpoint = NoContext;

    fn load(_: &Host, options: &Options) -> Result<Self, Error> {
        let claims = options.named("policy_claims").text("no") == "yes";
        Ok(Self { claims })
    }

    fn resolve(&self, from: &LocalAddress<Self>, request: ResolveRequest) {
        let endpoint = Arc::new(from.endpoint().handle().clone());
        let again = Arc::clone(&endpoint);
        let request = request.keep();
        let mut query = request.path_query();
        if self.claims {
            endpoint.ask_path(&query, move |answer| match answer {
                Ok(mut path) => {
                    path.set_sl(SLS[0]);
                    request.answer(&path);
                }
                Err(_) => request.refuse(Status::ENODATA),
            });
            return;
        }
        query.set_sl(SLS[0]);
        endpoint.ask_path(&query, move |answer| match answer {
            Ok(path) => request.answer(&path),
            Err(_) => {
                query.set_sl(SLS[1]);
                again.ask_path(&query, move |answer| match answer {
                    Ok(path) => request.answer(&path),
                    Err(_) => request.refuse(Status::ENODATA),
                });
            }
        });
    }
}

provider_table!(Policy);

/// Peers that grant both SLs, one of them, and none.
const REFUSED: [(u16, &[u8]); 3] = [(1, &[]), (2, &[2]), (3, &[2, 3])];

#[test]
fn what_the_sa_gives_for_the_answers_own_values_is_right() {
    let mut core = InProcess::load::<Policy>(&[]).expect("policy loads");
    core.judge_answers(true);
    for (number, sls) in REFUSED {
        core.refuse_sls(&Peer::number(number), sls);
    }
    let from = core.up(FIRST_PORT).expect("the port opens");
    let mut ask = |number| {
        let id = core.resolve_from(from, &by_lid(&Peer::number(number)));
        let reply = core.reply(id).expect("an answer");
        assert_eq!(core.judge(id), Ok(()));
        (reply.status, reply.path().map(|path| path.qos_sl()))
    };
    assert_eq!(ask(1), (0, Some(2)));
    assert_eq!(ask(2), (0, Some(3)));
    assert_eq!(ask(3), (3, None));
    assert_eq!(core.finish(), []);
}

#[test]
fn what_the_sa_does_not_give_is_wrong() {
    let mut core = InProcess::load::<Policy>(&["policy_claims yes"]).expect("policy loads");
    core.judge_answers(true);
    core.refuse_sls(&Peer::number(2), &SLS);
    let from = core.up(FIRST_PORT).expect("the port opens");
    let judged = [1, 2].map(|number| {
        let id = core.resolve_from(from, &by_lid(&Peer::number(number)));
        core.reply(id).expect("an answer");
        core.judge(id).is_ok()
    });
    assert_eq!(judged, [true, false]);
    let kinds: Vec<_> = core.finish().iter().map(|breach| breach.kind).collect();
    assert_eq!(kinds, [ViolationKind::WrongAnswer]);
}
