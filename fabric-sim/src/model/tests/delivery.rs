//! Which datagrams arrive, and at which queue pairs.

use crate::model::adapter::{Adapter, Identity, LinkLayer};
use crate::model::event::PortEvent;
use crate::model::membership::{JoinState, Membership};
use crate::model::port::{PortSnapshot, STATE_ACTIVE, STATE_DOWN};
use crate::model::queue_pair::{AddressVector, Change, MULTICAST_QPN, SendRequest, State};
use crate::model::switch::Switch;
use crate::testing::*;

/// Two hosts: the first can send to the group, the second can receive.
fn group_of_two() -> [Host; 2] {
    let hosts = [Host::ready(5), Host::ready(6)];
    wire(&[&hosts[0], &hosts[1]]);
    for host in &hosts {
        host.join();
        host.receive_into(1, 512);
    }
    hosts
}

fn multicast(from: &Host) {
    from.send(b"hello", group(), MULTICAST_QPN);
}

fn assert_receives(sender: &Host, member: &Host, receives: bool, why: &str) {
    multicast(sender);
    assert_eq!(member.received().is_some(), receives, "{why}");
    if receives {
        member.receive_into(1, 512);
    }
}

#[test]
fn unicast_goes_to_the_port_with_its_lid_alone() {
    let hosts = [Host::ready(5), Host::ready(6), Host::ready(7)];
    let [sender, receiver, other] = &hosts;
    wire(&[sender, receiver, other]);
    // All three have the same queue pair number.
    assert_eq!(receiver.pair.number(), other.pair.number());
    for host in &hosts {
        host.receive_into(1, 512);
    }
    sender.send(b"hello", at(6), receiver.pair.number());
    assert!(receiver.received().is_some());
    assert_eq!((other.received(), sender.received()), (None, None));
    for lid in [0, 8, 0xffff] {
        sender.send(b"nobody", at(lid), other.pair.number());
    }
    assert_eq!((other.received(), sender.received()), (None, None));
}

#[test]
fn a_port_has_two_to_the_lmc_lids() {
    let (sender, receiver) = (Host::ready(8), Host::ready(0x10));
    wire(&[&sender, &receiver]);
    for host in [&sender, &receiver] {
        host.change_port(|port| port.info.lmc = 2);
    }
    receiver.receive_into(1, 512);
    let address = AddressVector {
        source_path_bits: 0x7d,
        ..at(0x13)
    };
    sender.send(b"hello", address, receiver.pair.number());
    let completion = receiver.received().unwrap();
    assert_eq!((completion.path_bits, completion.source_lid), (3, 9));
    receiver.receive_into(1, 512);
    sender.send(b"hello", at(0x14), receiver.pair.number());
    assert_eq!(receiver.received(), None);
}

#[test]
fn a_header_names_a_gid_of_the_port() {
    let (sender, receiver) = (Host::ready(5), Host::ready(6));
    wire(&[&sender, &receiver]);
    receiver.receive_into(1, 512);
    let own = receiver.adapter.port(1).unwrap().gid(0).unwrap();
    let mut other = own;
    other[15] ^= 1;
    for (gid, arrives) in [(other, false), (own, true)] {
        let address = AddressVector {
            grh: Some(to_gid(gid)),
            ..at(6)
        };
        sender.send(b"hello", address, receiver.pair.number());
        assert_eq!(receiver.received().is_some(), arrives, "{gid:?}");
    }
}

#[test]
fn a_port_that_is_not_active_neither_sends_nor_receives() {
    for state in [STATE_DOWN, 2, 3] {
        for who in [0, 1] {
            let hosts = group_of_two();
            let [sender, receiver] = &hosts;
            hosts[who].change_port(|port| port.info.state = state);
            sender.send(b"hello", at(6), receiver.pair.number());
            multicast(sender);
            assert_eq!(receiver.received(), None, "{state} of {who}");
            let sends = std::iter::from_fn(|| sender.queue.poll());
            assert_eq!(sends.count(), 2, "they are complete all the same");
        }
    }
}

#[test]
fn an_ethernet_port_has_no_lids() {
    let ethernet = [(1, LinkLayer::Ethernet)].into();
    let port = (*adapter(6).port(1).unwrap()).clone();
    let receiver = Host::on(Adapter::mixed(Identity::default(), vec![port], ethernet));
    receiver.make_ready(0);
    let sender = Host::ready(5);
    wire(&[&sender, &receiver]);
    receiver.receive_into(1, 512);
    sender.send(b"hello", at(6), receiver.pair.number());
    assert_eq!(receiver.received(), None);
}

#[test]
fn a_smaller_mtu_on_the_way_loses_it() {
    let (mut sender, receiver) = (Host::ready(5), Host::ready(6));
    wire(&[&sender, &receiver]);
    receiver.change_port(|port| port.info.neighbor_mtu = 1);
    sender.buffer.fill(1);
    receiver.receive_into(1, 512);
    for (length, arrives) in [(257, false), (256, true)] {
        let request = SendRequest {
            segments: vec![sender.segment(0, length)],
            inline: None,
            ..inline(b"", at(6), receiver.pair.number())
        };
        sender.pair.post_send(request).unwrap();
        assert_eq!(receiver.received().is_some(), arrives, "{length}");
    }
}

#[test]
fn a_queue_pair_of_another_port_receives_nothing() {
    let ports = [6, 7].map(|lid| (*adapter(lid).port(1).unwrap()).clone());
    let receiver = Host::on(Adapter::new(Identity::default(), ports.to_vec()));
    receiver.make_ready(0); // on port 1, LID 6
    let sender = Host::ready(5);
    wire(&[&sender, &receiver]);
    receiver.join();
    receiver
        .adapter
        .joined(2, Membership::full(GROUP, MLID))
        .unwrap();
    sender.join();
    receiver.receive_into(1, 512);
    sender.send(b"hello", at(7), receiver.pair.number());
    assert_eq!(receiver.received(), None);
    receiver.receive_into(2, 512);
    multicast(&sender);
    assert!(receiver.received().is_some());
    assert_eq!(receiver.received(), None, "not a second time by port 2");
}

#[test]
fn a_group_needs_a_join_on_both_sides() {
    let [sender, member] = group_of_two();
    assert_receives(&sender, &member, true, "both have joined");
    member.adapter.left(1, &GROUP, JoinState::ALL).unwrap();
    assert_receives(&sender, &member, false, "attached, but not joined");
    member.join();
    sender.adapter.left(1, &GROUP, JoinState::ALL).unwrap();
    assert_receives(&sender, &member, false, "the sender has not joined");
    sender.join();
    assert_receives(&sender, &member, true, "both again");
    member.pair.detach(GROUP, MLID).unwrap();
    assert_receives(&sender, &member, false, "joined, but not attached");
}

#[test]
fn send_only_members_receive_nothing() {
    let [sender, member] = group_of_two();
    let send_only = Membership {
        state: JoinState::SEND_ONLY_NON_MEMBER,
        ..Membership::full(GROUP, MLID)
    };
    for host in [&sender, &member] {
        host.adapter.joined(1, send_only).unwrap();
        host.adapter
            .left(1, &GROUP, JoinState::FULL_MEMBER)
            .unwrap();
    }
    assert_receives(&sender, &member, false, "it only sends");
    member.join();
    assert_receives(&sender, &member, true, "the sender may send");
}

#[test]
fn switches_forward_by_the_lid_and_adapters_by_both() {
    let [sender, member] = group_of_two();
    // Two groups may share a LID: a member of one also gets the datagrams of the other.
    let mut other = GROUP;
    other[15] = 9;
    member.adapter.left(1, &GROUP, JoinState::ALL).unwrap();
    member
        .adapter
        .joined(1, Membership::full(other, MLID))
        .unwrap();
    assert_receives(&sender, &member, true, "the same LID");
    member
        .adapter
        .joined(1, Membership::full(other, MLID + 1))
        .unwrap();
    assert_receives(&sender, &member, false, "the group has another LID now");
}

#[test]
fn a_multicast_is_well_formed() {
    let [sender, member] = group_of_two();
    let without_header = AddressVector {
        grh: None,
        ..group()
    };
    sender.send(b"no header", without_header, MULTICAST_QPN);
    sender.send(b"to one", group(), member.pair.number());
    assert_eq!(member.received(), None);
    assert_receives(&sender, &member, true, "as it should be");
}

#[test]
fn memberships_end_with_the_port_and_the_manager() {
    type Change = fn(&mut PortSnapshot);
    let changes: [(&str, Change); 2] = [
        ("the port is lost", |port| port.info.state = 2),
        ("another manager", |port| port.info.sm_lid = 9),
    ];
    for (what, change) in changes {
        let [sender, member] = group_of_two();
        member.change_port(change);
        member.change_port(|port| port.info.state = STATE_ACTIVE);
        assert_eq!(member.adapter.memberships(1).unwrap(), [], "{what}");
        assert_receives(&sender, &member, false, what);
        member.join();
        assert_receives(&sender, &member, true, "joined anew");
    }
    let [sender, member] = group_of_two();
    member.change_port(|port| port.pkeys.push(0x8123));
    member.change_port(|port| port.info.lid = 77);
    for event in PortEvent::ALL {
        member.adapter.inject(1, event).unwrap();
    }
    assert_receives(&sender, &member, true, "nothing of that ended it");
}

#[test]
fn other_queue_pairs_of_the_port_receive_its_multicast() {
    let sender = Host::ready(5);
    let other = Host::on(sender.adapter.clone());
    other.make_ready(0);
    let stranger = Host::ready(6);
    wire(&[&sender, &stranger]);
    for host in [&sender, &other] {
        host.join();
    }
    for host in [&sender, &other, &stranger] {
        host.receive_into(1, 512);
    }
    multicast(&sender);
    assert_eq!(other.received().unwrap().source_qp, sender.pair.number());
    assert_eq!((sender.received(), stranger.received()), (None, None));

    other.receive_into(2, 512);
    sender.send(b"hello", at(5), other.pair.number());
    assert_eq!(other.received().unwrap().source_lid, 5);
    sender.send(b"to itself", at(5), sender.pair.number());
    assert!(sender.received().is_some());
}

#[test]
fn two_ports_of_an_adapter_reach_each_other_by_the_switch() {
    let ports = [6, 7].map(|lid| (*adapter(lid).port(1).unwrap()).clone());
    let one = Host::on(Adapter::new(Identity::default(), ports.to_vec()));
    one.make_ready(0);
    let other = Host::on(one.adapter.clone());
    let init = Change {
        state: Some(State::Init),
        pkey_index: Some(0),
        port: Some(2),
        qkey: Some(QKEY),
        ..Change::default()
    };
    other.pair.modify(init).unwrap();
    other.pair.modify(to(State::ReadyToReceive)).unwrap();
    other.receive_into(1, 512);
    wire(&[&one]);
    one.send(b"hello", at(7), other.pair.number());
    assert_eq!(other.received().unwrap().source_lid, 6);
}

#[test]
fn a_port_has_one_cable() {
    let (sender, receiver) = (Host::ready(5), Host::ready(6));
    let first = Switch::connecting(&[sender.adapter.clone(), receiver.adapter.clone()]);
    let second = Switch::connecting(std::slice::from_ref(&receiver.adapter));
    receiver.receive_into(1, 512);
    sender.send(b"hello", at(6), receiver.pair.number());
    assert_eq!(receiver.received(), None, "they are on two switches");
    second.connect(&sender.adapter, 1).unwrap();
    second.connect(&sender.adapter, 1).unwrap();
    sender.send(b"hello", at(6), receiver.pair.number());
    assert!(receiver.received().is_some());
    assert!(first.connect(&sender.adapter, 2).is_err());
}

#[test]
fn numbers_are_used_again_as_late_as_possible() {
    let adapter = adapter(5);
    adapter.number_queue_pairs(0x30_0040..=0x30_0042, 0x30_0041);
    let make = || Host::on(adapter.clone());
    let first = make();
    assert_eq!(first.pair.number(), 0x30_0041);
    assert_eq!(make().pair.number(), 0x30_0042);
    assert_eq!(make().pair.number(), 0x30_0040);
    assert_eq!(make().pair.number(), 0x30_0042, "0x300041 is in use");
}
