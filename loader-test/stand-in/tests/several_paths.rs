//! Answers with several paths: their flags, their order, how many fit, and the source after them.

use acm_prov_api::abi::{
    IBV_PATH_FLAG_ALTERNATE, IBV_PATH_FLAG_BIDIRECTIONAL, IBV_PATH_FLAG_GMP, IBV_PATH_FLAG_PRIMARY,
};
use acm_prov_api::prelude::*;
use acm_prov_api::provider_table;
use acm_stand_in::FIRST_PORT;
use acm_stand_in::in_process::InProcess;
use acm_stand_in::message::{Addr, Message, Path, Reply};

/// Answers with as many paths as the destination LID says, ten to a name.
struct Several;

impl Provider for Several {
    const NAME: &CStr = c"several";
    type Endpoint = NoContext;

    fn load(_: &Host, _: &Options) -> Result<Self, Error> {
        Ok(Self)
    }

    fn resolve(&self, _: &LocalAddress<Self>, request: ResolveRequest) {
        let count = match request.destination() {
            Address::Lid(Lid(count)) => count - 1,
            _ => 10,
        };
        let paths: Vec<_> = (0..count).map(|number| path(100 + number)).collect();
        request.answer_all(&paths);
    }
}

provider_table!(Several);

fn path(dlid: u16) -> PathRecord {
    let mut path = PathRecord::default();
    path.set_dlid(Lid(dlid));
    path
}

fn answered(message: &Message, source_is_chosen: bool) -> Reply {
    let mut core = InProcess::load::<Several>(&[]).expect("it loads");
    let from = core.up(FIRST_PORT).expect("the port opens");
    let id = match source_is_chosen {
        true => core.ask(message).expect("a source"),
        false => core.resolve_from(from, message),
    };
    core.reply(id).expect("an answer")
}

/// What an answer's entries say: flags and DLID, of paths.
fn paths(reply: &Reply) -> Vec<(u32, Lid)> {
    let entries = (0..reply.paths()).map(|index| reply.entry(index).unwrap());
    let shown = entries.map(|(flags, _, field)| (flags, PathRecord::from_bytes(&field).dlid()));
    shown.collect()
}

fn expected(count: u16) -> Vec<(u32, Lid)> {
    let flags = |number| match number {
        0 => IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY,
        _ => IBV_PATH_FLAG_ALTERNATE,
    };
    (0..count)
        .map(|number| {
            (
                flags(number) | IBV_PATH_FLAG_BIDIRECTIONAL,
                Lid(100 + number),
            )
        })
        .collect()
}

#[test]
fn the_first_path_is_primary_and_the_others_are_alternate_as_many_as_fit() {
    // A LID of one more than the paths: LID 0 is none.
    for (count, fit) in [(1, 1), (2, 2), (8, 8), (9, 8), (200, 8)] {
        let reply = answered(&Message::path(&Path::default().with_dlid(count + 1)), false);
        assert_eq!(reply.status, 0);
        assert_eq!(paths(&reply), expected(fit), "{count}");
        assert_eq!(reply.entries(), usize::from(fit));
    }
}

#[test]
fn no_path_is_no_data() {
    let reply = answered(&Message::path(&Path::default().with_dlid(1)), false);
    assert_eq!(reply.status, Status::ENODATA.0);
    assert_eq!(reply.entries(), 0);
}

#[test]
fn the_source_that_the_core_chose_follows_the_paths() {
    let peer = Addr::Ip(acm_stand_in::fabric::Peer::number(3).ip);
    let reply = answered(&Message::destination(None, &peer), true);
    assert_eq!(paths(&reply), expected(7));
    assert_eq!(reply.entries(), 8);
    let (_, code, _) = reply.entry(7).expect("the source");
    assert_eq!(code, peer.code());
}

#[test]
fn the_kernel_gets_one_path() {
    let mut core = InProcess::load::<Several>(&[]).expect("it loads");
    let from = core.up(FIRST_PORT).expect("the port opens");
    let id = core.kernel_asks(from, &Path::default().with_dlid(4));
    assert_eq!(core.reply(id).expect("an answer").entries(), 1);
}
