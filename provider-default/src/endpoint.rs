//! An endpoint that speaks the protocol: joins the state machines to the queue pair, the cache engine and the core.
//!
//! Three kinds of threads come here: the core's (requests, addresses, events), the core's SA thread (joins and paths), and
//! the device's (datagrams and deadlines). State is behind one lock, which is not held while clients are answered, the SA is
//! asked or a path is looked for.

use std::collections::VecDeque;

use acm_prov_api::abi::AcmCounter;
use acm_prov_api::address::{Address, Gid, Lid};
use acm_prov_api::cache::engine::{self, EndpointCache, Outcome};
use acm_prov_api::cache::question::{Question, Source, Target};
use acm_prov_api::cache::{answer, own_path};
use acm_prov_api::clock::Moment;
use acm_prov_api::followed::Followed;
use acm_prov_api::hosts::Hosts;
use acm_prov_api::path::{PathRecord, Selector};
use acm_prov_api::sa::MulticastMember;
use acm_prov_api::sync::{Arc, Mutex, MutexGuard, Weak};
use acm_prov_api::{EndpointHandle, LogLevel, QueryRequest, ResolveRequest, Status};
use rdma_access::Qpn;
use rdma_access::ud::{Completion, CompletionStatus, Direction, QueueId, Received};

use crate::datagrams::{Datagrams, Listening, Way};
use crate::device::Waker;
use crate::flood::{Dropped, Flood};
use crate::groups::{self, Ask, Groups, JoinError};
use crate::resolver::{Full, Heard, Peer, Resolver};
use crate::settings::{RouteProtocol, Settings};
use crate::wire::{self, Body, Datagram};

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
    pub hosts: Option<Arc<Followed<Hosts>>>,
    pub datagrams: Datagrams,
    pub groups: Groups,
    pub lmc: u8,
    pub waker: Waker,
}

/// An open endpoint.
pub(crate) struct AcmEndpoint {
    handle: EndpointHandle,
    cache: EndpointCache,
    settings: Arc<Settings>,
    hosts: Option<Arc<Followed<Hosts>>>,
    own_path: Option<PathRecord>,
    /// The LID bits that the LMC leaves to the port.
    path_bits: u16,
    datagrams: Datagrams,
    waker: Waker,
    state: Mutex<State>,
}

struct State {
    resolver: Resolver<ResolveRequest>,
    groups: Groups,
    listening: Option<Listening>,
    /// Addresses of this endpoint, as often as the core has added them.
    own: Vec<Address>,
    /// Answers to be sent.
    answers: VecDeque<Answer>,
    /// Answers that wait for a path.
    unready: usize,
    flood: Flood,
    /// The queue pair is to be replaced then.
    renew_at: Option<Moment>,
    renewed: Moment,
    closed: bool,
}

/// An answer to another's request.
struct Answer {
    datagram: Datagram,
    way: Way,
}

/// Where a datagram came from.
#[derive(Clone, Copy)]
struct Sender {
    gid: Gid,
    lid: Lid,
    qp_number: Qpn,
}

impl AcmEndpoint {
    pub(crate) fn new(parts: Parts) -> Self {
        let state = State {
            resolver: Resolver::new(parts.settings.resolver),
            groups: parts.groups,
            listening: None,
            own: Vec::new(),
            answers: VecDeque::new(),
            unready: 0,
            flood: Flood::default(),
            renew_at: None,
            renewed: Moment::default(),
            closed: false,
        };
        Self {
            own_path: own_path(&parts.handle),
            path_bits: !(u16::MAX << parts.lmc.min(7)),
            handle: parts.handle,
            cache: parts.cache,
            settings: parts.settings,
            hosts: parts.hosts,
            datagrams: parts.datagrams,
            waker: parts.waker,
            state: Mutex::new(state),
        }
    }

    /// What events say of its completions.
    pub(crate) fn id(&self) -> QueueId {
        self.datagrams.id()
    }

    /// The asking side of its questions.
    pub(crate) fn source(&self) -> &Source {
        self.cache.source()
    }

    pub(crate) fn add_address(&self, address: &Address) {
        let mut state = self.state.lock();
        state.own.push(*address);
        state.resolver.forget(address);
    }

    pub(crate) fn remove_address(&self, address: &Address) {
        let mut state = self.state.lock();
        if let Some(index) = state.own.iter().position(|own| own == address) {
            state.own.swap_remove(index);
        }
    }

    /// An address left its port: whoever has it now is not known.
    pub(crate) fn forget_address(&self, address: &Address) {
        self.state.lock().resolver.forget(address);
    }

    fn host(&self, address: &Address) -> Option<Gid> {
        self.hosts.as_ref()?.with(|hosts| hosts.get(address))
    }

    // ---- Requests of clients

    /// A client at `from` wants a path.
    pub(crate) fn resolve(self: &Arc<Self>, from: &Address, request: ResolveRequest) {
        let destination = request.destination();
        match destination {
            Address::Lid(lid) => {
                self.ask_sa(Target::Lid(lid), request);
            }
            Address::Gid(gid) => {
                self.ask_sa(Target::Gid(gid), request);
            }
            Address::Name(_) | Address::Ip(_) | Address::Ip6(_) => {
                self.resolve_address(from, destination, request)
            }
        }
    }

    /// A client wants the SA itself to be asked.
    pub(crate) fn query(&self, request: QueryRequest) {
        match Question::from_path(&request.wanted(), self.source()) {
            Ok(question) => {
                self.cache.query(&question, request);
            }
            Err(error) => request.refuse(error.status()),
        }
    }

    fn resolve_address(
        self: &Arc<Self>,
        from: &Address,
        destination: Address,
        request: ResolveRequest,
    ) {
        let now = Moment::now();
        let mut state = self.state.lock();
        if self.settings.answers_own_addresses && state.own.contains(&destination) {
            drop(state);
            return self.answer_own_address(request);
        }
        if let Some(gid) = self.host(&destination) {
            drop(state);
            return self.count_address(self.ask_sa(Target::Gid(gid), request));
        }
        if let Some(peer) = state.resolver.known(&destination, now) {
            let group = state.groups.member(peer.group).copied();
            drop(state);
            return self.route(peer, group, request, true);
        }
        if state.closed {
            drop(state);
            return request.refuse(Status::ENOTCONN);
        }
        if request.is_nodelay() {
            state.resolver.prefetch(now, destination, *from);
            drop(state);
            request.refuse(Status::ENODATA);
        } else {
            let asked = state.resolver.ask(now, destination, *from, request);
            drop(state);
            if let Err(Full(request)) = asked {
                return request.refuse(Status::ENOMEM);
            }
        }
        self.turn_and_tell(now);
    }

    fn answer_own_address(&self, request: ResolveRequest) {
        let own = Target::Gid(self.source().gid);
        // What the port does not tell of itself, or the client demands, is the SA's to say.
        if let Some(path) = &self.own_path
            && self
                .question(own, &request)
                .is_ok_and(|question| question.demands.is_none())
        {
            self.handle.count(AcmCounter::ROUTE_CACHE);
            return request.answer(path);
        }
        self.ask_sa(own, request);
    }

    /// A path by the SA, or from what it said before.
    fn ask_sa(&self, target: Target, request: ResolveRequest) -> Outcome {
        match self.question(target, &request) {
            Ok(question) => self.cache.resolve(&question, request),
            Err(status) => {
                request.refuse(status);
                Outcome::Refused
            }
        }
    }

    fn question(&self, target: Target, request: &ResolveRequest) -> Result<Question, Status> {
        let wanted = request.wanted().copied().unwrap_or_default();
        let question =
            Question::new(target, &wanted, self.source()).map_err(|error| error.status())?;
        match engine::is_own_source(self.handle.port(), self.source(), wanted.sgid()) {
            true => Ok(question),
            false => Err(Status::ESRCADDR),
        }
    }

    /// The address was known, and only the path had to be asked for.
    fn count_address(&self, outcome: Outcome) {
        if outcome == Outcome::Asked {
            self.handle.count(AcmCounter::ADDR_CACHE);
        }
    }

    /// A path to a peer, as `route_prot` says. `group` is the membership that both share; `was_known` whether the client's
    /// request found the address known.
    fn route(
        &self,
        peer: Peer,
        group: Option<MulticastMember>,
        request: ResolveRequest,
        was_known: bool,
    ) {
        let target = Target::Gid(peer.gid);
        if self.settings.route_protocol == RouteProtocol::Acm
            && let Some(group) = group
            && let Ok(question) = self.question(target, &request)
        {
            let path = self.path_by_group(&peer, &group);
            if answer::check(&question, self.source(), &path).is_ok() {
                if was_known {
                    self.handle.count(AcmCounter::ROUTE_CACHE);
                }
                return request.answer(&path);
            }
        }
        let outcome = self.ask_sa(target, request);
        if was_known {
            self.count_address(outcome);
        }
    }

    /// What the group's record says of a path between two members.
    fn path_by_group(&self, peer: &Peer, group: &MulticastMember) -> PathRecord {
        let mut path = PathRecord::default();
        path.set_sgid(self.source().gid)
            .set_slid(self.source().lid)
            .set_dgid(peer.gid)
            .set_dlid(peer.lid)
            .set_flow_label(group.flow_label)
            .set_hop_limit(group.hop_limit)
            .set_traffic_class(group.tclass)
            .set_reversible(true)
            .set_numb_path(1)
            .set_pkey(group.pkey)
            .set_sl(group.sl)
            .set_mtu(Selector::Exactly, group.mtu)
            .set_rate(Selector::Exactly, group.rate)
            .set_packet_lifetime(Selector::Exactly, group.packet_lifetime);
        path
    }

    // ---- Deadlines, joins, sending

    /// Does what is due: deadlines, joins, requests and answers to be sent. When something will be due again.
    pub(crate) fn turn(self: &Arc<Self>, now: Moment) -> Option<Moment> {
        let mut state = self.state.lock();
        if state.closed {
            return None;
        }
        if state.renew_at.is_some_and(|at| at <= now) {
            self.renew(&mut state, now);
        }
        let given_up = state.resolver.expire(now);
        let lost = state.groups.expire(now);
        for outcome in lost {
            self.joined(&mut state, now, outcome);
        }
        let joins: Vec<Ask> = std::iter::from_fn(|| state.groups.next_to_ask(now)).collect();
        self.send(&mut state, now);
        if let Some(line) = state.flood.line(now) {
            self.log(line.level, format_args!("{}", line.text));
        }
        let due = state.next_deadline();
        drop(state);
        for request in given_up {
            request.refuse(Status::ETIMEDOUT);
        }
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
                self.log(
                    LogLevel::ALWAYS,
                    format_args!("the queue pair was broken and is replaced"),
                );
            }
            Err(error) => {
                state.renew_at = Some(now.after(RENEWAL));
                state
                    .flood
                    .note(now, self.source().gid, Dropped::NotSent(error));
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
                        .flood
                        .note(now, self.source().gid, Dropped::NotSent(error.to_string()));
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
                    .flood
                    .note(now, self.source().gid, Dropped::NotSent(error.to_string()));
            }
        }
    }

    fn join(self: &Arc<Self>, ask: &Ask) {
        let ticket = ask.ticket;
        let weak = Arc::downgrade(self);
        let asked = self.handle.join_multicast(&ask.join, move |answer| {
            if let Some(endpoint) = weak.upgrade() {
                endpoint.join_answered(ticket, answer.map_err(JoinError::from));
            }
        });
        if let Err(error) = asked {
            self.join_answered(ticket, Err(error.into()));
        }
    }

    fn join_answered(
        self: &Arc<Self>,
        ticket: groups::Ticket,
        answer: Result<MulticastMember, JoinError>,
    ) {
        let now = Moment::now();
        let mut state = self.state.lock();
        if state.closed {
            return;
        }
        let outcome = state.groups.answered(now, ticket, answer);
        self.joined(&mut state, now, outcome);
        drop(state);
        self.turn_and_tell(now);
    }

    /// Acts upon an answer to a join.
    fn joined(&self, state: &mut State, now: Moment, outcome: groups::Outcome) {
        let (index, member) = match outcome {
            groups::Outcome::Joined { index, member } => (index, member),
            groups::Outcome::Failed { index, error, rest } => {
                return self.join_failed(index, &error, rest);
            }
            groups::Outcome::Late => return,
        };
        self.log(
            LogLevel::VERBOSE,
            format_args!("joined {} (MLID {:#06x})", member.mgid, member.mlid.0),
        );
        // Requests come to the shared group; the other one only says what a path can do.
        if index != 0 {
            return;
        }
        match self.datagrams.listen(&member, state.listening.take()) {
            Ok(listening) => state.listening = Some(listening),
            Err(error) => {
                let outcome = state.groups.unusable(now, index, error.to_string());
                if let groups::Outcome::Failed { index, error, rest } = outcome {
                    self.join_failed(index, &error, rest);
                }
            }
        }
    }

    fn join_failed(&self, index: usize, error: &JoinError, rest: u64) {
        let which = if index == 0 {
            "shared group"
        } else {
            "group of the port's own speed"
        };
        self.log(
            LogLevel::ALWAYS,
            format_args!("not a member of the {which}: {error}; asking again in {rest} ms"),
        );
    }

    /// The subnet manager has forgotten us.
    pub(crate) fn reregister(self: &Arc<Self>) {
        let now = Moment::now();
        self.state.lock().groups.reregister(now);
        self.turn_and_tell(now);
    }

    // ---- Datagrams

    /// Takes completions; whether there may be more.
    pub(crate) fn take_completions(self: &Arc<Self>) -> bool {
        if let Err(error) = self.datagrams.arm() {
            self.log(LogLevel::ALWAYS, format_args!("{error}"));
        }
        let mut completions = Vec::new();
        let mut taken = 0;
        let now = Moment::now();
        let more = loop {
            match self.datagrams.poll(&mut completions) {
                Ok(0) => break false,
                Ok(count) => taken += count,
                Err(error) => {
                    self.log(LogLevel::ALWAYS, format_args!("{error}"));
                    break false;
                }
            }
            for completion in completions.drain(..) {
                self.completed(now, completion);
            }
            if taken >= COMPLETIONS {
                break true;
            }
        };
        // Slots have come free.
        self.turn(now);
        more
    }

    fn completed(self: &Arc<Self>, now: Moment, completion: Completion) {
        let status = completion.status();
        if status == CompletionStatus::FLUSHED {
            return;
        }
        if status != CompletionStatus::SUCCESS {
            let mut state = self.state.lock();
            state
                .flood
                .note(now, self.source().gid, Dropped::Failed(status));
            // Adapters stop a queue pair at its first failure.
            let at = state.renewed.after(RENEWAL);
            state.renew_at.get_or_insert(at);
        }
        if completion.direction() == Direction::Send {
            return;
        }
        if let Some(received) = completion.received() {
            self.received(now, received);
        }
        // One that is not posted goes back to its region, and is posted with the next queue pair.
        if let Err(error) = self.datagrams.receive(completion.into_slot()) {
            let mut state = self.state.lock();
            state
                .flood
                .note(now, self.source().gid, Dropped::NotSent(error.to_string()));
            let at = state.renewed.after(RENEWAL);
            state.renew_at.get_or_insert(at);
        }
    }

    fn received(self: &Arc<Self>, now: Moment, received: Received<'_>) {
        let mut gid = Gid::ZERO;
        if let Err(dropped) = self.take(now, received, &mut gid) {
            self.state.lock().flood.note(now, gid, dropped);
        }
    }

    /// Takes a datagram in. `gid` becomes its sender's, as far as that is known.
    fn take(
        self: &Arc<Self>,
        now: Moment,
        received: Received<'_>,
        gid: &mut Gid,
    ) -> Result<(), Dropped> {
        let grh = received.grh().ok_or(Dropped::NoGrh)?;
        *gid = Gid(grh.source.0);
        let sender = Sender {
            gid: *gid,
            lid: Lid(received.source_lid().0),
            qp_number: received.source_qp(),
        };
        let of_a_port = !gid.is_zero() && !gid.is_multicast() && sender.lid.is_unicast();
        // Queue pairs 0 and 1 are for management, the last one stands for multicast.
        if !of_a_port || sender.qp_number.0 < 2 || sender.qp_number.0 >= Qpn::MULTICAST.0 {
            return Err(Dropped::NoSender);
        }
        let datagram = Datagram::parse(received.payload())?;
        let to = Gid(grh.destination.0);
        match datagram.body {
            Body::Request {
                destination,
                source,
            } => self.take_request(now, sender, to, &datagram, destination, source),
            Body::Answer {
                status,
                destination,
                source,
            } => self.take_answer(now, sender, to, &datagram, status, [destination, source]),
        }
    }

    fn take_answer(
        self: &Arc<Self>,
        now: Moment,
        sender: Sender,
        to: Gid,
        datagram: &Datagram,
        status: u16,
        addresses: [Option<Address>; 2],
    ) -> Result<(), Dropped> {
        if to != self.source().gid {
            return Err(Dropped::AnswerNotToUs);
        }
        if status != 0 {
            return Err(Dropped::Refusal(status));
        }
        let mut state = self.open_state()?;
        let group = state
            .groups
            .best_of(&datagram.groups)
            .ok_or(Dropped::NoCommonGroup)?;
        let peer = sender.peer(group);
        let waiting = state
            .resolver
            .answered(now, datagram.tid, peer, addresses)?;
        let group = state.groups.member(group).copied();
        drop(state);
        self.go_on(peer, group, waiting);
        Ok(())
    }

    /// It is known where the peer is: its path follows for those who waited.
    fn go_on(&self, peer: Peer, group: Option<MulticastMember>, waiting: Vec<ResolveRequest>) {
        self.cache.seen(peer.gid, peer.lid);
        for request in waiting {
            self.route(peer, group, request, false);
        }
    }

    fn take_request(
        self: &Arc<Self>,
        now: Moment,
        sender: Sender,
        to: Gid,
        datagram: &Datagram,
        destination: Address,
        source: Address,
    ) -> Result<(), Dropped> {
        let mut state = self.open_state()?;
        if to != self.source().gid && !state.groups.is_joined(to) {
            return Err(Dropped::RequestNotToUs);
        }
        let group = state
            .groups
            .best_of(&datagram.groups)
            .ok_or(Dropped::NoCommonGroup)?;
        let peer = sender.peer(group);
        let member = state.groups.member(group).copied();
        let is_own_source = state.own.contains(&source);
        let mut waiting = Vec::new();
        let mut disputed = None;
        if is_own_source {
            if sender.gid != self.source().gid {
                disputed = Some(Dropped::ClaimsOwn(source));
            }
        } else if let Some(host) = self.host(&source) {
            if host != sender.gid {
                disputed = Some(Dropped::ClaimsPreloaded(source));
            }
        } else {
            let own = state.own.first().copied();
            match state.resolver.heard(now, source, peer, own) {
                Heard::Learnt(waiters) => waiting = waiters,
                Heard::Refreshed => {}
                Heard::Disputed => disputed = Some(Dropped::ClaimsOthers(source)),
            }
        }
        let is_for_us = match destination {
            Address::Gid(gid) => gid == self.source().gid,
            Address::Lid(lid) => lid.0 & !self.path_bits == self.source().lid.0 & !self.path_bits,
            address => state.own.contains(&address),
        };
        let answers = is_for_us.then_some(member).flatten();
        if answers.is_some() && state.unready + state.answers.len() >= ANSWERS {
            return Err(Dropped::TooManyAnswers);
        }
        if answers.is_some() {
            state.unready += 1;
        }
        if let Some(disputed) = disputed {
            state.flood.note(now, sender.gid, disputed);
        }
        drop(state);
        self.go_on(peer, member, waiting);
        if let Some(group) = answers {
            self.answer(sender, datagram.tid, &group);
        }
        Ok(())
    }

    /// Answers a request once there is a path back. The answer has been counted as one that is not ready.
    fn answer(self: &Arc<Self>, sender: Sender, tid: u64, group: &MulticastMember) {
        let datagram = Datagram {
            tid,
            groups: wire::Groups::new(&[group.mgid]),
            body: Body::Answer {
                status: 0,
                destination: None,
                source: None,
            },
        };
        match self.settings.route_protocol {
            RouteProtocol::Acm => {
                let attributes = self
                    .datagrams
                    .address_in_group(group, sender.lid, sender.gid);
                self.answer_ready(Some(Answer {
                    datagram,
                    way: sender.way(attributes),
                }));
            }
            RouteProtocol::Sa => {
                let unready = Unready(Arc::downgrade(self));
                let path_bits = self.path_bits;
                self.cache
                    .path_to(&Question::plain(Target::Gid(sender.gid)), move |path| {
                        let Some(endpoint) = unready.0.upgrade() else {
                            return;
                        };
                        let answer = path.ok().map(|path| {
                            let attributes = endpoint.datagrams.address_on_path(&path, path_bits);
                            Answer {
                                datagram,
                                way: sender.way(attributes),
                            }
                        });
                        endpoint.answer_ready(answer);
                    });
            }
        }
    }

    fn answer_ready(self: &Arc<Self>, answer: Option<Answer>) {
        let now = Moment::now();
        let mut state = self.state.lock();
        state.unready = state.unready.saturating_sub(1);
        if state.closed {
            return;
        }
        state.answers.extend(answer);
        drop(state);
        self.turn_and_tell(now);
    }

    fn open_state(&self) -> Result<MutexGuard<'_, State>, Dropped> {
        let state = self.state.lock();
        if state.closed {
            Err(Dropped::Closed)
        } else {
            Ok(state)
        }
    }

    // ---- The end

    /// Refuses all who wait, and stops listening. Whether the groups are to be left.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let waiting = state.resolver.close();
        let listening = state.listening.take();
        state.answers.clear();
        drop(state);
        drop(listening);
        self.cache.close();
        for request in waiting {
            request.refuse(Status::ENOTCONN);
        }
    }

    /// Tells the SA that the endpoint is no member any more. Nobody waits for its answer.
    pub(crate) fn leave_groups(&self) {
        let joins = self.state.lock().groups.to_leave();
        for join in joins {
            if let Err(error) = self.handle.leave_multicast(&join, |_| ()) {
                self.log(
                    LogLevel::VERBOSE,
                    format_args!("cannot leave {}: {error}", join.mgid),
                );
            }
        }
    }

    fn log(&self, level: LogLevel, text: std::fmt::Arguments<'_>) {
        let port = self.handle.port();
        port.host().log(
            level,
            format_args!(
                "device {:#018x} port {} P_Key {}: {text}",
                port.device().guid(),
                port.number(),
                self.handle.pkey()
            ),
        );
    }
}

/// Holds an endpoint whose answer waits for a path.
struct Unready(Weak<AcmEndpoint>);

impl Sender {
    fn peer(&self, group: usize) -> Peer {
        Peer {
            gid: self.gid,
            lid: self.lid,
            group,
        }
    }

    fn way(&self, attributes: rdma_access::ud::AddressAttributes) -> Way {
        Way {
            attributes,
            qp_number: self.qp_number,
        }
    }
}

impl State {
    fn next_deadline(&self) -> Option<Moment> {
        [
            self.resolver.next_deadline(),
            self.groups.next_deadline(),
            self.flood.next_line(),
            self.renew_at,
        ]
        .into_iter()
        .flatten()
        .min()
    }
}
