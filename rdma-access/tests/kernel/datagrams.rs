//! UD queue pairs over soft-RoCE.

use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdma_access::ud::*;
use rdma_access::verbs::Context;
use rdma_access::{Gid, Lid, QKey, Qpn};

use super::{ADDRESS, DEVICE};

const QKEY: QKey = QKey(0x1111_1111);
const PATIENCE: Duration = Duration::from_secs(30);

struct Endpoint {
    context: Arc<Context>,
    domain: Arc<ProtectionDomain>,
    channel: Arc<CompletionChannel>,
    queue: Arc<CompletionQueue>,
    buffers: Arc<MemoryRegion>,
    pair: Arc<UdQueuePair>,
}

impl Endpoint {
    fn new(qkey: QKey) -> Self {
        let context = Arc::new(Context::open_by_name(DEVICE).unwrap());
        let domain = Arc::new(ProtectionDomain::new(&context).unwrap());
        let channel = Arc::new(CompletionChannel::new(&context).unwrap());
        let queue = Arc::new(CompletionQueue::new(&context, 32, Some(&channel)).unwrap());
        let buffers = Arc::new(MemoryRegion::new(&domain, GRH_LENGTH + 256, 32).unwrap());
        let attributes = UdAttributes {
            port: 1,
            pkey_index: 0,
            qkey,
            send_depth: 8,
            receive_depth: 8,
            spill: 0,
        };
        let pair = Arc::new(UdQueuePair::new(&domain, &queue, &queue, &attributes).unwrap());
        Self {
            context,
            domain,
            channel,
            queue,
            buffers,
            pair,
        }
    }

    /// Returns the index of the GID that is an IPv4 address.
    fn gid_index(&self, address: &str) -> u8 {
        let wanted = mapped(address);
        let found =
            (0..16).find(|&index| self.context.gid(1, index).is_ok_and(|gid| gid == wanted));
        u8::try_from(found.expect("a GID for the address")).unwrap()
    }

    fn address(&self, destination: Gid) -> Arc<AddressHandle> {
        let route = GlobalRoute {
            destination,
            source_index: self.gid_index(ADDRESS),
            hop_limit: 64,
            ..GlobalRoute::default()
        };
        let attributes = AddressAttributes {
            port: 1,
            route: Some(route),
            ..AddressAttributes::default()
        };
        Arc::new(AddressHandle::new(&self.domain, &attributes).unwrap())
    }

    fn receive(&self, token: u64) {
        self.pair
            .post_receive(self.buffers.take_slot().unwrap(), token)
            .unwrap();
    }

    fn send(&self, payload: &[u8], to: &Destination<'_>) {
        let mut slot = self.buffers.take_slot().unwrap();
        slot[..payload.len()].copy_from_slice(payload);
        self.pair.post_send(slot, payload.len(), to, 7).unwrap();
    }

    /// Returns the next completion, waiting on the channel.
    fn completion(&self) -> Completion {
        let deadline = Instant::now() + PATIENCE;
        let mut completions = Vec::new();
        loop {
            self.queue.arm(false).unwrap();
            self.queue.poll(&mut completions).unwrap();
            if let Some(completion) = completions.pop() {
                assert!(completions.is_empty(), "{completions:?}");
                return completion;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(self.channel.wait(Some(left)).unwrap(), "nothing came");
            assert_eq!(self.channel.take_event().unwrap(), Some(self.queue.id()));
        }
    }
}

fn mapped(address: &str) -> Gid {
    Gid(address
        .parse::<Ipv4Addr>()
        .unwrap()
        .to_ipv6_mapped()
        .octets())
}

fn exchange(qkey: QKey) {
    let (a, b) = (Endpoint::new(qkey), Endpoint::new(qkey));
    let address = a.address(mapped(ADDRESS));
    let to = Destination {
        address: &address,
        qp_number: b.pair.number(),
        qkey,
    };
    for number in 0u64..20 {
        b.receive(number);
        // Of every length, including zero.
        let bytes = number.to_be_bytes();
        let payload = &bytes[..number as usize % 9];
        a.send(payload, &to);
        let sent = a.completion();
        assert_eq!(
            (sent.status(), sent.token()),
            (CompletionStatus::SUCCESS, 7)
        );
        let arrived = b.completion();
        assert_eq!(
            (arrived.status(), arrived.token()),
            (CompletionStatus::SUCCESS, number)
        );
        let received = arrived.received().unwrap();
        assert_eq!(received.payload(), payload);
        assert_eq!(received.source_qp(), a.pair.number());
        assert!(received.flags().contains(WcFlags::GRH));
    }
    assert_eq!((a.buffers.free_slots(), b.buffers.free_slots()), (32, 32));
}

#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn datagrams_arrive_and_slots_come_back() {
    exchange(QKEY);
}

#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn datagrams_arrive_with_the_controlled_qkey_that_ibacm_uses() {
    exchange(QKey(0x8001_0000));
}

#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn with_a_spill_a_datagram_longer_than_the_slot_arrives_cut() {
    let (a, b) = (Endpoint::new(QKEY), Endpoint::new(QKEY));
    let attributes = UdAttributes {
        port: 1,
        pkey_index: 0,
        qkey: QKEY,
        send_depth: 8,
        receive_depth: 8,
        spill: 256,
    };
    let pair = UdQueuePair::new(&b.domain, &b.queue, &b.queue, &attributes).unwrap();
    let long = Arc::new(MemoryRegion::new(&a.domain, 512, 1).unwrap());
    let address = a.address(mapped(ADDRESS));
    let to = Destination {
        address: &address,
        qp_number: pair.number(),
        qkey: QKEY,
    };
    for length in [256, 257, 512] {
        pair.post_receive(b.buffers.take_slot().unwrap(), 5)
            .unwrap();
        let mut slot = long.take_slot().unwrap();
        slot.fill(0xab);
        a.pair.post_send(slot, length, &to, 7).unwrap();
        assert_eq!(a.completion().status(), CompletionStatus::SUCCESS);
        let arrived = b.completion();
        assert_eq!(arrived.status(), CompletionStatus::SUCCESS, "{length}");
        let received = arrived.received().unwrap();
        assert_eq!(received.is_cut(), length > 256);
        assert_eq!(received.byte_len(), GRH_LENGTH + length);
        assert_eq!(received.payload(), [0xab; 256]);
    }
}

#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn posted_slots_return_when_the_queue_pair_ends() {
    let end = Endpoint::new(QKEY);
    (0..5).for_each(|token| end.receive(token));
    assert_eq!(end.buffers.free_slots(), 27);
    Arc::into_inner(end.pair).unwrap().close().unwrap();
    assert_eq!(end.buffers.free_slots(), 32);
    Arc::into_inner(end.buffers).unwrap().close().unwrap();
    Arc::into_inner(end.queue).unwrap().close().unwrap();
    Arc::into_inner(end.channel).unwrap().close().unwrap();
    Arc::into_inner(end.domain).unwrap().close().unwrap();
    Arc::into_inner(end.context).unwrap().close().unwrap();
}

#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn completions_of_an_ended_queue_pair_take_no_room() {
    const DEPTH: u64 = 7;
    let (a, b) = (Endpoint::new(QKEY), Endpoint::new(QKEY));
    let queue = Arc::new(CompletionQueue::new(&b.context, DEPTH as u32, Some(&b.channel)).unwrap());
    let attributes = UdAttributes {
        port: 1,
        pkey_index: 0,
        qkey: QKEY,
        send_depth: 1,
        receive_depth: DEPTH as u32,
        spill: 0,
    };
    let address = a.address(mapped(ADDRESS));
    let fill = || {
        let pair = UdQueuePair::new(&b.domain, &queue, &queue, &attributes).unwrap();
        for token in 0..DEPTH {
            let slot = b.buffers.take_slot().unwrap();
            pair.post_receive(slot, token).unwrap();
        }
        for _ in 0..DEPTH {
            let to = Destination {
                address: &address,
                qp_number: pair.number(),
                qkey: QKEY,
            };
            a.send(b"one of many", &to);
            assert_eq!(a.completion().status(), CompletionStatus::SUCCESS);
        }
        pair
    };
    // The completion of the first datagram is not polled.
    drop(fill());
    assert_eq!(b.buffers.free_slots(), 32);
    let _pair = fill();
    let deadline = Instant::now() + PATIENCE;
    let mut completions = Vec::new();
    while completions.len() < DEPTH as usize {
        assert!(Instant::now() < deadline, "{completions:?}");
        queue.poll(&mut completions).unwrap();
    }
    assert!(completions.iter().all(Completion::is_success));
}

#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn more_receives_than_the_queue_pair_has_are_refused_with_their_slot() {
    let end = Endpoint::new(QKEY);
    let mut posted = 0;
    let refused = loop {
        match end
            .pair
            .post_receive(end.buffers.take_slot().unwrap(), posted)
        {
            Ok(()) => posted += 1,
            Err(refused) => break refused,
        }
    };
    assert!(posted >= 8, "{posted}");
    assert_eq!(
        refused.error().raw_os_error(),
        Some(rustix::io::Errno::NOMEM.raw_os_error()),
        "{refused}"
    );
    assert!(refused.into_slot().is_some());
}

#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn a_group_is_attached_received_from_and_detached() {
    const GROUP: Ipv4Addr = Ipv4Addr::new(239, 7, 7, 7);
    let (a, b) = (Endpoint::new(QKEY), Endpoint::new(QKEY));
    // The kernel delivers to the interface what a member of the group would get.
    let member = UdpSocket::bind("0.0.0.0:0").unwrap();
    member
        .join_multicast_v4(&GROUP, &ADDRESS.parse().unwrap())
        .unwrap();
    let group = Gid(GROUP.to_ipv6_mapped().octets());
    let attached = MulticastAttachment::new(&b.pair, group, Lid(0)).unwrap();
    assert_eq!((attached.group(), attached.lid()), (group, Lid(0)));
    b.receive(3);
    let address = a.address(group);
    a.send(
        b"to all",
        &Destination {
            address: &address,
            qp_number: Qpn::MULTICAST,
            qkey: QKEY,
        },
    );
    assert_eq!(a.completion().status(), CompletionStatus::SUCCESS);
    let arrived = b.completion();
    assert_eq!(arrived.received().unwrap().payload(), b"to all");
    attached.close().unwrap();
    Arc::into_inner(b.pair).unwrap().close().unwrap();
}

#[test]
#[ignore = "needs the kernel of cargo xtask vm"]
fn groups_are_attached_by_any_gid_and_end_with_their_guard() {
    let end = Endpoint::new(QKEY);
    let group = Gid(Ipv6Addr::new(0xff15, 0x4001, 0xffff, 3, 0x400, 0, 0, 0).octets());
    for _ in 0..3 {
        let attached = MulticastAttachment::new(&end.pair, group, Lid(0xc001)).unwrap();
        drop(attached);
    }
    let attached = MulticastAttachment::new(&end.pair, group, Lid(0xc001)).unwrap();
    let pair = end.pair.clone();
    drop(end);
    drop(pair);
    attached.close().unwrap();
}
