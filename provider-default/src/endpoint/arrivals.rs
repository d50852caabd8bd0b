//! Handles completions and received datagrams: other nodes' requests and answers.

use acm_prov_api::LogLevel;
use acm_prov_api::address::{Address, Gid, Lid};
use acm_prov_api::cache::engine::PathOptions;
use acm_prov_api::clock::Moment;
use acm_prov_api::lookups::Locked;
use acm_prov_api::sa::{MulticastMember, PathQuery, Target};
use acm_prov_api::sync::{Arc, Weak};
use rdma_access::Qpn;
use rdma_access::ud::{Completion, CompletionStatus, Direction, GRH_LENGTH, Received};

use super::{ANSWERS, AcmEndpoint, Answer, COMPLETIONS, State};
use crate::datagrams::{self, PeerAddress};
use crate::drop_log::Dropped;
use crate::resolver::{Claim, Peer};
use crate::settings::RouteProtocol;
use crate::wire::{self, Body, Datagram, Malformed};

/// The source of a datagram.
#[derive(Clone, Copy)]
struct Sender {
    gid: Gid,
    lid: Lid,
    qp_number: Qpn,
}

impl AcmEndpoint {
    /// Takes completions; returns whether there may be more.
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
        // Free slots may let requests go out.
        self.turn(now);
        more
    }

    fn completed(self: &Arc<Self>, now: Moment, completion: Completion) {
        let status = completion.status();
        if status == CompletionStatus::FLUSHED && !self.datagrams.is_in_use(completion.qp_number())
        {
            // It belongs to a queue pair that was replaced.
            return;
        }
        if status != CompletionStatus::SUCCESS {
            // Adapters stop a queue pair at its first failure and flush the other posted requests.
            self.broken(status);
            if status == CompletionStatus::FLUSHED {
                return;
            }
        }
        if completion.direction() == Direction::Send {
            return;
        }
        if let Some(received) = completion.received() {
            self.received(now, received);
        }
        // Unposted slots return to the region and are posted on the next queue pair.
        if let Err(error) = self.datagrams.receive(completion.into_slot()) {
            let mut state = self.state.lock();
            state
                .drop_log
                .note(self.source().gid, Dropped::NotSent(error.to_string()));
            state.renew_soon();
        }
    }

    /// Records a broken queue pair.
    fn broken(&self, status: CompletionStatus) {
        let mut state = self.state.lock();
        if status != CompletionStatus::FLUSHED || state.renew_at.is_none() {
            state
                .drop_log
                .note(self.source().gid, Dropped::Failed(status));
        }
        state.renew_soon();
    }

    fn received(self: &Arc<Self>, now: Moment, received: Received<'_>) {
        let mut gid = Gid::ZERO;
        if let Err(dropped) = self.take(now, received, &mut gid) {
            self.state.lock().drop_log.note(gid, dropped);
        }
    }

    /// Handles a datagram. Sets `gid` to its sender's GID once it is known.
    fn take(
        self: &Arc<Self>,
        now: Moment,
        received: Received<'_>,
        gid: &mut Gid,
    ) -> Result<(), Dropped> {
        let grh = received.grh().ok_or(Dropped::NoGrh)?;
        // A port may use the default prefix for its own GID.
        let prefix = self.source().gid.subnet_prefix();
        *gid = Gid(grh.source.0).in_subnet(prefix);
        let sender = Sender {
            gid: *gid,
            lid: Lid(received.source_lid().0),
            qp_number: received.source_qp(),
        };
        let of_a_port = !gid.is_zero() && !gid.is_multicast() && sender.lid.is_unicast();
        // Queue pairs 0 and 1 are for management, the last number means multicast.
        if !of_a_port || sender.qp_number.0 < 2 || sender.qp_number.0 >= Qpn::MULTICAST.0 {
            return Err(Dropped::NoSender);
        }
        if received.is_cut() {
            let length = received.byte_len().saturating_sub(GRH_LENGTH);
            return Err(Malformed::Length(length).into());
        }
        let datagram = Datagram::parse(received.payload())?;
        let to = Gid(grh.destination.0).in_subnet(prefix);
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
        state
            .resolver
            .answered(now, datagram.tid, peer, addresses)?;
        // Before the waiting clients ask for a path, which happens when the lock is released.
        self.cache().seen(peer.gid, peer.lid);
        Ok(())
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
        let prefix = self.source().gid.subnet_prefix();
        self.cache().seen(peer.gid, peer.lid);
        let mut disputed = None;
        if is_own_source {
            if sender.gid != self.source().gid {
                disputed = Some(Dropped::ClaimsOwn(source));
            }
        } else if let Some(host) = self.names.gid(&source) {
            if host.in_subnet(prefix) != sender.gid {
                disputed = Some(Dropped::ClaimsPreloaded(source));
            }
        } else if !matches!(source, Address::Gid(_) | Address::Lid(_)) {
            // Only the SA knows who has a GID or LID.
            let own = state.own.first().copied();
            if state.resolver.claimed(now, source, peer, own) == Claim::Disputed {
                disputed = Some(Dropped::ClaimsOthers(source));
            }
        }
        let is_for_us = match destination {
            Address::Gid(gid) => gid.in_subnet(prefix) == self.source().gid,
            Address::Lid(lid) => {
                datagrams::base(lid, self.lmc) == datagrams::base(self.source().lid, self.lmc)
            }
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
            state.drop_log.note(sender.gid, disputed);
        }
        drop(state);
        if let Some(group) = answers {
            self.answer(sender, datagram.tid, &group);
        }
        Ok(())
    }

    /// Answers a request once there is a path back. The caller has counted the answer in `unready`.
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
                    peer_address: sender.peer_address(attributes),
                }));
            }
            RouteProtocol::Sa => {
                let unready = Unready(Arc::downgrade(self));
                let lmc = self.lmc;
                let query = PathQuery::to(Target::Gid(sender.gid));
                self.cache()
                    .path_to(&query, PathOptions::default(), move |path| {
                        let Some(endpoint) = unready.0.upgrade() else {
                            return;
                        };
                        let answer = path.ok().map(|path| {
                            let attributes = endpoint.datagrams.address_on_path(&path, lmc);
                            Answer {
                                datagram,
                                peer_address: sender.peer_address(attributes),
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
        self.turn_and_wake(now);
    }

    fn open_state(&self) -> Result<Locked<'_, State>, Dropped> {
        let state = self.state.lock();
        if state.closed {
            Err(Dropped::Closed)
        } else {
            Ok(state)
        }
    }
}

/// The endpoint of an answer that waits for a path.
struct Unready(Weak<AcmEndpoint>);

impl Sender {
    fn peer(&self, group: usize) -> Peer {
        Peer {
            gid: self.gid,
            lid: self.lid,
            group,
        }
    }

    fn peer_address(&self, attributes: rdma_access::ud::AddressAttributes) -> PeerAddress {
        PeerAddress {
            attributes,
            qp_number: self.qp_number,
        }
    }
}
