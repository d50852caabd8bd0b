use super::*;
use crate::abi::{Be64, acm_device, acm_endpoint, acm_port};
use crate::handles::{Closed, DeviceHandle, PortHandle};
use crate::sa::queue::RECORD_LENGTH;

/// Returns a new port. The core is never called for it.
fn port() -> *const acm_port {
    let device = Box::leak(Box::new(acm_device {
        verbs: std::ptr::null_mut(),
        dev_guid: Be64::from_host(1),
    }));
    Box::leak(Box::new(acm_port {
        dev: device,
        port_num: 1,
    }))
}

/// Returns an endpoint of one of those ports.
fn endpoint(port: *const acm_port) -> EndpointHandle {
    let endpoint = Box::leak(Box::new(acm_endpoint {
        port: port.cast_mut(),
        pkey: 0xffff,
    }));
    let host = crate::testing::host_that_logs(|_, _| ());
    // SAFETY: the structures are leaked, and so stay open.
    unsafe {
        let device = DeviceHandle::new(host, (*port).dev);
        EndpointHandle::new(PortHandle::new(device, port), endpoint)
    }
}

fn id(id: u64) -> MadId {
    MadId::from_u64(id).unwrap()
}

fn new(number: u64, endpoint: &EndpointHandle, asked: Moment, wanted_until: Moment) -> NewMad {
    NewMad {
        id: id(number),
        endpoint: endpoint.clone(),
        urgency: Urgency::Usual,
        request: MadRequest {
            method: 1,
            response: 0x81,
            attribute: 0x35,
            mask: 0,
            record: [0; RECORD_LENGTH],
        },
        asked,
        wanted_until,
        done: Box::new(|_, _: Result<&umad_sa_packet, SaError>| ()),
    }
}

/// Submits a MAD. Returns the port, and the id of the MAD to hand over.
fn submit(mads: &mut Mads, new: NewMad) -> (PortIndex, Option<MadId>) {
    let submitted = mads.submit(new);
    let (port, next) = submitted.unwrap_or_else(|_| panic!("the id is known"));
    (port, next.map(|next| next.context.id))
}

fn handed_over(mads: &mut Mads, port: PortIndex, now: Moment) -> Vec<MadId> {
    std::iter::from_fn(|| mads.next_to_hand_over(port, now))
        .map(|next| next.context.id)
        .collect()
}

/// Checks the invariants between two calls.
fn assert_whole(mads: &Mads) {
    let count =
        |is_meant: &dyn Fn(&Mad) -> bool| mads.by_id.values().filter(|m| is_meant(m)).count();
    assert_eq!(mads.waiting, count(&|mad| mad.done.is_some()));
    let due = mads.deadlines.iter().map(|((deadline, id), ())| {
        assert_eq!(mads.by_id[&id].deadline, deadline);
    });
    assert_eq!(due.count(), count(&|mad| mad.deadline != Moment::NEVER));
    for (index, port) in mads.ports.iter().enumerate() {
        let here = |mad: &Mad| mad.port == PortIndex(index);
        let is_out = |mad: &Mad| here(mad) && matches!(mad.state, State::Out(_));
        assert_eq!(port.out, count(&is_out));
        let is_queued = |mad: &Mad| here(mad) && matches!(mad.state, State::Queued(..));
        assert_eq!(port.queue.iter().count(), count(&is_queued));
        for (place, id) in port.queue.iter() {
            assert!(matches!(mads.by_id[id].state, State::Queued(at, _) if at == place));
        }
    }
    let is_idle = |mad: &Mad| mad.done.is_none() && !matches!(mad.state, State::Out(_));
    assert_eq!(count(&is_idle), 0);
}

#[test]
fn a_port_with_room_takes_a_mad_at_once_and_others_wait_for_their_turn() {
    let (port, mut mads) = (port(), Mads::default());
    let endpoint = endpoint(port);
    let now = Moment::from_millis(1_000);
    let submit_one = |mads: &mut Mads, number, urgency| {
        let new = new(number, &endpoint, now, Moment::NEVER);
        let submitted = submit(mads, NewMad { urgency, ..new });
        assert_whole(mads);
        submitted
    };
    // `sa_depth` is 1: one is sent, one waits in the core.
    for number in [1, 2] {
        assert_eq!(
            submit_one(&mut mads, number, Urgency::Usual).1,
            Some(id(number))
        );
    }
    for (number, urgency) in [
        (3, Urgency::Usual),
        (4, Urgency::Usual),
        (5, Urgency::Urgent),
    ] {
        assert_eq!(submit_one(&mut mads, number, urgency).1, None);
    }
    let (index, last_word) = submit_one(&mut mads, 6, Urgency::Last);
    assert_eq!(last_word, Some(id(6)), "whatever the core has");
    assert!(mads.queued_endpoint(id(3)).is_some() && mads.queued_endpoint(id(6)).is_none());
    for (back, next) in [
        (1, None),
        (2, Some(5)),
        (6, Some(3)),
        (5, Some(4)),
        (3, None),
    ] {
        assert!(mads.take_back(id(back)).is_some());
        let handed_over = handed_over(&mut mads, index, now);
        assert_eq!(handed_over, next.map(id).into_iter().collect::<Vec<_>>());
        assert_whole(&mads);
    }
    assert!(mads.take_back(id(3)).is_none(), "it was back");
}

#[test]
fn a_new_mad_does_not_overtake_those_that_wait() {
    let (endpoint, mut mads) = (endpoint(port()), Mads::default());
    let now = Moment::from_millis(1_000);
    for number in 1..=3 {
        submit(&mut mads, new(number, &endpoint, now, Moment::NEVER));
    }
    // The third has not been handed over yet.
    assert!(mads.take_back(id(1)).is_some());
    let (_, next) = submit(&mut mads, new(4, &endpoint, now, Moment::NEVER));
    assert_eq!(next, Some(id(3)));
    assert_whole(&mads);
}

#[test]
fn an_id_in_use_is_refused() {
    let (endpoint, mut mads) = (endpoint(port()), Mads::default());
    let now = Moment::from_millis(1_000);
    submit(&mut mads, new(7, &endpoint, now, Moment::NEVER));
    assert!(mads.submit(new(7, &endpoint, now, Moment::NEVER)).is_err());
    assert_whole(&mads);
    assert!(mads.withdraw(id(7)).is_none(), "the core has it");
    assert!(mads.take_back(id(7)).is_some());
    submit(&mut mads, new(7, &endpoint, now, Moment::NEVER));
    assert_whole(&mads);
}

#[test]
fn a_lost_mad_of_a_closed_endpoint_makes_room_at_its_own_port() {
    let (ours, other) = (port(), port());
    let (closed, reopened, busy) = (endpoint(ours), endpoint(ours), endpoint(other));
    let mut mads = Mads::default();
    let start = Moment::from_millis(1_000);
    for number in [1, 2] {
        submit(&mut mads, new(number, &closed, start, Moment::NEVER));
    }
    assert_eq!(mads.close(closed.id()).len(), 2, "each is ended");
    assert_whole(&mads);
    let (index, next) = submit(&mut mads, new(3, &reopened, start, Moment::NEVER));
    assert_eq!(next, None);

    let late = start.after(3_600_000);
    let (other, _) = submit(&mut mads, new(4, &busy, late, Moment::NEVER));
    assert_eq!(handed_over(&mut mads, other, late), []);
    let (ended, ports) = mads.take_due(late);
    assert_eq!((ended.len(), ports), (0, vec![index, index]));
    assert_whole(&mads);
    assert_eq!(handed_over(&mut mads, index, late), [id(3)]);
    assert!(mads.take_back(id(1)).is_none(), "it is presumed lost");
    assert_whole(&mads);
}

#[test]
fn patience_ends_a_wait_while_the_mad_keeps_its_place() {
    let (endpoint, mut mads) = (endpoint(port()), Mads::default());
    let now = Moment::from_millis(1_000);
    let until = now.after(100);
    let mut index = None;
    for number in 1..=4 {
        index = Some(submit(&mut mads, new(number, &endpoint, now, until)).0);
    }
    let index = index.unwrap();
    let (ended, ports) = mads.take_due(until);
    assert_eq!(ended.len(), 4, "two are out, two wait here");
    assert_eq!((mads.waiting, ports.len()), (0, 2));
    assert_whole(&mads);
    let new = new(5, &endpoint, until, Moment::NEVER);
    assert_eq!(submit(&mut mads, new).1, None);
    assert_eq!(handed_over(&mut mads, index, now.after(3_600_000)), [id(5)]);
    assert_whole(&mads);
}

#[test]
fn mads_that_cannot_be_sent_end_at_once_and_take_no_place() {
    let (endpoint, mut mads) = (endpoint(port()), Mads::default());
    let now = Moment::from_millis(1_000);
    for number in 1..=4 {
        submit(&mut mads, new(number, &endpoint, now, Moment::NEVER));
    }
    mads.not_taken(id(1), SaError::NotTaken { code: 5 });
    mads.not_taken(id(3), SaError::NotTaken { code: 5 });
    mads.not_to_be_sent(id(2), SaError::Closed(Closed));
    mads.not_to_be_sent(id(4), SaError::Closed(Closed));
    assert_whole(&mads);
    let (ended, ports) = mads.take_due(now);
    let mut errors: Vec<SaError> = ended.iter().map(|ended| ended.error).collect();
    errors.sort_by_key(SaError::is_silence);
    let expected = [SaError::Closed(Closed), SaError::NotTaken { code: 5 }];
    assert_eq!(errors, expected, "2 is out, 3 waits");
    assert_eq!(handed_over(&mut mads, ports[0], now), [id(3)]);
    assert_whole(&mads);
    let withdrawn = mads.withdraw(id(3));
    assert!(withdrawn.is_none());
}

#[test]
fn overflowing_times_are_never() {
    let (endpoint, mut mads) = (endpoint(port()), Mads::default());
    submit(
        &mut mads,
        new(
            1,
            &endpoint,
            Moment::from_millis(u64::MAX - 1),
            Moment::NEVER,
        ),
    );
    assert_eq!(mads.next_deadline(), None);
    mads.not_taken(id(1), SaError::NoMemory);
    assert_whole(&mads);
    assert_eq!(mads.take_due(Moment::from_millis(1)).0.len(), 1);
    assert_whole(&mads);
}

#[test]
fn a_mad_that_waits_in_the_core_has_the_time_of_the_one_before_it() {
    let limits = SaLimits {
        timeout: 100,
        retries: 2,
        depth: 2,
    };
    let now = Moment::from_millis(1_000);
    for (out, time) in [(0, 400), (1, 400), (2, 700)] {
        assert_eq!(lost_at(&limits, out, now), now.after(time), "{out} out");
    }
}
