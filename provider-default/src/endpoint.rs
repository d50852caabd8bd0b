//! An endpoint that speaks the protocol: connects the state machines with the queue pair, the cache engine and
//! the core.
//!
//! Three kinds of threads call it: the core's (requests, addresses, events), the core's SA thread (joins and
//! paths), and the device's (datagrams and deadlines). One lock guards the state. Answers to clients are
//! [delivered](DeliveringMutex), and SA queries sent, when it is released.

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

/// Maximum number of answers to other nodes that wait for a path or for sending. Each path costs a query, and
/// clients need the SA first.
const ANSWERS: usize = 256;
/// Maximum number of completions in one turn, so that other endpoints and deadlines get theirs.
const COMPLETIONS: usize = 256;
/// Minimum time in milliseconds between two new queue pairs.
const RENEWAL: u64 = 1_000;

/// The parts of an endpoint.
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
    /// Own addresses, the hosts file, and SA queries.
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
    /// Answers to send.
    answers: VecDeque<Answer>,
    /// Answers that wait for a path.
    unready: usize,
    drop_log: DropLog,
    /// When to replace the queue pair.
    renew_at: Option<Moment>,
    renewed: Moment,
    closed: bool,
}

/// An answer to another node's request.
struct Answer {
    datagram: Datagram,
    peer_address: PeerAddress,
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

    /// Returns the id that events of its completions carry.
    pub(crate) fn id(&self) -> QueueId {
        self.datagrams.id()
    }

    /// Returns the source of its path queries.
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

    /// Removes one address of several equal ones: the core may have an IPv4 address in both forms.
    pub(crate) fn remove_address(&self, address: &Address) {
        let own = &mut self.state.lock().own;
        if let Some(index) = own.iter().position(|own| own == address) {
            own.remove(index);
        }
    }

    /// Forgets an address that left its port; its new owner is not known.
    pub(crate) fn forget_address(&self, address: &Address) {
        self.state.lock().resolver.forget(address);
    }

    /// Handles what is due: deadlines, joins, requests and answers to send. Returns when the next turn is due.
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
        let joins: Vec<Ask> = std::iter::from_fn(|| state.groups.next_join(now)).collect();
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

    /// Replaces a broken queue pair. Waiting requests get another try.
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
                // The drop log has the cause.
                self.log(
                    LogLevel::VERBOSE,
                    format_args!("replaced the broken queue pair"),
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

    /// Takes a turn on another thread than the device's, and wakes that thread for the next one.
    pub(crate) fn turn_and_wake(self: &Arc<Self>, now: Moment) {
        if let Some(due) = self.turn(now) {
            self.waker.due(due);
        }
    }

    /// Posts requests and answers, as many as may be in flight.
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
                // A failed send is like a lost datagram: another try follows.
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
            if let Err(error) = self
                .datagrams
                .send_to_peer(slot, &bytes, &answer.peer_address)
            {
                state
                    .drop_log
                    .note(self.source().gid, Dropped::NotSent(error.to_string()));
            }
        }
    }

    /// Refuses all waiting requests and detaches from the group. Does not leave the groups.
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

/// Clients get their answers when the lock is released.
impl Deliver for State {
    type Batch = Replies<Client>;

    fn take_batch(&mut self) -> Option<Replies<Client>> {
        self.resolver.take_replies()
    }
}

impl State {
    /// Requests a new queue pair, at most one per [`RENEWAL`].
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
