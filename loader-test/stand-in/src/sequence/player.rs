//! Plays a sequence to a provider.

use std::time::{Duration, Instant};

use fastrand::Rng;

use super::datagrams::Datagrams;
use super::truth::{Asked, Truth};
use super::{Action, MadMood, SaMood};
use crate::fabric::{Peer, PortSpec};
use crate::ledger::{Harmed, Violation, ViolationKind};
use crate::message::{Addr, HEADER, LENGTH, Message, Path};
use crate::sa::Reaction;
use crate::{AddressId, FIRST_PORT, MadFaults, StandIn};

/// Longest wait of [`Action::Settle`].
const SETTLES: Duration = Duration::from_millis(150);
/// Maximum number of counters.
const COUNTERS: u8 = 7;

/// The state of a session.
pub struct Player<'a> {
    core: &'a mut StandIn,
    from: Option<AddressId>,
    added: Vec<(u16, AddressId)>,
    moved: Vec<(u16, u16)>,
    sa_mood: SaMood,
    mad_mood: MadMood,
    last: Option<u64>,
    datagrams: Datagrams,
    truth: Truth,
    asked: Vec<Asked>,
    violations: Vec<Violation>,
}

/// Plays a sequence, closes everything, and returns all violations of the contract.
pub fn play(core: &mut StandIn, actions: &[Action]) -> Vec<Violation> {
    let mut player = Player::new(core);
    player.play(actions);
    player.finish()
}

impl<'a> Player<'a> {
    /// Creates a player for a core with nothing open.
    pub fn new(core: &'a mut StandIn) -> Self {
        let datagrams = Datagrams::new(core.wire(FIRST_PORT));
        let mut truth = Truth::default();
        truth.changes(Instant::now(), Some(core.subnet()));
        Self {
            core,
            from: None,
            added: Vec::new(),
            moved: Vec::new(),
            sa_mood: SaMood::Well,
            mad_mood: MadMood::Well,
            last: None,
            datagrams,
            truth,
            asked: Vec::new(),
            violations: Vec::new(),
        }
    }

    /// Plays these actions.
    pub fn play(&mut self, actions: &[Action]) {
        for action in actions {
            self.act(action);
        }
    }

    /// Lets the SA respond to all outstanding queries, closes everything, and returns the violations so far.
    pub fn finish(mut self) -> Vec<Violation> {
        self.core.fail_mads(MadFaults::default());
        self.core.sa().script(|_| Reaction::Answer);
        let mut violations = self.core.finish();
        self.judge_answers();
        violations.append(&mut self.violations);
        violations
    }

    fn act(&mut self, action: &Action) {
        match action {
            Action::Up => self.up(),
            Action::Down => self.down(),
            Action::NewLid(lid) => {
                let lid = *lid;
                if self.from.is_none() {
                    self.change_subnet(|port| port.lid = lid);
                }
            }
            Action::AddAddress(number) => self.add(*number),
            Action::RemoveAddress(number) => self.remove(*number),
            Action::Reregister => self.reregister(),
            Action::Event(event) => {
                if self.from.is_some() {
                    self.core.event(FIRST_PORT, *event);
                }
            }
            Action::PeerMoves { peer, lid } => {
                self.moved.retain(|(known, at)| known != peer && at != lid);
                self.moved.push((*peer, *lid));
                self.place_moved(Instant::now());
                self.reregister();
            }
            Action::Resolve {
                peer,
                by_gid,
                flags,
            } => {
                let peer = Peer::number(*peer);
                let wanted = match by_gid {
                    true => Path::default().with_dgid(peer.gid()),
                    false => Path::default().with_dlid(peer.lid),
                };
                self.ask_path(&wanted, &Message::path(&wanted).with_flags(0, *flags));
            }
            Action::ResolveName { peer } => {
                let source = Addr::Name("self1".into());
                let peer = Addr::Name(Peer::number(*peer).name);
                self.ask(&Message::destination(Some(&source), &peer));
            }
            Action::Query { peer } => {
                let wanted = Path::default().with_dlid(Peer::number(*peer).lid);
                self.ask_path(&wanted, &Message::query(&wanted));
            }
            Action::Hostile { seed } => {
                if let Some(from) = self.from {
                    self.last = Some(self.core.resolve_from(from, &hostile(*seed)));
                }
            }
            Action::Datagram { seed } => self.datagrams.send(*seed),
            Action::Leave => {
                if let Some(id) = self.last {
                    self.core.client_leaves(id);
                }
            }
            Action::Sa(mood) => self.mood(*mood),
            Action::Mads(mood) => {
                self.mad_mood = *mood;
                if *mood != MadMood::Well {
                    self.truth.is_troubled();
                }
                self.core.fail_mads(MadFaults {
                    no_memory: *mood == MadMood::NoMemory,
                    refuse: *mood == MadMood::Refused,
                    only_call: None,
                });
            }
            Action::Settle => self.settle(),
            Action::Wait(milliseconds) => {
                std::thread::sleep(Duration::from_millis((*milliseconds).into()));
            }
            Action::Perf => self.perf(),
        }
    }

    fn up(&mut self) {
        if self.from.is_some() {
            return;
        }
        // A provider may fail to open while the core's functions fail; the core retries at the next event.
        self.from = self.core.up(FIRST_PORT).ok();
        let in_trouble = self.sa_mood != SaMood::Well || self.mad_mood != MadMood::Well;
        self.truth.is_opened(in_trouble);
        if self.from.is_none() {
            self.core.port_down(FIRST_PORT);
        }
    }

    fn down(&mut self) {
        if self.from.take().is_some() {
            self.core.port_down(FIRST_PORT);
            self.added.clear();
        }
    }

    fn reregister(&mut self) {
        if self.from.is_some() {
            self.core.reregister(FIRST_PORT);
            self.truth.is_flushed();
        }
    }

    /// Changes this node's port, and applies the peers' new LIDs.
    fn change_subnet(&mut self, change: impl FnOnce(&mut PortSpec)) {
        // Answers with new paths may come before the change is complete.
        let since = Instant::now();
        self.core.change_port(FIRST_PORT, change);
        self.place_moved(since);
    }

    /// Passes the LIDs of moved peers to the SA.
    fn place_moved(&mut self, since: Instant) {
        let at = |(peer, lid): &(u16, u16)| PortSpec::new(Peer::number(*peer).guid, *lid);
        self.core
            .set_neighbours(self.moved.iter().map(at).collect());
        self.note_truth(since);
    }

    fn note_truth(&mut self, since: Instant) {
        let is_confused = self.sa_mood == SaMood::Confused;
        let subnet = (!is_confused).then(|| self.core.subnet());
        self.truth.changes(since, subnet);
    }

    fn add(&mut self, number: u16) {
        if self.from.is_none() || self.added.iter().any(|(known, _)| *known == number) {
            return;
        }
        let name = Addr::Name(format!("extra{number}"));
        if let Ok(id) = self.core.add_address(FIRST_PORT, 0xffff, &name) {
            self.added.push((number, id));
        }
    }

    fn remove(&mut self, number: u16) {
        if let Some(index) = self.added.iter().position(|(known, _)| *known == number) {
            let (_, id) = self.added.swap_remove(index);
            self.core.remove_address(id);
        }
    }

    fn ask(&mut self, message: &Message) -> Option<u64> {
        self.from?;
        let id = self.core.ask(message).ok()?;
        self.last = Some(id);
        Some(id)
    }

    fn ask_path(&mut self, path: &Path, message: &Message) {
        let at = Instant::now();
        if let Some(id) = self.ask(message) {
            let path = *path;
            self.asked.push(Asked { id, path, at });
        }
    }

    fn mood(&mut self, mood: SaMood) {
        let was_confused = self.sa_mood == SaMood::Confused;
        self.sa_mood = mood;
        if was_confused != (mood == SaMood::Confused) {
            self.note_truth(Instant::now());
        }
        if mood != SaMood::Well {
            self.truth.is_troubled();
        }
        let sa = self.core.sa();
        match mood {
            SaMood::Well => sa.script(|_| Reaction::Answer),
            SaMood::Refuses(status) => sa.script(move |_| Reaction::Status(status)),
            SaMood::Silent => sa.script(|_| Reaction::Silence),
            SaMood::Slow(ms) => {
                let wait = Duration::from_millis(ms.into());
                sa.script(move |_| Reaction::After(wait, Box::new(Reaction::Answer)));
            }
            SaMood::Never => sa.script(|_| Reaction::Never),
            SaMood::Confused => sa.script(|_| Reaction::Record(Path::default().with_dlid(1))),
        }
    }

    fn settle(&self) {
        let deadline = Instant::now() + SETTLES;
        let mut pause = Duration::from_millis(1);
        while !self.core.sa().is_idle() && Instant::now() < deadline {
            std::thread::sleep(pause);
            // Waiting for a deadline costs little processor time.
            pause *= 2;
        }
    }

    fn perf(&mut self) {
        let Some(from) = self.from else { return };
        let count = self.core.query_perf(FIRST_PORT, from.pkey);
        if let Some((count, _)) = count.filter(|(count, _)| *count > COUNTERS) {
            self.violations.push(Violation {
                kind: ViolationKind::UnknownCounter,
                harmed: Harmed::Operator,
                text: format!("query_perf has {count} counters; there are {COUNTERS}"),
            });
        }
    }

    /// Judges the answers by the SA's records at their time.
    fn judge_answers(&mut self) {
        for asked in &self.asked {
            let (Some(reply), Some(waited)) = (
                self.core.replies(asked.id).into_iter().next(),
                self.core.waited(asked.id),
            ) else {
                continue;
            };
            let Some(answer) = reply.path().filter(|_| reply.status == 0) else {
                continue;
            };
            // Noted before the request was sent, so a little early.
            let answered = asked.at + waited + Duration::from_millis(1);
            if !self.truth.allows(asked, answered, &answer) {
                self.violations.push(Violation {
                    kind: ViolationKind::WrongAnswer,
                    harmed: Harmed::Client,
                    text: format!(
                        "client {} requested {:?} and got {answer:?}, which is no record of the SA since the last event",
                        asked.id, asked.path
                    ),
                });
            }
        }
    }
}

/// Returns a message with random bytes in the fields that a provider reads.
fn hostile(seed: u64) -> Message {
    let mut rng = Rng::with_seed(seed);
    let mut message = Message::resolve();
    for byte in &mut message.0[HEADER..LENGTH] {
        *byte = rng.u8(..);
    }
    for entry in 0..8 {
        // Valid types, more often than by chance.
        let at = HEADER + entry * 72;
        let code = *rng
            .choice(&[1_u16, 2, 3, 4, 5, 16, 0, 6, 0xffff])
            .unwrap_or(&1);
        message.0[at + 4..at + 6].copy_from_slice(&code.to_ne_bytes());
    }
    message.set_length(
        *rng.choice(&[16_u16, 88, 160, 592, 17, 0, 600, 0xffff])
            .unwrap_or(&88),
    );
    message.with_data([rng.u8(..2), rng.u8(..10), rng.u8(..10)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_the_same_for_the_same_seed() {
        assert_eq!(hostile(3).0, hostile(3).0);
        assert_ne!(hostile(3).0[..], hostile(4).0[..]);
    }
}
