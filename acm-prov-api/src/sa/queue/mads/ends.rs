//! Ends MADs without a response: by a deadline, a failure or a close.

use super::{Ended, MadId, Mads, PortIndex, State};
use crate::clock::Moment;
use crate::handles::Closed;
use crate::sa::SaError;

impl Mads {
    /// Ends expired MADs. Also returns the ports with freed places. A MAD whose `done` was called keeps its place until it
    /// is presumed lost.
    pub(in crate::sa::queue) fn take_due(&mut self, now: Moment) -> (Vec<Ended>, Vec<PortIndex>) {
        let (mut ended, mut ports) = (Vec::new(), Vec::new());
        while let Some(((deadline, id), ())) = self.deadlines.first()
            && deadline <= now
        {
            let Some(mad) = self.by_id.get_mut(&id) else {
                self.deadlines.pop_first();
                continue;
            };
            if matches!(mad.state, State::Out(_)) && now < mad.lost_at {
                let lost_at = mad.lost_at;
                ended.extend(self.end(id, |_| SaError::TimedOut));
                self.set_deadline(id, lost_at);
                continue;
            }
            ended.extend(self.end(id, |state| match state {
                State::Failed(error) => **error,
                _ => SaError::TimedOut,
            }));
            if let Some(mad) = self.remove(id) {
                ports.push(mad.port);
            }
        }
        (ended, ports)
    }

    /// Takes the `done` of a MAD, if it was not called yet, to call it with an error.
    fn end(&mut self, id: MadId, error: impl FnOnce(&State) -> SaError) -> Option<Ended> {
        let mad = self.by_id.get_mut(&id)?;
        let done = mad.done.take()?;
        self.waiting -= 1;
        Some(Ended {
            host: self.hosts.get(mad.host as usize).copied(),
            sent: mad.sent(),
            done,
            error: error(&mad.state),
        })
    }

    /// Frees the places of a port's MADs that are presumed lost and whose `done` was called. Leaves other ports alone: the
    /// caller hands over only this port's waiting MADs.
    pub(super) fn forget_lost(&mut self, port: PortIndex, now: Moment) {
        if self.next_deadline().is_none_or(|deadline| deadline > now) {
            return;
        }
        let due = self.deadlines.iter().map(|(key, ())| key);
        let due = due.take_while(|(deadline, _)| *deadline <= now);
        let is_lost = |id: &MadId| matches!(self.by_id.get(id), Some(mad) if mad.port == port && mad.done.is_none());
        let lost: Vec<MadId> = due.map(|(_, id)| id).filter(is_lost).collect();
        for id in lost {
            self.remove(id);
        }
    }

    /// Handles a MAD that the core refused: frees its place; the deadline thread calls its `done`.
    pub(in crate::sa::queue) fn not_taken(&mut self, id: MadId, error: SaError) {
        if matches!(self.by_id.get(&id), Some(mad) if matches!(mad.state, State::Out(_))) {
            self.fail(id, error);
        }
    }

    /// Ends a waiting MAD that cannot be handed over any more.
    pub(in crate::sa::queue) fn not_to_be_sent(&mut self, id: MadId, error: SaError) {
        if matches!(self.by_id.get(&id), Some(mad) if matches!(mad.state, State::Queued(..))) {
            self.fail(id, error);
        }
    }

    fn fail(&mut self, id: MadId, error: SaError) {
        let Some(mad) = self.by_id.get_mut(&id) else {
            return;
        };
        if mad.done.is_none() {
            self.remove(id);
            return;
        }
        let before = std::mem::replace(&mut mad.state, State::Failed(Box::new(error)));
        if let Some(port) = self.ports.get_mut(mad.port.0) {
            port.give_back(&before);
        }
        self.set_deadline(id, Moment::default());
    }

    /// Ends all MADs of an endpoint that closes. MADs in the core keep their places.
    pub(in crate::sa::queue) fn close(&mut self, endpoint: u64) -> Vec<Ended> {
        let of_endpoint = self.by_id.iter();
        let of_endpoint = of_endpoint.filter(|(_, mad)| mad.endpoint_id == endpoint);
        let ids: Vec<MadId> = of_endpoint.map(|(id, _)| *id).collect();
        let mut ended = Vec::new();
        for id in ids {
            ended.extend(self.end(id, |_| SaError::Closed(Closed)));
            if matches!(self.by_id.get(&id), Some(mad) if !matches!(mad.state, State::Out(_))) {
                self.remove(id);
            }
        }
        ended
    }
}
