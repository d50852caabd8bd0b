//! UD queue pairs on simulated adapters in this process.
//!
//! The executable links fabric-sim, whose `ibv_*` functions replace libibverbs'.

mod teardown;
mod transfer;

use std::sync::Arc;
use std::time::{Duration, Instant};

use fabric_sim::fabric;
use fabric_sim::model::adapter::{Adapter, Identity};
use fabric_sim::model::membership::Membership;
use fabric_sim::model::port::{PortSnapshot, STATE_ACTIVE};
use fabric_sim::model::switch::Switch;
use fabric_sim::smp::PortInfo;
use rdma_access::ud::*;
use rdma_access::verbs::Context;
use rdma_access::{Gid, Lid, QKey};

const QKEY: QKey = QKey(0x8001_0000);
const GROUP: Gid = Gid([
    0xff, 0x15, 0x40, 0x01, 0xff, 0xff, 0, 3, 4, 0, 0, 0, 0, 0, 0, 0,
]);
const MLID: Lid = Lid(0xc001);
const PREFIX: u64 = 0xfe80 << 48;
const LIDS: [u16; 2] = [3, 7];

fn adapter(lid: u16) -> Arc<Adapter> {
    let info = PortInfo {
        gid_prefix: PREFIX,
        lid,
        state: STATE_ACTIVE,
        neighbor_mtu: 4,
        ..PortInfo::default()
    };
    let port = PortSnapshot {
        info,
        pkeys: vec![0xffff, 0, 0x8001],
        guids: vec![lid.into()],
        ..PortSnapshot::down()
    };
    let identity = Identity {
        name: format!("sim{lid}"),
        node_guid: 0x100 + u64::from(lid),
        ..Identity::default()
    };
    let adapter = Adapter::new(identity, vec![port]);
    adapter
        .joined(1, Membership::full(GROUP.0, MLID.0))
        .unwrap();
    adapter
}

/// Returns the adapters `sim3` and `sim7`, members of the group; all tests of this executable share them.
fn context(lid: u16) -> Arc<Context> {
    static INSTALLED: std::sync::Once = std::sync::Once::new();
    INSTALLED.call_once(|| {
        let adapters = LIDS.map(adapter);
        Switch::connecting(&adapters);
        fabric::install(adapters.into());
    });
    Arc::new(Context::open_by_name(&format!("sim{lid}")).unwrap())
}

fn gid(lid: u16) -> Gid {
    Gid((u128::from(PREFIX) << 64 | u128::from(lid)).to_be_bytes())
}

/// A queue pair with its queue and buffers.
struct Endpoint {
    context: Arc<Context>,
    domain: Arc<ProtectionDomain>,
    channel: Arc<CompletionChannel>,
    queue: Arc<CompletionQueue>,
    buffers: Arc<MemoryRegion>,
    pair: Arc<UdQueuePair>,
}

const SLOTS: u32 = 16;

fn attributes() -> UdAttributes {
    UdAttributes {
        port: 1,
        pkey_index: 0,
        qkey: QKEY,
        send_depth: 8,
        receive_depth: 8,
        spill: 0,
    }
}

impl Endpoint {
    fn new(lid: u16) -> Self {
        let context = context(lid);
        let domain = Arc::new(ProtectionDomain::new(&context).unwrap());
        let channel = Arc::new(CompletionChannel::new(&context).unwrap());
        let queue = Arc::new(CompletionQueue::new(&context, SLOTS, Some(&channel)).unwrap());
        let buffers = Arc::new(MemoryRegion::new(&domain, GRH_LENGTH + 256, SLOTS).unwrap());
        let pair = UdQueuePair::new(&domain, &queue, &queue, &attributes()).unwrap();
        Self {
            context,
            domain,
            channel,
            queue,
            buffers,
            pair: Arc::new(pair),
        }
    }

    fn receive(&self, token: u64) {
        let slot = self.buffers.take_slot().unwrap();
        self.pair.post_receive(slot, token).unwrap();
    }

    fn address(&self, lid: u16) -> Arc<AddressHandle> {
        let attributes = AddressAttributes {
            port: 1,
            destination_lid: Lid(lid),
            route: Some(GlobalRoute {
                destination: gid(lid),
                ..GlobalRoute::default()
            }),
            ..AddressAttributes::default()
        };
        Arc::new(AddressHandle::new(&self.domain, &attributes).unwrap())
    }

    fn send(&self, payload: &[u8], to: &Destination<'_>, token: u64) {
        let mut slot = self.buffers.take_slot().unwrap();
        slot[..payload.len()].copy_from_slice(payload);
        self.pair.post_send(slot, payload.len(), to, token).unwrap();
    }

    /// Returns the next `count` completions.
    fn completions(&self, count: usize) -> Vec<Completion> {
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut completions = Vec::new();
        while completions.len() < count {
            assert!(
                Instant::now() < deadline,
                "{count} completions: {completions:?}"
            );
            self.queue.poll(&mut completions).unwrap();
        }
        completions
    }

    fn nothing_more(&self) {
        let mut completions = Vec::new();
        assert_eq!(
            self.queue.poll(&mut completions).unwrap(),
            0,
            "{completions:?}"
        );
    }
}
