//! Whether the SA answers at all, for one port; says so when that changes.
//!
//! This answers the operator's question why ibacm does not talk to the subnet manager: one
//! message when the SA stops answering, one when it starts again. A link that comes and goes
//! makes no flood of them: a stop is told at most once in [`QUIET`] ms, and one that ends
//! sooner only counts.

use super::answer::Judged;
use crate::clock::Moment;
use crate::sa::SaError;

/// Milliseconds between two messages that the SA stopped answering.
pub const QUIET: u64 = 60_000;

/// What to tell the operator, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// The SA does not answer.
    Silent {
        /// Milliseconds since it was first asked in vain.
        for_ms: u64,
        /// How the last query ended; `None` if it has not come back.
        last: Option<SaError>,
        /// Silences since the last message that were not told.
        untold: u32,
    },
    /// The SA answers again.
    Answers {
        /// Milliseconds that it was silent.
        after_ms: u64,
    },
}

/// What is known about the SA.
#[derive(Debug, Default)]
pub struct SmHealth {
    last_answer: Option<Moment>,
    silence: Option<Silence>,
    last_told: Option<Moment>,
    untold: u32,
}

#[derive(Clone, Copy, Debug)]
struct Silence {
    since: Moment,
    last: Option<SaError>,
    told: bool,
}

impl SmHealth {
    /// Nothing is known yet, which counts as no silence.
    #[must_use]
    pub fn new() -> SmHealth {
        SmHealth::default()
    }

    /// Whether the SA is known to be silent.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.silence.is_some()
    }

    /// Since when it is silent.
    #[must_use]
    pub fn silent_since(&self) -> Option<Moment> {
        self.silence.map(|silence| silence.since)
    }

    /// A query that was sent at `sent` has ended.
    ///
    /// Every answer shows that the SA is there, a refusal too. A time-out or a MAD that could
    /// not be sent shows that it is not, unless it has answered something since.
    pub fn ended(&mut self, now: Moment, sent: Moment, judged: &Judged) -> Option<Message> {
        match judged {
            Judged::Again(error @ (SaError::TimedOut | SaError::NotSent { .. })) => {
                self.failed(now, sent, Some(*error))
            }
            Judged::Failed(SaError::Closed(_)) => None,
            _ => self.spoke(now),
        }
    }

    /// Whether a query sent at `sent` that does not come back is news: when the SA has answered
    /// nothing since, and is not known to be silent.
    #[must_use]
    pub fn would_tell(&self, sent: Moment) -> bool {
        !self.is_silent() && self.last_answer.is_none_or(|answer| answer <= sent)
    }

    /// The oldest query that is out was sent at `sent` and is not back although a whole
    /// deadline has passed.
    pub fn overdue(&mut self, now: Moment, sent: Moment) -> Option<Message> {
        self.failed(now, sent, None)
    }

    /// Tells what was held back, once its time has come. To be called now and then while the
    /// SA is silent.
    pub fn poll(&mut self, now: Moment) -> Option<Message> {
        let silence = self.silence.as_mut().filter(|silence| !silence.told)?;
        if self.last_told.is_some_and(|told| now.since(told) < QUIET) {
            return None;
        }
        silence.told = true;
        self.last_told = Some(now);
        Some(Message::Silent {
            for_ms: now.since(silence.since),
            last: silence.last,
            untold: std::mem::take(&mut self.untold),
        })
    }

    /// When [`poll`](SmHealth::poll) has something to tell.
    #[must_use]
    pub fn next_poll(&self) -> Option<Moment> {
        self.silence.filter(|silence| !silence.told)?;
        self.last_told.map(|told| told.after(QUIET))
    }

    fn spoke(&mut self, now: Moment) -> Option<Message> {
        self.last_answer = Some(now);
        let silence = self.silence.take()?;
        if silence.told {
            return Some(Message::Answers {
                after_ms: now.since(silence.since),
            });
        }
        self.untold = self.untold.saturating_add(1);
        None
    }

    fn failed(&mut self, now: Moment, sent: Moment, last: Option<SaError>) -> Option<Message> {
        if self.last_answer.is_some_and(|answer| answer > sent) {
            return None;
        }
        let silence = self.silence.get_or_insert(Silence {
            since: sent,
            last,
            told: false,
        });
        silence.since = silence.since.min(sent);
        silence.last = last.or(silence.last);
        self.poll(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sa::SaStatus;

    const TIMED_OUT: Judged = Judged::Again(SaError::TimedOut);

    fn at(millis: u64) -> Moment {
        Moment::from_millis(millis)
    }

    #[test]
    fn one_message_when_it_stops_and_one_when_it_starts() {
        let mut health = SmHealth::new();
        assert_eq!(health.ended(at(10), at(5), &Judged::NoRecords), None);
        let stopped = Message::Silent {
            for_ms: 6_000,
            last: Some(SaError::TimedOut),
            untold: 0,
        };
        assert_eq!(health.ended(at(6_100), at(100), &TIMED_OUT), Some(stopped));
        assert!(health.is_silent());
        assert_eq!(health.silent_since(), Some(at(100)));
        for millis in 0..100 {
            let now = at(6_200 + millis * 1_000);
            assert_eq!(health.ended(now, at(6_200), &TIMED_OUT), None);
            assert_eq!(health.poll(now), None);
        }
        let busy = Judged::Again(SaError::Status(SaStatus::BUSY));
        let started = Message::Answers { after_ms: 199_900 };
        assert_eq!(health.ended(at(200_000), at(199_000), &busy), Some(started));
        assert!(!health.is_silent());
        assert_eq!(
            health.ended(at(200_001), at(199_000), &Judged::NoRecords),
            None
        );
    }

    #[test]
    fn one_lost_mad_among_answers_is_no_silence() {
        let mut health = SmHealth::new();
        health.ended(at(50), at(20), &Judged::NoRecords);
        assert_eq!(health.ended(at(6_010), at(10), &TIMED_OUT), None);
        assert_eq!(health.overdue(at(7_000), at(10)), None);
        assert!(!health.is_silent());
        assert!(!health.would_tell(at(10)) && health.would_tell(at(60)));
    }

    #[test]
    fn a_mad_that_never_comes_back_counts() {
        let mut health = SmHealth::new();
        assert!(health.would_tell(at(10)));
        let stopped = Message::Silent {
            for_ms: 7_000,
            last: None,
            untold: 0,
        };
        assert_eq!(health.overdue(at(7_010), at(10)), Some(stopped));
        assert!(!health.would_tell(at(10)));
        assert_eq!(health.overdue(at(8_000), at(10)), None);
        let started = Message::Answers { after_ms: 8_990 };
        assert_eq!(
            health.ended(at(9_000), at(10), &Judged::NoRecords),
            Some(started)
        );
    }

    #[test]
    fn a_closing_endpoint_says_nothing_about_the_sa() {
        let mut health = SmHealth::new();
        let closed = Judged::Failed(SaError::Closed(crate::handle::Closed));
        assert_eq!(health.ended(at(10), at(5), &closed), None);
        assert!(!health.is_silent());
        health.ended(at(20), at(15), &TIMED_OUT);
        assert_eq!(health.ended(at(30), at(25), &closed), None);
        assert!(health.is_silent());
    }

    #[test]
    fn flapping_is_told_once_a_while_and_counted() {
        let mut health = SmHealth::new();
        let (mut stops, mut starts) = (0, 0);
        let mut told = Vec::new();
        // Half a second away, half a second back, for two minutes.
        for second in 0..120 {
            let now = at(second * 1_000);
            for message in [
                health.ended(now, now, &TIMED_OUT),
                health.ended(now.after(500), now, &Judged::NoRecords),
            ] {
                match message {
                    Some(Message::Silent { untold, .. }) => {
                        stops += 1;
                        told.push(untold);
                    }
                    Some(Message::Answers { .. }) => starts += 1,
                    None => {}
                }
            }
        }
        assert_eq!((stops, starts), (2, 2));
        assert_eq!(told, [0, 59]);
    }

    #[test]
    fn a_silence_that_lasts_is_told_in_the_end() {
        let mut health = SmHealth::new();
        health.ended(at(0), at(0), &TIMED_OUT);
        health.ended(at(1_000), at(900), &Judged::NoRecords);
        assert_eq!(health.ended(at(2_000), at(1_500), &TIMED_OUT), None);
        assert_eq!(health.next_poll(), Some(at(QUIET)));
        assert_eq!(health.poll(at(QUIET - 1)), None);
        let stopped = Message::Silent {
            for_ms: QUIET - 1_500,
            last: Some(SaError::TimedOut),
            untold: 0,
        };
        assert_eq!(health.poll(at(QUIET)), Some(stopped));
        assert_eq!(health.next_poll(), None);
        assert!(
            health
                .ended(at(QUIET + 1), at(QUIET), &Judged::NoRecords)
                .is_some()
        );
    }
}
