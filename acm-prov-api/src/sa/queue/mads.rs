//! The state of all MADs: which wait here, which the core has, and when each must end. It uses no lock, thread or core.
//!
//! Invariants between two calls:
//! - `Port::queue` has the places of exactly the port's MADs in the state `Queued`.
//! - `Port::out` is the number of the port's MADs in the state `Out`.
//! - `deadlines` has one entry for each MAD whose `deadline` is not [`NEVER`](Moment::NEVER).
//! - `waiting` is the number of MADs with a `done`.
//! - A MAD without a `done` is in the state `Out`.

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

mod ends;

use super::id::{Context, MadId};
use super::{Done, LIMIT, MadRequest, Urgency};
use crate::abi::umad_sa_packet;
use crate::clock::Moment;
use crate::handles::{CorePort, EndpointHandle};
use crate::host::Host;
use crate::ordered::Ordered;
use crate::sa::{SaError, judge};
use crate::text::options::SaLimits;

/// A MAD to queue.
pub(super) struct NewMad {
    pub(super) id: MadId,
    pub(super) endpoint: EndpointHandle,
    pub(super) urgency: Urgency,
    pub(super) request: MadRequest,
    pub(super) asked: Moment,
    /// When `done` must be called at the latest, even if the MAD was not handed over.
    pub(super) wanted_until: Moment,
    pub(super) done: Done,
}

/// A MAD on its way to the core, counted as out.
pub(super) struct HandedOver {
    pub(super) context: Context,
    pub(super) endpoint: EndpointHandle,
    pub(super) request: MadRequest,
    /// Whether no other MAD of the port waits.
    pub(super) is_last: bool,
}

/// A MAD that ended without an answer.
pub(super) struct Ended {
    pub(super) host: Option<Host>,
    pub(super) sent: Moment,
    pub(super) done: Done,
    pub(super) error: SaError,
}

/// The index of a port. It never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PortIndex(usize);

type Place = (Urgency, u64);

enum State {
    Queued(Place, Box<ToSend>),
    /// Handed over at that moment.
    Out(Moment),
    /// The core refused it, or its endpoint is closed.
    Failed(Box<SaError>),
}

/// The data for handing over a MAD.
struct ToSend {
    endpoint: EndpointHandle,
    request: MadRequest,
}

pub(super) struct Mad {
    pub(super) port: PortIndex,
    endpoint_id: u64,
    /// Index of the endpoint's host.
    host: u32,
    /// Method and attribute of the response.
    expected: (u8, u16),
    state: State,
    asked: Moment,
    wanted_until: Moment,
    /// When a MAD in the core is presumed lost.
    lost_at: Moment,
    /// The next deadline of the MAD.
    deadline: Moment,
    /// `None` once called. The core may still have the MAD.
    done: Option<Done>,
}

impl Mad {
    fn sent(&self) -> Moment {
        match self.state {
            State::Out(sent) => sent,
            _ => self.asked,
        }
    }

    /// Calls `done` with the result, unless it was called before.
    pub(super) fn end(self, packet: Result<&umad_sa_packet, SaError>) {
        let sent = self.sent();
        if let Some(done) = self.done {
            let (response, attribute) = self.expected;
            let answer = packet.and_then(|packet| judge(response, attribute, packet));
            done.ended(sent, answer);
        }
    }
}

struct Port {
    core_port: CorePort,
    queue: Ordered<Place, MadId>,
    /// MADs that the core has.
    out: usize,
}

impl Port {
    fn has_room(&self, limits: &SaLimits, urgency: Urgency) -> bool {
        self.out <= limits.depth || urgency == Urgency::Last
    }

    /// Frees the place that a MAD had in `state`.
    fn give_back(&mut self, state: &State) {
        match state {
            State::Queued(place, _) => self.queue.remove(place),
            State::Out(_) => self.out -= 1,
            State::Failed(_) => {}
        }
    }
}

#[derive(Default)]
pub(super) struct Mads {
    by_id: HashMap<MadId, Mad>,
    /// Ports are never removed: there are only as many as the devices have.
    ports: Vec<Port>,
    deadlines: Ordered<(Moment, MadId), ()>,
    waiting: usize,
    places: u64,
    /// The cores that send the MADs. There is one, except in tests and under a host in Rust with several.
    hosts: Vec<Host>,
}

impl Mads {
    fn host_index(&mut self, host: &Host) -> u32 {
        let known = self
            .hosts
            .iter()
            .position(|known| std::ptr::eq(known.table(), host.table()));
        let index = known.unwrap_or(self.hosts.len());
        match known {
            Some(index) => self.hosts[index] = *host,
            None => self.hosts.push(*host),
        }
        // There are far fewer tables than 2^32: each is a static.
        index as u32
    }

    /// Returns the host of a MAD; for an unknown context, the only host that there can be.
    pub(super) fn host(&self, context: Option<Context>) -> Option<Host> {
        let index = context.map_or(0, |context| context.host as usize);
        self.hosts.get(index).or(self.hosts.first()).copied()
    }

    fn port_index(&mut self, core_port: CorePort) -> PortIndex {
        let known = self.ports.iter().position(|p| p.core_port == core_port);
        PortIndex(known.unwrap_or_else(|| {
            self.ports.push(Port {
                core_port,
                queue: Ordered::new(),
                out: 0,
            });
            self.ports.len() - 1
        }))
    }

    pub(super) fn is_full(&self) -> bool {
        self.by_id.len() >= LIMIT
    }

    /// Whether any `done` is still to be called.
    pub(super) fn is_any_waited_for(&self) -> bool {
        self.waiting > 0
    }

    /// Returns when [`take_due`](Self::take_due) has something to do.
    pub(super) fn next_deadline(&self) -> Option<Moment> {
        self.deadlines.first().map(|((deadline, _), ())| deadline)
    }

    /// Queues a MAD, and returns the next one of its port to hand over: usually the same MAD, which then never waits.
    /// Returns `done` if there is a MAD with that id already.
    pub(super) fn submit(&mut self, new: NewMad) -> Result<(PortIndex, Option<HandedOver>), Done> {
        let NewMad {
            id,
            endpoint,
            urgency,
            request,
            asked,
            wanted_until,
            done,
        } = new;
        let index = self.port_index(endpoint.port().core_port());
        let host = self.host_index(endpoint.host());
        let endpoint_id = endpoint.id();
        let Entry::Vacant(vacant) = self.by_id.entry(id) else {
            return Err(done);
        };
        let limits = endpoint.host().sa_limits();
        let port = &mut self.ports[index.0];
        let expected = (request.response, request.attribute);
        let (state, lost_at, next) = if port.queue.is_empty() && port.has_room(&limits, urgency) {
            let lost_at = lost_at(&limits, port.out, asked);
            port.out += 1;
            let next = HandedOver {
                context: Context { host, id },
                endpoint,
                request,
                is_last: true,
            };
            (State::Out(asked), lost_at, Some(next))
        } else {
            self.places += 1;
            let place = (urgency, self.places);
            port.queue.insert(place, id);
            let to_send = Box::new(ToSend { endpoint, request });
            (State::Queued(place, to_send), Moment::NEVER, None)
        };
        let deadline = wanted_until.min(lost_at);
        if deadline != Moment::NEVER {
            self.deadlines.insert((deadline, id), ());
        }
        self.waiting += 1;
        vacant.insert(Mad {
            port: index,
            endpoint_id,
            host,
            expected,
            state,
            asked,
            wanted_until,
            lost_at,
            deadline,
            done: Some(done),
        });
        let next = next.or_else(|| self.next_to_hand_over(index, asked));
        Ok((index, next))
    }

    /// Returns the endpoint of a waiting MAD.
    pub(super) fn queued_endpoint(&self, id: MadId) -> Option<EndpointHandle> {
        match &self.by_id.get(&id)?.state {
            State::Queued(_, to_send) => Some(to_send.endpoint.clone()),
            _ => None,
        }
    }

    pub(super) fn is_any_queued(&self, port: PortIndex) -> bool {
        let port = self.ports.get(port.0);
        port.is_some_and(|port| !port.queue.is_empty())
    }

    /// Takes the next MAD that a port may hand over, and counts it as out.
    pub(super) fn next_to_hand_over(&mut self, port: PortIndex, now: Moment) -> Option<HandedOver> {
        self.forget_lost(port, now);
        let port = self.ports.get_mut(port.0)?;
        let ((urgency, _), &id) = port.queue.first()?;
        let mad = self.by_id.get_mut(&id)?;
        let State::Queued(_, to_send) = &mad.state else {
            return None;
        };
        let limits = to_send.endpoint.host().sa_limits();
        if !port.has_room(&limits, urgency) {
            return None;
        }
        port.queue.pop_first();
        mad.lost_at = lost_at(&limits, port.out, now);
        port.out += 1;
        let (is_last, context) = (port.queue.is_empty(), Context { host: mad.host, id });
        let before = std::mem::replace(&mut mad.state, State::Out(now));
        let deadline = mad.lost_at.min(mad.wanted_until);
        self.set_deadline(id, deadline);
        let State::Queued(_, to_send) = before else {
            return None;
        };
        let ToSend { endpoint, request } = *to_send;
        Some(HandedOver {
            context,
            endpoint,
            request,
            is_last,
        })
    }

    /// Removes a MAD that the core has returned, and frees its place. `None` if it was presumed lost.
    pub(super) fn take_back(&mut self, id: MadId) -> Option<Mad> {
        let Entry::Occupied(known) = self.by_id.entry(id) else {
            return None;
        };
        if !matches!(known.get().state, State::Out(_)) {
            return None;
        }
        let mad = known.remove();
        self.forget(id, &mad);
        Some(mad)
    }

    /// Removes a MAD that the core does not have yet. `None`: the core has it, or it has ended.
    #[cfg(any(feature = "cache", test))]
    pub(super) fn withdraw(&mut self, id: MadId) -> Option<Mad> {
        match self.by_id.get(&id)?.state {
            State::Queued(..) => self.remove(id),
            _ => None,
        }
    }

    fn remove(&mut self, id: MadId) -> Option<Mad> {
        let mad = self.by_id.remove(&id)?;
        self.forget(id, &mad);
        Some(mad)
    }

    /// Frees the place and deadline of a removed MAD.
    fn forget(&mut self, id: MadId, mad: &Mad) {
        if mad.deadline != Moment::NEVER {
            self.deadlines.remove(&(mad.deadline, id));
        }
        self.waiting -= usize::from(mad.done.is_some());
        if let Some(port) = self.ports.get_mut(mad.port.0) {
            port.give_back(&mad.state);
        }
    }

    fn set_deadline(&mut self, id: MadId, deadline: Moment) {
        let Some(mad) = self.by_id.get_mut(&id) else {
            return;
        };
        let before = std::mem::replace(&mut mad.deadline, deadline);
        if before != Moment::NEVER {
            self.deadlines.remove(&(before, id));
        }
        if deadline != Moment::NEVER {
            self.deadlines.insert((deadline, id), ());
        }
    }
}

/// Returns when a MAD handed over now is presumed lost, if the core has `out` others: a MAD that waits in the core first
/// needs the time of the others. The additional `timeout` lets the core report the end itself.
fn lost_at(limits: &SaLimits, out: usize, now: Moment) -> Moment {
    let rounds = 1 + u64::from(out >= limits.depth);
    let time = limits.patience().saturating_mul(rounds);
    now.after(time.saturating_add(limits.timeout))
}

#[cfg(test)]
mod tests;
