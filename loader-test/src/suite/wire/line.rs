//! The fixture of this family: a port that is up, its cable, and the nodes at the other end.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::stand_in::fabric::{DeviceSpec, Peer};
use crate::stand_in::message::{Addr, Message, Reply};
use crate::stand_in::sa::SaRequest;
use crate::stand_in::wire::{ANSWER, AcmMad, Datagram, Node, REQUEST, Wire, shared_group};
use crate::stand_in::{AddressId, FIRST_PORT, StandIn};
use crate::suite::fixture::{Fixture, by_addr, expect_path, expected_path, refused, reply};
use crate::suite::{Finding, Outcome, failed};

/// Retry interval of a node: a receive may not have been posted.
pub const ASK_AGAIN: Duration = Duration::from_millis(50);
/// Number of nodes for probing requests; no node sends two in a row.
const PROBES: [u16; 3] = [500, 501, 502];

/// A port in the default partition whose provider speaks the protocol, with access to both sides.
pub struct Line<'a> {
    /// The core.
    pub core: &'a mut StandIn,
    /// The source address of clients.
    pub from: AddressId,
    /// The cable.
    pub wire: Wire,
    /// The provider's queue pair.
    pub qpn: u32,
    next_tid: Cell<u64>,
}

/// The name that the core gives to the first port.
pub fn own_name() -> Addr {
    Addr::Name("self1".into())
}

/// The IP address that the core gives to the first port.
pub fn own_ip() -> Addr {
    Addr::Ip([10, 1, 0, 201].into())
}

/// A peer that the SA knows but no hosts file names.
pub fn stranger(number: u16) -> Peer {
    Peer::number(100 + number)
}

/// Starts the default core.
///
/// # Errors
/// A skip if the provider does not speak the protocol; a failure if something does not open or the port does not answer.
pub fn line<'a>(fixture: &'a mut Fixture, options: &[&str]) -> Result<Line<'a>, Finding> {
    let options = [fixture.unhurried(), options].concat();
    let core = fixture.core_with(vec![DeviceSpec::single()], &options)?;
    let wire = core.wire(FIRST_PORT);
    let from = core.up(FIRST_PORT).map_err(refused)?;
    core.settle();
    speaks(core, &wire, core.port(FIRST_PORT).pkeys[0])?;
    let mut line = Line {
        core,
        from,
        wire,
        qpn: 0,
        next_tid: Cell::new(0x7e57_0000_0000_0001),
    };
    line.qpn = line.probe(PROBES[0])?.source_qp;
    Ok(line)
}

/// Skips the check for a provider that does not speak the protocol.
///
/// # Errors
/// A skip, or a failure if the provider sent the join but is not a member.
pub fn speaks(core: &StandIn, wire: &Wire, pkey: u16) -> Outcome {
    if wire.queue_pairs() == 0 {
        return Err(Finding::Skipped("the provider makes no queue pair".into()));
    }
    let group = shared_group(pkey);
    // Some providers join later.
    let deadline = Instant::now() + core.patience;
    while !wire.groups().contains(&group) {
        if Instant::now() > deadline {
            core.note_timeout();
            let asked =
                |question: &SaRequest| question.is_join() && question.record.starts_with(&group.0);
            if core.sa().requests().iter().any(asked) {
                let expected = format!(
                    "a member of the stock provider's group within {:?}",
                    core.patience
                );
                return Err(failed(
                    expected,
                    "the provider sent the join, but the port is no member",
                ));
            }
            let text = "the provider makes a queue pair, but does not join the stock provider's multicast group";
            return Err(Finding::Skipped(text.into()));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Parses what the port sent as a message of the protocol.
pub fn mad(datagram: &Datagram) -> Option<AcmMad> {
    AcmMad::read(&datagram.payload)
}

/// Whether it is the response to a request.
pub fn answers(datagram: &Datagram, tid: u64) -> bool {
    mad(datagram).is_some_and(|mad| mad.method() == ANSWER && mad.tid() == tid)
}

/// Whether it is a request for an address.
pub fn asks_for(datagram: &Datagram, wanted: &Addr) -> bool {
    let (code, field) = (wanted.code(), wanted.field());
    mad(datagram).is_some_and(|mad| {
        let (seen, bytes) = mad.destination();
        mad.method() == REQUEST && seen == code && bytes.eq_ignore_ascii_case(&field)
    })
}

/// Describes datagrams.
pub fn shown(datagrams: &[Datagram]) -> String {
    if datagrams.is_empty() {
        return "nothing".into();
    }
    let one = |datagram: &Datagram| match mad(datagram) {
        Some(mad) => format!(
            "to LID {}, queue pair {:#x}: {mad:?}",
            datagram.destination_lid, datagram.destination_qp
        ),
        None => format!("{} bytes", datagram.payload.len()),
    };
    datagrams.iter().map(one).collect::<Vec<_>>().join("; ")
}

impl Line<'_> {
    /// Returns a new transaction id.
    pub fn tid(&self) -> u64 {
        let tid = self.next_tid.get();
        self.next_tid.set(tid.wrapping_add(0x0001_0000_0001));
        tid
    }

    /// The partition.
    pub fn pkey(&self) -> u16 {
        self.from.pkey
    }

    /// Returns a node's request for an address, with its name as source.
    pub fn request(&self, tid: u64, from: &Peer, wanted: &Addr) -> AcmMad {
        let source = Addr::Name(from.name.clone());
        AcmMad::request(tid, wanted, &source, &[shared_group(self.pkey())])
    }

    /// Sends a datagram from a node to the group.
    pub fn multicast(&self, from: &Peer, payload: &[u8]) {
        let datagram = Wire::to_group(&Node::of(from), self.pkey(), payload);
        self.wire.send(&datagram);
    }

    /// Sends a datagram from a node to the provider.
    pub fn unicast(&self, from: &Peer, payload: &[u8]) {
        let datagram = self
            .wire
            .to_pair(&Node::of(from), self.pkey(), self.qpn, payload);
        self.wire.send(&datagram);
    }

    /// Sends a node's request for an address to the group; returns the transaction id.
    pub fn ask(&self, from: &Peer, wanted: &Addr) -> u64 {
        let tid = self.tid();
        self.multicast(from, &self.request(tid, from, wanted).0);
        tid
    }

    /// Waits for the response to a node's request.
    ///
    /// # Errors
    /// If none comes.
    pub fn answer_to(&self, tid: u64) -> Result<Datagram, Finding> {
        self.wire
            .wait(self.core.patience, |sent| answers(sent, tid))
            .ok_or_else(|| {
                self.core.note_timeout();
                failed(
                    format!("an answer with transaction id {tid:#x}"),
                    shown(&self.wire.take()),
                )
            })
    }

    /// Sends a node's requests for the port's name until the port responds; returns the response. Other datagrams are kept.
    ///
    /// # Errors
    /// If none comes.
    pub fn probe(&self, number: u16) -> Result<Datagram, Finding> {
        self.asked_until_answered(number, self.core.patience)
            .ok_or_else(|| {
                self.core.note_timeout();
                failed("an answer to a request for the port's own name", "none")
            })
    }

    /// Does the same with a node that got a response before, with a short wait: some providers query the SA first.
    pub fn probe_within(&self, patience: Duration) {
        self.asked_until_answered(PROBES[0], patience);
    }

    fn asked_until_answered(&self, number: u16, patience: Duration) -> Option<Datagram> {
        let peer = Peer::number(number);
        let deadline = Instant::now() + patience;
        let mut tids = Vec::new();
        while Instant::now() < deadline {
            tids.push(self.ask(&peer, &own_name()));
            let is_answer = |sent: &Datagram| tids.iter().any(|tid| answers(sent, *tid));
            if let Some(answer) = self.wire.wait(ASK_AGAIN, is_answer) {
                return Some(answer);
            }
        }
        None
    }

    /// Waits until the provider has handled all earlier datagrams: it answers a later request, and another one after the SA is
    /// idle.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn fence(&self) -> Outcome {
        self.probe(PROBES[1])?;
        self.core.settle();
        self.probe(PROBES[2])?;
        Ok(())
    }

    /// Fails if the provider answered a request.
    ///
    /// # Errors
    /// If it did, or if it no longer answers any request.
    pub fn expect_no_answer(&self, tid: u64, to: &str) -> Outcome {
        self.fence()?;
        let sent = self.wire.take();
        if sent.iter().any(|sent| answers(sent, tid)) {
            return Err(failed(format!("no answer to {to}"), shown(&sent)));
        }
        Ok(())
    }

    /// Sends a client's request for another node's address.
    pub fn client_asks(&mut self, wanted: &Addr) -> u64 {
        let message: Message = by_addr(&own_ip(), wanted);
        self.core.resolve_from(self.from, &message)
    }

    /// Waits for the provider's request for an address.
    ///
    /// # Errors
    /// If it does not come.
    pub fn request_for(&self, wanted: &Addr) -> Result<(Datagram, AcmMad), Finding> {
        let request = self
            .wire
            .wait(self.core.patience, |sent| asks_for(sent, wanted));
        request
            .and_then(|datagram| Some((datagram.clone(), mad(&datagram)?)))
            .ok_or_else(|| {
                self.core.note_timeout();
                failed(
                    format!("a request for {wanted} to the group"),
                    shown(&self.wire.take()),
                )
            })
    }

    /// Sends a node's response to a request, as the stock provider does.
    pub fn answer(&self, from: &Peer, tid: u64) {
        self.unicast(from, &AcmMad::answer(tid, &shared_group(self.pkey())).0);
    }

    /// Waits for a client's answer, which must be the path to a peer.
    ///
    /// # Errors
    /// If it is not.
    pub fn expect_path_to(&self, id: u64, peer: &Peer) -> Outcome {
        expect_path(&self.reply(id)?, &expected_path(self.core, peer))
    }

    /// Waits for a client's answer.
    ///
    /// # Errors
    /// If none comes.
    pub fn reply(&self, id: u64) -> Result<Reply, Finding> {
        reply(self.core, id)
    }

    /// Lets a client resolve a peer's name, and the peer respond; returns the request.
    ///
    /// # Errors
    /// If the client does not get the path.
    pub fn resolves(&mut self, peer: &Peer) -> Result<AcmMad, Finding> {
        let wanted = Addr::Name(peer.name.clone());
        let id = self.client_asks(&wanted);
        let (_, request) = self.request_for(&wanted)?;
        self.answer(peer, request.tid());
        self.expect_path_to(id, peer)?;
        Ok(request)
    }
}
