//! Random datagrams from other nodes: mutations of valid ACM datagrams, and random bytes.

use fastrand::Rng;

use crate::fabric::Peer;
use crate::message::Addr;
use crate::wire::{AcmMad, Datagram, LENGTH, Node, REQUEST, Wire, shared_group};

/// Datagrams received from the provider.
pub(super) struct Datagrams {
    wire: Wire,
    queue_pair: u32,
    tid: u64,
}

impl Datagrams {
    pub(super) fn new(wire: Wire) -> Self {
        Self {
            wire,
            queue_pair: 0,
            tid: 0,
        }
    }

    /// Sends the datagram of a seed.
    pub(super) fn send(&mut self, seed: u64) {
        for sent in self.wire.take() {
            self.queue_pair = sent.source_qp;
            if let Some(request) = AcmMad::read(&sent.payload).filter(|mad| mad.method() == REQUEST)
            {
                self.tid = request.tid();
            }
        }
        let datagram = self.make(&mut Rng::with_seed(seed));
        self.wire.send(&datagram);
    }

    fn make(&self, rng: &mut Rng) -> Datagram {
        let peer = Peer::number(rng.u16(1..120));
        let pkey = 0xffff;
        let group = shared_group(pkey);
        let source = match rng.u8(0..4) {
            0 => Addr::Name("self1".into()),
            1 => Addr::Ip(peer.ip),
            _ => Addr::Name(peer.name.clone()),
        };
        let tid = if rng.bool() { self.tid } else { rng.u64(..) };
        let mut mad = match rng.u8(0..3) {
            0 => AcmMad::answer(tid, &group),
            1 => AcmMad::request(tid, &Addr::Name("self1".into()), &source, &[group]),
            _ => AcmMad::request(tid, &source, &source, &[group]),
        };
        if rng.u8(0..3) == 0 {
            for _ in 0..rng.usize(1..6) {
                mad.0[rng.usize(0..LENGTH)] = rng.u8(..);
            }
        }
        let mut payload = mad.0.to_vec();
        if rng.u8(0..8) == 0 {
            payload.resize(rng.usize(0..2048), rng.u8(..));
        }
        let node = Node::of(&peer);
        let mut datagram = match rng.bool() {
            true => Wire::to_group(&node, pkey, &payload),
            false => self.wire.to_pair(&node, pkey, self.queue_pair, &payload),
        };
        if rng.u8(0..10) == 0 {
            datagram.grh = None;
        }
        datagram
    }
}
