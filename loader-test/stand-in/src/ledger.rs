//! The ledger: all requests and MADs that the stand-in core gave out, their answers, and the violations.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::clock;
use super::message::{Kind, Path, Reply};

/// Whom a fault affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Harmed {
    /// A client of ibacm.
    Client,
    /// The ibacm daemon and all its clients.
    Daemon,
    /// The subnet administrator and the whole fabric.
    Sa,
    /// Another node of the fabric.
    Node,
    /// The operator, who reads logs and counters.
    Operator,
}

impl fmt::Display for Harmed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Client => "a client",
            Self::Daemon => "the daemon",
            Self::Sa => "the subnet administrator",
            Self::Node => "another node",
            Self::Operator => "the operator",
        })
    }
}

/// A violation of the contract, independent of the check's subject.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// The kind of violation.
    pub kind: ViolationKind,
    /// Whom it affects.
    pub harmed: Harmed,
    /// What happened.
    pub text: String,
}

/// The kinds of violation that the ledger detects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ViolationKind {
    /// A request got no answer.
    NeverAnswered,
    /// A request got its answer long after its deadline.
    AnsweredLate,
    /// A callback blocked the core's only thread.
    BlockedCore,
    /// A request got two answers.
    AnsweredTwice,
    /// An answer to a client without a request.
    ForeignId,
    /// The transaction id is not the request's.
    ChangedTid,
    /// The length is invalid, or does not fit the answer.
    WrongLength,
    /// A resolve answered as a query, or a query as a resolve.
    WrongFunction,
    /// `resolve` or `query` returned non-zero, but the provider answers the request.
    NonZeroReturn,
    /// An answer without the acknowledge bit.
    MissingAck,
    /// An opcode that is not the request's.
    ChangedOpcode,
    /// Data bytes of the header that are not zero.
    DirtyHeader,
    /// A MAD freed twice, or one that the core never allocated.
    MadFreedTwice,
    /// A MAD sent twice.
    MadSentTwice,
    /// A MAD freed while the core has it.
    MadFreedInFlight,
    /// A MAD neither sent nor freed, or not freed by its handler.
    MadLeaked,
    /// A MAD allocated or sent for a closed endpoint.
    MadForClosedEndpoint,
    /// A MAD written to after it was freed.
    MadUsedAfterFree,
    /// A transaction id that is zero, above 32 bits, or in use.
    BadTid,
    /// A MAD without a handler.
    NoHandler,
    /// A context written although the callback failed.
    ContextAfterFailure,
    /// A NULL context from a callback that succeeded.
    NullContext,
    /// A counter that does not exist.
    UnknownCounter,
    /// The provider counted a counter that the core counts.
    CoreCounter,
    /// A panic in the provider that the SDK caught.
    CaughtPanic,
    /// A panic that ended a thread of the provider.
    ThreadPanicked,
    /// A request that the provider dropped and the SDK answered.
    DroppedRequest,
    /// A client got a path that the SA does not give, or none although the SA has one.
    WrongAnswer,
}

impl ViolationKind {
    /// All of them.
    pub const ALL: [Self; 28] = [
        Self::NeverAnswered,
        Self::AnsweredLate,
        Self::BlockedCore,
        Self::AnsweredTwice,
        Self::ForeignId,
        Self::ChangedTid,
        Self::WrongLength,
        Self::WrongFunction,
        Self::NonZeroReturn,
        Self::MissingAck,
        Self::ChangedOpcode,
        Self::DirtyHeader,
        Self::MadFreedTwice,
        Self::MadSentTwice,
        Self::MadFreedInFlight,
        Self::MadLeaked,
        Self::MadForClosedEndpoint,
        Self::MadUsedAfterFree,
        Self::BadTid,
        Self::NoHandler,
        Self::ContextAfterFailure,
        Self::NullContext,
        Self::UnknownCounter,
        Self::CoreCounter,
        Self::CaughtPanic,
        Self::ThreadPanicked,
        Self::DroppedRequest,
        Self::WrongAnswer,
    ];

    /// The rule that was broken, in one sentence.
    pub fn rule(self) -> &'static str {
        match self {
            Self::NeverAnswered => {
                "every request gets an answer: without one its client hangs, and one of 1,022 slots is lost"
            }
            Self::AnsweredLate => {
                "every request gets its answer by its deadline, timeout x (retries + 1): its client is waiting"
            }
            Self::BlockedCore => {
                "a callback returns at once: the core has one thread, which serves no other client meanwhile"
            }
            Self::AnsweredTwice => {
                "no request gets two answers: the second can reach the slot's next client"
            }
            Self::ForeignId => {
                "an answer carries the id of a request: the core uses it as an index without a check"
            }
            Self::ChangedTid => {
                "an answer carries the transaction id of its request: the kernel's is a pointer"
            }
            Self::WrongLength => {
                "an answer's length covers its header and entries, an error's only the header"
            }
            Self::WrongFunction => {
                "acm_resolve_response answers a resolve, acm_query_response a query"
            }
            Self::NonZeroReturn => {
                "resolve and query return 0 if the provider answers the request, now or later"
            }
            Self::MissingAck => "an answer's opcode has the acknowledge bit",
            Self::ChangedOpcode => "an answer has its request's opcode",
            Self::DirtyHeader => "the data bytes of an answer's header are zero",
            Self::MadFreedTwice => "an SA MAD is freed once",
            Self::MadSentTwice => "an SA MAD is sent once",
            Self::MadFreedInFlight => {
                "an SA MAD belongs to the core from the send until the core calls its handler"
            }
            Self::MadLeaked => {
                "the provider sends or frees each SA MAD, and its handler frees a sent one"
            }
            Self::MadForClosedEndpoint => "the provider allocates SA MADs only for open endpoints",
            Self::MadUsedAfterFree => "the provider does not touch an SA MAD after freeing it",
            Self::BadTid => {
                "a MAD's transaction id is not zero, is below 2^32, and differs from those of all outstanding MADs"
            }
            Self::NoHandler => "a MAD has a handler: the core calls it without a check",
            Self::ContextAfterFailure => {
                "a failing callback leaves its context unwritten: the core tests it later"
            }
            Self::NullContext => {
                "a successful callback stores a context: the core takes NULL for not open"
            }
            Self::UnknownCounter => "the provider counts only counters that exist",
            Self::CoreCounter => "the core itself counts errors, resolves and no-data answers",
            Self::CaughtPanic => {
                "a provider does not panic: a panic leaves its work half done, and its client gets an error"
            }
            Self::ThreadPanicked => "a thread of the provider does not panic: its work then stops",
            Self::DroppedRequest => {
                "the provider answers or refuses each request: one that it drops gets ENODATA from the SDK"
            }
            Self::WrongAnswer => "a client gets the SA's path to the requested destination",
        }
    }
}

/// A request to the provider.
#[derive(Clone, Debug)]
pub struct Request {
    /// Resolve or query.
    pub kind: Kind,
    /// Its transaction id.
    pub tid: u64,
    /// The requested path record, with source and partition filled in, and the subnet's version at that time.
    pub wanted: Option<(Path, u64)>,
    /// When the core passed it to the provider.
    pub asked: Instant,
    /// When the first answer came.
    pub answered: Option<Instant>,
    /// Whether the client is still connected.
    pub connected: bool,
    /// The answers: exactly one from a correct provider.
    pub replies: Vec<Reply>,
}

/// The state of an SA MAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MadState {
    /// Allocated; the provider fills it.
    Given,
    /// Sent; the core has it.
    Sent,
    /// Returned; its handler has it.
    Returned,
    /// Freed.
    Freed,
}

/// The ledger.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Requests by id.
    pub requests: BTreeMap<u64, Request>,
    /// MADs by address.
    pub mads: HashMap<usize, MadState>,
    /// Time after which an answer is late; `None` if none is ever late.
    pub late_after: Option<Duration>,
    /// How long the process had waited for processors when this ledger began.
    waited_before: Duration,
    /// For each callback a bit per recent call, set if the call blocked the core's thread too long; bit 0 is the last call.
    slow_calls: HashMap<&'static str, u8>,
    /// The first few violations of each kind.
    violations: Vec<Violation>,
}

/// Return value of the core's answering functions if the client has left.
pub(super) const CONNECTION_LOST: i32 = 5;

/// Violations kept per kind: more say nothing new.
const KEPT: usize = 5;

/// Mask of the recent calls that count, and how many of them must be slow for a violation.
const LAST_CALLS: u8 = 0b111;
const TOO_MANY_SLOW: u32 = 2;

/// Returns how long a callback may block the core's thread.
pub fn callback_limit(callback: &str) -> Duration {
    if callback.starts_with("open_") || callback.starts_with("close_") {
        Duration::from_secs(1)
    } else {
        Duration::from_millis(20)
    }
}

impl Ledger {
    /// Returns an empty ledger for requests with this deadline.
    pub(super) fn new(deadline: Duration) -> Self {
        let mut ledger = Self {
            waited_before: clock::process_waited(),
            ..Self::default()
        };
        ledger.set_deadline(deadline);
        ledger
    }

    /// Sets the deadline of requests. An answer is late after twice that plus a margin: a request may need two queries, and
    /// the provider is not at fault if the machine is busy.
    pub(super) fn set_deadline(&mut self, deadline: Duration) {
        const ALLOWANCE: Duration = Duration::from_millis(1500);
        self.late_after = Some(deadline * 2 + ALLOWANCE);
    }

    /// Records the end of a callback, and its duration if that was too long. One slow call may be due to the machine; two of
    /// the last three are due to the provider.
    pub(super) fn callback_over(&mut self, callback: &'static str, too_long: Option<Duration>) {
        let Some(took) = too_long else {
            if let Some(calls) = self.slow_calls.get_mut(callback) {
                *calls <<= 1;
            }
            return;
        };
        let calls = self.slow_calls.entry(callback).or_default();
        *calls = *calls << 1 | 1;
        let slow = (*calls & LAST_CALLS).count_ones();
        if slow < TOO_MANY_SLOW {
            return;
        }
        let text = format!(
            "{callback} held the core's only thread for {took:.0?}, and {slow} of its last 3 calls for more than {:?}",
            callback_limit(callback)
        );
        self.breach(ViolationKind::BlockedCore, Harmed::Daemon, text);
    }

    /// Returns the time since `asked` if an answer is late by now.
    fn lateness(&self, asked: Instant) -> Option<Duration> {
        let elapsed = asked.elapsed();
        let limit = self.late_after.filter(|limit| elapsed > *limit)?;
        let waited = clock::process_waited().saturating_sub(self.waited_before);
        (elapsed > limit + waited).then_some(elapsed)
    }

    /// Records a violation.
    pub fn breach(&mut self, kind: ViolationKind, harmed: Harmed, text: impl Into<String>) {
        if self
            .violations
            .iter()
            .filter(|known| known.kind == kind)
            .count()
            < KEPT
        {
            self.violations.push(Violation {
                kind,
                harmed,
                text: text.into(),
            });
        }
    }

    /// Returns the violations so far.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Removes the violations of one kind and returns them, for a check that judges them itself.
    pub fn forgive(&mut self, kind: ViolationKind) -> Vec<Violation> {
        self.violations
            .extract_if(.., |violation| violation.kind == kind)
            .collect()
    }

    /// Records an answer, and returns what the core would return.
    pub fn answered(&mut self, id: u64, reply: Reply, by: Kind) -> i32 {
        let Some(request) = self.requests.get_mut(&id) else {
            self.breach(
                ViolationKind::ForeignId,
                Harmed::Client,
                format!("an answer for client {id}, which sent no request: the core uses the id as an index without a check"),
            );
            return CONNECTION_LOST;
        };
        let (tid, kind, connected) = (request.tid, request.kind, request.connected);
        let (asked, answers) = (request.asked, request.replies.len());
        request.replies.push(reply.clone());
        request.answered.get_or_insert_with(Instant::now);
        if let Some(late) = self.lateness(asked).filter(|_| answers == 0) {
            self.breach(
                ViolationKind::AnsweredLate,
                Harmed::Client,
                format!("client {id} got its answer after {late:.1?}"),
            );
        }
        if answers > 0 {
            self.breach(
                ViolationKind::AnsweredTwice,
                Harmed::Client,
                format!(
                    "client {id} got answer number {}: its slot may belong to another client by now",
                    answers + 1
                ),
            );
        }
        if by != kind {
            self.breach(
                ViolationKind::WrongFunction,
                Harmed::Client,
                format!("client {id} sent a {kind}, and the provider answered a {by}"),
            );
        }
        if reply.tid != tid {
            self.breach(
                ViolationKind::ChangedTid,
                Harmed::Daemon,
                format!("client {id} sent tid {tid:#x} and got {:#x}: the core uses the kernel's tid as a pointer", reply.tid),
            );
        }
        for (kind, harmed, text) in reply.faults(kind) {
            self.breach(kind, harmed, format!("the answer to client {id}: {text}"));
        }
        if connected { 0 } else { CONNECTION_LOST }
    }

    /// Returns the number of MADs that are neither freed nor with the core.
    pub fn mads_held(&self) -> usize {
        self.mads
            .values()
            .filter(|state| matches!(state, MadState::Given | MadState::Returned))
            .count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(ledger: &Ledger) -> Vec<ViolationKind> {
        ledger
            .violations()
            .iter()
            .map(|breach| breach.kind)
            .collect()
    }

    #[test]
    fn one_slow_call_is_no_breach_and_two_of_three_are() {
        let slow = Some(Duration::from_millis(50));
        let mut ledger = Ledger::default();
        for too_long in [slow, None, None, slow] {
            ledger.callback_over("resolve", too_long);
        }
        ledger.callback_over("query", slow);
        assert_eq!(kinds(&ledger), []);
        ledger.callback_over("resolve", None);
        ledger.callback_over("resolve", slow);
        assert_eq!(kinds(&ledger), [ViolationKind::BlockedCore]);
        assert!(ledger.violations()[0].text.contains("resolve"));
    }

    #[test]
    fn opens_and_closes_may_take_longer() {
        assert_eq!(
            callback_limit("open_endpoint"),
            callback_limit("close_port")
        );
        assert!(callback_limit("close_device") > callback_limit("add_address"));
    }
}
