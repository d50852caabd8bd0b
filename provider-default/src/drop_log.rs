//! Dropped datagrams: counts them and logs at most one line a second.

use acm_prov_api::LogLevel;
use acm_prov_api::address::{Address, Gid};
use acm_prov_api::clock::Moment;
use rdma_access::ud::CompletionStatus;

use crate::resolver::NoAnswer;
use crate::wire::Malformed;

/// Milliseconds between two lines.
const PAUSE: u64 = 1_000;

/// Why a datagram was dropped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Dropped {
    #[error("it has no GRH")]
    NoGrh,
    #[error("its sender has no valid GID, LID or queue pair")]
    NoSender,
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("an answer to another GID than ours")]
    AnswerNotToUs,
    #[error("a request to neither our GID nor a group of ours")]
    RequestNotToUs,
    #[error("an answer with status {0:#06x}")]
    Refusal(u16),
    #[error("we are in none of its groups")]
    NoCommonGroup,
    #[error(transparent)]
    NoAnswer(#[from] NoAnswer),
    #[error("it claims our own address {0}")]
    ClaimsOwn(Address),
    #[error("it claims {0}, which the hosts file gives to another node")]
    ClaimsPreloaded(Address),
    #[error("it claims {0}, which another node has")]
    ClaimsOthers(Address),
    #[error("too many answers are waiting")]
    TooManyAnswers,
    #[error("sending failed: {0}")]
    NotSent(String),
    #[error("a work request failed: {0}")]
    Failed(CompletionStatus),
    #[error("the endpoint is closed")]
    Closed,
}

impl Dropped {
    /// Late answers, and nodes without a common group, are normal; other causes are faults.
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

/// Datagrams dropped since the last line.
#[derive(Default)]
pub(crate) struct DropLog {
    /// The last one, its sender, and the number of all.
    unreported: Option<(Dropped, Gid, u64)>,
    quiet_until: Moment,
}

impl DropLog {
    pub(crate) fn note(&mut self, from: Gid, dropped: Dropped) {
        let count = self.unreported.as_ref().map_or(0, |(_, _, count)| *count);
        self.unreported = Some((dropped, from, count + 1));
    }

    /// Returns the line that is due now.
    pub(crate) fn line(&mut self, now: Moment) -> Option<Line> {
        if now < self.quiet_until {
            return None;
        }
        let (dropped, from, count) = self.unreported.take()?;
        self.quiet_until = now.after(PAUSE);
        let text = match count {
            1 => format!("dropped a datagram from {from}: {dropped}"),
            _ => format!("dropped {count} datagrams, the last one from {from}: {dropped}"),
        };
        Some(Line {
            level: dropped.level(),
            text,
        })
    }

    /// Returns when the next line is due.
    pub(crate) fn next_line(&self) -> Option<Moment> {
        self.unreported.as_ref().map(|_| self.quiet_until)
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
                "dropped 10 datagrams, the last one from fe80::7: 3 bytes instead of 256",
                "dropped 10000 datagrams, the last one from fe80::7: 3 bytes instead of 256",
                "dropped 10000 datagrams, the last one from fe80::7: 3 bytes instead of 256",
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
