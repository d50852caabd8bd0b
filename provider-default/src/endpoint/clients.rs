//! Requests of clients: own addresses, what is known, what must be asked for.

use acm_prov_api::abi::AcmCounter;
use acm_prov_api::address::Address;
use acm_prov_api::cache::answer;
use acm_prov_api::cache::engine::Outcome;
use acm_prov_api::cache::question::{Question, Target};
use acm_prov_api::clock::Moment;
use acm_prov_api::path::{PathRecord, Selector};
use acm_prov_api::sa::MulticastMember;
use acm_prov_api::sync::Arc;
use acm_prov_api::{QueryRequest, ResolveRequest, Status};

use super::AcmEndpoint;
use crate::resolver::{Full, Peer};
use crate::settings::RouteProtocol;

impl AcmEndpoint {
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
        Question::new(target, &wanted, self.source()).map_err(|error| error.status())
    }

    /// The address was known, and only the path had to be asked for.
    fn count_address(&self, outcome: Outcome) {
        if outcome == Outcome::Asked {
            self.handle.count(AcmCounter::ADDR_CACHE);
        }
    }

    /// A path to a peer, as `route_prot` says. `group` is the membership that both share; `was_known` whether the client's
    /// request found the address known.
    pub(super) fn route(
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
}
