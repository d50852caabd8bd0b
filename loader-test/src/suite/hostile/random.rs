//! Random messages that the core passes on.

use fastrand::Rng;

use crate::stand_in::StandIn;
use crate::stand_in::fabric::{Peer, gid};
use crate::stand_in::message::{
    Addr, ENTRIES, FLAG_DEST, FLAG_NODELAY, FLAG_QUERY_SA, FLAG_SOURCE, Gid, LENGTH, Message, PATH,
    Path,
};
use crate::suite::fixture::{ERRORS, Fixture, SUCCESS, reply};
use crate::suite::{Finding, Outcome, failed};

/// Fixed seed, so that a failure is reproducible; the command `fuzz` uses others.
pub(in crate::suite) const SEED: u64 = 0x1bac;
const MESSAGES: usize = 2000;

pub(super) fn run(fixture: &mut Fixture) -> Outcome {
    // Short deadlines: some destinations do not exist.
    let (core, from) = fixture.up_with(&["timeout 50", "retries 0"])?;
    let own = core.address(from).clone();
    let mut rng = Rng::with_seed(SEED);
    let asked: Vec<(usize, Message, u64)> = (0..MESSAGES)
        .map(|number| (number, random(&mut rng, &own)))
        .filter_map(|(number, message)| Some((number, message, core.ask(&message).ok()?)))
        .collect();
    for (number, message, id) in asked {
        let told = |finding: Finding| {
            finding.map_texts(|expected, seen| {
                let of = format!("message {number} of seed {SEED:#x}: {message:?}");
                (expected, format!("{seen}\n  {of}"))
            })
        };
        answered_well(core, &message, id).map_err(told)?;
    }
    Ok(())
}

fn answered_well(core: &StandIn, message: &Message, id: u64) -> Outcome {
    let answer = reply(core, id)?;
    if answer.status != SUCCESS && !ERRORS.contains(&answer.status) {
        return Err(failed(
            "a status of the protocol",
            format!("{}", answer.status),
        ));
    }
    let most = match message.code(0) {
        PATH => 0,
        _ => 1,
    };
    if answer.entries() > answer.paths() + most {
        return Err(failed(
            format!("at most {most} entries after the paths"),
            format!("{answer:?}"),
        ));
    }
    match core.replies(id).len() {
        1 => Ok(()),
        count => Err(failed("one answer", format!("{count}"))),
    }
}

fn random(rng: &mut Rng, own: &Addr) -> Message {
    let mut message = if rng.u8(0..3) > 0 {
        Message::path(&path(rng))
    } else {
        addresses(rng, own)
    };
    let flags = [0, FLAG_NODELAY, FLAG_QUERY_SA, rng.u32(..)];
    message = message.with_flags(0, one(rng, &flags) & !(FLAG_SOURCE | FLAG_DEST));
    // Behind the entries the client's buffer holds random bytes.
    let length = usize::from(message.length());
    for byte in &mut message.0[length..] {
        *byte = rng.u8(..);
    }
    let more = one(rng, &[0, 0, 1, 71, 72, 144]);
    message.set_length((length + more).min(LENGTH) as u16);
    message.with_data([rng.u8(..), rng.u8(..), rng.u8(..)])
}

/// Returns a path record of random fields, many of which name existing ports.
fn path(rng: &mut Rng) -> Path {
    let peer = Peer::number(rng.u16(1..20));
    let mut path = Path::default();
    for byte in &mut path.0 {
        if rng.u8(0..4) == 0 {
            *byte = rng.u8(..);
        }
    }
    let lids = [0, 0, peer.lid, 0xc000, 0xffff, rng.u16(..)];
    let gids = [Gid::ZERO, peer.gid(), gid(rng.u64(..))];
    let pkeys = [0, 0, 0xffff, 0x7fff, rng.u16(..)];
    path.with_dlid(one(rng, &lids))
        .with_dgid(one(rng, &gids))
        .with_sgid(Gid::ZERO)
        .with_slid(0)
        .with_pkey(one(rng, &pkeys))
}

/// Returns up to eight entries, mostly with one source and one destination.
fn addresses(rng: &mut Rng, own: &Addr) -> Message {
    let peer = Peer::number(rng.u16(1..20));
    // Few unknown addresses: a provider may send its multicast requests one at a time.
    let destinations = [
        Addr::Name(peer.name.clone()),
        Addr::Ip(peer.ip),
        Addr::Ip6(peer.ip6),
        own.clone(),
        Addr::Name("nobody".into()),
        Addr::Ip([10, 9, 9, 9].into()).with_garbage(),
    ];
    let mut message = Message::resolve();
    for _ in 0..rng.usize(1..=ENTRIES) {
        let flags = [0, 0, FLAG_SOURCE, FLAG_DEST, FLAG_DEST | FLAG_NODELAY];
        let flags = one(rng, &flags);
        let addr = if flags & FLAG_SOURCE != 0 {
            own.clone()
        } else if flags & FLAG_DEST != 0 {
            destinations[rng.usize(0..destinations.len())].clone()
        } else {
            let types = [0, 1, 2, 3, 4, 5, 6, PATH, 0xffff];
            Addr::Raw(one(rng, &types), Box::new([rng.u8(..); 64]))
        };
        message = message.with_entry(flags, addr.code(), &addr.field());
    }
    message
}

fn one<T: Copy>(rng: &mut Rng, choices: &[T]) -> T {
    choices[rng.usize(0..choices.len())]
}
