//! Log lines about the state of the SA.

use crate::address::PKey;
use crate::cache::sm_health::Message;
use crate::clock::Moment;
use crate::host::LogLevel;
use crate::path::PathRecord;
use crate::sa::SaError;

use super::{Shared, State, Waiter};

impl State {
    /// Handles the end of a query. True if the SA has just become silent: waiting clients then get their stale paths.
    pub(super) fn sa_answered(
        &mut self,
        shared: &Shared,
        now: Moment,
        sent: Moment,
        answer: &Result<PathRecord, SaError>,
        pkey: PKey,
    ) -> bool {
        let was_silent = self.health.is_silent();
        let message = self.health.ended(now, sent, answer);
        self.report_health(shared, pkey, message);
        let falls_silent = self.health.is_silent() && !was_silent;
        if falls_silent {
            let has_stale = |waiter: &Waiter| waiter.stale.is_some();
            self.paths
                .end_waiting(now, &crate::lookups::End::Expired, has_stale);
        }
        falls_silent
    }

    pub(super) fn report_health(&mut self, shared: &Shared, pkey: PKey, message: Option<Message>) {
        let Some(message) = message else { return };
        let (place, sm_lid) = (shared.port.place(), shared.sm_lid);
        let waiting = self.paths.waiting() + self.qos.lookups.waiting();
        let line = match message {
            Message::Silent {
                for_ms,
                last,
                unreported,
            } => {
                let unreported = if unreported == 0 {
                    String::new()
                } else {
                    format!("; {unreported} shorter silences before")
                };
                format!(
                    "{place}: SA not responding: SM LID {sm_lid}, P_Key {pkey}, silent for {for_ms} ms, {waiting} requests \
                     pending, last error: {last}{unreported}"
                )
            }
            Message::Answers { after_ms } => format!(
                "{place}: SA responding again: SM LID {sm_lid}, P_Key {pkey}, after {after_ms} ms, {waiting} requests \
                 pending"
            ),
        };
        self.log(LogLevel::ALWAYS, line);
    }
}

impl Shared {
    /// Warns if the subnet manager has moved: the core sends queries to the SM LID of the port's opening.
    pub(super) fn watch_sm_lid(&self) {
        let Ok(attributes) = self.port.attributes() else {
            return;
        };
        let (now, then) = (attributes.sm_lid, self.sm_lid);
        let mut state = self.state.lock();
        let reported = std::mem::replace(&mut state.reported_sm_lid, now);
        if now != reported && now != then {
            let line = format!(
                "{}: the port's SM LID is {now} now, but ibacm keeps asking the SA at SM LID {then} until the port goes down \
                 and up again",
                self.port.place()
            );
            state.log(LogLevel::ALWAYS, line);
        }
    }
}
