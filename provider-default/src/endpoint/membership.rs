//! Joining the groups, and leaving them.

use acm_prov_api::LogLevel;
use acm_prov_api::clock::Moment;
use acm_prov_api::sa::MulticastMember;
use acm_prov_api::sync::Arc;

use super::{AcmEndpoint, State};
use crate::groups::{self, Ask, JoinError};

impl AcmEndpoint {
    pub(super) fn join(self: &Arc<Self>, ask: &Ask) {
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
    pub(super) fn joined(&self, state: &mut State, now: Moment, outcome: groups::Outcome) {
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
}
