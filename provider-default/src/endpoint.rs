//! An endpoint that speaks the protocol: joins the state machines to the queue pair, the cache engine and the core.
//!
//! Three kinds of threads come here: the core's (requests, addresses, events), the core's SA thread (joins and paths), and
//! the device's (datagrams and deadlines). State is behind one lock; what clients are answered is
//! [delivered](DeliveringMutex) when it is released, and the SA is asked then, too.

mod arrivals;
mod clients;
mod membership;

use std::collections::VecDeque;

use acm_prov_api::abi::AcmCounter;
use acm_prov_api::address::Address;
use acm_prov_api::cache::engine::EndpointCache;
use acm_prov_api::clock::Moment;
use acm_prov_api::lookups::{Deliver, DeliveringMutex, Replies};
use acm_prov_api::policy::{EndpointResolver, Names};
use acm_prov_api::sa::Source;
use acm_prov_api::sync::Arc;
use acm_prov_api::{EndpointHandle, LogLevel};
use rdma_access::ud::QueueId;

use crate::datagrams::{Datagrams, Listening, PeerAddress};
use crate::device::Waker;
use crate::drop_log::{DropLog, Dropped};
use crate::groups::{Ask, Groups};
use crate::resolver::Resolver;
use crate::settings::Settings;
use crate::wire::{Body, Datagram};
use clients::Client;

/// Answers to others that may wait for a path, or to be sent. A path to them costs a query, and the SA is the clients'.
const ANSWERS: usize = 256;
/// Completions taken in one turn; then other endpoints and deadlines have theirs.
const COMPLETIONS: usize = 256;
/// Milliseconds between two new queue pairs.
const RENEWAL: u64 = 1_000;

/// What an endpoint is made of.
pub(crate) struct Parts {
    pub handle: EndpointHandle,
    pub cache: EndpointCache,
    pub settings: Arc<Settings>,
    pub names: Names,
    pub datagrams: Datagrams,
    pub groups: Groups,
    pub lmc: u8,
    pub waker: Waker,
}

/// An open endpoint.
pub(crate) struct AcmEndpoint {
    handle: EndpointHandle,
    /// Own addresses, the hosts file, the SA.
    requests: EndpointResolver,
    settings: Arc<Settings>,
    names: Names,
    lmc: u8,
    datagrams: Datagrams,
    waker: Waker,
    state: DeliveringMutex<State>,
}

struct State {
    resolver: Resolver<Client>,
    groups: Groups,
    listening: Option<Listening>,
    /// Addresses of this endpoint.
    own: Vec<Address>,
    /// Answers to be sent.
    answers: VecDeque<Answer>,
    /// Answers that wait for a path.
    unready: usize,
    drop_log: DropLog,
    /// The queue pair is to be replaced then.
    renew_at: Option<Moment>,
    renewed: Moment,
    closed: bool,
}

/// An answer to another's request.
struct Answer {
    datagram: Datagram,
    way: PeerAddress,
}

impl AcmEndpoint {
    pub(crate) fn new(parts: Parts) -> Self {
        let state = State {
            resolver: Resolver::new(parts.settings.resolver, Some(*parts.handle.host())),
            groups: parts.groups,
            listening: None,
            own: Vec::new(),
            answers: VecDeque::new(),
            unready: 0,
            drop_log: DropLog::default(),
            renew_at: None,
            renewed: Moment::default(),
            closed: false,
        };
        Self {
            lmc: parts.lmc,
            handle: parts.handle,
            requests: EndpointResolver::new(parts.cache, &parts.names),
            settings: parts.settings,
            names: parts.names,
            datagrams: parts.datagrams,
            waker: parts.waker,
            state: DeliveringMutex::new(state),
        }
    }

    /// What events say of its completions.
    pub(crate) fn id(&self) -> QueueId {
        self.datagrams.id()
    }

    /// The asking side of its questions.
    pub(crate) fn source(&self) -> &Source {
        self.cache().source()
    }

    fn cache(&self) -> &EndpointCache {
        self.requests.cache()
    }

    pub(crate) fn add_address(&self, address: &Address) {
        let mut state = self.state.lock();
        state.own.push(*address);
        state.resolver.forget(address);
    }

    /// One of several that are equal goes: the core can have an IPv4 address in both of its forms.
    pub(crate) fn remove_address(&self, address: &Address) {
        let own = &mut self.state.lock().own;
        if let Some(index) = own.iter().position(|own| own == address) {
            own.remove(index);
        }
    }

    /// An address left its port: whoever has it now is not known.
    pub(crate) fn forget_address(&self, address: &Address) {
        self.state.lock().resolver.forget(address);
    }

    /// Does what is due: deadlines, joins, requests and answers to be sent. When something will be due again.
    pub(crate) fn turn(self: &Arc<Self>, now: Moment) -> Option<Moment> {
        let mut state = self.state.lock();
        if state.closed {
            return None;
        }
        if state.renew_at.is_some_and(|at| at <= now) {
            self.renew(&mut state, now);
        }
        state.resolver.expire(now);
        state.groups.expire(now);
        let joins: Vec<Ask> = std::iter::from_fn(|| state.groups.next_to_ask(now)).collect();
        self.send(&mut state, now);
        if let Some(line) = state.drop_log.line(now) {
            self.log(line.level, format_args!("{}", line.text));
        }
        let due = state.next_deadline();
        drop(state);
        for ask in joins {
            self.join(&ask);
        }
        due
    }

    /// Replaces a broken queue pair. Whoever waits has another try.
    fn renew(&self, state: &mut State, now: Moment) {
        state.listening = None;
        state.renewed = now;
        state.renew_at = None;
        let member = state.groups.member(0).copied();
        let renewed = self
            .datagrams
            .renew()
            .map_err(|error| error.to_string())
            .and_then(|()| {
                let listen = |member| {
                    self.datagrams
                        .listen(&member, None)
                        .map_err(|error| error.to_string())
                };
                member.map(listen).transpose()
            });
        match renewed {
            Ok(listening) => {
                state.listening = listening;
                // What broke it is told with what was dropped.
                self.log(
                    LogLevel::VERBOSE,
                    format_args!("the queue pair was broken and is replaced"),
                );
            }
            Err(error) => {
                state.renew_at = Some(now.after(RENEWAL));
                state
                    .drop_log
                    .note(self.source().gid, Dropped::NotSent(error));
            }
        }
    }

    /// A turn on another thread than the device's, which is told when the next one is due.
    pub(crate) fn turn_and_tell(self: &Arc<Self>, now: Moment) {
        if let Some(due) = self.turn(now) {
            self.waker.due(due);
        }
    }

    /// Posts requests and answers, as many as may be out.
    fn send(&self, state: &mut State, now: Moment) {
        if state.groups.is_ready()
            && let Some(listening) = &state.listening
        {
            let groups = state.groups.named();
            while let Some(slot) = self.datagrams.request_slot() {
                let Some(request) = state.resolver.next_to_send(now) else {
                    break;
                };
                if request.is_first {
                    self.handle.count(AcmCounter::ADDR_QUERY);
                }
                let body = Body::Request {
                    destination: request.destination,
                    source: request.source,
                };
                let bytes = Datagram {
                    tid: request.tid,
                    groups,
                    body,
                }
                .to_bytes();
                // One that was not sent is one that was lost: there is another try.
                if let Err(error) = self.datagrams.send_to_group(slot, &bytes, listening) {
                    state
                        .drop_log
                        .note(self.source().gid, Dropped::NotSent(error.to_string()));
                }
            }
        }
        while !state.answers.is_empty()
            && let Some(slot) = self.datagrams.answer_slot()
            && let Some(answer) = state.answers.pop_front()
        {
            let bytes = answer.datagram.to_bytes();
            if let Err(error) = self.datagrams.send_to_peer(slot, &bytes, &answer.way) {
                state
                    .drop_log
                    .note(self.source().gid, Dropped::NotSent(error.to_string()));
            }
        }
    }

    /// Refuses all who wait, and stops listening. Whether the groups are to be left.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.resolver.close();
        let listening = state.listening.take();
        state.answers.clear();
        drop(state);
        drop(listening);
        self.requests.close();
    }

    fn log(&self, level: LogLevel, text: std::fmt::Arguments<'_>) {
        let port = self.handle.port();
        port.host().log(
            level,
            format_args!(
                "device {} port {} P_Key {}: {text}",
                port.device().guid(),
                port.number(),
                self.handle.pkey()
            ),
        );
    }
}

/// Clients have their answers when the lock is released.
impl Deliver for State {
    type Batch = Replies<Client>;

    fn take_batch(&mut self) -> Option<Replies<Client>> {
        self.resolver.take_replies()
    }
}

impl State {
    /// Has the queue pair replaced, at most once a [`RENEWAL`].
    fn renew_soon(&mut self) {
        let at = self.renewed.after(RENEWAL);
        self.renew_at.get_or_insert(at);
    }

    fn next_deadline(&self) -> Option<Moment> {
        [
            self.resolver.next_deadline(),
            self.groups.next_deadline(),
            self.drop_log.next_line(),
            self.renew_at,
        ]
        .into_iter()
        .flatten()
        .min()
    }
}
