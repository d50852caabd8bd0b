//! A host with a queue pair on a simulated adapter, for unit tests.

use std::sync::Arc;

use crate::model::adapter::{Adapter, Identity};
use crate::model::completion::{Completion, CompletionQueue};
use crate::model::membership::Membership;
use crate::model::memory::{MemoryRegions, Segment};
use crate::model::port::{PortSnapshot, STATE_ACTIVE};
use crate::model::queue_pair::{
    AddressVector, Change, Limits, QueuePair, RecvRequest, Route, SendRequest, State,
};
use crate::model::switch::Switch;
use crate::smp::PortInfo;

pub const QKEY: u32 = 0x8001_0000;
pub const GROUP: [u8; 16] = [
    0xff, 0x15, 0x40, 0x01, 0xff, 0xff, 0, 3, 4, 0, 0, 0, 0, 0, 0, 0,
];
pub const MLID: u16 = 0xc000;

pub fn adapter(lid: u16) -> Arc<Adapter> {
    let info = PortInfo {
        gid_prefix: 0xfe80 << 48,
        lid,
        state: STATE_ACTIVE,
        neighbor_mtu: 4,
        ..PortInfo::default()
    };
    let port = PortSnapshot {
        info,
        pkeys: vec![0xffff, 0x8001, 0x7001],
        guids: vec![lid.into()],
        manager_present: true,
    };
    Adapter::new(
        Identity {
            name: "sim0".to_owned(),
            ..Identity::default()
        },
        vec![port],
    )
}

pub struct Host {
    pub adapter: Arc<Adapter>,
    pub memory: Arc<MemoryRegions>,
    pub queue: Arc<CompletionQueue>,
    pub pair: Arc<QueuePair>,
    pub buffer: Box<[u8; 512]>,
    pub key: u32,
}

impl Host {
    pub fn new(lid: u16) -> Self {
        Self::on(adapter(lid))
    }

    pub fn on(adapter: Arc<Adapter>) -> Self {
        let memory = Arc::<MemoryRegions>::default();
        let queue = CompletionQueue::new(16, None, std::sync::Weak::new());
        let limits = Limits {
            max_recv_wr: 2,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 64,
        };
        let pair = adapter.create_queue_pair(memory.clone(), queue.clone(), queue.clone(), limits);
        let mut buffer = Box::new([0; 512]);
        // SAFETY: the buffer lives as long as the host that uses the key.
        let key = unsafe { memory.register(buffer.as_mut_ptr() as u64, 512, true) };
        Self {
            adapter,
            memory,
            queue,
            pair,
            buffer,
            key,
        }
    }

    pub fn ready(lid: u16) -> Self {
        let host = Self::new(lid);
        host.make_ready(0);
        host
    }

    pub fn make_ready(&self, pkey_index: u16) {
        let init = Change {
            state: Some(State::Init),
            pkey_index: Some(pkey_index),
            port: Some(1),
            qkey: Some(QKEY),
            ..Change::default()
        };
        for change in [
            init,
            to(State::ReadyToReceive),
            Change {
                sq_psn: Some(0),
                ..to(State::ReadyToSend)
            },
        ] {
            self.pair.modify(change).unwrap();
        }
    }

    pub fn join(&self) {
        self.adapter
            .joined(1, Membership::full(GROUP, MLID))
            .unwrap();
        self.pair.attach(GROUP, MLID).unwrap();
    }

    /// Returns the next received completion, if any. Skips completions of sends.
    pub fn received(&self) -> Option<Completion> {
        std::iter::from_fn(|| self.queue.poll()).find(|completion| completion.receive)
    }

    /// Changes the state of the port.
    pub fn change_port(&self, change: impl FnOnce(&mut PortSnapshot)) {
        let mut port = (*self.adapter.port(1).unwrap()).clone();
        change(&mut port);
        self.adapter.update_port(1, port).unwrap();
    }

    pub fn segment(&self, offset: u64, length: u32) -> Segment {
        Segment {
            addr: self.buffer.as_ptr() as u64 + offset,
            length,
            lkey: self.key,
        }
    }

    pub fn receive_into(&self, wr_id: u64, length: u32) {
        self.pair
            .post_recv(RecvRequest {
                wr_id,
                segments: vec![self.segment(0, length)],
            })
            .unwrap();
    }

    pub fn send(&self, payload: &[u8], address: AddressVector, remote_qpn: u32) {
        self.pair
            .post_send(inline(payload, address, remote_qpn))
            .unwrap();
    }
}

pub fn to(state: State) -> Change {
    Change {
        state: Some(state),
        ..Change::default()
    }
}

pub fn inline(payload: &[u8], address: AddressVector, remote_qpn: u32) -> SendRequest {
    SendRequest {
        wr_id: 9,
        segments: vec![],
        inline: Some(payload.to_vec()),
        address,
        remote_qpn,
        remote_qkey: QKEY,
        immediate: None,
        signaled: true,
        solicited: false,
    }
}

pub fn to_gid(dgid: [u8; 16]) -> Route {
    Route {
        dgid,
        ..Route::default()
    }
}

pub fn at(lid: u16) -> AddressVector {
    AddressVector {
        dlid: lid,
        port: 1,
        ..AddressVector::default()
    }
}

pub fn group() -> AddressVector {
    AddressVector {
        dlid: MLID,
        port: 1,
        grh: Some(to_gid(GROUP)),
        ..AddressVector::default()
    }
}

pub fn wire(hosts: &[&Host]) {
    let adapters: Vec<_> = hosts.iter().map(|host| host.adapter.clone()).collect();
    Switch::connecting(&adapters);
}
