//! Requests of clients: own addresses, what is known, what must be asked for.

use acm_prov_api::abi::AcmCounter;
use acm_prov_api::address::{Address, Gid};
use acm_prov_api::cache::engine::Resolution;
use acm_prov_api::clock::Moment;
use acm_prov_api::lookups::{End, Waiter};
use acm_prov_api::path::{PathRecord, Selector};
use acm_prov_api::sa::{MulticastMember, PathQuery, Target};
use acm_prov_api::sync::{Arc, Weak};
use acm_prov_api::{KeptRequest, QueryRequest, ResolveRequest, Status};

use super::AcmEndpoint;
use crate::resolver::Peer;
use crate::settings::RouteProtocol;

/// A client that waits until it is known who has an address.
pub(super) struct Client {
    endpoint: Weak<AcmEndpoint>,
    request: KeptRequest,
}

impl Waiter for Client {
    type Answer = Peer;

    fn end(self, end: End<Peer>) {
        match (end, self.endpoint.upgrade()) {
            (End::Answer(peer), Some(endpoint)) => endpoint.route(peer, self.request, false),
            (End::Expired, _) => self.request.refuse(Status::ETIMEDOUT),
            (End::Full, _) => self.request.refuse(Status::ENOMEM),
            (End::Closed | End::Answer(_), _) => self.request.refuse(Status::ENOTCONN),
        }
    }
}

impl AcmEndpoint {
    /// A client at `from` wants a path.
    pub(crate) fn resolve(self: &Arc<Self>, from: &Address, request: ResolveRequest<'_>) {
        if request.is_by_name() {
            self.resolve_address(from, request.destination(), request);
        } else {
            self.cache.resolve(request);
        }
    }

    /// A client wants the SA itself to be asked.
    pub(crate) fn query(&self, request: QueryRequest) {
        self.cache.query(&request.path_query(), request);
    }

    fn resolve_address(
        self: &Arc<Self>,
        from: &Address,
        destination: Address,
        request: ResolveRequest<'_>,
    ) {
        let now = Moment::now();
        let mut state = self.state.lock();
        if self.settings.answers_own_addresses && state.own.contains(&destination) {
            drop(state);
            return self.answer_own_address(request);
        }
        if let Some(gid) = self.host(&destination) {
            drop(state);
            return self.count_address(self.ask_sa(gid, request));
        }
        if let Some(peer) = state.resolver.known(&destination, now) {
            drop(state);
            return self.route(peer, request, true);
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
            let client = Client {
                endpoint: Arc::downgrade(self),
                request: request.keep(),
            };
            state.resolver.ask(now, destination, *from, client);
            drop(state);
        }
        self.turn_and_tell(now);
    }

    fn answer_own_address(&self, request: ResolveRequest<'_>) {
        let own = self.source().gid;
        // Ask the SA if the port's attributes give no path, or one that the client does not want.
        if let Some(path) = &self.own_path {
            let plain = PathQuery::to(Target::Gid(own)).complete(self.source());
            if self.query_to(own, &request).is_answered_by(&plain, path) {
                return request.answer_from_cache(path);
            }
        }
        self.ask_sa(own, request);
    }

    /// A path by the SA, or from what it said before.
    fn ask_sa(&self, gid: Gid, request: ResolveRequest<'_>) -> Resolution {
        self.cache.resolve_to(Target::Gid(gid), request)
    }

    fn query_to(&self, gid: Gid, request: &ResolveRequest<'_>) -> PathQuery {
        let mut query = request.path_query();
        query.set_target(Target::Gid(gid));
        query.complete(self.source())
    }

    /// The address was known, and only the path had to be asked for.
    fn count_address(&self, resolution: Resolution) {
        if resolution == Resolution::Asked {
            self.handle.count(AcmCounter::ADDR_CACHE);
        }
    }

    /// A path to a peer, as `route_prot` says. `was_known` says whether the client's request found the address known.
    fn route(&self, peer: Peer, request: ResolveRequest<'_>, was_known: bool) {
        if self.settings.route_protocol == RouteProtocol::Acm {
            let group = self.state.lock().groups.member(peer.group).copied();
            if let Some(group) = group {
                let path = self.path_by_group(&peer, &group);
                if self.query_to(peer.gid, &request).check(&path).is_ok() {
                    return match was_known {
                        true => request.answer_from_cache(&path),
                        false => request.answer(&path),
                    };
                }
            }
        }
        let resolution = self.ask_sa(peer.gid, request);
        if was_known {
            self.count_address(resolution);
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
