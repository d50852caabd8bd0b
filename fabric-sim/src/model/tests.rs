//! Adapters, queue pairs and completion queues together, without a fabric.

mod delivery;
mod links;

use super::completion::{Completion, Status};
use super::event::{AsyncEvent, PortEvent};
use super::memory::Segment;
use super::port::STATE_DOWN;
use super::queue_pair::{
    AddressVector, Change, GRH_SIZE, MULTICAST_QPN, QpError, RecvRequest, Route, SendRequest, State,
};
use crate::testing::*;

#[test]
fn every_listener_hears_every_event_in_order() {
    let adapter = adapter(5);
    let listeners = [adapter.listen().unwrap(), adapter.listen().unwrap()];
    let mut down = (*adapter.port(1).unwrap()).clone();
    down.info.state = STATE_DOWN;
    assert_eq!(
        adapter.update_port(1, down.clone()).unwrap(),
        [PortEvent::PortErr]
    );
    assert_eq!(adapter.update_port(1, down).unwrap(), []);
    adapter.inject(1, PortEvent::ClientReregister).unwrap();
    assert!(
        adapter
            .inject(2, PortEvent::PortErr)
            .unwrap_err()
            .to_string()
            .contains("no port 2")
    );
    for listener in listeners {
        let heard: Vec<_> = (0..listener.len())
            .map(|_| listener.pop().unwrap())
            .collect();
        let [
            AsyncEvent::Port(PortEvent::PortErr, 1),
            AsyncEvent::Port(PortEvent::ClientReregister, 1),
        ] = heard[..]
        else {
            panic!("{heard:?}");
        };
    }
}

#[test]
fn a_send_completes_without_a_receiver() {
    let host = Host::ready(5);
    host.send(
        b"hello",
        AddressVector {
            dlid: 6,
            port: 1,
            ..AddressVector::default()
        },
        0x40,
    );
    let completion = host.queue.poll().unwrap();
    assert_eq!(
        (completion.wr_id, completion.status, completion.receive),
        (9, Status::Success, false)
    );
    let unsignaled = SendRequest {
        signaled: false,
        ..inline(b"x", group(), 0x40)
    };
    host.pair.post_send(unsignaled).unwrap();
    assert_eq!(host.queue.poll(), None);
}

#[test]
fn a_datagram_arrives_behind_its_header() {
    let (sender, receiver) = (Host::ready(5), Host::ready(6));
    wire(&[&sender, &receiver]);
    receiver.receive_into(1, 512);
    let gid = *receiver.adapter.port(1).unwrap().gid(0).as_ref().unwrap();
    let address = AddressVector {
        dlid: 6,
        sl: 3,
        port: 1,
        grh: Some(Route {
            traffic_class: 7,
            flow_label: 0x12345,
            hop_limit: 64,
            ..to_gid(gid)
        }),
        ..AddressVector::default()
    };
    let request = SendRequest {
        immediate: Some(7),
        ..inline(b"hello", address, receiver.pair.number())
    };
    sender.pair.post_send(request).unwrap();
    let expected = Completion {
        wr_id: 1,
        status: Status::Success,
        receive: true,
        byte_len: 45,
        immediate: Some(7),
        qp_num: receiver.pair.number(),
        source_qp: sender.pair.number(),
        grh: true,
        pkey_index: 0,
        source_lid: 5,
        sl: 3,
        path_bits: 0,
    };
    assert_eq!(receiver.queue.poll(), Some(expected));
    // Version 6, traffic class, flow label; BTH, DETH, immediate data, payload padded to 8, CRC; next header, hop limit.
    assert_eq!(
        receiver.buffer[..8],
        [0x60, 0x71, 0x23, 0x45, 0, 36, 0x1b, 64]
    );
    assert_eq!(
        receiver.buffer[8..24],
        sender.adapter.port(1).unwrap().gid(0).unwrap()
    );
    assert_eq!(receiver.buffer[24..40], gid);
    assert_eq!(&receiver.buffer[GRH_SIZE..45], b"hello");
}

#[test]
fn a_multicast_reaches_the_attached_but_not_its_sender() {
    let (sender, member, stranger) = (Host::ready(5), Host::ready(6), Host::ready(7));
    wire(&[&sender, &member, &stranger]);
    for host in [&sender, &member] {
        host.join();
    }
    for host in [&sender, &member, &stranger] {
        host.receive_into(1, 512);
    }
    sender.send(b"hello", group(), MULTICAST_QPN);
    assert!(member.queue.poll().unwrap().receive);
    assert!(!sender.queue.poll().unwrap().receive, "its send");
    assert_eq!(sender.queue.poll(), None);
    assert_eq!(stranger.queue.poll(), None);

    member.pair.detach(GROUP, MLID).unwrap();
    member.receive_into(2, 512);
    sender.send(b"hello", group(), MULTICAST_QPN);
    assert_eq!(member.queue.poll(), None);
}

#[test]
fn groups_are_checked_as_the_kernel_does() {
    let host = Host::ready(5);
    for (gid, lid) in [
        ([0xfe; 16], MLID),
        (GROUP, MLID.swap_bytes()),
        (GROUP, 0xbfff),
        (GROUP, 0xffff),
    ] {
        assert!(
            matches!(host.pair.attach(gid, lid), Err(QpError::Argument(_))),
            "{gid:?} {lid:#x}"
        );
    }
    assert!(matches!(
        host.pair.detach(GROUP, MLID),
        Err(QpError::Argument(_))
    ));
}

#[test]
fn mismatched_datagrams_are_lost() {
    let (sender, receiver) = (Host::ready(5), Host::new(6));
    wire(&[&sender, &receiver]);
    receiver.make_ready(1); // another partition
    receiver.receive_into(1, 512);
    sender.send(b"hello", at(6), receiver.pair.number());
    assert_eq!(receiver.queue.poll(), None);

    let same = Host::ready(7);
    wire(&[&sender, &same]);
    same.receive_into(1, 512);
    for (remote_qkey, arrives) in [(5, false), (QKEY, true)] {
        let request = SendRequest {
            remote_qkey,
            ..inline(b"hello", at(7), same.pair.number())
        };
        sender.pair.post_send(request).unwrap();
        assert_eq!(same.queue.poll().is_some(), arrives, "{remote_qkey:#x}");
    }
}

#[test]
fn limited_members_talk_to_full_ones_only() {
    let (full, limited, invalid) = (1, 2, 3); // 0x8001, 0x0001, 0x8000
    for (one, other, arrives) in [
        (full, full, true),
        (full, limited, true),
        (limited, full, true),
        (limited, limited, false),
        (invalid, invalid, false),
        (full, 0, false),
    ] {
        let hosts = [Host::new(5), Host::new(6)];
        wire(&[&hosts[0], &hosts[1]]);
        for (host, index) in hosts.iter().zip([one, other]) {
            host.change_port(|port| port.pkeys = vec![0xffff, 0x8001, 0x0001, 0x8000]);
            host.make_ready(index);
            host.receive_into(1, 512);
        }
        hosts[0].send(b"hello", at(6), hosts[1].pair.number());
        assert_eq!(hosts[1].received().is_some(), arrives, "{one} to {other}");
    }
}

#[test]
fn a_buffer_that_is_too_short_is_a_failed_completion() {
    let (sender, receiver) = (Host::ready(5), Host::ready(6));
    wire(&[&sender, &receiver]);
    receiver.receive_into(1, 44);
    sender.send(
        b"hello",
        AddressVector {
            dlid: 6,
            port: 1,
            ..AddressVector::default()
        },
        receiver.pair.number(),
    );
    assert_eq!(receiver.queue.poll().unwrap().status, Status::LocalLength);
}

#[test]
fn memory_that_is_not_registered_is_a_failed_completion() {
    let host = Host::ready(5);
    let segment = host.segment(500, 13);
    let request = SendRequest {
        inline: None,
        segments: vec![segment],
        ..inline(b"", group(), 1)
    };
    host.pair.post_send(request.clone()).unwrap();
    assert_eq!(host.queue.poll().unwrap().status, Status::LocalProtection);
    host.memory.deregister(host.key);
    host.pair
        .post_send(SendRequest {
            segments: vec![host.segment(0, 1)],
            ..request
        })
        .unwrap();
    assert_eq!(host.queue.poll().unwrap().status, Status::LocalProtection);
}

#[test]
fn a_message_longer_than_the_mtu_is_a_failed_completion() {
    let host = Host::ready(5);
    let mut big = vec![0u8; 4096];
    // SAFETY: the buffer lives to the end of the test.
    let lkey = unsafe { host.memory.register(big.as_mut_ptr() as u64, 4096, false) };
    for (length, status) in [(2048, Status::Success), (2049, Status::LocalLength)] {
        let segments = vec![Segment {
            addr: big.as_ptr() as u64,
            length,
            lkey,
        }];
        host.pair
            .post_send(SendRequest {
                inline: None,
                segments,
                ..inline(b"", group(), 1)
            })
            .unwrap();
        assert_eq!(host.queue.poll().unwrap().status, status);
    }
}

#[test]
fn queues_and_requests_have_their_limits() {
    let host = Host::ready(5);
    host.receive_into(1, 100);
    host.receive_into(2, 100);
    let third = RecvRequest {
        wr_id: 3,
        segments: vec![],
    };
    assert_eq!(host.pair.post_recv(third), Err(QpError::Full));
    let wide = RecvRequest {
        wr_id: 3,
        segments: vec![host.segment(0, 1); 2],
    };
    assert_eq!(host.pair.post_recv(wide), Err(QpError::Limit));
    assert_eq!(
        host.pair.post_send(inline(&[0; 65], group(), 1)),
        Err(QpError::Limit)
    );
}

#[test]
fn states_follow_each_other() {
    let host = Host::new(5);
    let receive = || RecvRequest {
        wr_id: 1,
        segments: vec![],
    };
    assert_eq!(
        host.pair.post_recv(receive()),
        Err(QpError::State(State::Reset))
    );
    assert_eq!(
        host.pair.modify(to(State::ReadyToReceive)),
        Err(QpError::State(State::Reset))
    );
    assert!(
        matches!(host.pair.modify(to(State::Init)), Err(QpError::Argument(_))),
        "attributes are missing"
    );
    let init = Change {
        state: Some(State::Init),
        pkey_index: Some(0),
        port: Some(1),
        qkey: Some(QKEY),
        ..Change::default()
    };
    for bad in [
        Change {
            port: Some(2),
            ..init
        },
        Change {
            pkey_index: Some(3),
            ..init
        },
        Change {
            sq_psn: Some(1),
            ..init
        },
        Change {
            other: true,
            ..init
        },
    ] {
        assert!(
            matches!(host.pair.modify(bad), Err(QpError::Argument(_))),
            "{bad:?}"
        );
        assert_eq!(host.pair.attributes().state, Some(State::Reset));
    }
    host.pair.modify(init).unwrap();
    host.pair.post_recv(receive()).unwrap();
    assert_eq!(
        host.pair.post_send(inline(b"", group(), 1)),
        Err(QpError::State(State::Init))
    );
    host.pair.modify(to(State::ReadyToReceive)).unwrap();
    assert!(
        matches!(
            host.pair.modify(to(State::ReadyToSend)),
            Err(QpError::Argument(_))
        ),
        "the PSN is missing"
    );
    host.pair
        .modify(Change {
            sq_psn: Some(0x0100_0001),
            ..to(State::ReadyToSend)
        })
        .unwrap();
    assert_eq!(host.pair.attributes().sq_psn, Some(1));
}

#[test]
fn the_error_state_flushes() {
    let host = Host::ready(5);
    host.receive_into(1, 100);
    host.pair.modify(to(State::Error)).unwrap();
    host.receive_into(2, 100);
    host.pair.post_send(inline(b"", group(), 1)).unwrap();
    let flushed: Vec<_> = std::iter::from_fn(|| host.queue.poll()).collect();
    assert_eq!(
        flushed
            .iter()
            .map(|completion| completion.wr_id)
            .collect::<Vec<_>>(),
        [1, 2, 9]
    );
    assert!(
        flushed
            .iter()
            .all(|completion| completion.status == Status::Flushed)
    );
}

#[test]
fn a_destroyed_queue_pair_leaves_no_completions() {
    let host = Host::ready(5);
    let other = Host::on(host.adapter.clone());
    host.send(b"x", group(), 1);
    host.pair.forget_completions();
    assert_eq!(host.queue.poll(), None);
    let number = host.pair.number();
    drop(host);
    assert_ne!(other.pair.number(), number);
}
