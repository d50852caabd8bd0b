//! Datagrams that are of no use: counted, and told in one line a second however many come.

use acm_prov_api::LogLevel;
use acm_prov_api::address::{Address, Gid};
use acm_prov_api::clock::Moment;
use rdma_access::ud::CompletionStatus;

use crate::resolver::NoAnswer;
use crate::wire::Malformed;

/// Milliseconds between two lines.
const PAUSE: u64 = 1_000;

/// Why nothing came of a datagram.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Dropped {
    #[error("no GRH")]
    NoGrh,
    #[error("no GID, LID or queue pair of a sender")]
    NoSender,
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("an answer that is not for our GID")]
    AnswerNotToUs,
    #[error("a request that is neither for our GID nor for a group of ours")]
    RequestNotToUs,
    #[error("an answer with status {0:#06x}")]
    Refusal(u16),
    #[error("none of its groups is ours")]
    NoCommonGroup,
    #[error(transparent)]
    NoAnswer(#[from] NoAnswer),
    #[error("it claims our own address {0}")]
    ClaimsOwn(Address),
    #[error("it claims {0}, which is another's by the hosts file")]
    ClaimsPreloaded(Address),
    #[error("it claims {0}, which is another's")]
    ClaimsOthers(Address),
    #[error("too many answers wait already")]
    TooManyAnswers,
    #[error("not sent: {0}")]
    NotSent(String),
    #[error("a work request failed: {0}")]
    Failed(CompletionStatus),
    #[error("the endpoint is closed")]
    Closed,
}

impl Dropped {
    /// Loss and delay make late answers and failed sends; the rest is somebody's fault.
    fn level(&self) -> LogLevel {
        match self {
            Self::NoAnswer(NoAnswer::Unknown) | Self::NoCommonGroup | Self::Closed => {
                LogLevel::VERBOSE
            }
            _ => LogLevel::ALWAYS,
        }
    }
}

/// A line for the log.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub level: LogLevel,
    pub text: String,
}

/// What was dropped and not yet told.
#[derive(Default)]
pub(crate) struct DropLog {
    /// The last one, its sender, and how many there were.
    untold: Option<(Dropped, Gid, u64)>,
    quiet_until: Moment,
}

impl DropLog {
    pub(crate) fn note(&mut self, from: Gid, dropped: Dropped) {
        let count = self.untold.as_ref().map_or(0, |(_, _, count)| *count);
        self.untold = Some((dropped, from, count + 1));
    }

    /// What is to be told now.
    pub(crate) fn line(&mut self, now: Moment) -> Option<Line> {
        if now < self.quiet_until {
            return None;
        }
        let (dropped, from, count) = self.untold.take()?;
        self.quiet_until = now.after(PAUSE);
        let text = match count {
            1 => format!("dropped a datagram of {from}: {dropped}"),
            _ => format!("dropped {count} datagrams, the last one of {from}: {dropped}"),
        };
        Some(Line {
            level: dropped.level(),
            text,
        })
    }

    /// When there will be something to tell.
    pub(crate) fn next_line(&self) -> Option<Moment> {
        self.untold.as_ref().map(|_| self.quiet_until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use acm_prov_api::address::Name;

    fn at(millis: u64) -> Moment {
        Moment::from_millis(millis)
    }

    #[test]
    fn one_line_a_second_however_many_come() {
        let gid: Gid = "fe80::7".parse().unwrap();
        let mut log = DropLog::default();
        assert_eq!(log.line(at(0)), None);
        let mut lines = Vec::new();
        for now in 0..3_000 {
            for _ in 0..10 {
                log.note(gid, Malformed::Length(3).into());
            }
            lines.extend(log.line(at(now)).map(|line| line.text));
        }
        assert_eq!(
            lines,
            [
                "dropped 10 datagrams, the last one of fe80::7: 3 bytes instead of 256",
                "dropped 10000 datagrams, the last one of fe80::7: 3 bytes instead of 256",
                "dropped 10000 datagrams, the last one of fe80::7: 3 bytes instead of 256",
            ]
        );
        assert_eq!(log.next_line(), Some(at(3_000)));
        assert!(log.line(at(3_000)).is_some());
        assert_eq!(log.next_line(), None);
    }

    #[test]
    fn names_are_escaped_and_normal_things_are_quiet() {
        let mut log = DropLog::default();
        let name = Address::Name(Name::new("a\nb").unwrap());
        log.note(Gid::ZERO, Dropped::ClaimsOwn(name));
        let line = log.line(at(0)).unwrap();
        assert_eq!(line.level, LogLevel::ALWAYS);
        assert!(
            line.text.ends_with("it claims our own address a\\nb"),
            "{}",
            line.text
        );
        log.note(Gid::ZERO, NoAnswer::Unknown.into());
        assert_eq!(log.line(at(1_000)).unwrap().level, LogLevel::VERBOSE);
    }
}
