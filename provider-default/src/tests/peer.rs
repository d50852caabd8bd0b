//! Peers: queue pairs on simulated adapters.

use std::sync::Arc;
use std::time::{Duration, Instant};

use acm_prov_api::prelude::*;
use acm_stand_in::PortId;
use acm_stand_in::by_hand::ByHand;
use acm_stand_in::fabric::{DeviceSpec, PortSpec};
use fabric_sim::fabric;
use fabric_sim::model::adapter::Adapter;
use fabric_sim::model::membership::Membership;
use fabric_sim::model::queue_pair::{Change, State};
use fabric_sim::model::switch::Switch;
use rdma_access::ud::*;
use rdma_access::verbs::Context;
use rdma_access::{QKey, Qpn};

use crate::groups::QKEY;
use crate::wire::{Body, Datagram, Groups, LENGTH};

/// The default group.
pub const SHARED: Gid = Gid([
    0xff, 0x15, 0x40, 0x01, 0xff, 0xff, 0, 3, 4, 0, 0, 0, 0, 0, 0, 0,
]);
/// Its LID.
pub const MLID: Lid = Lid(0xc001);

const PREFIX: u64 = 0xfe80 << 48;
/// LIDs and GUIDs of the adapters `sim<LID>`. Number 1 is the test core's; 4 is 2 after a move.
const PORTS: [(u16, u64); 4] = [(1, 0x0010_0001), (2, 0x2002), (3, 0x2003), (4, 0x2002)];

/// The only port of a device with the same node GUID as the provider's.
pub const VIRTUAL_FUNCTION: PortId = PortId { device: 4, port: 1 };

/// Returns the devices of a core: the first is the provider's, the last its virtual function, the others the
/// peers'.
pub fn devices() -> Vec<DeviceSpec> {
    let device = |(lid, guid): (u16, u64)| DeviceSpec {
        name: format!("sim{lid}"),
        node_guid: 0x100 + u64::from(lid),
        ports: vec![PortSpec {
            sm_lid: 9,
            pkeys: vec![0xffff, 0x8001, 0x7fff],
            mtu: 5,
            ..PortSpec::new(guid, lid)
        }],
    };
    let mut devices: Vec<DeviceSpec> = PORTS.map(device).into();
    devices.push(DeviceSpec {
        node_guid: devices[0].node_guid,
        ..device((5, 0x2005))
    });
    devices
}

/// Connects the devices of the core that was loaded last. Call it before creating peers.
pub fn connect() {
    let adapters = fabric::adapters().unwrap();
    Switch::connecting(&adapters);
    adapters.iter().for_each(join);
}

/// Makes an adapter a member of the shared group, because the test is the SA.
pub fn join(adapter: &Arc<Adapter>) {
    let membership = Membership::full(SHARED.0, MLID.0);
    adapter.joined(1, membership).unwrap();
}

/// Returns the provider's adapter.
pub fn providers() -> Arc<Adapter> {
    fabric::adapters().unwrap()[0].clone()
}

/// Breaks a queue pair of the adapter `sim<lid>`, as a failed work request does.
pub fn break_queue_pair(lid: u16, number: Qpn) {
    let adapters = fabric::adapters().unwrap();
    let pair = adapters
        .iter()
        .find(|adapter| adapter.identity().name == format!("sim{lid}"))
        .and_then(|adapter| adapter.queue_pair(number.0))
        .expect("the queue pair");
    let broken = Change {
        state: Some(State::Error),
        ..Change::default()
    };
    pair.modify(broken).unwrap();
}

/// A datagram received from the provider.
#[derive(Clone, Copy, Debug)]
pub struct Came {
    pub datagram: Datagram,
    pub qp_number: Qpn,
    pub to: Gid,
}

/// Another node, in the shared group.
pub struct Peer {
    lid: u16,
    domain: Arc<ProtectionDomain>,
    queue: Arc<CompletionQueue>,
    buffers: Arc<MemoryRegion>,
    pair: Arc<UdQueuePair>,
    came: Vec<Came>,
    _attachment: MulticastAttachment,
}

impl Peer {
    /// Creates the peer with a LID.
    pub fn at(lid: u16) -> Self {
        let context = Arc::new(Context::open_by_name(&format!("sim{lid}")).unwrap());
        let domain = Arc::new(ProtectionDomain::new(&context).unwrap());
        let queue = Arc::new(CompletionQueue::new(&context, 64, None).unwrap());
        let buffers = Arc::new(MemoryRegion::new(&domain, GRH_LENGTH + 4096, 64).unwrap());
        let attributes = UdAttributes {
            port: 1,
            pkey_index: 0,
            qkey: QKey(QKEY),
            send_depth: 16,
            receive_depth: 48,
            spill: 0,
        };
        let pair = Arc::new(UdQueuePair::new(&domain, &queue, &queue, &attributes).unwrap());
        for _ in 0..32 {
            pair.post_receive(buffers.take_slot().unwrap(), 0).unwrap();
        }
        let group = (SHARED, MLID);
        let attachment = MulticastAttachment::new(&pair, group.0, group.1).unwrap();
        Self {
            lid,
            domain,
            queue,
            buffers,
            pair,
            came: Vec::new(),
            _attachment: attachment,
        }
    }

    pub fn lid(&self) -> Lid {
        Lid(self.lid)
    }

    pub fn gid(&self) -> Gid {
        let (_, guid) = PORTS.into_iter().find(|(lid, _)| *lid == self.lid).unwrap();
        Gid::new(PREFIX, guid)
    }

    fn address(&self, lid: Lid, gid: Option<Gid>) -> Arc<AddressHandle> {
        let attributes = AddressAttributes {
            port: 1,
            destination_lid: lid,
            route: gid.map(|gid| GlobalRoute {
                destination: gid,
                ..GlobalRoute::default()
            }),
            ..AddressAttributes::default()
        };
        Arc::new(AddressHandle::new(&self.domain, &attributes).unwrap())
    }

    fn send(&mut self, bytes: &[u8], address: &Arc<AddressHandle>, qp_number: Qpn) {
        let mut slot = loop {
            match self.buffers.take_slot() {
                Some(slot) => break slot,
                None => self.poll(),
            }
        };
        slot[..bytes.len()].copy_from_slice(bytes);
        let to = Destination {
            address,
            qp_number,
            qkey: QKey(QKEY),
        };
        self.pair.post_send(slot, bytes.len(), &to, 0).unwrap();
        self.poll();
    }

    /// Sends to the shared group.
    pub fn multicast(&mut self, bytes: &[u8]) {
        let address = self.address(MLID, Some(SHARED));
        self.send(bytes, &address, Qpn::MULTICAST);
    }

    /// Sends to the provider's queue pair.
    pub fn unicast(&mut self, bytes: &[u8], qp_number: Qpn) {
        let address = self.address(providers_lid(), Some(ByHand::GID));
        self.send(bytes, &address, qp_number);
    }

    /// Sends to the provider's queue pair, without a GRH.
    pub fn without_grh(&mut self, bytes: &[u8], qp_number: Qpn) {
        let address = self.address(providers_lid(), None);
        self.send(bytes, &address, qp_number);
    }

    /// Sends a request to the group for the owner of an address.
    pub fn asks(&mut self, tid: u64, destination: Address, source: Address) {
        self.multicast(&request(tid, destination, source));
    }

    /// Waits for the provider's request for an address, and answers it as stock does.
    pub fn answers(&mut self, address: Address) -> Came {
        let came = self.request_for(address);
        self.unicast(&answer(came.datagram.tid), came.qp_number);
        came
    }

    /// Waits for the provider's request for an address.
    pub fn request_for(&mut self, address: Address) -> Came {
        self.wait(&format!("a request for {address}"), |came| {
            matches!(came.datagram.body, Body::Request { destination, .. } if destination == address)
        })
    }

    /// Waits for the provider's answer to a request of this peer.
    pub fn answer_to(&mut self, tid: u64) -> Came {
        self.wait(&format!("an answer to {tid}"), |came| {
            matches!(came.datagram.body, Body::Answer { .. }) && came.datagram.tid == tid
        })
    }

    /// Returns the datagrams that arrived and were not consumed.
    pub fn rest(&mut self) -> Vec<Came> {
        self.poll();
        std::mem::take(&mut self.came)
    }

    fn wait(&mut self, what: &str, fits: impl Fn(&Came) -> bool) -> Came {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            self.poll();
            if let Some(index) = self.came.iter().position(&fits) {
                return self.came.remove(index);
            }
            assert!(
                Instant::now() < deadline,
                "{what} did not come; came: {:?}",
                self.came
            );
            std::thread::yield_now();
        }
    }

    fn poll(&mut self) {
        let mut completions = Vec::new();
        while self.queue.poll(&mut completions).unwrap() > 0 {}
        for completion in completions {
            if let Some(received) = completion.received() {
                let grh = received.grh().expect("the provider always sends a GRH");
                // The group also gets other peers' datagrams.
                if grh.source.0 == ByHand::GID.0 {
                    self.came.push(Came {
                        datagram: Datagram::parse(received.payload()).expect("well formed"),
                        qp_number: received.source_qp(),
                        to: Gid(grh.destination.0),
                    });
                }
                self.pair.post_receive(completion.into_slot(), 0).unwrap();
            }
        }
    }
}

/// Returns the current LID of the provider's port.
fn providers_lid() -> Lid {
    Lid(providers().port(1).unwrap().info.lid)
}

/// Returns the bytes of a request.
pub fn request(tid: u64, destination: Address, source: Address) -> [u8; LENGTH] {
    let body = Body::Request {
        destination,
        source,
    };
    Datagram {
        tid,
        groups: Groups::new(&[SHARED]),
        body,
    }
    .to_bytes()
}

/// Returns the bytes of an answer as stock sends it.
pub fn answer(tid: u64) -> [u8; LENGTH] {
    let body = Body::Answer {
        status: 0,
        destination: None,
        source: None,
    };
    Datagram {
        tid,
        groups: Groups::new(&[SHARED]),
        body,
    }
    .to_bytes()
}
