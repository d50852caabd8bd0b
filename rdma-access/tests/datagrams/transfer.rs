//! Datagrams that arrive, and those that must not arrive.

use std::thread;

use super::*;
use rdma_access::{Cause, Qpn};

#[test]
fn a_datagram_arrives_with_its_header_and_both_slots_come_back() {
    let (a, b) = (Endpoint::new(3), Endpoint::new(7));
    b.receive(41);
    let address = a.address(7);
    let to = Destination {
        address: &address,
        qp_number: b.pair.number(),
        qkey: QKEY,
    };
    a.send(b"hello", &to, 42);

    let [sent] = a.completions(1).try_into().unwrap();
    assert_eq!(sent.status(), CompletionStatus::SUCCESS);
    assert_eq!(
        (sent.token(), sent.direction(), sent.opcode()),
        (42, Direction::Send, Opcode::SEND)
    );
    assert_eq!(sent.qp_number(), a.pair.number());
    assert!(sent.received().is_none());
    assert_eq!(&sent.into_slot()[..5], b"hello");

    let [arrived] = b.completions(1).try_into().unwrap();
    assert_eq!(
        (arrived.token(), arrived.direction()),
        (41, Direction::Receive)
    );
    assert_eq!(arrived.opcode(), Opcode::RECEIVE);
    let received = arrived.received().unwrap();
    assert_eq!(received.payload(), b"hello");
    assert_eq!(received.byte_len(), GRH_LENGTH + 5);
    assert_eq!(
        (received.source_qp(), received.source_lid()),
        (a.pair.number(), Lid(3))
    );
    let grh = received.grh().unwrap();
    assert_eq!((grh.source, grh.destination), (gid(3), gid(7)));
    drop(arrived);
    assert_eq!((a.buffers.free_slots(), b.buffers.free_slots()), (16, 16));
}

#[test]
fn a_datagram_without_payload_arrives() {
    let (a, b) = (Endpoint::new(3), Endpoint::new(7));
    b.receive(1);
    let address = a.address(7);
    let to = Destination {
        address: &address,
        qp_number: b.pair.number(),
        qkey: QKEY,
    };
    a.send(b"", &to, 2);
    assert!(a.completions(1)[0].is_success());
    let [arrived] = b.completions(1).try_into().unwrap();
    let received = arrived.received().unwrap();
    assert_eq!(
        (received.byte_len(), received.payload()),
        (GRH_LENGTH, &[][..])
    );
}

#[test]
fn without_a_route_there_is_no_header() {
    let (a, b) = (Endpoint::new(3), Endpoint::new(7));
    b.receive(0);
    let attributes = AddressAttributes {
        port: 1,
        destination_lid: Lid(7),
        ..AddressAttributes::default()
    };
    let address = Arc::new(AddressHandle::new(&a.domain, &attributes).unwrap());
    a.send(
        b"x",
        &Destination {
            address: &address,
            qp_number: b.pair.number(),
            qkey: QKEY,
        },
        0,
    );
    let [arrived] = b.completions(1).try_into().unwrap();
    let received = arrived.received().unwrap();
    assert!(!received.flags().contains(WcFlags::GRH));
    assert_eq!(received.grh(), None);
    assert_eq!(received.payload(), b"x");
}

#[test]
fn a_wrong_qkey_or_no_receive_posted_drops() {
    let (a, b) = (Endpoint::new(3), Endpoint::new(7));
    let address = a.address(7);
    let right = Destination {
        address: &address,
        qp_number: b.pair.number(),
        qkey: QKEY,
    };
    a.send(b"nobody listens", &right, 1);
    b.receive(0);
    a.send(
        b"wrong",
        &Destination {
            qkey: QKey(0x1234),
            ..right
        },
        2,
    );
    assert_eq!(
        a.completions(2)
            .iter()
            .map(Completion::token)
            .collect::<Vec<_>>(),
        [1, 2]
    );
    b.nothing_more();
    a.send(b"right", &right, 3);
    assert_eq!(b.completions(1)[0].received().unwrap().payload(), b"right");
}

#[test]
fn a_group_reaches_those_attached_as_long_as_they_are() {
    let (a, b) = (Endpoint::new(3), Endpoint::new(7));
    let attributes = AddressAttributes {
        port: 1,
        destination_lid: MLID,
        route: Some(GlobalRoute {
            destination: GROUP,
            ..GlobalRoute::default()
        }),
        ..AddressAttributes::default()
    };
    let address = Arc::new(AddressHandle::new(&a.domain, &attributes).unwrap());
    let to = Destination {
        address: &address,
        qp_number: Qpn::MULTICAST,
        qkey: QKEY,
    };
    b.receive(0);
    a.send(b"before", &to, 0);
    let attached = MulticastAttachment::new(&b.pair, GROUP, MLID).unwrap();
    a.send(b"during", &to, 0);
    assert_eq!(b.completions(1)[0].received().unwrap().payload(), b"during");
    b.receive(0);
    attached.close().unwrap();
    a.send(b"after", &to, 0);
    a.completions(3);
    b.nothing_more();
}

#[test]
fn a_datagram_longer_than_the_slot_fails_and_brings_the_slot_back() {
    let (a, b) = (Endpoint::new(3), Endpoint::new(7));
    let long = Arc::new(MemoryRegion::new(&a.domain, 2048, 1).unwrap());
    b.receive(5);
    let address = a.address(7);
    let to = Destination {
        address: &address,
        qp_number: b.pair.number(),
        qkey: QKEY,
    };
    a.pair
        .post_send(long.take_slot().unwrap(), 2048, &to, 0)
        .unwrap();
    a.completions(1);
    let [failed] = b.completions(1).try_into().unwrap();
    assert_eq!(
        (failed.status(), failed.token()),
        (CompletionStatus::LOCAL_LENGTH, 5)
    );
    assert_eq!(failed.direction(), Direction::Receive);
    assert!(failed.received().is_none());
    drop(failed);
    assert_eq!(b.buffers.free_slots(), 16);
}

#[test]
fn with_a_spill_a_datagram_longer_than_the_slot_arrives_cut() {
    let (a, b) = (Endpoint::new(3), Endpoint::new(7));
    let spill = UdAttributes {
        spill: 2048 - 256,
        ..attributes()
    };
    let pair = UdQueuePair::new(&b.domain, &b.queue, &b.queue, &spill).unwrap();
    let long = Arc::new(MemoryRegion::new(&a.domain, 2048, 2).unwrap());
    let address = a.address(7);
    let to = Destination {
        address: &address,
        qp_number: pair.number(),
        qkey: QKEY,
    };
    for (length, is_cut) in [(256, false), (257, true), (2048, true)] {
        pair.post_receive(b.buffers.take_slot().unwrap(), 5)
            .unwrap();
        let mut slot = long.take_slot().unwrap();
        slot.fill(0xab);
        a.pair.post_send(slot, length, &to, 0).unwrap();
        a.completions(1);
        let [completion] = b.completions(1).try_into().unwrap();
        let received = completion.received().expect("a success");
        assert_eq!(received.is_cut(), is_cut, "{length}");
        assert_eq!(received.byte_len(), GRH_LENGTH + length);
        assert_eq!(received.payload(), [0xab; 256]);
    }
    assert_eq!(b.buffers.free_slots(), 16);
}

#[test]
fn oversized_sends_are_refused_and_the_slot_is_returned() {
    let (a, b) = (Endpoint::new(3), Endpoint::new(7));
    let address = a.address(7);
    let to = Destination {
        address: &address,
        qp_number: b.pair.number(),
        qkey: QKEY,
    };

    let slot = a.buffers.take_slot().unwrap();
    let refused = a
        .pair
        .post_send(slot, GRH_LENGTH + 257, &to, 0)
        .unwrap_err();
    assert!(
        matches!(refused.error().cause(), Cause::Invalid(_)),
        "{refused}"
    );
    let slot = refused.into_slot().unwrap();

    let foreign = b.address(3);
    let refused = a
        .pair
        .post_send(
            slot,
            1,
            &Destination {
                address: &foreign,
                ..to
            },
            0,
        )
        .unwrap_err();
    assert!(
        refused.to_string().contains("another protection domain"),
        "{refused}"
    );
    drop(refused);

    let refused = a
        .pair
        .post_receive(b.buffers.take_slot().unwrap(), 0)
        .unwrap_err();
    assert!(
        refused.to_string().contains("another protection domain"),
        "{refused}"
    );

    drop(refused);

    // The queue pair has 8 receives.
    (0..8).for_each(|token| a.receive(token));
    let refused = a
        .pair
        .post_receive(a.buffers.take_slot().unwrap(), 9)
        .unwrap_err();
    assert!(refused.error().raw_os_error().is_some(), "{refused}");
    drop(refused);
    assert_eq!((a.buffers.free_slots(), b.buffers.free_slots()), (8, 16));
}

#[test]
fn the_completion_queue_cannot_overrun() {
    let (a, b) = (Endpoint::new(3), Endpoint::new(7));
    let queue = Arc::new(CompletionQueue::new(&a.context, 4, None).unwrap());
    let pair = UdQueuePair::new(&a.domain, &queue, &queue, &attributes()).unwrap();
    let address = a.address(7);
    let to = Destination {
        address: &address,
        qp_number: b.pair.number(),
        qkey: QKEY,
    };
    let take = || a.buffers.take_slot().unwrap();
    pair.post_receive(take(), 0).unwrap();
    for token in 1..4 {
        pair.post_send(take(), 1, &to, token).unwrap();
    }
    let refused = pair.post_send(take(), 1, &to, 4).unwrap_err();
    assert!(
        matches!(refused.error().cause(), Cause::Full(_)),
        "{refused}"
    );
    let mut completions = Vec::new();
    assert_eq!(queue.poll(&mut completions).unwrap(), 3);
    pair.post_send(refused.into_slot().unwrap(), 1, &to, 4)
        .unwrap();
}

#[test]
fn an_armed_queue_tells_its_channel_once() {
    let (a, b) = (Endpoint::new(3), Endpoint::new(7));
    let address = a.address(7);
    let to = Destination {
        address: &address,
        qp_number: b.pair.number(),
        qkey: QKEY,
    };
    a.send(b"unarmed", &to, 0);
    assert!(!a.channel.wait(Some(Duration::ZERO)).unwrap());
    assert_eq!(a.channel.take_event().unwrap(), None);

    a.queue.arm(false).unwrap();
    a.send(b"armed", &to, 0);
    a.send(b"once", &to, 0);
    assert!(a.channel.wait(None).unwrap());
    assert_eq!(a.channel.take_event().unwrap(), Some(a.queue.id()));
    assert_eq!(a.channel.take_event().unwrap(), None);
    a.completions(3);
}

#[test]
fn one_thread_posts_and_another_polls() {
    const COUNT: u64 = 5000;
    let (a, b) = (Endpoint::new(3), Endpoint::new(7));
    let address = a.address(7);
    thread::scope(|scope| {
        scope.spawn(|| {
            let to = Destination {
                address: &address,
                qp_number: b.pair.number(),
                qkey: QKEY,
            };
            for number in 0..COUNT {
                let mut slot = loop {
                    match a.buffers.take_slot() {
                        Some(slot) => break slot,
                        None => thread::yield_now(),
                    }
                };
                slot[..8].copy_from_slice(&number.to_be_bytes());
                a.pair.post_send(slot, 8, &to, number).unwrap();
            }
        });
        let mut tokens = Vec::new();
        let mut completions = Vec::new();
        while tokens.len() < COUNT as usize {
            a.queue.arm(false).unwrap();
            while a.queue.poll(&mut completions).unwrap() > 0 {
                for completion in completions.drain(..) {
                    assert_eq!(completion.slot()[..8], completion.token().to_be_bytes());
                    tokens.push(completion.token());
                }
            }
            if tokens.len() < COUNT as usize
                && a.channel.wait(Some(Duration::from_secs(60))).unwrap()
            {
                while a.channel.take_event().unwrap().is_some() {}
            }
        }
        assert_eq!(tokens, (0..COUNT).collect::<Vec<_>>());
    });
    assert_eq!(a.buffers.free_slots(), 16);
}

unsafe extern "C" fn no_receive(
    _pair: *mut ibverbs_sys::ibv_qp,
    _request: *mut ibverbs_sys::ibv_recv_wr,
    _bad: *mut *mut ibverbs_sys::ibv_recv_wr,
) -> std::ffi::c_int {
    libc::ENOMEM
}

unsafe extern "C" fn no_send(
    _pair: *mut ibverbs_sys::ibv_qp,
    _request: *mut ibverbs_sys::ibv_send_wr,
    _bad: *mut *mut ibverbs_sys::ibv_send_wr,
) -> std::ffi::c_int {
    libc::ENOMEM
}

#[test]
fn a_full_queue_pair_and_a_driver_failure_have_different_errors() {
    let end = Endpoint::new(3);
    let other = UdQueuePair::new(&end.domain, &end.queue, &end.queue, &attributes()).unwrap();
    let refused = |pair: &UdQueuePair| {
        let slot = end.buffers.take_slot().unwrap();
        let error = pair.post_receive(slot, 0).unwrap_err().error().to_string();
        assert!(error.contains("os error 12"), "{error}");
        error
    };
    (0..8).for_each(|token| end.receive(token));
    let text = refused(&end.pair);
    assert!(
        text.contains("8 requests are posted, the queue pair's maximum"),
        "{text}"
    );
    // Requests of other queue pairs on the same completion queue do not count.
    let slot = end.buffers.take_slot().unwrap();
    other.post_receive(slot, 0).unwrap();
    // SAFETY: the context is open, and only this test uses its table.
    let operations = unsafe { &mut (*end.context.as_ptr().cast::<ibverbs_sys::ibv_context>()).ops };
    operations.post_recv = Some(no_receive);
    operations.post_send = Some(no_send);
    let text = refused(&other);
    assert!(
        text.contains("1 of at most 8 requests are posted")
            && text.contains("the queue pair is not full"),
        "{text}"
    );
    assert!(!text.contains("poll its completion queue"), "{text}");
    // Receives do not count either when there are too many sends.
    let address = end.address(7);
    let to = Destination {
        address: &address,
        qp_number: end.pair.number(),
        qkey: QKEY,
    };
    let slot = end.buffers.take_slot().unwrap();
    let text = end.pair.post_send(slot, 1, &to, 0).unwrap_err().to_string();
    assert!(
        text.contains("0 of at most 8 requests are posted"),
        "{text}"
    );
}
