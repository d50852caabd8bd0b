//! Joins and leaves the multicast groups.

use std::time::Duration;

use acm_prov_api::LogLevel;
use acm_prov_api::clock::Moment;
use acm_prov_api::sa::MulticastMember;
use acm_prov_api::sync::Arc;

use super::{AcmEndpoint, State};
use crate::groups::{self, Ask, JoinError};
use crate::settings::RouteProtocol;

impl AcmEndpoint {
    pub(super) fn join(self: &Arc<Self>, ask: &Ask) {
        let ticket = ask.ticket;
        let weak = Arc::downgrade(self);
        self.handle.join_multicast(&ask.join, move |answer| {
            if let Some(endpoint) = weak.upgrade() {
                endpoint.join_answered(ticket, answer.map_err(JoinError::from));
            }
        });
    }

    fn join_answered(
        self: &Arc<Self>,
        ticket: groups::Ticket,
        answer: Result<MulticastMember, JoinError>,
    ) {
        let now = Moment::now();
        let outcome = {
            let mut state = self.state.lock();
            if state.closed {
                return;
            }
            let State {
                groups, listening, ..
            } = &mut *state;
            // Requests arrive in the shared group; the other one only describes the path.
            let attach = |index, member: &MulticastMember| {
                if index == 0 {
                    let listens = self.datagrams.listen(member, listening.take());
                    *listening = Some(listens.map_err(|error| error.to_string())?);
                }
                Ok(())
            };
            groups.answered(now, ticket, answer, attach)
        };
        match outcome {
            groups::Outcome::Joined { member } => self.log(
                LogLevel::VERBOSE,
                format_args!("joined {} (MLID {})", member.mgid, member.mlid),
            ),
            groups::Outcome::Failed { index, error, rest } => {
                self.join_failed(index, &error, rest);
            }
            groups::Outcome::Late => return,
        }
        self.turn_and_wake(now);
    }

    fn join_failed(&self, index: usize, error: &JoinError, rest: Duration) {
        let which = if index == 0 {
            "shared group"
        } else {
            "group of the port's own speed"
        };
        self.log(
            LogLevel::ALWAYS,
            format_args!(
                "not a member of the {which}: {error}; retrying in {} ms",
                rest.as_millis()
            ),
        );
    }

    /// Joins again after the subnet manager lost its state.
    pub(crate) fn reregister(self: &Arc<Self>) {
        let now = Moment::now();
        {
            let mut state = self.state.lock();
            state.groups.reregister(now);
            // With `route_prot acm` the path contains a learnt LID, which may have changed. With the SA it does
            // not matter.
            if self.settings.route_protocol == RouteProtocol::Acm {
                state.resolver.reregister();
            }
        }
        self.turn_and_wake(now);
    }

    /// Tells the SA that the endpoint leaves the groups. Nothing waits for the response.
    pub(crate) fn leave_groups(&self) {
        let joins = self.state.lock().groups.to_leave();
        for join in joins {
            self.handle.leave_multicast(&join, |_| ());
        }
    }
}
