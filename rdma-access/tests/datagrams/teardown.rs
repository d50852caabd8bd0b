//! Destroying objects: in any order, with everything returned, and failures reported.

use std::ffi::c_void;
use std::sync::Mutex;

use super::*;
use rdma_access::verbs::{Device, LinkLayer, PortState, devices};
use rdma_access::{Cause, Error, Guid, PKey, set_teardown_report};
use rustix::io::Errno;

/// The reported teardown errors. Only [`a_failing_end_is_an_error_or_a_report`] may cause any.
static REPORTED: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn record(error: &Error) {
    REPORTED.lock().unwrap().push(error.to_string());
}

#[test]
fn slots_that_are_posted_come_back_when_the_queue_pair_ends() {
    let end = Endpoint::new(3);
    (0..5).for_each(|token| end.receive(token));
    assert_eq!(end.buffers.free_slots(), 11);
    Arc::into_inner(end.pair).unwrap().close().unwrap();
    assert_eq!(end.buffers.free_slots(), 16);
    let mut completions = Vec::new();
    end.queue.poll(&mut completions).unwrap();
    assert!(completions.is_empty(), "{completions:?}");
}

#[test]
fn other_completions_survive_the_end_of_a_queue_pair() {
    let (a, b) = (Endpoint::new(3), Endpoint::new(7));
    let second = UdQueuePair::new(&b.domain, &b.queue, &b.queue, &attributes()).unwrap();
    let slot = b.buffers.take_slot().unwrap();
    second.post_receive(slot, 99).unwrap();
    (0..3).for_each(|token| b.receive(token));
    let address = a.address(7);
    for number in [b.pair.number(), second.number(), b.pair.number()] {
        let to = Destination {
            address: &address,
            qp_number: number,
            qkey: QKEY,
        };
        a.send(b"hello", &to, 0);
    }
    a.completions(3);
    second.close().unwrap();
    let arrived = b.completions(2);
    let tokens: Vec<u64> = arrived.iter().map(Completion::token).collect();
    assert_eq!(tokens, [0, 1]);
    assert!(
        arrived
            .iter()
            .all(|completion| completion.received().unwrap().payload() == b"hello")
    );
    b.nothing_more();
    drop(arrived);
    // One receive is still posted.
    assert_eq!(b.buffers.free_slots(), SLOTS as usize - 1);
}

#[test]
fn parents_live_as_long_as_their_children() {
    let Endpoint {
        context,
        domain,
        channel,
        queue,
        buffers,
        pair,
    } = Endpoint::new(3);
    let attached = MulticastAttachment::new(&pair, GROUP, MLID).unwrap();
    let slot = buffers.take_slot().unwrap();
    drop((context, domain, channel, buffers, pair));
    // What is left keeps the rest alive.
    assert_eq!(slot.len(), GRH_LENGTH + 256);
    let mut completions = Vec::new();
    queue.arm(false).unwrap();
    assert_eq!(queue.poll(&mut completions).unwrap(), 0);
    attached.close().unwrap();
    drop(queue);
    drop(slot);
}

#[test]
fn a_refused_attachment_does_not_hold_the_queue_pair() {
    let end = Endpoint::new(3);
    // Not a multicast LID.
    let error = MulticastAttachment::new(&end.pair, GROUP, Lid(7)).unwrap_err();
    assert_eq!(error.operation(), "ibv_attach_mcast");
    assert!(error.inputs().contains("MLID 7"), "{error}");
    let attached = MulticastAttachment::new(&end.pair, GROUP, MLID).unwrap();
    let error = MulticastAttachment::new(&end.pair, GROUP, MLID).unwrap_err();
    assert!(matches!(error.cause(), Cause::Invalid(_)), "{error}");
    attached.close().unwrap();
    drop(MulticastAttachment::new(&end.pair, GROUP, MLID).unwrap());
    Arc::into_inner(end.pair).unwrap().close().unwrap();
}

#[test]
fn everything_closes_without_an_error_in_order() {
    let Endpoint {
        context,
        domain,
        channel,
        queue,
        buffers,
        pair,
    } = Endpoint::new(3);
    let attached = MulticastAttachment::new(&pair, GROUP, MLID).unwrap();
    attached.close().unwrap();
    Arc::into_inner(pair).unwrap().close().unwrap();
    Arc::into_inner(buffers).unwrap().close().unwrap();
    Arc::into_inner(queue).unwrap().close().unwrap();
    Arc::into_inner(channel).unwrap().close().unwrap();
    Arc::into_inner(domain).unwrap().close().unwrap();
    Arc::into_inner(context).unwrap().close().unwrap();
}

/// Creates an object that keeps a domain in use, unknown to this crate.
fn foreign_address(domain: *mut ibverbs_sys::ibv_pd) -> *mut ibverbs_sys::ibv_ah {
    let mut attributes = ibverbs_sys::ibv_ah_attr {
        port_num: 1,
        ..Default::default()
    };
    // SAFETY: the domain is alive and the attributes are readable.
    unsafe { ibverbs_sys::ibv_create_ah(domain, &raw mut attributes) }
}

#[test]
fn a_failing_end_is_an_error_or_a_report() {
    set_teardown_report(record);
    let context = context(3);
    let domain = Arc::new(ProtectionDomain::new(&context).unwrap());
    let address = foreign_address(domain.as_ptr().cast());
    assert!(!address.is_null());
    let error = Arc::into_inner(domain).unwrap().close().unwrap_err();
    assert_eq!(
        (error.operation(), error.raw_os_error()),
        ("ibv_dealloc_pd", Some(Errno::BUSY.raw_os_error()))
    );
    assert!(error.to_string().contains("still uses it"), "{error}");

    let domain = ProtectionDomain::new(&context).unwrap();
    foreign_address(domain.as_ptr().cast());
    drop(domain);
    let reported = REPORTED.lock().unwrap();
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert!(reported[0].starts_with("ibv_dealloc_pd("), "{reported:?}");
}

#[test]
fn devices_are_found_by_name_guid_and_node() {
    context(3);
    let names: Vec<String> = devices()
        .unwrap()
        .iter()
        .map(|device| device.name().to_owned())
        .collect();
    assert_eq!(names, ["sim3", "sim7"]);
    assert_eq!(Device::by_name("sim7").unwrap().node_guid(), Guid(0x107));
    assert_eq!(Device::by_node_guid(Guid(0x103)).unwrap().name(), "sim3");
    let error = Device::by_name("sim4").unwrap_err();
    assert!(
        matches!(error.cause(), Cause::NoDevice { present, .. } if present.len() == 2),
        "{error}"
    );
    assert!(
        error.to_string().contains("(sim4)") && error.to_string().contains("sim7"),
        "{error}"
    );
    // The simulation uses one device node name for both.
    let error = Device::by_device_node("/dev/infiniband/uverbs0").unwrap_err();
    assert!(
        matches!(error.cause(), Cause::Ambiguous { fitting } if fitting.len() == 2),
        "{error}"
    );
    let error = Device::by_device_node("/dev/infiniband/uverbs1").unwrap_err();
    assert!(matches!(error.cause(), Cause::NoDevice { .. }), "{error}");
}

#[test]
fn the_device_of_a_foreign_context_is_opened_as_a_context_of_its_own() {
    let theirs = context(7);
    // SAFETY: the context is open.
    let ours = unsafe { Context::open_same_device(theirs.as_ptr()) }.unwrap();
    assert_ne!(ours.as_ptr(), theirs.as_ptr());
    assert_eq!((ours.name(), ours.node_guid()), ("sim7", Guid(0x107)));
    // SAFETY: NULL is allowed.
    let error = unsafe { Context::open_same_device(std::ptr::null_mut::<c_void>()) }.unwrap_err();
    assert!(matches!(error.cause(), Cause::Invalid(_)), "{error}");
}

#[test]
fn a_port_tells_its_attributes_and_tables() {
    let context = context(7);
    assert_eq!(context.port_count().unwrap(), 1);
    let port = context.port(1).unwrap();
    assert_eq!(
        (port.state, port.link_layer),
        (PortState::ACTIVE, LinkLayer::INFINIBAND)
    );
    assert_eq!((port.lid, port.active_mtu), (Lid(7), 4));
    assert_eq!((port.gid_table_length, port.pkey_table_length), (1, 3));
    assert_eq!(context.gid(1, 0).unwrap(), gid(7));
    assert_eq!(context.pkey(1, 2).unwrap(), PKey(0x8001));
    assert_eq!(context.pkey_index(1, PKey(0x8001)).unwrap(), Some(2));
    assert_eq!(context.pkey_index(1, PKey(0x8002)).unwrap(), None);
    for error in [
        context.port(2).unwrap_err(),
        context.gid(1, 1).unwrap_err(),
        context.pkey(1, 3).unwrap_err(),
    ] {
        assert_eq!(
            error.raw_os_error(),
            Some(Errno::INVAL.raw_os_error()),
            "{error}"
        );
        assert!(error.inputs().starts_with("sim7, port "), "{error}");
    }
}

#[test]
fn constructors_refuse_parts_that_do_not_match() {
    let (a, b) = (Endpoint::new(3), Endpoint::new(7));
    let error = CompletionQueue::new(&a.context, 4, Some(&b.channel)).unwrap_err();
    assert!(error.to_string().contains("another context"), "{error}");
    let error = UdQueuePair::new(&a.domain, &a.queue, &b.queue, &attributes()).unwrap_err();
    assert!(error.to_string().contains("another context"), "{error}");
    let error = UdQueuePair::new(
        &a.domain,
        &a.queue,
        &a.queue,
        &UdAttributes {
            pkey_index: 3,
            ..attributes()
        },
    )
    .unwrap_err();
    assert!(
        error.operation() == "ibv_modify_qp" && error.inputs().contains("to INIT"),
        "{error}"
    );
    assert!(error.inputs().contains("P_Key index 3"), "{error}");
    for (size, count) in [(0, 4), (4, 0), (usize::MAX, 2), (1 << 20, 1 << 20)] {
        let error = MemoryRegion::new(&a.domain, size, count).unwrap_err();
        assert!(matches!(error.cause(), Cause::Invalid(_)), "{error}");
    }
    let route = Some(GlobalRoute {
        flow_label: 1 << 20,
        ..GlobalRoute::default()
    });
    let error = AddressHandle::new(
        &a.domain,
        &AddressAttributes {
            port: 1,
            route,
            ..Default::default()
        },
    )
    .unwrap_err();
    assert!(error.to_string().contains("flow label"), "{error}");
}
