use super::*;
use crate::address::{Gid, Lid};
use crate::cache::question::Target;
use crate::sa::{SaError, SaStatus};

const TIMEOUT: u64 = 2_000;
const PATIENCE: u64 = 6_000;

const BUSY: Judged = Judged::Again(SaError::Status(SaStatus::BUSY));
const SILENT: Judged = Judged::Again(SaError::TimedOut);

fn at(millis: u64) -> Moment {
    Moment::from_millis(millis)
}

fn key(lid: u16) -> Key {
    Key {
        endpoint: EndpointId(1),
        question: Question::plain(Target::Lid(Lid(lid))),
    }
}

fn path(lid: u16) -> PathRecord {
    let mut path = PathRecord::default();
    path.set_dlid(Lid(lid))
        .set_dgid(Gid::new(0xfe80 << 48, lid.into()));
    path
}

fn limits() -> LookupLimits {
    LookupLimits {
        timeout: TIMEOUT,
        retries: 2,
        out: 2,
        lookups: 100,
        waiters: 1_022,
    }
}

fn lookups() -> Lookups<u32> {
    Lookups::new(limits(), 7)
}

/// With another number of MADs out at a time.
fn lookups_out(out: usize) -> Lookups<u32> {
    Lookups::new(LookupLimits { out, ..limits() }, 7)
}

/// Sends everything that may be sent.
fn send(lookups: &mut Lookups<u32>, now: Moment) -> Vec<Query> {
    std::iter::from_fn(|| lookups.next_to_send(now)).collect()
}

fn finished(lookups: &mut Lookups<u32>, now: Moment, id: LookupId, judged: Judged) -> Replies<u32> {
    lookups
        .answered(now, id, &judged)
        .expect("a query that ends")
        .replies
}

fn timed_out(request: u32) -> (u32, Result<PathRecord, AcmStatus>) {
    (request, Err(AcmStatus::ETIMEDOUT))
}

#[test]
fn a_question_is_asked_once_and_answers_all() {
    let mut lookups = lookups();
    for request in 0..200 {
        lookups
            .ask(at(request.into()), key(1), request, None)
            .unwrap();
    }
    let sent = send(&mut lookups, at(200));
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].key, key(1));
    lookups.ask(at(300), key(1), 200, None).unwrap();
    assert_eq!(send(&mut lookups, at(300)), []);
    assert_eq!(
        (lookups.waiting(), lookups.len(), lookups.out()),
        (201, 1, 1)
    );

    let replies = finished(&mut lookups, at(400), sent[0].id, Judged::Path(path(1)));
    let expected: Vec<_> = (0..=200).map(|request| (request, Ok(path(1)))).collect();
    assert_eq!(replies, expected);
    assert!(lookups.is_empty());
    assert_eq!((lookups.waiting(), lookups.out()), (0, 0));
    assert_eq!(lookups.next_deadline(), None);
}

#[test]
fn endpoints_and_questions_are_told_apart() {
    let mut lookups = Lookups::new(
        LookupLimits {
            out: 10,
            ..limits()
        },
        7,
    );
    let mut service = key(1);
    service.question.demands.service_id = 9;
    let other_endpoint = Key {
        endpoint: EndpointId(2),
        ..key(1)
    };
    for (request, key) in [key(1), key(2), service, other_endpoint]
        .into_iter()
        .enumerate()
    {
        lookups.ask(at(0), key, request as u32, None).unwrap();
    }
    assert_eq!(send(&mut lookups, at(0)).len(), 4);
}

#[test]
fn no_more_mads_out_than_the_limit_and_the_oldest_first() {
    let mut lookups = lookups();
    for lid in 1..=5 {
        lookups.ask(at(0), key(lid), lid.into(), None).unwrap();
    }
    let first = send(&mut lookups, at(0));
    assert_eq!(
        first.iter().map(|query| query.key).collect::<Vec<_>>(),
        [key(1), key(2)]
    );
    finished(&mut lookups, at(1), first[1].id, Judged::NoRecords);
    let next = send(&mut lookups, at(1));
    assert_eq!(
        next.iter().map(|query| query.key).collect::<Vec<_>>(),
        [key(3)]
    );
    assert_eq!(lookups.oldest_out(), Some(at(0)));
}

#[test]
fn every_outcome_reaches_those_who_wait() {
    let failed = Judged::Failed(SaError::Status(SaStatus::REQ_DENIED));
    let cases = [
        (Judged::Path(path(1)), Ok(path(1))),
        (Judged::NoRecords, Err(AcmStatus::ENODATA)),
        (Judged::Invalid, Err(AcmStatus::EINVAL)),
        (failed, Err(AcmStatus::ENODATA)),
    ];
    for (judged, reply) in cases {
        let mut lookups = lookups();
        lookups.ask(at(0), key(1), 1, None).unwrap();
        let id = send(&mut lookups, at(0))[0].id;
        assert_eq!(finished(&mut lookups, at(1), id, judged), [(1, reply)]);
    }
}

#[test]
fn a_deadline_is_kept_although_the_mad_never_comes_back() {
    let mut lookups = lookups();
    lookups.ask(at(0), key(1), 1, None).unwrap();
    send(&mut lookups, at(0));
    lookups.ask(at(1_000), key(1), 2, None).unwrap();
    assert_eq!(lookups.next_deadline(), Some(at(PATIENCE)));
    assert_eq!(lookups.expire(at(PATIENCE - 1)), []);
    assert_eq!(lookups.expire(at(PATIENCE)), [timed_out(1)]);
    assert_eq!(lookups.next_deadline(), Some(at(1_000 + PATIENCE)));
    assert_eq!(lookups.expire(at(1_000 + PATIENCE)), [timed_out(2)]);
    assert_eq!(lookups.next_deadline(), None);
    // It still counts as out, and whoever asks now waits for it.
    assert_eq!(lookups.out(), 1);
    lookups.ask(at(8_000), key(1), 3, None).unwrap();
    assert_eq!(send(&mut lookups, at(8_000)), []);
    assert_eq!(lookups.expire(at(8_000 + PATIENCE)), [timed_out(3)]);
}

#[test]
fn a_mad_that_nobody_waits_for_still_blocks_the_limit() {
    let mut lookups = lookups();
    for lid in 1..=3 {
        lookups.ask(at(0), key(lid), lid.into(), None).unwrap();
    }
    let sent = send(&mut lookups, at(0));
    assert_eq!(lookups.expire(at(PATIENCE)).len(), 3);
    // The one that was never sent is dropped.
    assert_eq!((lookups.len(), lookups.out()), (2, 2));
    lookups.ask(at(7_000), key(4), 4, None).unwrap();
    assert_eq!(send(&mut lookups, at(7_000)), []);
    assert!(lookups.answered(at(7_001), sent[0].id, &SILENT).is_none());
    assert_eq!(send(&mut lookups, at(7_001)).len(), 1);
    // A late answer reaches nobody but is one.
    let late = lookups
        .answered(at(7_002), sent[1].id, &Judged::Path(path(2)))
        .unwrap();
    assert_eq!((late.key, late.replies.len()), (key(2), 0));
}

#[test]
fn a_queued_lookup_that_nobody_waits_for_is_dropped() {
    let mut lookups = lookups_out(1);
    lookups.ask(at(0), key(1), 1, None).unwrap();
    let out = send(&mut lookups, at(0))[0].id;
    for round in 0..1_000 {
        let now = at(round * 10_000);
        lookups.ask(now, key(2), 2, None).unwrap();
        lookups.expire(now.after(PATIENCE));
        assert_eq!((lookups.len(), lookups.queue.len()), (1, 0));
    }
    lookups.answered(at(u64::MAX / 2), out, &Judged::NoRecords);
    assert_eq!(send(&mut lookups, at(u64::MAX / 2)), []);
}

#[test]
fn a_busy_sa_is_asked_again_until_the_deadline() {
    let mut lookups = lookups();
    lookups.ask(at(0), key(1), 1, None).unwrap();
    let (mut now, mut asked) = (at(0), 0);
    loop {
        for query in send(&mut lookups, now) {
            asked += 1;
            assert!(lookups.answered(now, query.id, &BUSY).is_none());
        }
        assert_eq!(send(&mut lookups, now), [], "no rest at {now:?}");
        now = lookups.next_deadline().unwrap();
        let replies = lookups.expire(now);
        if !replies.is_empty() {
            assert_eq!(replies, [timed_out(1)]);
            break;
        }
    }
    assert_eq!(now, at(PATIENCE));
    // 125 ms doubled up to 2 s, each rest between a half and the whole: 6 to 12 times.
    assert!((5..=12).contains(&asked), "{asked}");
    assert!(lookups.is_empty());
}

#[test]
fn silence_and_failed_sends_are_asked_again_too() {
    let mut lookups = lookups();
    lookups.ask(at(0), key(1), 1, None).unwrap();
    let first = send(&mut lookups, at(0))[0].id;
    lookups.send_failed(at(0), first);
    assert_eq!(lookups.out(), 0);
    let again = lookups.next_deadline().unwrap();
    assert_eq!(lookups.expire(again), []);
    let second = send(&mut lookups, again)[0].id;
    assert!(lookups.answered(again, second, &SILENT).is_none());
    let again = lookups.next_deadline().unwrap();
    lookups.expire(again);
    let third = send(&mut lookups, again)[0].id;
    assert_eq!(
        finished(&mut lookups, again, third, Judged::Path(path(1))),
        [(1, Ok(path(1)))]
    );
}

#[test]
fn a_prefetch_is_looked_up_without_anyone_waiting() {
    let mut lookups = lookups();
    lookups.prefetch(at(0), key(1)).unwrap();
    lookups.prefetch(at(10), key(1)).unwrap();
    let sent = send(&mut lookups, at(10));
    assert_eq!(sent.len(), 1);
    let end = lookups
        .answered(at(20), sent[0].id, &Judged::Path(path(1)))
        .unwrap();
    assert_eq!((end.key, end.replies.len()), (key(1), 0));

    // Not for ever.
    let mut lookups = lookups_out(0);
    lookups.prefetch(at(0), key(1)).unwrap();
    assert_eq!(lookups.next_deadline(), Some(at(PATIENCE)));
    lookups.expire(at(PATIENCE));
    assert!(lookups.is_empty());
}

#[test]
fn a_stale_path_is_answered_one_timeout_after_the_query() {
    let mut lookups = lookups();
    lookups.ask(at(0), key(1), 1, Some(path(9))).unwrap();
    lookups.ask(at(0), key(1), 2, None).unwrap();
    let sent = send(&mut lookups, at(500));
    assert_eq!(lookups.next_deadline(), Some(at(500 + TIMEOUT)));
    assert_eq!(lookups.expire(at(500 + TIMEOUT)), [(1, Ok(path(9)))]);
    // Whoever comes later need not wait again.
    lookups.ask(at(3_000), key(1), 3, Some(path(9))).unwrap();
    assert_eq!(lookups.expire(at(3_000)), [(3, Ok(path(9)))]);
    // The fresh path is still wanted.
    assert_eq!(lookups.expire(at(PATIENCE)), [timed_out(2)]);
    let end = lookups
        .answered(at(6_500), sent[0].id, &Judged::Path(path(1)))
        .unwrap();
    assert_eq!(end.replies, []);
}

#[test]
fn a_stale_path_is_answered_instead_of_a_time_out() {
    let mut lookups = lookups_out(0);
    lookups.ask(at(0), key(1), 1, Some(path(9))).unwrap();
    assert_eq!(lookups.expire(at(PATIENCE - 1)), []);
    assert_eq!(lookups.expire(at(PATIENCE)), [(1, Ok(path(9)))]);
}

#[test]
fn a_fresh_answer_beats_a_stale_path() {
    for (judged, reply) in [
        (Judged::Path(path(1)), Ok(path(1))),
        (Judged::NoRecords, Err(AcmStatus::ENODATA)),
    ] {
        let mut lookups = lookups();
        lookups.ask(at(0), key(1), 1, Some(path(9))).unwrap();
        let id = send(&mut lookups, at(0))[0].id;
        assert_eq!(finished(&mut lookups, at(1), id, judged), [(1, reply)]);
    }
}

#[test]
fn known_silence_answers_all_stale_paths_at_once() {
    let mut lookups = lookups();
    for lid in 1..=5 {
        lookups
            .ask(at(0), key(lid), lid.into(), Some(path(lid)))
            .unwrap();
        lookups
            .ask(at(0), key(lid), 10 + u32::from(lid), None)
            .unwrap();
    }
    send(&mut lookups, at(0));
    let mut replies = lookups.answer_stale(at(10));
    replies.sort_by_key(|reply| reply.0);
    let expected: Vec<_> = (1..=5).map(|lid| (u32::from(lid), Ok(path(lid)))).collect();
    assert_eq!(replies, expected);
    assert_eq!((lookups.waiting(), lookups.len()), (5, 5));
    assert_eq!(lookups.answer_stale(at(10)), []);
}

#[test]
fn what_does_not_fit_is_given_back() {
    let mut lookups = Lookups::new(
        LookupLimits {
            lookups: 2,
            waiters: 3,
            ..limits()
        },
        7,
    );
    lookups.ask(at(0), key(1), 1, None).unwrap();
    lookups.prefetch(at(0), key(2)).unwrap();
    assert_eq!(lookups.ask(at(0), key(3), 3, None), Err(Full(3)));
    assert_eq!(lookups.prefetch(at(0), key(3)), Err(Full(())));
    lookups.ask(at(0), key(1), 4, None).unwrap();
    lookups.ask(at(0), key(2), 5, None).unwrap();
    assert_eq!(lookups.ask(at(0), key(2), 6, None), Err(Full(6)));
    assert_eq!(lookups.waiting(), 3);
}

#[test]
fn an_endpoint_that_closes_gets_its_requests_back() {
    let mut lookups = lookups();
    let other = Key {
        endpoint: EndpointId(2),
        ..key(1)
    };
    lookups.ask(at(0), key(1), 1, None).unwrap();
    lookups.ask(at(0), key(2), 2, None).unwrap();
    lookups.ask(at(0), key(3), 3, None).unwrap();
    lookups.ask(at(0), other, 4, None).unwrap();
    let sent = send(&mut lookups, at(0));
    let mut back = lookups.close_endpoint(EndpointId(1));
    back.sort_unstable();
    assert_eq!(back, [1, 2, 3]);
    assert_eq!((lookups.len(), lookups.waiting(), lookups.out()), (1, 1, 2));
    assert_eq!(send(&mut lookups, at(1)), []);
    // The old answers free the limit and reach nobody, not even the same question asked anew.
    lookups.ask(at(2), key(1), 5, None).unwrap();
    for query in sent {
        assert!(
            lookups
                .answered(at(2), query.id, &Judged::Path(path(1)))
                .is_none()
        );
    }
    let next: Vec<Key> = send(&mut lookups, at(2))
        .iter()
        .map(|query| query.key)
        .collect();
    assert_eq!(next, [other, key(1)]);
    assert_eq!(lookups.close().len(), 2);
}

#[test]
fn an_answer_that_comes_twice_or_for_nothing_is_ignored() {
    let mut lookups = lookups();
    lookups.ask(at(0), key(1), 1, None).unwrap();
    let id = send(&mut lookups, at(0))[0].id;
    assert!(lookups.answered(at(1), id, &BUSY).is_none());
    // It rests now: nothing is out.
    assert!(
        lookups
            .answered(at(1), id, &Judged::Path(path(1)))
            .is_none()
    );
    assert!(
        lookups
            .answered(at(1), LookupId(99), &Judged::Path(path(1)))
            .is_none()
    );
    assert_eq!(lookups.waiting(), 1);
}

#[test]
fn a_clock_that_goes_back_does_no_harm() {
    let mut lookups = lookups();
    lookups.ask(at(1_000), key(1), 1, None).unwrap();
    lookups.ask(at(0), key(1), 2, None).unwrap();
    assert_eq!(
        lookups.expire(at(1_000 + PATIENCE)),
        [timed_out(1), timed_out(2)]
    );
}

#[test]
fn who_asks_after_a_reregister_gets_no_answer_from_before() {
    let mut lookups = lookups();
    lookups.ask(at(0), key(1), 1, None).unwrap();
    lookups.ask(at(0), key(2), 2, None).unwrap();
    let before = send(&mut lookups, at(0));
    lookups.supersede();
    lookups.ask(at(1), key(1), 3, None).unwrap();
    let old = finished(&mut lookups, at(2), before[0].id, Judged::Path(path(1)));
    assert_eq!(old, [(1, Ok(path(1)))]);
    let after = send(&mut lookups, at(2));
    assert_eq!(after[0].key, key(1));
    // One that is sent anew answers everybody again.
    assert!(lookups.answered(at(3), before[1].id, &BUSY).is_none());
    lookups.ask(at(4), key(2), 4, None).unwrap();
    assert_eq!((lookups.len(), lookups.waiting()), (2, 3));
    let new = finished(&mut lookups, at(5), after[0].id, Judged::Path(path(9)));
    assert_eq!(new, [(3, Ok(path(9)))]);
}

#[test]
fn a_lookup_goes_on_for_a_fresh_path_after_its_stale_answers() {
    let mut lookups = lookups_out(1);
    lookups.ask(at(0), key(1), 1, None).unwrap();
    let out = send(&mut lookups, at(0))[0].id;
    lookups.ask(at(0), key(2), 2, Some(path(9))).unwrap();
    assert_eq!(lookups.answer_stale(at(10)), [(2, Ok(path(9)))]);
    finished(&mut lookups, at(20), out, Judged::NoRecords);
    let sent = send(&mut lookups, at(20));
    assert_eq!(sent[0].key, key(2));
    // And no longer than the client would have waited.
    assert!(lookups.answered(at(20), sent[0].id, &BUSY).is_none());
    lookups.expire(at(PATIENCE));
    assert!(lookups.is_empty());
}

#[test]
fn a_stale_waiter_that_left_leaves_no_timer() {
    let mut lookups = lookups_out(1);
    lookups.ask(at(0), key(1), 1, None).unwrap();
    let out = send(&mut lookups, at(0))[0].id;
    lookups.ask(at(0), key(2), 2, Some(path(9))).unwrap();
    lookups.ask(at(5_000), key(2), 3, None).unwrap();
    let mut replies = lookups.expire(at(PATIENCE));
    replies.sort_by_key(|reply| reply.0);
    assert_eq!(replies, [timed_out(1), (2, Ok(path(9)))]);
    lookups.answered(at(PATIENCE), out, &Judged::NoRecords);
    send(&mut lookups, at(PATIENCE));
    assert_eq!(lookups.next_deadline(), Some(at(5_000 + PATIENCE)));
}
