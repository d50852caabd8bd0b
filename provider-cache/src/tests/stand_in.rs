//! The provider under the stand-in core, which has its own SA.

use acm_stand_in::FIRST_PORT;
use acm_stand_in::fabric::Peer;
use acm_stand_in::in_process::InProcess;
use acm_stand_in::message::{Addr, Message, Path};
use acm_stand_in::sa::Reaction;

use acm_prov_api::policy::PolicyProvider;

use crate::PathCache;

#[test]
fn a_storm_is_one_query_and_leaves_no_open_requests() {
    let mut core = InProcess::load::<PolicyProvider<PathCache>>(&[]).expect("path-cache loads");
    let from = core.up(FIRST_PORT).expect("the port opens");
    core.sa().script(|_| Reaction::Hold);
    let peer = Peer::number(5);
    let by_lid = Message::path(&Path::default().with_dlid(peer.lid));
    let source = core.address(from).clone();
    let by_name = Message::destination(Some(&source), &Addr::Name(peer.name));
    let mut ids: Vec<u64> = (0..20).map(|_| core.resolve_from(from, &by_lid)).collect();
    ids.push(core.ask(&by_name).expect("a request that the core takes"));
    let questions = core.path_queries(1).expect("a query");
    core.sa().script(|_| Reaction::Answer);
    core.sa().release(questions[0].number, Reaction::Answer);
    for id in ids {
        let path = core.reply(id).and_then(|reply| reply.path());
        assert_eq!(path.expect("a path").dlid(), peer.lid);
    }
    // By LID and by GID.
    assert!(core.sa().path_queries().len() <= 2);
    assert_eq!(core.finish(), []);
}
