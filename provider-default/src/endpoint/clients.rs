//! Client requests for peers' addresses. The multicast group resolves the address; with `route_prot acm` its
//! record also gives the path. The SDK handles everything else.

use acm_prov_api::address::Address;
use acm_prov_api::clock::Moment;
use acm_prov_api::lookups::{End, Waiter};
use acm_prov_api::path::{PathRecord, Selector};
use acm_prov_api::policy::AddressRequest;
use acm_prov_api::sa::{MulticastMember, Target};
use acm_prov_api::sync::{Arc, Weak};
use acm_prov_api::{KeptRequest, QueryRequest, ResolveRequest, Status};

use super::AcmEndpoint;
use crate::resolver::Peer;
use crate::settings::RouteProtocol;

/// A client that waits for the owner of an address.
pub(super) struct Client {
    endpoint: Weak<AcmEndpoint>,
    request: KeptRequest,
}

impl Waiter for Client {
    type Answer = Peer;

    fn end(self, end: End<Peer>) {
        match (end, self.endpoint.upgrade()) {
            (End::Answer(peer), Some(endpoint)) => endpoint.peer_found(&peer, self.request),
            (End::Expired, _) => self.request.refuse(Status::ETIMEDOUT),
            (End::Full, _) => self.request.refuse(Status::ENOMEM),
            (End::Closed | End::Answer(_), _) => self.request.refuse(Status::ENOTCONN),
        }
    }
}

impl AcmEndpoint {
    /// Handles a client's request for a path; `from` is its address.
    pub(crate) fn resolve(self: &Arc<Self>, from: &Address, request: ResolveRequest<'_>) {
        let is_own = |address: &Address| self.state.lock().own.contains(address);
        let elsewhere = |request: AddressRequest<'_>| self.resolve_peer(from, request);
        self.requests.resolve(request, is_own, elsewhere);
    }

    /// Handles a client's query to the SA.
    pub(crate) fn query(&self, request: QueryRequest) {
        self.requests.query(request);
    }

    /// Answers with the path to a known peer, or else asks the group who has the address.
    fn resolve_peer(self: &Arc<Self>, from: &Address, request: AddressRequest<'_>) {
        let now = Moment::now();
        let address = request.address();
        let mut state = self.state.lock();
        if let Some(peer) = state.resolver.known(&address, now) {
            drop(state);
            return match self.group_path(&peer, request.request()) {
                Some(path) => request.into_request().answer_from_cache(&path),
                None => request.found(Target::Gid(peer.gid)),
            };
        }
        if state.closed {
            drop(state);
            return request.refuse(Status::ENOTCONN);
        }
        if request.is_nodelay() {
            state.resolver.prefetch(now, address, *from);
            drop(state);
            request.unknown();
        } else {
            let client = Client {
                endpoint: Arc::downgrade(self),
                request: request.into_request().keep(),
            };
            state.resolver.ask(now, address, *from, client);
            drop(state);
        }
        self.turn_and_wake(now);
    }

    /// Answers a client when its peer is known.
    fn peer_found(&self, peer: &Peer, request: KeptRequest) {
        match self.group_path(peer, &request) {
            Some(path) => request.answer(&path),
            None => {
                let target = Target::Gid(peer.gid);
                self.cache().resolve_to(target, request);
            }
        }
    }

    /// Returns the path to a peer from the group's record (`route_prot acm`), if it meets the client's
    /// constraints.
    fn group_path(&self, peer: &Peer, request: &ResolveRequest<'_>) -> Option<PathRecord> {
        if self.settings.route_protocol != RouteProtocol::Acm {
            return None;
        }
        let group = self.state.lock().groups.member(peer.group).copied()?;
        let path = self.path_by_group(peer, &group);
        let mut query = request.path_query();
        query.set_target(Target::Gid(peer.gid));
        let query = query.complete(self.source());
        query.check(&path).is_ok().then_some(path)
    }

    /// Returns the path between two members from the group's record.
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
