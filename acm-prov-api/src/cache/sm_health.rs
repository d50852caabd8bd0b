//! Whether the SA of one port responds, with a message when that changes.
//!
//! There is one message when the SA stops responding, and one when it responds again. A link that comes and goes causes no
//! flood of messages: a silence is reported at most once in [`QUIET`] ms; silences that end sooner are only counted.

use crate::clock::Moment;
use crate::path::PathRecord;
use crate::sa::SaError;

/// Milliseconds between two messages that the SA stopped responding.
pub const QUIET: u64 = 60_000;

/// A message to log once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// The SA does not respond.
    Silent {
        /// Milliseconds since the first query without a response was sent.
        for_ms: u64,
        /// How the last query ended.
        last: SaError,
        /// Silences since the last message that were too short to report.
        unreported: u32,
    },
    /// The SA responds again.
    Answers {
        /// Milliseconds that it was silent.
        after_ms: u64,
    },
}

/// Whether the SA of a port responds.
#[derive(Debug, Default)]
pub struct SmHealth {
    last_answer: Option<Moment>,
    silence: Option<Silence>,
    last_told: Option<Moment>,
    unreported: u32,
}

#[derive(Clone, Copy, Debug)]
struct Silence {
    since: Moment,
    last: SaError,
    told: bool,
}

impl SmHealth {
    /// Begins without a query: the SA does not count as silent.
    #[must_use]
    pub fn new() -> SmHealth {
        SmHealth::default()
    }

    /// Whether the SA is known to be silent.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.silence.is_some()
    }

    /// Returns since when the SA is silent.
    #[must_use]
    pub fn silent_since(&self) -> Option<Moment> {
        self.silence.map(|silence| silence.since)
    }

    /// Notes the end of a query that was sent at `sent`.
    ///
    /// Every response shows that the SA is there, even an error. A timeout or a MAD that could not be sent shows that it is
    /// not, unless it has responded to another query since.
    pub fn ended(
        &mut self,
        now: Moment,
        sent: Moment,
        answer: &Result<PathRecord, SaError>,
    ) -> Option<Message> {
        match answer {
            Err(error) if error.is_silence() => self.failed(now, sent, *error),
            Err(SaError::Closed(_)) => None,
            _ => self.spoke(now),
        }
    }

    /// Returns a message that is due. Call this at [`next_poll`](SmHealth::next_poll) while the SA is silent.
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
            unreported: std::mem::take(&mut self.unreported),
        })
    }

    /// Returns when [`poll`](SmHealth::poll) has a message.
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
        self.unreported = self.unreported.saturating_add(1);
        None
    }

    fn failed(&mut self, now: Moment, sent: Moment, last: SaError) -> Option<Message> {
        if self.last_answer.is_some_and(|answer| answer > sent) {
            return None;
        }
        let silence = self.silence.get_or_insert(Silence {
            since: sent,
            last,
            told: false,
        });
        silence.since = silence.since.min(sent);
        silence.last = last;
        self.poll(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sa::SaStatus;

    const TIMED_OUT: Result<PathRecord, SaError> = Err(SaError::TimedOut);
    const NO_RECORDS: Result<PathRecord, SaError> = Err(SaError::Status(SaStatus::NO_RECORDS));

    fn at(millis: u64) -> Moment {
        Moment::from_millis(millis)
    }

    #[test]
    fn one_message_when_it_stops_and_one_when_it_starts() {
        let mut health = SmHealth::new();
        assert_eq!(health.ended(at(10), at(5), &NO_RECORDS), None);
        let stopped = Message::Silent {
            for_ms: 6_000,
            last: SaError::TimedOut,
            unreported: 0,
        };
        assert_eq!(health.ended(at(6_100), at(100), &TIMED_OUT), Some(stopped));
        assert!(health.is_silent());
        assert_eq!(health.silent_since(), Some(at(100)));
        for millis in 0..100 {
            let now = at(6_200 + millis * 1_000);
            assert_eq!(health.ended(now, at(6_200), &TIMED_OUT), None);
            assert_eq!(health.poll(now), None);
        }
        let busy = Err(SaError::Status(SaStatus::BUSY));
        let started = Message::Answers { after_ms: 199_900 };
        assert_eq!(health.ended(at(200_000), at(199_000), &busy), Some(started));
        assert!(!health.is_silent());
        assert_eq!(health.ended(at(200_001), at(199_000), &NO_RECORDS), None);
    }

    #[test]
    fn one_lost_mad_among_answers_is_no_silence() {
        let mut health = SmHealth::new();
        health.ended(at(50), at(20), &NO_RECORDS);
        assert_eq!(health.ended(at(6_010), at(10), &TIMED_OUT), None);
        assert!(!health.is_silent());
    }

    #[test]
    fn a_closing_endpoint_says_nothing_about_the_sa() {
        let mut health = SmHealth::new();
        let closed = Err(SaError::Closed(crate::handles::Closed));
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
                health.ended(now.after(500), now, &NO_RECORDS),
            ] {
                match message {
                    Some(Message::Silent { unreported, .. }) => {
                        stops += 1;
                        told.push(unreported);
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
        health.ended(at(1_000), at(900), &NO_RECORDS);
        assert_eq!(health.ended(at(2_000), at(1_500), &TIMED_OUT), None);
        assert_eq!(health.next_poll(), Some(at(QUIET)));
        assert_eq!(health.poll(at(QUIET - 1)), None);
        let stopped = Message::Silent {
            for_ms: QUIET - 1_500,
            last: SaError::TimedOut,
            unreported: 0,
        };
        assert_eq!(health.poll(at(QUIET)), Some(stopped));
        assert_eq!(health.next_poll(), None);
        assert!(
            health
                .ended(at(QUIET + 1), at(QUIET), &NO_RECORDS)
                .is_some()
        );
    }
}
